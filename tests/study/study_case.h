/* SPDX-License-Identifier: Apache-2.0 */
/* A study that ends in a second: three arms, one of which diverges, on a made-up text. */
#ifndef SLUICE_TEST_STUDY_CASE_H
#define SLUICE_TEST_STUDY_CASE_H
#include "support/test_support.h"
#include "base/file.h"
#include "base/json.h"
#include "base/strbuf.h"
#include "sluice/cpu.h"
#include "sluice/study.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CASE_ARMS                                                                                                      \
    "{\"name\": \"baseline\", \"label\": \"no gate\"}, "                                                               \
    "{\"name\": \"headwise\", \"label\": \"a gate\", \"config\": {\"gate_position\": \"sdpa\", "                       \
    "\"gate_granularity\": \"headwise\"}}, "                                                                           \
    "{\"name\": \"wild\", \"label\": \"too fast\", \"training\": {\"learning_rate\": 100000, \"max_grad_norm\": 0}}"

/* Writes recipe.json and text.txt into dir. */
static inline void write_case(const char *dir, int updates, const char *arms) {
    static const char *const words[] = {"the ", "gate ", "opens ",   "and ",  "a ",  "small ",  "model ", "reads ",
                                        "its ", "own ",  "words.\n", "Then ", "it ", "stops. ", "Every ", "head "};
    sluice__strbuf text = {0}, recipe = {0};
    char path[1024];
    for (unsigned i = 0, x = 1; i < 6000; i++) {
        x = x * 1103515245u + 12345u;
        sluice__strbuf_puts(&text, words[x >> 16 & 15]);
    }
    sluice__strbuf_printf(
        &recipe,
        "{\"name\": \"tiny\", \"seeds\": [1, 2], \"model\": {\"hidden_size\": 16, \"num_hidden_layers\": 2, "
        "\"num_attention_heads\": 2, \"intermediate_size\": 32}, \"data\": {\"vocab_size\": 280, \"seq_len\": 16, "
        "\"bos\": "
        "\"window\", \"split\": \"parts\", \"split_parts\": 4, \"validation_split_percentage\": 10}, \"training\": "
        "{\"max_steps\": "
        "%d, \"warmup_steps\": 2, \"per_device_train_batch_size\": 4, \"save_steps\": 8, \"probe_steps\": 10, "
        "\"probe_samples\": 2},"
        " \"evaluation\": {\"inspect_windows\": 8, \"map_tokens\": 12, \"heldout_prompts\": 1, \"prompt_tokens\": 3, "
        "\"sample_tokens\": 5, \"length_tokens\": 512}, \"arms\": [%s]}",
        updates, arms);
    snprintf(path, sizeof path, "%s/text.txt", dir);
    assert_ok(sluice__write_file(path, text.data, text.size, NULL));
    snprintf(path, sizeof path, "%s/recipe.json", dir);
    assert_ok(sluice__write_file(path, recipe.data, recipe.size, NULL));
    sluice__strbuf_free(&text);
    sluice__strbuf_free(&recipe);
}

/* Times, dates and what is made of them. */
static inline void drop_times(json_t *v) {
    static const char *const keys[] = {"created",       "seconds",           "tokens_per_s",
                                       "seconds_ratio", "peak_memory_bytes", "machine"};
    const char *key;
    json_t *inside, *cost = NULL;
    size_t i;
    if (json_is_object(v)) {
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) json_object_del(v, keys[k]);
        json_object_foreach(v, key, inside) drop_times(inside);
    }
    json_array_foreach(v, i, inside) {
        const char *id = json_string_value(json_object_get(inside, "id"));
        if (id && !strcmp(id, "cost")) cost = inside;
        drop_times(inside);
    }
    if (cost) json_object_del(cost, "text"), json_object_del(cost, "verdict");
}

/* Fails with the place of the first difference. */
static inline void assert_same_json(const json_t *a, const json_t *b, const char *path) {
    char inside[512];
    const char *key;
    json_t *v;
    size_t i;
    if (json_equal(a, b)) return;
    if (json_is_object(a) && json_is_object(b))
        for (void *at = json_object_iter((json_t *)(uintptr_t)a); at;
             at = json_object_iter_next((json_t *)(uintptr_t)a, at)) {
            key = json_object_iter_key(at);
            snprintf(inside, sizeof inside, "%s.%s", path, key);
            assert_same_json(json_object_iter_value(at), json_object_get(b, key), inside);
        }
    json_array_foreach(a, i, v) {
        snprintf(inside, sizeof inside, "%s[%zu]", path, i);
        assert_same_json(v, json_array_get(b, i), inside);
    }
    char *x = json_dumps(a, JSON_ENCODE_ANY), *y = b ? json_dumps(b, JSON_ENCODE_ANY) : NULL;
    fail_msg("%s: %.200s\nbut: %.200s", path, x, y ? y : "absent");
}

static inline json_t *load_results(const char *dir) {
    char path[1024];
    sluice_error err = {0};
    json_t *root;
    snprintf(path, sizeof path, "%s/results.json", dir);
    assert_ok_err(sluice__json_load(&root, path, &err), &err);
    return root;
}

static inline json_t *arm_of(const json_t *results, const char *name) {
    size_t i;
    json_t *arm;
    json_array_foreach(json_object_get(results, "arms"), i,
                       arm) if (!strcmp(json_string_value(json_object_get(arm, "name")), name)) return arm;
    fail_msg("results.json has no arm %s", name);
    return NULL;
}

static inline json_t *run_of(const json_t *results, const char *arm, size_t index) {
    return json_array_get(json_object_get(arm_of(results, arm), "runs"), index);
}

static inline const char *status_of(const json_t *results, const char *arm, size_t index) {
    return json_string_value(json_object_get(run_of(results, arm, index), "status"));
}
#endif
