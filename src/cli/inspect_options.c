/* SPDX-License-Identifier: Apache-2.0 */
/* From options to interventions: each is one row of the table; --window and --sinks make a row for
 * every pair. */
#include "cli/cli.h"
#include "cli/inspect.h"
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct rows {
    sluice_inspect_change *out;
    char (*names)[CLI_INSPECT_NAME];
    int count;
} rows;

bool cli_inspect_integer(const char *text, long long min, long long max, long long *out) {
    char *end;
    long long v = strtoll(text, &end, 10);
    *out = v;
    return end != text && !*end && v >= min && v <= max;
}

int cli_inspect_numbers(const char *text, double *out, int most) {
    for (int n = 0; n < most;) {
        char *end;
        out[n] = strtod(text, &end);
        if (end == text || !isfinite(out[n++]) || (*end && *end != ',')) return -1;
        if (!*end) return n;
        text = end + 1;
    }
    return -1;
}

static int add(rows *r, const sluice_intervention *change, const char *fmt, double a, double b) {
    if (r->count == CLI_INSPECT_LIST)
        return cli_usage("inspect", "more than %d interventions", CLI_INSPECT_LIST);
    char *name = r->names[r->count];
    if (strchr(fmt, '%')) {
        char number[2][24];
        snprintf(number[0], sizeof number[0], "%.6g", a);
        snprintf(number[1], sizeof number[1], "%.6g", b);
        const char *first = strstr(fmt, "%a"), *second = strstr(fmt, "%b");
        snprintf(name, CLI_INSPECT_NAME, "%.*s%s%.*s%s%s", (int)(first - fmt), fmt, number[0],
                 second ? (int)(second - first - 2) : 0, first + 2, second ? number[1] : "",
                 second ? second + 2 : first + 2);
    } else {
        snprintf(name, CLI_INSPECT_NAME, "%s", fmt);
    }
    r->out[r->count] = (sluice_inspect_change){.name = name, .change = *change};
    r->count++;
    return CLI_OK;
}

/* "gate=0.15" */
static int add_set(rows *r, const char *text) {
    sluice_intervention x = {0};
    double v;
    if (strncmp(text, "gate=", 5))
        return cli_usage("inspect",
                         "--set: found \"%s\", expected gate=V, gate=mean or gate=channel-mean",
                         text);
    const char *value = text + 5;
    if (!strcmp(value, "mean") || !strcmp(value, "channel-mean")) {
        x.gate = *value == 'm' ? SLUICE_GATE_LAYER_MEAN : SLUICE_GATE_CHANNEL_MEAN;
        return add(r, &x, *value == 'm' ? "gate = mean of its layer" : "gate = its own mean", 0, 0);
    }
    if (cli_inspect_numbers(value, &v, 1) != 1)
        return cli_usage(
            "inspect", "--set: gate: found \"%s\", expected a number, mean or channel-mean", value);
    x.gate = SLUICE_GATE_VALUE_OF;
    x.gate_value = v;
    return add(r, &x, "gate = %a", v, 0);
}

static int add_massive(rows *r, const cli_inspect_changes *c) {
    int code = CLI_OK;
    sluice_intervention x = {.massive = SLUICE_MASSIVE_ZERO};
    if (c->zero_massive) code = add(r, &x, "massive activations = 0", 0, 0);
    x.massive = SLUICE_MASSIVE_MEAN;
    if (code == CLI_OK && c->mean_massive) code = add(r, &x, "massive activations = mean", 0, 0);
    return code;
}

static int add_windows(rows *r, const cli_inspect_changes *c) {
    double window[CLI_INSPECT_LIST], sinks[CLI_INSPECT_LIST] = {0};
    int windows = c->window ? cli_inspect_numbers(c->window, window, CLI_INSPECT_LIST) : 0;
    int keep = c->sinks ? cli_inspect_numbers(c->sinks, sinks, CLI_INSPECT_LIST) : 1, code = CLI_OK;
    if (c->sinks && !c->window) return cli_usage("inspect", "--sinks needs --window");
    for (int i = 0; i < windows; i++)
        if (window[i] < 1 || window[i] > INT_MAX || window[i] != floor(window[i])) windows = -1;
    for (int i = 0; i < keep; i++)
        if (sinks[i] < 0 || sinks[i] > INT_MAX / 2 || sinks[i] != floor(sinks[i])) keep = -1;
    if (windows < 0)
        return cli_usage("inspect", "--window: found \"%s\", expected whole numbers from 1",
                         c->window);
    if (keep < 0)
        return cli_usage("inspect", "--sinks: found \"%s\", expected whole numbers from 0",
                         c->sinks);
    for (int i = 0; code == CLI_OK && i < windows * keep; i++) {
        sluice_intervention x = {.window = (int)window[i / keep], .sinks = (int)sinks[i % keep]};
        code = add(r, &x, "window %a, %b first keys", x.window, x.sinks);
    }
    return code;
}

static int add_clips(rows *r, const char *text) {
    double clip[CLI_INSPECT_LIST];
    int n = text ? cli_inspect_numbers(text, clip, CLI_INSPECT_LIST) : 0, code = CLI_OK;
    for (int i = 0; i < n; i++)
        if (!(clip[i] > 0)) n = -1;
    if (n < 0)
        return cli_usage("inspect", "--clip-residual: found \"%s\", expected numbers above 0",
                         text);
    for (int i = 0; code == CLI_OK && i < n; i++) {
        sluice_intervention x = {.residual_clip = clip[i]};
        code = add(r, &x, "outputs clipped at %a", clip[i], 0);
    }
    return code;
}

int cli_inspect_collect(const cli_inspect_changes *c, sluice_inspect_change *out,
                        char (*names)[CLI_INSPECT_NAME], int *count) {
    rows r = {.out = out, .names = names};
    int code = CLI_OK;
    for (char **s = c->set; code == CLI_OK && s && *s; s++) code = add_set(&r, *s);
    if (code == CLI_OK) code = add_massive(&r, c);
    if (code == CLI_OK) code = add_windows(&r, c);
    if (code == CLI_OK) code = add_clips(&r, c->clip);
    if (code == CLI_OK && c->no_bos) {
        code = add(&r, &(sluice_intervention){0}, "nothing in front", 0, 0);
        if (code == CLI_OK) out[r.count - 1].no_bos = true;
    }
    *count = r.count;
    return code;
}

void cli_inspect_free(cli_inspect_changes *c) {
    for (char **s = c->set; s && *s; s++) free(*s);
    free((void *)c->set);
    c->set = NULL;
}
