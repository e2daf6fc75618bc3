/* SPDX-License-Identifier: Apache-2.0 */
/* Per-head RMSNorm and rotary positions: body for one vec_<isa>.h. Norm and rotation of a head are one pass over
 * it, so queries and keys are read once from wherever the projection left them. */
#include "kernels/kernels.h"
#include <math.h>

VEC_INLINE vec weight_at(const sluice__norm_rope *p, int i, int n) {
    return p->weight ? vec_add(vec_load_n(p->weight + i, n), vec_set(p->offset)) : vec_set(1);
}

VEC_INLINE int lanes(int left) {
    return left < VEC ? left : VEC;
}

static float head_rstd(const sluice__norm_rope *p, const float *x) {
    vec sum = vec_zero();
    for (int i = 0; i < p->head_dim; i += VEC) {
        vec v = vec_load_n(x + i, lanes(p->head_dim - i));
        sum = vec_fma(v, v, sum);
    }
    return 1 / sqrtf(vec_sum(sum) / (float)p->head_dim + p->eps);
}

/* x s w' of n components from i on; x itself without norm. */
VEC_INLINE vec normed(const sluice__norm_rope *p, const float *x, int i, int n, vec s) {
    vec v = vec_load_n(x + i, n);
    return p->norm ? vec_mul(vec_mul(v, s), weight_at(p, i, n)) : v;
}

static void head_forward(const sluice__norm_rope *p, float *y, const float *x, const float *cosine,
                         const float *sine, int half, vec s) {
    for (int i = 0; i < half; i += VEC) {
        int n = lanes(half - i);
        vec a = normed(p, x, i, n, s), b = normed(p, x, i + half, n, s);
        vec c = vec_load_n(cosine + i, n), d = vec_load_n(sine + i, n);
        vec_store_n(y + i, vec_fnma(b, d, vec_mul(a, c)), n);
        vec_store_n(y + i + half, vec_fma(a, d, vec_mul(b, c)), n);
    }
    for (int i = 2 * half; i < p->head_dim; i += VEC) {
        int n = lanes(p->head_dim - i);
        vec_store_n(y + i, normed(p, x, i, n, s), n);
    }
}

void VEC_KERNEL(norm_rope_f32)(const sluice__norm_rope *p, float *y, int64_t y_stride, float *rstd, const float *x,
                               int64_t x_stride, int64_t begin, int64_t end) {
    int half = p->cos ? p->rotary_dim / 2 : 0;
    for (int64_t r = begin; r < end; r++) {
        int64_t at = half ? (int64_t)p->position[r] * half : 0;
        for (int h = 0; h < p->heads; h++) {
            const float *from = x + r * x_stride + (int64_t)h * p->head_dim;
            float s = p->norm ? head_rstd(p, from) : 1;
            if (p->norm && rstd) rstd[r * p->heads + h] = s;
            head_forward(p, y + r * y_stride + (int64_t)h * p->head_dim, from, half ? p->cos + at : NULL,
                         half ? p->sin + at : NULL, half, vec_set(s));
        }
    }
}

/* dx = dy turned back: the gradient of the normed head. */
static void rotate_back(const sluice__norm_rope *p, float *dx, const float *dy, const float *cosine,
                        const float *sine, int half) {
    for (int i = 0; i < half; i += VEC) {
        int n = lanes(half - i);
        vec a = vec_load_n(dy + i, n), b = vec_load_n(dy + i + half, n);
        vec c = vec_load_n(cosine + i, n), d = vec_load_n(sine + i, n);
        vec_store_n(dx + i, vec_fma(b, d, vec_mul(a, c)), n);
        vec_store_n(dx + i + half, vec_fnma(a, d, vec_mul(b, c)), n);
    }
    for (int i = 2 * half; i < p->head_dim && dx != dy; i += VEC) {
        int n = lanes(p->head_dim - i);
        vec_store_n(dx + i, vec_load_n(dy + i, n), n);
    }
}

static void head_norm_backward(const sluice__norm_rope *p, float *dx, float *dweight, const float *x, float rstd) {
    vec dot = vec_zero(), s = vec_set(rstd);
    for (int i = 0; i < p->head_dim; i += VEC) {
        int n = lanes(p->head_dim - i);
        vec product = vec_mul(vec_load_n(dx + i, n), vec_load_n(x + i, n));
        dot = vec_fma(product, weight_at(p, i, n), dot);
        if (dweight) vec_store_n(dweight + i, vec_fma(product, s, vec_load_n(dweight + i, n)), n);
    }
    vec shrink = vec_set(rstd * rstd * (vec_sum(dot) / (float)p->head_dim));
    for (int i = 0; i < p->head_dim; i += VEC) {
        int n = lanes(p->head_dim - i);
        vec g = vec_mul(vec_load_n(dx + i, n), weight_at(p, i, n));
        vec_store_n(dx + i, vec_mul(s, vec_fnma(vec_load_n(x + i, n), shrink, g)), n);
    }
}

void VEC_KERNEL(norm_rope_backward_f32)(const sluice__norm_rope *p, float *dx, int64_t dx_stride, float *dweight,
                                        const float *dy, int64_t dy_stride, const float *x, int64_t x_stride,
                                        const float *rstd, int64_t begin, int64_t end) {
    int half = p->cos ? p->rotary_dim / 2 : 0;
    for (int64_t r = begin; r < end; r++) {
        int64_t at = half ? (int64_t)p->position[r] * half : 0;
        for (int h = 0; h < p->heads; h++) {
            int64_t head = (int64_t)h * p->head_dim;
            float *to = dx + r * dx_stride + head;
            rotate_back(p, to, dy + r * dy_stride + head, half ? p->cos + at : NULL, half ? p->sin + at : NULL,
                        half);
            if (p->norm) head_norm_backward(p, to, dweight, x + r * x_stride + head, rstd[r * p->heads + h]);
        }
    }
}
