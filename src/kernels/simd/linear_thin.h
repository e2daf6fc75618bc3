/* SPDX-License-Identifier: Apache-2.0 */
/* y = x W^T for a few rows of x: body for one vec_<isa>.h. A general product packs W first, which costs as much as
 * reading it; here each row of W is read once, straight into multiply-adds with a block of rows of x. A block is
 * THIN_ROWS rows by four outputs (a load of W then serves several rows, a load of x four outputs), or one row by
 * eight outputs, which keeps eight streams of W in flight. Bound by memory for one row, by arithmetic from about
 * eight on. */
#include "kernels/kernels.h"

/* Accumulators must leave registers for operands: 16 of 32, or 8 of 16. */
enum { THIN_ROWS = VEC == 16 ? 4 : 2, THIN_COLUMNS = 8 };

VEC_INLINE void thin_step(vec acc[THIN_ROWS][THIN_COLUMNS], const float *x, int64_t x_stride, const float *w,
                          int64_t in, int rows, int columns, int n) {
    vec v[THIN_ROWS];
    for (int r = 0; r < rows; r++) v[r] = vec_load_n(x + r * x_stride, n);
    for (int c = 0; c < columns; c++) {
        vec u = vec_load_n(w + c * in, n);
        for (int r = 0; r < rows; r++) acc[r][c] = vec_fma(v[r], u, acc[r][c]);
    }
}

/* `columns` outputs of `rows` rows; both are constants after inlining. */
VEC_INLINE void thin_block(float *y, int64_t y_stride, const float *x, int64_t x_stride, const float *w, int64_t in,
                           int rows, int columns) {
    vec acc[THIN_ROWS][THIN_COLUMNS];
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++) acc[r][c] = vec_zero();
    int64_t i = 0;
    for (; i + VEC <= in; i += VEC) thin_step(acc, x + i, x_stride, w + i, in, rows, columns, VEC);
    if (i < in) thin_step(acc, x + i, x_stride, w + i, in, rows, columns, (int)(in - i));
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c += 4)
            vec_sum4(y + r * y_stride + c, acc[r][c], acc[r][c + 1], acc[r][c + 2], acc[r][c + 3]);
}

static float thin_dot(const float *x, const float *w, int64_t in) {
    vec a = vec_zero();
    for (int64_t i = 0; i < in; i += VEC) {
        int n = in - i < VEC ? (int)(in - i) : VEC;
        a = vec_fma(vec_load_n(x + i, n), vec_load_n(w + i, n), a);
    }
    return vec_sum(a);
}

/* Four outputs of all rows. */
static void thin_four(float *y, int64_t y_stride, const float *x, int64_t x_stride, const float *w, int64_t rows,
                      int64_t in) {
    int64_t r = 0;
    for (; r + THIN_ROWS <= rows; r += THIN_ROWS)
        thin_block(y + r * y_stride, y_stride, x + r * x_stride, x_stride, w, in, THIN_ROWS, 4);
    if (THIN_ROWS > 2 && r + 2 <= rows) {
        thin_block(y + r * y_stride, y_stride, x + r * x_stride, x_stride, w, in, 2, 4);
        r += 2;
    }
    if (r < rows) thin_block(y + r * y_stride, y_stride, x + r * x_stride, x_stride, w, in, 1, 4);
}

void VEC_KERNEL(linear_thin_f32)(float *y, int64_t y_stride, const float *x, int64_t x_stride, const float *w,
                                 int64_t rows, int64_t out, int64_t in) {
    int64_t o = 0;
    for (; rows == 1 && o + 8 <= out; o += 8) thin_block(y + o, y_stride, x, x_stride, w + o * in, in, 1, 8);
    for (; o + 4 <= out; o += 4) thin_four(y + o, y_stride, x, x_stride, w + o * in, rows, in);
    for (; o < out; o++)
        for (int64_t r = 0; r < rows; r++) y[r * y_stride + o] = thin_dot(x + r * x_stride, w + o * in, in);
}
