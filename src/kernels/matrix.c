/* SPDX-License-Identifier: Apache-2.0 */
/* Products with weights of any type. Few rows of x: every element of W is read once and widened on its way into a
 * multiply-add, which 16-bit weights make twice as fast as fp32 ones, because memory is the limit. Many rows: a block
 * of W is widened into scratch and goes through the fp32 product; widening is
 * then a small part of the work. Blocks have kernels of their own. */
#include "kernels/matrix.h"
#include "kernels/kernels.h"
#include "kernels/parallel.h"
#include "kernels/profile.h"
#include "kernels/scratch.h"

enum {
    THIN_ROWS = 24,               /* of x, up to which the thin kernels pay */
    BLOCK_FLOATS = 1 << 18,       /* of widened W of one thread */
    BLOCK_MOST = 512, UNIT = 8    /* rows of W: of a block at most, of a thread's part a multiple */
};

int64_t sluice__stack_rows(sluice__stack w) {
    int64_t rows = 0;
    for (int i = 0; i < w.count; i++) rows += w.part[i].rows;
    return rows;
}

int64_t sluice__matrix_bytes(const sluice__matrix *m, int64_t rows) {
    if (m->type == SLUICE__WEIGHT_QUANT) return rows * sluice__quant_row_bytes(m->quant, m->columns);
    return rows * m->columns * (m->type == SLUICE__WEIGHT_F32 ? 4 : 2);
}

static const void *row_of(const sluice__matrix *m, int64_t r) {
    return (const char *)m->data + sluice__matrix_bytes(m, r);
}

/* Rows first..last-1 of a matrix as one. */
static sluice__matrix part_of(const sluice__matrix *m, int64_t first, int64_t last) {
    return (sluice__matrix){row_of(m, first), last - first, m->columns, m->type, m->quant};
}

static void widen(const sluice__kernels *k, float *y, const sluice__matrix *m) {
    int64_t count = m->rows * m->columns;
    if (m->type == SLUICE__WEIGHT_BF16) k->widen_bf16(y, m->data, count);
    else if (m->type == SLUICE__WEIGHT_F16) k->widen_f16(y, m->data, count);
    else for (int64_t i = 0; i < count; i++) y[i] = ((const float *)m->data)[i];
}

static void thin(const sluice__kernels *k, float *y, int64_t y_stride, const float *x, int64_t x_stride,
                 const sluice__matrix *m, int64_t rows) {
    if (m->type == SLUICE__WEIGHT_BF16)
        k->linear_thin_bf16(y, y_stride, x, x_stride, m->data, rows, m->rows, m->columns);
    else k->linear_thin_f16(y, y_stride, x, x_stride, m->data, rows, m->rows, m->columns);
}

/* Blocks of `block` rows of W, widened into `scratch`. */
static void wide(const sluice__kernels *k, float *y, int64_t y_stride, const float *x, int64_t x_stride,
                 const sluice__matrix *m, int64_t rows, int64_t block, float *scratch) {
    for (int64_t at = 0; at < m->rows; at += block) {
        sluice__matrix part = part_of(m, at, at + block < m->rows ? at + block : m->rows);
        widen(k, scratch, &part);
        sluice__gemm_f32(false, true, rows, part.rows, m->columns, 1, x, x_stride, scratch, m->columns, 0, y + at,
                         y_stride);
    }
}

static int64_t block_rows(int64_t columns) {
    int64_t rows = BLOCK_FLOATS / columns / UNIT * UNIT;
    return rows < UNIT ? UNIT : rows > BLOCK_MOST ? BLOCK_MOST : rows;
}

