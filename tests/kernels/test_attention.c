/* SPDX-License-Identifier: Apache-2.0 */
/* The attention operator at every CPU level against whole matrices in double: all lengths up to two
 * tiles and a tail with all head sizes and options taking turns, forward and backward, memory
 * beside every tensor guarded.
 *
 *   test_kernels_attention --bench     GFLOP/s by length, head size and gate instead */
#include "support/attention_bench.h"
#include "support/attention_problem.h"
#include "sluice/cpu.h"
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const levels[] = {"ref", "avx2", "avx512"};
enum {
    LEVELS = 3,
    TILES = 257
}; /* two blocks of 128 queries, two tiles of 96 keys, both with tails */

static sluice_attention_params params_of(int batch, int q_len, int kv_len, int heads, int kv_heads,
                                         int dim) {
    return (sluice_attention_params){.batch = batch,
                                     .q_len = q_len,
                                     .kv_len = kv_len,
                                     .num_heads = heads,
                                     .num_kv_heads = kv_heads,
                                     .head_dim = dim,
                                     .scale = 1 / sqrtf((float)dim)};
}

static void run_and_check(const sluice_attention_params *p, const problem_options *o,
                          const char *level) {
    problem x = problem_make(p, o);
    problem_want(&x, true);
    problem_forward(&x);
    problem_check_forward(&x, level);
    problem_backward(&x);
    problem_check_backward(&x, level);
    problem_free(&x);
}

/* The n-th combination: every option turns at its own pace, so that they meet in many ways. */
static void nth_case(int n, int kv_len, const char *level) {
    static const int dims[] = {1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 40};
    static const int heads[][2] = {{1, 1}, {2, 1}, {2, 2}, {4, 1}, {4, 2}, {3, 3}};
    static const int windows[] = {0, 0, 1, 5, 16, 33, 100};
    int q_len = n % 3 == 0   ? kv_len
                : n % 3 == 1 ? 1 + n * 7 % kv_len
                             : 1 + n % (kv_len < 9 ? kv_len : 9);
    sluice_attention_params p =
        params_of(1 + n % 2, q_len, kv_len, heads[n % 6][0], heads[n % 6][1], dims[n * 4 % 15]);
    p.softcap = n % 5 == 2 ? 3 : 0;
    p.window = windows[n % 7];
    p.gated = n % 4 != 0;
    p.gate_granularity = (sluice_gate_granularity)(n / 2 % 2);
    p.gate_act = (sluice_gate_act)(n % 5);
    p.gate_op = (sluice_gate_op)(n / 3 % 2);
    sluice_set_num_threads(1 + n % 2);
    problem_options o = {.layout = (naive_layout)(n % NAIVE_LAYOUTS),
                         .documents = n % 11 < 3,
                         .sinks = n % 13 < 5,
                         .sd = n % 8 == 7 ? 6.0f : 1.5f,
                         .seed = (uint64_t)n};
    run_and_check(&p, &o, level);
}

static void every_length_agrees(void **state) {
    (void)state;
    for (int l = 0; l < LEVELS; l++) {
        if (sluice_cpu_select(levels[l], NULL) != SLUICE_OK) continue;
        for (int length = 1; length <= TILES; length += length < 70 ? 1 : l ? 3 : 17)
            nth_case(length * 2 + l, length, levels[l]);
    }
}

static void every_head_size_agrees(void **state) {
    (void)state;
    for (int l = 0; l < LEVELS; l++) {
        if (sluice_cpu_select(levels[l], NULL) != SLUICE_OK) continue;
        for (int dim = 1; dim <= 257; dim += dim < 66 ? 1 : 37) {
            sluice_attention_params p = params_of(1, dim % 3 ? 40 : 3, 40 + dim % 5, 2, 1, dim);
            p.gated = 1;
            p.gate_granularity = (sluice_gate_granularity)(dim % 2);
            problem_options o = {
                .layout = (naive_layout)(dim % NAIVE_LAYOUTS), .sd = 1, .seed = (uint64_t)dim};
            run_and_check(&p, &o, levels[l]);
        }
    }
}

