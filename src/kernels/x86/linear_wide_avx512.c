/* SPDX-License-Identifier: Apache-2.0 */
/* y = x W^T for many rows. Rows of x and W are transposed, block by block, into panels along k:
 *   x  panels of up to 14 rows:      [panel][k][rows of the panel]
 *   W  panels of 32 of its rows:     [panel][k][32]
 * A tile of 14 x 32 sums stays in 28 registers (Goto and van de Geijn 2008). W is long and read once: while a block of it is
 * multiplied, the next one is fetched into the second cache, a line every other step of k, so that packing it does not wait
 * for memory. That is what makes this faster than dnnl_sgemm on this kind of product (docs/speed-log.md); on the other two
 * it is not. */
#include "kernels/kernels.h"
#include "kernels/x86/tile_avx512.h"

enum { HIGH = 14, TILE_COLUMNS = 2 * VEC }; /* sums of a tile */
enum { DEPTH = 768, BLOCK_ROWS = 1024, BLOCK_COLUMNS = 64, LINE = 64 };
_Static_assert((BLOCK_ROWS + BLOCK_COLUMNS) * DEPTH + VEC <= SLUICE__WIDE_SCRATCH, "blocks fit into the scratch");

/* Lines of memory that will be wanted soon: `rows` pieces of `lines`, `skip` bytes between them. */
typedef struct ahead {
    const char *at;
    int64_t left, lines, skip, rows; /* left: of the piece at `at` */
} ahead;

VEC_INLINE void fetch(ahead *f) {
    if (f->rows <= 0) return;
    _mm_prefetch(f->at, _MM_HINT_T1);
    f->at += LINE;
    if (--f->left) return;
    f->at += f->skip;
    f->left = f->lines;
    f->rows--;
}

typedef struct tile_call {
    const float *a, *b; /* panels */
    int64_t depth;
    float *c;
    int64_t stride;
    __mmask16 left, right; /* columns that exist */
    bool add;
    ahead *next;
} tile_call;

/* c [rows, 16 * vectors] (+)= panel of x times panel of W. The lines of c arrive during the loop. */
VEC_INLINE void tile(const tile_call *t, int rows, int vectors) {
    __m512 sum[HIGH][2];
    const float *a = t->a, *b = t->b;
    float *c = t->c;
    ahead next = *t->next;
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++) {
        sum[i][0] = sum[i][1] = _mm512_setzero_ps();
        _mm_prefetch((const char *)(c + i * t->stride), _MM_HINT_T0);
        _mm_prefetch((const char *)(c + i * t->stride + VEC), _MM_HINT_T0);
    }
    for (int64_t k = 0; k < t->depth; k++, a += rows, b += TILE_COLUMNS) {
        __m512 b0 = _mm512_load_ps(b), b1 = vectors > 1 ? _mm512_load_ps(b + VEC) : b0;
        if (k & 1) fetch(&next);
#pragma GCC unroll 14
        for (int i = 0; i < rows; i++) {
            __m512 x = _mm512_set1_ps(a[i]);
            sum[i][0] = _mm512_fmadd_ps(x, b0, sum[i][0]);
            if (vectors > 1) sum[i][1] = _mm512_fmadd_ps(x, b1, sum[i][1]);
        }
    }
    *t->next = next;
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++, c += t->stride) {
        if (t->add) sum[i][0] = _mm512_add_ps(sum[i][0], _mm512_maskz_loadu_ps(t->left, c));
        _mm512_mask_storeu_ps(c, t->left, sum[i][0]);
        if (vectors == 1) continue;
        if (t->add) sum[i][1] = _mm512_add_ps(sum[i][1], _mm512_maskz_loadu_ps(t->right, c + VEC));
        _mm512_mask_storeu_ps(c + VEC, t->right, sum[i][1]);
    }
}

#define TILE(rows)                                                                                                         \
    static void tile_##rows(const tile_call *t) { tile(t, rows, 2); }                                                      \
    static void narrow_##rows(const tile_call *t) { tile(t, rows, 1); }
TILE(1) TILE(2) TILE(3) TILE(4) TILE(5) TILE(6) TILE(7) TILE(8) TILE(9) TILE(10) TILE(11) TILE(12) TILE(13) TILE(14)

typedef void tile_of_rows(const tile_call *);
#define BOTH(rows) {narrow_##rows, tile_##rows}
static tile_of_rows *const tiles[HIGH][2] = {BOTH(1), BOTH(2), BOTH(3),  BOTH(4),  BOTH(5),  BOTH(6),  BOTH(7),
                                                  BOTH(8), BOTH(9), BOTH(10), BOTH(11), BOTH(12), BOTH(13), BOTH(14)};

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* Nearly equal parts of at most `most`, a multiple of `unit`: the size of one. */
static int64_t part_of(int64_t count, int64_t most, int64_t unit) {
    int64_t parts = (count + most - 1) / most, size = (count + parts - 1) / parts;
    return (size + unit - 1) / unit * unit;
}

