/* SPDX-License-Identifier: Apache-2.0 */
/* Products with weights of any type. Few rows of x: every element of W is read once, on its way into a multiply-add, which
 * 16-bit weights make twice as fast as fp32 ones, because memory is the limit. Many rows: bf16 weights go through the
 * product of gemm_bf16.c, straight from where they lie; a block of F16 weights is widened into scratch and goes through
 * the fp32 product. Blocks have kernels of their own. */
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

/* Consecutive matrices of one 16-bit type, their outputs next to each other. */
typedef struct halves {
    float *y;
    int64_t y_stride;
    const float *x;
    int64_t x_stride;
    const sluice__bf16 *pairs; /* x as bf16, rows without gaps, for linear_pairs_bf16; NULL: not wanted */
    const sluice__matrix *w;
    int count;
    int64_t out, columns, rows;
} halves;

static void thin(const halves *h, float *y, const sluice__matrix *m) {
    const sluice__kernels *k = sluice__kernels_now();
    if (h->pairs)
        k->linear_pairs_bf16(y, h->y_stride, h->pairs, h->columns, m->data, h->rows, m->rows, h->columns);
    else if (m->type == SLUICE__WEIGHT_BF16)
        k->linear_thin_bf16(y, h->y_stride, h->x, h->x_stride, m->data, h->rows, m->rows, h->columns);
    else k->linear_thin_f16(y, h->y_stride, h->x, h->x_stride, m->data, h->rows, m->rows, h->columns);
}

/* Blocks of `block` rows of W, widened into `scratch`. */
static void wide(const halves *h, float *y, const sluice__matrix *m, int64_t block, float *scratch) {
    const sluice__kernels *k = sluice__kernels_now();
    for (int64_t at = 0; at < m->rows; at += block) {
        sluice__matrix part = part_of(m, at, at + block < m->rows ? at + block : m->rows);
        widen(k, scratch, &part);
        sluice__gemm_f32(false, true, h->rows, part.rows, h->columns, 1, h->x, h->x_stride, scratch, h->columns, 0,
                         y + at, h->y_stride);
    }
}

/* Outputs range.begin to range.end - 1 of all; with `scratch` for widened blocks, or thin. */
static void some_outputs(const halves *h, sluice__range range, int64_t block, float *scratch) {
    int64_t first = 0;
    for (int i = 0; i < h->count; first += h->w[i++].rows) {
        int64_t begin = range.begin > first ? range.begin - first : 0, end = range.end - first;
        if (end > h->w[i].rows) end = h->w[i].rows;
        if (begin >= end) continue;
        sluice__matrix part = part_of(&h->w[i], begin, end);
        if (scratch) wide(h, h->y + first + begin, &part, block, scratch);
        else thin(h, h->y + first + begin, &part);
    }
}

static void few_rows(const halves *h) {
    SLUICE__SPLIT(sluice__team(h->out * h->columns), h->out, UNIT, some_outputs(h, range, 0, NULL));
}

static int64_t block_rows(int64_t columns) {
    int64_t rows = BLOCK_FLOATS / columns / UNIT * UNIT;
    return rows < UNIT ? UNIT : rows > BLOCK_MOST ? BLOCK_MOST : rows;
}

/* x as it is. Without memory for scratch the thin kernels do it, which need none. */
static void exact_forward(const halves *h) {
    SLUICE__SPAN_PRODUCT("x W^T, W of 16 bits", h->rows, h->out, h->columns, 2, false);
    int threads = sluice__team(h->out * h->columns);
    int64_t block = block_rows(h->columns);
    float *scratch = h->rows > THIN_ROWS ? sluice__scratch((size_t)(threads * block * h->columns)) : NULL;
    if (!scratch) {
        few_rows(h);
        return;
    }
    SLUICE__SPLIT(threads, h->out, UNIT, {
        some_outputs(h, range, block, scratch + omp_get_thread_num() * (threads > 1) * block * h->columns);
    });
}

