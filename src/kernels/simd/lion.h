/* SPDX-License-Identifier: Apache-2.0 */
/* Lion in one pass: body for one vec_<isa>.h. Formulas, and why nothing is fused: lion.c. Denormal momentum is flushed
 * as in adamw.h. */
#include "kernels/kernels.h"

VEC_INLINE vec lion_mix(float a, vec x, float b, vec y) {
    return vec_add(vec_mul(vec_set(a), x), vec_mul(vec_set(b), y));
}

VEC_INLINE vec lion_sign(vec x) {
    vec below = vec_select(vec_less(x, vec_zero()), vec_set(-1.0f), x); /* 0 and NaN stay */
    return vec_select(vec_greater(x, vec_zero()), vec_set(1.0f), below);
}

VEC_INLINE void lion_step(const sluice__lion_factors *c, float *p, float *m, float *g, bool zero_grad, int n) {
    vec grad = vec_mul(vec_load_n(g, n), vec_set(c->grad_scale)), momentum = vec_load_n(m, n);
    vec direction = lion_sign(lion_mix(c->beta1, momentum, c->one_minus_beta1, grad));
    vec decayed = vec_mul(vec_load_n(p, n), vec_set(c->decay));
    vec_store_n(p, vec_sub(decayed, vec_mul(vec_set(c->lr), direction)), n);
    vec_store_n(m, lion_mix(c->beta2, momentum, c->one_minus_beta2, grad), n);
    if (zero_grad) vec_store_n(g, vec_zero(), n);
}

VEC_INLINE void lion_pass(const sluice__lion_factors *c, float *p, float *m, float *g, bool zero_grad, int64_t count) {
    int64_t i = 0;
    for (; i + VEC <= count; i += VEC) lion_step(c, p + i, m + i, g + i, zero_grad, VEC);
    if (i < count) lion_step(c, p + i, m + i, g + i, zero_grad, (int)(count - i));
}

void VEC_KERNEL(lion_f32)(const sluice__lion_factors *c, float *p, float *m, float *g, int64_t count) {
    unsigned mode = vec_flush_denormals();
    if (c->zero_grad) lion_pass(c, p, m, g, true, count);
    else lion_pass(c, p, m, g, false, count);
    vec_set_mode(mode);
}
