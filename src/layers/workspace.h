/* SPDX-License-Identifier: Apache-2.0 */
/* What one pass works on: the buffers of every layer, scratch, rotary tables, and the facts that all layers share.
 * In TRAIN every layer has buffers of its own, because backward reads them; in INFER all layers point at the same
 * ones, and the pointers that only backward needs are NULL. With bf16, what backward needs only as a factor of a product is
 * kept as bf16 (the `_half` pointers, else NULL), and its floats stand in a buffer that all layers share. Letters: rows = batch * seq_len, D hidden, H query
 * heads, K key/value heads, d head_dim, F intermediate_size, V vocabulary, E experts, k experts of a token. */
#ifndef SLUICE_LAYERS_WORKSPACE_H
#define SLUICE_LAYERS_WORKSPACE_H
#include "kernels/bf16.h"
#include "layers/rope.h"
#include "layers/router.h"
#include "layers/transformer.h"
#include <stddef.h>

/* One attention layer. `stride` is the distance between tokens in qkvg: its rows padded to whole cache lines. Steps
 * that the layer does not have share the buffer of the step before; in INFER all steps between o and y do. */
typedef struct sluice__attention_state {
    int64_t stride;
    float *qkvg; /* [rows, q | k | v | gate | switch router] projections, before norm and RoPE when qk_norm */
    float *picked_k, *picked_v; /* [rows, K*d] what a switch head makes of its maps; NULL where it does not switch */
    float *gated;           /* [rows, n*d] gated query, key or value; TRAIN; NULL in INFER: then qkvg holds it */
    float *q, *k;           /* [rows, H*d], [rows, K*d] after norm and RoPE; NULL without qk_norm (qkvg or gated then) */
    float *q_rstd, *k_rstd; /* [rows, H], [rows, K]; TRAIN with qk_norm */
    float *o;               /* [rows, H*d] what attention gives, before a fused gate; NULL in INFER with one */
    float *normed;          /* [rows, H*d] behind sdpa_norm */
    float *norm_rstd;       /* [rows, H]; TRAIN with sdpa_norm */
    float *ungated;         /* [rows, H*d] behind sdpa_silu */
    float *y;               /* [rows, H*d] behind the gate */
    sluice__bf16 *y_half;   /* [rows, H*d]; NULL where y is o */
    float *lse;             /* [B, H, T]; TRAIN */
    float *projected;       /* [rows, D] output projection before an output gate; TRAIN */
} sluice__attention_state;

/* One layer of linear attention; Hk key heads of dk, Hv value heads of dv. INFER only. */
typedef struct sluice__delta_state {
    int64_t stride;          /* of a token in `in`: its projections padded to whole cache lines */
    float *in;               /* [rows, q | k | v | z | b | a] projections */
    float *qkv;              /* [rows, q | k | v] behind convolution and norm */
    float *log_decay, *beta; /* [rows, Hv] */
    float *o;                /* [rows, Hv*dv] what the output projection reads */
} sluice__delta_state;

/* Whether the attention operator applies the layer's gate itself. */
static inline bool sluice__gate_is_fused(const sluice_layer_spec *spec) {
    return spec->gate.position == SLUICE_GATE_SDPA && !spec->gate.shared && !spec->gate.input_none &&
           !spec->sdpa_norm && !spec->sdpa_silu;
}

/* What a branch (attention or MLP) hands to the residual stream: out = clip(norm(raw)). Steps that the layer does
 * not have share a buffer. */
typedef struct sluice__branch_state {
    float *raw, *normed, *out; /* [rows, D] */
    float *rstd;               /* [rows]; TRAIN with sandwich_norm */
} sluice__branch_state;

/* Distance between rows of `width` floats of an MLP: rows a multiple of 4 KiB apart fall into the same sets of the caches,
 * which slows down packing for products, so such rows lie a cache line further apart. GELU works on dense rows. */
int64_t sluice__mlp_stride(const sluice_layer_spec *spec, int64_t width);

typedef struct sluice__mlp_state {
    float *gate_up; /* [rows, 2F], rows sluice__mlp_stride apart */
    float *act;     /* [rows, F], the same */
    sluice__bf16 *act_half;
} sluice__mlp_state;

