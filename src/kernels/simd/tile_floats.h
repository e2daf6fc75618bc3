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

/* Distance of lines of `columns` numbers in the room for what tile_down packs: not a power of two, so that the lines do not
 * share sets of the first cache, as those that are packed here do where they stand. */
VEC_INLINE int64_t tile_room(int64_t columns) { return vec_up(columns) + 16; }

/* The same of what may stay where it is and is read `passes` times: room is for what may not. Summed over columns: stays. */
VEC_INLINE tile_factor tile_along(float *room, int64_t ld, const float *from, int64_t stride, int64_t rows, int64_t columns) {
    (void)room, (void)ld, (void)rows, (void)columns;
    return (tile_factor){from, stride};
}

/* Summed over rows: a product reads six numbers of every row and comes back to the same lines for the next six. Rows a
 * multiple of 4 KiB apart share eight lines of a first cache of 32 KiB with each other, so that each time they come from
 * the second. Six passes pay for packing with 8 lanes; 16 lanes pass half as often and lose by it. */
VEC_INLINE tile_factor tile_down(float *room, int64_t ld, const float *from, int64_t stride, int64_t rows, int64_t columns,
                                 int passes) {
    if (VEC > 8 || passes < 5 || stride % 1024 != 0) return (tile_factor){from, stride};
    tile_pack_down(room, ld, from, stride, rows, columns);
    return (tile_factor){room, ld};
}
#endif