/* One matrix of 16-bit elements. Without memory for scratch the thin kernels do it, which need none. */
static void half_forward(float *y, int64_t y_stride, const float *x, int64_t x_stride, const sluice__matrix *m,
                         int64_t rows) {
    SLUICE__SPAN_PRODUCT("x W^T, W of 16 bits", rows, m->rows, m->columns, 2, false);
    const sluice__kernels *k = sluice__kernels_now();
    int threads = sluice__team(m->rows * m->columns);
    int64_t block = block_rows(m->columns);
    float *scratch = rows > THIN_ROWS ? sluice__scratch((size_t)(threads * block * m->columns)) : NULL;
    SLUICE__SPLIT(threads, m->rows, UNIT, {
        sluice__matrix part = part_of(m, range.begin, range.end);
        float *own = scratch ? scratch + omp_get_thread_num() * (threads > 1) * block * m->columns : NULL;
        if (own) wide(k, y + range.begin, y_stride, x, x_stride, &part, rows, block, own);
        else thin(k, y + range.begin, y_stride, x, x_stride, &part, rows);
    });
}

static sluice__quant_matrix quant_of(const sluice__matrix *m) {
    return (sluice__quant_matrix){m->quant, m->rows, m->columns, m->data};
}

/* Consecutive matrices in blocks share the rounding of x. Returns the first part behind them; *out their rows. */
static int quant_forward(float *y, int64_t y_stride, const float *x, int64_t x_stride, sluice__stack w, int first,
                         int64_t rows, int64_t *out) {
    enum { MOST = 8 };
    sluice__quant_matrix parts[MOST];
    int count = 0;
    *out = 0;
    while (count < MOST && first + count < w.count && w.part[first + count].type == SLUICE__WEIGHT_QUANT) {
        parts[count] = quant_of(&w.part[first + count]);
        *out += parts[count++].rows;
    }
    sluice__quant_linear_forward(y, y_stride, x, x_stride, parts, count, rows);
    return first + count;
}

/* Parts first..last-1 whose fp32 rows follow each other in memory are one product. */
static int joined(sluice__stack w, int first) {
    int last = first + 1;
    while (last < w.count && w.part[last].type == SLUICE__WEIGHT_F32 &&
           w.part[last].data == row_of(&w.part[last - 1], w.part[last - 1].rows))
        last++;
    return last;
}

static void add_bias(float *y, int64_t y_stride, const float *bias, int64_t rows, int64_t out) {
    SLUICE__SPAN_FLOATS("bias", 2 * rows * out);
    const sluice__kernels *k = sluice__kernels_now();
    SLUICE__SPLIT(sluice__team(rows * out), rows, 1, {
        for (int64_t r = range.begin; r < range.end; r++) k->add_f32(y + r * y_stride, bias, out);
    });
}

void sluice__stack_forward(float *y, int64_t y_stride, const float *x, int64_t x_stride, sluice__stack w,
                           const float *bias, int64_t rows) {
    int64_t at = 0;
    for (int i = 0, next; i < w.count; i = next) {
        const sluice__matrix *m = &w.part[i];
        next = i + 1;
        int64_t out = m->rows;
        if (m->type == SLUICE__WEIGHT_QUANT) {
            next = quant_forward(y + at, y_stride, x, x_stride, w, i, rows, &out);
        } else if (m->type != SLUICE__WEIGHT_F32) {
            half_forward(y + at, y_stride, x, x_stride, m, rows);
        } else {
            next = joined(w, i);
            out = sluice__stack_rows((sluice__stack){m, next - i});
            sluice__linear_forward(y + at, y_stride, x, x_stride, m->data, NULL, rows, out, m->columns);
        }
        at += out;
    }
    if (bias) add_bias(y, y_stride, bias, rows, at);
}

void sluice__matrix_widen(float *y, const sluice__matrix *m, int64_t first, int64_t count) {
    if (m->type == SLUICE__WEIGHT_QUANT) {
        sluice__dequantize(y, m->quant, row_of(m, first), count * m->columns);
        return;
    }
    sluice__matrix part = part_of(m, first, first + count);
    widen(sluice__kernels_now(), y, &part);
}

void sluice__matrix_rows(float *y, const sluice__matrix *m, const int32_t *ids, int64_t rows) {
    SLUICE__SPAN_FLOATS("embedding forward", 2 * rows * m->columns);
    SLUICE__SPLIT(sluice__team(rows * m->columns), rows, 1, {
        for (int64_t r = range.begin; r < range.end; r++) sluice__matrix_widen(y + r * m->columns, m, ids[r], 1);
    });
}
