/* SPDX-License-Identifier: Apache-2.0 */
/* Rounding inputs to 8 bits (quant_linear.h); 256-bit integers do for every instruction set. */
#include "kernels/quant_linear.h"

VEC_INLINE __m256 load8(const float *x) { return _mm256_loadu_ps(x); }

/* Largest magnitude as bits, which compare like the magnitudes and put NaN above all. */
VEC_INLINE uint32_t top_bits(const float *x) {
    const __m256i keep = _mm256_set1_epi32(0x7fffffff);
    __m256i top = _mm256_setzero_si256();
    for (int i = 0; i < SLUICE__PART; i += 8)
        top = _mm256_max_epu32(top, _mm256_and_si256(_mm256_castps_si256(load8(x + i)), keep));
    __m128i half = _mm_max_epu32(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
    half = _mm_max_epu32(half, _mm_shuffle_epi32(half, 0x4e));
    half = _mm_max_epu32(half, _mm_shuffle_epi32(half, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(half);
}

VEC_INLINE int32_t sum16(__m128i code) {
    __m256i pairs = _mm256_madd_epi16(_mm256_cvtepi8_epi16(code), _mm256_set1_epi16(1));
    __m128i half = _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
    half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
    half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0xb1));
    return _mm_cvtsi128_si32(half);
}

VEC_INLINE void put_facts(unsigned char *at, int64_t tile, int64_t row, float scale, int32_t low, int32_t high) {
    int32_t facts_of[3] = {-(low + high), -low, -high};
    float scaled = scale * (float)(low + high);
    unsigned char *facts = at + tile * SLUICE__PART + 4 * row, *halves = at + tile * (SLUICE__PART + 12) + 8 * row;
    memcpy(facts, &scale, 4);
    memcpy(facts + 4 * tile, &scaled, 4);
    memcpy(facts + 8 * tile, facts_of, 4);
    memcpy(halves, facts_of + 1, 8);
}

VEC_INLINE void round_part(unsigned char *at, int64_t tile, int64_t row, const float *x) {
    uint32_t bits = top_bits(x);
    float most;
    memcpy(&most, &bits, 4);
    float inverse = most > 0 ? 127 / most : 0;
    __m256i code = _mm256_setzero_si256();
    if (most <= 3e38f) {
        __m256 factor = _mm256_set1_ps(inverse);
        __m256i v[4];
        for (int i = 0; i < 4; i++) v[i] = _mm256_cvtps_epi32(_mm256_mul_ps(load8(x + 8 * i), factor));
        code = _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
        code = _mm256_permutevar8x32_epi32(code, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    }
    _mm256_storeu_si256((__m256i *)(void *)(at + row * SLUICE__PART), code);
    put_facts(at, tile, row, most / 127, sum16(_mm256_castsi256_si128(code)), sum16(_mm256_extracti128_si256(code, 1)));
}

void QUANT_KERNEL(quant_input)(void *out, const float *x, int64_t x_stride, int64_t rows, int64_t columns) {
    unsigned char *at = out;
    for (int64_t r = 0, tile; r < rows; r += tile) {
        tile = sluice__quant_tile(rows - r);
        int64_t filled = rows - r < tile ? rows - r : tile;
        if (filled < tile) memset(at, 0, (size_t)(columns / SLUICE__PART * tile * SLUICE__QUANT_ROW_BYTES));
        for (int64_t c = 0; c < columns; c += SLUICE__PART, at += tile * SLUICE__QUANT_ROW_BYTES)
            for (int64_t i = 0; i < filled; i++) round_part(at, tile, i, x + (r + i) * x_stride + c);
    }
}
