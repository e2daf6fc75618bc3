/* SPDX-License-Identifier: Apache-2.0 */
/* y = x W^T for a few rows of x: body for one vec_<isa>.h. A general product packs W first, which costs as much as
 * reading it; here each row of W is read once, straight into multiply-adds. One row of x: bound by memory, so W is
 * read in the order it lies in, which the prefetcher likes best, with a little help at the ends of pages. More rows: blocks of
 * THIN_ROWS rows by four outputs, where a load of W serves several rows and a load of x four outputs; bound by arithmetic from
 * about eight rows on. 16-bit weights are widened as they are loaded; `kind` is a constant after inlining. */
#include "kernels/kernels.h"

/* Accumulators must leave registers for operands: 16 of 32, or 8 of 16. */
enum { THIN_ROWS = VEC == 16 ? 4 : 2 };
/* Bytes ahead of their use from which W is asked for into the second-level cache, for several rows of x and for one, and
 * those that arrive at once. */
enum { THIN_AHEAD = 16384, THIN_AHEAD_ONE = 512, THIN_LINE = 64 };

/* One row of x keeps up better with memory in registers of 256 bits, floats and 16-bit floats (docs/speed-log.md). */
enum { HALF_VECTORS = VEC == 16 };

typedef enum thin_kind { THIN_F32, THIN_F16, THIN_BF16 } thin_kind;

/* Elements at..at+n-1 of a row of W. */
VEC_INLINE vec thin_load(const void *w, int64_t at, int n, thin_kind kind) {
    if (kind == THIN_F32) return vec_load_n((const float *)w + at, n);
    const uint16_t *half = (const uint16_t *)w + at;
    return kind == THIN_F16 ? vec_load_f16_n(half, n) : vec_load_bf16_n(half, n);
}

VEC_INLINE const void *thin_row(const void *w, int64_t row, int64_t in, thin_kind kind) {
    return (const char *)w + row * in * (kind == THIN_F32 ? 4 : 2);
}

/* Four accumulators hide the latency of the addition. The processor's own prefetching starts anew in every page, and the
 * conversions leave its window too little room to make up for that (docs/speed-log.md). */
VEC_INLINE float thin_dot(const float *x, const void *w, int64_t in, thin_kind kind) {
    vec a = vec_zero(), b = a, c = a, d = a;
    const int bytes = 4 * VEC * (kind == THIN_F32 ? 4 : 2); /* of W in a step */
    const char *next = (const char *)w + THIN_AHEAD_ONE;
    int64_t i = 0;
    for (; i + 4 * VEC <= in; i += 4 * VEC, next += bytes) {
        for (int line = 0; line < bytes; line += THIN_LINE) vec_fetch(next + line);
        a = vec_fma(vec_load(x + i), thin_load(w, i, VEC, kind), a);
        b = vec_fma(vec_load(x + i + VEC), thin_load(w, i + VEC, VEC, kind), b);
        c = vec_fma(vec_load(x + i + 2 * VEC), thin_load(w, i + 2 * VEC, VEC, kind), c);
        d = vec_fma(vec_load(x + i + 3 * VEC), thin_load(w, i + 3 * VEC, VEC, kind), d);
    }
    for (; i < in; i += VEC) {
        int n = in - i < VEC ? (int)(in - i) : VEC;
        a = vec_fma(vec_load_n(x + i, n), thin_load(w, i, n, kind), a);
    }
    return vec_sum(vec_add(vec_add(a, b), vec_add(c, d)));
}

VEC_INLINE void thin_step(vec acc[THIN_ROWS][4], const float *x, int64_t x_stride, const void *w, int64_t at,
                          int64_t in, int rows, int n, thin_kind kind) {
    vec v[THIN_ROWS];
    for (int r = 0; r < rows; r++) v[r] = vec_load_n(x + at + r * x_stride, n);
    for (int c = 0; c < 4; c++) {
        vec u = thin_load(w, c * in + at, n, kind);
        for (int r = 0; r < rows; r++) acc[r][c] = vec_fma(v[r], u, acc[r][c]);
    }
}

/* Four outputs of `rows` rows, a constant after inlining.   fetch: whether to ask for later rows of W, which four streams of
 * a row each hide from the processor. */
