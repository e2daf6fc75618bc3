/* SPDX-License-Identifier: Apache-2.0 */
/* Small matrix products inside attention, written in the words of x86/tile_<isa>.h (to be included
 * first): outer products kept in registers, TILE_ROWS rows by 2 vectors (Goto & van de Geijn 2008,
 * without packing: operands are tiles that lie in the cache already). A library GEMM would cost
 * more in its call than a 64 x 64 x 32 product takes.
 *
 *   C[m, n] = start(C) + sum_k A[m, k] B[k, n]      n a multiple of VEC; rows of B and C contiguous
 *
 * Where a float holds more than one number (tile_floats.h), m, n and k count floats.
 * tile_gemm_rows reads A[m, k] at a[m * lda + k], tile_gemm_columns at a[k * lda + m]. */
#ifndef SLUICE_KERNELS_SIMD_TILE_GEMM_H
#define SLUICE_KERNELS_SIMD_TILE_GEMM_H
#ifndef TILE_NUMBERS
#include "kernels/simd/tile_floats.h"
#endif
#include <stddef.h>
#include <stdint.h>

/* Lines of n numbers along the sum, and the one with number n. */
VEC_INLINE int64_t tile_lines(int64_t n) {
    return (n + TILE_NUMBERS - 1) / TILE_NUMBERS;
}
VEC_INLINE int64_t tile_line_at(int64_t n) {
    return n / TILE_NUMBERS;
}

#if defined(__clang__)
#define TILE_UNROLL _Pragma("clang loop unroll(full)")
#else
#define TILE_UNROLL _Pragma("GCC unroll 16")
#endif

typedef enum tile_start {
    TILE_ZERO,  /* C is only written */
    TILE_ADD,   /* C */
    TILE_SCALE, /* C[m, n] * scale[n] */
} tile_start;

typedef struct tile_target {
    float *c;
    int64_t ldc;
    tile_start start;
    const float *scale;
} tile_target;

/* One block of registers; rows, vecs and one of the strides of A are constants at every call. The
 * sum over k is formed apart and meets C at the end: added to a large C one by one, small terms
 * would vanish. */
VEC_INLINE void tile_block(const int rows, const int vecs, int64_t k, const float *a, int64_t a_row,
                           int64_t a_k, const float *b, int64_t ldb, const tile_target *t) {
    vec acc[TILE_ROWS][2];
    TILE_UNROLL
    for (int r = 0; r < rows; r++) {
        TILE_UNROLL
        for (int v = 0; v < vecs; v++) acc[r][v] = vec_zero();
    }
    for (int64_t i = 0; i < k; i++) {
        vec bv[2];
        TILE_UNROLL
        for (int v = 0; v < vecs; v++) bv[v] = vec_load(b + i * ldb + v * VEC);
        TILE_UNROLL
        for (int r = 0; r < rows; r++) {
            vec ar = vec_set(a[r * a_row + i * a_k]);
            TILE_UNROLL
            for (int v = 0; v < vecs; v++) acc[r][v] = tile_multiply_add(ar, bv[v], acc[r][v]);
        }
    }
    TILE_UNROLL
    for (int v = 0; v < vecs; v++) {
        vec scale = t->start == TILE_SCALE ? vec_load(t->scale + v * VEC) : vec_set(1.0f);
        TILE_UNROLL
        for (int r = 0; r < rows; r++) {
            float *c = t->c + r * t->ldc + v * VEC;
            if (t->start != TILE_ZERO) acc[r][v] = vec_fma(vec_load(c), scale, acc[r][v]);
            vec_store(c, acc[r][v]);
        }
    }
}

typedef void tile_block_fn(int64_t k, const float *a, int64_t lda, const float *b, int64_t ldb,
                           const tile_target *t);

#define TILE_BLOCKS(rows)                                                                          \
    static void tile_rows_##rows##_1(int64_t k, const float *a, int64_t lda, const float *b,       \
                                     int64_t ldb, const tile_target *t) {                          \
        tile_block(rows, 1, k, a, lda, 1, b, ldb, t);                                              \
    }                                                                                              \
    static void tile_rows_##rows##_2(int64_t k, const float *a, int64_t lda, const float *b,       \
                                     int64_t ldb, const tile_target *t) {                          \
        tile_block(rows, 2, k, a, lda, 1, b, ldb, t);                                              \
    }                                                                                              \
    static void tile_columns_##rows##_1(int64_t k, const float *a, int64_t lda, const float *b,    \
                                        int64_t ldb, const tile_target *t) {                       \
        tile_block(rows, 1, k, a, 1, lda, b, ldb, t);                                              \
    }                                                                                              \
    static void tile_columns_##rows##_2(int64_t k, const float *a, int64_t lda, const float *b,    \
                                        int64_t ldb, const tile_target *t) {                       \
        tile_block(rows, 2, k, a, 1, lda, b, ldb, t);                                              \
    }
TILE_BLOCKS(1)
TILE_BLOCKS(2)
TILE_BLOCKS(3)
TILE_BLOCKS(4)
TILE_BLOCKS(5)
TILE_BLOCKS(6)
#define TILE_PAIR(kind, rows)                                                                      \
    { tile_##kind##_##rows##_1, tile_##kind##_##rows##_2 }
#define TILE_SIX(kind)                                                                             \
    TILE_PAIR(kind, 1), TILE_PAIR(kind, 2), TILE_PAIR(kind, 3), TILE_PAIR(kind, 4),                \
        TILE_PAIR(kind, 5), TILE_PAIR(kind, 6)
#if defined(__AVX512F__)
TILE_BLOCKS(7)
TILE_BLOCKS(8)
static tile_block_fn *const tile_rows[TILE_ROWS][2] = {TILE_SIX(rows), TILE_PAIR(rows, 7),
                                                       TILE_PAIR(rows, 8)};
static tile_block_fn *const tile_columns[TILE_ROWS][2] = {TILE_SIX(columns), TILE_PAIR(columns, 7),
                                                          TILE_PAIR(columns, 8)};
#else
static tile_block_fn *const tile_rows[TILE_ROWS][2] = {TILE_SIX(rows)};
static tile_block_fn *const tile_columns[TILE_ROWS][2] = {TILE_SIX(columns)};
#endif

/* a_row: distance in A of two rows of C. */
static void tile_gemm(tile_block_fn *const blocks[TILE_ROWS][2], int64_t m, int64_t n, int64_t k,
                      const float *a, int64_t a_row, int64_t lda, const float *b, int64_t ldb,
                      tile_target to) {
    for (int64_t column = 0; column < n; column += 2 * VEC) {
        int wide = n - column > VEC;
        tile_target t = to;
        t.scale = to.scale ? to.scale + column : NULL;
        for (int64_t row = 0; row < m; row += TILE_ROWS) {
            int64_t rows = m - row < TILE_ROWS ? m - row : TILE_ROWS;
            t.c = to.c + row * to.ldc + column;
            blocks[rows - 1][wide](k, a + row * a_row, lda, b + column, ldb, &t);
        }
    }
}

static __attribute__((unused)) void tile_gemm_rows(int64_t m, int64_t n, int64_t k, const float *a,
                                                   int64_t lda, const float *b, int64_t ldb,
                                                   tile_target to) {
    tile_gemm(tile_rows, m, n, k, a, lda, lda, b, ldb, to);
}

static __attribute__((unused)) void tile_gemm_columns(int64_t m, int64_t n, int64_t k,
                                                      const float *a, int64_t lda, const float *b,
                                                      int64_t ldb, tile_target to) {
    tile_gemm(tile_columns, m, n, k, a, 1, lda, b, ldb, to);
}
#endif
