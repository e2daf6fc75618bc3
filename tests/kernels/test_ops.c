/* SPDX-License-Identifier: Apache-2.0 */
/* Operators as layers call them: split over threads, in every CPU level, from several threads at once. */
#include "support/test_support.h"
#include "base/memory.h"
#include "base/rng.h"
#include "kernels/kernels.h"
#include "kernels/scratch.h"
#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const char *const levels[] = {"ref", "avx2", "avx512"};
enum { LEVELS = 3 };

static bool select_level(int i) {
    return sluice_cpu_select(levels[i], NULL) == SLUICE_OK;
}

static float *normal(int64_t count, uint64_t stream) {
    float *x = sluice__calloc((size_t)count, sizeof *x, SLUICE__MEM_OTHER);
    assert_non_null(x);
    sluice__rng_fill_normal(x, count, 3, stream, 0, 0, 1);
    return x;
}

/* Infinity when any of them is NaN. */
static double largest_difference(const float *a, const float *b, int64_t count) {
    double most = 0;
    for (int64_t i = 0; i < count; i++) {
        double d = fabs((double)a[i] - b[i]);
        most = d <= most ? most : d < INFINITY ? d : INFINITY;
    }
    return most;
}

/* ---- every operator that splits rows or columns, on sizes that are split ---- */

enum { ROWS = 210, DIM = 264, COUNT = ROWS * DIM, VOCAB = 40 };

typedef struct results {
    float norm[COUNT], rstd[ROWS], dx[COUNT], dweight[DIM];
    float rope[COUNT], drope[COUNT], dhead[DIM / 4];
    float swiglu[COUNT / 2], dswiglu[COUNT], gelu[COUNT], dgelu[COUNT];
    float embedding[COUNT], dtable[VOCAB * DIM];
    float nll[ROWS], softmax[COUNT];
    float p[COUNT], m[COUNT], v[COUNT], g[COUNT];
    float dbias[DIM], dw[DIM * 8], y[ROWS * 8];
    float arith[COUNT], clipped[COUNT];
    float scalars[4];
} results;

typedef struct inputs {
    float *x, *dy, *w, *table, *cosine, *sine;
    int32_t ids[ROWS], labels[ROWS], position[ROWS];
} inputs;

static void make_inputs(inputs *in) {
    in->x = normal(COUNT, 1);
    in->dy = normal(COUNT, 2);
    in->w = normal(8 * DIM, 3);
    in->table = normal(VOCAB * DIM, 4);
    in->cosine = normal(ROWS * DIM, 5);
    in->sine = normal(ROWS * DIM, 6);
    for (int r = 0; r < ROWS; r++) {
        in->ids[r] = r * 7 % VOCAB;
        in->labels[r] = r % 9 == 4 ? -1 : r * 5 % DIM;
        in->position[r] = (r * 3) % ROWS;
    }
}

static void free_inputs(inputs *in) {
    float *all[] = {in->x, in->dy, in->w, in->table, in->cosine, in->sine};
    for (int i = 0; i < 6; i++) sluice__free(all[i]);
}

static void run_norms(const inputs *in, results *r) {
    sluice__rms_norm_forward(r->norm, r->rstd, in->x, in->w, ROWS, DIM, 1e-6f, 1);
    sluice__rms_norm_backward(r->dx, r->dweight, in->dy, in->x, in->w, r->rstd, ROWS, DIM, 1, false);
    sluice__norm_rope p = {.rows = ROWS,
                           .heads = 4,
                           .head_dim = DIM / 4,
                           .rotary_dim = 32,
                           .norm = true,
                           .weight = in->w,
                           .eps = 1e-6f,
                           .cos = in->cosine,
                           .sin = in->sine,
                           .position = in->position};
    float rstd[ROWS * 4];
    sluice__norm_rope_forward(&p, r->rope, DIM, rstd, in->x, DIM);
    sluice__norm_rope_backward(&p, r->drope, DIM, r->dhead, in->dy, DIM, in->x, DIM, rstd);
}

