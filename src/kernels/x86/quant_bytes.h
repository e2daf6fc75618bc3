/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of blocks at any address, for both versions of products with blocks; behind one vec_<isa>.h. */
#ifndef SLUICE_KERNELS_X86_QUANT_BYTES_H
#define SLUICE_KERNELS_X86_QUANT_BYTES_H
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

VEC_INLINE __m128i bytes16(const unsigned char *p) { return _mm_loadu_si128((const __m128i *)(const void *)p); }
VEC_INLINE __m256i bytes32(const unsigned char *p) { return _mm256_loadu_si256((const __m256i *)(const void *)p); }
/* The 16-bit float at p, eight times. */
VEC_INLINE __m128i eight_halves(const unsigned char *p) {
    int16_t h;
    memcpy(&h, p, sizeof h);
    return _mm_set1_epi16(h);
}
VEC_INLINE int32_t int_at(const void *p) {
    int32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Four bytes of four rows. */
VEC_INLINE __m128i words4(const unsigned char *p, int64_t stride) {
    __m128i v = _mm_cvtsi32_si128(int_at(p));
    v = _mm_blend_epi32(v, _mm_set1_epi32(int_at(p + stride)), 2);
    v = _mm_blend_epi32(v, _mm_set1_epi32(int_at(p + 2 * stride)), 4);
    return _mm_blend_epi32(v, _mm_set1_epi32(int_at(p + 3 * stride)), 8);
}
#endif
