/* SPDX-License-Identifier: Apache-2.0 */
/* Where the weights of a model lie. Parameters, gradients and optimiser moments share one flat fp32 layout; binding it to a
 * base address gives typed pointers, so the same code reads weights and writes gradients. A model that was loaded only
 * to run has its matrices elsewhere, in the types of its file: forward reaches them, and those of any model, as stacks.
 *
 * Tensors that read the same input lie back to back, in this order, so that one GEMM serves them all:
 *   attention   q_proj | k_proj | v_proj | gate_proj | switch_router     each [rows, D]; biases likewise
 *   MLP         gate_proj | up_proj                                      each [F, D]
 *   experts     gate_proj | up_proj of expert 0, of expert 1, ...;  down_proj of expert 0, of expert 1, ...
 * Other tensors start at multiples of 16 floats. */
#ifndef SLUICE_MODEL_WEIGHTS_H
#define SLUICE_MODEL_WEIGHTS_H
#include "kernels/matrix.h"
#include "sluice/model.h"

/* Matrices as forward reads them. A stack that the layer does not have has count 0. */
typedef struct sluice__layer_stacks {
    sluice__stack qkvg, o_proj;
    sluice__stack delta_in, delta_out; /* q | k | v | z | b | a of linear attention */
    sluice__stack gate_up, down;
    sluice__stack router;
    sluice__stack expert_gate_up, expert_down; /* of expert 0; those of the others follow: sluice__of_expert */
    sluice__stack shared_gate_up, shared_down, shared_gate;
} sluice__layer_stacks;

static inline sluice__stack sluice__of_expert(sluice__stack first, int64_t expert) {
    return (sluice__stack){first.part + expert * first.count, first.count};
}

/* Pointers into the flat layout. Those to matrices are NULL in a model that was loaded to run. */
typedef struct sluice__layer_weights {
    float *input_norm;          /* [D] input_layernorm; NULL with no_input_norm */
    float *qkvg;                /* [q_rows + k_rows + v_rows + gate_rows + switch_rows, D] */
    float *qkv_bias;            /* [q_rows + k_rows + v_rows + gate_rows], NULL without bias */
    float *gate_param;          /* [n*w] input-independent gate; NULL unless gate.input_none */
    float *q_norm, *k_norm;     /* [head_dim], of all heads with qk_norm_whole; NULL without qk_norm */
    float *sdpa_norm;           /* [head_dim]; NULL without sdpa_norm */
    float *o_proj, *o_bias;     /* [D, H*head_dim]; [D] or NULL */
    float *sinks;               /* [H] or NULL */
    float *delta_in;            /* [2 Hk dk + 2 Hv dv + 2 Hv, D] q | k | v | z | b | a of linear attention; it and what
                                   follows NULL without, then those above are */
    float *delta_conv;          /* [2 Hk dk + Hv dv, taps] of q | k | v */
    float *delta_a_log, *delta_dt_bias; /* [Hv] */
    float *delta_norm;          /* [dv] */
    float *delta_out;           /* [D, Hv dv] */
    float *post_self_attn_norm; /* [D]; NULL unless sandwich_norm */
    float *post_attention_norm; /* [D] pre-norm of the MLP: post_attention_layernorm */
    float *gate_up;             /* [2F, D]; [F, D] when mlp_gelu */
    float *down;                /* [D, F] */
    float *gate_up_bias, *down_bias; /* [2F], [D]; NULL without mlp_bias */
    float *router;              /* [E, D]; with experts, then gate_up and down are NULL */
    float *expert_gate_up;      /* [E, 2F', D] */
    float *expert_down;         /* [E, D, F'] */
    float *router_bias, *selection_bias;        /* [E] each; NULL without */
    float *expert_gate_up_bias, *expert_down_bias; /* [E, 2F'], [E, D]; NULL without */
    float *shared_gate_up_bias, *shared_down_bias; /* [2F"], [D]; NULL without mlp_bias */
    float *shared_gate_up;      /* [2F", D]; NULL without shared experts */
    float *shared_down;         /* [D, F"] */
    float *shared_gate;         /* [1, D]; NULL without shared_expert_gate */
    float *post_mlp_norm;       /* [D]; NULL unless sandwich_norm */
    sluice__layer_stacks stacks; /* of a model's weights; empty in gradients */
} sluice__layer_weights;

typedef struct sluice__weights {
    float *embed_tokens;           /* [V, D] */
    float *norm;                   /* [D] final norm */
    float *lm_head;                /* [V, D]; equal to embed_tokens when tied */
    sluice__stack embedding, head; /* the same as matrices; empty in gradients */
    sluice__layer_weights *layers; /* [num_hidden_layers], owned by the caller of bind */
} sluice__weights;

typedef struct sluice__layer_sizes {
    int q_rows, k_rows, v_rows, gate_rows; /* rows of the projections, all maps of a switch head counted; gate_rows 0
                                              without a projected gate */
    int switch_rows;                       /* of the switch router: key/value heads times maps; 0 without */
    int gate_heads, gate_width;            /* (n, w) of the gate logits of one token; 0 without gate */
} sluice__layer_sizes;
sluice__layer_sizes sluice__layer_sizes_of(const sluice_config *config, int layer);

/* Points *out into `flat` (of sluice__flat_size floats; NULL base is allowed only to count). out->layers must have room for
 * num_hidden_layers entries. */
void sluice__weights_bind(const sluice_model *model, float *flat, sluice__weights *out);
/* The binding of the model's own parameters, made once at load. */
const sluice__weights *sluice__model_weights(const sluice_model *model);

int64_t sluice__flat_size(const sluice_model *model);               /* floats, alignment gaps included */
int64_t sluice__grad_offset(const sluice_model *model, int tensor); /* of tensor i in the flat layout */
float *sluice__flat_params(sluice_model *model);
/* Whether its matrices lie outside the flat layout: it runs, but cannot be trained. */
bool sluice__model_is_as_stored(const sluice_model *model);

/* cos, sin [positions, rotary_dim/2] for positions 0..count-1 of one layer's RoPE, attention factor multiplied in; angles in
 * double, rounded once. `length` is the sequence length for types that depend on it (dynamic, longrope). */
sluice_status sluice__rope_tables(const sluice_rope_spec *rope, int64_t count, int64_t length, float *cos, float *sin,
                                  sluice_error *err);
/* inv_freq [rotary_dim/2] and the attention factor, as transformers computes them. */
void sluice__rope_inv_freq(const sluice_rope_spec *rope, int64_t length, double *inv_freq, double *attention_factor);
#endif
