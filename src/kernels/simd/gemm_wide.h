/* SPDX-License-Identifier: Apache-2.0 */
/* C (+)= op(A) op(B) with many rows: body for one tile_<isa>.h, behind which the including file defines HIGH, the rows of a
 * tile, and TILES(X), which is X(1) .. X(HIGH). Both are laid out along k, block by block, in panels:
 *   A  of up to HIGH rows of op(A):             [panel][k][rows of the panel]
 *   B  of TILE_COLUMNS columns of op(B):        [panel][k][TILE_COLUMNS]
 * A tile of HIGH x TILE_COLUMNS sums stays in registers, 28 of 32 or 12 of 16 (Goto and van de Geijn 2008). B is long and read
 * once: while a block of it is multiplied, the next one is fetched into the second cache, a line every few steps of k, so that
 * packing it does not wait for memory. gemm.c says which products are faster so than in dnnl_sgemm. */
#include "kernels/kernels.h"
#include "kernels/simd/ahead.h"
#include <string.h>

enum {
    TILE_COLUMNS = 2 * VEC,
    FETCH_EVERY = VEC == 16 ? 2 : 4 /* steps of k, a power of two */
};
enum { DEPTH = 768, BLOCK_ROWS = 1024, BLOCK_COLUMNS = 64 };
_Static_assert((BLOCK_ROWS + BLOCK_COLUMNS) * DEPTH + VEC <= SLUICE__WIDE_SCRATCH, "blocks fit into the scratch");

typedef struct tile_call {
    const float *a, *b; /* panels */
    int64_t depth;
    float *c;
    int64_t stride;
    int left, right; /* columns that exist, of each vector; right: 0 for one vector */
    bool add;
    ahead *next;
} tile_call;

/* c [rows, VEC * vectors] (+)= panel of A times panel of B. The lines of c arrive during the loop. */
VEC_INLINE void tile(const tile_call *t, int rows, int vectors) {
    vec sum[HIGH][2];
    const float *a = t->a, *b = t->b;
    float *c = t->c;
    ahead next = *t->next;
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++) {
        sum[i][0] = sum[i][1] = vec_zero();
        _mm_prefetch((const char *)(c + i * t->stride), _MM_HINT_T0);
        if (VEC == 16) _mm_prefetch((const char *)(c + i * t->stride + VEC), _MM_HINT_T0);
    }
    for (int64_t k = 0; k < t->depth; k++, a += rows, b += TILE_COLUMNS) {
        vec b0 = vec_load(b), b1 = vectors > 1 ? vec_load(b + VEC) : b0;
        if (k % FETCH_EVERY == FETCH_EVERY - 1) fetch(&next);
#pragma GCC unroll 14
        for (int i = 0; i < rows; i++) {
            vec x = vec_set(a[i]);
            sum[i][0] = vec_fma(x, b0, sum[i][0]);
            if (vectors > 1) sum[i][1] = vec_fma(x, b1, sum[i][1]);
        }
    }
    *t->next = next;
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++, c += t->stride) {
        if (t->add) sum[i][0] = vec_add(sum[i][0], vec_load_n(c, t->left));
        vec_store_n(c, sum[i][0], t->left);
        if (vectors == 1) continue;
        if (t->add) sum[i][1] = vec_add(sum[i][1], vec_load_n(c + VEC, t->right));
        vec_store_n(c + VEC, sum[i][1], t->right);
    }
}

typedef void tile_of_rows(const tile_call *);
#define TILE(rows)                                                                                                         \
    static void tile_##rows(const tile_call *t) { tile(t, rows, 2); }                                                      \
    static void narrow_##rows(const tile_call *t) { tile(t, rows, 1); }
#define BOTH(rows) {narrow_##rows, tile_##rows},
TILES(TILE)
static tile_of_rows *const tiles[][2] = {TILES(BOTH)};
_Static_assert(sizeof tiles / sizeof *tiles == HIGH, "a tile for every number of rows");

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* Nearly equal parts of at most `most`, a multiple of `unit`: the size of one. */
static int64_t part_of(int64_t count, int64_t most, int64_t unit) {
    int64_t parts = (count + most - 1) / most, size = (count + parts - 1) / parts;
    return (size + unit - 1) / unit * unit;
}

/* to[k * stride + i] = x[i * ld + k] for i < VEC; rows from `width` on repeat the last one. Whole vectors are stored: where
 * the stride is smaller, the next store overwrites what was too much. */
static void pack(float *to, int64_t stride, const float *x, int64_t ld, int64_t width, int64_t depth) {
    vec r[VEC];
    const float *row[VEC];
    for (int i = 0; i < VEC; i++) row[i] = x + smaller(i, width - 1) * ld;
    for (int64_t k = 0; k < depth; k += VEC) {
        const int n = (int)smaller(depth - k, VEC);
        for (int i = 0; i < VEC; i++) r[i] = n == VEC ? vec_load(row[i] + k) : vec_load_n(row[i] + k, n);
        vec_transpose(r);
        for (int i = 0; i < n; i++) vec_store(to + (k + i) * stride, r[i]);
    }
}

