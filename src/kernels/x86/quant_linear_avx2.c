/* SPDX-License-Identifier: Apache-2.0 */
/* simd/quant_linear.h for AVX2: products of bytes are summed in pairs to 16 bits, which 8-bit codes would overflow; those
 * are signed, and the sign moves to the other factor. Smaller codes leave room for several pairs in 16 bits. */
#include "kernels/quant_linear.h"
#include "kernels/x86/vec_avx2.h"
#include "kernels/x86/quant_bytes.h"
#include <stdbool.h>

typedef __m256i ivec;
/* Panels hold codes of Q8_0 in 16 bits: products of bytes would take four micro-operations for 32 of them as well, and one more
 * for the sign of each. */
enum { DOT_CENTRED = 1, QUANT_ROWS = 16, Q8_ROWS = 4 };
enum { ROWS_ABREAST = 1, PANEL_ABREAST = 2, Q8_ABREAST = 4, MOST_ABREAST = 4 };
#define QUANT_KERNEL(name) sluice_##name##_avx2

VEC_INLINE ivec ivec_load(const void *p) { return _mm256_loadu_si256(p); }
VEC_INLINE void ivec_store(void *p, ivec a) { _mm256_storeu_si256(p, a); }
VEC_INLINE ivec ivec_splat(char b) { return _mm256_set1_epi8(b); }
VEC_INLINE ivec ivec_words_splat(uint32_t w) { return _mm256_set1_epi32((int)w); }
VEC_INLINE ivec ivec_zero(void) { return _mm256_setzero_si256(); }
VEC_INLINE ivec ivec_and(ivec a, ivec b) { return _mm256_and_si256(a, b); }
VEC_INLINE ivec ivec_or(ivec a, ivec b) { return _mm256_or_si256(a, b); }
VEC_INLINE ivec ivec_xor(ivec a, ivec b) { return _mm256_xor_si256(a, b); }
VEC_INLINE ivec ivec_shift_right16(ivec a, int n) { return _mm256_srl_epi16(a, _mm_cvtsi32_si128(n)); }
VEC_INLINE ivec ivec_shift_left16(ivec a, int n) { return _mm256_sll_epi16(a, _mm_cvtsi32_si128(n)); }
VEC_INLINE vec ivec_to_float(ivec a) { return _mm256_cvtepi32_ps(a); }
VEC_INLINE ivec ivec_byte(ivec a, int n) {
    return _mm256_and_si256(_mm256_srl_epi32(a, _mm_cvtsi32_si128(8 * n)), _mm256_set1_epi32(0xff));
}
VEC_INLINE ivec ivec_signed_byte(ivec a, int n) {
    return _mm256_srai_epi32(_mm256_sll_epi32(a, _mm_cvtsi32_si128(24 - 8 * n)), 24);
}
VEC_INLINE ivec ivec_spread(ivec a, int n) {
    const __m128i first = _mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c);
    return _mm256_shuffle_epi8(a, _mm256_broadcastsi128_si256(_mm_add_epi8(first, _mm_set1_epi8((char)n))));
}
VEC_INLINE ivec ivec_fifth(ivec code, ivec a, ivec bits) {
    const ivec none = _mm256_cmpeq_epi8(_mm256_and_si256(a, bits), _mm256_setzero_si256());
    return _mm256_or_si256(code, _mm256_andnot_si256(none, _mm256_set1_epi8(16)));
}

/* 16 bytes each at p and p + step. */
VEC_INLINE ivec row_bytes16(const unsigned char *p, int64_t step) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(bytes16(p)), bytes16(p + step), 1);
}
/* Rows r and r + 4 of those at p. */
VEC_INLINE ivec every_fourth(const unsigned char *p, int64_t stride) { return row_bytes16(p, 4 * stride); }
VEC_INLINE void ivec_rows(ivec *out, const unsigned char *p, int64_t stride) {
    ivec a = every_fourth(p, stride), b = every_fourth(p + stride, stride);
    ivec c = every_fourth(p + 2 * stride, stride), d = every_fourth(p + 3 * stride, stride);
    ivec ab = _mm256_unpacklo_epi32(a, b), cd = _mm256_unpacklo_epi32(c, d);
    out[0] = _mm256_unpacklo_epi64(ab, cd);
    out[1] = _mm256_unpackhi_epi64(ab, cd);
    ab = _mm256_unpackhi_epi32(a, b);
    cd = _mm256_unpackhi_epi32(c, d);
    out[2] = _mm256_unpacklo_epi64(ab, cd);
    out[3] = _mm256_unpackhi_epi64(ab, cd);
}
VEC_INLINE ivec ivec_words(const unsigned char *p, int64_t stride) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(words4(p, stride)), words4(p + 4 * stride, stride), 1);
}
VEC_INLINE vec ivec_high_halves(ivec a) {
    a = _mm256_srli_epi32(a, 16);
    return _mm256_cvtph_ps(_mm_packus_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1)));
}
VEC_INLINE vec ivec_low_halves(ivec a) { return ivec_high_halves(_mm256_slli_epi32(a, 16)); }

