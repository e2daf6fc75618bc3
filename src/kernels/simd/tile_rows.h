/* SPDX-License-Identifier: Apache-2.0 */
/* Moving rows of a strided tensor into tiles: transposed (rows become lanes) or padded to whole
 * vectors. Written in the words of x86/tile_<isa>.h. */
#ifndef SLUICE_KERNELS_SIMD_TILE_ROWS_H
#define SLUICE_KERNELS_SIMD_TILE_ROWS_H
#include <stdbool.h>
#include <stdint.h>

/* A factor of a product: lines of it, and their distance in floats. */
typedef struct tile_factor {
    const float *data;
    int64_t stride;
} tile_factor;

VEC_INLINE int64_t vec_up(int64_t n) {
    return (n + VEC - 1) / VEC * VEC;
}

/* Loads VEC rows by VEC columns; what lies outside rows x columns is zero and not touched. */
VEC_INLINE void tile_load_square(vec r[VEC], const float *from, int64_t stride, int64_t rows,
                                 int64_t columns) {
    if (rows >= VEC && columns >= VEC) {
        for (int i = 0; i < VEC; i++) r[i] = vec_load(from + i * stride);
    } else {
        int n = columns < VEC ? (int)columns : VEC;
        for (int i = 0; i < VEC; i++)
            r[i] = i < rows ? vec_load_n(from + i * stride, n) : vec_zero();
    }
}

/* to[c, r] = factor * from[r, c].   from: [rows, columns] with a row stride; to: [columns, ld], ld
 * >= rows rounded up to lanes; lanes from `rows` on become zero. */
static __attribute__((unused)) void tile_pack_transposed(float *to, int64_t ld, const float *from,
                                                         int64_t stride, int64_t rows,
                                                         int64_t columns, float factor) {
    vec f = vec_set(factor);
    for (int64_t row = 0; row < rows; row += VEC)
        for (int64_t column = 0; column < columns; column += VEC) {
            vec r[VEC];
            tile_load_square(r, from + row * stride + column, stride, rows - row, columns - column);
            vec_transpose(r);
            int64_t n = columns - column < VEC ? columns - column : VEC;
            for (int i = 0; i < n; i++) vec_store(to + (column + i) * ld + row, vec_mul(r[i], f));
        }
}

/* to[r, c] = from[r, c], zero for columns..ld-1 (ld a multiple of VEC). */
static __attribute__((unused)) void tile_pack_rows(float *to, int64_t ld, const float *from,
                                                   int64_t stride, int64_t rows, int64_t columns) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < ld; c += VEC) {
            int64_t n = columns - c < VEC ? columns - c : VEC;
            vec_store(to + r * ld + c,
                      n > 0 ? vec_load_n(from + r * stride + c, (int)n) : vec_zero());
        }
}

/* to[r, c] = factor * from[r, c], or added to it, for the given columns only. */
static __attribute__((unused)) void tile_unpack_rows(float *to, int64_t stride, const float *from,
                                                     int64_t ld, int64_t rows, int64_t columns,
                                                     float factor, bool add) {
    vec f = vec_set(factor);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c += VEC) {
            int n = columns - c < VEC ? (int)(columns - c) : VEC;
            vec x = vec_mul(vec_load(from + r * ld + c), f);
            if (add) x = vec_add(vec_load_n(to + r * stride + c, n), x);
            vec_store_n(to + r * stride + c, x, n);
        }
}
#endif
