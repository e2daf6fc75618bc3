/* SPDX-License-Identifier: Apache-2.0 */
/* simd/quant_linear.h for AVX-512 with VNNI. */
#include "kernels/quant_linear.h"
#include "kernels/x86/vec_avx512.h"
#include "kernels/x86/quant_bytes.h"
#include <stdbool.h>

typedef __m512i ivec;
/* The sum of products takes unsigned codes; 128 is subtracted through the start of the sum. */
enum { DOT_CENTRED = 0, QUANT_ROWS = 16, ROWS_ABREAST = 4 };
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

/* Rows r, r + 4, r + 8, r + 12 of those at p. */
VEC_INLINE ivec every_fourth(const unsigned char *p, int64_t stride) {
    ivec v = _mm512_castsi128_si512(bytes16(p));
    v = _mm512_mask_broadcast_i32x4(v, 0x00f0, bytes16(p + 4 * stride));
    v = _mm512_mask_broadcast_i32x4(v, 0x0f00, bytes16(p + 8 * stride));
    return _mm512_mask_broadcast_i32x4(v, 0xf000, bytes16(p + 12 * stride));
}
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
VEC_INLINE void ivec_dot(ivec *acc, const ivec *code, const unsigned char *x, int rows, int groups, int most) {
    (void)most;
    for (int g = 0; g < groups; g++)
        for (int r = 0; r < rows; r++)
            acc[r] = _mm512_dpbusd_epi32(acc[r], code[g], _mm512_set1_epi32(int_at(x + SLUICE__PART * r + 4 * g)));
}
VEC_INLINE void ivec_dot_signed(ivec *acc, const ivec *code, const unsigned char *x, int rows) {
    ivec_dot(acc, code, x, rows, 8, 255);
}
VEC_INLINE vec vec_set_at(const void *p) { return _mm512_castsi512_ps(_mm512_set1_epi32(int_at(p))); }

#include "kernels/simd/quant_linear.h"
#include "kernels/simd/quant_input.h"
