/* SPDX-License-Identifier: Apache-2.0 */
/* y = x W^T with W in blocks, rows of them as a GGUF file has them, at any address: nothing is repacked at load. Inputs are
 * rounded to 8 bits with a scale for every 32 of them.
 *
 * A kernel opens the blocks of sixteen rows side by side (simd/quant_open.h): one vector register then holds the same four
 * columns of sixteen rows, the sum over four columns is one instruction (vpdpbusd), and nothing is ever added across a
 * register. Few rows of x use what was opened at once; for more it is written to panels in scratch, which all rows of x pass:
 *
 * Panel:  sixteen rows of W, part after part of 32 columns: eight groups of 64 bytes, group g = columns 4g..4g+3, byte
 *         4 * row + column (Q8_0 under AVX2: sixteen groups of 16-bit codes, group g = columns 4g and 4g+2, group 8 + g =
 *         columns 4g+1 and 4g+3);  then sixteen floats of scale;  then, of types with a minimum, sixteen floats of shift, or of
 *         Q6_K the scales of the second halves. */
#ifndef SLUICE_KERNELS_QUANT_LINEAR_H
#define SLUICE_KERNELS_QUANT_LINEAR_H
#include <stddef.h>
#include "kernels/quant.h"

enum {
    SLUICE__PANEL = 16,        /* rows of W */
    SLUICE__PART = 32,         /* columns that share a scale of inputs */
    SLUICE__TILE_ROWS = 16,    /* of x, at most */
    SLUICE__DIRECT_ROWS = 8,   /* of x, up to which panels do not pay */
    SLUICE__PANEL_PART = 1088, /* bytes of one part of a panel, at most */
    SLUICE__PANELS_BYTES = 256 << 10, /* of panels at a time, unless one is larger */
    SLUICE__WIDE_BYTES = 256 << 10    /* of inputs in 16 bits at a time, unless a tile is larger */
};

/* A matrix [rows, columns]. */
typedef struct sluice__quant_matrix {
    sluice__quant type;
    int64_t rows, columns; /* columns: a multiple of the type's block */
    const unsigned char *blocks; /* of any alignment */
} sluice__quant_matrix;

static inline int64_t sluice__quant_row_bytes(sluice__quant type, int64_t columns) {
    return columns / sluice__quant_values(type) * sluice__quant_bytes(type);
}

/* The kernel's scratch: inputs in 16 bits, for instruction sets whose products of bytes are of one sign, then panels. */
static inline int64_t sluice__quant_wide_bytes(int64_t columns) {
    int64_t tile = SLUICE__TILE_ROWS * 2 * columns;
    return tile > SLUICE__WIDE_BYTES ? tile : SLUICE__WIDE_BYTES;
}
static inline int64_t sluice__quant_scratch_bytes(int64_t columns) {
    int64_t panel = columns / SLUICE__PART * SLUICE__PANEL_PART;
    return sluice__quant_wide_bytes(columns) + (panel > SLUICE__PANELS_BYTES ? panel : SLUICE__PANELS_BYTES);
}

/* Rows of inputs rounded to 8 bits, in tiles of `sluice__quant_tile(rows left)` rows; those of the last tile for which there
 * is no input are zero. Of a tile of T rows, part after part: int8 [T][32], then float scale [T], float scale * sum of codes
 * [T], int32 minus the sum of codes [T], int32 minus the sums of its halves [T][2]. */
enum { SLUICE__QUANT_ROW_BYTES = 32 + 5 * 4 }; /* of one row in one part */
static inline int64_t sluice__quant_tile(int64_t rows_left) {
    if (rows_left > 12) return SLUICE__TILE_ROWS;
    int64_t t = 8;
    while (t / 2 >= rows_left) t /= 2;
    return t;
}
static inline size_t sluice__quant_input_bytes(int64_t rows, int64_t columns) {
    int64_t padded = 0;
    for (int64_t left = rows % SLUICE__TILE_ROWS; left > 0; left -= sluice__quant_tile(left)) padded += sluice__quant_tile(left);
    return (size_t)(rows / SLUICE__TILE_ROWS * SLUICE__TILE_ROWS + padded) * (size_t)(columns / SLUICE__PART) *
           SLUICE__QUANT_ROW_BYTES;
}

/* y = x W_i^T, the outputs of the matrices next to each other.   x: [rows, columns], W_i: [rows_i, columns],
 * y: [rows, sum of rows_i]. Splits over the calling thread's team. */
void sluice__quant_linear_forward(float *y, int64_t y_stride, const float *x, int64_t x_stride,
                                  const sluice__quant_matrix *w, int matrices, int64_t rows);
#endif
