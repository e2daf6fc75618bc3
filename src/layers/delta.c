/* SPDX-License-Identifier: Apache-2.0 */
/* One GEMM gives queries, keys, values, z, b and a of all tokens. q, k and v pass a short causal convolution with SiLU
 * and the first two an L2 norm; b and a become write strength and decay; the delta rule writes into and reads from the
 * state of every head; its output is normed per head and multiplied by silu(z). Sequences of a batch follow each other
 * in memory, so only the convolution, which looks back, is called for each of them. */
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
    const sluice__cache_layer *cache; /* NULL without */
    int64_t keys, values, channels;   /* floats of a token: of its keys, its values, what is convolved */
} context;

static context context_of(const sluice__pass *pass, int layer, const sluice__delta_state *state) {
    const sluice_delta_spec *d = &pass->config->layers[layer].delta;
    int64_t keys = (int64_t)d->num_key_heads * d->key_head_dim, values = (int64_t)d->num_value_heads * d->value_head_dim;
    return (context){.pass = pass,
                     .spec = d,
                     .state = state,
                     .w = &sluice__model_weights(pass->ws->model)->layers[layer],
                     .cache = pass->cache ? &pass->cache->layers[layer] : NULL,
                     .keys = keys,
                     .values = values,
                     .channels = 2 * keys + values};
}

static void convolve(const context *c) {
    int64_t tokens = c->pass->seq_len;
    sluice__conv conv = {.rows = tokens,
                         .channels = c->channels,
                         .y_stride = c->channels,
                         .x_stride = c->state->stride,
                         .taps = c->spec->conv_kernel,
                         .w = c->w->delta_conv};
    for (int b = 0; b < c->pass->batch; b++) {
        conv.x = c->state->in + b * tokens * conv.x_stride;
        conv.y = c->state->qkv + b * tokens * conv.y_stride;
        conv.history = c->cache && c->cache->conv_size ? c->cache->conv + b * c->cache->conv_size : NULL;
        sluice__causal_conv_silu(&conv);
    }
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

static sluice_status recur(const context *c) {
    const sluice_delta_spec *d = c->spec;
    const sluice__delta_state *s = c->state;
    sluice__delta rule = {.batch = c->pass->batch,
                          .seq_len = c->pass->seq_len,
                          .key_heads = d->num_key_heads,
                          .value_heads = d->num_value_heads,
                          .key_dim = d->key_head_dim,
                          .value_dim = d->value_head_dim,
                          .q = s->qkv,
                          .k = s->qkv + c->keys,
                          .v = s->qkv + 2 * c->keys,
                          .qkv_stride = c->channels,
                          .log_decay = s->log_decay,
                          .beta = s->beta,
                          .state = c->cache ? c->cache->state : NULL,
                          .o = s->o};
    if (sluice__delta_rule(&rule) == SLUICE_OK) return SLUICE_OK;
    return sluice__no_memory(c->pass->err, (size_t)sluice__delta_scratch(rule.key_dim, rule.value_dim) * sizeof(float),
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
    convolve(&c);
    prepare(&c);
    SLUICE__TRY(recur(&c));
    gated_norm(&c);
    sluice__stack_forward(out, width, state->o, c.values, c.w->stacks.delta_out, NULL, pass->rows);
    return SLUICE_OK;
}
