/* SPDX-License-Identifier: Apache-2.0 */
/* Rounding to bf16 with integers, eight at a time (bf16.h says what it has to give). */
#include "kernels/kernels.h"
#include "kernels/x86/vec_avx2.h"

enum { LANES = VEC };

static inline __m256i round_lanes(__m256 x) { return _mm256_castps_si256(vec_round_bf16(x)); }

void sluice_bf16_from_f32_avx2(sluice__bf16 *y, const float *x, int64_t count) {
    int64_t i = 0;
    for (; i + 2 * LANES <= count; i += 2 * LANES) {
        __m256i low = _mm256_srli_epi32(round_lanes(_mm256_loadu_ps(x + i)), 16),
                high = _mm256_srli_epi32(round_lanes(_mm256_loadu_ps(x + i + LANES)), 16);
        __m256i both = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8);
        _mm256_storeu_si256((__m256i *)(void *)(y + i), both);
    }
    for (; i < count; i++) y[i] = sluice__bf16_round(x[i]);
}

void sluice_bf16_round_f32_avx2(float *y, const float *x, int64_t count) {
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        _mm256_storeu_ps(y + i, _mm256_castsi256_ps(round_lanes(_mm256_loadu_ps(x + i))));
    for (; i < count; i++) y[i] = sluice__bf16_widen(sluice__bf16_round(x[i]));
}