/* to[k * stride + i] = x[i * ld + k] for i < 16; rows from `width` on repeat the last one. Whole vectors are stored: where
 * the stride is smaller, the next store overwrites what was too much. */
static void pack(float *to, int64_t stride, const float *x, int64_t ld, int64_t width, int64_t depth) {
    vec r[VEC];
    const float *row[VEC];
    for (int i = 0; i < VEC; i++) row[i] = x + smaller(i, width - 1) * ld;
    int64_t k = 0;
    for (; k + VEC <= depth; k += VEC) {
        for (int i = 0; i < VEC; i++) r[i] = _mm512_loadu_ps(row[i] + k);
        vec_transpose(r);
        for (int i = 0; i < VEC; i++) _mm512_storeu_ps(to + (k + i) * stride, r[i]);
    }
    if (k == depth) return;
    __mmask16 rest = (__mmask16)((1u << (depth - k)) - 1);
    for (int i = 0; i < VEC; i++) r[i] = _mm512_maskz_loadu_ps(rest, row[i] + k);
    vec_transpose(r);
    for (int i = 0; i < depth - k; i++) _mm512_storeu_ps(to + (k + i) * stride, r[i]);
}

typedef struct product {
    float *y;
    const float *x, *w;
    int64_t y_stride, x_stride, rows, out, in;
    int64_t row, height, column, width, k, depth; /* the block: of y, and along k */
    int64_t panels;                               /* of x, nearly equal */
    float *a, *b;
} product;

static int64_t panel_begin(const product *p, int64_t i) { return p->height * i / p->panels; }

static void pack_x(const product *p) {
    for (int64_t i = 0; i < p->panels; i++) {
        int64_t begin = panel_begin(p, i), rows = panel_begin(p, i + 1) - begin;
        pack(p->a + begin * p->depth, rows, p->x + (p->row + begin) * p->x_stride + p->k, p->x_stride, rows, p->depth);
    }
}

static void pack_w(const product *p) {
    for (int64_t j = 0; j < p->width; j += VEC)
        pack(p->b + j / TILE_COLUMNS * TILE_COLUMNS * p->depth + j % TILE_COLUMNS, TILE_COLUMNS,
             p->w + (p->column + j) * p->in + p->k, p->in, smaller(p->width - j, VEC), p->depth);
}

/* The block of W behind this one; behind the last, the first one further along k. */
static ahead block_ahead(const product *p) {
    int64_t column = p->column + p->width, k = p->k, depth = p->depth;
    if (column == p->out) {
        column = 0;
        k += depth;
        depth = smaller(p->in - k, depth);
    }
    int64_t lines = (depth * (int64_t)sizeof(float) + LINE - 1) / LINE;
    return (ahead){.at = (const char *)(p->w + column * p->in + k), .left = lines, .lines = lines,
                   .skip = p->in * (int64_t)sizeof(float) - lines * LINE,
                   .rows = lines > 0 ? smaller(p->out - column, BLOCK_COLUMNS) : 0};
}

static __mmask16 columns(int64_t n) { return n >= VEC ? 0xffff : n <= 0 ? 0 : (__mmask16)((1u << n) - 1); }

static void multiply(const product *p) {
    ahead next = block_ahead(p);
    for (int64_t i = 0; i < p->panels; i++) {
        int64_t begin = panel_begin(p, i), rows = panel_begin(p, i + 1) - begin;
        for (int64_t j = 0; j < p->width; j += TILE_COLUMNS) {
            tile_call t = {.a = p->a + begin * p->depth,
                           .b = p->b + j * p->depth,
                           .depth = p->depth,
                           .c = p->y + (p->row + begin) * p->y_stride + p->column + j,
                           .stride = p->y_stride,
                           .left = columns(p->width - j),
                           .right = columns(p->width - j - VEC),
                           .add = p->k > 0,
                           .next = &next};
            tiles[rows - 1][t.right != 0](&t);
        }
    }
}

void sluice_linear_wide_f32_avx512(float *y, int64_t y_stride, const float *x, int64_t x_stride, const float *w,
                                   int64_t rows, int64_t out, int64_t in, float *scratch) {
    product p = {.y = y, .x = x, .w = w, .y_stride = y_stride, .x_stride = x_stride, .rows = rows, .out = out, .in = in,
                 .a = scratch + BLOCK_COLUMNS * DEPTH, .b = scratch};
    int64_t height = part_of(rows, BLOCK_ROWS, 1), depth = part_of(in, DEPTH, VEC);
    for (p.row = 0; p.row < rows; p.row += height) {
        p.height = smaller(rows - p.row, height);
        p.panels = (p.height + HIGH - 1) / HIGH;
        for (p.k = 0; p.k < in; p.k += depth) {
            p.depth = smaller(in - p.k, depth);
            pack_x(&p);
            for (p.column = 0; p.column < out; p.column += BLOCK_COLUMNS) {
                p.width = smaller(out - p.column, BLOCK_COLUMNS);
                pack_w(&p);
                multiply(&p);
            }
        }
    }
}
