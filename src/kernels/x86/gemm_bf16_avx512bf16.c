/* SPDX-License-Identifier: Apache-2.0 */
/* Products of bf16 matrices with VDPBF16PS, which adds two products of bf16 pairs to a float. Both operands are packed, block
 * by block, into panels of pairs along k, and rounded on the way when they are floats:
 *   A  panels of up to 14 rows:     [panel][k/2][rows of the panel][2]
 *   B  panels of 32 columns:        [panel][k/2][32][2]
 * A tile of 14 x 32 sums stays in 28 registers; its panel of A in the first cache, the block of B in the second (Goto and
 * van de Geijn 2008). Weights are packed at each use: that reads them as often as a copy made once per step would be read
 * and written (docs/speed-log.md). Where all rows of A fit into one block, B is read once, and is the larger one: then its
 * blocks are narrow, and the next one comes from memory while one is multiplied. */
#include "kernels/kernels.h"
#include "kernels/x86/vec_avx512.h"
#include "kernels/simd/ahead.h"

enum { TILE_ROWS = 14, TILE_COLUMNS = 32, LANES = 16 };
enum { DEPTH = 512, BLOCK_ROWS = 1024, BLOCK_COLUMNS = 512, NARROW = 64, STRIP = 16, FETCH_EVERY = 4 /* pairs */ };
_Static_assert((BLOCK_ROWS + BLOCK_COLUMNS) * DEPTH / 2 <= SLUICE__BF16_SCRATCH, "blocks fit into the scratch");

#define INLINE static inline __attribute__((always_inline))

INLINE __mmask16 lanes(int64_t n) { return n >= LANES ? 0xffff : n <= 0 ? 0 : (__mmask16)((1u << n) - 1); }
INLINE __mmask32 lanes32(int64_t n) { return n >= 32 ? 0xffffffffu : n <= 0 ? 0 : (1u << n) - 1; }

/* Elements 0..n-1 of x as bf16, zeros behind; n up to 32. */
INLINE __m512i load_row(const void *x, int64_t at, int64_t n, bool half) {
    if (half) return _mm512_maskz_loadu_epi16(lanes32(n), (const sluice__bf16 *)x + at);
    const float *f = (const float *)x + at;
    __m512 low = _mm512_maskz_loadu_ps(lanes(n), f), high = _mm512_maskz_loadu_ps(lanes(n - LANES), f + LANES);
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

/* r[i] lane j <-> r[j] lane i, of 32-bit lanes. */
INLINE void transpose(__m512i r[LANES]) {
    __m512i t[LANES];
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
        r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
        r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
    }
}

/* A panel of `width` <= 16 rows of x, k along the row: to[k/2][stride] pairs, of which `room` are written. */
INLINE void pack_rows(int32_t *to, int64_t stride, const void *x, int64_t row, int64_t ld, int64_t at, int width, int64_t k,
                      int room, bool half) {
    __m512i r[LANES];
    for (int64_t j = 0; j < k; j += 2 * LANES) {
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++)
            r[i] = i < width ? load_row(x, (row + i) * ld + at + j, k - j, half) : _mm512_setzero_si512();
        transpose(r);
        int64_t pairs = (k - j + 1) / 2;
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++)
            if (i < pairs) _mm512_mask_storeu_epi32(to + (j / 2 + i) * stride, lanes(room), r[i]);
    }
}

/* A panel of `width` <= 16 columns of x, k down the rows. */
INLINE void pack_columns(int32_t *to, int64_t stride, const void *x, int64_t row, int64_t ld, int64_t at, int width,
                         int64_t k, int room, bool half) {
    const __m512i interleave = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21,
                                                5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    for (int64_t j = 0; j < k; j += 2) {
        int64_t first = (row + j) * ld + at, second = first + ld;
        int next = j + 1 < k ? width : 0;
        __m512i both;
        if (half) {
            const sluice__bf16 *h = x;
            __m256i low = _mm256_maskz_loadu_epi16(lanes(width), h + first),
                    high = _mm256_maskz_loadu_epi16(lanes(next), h + (next ? second : first));
            both = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
        } else {
            const float *f = x;
            __m512 low = _mm512_maskz_loadu_ps(lanes(width), f + first),
                   high = _mm512_maskz_loadu_ps(lanes(next), f + (next ? second : first));
            both = (__m512i)_mm512_cvtne2ps_pbh(high, low);
        }
        _mm512_mask_storeu_epi32(to + j / 2 * stride, lanes(room), _mm512_permutexvar_epi16(interleave, both));
    }
}

