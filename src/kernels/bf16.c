/* SPDX-License-Identifier: Apache-2.0 */
/* References of rounding to bf16 and of products of bf16 matrices. A product of two bf16 numbers is exact in float, and
 * their sum is taken in double. */
#include "kernels/kernels.h"

void sluice_bf16_from_f32_ref(sluice__bf16 *y, const float *x, int64_t count) {
    for (int64_t i = 0; i < count; i++) y[i] = sluice__bf16_round(x[i]);
}

void sluice_bf16_round_f32_ref(float *y, const float *x, int64_t count) {
    for (int64_t i = 0; i < count; i++) y[i] = sluice__bf16_widen(sluice__bf16_round(x[i]));
}

static double element(const sluice__rounded *x, int64_t row, int64_t column) {
    int64_t at = row * x->stride + column;
    if (x->half) return sluice__bf16_widen(((const sluice__bf16 *)x->data)[at]);
    return sluice__bf16_widen(sluice__bf16_round(((const float *)x->data)[at]));
}

void sluice_gemm_bf16_ref(const sluice__bf16_product *p, float *scratch) {
    (void)scratch;
    for (int64_t i = 0; i < p->m; i++) {
        for (int64_t j = 0; j < p->n; j++) {
            float *c = p->c + i * p->ldc + j;
            double sum = p->accumulate ? *c : 0;
            for (int64_t k = 0; k < p->k; k++)
                sum += (p->trans_a ? element(&p->a, k, i) : element(&p->a, i, k)) *
                       (p->trans_b ? element(&p->b, j, k) : element(&p->b, k, j));
            *c = (float)sum;
        }
    }
}
