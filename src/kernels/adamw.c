/* SPDX-License-Identifier: Apache-2.0 */
/* AdamW in one pass over parameters, moments and gradients: reference, in the order of operations of
 * torch.optim.AdamW. The pass is bound by memory: 28 bytes per parameter (read p, m, v, g; write p, m, v), 32 when
 * it clears g too. */
#include "kernels/kernels.h"
#include <math.h>
#include <string.h>

void sluice_adamw_f32_ref(const sluice__adamw_factors *c, float *p, float *m, float *v, float *g, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        float grad = g[i] * c->grad_scale;
        m[i] = c->beta1 * m[i] + c->one_minus_beta1 * grad;
        v[i] = c->beta2 * v[i] + c->one_minus_beta2 * grad * grad;
        float denominator = sqrtf(v[i]) * c->inv_sqrt_correction2 + c->eps;
        p[i] = p[i] * c->decay - c->step_size * (m[i] / denominator);
    }
    if (c->zero_grad) memset(g, 0, (size_t)count * sizeof *g);
}