/* `width` lanes of op(x) from lane `lane` on, k from `at` on. `across`: lanes are rows of x. */
static void pack(int32_t *to, int64_t stride, const sluice__rounded *x, bool across, int64_t lane, int64_t at, int width,
                 int64_t k, int room) {
    if (across && x->half) pack_rows(to, stride, x->data, lane, x->stride, at, width, k, room, true);
    else if (across) pack_rows(to, stride, x->data, lane, x->stride, at, width, k, room, false);
    else if (x->half) pack_columns(to, stride, x->data, at, x->stride, lane, width, k, room, true);
    else pack_columns(to, stride, x->data, at, x->stride, lane, width, k, room, false);
}

/* c [rows, 32] (+)= panel of A times panel of B over `pairs` pairs. The lines of c arrive during the loop. */
INLINE void tile(int rows, const int32_t *a, const int32_t *b, int64_t pairs, float *c, int64_t ldc, __mmask16 left,
                 __mmask16 right, bool add, ahead *later) {
    ahead next = *later;
    __m512 sum[TILE_ROWS][2];
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++) {
        sum[i][0] = sum[i][1] = _mm512_setzero_ps();
        _mm_prefetch((const char *)(c + i * ldc), _MM_HINT_T0);
        _mm_prefetch((const char *)(c + i * ldc + LANES), _MM_HINT_T0);
    }
    for (int64_t p = 0; p < pairs; p++, a += rows, b += TILE_COLUMNS) {
        if (p % FETCH_EVERY == FETCH_EVERY - 1) fetch(&next);
        __m512bh b0 = (__m512bh)_mm512_loadu_si512(b), b1 = (__m512bh)_mm512_loadu_si512(b + LANES);
#pragma GCC unroll 14
        for (int i = 0; i < rows; i++) {
            __m512bh x = (__m512bh)_mm512_set1_epi32(a[i]);
            sum[i][0] = _mm512_dpbf16_ps(sum[i][0], x, b0);
            sum[i][1] = _mm512_dpbf16_ps(sum[i][1], x, b1);
        }
    }
    *later = next;
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++, c += ldc) {
        if (add) {
            sum[i][0] = _mm512_add_ps(sum[i][0], _mm512_maskz_loadu_ps(left, c));
            sum[i][1] = _mm512_add_ps(sum[i][1], _mm512_maskz_loadu_ps(right, c + LANES));
        }
        _mm512_mask_storeu_ps(c, left, sum[i][0]);
        _mm512_mask_storeu_ps(c + LANES, right, sum[i][1]);
    }
}

#define TILE(rows)                                                                                                     \
    static void tile_##rows(const int32_t *a, const int32_t *b, int64_t pairs, float *c, int64_t ldc, __mmask16 left, \
                            __mmask16 right, bool add, ahead *later) {                                                \
        tile(rows, a, b, pairs, c, ldc, left, right, add, later);                                                     \
    }
TILE(1) TILE(2) TILE(3) TILE(4) TILE(5) TILE(6) TILE(7) TILE(8) TILE(9) TILE(10) TILE(11) TILE(12) TILE(13) TILE(14)

typedef void tile_of_rows(const int32_t *, const int32_t *, int64_t, float *, int64_t, __mmask16, __mmask16, bool, ahead *);
static tile_of_rows *const tiles[TILE_ROWS] = {tile_1, tile_2, tile_3,  tile_4,  tile_5,  tile_6,  tile_7,
                                               tile_8, tile_9, tile_10, tile_11, tile_12, tile_13, tile_14};

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

