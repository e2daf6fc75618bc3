/* SPDX-License-Identifier: Apache-2.0 */
/* Models that are loaded only to run: the same values in their own type, in the file's pages where that is possible, and
 * what such a model refuses. */
#include "layers/transformer.h"
#include "model/model.h"
#include "support/test_support.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const cases[] = {
    "llama",       "paper_headwise_g2", "paper_headwise_g2_bin", "paper_elementwise_g4", "qwen3_moe",
    "gpt_oss",     "step3p5",           "export_tied",           "muse_glimmer",         "qwen3_next",
};

static sluice_model *load(const char *name, sluice_load_weights weights) {
    char path[64];
    snprintf(path, sizeof path, "reference/models/%s", name);
    const char *dir = test_shared(path);
    if (!dir) return NULL;
    sluice_error err = {0};
    sluice_model *model;
    sluice_load_params params = sluice_load_params_default();
    params.weights = weights;
    assert_ok_err(sluice_model_load(&model, dir, &params, &err), &err);
    return model;
}

static void same_values(void **state) {
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        sluice_model *f32 = load(cases[c], SLUICE_LOAD_F32), *own = load(cases[c], SLUICE_LOAD_AS_STORED);
        if (!f32) continue;
        assert_int_equal(sluice_model_num_tensors(f32), sluice_model_num_tensors(own));
        for (int i = 0; i < sluice_model_num_tensors(f32); i++) {
            sluice_tensor_info t = sluice_model_tensor(f32, i);
            float *values = malloc((size_t)t.count * sizeof *values);
            assert_non_null(values);
            sluice_model_tensor_read(own, i, values);
            assert_memory_equal(values, t.data, (size_t)t.count * sizeof *values);
            free(values);
        }
        sluice_model_free(f32);
        sluice_model_free(own);
    }
}

/* Of all matrices. */
static int64_t matrix_bytes(const sluice_model *m) {
    int64_t bytes = 0;
    for (int i = 0; i < m->num_tensors; i++) {
        const sluice__matrix *x = &m->matrices[i];
        bytes += x->data ? sluice__matrix_bytes(x, x->rows) : 0;
    }
    return bytes;
}

static void types_are_kept(void **state) {
    (void)state;
    sluice_model *half = load("paper_headwise_g2", SLUICE_LOAD_AS_STORED), *f32 = load("paper_headwise_g2", SLUICE_LOAD_F32);
    if (!half) skip();
    int q = sluice_model_find_tensor(half, "model.layers.0.self_attn.q_proj.weight"),
        k = sluice_model_find_tensor(half, "model.layers.0.self_attn.k_proj.weight");
    assert_int_equal(half->matrices[q].type, SLUICE__WEIGHT_BF16); /* taken apart from its gate, so a copy */
    assert_int_equal(half->matrices[k].type, SLUICE__WEIGHT_BF16);
    assert_int_equal(2 * matrix_bytes(half), matrix_bytes(f32));
    assert_null(sluice_model_tensor(half, k).data);
    assert_non_null(sluice_model_tensor(half, sluice_model_find_tensor(half, "model.norm.weight")).data);
    sluice_model_free(half);
    sluice_model_free(f32);
}

static void only_to_run(void **state) {
    (void)state;
    sluice_model *model = load("llama", SLUICE_LOAD_AS_STORED);
    if (!model) skip();
    sluice_error err = {0};
    sluice__workspace *ws;
    assert_int_equal(sluice__workspace_new(&ws, model, 1, 4, SLUICE__TRAIN, &err), SLUICE_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "AS_STORED"));
    assert_int_equal(sluice_model_save(model, test_temp_dir(), SLUICE_SAVE_AUTO, &err), SLUICE_ERR_ARGUMENT);
    sluice_model_free(model);
}

/* Parts without a backward pass are refused by name. */
static void foreign_parts(void **state) {
    (void)state;
    static const char *const names[][2] = {{"gpt_oss", "learned sink"}, {"afmoe", "embeddings"}, {"laguna_head", "sigmoid"}};
    for (int i = 0; i < 3; i++) {
        sluice_model *model = load(names[i][0], SLUICE_LOAD_F32);
        if (!model) skip();
        sluice_error err = {0};
        sluice__workspace *ws;
        assert_int_equal(sluice__workspace_new(&ws, model, 1, 4, SLUICE__TRAIN, &err), SLUICE_ERR_UNSUPPORTED);
        assert_non_null(strstr(err.message, names[i][1]));
        assert_int_equal(sluice_model_save(model, test_temp_dir(), SLUICE_SAVE_AUTO, &err), SLUICE_ERR_UNSUPPORTED);
        sluice_model_free(model);
    }
}

int main(void) {
    if (!test_shared("reference/models/llama")) return TEST_SKIPPED;
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_values), cmocka_unit_test(types_are_kept),
                                       cmocka_unit_test(only_to_run), cmocka_unit_test(foreign_parts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
