/* SPDX-License-Identifier: Apache-2.0 */
/* One GEMM gives q, k, v, the gate logits and those of a switch router of all tokens, row after row. Queries and
 * keys pass norm and RoPE into buffers of their own (or, without norm, in place); values and gate logits are read
 * where the GEMM left them, by stride. With a cache, keys and values of new tokens are put into it and attention
 * reads the cache. What works row by row takes all segments of the pass as one; keys, values and attention itself go
 * segment by segment, the last in one call for all. Backward runs the same path the other way: gradients of q, k, v and gate meet in one buffer, so
 * that again one GEMM each suffices. */
#include "layers/attention.h"
#include "base/error.h"
#include "kernels/attention.h"
#include "kernels/ops.h"
#include "kernels/profile.h"
#include "layers/cache.h"
#include "layers/dense.h"
#include "layers/gate.h"
#include "layers/probing.h"
#include "layers/switch_head.h"
#include <math.h>
#include <string.h>

typedef struct context {
    const sluice__pass *pass;
    const sluice_layer_spec *spec;
    const sluice__attention_state *state;
    const sluice__layer_weights *w;
    sluice__layer_sizes sizes;
    int layer;
    const sluice__segment *at; /* what the functions below look at: one segment, or all of them as one */
} context;

static context context_of(const sluice__pass *pass, int layer, const sluice__attention_state *state) {
    return (context){pass, &pass->config->layers[layer], state, &sluice__model_weights(pass->ws->model)->layers[layer],
                     sluice__layer_sizes_of(pass->config, layer), layer, &pass->all};
}

static context context_at(const context *all, int segment) {
    context c = *all;
    c.at = &c.pass->segments[segment];
    return c;
}

static int64_t rows_of(const context *c) { return (int64_t)c->at->in.batch * c->at->in.seq_len; }

static int64_t projection_rows(const context *c) {
    return (int64_t)c->sizes.q_rows + c->sizes.k_rows + c->sizes.v_rows + c->sizes.gate_rows + c->sizes.switch_rows;
}

/* [B,T,heads,head_dim] inside rows of `stride` floats, `offset` floats behind base, which is row 0 of the pass. */
static sluice_strided inside(const context *c, float *base, int64_t offset, int64_t stride, int head_dim) {
    return (sluice_strided){base + c->at->first * stride + offset, c->at->in.seq_len * stride, stride, head_dim};
}

/* Whether keys or values come from the maps of a switch head. */
static bool is_switched(const context *c, sluice_gate_position which) {
    sluice_switch_head head = c->spec->switch_head.head;
    return head != SLUICE_SWITCH_NONE &&
           (which == SLUICE_GATE_VALUE || (which == SLUICE_GATE_KEY && head == SLUICE_SWITCH_KV));
}

/* The place of queries, keys or values (of all their maps) in rows laid out as qkvg. */
static sluice_strided projected_of(const context *c, float *qkvg, sluice_gate_position which) {
    int64_t offset = which == SLUICE_GATE_QUERY ? 0 : c->sizes.q_rows;
    if (which == SLUICE_GATE_VALUE) offset += c->sizes.k_rows;
    return inside(c, qkvg, offset, c->state->stride, c->spec->head_dim);
}
static sluice_strided gate_of(const context *c, float *qkvg) {
    if (!c->sizes.gate_rows) return (sluice_strided){0};
    return inside(c, qkvg, (int64_t)c->sizes.q_rows + c->sizes.k_rows + c->sizes.v_rows, c->state->stride,
                  c->sizes.gate_width);
}
static sluice_strided dense(const context *c, float *base, int heads) {
    return inside(c, base, 0, (int64_t)heads * c->spec->head_dim, c->spec->head_dim);
}
/* Queries, keys or values as projected or picked from maps, and the place of their gradients. */
static sluice_strided slot_of(const context *c, sluice_gate_position which) {
    if (!is_switched(c, which)) return projected_of(c, c->state->qkvg, which);
    return dense(c, which == SLUICE_GATE_KEY ? c->state->picked_k : c->state->picked_v, c->spec->num_key_value_heads);
}
static sluice_strided gradient_of(const context *c, sluice_gate_position which) {
    const sluice__backward_state *b = &c->pass->ws->back;
    if (!is_switched(c, which)) return projected_of(c, b->dqkvg, which);
    return dense(c, which == SLUICE_GATE_KEY ? b->dpicked_k : b->dpicked_v, c->spec->num_key_value_heads);
}
static float *switch_router_of(const context *c, float *qkvg) {
    return qkvg + c->sizes.q_rows + c->sizes.k_rows + c->sizes.v_rows + c->sizes.gate_rows;
}
/* Queries, keys or values behind a gate at their position, if there is one. */
static sluice_strided source_of(const context *c, sluice_gate_position which) {
    int heads = which == SLUICE_GATE_QUERY ? c->spec->num_attention_heads : c->spec->num_key_value_heads;
    if (c->state->gated && c->spec->gate.position == which) return dense(c, c->state->gated, heads);
    return slot_of(c, which);
}
/* Keys or values in an fp32 cache from row `first` on. */
static sluice_strided cached(const context *c, char *base, int first) {
    const sluice__cache_layer *l = &c->at->cache->layers[c->layer];
    float *at = (float *)(void *)(base + (size_t)first * l->row_bytes);
    return (sluice_strided){at, l->rows * l->kv_width, l->kv_width, c->spec->head_dim};
}
/* The same in a cache of any type. */
static sluice__kv cached_kv(const context *c, const char *base) {
    const sluice__cache *cache = c->at->cache;
    int64_t row = (int64_t)cache->layers[c->layer].row_bytes;
    return (sluice__kv){base, cache->layers[c->layer].rows * row, row, (int64_t)sluice__kv_bytes(cache->dtype, c->spec->head_dim),
                        cache->dtype};
}