/* Real sizes: peaked scores, long ranges, decoding. */
static void longer_ranges_agree(void **state) {
    (void)state;
    static const int sizes[][6] = {/* q_len, kv_len, heads, kv_heads, dim, window */
                                   {300, 1111, 2, 1, 64, 0}, {1, 1000, 4, 2, 64, 0},
                                   {1, 1000, 8, 1, 128, 0},  {7, 4096, 1, 1, 80, 0},
                                   {40, 2050, 1, 1, 32, 97}, {1, 3001, 2, 2, 16, 500},
                                   {1, 2500, 4, 2, 64, 0},   {2, 3000, 6, 3, 64, 0}}; /* ranges of all heads */
    for (int l = 0; l < LEVELS; l++) {
        if (sluice_cpu_select(levels[l], NULL) != SLUICE_OK) continue;
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (int threads = 1; threads <= 3; threads += 2) {
                sluice_attention_params p =
                    params_of(1 + (int)i / 7, sizes[i][0], sizes[i][1], sizes[i][2], sizes[i][3], sizes[i][4]);
                p.window = sizes[i][5];
                sluice_set_num_threads(threads);
                problem_options o = {.layout = threads == 1 ? NAIVE_FAR : NAIVE_ODD,
                                     .sinks = i % 2,
                                     .sd = threads == 1 ? 1.0f : 5.0f,
                                     .seed = i};
                run_and_check(&p, &o, levels[l]);
            }
    }
}

/* Many small weights beside a few large ones, scores up to 18: each small one is below half a unit
 * of the running sums, but together they count. Sums formed tile by tile leave 1.0e-6 of the
 * results and 4e-8 of lse; sums formed key by key left 3.2e-6 and 1.5e-7. */
static void errors_do_not_grow_with_length(void **state) {
    (void)state;
    for (int l = 0; l < LEVELS; l++) {
        if (sluice_cpu_select(levels[l], NULL) != SLUICE_OK) continue;
        for (int q_len = 8; q_len <= 64; q_len += 56) { /* row by row, and as lanes */
            sluice_attention_params p = params_of(1, q_len, 4096, 1, 1, 64);
            problem_options o = {.layout = NAIVE_DENSE, .sd = 3, .seed = 21};
            problem x = problem_make(&p, &o);
            problem_want(&x, true);
            problem_forward(&x);
            problem_backward(&x);
            assert_true(naive_tensor_rms_error(&x.y, x.want.y) < 1.3e-6);
            assert_true(naive_tensor_rms_error(&x.lse, x.want.lse) < 8e-8);
            assert_true(q_len < 64 || naive_tensor_rms_error(&x.dq, x.want.dq) < 1.7e-6);
            assert_true(q_len < 64 || naive_tensor_rms_error(&x.dk, x.want.dk) < 1.7e-6);
            assert_true(q_len < 64 || naive_tensor_rms_error(&x.dv, x.want.dv) < 1.7e-6);
            problem_free(&x);
        }
    }
}

/* Scores of +-1e4 and more: one key takes all, nothing overflows. */
static void huge_scores_stay_finite(void **state) {
    (void)state;
    for (int l = 0; l < LEVELS; l++) {
        if (sluice_cpu_select(levels[l], NULL) != SLUICE_OK) continue;
        for (int n = 0; n < 6; n++) {
            sluice_attention_params p = params_of(1, n % 2 ? 3 : 50, 50, 2, 2, 16);
            problem_options o = {
                .layout = NAIVE_DENSE, .sinks = n % 3 == 1, .sd = 5000, .seed = (uint64_t)n};
            run_and_check(&p, &o, levels[l]);
        }
    }
}

