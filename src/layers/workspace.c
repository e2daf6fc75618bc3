/* SPDX-License-Identifier: Apache-2.0 */
/* One allocation per workspace. A single function lays out everything by moving a cursor; run without a base address it
 * only counts, which is how the memory plan and the allocation agree to the byte. Buffers that are never alive together
 * (attention scratch and MLP scratch) start at the same place. */
#include "layers/workspace.h"
#include "base/memory.h"
#include "model/config.h"
#include <assert.h>

enum {
    ALIGN = 64,
    /* A block of logits of the loss head. Small enough to stay in the last cache between its four uses; but each block
     * also reads and writes the whole gradient of the head's matrix, which few rows do not pay for. */
    HEAD_BYTES = 16 << 20,
    HEAD_ROWS = 512,
    HEAD_BYTES_MAX = 128 << 20, /* fewer rows than HEAD_ROWS when even they would take more than this */
    HEAD_ROWS_MIN = 32,
};

static const size_t LIMIT = SIZE_MAX / 4; /* more than can be allocated; sums up to it do not wrap */

typedef struct arena {
    char *base; /* NULL: count only */
    size_t at, peak;
} arena;

static void *take(arena *a, int64_t count, size_t size) {
    void *p = a->base ? a->base + a->at : NULL;
    size_t bytes = sluice__mul_size((size_t)count, size);
    if (bytes > LIMIT || a->at > LIMIT) a->at = LIMIT + 1;
    else a->at += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    if (a->at > a->peak) a->peak = a->at;
    return p;
}

static float *floats(arena *a, int64_t rows, int64_t width) {
    return take(a, rows, sluice__mul_size((size_t)width, sizeof(float)));
}

static sluice__bf16 *halves(arena *a, int64_t rows, int64_t width) {
    return take(a, rows, sluice__mul_size((size_t)width, sizeof(sluice__bf16)));
}

typedef struct plan {
    const sluice_config *config;
    int64_t rows;
    bool train, bf16;
} plan;

static plan plan_of(const sluice_config *config, int64_t rows, sluice__mode mode) {
    return (plan){config, rows, (mode & SLUICE__TRAIN) != 0, (mode & SLUICE__IN_BF16) != 0};
}

/* Floats of activations that layers share where each keeps a bf16 copy of its own. */
typedef struct common {
    bool on;            /* else layers have their own; the pointers do not say, they are NULL while counting */
    float *x, *y, *act; /* [rows, D], [rows, H*d], [rows, F] of the largest layer */
} common;

static int64_t qkvg_rows(const sluice_config *c, int layer) {
    sluice__layer_sizes s = sluice__layer_sizes_of(c, layer);
    return (int64_t)s.q_rows + s.k_rows + s.v_rows + s.gate_rows + s.switch_rows;
}

enum { LINE_FLOATS = 16, PAGE_FLOATS = 1024 };

static int64_t apart(int64_t width) { return width % PAGE_FLOATS ? width : width + LINE_FLOATS; }

/* To whole cache lines, and not to pages. */
static int64_t padded(int64_t width) { return apart((width + LINE_FLOATS - 1) / LINE_FLOATS * LINE_FLOATS); }

int64_t sluice__mlp_stride(const sluice_layer_spec *spec, int64_t width) { return spec->mlp_gelu ? width : apart(width); }

/* F such that 2F floats hold a row of gate and up, and F one of the activation. */
static int64_t mlp_width(const sluice_layer_spec *spec) {
    int64_t inner = spec->intermediate_size, one = sluice__mlp_stride(spec, inner), two = sluice__mlp_stride(spec, 2 * inner);
    return one > (two + 1) / 2 ? one : (two + 1) / 2;
}

