/* SPDX-License-Identifier: Apache-2.0 */
/* One GEMM gives queries, keys, values, z, b and a of all tokens. q, k and v pass a short causal convolution with SiLU
 * and the first two an L2 norm; b and a become write strength and decay; the delta rule writes into and reads from the
 * state of every head; its output is normed per head and multiplied by silu(z). What looks back, convolution and rule, gets
 * a list of the sequences, each with its own states. */
#include "layers/delta.h"
#include "base/error.h"
#include "base/memory.h"
#include "kernels/delta.h"
#include "kernels/gate.h"
#include "kernels/ops.h"
#include "layers/cache.h"
#include <math.h>

/* As in transformers and flash-linear-attention, whatever rms_norm_eps says. */
static const float L2_EPS = 1e-6f;

typedef struct context {
    const sluice__pass *pass;
    const sluice_delta_spec *spec;
    const sluice__delta_state *state;
    const sluice__layer_weights *w;
    int layer;
    int64_t keys, values, channels;   /* floats of a token: of its keys, its values, what is convolved */
} context;

static context context_of(const sluice__pass *pass, int layer, const sluice__delta_state *state) {
    const sluice_delta_spec *d = &pass->config->layers[layer].delta;
    int64_t keys = (int64_t)d->num_key_heads * d->key_head_dim, values = (int64_t)d->num_value_heads * d->value_head_dim;
    return (context){.pass = pass,
                     .spec = d,
                     .state = state,
                     .w = &sluice__model_weights(pass->ws->model)->layers[layer],
                     .layer = layer,
                     .keys = keys,
                     .values = values,
                     .channels = 2 * keys + values};
}

static const sluice__cache_layer *cache_of(const context *c, const sluice__segment *s) {
    return s->cache ? &s->cache->layers[c->layer] : NULL;
}

static int64_t sequences_of(const sluice__pass *pass) {
    int64_t count = 0;
    for (int i = 0; i < pass->num_segments; i++) count += pass->segments[i].in.batch;
    return count;
}

static sluice_status convolve(const context *c) {
    sluice__conv *calls = sluice__calls(c->pass, sequences_of(c->pass), sizeof *calls);
    if (!calls) return SLUICE_ERR_MEMORY;
    int count = 0;
    for (int i = 0; i < c->pass->num_segments; i++) {
        const sluice__segment *s = &c->pass->segments[i];
        const sluice__cache_layer *cache = cache_of(c, s);
        for (int b = 0; b < s->in.batch; b++) {
            int64_t row = s->first + (int64_t)b * s->in.seq_len;
            calls[count++] = (sluice__conv){
                .rows = s->in.seq_len,
                .channels = c->channels,
                .y_stride = c->channels,
                .x_stride = c->state->stride,
                .taps = c->spec->conv_kernel,
                .w = c->w->delta_conv,
                .x = c->state->in + row * c->state->stride,
                .y = c->state->qkv + row * c->channels,
                .history = cache && cache->conv_size ? cache->conv + b * cache->conv_size : NULL};
        }
    }
    sluice__causal_conv_silu(calls, count);
    return SLUICE_OK;
}

/* Queries and keys of length 1, queries scaled; decay and write strength. */
static void prepare(const context *c) {
    const sluice_delta_spec *d = c->spec;
    const sluice__delta_state *s = c->state;
    int64_t rows = c->pass->rows;
    float *q = s->qkv, *k = s->qkv + c->keys;
    const float *b = s->in + c->channels + c->values, *a = b + d->num_value_heads;
    float scale = 1 / sqrtf((float)d->key_head_dim);
    sluice__l2_norm(q, c->channels, q, c->channels, rows, d->num_key_heads, d->key_head_dim, L2_EPS, scale);
    sluice__l2_norm(k, c->channels, k, c->channels, rows, d->num_key_heads, d->key_head_dim, L2_EPS, 1);
    sluice__delta_gates(s->log_decay, s->beta, a, b, s->stride, c->w->delta_a_log, c->w->delta_dt_bias, rows,
                        d->num_value_heads, d->double_beta ? 2 : 1);
}

static sluice__delta rule_of(const context *c, const sluice__segment *at) {
    const sluice_delta_spec *d = c->spec;
    const sluice__delta_state *s = c->state;
    const sluice__cache_layer *cache = cache_of(c, at);
    const float *qkv = s->qkv + at->first * c->channels;
    return (sluice__delta){.batch = at->in.batch,
                           .seq_len = at->in.seq_len,
                           .key_heads = d->num_key_heads,
                           .value_heads = d->num_value_heads,
                           .key_dim = d->key_head_dim,
                           .value_dim = d->value_head_dim,
                           .q = qkv,
                           .k = qkv + c->keys,
                           .v = qkv + 2 * c->keys,
                           .qkv_stride = c->channels,
                           .log_decay = s->log_decay + at->first * d->num_value_heads,
                           .beta = s->beta + at->first * d->num_value_heads,
                           .state = cache ? cache->state : NULL,
                           .o = s->o + at->first * c->values};
}

static sluice_status recur(const context *c) {
    sluice__delta *calls = sluice__calls(c->pass, c->pass->num_segments, sizeof *calls);
    if (!calls) return SLUICE_ERR_MEMORY;
    for (int i = 0; i < c->pass->num_segments; i++) calls[i] = rule_of(c, &c->pass->segments[i]);
    if (sluice__delta_rule(calls, c->pass->num_segments) == SLUICE_OK) return SLUICE_OK;
    return sluice__no_memory(c->pass->err, (size_t)sluice__delta_scratch(calls->key_dim, calls->value_dim) * sizeof(float),
                             "linear attention");
}

/* o = norm(o) * silu(z), head by head. */
static void gated_norm(const context *c) {
    const sluice_delta_spec *d = c->spec;
    float *o = c->state->o;
    int64_t rows = c->pass->rows;
    sluice__rms_norm_forward(o, NULL, o, c->w->delta_norm, rows * d->num_value_heads, d->value_head_dim,
                             (float)d->norm_eps, 0);
    sluice__gating gate = {.rows = rows,
                           .heads = d->num_value_heads,
                           .head_dim = d->value_head_dim,
                           .width = d->value_head_dim,
                           .act = SLUICE_GATE_SILU,
                           .op = SLUICE_GATE_MULTIPLY};
    sluice__gating_forward(&gate, o, c->values, o, c->values, c->state->in + c->channels, c->state->stride);
}

sluice_status sluice__delta_layer_forward(const sluice__pass *pass, int layer, const float *x, float *out,
                                          const sluice__delta_state *state) {
    context c = context_of(pass, layer, state);
    int64_t width = pass->config->hidden_size;
    sluice__stack_forward(state->in, state->stride, x, width, c.w->stacks.delta_in, NULL, pass->rows);
    SLUICE__TRY(convolve(&c));
    prepare(&c);
    SLUICE__TRY(recur(&c));
    gated_norm(&c);
    sluice__stack_forward(out, width, state->o, c.values, c.w->stacks.delta_out, NULL, pass->rows);
    return SLUICE_OK;
}
