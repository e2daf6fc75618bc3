/* SPDX-License-Identifier: Apache-2.0 */
/* simd/quant_linear.h for AVX-512 with VNNI. */
#include "kernels/quant_linear.h"
#include "kernels/x86/vec_avx512.h"
#include "kernels/x86/quant_bytes.h"
#include <stdbool.h>

typedef __m512i ivec;
/* The sum of products takes unsigned codes; 128 is subtracted through the start of the sum. */
enum { DOT_CENTRED = 0, QUANT_ROWS = 16, Q8_ROWS = 16 };
enum { ROWS_ABREAST = 4, PANEL_ABREAST = 4, Q8_ABREAST = 4, MOST_ABREAST = 4 };
#define QUANT_KERNEL(name) sluice_##name##_vnni

VEC_INLINE ivec ivec_load(const void *p) { return _mm512_loadu_si512(p); }
VEC_INLINE void ivec_store(void *p, ivec a) { _mm512_storeu_si512(p, a); }
VEC_INLINE ivec ivec_splat(char b) { return _mm512_set1_epi8(b); }
VEC_INLINE ivec ivec_words_splat(uint32_t w) { return _mm512_set1_epi32((int)w); }
VEC_INLINE ivec ivec_zero(void) { return _mm512_setzero_si512(); }
VEC_INLINE ivec ivec_and(ivec a, ivec b) { return _mm512_and_si512(a, b); }
VEC_INLINE ivec ivec_or(ivec a, ivec b) { return _mm512_or_si512(a, b); }
VEC_INLINE ivec ivec_xor(ivec a, ivec b) { return _mm512_xor_si512(a, b); }
VEC_INLINE ivec ivec_shift_right16(ivec a, int n) { return _mm512_srl_epi16(a, _mm_cvtsi32_si128(n)); }
VEC_INLINE ivec ivec_shift_left16(ivec a, int n) { return _mm512_sll_epi16(a, _mm_cvtsi32_si128(n)); }
VEC_INLINE vec ivec_to_float(ivec a) { return _mm512_cvtepi32_ps(a); }
VEC_INLINE ivec ivec_byte(ivec a, int n) {
    return _mm512_and_si512(_mm512_srl_epi32(a, _mm_cvtsi32_si128(8 * n)), _mm512_set1_epi32(0xff));
}
VEC_INLINE ivec ivec_signed_byte(ivec a, int n) {
    return _mm512_srai_epi32(_mm512_sll_epi32(a, _mm_cvtsi32_si128(24 - 8 * n)), 24);
}
VEC_INLINE ivec ivec_spread(ivec a, int n) {
    const __m128i first = _mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c);
    return _mm512_shuffle_epi8(a, _mm512_broadcast_i32x4(_mm_add_epi8(first, _mm_set1_epi8((char)n))));
}
VEC_INLINE ivec ivec_fifth(ivec code, ivec a, ivec bits) {
    return _mm512_mask_add_epi8(code, _mm512_test_epi8_mask(a, bits), code, _mm512_set1_epi8(16));
}

/* 16 bytes each at p, p + step, p + 2 step, p + 3 step. */
VEC_INLINE ivec row_bytes16(const unsigned char *p, int64_t step) {
    __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(bytes16(p)), bytes16(p + step), 1);
    __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(bytes16(p + 2 * step)), bytes16(p + 3 * step), 1);
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}
/* Rows r, r + 4, r + 8, r + 12 of those at p. */
VEC_INLINE ivec every_fourth(const unsigned char *p, int64_t stride) { return row_bytes16(p, 4 * stride); }
VEC_INLINE void ivec_rows(ivec *out, const unsigned char *p, int64_t stride) {
    ivec a = every_fourth(p, stride), b = every_fourth(p + stride, stride);
    ivec c = every_fourth(p + 2 * stride, stride), d = every_fourth(p + 3 * stride, stride);
    ivec ab = _mm512_unpacklo_epi32(a, b), cd = _mm512_unpacklo_epi32(c, d);
    out[0] = _mm512_unpacklo_epi64(ab, cd);
    out[1] = _mm512_unpackhi_epi64(ab, cd);
    ab = _mm512_unpackhi_epi32(a, b);
    cd = _mm512_unpackhi_epi32(c, d);
    out[2] = _mm512_unpacklo_epi64(ab, cd);
    out[3] = _mm512_unpackhi_epi64(ab, cd);
}
VEC_INLINE ivec ivec_words(const unsigned char *p, int64_t stride) {
    __m256i low = _mm256_castsi128_si256(words4(p, stride)), high = _mm256_castsi128_si256(words4(p + 8 * stride, stride));
    low = _mm256_inserti128_si256(low, words4(p + 4 * stride, stride), 1);
    high = _mm256_inserti128_si256(high, words4(p + 12 * stride, stride), 1);
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}
VEC_INLINE vec ivec_low_halves(ivec a) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(a)); }
VEC_INLINE vec ivec_high_halves(ivec a) { return ivec_low_halves(_mm512_srli_epi32(a, 16)); }

