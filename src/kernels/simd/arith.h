/* SPDX-License-Identifier: Apache-2.0 */
/* Element-wise operators and column sums: body for one vec_<isa>.h. Each step handles n <= VEC elements. */
#include "kernels/kernels.h"

VEC_INLINE void add_step(float *y, const float *x, int n) {
    vec_store_n(y, vec_add(vec_load_n(y, n), vec_load_n(x, n)), n);
}

void VEC_KERNEL(add_f32)(float *y, const float *x, int64_t count) {
    int64_t i = 0;
    for (; i + VEC <= count; i += VEC) add_step(y + i, x + i, VEC);
    if (i < count) add_step(y + i, x + i, (int)(count - i));
}

void VEC_KERNEL(scale_f32)(float *y, float s, int64_t count) {
    int64_t i = 0;
    for (; i + VEC <= count; i += VEC) vec_store(y + i, vec_mul(vec_load(y + i), vec_set(s)));
    if (i < count) vec_store_n(y + i, vec_mul(vec_load_n(y + i, (int)(count - i)), vec_set(s)), (int)(count - i));
}

VEC_INLINE void axpy_step(float *y, vec s, const float *x, int n) {
    vec_store_n(y, vec_fma(s, vec_load_n(x, n), vec_load_n(y, n)), n);
}

void VEC_KERNEL(axpy_f32)(float *y, float s, const float *x, int64_t count) {
    int64_t i = 0;
    for (; i + VEC <= count; i += VEC) axpy_step(y + i, vec_set(s), x + i, VEC);
    if (i < count) axpy_step(y + i, vec_set(s), x + i, (int)(count - i));
}

/* NaN passes through: min and max return their second operand then. */
VEC_INLINE void clip_step(float *y, const float *x, float c, int n) {
    vec_store_n(y, vec_min(vec_set(c), vec_max(vec_set(-c), vec_load_n(x, n))), n);
}

void VEC_KERNEL(clip_f32)(float *y, const float *x, float c, int64_t count) {
    int64_t i = 0;
    for (; i + VEC <= count; i += VEC) clip_step(y + i, x + i, c, VEC);
    if (i < count) clip_step(y + i, x + i, c, (int)(count - i));
}

VEC_INLINE void clip_backward_step(float *dx, const float *dy, const float *x, float c, int n) {
    vec_mask clipped = vec_greater(vec_abs(vec_load_n(x, n)), vec_set(c));
    vec_store_n(dx, vec_select(clipped, vec_zero(), vec_load_n(dy, n)), n);
}

void VEC_KERNEL(clip_backward_f32)(float *dx, const float *dy, const float *x, float c, int64_t count) {
    int64_t i = 0;
    for (; i + VEC <= count; i += VEC) clip_backward_step(dx + i, dy + i, x + i, c, VEC);
    if (i < count) clip_backward_step(dx + i, dy + i, x + i, c, (int)(count - i));
}

/* A strip of four vectors is summed down the rows in registers. */
static void column_strip(float *y, const float *x, int64_t x_stride, int64_t rows) {
    vec s0 = vec_zero(), s1 = vec_zero(), s2 = vec_zero(), s3 = vec_zero();
    for (int64_t r = 0; r < rows; r++, x += x_stride) {
        s0 = vec_add(s0, vec_load(x));
        s1 = vec_add(s1, vec_load(x + VEC));
        s2 = vec_add(s2, vec_load(x + 2 * VEC));
        s3 = vec_add(s3, vec_load(x + 3 * VEC));
    }
    vec_store(y, vec_add(vec_load(y), s0));
    vec_store(y + VEC, vec_add(vec_load(y + VEC), s1));
    vec_store(y + 2 * VEC, vec_add(vec_load(y + 2 * VEC), s2));
    vec_store(y + 3 * VEC, vec_add(vec_load(y + 3 * VEC), s3));
}

void VEC_KERNEL(column_sums_f32)(float *y, const float *x, int64_t x_stride, int64_t rows, int64_t count) {
    int64_t j = 0;
    for (; j + 4 * VEC <= count; j += 4 * VEC) column_strip(y + j, x + j, x_stride, rows);
    for (; j < count; j += VEC) {
        int n = count - j < VEC ? (int)(count - j) : VEC;
        vec sum = vec_zero();
        for (int64_t r = 0; r < rows; r++) sum = vec_add(sum, vec_load_n(x + r * x_stride + j, n));
        vec_store_n(y + j, vec_add(vec_load_n(y + j, n), sum), n);
    }
}