static sluice__norm_rope norm_rope_of(const context *c, int heads, const float *weight) {
    const sluice__rope_cache *rope = &c->pass->ws->rope;
    const sluice__rope_table *table = &rope->tables[rope->table_of_layer[c->layer]];
    return (sluice__norm_rope){.rows = rows_of(c),
                               .heads = heads,
                               .head_dim = c->spec->head_dim,
                               .rotary_dim = c->spec->rope.rotary_dim,
                               .norm = c->spec->qk_norm,
                               .weight = weight,
                               .eps = (float)c->pass->config->rms_norm_eps,
                               .offset = sluice__norm_offset(c->pass->config),
                               .cos = c->spec->rope.enabled ? table->cos : NULL,
                               .sin = c->spec->rope.enabled ? table->sin : NULL,
                               .position = c->pass->positions + c->at->first};
}

/* Scores that an intervention puts in place of this layer's gate: [heads * w]; NULL = none. */
static const float *forced_gate(const context *c) {
    const sluice__intervention *change = c->pass->change;
    return change && change->gate && c->sizes.gate_heads ? change->gate[c->layer] : NULL;
}

/* Keys that a query sees behind and including its own; 0 = all. */
static int window_of(const context *c) {
    int own = c->spec->sliding_window, asked = c->pass->change ? c->pass->change->window : 0;
    return asked > 0 && (own == 0 || asked < own) ? asked : own;
}

/* First keys that stay visible behind the window. */
static int kept_of(const context *c) { return c->pass->change ? c->pass->change->sinks : 0; }

static sluice_attention_params params_of(const context *c, int kv_len) {
    const sluice_gate_spec *gate = &c->spec->gate;
    return (sluice_attention_params){.batch = c->at->in.batch,
                                     .q_len = c->at->in.seq_len,
                                     .kv_len = kv_len,
                                     .num_heads = c->spec->num_attention_heads,
                                     .num_kv_heads = c->spec->num_key_value_heads,
                                     .head_dim = c->spec->head_dim,
                                     .scale = c->spec->attention_scale,
                                     .window = window_of(c),
                                     .key_start = c->at->in.key_start,
                                     .sinks = c->w->sinks,
                                     .gated = sluice__gate_is_fused(c->spec),
                                     .gate_granularity = gate->granularity,
                                     .gate_act = forced_gate(c) ? SLUICE_GATE_IDENTITY : gate->act,
                                     .gate_op = gate->op,
                                     .bf16 = c->pass->ws->bf16};
}

/* The norm of qk_norm_whole takes all heads of a token as one, before they rotate one by one in place. */
static void norm_rope_call(const sluice__norm_rope *p, bool whole, float *y, int64_t y_stride, float *rstd,
                           const float *x, int64_t x_stride) {
    if (!whole) {
        sluice__norm_rope_forward(p, y, y_stride, rstd, x, x_stride);
        return;
    }
    sluice__norm_rope norm = *p, rope = *p;
    norm.heads = 1;
    norm.head_dim = p->heads * p->head_dim;
    norm.cos = norm.sin = NULL;
    rope.norm = false;
    sluice__norm_rope_forward(&norm, y, y_stride, rstd, x, x_stride);
    if (p->cos) sluice__norm_rope_forward(&rope, y, y_stride, NULL, y, y_stride);
}

