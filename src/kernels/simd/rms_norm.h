/* SPDX-License-Identifier: Apache-2.0 */
/* RMSNorm over rows: body for one vec_<isa>.h. A row is read twice, the second time from the nearest cache. */
#include "kernels/kernels.h"
#include <math.h>

VEC_INLINE vec weight_at(const float *weight, int64_t i, vec offset, int n) {
    return weight ? vec_add(vec_load_n(weight + i, n), offset) : vec_set(1);
}

static float rstd_of_sum(float sum, int64_t dim, float eps) {
    return 1 / sqrtf(sum / (float)dim + eps);
}

static float sum_of_squares(const float *x, int64_t dim) {
    vec a = vec_zero(), b = vec_zero();
    int64_t i = 0;
    for (; i + 2 * VEC <= dim; i += 2 * VEC) {
        vec u = vec_load(x + i), v = vec_load(x + i + VEC);
        a = vec_fma(u, u, a);
        b = vec_fma(v, v, b);
    }
    for (; i < dim; i += VEC) {
        vec u = vec_load_n(x + i, dim - i < VEC ? (int)(dim - i) : VEC);
        a = vec_fma(u, u, a);
    }
    return vec_sum(vec_add(a, b));
}

static void scale_row(float *y, const float *x, const float *weight, int64_t dim, float s, float offset) {
    vec scale = vec_set(s), shift = vec_set(offset);
    int64_t i = 0;
    for (; i + VEC <= dim; i += VEC)
        vec_store(y + i, vec_mul(vec_mul(vec_load(x + i), scale), weight_at(weight, i, shift, VEC)));
    if (i < dim) {
        int n = (int)(dim - i);
        vec_store_n(y + i, vec_mul(vec_mul(vec_load_n(x + i, n), scale), weight_at(weight, i, shift, n)), n);
    }
}

void VEC_KERNEL(rms_norm_f32)(float *y, float *rstd, const float *x, const float *weight, int64_t rows, int64_t dim,
                              float eps, float offset) {
    for (int64_t r = 0; r < rows; r++, x += dim, y += dim) {
        float s = rstd_of_sum(sum_of_squares(x, dim), dim, eps);
        if (rstd) rstd[r] = s;
        scale_row(y, x, weight, dim, s, offset);
    }
}

/* h = x + a of one row; returns the sum of squares of h. */
static float add_row(float *h, const float *x, const float *a, int64_t dim) {
    vec sum = vec_zero();
    for (int64_t i = 0; i < dim; i += VEC) {
        int n = dim - i < VEC ? (int)(dim - i) : VEC;
        vec v = vec_add(vec_load_n(x + i, n), vec_load_n(a + i, n));
        vec_store_n(h + i, v, n);
        sum = vec_fma(v, v, sum);
    }
    return vec_sum(sum);
}

void VEC_KERNEL(add_rms_norm_f32)(float *h, float *y, float *rstd, const float *x, const float *a,
                                  const float *weight, int64_t rows, int64_t dim, float eps, float offset) {
    for (int64_t r = 0; r < rows; r++, h += dim, y += dim, x += dim, a += dim) {
        float s = rstd_of_sum(add_row(h, x, a, dim), dim, eps);
        if (rstd) rstd[r] = s;
        scale_row(y, h, weight, dim, s, offset);
    }
}

/* Sum of dy w' x over a row; adds dy x s to dweight on the way. */
static float backward_dot(float *dweight, const float *dy, const float *x, const float *weight, int64_t dim, vec s,
                          vec offset) {
    vec dot = vec_zero();
    for (int64_t i = 0; i < dim; i += VEC) {
        int n = dim - i < VEC ? (int)(dim - i) : VEC;
        vec product = vec_mul(vec_load_n(dy + i, n), vec_load_n(x + i, n));
        dot = vec_fma(product, weight_at(weight, i, offset, n), dot);
        if (dweight) vec_store_n(dweight + i, vec_fma(product, s, vec_load_n(dweight + i, n)), n);
    }
    return vec_sum(dot);
}

/* dx (+)= s (dy w' - x shrink) */
static void backward_row(float *dx, const float *dy, const float *x, const float *weight, int64_t dim, vec s,
                         vec offset, vec shrink, bool accumulate) {
    for (int64_t i = 0; i < dim; i += VEC) {
        int n = dim - i < VEC ? (int)(dim - i) : VEC;
        vec g = vec_mul(vec_load_n(dy + i, n), weight_at(weight, i, offset, n));
        g = vec_fnma(vec_load_n(x + i, n), shrink, g);
        vec_store_n(dx + i, vec_fma(g, s, accumulate ? vec_load_n(dx + i, n) : vec_zero()), n);
    }
}

void VEC_KERNEL(rms_norm_backward_f32)(float *dx, float *dweight, const float *dy, const float *x,
                                       const float *weight, const float *rstd, int64_t rows, int64_t dim,
                                       float offset, bool accumulate) {
    for (int64_t r = 0; r < rows; r++, dx += dim, dy += dim, x += dim) {
        vec s = vec_set(rstd[r]), shift = vec_set(offset);
        float dot = backward_dot(dweight, dy, x, weight, dim, s, shift);
        backward_row(dx, dy, x, weight, dim, s, shift, vec_set(rstd[r] * rstd[r] * (dot / (float)dim)), accumulate);
    }
}
