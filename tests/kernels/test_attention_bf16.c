/* SPDX-License-Identifier: Apache-2.0 */
/* Attention with products of bf16 numbers: every CPU level against the same in fp32, and levels against each other. What may
 * differ between levels is the order of sums, and with it a share next to the middle between two bf16 numbers; the reference
 * rounds shares relative to the largest score, the others relative to the largest so far. */
#include "support/attention_problem.h"
#include "sluice/cpu.h"
#include <math.h>
#include <stdlib.h>

typedef struct shape {
    int batch, q_len, kv_len, heads, kv_heads, dim, window;
    bool documents, sinks, negative;
    float softcap;
} shape;

static const shape shapes[] = {
    {.batch = 1, .q_len = 1, .kv_len = 1, .heads = 1, .kv_heads = 1, .dim = 1},
    {.batch = 2, .q_len = 3, .kv_len = 3, .heads = 2, .kv_heads = 1, .dim = 5},
    {.batch = 1, .q_len = 8, .kv_len = 8, .heads = 2, .kv_heads = 2, .dim = 16},
    {.batch = 1, .q_len = 31, .kv_len = 32, .heads = 2, .kv_heads = 1, .dim = 17}, /* odd distance of the diagonal */
    {.batch = 2, .q_len = 64, .kv_len = 64, .heads = 4, .kv_heads = 2, .dim = 32},
    {.batch = 1, .q_len = 97, .kv_len = 97, .heads = 1, .kv_heads = 1, .dim = 33}, /* one behind a tile */
    {.batch = 1, .q_len = 129, .kv_len = 200, .heads = 3, .kv_heads = 3, .dim = 64, .softcap = 3},
    {.batch = 1, .q_len = 257, .kv_len = 257, .heads = 2, .kv_heads = 1, .dim = 48, .window = 33},
    {.batch = 1, .q_len = 200, .kv_len = 311, .heads = 2, .kv_heads = 1, .dim = 40, .window = 100, .sinks = true},
    {.batch = 2, .q_len = 150, .kv_len = 151, .heads = 2, .kv_heads = 2, .dim = 24, .documents = true},
    {.batch = 1, .q_len = 70, .kv_len = 70, .heads = 2, .kv_heads = 1, .dim = 96, .negative = true},
    {.batch = 1, .q_len = 600, .kv_len = 600, .heads = 2, .kv_heads = 1, .dim = 128},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static sluice_attention_params params_of(const shape *s, int n, bool bf16) {
    float scale = 1 / sqrtf((float)s->dim);
    return (sluice_attention_params){.batch = s->batch,
                                     .q_len = s->q_len,
                                     .kv_len = s->kv_len,
                                     .num_heads = s->heads,
                                     .num_kv_heads = s->kv_heads,
                                     .head_dim = s->dim,
                                     .scale = s->negative ? -scale : scale,
                                     .softcap = s->softcap,
                                     .window = s->window,
                                     .gated = n % 3 != 0,
                                     .gate_granularity = (sluice_gate_granularity)(n % 2),
                                     .gate_act = (sluice_gate_act)(n % 5),
                                     .bf16 = bf16};
}

static problem solved(int n, const char *level, bool bf16) {
    const shape *s = &shapes[n];
    sluice_attention_params p = params_of(s, n, true);
    problem_options o = {.layout = (naive_layout)(n % NAIVE_LAYOUTS),
                         .documents = s->documents,
                         .sinks = s->sinks,
                         .sd = 2,
                         .seed = (uint64_t)n + 1};
    assert_int_equal(sluice_cpu_select(level, NULL), SLUICE_OK);
    sluice_set_num_threads(1 + n % 2);
    problem x = problem_make(&p, &o);
    x.p.bf16 = bf16;
    problem_forward(&x);
    problem_backward(&x);
    return x;
}

/* Root of the mean square of the difference from `want`, relative to that of `want`; the largest of all results. */
static double apart(const problem *x, const problem *want) {
    const naive_tensor *found[] = {&x->y, &x->o, &x->dq, &x->dk, &x->dv, &x->dgate, &x->lse, &x->share, &x->dsinks};
    const naive_tensor *other[] = {&want->y,     &want->o,   &want->dq,    &want->dk,    &want->dv,
                                   &want->dgate, &want->lse, &want->share, &want->dsinks};
    double most = 0;
    for (int i = 0; i < 9; i++) {
        if (found[i] == &x->dgate && !x->p.gated) continue;
        double *dense = malloc((size_t)naive_tensor_count(other[i]) * sizeof *dense);
        assert_non_null(dense);
        naive_tensor_read(other[i], dense);
        double largest = naive_largest(dense, naive_tensor_count(other[i])), error = naive_tensor_error(found[i], dense);
        if (error > 1e-5 * largest) most = fmax(most, naive_tensor_rms_error(found[i], dense)); /* all may be next to 0 */
        free(dense);
        assert_true(naive_tensor_guarded(found[i]));
    }
    return most;
}

static const char *const levels[] = {"ref", "avx2", "avx512"};
enum { LEVELS = 3 };

static bool has(const char *level) { return sluice_cpu_select(level, NULL) == SLUICE_OK; }

/* Products of rounded factors stay close to those of floats: one rounding is up to 0.4 %, half of that on average. */
static void close_to_fp32(void **state) {
    (void)state;
    double most = 0;
    for (int l = 0; l < LEVELS; l++)
        for (int n = 0; n < SHAPES && has(levels[l]); n++) {
            problem x = solved(n, levels[l], true), want = solved(n, "ref", false);
            double found = apart(&x, &want);
            most = fmax(most, found);
            if (!(found < 0.01)) fail_msg("%s, shape %d: %g from fp32", levels[l], n, found);
            if (shapes[n].q_len > 90 && !(found > 2e-4)) fail_msg("%s, shape %d: nothing was rounded (%g)", levels[l], n, found);
            problem_free(&x);
            problem_free(&want);
        }
    print_message("largest difference from fp32: %.2g\n", most);
}

static void levels_agree(void **state) {
    (void)state;
    double from_ref = 0, from_avx2 = 0;
    for (int n = 0; n < SHAPES && has("avx2"); n++) {
        problem ref = solved(n, "ref", true), avx2 = solved(n, "avx2", true);
        from_ref = fmax(from_ref, apart(&avx2, &ref));
        if (has("avx512")) {
            problem native = solved(n, "avx512", true);
            double found = apart(&native, &avx2);
            from_avx2 = fmax(from_avx2, found);
            if (!(found < 4e-4)) fail_msg("shape %d: avx512 and avx2 are %g apart", n, found);
            problem_free(&native);
        }
        problem_free(&ref);
        problem_free(&avx2);
    }
    print_message("avx2 from the reference %.2g, avx512 from avx2 %.2g\n", from_ref, from_avx2);
    assert_true(from_ref < 0.006);
}

/* The same call gives the same bits. */
static void bits_repeat(void **state) {
    (void)state;
    for (int l = 1; l < LEVELS && has(levels[l]); l++) {
        size_t bytes, again;
        problem x = solved(8, levels[l], true), y = solved(8, levels[l], true);
        float *a = problem_results(&x, &bytes), *b = problem_results(&y, &again);
        assert_int_equal(bytes, again);
        assert_memory_equal(a, b, bytes);
        free(a);
        free(b);
        problem_free(&x);
        problem_free(&y);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(close_to_fp32), cmocka_unit_test(levels_agree),
                                       cmocka_unit_test(bits_repeat)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
