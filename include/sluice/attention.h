/* SPDX-License-Identifier: Apache-2.0 */
/* Gated softmax attention as an operator of its own, forward and backward, fp32.
 *
 *   s[i,j] = scale * q_i . k_j             then softcap * tanh(s / softcap) if softcap > 0
 *   p      = softmax of s over the keys j that query i sees, and over sinks[h], one more learned
 *            logit that gets weight but has no value
 *   O_i    = sum_j p[i,j] v_j
 *   Y_i    = O_i * act(gate_i)             Qiu et al. 2025, eq. 5, at the SDPA output
 *
 * Query i stands at key position a = kv_len - q_len + i and sees key_start(i) <= j <= a, and
 * j > a - window if window > 0. Query head h reads key/value head h / (num_heads / num_kv_heads).
 * A query that sees no key gives O = 0.
 *
 * Memory is O(T): scores exist one tile at a time (online softmax, Milakov & Gimelshein 2018;
 * Dao 2023). Results are the same bits for the same inputs and thread count.
 *
 * Element d of (b, t, h) stands at data + b * stride_batch + t * stride_token + h * stride_head + d
 * (floats), so that q, k, v and the gate may lie inside one fused projection [B, T, q|k|v|gate]. A
 * stride of 0 means packed: all three 0 is a dense [B, T, heads, head_dim]. Nothing is allocated
 * for or kept from the caller; calls from several threads are independent.
 *
 * Refused with SLUICE_ERR_ARGUMENT, naming the argument: sizes below 1, head_dim above 1024,
 * num_heads that num_kv_heads does not divide, kv_len < q_len, scale 0 or not finite, a key_start
 * outside 0..(the query's own position), NULL tensors, negative strides, outputs whose rows
 * overlap. Gate logits of +-inf are limits (sigmoid 0 and 1). NaN and infinity in the other tensors
 * give what arithmetic gives; one in v may also reach queries nearby that do not see its key
 * (0 * NaN). Outputs must not overlap inputs, except o == y when !gated. */
#ifndef SLUICE_ATTENTION_H
#define SLUICE_ATTENTION_H
#include <stdint.h>
#include "sluice/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum sluice_gate_granularity {
    SLUICE_GATE_ELEMENTWISE,
    SLUICE_GATE_HEADWISE
} sluice_gate_granularity;
typedef enum sluice_gate_act {
    SLUICE_GATE_SIGMOID,
    SLUICE_GATE_SILU,
    SLUICE_GATE_IDENTITY,
    SLUICE_GATE_NS_SIGMOID, /* 0.5 + 0.5 sigmoid(s) */
    SLUICE_GATE_SOFTPLUS
} sluice_gate_act;
typedef enum sluice_gate_op { SLUICE_GATE_MULTIPLY, SLUICE_GATE_ADD } sluice_gate_op;

/* How a session holds keys and values. */
typedef enum sluice_kv_dtype {
    SLUICE_KV_F32,
    SLUICE_KV_F16,
    SLUICE_KV_BF16,
    SLUICE_KV_Q8_0 /* blocks of 32 values of a head with one 16-bit scale: 8.5 bits a value */
} sluice_kv_dtype;

/* A strided tensor [B, T, heads, head_dim]; stride_head 0 = head_dim (or 1 for a headwise gate). */
typedef struct sluice_strided {
    float *data;
    int64_t stride_batch, stride_token, stride_head;
} sluice_strided;

typedef struct sluice_attention_params {
    int batch, q_len, kv_len; /* kv_len >= q_len */
    int num_heads, num_kv_heads, head_dim;
    float scale;              /* usually 1 / sqrt(head_dim); not 0 */
    float softcap;            /* 0 = off */
    int window;               /* keys visible behind and including the query's own; 0 = all */
    const int32_t *key_start; /* [batch, q_len] first visible key (packed documents); NULL = 0 */
    const float *sinks;       /* [num_heads] learned sink logits; NULL = none */
    int gated;                /* 0: Y = O */
    sluice_gate_granularity gate_granularity;
    sluice_gate_act gate_act;
    sluice_gate_op gate_op; /* multiply: Y = O * act(s); add: Y = O + act(s) */
    int bf16; /* 1: products of bf16 numbers with sums in fp32. q, k, v and dy must hold such numbers; shares, and in
                 backward the gradients of o and of the scores, are rounded to bf16 before they are multiplied */
} sluice_attention_params;

/* Forward. q, k, v: inputs.
 * gate: logits (elementwise [B,T,H,head_dim], headwise [B,T,H,1]); ignored when !gated.
 * y: gated output.
 * o: ungated output, written when o.data != NULL (backward and probes need it); may be y if !gated.
 * lse [B,H,q_len]: log-sum-exp of the scaled scores (natural log, sink logit included), or NULL.
 * first_share [B,H,q_len]: p[i,0] = exp(s_i0 - lse_i), 0 where key 0 is not visible, or NULL. */
sluice_status sluice_attention_forward(const sluice_attention_params *p, sluice_strided q,
                                       sluice_strided k, sluice_strided v, sluice_strided gate,
                                       sluice_strided y, sluice_strided o, float *lse,
                                       float *first_share, sluice_error *err);

/* Backward of the same call. dy: gradient of y; o and lse: what forward wrote.
 * Writes (does not add to) dq, dk, dv, dgate, shaped as their inputs; dgate is ignored when !gated.
 * Adds to dsinks [H], which may be NULL. */
sluice_status sluice_attention_backward(const sluice_attention_params *p, sluice_strided q,
                                        sluice_strided k, sluice_strided v, sluice_strided gate,
                                        sluice_strided o, const float *lse, sluice_strided dy,
                                        sluice_strided dq, sluice_strided dk, sluice_strided dv,
                                        sluice_strided dgate, float *dsinks, sluice_error *err);

/* p[i,j] themselves, for one batch row: probs [num_heads, q_len, kv_len]. The only function here
 * that takes memory of the square of the length; for maps. */
sluice_status sluice_attention_probs(const sluice_attention_params *p, int batch_row,
                                     sluice_strided q, sluice_strided k, float *probs,
                                     sluice_error *err);

#ifdef __cplusplus
}
#endif
#endif
