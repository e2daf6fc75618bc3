/* SPDX-License-Identifier: Apache-2.0 */
/* The gated activation between the two halves of an MLP, of any kind. */
#ifndef SLUICE_LAYERS_GLU_H
#define SLUICE_LAYERS_GLU_H
#include "sluice/config.h"

/* y = act(gate) * up with gate_up [rows, 2*width] = [gate | up], y [rows, width], each with a row stride; limit 0 =
 * none, otherwise
 *   SILU, GELU, GELU_TANH   y = min(act(gate), limit) * clamp(up, -limit, limit)
 *   GPT_OSS                 g = min(gate, limit), y = g sigmoid(1.702 g) (clamp(up, -limit, limit) + 1) */
void sluice__glu_forward(float *y, int64_t y_stride, const float *gate_up, int64_t gate_up_stride, int64_t rows,
                         int64_t width, sluice_mlp_act act, float limit);
/* c tanh(x / c) in place. */
void sluice__softcap(float *x, float c, int64_t count);
#endif
