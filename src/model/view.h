/* SPDX-License-Identifier: Apache-2.0 */
/* A matrix inside a dense tensor, by strides, in elements: one expert out of a stack of them, every second column,
 * a transposed matrix. A vector is one row. */
#ifndef SLUICE_MODEL_VIEW_H
#define SLUICE_MODEL_VIEW_H
#include <stdbool.h>
#include <stdint.h>

typedef struct sluice__view {
    int64_t first, rows, columns, row_stride, column_stride;
    int64_t block, block_stride; /* rows come in blocks of so many, whose first rows are so far apart; 0: all alike */
} sluice__view;

/* Whether its elements lie one behind the other. */
static inline bool sluice__view_is_dense(const sluice__view *v) {
    return !v->block && v->column_stride == 1 && (v->rows == 1 || v->row_stride == v->columns);
}

/* All of a tensor of one or two dimensions; of more: rows of its last dimension. */
static inline sluice__view sluice__view_of(int ndim, const int64_t *shape) {
    sluice__view v = {.rows = 1, .columns = ndim ? shape[ndim - 1] : 1, .column_stride = 1};
    for (int i = 0; i < ndim - 1; i++) v.rows *= shape[i];
    v.row_stride = v.columns;
    return v;
}
#endif