/* y = rope(norm(x)) from one strided place to another; a cache is filled row by row of the batch. */
static void norm_rope(const context *c, int heads, const float *weight, sluice_strided y, float *rstd,
                      sluice_strided x) {
    sluice__norm_rope p = norm_rope_of(c, heads, weight);
    bool whole = c->spec->qk_norm && c->spec->qk_norm_whole;
    if (y.stride_batch == c->at->in.seq_len * y.stride_token) {
        norm_rope_call(&p, whole, y.data, y.stride_token, rstd, x.data, x.stride_token);
        return;
    }
    p.rows = c->at->in.seq_len;
    for (int b = 0; b < c->at->in.batch; b++) {
        p.position = c->pass->positions + c->at->first + b * p.rows;
        norm_rope_call(&p, whole, y.data + b * y.stride_batch, y.stride_token, NULL, x.data + b * x.stride_batch,
                       x.stride_token);
    }
}

static void copy_rows(const context *c, sluice_strided y, sluice_strided x, int width) {
    SLUICE__SPAN_FLOATS("key/value cache", 2 * rows_of(c) * width);
    for (int b = 0; b < c->at->in.batch; b++)
        for (int t = 0; t < c->at->in.seq_len; t++)
            memcpy(y.data + b * y.stride_batch + t * y.stride_token, x.data + b * x.stride_batch + t * x.stride_token,
                   (size_t)width * sizeof(float));
}

/* New keys or values into a cache that is not fp32. */
static void store_rows(const context *c, char *to, sluice_strided x) {
    SLUICE__SPAN_FLOATS("key/value cache", 2 * rows_of(c) * c->at->cache->layers[c->layer].kv_width);
    const sluice__cache *cache = c->at->cache;
    const sluice__cache_layer *l = &cache->layers[c->layer];
    size_t row = l->row_bytes;
    for (int b = 0; b < c->at->in.batch; b++)
        for (int t = 0; t < c->at->in.seq_len; t++)
            sluice__kv_store(to + row * ((size_t)b * (size_t)l->rows + (size_t)(cache->length - l->start + t)),
                             x.data + b * x.stride_batch + t * x.stride_token, cache->dtype,
                             cache->layers[c->layer].kv_width);
}

static sluice_strided queries(const context *c) {
    return c->state->q ? dense(c, c->state->q, c->spec->num_attention_heads) : source_of(c, SLUICE_GATE_QUERY);
}

typedef struct operands {
    sluice_strided q, k, v, gate; /* as attention reads them: all keys, those of the cache included */
    sluice_strided new_k, new_v;  /* those of this pass's tokens */
    sluice__kv typed_k, typed_v;  /* in place of k and v when the cache is not fp32; data NULL otherwise */
    int kv_len;
} operands;

/* Where attention finds its inputs (of a segment, or of all where there is no cache), without moving anything. */
static operands operands_of(const context *c) {
    const sluice__attention_state *s = c->state;
    operands o = {.v = source_of(c, SLUICE_GATE_VALUE), .gate = gate_of(c, s->qkvg), .kv_len = c->at->in.seq_len};
    o.q = queries(c);
    o.k = s->k ? dense(c, s->k, c->spec->num_key_value_heads) : source_of(c, SLUICE_GATE_KEY);
    o.new_k = o.k;
    o.new_v = o.v;
    const sluice__cache *cache = c->at->cache;
    if (!cache) return o;
    const sluice__cache_layer *store = &cache->layers[c->layer];
    int held = cache->length - store->start;
    o.kv_len += held;
    if (cache->dtype != SLUICE_KV_F32) {
        o.typed_k = cached_kv(c, store->k);
        o.typed_v = cached_kv(c, store->v);
        return o;
    }
    o.k = cached(c, store->k, 0);
    o.v = cached(c, store->v, 0);
    o.new_k = cached(c, store->k, held);
    o.new_v = cached(c, store->v, held);
    return o;
}

/* The gate as kernels/gate.h wants it, and its logits. */
typedef struct gate_call {
    sluice__gating g;
    const float *logits;
    int64_t stride;
} gate_call;

