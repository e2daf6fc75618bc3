/* SPDX-License-Identifier: Apache-2.0 */
/* SwiGLU on a fused [gate | up] row: reference. The activation is recomputed in backward, which costs less than
 * storing it would. */
#include "kernels/kernels.h"
#include <math.h>

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

/* x * sigmoid(x), 0 (not NaN) at minus infinity. */
static double silu(double x) {
    return x < -1e4 ? 0 : x * sigmoid(x);
}

void sluice_swiglu_f32_ref(float *y, const float *gate_up, int64_t rows, int64_t width) {
    for (int64_t r = 0; r < rows; r++, y += width, gate_up += 2 * width)
        for (int64_t i = 0; i < width; i++) y[i] = (float)(silu(gate_up[i]) * gate_up[width + i]);
}

/* silu'(x) = sigmoid(x) + silu(x) (1 - sigmoid(x)). */
void sluice_swiglu_backward_f32_ref(float *dgate_up, const float *dy, const float *gate_up, int64_t rows,
                                    int64_t width) {
    for (int64_t r = 0; r < rows; r++, dy += width, gate_up += 2 * width, dgate_up += 2 * width) {
        for (int64_t i = 0; i < width; i++) {
            double x = gate_up[i], up = gate_up[width + i], s = sigmoid(x), a = silu(x);
            dgate_up[i] = (float)(dy[i] * up * (s + a * (1 - s)));
            dgate_up[width + i] = (float)(dy[i] * a);
        }
    }
}
