/* SPDX-License-Identifier: Apache-2.0 */
/* The feed-forward layer: out = (silu(x Wg^T) * (x Wu^T)) Wd^T, or gelu(x Wu^T) Wd^T. */
#ifndef SLUICE_LAYERS_MLP_H
#define SLUICE_LAYERS_MLP_H
#include "layers/workspace.h"

/* x, out: [rows, D]; x_half: its place as bf16, or NULL. Fills state. */
void sluice__mlp_forward(const sluice__pass *pass, int layer, const float *x, sluice__bf16 *x_half, float *out,
                         const sluice__mlp_state *state);
/* dx = d out / d x applied to dout; grads are added to. dx may alias dout. x is not read where there is an x_half. */
void sluice__mlp_backward(const sluice__pass *pass, int layer, const float *dout, const float *x,
                          const sluice__bf16 *x_half, float *dx, const sluice__mlp_state *state);
#endif
