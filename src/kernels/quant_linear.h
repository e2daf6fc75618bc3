/* SPDX-License-Identifier: Apache-2.0 */
/* y = x W^T with W in blocks. At load the rows of W are interleaved, sixteen to a panel, so that one vector register holds
 * the same four columns of sixteen rows and a scale of every row: the sum over four columns is one instruction
 * (vpdpbusd), and nothing is ever added across a register. Inputs are rounded to 8 bits with a scale for every 32 of them.
 *
 * Panel:  for every part of 32 columns its codes;  behind all of them, for every block, its scales.
 *   codes    group g = columns 4g..4g+3 of sixteen rows, byte 4 * row + column:
 *            8 bits   eight groups of 64 bytes
 *            4 bits   64 bytes hold group g in their low and group g + 4 in their high halves, g = 0..3
 *            5 bits   and behind them, for every group, 64 bits: the fifth bit of each byte
 *            6 bits   and behind them twice 64 bytes: bits 2t, 2t + 1 belong to group t, or 4 + t
 *   scales   blocks of 32: sixteen halves (and sixteen for the minimum);
 *            Q4_K, Q5_K: 16 halves d, 16 halves dmin, then for each of 8 parts 16 bytes of scales and 16 of minima;
 *            Q6_K: 16 halves d, then for each part 16 signed bytes for its first half and 16 for its second. */
#ifndef SLUICE_KERNELS_QUANT_LINEAR_H
#define SLUICE_KERNELS_QUANT_LINEAR_H
#include <stddef.h>
#include "kernels/quant.h"

enum { SLUICE__PANEL = 16, SLUICE__PART = 32, SLUICE__TILE_ROWS = 16 };

/* A matrix [rows, columns] in panels; the last is filled up with zero rows. */
typedef struct sluice__quant_matrix {
    sluice__quant type;
    int64_t rows, columns; /* columns: a multiple of the type's block */
    const unsigned char *panels; /* 64-byte aligned */
} sluice__quant_matrix;

int64_t sluice__quant_panel_bytes(sluice__quant type, int64_t columns);
int64_t sluice__quant_matrix_bytes(sluice__quant type, int64_t rows, int64_t columns);
/* Puts one row of blocks into its place (row r of the matrix, in memory of zeros at first). Rows of one panel must not
 * be put by two threads at once. */
void sluice__quant_put_row(unsigned char *panels, sluice__quant type, int64_t columns, int64_t r, const void *blocks);
/* Part `index` of row r. */
void sluice__quant_panel_part(sluice__quant_part *part, const sluice__quant_matrix *m, int64_t r, int64_t index);
/* The values of row r. */
void sluice__quant_get_row(float *out, const sluice__quant_matrix *m, int64_t r);

/* Rows of inputs rounded to 8 bits, in tiles of `sluice__quant_tile(rows left)` rows. Of a tile of T rows, part after part:
 * int8 [T][32], then float scale [T], float scale * sum of codes [T], int32 sum of codes [T], int32 sums of its halves
 * [T][2]. */
enum { SLUICE__QUANT_ROW_BYTES = 32 + 5 * 4 }; /* of one row in one part */
static inline int64_t sluice__quant_tile(int64_t rows_left) {
    int64_t t = SLUICE__TILE_ROWS;
    while (t > rows_left) t /= 2;
    return t;
}
static inline size_t sluice__quant_input_bytes(int64_t rows, int64_t columns) {
    return (size_t)rows * (size_t)(columns / SLUICE__PART) * SLUICE__QUANT_ROW_BYTES;
}

/* y = x W_i^T, the outputs of the matrices next to each other.   x: [rows, columns], W_i: [rows_i, columns],
 * y: [rows, sum of rows_i]. Splits over the calling thread's team. */
void sluice__quant_linear_forward(float *y, int64_t y_stride, const float *x, int64_t x_stride,
                                  const sluice__quant_matrix *w, int matrices, int64_t rows);
#endif
