/* SPDX-License-Identifier: Apache-2.0 */
/* 16-bit weights: references of widening and of the thin products. */
#include "kernels/half.h"
#include "kernels/kernels.h"

void sluice_widen_bf16_ref(float *y, const uint16_t *x, int64_t count) {
    for (int64_t i = 0; i < count; i++) y[i] = sluice__brain_to_float(x[i]);
}

void sluice_widen_f16_ref(float *y, const uint16_t *x, int64_t count) {
    for (int64_t i = 0; i < count; i++) y[i] = sluice__half_to_float(x[i]);
}

void sluice_linear_thin_bf16_ref(float *y, int64_t y_stride, const float *x, int64_t x_stride, const uint16_t *w,
                                 int64_t rows, int64_t out, int64_t in) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t o = 0; o < out; o++) {
            double sum = 0;
            for (int64_t i = 0; i < in; i++)
                sum += (double)x[r * x_stride + i] * (double)sluice__brain_to_float(w[o * in + i]);
            y[r * y_stride + o] = (float)sum;
        }
}

void sluice_linear_thin_f16_ref(float *y, int64_t y_stride, const float *x, int64_t x_stride, const uint16_t *w,
                                int64_t rows, int64_t out, int64_t in) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t o = 0; o < out; o++) {
            double sum = 0;
            for (int64_t i = 0; i < in; i++)
                sum += (double)x[r * x_stride + i] * (double)sluice__half_to_float(w[o * in + i]);
            y[r * y_stride + o] = (float)sum;
        }
}

void sluice_linear_pairs_bf16_ref(float *y, int64_t y_stride, const sluice__bf16 *x, int64_t x_stride,
                                  const sluice__bf16 *w, int64_t rows, int64_t out, int64_t in) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t o = 0; o < out; o++) {
            double sum = 0;
            for (int64_t i = 0; i < in; i++)
                sum += (double)sluice__bf16_widen(x[r * x_stride + i]) * (double)sluice__bf16_widen(w[o * in + i]);
            y[r * y_stride + o] = (float)sum;
        }
}
