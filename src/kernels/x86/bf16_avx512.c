/* SPDX-License-Identifier: Apache-2.0 */
/* Rounding to bf16 with integers, sixteen at a time (bf16.h says what it has to give). */
#include "kernels/kernels.h"
#include <immintrin.h>

enum { LANES = 16 };

static inline __mmask16 lanes(int64_t n) { return n >= LANES ? 0xffff : (__mmask16)((1u << n) - 1); }

/* The rounded bits in the upper half of every lane, zeros below. */
static inline __m512i round_lanes(__m512 x) {
    __m512i bits = _mm512_castps_si512(x), magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i y = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    __mmask16 nan = _mm512_cmpgt_epi32_mask(magnitude, _mm512_set1_epi32(0x7f800000));
    __mmask16 tiny = _mm512_cmplt_epi32_mask(magnitude, _mm512_set1_epi32(0x00800000));
    y = _mm512_mask_or_epi32(y, nan, bits, _mm512_set1_epi32(0x400000));
    y = _mm512_mask_and_epi32(y, tiny, bits, _mm512_set1_epi32((int)0x80000000));
    return _mm512_and_si512(y, _mm512_set1_epi32((int)0xffff0000));
}

void sluice_bf16_from_f32_avx512(sluice__bf16 *y, const float *x, int64_t count) {
    for (int64_t i = 0; i < count; i += LANES) {
        __mmask16 m = lanes(count - i);
        __m512i bits = _mm512_srli_epi32(round_lanes(_mm512_maskz_loadu_ps(m, x + i)), 16);
        _mm256_mask_storeu_epi16(y + i, m, _mm512_cvtepi32_epi16(bits));
    }
}

void sluice_bf16_round_f32_avx512(float *y, const float *x, int64_t count) {
    for (int64_t i = 0; i < count; i += LANES) {
        __mmask16 m = lanes(count - i);
        _mm512_mask_storeu_ps(y + i, m, _mm512_castsi512_ps(round_lanes(_mm512_maskz_loadu_ps(m, x + i))));
    }
}
