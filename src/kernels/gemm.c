/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products, and the linear layer on top of them. This is the one place that calls oneDNN. At the level "ref"
 * the plain C product is used instead, so that a run under SLUICE_CPU=ref owes nothing to any library. */
#include "kernels/kernels.h"
#include "kernels/parallel.h"
#include "kernels/profile.h"
#include "kernels/scratch.h"
#include <dnnl.h>
#include <pthread.h>

static bool reference_wanted(void) {
    return sluice_cpu_flags() == 0 && sluice_cpu_detect() != 0;
}

/* oneDNN can be held to AVX2 only before its first use, once per process; a later choice of level leaves it as it is. */
static void limit_onednn(void) {
    if (!(sluice_cpu_flags() & SLUICE_CPU_AVX512)) dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx2);
}

/* C = alpha op(A) op(B) + beta C, as in sluice__gemm_f32. */
typedef struct product {
    bool trans_a, trans_b;
    int64_t m, n, k;
    float alpha;
    const float *a;
    int64_t lda;
    const float *b;
    int64_t ldb;
    float beta;
    float *c;
    int64_t ldc;
} product;

static product rows_of(const product *p, sluice__range r) {
    product part = *p;
    part.m = r.end - r.begin;
    part.a += r.begin * (p->trans_a ? 1 : p->lda);
    part.c += r.begin * p->ldc;
    return part;
}

static product columns_of(const product *p, sluice__range r) {
    product part = *p;
    part.n = r.end - r.begin;
    part.b += r.begin * (p->trans_b ? p->ldb : 1);
    part.c += r.begin;
    return part;
}

/* The table's own product, of a part of the rows. */
static void own_part(product p) {
    sluice__kernels_now()->gemm_f32(p.trans_a, p.trans_b, p.m, p.n, p.k, p.alpha, p.a, p.lda, p.b, p.ldb, p.beta, p.c,
                                    p.ldc);
}

static void own_product(const product *p) {
    SLUICE__SPLIT(sluice__team(p->m * p->n * p->k / 8), p->m, 1, own_part(rows_of(p, range)));
}

/* oneDNN, which may refuse (arguments that it does not like, no memory). */
static void onednn_product(product p) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, limit_onednn);
    if (dnnl_sgemm(p.trans_a ? 'T' : 'N', p.trans_b ? 'T' : 'N', p.m, p.n, p.k, p.alpha, p.a, p.lda, p.b, p.ldb, p.beta,
                   p.c, p.ldc) != dnnl_success)
        own_product(&p);
}

/* oneDNN on the calling thread alone: it asks for no other limit. The setting is this thread's own. */
static void onednn_alone(const product *p, int threads) {
    omp_set_num_threads(1);
    onednn_product(*p);
    omp_set_num_threads(threads);
}

/* Multiply-adds (about 20 us of one core) below which a second thread costs more than it takes over. */
enum { GEMM_ALONE = 1 << 20 };
/* What a thread's part must have for a split of ours to pay: columns, where two threads share or more do; rows. */
enum { PART_COLUMNS_TWO = 32, PART_COLUMNS = 256, PART_ROWS = 1024, SPLIT_COLUMNS_MAX_ROWS = 1024 };

/* oneDNN splits x W^T so that every thread packs all of W. Parts of columns, of W then, or of many rows avoid that:
 * with two threads 1.06 to 1.38 times as fast on the products of forward (docs/speed-log.md). Its own split is as
 * good as any for the other two kinds of product. */
static void onednn_split(const product *p) {
    int threads = omp_in_parallel() ? 1 : omp_get_max_threads();
    bool forward = !p->trans_a && p->trans_b;
    if (threads > 1 && p->m * p->n * p->k < GEMM_ALONE) onednn_alone(p, threads);
    else if (threads > 1 && forward && p->m <= SPLIT_COLUMNS_MAX_ROWS &&
             p->n / threads >= (threads == 2 ? PART_COLUMNS_TWO : PART_COLUMNS))
        SLUICE__SPLIT(threads, p->n, 16, onednn_product(columns_of(p, range)));
    else if (threads > 1 && forward && p->m / threads >= PART_ROWS)
        SLUICE__SPLIT(threads, p->m, 16, onednn_product(rows_of(p, range)));
    else onednn_product(*p);
}

/* y = x W^T with W as it lies, nothing added or scaled: what our own kernels take. */
static bool plain_linear(const product *p) {
    return !p->trans_a && p->trans_b && p->ldb == p->k && p->alpha == 1 && p->beta == 0 && p->k > 0;
}

/* From how many rows on each kernel is faster, measured (docs/speed-log.md); sums of at least SUMS. */
enum { THIN_ROWS = 4, WIDE_ROWS = 64, SHORT_WIDE_ROWS = 256, THIN_AVX2_ROWS = 8, SUMS = 128 };
/* Against dnnl_sgemm, with AVX-512 linear_thin is 1.0 to 2.8 times as fast from four rows on, with AVX2 1.2 to 4 times up to
 * eight; oneDNN's own few-row path is better for two and three rows with AVX-512. */
static bool thin_pays(const product *p) {
    unsigned cpu = sluice_cpu_flags();
    if (!plain_linear(p) || !(cpu & SLUICE_CPU_AVX2)) return false;
    if (!(cpu & SLUICE_CPU_AVX512)) return p->m <= THIN_AVX2_ROWS;
    return p->m == 1 || (p->m >= THIN_ROWS && p->m < WIDE_ROWS && p->k >= SUMS);
}

static void linear_thin(product p) {
    sluice__kernels_now()->linear_thin_f32(p.c, p.ldc, p.a, p.lda, p.b, p.m, p.n, p.k);
}