VEC_INLINE void thin_block(float *y, int64_t y_stride, const float *x, int64_t x_stride, const void *w, int64_t in,
                           int rows, thin_kind kind, bool fetch) {
    vec acc[THIN_ROWS][4];
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < 4; c++) acc[r][c] = vec_zero();
    const int bytes = 4 * VEC * (kind == THIN_F32 ? 4 : 2); /* of W in a step */
    const char *next = (const char *)w + THIN_AHEAD;
    int64_t i = 0;
    for (; i + VEC <= in; i += VEC, next += bytes) {
        for (int b = 0; fetch && b < bytes; b += THIN_LINE) vec_fetch(next + b);
        thin_step(acc, x, x_stride, w, i, in, rows, VEC, kind);
    }
    if (i < in) thin_step(acc, x, x_stride, w, i, in, rows, (int)(in - i), kind);
    for (int r = 0; r < rows; r++) vec_sum4(y + r * y_stride, acc[r][0], acc[r][1], acc[r][2], acc[r][3]);
}

/* Four outputs of all rows. */
VEC_INLINE void thin_four(float *y, int64_t y_stride, const float *x, int64_t x_stride, const void *w, int64_t rows,
                          int64_t in, thin_kind kind) {
    int64_t r = 0;
    for (; r + THIN_ROWS <= rows; r += THIN_ROWS)
        thin_block(y + r * y_stride, y_stride, x + r * x_stride, x_stride, w, in, THIN_ROWS, kind, r == 0);
    if (THIN_ROWS > 2 && r + 2 <= rows) {
        thin_block(y + r * y_stride, y_stride, x + r * x_stride, x_stride, w, in, 2, kind, r == 0);
        r += 2;
    }
    if (r < rows) thin_block(y + r * y_stride, y_stride, x + r * x_stride, x_stride, w, in, 1, kind, r == 0);
}

VEC_INLINE void thin_all(float *y, int64_t y_stride, const float *x, int64_t x_stride, const void *w, int64_t rows,
                         int64_t out, int64_t in, thin_kind kind) {
    int64_t o = 0;
    for (; rows > 1 && o + 4 <= out; o += 4)
        thin_four(y + o, y_stride, x, x_stride, thin_row(w, o, in, kind), rows, in, kind);
    for (; o < out; o++)
        for (int64_t r = 0; r < rows; r++)
            y[r * y_stride + o] = thin_dot(x + r * x_stride, thin_row(w, o, in, kind), in, kind);
}

void VEC_KERNEL(linear_thin_f32)(float *y, int64_t y_stride, const float *x, int64_t x_stride, const float *w,
                                 int64_t rows, int64_t out, int64_t in) {
    if (HALF_VECTORS && rows == 1) sluice_linear_thin_f32_avx2(y, y_stride, x, x_stride, w, rows, out, in);
    else thin_all(y, y_stride, x, x_stride, w, rows, out, in, THIN_F32);
}

void VEC_KERNEL(linear_thin_f16)(float *y, int64_t y_stride, const float *x, int64_t x_stride, const uint16_t *w,
                                 int64_t rows, int64_t out, int64_t in) {
    if (HALF_VECTORS && rows == 1) sluice_linear_thin_f16_avx2(y, y_stride, x, x_stride, w, rows, out, in);
    else thin_all(y, y_stride, x, x_stride, w, rows, out, in, THIN_F16);
}

void VEC_KERNEL(linear_thin_bf16)(float *y, int64_t y_stride, const float *x, int64_t x_stride, const uint16_t *w,
                                  int64_t rows, int64_t out, int64_t in) {
    thin_all(y, y_stride, x, x_stride, w, rows, out, in, THIN_BF16);
}

VEC_INLINE void widen_all(float *y, const uint16_t *x, int64_t count, thin_kind kind) {
    int64_t i = 0;
    for (; i + VEC <= count; i += VEC) vec_store(y + i, thin_load(x, i, VEC, kind));
    if (i < count) vec_store_n(y + i, thin_load(x, i, (int)(count - i), kind), (int)(count - i));
}

void VEC_KERNEL(widen_f16)(float *y, const uint16_t *x, int64_t count) { widen_all(y, x, count, THIN_F16); }
void VEC_KERNEL(widen_bf16)(float *y, const uint16_t *x, int64_t count) { widen_all(y, x, count, THIN_BF16); }
