/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products: references, one dot product in double per element. */
#include "kernels/kernels.h"

void sluice_gemm_f32_ref(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                         int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc) {
    int64_t a_row = trans_a ? 1 : lda, a_step = trans_a ? lda : 1;
    int64_t b_col = trans_b ? ldb : 1, b_step = trans_b ? 1 : ldb;
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t p = 0; p < k; p++) sum += (double)a[i * a_row + p * a_step] * b[j * b_col + p * b_step];
            sum *= alpha;
            c[i * ldc + j] = (float)(beta == 0 ? sum : sum + (double)beta * c[i * ldc + j]);
        }
    }
}

void sluice_linear_thin_f32_ref(float *y, int64_t y_stride, const float *x, int64_t x_stride, const float *w,
                                int64_t rows, int64_t out, int64_t in) {
    sluice_gemm_f32_ref(false, true, rows, out, in, 1, x, x_stride, w, in, 0, y, y_stride);
}

void sluice_gemm_wide_f32_ref(const sluice__product *p, float *scratch) {
    (void)scratch;
    sluice_gemm_f32_ref(p->trans_a, p->trans_b, p->m, p->n, p->k, 1, p->a, p->lda, p->b, p->ldb, p->accumulate ? 1 : 0, p->c,
                        p->ldc);
}