static gate_call gate_call_of(const context *c) {
    const sluice_gate_spec *spec = &c->spec->gate;
    bool output = spec->position == SLUICE_GATE_OUTPUT;
    return (gate_call){.g = {.rows = rows_of(c),
                             .heads = c->sizes.gate_heads,
                             .head_dim = output ? c->pass->config->hidden_size : c->spec->head_dim,
                             .width = c->sizes.gate_width,
                             .shared = spec->shared,
                             .share_mean_logit = spec->share_mean_logit,
                             .input_none = spec->input_none,
                             .act = forced_gate(c) ? SLUICE_GATE_IDENTITY : spec->act,
                             .op = spec->op},
                       .logits = spec->input_none ? (forced_gate(c) ? forced_gate(c) : c->w->gate_param)
                                                  : gate_of(c, c->state->qkvg).data,
                       .stride = c->state->stride};
}

/* y = gate(x) if the layer has an unfused gate at this position; otherwise nothing happens. */
static void gate_at(const context *c, sluice_gate_position position, sluice_strided y, sluice_strided x) {
    if (c->spec->gate.position != position || sluice__gate_is_fused(c->spec)) return;
    gate_call call = gate_call_of(c);
    sluice__gating_forward(&call.g, y.data, y.stride_token, x.data, x.stride_token, call.logits, call.stride);
}

static sluice__switch switch_of(const context *c) {
    return (sluice__switch){.rows = rows_of(c),
                            .stride = c->state->stride,
                            .heads = c->spec->num_key_value_heads,
                            .head_dim = c->spec->head_dim,
                            .maps = c->spec->switch_head.experts,
                            .top = c->spec->switch_head.topk};
}

static void pick_maps(const context *c) {
    static const sluice_gate_position kinds[] = {SLUICE_GATE_KEY, SLUICE_GATE_VALUE};
    float *qkvg = c->state->qkvg;
    sluice__switch call = switch_of(c);
    for (int i = 0; i < 2; i++)
        if (is_switched(c, kinds[i]))
            sluice__switch_forward(&call, slot_of(c, kinds[i]).data, projected_of(c, qkvg, kinds[i]).data,
                                   switch_router_of(c, qkvg));
}

static void pick_maps_back(const context *c) {
    float *qkvg = c->state->qkvg, *dqkvg = c->pass->ws->back.dqkvg, *dlogits = switch_router_of(c, dqkvg);
    const float *logits = switch_router_of(c, qkvg);
    bool keys = is_switched(c, SLUICE_GATE_KEY);
    sluice__switch call = switch_of(c);
    if (keys)
        sluice__switch_backward(&call, projected_of(c, dqkvg, SLUICE_GATE_KEY).data, dlogits,
                                gradient_of(c, SLUICE_GATE_KEY).data, projected_of(c, qkvg, SLUICE_GATE_KEY).data,
                                logits, false);
    if (is_switched(c, SLUICE_GATE_VALUE))
        sluice__switch_backward(&call, projected_of(c, dqkvg, SLUICE_GATE_VALUE).data, dlogits,
                                gradient_of(c, SLUICE_GATE_VALUE).data,
                                projected_of(c, qkvg, SLUICE_GATE_VALUE).data, logits, keys);
}

/* Puts forced scores where the logits of the gate were; act is the identity then. */
static void force_gate(const context *c) {
    const float *score = forced_gate(c);
    if (!score || c->spec->gate.input_none) return;
    sluice_strided g = gate_of(c, c->state->qkvg);
    for (int64_t r = 0; r < rows_of(c); r++)
        memcpy(g.data + r * g.stride_token, score, (size_t)c->sizes.gate_rows * sizeof *score);
}

static void round_heads(const context *c, sluice_strided x, int heads) {
    const sluice__pass *pass = c->pass;
    for (int b = 0; b < c->at->in.batch; b++)
        sluice__dense_round(pass, x.data + b * x.stride_batch, x.stride_token, c->at->in.seq_len,
                            (int64_t)heads * c->spec->head_dim);
}

/* In bf16: what the projections give, and what attention multiplies, is rounded. */
static void round_factors(const context *c, const operands *o) {
    if (!c->pass->ws->bf16) return;
    sluice_strided v = source_of(c, SLUICE_GATE_VALUE);
    round_heads(c, o->new_k, c->spec->num_key_value_heads);
    if (v.data != projected_of(c, c->state->qkvg, SLUICE_GATE_VALUE).data)
        round_heads(c, v, c->spec->num_key_value_heads);
}

