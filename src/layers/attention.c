/* SPDX-License-Identifier: Apache-2.0 */
/* One GEMM gives q, k, v and the gate logits of all tokens, row after row. Queries and keys pass norm and RoPE into
 * buffers of their own (or, without norm, in place); values and gate logits are read where the GEMM left them, by stride.
 * With a cache, keys and values of new tokens are put into it and attention reads the cache. Backward runs the same path
 * the other way: gradients of q, k, v and gate meet in one buffer, so that again one GEMM each suffices. */
#include "layers/attention.h"
#include "base/error.h"
#include "kernels/ops.h"
#include "layers/cache.h"
#include "layers/probing.h"
#include <string.h>

typedef struct context {
    const sluice__pass *pass;
    const sluice_layer_spec *spec;
    const sluice__attention_state *state;
    const sluice__layer_weights *w;
    sluice__layer_sizes sizes;
    int layer;
} context;

static context context_of(const sluice__pass *pass, int layer, const sluice__attention_state *state) {
    return (context){pass, &pass->config->layers[layer], state, &sluice__model_weights(pass->ws->model)->layers[layer],
                     sluice__layer_sizes_of(pass->config, layer), layer};
}

static int64_t projection_rows(const context *c) {
    return (int64_t)c->sizes.q_rows + c->sizes.k_rows + c->sizes.v_rows + c->sizes.gate_rows;
}

/* [B,T,heads,head_dim] inside rows of `stride` floats, `offset` floats behind base. */
static sluice_strided inside(const context *c, float *base, int64_t offset, int64_t stride, int head_dim) {
    return (sluice_strided){base + offset, c->pass->seq_len * stride, stride, head_dim};
}

static sluice_strided query_of(const context *c, float *qkvg) { return inside(c, qkvg, 0, c->state->stride, c->spec->head_dim); }
static sluice_strided key_of(const context *c, float *qkvg) {
    return inside(c, qkvg, c->sizes.q_rows, c->state->stride, c->spec->head_dim);
}
static sluice_strided value_of(const context *c, float *qkvg) {
    return inside(c, qkvg, (int64_t)c->sizes.q_rows + c->sizes.k_rows, c->state->stride, c->spec->head_dim);
}
static sluice_strided gate_of(const context *c, float *qkvg) {
    if (!c->sizes.gate_rows) return (sluice_strided){0};
    return inside(c, qkvg, (int64_t)c->sizes.q_rows + c->sizes.k_rows + c->sizes.v_rows, c->state->stride, c->sizes.gate_width);
}
static sluice_strided dense(const context *c, float *base, int heads) {
    return inside(c, base, 0, (int64_t)heads * c->spec->head_dim, c->spec->head_dim);
}
static sluice_strided cached(const context *c, float *base) {
    int64_t width = c->pass->cache->layers[c->layer].kv_width;
    return (sluice_strided){base, c->pass->cache->capacity * width, width, c->spec->head_dim};
}

static sluice__norm_rope norm_rope_of(const context *c, int heads, const float *weight) {
    const sluice__rope_cache *rope = &c->pass->ws->rope;
    const sluice__rope_table *table = &rope->tables[rope->table_of_layer[c->layer]];
    return (sluice__norm_rope){.rows = c->pass->rows,
                               .heads = heads,
                               .head_dim = c->spec->head_dim,
                               .rotary_dim = c->spec->rope.rotary_dim,
                               .norm = c->spec->qk_norm,
                               .weight = weight,
                               .eps = (float)c->pass->config->rms_norm_eps,
                               .offset = sluice__norm_offset(c->pass->config),
                               .cos = c->spec->rope.enabled ? table->cos : NULL,
                               .sin = c->spec->rope.enabled ? table->sin : NULL,
                               .position = c->pass->positions};
}

static sluice_attention_params params_of(const context *c, int kv_len) {
    const sluice_gate_spec *gate = &c->spec->gate;
    return (sluice_attention_params){.batch = c->pass->batch,
                                     .q_len = c->pass->seq_len,
                                     .kv_len = kv_len,
                                     .num_heads = c->spec->num_attention_heads,
                                     .num_kv_heads = c->spec->num_key_value_heads,
                                     .head_dim = c->spec->head_dim,
                                     .scale = c->spec->attention_scale,
                                     .window = c->spec->sliding_window,
                                     .key_start = c->pass->key_start,
                                     .gated = gate->position == SLUICE_GATE_SDPA,
                                     .gate_granularity = gate->granularity,
                                     .gate_act = gate->act,
                                     .gate_op = gate->op};
}

