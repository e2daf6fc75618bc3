/* SPDX-License-Identifier: Apache-2.0 */
/* GELU, exact and in the tanh approximation (Hendrycks & Gimpel 2016): reference. */
#include "kernels/kernels.h"
#include <math.h>

#define SQRT_HALF 0.70710678118654752440
#define SQRT_2_OVER_PI 0.79788456080286535588
#define INV_SQRT_2_PI 0.39894228040143267794
#define CUBIC 0.044715

/* Phi(x), the factor of x. erfc keeps its relative accuracy in the lower tail. */
static double factor(double x, bool tanh_form) {
    if (!tanh_form) return 0.5 * erfc(-x * SQRT_HALF);
    return 0.5 * (1 + tanh(SQRT_2_OVER_PI * (x + CUBIC * x * x * x)));
}

static double factor_slope(double x, bool tanh_form) {
    if (!tanh_form) return INV_SQRT_2_PI * exp(-0.5 * x * x);
    double t = tanh(SQRT_2_OVER_PI * (x + CUBIC * x * x * x));
    return 0.5 * (1 - t * t) * SQRT_2_OVER_PI * (1 + 3 * CUBIC * x * x);
}

/* Both factors are exactly 0 or 1 beyond this, where 0 * infinity must not arise. */
static bool saturated(double x) {
    return fabs(x) > 1e4;
}

void sluice_gelu_f32_ref(float *y, const float *x, int64_t count, bool tanh_form) {
    for (int64_t i = 0; i < count; i++) {
        double v = x[i];
        y[i] = (float)(saturated(v) ? (v > 0 ? v : 0) : v * factor(v, tanh_form));
    }
}

void sluice_gelu_backward_f32_ref(float *dx, const float *dy, const float *x, int64_t count, bool tanh_form) {
    for (int64_t i = 0; i < count; i++) {
        double v = x[i];
        double slope = saturated(v) ? v > 0 : factor(v, tanh_form) + v * factor_slope(v, tanh_form);
        dx[i] = (float)(dy[i] * slope);
    }
}
