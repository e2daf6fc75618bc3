/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products, and the linear layer on top of them. This is the one place that calls oneDNN. At the level "ref" the
 * plain C product is used instead, so that a run under SLUICE_CPU=ref owes nothing to any library. */
#include "kernels/kernels.h"
#include "kernels/parallel.h"
#include <dnnl.h>

static bool reference_wanted(void) {
    return sluice_cpu_flags() == 0 && sluice_cpu_detect() != 0;
}

/* Rows of C are dealt out to the team; work counts operand elements read per thread. */
static void own_gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                     int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc) {
    const sluice__kernels *table = sluice__kernels_now();
    SLUICE__SPLIT(sluice__team(m * n * k / 8), m, 1,
                  table->gemm_f32(trans_a, trans_b, range.end - range.begin, n, k, alpha,
                                  a + range.begin * (trans_a ? 1 : lda), lda, b, ldb, beta, c + range.begin * ldc, ldc));
}

void sluice__gemm_f32(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                      int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc) {
    if (m <= 0 || n <= 0) return;
    if (k <= 0 || reference_wanted() ||
        dnnl_sgemm(trans_a ? 'T' : 'N', trans_b ? 'T' : 'N', m, n, k, alpha, a, lda, b, ldb, beta, c, ldc) != dnnl_success)
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
    SLUICE__SPLIT(sluice__team(rows * out), out, 16,
                  k->column_sums_f32(dbias + range.begin, dy + range.begin, dy_stride, rows, range.end - range.begin));
}
