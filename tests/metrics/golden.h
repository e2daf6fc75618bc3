/* SPDX-License-Identifier: Apache-2.0 */
/* A directory of the metrics reference (config.json, weights.safetensors, golden.json), loaded for a test. */
#ifndef SLUICE_TEST_METRICS_GOLDEN_H
#define SLUICE_TEST_METRICS_GOLDEN_H
#include "support/test_support.h"
#include "base/json.h"
#include "sluice/cpu.h"
#include "sluice/model.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct golden {
    const char *name;
    sluice_model *model;
    json_t *root;
    int32_t *text, *token_bytes, *ids;
    int64_t count, windows;
    int seq_len;
} golden;

static inline int32_t *golden_ids(json_t *array, int64_t *count) {
    *count = (int64_t)json_array_size(array);
    int32_t *ids = calloc((size_t)*count, sizeof *ids);
    for (int64_t i = 0; i < *count; i++) ids[i] = (int32_t)json_integer_value(json_array_get(array, (size_t)i));
    return ids;
}

/* The reference calls its weights weights.safetensors; a model directory has model.safetensors. */
static inline golden golden_load(const char *dir) {
    static const char *const names[][2] = {{"config.json", "config.json"},
                                           {"weights.safetensors", "model.safetensors"}};
    const char *link = test_temp_dir();
    char from[1024], to[1024];
    for (int i = 0; i < 2; i++) {
        snprintf(from, sizeof from, "%s/%s", dir, names[i][0]);
        snprintf(to, sizeof to, "%s/%s", link, names[i][1]);
        assert_int_equal(symlink(from, to), 0);
    }
    golden g = {0};
    sluice_error err = {0};
    sluice_set_num_threads(1); /* tiny models: a pool would only wait for itself */
    assert_ok_err(sluice_model_load(&g.model, link, NULL, &err), &err);
    snprintf(from, sizeof from, "%s/golden.json", dir);
    assert_ok_err(sluice__json_load(&g.root, from, &err), &err);
    int64_t n;
    g.text = golden_ids(json_object_get(g.root, "text"), &g.count);
    g.token_bytes = golden_ids(json_object_get(g.root, "token_bytes"), &n);
    json_t *rows = json_object_get(g.root, "ids");
    g.windows = (int64_t)json_array_size(rows);
    g.seq_len = (int)json_array_size(json_array_get(rows, 0));
    g.ids = calloc((size_t)(g.windows * g.seq_len), sizeof *g.ids);
    for (int64_t i = 0; i < g.windows * g.seq_len; i++)
        g.ids[i] = (int32_t)json_integer_value(
            json_array_get(json_array_get(rows, (size_t)(i / g.seq_len)), (size_t)(i % g.seq_len)));
    return g;
}

static inline void golden_free(golden *g) {
    sluice_model_free(g->model);
    json_decref(g->root);
    free(g->text);
    free(g->token_bytes);
    free(g->ids);
}

static inline double golden_number(json_t *object, const char *key) {
    json_t *v = json_object_get(object, key);
    if (!json_is_number(v)) fail_msg("golden.json has no number %s", key);
    return json_number_value(v);
}

static inline void assert_close(double found, double expected, double tolerance, const char *what) {
    double d = found - expected;
    if (!(d <= tolerance && d >= -tolerance))
        fail_msg("%s: found %.12g, expected %.12g +- %g", what, found, expected, tolerance);
}

/* Runs `check` on every model of the shared reference or, without it, on the copies in tests/data. */
static inline void golden_each(void (*check)(golden *g)) {
    static const char *const models[] = {"baseline", "g1_elementwise", "g1_headwise", "g1_add_silu", "g2_elementwise"};
    for (int i = 0; i < 5; i++) {
        char relative[128], copy[1024];
        snprintf(relative, sizeof relative, "metrics/%s", models[i]);
        snprintf(copy, sizeof copy, "reference/metrics/%s", models[i]);
        const char *dir = test_shared(copy);
        if (!dir && i < 2) dir = test_data(relative);
        if (!dir) continue;
        golden g = golden_load(dir);
        g.name = models[i];
        check(&g);
        golden_free(&g);
    }
}
#endif
