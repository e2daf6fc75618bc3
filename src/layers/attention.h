/* SPDX-License-Identifier: Apache-2.0 */
/* The attention layer: projections, q/k norm, RoPE, gated softmax attention, output projection. */
#ifndef SLUICE_LAYERS_ATTENTION_H
#define SLUICE_LAYERS_ATTENTION_H
#include "layers/workspace.h"

/* out = attention(x).   x: [rows, D] normed input; x_half: its place as bf16, or NULL; out: [rows, D]. Fills state. */
sluice_status sluice__attention_layer_forward(const sluice__pass *pass, int layer, const float *x, sluice__bf16 *x_half,
                                              float *out, const sluice__attention_state *state);
/* dx = d out / d x applied to dout;  grads of the layer's weights are added to. dx may not alias dout. x is not read where
 * there is an x_half. */
sluice_status sluice__attention_layer_backward(const sluice__pass *pass, int layer, const float *dout, const float *x,
                                               const sluice__bf16 *x_half, float *dx,
                                               const sluice__attention_state *state);
#endif
