/* SPDX-License-Identifier: Apache-2.0 */
/* y = x W^T for a few rows of x: body for one vec_<isa>.h. A general product packs W first, which costs as much as
 * reading it; here each row of W is read once, straight into multiply-adds. One row of x: bound by memory, so W is
 * read in the order it lies in, which the prefetcher likes best. More rows: blocks of THIN_ROWS rows by four
 * outputs, where a load of W serves several rows and a load of x four outputs; bound by arithmetic from about eight
 * rows on. */
#include "kernels/kernels.h"

/* Accumulators must leave registers for operands: 16 of 32, or 8 of 16. */
enum { THIN_ROWS = VEC == 16 ? 4 : 2 };

/* Four accumulators hide the latency of the addition. */
static float thin_dot(const float *x, const float *w, int64_t in) {
    vec a = vec_zero(), b = a, c = a, d = a;
    int64_t i = 0;
    for (; i + 4 * VEC <= in; i += 4 * VEC) {
        a = vec_fma(vec_load(x + i), vec_load(w + i), a);
        b = vec_fma(vec_load(x + i + VEC), vec_load(w + i + VEC), b);
        c = vec_fma(vec_load(x + i + 2 * VEC), vec_load(w + i + 2 * VEC), c);
        d = vec_fma(vec_load(x + i + 3 * VEC), vec_load(w + i + 3 * VEC), d);
    }
    for (; i < in; i += VEC) {
        int n = in - i < VEC ? (int)(in - i) : VEC;
        a = vec_fma(vec_load_n(x + i, n), vec_load_n(w + i, n), a);
    }
    return vec_sum(vec_add(vec_add(a, b), vec_add(c, d)));
}

VEC_INLINE void thin_step(vec acc[THIN_ROWS][4], const float *x, int64_t x_stride, const float *w, int64_t in, int rows,
                          int n) {
    vec v[THIN_ROWS];
    for (int r = 0; r < rows; r++) v[r] = vec_load_n(x + r * x_stride, n);
    for (int c = 0; c < 4; c++) {
        vec u = vec_load_n(w + c * in, n);
        for (int r = 0; r < rows; r++) acc[r][c] = vec_fma(v[r], u, acc[r][c]);
    }
}

/* Four outputs of `rows` rows, a constant after inlining. */
VEC_INLINE void thin_block(float *y, int64_t y_stride, const float *x, int64_t x_stride, const float *w, int64_t in,
                           int rows) {
    vec acc[THIN_ROWS][4];
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < 4; c++) acc[r][c] = vec_zero();
    int64_t i = 0;
    for (; i + VEC <= in; i += VEC) thin_step(acc, x + i, x_stride, w + i, in, rows, VEC);
    if (i < in) thin_step(acc, x + i, x_stride, w + i, in, rows, (int)(in - i));
    for (int r = 0; r < rows; r++) vec_sum4(y + r * y_stride, acc[r][0], acc[r][1], acc[r][2], acc[r][3]);
}

/* Four outputs of all rows. */
static void thin_four(float *y, int64_t y_stride, const float *x, int64_t x_stride, const float *w, int64_t rows,
                      int64_t in) {
    int64_t r = 0;
    for (; r + THIN_ROWS <= rows; r += THIN_ROWS)
        thin_block(y + r * y_stride, y_stride, x + r * x_stride, x_stride, w, in, THIN_ROWS);
    if (THIN_ROWS > 2 && r + 2 <= rows) {
        thin_block(y + r * y_stride, y_stride, x + r * x_stride, x_stride, w, in, 2);
        r += 2;
    }
    if (r < rows) thin_block(y + r * y_stride, y_stride, x + r * x_stride, x_stride, w, in, 1);
}

void VEC_KERNEL(linear_thin_f32)(float *y, int64_t y_stride, const float *x, int64_t x_stride, const float *w,
                                 int64_t rows, int64_t out, int64_t in) {
    int64_t o = 0;
    for (; rows > 1 && o + 4 <= out; o += 4) thin_four(y + o, y_stride, x, x_stride, w + o * in, rows, in);
    for (; o < out; o++)
        for (int64_t r = 0; r < rows; r++) y[r * y_stride + o] = thin_dot(x + r * x_stride, w + o * in, in);
}
