/* SPDX-License-Identifier: Apache-2.0 */
/* y = x W^T for a few rows of bf16 with VDPBF16PS, straight on rows of W: a lane sums pairs along the row, lanes are added at
 * the end, nothing is packed. One row of x is bound by memory and reads W in the order in which it lies, asking for it a little
 * ahead, because the processor's own prefetching starts anew in every page. More rows take
 * four outputs at a time, and W comes by prefetches into the second-level cache far ahead of its use: four streams of one
 * row each are too short for the processor to find, and fetching into the first cache stops for lack of fill buffers
 * (docs/speed-log.md: 8 rows 8 GB/s without, 11 into the first cache, 19 into the second, a reader 19). */
#include "kernels/kernels.h"
#include <immintrin.h>

enum { PAIRS = 16, STEP = 2 * PAIRS, OUTPUTS = 4, LINE = 64, AHEAD = 16384, AHEAD_ONE = 1024 /* bytes */ };

#define INLINE static inline __attribute__((always_inline))

/* Elements 0..n-1 of p as pairs, zeros behind. */
INLINE __m512bh load(const sluice__bf16 *p, int64_t n) {
    if (n >= STEP) return (__m512bh)_mm512_loadu_si512(p);
    return (__m512bh)_mm512_maskz_loadu_epi16((1u << n) - 1, p);
}

INLINE __m256 fold(__m512 v) { return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1)); }

/* y[0..3] = sums of a, b, c, d. */
INLINE void store_sums(float *y, __m512 a, __m512 b, __m512 c, __m512 d) {
    __m256 t = _mm256_hadd_ps(_mm256_hadd_ps(fold(a), fold(b)), _mm256_hadd_ps(fold(c), fold(d)));
    _mm_storeu_ps(y, _mm_add_ps(_mm256_castps256_ps128(t), _mm256_extractf128_ps(t, 1)));
}

/* Four sums hide the latency of the addition. */
static float dot(const sluice__bf16 *x, const sluice__bf16 *w, int64_t in) {
    __m512 sum[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) sum[j] = _mm512_setzero_ps();
    const char *next = (const char *)w + AHEAD_ONE;
    int64_t i = 0;
    for (; i + 4 * STEP <= in; i += 4 * STEP, next += 4 * LINE) {
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            _mm_prefetch(next + j * LINE, _MM_HINT_T1);
            sum[j] = _mm512_dpbf16_ps(sum[j], load(x + i + j * STEP, STEP), load(w + i + j * STEP, STEP));
        }
    }
    for (; i < in; i += STEP) sum[0] = _mm512_dpbf16_ps(sum[0], load(x + i, in - i), load(w + i, in - i));
    return _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(sum[0], sum[1]), _mm512_add_ps(sum[2], sum[3])));
}

/* sum += n elements of `rows` rows of x times those of `outputs` rows of W. */
INLINE void step(__m512 sum[8][OUTPUTS], const sluice__bf16 *x, int64_t x_stride, const sluice__bf16 *w, int64_t in,
                 int64_t n, int rows, int outputs) {
    __m512bh v[OUTPUTS];
#pragma GCC unroll 4
    for (int o = 0; o < outputs; o++) v[o] = load(w + o * in, n);
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
        __m512bh u = load(x + r * x_stride, n);
#pragma GCC unroll 4
        for (int o = 0; o < outputs; o++) sum[r][o] = _mm512_dpbf16_ps(sum[r][o], u, v[o]);
    }
}

/* y [rows, outputs]; rows and outputs are constants after inlining.   fetch: whether to ask for later rows of W. */
INLINE void block(float *y, int64_t y_stride, const sluice__bf16 *x, int64_t x_stride, const sluice__bf16 *w, int64_t in,
                  int rows, int outputs, bool fetch) {
    __m512 sum[8][OUTPUTS];
    const char *next = (const char *)w + AHEAD;
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int o = 0; o < OUTPUTS; o++) sum[r][o] = _mm512_setzero_ps();
    int64_t i = 0;
    for (; i + STEP <= in; i += STEP, next += outputs * LINE) {
#pragma GCC unroll 4
        for (int o = 0; o < outputs; o++)
            if (fetch) _mm_prefetch(next + o * LINE, _MM_HINT_T1);
        step(sum, x + i, x_stride, w + i, in, STEP, rows, outputs);
    }
    if (i < in) step(sum, x + i, x_stride, w + i, in, in - i, rows, outputs);
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++, y += y_stride) {
        float all[OUTPUTS];
        store_sums(all, sum[r][0], sum[r][1], sum[r][2], sum[r][3]);
#pragma GCC unroll 4
        for (int o = 0; o < outputs; o++) y[o] = all[o];
    }
}

/* Four outputs of all rows: registers hold the sums of 8 rows x 2 outputs, or of 4, 2, 1 x 4. */
static void four(float *y, int64_t y_stride, const sluice__bf16 *x, int64_t x_stride, const sluice__bf16 *w, int64_t rows,
                 int64_t in) {
    int64_t r = 0;
    if (rows >= 8) {
        block(y, y_stride, x, x_stride, w, in, 8, 2, true);
        block(y + 2, y_stride, x, x_stride, w + 2 * in, in, 8, 2, true);
        for (r = 8; r + 8 <= rows; r += 8) {
            block(y + r * y_stride, y_stride, x + r * x_stride, x_stride, w, in, 8, 2, false);
            block(y + r * y_stride + 2, y_stride, x + r * x_stride, x_stride, w + 2 * in, in, 8, 2, false);
        }
    }
    if (rows - r >= 4) {
        block(y + r * y_stride, y_stride, x + r * x_stride, x_stride, w, in, 4, OUTPUTS, true);
        r += 4;
    }
    if (rows - r >= 2) {
        block(y + r * y_stride, y_stride, x + r * x_stride, x_stride, w, in, 2, OUTPUTS, true);
        r += 2;
    }
    if (r < rows) block(y + r * y_stride, y_stride, x + r * x_stride, x_stride, w, in, 1, OUTPUTS, true);
}

void sluice_linear_pairs_bf16_avx512bf16(float *y, int64_t y_stride, const sluice__bf16 *x, int64_t x_stride,
                                         const sluice__bf16 *w, int64_t rows, int64_t out, int64_t in) {
    int64_t o = 0;
    for (; rows > 1 && o + OUTPUTS <= out; o += OUTPUTS) four(y + o, y_stride, x, x_stride, w + o * in, rows, in);
    for (; o < out; o++)
        for (int64_t r = 0; r < rows; r++) y[r * y_stride + o] = dot(x + r * x_stride, w + o * in, in);
}
