/* SPDX-License-Identifier: Apache-2.0 */
/* Linear attention by the gated delta rule (Yang, Kautz & Hatamizadeh 2025, arXiv 2412.06464): short causal
 * convolution, L2 norm, decay and write strength, and the rule itself. For one head with state S [key_dim, value_dim],
 * decay a_t = exp(log_decay_t) and write strength b_t:
 *
 *   S <- a_t S;   d_t = b_t (v_t - S^T k_t);   S <- S + k_t d_t^T;   o_t = S^T q_t
 *
 * State and sums are fp32. */
#ifndef SLUICE_KERNELS_DELTA_H
#define SLUICE_KERNELS_DELTA_H
#include <stdbool.h>
#include <stdint.h>
#include "sluice/status.h"

enum {
    SLUICE__DELTA_CHUNK = 64, /* tokens of which the chunked form makes matrix products */
    SLUICE__DELTA_STEPS = 3,  /* so few tokens go one by one */
};

/* y[t,c] = silu(sum_j w[c,j] x[t - taps + 1 + j, c]) for t = 0..rows-1; inputs before x stand in history
 * [taps-1, channels], oldest first, which afterwards holds the last taps-1 inputs. history NULL: zeros, nothing kept.
 * w: [channels, taps]. y may not alias x. */
typedef struct sluice__conv {
    int64_t rows, channels, y_stride, x_stride;
    int taps;
    float *y, *history;
    const float *x, *w;
} sluice__conv;
/* `count` sequences at once, of the same channels. */
void sluice__causal_conv_silu(const sluice__conv *sequences, int count);

/* y[r,h,:] = scale * x[r,h,:] / sqrt(sum x[r,h,:]^2 + eps).   x, y: [rows, heads, dim] with row strides; y may alias
 * x. */
void sluice__l2_norm(float *y, int64_t y_stride, const float *x, int64_t x_stride, int64_t rows, int heads, int dim,
                     float eps, float scale);

/* log_decay = -exp(a_log) softplus(a + dt_bias);  beta = scale sigmoid(b).   a, b: [rows, heads] with a row stride;
 * a_log, dt_bias: [heads]; log_decay, beta: [rows, heads]. */
void sluice__delta_gates(float *log_decay, float *beta, const float *a, const float *b, int64_t stride,
                         const float *a_log, const float *dt_bias, int64_t rows, int heads, float scale);

/* Value head h reads key head h / (value_heads / key_heads). */
typedef struct sluice__delta {
    int batch, seq_len, key_heads, value_heads, key_dim, value_dim;
    const float *q, *k;             /* [B,T,key_heads,key_dim], rows of qkv_stride */
    const float *v;                 /* [B,T,value_heads,value_dim], rows of qkv_stride */
    int64_t qkv_stride;
    const float *log_decay, *beta;  /* [B,T,value_heads]; log_decay <= 0 */
    float *state;                   /* [B,value_heads,key_dim,value_dim], read and written; NULL: zeros, not kept */
    float *o;                       /* [B,T,value_heads,value_dim] */
} sluice__delta;
/* `count` calls with heads of the same number and size, which share one team. Fails only for want of scratch memory. */
sluice_status sluice__delta_rule(const sluice__delta *calls, int count);

/* One head of one sequence: what the kernel gets. */
typedef struct sluice__delta_head {
    int64_t rows, qk_stride, v_stride, gate_stride, o_stride;
    int key_dim, value_dim;
    const float *q, *k, *v, *log_decay, *beta;
    float *state, *o;
    float *scratch; /* sluice__delta_scratch floats */
} sluice__delta_head;
int64_t sluice__delta_scratch(int key_dim, int value_dim);
#endif