/* y = rope(norm(x)) from one strided place to another; a cache is filled row by row of the batch. */
static void norm_rope(const context *c, int heads, const float *weight, sluice_strided y, float *rstd, sluice_strided x) {
    sluice__norm_rope p = norm_rope_of(c, heads, weight);
    if (y.stride_batch == c->pass->seq_len * y.stride_token) {
        sluice__norm_rope_forward(&p, y.data, y.stride_token, rstd, x.data, x.stride_token);
        return;
    }
    p.rows = c->pass->seq_len;
    for (int b = 0; b < c->pass->batch; b++) {
        p.position = c->pass->positions + (int64_t)b * p.rows;
        sluice__norm_rope_forward(&p, y.data + b * y.stride_batch, y.stride_token, NULL, x.data + b * x.stride_batch,
                                  x.stride_token);
    }
}

static void copy_rows(const context *c, sluice_strided y, sluice_strided x, int width) {
    for (int b = 0; b < c->pass->batch; b++)
        for (int t = 0; t < c->pass->seq_len; t++)
            memcpy(y.data + b * y.stride_batch + t * y.stride_token, x.data + b * x.stride_batch + t * x.stride_token,
                   (size_t)width * sizeof(float));
}

typedef struct operands {
    sluice_strided q, k, v, gate; /* as attention reads them: all keys, those of the cache included */
    sluice_strided new_k, new_v;  /* those of this pass's tokens */
    int kv_len;
} operands;

/* Where attention finds its inputs, without moving anything. */
static operands operands_of(const context *c) {
    const sluice__attention_state *s = c->state;
    operands o = {.v = value_of(c, s->qkvg), .gate = gate_of(c, s->qkvg), .kv_len = c->pass->seq_len};
    o.q = s->q ? dense(c, s->q, c->spec->num_attention_heads) : query_of(c, s->qkvg);
    o.k = s->k ? dense(c, s->k, c->spec->num_key_value_heads) : key_of(c, s->qkvg);
    o.new_k = o.k;
    o.new_v = o.v;
    if (!c->pass->cache) return o;
    const sluice__cache_layer *store = &c->pass->cache->layers[c->layer];
    int64_t behind = c->pass->cache->length * store->kv_width;
    o.k = cached(c, store->k);
    o.v = cached(c, store->v);
    o.new_k = cached(c, store->k + behind);
    o.new_v = cached(c, store->v + behind);
    o.kv_len += c->pass->cache->length;
    return o;
}

static void project(const context *c, const float *x, const operands *o) {
    const sluice__attention_state *s = c->state;
    int64_t width = c->pass->config->hidden_size;
    sluice__linear_forward(s->qkvg, s->stride, x, width, c->w->qkvg, c->w->qkv_bias, c->pass->rows, projection_rows(c), width);
    bool turned = c->spec->qk_norm || c->spec->rope.enabled;
    if (turned) norm_rope(c, c->spec->num_attention_heads, c->w->q_norm, o->q, s->q_rstd, query_of(c, s->qkvg));
    if (turned || c->pass->cache)
        norm_rope(c, c->spec->num_key_value_heads, c->w->k_norm, o->new_k, s->k_rstd, key_of(c, s->qkvg));
    if (c->pass->cache) copy_rows(c, o->new_v, value_of(c, s->qkvg), c->sizes.v_rows);
}

/* Where the ungated output goes: where backward wants it, or a probe, or nowhere. */
static sluice_status ungated_of(const context *c, sluice_strided *o) {
    float *data = c->state->o;
    bool gated = c->spec->gate.position == SLUICE_GATE_SDPA;
    if (!data && sluice__probe_wants(c->pass, SLUICE__PROBE_SDPA)) {
        int64_t count = c->pass->rows * c->spec->num_attention_heads * c->spec->head_dim;
        data = gated ? sluice__probe_scratch(c->pass, SLUICE__PROBE_UNGATED, count) : c->state->y;
        if (!data) return SLUICE_ERR_MEMORY;
    }
    *o = data ? dense(c, data, c->spec->num_attention_heads) : (sluice_strided){0};
    return SLUICE_OK;
}

static sluice_status emit_probs(const context *c, const sluice_attention_params *p, const operands *o) {
    if (!sluice__probe_wants(c->pass, SLUICE__PROBE_ATTN_PROBS)) return SLUICE_OK;
    int64_t one = (int64_t)p->num_heads * p->q_len * p->kv_len;
    float *probs = sluice__probe_scratch(c->pass, SLUICE__PROBE_MISC, p->batch * one);
    if (!probs) return SLUICE_ERR_MEMORY;
    for (int b = 0; b < p->batch; b++)
        SLUICE__TRY(sluice_attention_probs(p, b, o->q, o->k, probs + b * one, c->pass->err));
    return sluice__probe_emit(c->pass, SLUICE__PROBE_ATTN_PROBS, c->layer, probs, p->batch, p->num_heads, p->q_len, p->kv_len);
}

