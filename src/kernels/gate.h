/* SPDX-License-Identifier: Apache-2.0 */
/* A gate on its own, for the places where attention does not apply it in its write-out: on queries,
 * keys, values, the output of the layer, with one score for all heads, or with logits that do not
 * depend on the input (Qiu et al. 2025, table 1).
 *
 *   y[r,h,:] = x[r,h,:] * g   or   x[r,h,:] + g
 *
 *   g = act(logits[r,h,:])                       one score a head
 *     = mean over heads of act(logits[r,h,:])    shared
 *     = act(mean over heads of logits[r,h,:])    shared, share_mean_logit
 *
 * g has width head_dim, or width 1 for the whole head. x, y: [rows, heads, head_dim], logits:
 * [rows, heads, width], each with a row stride; input_none: logits [heads, width] for all rows
 * (their stride is not used). Limits at infinite logits: sigmoid 0 and 1, silu and softplus of
 * -inf 0. */
#ifndef SLUICE_KERNELS_GATE_H
#define SLUICE_KERNELS_GATE_H
#include <stdbool.h>
#include <stdint.h>
#include "sluice/attention.h"

typedef struct sluice__gating {
    int64_t rows;
    int heads, head_dim;
    int width; /* head_dim or 1 */
    bool shared, share_mean_logit, input_none;
    sluice_gate_act act;
    sluice_gate_op op;
} sluice__gating;

/* y may be x. */
void sluice__gating_forward(const sluice__gating *g, float *y, int64_t y_stride, const float *x,
                            int64_t x_stride, const float *logits, int64_t logits_stride);
/* Writes dx (may be dy) and dlogits; with input_none, dlogits [heads, width] += the sum over rows,
 * as for any weight. Rows are added in a fixed order for a given thread count. */
void sluice__gating_backward(const sluice__gating *g, float *dx, int64_t dx_stride, float *dlogits,
                             int64_t dlogits_stride, const float *dy, int64_t dy_stride,
                             const float *x, int64_t x_stride, const float *logits,
                             int64_t logits_stride);
#endif