typedef struct block {
    const sluice__product *p;
    int64_t row, height, column, width, k, depth;
    int64_t panels; /* of A, nearly equal */
    float *a, *b;
} block;

static int64_t panel_begin(const block *x, int64_t i) { return x->height * i / x->panels; }

/* Panels of columns of A, a strip of them at a time, because a line of memory holds parts of several. Whole vectors are stored,
 * as above, but for the last step of k, behind which another panel begins. */
static void pack_strip(const block *x, const float *a, int64_t first, int64_t last) {
    for (int64_t k = 0; k < x->depth; k++, a += x->p->lda)
        for (int64_t i = first; i < last; i++) {
            int64_t begin = panel_begin(x, i), rows = panel_begin(x, i + 1) - begin;
            float *to = x->a + begin * x->depth + k * rows;
            if (k + 1 == x->depth || begin + VEC > x->height) memcpy(to, a + begin, (size_t)rows * sizeof *to);
            else vec_store(to, vec_load(a + begin));
        }
}

static void pack_a(const block *x) {
    enum { STRIP = 8 };
    const sluice__product *p = x->p;
    if (p->trans_a) {
        const float *a = p->a + x->k * p->lda + x->row;
        for (int64_t i = 0; i < x->panels; i += STRIP) pack_strip(x, a, i, smaller(i + STRIP, x->panels));
        return;
    }
    for (int64_t i = 0; i < x->panels; i++) {
        int64_t begin = panel_begin(x, i), rows = panel_begin(x, i + 1) - begin;
        pack(x->a + begin * x->depth, rows, p->a + (x->row + begin) * p->lda + x->k, p->lda, rows, x->depth);
    }
}

static void pack_b(const block *x) {
    const sluice__product *p = x->p;
    for (int64_t j = 0; j < x->width && p->trans_b; j += VEC)
        pack(x->b + j / TILE_COLUMNS * TILE_COLUMNS * x->depth + j % TILE_COLUMNS, TILE_COLUMNS,
             p->b + (x->column + j) * p->ldb + x->k, p->ldb, smaller(x->width - j, VEC), x->depth);
    const float *b = p->b + x->k * p->ldb + x->column;
    for (int64_t k = 0; k < x->depth && !p->trans_b; k++, b += p->ldb)
        for (int64_t j = 0; j < x->width; j += VEC)
            vec_store(x->b + (j / TILE_COLUMNS * x->depth + k) * TILE_COLUMNS + j % TILE_COLUMNS,
                      vec_load_n(b + j, (int)smaller(x->width - j, VEC)));
}

/* The block of B behind this one. */
static ahead block_ahead(const block *x) {
    const sluice__product *p = x->p;
    streamed b = {.data = p->b, .size = sizeof(float), .stride = p->ldb, .k = p->k, .n = p->n, .trans = p->trans_b};
    return ahead_of(&b, x->column + x->width, x->k, x->depth, BLOCK_COLUMNS);
}

static int columns(int64_t n) { return n >= VEC ? VEC : n <= 0 ? 0 : (int)n; }

static void multiply(const block *x) {
    const sluice__product *p = x->p;
    ahead next = block_ahead(x);
    for (int64_t i = 0; i < x->panels; i++) {
        int64_t begin = panel_begin(x, i), rows = panel_begin(x, i + 1) - begin;
        for (int64_t j = 0; j < x->width; j += TILE_COLUMNS) {
            tile_call t = {.a = x->a + begin * x->depth,
                           .b = x->b + j * x->depth,
                           .depth = x->depth,
                           .c = p->c + (x->row + begin) * p->ldc + x->column + j,
                           .stride = p->ldc,
                           .left = columns(x->width - j),
                           .right = columns(x->width - j - VEC),
                           .add = x->k > 0 || p->accumulate,
                           .next = &next};
            tiles[rows - 1][t.right > 0](&t);
        }
    }
}

void VEC_KERNEL(gemm_wide_f32)(const sluice__product *p, float *scratch) {
    block x = {.p = p, .a = scratch + BLOCK_COLUMNS * DEPTH, .b = scratch};
    int64_t height = part_of(p->m, BLOCK_ROWS, 1), depth = part_of(p->k, DEPTH, VEC);
    for (x.row = 0; x.row < p->m; x.row += height) {
        x.height = smaller(p->m - x.row, height);
        x.panels = (x.height + HIGH - 1) / HIGH;
        for (x.k = 0; x.k < p->k; x.k += depth) {
            x.depth = smaller(p->k - x.k, depth);
            pack_a(&x);
            for (x.column = 0; x.column < p->n; x.column += BLOCK_COLUMNS) {
                x.width = smaller(p->n - x.column, BLOCK_COLUMNS);
                pack_b(&x);
                multiply(&x);
            }
        }
    }
}