static sluice_status emit_all(const context *c, const sluice_attention_params *p, const operands *o, const float *ungated,
                              const float *share) {
    const sluice__pass *pass = c->pass;
    if (!pass->probe) return SLUICE_OK;
    int heads = p->num_heads, kv = p->num_kv_heads, dim = p->head_dim;
    SLUICE__TRY(sluice__probe_norms(pass, SLUICE__PROBE_KEY_NORM, c->layer, o->new_k, kv, dim));
    SLUICE__TRY(sluice__probe_norms(pass, SLUICE__PROBE_VALUE_NORM, c->layer, o->new_v, kv, dim));
    SLUICE__TRY(emit_probs(c, p, o));
    if (share)
        SLUICE__TRY(sluice__probe_emit(pass, SLUICE__PROBE_FIRST_SHARE, c->layer, share, p->batch, heads, p->q_len, 0));
    if (sluice__probe_wants(pass, SLUICE__PROBE_SDPA))
        SLUICE__TRY(sluice__probe_emit(pass, SLUICE__PROBE_SDPA, c->layer, ungated, p->batch, p->q_len, heads, dim));
    SLUICE__TRY(sluice__probe_gate(pass, c->layer, o->gate));
    if (sluice__probe_wants(pass, SLUICE__PROBE_SDPA_GATED))
        SLUICE__TRY(sluice__probe_emit(pass, SLUICE__PROBE_SDPA_GATED, c->layer, c->state->y, p->batch, p->q_len, heads, dim));
    return SLUICE_OK;
}

sluice_status sluice__attention_layer_forward(const sluice__pass *pass, int layer, const float *x, float *out,
                                              const sluice__attention_state *state) {
    context c = context_of(pass, layer, state);
    operands o = operands_of(&c);
    project(&c, x, &o);
    sluice_attention_params p = params_of(&c, o.kv_len);
    sluice_strided ungated, y = dense(&c, state->y, p.num_heads);
    SLUICE__TRY(ungated_of(&c, &ungated));
    float *share = NULL;
    if (sluice__probe_wants(pass, SLUICE__PROBE_FIRST_SHARE)) {
        share = sluice__probe_scratch(pass, SLUICE__PROBE_SHARES, pass->rows * p.num_heads);
        if (!share) return SLUICE_ERR_MEMORY;
    }
    SLUICE__TRY(sluice_attention_forward(&p, o.q, o.k, o.v, o.gate, y, ungated, state->lse, share, pass->err));
    SLUICE__TRY(emit_all(&c, &p, &o, ungated.data, share));
    int64_t width = pass->config->hidden_size, inner = (int64_t)p.num_heads * p.head_dim;
    sluice__linear_forward(out, width, state->y, inner, c.w->o_proj, c.w->o_bias, pass->rows, width, inner);
    return SLUICE_OK;
}

/* Turns the gradients of q and k after norm and RoPE, in place, into those of the projections. */
static void norm_rope_back(const context *c, int heads, const float *weight, float *dweight, sluice_strided d,
                           sluice_strided x, const float *rstd) {
    if (!c->spec->qk_norm && !c->spec->rope.enabled) return;
    sluice__norm_rope p = norm_rope_of(c, heads, weight);
    sluice__norm_rope_backward(&p, d.data, d.stride_token, dweight, d.data, d.stride_token, x.data, x.stride_token, rstd);
}

sluice_status sluice__attention_layer_backward(const sluice__pass *pass, int layer, const float *dout, const float *x,
                                               float *dx, const sluice__attention_state *state) {
    context c = context_of(pass, layer, state);
    const sluice__layer_weights *g = &pass->ws->grads.layers[layer];
    const sluice__backward_state *b = &pass->ws->back;
    operands o = operands_of(&c);
    sluice_attention_params p = params_of(&c, o.kv_len);
    int64_t rows = pass->rows, width = pass->config->hidden_size, inner = (int64_t)p.num_heads * p.head_dim;
    int64_t out_rows = projection_rows(&c);
    sluice__linear_backward_weight(g->o_proj, g->o_bias, dout, width, state->y, inner, rows, width, inner);
    sluice__linear_backward_input(b->dy, inner, dout, width, c.w->o_proj, rows, width, inner, false);
    sluice_strided dq = query_of(&c, b->dqkvg), dk = key_of(&c, b->dqkvg);
    SLUICE__TRY(sluice_attention_backward(&p, o.q, o.k, o.v, o.gate, dense(&c, state->o, p.num_heads), state->lse,
                                          dense(&c, b->dy, p.num_heads), dq, dk, value_of(&c, b->dqkvg),
                                          gate_of(&c, b->dqkvg), NULL, pass->err));
    norm_rope_back(&c, p.num_heads, c.w->q_norm, g->q_norm, dq, query_of(&c, state->qkvg), state->q_rstd);
    norm_rope_back(&c, p.num_kv_heads, c.w->k_norm, g->k_norm, dk, key_of(&c, state->qkvg), state->k_rstd);
    sluice__linear_backward_weight(g->qkvg, g->qkv_bias, b->dqkvg, state->stride, x, width, rows, out_rows, width);
    sluice__linear_backward_input(dx, width, b->dqkvg, state->stride, c.w->qkvg, rows, out_rows, width, false);
    return SLUICE_OK;
}