/* Keys to where attention reads them, and values too. */
static void place_keys(const context *c, const operands *o) {
    const sluice__cache *cache = c->at->cache;
    if (cache || c->spec->qk_norm || c->spec->rope.enabled)
        norm_rope(c, c->spec->num_key_value_heads, c->w->k_norm, o->new_k, c->state->k_rstd,
                  source_of(c, SLUICE_GATE_KEY));
    round_factors(c, o);
    if (!cache) return;
    if (o->typed_k.data) {
        store_rows(c, cache->layers[c->layer].k, o->new_k);
        store_rows(c, cache->layers[c->layer].v, o->new_v);
    } else {
        copy_rows(c, o->new_v, source_of(c, SLUICE_GATE_VALUE), c->spec->num_key_value_heads * c->spec->head_dim);
    }
}

/* All that is done row by row, whatever segment a row belongs to. */
static void project(const context *c, const float *x, sluice__bf16 *x_half) {
    static const sluice_gate_position inputs[] = {SLUICE_GATE_QUERY, SLUICE_GATE_KEY, SLUICE_GATE_VALUE};
    const sluice__attention_state *s = c->state;
    int64_t width = c->pass->config->hidden_size;
    sluice__dense_forward(c->pass, s->qkvg, s->stride, x, width, x_half, c->w->stacks.qkvg, c->w->qkv_bias,
                          c->pass->rows);
    sluice__dense_round(c->pass, s->qkvg, s->stride, c->pass->rows, projection_rows(c));
    force_gate(c);
    pick_maps(c);
    for (int i = 0; i < 3; i++) gate_at(c, inputs[i], source_of(c, inputs[i]), slot_of(c, inputs[i]));
    if (c->spec->qk_norm || c->spec->rope.enabled)
        norm_rope(c, c->spec->num_attention_heads, c->w->q_norm, queries(c), s->q_rstd, source_of(c, SLUICE_GATE_QUERY));
    if (c->pass->ws->bf16) round_heads(c, queries(c), c->spec->num_attention_heads);
}

static sluice_status emit_heads(const context *c, sluice__probe_point point, const float *data) {
    if (!sluice__probe_wants(c->pass, point)) return SLUICE_OK;
    return sluice__probe_emit(c->pass, point, c->layer, data, c->pass->batch, c->pass->seq_len,
                              c->spec->num_attention_heads, c->spec->head_dim);
}

static sluice_status emit_probs(const context *c, const sluice_attention_params *p, const operands *o) {
    if (!sluice__probe_wants(c->pass, SLUICE__PROBE_ATTN_PROBS)) return SLUICE_OK;
    int64_t one = (int64_t)p->num_heads * p->q_len * p->kv_len;
    float *probs = sluice__probe_scratch(c->pass, SLUICE__PROBE_MISC, p->batch * one);
    if (!probs) return SLUICE_ERR_MEMORY;
    for (int b = 0; b < p->batch; b++)
        SLUICE__TRY(sluice_attention_probs(p, b, o->q, o->k, probs + b * one, c->pass->err));
    return sluice__probe_emit(c->pass, SLUICE__PROBE_ATTN_PROBS, c->layer, probs, p->batch, p->num_heads, p->q_len,
                              p->kv_len);
}

/* The part of the softmax that a sink takes, in place of the log-sum-exp of each query. */
static sluice_status emit_sinks(const context *c, const sluice_attention_params *p, float *lse) {
    for (int64_t i = 0; i < (int64_t)p->batch * p->num_heads * p->q_len; i++)
        lse[i] = expf(p->sinks[i / p->q_len % p->num_heads] - lse[i]);
    return sluice__probe_emit(c->pass, SLUICE__PROBE_SINK_SHARE, c->layer, lse, p->batch, p->num_heads, p->q_len, 0);
}

/* What can be said before the output steps. */
static sluice_status emit_inputs(const context *c, const sluice_attention_params *p, const operands *o,
                                 const float *share) {
    const sluice__pass *pass = c->pass;
    if (!pass->probe) return SLUICE_OK;
    SLUICE__TRY(sluice__probe_norms(pass, SLUICE__PROBE_KEY_NORM, c->layer, o->new_k, p->num_kv_heads, p->head_dim));
    SLUICE__TRY(sluice__probe_norms(pass, SLUICE__PROBE_VALUE_NORM, c->layer, o->new_v, p->num_kv_heads, p->head_dim));
    SLUICE__TRY(emit_probs(c, p, o));
    SLUICE__TRY(sluice__probe_rows(pass, c->layer, p, kept_of(c), o->q, o->k));
    if (!share) return SLUICE_OK;
    return sluice__probe_emit(pass, SLUICE__PROBE_FIRST_SHARE, c->layer, share, p->batch, p->num_heads, p->q_len, 0);
}

