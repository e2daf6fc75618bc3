/* SPDX-License-Identifier: Apache-2.0 */
/* Weight matrices in the type in which their file holds them, and the one product that models run on: y = x W^T with
 * fp32 inputs, sums and outputs. What counts as input depends on the type of W, and on nothing else:
 *   F32, F16   x as it is, and W widened, which is exact: the results of an fp32 copy up to the order of sums
 *   BF16       x rounded to bf16, at every CPU level and for any number of rows (bf16.h); products are exact
 *   blocks     x rounded to 8 bits (quant_linear.h) */
#ifndef SLUICE_KERNELS_MATRIX_H
#define SLUICE_KERNELS_MATRIX_H
#include "kernels/quant_linear.h"

typedef enum sluice__weight_type {
    SLUICE__WEIGHT_F32,
    SLUICE__WEIGHT_F16,
    SLUICE__WEIGHT_BF16,
    SLUICE__WEIGHT_QUANT /* blocks */
} sluice__weight_type;

typedef struct sluice__matrix {
    const void *data; /* [rows, columns], aligned to its elements (blocks need not be); NULL = no matrix */
    int64_t rows, columns;
    sluice__weight_type type;
    sluice__quant quant; /* of WEIGHT_QUANT */
} sluice__matrix;

/* Bytes of the elements of `rows` rows. */
int64_t sluice__matrix_bytes(const sluice__matrix *m, int64_t rows);

/* Matrices that read the same input; their outputs stand next to each other in this order. */
typedef struct sluice__stack {
    const sluice__matrix *part;
    int count;
} sluice__stack;

int64_t sluice__stack_rows(sluice__stack w);

/* y = x [W_0 | W_1 | ...]^T + bias.   x: [rows, columns], y: [rows, sum of rows], bias: [sum of rows] or NULL. Splits
 * over the calling thread's team. */
void sluice__stack_forward(float *y, int64_t y_stride, const float *x, int64_t x_stride, sluice__stack w,
                           const float *bias, int64_t rows);
/* The same with x as it is where W is BF16 too: for what decides (routers). */
void sluice__stack_forward_exact(float *y, int64_t y_stride, const float *x, int64_t x_stride, sluice__stack w,
                                 const float *bias, int64_t rows);
/* y[r,:] = m[ids[r],:] as fp32. Ids are checked by the caller. */
void sluice__matrix_rows(float *y, const sluice__matrix *m, const int32_t *ids, int64_t rows);
/* y [count * columns] = rows first..first+count-1 of m as fp32. */
void sluice__matrix_widen(float *y, const sluice__matrix *m, int64_t first, int64_t count);
#endif