/* Matrix by matrix, blocks of both operands packed or rounded (gemm_bf16.c). */
static void many_rounded(const halves *h) {
    float *y = h->y;
    for (int i = 0; i < h->count; y += h->w[i++].rows)
        sluice__gemm_bf16(&(sluice__bf16_product){.trans_b = true, .m = h->rows, .n = h->w[i].rows, .k = h->columns,
                                                  .a = sluice__rounded_f32(h->x, h->x_stride),
                                                  .b = sluice__rounded_bf16(h->w[i].data, h->columns), .c = y,
                                                  .ldc = h->y_stride});
}

/* x rounded to bf16: kept as that where the CPU multiplies it, else as floats. */
static void rounded_forward(const halves *given) {
    halves h = *given;
    bool native = sluice_cpu_flags() & SLUICE_CPU_AVX512_BF16;
    int64_t count = h.rows * h.columns, floats = native ? (count + 1) / 2 : count;
    float *scratch = h.rows <= THIN_ROWS ? sluice__scratch((size_t)floats) : NULL;
    if (!scratch) {
        many_rounded(&h);
        return;
    }
    SLUICE__SPAN_PRODUCT("x W^T, both bf16", h.rows, h.out, h.columns, 2, false);
    sluice__bf16 *pairs = (sluice__bf16 *)scratch;
    if (native) sluice__to_bf16(pairs, h.columns, h.x, h.x_stride, h.rows, h.columns);
    else sluice__round_bf16(scratch, h.columns, h.x, h.x_stride, h.rows, h.columns);
    h.pairs = native ? pairs : NULL;
    h.x = scratch;
    h.x_stride = h.columns;
    few_rows(&h);
}

/* Consecutive matrices of the type of the first. Returns the first part behind them; *out their rows. */
static int half_forward(float *y, int64_t y_stride, const float *x, int64_t x_stride, sluice__stack w, int first,
                        int64_t rows, bool exact, int64_t *out) {
    const sluice__matrix *m = &w.part[first];
    halves h = {y, y_stride, x, x_stride, NULL, m, 0, 0, m->columns, rows};
    while (first + h.count < w.count && m[h.count].type == m->type) h.out += m[h.count++].rows;
    if (m->type == SLUICE__WEIGHT_BF16 && !exact) rounded_forward(&h);
    else exact_forward(&h);
    *out = h.out;
    return first + h.count;
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

static void forward(float *y, int64_t y_stride, const float *x, int64_t x_stride, sluice__stack w, const float *bias,
                    int64_t rows, bool exact) {
    int64_t at = 0;
    for (int i = 0, next; i < w.count; i = next) {
        const sluice__matrix *m = &w.part[i];
        int64_t out;
        if (m->type == SLUICE__WEIGHT_QUANT) {
            next = quant_forward(y + at, y_stride, x, x_stride, w, i, rows, &out);
        } else if (m->type != SLUICE__WEIGHT_F32) {
            next = half_forward(y + at, y_stride, x, x_stride, w, i, rows, exact, &out);
        } else {
            next = joined(w, i);
            out = sluice__stack_rows((sluice__stack){m, next - i});
            sluice__linear_forward(y + at, y_stride, x, x_stride, m->data, NULL, rows, out, m->columns);
        }
        at += out;
    }
    if (bias) sluice__bias_forward(y, y_stride, bias, rows, at);
}

void sluice__stack_forward(float *y, int64_t y_stride, const float *x, int64_t x_stride, sluice__stack w,
                           const float *bias, int64_t rows) {
    forward(y, y_stride, x, x_stride, w, bias, rows, false);
}

void sluice__stack_forward_exact(float *y, int64_t y_stride, const float *x, int64_t x_stride, sluice__stack w,
                                 const float *bias, int64_t rows) {
    forward(y, y_stride, x, x_stride, w, bias, rows, true);
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