/* Attention whose first keys stay visible behind its window: without a gate first, into data, then gated into y. */
static sluice_status attend_kept(const context *c, const operands *o, const sluice_attention_params *p, float *data,
                                 float *share) {
    const sluice__pass *pass = c->pass;
    sluice_attention_params plain = *p;
    sluice_strided none = {0};
    float *lse = sluice__probe_scratch(pass, SLUICE__PROBE_LSE, pass->rows * p->num_heads);
    if (!lse) return SLUICE_ERR_MEMORY;
    plain.gated = 0;
    SLUICE__TRY(sluice_attention_forward(&plain, o->q, o->k, o->v, none, dense(c, data, p->num_heads), none, lse, share,
                                         pass->err));
    sluice__keep_first_keys(&plain, kept_of(c), o->q, o->k, o->v, data, lse, share);
    if (!p->gated) return SLUICE_OK;
    gate_call call = gate_call_of(c);
    int64_t inner = (int64_t)p->num_heads * p->head_dim;
    sluice__gating_forward(&call.g, c->state->y, inner, data, inner, call.logits, call.stride);
    return SLUICE_OK;
}

/* Where attention writes besides y, as far as anybody wants it. */
typedef struct outputs {
    float *data;   /* [rows, H*d] before the gate */
    float *share;  /* [B,H,T] of the first key */
    float *lse;    /* [B,H,T] */
    bool kept, sinks; /* the first keys stay visible behind the window; lse is for the share of a learned sink */
} outputs;

static sluice_status outputs_of(const context *c, outputs *out) {
    const sluice__pass *pass = c->pass;
    int64_t count = pass->rows * c->spec->num_attention_heads;
    *out = (outputs){.data = c->state->o, .lse = c->state->lse, .kept = kept_of(c) && window_of(c)};
    if (!pass->probe && !out->kept) return SLUICE_OK;
    out->sinks = c->w->sinks && !out->lse && !out->kept && sluice__probe_wants(pass, SLUICE__PROBE_SINK_SHARE);
    if (!out->data && (out->kept || sluice__probe_wants(pass, SLUICE__PROBE_SDPA))) {
        out->data = sluice__probe_scratch(pass, SLUICE__PROBE_UNGATED, count * c->spec->head_dim);
        if (!out->data) return SLUICE_ERR_MEMORY;
    }
    if (sluice__probe_wants(pass, SLUICE__PROBE_FIRST_SHARE)) {
        out->share = sluice__probe_scratch(pass, SLUICE__PROBE_SHARES, count);
        if (!out->share) return SLUICE_ERR_MEMORY;
    }
    if (!out->sinks) return SLUICE_OK;
    out->lse = sluice__probe_scratch(pass, SLUICE__PROBE_SINKS, count);
    return out->lse ? SLUICE_OK : SLUICE_ERR_MEMORY;
}

/* One segment. lse and share are of the only one. */
static sluice__attention_call call_of(const context *c, const operands *o, const outputs *out) {
    sluice_attention_params p = params_of(c, o->kv_len);
    sluice_strided none = {0}, plain = out->data ? dense(c, out->data, p.num_heads) : none;
    return (sluice__attention_call){.p = p,
                                    .q = o->q,
                                    .k = o->k,
                                    .v = o->v,
                                    .gate = p.gated ? o->gate : none,
                                    .y = p.gated ? dense(c, c->state->y, p.num_heads) : plain,
                                    .o = plain,
                                    .lse = out->lse,
                                    .first_share = out->share,
                                    .typed_k = o->typed_k,
                                    .typed_v = o->typed_v};
}