/* What backward wants beside the gated tensor: what was gated. */
static void take_gate(arena *a, const plan *p, int layer, sluice__attention_state *s) {
    const sluice_layer_spec *spec = &p->config->layers[layer];
    sluice_gate_position at = spec->gate.position;
    if (!p->train) return;
    if (at == SLUICE_GATE_OUTPUT) s->projected = floats(a, p->rows, p->config->hidden_size);
    int64_t heads = at == SLUICE_GATE_QUERY ? spec->num_attention_heads : spec->num_key_value_heads;
    if (at == SLUICE_GATE_QUERY || at == SLUICE_GATE_KEY || at == SLUICE_GATE_VALUE)
        s->gated = floats(a, p->rows, heads * spec->head_dim);
}

/* Steps between attention and output projection: in TRAIN each present one has a buffer, in INFER they work in
 * place. */
static void take_output_steps(arena *a, const plan *p, const sluice_layer_spec *spec, const common *shared,
                              sluice__attention_state *s) {
    int64_t heads = spec->num_attention_heads, width = heads * spec->head_dim;
    bool gated = spec->gate.position == SLUICE_GATE_SDPA, own = p->train;
    if (shared->on && (gated || spec->sdpa_norm || spec->sdpa_silu)) {
        s->y = shared->y;
        s->y_half = halves(a, p->rows, width);
    } else {
        s->y = floats(a, p->rows, width);
    }
    s->o = s->normed = s->ungated = s->y;
    if (sluice__gate_is_fused(spec)) {
        s->o = own ? floats(a, p->rows, width) : NULL;
        s->normed = s->ungated = s->o;
    } else if (own) {
        if (gated) s->ungated = floats(a, p->rows, width);
        s->normed = spec->sdpa_silu ? floats(a, p->rows, width) : s->ungated;
        s->o = spec->sdpa_norm ? floats(a, p->rows, width) : s->normed;
    }
    s->norm_rstd = own && spec->sdpa_norm ? floats(a, p->rows, heads) : NULL;
}

static void take_attention(arena *a, const plan *p, int layer, const common *shared, sluice__attention_state *s) {
    const sluice_layer_spec *spec = &p->config->layers[layer];
    int64_t heads = spec->num_attention_heads, kv = spec->num_key_value_heads, dim = spec->head_dim;
    s->stride = padded(qkvg_rows(p->config, layer));
    s->qkvg = floats(a, p->rows, s->stride);
    if (spec->switch_head.head == SLUICE_SWITCH_KV) s->picked_k = floats(a, p->rows, kv * dim);
    if (spec->switch_head.head != SLUICE_SWITCH_NONE) s->picked_v = floats(a, p->rows, kv * dim);
    take_gate(a, p, layer, s);
    if (spec->qk_norm) {
        s->q = floats(a, p->rows, heads * dim);
        s->k = floats(a, p->rows, kv * dim);
        s->q_rstd = p->train ? floats(a, p->rows, heads) : NULL;
        s->k_rstd = p->train ? floats(a, p->rows, kv) : NULL;
    }
    take_output_steps(a, p, spec, shared, s);
    s->lse = p->train ? floats(a, p->rows, heads) : NULL;
}

static void take_delta(arena *a, const plan *p, const sluice_delta_spec *d, sluice__delta_state *s) {
    int64_t keys = (int64_t)d->num_key_heads * d->key_head_dim, values = (int64_t)d->num_value_heads * d->value_head_dim;
    s->stride = padded(2 * keys + 2 * values + 2 * (int64_t)d->num_value_heads);
    s->in = floats(a, p->rows, s->stride);
    s->qkv = floats(a, p->rows, 2 * keys + values);
    s->log_decay = floats(a, p->rows, d->num_value_heads);
    s->beta = floats(a, p->rows, d->num_value_heads);
    s->o = floats(a, p->rows, values);
}

/* `temporary` is shared by all branches. In TRAIN what backward reads gets a place of its own. */
static void take_branch(arena *a, const plan *p, const sluice_layer_spec *spec, float *temporary,
                        sluice__branch_state *s) {
    int64_t width = p->config->hidden_size;
    bool clip = spec->residual_clip > 0, norm = spec->sandwich_norm;
    s->out = temporary;
    s->normed = p->train && clip ? floats(a, p->rows, width) : temporary;
    s->raw = !p->train || !norm ? s->normed : floats(a, p->rows, width);
    s->rstd = p->train && norm ? floats(a, p->rows, 1) : NULL;
}