VEC_INLINE ivec ivec_shifted(const void *p, int n) { return _mm512_slli_epi32(_mm512_set1_epi32(int_at(p)), (unsigned)n); }
VEC_INLINE void ivec_dot(ivec *acc, const ivec *code, int vectors, const unsigned char *x, int rows, int groups, int most) {
    (void)most;
    (void)vectors; /* one: it has sixteen lanes */
    for (int g = 0; g < groups; g++)
        for (int r = 0; r < rows; r++)
            acc[r] = _mm512_dpbusd_epi32(acc[r], ivec_load(code + g), _mm512_set1_epi32(int_at(x + SLUICE__PART * r + 4 * g)));
}
VEC_INLINE void ivec_dot_q8(ivec *acc, const ivec *code, const unsigned char *x, int rows) {
    ivec_dot(acc, code, 1, x, rows, 8, 255);
}
VEC_INLINE void ivec_put_q8(unsigned char *to, ivec code) { ivec_store(to, code); }
VEC_INLINE void ivec_dot_q8_panel(ivec *acc, const ivec *code, int vectors, const unsigned char *x, int rows) {
    ivec_dot(acc, code, vectors, x, rows, 8, 255);
}

/* ---- one row of x ---- */

VEC_INLINE ivec row_bytes32(const unsigned char *p, int64_t step) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(bytes32(p)), bytes32(p + step), 1);
}
VEC_INLINE ivec row_twice(const unsigned char *p) { return _mm512_broadcast_i64x4(bytes32(p)); }
VEC_INLINE vec row_halves(const unsigned char *p, int step, int at, int lanes) {
    enum { LANES = 16 };
    short place[LANES];
    for (int i = 0; i < LANES; i++) place[i] = (short)((i / lanes * step + at) / 2);
    __m256i places = _mm256_loadu_si256((const __m256i *)(const void *)place);
    ivec halves = _mm512_permutexvar_epi16(_mm512_castsi256_si512(places), _mm512_loadu_si512(p));
    return _mm512_cvtph_ps(_mm512_castsi512_si256(halves));
}
VEC_INLINE vec row_widened(__m256 v) { return _mm512_zextps256_ps512(v); }
VEC_INLINE vec row_spread(__m256 v, int first, int step, int lanes) {
    int place[VEC];
    for (int i = 0; i < VEC; i++) place[i] = first + step * (i / lanes);
    return _mm512_permutexvar_ps(_mm512_loadu_si512(place), _mm512_castps256_ps512(v));
}
VEC_INLINE ivec row_bits(int first) {
    __m256i low = _mm256_set1_epi8((char)(1 << first)), high = _mm256_set1_epi8((char)(1 << (first + 2)));
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}
VEC_INLINE ivec row_high(ivec a, int part) {
    ivec left = _mm512_sllv_epi64(a, _mm512_setr_epi64(4, 4, 4, 4, 2, 2, 2, 2));
    ivec right = _mm512_srlv_epi64(a, _mm512_setr_epi64(0, 0, 0, 0, 2, 2, 2, 2));
    return _mm512_and_si512(part == 0 ? left : right, _mm512_set1_epi8(0x30));
}
VEC_INLINE ivec row_dot(ivec sum, ivec code, ivec x) { return _mm512_dpbusd_epi32(sum, code, x); }
VEC_INLINE ivec row_dot_nibbles(ivec sum, ivec a, ivec x, ivec b, ivec y) { return row_dot(row_dot(sum, a, x), b, y); }
VEC_INLINE ivec row_dot_signed(ivec sum, ivec code, ivec x) { return row_dot(sum, code, x); }
VEC_INLINE vec vec_set_at(const void *p) { return _mm512_castsi512_ps(_mm512_set1_epi32(int_at(p))); }

#include "kernels/simd/quant_linear.h"
#include "kernels/simd/quant_input.h"