static void run_pointwise(const inputs *in, results *r) {
    sluice__swiglu_forward(r->swiglu, DIM / 2, in->x, DIM, ROWS, DIM / 2);
    sluice__swiglu_backward(r->dswiglu, in->dy, DIM / 2, in->x, DIM, ROWS, DIM / 2);
    sluice__gelu_forward(r->gelu, in->x, COUNT, true);
    sluice__gelu_backward(r->dgelu, in->dy, in->x, COUNT, false);
    memcpy(r->arith, in->x, sizeof r->arith);
    sluice__add(r->arith, in->dy, COUNT);
    sluice__scale(r->arith, 1.5f, COUNT);
    sluice__clip_forward(r->clipped, in->x, 0.7f, COUNT);
    sluice__clip_backward(r->clipped, r->clipped, in->x, 0.9f, COUNT);
}

static void run_rest(const inputs *in, results *r) {
    sluice__embedding_forward(r->embedding, in->table, in->ids, ROWS, DIM);
    sluice__embedding_backward(r->dtable, in->dy, in->ids, ROWS, DIM, VOCAB);
    memcpy(r->softmax, in->x, sizeof r->softmax);
    sluice__softmax_nll(r->softmax, in->labels, r->nll, NULL, ROWS, DIM, 0.5f);
    memcpy(r->p, in->x, sizeof r->p);
    memcpy(r->g, in->dy, sizeof r->g);
    for (int step = 1; step <= 3; step++) {
        sluice__adamw c = {.lr = 0.01,
                           .beta1 = 0.9,
                           .beta2 = 0.95,
                           .eps = 1e-8,
                           .weight_decay = 0.1,
                           .grad_scale = 0.5,
                           .step = step,
                           .zero_grad = step == 3};
        sluice__adamw_step(&c, r->p, r->m, r->v, r->g, COUNT);
    }
    sluice__linear_forward(r->y, 8, in->x, DIM, in->w, in->table, ROWS, 8, DIM);
    sluice__linear_backward_weight(r->dw, r->dbias, in->x, DIM, in->dy, DIM, ROWS, DIM, 8);
    r->scalars[0] = (float)sluice__sum_squares(in->x, COUNT);
    r->scalars[1] = sluice__max_abs(in->x, COUNT);
    r->scalars[2] = (float)sluice__first_nonfinite(in->x, COUNT);
}

static results *run_all(const inputs *in) {
    results *r = sluice__calloc(1, sizeof *r, SLUICE__MEM_OTHER);
    assert_non_null(r);
    run_norms(in, r);
    run_pointwise(in, r);
    run_rest(in, r);
    return r;
}

/* Against the reference on one thread: within rounding in any level, for any number of threads; and twice the same bits. */
static void levels_and_thread_counts_agree(void **state) {
    (void)state;
    inputs in;
    make_inputs(&in);
    omp_set_num_threads(1);
    assert_true(select_level(0));
    results *want = run_all(&in);
    for (int l = 0; l < LEVELS; l++) {
        if (!select_level(l)) continue;
        for (int threads = 1; threads <= 4; threads++) {
            omp_set_num_threads(threads);
            results *got = run_all(&in), *again = run_all(&in);
            assert_memory_equal(got, again, sizeof *got);
            assert_true(largest_difference((float *)got, (float *)want, sizeof *got / sizeof(float)) < 3e-4);
            sluice__free(got);
            sluice__free(again);
        }
    }
    sluice__free(want);
    free_inputs(&in);
    assert_ok(sluice_cpu_select(NULL, NULL));
}

/* Inside a parallel region an operator runs on the calling thread: the bits of one thread. */
static void parallel_region_runs_alone(void **state) {
    (void)state;
    inputs in;
    make_inputs(&in);
    omp_set_num_threads(1);
    results *want = run_all(&in), *got[2];
#pragma omp parallel num_threads(2)
    got[omp_get_thread_num()] = run_all(&in);
    for (int t = 0; t < 2; t++) {
        assert_memory_equal(got[t], want, sizeof *want);
        sluice__free(got[t]);
    }
    sluice__free(want);
    free_inputs(&in);
}

typedef struct job {
    const inputs *in;
    int threads;
    results *got;
} job;

static void *run_job(void *arg) {
    job *j = arg;
    omp_set_num_threads(j->threads);
    for (int i = 0; i < 3; i++) {
        sluice__free(j->got);
        j->got = run_all(j->in);
    }
    return NULL;
}

