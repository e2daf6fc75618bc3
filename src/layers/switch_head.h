/* SPDX-License-Identifier: Apache-2.0 */
/* Switch heads (the paper's Table 6): every key/value head has M maps; a sigmoid router scores them for each token,
 * and the best few add up, each times its score. Scores are not normalised; keys and values share the router. */
#ifndef SLUICE_LAYERS_SWITCH_HEAD_H
#define SLUICE_LAYERS_SWITCH_HEAD_H
#include <stdbool.h>
#include <stdint.h>

typedef struct sluice__switch {
    int64_t rows, stride;  /* tokens; floats from one token to the next in maps, logits and their gradients */
    int heads, head_dim;
    int maps, top;
} sluice__switch;

/* y[r,h,:] = sum over the `top` best maps m of sigmoid(logits[r,h,m]) * x[r,m,h,:].
 * x: [rows, maps, heads, head_dim]; logits: [rows, heads, maps]; y: [rows, heads, head_dim], dense. */
void sluice__switch_forward(const sluice__switch *s, float *y, const float *x, const float *logits);
/* dx = ...;  dlogits = ..., or += when `accumulate` (the second of keys and values). */
void sluice__switch_backward(const sluice__switch *s, float *dx, float *dlogits, const float *dy, const float *x,
                             const float *logits, bool accumulate);
#endif
