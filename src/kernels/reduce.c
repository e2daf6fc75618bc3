/* SPDX-License-Identifier: Apache-2.0 */
/* References of the reductions over one array. */
#include "kernels/kernels.h"
#include <math.h>

double sluice_sum_squares_f32_ref(const float *x, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += (double)x[i] * x[i];
    return sum;
}

float sluice_dot_f32_ref(const float *x, const float *y, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += (double)x[i] * (double)y[i];
    return (float)sum;
}

float sluice_max_abs_f32_ref(const float *x, int64_t count) {
    float most = 0;
    for (int64_t i = 0; i < count; i++) {
        if (isnan(x[i])) return NAN;
        if (fabsf(x[i]) > most) most = fabsf(x[i]);
    }
    return most;
}

int64_t sluice_first_nonfinite_f32_ref(const float *x, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(x[i])) return i;
    return -1;
}