/* Rows of x, gate_up, act and y stand in the order of experts: those of expert e are start[e] .. start[e+1]-1. */
typedef struct sluice__moe_state {
    float *prob;      /* [rows, E] softmax of the router */
    float *lse;       /* [rows] logsumexp of its logits */
    int32_t *choice;  /* [rows, k] experts, most probable first */
    float *weight;    /* [rows, k] */
    int32_t *place;   /* [rows, k] row of this token for this expert, in the order of experts */
    int32_t *token;   /* [rows * k] the other way: token of a row */
    int64_t *start;   /* [E + 1] */
    float *x, *y;     /* [rows * k, D] shared by all layers: nothing later reads them */
    float *gate_up;   /* [rows * k, 2F'] */
    float *act;       /* [rows * k, F'] */
    float *shared_gate_up, *shared_act; /* [rows, 2F"], [rows, F"] */
    float *shared_score;                /* [rows] sigmoid; NULL without shared_expert_gate */
} sluice__moe_state;

typedef struct sluice__layer_state {
    float *h_in, *x1, *rstd1; /* residual before the layer [rows, D], its norm, [rows] */
    sluice__bf16 *x1_half, *x2_half; /* x2_half NULL with experts: the router wants floats */
    sluice__attention_state attention; /* or */
    sluice__delta_state delta;
    sluice__branch_state attention_out;
    float *h_mid, *x2, *rstd2; /* residual after attention, its norm */
    sluice__mlp_state mlp; /* or */
    sluice__moe_state moe;
    sluice__branch_state mlp_out;
} sluice__layer_state;

/* Gradients on the way back; attention and MLP scratch lie over each other. */
typedef struct sluice__backward_state {
    float *dh;             /* [rows, D] of the residual stream */
    float *dbranch;        /* [rows, D] of a branch before norm and clip; NULL when no layer has either */
    float *dx;             /* [rows, D] of a normed input */
    float *dqkvg, *dy;     /* [rows, stride], [rows, H*d] */
    float *dpicked_k, *dpicked_v; /* [rows, K*d] of switch heads */
    float *dgate_up, *dact; /* [rows, 2F], [rows, F]; rows * k of them for experts */
    float *moe_x, *moe_d;   /* [rows * k, D] input and gradient of every expert's rows */
    float *dprob, *dweight; /* [rows, E], [rows * k] */
} sluice__backward_state;

enum { SLUICE__PROBE_BUFFERS = 5 };

struct sluice__workspace {
    const sluice_model *model;
    int64_t rows; /* capacity */
    sluice__mode mode; /* INFER or TRAIN */
    bool bf16;
    sluice__layer_state *layers;
    float *h_out, *x_out, *rstd_out; /* residual after the last layer, final norm */
    sluice__backward_state back;
    float *logits; /* [head_rows, V] one block of the loss head */
    int64_t head_rows;
    float *nll;         /* [rows] */
    int32_t *positions; /* [rows] when the caller gives none */
    sluice__weights grads;
    sluice__rope_cache rope;
    float *probe_buffer[SLUICE__PROBE_BUFFERS]; /* made when a probe first wants them */
    int64_t probe_capacity[SLUICE__PROBE_BUFFERS];
    const sluice__intervention *change; /* or NULL */
    void *calls; /* operators that take all segments at once find their arguments here */
    size_t calls_bytes;
};

/* One pass: what every layer function gets. */
typedef struct sluice__pass {
    const sluice_config *config;
    sluice__workspace *ws;
    sluice__segment *segments;
    int num_segments;
    sluice__segment all; /* the only segment, or the rows of several as if they were one without a cache */
    int batch, seq_len;  /* of it */
    int64_t rows;
    const int32_t *positions; /* [rows] */
    const sluice__probe *probe;
    sluice_error *err;
    sluice__router *router; /* or NULL */
    const sluice__intervention *change; /* or NULL */
    /* What is read behind the attention of the last layer: every token, or only the last one of each sequence whose
     * logits are wanted. A prompt's chunks need no more, and the last MLP and final norm then run on few rows or none. */
    enum { SLUICE__READ_ALL, SLUICE__READ_LAST } read;
} sluice__pass;

static inline float sluice__norm_offset(const sluice_config *config) {
    return config->norm == SLUICE_NORM_ONE_PLUS ? 1.0f : 0.0f;
}

/* Room for `count` arguments of `size` bytes each; NULL (with err set) when it cannot be had. The next call takes it back. */
void *sluice__calls(const sluice__pass *pass, int64_t count, size_t size);

/* A buffer of at least `count` floats that stays with the workspace; NULL (with err set) when it cannot be had. */
float *sluice__probe_scratch(const sluice__pass *pass, int which, int64_t count);
#endif
