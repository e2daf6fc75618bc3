/* SPDX-License-Identifier: Apache-2.0 */
/* What tiles of attention need beyond vec_avx2.h, with the names of tile_avx512.h. */
#ifndef SLUICE_KERNELS_X86_TILE_AVX2_H
#define SLUICE_KERNELS_X86_TILE_AVX2_H
#include "kernels/x86/vec_avx2.h"

enum { TILE_ROWS = 6 }; /* x 2 vectors: 12 sums, 2 operands and 1 broadcast fill the 16 registers */

typedef __m256i ivec; /* one int32_t a lane */

VEC_INLINE ivec ivec_set(int32_t x) {
    return _mm256_set1_epi32(x);
}
VEC_INLINE ivec ivec_load(const int32_t *p) {
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}
VEC_INLINE ivec ivec_count(void) {
    return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
}
VEC_INLINE ivec ivec_add(ivec a, ivec b) {
    return _mm256_add_epi32(a, b);
}
/* least <= a <= most */
VEC_INLINE vec_mask ivec_between(ivec a, ivec least, ivec most) {
    ivec outside = _mm256_or_si256(_mm256_cmpgt_epi32(least, a), _mm256_cmpgt_epi32(a, most));
    return _mm256_castsi256_ps(_mm256_andnot_si256(outside, _mm256_set1_epi32(-1)));
}
VEC_INLINE vec_mask vec_equal(vec a, vec b) {
    return _mm256_cmp_ps(a, b, _CMP_EQ_OQ);
}
VEC_INLINE vec vec_keep(vec_mask m, vec a) {
    return _mm256_and_ps(m, a);
} /* a or 0 */
/* p 2^n for whole n in [-126, 127]. */
VEC_INLINE vec vec_scale2_normal(vec p, vec n) {
    ivec exponent =
        _mm256_slli_epi32(_mm256_cvtps_epi32(_mm256_add_ps(n, _mm256_set1_ps(127.0f))), 23);
    return _mm256_mul_ps(p, _mm256_castsi256_ps(exponent));
}
/* x = *fraction 2^result with *fraction in [1, 2), for normal x > 0. */
VEC_INLINE vec vec_split2(vec x, vec *fraction) {
    ivec bits = _mm256_castps_si256(x), one = _mm256_castps_si256(_mm256_set1_ps(1.0f));
    *fraction = _mm256_castsi256_ps(
        _mm256_or_si256(_mm256_and_si256(bits, _mm256_set1_epi32(0x7fffff)), one));
    return _mm256_cvtepi32_ps(
        _mm256_sub_epi32(_mm256_srli_epi32(bits, 23), _mm256_set1_epi32(127)));
}

/* Transposes VEC vectors in place: pairs, then pairs of pairs inside 128-bit halves, then the
 * halves. */
VEC_INLINE void vec_transpose(vec r[VEC]) {
    vec t[VEC];
    for (int i = 0; i < VEC; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < VEC; i += 4) {
        r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
        t[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
    }
    for (int i = 0; i < VEC; i++) r[i] = t[i];
}

/* s[i] = sum of the lanes of a[i], i = 0..7. */
VEC_INLINE void vec_sums8(float s[8], const vec a[8]) {
    __m256 low = _mm256_hadd_ps(_mm256_hadd_ps(a[0], a[1]), _mm256_hadd_ps(a[2], a[3]));
    __m256 high = _mm256_hadd_ps(_mm256_hadd_ps(a[4], a[5]), _mm256_hadd_ps(a[6], a[7]));
    _mm256_storeu_ps(s, _mm256_add_ps(_mm256_permute2f128_ps(low, high, 0x20),
                                      _mm256_permute2f128_ps(low, high, 0x31)));
}
#endif
