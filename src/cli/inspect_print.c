/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of sluice inspect, read from the JSON that it writes. Layers, positions and channels
 * count from 0. */
#include "cli/inspect.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Number behind a path of keys that ends with NULL; NaN when there is none. */
static double number(const json_t *at, ...) {
    va_list keys;
    va_start(keys, at);
    for (const char *key; (key = va_arg(keys, const char *));) at = json_object_get(at, key);
    va_end(keys);
    return json_is_number(at) ? json_number_value(at) : NAN;
}

/* Right-aligned, a dash for what is not there; large numbers without decimals. */
static void cell(double v, int width, int digits) {
    if (isnan(v))
        printf(" %*s", width, "-");
    else if (fabs(v) >= 1e7)
        printf(" %*.3g", width, v);
    else
        printf(" %*.*f", width, fabs(v) >= 1000 ? 0 : digits, v);
}

/* At most `width` characters (not bytes), filled up. */
static void label(const char *text, int width) {
    int n = 0;
    const char *at = text;
    for (; *at; at++) {
        bool begins = (*at & 0xc0) != 0x80;
        if (begins && n == width) break;
        n += begins;
    }
    printf("%.*s%*s", (int)(at - text), text, width - n, "");
}

static void summary_head(const char *what) {
    label(what, 34);
    printf(" %9s %9s %11s %9s %10s %8s %9s %10s\n", "share", "rate", "sink heads", "M-Act",
           "massive", "gate", "loss", "perplexity");
}

static void summary_row(const char *name, const json_t *inspect) {
    char heads[32];
    label(name, 34);
    cell(number(inspect, "f_attn_mean", "from_1", NULL), 9, 4);
    cell(number(inspect, "sink_rate_0.3_mean", NULL), 9, 3);
    snprintf(heads, sizeof heads, "%.0f/%.0f", number(inspect, "sink_heads", NULL),
             number(inspect, "heads", NULL));
    printf(" %11s", heads);
    cell(number(inspect, "m_act_mean", NULL), 9, 2);
    cell(number(inspect, "massive_total", NULL), 10, 0);
    cell(number(inspect, "gate_mean", NULL), 8, 3);
    cell(number(inspect, "loss", "loss", NULL), 9, 4);
    cell(number(inspect, "loss", "perplexity", NULL), 10, 3);
    printf("\n");
}

static double mean_of(const json_t *array) {
    double sum = 0;
    size_t i;
    json_t *v;
    json_array_foreach(array, i, v) sum += json_number_value(v);
    return json_array_size(array) ? sum / (double)json_array_size(array) : NAN;
}

static void print_layers(const json_t *inspect) {
    size_t i;
    json_t *l;
    printf("\n%5s %9s %9s %9s %11s %11s %9s %9s %9s %9s\n", "layer", "share", "rate", "entropy",
           "max |h|", "median", "massive", "gate", "< 0.1", "router");
    json_array_foreach(json_object_get(inspect, "layers"), i, l) {
        printf("%5zu", i);
        cell(number(l, "f_attn", "from_1", NULL), 9, 4);
        cell(number(l, "sink_rate_0.3", NULL), 9, 3);
        cell(mean_of(json_object_get(json_object_get(l, "heads"), "entropy")), 9, 3);
        cell(number(l, "max_abs", "resid_ffn", NULL), 11, 3);
        cell(number(l, "residual", "median", NULL), 11, 4);
        cell(number(l, "residual", "massive", NULL), 9, 0);
        cell(number(l, "gate", "mean", NULL), 9, 3);
        cell(number(l, "gate", "below_0.1", NULL), 9, 3);
        cell(number(l, "router", "entropy", NULL), 9, 3);
        printf("\n");
    }
}

static void print_origins(const json_t *model) {
    const json_t *o = json_object_get(model, "origins"), *peak = json_object_get(o, "peak");
    double sink = number(o, "sink_layer", NULL);
    if (isnan(sink))
        printf("No layer's mean first-token share exceeds 0.3.");
    else
        printf("The sink begins in layer %.0f (first-token share above 0.3 in %.0f layers).", sink,
               number(o, "sink_layers", NULL));
    if (peak) {
        const char *place = json_string_value(json_object_get(peak, "place"));
        printf(" The largest activation stands behind layer %.0f: %.6g in channel %.0f at position "
               "%.0f, %s%s.",
               number(peak, "layer", NULL), number(peak, "value", NULL),
               number(peak, "channel", NULL), number(peak, "position", NULL),
               place && !strcmp(place, "ffn_out") ? "written by its MLP"
                                                  : "written by its attention",
               json_is_true(json_object_get(peak, "massive")) ? "; it is massive" : "");
    }
    printf("\n");
}

static void print_changes(const json_t *model) {
    const json_t *rows = json_object_get(model, "interventions");
    size_t i;
    json_t *row;
    if (!json_array_size(rows)) return;
    printf("\n");
    summary_head("intervention");
    summary_row("none", json_object_get(model, "inspect"));
    json_array_foreach(rows, i, row) {
        const char *name = json_string_value(json_object_get(row, "name"));
        const char *problem = json_string_value(json_object_get(row, "error"));
        if (!problem) {
            summary_row(name, json_object_get(row, "inspect"));
            continue;
        }
        label(name, 34);
        printf(" %s\n", problem);
    }
}

static void print_model(const json_t *model, bool alone) {
    const char *name = json_string_value(json_object_get(model, "name"));
    const json_t *first = json_object_get(json_object_get(model, "first_token"), "text");
    if (json_object_get(model, "error")) return;
    double windows = number(model, "inspect", "windows", NULL),
           tokens = number(model, "inspect", "seq_len", NULL);
    printf("\n%s: %.0f window%s of %.0f token%s", name, windows, windows == 1 ? "" : "s", tokens,
           tokens == 1 ? "" : "s");
    if (first) printf(", %s in front", json_string_value(first));
    printf("; uniform attention would give a share of %.4f.\n",
           number(model, "uniform_share", "from_1", NULL));
    print_origins(model);
    if (alone) print_layers(json_object_get(model, "inspect"));
    print_changes(model);
}

void cli_inspect_print(const json_t *root) {
    const json_t *models = json_object_get(root, "models");
    size_t i;
    json_t *model;
    summary_head("model");
    json_array_foreach(models, i, model) {
        const char *name = json_string_value(json_object_get(model, "name"));
        const char *problem = json_string_value(json_object_get(model, "error"));
        if (problem)
            printf("%-34s %s\n", name, problem);
        else
            summary_row(name, json_object_get(model, "inspect"));
    }
    json_array_foreach(models, i, model) print_model(model, json_array_size(models) == 1);
    printf("\nshare: mean attention on the first token, without the first query; rate: heads whose "
           "mean over all queries\n"
           "exceeds 0.3; M-Act: largest |h| behind each layer, mean over layers; massive: |h| > "
           "100 and > 1000 medians.\n\n");
}
