/* SPDX-License-Identifier: Apache-2.0 */
/* What stands around the gate operators of kernels/gate.h: scores by themselves, for probes, and SiLU without a
 * gate. */
#ifndef SLUICE_LAYERS_GATE_H
#define SLUICE_LAYERS_GATE_H
#include "kernels/gate.h"

/* Elements of the scores of one row: [n, w], n 1 when shared. */
int64_t sluice__gate_score_width(const sluice__gating *g);
/* score [rows, n or 1, w] = what the gate multiplies by or adds. scratch: [rows, heads, w] when shared; may be NULL
 * otherwise. */
void sluice__gate_scores(const sluice__gating *g, float *score, float *scratch, const float *logits,
                         int64_t logits_stride);

/* y = silu(x), y may alias x;  dx = dy * silu'(x), dx may alias dy. */
void sluice__silu_forward(float *y, const float *x, int64_t count);
void sluice__silu_backward(float *dx, const float *dy, const float *x, int64_t count);
#endif