/* With AVX2 gemm_wide is 1.0 to 1.2 times as fast as dnnl_sgemm for some rows and long sums. Where rows of what is not packed lie
 * a multiple of 2 KiB apart, which fall into the same sets of the caches, dnnl_sgemm does half as well as elsewhere if the
 * other side is short. */
static bool wide_pays_avx2(const product *p) {
    enum { ROWS = 128, MAX_ROWS = 768, LONG_SUMS = 512, FAR = 512, FAR_ROWS = 16, SHORT = 256, SMALL = 512 };
    if (p->trans_a)
        return !p->trans_b && p->lda % FAR == 0 && p->m >= ROWS && p->k >= SUMS &&
               (p->n <= SHORT || (p->m <= SMALL && p->n <= SMALL));
    if (p->m >= ROWS && p->m <= MAX_ROWS && p->k >= LONG_SUMS) return true;
    if (p->ldb % FAR || p->m > SHORT) return false;
    return p->trans_b ? p->m > THIN_AVX2_ROWS && p->k >= 2 * LONG_SUMS : p->m >= FAR_ROWS && p->k >= SUMS;
}

/* With AVX-512 gemm_wide is 1.01 to 1.1 times as fast for x W^T, and slower for the others. */
static bool wide_pays(const product *p) {
    unsigned cpu = sluice_cpu_flags();
    if (p->alpha != 1 || (p->beta != 0 && p->beta != 1) || p->k <= 0 || !(cpu & SLUICE_CPU_AVX2)) return false;
    if (!(cpu & SLUICE_CPU_AVX512)) return wide_pays_avx2(p);
    return plain_linear(p) && p->m >= (p->k < SUMS ? SHORT_WIDE_ROWS : WIDE_ROWS);
}

static void gemm_wide(product p, float *scratch) {
    const sluice__product plain = {p.trans_a, p.trans_b, p.beta == 1, p.m, p.n, p.k, p.a, p.lda, p.b, p.ldb, p.c, p.ldc};
    sluice__kernels_now()->gemm_wide_f32(&plain, scratch);
}

static float *scratch_of_thread(float *scratch) {
    return scratch + (int64_t)omp_get_thread_num() * SLUICE__WIDE_SCRATCH;
}

/* Columns are dealt out, or rows where there are more of these: what is not dealt out is packed by every thread. false: no
 * scratch. */
static bool wide_split(const product *p) {
    bool alone = omp_in_parallel() || p->m * p->n * p->k < GEMM_ALONE;
    int threads = alone ? 1 : omp_get_max_threads();
    float *scratch = sluice__product_scratch((size_t)threads * SLUICE__WIDE_SCRATCH);
    if (!scratch) return false;
    if (threads == 1) gemm_wide(*p, scratch);
    else if (p->m > p->n) SLUICE__SPLIT(threads, p->m, 1, gemm_wide(rows_of(p, range), scratch_of_thread(scratch)));
    else SLUICE__SPLIT(threads, p->n, 16, gemm_wide(columns_of(p, range), scratch_of_thread(scratch)));
    return true;
}

void sluice__gemm_f32(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                      int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc) {
    const product p = {trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc};
    SLUICE__SPAN_PRODUCT(trans_a ? "dy^T x" : trans_b ? "x W^T" : "dy W", m, n, k, 4, beta != 0);
    if (m <= 0 || n <= 0) return;
    if (thin_pays(&p)) SLUICE__SPLIT(sluice__team(n * k), n, 8, linear_thin(columns_of(&p, range)));
    else if (k <= 0 || reference_wanted()) own_product(&p);
    else if (!wide_pays(&p) || !wide_split(&p)) onednn_split(&p);
}

void sluice__bias_forward(float *y, int64_t y_stride, const float *bias, int64_t rows, int64_t out) {
    SLUICE__SPAN_FLOATS("bias", 2 * rows * out);
    const sluice__kernels *k = sluice__kernels_now();
    SLUICE__SPLIT(sluice__team(rows * out), rows, 1, {
        for (int64_t r = range.begin; r < range.end; r++) k->add_f32(y + r * y_stride, bias, out);
    });
}

void sluice__bias_backward(float *dbias, const float *dy, int64_t dy_stride, int64_t rows, int64_t out) {
    SLUICE__SPAN_FLOATS("bias", rows * out);
    const sluice__kernels *k = sluice__kernels_now();
    SLUICE__SPLIT(
        sluice__team(rows * out), out, 16,
        k->column_sums_f32(dbias + range.begin, dy + range.begin, dy_stride, rows, range.end - range.begin));
}

void sluice__linear_forward(float *y, int64_t y_stride, const float *x, int64_t x_stride, const float *w,
                            const float *bias, int64_t rows, int64_t out, int64_t in) {
    sluice__gemm_f32(false, true, rows, out, in, 1, x, x_stride, w, in, 0, y, y_stride);
    if (bias) sluice__bias_forward(y, y_stride, bias, rows, out);
}

void sluice__linear_backward_input(float *dx, int64_t dx_stride, const float *dy, int64_t dy_stride, const float *w,
                                   int64_t rows, int64_t out, int64_t in, bool accumulate) {
    sluice__gemm_f32(false, false, rows, in, out, 1, dy, dy_stride, w, in, accumulate ? 1 : 0, dx, dx_stride);
}

void sluice__linear_backward_weight(float *dw, float *dbias, const float *dy, int64_t dy_stride, const float *x,
                                    int64_t x_stride, int64_t rows, int64_t out, int64_t in) {
    sluice__gemm_f32(true, false, out, in, rows, 1, dy, dy_stride, x, x_stride, 1, dw, in);
    if (dbias) sluice__bias_backward(dbias, dy, dy_stride, rows, out);
}
