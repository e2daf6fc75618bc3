/* SPDX-License-Identifier: Apache-2.0 */
/* RMSNorm over rows: reference, accumulated in double. */
#include "kernels/kernels.h"
#include <math.h>

static float weight_at(const float *weight, int64_t i, float offset) {
    return weight ? weight[i] + offset : 1;
}

static float rstd_of(const float *x, int64_t dim, float eps) {
    double sum = 0;
    for (int64_t i = 0; i < dim; i++) sum += (double)x[i] * x[i];
    return (float)(1 / sqrt(sum / (double)dim + eps));
}

void sluice_rms_norm_f32_ref(float *y, float *rstd, const float *x, const float *weight, int64_t rows, int64_t dim,
                             float eps, float offset) {
    for (int64_t r = 0; r < rows; r++, x += dim, y += dim) {
        float s = rstd_of(x, dim, eps);
        if (rstd) rstd[r] = s;
        for (int64_t i = 0; i < dim; i++) y[i] = x[i] * s * weight_at(weight, i, offset);
    }
}

void sluice_add_rms_norm_f32_ref(float *h, float *y, float *rstd, const float *x, const float *a, const float *weight,
                                 int64_t rows, int64_t dim, float eps, float offset) {
    for (int64_t i = 0; i < rows * dim; i++) h[i] = x[i] + a[i];
    sluice_rms_norm_f32_ref(y, rstd, h, weight, rows, dim, eps, offset);
}

/* With s = rstd and w' = weight + offset:  dx = s * (dy w' - x * s^2 * mean(dy w' x)),  dweight += dy * x * s. */
void sluice_rms_norm_backward_f32_ref(float *dx, float *dweight, const float *dy, const float *x, const float *weight,
                                      const float *rstd, int64_t rows, int64_t dim, float offset, bool accumulate) {
    for (int64_t r = 0; r < rows; r++, dx += dim, dy += dim, x += dim) {
        double s = rstd[r], dot = 0;
        for (int64_t i = 0; i < dim; i++) dot += (double)dy[i] * weight_at(weight, i, offset) * x[i];
        double shrink = s * s * dot / (double)dim;
        for (int64_t i = 0; i < dim; i++) {
            double g = s * ((double)dy[i] * weight_at(weight, i, offset) - x[i] * shrink);
            if (dweight) dweight[i] += (float)(dy[i] * s * x[i]);
            dx[i] = (float)(accumulate ? dx[i] + g : g);
        }
    }
}
