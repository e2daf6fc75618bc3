/* SPDX-License-Identifier: Apache-2.0 */
/* simd/quant_linear.h for AVX2: products of bytes are summed in pairs to 16 bits, which 8-bit codes would overflow; those
 * are made signed, and the sign moves to the other factor. */
#include "kernels/x86/vec_avx2.h"
#include <stdbool.h>
#include <string.h>

typedef __m256i ivec;
enum { DOT_CENTRED = 1, QUANT_ROWS = 4 };
#define QUANT_KERNEL(name) sluice_##name##_avx2

VEC_INLINE ivec ivec_load(const void *p) { return _mm256_loadu_si256(p); }
VEC_INLINE ivec ivec_splat(char b) { return _mm256_set1_epi8(b); }
VEC_INLINE ivec ivec_zero(void) { return _mm256_setzero_si256(); }
VEC_INLINE ivec ivec_and(ivec a, ivec b) { return _mm256_and_si256(a, b); }
VEC_INLINE ivec ivec_or(ivec a, ivec b) { return _mm256_or_si256(a, b); }
#define ivec_shift_right16(a, n) _mm256_srli_epi16(a, n)
#define ivec_shift_left16(a, n) _mm256_slli_epi16(a, n)
VEC_INLINE vec ivec_to_float(ivec a) { return _mm256_cvtepi32_ps(a); }
VEC_INLINE ivec ivec_of_bytes(const void *p) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64(p)); }
VEC_INLINE ivec ivec_of_signed_bytes(const void *p) { return _mm256_cvtepi8_epi32(_mm_loadl_epi64(p)); }
VEC_INLINE int32_t int_at(const void *p) {
    int32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
VEC_INLINE ivec ivec_bits(const void *p) {
    const __m256i byte = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201u);
    __m256i spread = _mm256_shuffle_epi8(_mm256_set1_epi32(int_at(p)), byte);
    return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit), _mm256_set1_epi8(16));
}
VEC_INLINE ivec ivec_scaled(const void *p, int factor) { return _mm256_set1_epi32(int_at(p) * factor); }
VEC_INLINE ivec add_pairs(ivec acc, ivec pairs) {
    return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
VEC_INLINE ivec ivec_dot4(ivec acc, ivec code, const void *x) {
    return add_pairs(acc, _mm256_maddubs_epi16(code, _mm256_set1_epi32(int_at(x))));
}
VEC_INLINE ivec ivec_dot4_centred(ivec acc, ivec code, const void *x) {
    ivec w = _mm256_xor_si256(code, _mm256_set1_epi8((char)0x80));
    return add_pairs(acc, _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(_mm256_set1_epi32(int_at(x)), w)));
}
VEC_INLINE vec vec_load_half(const void *p) { return _mm256_cvtph_ps(_mm_loadu_si128(p)); }
VEC_INLINE vec vec_set_at(const void *p) { return _mm256_castsi256_ps(_mm256_set1_epi32(int_at(p))); }

#include "kernels/simd/quant_linear.h"