static void take_mlp(arena *a, const plan *p, const sluice_layer_spec *spec, const common *shared,
                     sluice__mlp_state *s) {
    s->gate_up = floats(a, p->rows, sluice__mlp_stride(spec, 2 * (int64_t)spec->intermediate_size));
    s->act = shared->on ? shared->act : floats(a, p->rows, sluice__mlp_stride(spec, spec->intermediate_size));
    s->act_half = shared->on ? halves(a, p->rows, spec->intermediate_size) : NULL;
}

static void take_moe(arena *a, const plan *p, const sluice_moe_spec *m, const sluice__moe_state *shared,
                     sluice__moe_state *s) {
    int64_t top = m->num_experts_per_tok, inner = m->intermediate_size, wide = m->shared_intermediate_size;
    s->x = shared->x;
    s->y = shared->y;
    s->prob = floats(a, p->rows, m->num_experts);
    s->lse = floats(a, p->rows, 1);
    s->choice = take(a, p->rows, (size_t)top * sizeof *s->choice);
    s->weight = floats(a, p->rows, top);
    s->place = take(a, p->rows, (size_t)top * sizeof *s->place);
    s->token = take(a, p->rows, (size_t)top * sizeof *s->token);
    s->start = take(a, m->num_experts + 1, sizeof *s->start);
    s->gate_up = floats(a, p->rows, 2 * top * inner);
    s->act = floats(a, p->rows, top * inner);
    if (!wide) return;
    s->shared_gate_up = floats(a, p->rows, 2 * wide);
    s->shared_act = floats(a, p->rows, wide);
    s->shared_score = m->shared_expert_gate ? floats(a, p->rows, 1) : NULL;
}

/* Input and output of the experts' rows, for the layer with most of them. */
static sluice__moe_state take_moe_shared(arena *a, const plan *p) {
    int64_t most = 0;
    for (int i = 0; i < p->config->num_hidden_layers; i++) {
        const sluice_moe_spec *m = &p->config->layers[i].moe;
        if (m->num_experts && m->num_experts_per_tok > most) most = m->num_experts_per_tok;
    }
    if (!most) return (sluice__moe_state){0};
    float *x = floats(a, p->rows, most * p->config->hidden_size);
    return (sluice__moe_state){.x = x, .y = floats(a, p->rows, most * p->config->hidden_size)};
}

