/* SPDX-License-Identifier: Apache-2.0 */
/* The arms are multiplied out before anything else looks at them, so that plans, runs, measurements and comparisons know
 * nothing of ladders; only findings and report put rungs together again. */
#include "study/ladder.h"
#include "base/memory.h"
#include "study/recipe.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { RATES_MAX = 16, NAME_MAX = 40 };

sluice_status sluice__ladder_check(const sluice__json *root, sluice_error *err) {
    sluice__json ladder = sluice__json_get(root, SLUICE__LADDER_KEY);
    if (!ladder.value || json_is_null(ladder.value)) return SLUICE_OK;
    if (!json_is_object(ladder.value)) return sluice__json_fail(&ladder, NULL, err, "expected an object");
    const char *key;
    json_t *value;
    json_object_foreach(ladder.value, key, value)
        if (strcmp(key, "learning_rate") != 0)
            return sluice__json_fail(&ladder, key, err, "unknown key; a ladder has \"learning_rate\"");
    json_t *rates = json_object_get(ladder.value, "learning_rate");
    size_t n = json_array_size(rates);
    if (!json_is_array(rates) || n < 1 || n > RATES_MAX)
        return sluice__json_fail(&ladder, "learning_rate", err, "expected an array of 1..%d numbers", RATES_MAX);
    double last = 0;
    for (size_t i = 0; i < n; i++) {
        double rate = json_number_value(json_array_get(rates, i)); /* 0 for what is no number */
        if (!(rate > last && rate < 1e6))
            return sluice__json_fail(&ladder, "learning_rate", err, "expected rising numbers above 0");
        last = rate;
    }
    return SLUICE_OK;
}

/* "4e-3", "1.2e-2" */
static void rate_text(char out[32], double rate) {
    int exponent = (int)floor(log10(rate) + 1e-9);
    snprintf(out, 32, "%.4ge%d", rate / pow(10, exponent), exponent);
}

/* The same with what a name may hold: "4e-3", "1_2e-2". */
static void rate_name(char out[32], double rate) {
    rate_text(out, rate);
    for (char *c = out; *c; c++)
        if (*c == '.') *c = '_';
}

static json_t *rung_of(const json_t *arm, double rate) {
    char name[128], label[256], text[32], word[32];
    const char *of = json_string_value(json_object_get(arm, "name")),
               *of_label = json_string_value(json_object_get(arm, "label"));
    json_t *rung = json_deep_copy(arm);
    rate_text(text, rate);
    rate_name(word, rate);
    snprintf(name, sizeof name, "%s-%s", of, word);
    snprintf(label, sizeof label, "%.200s, %s", of_label, text);
    json_object_set_new(rung, "name", json_string(name));
    json_object_set_new(rung, "label", json_string(label));
    json_object_set_new(json_object_get(rung, "training"), "learning_rate", json_real(rate));
    json_object_set_new(rung, "rung",
                        json_pack("{s:s, s:s, s:f}", "of", of, "label", of_label, "learning_rate", rate));
    return rung;
}

sluice_status sluice__ladder_apply(json_t *root, const char *file, sluice_error *err) {
    json_t *rates = json_object_get(json_object_get(root, SLUICE__LADDER_KEY), "learning_rate"),
           *arms = json_object_get(root, "arms"), *arm, *rate, *out;
    size_t i, j, n = json_array_size(rates) * json_array_size(arms);
    if (!json_array_size(rates)) return SLUICE_OK;
    if (n > SLUICE__MAX_ARMS)
        return sluice__fail(err, SLUICE_ERR_CONFIG, "%s: ladder: %zu arms at %zu rates are %zu, expected at most %d", file,
                            json_array_size(arms), json_array_size(rates), n, SLUICE__MAX_ARMS);
    out = json_array();
    json_array_foreach(arms, i, arm) json_array_foreach(rates, j, rate) {
        json_t *rung = rung_of(arm, json_number_value(rate));
        const char *name = json_string_value(json_object_get(rung, "name"));
        bool fits = name && strlen(name) <= NAME_MAX;
        if (!fits || json_array_append_new(out, rung) != 0) {
            sluice_status st = fits ? sluice__no_memory(err, 0, "a ladder")
                                    : sluice__fail(err, SLUICE_ERR_CONFIG, "%s: ladder: the name \"%.60s\" has more than %d letters",
                                                   file, name ? name : "", NAME_MAX);
            if (!fits) json_decref(rung);
            json_decref(out);
            return st;
        }
    }
    json_object_set_new(root, "arms", out);
    return SLUICE_OK;
}
