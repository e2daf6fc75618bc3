/* SPDX-License-Identifier: Apache-2.0 */
/* Per-head RMSNorm followed by rotary positions (rotate-half), the way queries and keys go into attention: reference.
 * Su et al. 2021 (RoPE); Henry et al. 2020 (norm of queries and keys). */
#include "kernels/kernels.h"
#include <math.h>
#include <stddef.h>

static double weight_at(const sluice__norm_rope *p, int i) {
    return p->weight ? (double)p->weight[i] + p->offset : 1;
}

/* (a, b) -> (a cos - b sin, b cos + a sin);  direction -1 is the inverse, which is also the transpose. */
static void rotate(const sluice__norm_rope *p, float *y, const float *z, int64_t row, float direction) {
    int half = p->cos ? p->rotary_dim / 2 : 0;
    const float *c = half ? p->cos + (int64_t)p->position[row] * half : NULL;
    const float *s = half ? p->sin + (int64_t)p->position[row] * half : NULL;
    for (int i = 0; i < half; i++) {
        float a = z[i], b = z[i + half], sine = direction * s[i];
        y[i] = a * c[i] - b * sine;
        y[i + half] = b * c[i] + a * sine;
    }
    for (int i = 2 * half; i < p->head_dim; i++) y[i] = z[i];
}

static float normalise(const sluice__norm_rope *p, float *y, const float *x) {
    double sum = 0;
    for (int i = 0; i < p->head_dim; i++) sum += (double)x[i] * x[i];
    float s = (float)(1 / sqrt(sum / p->head_dim + p->eps));
    for (int i = 0; i < p->head_dim; i++) y[i] = (float)(x[i] * s * weight_at(p, i));
    return s;
}

void sluice_norm_rope_f32_ref(const sluice__norm_rope *p, float *y, int64_t y_stride, float *rstd, const float *x,
                              int64_t x_stride, int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++) {
        for (int h = 0; h < p->heads; h++) {
            const float *from = x + r * x_stride + (int64_t)h * p->head_dim;
            float *to = y + r * y_stride + (int64_t)h * p->head_dim;
            if (p->norm) {
                float s = normalise(p, to, from);
                if (rstd) rstd[r * p->heads + h] = s;
                from = to;
            }
            rotate(p, to, from, r, 1);
        }
    }
}

/* dx holds the gradient of the normalised head on entry. Formula: rms_norm.c. */
static void normalise_backward(const sluice__norm_rope *p, float *dx, float *dweight, const float *x, double s) {
    double dot = 0;
    for (int i = 0; i < p->head_dim; i++) dot += dx[i] * weight_at(p, i) * x[i];
    double shrink = s * s * dot / p->head_dim;
    for (int i = 0; i < p->head_dim; i++) {
        if (dweight) dweight[i] += (float)(dx[i] * s * x[i]);
        dx[i] = (float)(s * (dx[i] * weight_at(p, i) - x[i] * shrink));
    }
}

void sluice_norm_rope_backward_f32_ref(const sluice__norm_rope *p, float *dx, int64_t dx_stride, float *dweight,
                                       const float *dy, int64_t dy_stride, const float *x, int64_t x_stride,
                                       const float *rstd, int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++) {
        for (int h = 0; h < p->heads; h++) {
            float *to = dx + r * dx_stride + (int64_t)h * p->head_dim;
            rotate(p, to, dy + r * dy_stride + (int64_t)h * p->head_dim, r, -1);
            if (p->norm)
                normalise_backward(p, to, dweight, x + r * x_stride + (int64_t)h * p->head_dim,
                                   rstd[r * p->heads + h]);
        }
    }
}