static void take_ffn(arena *a, const plan *p, const sluice_layer_spec *spec, const sluice__moe_state *moe,
                     const common *shared, sluice__layer_state *s) {
    if (spec->moe.num_experts) take_moe(a, p, &spec->moe, moe, &s->moe);
    else take_mlp(a, p, spec, shared, &s->mlp);
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static common take_common(arena *a, const plan *p) {
    int64_t heads_dim = 0, inner = 0;
    if (!p->train || !p->bf16) return (common){0};
    for (int i = 0; i < p->config->num_hidden_layers; i++) {
        const sluice_layer_spec *spec = &p->config->layers[i];
        heads_dim = larger(heads_dim, (int64_t)spec->num_attention_heads * spec->head_dim);
        if (!spec->moe.num_experts) inner = larger(inner, sluice__mlp_stride(spec, spec->intermediate_size));
    }
    common c = {.on = true, .x = floats(a, p->rows, p->config->hidden_size), .y = floats(a, p->rows, heads_dim)};
    if (inner) c.act = floats(a, p->rows, inner);
    return c;
}

/* What a norm gives to the products behind it. */
static void take_normed(arena *a, const plan *p, const common *shared, bool factor_only, float **x, sluice__bf16 **half) {
    bool share = shared->on && factor_only;
    *x = share ? shared->x : floats(a, p->rows, p->config->hidden_size);
    *half = share ? halves(a, p->rows, p->config->hidden_size) : NULL;
}

/* h_in, x1 and rstd1 of layer 0 and, after every branch, the next residual and its norm. */
static void take_train(arena *a, const plan *p, sluice__workspace *ws, sluice__layer_state *layers) {
    int64_t width = p->config->hidden_size;
    float *temporary = floats(a, p->rows, width);
    common shared = take_common(a, p);
    sluice__moe_state moe = take_moe_shared(a, p);
    for (int i = 0; i < p->config->num_hidden_layers; i++) {
        const sluice_layer_spec *spec = &p->config->layers[i];
        sluice__layer_state *s = &layers[i];
        s->h_in = floats(a, p->rows, width);
        take_normed(a, p, &shared, true, &s->x1, &s->x1_half);
        s->rstd1 = floats(a, p->rows, 1);
        take_attention(a, p, i, &shared, &s->attention);
        take_branch(a, p, spec, temporary, &s->attention_out);
        s->h_mid = floats(a, p->rows, width);
        take_normed(a, p, &shared, !spec->moe.num_experts, &s->x2, &s->x2_half);
        s->rstd2 = floats(a, p->rows, 1);
        take_ffn(a, p, spec, &moe, &shared, s);
        take_branch(a, p, spec, temporary, &s->mlp_out);
    }
    ws->h_out = floats(a, p->rows, width);
    ws->x_out = floats(a, p->rows, width);
    ws->rstd_out = floats(a, p->rows, 1);
}

static void take_infer(arena *a, const plan *p, sluice__workspace *ws, sluice__layer_state *layers) {
    int64_t width = p->config->hidden_size;
    ws->h_out = floats(a, p->rows, width);
    ws->x_out = floats(a, p->rows, width);
    ws->rstd_out = NULL;
    float *temporary = floats(a, p->rows, width);
    const common none = {0};
    sluice__moe_state moe = take_moe_shared(a, p);
    size_t shared = a->at;
    for (int i = 0; i < p->config->num_hidden_layers; i++) {
        const sluice_layer_spec *spec = &p->config->layers[i];
        sluice__layer_state *s = &layers[i];
        s->h_in = s->h_mid = ws->h_out;
        s->x1 = s->x2 = ws->x_out;
        s->rstd1 = s->rstd2 = NULL;
        take_branch(a, p, spec, temporary, &s->attention_out);
        take_branch(a, p, spec, temporary, &s->mlp_out);
        a->at = shared;
        if (sluice_layer_is_linear(spec)) take_delta(a, p, &spec->delta, &s->delta);
        else take_attention(a, p, i, &none, &s->attention);
        a->at = shared;
        take_ffn(a, p, spec, &moe, &none, s);
        a->at = shared;
    }
    a->at = a->peak;
}

/* The most that any layer wants of what backward shares. */
typedef struct backward_sizes {
    int64_t stride, heads_dim, kv_dim; /* floats of a token: attention */
    int64_t inner, top, experts;       /* F of the MLP or k F' of the experts; k; E */
    bool branch;
} backward_sizes;

static backward_sizes backward_sizes_of(const plan *p) {
    backward_sizes z = {0};
    for (int i = 0; i < p->config->num_hidden_layers; i++) {
        const sluice_layer_spec *spec = &p->config->layers[i];
        const sluice_moe_spec *m = &spec->moe;
        z.stride = larger(z.stride, padded(qkvg_rows(p->config, i)));
        z.heads_dim = larger(z.heads_dim, (int64_t)spec->num_attention_heads * spec->head_dim);
        if (spec->switch_head.head != SLUICE_SWITCH_NONE)
            z.kv_dim = larger(z.kv_dim, (int64_t)spec->num_key_value_heads * spec->head_dim);
        z.branch |= spec->sandwich_norm || spec->residual_clip > 0;
        if (!m->num_experts) {
            z.inner = larger(z.inner, mlp_width(spec));
            continue;
        }
        z.inner = larger(z.inner, (int64_t)m->intermediate_size * m->num_experts_per_tok);
        z.inner = larger(z.inner, m->shared_intermediate_size);
        z.top = larger(z.top, m->num_experts_per_tok);
        z.experts = larger(z.experts, m->num_experts);
    }
    return z;
}

static void take_backward(arena *a, const plan *p, sluice__backward_state *s) {
    int64_t width = p->config->hidden_size;
    backward_sizes z = backward_sizes_of(p);
    s->dh = floats(a, p->rows, width);
    s->dx = floats(a, p->rows, width);
    s->dbranch = z.branch ? floats(a, p->rows, width) : NULL;
    size_t shared = a->at;
    s->dqkvg = floats(a, p->rows, z.stride);
    s->dy = floats(a, p->rows, z.heads_dim);
    s->dpicked_k = z.kv_dim ? floats(a, p->rows, z.kv_dim) : NULL;
    s->dpicked_v = z.kv_dim ? floats(a, p->rows, z.kv_dim) : NULL;
    a->at = shared;
    s->dgate_up = floats(a, p->rows, 2 * z.inner);
    s->dact = floats(a, p->rows, z.inner);
    if (z.top) {
        s->moe_x = floats(a, p->rows, z.top * width);
        s->moe_d = floats(a, p->rows, z.top * width);
        s->dprob = floats(a, p->rows, z.experts);
        s->dweight = floats(a, p->rows, z.top);
    }
    a->at = a->peak;
}

static int64_t head_rows(const sluice_config *c, int64_t rows) {
    int64_t row = (int64_t)c->vocab_size * (int64_t)sizeof(float), most = HEAD_BYTES_MAX / row;
    if (most > HEAD_ROWS) most = HEAD_ROWS;
    if (most < HEAD_ROWS_MIN) most = HEAD_ROWS_MIN;
    if (most < HEAD_BYTES / row) most = HEAD_BYTES / row;
    int64_t blocks = (rows + most - 1) / most;
    return (rows + blocks - 1) / blocks; /* of equal size: a short last block would cost as much as a long one */
}

/* Places everything. layers is a scratch array of num_hidden_layers states when only counting. */
static size_t lay_out(const plan *p, char *base, sluice__workspace *ws, sluice__layer_state *counting) {
    arena a = {.base = base};
    int layers = p->config->num_hidden_layers;
    take(&a, 1, sizeof *ws);
    ws->layers = take(&a, layers, sizeof *ws->layers);
    ws->grads.layers = take(&a, p->train ? layers : 0, sizeof *ws->grads.layers);
    ws->rope.tables = take(&a, layers, sizeof *ws->rope.tables);
    ws->rope.table_of_layer = take(&a, layers, sizeof *ws->rope.table_of_layer);
    ws->positions = take(&a, p->rows, sizeof *ws->positions);
    ws->nll = floats(&a, p->rows, 1);
    ws->head_rows = head_rows(p->config, p->rows);
    ws->logits = floats(&a, ws->head_rows, p->config->vocab_size);
    sluice__layer_state *states = base ? ws->layers : counting;
    if (p->train) {
        take_train(&a, p, ws, states);
        take_backward(&a, p, &ws->back);
    } else {
        take_infer(&a, p, ws, states);
    }
    return a.peak;
}

/* Counts bytes of the arena; SIZE_MAX when there is no memory even for counting. */
static size_t arena_bytes(const plan *p) {
    sluice__workspace ws = {0};
    sluice__layer_state *states =
        sluice__calloc((size_t)p->config->num_hidden_layers, sizeof *states, SLUICE__MEM_OTHER);
    if (!states) return SIZE_MAX;
    size_t bytes = lay_out(p, NULL, &ws, states);
    sluice__free(states);
    return bytes;
}

int64_t sluice__workspace_bytes(const sluice_config *config, int batch, int seq_len, sluice__mode mode) {
    plan p = plan_of(config, (int64_t)batch * seq_len, mode);
    size_t bytes = arena_bytes(&p);
    return bytes > INT64_MAX / 2 ? INT64_MAX / 2 : (int64_t)bytes + sluice__rope_cache_bytes(config, seq_len);
}

sluice_status sluice__check_trainable(const sluice_config *c, sluice_error *err) {
    for (int i = 0; i < c->num_hidden_layers; i++) {
        const sluice_layer_spec *l = &c->layers[i];
        const char *what = sluice_layer_is_linear(l) ? "linear attention (gated delta rule)"
                           : l->no_input_norm        ? "a layer whose norms stand behind its branches"
                           : l->qk_norm && l->qk_norm_whole ? "a q/k norm over all heads"
                                                            : NULL;
        if (what)
            return sluice__fail(err, SLUICE_ERR_UNSUPPORTED, "layer %d: training %s is not supported by this version", i,
                                what);
    }
    const char *part = sluice_config_foreign_part(c);
    if (part) return sluice__fail(err, SLUICE_ERR_UNSUPPORTED, "a model that has %s cannot be trained", part);
    return SLUICE_OK;
}

sluice_status sluice__workspace_new(sluice__workspace **out, const sluice_model *model, int batch, int seq_len,
                                    sluice__mode mode, sluice_error *err) {
    *out = NULL;
    if (batch < 1 || seq_len < 1)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "workspace of batch %d and length %d: both have to be at least 1",
                            batch, seq_len);
    plan p = plan_of(sluice_model_config(model), (int64_t)batch * seq_len, mode);
    if ((p.train || p.bf16) && sluice__model_is_as_stored(model))
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "a model loaded AS_STORED runs, but cannot be trained");
    if (p.train || p.bf16) SLUICE__TRY(sluice__check_trainable(p.config, err));
    size_t bytes = arena_bytes(&p);
    char *base = bytes > LIMIT ? NULL : sluice__calloc(1, bytes, SLUICE__MEM_ACTIVATIONS);
    if (!base) return sluice__no_memory(err, bytes, "activations");
    sluice__workspace *ws = (void *)base;
    lay_out(&p, base, ws, NULL);
    ws->model = model;
    ws->rows = p.rows;
    ws->mode = p.train ? SLUICE__TRAIN : SLUICE__INFER;
    ws->bf16 = p.bf16;
    sluice__rope_cache_init(&ws->rope, p.config);
    sluice_status st = sluice__rope_cache_reserve(&ws->rope, seq_len - 1, err);
    if (st != SLUICE_OK) {
        sluice__workspace_free(ws);
        return st;
    }
    *out = ws;
    return SLUICE_OK;
}

