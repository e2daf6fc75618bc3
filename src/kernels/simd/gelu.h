/* SPDX-License-Identifier: Apache-2.0 */
/* GELU: body for one vec_<isa>.h. Formulas: gelu.c. Inputs are clamped to +-30 in the factors, where both are
 * saturated, so that no infinity meets a zero. */
#include "kernels/kernels.h"

VEC_INLINE vec clamp(vec x) {
    return vec_min(vec_set(30), vec_max(vec_set(-30), x));
}

/* tanh(sqrt(2/pi) (x + 0.044715 x^3)) */
VEC_INLINE vec inner_tanh(vec x, vec square) {
    vec u = vec_mul(x, vec_fma(square, vec_set(0.044715f * 0.797884561f), vec_set(0.797884561f)));
    return vec_tanh(u);
}

VEC_INLINE vec factor(vec x, bool tanh_form) {
    vec e = tanh_form ? inner_tanh(x, vec_mul(x, x)) : vec_erf(vec_mul(x, vec_set(0.707106781f)));
    return vec_fma(e, vec_set(0.5f), vec_set(0.5f));
}

VEC_INLINE void forward_step(float *y, const float *x, bool tanh_form, int n) {
    vec v = vec_load_n(x, n);
    vec out = vec_mul(v, factor(clamp(v), tanh_form));
    vec_store_n(y, vec_select(vec_less(v, vec_set(-30)), vec_zero(), out), n);
}

void VEC_KERNEL(gelu_f32)(float *y, const float *x, int64_t count, bool tanh_form) {
    int64_t i = 0;
    for (; i + VEC <= count; i += VEC) forward_step(y + i, x + i, tanh_form, VEC);
    if (i < count) forward_step(y + i, x + i, tanh_form, (int)(count - i));
}

VEC_INLINE vec slope_exact(vec x) {
    vec density = vec_mul(vec_set(0.398942280f), vec_exp(vec_mul(vec_mul(x, x), vec_set(-0.5f))));
    return vec_fma(x, density, factor(x, false));
}

VEC_INLINE vec slope_tanh(vec x) {
    vec square = vec_mul(x, x), t = inner_tanh(x, square);
    vec inner = vec_fma(square, vec_set(3 * 0.044715f * 0.797884561f), vec_set(0.797884561f));
    vec half = vec_mul(vec_mul(x, vec_set(0.5f)), vec_mul(inner, vec_fnma(t, t, vec_set(1))));
    return vec_add(half, vec_fma(t, vec_set(0.5f), vec_set(0.5f)));
}

VEC_INLINE void backward_step(float *dx, const float *dy, const float *x, bool tanh_form, int n) {
    vec v = clamp(vec_load_n(x, n));
    vec_store_n(dx, vec_mul(vec_load_n(dy, n), tanh_form ? slope_tanh(v) : slope_exact(v)), n);
}

void VEC_KERNEL(gelu_backward_f32)(float *dx, const float *dy, const float *x, int64_t count, bool tanh_form) {
    int64_t i = 0;
    for (; i + VEC <= count; i += VEC) backward_step(dx + i, dy + i, x + i, tanh_form, VEC);
    if (i < count) backward_step(dx + i, dy + i, x + i, tanh_form, (int)(count - i));
}
