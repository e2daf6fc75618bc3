/* SPDX-License-Identifier: Apache-2.0 */
/* What softmax and gates need beyond vec_math.h, in the words of x86/tile_<isa>.h: an exponential
 * without the clamps that its callers make needless, logarithm, gate activations with slopes. All
 * propagate NaN. tests/kernels/test_gate.c and test_attention.c measure them through the operators. */
#ifndef SLUICE_KERNELS_SIMD_TILE_MATH_H
#define SLUICE_KERNELS_SIMD_TILE_MATH_H
#include <float.h>
#include <math.h>
#include "sluice/attention.h"

/* vec_exp for x <= 88: scores less their maximum, or less their log-sum-exp. */
VEC_INLINE vec tile_exp(vec x) {
    vec n = vec_round(vec_mul(x, vec_set(1.44269504f)));
    vec r = vec_fnma(n, vec_set(0.693145752f), x);
    r = vec_fnma(n, vec_set(1.42860677e-6f), r);
    vec p = vec_fma(r, vec_set(0.00138145394f), vec_set(0.00836874545f));
    p = vec_fma(p, r, vec_set(0.041668389f));
    p = vec_fma(p, r, vec_set(0.166665211f));
    p = vec_fma(p, r, vec_set(0.49999994f));
    p = vec_fma(p, r, vec_set(1.0f));
    p = vec_fma(p, r, vec_set(1.0f));
    return vec_keep(vec_not_less(x, vec_set(VEC_EXP_LEAST)), vec_scale2_normal(p, n));
}

/* Natural logarithm of a normal number, 0, inf: x = 2^e m with m in [2/3, 4/3), and
 * log m = 2 atanh((m - 1) / (m + 1)) as a series, whose argument is at most 1/5. */
VEC_INLINE vec tile_log(vec x) {
    vec m, e = vec_split2(x, &m);
    vec_mask high = vec_not_less(m, vec_set(4.0f / 3.0f));
    m = vec_select(high, vec_mul(m, vec_set(0.5f)), m);
    e = vec_select(high, vec_add(e, vec_set(1.0f)), e);
    vec s = vec_div(vec_sub(m, vec_set(1.0f)), vec_add(m, vec_set(1.0f))), w = vec_mul(s, s);
    vec p = vec_fma(w, vec_set(2.0f / 11.0f), vec_set(2.0f / 9.0f));
    p = vec_fma(p, w, vec_set(2.0f / 7.0f));
    p = vec_fma(p, w, vec_set(2.0f / 5.0f));
    p = vec_mul(vec_fma(p, w, vec_set(2.0f / 3.0f)), w);
    vec y = vec_fma(p, s, vec_fma(e, vec_set(1.42860677e-6f), vec_add(s, s)));
    y = vec_fma(e, vec_set(0.693145752f), y);
    y = vec_select(vec_equal(x, vec_zero()), vec_set(-INFINITY), y);
    return vec_select(vec_not_less(x, vec_set(INFINITY)), x, y); /* inf and NaN */
}

/* sigmoid(s) from exp(-|s|) <= 1, and *slope = sigmoid(s) sigmoid(-s) without cancellation. */
VEC_INLINE vec gate_sigmoid(vec s, vec *slope) {
    vec e = tile_exp(vec_neg(vec_abs(s))), r = vec_div(vec_set(1.0f), vec_add(vec_set(1.0f), e));
    vec er = vec_mul(e, r);
    *slope = vec_mul(er, r);
    return vec_select(vec_not_less(s, vec_zero()), r, er);
}

/* log(1 + exp(s)) = max(s, 0) + log(1 + e), e = exp(-|s|); what 1 + e rounds away is put back. */
VEC_INLINE vec gate_softplus(vec s) {
    vec e = tile_exp(vec_neg(vec_abs(s))), u = vec_add(vec_set(1.0f), e);
    vec lost = vec_sub(e, vec_sub(u, vec_set(1.0f)));
    return vec_add(vec_max(vec_zero(), s), vec_add(tile_log(u), vec_div(lost, u)));
}

/* act(s) and *slope = d act / d s, with the limits at +-inf of gate_act.h. In vec_max and vec_min
 * the operand whose NaN must survive stands second. */
VEC_INLINE vec gate_act_slope(sluice_gate_act act, vec s, vec *slope) {
    if (act == SLUICE_GATE_IDENTITY) {
        *slope = vec_set(1.0f);
        return s;
    }
    vec g = gate_sigmoid(s, slope), above = vec_max(vec_set(-FLT_MAX), s);
    switch (act) {
    case SLUICE_GATE_NS_SIGMOID:
        *slope = vec_mul(vec_set(0.5f), *slope);
        return vec_fma(vec_set(0.5f), g, vec_set(0.5f));
    case SLUICE_GATE_SILU:
        *slope = vec_fma(vec_min(vec_set(FLT_MAX), above), *slope, g);
        return vec_mul(above, g);
    case SLUICE_GATE_SOFTPLUS:
        *slope = g;
        return gate_softplus(s);
    case SLUICE_GATE_SIGMOID:
    case SLUICE_GATE_IDENTITY:
        break;
    }
    return g;
}

VEC_INLINE vec gate_act(sluice_gate_act act, vec s) {
    vec slope;
    return gate_act_slope(act, s, &slope);
}
#endif
