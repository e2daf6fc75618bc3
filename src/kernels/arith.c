/* SPDX-License-Identifier: Apache-2.0 */
/* References of the element-wise operators and of column sums. */
#include "kernels/kernels.h"

void sluice_add_f32_ref(float *y, const float *x, int64_t count) {
    for (int64_t i = 0; i < count; i++) y[i] += x[i];
}

void sluice_scale_f32_ref(float *y, float s, int64_t count) {
    for (int64_t i = 0; i < count; i++) y[i] *= s;
}

void sluice_axpy_f32_ref(float *y, float s, const float *x, int64_t count) {
    for (int64_t i = 0; i < count; i++) y[i] += s * x[i];
}

/* NaN passes through: both comparisons are false for it. */
void sluice_clip_f32_ref(float *y, const float *x, float c, int64_t count) {
    for (int64_t i = 0; i < count; i++) y[i] = x[i] > c ? c : x[i] < -c ? -c : x[i];
}

void sluice_clip_backward_f32_ref(float *dx, const float *dy, const float *x, float c, int64_t count) {
    for (int64_t i = 0; i < count; i++) dx[i] = x[i] > c || x[i] < -c ? 0 : dy[i];
}

void sluice_column_sums_f32_ref(float *y, const float *x, int64_t x_stride, int64_t rows, int64_t count) {
    for (int64_t j = 0; j < count; j++) {
        double sum = 0;
        for (int64_t r = 0; r < rows; r++) sum += x[r * x_stride + j];
        y[j] += (float)sum;
    }
}