VEC_INLINE ivec ivec_shifted(const void *p, int n) { return _mm256_slli_epi32(_mm256_set1_epi32(int_at(p)), n); }
/* In this order: GCC makes trees of sums, for which registers do not suffice. */
VEC_INLINE ivec in_order(ivec a) {
    __asm__("" : "+x"(a));
    return a;
}
VEC_INLINE ivec add_pairs(ivec acc, ivec pairs) {
    return in_order(_mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))));
}
VEC_INLINE ivec input_at(const unsigned char *x) { return _mm256_set1_epi32(int_at(x)); }
VEC_INLINE void ivec_dot(ivec *acc, const ivec *code, int vectors, const unsigned char *x, int rows, int groups, int most) {
    const int room = INT16_MAX / (2 * 127 * most); /* pairs that 16 bits can hold the sum of */
    for (int g = 0; g < groups; g += room) {
        ivec pairs[PANEL_ABREAST * 2];
        for (int i = g; i < g + room && i < groups; i++)
            for (int r = 0; r < rows; r++)
                for (int v = 0; v < vectors; v++) {
                    ivec products = _mm256_maddubs_epi16(ivec_load(code + i * vectors + v), input_at(x + SLUICE__PART * r + 4 * i));
                    pairs[r * vectors + v] = i == g ? products : in_order(_mm256_add_epi16(pairs[r * vectors + v], products));
                }
        for (int i = 0; i < rows * vectors; i++) acc[i] = add_pairs(acc[i], pairs[i]);
    }
}
VEC_INLINE void ivec_dot_q8(ivec *acc, const ivec *code, const unsigned char *x, int rows) {
    for (int r = 0; r < rows; r++)
        for (int g = 0; g < 8; g++) {
            ivec input = _mm256_sign_epi8(input_at(x + SLUICE__PART * r + 4 * g), code[g]);
            acc[r] = add_pairs(acc[r], _mm256_maddubs_epi16(_mm256_abs_epi8(code[g]), input));
        }
}
VEC_INLINE void ivec_put_q8(unsigned char *to, ivec code) {
    ivec_store(to, _mm256_srai_epi16(_mm256_slli_epi16(code, 8), 8));
    ivec_store(to + 8 * 64, _mm256_srai_epi16(code, 8));
}
VEC_INLINE void ivec_dot_q8_panel(ivec *acc, const ivec *code, int vectors, const unsigned char *x, int rows) {
#pragma GCC unroll 16
    for (int g = 0; g < 16; g++)
        for (int r = 0; r < rows; r++)
            for (int v = 0; v < vectors; v++) {
                ivec *sum = &acc[r * vectors + v];
                ivec products = _mm256_madd_epi16(ivec_load(code + g * vectors + v), input_at(x + 2 * SLUICE__PART * r + 4 * g));
                *sum = in_order(_mm256_add_epi32(*sum, products));
            }
}

/* ---- one row of x ---- */

VEC_INLINE ivec row_bytes32(const unsigned char *p, int64_t step) {
    (void)step;
    return bytes32(p);
}
VEC_INLINE ivec row_twice(const unsigned char *p) { return bytes32(p); }
VEC_INLINE vec row_halves(const unsigned char *p, int step, int at, int lanes) {
    __m128i first = eight_halves(p + at);
    return _mm256_cvtph_ps(lanes == VEC ? first : _mm_unpacklo_epi64(first, eight_halves(p + step + at)));
}
VEC_INLINE vec row_widened(__m256 v) { return v; }
VEC_INLINE vec row_spread(__m256 v, int first, int step, int lanes) {
    int place[VEC];
    for (int i = 0; i < VEC; i++) place[i] = first + step * (i / lanes);
    return _mm256_permutevar8x32_ps(v, _mm256_loadu_si256((const __m256i *)(const void *)place));
}
VEC_INLINE ivec row_bits(int first) { return _mm256_set1_epi8((char)(1 << first)); }
VEC_INLINE ivec row_high(ivec a, int part) {
    if (part < 2) a = _mm256_slli_epi16(a, part == 0 ? 4 : 2);
    if (part > 2) a = _mm256_srli_epi16(a, 2);
    return _mm256_and_si256(a, _mm256_set1_epi8(0x30));
}
VEC_INLINE ivec row_dot(ivec sum, ivec code, ivec x) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(code, x), _mm256_set1_epi16(1)));
}
VEC_INLINE ivec row_dot_nibbles(ivec sum, ivec a, ivec x, ivec b, ivec y) {
    ivec pairs = _mm256_add_epi16(_mm256_maddubs_epi16(a, x), _mm256_maddubs_epi16(b, y));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
VEC_INLINE ivec row_dot_signed(ivec sum, ivec code, ivec x) {
    return row_dot(sum, _mm256_abs_epi8(code), _mm256_sign_epi8(x, code));
}
VEC_INLINE vec vec_set_at(const void *p) { return _mm256_castsi256_ps(_mm256_set1_epi32(int_at(p))); }

#include "kernels/simd/quant_linear.h"
#include "kernels/simd/quant_input.h"
