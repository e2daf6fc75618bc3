/* SPDX-License-Identifier: Apache-2.0 */
/* Factors of the products of attention in bf16, two neighbours along the sum in one float, as VDPBF16PS multiplies them;
 * behind tile_avx512.h, in place of simd/tile_floats.h, whose comments hold. Whatever is packed is rounded as in
 * kernels/bf16.h; behind the last of an odd number stands 0. */
#ifndef SLUICE_KERNELS_X86_TILE_PAIRS_AVX512BF16_H
#define SLUICE_KERNELS_X86_TILE_PAIRS_AVX512BF16_H
#include "kernels/simd/tile_rows.h"

#define TILE_NUMBERS 2
#undef VEC_KERNEL
#define VEC_KERNEL(name) sluice_##name##_avx512bf16

VEC_INLINE vec tile_multiply_add(vec a, vec b, vec c) {
    return _mm512_dpbf16_ps(c, (__m512bh)_mm512_castps_si512(a), (__m512bh)_mm512_castps_si512(b));
}

/* Queries are bf16 numbers: scaled, they would be rounded again. */
VEC_INLINE float tile_scale_before(float scale) {
    (void)scale;
    return 1.0f;
}
VEC_INLINE float tile_scale_after(float scale) { return scale; }

VEC_INLINE vec tile_rounded(vec x, bool bf16) {
    (void)bf16; /* packing rounds */
    return x;
}

/* Lane i: first[i] and second[i]. */
VEC_INLINE vec tile_pair_lines(vec first, vec second) {
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5,
                                           20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_castsi512_ps(_mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(second, first)));
}

/* Lane i: numbers 2i and 2i + 1 of the n <= 2 * VEC at x. */
VEC_INLINE vec tile_pair_neighbours(const float *x, int64_t n) {
    vec low = n < VEC ? vec_load_n(x, (int)n) : vec_load(x);
    vec high = n >= 2 * VEC ? vec_load(x + VEC) : n > VEC ? vec_load_n(x + VEC, (int)n - VEC) : vec_zero();
    return _mm512_castsi512_ps((__m512i)_mm512_cvtne2ps_pbh(high, low));
}

VEC_INLINE void tile_store_two(float *to, int64_t ld, vec first, vec second, bool both) {
    (void)ld;
    vec_store(to, tile_pair_lines(first, both ? second : vec_zero()));
}

/* The factor is left to the caller: 1. */
static __attribute__((unused)) void tile_pack_lanes(float *to, int64_t ld, const float *from, int64_t stride, int64_t rows,
                                                    int64_t columns, float factor) {
    (void)factor;
    for (int64_t row = 0; row < rows; row += VEC)
        for (int64_t column = 0; column < columns; column += 2 * VEC) {
            vec r[VEC];
            for (int i = 0; i < VEC; i++)
                r[i] = row + i < rows ? tile_pair_neighbours(from + (row + i) * stride + column, columns - column) : vec_zero();
            vec_transpose(r);
            int64_t lines = (columns - column + 1) / 2;
            for (int i = 0; i < VEC && i < lines; i++) vec_store(to + (column / 2 + i) * ld + row, r[i]);
        }
}

static __attribute__((unused)) void tile_pack_down(float *to, int64_t ld, const float *from, int64_t stride, int64_t rows,
                                                   int64_t columns) {
    for (int64_t r = 0; r < rows; r += 2, to += ld, from += 2 * stride)
        for (int64_t c = 0; c < ld; c += VEC) {
            int n = columns - c >= VEC ? VEC : columns > c ? (int)(columns - c) : 0;
            vec first = vec_load_n(from + c, n), second = r + 1 < rows ? vec_load_n(from + stride + c, n) : vec_zero();
            vec_store(to + c, tile_pair_lines(first, second));
        }
}

static __attribute__((unused)) void tile_pack_along(float *to, int64_t ld, const float *from, int64_t stride, int64_t rows,
                                                    int64_t columns) {
    for (int64_t r = 0; r < rows; r++, to += ld, from += stride)
        for (int64_t c = 0; c < columns; c += 2 * VEC) {
            int64_t lines = (columns - c + 1) / 2;
            vec_store_n(to + c / 2, tile_pair_neighbours(from + c, columns - c), lines < VEC ? (int)lines : VEC);
        }
}

VEC_INLINE int64_t tile_room(int64_t columns) { return vec_up(columns); }
VEC_INLINE tile_factor tile_along(float *room, int64_t ld, const float *from, int64_t stride, int64_t rows, int64_t columns) {
    tile_pack_along(room, ld, from, stride, rows, columns);
    return (tile_factor){room, ld};
}
VEC_INLINE tile_factor tile_down(float *room, int64_t ld, const float *from, int64_t stride, int64_t rows, int64_t columns,
                                 int passes) {
    (void)passes;
    tile_pack_down(room, ld, from, stride, rows, columns);
    return (tile_factor){room, ld};
}
#endif
