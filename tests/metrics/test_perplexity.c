/* SPDX-License-Identifier: Apache-2.0 */
/* Perplexity against the reference: disjoint and sliding windows, per token and in sum, for any batch size. */
#include "metrics/golden.h"
#include "eval/perplexity.h"
#include <math.h>
#include <string.h>

static const struct {
    const char *name;
    int context, stride;
} cases[] = {{"disjoint_64", 64, 0},
             {"disjoint_1000", 1000, 0},
             {"sliding_64_16", 64, 16},
             {"sliding_48_1", 48, 1},
             {"sliding_64_64", 64, 64}};

static void check_case(golden *g, int i, int batch) {
    json_t *e = json_object_get(json_object_get(g->root, "perplexity"), cases[i].name);
    sluice_perplexity_params params = {cases[i].context, cases[i].stride, batch};
    sluice_perplexity p;
    sluice_error err = {0};
    assert_ok_err(sluice_perplexity_of_ids(&p, g->model, g->text, g->count, g->token_bytes, &params, NULL, &err), &err);
    assert_int_equal(p.scored, json_integer_value(json_object_get(e, "scored")));
    assert_int_equal(p.bytes, json_integer_value(json_object_get(e, "bytes")));
    assert_close(p.ce, golden_number(e, "ce"), 1e-5, "ce");
    assert_close(p.total_nll, golden_number(e, "total_nll"), 1e-5 * (double)p.scored, "total_nll");
    assert_close(p.ppl, golden_number(e, "ppl"), 1e-5 * golden_number(e, "ppl"), "ppl");
    assert_close(p.bits_per_byte, golden_number(e, "bits_per_byte"), 1e-5, "bits_per_byte");
}

static void check_golden(golden *g) {
    for (int i = 0; i < 5; i++)
        for (int batch = 0; batch <= 3; batch += 3) check_case(g, i, batch);
}

static void test_golden(void **state) {
    (void)state;
    golden_each(check_golden);
}

static void check_tokens(golden *g) {
    json_t *e = json_object_get(g->root, "nll_sliding_64_16");
    float *nll = calloc((size_t)g->count, sizeof *nll);
    sluice_perplexity_params params = {64, 16, 0};
    sluice_perplexity p;
    assert_ok(sluice_perplexity_of_ids(&p, g->model, g->text, g->count, NULL, &params, nll, NULL));
    assert_true(isnan(nll[0]) && isnan(p.bits_per_byte) && p.bytes == 0);
    for (int64_t t = 1; t < g->count; t++) {
        json_t *v = json_array_get(e, (size_t)(t - 1));
        if (json_is_array(v)) v = json_array_get(v, 1);
        assert_close(nll[t], json_number_value(v), 2e-5, "nll of a token");
    }
    free(nll);
}

static void test_tokens(void **state) {
    (void)state;
    golden_each(check_tokens);
}

static void check_refused(golden *g) {
    sluice_perplexity p;
    sluice_error err = {0};
    const sluice_perplexity_params bad[] = {{1, 0, 0}, {8, 9, 0}, {-1, 0, 0}, {8, -1, 0}, {8, 0, -1}};
    for (int i = 0; i < 5; i++)
        assert_int_equal(sluice_perplexity_of_ids(&p, g->model, g->text, g->count, NULL, &bad[i], NULL, &err),
                         SLUICE_ERR_ARGUMENT);
    assert_int_equal(sluice_perplexity_of_ids(&p, g->model, g->text, 1, NULL, NULL, NULL, &err), SLUICE_ERR_ARGUMENT);
    int32_t outside[3] = {0, 64, 0};
    assert_int_equal(sluice_perplexity_of_ids(&p, g->model, outside, 3, NULL, NULL, NULL, &err), SLUICE_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "token 1 is 64"));
}

static void test_refused(void **state) {
    (void)state;
    golden_each(check_refused);
}

/* Every token is scored exactly once, in order, whatever the sizes; stride == context leaves window starts out. */
static void test_windows(void **state) {
    (void)state;
    for (int64_t count = 2; count < 40; count++)
        for (int64_t context = 2; context <= count; context++)
            for (int64_t stride = 0; stride <= context; stride++) {
                sluice__window w = {0};
                int64_t next = 1, skipped = 0;
                for (bool first = true; sluice__next_window(&w, first, count, context, stride); first = false) {
                    assert_true(w.score_from >= next && w.score_from < w.score_to && w.score_to <= count);
                    assert_true(w.length >= 1 && w.length <= context && w.begin + w.length <= count);
                    assert_true(w.begin + 1 <= w.score_from && w.begin + w.length >= w.score_to - 1);
                    skipped += w.score_from - next;
                    next = w.score_to;
                }
                int64_t starts = stride == context ? (count - 1) / context : 0;
                assert_int_equal(skipped + count - next, starts);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden), cmocka_unit_test(test_tokens),
                                       cmocka_unit_test(test_refused), cmocka_unit_test(test_windows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
