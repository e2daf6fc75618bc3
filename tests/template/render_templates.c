/* SPDX-License-Identifier: Apache-2.0 */
/* For tests in Python: reads JSON lines {"template", "variables", "now"} and answers each with {"text"} or {"error",
 * "status"}. */
#include "sluice/template.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *answer(const json_t *in) {
    const json_t *text = json_object_get(in, "template");
    char *variables = json_dumps(json_object_get(in, "variables"), JSON_ENCODE_ANY);
    sluice_template_limits limits = sluice_template_limits_default();
    sluice_error err = {0};
    sluice_template *t;
    sluice_text out = {0};
    limits.now = json_integer_value(json_object_get(in, "now"));
    sluice_status st = sluice_template_parse(&t, json_string_value(text), json_string_length(text), "template", &err);
    if (st == SLUICE_OK) st = sluice_template_render(t, variables, &limits, &out, &err);
    json_t *result = st == SLUICE_OK ? json_pack("{s:s%}", "text", out.data ? out.data : "", out.size)
                                     : json_pack("{s:s, s:i}", "error", err.message, "status", (int)st);
    sluice_text_free(&out);
    sluice_template_free(t);
    free(variables);
    return result;
}

int main(void) {
    char *line = NULL;
    size_t capacity = 0;
    for (ssize_t n; (n = getline(&line, &capacity, stdin)) > 0;) {
        json_t *in = json_loadb(line, (size_t)n, JSON_ALLOW_NUL, NULL);
        json_t *out = in ? answer(in) : json_pack("{s:s, s:i}", "error", "bad request", "status", -1);
        if (!out) out = json_pack("{s:s, s:i}", "error", "bad answer", "status", -1);
        json_dumpf(out, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
        putchar('\n');
        fflush(stdout);
        json_decref(out);
        json_decref(in);
    }
    free(line);
    return 0;
}
