/* SPDX-License-Identifier: Apache-2.0 */
/* AdamW in one pass: body for one vec_<isa>.h. Formulas: adamw.c. Moments of parameters whose gradient stays 0,
 * such as embeddings of rare tokens, decay into denormals, and rounding keeps them there; some processors take a
 * hundred cycles for each operation on one. They are flushed to 0. */
#include "kernels/kernels.h"

VEC_INLINE void adamw_step(const sluice__adamw_factors *c, float *p, float *m, float *v, float *g, bool zero_grad,
                           int n) {
    vec grad = vec_mul(vec_load_n(g, n), vec_set(c->grad_scale));
    vec first = vec_fma(vec_set(c->beta1), vec_load_n(m, n), vec_mul(vec_set(c->one_minus_beta1), grad));
    vec second = vec_mul(vec_mul(vec_set(c->one_minus_beta2), grad), grad);
    second = vec_fma(vec_set(c->beta2), vec_load_n(v, n), second);
    vec denominator = vec_fma(vec_sqrt(second), vec_set(c->inv_sqrt_correction2), vec_set(c->eps));
    vec decayed = vec_mul(vec_load_n(p, n), vec_set(c->decay));
    vec_store_n(p, vec_fnma(vec_set(c->step_size), vec_div(first, denominator), decayed), n);
    vec_store_n(m, first, n);
    vec_store_n(v, second, n);
    if (zero_grad) vec_store_n(g, vec_zero(), n);
}

VEC_INLINE void adamw_pass(const sluice__adamw_factors *c, float *p, float *m, float *v, float *g, bool zero_grad,
                           int64_t count) {
    int64_t i = 0;
    for (; i + VEC <= count; i += VEC) adamw_step(c, p + i, m + i, v + i, g + i, zero_grad, VEC);
    if (i < count) adamw_step(c, p + i, m + i, v + i, g + i, zero_grad, (int)(count - i));
}

void VEC_KERNEL(adamw_f32)(const sluice__adamw_factors *c, float *p, float *m, float *v, float *g, int64_t count) {
    unsigned mode = vec_flush_denormals();
    if (c->zero_grad) adamw_pass(c, p, m, v, g, true, count);
    else adamw_pass(c, p, m, v, g, false, count);
    vec_set_mode(mode);
}