/* Softmax attention of all heads; *ungated is where its output stands before a gate (NULL when nobody wants that). */
static sluice_status attend(const context *all, const float **ungated) {
    const sluice__pass *pass = all->pass;
    sluice__attention_call *calls = sluice__calls(pass, pass->num_segments, sizeof *calls);
    if (!calls) return SLUICE_ERR_MEMORY;
    outputs out;
    SLUICE__TRY(outputs_of(all, &out));
    *ungated = out.data;
    for (int i = 0; i < pass->num_segments; i++) {
        context c = context_at(all, i);
        operands o = operands_of(&c);
        place_keys(&c, &o);
        calls[i] = call_of(&c, &o, &out);
    }
    if (!out.kept) SLUICE__TRY(sluice__attention_forward_calls(calls, pass->num_segments, pass->err));
    if (!pass->probe && !out.kept) return SLUICE_OK;
    operands o = operands_of(all); /* of the only segment */
    sluice_attention_params p = params_of(all, o.kv_len);
    if (out.kept) SLUICE__TRY(attend_kept(all, &o, &p, out.data, out.share));
    if (out.sinks) SLUICE__TRY(emit_sinks(all, &p, out.lse));
    return emit_inputs(all, &p, &o, out.share);
}

/* From the output of attention to what the output projection reads: norm, SiLU and gate, where they are. */
static sluice_status output_steps(const context *c, const float *ungated) {
    const sluice__attention_state *s = c->state;
    int heads = c->spec->num_attention_heads, dim = c->spec->head_dim;
    int64_t count = c->pass->rows * heads;
    if (c->spec->sdpa_norm)
        sluice__rms_norm_forward(s->normed, s->norm_rstd, s->o, c->w->sdpa_norm, count, dim,
                                 (float)c->pass->config->rms_norm_eps, sluice__norm_offset(c->pass->config));
    if (c->spec->sdpa_silu) sluice__silu_forward(s->ungated, s->normed, count * dim);
    SLUICE__TRY(emit_heads(c, SLUICE__PROBE_SDPA, s->ungated ? s->ungated : ungated));
    sluice_strided x = s->ungated ? dense(c, s->ungated, heads) : (sluice_strided){0};
    gate_at(c, SLUICE_GATE_SDPA, dense(c, s->y, heads), x);
    return emit_heads(c, SLUICE__PROBE_SDPA_GATED, s->y);
}

static sluice_status emit_gate(const context *c) {
    if (c->spec->gate.position == SLUICE_GATE_NONE) return SLUICE_OK;
    gate_call call = gate_call_of(c);
    return sluice__probe_gate(c->pass, c->layer, &call.g, call.logits, call.stride);
}

sluice_status sluice__attention_layer_forward(const sluice__pass *pass, int layer, const float *x, sluice__bf16 *x_half,
                                              float *out, const sluice__attention_state *state) {
    context c = context_of(pass, layer, state);
    const float *ungated;
    project(&c, x, x_half);
    SLUICE__TRY(attend(&c, &ungated));
    SLUICE__TRY(output_steps(&c, ungated));
    SLUICE__TRY(emit_gate(&c));
    int64_t width = pass->config->hidden_size, inner = (int64_t)c.spec->num_attention_heads * c.spec->head_dim;
    float *projected = state->projected ? state->projected : out;
    sluice__dense_forward(pass, projected, width, state->y, inner, state->y_half, c.w->stacks.o_proj, c.w->o_bias,
                          pass->rows);
    gate_at(&c, SLUICE_GATE_OUTPUT, inside(&c, out, 0, width, 0), inside(&c, projected, 0, width, 0));
    return SLUICE_OK;
}

/* dx from dy of the unfused gate at this position, if there is one; the gradient of its logits goes to its slot in
 * dqkvg or to that of its parameter. x: what forward gated. */
static void gate_back(const context *c, sluice_gate_position position, float *dx, const float *dy, int64_t d_stride,
                      sluice_strided x) {
    if (c->spec->gate.position != position || sluice__gate_is_fused(c->spec)) return;
    sluice__workspace *ws = c->pass->ws;
    gate_call call = gate_call_of(c);
    float *dlogits = c->spec->gate.input_none ? ws->grads.layers[c->layer].gate_param : gate_of(c, ws->back.dqkvg).data;
    sluice__gating_backward(&call.g, dx, d_stride, dlogits, call.stride, dy, d_stride, x.data, x.stride_token,
                            call.logits, call.stride);
}

/* ws->back.dy: from the gradient of y to that of o, in place. */
static void output_steps_back(const context *c) {
    const sluice__attention_state *s = c->state;
    const sluice__layer_weights *g = &c->pass->ws->grads.layers[c->layer];
    int heads = c->spec->num_attention_heads, dim = c->spec->head_dim;
    int64_t count = c->pass->rows * heads;
    float *dy = c->pass->ws->back.dy;
    gate_back(c, SLUICE_GATE_SDPA, dy, dy, (int64_t)heads * dim, dense(c, s->ungated, heads));
    if (c->spec->sdpa_silu) sluice__silu_backward(dy, dy, s->normed, count * dim);
    if (c->spec->sdpa_norm)
        sluice__rms_norm_backward(dy, g->sdpa_norm, dy, s->o, c->w->sdpa_norm, s->norm_rstd, count, dim,
                                  sluice__norm_offset(c->pass->config), false);
}

