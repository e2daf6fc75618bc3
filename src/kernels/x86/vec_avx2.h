/* SPDX-License-Identifier: Apache-2.0 */
/* A thin layer over AVX2 with FMA: the vocabulary in which the bodies in simd/ are written. vec_avx512.h has the same
 * names. */
#ifndef SLUICE_KERNELS_X86_VEC_AVX2_H
#define SLUICE_KERNELS_X86_VEC_AVX2_H
#include <immintrin.h>
#include <stdint.h>

enum { VEC = 8 }; /* floats in a vec */
#define VEC_KERNEL(name) sluice_##name##_avx2
#define VEC_INLINE static inline __attribute__((always_inline, unused))

typedef __m256 vec;
typedef __m256 vec_mask; /* one lane per float, all bits or none */
typedef struct vec_double {
    __m256d low, high;
} vec_double;

VEC_INLINE __m256i vec_lanes(int n) {
    static const int32_t lanes[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
    return _mm256_loadu_si256((const __m256i *)(const void *)(lanes + VEC - n));
}

VEC_INLINE vec vec_load(const float *p) { return _mm256_loadu_ps(p); }
/* Into the second-level cache; any address will do. */
VEC_INLINE void vec_fetch(const char *p) { _mm_prefetch(p, _MM_HINT_T1); }
VEC_INLINE void vec_store(float *p, vec v) { _mm256_storeu_ps(p, v); }
/* The first n <= VEC floats; the rest read as 0 and are not written. */
VEC_INLINE vec vec_load_n(const float *p, int n) { return n == VEC ? vec_load(p) : _mm256_maskload_ps(p, vec_lanes(n)); }
VEC_INLINE void vec_store_n(float *p, vec v, int n) {
    if (n == VEC) vec_store(p, v);
    else _mm256_maskstore_ps(p, vec_lanes(n), v);
}

/* The same of 16-bit floats, widened. */
VEC_INLINE __m128i vec_load_half_n(const uint16_t *p, int n) {
    if (n == VEC) return _mm_loadu_si128((const __m128i *)(const void *)p);
    uint16_t few[8] = {0};
    for (int i = 0; i < n; i++) few[i] = p[i];
    return _mm_loadu_si128((const __m128i *)(const void *)few);
}
VEC_INLINE vec vec_load_f16_n(const uint16_t *p, int n) { return _mm256_cvtph_ps(vec_load_half_n(p, n)); }
VEC_INLINE vec vec_load_bf16_n(const uint16_t *p, int n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(vec_load_half_n(p, n)), 16));
}