/* Rows that do not depend on how queries are split, nor on what stands beside them. */
static void splits_give_the_same_rows(void **state) {
    (void)state;
    enum { T = 150, D = 24, H = 3 };
    static const int cuts[] = {1, 2, 8, 9, 31, 64, 100, 149};
    sluice_error err = {0};
    for (int l = 0; l < LEVELS; l++) {
        if (sluice_cpu_select(levels[l], NULL) != SLUICE_OK) continue;
        sluice_attention_params p = params_of(1, T, T, H, 1, D);
        problem_options o = {.layout = NAIVE_DENSE, .sd = 2, .seed = 5};
        problem x = problem_make(&p, &o);
        problem_forward(&x);
        for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) {
            naive_tensor y = naive_tensor_make(NAIVE_DENSE, 1, T, H, D);
            sluice_strided none = {0};
            for (int part = 0; part < 2; part++) {
                int begin = part ? cuts[c] : 0, end = part ? T : cuts[c];
                sluice_attention_params piece = params_of(1, end - begin, end, H, 1, D);
                sluice_strided q = {naive_tensor_at(&x.q, 0, begin, 0), 0, 0, 0},
                               to = {naive_tensor_at(&y, 0, begin, 0), 0, 0, 0};
                assert_ok_err(sluice_attention_forward(&piece, q, x.k.view, x.v.view, none, to,
                                                       none, NULL, NULL, &err),
                              &err);
            }
            for (int64_t i = 0; i < (int64_t)T * H * D; i++)
                assert_float_equal(y.at.data[i], x.y.at.data[i], 2e-6);
            naive_tensor_free(&y);
        }
        problem_free(&x);
    }
}

static void same_bits_again(void **state) {
    (void)state;
    for (int l = 0; l < LEVELS; l++) {
        if (sluice_cpu_select(levels[l], NULL) != SLUICE_OK) continue;
        for (int n = 0; n < 8;
             n++) { /* odd numbers of heads, so that some are shared by the team */
            sluice_attention_params p =
                params_of(1, n % 2 ? 1 : 260, l ? 1000 : 300, n & 4 ? 6 : 3, 3, 16);
            p.gated = 1;
            problem_options o = {.layout = NAIVE_ODD, .sinks = true, .sd = 1, .seed = 3};
            problem x = problem_make(&p, &o);
            float *first = NULL;
            size_t bytes = 0;
            sluice_set_num_threads(n & 2 ? 2 : 1);
            for (int run = 0; run < 3; run++) {
                problem_forward(&x);
                problem_backward(&x);
                float *again = problem_results(&x, &bytes);
                if (first) assert_memory_equal(first, again, bytes);
                if (first)
                    free(again);
                else
                    first = again;
            }
            free(first);
            problem_free(&x);
        }
    }
}

/* Inside a parallel region the operator keeps to its own thread and gives the bits of one thread.
 */
static void works_inside_a_parallel_region(void **state) {
    (void)state;
    sluice_attention_params p = params_of(2, 140, 200, 4, 2, 32);
    problem_options o = {.layout = NAIVE_ODD, .sd = 1, .seed = 8};
    assert_ok(sluice_cpu_select(NULL, NULL));
    sluice_set_num_threads(1);
    problem alone = problem_make(&p, &o), inside[2] = {problem_make(&p, &o), problem_make(&p, &o)};
    problem_forward(&alone);
    problem_backward(&alone);
    sluice_set_num_threads(2);
#pragma omp parallel for num_threads(2)
    for (int i = 0; i < 2; i++) {
        problem_forward(&inside[i]);
        problem_backward(&inside[i]);
    }
    size_t bytes;
    float *want = problem_results(&alone, &bytes);
    for (int i = 0; i < 2; i++) {
        float *found = problem_results(&inside[i], &bytes);
        assert_memory_equal(want, found, bytes);
        free(found);
        problem_free(&inside[i]);
    }
    free(want);
    problem_free(&alone);
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "--bench")) return attention_bench(argc - 1, argv + 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_length_agrees),
        cmocka_unit_test(every_head_size_agrees),
        cmocka_unit_test(longer_ranges_agree),
        cmocka_unit_test(huge_scores_stay_finite),
        cmocka_unit_test(errors_do_not_grow_with_length),
        cmocka_unit_test(splits_give_the_same_rows),
        cmocka_unit_test(same_bits_again),
        cmocka_unit_test(works_inside_a_parallel_region),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
