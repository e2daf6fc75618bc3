/* SPDX-License-Identifier: Apache-2.0 */
/* exp, sigmoid, tanh, erf on a vec, written on the primitives of vec_<isa>.h, which includes this file. Polynomials
 * are minimax fits (Lawson iteration) with an error far below rounding; measured errors are in docs/numerics.md.
 * NaN in, NaN out; results below the smallest normal float are 0, because denormals cost a hundred cycles each in
 * what follows. */
#ifndef SLUICE_KERNELS_SIMD_VEC_MATH_H
#define SLUICE_KERNELS_SIMD_VEC_MATH_H

#define VEC_EXP_LEAST -87.336544f /* log of the smallest normal float */
#define VEC_EXP_MOST 89.0f        /* infinity from 88.73 on */

/* x = n log 2 + r, |r| <= log(2)/2;  e^x = 2^n e^r. log 2 is taken off in two parts, the first exact for every n. */
VEC_INLINE vec vec_exp(vec x) {
    vec c = vec_min(vec_set(VEC_EXP_MOST), vec_max(vec_set(VEC_EXP_LEAST), x));
    vec n = vec_round(vec_mul(c, vec_set(1.44269504f)));
    vec r = vec_fnma(n, vec_set(0.693145752f), c);
    r = vec_fnma(n, vec_set(1.42860677e-6f), r);
    vec p = vec_set(0.00138145f);
    p = vec_fma(p, r, vec_set(0.00836875f));
    p = vec_fma(p, r, vec_set(0.04166839f));
    p = vec_fma(p, r, vec_set(0.1666652f));
    p = vec_fma(p, r, vec_set(0.49999993f));
    p = vec_fma(vec_mul(r, r), p, r);
    p = vec_scale2(vec_add(p, vec_set(1)), n);
    return vec_select(vec_less(x, vec_set(VEC_EXP_LEAST)), vec_zero(), p);
}

/* 1 / (1 + e^-x): an infinite e^-x gives 0, a vanishing one 1. */
VEC_INLINE vec vec_sigmoid(vec x) {
    return vec_div(vec_set(1), vec_add(vec_set(1), vec_exp(vec_neg(x))));
}

/* Odd polynomial below 0.625, where 1 - 2 / (e^2x + 1) would cancel. */
VEC_INLINE vec vec_tanh(vec x) {
    vec a = vec_abs(x), s = vec_mul(x, x);
    vec p = vec_set(-0.0056669772f);
    p = vec_fma(p, s, vec_set(0.020606177f));
    p = vec_fma(p, s, vec_set(-0.053730007f));
    p = vec_fma(p, s, vec_set(0.13331331f));
    p = vec_fma(p, s, vec_set(-0.33333278f));
    p = vec_fma(vec_mul(p, s), x, x);
    vec e = vec_exp(vec_add(a, a));
    vec q = vec_sub(vec_set(1), vec_div(vec_set(2), vec_add(e, vec_set(1))));
    return vec_select(vec_less(a, vec_set(0.625f)), p, vec_copysign(q, x));
}

/* Odd polynomial below 1;  1 - e^-Q(|x|) above, Q a fit of -log erfc. */
VEC_INLINE vec vec_erf(vec x) {
    vec a = vec_min(vec_set(4), vec_abs(x)), s = vec_mul(x, x);
    vec p = vec_set(7.8535229e-05f);
    p = vec_fma(p, s, vec_set(-0.00080100826f));
    p = vec_fma(p, s, vec_set(0.0051883137f));
    p = vec_fma(p, s, vec_set(-0.026853803f));
    p = vec_fma(p, s, vec_set(0.11283585f));
    p = vec_fma(p, s, vec_set(-0.37612626f));
    p = vec_fma(p, s, vec_set(0.12837917f));
    p = vec_fma(p, x, x);
    vec q = vec_set(-0.00018677672f);
    q = vec_fma(q, a, vec_set(0.0029518742f));
    q = vec_fma(q, a, vec_set(-0.021856302f));
    q = vec_fma(q, a, vec_set(0.10314795f));
    q = vec_fma(q, a, vec_set(0.63809359f));
    q = vec_fma(q, a, vec_set(1.1271225f));
    q = vec_fma(q, a, vec_set(0.00033269276f));
    q = vec_sub(vec_set(1), vec_exp(vec_neg(q)));
    return vec_select(vec_less(vec_abs(x), vec_set(1)), p, vec_copysign(q, x));
}

/* x sigmoid(x), 0 at minus infinity. Below -100 the product is 0 in float anyway, and -inf * 0 must not arise. */
VEC_INLINE vec vec_silu(vec x, vec sigmoid) {
    return vec_select(vec_less(x, vec_set(-100)), vec_zero(), vec_mul(x, sigmoid));
}

#endif
