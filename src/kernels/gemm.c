/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products, and the linear layer on top of them. This is the one place that calls oneDNN. At the level "ref"
 * the plain C product is used instead, so that a run under SLUICE_CPU=ref owes nothing to any library. */
#include "kernels/kernels.h"
#include "kernels/parallel.h"
#include <dnnl.h>
#include <pthread.h>

static bool reference_wanted(void) {
    return sluice_cpu_flags() == 0 && sluice_cpu_detect() != 0;
}

/* oneDNN can be held to AVX2 only before its first use, once per process; a later choice of level leaves it as it is. */
static void limit_onednn(void) {
    if (!(sluice_cpu_flags() & SLUICE_CPU_AVX512)) dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx2);
}

/* Multiply-adds (about 20 us of one core) below which a second thread costs more than it takes over. */
enum { GEMM_ALONE = 1 << 20 };

/* dnnl_sgemm, or false when it refuses (arguments it does not like, no memory). */
static bool onednn_gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                        int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, limit_onednn);
    int threads = omp_get_max_threads();
    bool alone = threads > 1 && m * n * k < GEMM_ALONE;
    if (alone) omp_set_num_threads(1); /* oneDNN asks for no other limit; the setting is this thread's own */
    bool done = dnnl_sgemm(trans_a ? 'T' : 'N', trans_b ? 'T' : 'N', m, n, k, alpha, a, lda, b, ldb, beta, c,
                           ldc) == dnnl_success;
    if (alone) omp_set_num_threads(threads);
    return done;
}

/* Rows of C are dealt out to the team; work counts operand elements read per thread. */
static void own_gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                     int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc) {
    const sluice__kernels *table = sluice__kernels_now();
    SLUICE__SPLIT(sluice__team(m * n * k / 8), m, 1,
                  table->gemm_f32(trans_a, trans_b, range.end - range.begin, n, k, alpha,
                                  a + range.begin * (trans_a ? 1 : lda), lda, b, ldb, beta, c + range.begin * ldc,
                                  ldc));
}

/* Whether y = x W^T is left to linear_thin_f32. Measured against dnnl_sgemm (docs/speed-log.md): with AVX-512 it is
 * 1.1 to 2.8 times as fast from four rows on, with AVX2 1.2 to 4 times up to eight; oneDNN's own few-row path is
 * better for two and three rows with AVX-512, and its packing pays again from about 48 rows, or for short sums. */
static bool thin_pays(int64_t rows, int64_t in) {
    unsigned cpu = sluice_cpu_flags();
    if (rows == 1) return cpu & SLUICE_CPU_AVX2;
    if (cpu & SLUICE_CPU_AVX512) return rows >= 4 && rows <= 48 && in >= 256;
    return cpu & SLUICE_CPU_AVX2 && rows <= 8;
}

static void linear_thin(float *y, int64_t y_stride, const float *x, int64_t x_stride, const float *w, int64_t rows,
                        int64_t out, int64_t in) {
    const sluice__kernels *k = sluice__kernels_now();
    SLUICE__SPLIT(sluice__team(out * in), out, 8,
                  k->linear_thin_f32(y + range.begin, y_stride, x, x_stride, w + range.begin * in, rows,
                                     range.end - range.begin, in));
}

void sluice__gemm_f32(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                      int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc) {
    if (m <= 0 || n <= 0) return;
    if (!trans_a && trans_b && ldb == k && alpha == 1 && beta == 0 && k > 0 && thin_pays(m, k)) {
        linear_thin(c, ldc, a, lda, b, m, n, k);
        return;
    }
    if (k <= 0 || reference_wanted() ||
        !onednn_gemm(trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc))
        own_gemm(trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

static void add_bias(float *y, int64_t y_stride, const float *bias, int64_t rows, int64_t out) {
    const sluice__kernels *k = sluice__kernels_now();
    SLUICE__SPLIT(sluice__team(rows * out), rows, 1, {
        for (int64_t r = range.begin; r < range.end; r++) k->add_f32(y + r * y_stride, bias, out);
    });
}

void sluice__linear_forward(float *y, int64_t y_stride, const float *x, int64_t x_stride, const float *w,
                            const float *bias, int64_t rows, int64_t out, int64_t in) {
    sluice__gemm_f32(false, true, rows, out, in, 1, x, x_stride, w, in, 0, y, y_stride);
    if (bias) add_bias(y, y_stride, bias, rows, out);
}

void sluice__linear_backward_input(float *dx, int64_t dx_stride, const float *dy, int64_t dy_stride, const float *w,
                                   int64_t rows, int64_t out, int64_t in, bool accumulate) {
    sluice__gemm_f32(false, false, rows, in, out, 1, dy, dy_stride, w, in, accumulate ? 1 : 0, dx, dx_stride);
}

void sluice__linear_backward_weight(float *dw, float *dbias, const float *dy, int64_t dy_stride, const float *x,
                                    int64_t x_stride, int64_t rows, int64_t out, int64_t in) {
    sluice__gemm_f32(true, false, out, in, rows, 1, dy, dy_stride, x, x_stride, 1, dw, in);
    if (!dbias) return;
    const sluice__kernels *k = sluice__kernels_now();
    SLUICE__SPLIT(
        sluice__team(rows * out), out, 16,
        k->column_sums_f32(dbias + range.begin, dy + range.begin, dy_stride, rows, range.end - range.begin));
}
