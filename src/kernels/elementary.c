/* SPDX-License-Identifier: Apache-2.0 */
/* Elementary functions over arrays: references, computed in double and rounded once. The vector versions exist as
 * kernels so that the approximations in vec_<isa>.h, which other kernels inline, are measured against these. */
#include "kernels/kernels.h"
#include <math.h>

void sluice_exp_f32_ref(float *y, const float *x, int64_t count) {
    for (int64_t i = 0; i < count; i++) y[i] = (float)exp(x[i]);
}

/* For large |x| exp(-x) overflows to infinity or vanishes; both give the right limit in 1 / (1 + exp(-x)). */
void sluice_sigmoid_f32_ref(float *y, const float *x, int64_t count) {
    for (int64_t i = 0; i < count; i++) y[i] = (float)(1 / (1 + exp(-(double)x[i])));
}

void sluice_tanh_f32_ref(float *y, const float *x, int64_t count) {
    for (int64_t i = 0; i < count; i++) y[i] = (float)tanh(x[i]);
}

void sluice_erf_f32_ref(float *y, const float *x, int64_t count) {
    for (int64_t i = 0; i < count; i++) y[i] = (float)erf(x[i]);
}
