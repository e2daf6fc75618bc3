/* SPDX-License-Identifier: Apache-2.0 */
/* Rounding to bf16 with integers, sixteen at a time (bf16.h says what it has to give). */
#include "kernels/kernels.h"
#include "kernels/x86/vec_avx512.h"

enum { LANES = VEC };

static inline __mmask16 lanes(int64_t n) { return n >= LANES ? 0xffff : (__mmask16)((1u << n) - 1); }

static inline __m512i round_lanes(__m512 x) { return _mm512_castps_si512(vec_round_bf16(x)); }

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
