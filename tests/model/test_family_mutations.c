/* SPDX-License-Identifier: Apache-2.0 */
/* Configurations of every family with one key at a time gone or replaced by each kind of value: they are read or refused
 * with a message, never more. Accepted ones pass the checks of a configuration made by hand. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "model/config.h"
#include "support/test_support.h"

static const char *const cases[] = {"llama",       "qwen2",        "qwen3_yarn", "qwen3_moe", "qwen3_5_moe", "qwen3_next",
                                    "qwen3_5_vlm", "olmo_hybrid",  "afmoe",      "gpt_oss",   "laguna_head", "laguna_element",
                                    "step3p5",     "muse_glimmer", "paper_headwise_g2"};

static const char *const values[] = {
    "null", "0",     "1",        "-1",    "3",     "2147483648", "1e300", "0.5", "true",  "false",       "\"\"",
    "\"x\"", "\"1,2\"", "[]",    "[0]",   "[null, null, null, null]",  "[\"full_attention\", \"sliding_attention\"]",
    "[1, 2, 3, 4]", "{}",       "{\"rope_type\": \"yarn\"}", "{\"full_attention\": {\"rope_theta\": 0}}",
    "{\"full_attention\": 3, \"sliding_attention\": null}",
};

static int parsed, refused;

static void parse(json_t *root) {
    sluice_error err = {0};
    sluice_config config;
    char *text = json_dumps(root, JSON_COMPACT);
    assert_non_null(text);
    if (sluice_config_parse(&config, text, "config.json", &err) == SLUICE_OK) {
        if (sluice__config_check(&config, &err) != SLUICE_OK) fail_msg("%s\n%s", err.message, text);
        assert_true(sluice_config_num_parameters(&config) > 0);
        assert_true(sluice_config_cache_bytes(&config, 16) >= 0);
        sluice_config_free(&config);
        parsed++;
    } else {
        if (!err.message[0] || !strstr(err.message, "config.json")) fail_msg("\"%s\"\n%s", err.message, text);
        refused++;
    }
    free(text);
}

/* Every key of `object`, which is root or inside of it. */
static void mutate(json_t *root, json_t *object) {
    size_t n = json_object_size(object), at = 0;
    const char **keys = malloc((n + 1) * sizeof *keys);
    assert_non_null(keys);
    for (void *i = json_object_iter(object); i; i = json_object_iter_next(object, i)) keys[at++] = json_object_iter_key(i);
    for (size_t k = 0; k < n; k++) {
        char key[128];
        snprintf(key, sizeof key, "%s", keys[k]);
        json_t *before = json_incref(json_object_get(object, key));
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            json_object_set_new(object, key, json_loads(values[v], JSON_DECODE_ANY, NULL));
            parse(root);
        }
        json_object_set(object, key, before); /* the same place, so that the list of keys stays good */
        if (json_is_object(before)) mutate(root, before);
        json_decref(before);
    }
    free(keys);
    json_t *whole = json_copy(object); /* what is gone: on a copy, put back whole */
    const char *key;
    json_t *value;
    json_object_foreach(whole, key, value) {
        json_object_del(object, key);
        parse(root);
        json_object_clear(object);
        json_object_update(object, whole);
    }
    json_decref(whole);
}

static void configurations(void **state) {
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        char path[80];
        snprintf(path, sizeof path, "reference/models/%s/config.json", cases[c]);
        json_t *root = test_shared(path) ? json_load_file(test_shared(path), 0, NULL) : NULL;
        if (!root) continue;
        mutate(root, root);
        json_decref(root);
    }
    assert_true(parsed > 1000 && refused > 1000);
}

int main(void) {
    if (!test_shared("reference/models/llama")) return TEST_SKIPPED;
    const struct CMUnitTest tests[] = {cmocka_unit_test(configurations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
