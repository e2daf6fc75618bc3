/* SPDX-License-Identifier: Apache-2.0 */
/* Factors of the products of attention as floats, in the words of x86/tile_<isa>.h. x86/tile_pairs_avx512bf16.h has the
 * same names for factors in bf16, where a float holds two neighbours along the sum: TILE_NUMBERS. */
#ifndef SLUICE_KERNELS_SIMD_TILE_FLOATS_H
#define SLUICE_KERNELS_SIMD_TILE_FLOATS_H
#include "kernels/simd/tile_rows.h"

#define TILE_NUMBERS 1

/* a b + c */
VEC_INLINE vec tile_multiply_add(vec a, vec b, vec c) { return vec_fma(a, b, c); }

/* The scale of scores: what queries take on the way in, and what is left for their products. */
VEC_INLINE float tile_scale_before(float scale) { return scale; }
VEC_INLINE float tile_scale_after(float scale) {
    (void)scale;
    return 1.0f;
}

/* What a product takes x for: itself, or the bf16 number next to it. */
VEC_INLINE vec tile_rounded(vec x, bool bf16) { return bf16 ? vec_round_bf16(x) : x; }

/* Two lines, neighbours along the sum, in the first and second of two at distance ld; only the first where there is no
 * second. */
VEC_INLINE void tile_store_two(float *to, int64_t ld, vec first, vec second, bool both) {
    vec_store(to, first);
    if (both) vec_store(to + ld, second);
}

/* Rows become lanes, summed over columns: to[column, row] = factor * from[row, column]. */
#define tile_pack_lanes tile_pack_transposed
/* [rows, columns], summed over rows; zero for columns..ld-1. */
#define tile_pack_down tile_pack_rows
/* [rows, columns], summed over columns. */
#define tile_pack_along tile_pack_rows

/* The same of what may stay where it is: room is for what may not. */
VEC_INLINE tile_factor tile_down(float *room, int64_t ld, const float *from, int64_t stride, int64_t rows, int64_t columns) {
    (void)room, (void)ld, (void)rows, (void)columns;
    return (tile_factor){from, stride};
}
VEC_INLINE tile_factor tile_along(float *room, int64_t ld, const float *from, int64_t stride, int64_t rows, int64_t columns) {
    return tile_down(room, ld, from, stride, rows, columns);
}
#endif
