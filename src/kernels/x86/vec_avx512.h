/* SPDX-License-Identifier: Apache-2.0 */
/* A thin layer over AVX-512 (F, BW, DQ, VL), with the names of vec_avx2.h. */
#ifndef SLUICE_KERNELS_X86_VEC_AVX512_H
#define SLUICE_KERNELS_X86_VEC_AVX512_H
#include <immintrin.h>
#include <stdint.h>

enum { VEC = 16 }; /* floats in a vec */
#define VEC_KERNEL(name) sluice_##name##_avx512
#define VEC_INLINE static inline __attribute__((always_inline, unused))

typedef __m512 vec;
typedef __mmask16 vec_mask;
typedef struct vec_double {
    __m512d low, high;
} vec_double;

VEC_INLINE vec vec_load(const float *p) { return _mm512_loadu_ps(p); }
/* Into the second-level cache; any address will do. */
VEC_INLINE void vec_fetch(const char *p) { _mm_prefetch(p, _MM_HINT_T1); }
VEC_INLINE void vec_store(float *p, vec v) { _mm512_storeu_ps(p, v); }
VEC_INLINE vec_mask vec_lanes(int n) { return (vec_mask)((1u << n) - 1); }
/* The first n <= VEC floats; the rest read as 0 and are not written. */
VEC_INLINE vec vec_load_n(const float *p, int n) {
    return n == VEC ? vec_load(p) : _mm512_maskz_loadu_ps(vec_lanes(n), p);
}
VEC_INLINE void vec_store_n(float *p, vec v, int n) {
    if (n == VEC) vec_store(p, v);
    else _mm512_mask_storeu_ps(p, vec_lanes(n), v);
}

/* The same of 16-bit floats, widened. */
VEC_INLINE __m256i vec_load_half_n(const uint16_t *p, int n) {
    return n == VEC ? _mm256_loadu_si256((const __m256i *)(const void *)p) : _mm256_maskz_loadu_epi16(vec_lanes(n), p);
}
VEC_INLINE vec vec_load_f16_n(const uint16_t *p, int n) { return _mm512_cvtph_ps(vec_load_half_n(p, n)); }
VEC_INLINE vec vec_load_bf16_n(const uint16_t *p, int n) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(vec_load_half_n(p, n)), 16));
}

VEC_INLINE vec vec_set(float x) { return _mm512_set1_ps(x); }
VEC_INLINE vec vec_zero(void) { return _mm512_setzero_ps(); }
VEC_INLINE vec vec_add(vec a, vec b) { return _mm512_add_ps(a, b); }
VEC_INLINE vec vec_sub(vec a, vec b) { return _mm512_sub_ps(a, b); }
VEC_INLINE vec vec_mul(vec a, vec b) { return _mm512_mul_ps(a, b); }
VEC_INLINE vec vec_div(vec a, vec b) { return _mm512_div_ps(a, b); }
VEC_INLINE vec vec_fma(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }   /* a b + c */
VEC_INLINE vec vec_fnma(vec a, vec b, vec c) { return _mm512_fnmadd_ps(a, b, c); } /* c - a b */
VEC_INLINE vec vec_sqrt(vec a) { return _mm512_sqrt_ps(a); }
VEC_INLINE vec vec_round(vec a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
/* b when either is NaN. */
VEC_INLINE vec vec_max(vec a, vec b) { return _mm512_max_ps(a, b); }
VEC_INLINE vec vec_min(vec a, vec b) { return _mm512_min_ps(a, b); }
VEC_INLINE vec vec_abs(vec a) { return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), a); }
VEC_INLINE vec vec_neg(vec a) { return _mm512_xor_ps(_mm512_set1_ps(-0.0f), a); }
/* |a| with the sign of s. */
VEC_INLINE vec vec_copysign(vec a, vec s) { return _mm512_or_ps(vec_abs(a), _mm512_and_ps(_mm512_set1_ps(-0.0f), s)); }

/* Comparisons are false for NaN, but for vec_not_less and vec_unordered. */
VEC_INLINE vec_mask vec_greater(vec a, vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
VEC_INLINE vec_mask vec_less(vec a, vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
VEC_INLINE vec_mask vec_not_less(vec a, vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ); } /* a >= b, or NaN */
VEC_INLINE vec_mask vec_unordered(vec a, vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q); }
VEC_INLINE vec_mask vec_or(vec_mask a, vec_mask b) { return (vec_mask)(a | b); }
VEC_INLINE vec vec_select(vec_mask m, vec yes, vec no) { return _mm512_mask_blend_ps(m, no, yes); }
VEC_INLINE unsigned vec_bits(vec_mask m) { return m; } /* bit i = lane i */

VEC_INLINE float vec_sum(vec v) { return _mm512_reduce_add_ps(v); }
VEC_INLINE float vec_reduce_max(vec v) { return _mm512_reduce_max_ps(v); }

VEC_INLINE __m256 vec_fold(vec v) { return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1)); }
/* out[0..3] = sums of a, b, c, d. */
VEC_INLINE void vec_sum4(float *out, vec a, vec b, vec c, vec d) {
    __m256 t = _mm256_hadd_ps(_mm256_hadd_ps(vec_fold(a), vec_fold(b)), _mm256_hadd_ps(vec_fold(c), vec_fold(d)));
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(t), _mm256_extractf128_ps(t, 1)));
}

/* p * 2^n for whole n. */
VEC_INLINE vec vec_scale2(vec p, vec n) { return _mm512_scalef_ps(p, n); }

VEC_INLINE vec_double vec_double_zero(void) { return (vec_double){_mm512_setzero_pd(), _mm512_setzero_pd()}; }
/* acc += (double)a * a, lane by lane. */
VEC_INLINE vec_double vec_double_add_square(vec_double acc, vec a) {
    __m512d l = _mm512_cvtps_pd(_mm512_castps512_ps256(a)), h = _mm512_cvtps_pd(_mm512_extractf32x8_ps(a, 1));
    return (vec_double){_mm512_fmadd_pd(l, l, acc.low), _mm512_fmadd_pd(h, h, acc.high)};
}
VEC_INLINE double vec_double_sum(vec_double v) { return _mm512_reduce_add_pd(_mm512_add_pd(v.low, v.high)); }

/* x as a bf16 number (kernels/bf16.h), with integers. */
VEC_INLINE vec vec_round_bf16(vec x) {
    __m512i bits = _mm512_castps_si512(x), magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i y = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    __mmask16 nan = _mm512_cmpgt_epi32_mask(magnitude, _mm512_set1_epi32(0x7f800000));
    __mmask16 tiny = _mm512_cmplt_epi32_mask(magnitude, _mm512_set1_epi32(0x00800000));
    y = _mm512_mask_or_epi32(y, nan, bits, _mm512_set1_epi32(0x400000));
    y = _mm512_mask_and_epi32(y, tiny, bits, _mm512_set1_epi32((int)0x80000000));
    return _mm512_castsi512_ps(_mm512_and_si512(y, _mm512_set1_epi32((int)0xffff0000)));
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
