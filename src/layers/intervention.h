/* SPDX-License-Identifier: Apache-2.0 */
/* Changes to the inside of a forward pass: what a model does when its gates are forced, its massive activations taken
 * away, its view cut to a window. They happen in the one forward pass, at the places that probes listen to, and cost
 * nothing when absent. Inference only, without a cache. */
#ifndef SLUICE_LAYERS_INTERVENTION_H
#define SLUICE_LAYERS_INTERVENTION_H
#include <stdint.h>
#include "sluice/attention.h"

/* Elements of the residual stream behind one layer with |h| > 100 and |h| >= bound become value[channel], or 0. */
typedef struct sluice__massive_change {
    float bound;        /* INFINITY = nothing is replaced */
    const float *value; /* [D] or NULL */
} sluice__massive_change;

typedef struct sluice__intervention {
    const float *const *gate; /* [layers] of the layer's gate rows [heads * w]: scores in place of those computed; NULL
                                 (the table or an entry) = as computed */
    int window; /* attention sees so many keys, its own included; 0 = as the layer has it */
    int sinks;  /* and the first so many of the text */
    float residual_clip; /* branch outputs are clipped to +- this before they are added; 0 = as the layer has it */
    const sluice__massive_change *massive; /* [layers] or NULL */
} sluice__intervention;

/* h [rows, dim] changes in place. Returns whether anything did. */
int sluice__change_massive(const sluice__massive_change *change, float *h, int64_t rows, int64_t dim);

/* Adds to windowed attention the first `keep` keys where the window does not reach them: o, lse and share (may be NULL)
 * become those of softmax over both. o: [B,T,H,head_dim] dense, ungated; lse, share: [B,H,T]; as attention without a
 * gate wrote them for p. */
void sluice__keep_first_keys(const sluice_attention_params *p, int keep, sluice_strided q, sluice_strided k,
                             sluice_strided v, float *o, float *lse, float *share);
#endif