VEC_INLINE vec vec_set(float x) { return _mm256_set1_ps(x); }
VEC_INLINE vec vec_zero(void) { return _mm256_setzero_ps(); }
VEC_INLINE vec vec_add(vec a, vec b) { return _mm256_add_ps(a, b); }
VEC_INLINE vec vec_sub(vec a, vec b) { return _mm256_sub_ps(a, b); }
VEC_INLINE vec vec_mul(vec a, vec b) { return _mm256_mul_ps(a, b); }
VEC_INLINE vec vec_div(vec a, vec b) { return _mm256_div_ps(a, b); }
VEC_INLINE vec vec_fma(vec a, vec b, vec c) { return _mm256_fmadd_ps(a, b, c); }   /* a b + c */
VEC_INLINE vec vec_fnma(vec a, vec b, vec c) { return _mm256_fnmadd_ps(a, b, c); } /* c - a b */
VEC_INLINE vec vec_sqrt(vec a) { return _mm256_sqrt_ps(a); }
VEC_INLINE vec vec_round(vec a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
/* b when either is NaN. */
VEC_INLINE vec vec_max(vec a, vec b) { return _mm256_max_ps(a, b); }
VEC_INLINE vec vec_min(vec a, vec b) { return _mm256_min_ps(a, b); }
VEC_INLINE vec vec_abs(vec a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
VEC_INLINE vec vec_neg(vec a) { return _mm256_xor_ps(_mm256_set1_ps(-0.0f), a); }
/* |a| with the sign of s. */
VEC_INLINE vec vec_copysign(vec a, vec s) { return _mm256_or_ps(vec_abs(a), _mm256_and_ps(_mm256_set1_ps(-0.0f), s)); }

/* Comparisons are false for NaN, but for vec_unordered. */
VEC_INLINE vec_mask vec_greater(vec a, vec b) { return _mm256_cmp_ps(a, b, _CMP_GT_OQ); }
VEC_INLINE vec_mask vec_less(vec a, vec b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
VEC_INLINE vec_mask vec_not_less(vec a, vec b) { return _mm256_cmp_ps(a, b, _CMP_NLT_UQ); } /* a >= b, or NaN */
VEC_INLINE vec_mask vec_unordered(vec a, vec b) { return _mm256_cmp_ps(a, b, _CMP_UNORD_Q); }
VEC_INLINE vec_mask vec_or(vec_mask a, vec_mask b) { return _mm256_or_ps(a, b); }
VEC_INLINE vec vec_select(vec_mask m, vec yes, vec no) { return _mm256_blendv_ps(no, yes, m); }
VEC_INLINE unsigned vec_bits(vec_mask m) { return (unsigned)_mm256_movemask_ps(m); } /* bit i = lane i */

VEC_INLINE float vec_sum(vec v) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
VEC_INLINE float vec_reduce_max(vec v) {
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

/* out[0..3] = sums of a, b, c, d. */
VEC_INLINE void vec_sum4(float *out, vec a, vec b, vec c, vec d) {
    __m256 t = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(t), _mm256_extractf128_ps(t, 1)));
}

/* p * 2^n for whole n in [-150, 129], in two steps because 2^n alone may leave the range of a float. */
VEC_INLINE vec vec_scale2(vec p, vec n) {
    __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1), bias = _mm256_set1_epi32(127);
    __m256i rest = _mm256_sub_epi32(whole, half);
    p = _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23)));
    return _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23)));
}

VEC_INLINE vec_double vec_double_zero(void) { return (vec_double){_mm256_setzero_pd(), _mm256_setzero_pd()}; }
/* acc += (double)a * a, lane by lane. */
VEC_INLINE vec_double vec_double_add_square(vec_double acc, vec a) {
    __m256d l = _mm256_cvtps_pd(_mm256_castps256_ps128(a)), h = _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1));
    return (vec_double){_mm256_fmadd_pd(l, l, acc.low), _mm256_fmadd_pd(h, h, acc.high)};
}
VEC_INLINE double vec_double_sum(vec_double v) {
    __m256d s = _mm256_add_pd(v.low, v.high);
    __m128d t = _mm_add_pd(_mm256_castpd256_pd128(s), _mm256_extractf128_pd(s, 1));
    return _mm_cvtsd_f64(_mm_add_sd(t, _mm_unpackhi_pd(t, t)));
}

/* x as a bf16 number (kernels/bf16.h), with integers. */
VEC_INLINE vec vec_round_bf16(vec x) {
    __m256i bits = _mm256_castps_si256(x), magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    __m256i nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7f800000));
    __m256i tiny = _mm256_cmpgt_epi32(_mm256_set1_epi32(0x00800000), magnitude);
    __m256i y = _mm256_blendv_epi8(rounded, quiet, nan);
    y = _mm256_blendv_epi8(y, _mm256_and_si256(bits, _mm256_set1_epi32((int)0x80000000)), tiny);
    return _mm256_castsi256_ps(_mm256_and_si256(y, _mm256_set1_epi32((int)0xffff0000)));
}

/* From here on results and operands below the smallest normal float count as 0; the result is for vec_set_mode, which
 * undoes it. */
VEC_INLINE unsigned vec_flush_denormals(void) {
    unsigned mode = _mm_getcsr();
    _mm_setcsr(mode | _MM_FLUSH_ZERO_ON | 0x0040 /* operands too */);
    return mode;
}
VEC_INLINE void vec_set_mode(unsigned mode) { _mm_setcsr(mode); }

#include "kernels/simd/vec_math.h"
#endif