typedef struct block {
    int64_t row, rows, column, columns, depth, at; /* of C, and along k: `depth` from `at` on */
    int64_t width;                                 /* most columns of a block */
    int64_t pairs, panels;                         /* panels of A, nearly equal */
} block;

/* First row of panel i. */
INLINE int64_t panel_begin(const block *s, int64_t i) { return s->rows * i / s->panels; }

/* A matrix that is read down its columns is packed in strips along k, which keep few pages and lines in use. */
static int64_t strip_of(const block *s, bool down) { return down ? STRIP : s->depth; }

static void pack_a(const sluice__bf16_product *p, const block *s, int32_t *to) {
    int64_t strip = strip_of(s, p->trans_a);
    for (int64_t k = 0; k < s->depth; k += strip) {
        int64_t depth = smaller(s->depth - k, strip);
        for (int64_t i = 0; i < s->panels; i++) {
            int64_t begin = panel_begin(s, i);
            int rows = (int)(panel_begin(s, i + 1) - begin);
            pack(to + begin * s->pairs + k / 2 * rows, rows, &p->a, !p->trans_a, s->row + begin, s->at + k, rows, depth, rows);
        }
    }
}

static void pack_b(const sluice__bf16_product *p, const block *s, int32_t *to) {
    int64_t strip = strip_of(s, !p->trans_b);
    for (int64_t k = 0; k < s->depth; k += strip) {
        int64_t depth = smaller(s->depth - k, strip);
        for (int64_t j = 0; j < s->columns; j += LANES) {
            int width = (int)smaller(s->columns - j, LANES);
            int32_t *panel = to + j / TILE_COLUMNS * TILE_COLUMNS * s->pairs + j % TILE_COLUMNS;
            pack(panel + k / 2 * TILE_COLUMNS, TILE_COLUMNS, &p->b, p->trans_b, s->column + j, s->at + k, width, depth,
                 LANES);
        }
    }
}

/* The block of B behind this one. */
static ahead block_ahead(const sluice__bf16_product *p, const block *s) {
    streamed b = {.data = p->b.data, .size = p->b.half ? 2 : 4, .stride = p->b.stride, .k = p->k, .n = p->n, .trans = p->trans_b};
    return ahead_of(&b, s->column + s->columns, s->at, s->depth, s->width);
}

static void multiply(const sluice__bf16_product *p, const block *s, const int32_t *a, const int32_t *b) {
    bool add = p->accumulate || s->at > 0;
    ahead next = s->width == NARROW ? block_ahead(p, s) : (ahead){0};
    for (int64_t i = 0; i < s->panels; i++) {
        int64_t begin = panel_begin(s, i), rows = panel_begin(s, i + 1) - begin;
        float *c = p->c + (s->row + begin) * p->ldc + s->column;
        for (int64_t j = 0; j < s->columns; j += TILE_COLUMNS)
            tiles[rows - 1](a + begin * s->pairs, b + j * s->pairs, s->pairs, c + j, p->ldc, lanes(s->columns - j),
                            lanes(s->columns - j - LANES), add, &next);
    }
}

void sluice_gemm_bf16_avx512bf16(const sluice__bf16_product *p, float *scratch) {
    int32_t *b = (int32_t *)(void *)scratch, *a = b + BLOCK_COLUMNS * DEPTH / 2;
    for (int64_t row = 0; row < p->m; row += BLOCK_ROWS) {
        for (int64_t at = 0; at < p->k; at += DEPTH) {
            block s = {.row = row, .rows = smaller(p->m - row, BLOCK_ROWS), .at = at, .depth = smaller(p->k - at, DEPTH)};
            s.width = p->m <= BLOCK_ROWS ? NARROW : BLOCK_COLUMNS;
            s.pairs = (s.depth + 1) / 2;
            s.panels = (s.rows + TILE_ROWS - 1) / TILE_ROWS;
            pack_a(p, &s, a);
            for (s.column = 0; s.column < p->n; s.column += s.width) {
                s.columns = smaller(p->n - s.column, s.width);
                pack_b(p, &s, b);
                multiply(p, &s, a, b);
            }
        }
    }
}
