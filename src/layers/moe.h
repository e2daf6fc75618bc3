/* SPDX-License-Identifier: Apache-2.0 */
/* Mixture of experts: a softmax router in fp32 sends every token to its k most probable experts, each a SwiGLU;
 * nothing is dropped and nothing padded. A shared expert, if there is one, sees every token. */
#ifndef SLUICE_LAYERS_MOE_H
#define SLUICE_LAYERS_MOE_H
#include "layers/workspace.h"

/* out = sum over the chosen experts e of w_e expert_e(x) + [sigmoid(x . g)] shared(x).   x, out: [rows, D]. Fills
 * state and adds to pass->router, if there is one. */
void sluice__moe_forward(const sluice__pass *pass, int layer, const float *x, float *out,
                         const sluice__moe_state *state);
/* dx = gradient of x for dout, that of the router losses included when there is a pass->router; grads are added to.
 * dx may not alias dout. */
void sluice__moe_backward(const sluice__pass *pass, int layer, const float *dout, const float *x, float *dx,
                          const sluice__moe_state *state);
#endif
