/* SPDX-License-Identifier: Apache-2.0 */
/* The feed-forward layer: out = (silu(x Wg^T) * (x Wu^T)) Wd^T, or gelu(x Wu^T) Wd^T. */
#ifndef SLUICE_LAYERS_MLP_H
#define SLUICE_LAYERS_MLP_H
#include "layers/workspace.h"

/* x, out: [rows, D]. Fills state. */
void sluice__mlp_forward(const sluice__pass *pass, int layer, const float *x, float *out,
                         const sluice__mlp_state *state);
/* dx = d out / d x applied to dout; grads are added to. dx may alias dout. */
void sluice__mlp_backward(const sluice__pass *pass, int layer, const float *dout, const float *x, float *dx,
                          const sluice__mlp_state *state);
#endif