/* Several callers at once, each with a team of its own; their scratch is freed when they end. */
static void callers_in_parallel(void **state) {
    (void)state;
    inputs in;
    make_inputs(&in);
    omp_set_num_threads(2);
    results *want = run_all(&in);
    int64_t before = sluice__mem_in_use(SLUICE__MEM_OTHER);
    enum { JOBS = 4 };
    pthread_t thread[JOBS];
    job jobs[JOBS] = {0};
    for (int i = 0; i < JOBS; i++) {
        jobs[i] = (job){&in, 2, NULL};
        assert_int_equal(pthread_create(&thread[i], NULL, run_job, &jobs[i]), 0);
    }
    for (int i = 0; i < JOBS; i++) {
        pthread_join(thread[i], NULL);
        assert_memory_equal(jobs[i].got, want, sizeof *want);
        sluice__free(jobs[i].got);
    }
    assert_int_equal(sluice__mem_in_use(SLUICE__MEM_OTHER), before);
    sluice__free(want);
    free_inputs(&in);
}

/* ---- values against the definitions ---- */

static void adamw_follows_the_definition(void **state) {
    (void)state;
    enum { N = 37 };
    const double lr = 0.02, b1 = 0.9, b2 = 0.99, eps = 1e-6, decay = 0.1, scale = 0.25;
    float *g = normal(N * 4, 1), p[N], m[N] = {0}, v[N] = {0};
    double dp[N], dm[N] = {0}, dv[N] = {0};
    for (int i = 0; i < N; i++) dp[i] = p[i] = g[3 * N + i];
    for (int t = 1; t <= 3; t++) {
        float *grad = g + (t - 1) * N;
        for (int i = 0; i < N; i++) {
            double x = scale * grad[i];
            dp[i] *= 1 - lr * decay;
            dm[i] = b1 * dm[i] + (1 - b1) * x;
            dv[i] = b2 * dv[i] + (1 - b2) * x * x;
            dp[i] -= lr / (1 - pow(b1, t)) * dm[i] / (sqrt(dv[i]) / sqrt(1 - pow(b2, t)) + eps);
        }
        sluice__adamw c = {lr, b1, b2, eps, decay, scale, t, t == 2};
        float first = grad[0];
        sluice__adamw_step(&c, p, m, v, grad, N);
        assert_true(grad[0] == (t == 2 ? 0 : first));
    }
    for (int i = 0; i < N; i++) assert_true(fabs(p[i] - dp[i]) < 1e-6 && fabs(v[i] - dv[i]) < 1e-8);
    sluice__free(g);
}

/* Vector versions flush moments below the smallest normal float and leave the mode of the processor as it was. */
static void adamw_flushes_denormals(void **state) {
    (void)state;
    for (int l = 1; l < LEVELS; l++) {
        if (!select_level(l)) continue;
        float p[20], m[20], v[20], g[20] = {0};
        for (int i = 0; i < 20; i++) p[i] = 1, m[i] = v[i] = 1e-41f;
        sluice__adamw c = {0.1, 0.9, 0.95, 1e-8, 0, 1, 5, false};
        sluice__adamw_step(&c, p, m, v, g, 20);
        for (int i = 0; i < 20; i++) assert_true(m[i] == 0 && v[i] == 0 && p[i] == 1);
        volatile float small = 1e-41f;
        assert_true(small * 0.5f > 0);
    }
    assert_ok(sluice_cpu_select(NULL, NULL));
}

static double exact_nll(const float *x, int64_t vocab, int32_t label) {
    long double sum = 0, max = -INFINITY;
    for (int64_t i = 0; i < vocab; i++)
        if (x[i] > max) max = x[i];
    for (int64_t i = 0; i < vocab; i++) sum += expl((long double)x[i] - max);
    return (double)(logl(sum) + max - x[label]);
}

