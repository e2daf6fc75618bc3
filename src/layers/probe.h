/* SPDX-License-Identifier: Apache-2.0 */
/* A probe listens at named points of the one forward pass. It costs nothing when absent, and only the points it
 * wants are computed. Buffers belong to the pass and are valid during the call. */
#ifndef SLUICE_LAYERS_PROBE_H
#define SLUICE_LAYERS_PROBE_H
#include <stdint.h>
#include "sluice/status.h"

typedef enum sluice__probe_point {
    SLUICE__PROBE_EMBEDDING,   /* [B,T,D] residual stream before layer 0 (layer = -1) */
    SLUICE__PROBE_ATTN_OUT,    /* [B,T,D] what attention adds to the residual */
    SLUICE__PROBE_RESID_ATTN,  /* [B,T,D] residual after attention */
    SLUICE__PROBE_FFN_OUT,     /* [B,T,D] what the MLP adds */
    SLUICE__PROBE_RESID_FFN,   /* [B,T,D] residual after the layer: `hidden.<layer>` */
    SLUICE__PROBE_SDPA,        /* [B,T,H,head_dim] attention output before the gate */
    SLUICE__PROBE_SDPA_GATED,  /* [B,T,H,head_dim] after it (equal to SDPA without a gate) */
    SLUICE__PROBE_GATE,        /* [B,T,n,w] gate score after the activation; only in gated layers */
    SLUICE__PROBE_FIRST_SHARE, /* [B,H,T] attention weight on key 0 */
    SLUICE__PROBE_SINK_SHARE,  /* [B,H,T] attention weight of the learned sink; only in layers with sinks */
    SLUICE__PROBE_VALUE_NORM,  /* [B,T,K] L2 norm of each value vector */
    SLUICE__PROBE_KEY_NORM,    /* [B,T,K] of each key after norm and RoPE */
    SLUICE__PROBE_ATTN_PROBS,  /* [B,H,T,Tk] the attention map itself: O(T^2), for maps */
    SLUICE__PROBE_ATTN_ROWS,   /* [H,rows,keys] the same a few queries at a time: O(T); see first_query */
    SLUICE__PROBE_ROUTER,      /* [B,T,E] softmax of the router over its experts; only in expert layers */
    SLUICE__PROBE_EXPERTS,     /* [1,1,E] tokens that went to each expert in this pass; only in expert layers */
    SLUICE__PROBE_ATTN_IN,     /* [B,T,D] normed input of the attention projections */
    SLUICE__PROBE_FFN_IN,      /* [B,T,D] normed input of the MLP */
    SLUICE__PROBE_FFN_ACT,     /* [B,T,F] input of the down projection; only of dense MLPs */
    SLUICE__PROBE_DELTA_DECAY, /* [B,T,H] log of the decay of every state; only in layers of linear attention */
    SLUICE__PROBE_DELTA_BETA,  /* [B,T,H] write strength; the same */
    SLUICE__PROBE_POINTS
} sluice__probe_point;

typedef struct sluice__probe_event {
    sluice__probe_point point;
    int layer;
    const float *data; /* dense, row-major */
    int ndim;
    int64_t shape[4];
    int batch_row, first_query; /* ATTN_ROWS: where the block stands; queries count within this pass */
    const float *entropy;       /* ATTN_ROWS: [H,rows] nats */
} sluice__probe_event;

typedef struct sluice__probe {
    void *user;
    uint32_t wants; /* bit 1 << point */
    /* A status other than OK ends the pass with it. */
    sluice_status (*on)(void *user, const sluice__probe_event *event, sluice_error *err);
} sluice__probe;
#endif
