/* SPDX-License-Identifier: Apache-2.0 */
/* Outside references: every model of reference/models must give the recorded logits, every directory of
 * reference/bad must be refused with the words that its expect.json asks for, or load and give its logits.
 * Cases of layer kinds that this version lacks must say which. */
#include "support/reference.h"
#include "support/test_support.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "layers/transformer.h"
#include "model/safetensors.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* As the recordings state it (see src/verify/model_case.c). */
static double tolerance(const sluice_config *c) {
    for (int i = 0; i < c->num_hidden_layers; i++)
        if (sluice_layer_is_linear(&c->layers[i])) return 1e-3;
    return 3e-4;
}

/* Largest difference of the logits to golden.safetensors, as a share of the tolerance. */
static sluice_status golden_difference(const sluice_model *m, const char *dir, double *worst,
                                       sluice_error *err) {
    char *path = sluice__path_join(dir, "golden.safetensors");
    sluice__safetensors *golden;
    sluice_status st = sluice__safetensors_open(&golden, path, err);
    sluice__free(path);
    if (st != SLUICE_OK) return st;
    const sluice__st_tensor *ids = sluice__safetensors_find(golden, "input_ids"),
                            *logits = sluice__safetensors_find(golden, "logits");
    assert_true(ids && logits && ids->ndim == 2 && logits->ndim == 3);
    int batch = (int)ids->shape[0], length = (int)ids->shape[1];
    int32_t *tokens = sluice__calloc((size_t)ids->count, sizeof *tokens, SLUICE__MEM_OTHER);
    float *got = sluice__calloc((size_t)logits->count, sizeof *got, SLUICE__MEM_OTHER);
    float *want = sluice__calloc((size_t)logits->count, sizeof *want, SLUICE__MEM_OTHER);
    assert_true(sluice__to_i32(tokens, ids->dtype, ids->data, ids->count));
    sluice__to_f32(want, logits->dtype, logits->data, 1, logits->count);
    sluice__workspace *ws;
    sluice__input in = {.batch = batch, .seq_len = length, .ids = tokens};
    st = sluice__workspace_new(&ws, m, batch, length, SLUICE__INFER, err);
    if (st == SLUICE_OK) {
        st = sluice__forward(m, ws, &in, NULL, NULL, SLUICE__LOGITS_ALL, got, err);
        sluice__workspace_free(ws);
    }
    *worst = 0;
    for (int64_t i = 0; i < logits->count; i++) *worst = fmax(*worst, fabs((double)got[i] - (double)want[i]));
    *worst /= tolerance(sluice_model_config(m));
    sluice__free(tokens);
    sluice__free(got);
    sluice__free(want);
    sluice__safetensors_close(golden);
    return st;
}

static sluice_status load_and_compare(const char *dir, double *worst, sluice_error *err) {
    sluice_model *m;
    SLUICE__TRY(sluice_model_load(&m, dir, NULL, err));
    sluice_status st = golden_difference(m, dir, worst, err);
    sluice_model_free(m);
    return st;
}

/* ---- reference/models ---- */

static void check_model(void *checked, const char *name, const char *dir) {
    sluice_error err = {0};
    double worst = 0;
    sluice_status st = load_and_compare(dir, &worst, &err);
    if (st == SLUICE_ERR_UNSUPPORTED) {
        assert_non_null(strstr(err.message, "config.json"));
        assert_non_null(strstr(err.message, "support"));
        return;
    }
    if (st != SLUICE_OK || worst > 1) print_error("%s: %s, logits differ by %g of the tolerance\n", name, err.message, worst);
    assert_int_equal(st, SLUICE_OK);
    assert_true(worst <= 1);
    ++*(int *)checked;
}

static void models_give_the_recorded_logits(void **state) {
    (void)state;
    int checked = 0;
    test_each_case("reference/models", check_model, &checked);
    assert_true(checked >= 24);
}

/* ---- reference/bad ---- */

/* One of "a|b|c" stands in the text. */
static bool mentions(const char *text, const char *words) {
    char copy[512];
    snprintf(copy, sizeof copy, "%s", words);
    for (char *rest = copy, *word; (word = strsep(&rest, "|"));)
        if (strstr(text, word)) return true;
    return false;
}

static void check_refusal(const char *name, const char *message, sluice__json must) {
    for (size_t i = 0; i < json_array_size(must.value); i++) {
        const char *words = json_string_value(json_array_get(must.value, i));
        if (!mentions(message, words)) fail_msg("%s: \"%s\" does not mention %s", name, message, words);
    }
    assert_null(strchr(message, '\n'));
}

static void check_bad(void *checked, const char *name, const char *dir) {
    if (!strncmp(name, "tokenizer", 9)) return; /* refused by what reads tokenizer.json */
    char *path = sluice__path_join(dir, "expect.json");
    json_t *root;
    sluice_error err = {0};
    assert_ok_err(sluice__json_load(&root, path, &err), &err);
    sluice__json view = sluice__json_view(root, path), must = sluice__json_get(&view, "must_mention");
    const char *expect = NULL;
    assert_ok_err(sluice__json_string(&view, "expect", true, &expect, &err), &err);
    double worst = 0;
    sluice_status st = load_and_compare(dir, &worst, &err);
    if (!strcmp(expect, "error")) {
        if (st == SLUICE_OK) fail_msg("%s: loads", name);
        check_refusal(name, err.message, must);
    } else {
        if (st != SLUICE_OK || worst > 1) fail_msg("%s: %s, logits differ by %g of the tolerance", name, err.message, worst);
    }
    ++*(int *)checked;
    json_decref(root);
    sluice__free(path);
}

static void damaged_inputs_are_refused(void **state) {
    (void)state;
    int checked = 0;
    test_each_case("reference/bad", check_bad, &checked);
    assert_true(checked >= 38);
    assert_false(sluice__is_file("sluice_pickle_executed.txt"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(models_give_the_recorded_logits),
                                       cmocka_unit_test(damaged_inputs_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
