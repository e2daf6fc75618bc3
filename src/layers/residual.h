/* SPDX-License-Identifier: Apache-2.0 */
/* What stands between a branch (attention or MLP) and the residual stream:  out = clip(norm(raw)), each step only where
 * the layer has it (sandwich_norm, residual_clip). */
#ifndef SLUICE_LAYERS_RESIDUAL_H
#define SLUICE_LAYERS_RESIDUAL_H
#include "layers/workspace.h"

/* state->raw -> state->out. weight: [D] of the sandwich norm; NULL without. */
void sluice__branch_forward(const sluice__pass *pass, int layer, const float *weight,
                            const sluice__branch_state *state);
/* Returns the gradient of state->raw: dh itself when there is neither step, otherwise ws->back.dbranch. dweight is
 * added to. */
const float *sluice__branch_backward(const sluice__pass *pass, int layer, const float *weight, float *dweight,
                                     const float *dh, const sluice__branch_state *state);
#endif
