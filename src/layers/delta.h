/* SPDX-License-Identifier: Apache-2.0 */
/* The layer of linear attention: projections, causal convolution, gated delta rule, gated norm, output projection. */
#ifndef SLUICE_LAYERS_DELTA_H
#define SLUICE_LAYERS_DELTA_H
#include "layers/workspace.h"

/* out = linear attention of x.   x: [rows, D] normed input; out: [rows, D]. Every segment goes on from the
 * states of its cache and leaves the new ones there; without a cache from zeros. */
sluice_status sluice__delta_layer_forward(const sluice__pass *pass, int layer, const float *x, float *out,
                                          const sluice__delta_state *state);
#endif
