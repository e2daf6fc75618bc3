/* SPDX-License-Identifier: Apache-2.0 */
/* simd/quant_linear.h for AVX-512 with VNNI. */
#include "kernels/x86/vec_avx512.h"
#include <stdbool.h>
#include <string.h>

typedef __m512i ivec;
/* The sum of products takes codes as they are; 128 is subtracted through the start of the sum. */
enum { DOT_CENTRED = 0, QUANT_ROWS = 16 };
#define QUANT_KERNEL(name) sluice_##name##_vnni

VEC_INLINE ivec ivec_load(const void *p) { return _mm512_loadu_si512(p); }
VEC_INLINE ivec ivec_splat(char b) { return _mm512_set1_epi8(b); }
VEC_INLINE ivec ivec_zero(void) { return _mm512_setzero_si512(); }
VEC_INLINE ivec ivec_and(ivec a, ivec b) { return _mm512_and_si512(a, b); }
VEC_INLINE ivec ivec_or(ivec a, ivec b) { return _mm512_or_si512(a, b); }
#define ivec_shift_right16(a, n) _mm512_srli_epi16(a, n)
#define ivec_shift_left16(a, n) _mm512_slli_epi16(a, n)
VEC_INLINE vec ivec_to_float(ivec a) { return _mm512_cvtepi32_ps(a); }
VEC_INLINE ivec ivec_of_bytes(const void *p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128(p)); }
VEC_INLINE ivec ivec_of_signed_bytes(const void *p) { return _mm512_cvtepi8_epi32(_mm_loadu_si128(p)); }
VEC_INLINE ivec ivec_bits(const void *p) {
    uint64_t bits;
    memcpy(&bits, p, sizeof bits);
    return _mm512_maskz_set1_epi8(bits, 16);
}
VEC_INLINE int32_t int_at(const void *p) {
    int32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
/* The integer at p times a constant, in every lane. */
VEC_INLINE ivec ivec_scaled(const void *p, int factor) { return _mm512_set1_epi32(int_at(p) * factor); }
VEC_INLINE ivec ivec_dot4(ivec acc, ivec code, const void *x) {
    return _mm512_dpbusd_epi32(acc, code, _mm512_set1_epi32(int_at(x)));
}
VEC_INLINE ivec ivec_dot4_centred(ivec acc, ivec code, const void *x) { return ivec_dot4(acc, code, x); }
VEC_INLINE vec vec_load_half(const void *p) { return _mm512_cvtph_ps(_mm256_loadu_si256(p)); }
VEC_INLINE vec vec_set_at(const void *p) { return _mm512_castsi512_ps(_mm512_set1_epi32(int_at(p))); }

#include "kernels/simd/quant_linear.h"
