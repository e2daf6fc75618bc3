/* SPDX-License-Identifier: Apache-2.0 */
/* Products of bf16 matrices. With AVX512_BF16 each thread takes a part of the columns or rows of C, whichever there are more
 * of, because the operand that is not split is packed by every thread. Elsewhere both operands are rounded, block by block,
 * into scratch, and multiplied as floats: a product of two bf16 numbers is exact there too, so the results differ by the order
 * of sums alone. */
#include "kernels/kernels.h"
#include "kernels/parallel.h"
#include "kernels/profile.h"
#include "kernels/scratch.h"

/* Blocks of the emulation, in elements. */
enum { ROWS = 1024, COLUMNS = 1024, DEPTH = 2048 };
/* Multiply-adds below which a second thread costs more than it takes over. */
enum { ALONE = 1 << 21 };

static const void *at(const sluice__rounded *x, int64_t row, int64_t column) {
    int64_t i = row * x->stride + column;
    return x->half ? (const void *)((const sluice__bf16 *)x->data + i) : (const void *)((const float *)x->data + i);
}

/* The part of C, and of what it needs, that starts at (row, column). */
static sluice__bf16_product part_of(const sluice__bf16_product *p, int64_t row, int64_t rows, int64_t column,
                                    int64_t columns) {
    sluice__bf16_product part = *p;
    part.m = rows;
    part.n = columns;
    part.a.data = p->trans_a ? at(&p->a, 0, row) : at(&p->a, row, 0);
    part.b.data = p->trans_b ? at(&p->b, column, 0) : at(&p->b, 0, column);
    part.c = p->c + row * p->ldc + column;
    return part;
}

static void native_part(const sluice__bf16_product *p, bool rows, sluice__range r, float *scratch) {
    sluice__bf16_product part = rows ? part_of(p, r.begin, r.end - r.begin, 0, p->n)
                                     : part_of(p, 0, p->m, r.begin, r.end - r.begin);
    sluice__kernels_now()->gemm_bf16(&part, scratch + (int64_t)omp_get_thread_num() * SLUICE__BF16_SCRATCH);
}

/* false: no scratch. */
static bool native(const sluice__bf16_product *p) {
    bool rows = p->m > p->n, alone = omp_in_parallel() || p->m * p->n * p->k < ALONE;
    int threads = alone ? 1 : omp_get_max_threads();
    float *scratch = sluice__scratch((size_t)threads * SLUICE__BF16_SCRATCH);
    if (!scratch) return false;
    if (threads == 1) sluice__kernels_now()->gemm_bf16(p, scratch);
    else SLUICE__SPLIT(threads, rows ? p->m : p->n, 32, native_part(p, rows, range, scratch));
    return true;
}

/* y [rows, columns] = the block of x that starts at (row, column), rounded. */
static void round_block(float *y, const sluice__rounded *x, int64_t row, int64_t rows, int64_t column, int64_t columns) {
    const sluice__kernels *k = sluice__kernels_now();
    SLUICE__SPLIT(sluice__team(rows * columns), rows, 1, {
        for (int64_t r = range.begin; r < range.end; r++) {
            if (x->half) k->widen_bf16(y + r * columns, at(x, row + r, column), columns);
            else k->bf16_round_f32(y + r * columns, at(x, row + r, column), columns);
        }
    });
}

/* op(x) rows `lane` to lane + lanes - 1, k from `from` on; `across`: lanes are rows of x. */
static void round_part(float *y, const sluice__rounded *x, bool across, int64_t lane, int64_t lanes, int64_t from,
                       int64_t depth) {
    if (across) round_block(y, x, lane, lanes, from, depth);
    else round_block(y, x, from, depth, lane, lanes);
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* Blocks of A and B as floats; products of floats take no scratch, so it may be held meanwhile. */
static bool emulated(const sluice__bf16_product *p) {
    int64_t most_rows = smaller(p->m, ROWS), most_columns = smaller(p->n, COLUMNS), most_depth = smaller(p->k, DEPTH);
    float *a = sluice__scratch((size_t)((most_rows + most_columns) * most_depth)), *b = a + most_rows * most_depth;
    if (!a) return false;
    for (int64_t i = 0; i < p->m; i += ROWS) {
        int64_t rows = smaller(p->m - i, ROWS);
        for (int64_t k = 0; k < p->k; k += DEPTH) {
            int64_t depth = smaller(p->k - k, DEPTH);
            round_part(a, &p->a, !p->trans_a, i, rows, k, depth);
            for (int64_t j = 0; j < p->n; j += COLUMNS) {
                int64_t columns = smaller(p->n - j, COLUMNS);
                round_part(b, &p->b, p->trans_b, j, columns, k, depth);
                sluice__gemm_f32(p->trans_a, p->trans_b, rows, columns, depth, 1, a, p->trans_a ? rows : depth, b,
                                 p->trans_b ? depth : columns, p->accumulate || k > 0 ? 1 : 0, p->c + i * p->ldc + j,
                                 p->ldc);
            }
        }
    }
    return true;
}

void sluice__gemm_bf16(const sluice__bf16_product *p) {
    SLUICE__SPAN_PRODUCT(p->trans_a ? "dy^T x bf16" : p->trans_b ? "x W^T bf16" : "dy W bf16", p->m, p->n, p->k,
                         p->b.half ? 2 : 4, p->accumulate);
    if (p->m <= 0 || p->n <= 0) return;
    bool done = p->k > 0 && (sluice_cpu_flags() & SLUICE_CPU_AVX512_BF16 ? native(p) : emulated(p));
    if (!done) sluice_gemm_bf16_ref(p, NULL); /* no summands, or no room for blocks */
}

void sluice__to_bf16(sluice__bf16 *y, int64_t y_stride, const float *x, int64_t x_stride, int64_t rows, int64_t width) {
    SLUICE__SPAN(.name = "rounding to bf16", .bytes = 6.0 * (double)(rows * width));
    const sluice__kernels *k = sluice__kernels_now();
    SLUICE__SPLIT(sluice__team(rows * width), rows, 1, {
        for (int64_t r = range.begin; r < range.end; r++) k->bf16_from_f32(y + r * y_stride, x + r * x_stride, width);
    });
}

void sluice__round_bf16(float *y, int64_t y_stride, const float *x, int64_t x_stride, int64_t rows, int64_t width) {
    SLUICE__SPAN_FLOATS("rounding to bf16", 2 * rows * width);
    const sluice__kernels *k = sluice__kernels_now();
    SLUICE__SPLIT(sluice__team(rows * width), rows, 1, {
        for (int64_t r = range.begin; r < range.end; r++) k->bf16_round_f32(y + r * y_stride, x + r * x_stride, width);
    });
}
