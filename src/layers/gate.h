/* SPDX-License-Identifier: Apache-2.0 */
/* Gates that the attention operator does not take along on its way: at the value, key, query or output position, shared
 * between heads, independent of the input, or behind a norm or SiLU of the attention output.
 *   score = act(logits), averaged over heads when shared (before or after the activation);   y = x * score  or  x + score */
#ifndef SLUICE_LAYERS_GATE_H
#define SLUICE_LAYERS_GATE_H
#include "model/weights.h"

typedef struct sluice__gate {
    const sluice_gate_spec *spec;
    int64_t rows;
    int heads, width;        /* (n, w) of the logits; width 1 = one score for a whole head */
    int dim;                 /* elements of a head of x */
    const float *logits;     /* [rows, n*w] with a row stride; [n*w] when spec->input_none */
    int64_t logits_stride;
} sluice__gate;

/* Scores: [rows, n or 1, w], one row when input_none; 1 in place of n when shared. */
int64_t sluice__gate_score_width(const sluice__gate *g);
sluice_status sluice__gate_scores(const sluice__gate *g, float *score, sluice_error *err);

/* y = gate(x).   x, y: [rows, heads, dim] with row strides; y may alias x. */
void sluice__gate_forward(const sluice__gate *g, const float *score, float *y, int64_t y_stride, const float *x, int64_t x_stride);
/* dx and the gradient of the logits: dlogits [rows, n*w] with a row stride is written; when input_none it is [n*w] and is
 * added to. x, score: of forward. Both functions fail for want of scratch memory only. dx may alias dy. */
sluice_status sluice__gate_backward(const sluice__gate *g, const float *score, float *dx, int64_t dx_stride, float *dlogits,
                                    int64_t dlogits_stride, const float *dy, int64_t dy_stride, const float *x,
                                    int64_t x_stride, sluice_error *err);

/* y = silu(x), y may alias x;  dx = dy * silu'(x), dx may alias dy. */
void sluice__silu_forward(float *y, const float *x, int64_t count);
void sluice__silu_backward(float *dx, const float *dy, const float *x, int64_t count);
#endif
