/* SPDX-License-Identifier: Apache-2.0 */
/* Matrices of a GGUF file stay in its pages, so loading does not see a damaged one: sluice_model_check_finite does, and a
 * session names it, once, when logits come out as no numbers. */
#include "support/test_support.h"
#include "base/file.h"
#include "base/memory.h"
#include "model/gguf.h"
#include "model/model.h"
#include "sluice/log.h"
#include "sluice/session.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { VOCAB = 272 };

static char heard[2000];
static int lines;

static void hear(void *user, sluice_log_level level, const char *line) {
    (void)user;
    if (level != SLUICE_LOG_WARNING) return;
    lines++;
    snprintf(heard, sizeof heard, "%s", line);
}

/* A copy of the small model in which the first scale of a tensor is infinite; name NULL: as it is. */
static char *copy_with(const char *name) {
    const char *path = test_shared("reference/quant/tiny-qwen3.gguf");
    sluice__gguf *g;
    sluice__map map;
    assert_ok(sluice__gguf_open(&g, path, NULL));
    assert_ok(sluice__map_open(&map, path, NULL));
    unsigned char *bytes = sluice__calloc(map.size, 1, SLUICE__MEM_OTHER);
    memcpy(bytes, map.data, map.size);
    if (name) {
        const unsigned char *data = sluice__gguf_find_tensor(g, name)->data;
        size_t at = 0;
        while (memcmp(map.data + at, data, 64) != 0) at++;
        memcpy(bytes + at, "\x00\x7c", 2);
    }
    char *copy = sluice__asprintf("%s/model.gguf", test_temp_dir());
    assert_ok(sluice__write_file(copy, bytes, map.size, NULL));
    sluice__free(bytes);
    sluice__map_close(&map);
    sluice__gguf_close(g);
    return copy;
}

static sluice_model *load(const char *path) {
    sluice_error err = {0};
    sluice_load_params params = sluice_load_params_default();
    params.weights = SLUICE_LOAD_AS_STORED;
    sluice_model *model;
    assert_ok_err(sluice_model_load(&model, path, &params, &err), &err);
    return model;
}

static void eval(sluice_session *s, float *logits) {
    static const int32_t ids[] = {3, 1, 4};
    sluice_error err = {0};
    assert_ok_err(sluice_session_eval(s, ids, 3, logits, &err), &err);
}

static void blocks_stay_in_the_file(void **state) {
    (void)state;
    char *path = copy_with(NULL);
    int64_t before = sluice__mem_in_use(SLUICE__MEM_WEIGHTS);
    sluice_model *model = load(path);
    int64_t vectors = (int64_t)(model->flat_size * (int64_t)sizeof(float));
    assert_true(sluice__mem_in_use(SLUICE__MEM_WEIGHTS) - before <= vectors + 256);
    assert_int_equal(sluice_model_check_finite(model), 0);
    sluice_model_free(model);
    sluice__free(path);
}

static void damaged(const char *in_file, const char *in_model) {
    char *path = copy_with(in_file);
    heard[0] = '\0';
    sluice_model *model = load(path);
    assert_string_equal(heard, "");
    int tensor = sluice_model_find_tensor(model, in_model);
    assert_false(sluice_model_tensor(model, tensor).nonfinite);

    sluice_session *s;
    float logits[VOCAB];
    assert_ok(sluice_session_new(&s, model, NULL, NULL));
    lines = 0;
    eval(s, logits);
    assert_int_equal(lines, 1);
    assert_non_null(strstr(heard, "logits are NaN or infinite"));
    assert_non_null(strstr(heard, in_model));
    eval(s, logits);
    assert_int_equal(lines, 1);
    sluice_session_free(s);

    assert_int_equal(sluice_model_check_finite(model), 1);
    assert_true(sluice_model_tensor(model, tensor).nonfinite);
    sluice_model_free(model);
    sluice__free(path);
}

static void damaged_tensors_are_named(void **state) {
    (void)state;
    damaged("blk.1.ffn_down.weight", "model.layers.1.mlp.down_proj.weight");
    damaged("blk.0.attn_v.weight", "model.layers.0.self_attn.v_proj.weight");
}

/* No weight is to blame: the scale of the last norm makes logits overflow. */
static void overflow_is_told_apart(void **state) {
    (void)state;
    char *path = copy_with(NULL);
    sluice_model *model = load(path);
    int norm = sluice_model_find_tensor(model, "model.norm.weight");
    sluice_tensor_info t = sluice_model_tensor(model, norm);
    for (int64_t i = 0; i < t.count; i++) t.data[i] = 3e38f;
    sluice_session *s;
    float logits[VOCAB];
    assert_ok(sluice_session_new(&s, model, NULL, NULL));
    eval(s, logits);
    assert_non_null(strstr(heard, "although all weights are finite"));
    sluice_session_free(s);
    sluice_model_free(model);
    sluice__free(path);
}

int main(void) {
    if (!test_shared("reference/quant/tiny-qwen3.gguf")) return TEST_SKIPPED;
    sluice_log_set(hear, NULL);
    const struct CMUnitTest tests[] = {cmocka_unit_test(blocks_stay_in_the_file), cmocka_unit_test(damaged_tensors_are_named),
                                       cmocka_unit_test(overflow_is_told_apart)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