static void softmax_of_large_vocabularies(void **state) {
    (void)state;
    static const int64_t vocabs[] = {256, 4096, 50304, 250002};
    static const float spreads[] = {0.01f, 3, 60, 3000};
    for (int l = 0; l < LEVELS; l++) {
        if (!select_level(l)) continue;
        for (int i = 0; i < 16; i++) {
            int64_t vocab = vocabs[i % 4];
            float *x = normal(vocab, (uint64_t)i), nll;
            int32_t label = (int32_t)(vocab * 3 / 7);
            for (int64_t j = 0; j < vocab; j++) x[j] = x[j] * spreads[i / 4] + 200;
            for (int64_t j = 5; j < vocab; j += 11) x[j] = -INFINITY;
            x[label] = 200;
            double want = exact_nll(x, vocab, label), sum = 0, magnitude = 0;
            sluice__softmax_nll(x, &label, &nll, NULL, 1, vocab, 1);
            assert_true(fabs(nll - want) <= 2e-7 * fmax(fabs(want), 1));
            for (int64_t j = 0; j < vocab; j++) sum += x[j], magnitude += fabs(x[j]);
            assert_true(fabs(sum) < 1e-6 && magnitude <= 2.00001); /* a gradient of softmax sums to 0 */
            for (int64_t j = 5; j < vocab; j += 11) assert_true(x[j] == 0 || j == label);
            sluice__free(x);
        }
    }
    assert_ok(sluice_cpu_select(NULL, NULL));
}

static void softmax_corner_cases(void **state) {
    (void)state;
    for (int l = 0; l < LEVELS; l++) {
        if (!select_level(l)) continue;
        float x[6][20], nll[6];
        uint8_t correct[6];
        int32_t labels[6] = {3, 5, 5, 0, 1, -1};
        for (int i = 0; i < 120; i++) x[i / 20][i % 20] = (float)(i % 7);
        for (int j = 0; j < 20; j++) x[0][j] = j == 3 ? 0 : -INFINITY; /* certain */
        for (int j = 0; j < 20; j++)
            x[1][j] = j == 5 || j == 6 ? 2 : 1; /* a tie: the first wins, as in torch.argmax */
        for (int j = 0; j < 20; j++) x[2][j] = j == 5 || j == 4 ? 2 : 1;
        for (int j = 0; j < 20; j++) x[3][j] = -INFINITY;
        x[4][1] = -INFINITY;
        x[5][2] = NAN; /* not scored: not looked at */
        sluice__softmax_nll(&x[0][0], labels, nll, correct, 6, 20, 1);
        assert_true(nll[0] == 0 && correct[0] == 1 && x[0][3] == 0 && x[0][0] == 0);
        assert_true(correct[1] == 1 && correct[2] == 0);
        assert_true(isnan(nll[3]) && isnan(x[3][0]));
        assert_true(nll[4] == INFINITY && x[4][1] == -1);
        assert_true(nll[5] == 0 && correct[5] == 0 && x[5][2] == 0);
    }
    assert_ok(sluice_cpu_select(NULL, NULL));
}

static void first_nonfinite_is_the_first_of_all_parts(void **state) {
    (void)state;
    enum { N = 200003 };
    float *x = normal(N, 1);
    omp_set_num_threads(3);
    assert_int_equal(sluice__first_nonfinite(x, N), -1);
    for (int64_t at = N - 1; at >= 0; at -= 40007) {
        x[at] = at % 2 ? NAN : -INFINITY;
        assert_int_equal(sluice__first_nonfinite(x, N), at);
        assert_true(isinf(sluice__max_abs(x, N)) || isnan(sluice__max_abs(x, N)));
        assert_false(isfinite(sluice__sum_squares(x, N)));
    }
    x[77] = NAN;
    assert_true(isnan(sluice__max_abs(x, N)));
    assert_int_equal(sluice__first_nonfinite(x, 0), -1);
    assert_true(sluice__max_abs(x, 0) == 0 && sluice__sum_squares(x, 0) == 0);
    sluice__free(x);
}

/* ---- matrix products: every path (oneDNN, few rows, reference), strides, alpha, beta ---- */