void sluice__workspace_free(sluice__workspace *ws) {
    if (!ws) return;
    sluice__rope_cache_free(&ws->rope);
    sluice__free(ws->calls);
    for (int i = 0; i < SLUICE__PROBE_BUFFERS; i++) sluice__free(ws->probe_buffer[i]);
    sluice__free(ws);
}

void sluice__workspace_intervene(sluice__workspace *ws, const sluice__intervention *change) { ws->change = change; }

void *sluice__calls(const sluice__pass *pass, int64_t count, size_t size) {
    sluice__workspace *ws = pass->ws;
    size_t bytes = sluice__mul_size((size_t)count, size);
    if (ws->calls_bytes >= bytes) return ws->calls;
    sluice__free(ws->calls);
    ws->calls = sluice__calloc(1, bytes, SLUICE__MEM_OTHER);
    ws->calls_bytes = ws->calls ? bytes : 0;
    if (!ws->calls) sluice__no_memory(pass->err, bytes, "the sequences of a pass");
    return ws->calls;
}

float *sluice__probe_scratch(const sluice__pass *pass, int which, int64_t count) {
    sluice__workspace *ws = pass->ws;
    assert(which >= 0 && which < SLUICE__PROBE_BUFFERS);
    if (ws->probe_capacity[which] >= count) return ws->probe_buffer[which];
    sluice__free(ws->probe_buffer[which]);
    ws->probe_buffer[which] = sluice__calloc((size_t)count, sizeof(float), SLUICE__MEM_ACTIVATIONS);
    ws->probe_capacity[which] = ws->probe_buffer[which] ? count : 0;
    if (!ws->probe_buffer[which])
        sluice__no_memory(pass->err, sluice__mul_size((size_t)count, sizeof(float)), "what a probe records");
    return ws->probe_buffer[which];
}
