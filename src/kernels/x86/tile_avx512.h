/* SPDX-License-Identifier: Apache-2.0 */
/* What tiles of attention need beyond vec_avx512.h: lane numbers, transposition, register block
 * size. tile_avx2.h has the same names. */
#ifndef SLUICE_KERNELS_X86_TILE_AVX512_H
#define SLUICE_KERNELS_X86_TILE_AVX512_H
#include "kernels/x86/vec_avx512.h"

enum { TILE_ROWS = 8 }; /* x 2 vectors: 16 sums hide the latency of two FMA units */

typedef __m512i ivec; /* one int32_t a lane */

VEC_INLINE ivec ivec_set(int32_t x) {
    return _mm512_set1_epi32(x);
}
VEC_INLINE ivec ivec_load(const int32_t *p) {
    return _mm512_loadu_si512(p);
}
VEC_INLINE ivec ivec_count(void) {
    return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
VEC_INLINE ivec ivec_add(ivec a, ivec b) {
    return _mm512_add_epi32(a, b);
}
/* least <= a <= most */
VEC_INLINE vec_mask ivec_between(ivec a, ivec least, ivec most) {
    return _mm512_cmp_epi32_mask(least, a, _MM_CMPINT_LE) &
           _mm512_cmp_epi32_mask(a, most, _MM_CMPINT_LE);
}
VEC_INLINE vec_mask vec_equal(vec a, vec b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
}
VEC_INLINE vec vec_keep(vec_mask m, vec a) {
    return _mm512_maskz_mov_ps(m, a);
} /* a or 0 */
/* p 2^n for whole n in [-126, 127]. */
VEC_INLINE vec vec_scale2_normal(vec p, vec n) {
    return _mm512_scalef_ps(p, n);
}
/* x = *fraction 2^result with *fraction in [1, 2), for normal x > 0. */
VEC_INLINE vec vec_split2(vec x, vec *fraction) {
    *fraction = _mm512_getmant_ps(x, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_src);
    return _mm512_getexp_ps(x);
}

/* Transposes VEC vectors in place: pairs, then pairs of pairs inside 128-bit quarters, then the
 * quarters. */
VEC_INLINE void vec_transpose(vec r[VEC]) {
    vec t[VEC];
    for (int i = 0; i < VEC; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < VEC; i += 4) {
        r[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        vec low01 = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x44),
            low23 = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x44);
        vec high01 = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xee),
            high23 = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xee);
        t[i] = _mm512_shuffle_f32x4(low01, low23, 0x88);
        t[i + 4] = _mm512_shuffle_f32x4(low01, low23, 0xdd);
        t[i + 8] = _mm512_shuffle_f32x4(high01, high23, 0x88);
        t[i + 12] = _mm512_shuffle_f32x4(high01, high23, 0xdd);
    }
    for (int i = 0; i < VEC; i++) r[i] = t[i];
}

/* s[i] = sum of the lanes of a[i], i = 0..7. */
VEC_INLINE void vec_sums8(float s[8], const vec a[8]) {
    __m256 h[8];
    for (int i = 0; i < 8; i++)
        h[i] = _mm256_add_ps(_mm512_castps512_ps256(a[i]), _mm512_extractf32x8_ps(a[i], 1));
    __m256 low = _mm256_hadd_ps(_mm256_hadd_ps(h[0], h[1]), _mm256_hadd_ps(h[2], h[3]));
    __m256 high = _mm256_hadd_ps(_mm256_hadd_ps(h[4], h[5]), _mm256_hadd_ps(h[6], h[7]));
    _mm256_storeu_ps(s, _mm256_add_ps(_mm256_permute2f128_ps(low, high, 0x20),
                                      _mm256_permute2f128_ps(low, high, 0x31)));
}
#endif
