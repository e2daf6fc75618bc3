/* SPDX-License-Identifier: Apache-2.0 */
/* Lion in one pass over parameters, momentum and gradients: reference. The pass is bound by memory: 20 bytes per
 * parameter (read p, m, g; write p, m), 24 when it clears g too. Every version rounds alike, without fused products: a
 * last bit decides the sign where momentum and gradient cancel, and with it the whole step. */
#include "kernels/kernels.h"
#include <string.h>

/* -1, 0, 1; NaN stays NaN. */
static float sign_of(float x) {
    return x > 0 ? 1.0F : x < 0 ? -1.0F : x;
}

void sluice_lion_f32_ref(const sluice__lion_factors *c, float *p, float *m, float *g, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        float grad = g[i] * c->grad_scale;
        float direction = sign_of(c->beta1 * m[i] + c->one_minus_beta1 * grad);
        p[i] = p[i] * c->decay - c->lr * direction;
        m[i] = c->beta2 * m[i] + c->one_minus_beta2 * grad;
    }
    if (c->zero_grad) memset(g, 0, (size_t)count * sizeof *g);
}
