/* SPDX-License-Identifier: Apache-2.0 */
/* For tests in Python: reads JSON lines {"params", "logits", "history"} (null = -infinity) and answers each with
 * {"probs"} or {"error"}. */
#include "sluice/sampler.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static double number(const json_t *params, const char *key, double otherwise) {
    const json_t *v = json_object_get(params, key);
    return v ? json_number_value(v) : otherwise;
}

static sluice_sampling_params params_of(const json_t *j) {
    sluice_sampling_params p = sluice_sampling_params_default();
    p.temperature = number(j, "temperature", p.temperature);
    p.top_k = (int)number(j, "top_k", p.top_k);
    p.top_p = number(j, "top_p", p.top_p);
    p.min_p = number(j, "min_p", p.min_p);
    p.typical_p = number(j, "typical_p", p.typical_p);
    p.repetition_penalty = number(j, "repetition_penalty", p.repetition_penalty);
    p.presence_penalty = number(j, "presence_penalty", p.presence_penalty);
    p.frequency_penalty = number(j, "frequency_penalty", p.frequency_penalty);
    return p;
}

static json_t *answer(const json_t *in) {
    const json_t *logits = json_object_get(in, "logits"), *history = json_object_get(in, "history");
    size_t n = json_array_size(logits), h = json_array_size(history);
    float *z = calloc(n + 1, sizeof *z), *probs = calloc(n + 1, sizeof *probs);
    int32_t *seen = calloc(h + 1, sizeof *seen);
    sluice_sampling_params p = params_of(json_object_get(in, "params"));
    sluice_sampler *s = NULL;
    sluice_error err = {0};
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(logits, i);
        z[i] = json_is_null(v) ? -INFINITY : (float)json_number_value(v);
    }
    for (size_t i = 0; i < h; i++) seen[i] = (int32_t)json_integer_value(json_array_get(history, i));
    sluice_status st = sluice_sampler_new(&s, &p, (int)n, &err);
    if (st == SLUICE_OK) st = sluice_sampler_distribution(s, z, seen, (int64_t)h, probs, &err);
    json_t *out = json_object();
    if (st != SLUICE_OK) {
        json_object_set_new(out, "error", json_string(err.message));
    } else {
        json_t *list = json_array();
        for (size_t i = 0; i < n; i++) json_array_append_new(list, json_real((double)probs[i]));
        json_object_set_new(out, "probs", list);
    }
    sluice_sampler_free(s);
    free(z);
    free(probs);
    free(seen);
    return out;
}

int main(void) {
    char *line = NULL;
    size_t capacity = 0;
    for (ssize_t n; (n = getline(&line, &capacity, stdin)) > 0;) {
        json_t *in = json_loadb(line, (size_t)n, 0, NULL), *out = answer(in);
        json_dumpf(out, stdout, JSON_COMPACT);
        putchar('\n');
        fflush(stdout);
        json_decref(out);
        json_decref(in);
    }
    free(line);
    return 0;
}