/* Turns the gradients of q and k after norm and RoPE, in place, into those of the projections. */
static void norm_rope_back(const context *c, int heads, const float *weight, float *dweight, sluice_strided d,
                           sluice_strided x, const float *rstd) {
    if (!c->spec->qk_norm && !c->spec->rope.enabled) return;
    sluice__norm_rope p = norm_rope_of(c, heads, weight);
    sluice__norm_rope_backward(&p, d.data, d.stride_token, dweight, d.data, d.stride_token, x.data, x.stride_token,
                               rstd);
}

/* The gradients of q, k and v as attention read them, turned in place into those of the projections. */
static void inputs_back(const context *c) {
    const sluice__attention_state *s = c->state;
    const sluice__layer_weights *g = &c->pass->ws->grads.layers[c->layer];
    sluice_strided dq = gradient_of(c, SLUICE_GATE_QUERY), dk = gradient_of(c, SLUICE_GATE_KEY);
    norm_rope_back(c, c->spec->num_attention_heads, c->w->q_norm, g->q_norm, dq, source_of(c, SLUICE_GATE_QUERY),
                   s->q_rstd);
    norm_rope_back(c, c->spec->num_key_value_heads, c->w->k_norm, g->k_norm, dk, source_of(c, SLUICE_GATE_KEY),
                   s->k_rstd);
    static const sluice_gate_position inputs[] = {SLUICE_GATE_QUERY, SLUICE_GATE_KEY, SLUICE_GATE_VALUE};
    for (int i = 0; i < 3; i++) {
        sluice_strided d = gradient_of(c, inputs[i]);
        gate_back(c, inputs[i], d.data, d.data, d.stride_token, slot_of(c, inputs[i]));
    }
    pick_maps_back(c);
}

static sluice_status attend_back(const context *c) {
    float *dqkvg = c->pass->ws->back.dqkvg;
    operands o = operands_of(c);
    sluice_attention_params p = params_of(c, o.kv_len);
    sluice_strided none = {0};
    return sluice_attention_backward(&p, o.q, o.k, o.v, p.gated ? o.gate : none, dense(c, c->state->o, p.num_heads),
                                     c->state->lse, dense(c, c->pass->ws->back.dy, p.num_heads),
                                     gradient_of(c, SLUICE_GATE_QUERY), gradient_of(c, SLUICE_GATE_KEY),
                                     gradient_of(c, SLUICE_GATE_VALUE), p.gated ? gate_of(c, dqkvg) : none, NULL,
                                     c->pass->err);
}

sluice_status sluice__attention_layer_backward(const sluice__pass *pass, int layer, const float *dout, const float *x,
                                               const sluice__bf16 *x_half, float *dx,
                                               const sluice__attention_state *state) {
    context c = context_of(pass, layer, state);
    const sluice__layer_weights *g = &pass->ws->grads.layers[layer];
    const sluice__backward_state *b = &pass->ws->back;
    int64_t rows = pass->rows, width = pass->config->hidden_size;
    int64_t inner = (int64_t)c.spec->num_attention_heads * c.spec->head_dim, out_rows = projection_rows(&c);
    if (state->projected) { /* dx is free until the end */
        gate_back(&c, SLUICE_GATE_OUTPUT, dx, dout, width, inside(&c, state->projected, 0, width, 0));
        dout = dx;
    }
    sluice__dense_backward_weight(pass, g->o_proj, g->o_bias, dout, width, state->y, inner, state->y_half, rows, width,
                                  inner);
    sluice__dense_backward_input(pass, b->dy, inner, dout, width, c.w->o_proj, rows, width, inner, false);
    output_steps_back(&c);
    sluice__dense_round(pass, b->dy, inner, rows, inner);
    SLUICE__TRY(attend_back(&c));
    inputs_back(&c);
    sluice__dense_backward_weight(pass, g->qkvg, g->qkv_bias, b->dqkvg, state->stride, x, width, x_half, rows, out_rows,
                                  width);
    sluice__dense_backward_input(pass, dx, width, b->dqkvg, state->stride, c.w->qkvg, rows, out_rows, width, false);
    return SLUICE_OK;
}