static void check_product(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, float beta) {
    int64_t lda = (ta ? m : k) + (m % 4 ? 3 : 0), ldb = (tb ? k : n) + (n % 2 ? 5 : 0), ldc = n + 2;
    float *a = normal((ta ? k : m) * lda + 1, 1), *b = normal((tb ? n : k) * ldb + 1, 2), *c = normal(m * ldc, 3);
    float *want = normal(m * ldc, 3);
    if (beta == 0)
        for (int64_t i = 0; i < m * n; i++) c[i / n * ldc + i % n] = NAN;
    sluice_gemm_f32_ref(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, want, ldc);
    sluice__gemm_f32(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    double most = largest_difference(c, want, m * ldc);
    if (!(most <= 3e-6 * sqrt((double)k + 1) * 10))
        fail_msg("product %d %d %lld %lld %lld: difference %g", ta, tb, (long long)m, (long long)n, (long long)k,
                 most);
    sluice__free(a), sluice__free(b), sluice__free(c), sluice__free(want);
}

static void products_of_all_shapes(void **state) {
    (void)state;
    static const int64_t sizes[][3] = {{1, 1, 1},   {1, 70, 300},  {2, 33, 257},  {4, 50, 260},  {5, 9, 0},
                                       {7, 31, 64}, {48, 40, 300}, {129, 140, 70}, {2100, 17, 40}, {64, 194, 64}, {130, 65, 33},
                                       {130, 512, 140}, {20, 512, 130}, {512, 40, 128}, {12, 20, 1024}, {140, 30, 513}};
    for (int l = 0; l < LEVELS; l++) {
        if (!select_level(l)) continue;
        for (int threads = 1; threads <= 2; threads++) {
            omp_set_num_threads(threads);
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
                for (int kind = 0; kind < 4; kind++) {
                    check_product(kind & 1, kind & 2, sizes[i][0], sizes[i][1], sizes[i][2], 1, 0);
                    check_product(kind & 1, kind & 2, sizes[i][0], sizes[i][1], sizes[i][2], 0.5f, 1);
                }
            }
        }
    }
    assert_ok(sluice_cpu_select(NULL, NULL));
}

/* Several blocks of rows, columns and summands of gemm_wide, whole and partial tiles. */
static const int64_t wide_sizes[][3] = {{1100, 70, 800}, {65, 130, 1537}, {256, 16, 64},
                                        {300, 2, 130},   {64, 98, 769},   {128, 257, 512}};
enum { WIDE_SIZES = sizeof wide_sizes / sizeof *wide_sizes };

static void forward_of_many_rows(void **state) {
    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        omp_set_num_threads(threads);
        for (int i = 0; i < WIDE_SIZES; i++) check_product(false, true, wide_sizes[i][0], wide_sizes[i][1], wide_sizes[i][2], 1, 0);
    }
    omp_set_num_threads(2);
}

static void check_wide(float *scratch, int kind, int64_t m, int64_t n, int64_t k) {
    bool ta = kind & 1, tb = kind & 2, add = kind & 4;
    int64_t lda = (ta ? m : k) + 3, ldb = (tb ? k : n) + 1, ldc = n + 2;
    float *a = normal((ta ? k : m) * lda, 1), *b = normal((tb ? n : k) * ldb, 2), *c = normal(m * ldc, 3);
    float *want = normal(m * ldc, 3);
    const sluice__product p = {ta, tb, add, m, n, k, a, lda, b, ldb, c, ldc};
    sluice_gemm_f32_ref(ta, tb, m, n, k, 1, a, lda, b, ldb, add, want, ldc);
    sluice__kernels_now()->gemm_wide_f32(&p, scratch);
    double most = largest_difference(c, want, m * ldc);
    if (!(most <= 3e-6 * sqrt((double)k) * 10))
        fail_msg("gemm_wide %d %lld %lld %lld: %g", kind, (long long)m, (long long)n, (long long)k, most);
    sluice__free(a), sluice__free(b), sluice__free(c), sluice__free(want);
}

static void wide_products_of_all_kinds(void **state) {
    (void)state;
    float *scratch = sluice__product_scratch(SLUICE__WIDE_SCRATCH);
    assert_non_null(scratch);
    for (int l = 0; l < LEVELS; l++)
        for (int i = 0; i < WIDE_SIZES && select_level(l); i++)
            for (int kind = 0; kind < 8; kind++) check_wide(scratch, kind, wide_sizes[i][0], wide_sizes[i][1], wide_sizes[i][2]);
    assert_ok(sluice_cpu_select(NULL, NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_of_many_rows),
        cmocka_unit_test(wide_products_of_all_kinds),
        cmocka_unit_test(levels_and_thread_counts_agree),
        cmocka_unit_test(parallel_region_runs_alone),
        cmocka_unit_test(callers_in_parallel),
        cmocka_unit_test(adamw_follows_the_definition),
        cmocka_unit_test(adamw_flushes_denormals),
        cmocka_unit_test(softmax_of_large_vocabularies),
        cmocka_unit_test(softmax_corner_cases),
        cmocka_unit_test(first_nonfinite_is_the_first_of_all_parts),
        cmocka_unit_test(products_of_all_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
