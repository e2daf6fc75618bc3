/* SPDX-License-Identifier: Apache-2.0 */
/* One table says what tensors a model can have; their presence and shape follow from the configuration in one
 * place. */
#include "model/tensors.h"
#include "base/memory.h"
#include <string.h>

enum { ALIGN_FLOATS = 16 };

static const struct {
    const char *name;
    sluice__slot_kind kind;
    bool glued; /* begins where the one before ends: both are rows of one fused matrix */
} slots[SLUICE__SLOTS] = {
    [SLUICE__SLOT_EMBED_TOKENS] = {"model.embed_tokens.weight", SLUICE__KIND_MATRIX, false},
    [SLUICE__SLOT_INPUT_NORM] = {"input_layernorm.weight", SLUICE__KIND_NORM, false},
    [SLUICE__SLOT_Q] = {"self_attn.q_proj.weight", SLUICE__KIND_MATRIX, false},
    [SLUICE__SLOT_K] = {"self_attn.k_proj.weight", SLUICE__KIND_MATRIX, true},
    [SLUICE__SLOT_V] = {"self_attn.v_proj.weight", SLUICE__KIND_MATRIX, true},
    [SLUICE__SLOT_GATE] = {"self_attn.gate_proj.weight", SLUICE__KIND_MATRIX, true},
    [SLUICE__SLOT_SWITCH_ROUTER] = {"self_attn.switch_router.weight", SLUICE__KIND_MATRIX, true},
    [SLUICE__SLOT_Q_BIAS] = {"self_attn.q_proj.bias", SLUICE__KIND_BIAS, false},
    [SLUICE__SLOT_K_BIAS] = {"self_attn.k_proj.bias", SLUICE__KIND_BIAS, true},
    [SLUICE__SLOT_V_BIAS] = {"self_attn.v_proj.bias", SLUICE__KIND_BIAS, true},
    [SLUICE__SLOT_GATE_BIAS] = {"self_attn.gate_proj.bias", SLUICE__KIND_BIAS, true},
    [SLUICE__SLOT_GATE_PARAM] = {"self_attn.gate_param", SLUICE__KIND_GATE_PARAM, false},
    [SLUICE__SLOT_Q_NORM] = {"self_attn.q_norm.weight", SLUICE__KIND_NORM, false},
    [SLUICE__SLOT_K_NORM] = {"self_attn.k_norm.weight", SLUICE__KIND_NORM, false},
    [SLUICE__SLOT_SDPA_NORM] = {"self_attn.sdpa_norm.weight", SLUICE__KIND_NORM, false},
    [SLUICE__SLOT_O] = {"self_attn.o_proj.weight", SLUICE__KIND_MATRIX, false},
    [SLUICE__SLOT_O_BIAS] = {"self_attn.o_proj.bias", SLUICE__KIND_BIAS, false},
    [SLUICE__SLOT_SINKS] = {"self_attn.sinks", SLUICE__KIND_BIAS, false},
    [SLUICE__SLOT_DELTA_Q] = {"linear_attn.q_proj.weight", SLUICE__KIND_MATRIX, false},
    [SLUICE__SLOT_DELTA_K] = {"linear_attn.k_proj.weight", SLUICE__KIND_MATRIX, true},
    [SLUICE__SLOT_DELTA_V] = {"linear_attn.v_proj.weight", SLUICE__KIND_MATRIX, true},
    [SLUICE__SLOT_DELTA_Z] = {"linear_attn.z_proj.weight", SLUICE__KIND_MATRIX, true},
    [SLUICE__SLOT_DELTA_B] = {"linear_attn.b_proj.weight", SLUICE__KIND_MATRIX, true},
    [SLUICE__SLOT_DELTA_A] = {"linear_attn.a_proj.weight", SLUICE__KIND_MATRIX, true},
    [SLUICE__SLOT_DELTA_CONV_Q] = {"linear_attn.q_conv1d.weight", SLUICE__KIND_CONV, false},
    [SLUICE__SLOT_DELTA_CONV_K] = {"linear_attn.k_conv1d.weight", SLUICE__KIND_CONV, true},
    [SLUICE__SLOT_DELTA_CONV_V] = {"linear_attn.v_conv1d.weight", SLUICE__KIND_CONV, true},
    [SLUICE__SLOT_DELTA_A_LOG] = {"linear_attn.A_log", SLUICE__KIND_DECAY, false},
    [SLUICE__SLOT_DELTA_DT_BIAS] = {"linear_attn.dt_bias", SLUICE__KIND_DECAY, false},
    [SLUICE__SLOT_DELTA_NORM] = {"linear_attn.norm.weight", SLUICE__KIND_NORM, false},
    [SLUICE__SLOT_DELTA_OUT] = {"linear_attn.out_proj.weight", SLUICE__KIND_MATRIX, false},
    [SLUICE__SLOT_POST_SELF_ATTN_NORM] = {"post_self_attn_layernorm.weight", SLUICE__KIND_NORM, false},
    [SLUICE__SLOT_POST_ATTENTION_NORM] = {"post_attention_layernorm.weight", SLUICE__KIND_NORM, false},
    [SLUICE__SLOT_MLP_GATE] = {"mlp.gate_proj.weight", SLUICE__KIND_MATRIX, false},
    [SLUICE__SLOT_MLP_UP] = {"mlp.up_proj.weight", SLUICE__KIND_MATRIX, true},
    [SLUICE__SLOT_MLP_DOWN] = {"mlp.down_proj.weight", SLUICE__KIND_MATRIX, false},
    [SLUICE__SLOT_MLP_GATE_BIAS] = {"mlp.gate_proj.bias", SLUICE__KIND_BIAS, false},
    [SLUICE__SLOT_MLP_UP_BIAS] = {"mlp.up_proj.bias", SLUICE__KIND_BIAS, true},
    [SLUICE__SLOT_MLP_DOWN_BIAS] = {"mlp.down_proj.bias", SLUICE__KIND_BIAS, false},
    [SLUICE__SLOT_ROUTER] = {"mlp.gate.weight", SLUICE__KIND_MATRIX, false},
    [SLUICE__SLOT_ROUTER_BIAS] = {"mlp.gate.bias", SLUICE__KIND_BIAS, false},
    [SLUICE__SLOT_SELECTION_BIAS] = {"mlp.gate.e_score_correction_bias", SLUICE__KIND_BIAS, false},
    [SLUICE__SLOT_EXPERT_GATE] = {"gate_proj.weight", SLUICE__KIND_MATRIX, false},
    [SLUICE__SLOT_EXPERT_UP] = {"up_proj.weight", SLUICE__KIND_MATRIX, true},
    [SLUICE__SLOT_EXPERT_DOWN] = {"down_proj.weight", SLUICE__KIND_MATRIX, false},
    [SLUICE__SLOT_EXPERT_GATE_BIAS] = {"gate_proj.bias", SLUICE__KIND_BIAS, false},
    [SLUICE__SLOT_EXPERT_UP_BIAS] = {"up_proj.bias", SLUICE__KIND_BIAS, true},
    [SLUICE__SLOT_EXPERT_DOWN_BIAS] = {"down_proj.bias", SLUICE__KIND_BIAS, false},
    [SLUICE__SLOT_SHARED_GATE] = {"mlp.shared_expert.gate_proj.weight", SLUICE__KIND_MATRIX, false},
    [SLUICE__SLOT_SHARED_UP] = {"mlp.shared_expert.up_proj.weight", SLUICE__KIND_MATRIX, true},
    [SLUICE__SLOT_SHARED_DOWN] = {"mlp.shared_expert.down_proj.weight", SLUICE__KIND_MATRIX, false},
    [SLUICE__SLOT_SHARED_EXPERT_GATE] = {"mlp.shared_expert_gate.weight", SLUICE__KIND_MATRIX, false},
    [SLUICE__SLOT_SHARED_GATE_BIAS] = {"mlp.shared_expert.gate_proj.bias", SLUICE__KIND_BIAS, false},
    [SLUICE__SLOT_SHARED_UP_BIAS] = {"mlp.shared_expert.up_proj.bias", SLUICE__KIND_BIAS, true},
    [SLUICE__SLOT_SHARED_DOWN_BIAS] = {"mlp.shared_expert.down_proj.bias", SLUICE__KIND_BIAS, false},
    [SLUICE__SLOT_POST_MLP_NORM] = {"post_mlp_layernorm.weight", SLUICE__KIND_NORM, false},
    [SLUICE__SLOT_NORM] = {"model.norm.weight", SLUICE__KIND_NORM, false},
    [SLUICE__SLOT_LM_HEAD] = {"lm_head.weight", SLUICE__KIND_MATRIX, false},
};

sluice__slot_kind sluice__slot_kind_of(sluice__slot slot) {
    return slots[slot].kind;
}

bool sluice__slot_is_hidden_matrix(sluice__slot slot) {
    bool router = slot == SLUICE__SLOT_ROUTER || slot == SLUICE__SLOT_SWITCH_ROUTER ||
                  slot == SLUICE__SLOT_SHARED_EXPERT_GATE;
    return slots[slot].kind == SLUICE__KIND_MATRIX && sluice__slot_in_layer(slot) && !router;
}

bool sluice__slot_is_one_plus(sluice__slot slot) {
    return slots[slot].kind == SLUICE__KIND_NORM && slot != SLUICE__SLOT_DELTA_NORM;
}

const char *sluice__slot_name(sluice__slot slot) {
    return slots[slot].name;
}

bool sluice__slot_in_layer(sluice__slot slot) {
    return slot > SLUICE__SLOT_EMBED_TOKENS && slot < SLUICE__SLOT_NORM;
}

/* Rows and columns; columns 0 = a vector, rows 0 = absent. */
typedef struct extent {
    int64_t rows, columns;
} extent;

static extent vector_if(bool present, int64_t n) {
    return (extent){present ? n : 0, 0};
}

static extent attention_extent(const sluice_config *c, int layer, sluice__slot slot) {
    const sluice_layer_spec *l = &c->layers[layer];
    sluice__layer_sizes s = sluice__layer_sizes_of(c, layer);
    int64_t width = c->hidden_size;
    if (sluice_layer_is_linear(l)) return (extent){0, 0};
    switch (slot) {
    case SLUICE__SLOT_Q: return (extent){s.q_rows, width};
    case SLUICE__SLOT_K: return (extent){s.k_rows, width};
    case SLUICE__SLOT_V: return (extent){s.v_rows, width};
    case SLUICE__SLOT_GATE: return (extent){s.gate_rows, width};
    case SLUICE__SLOT_SWITCH_ROUTER: return (extent){s.switch_rows, width};
    case SLUICE__SLOT_Q_BIAS: return vector_if(l->qkv_bias, s.q_rows);
    case SLUICE__SLOT_K_BIAS: return vector_if(l->qkv_bias, s.k_rows);
    case SLUICE__SLOT_V_BIAS: return vector_if(l->qkv_bias, s.v_rows);
    case SLUICE__SLOT_GATE_BIAS: return vector_if(l->qkv_bias, s.gate_rows);
    case SLUICE__SLOT_GATE_PARAM: return (extent){l->gate.input_none ? s.gate_heads : 0, s.gate_width};
    case SLUICE__SLOT_Q_NORM:
        return vector_if(l->qk_norm && !l->qk_norm_weightless,
                         (l->qk_norm_whole ? (int64_t)l->num_attention_heads : 1) * l->head_dim);
    case SLUICE__SLOT_K_NORM:
        return vector_if(l->qk_norm && !l->qk_norm_weightless,
                         (l->qk_norm_whole ? (int64_t)l->num_key_value_heads : 1) * l->head_dim);
    case SLUICE__SLOT_SINKS: return vector_if(l->sinks, l->num_attention_heads);
    case SLUICE__SLOT_SDPA_NORM: return vector_if(l->sdpa_norm, l->head_dim);
    case SLUICE__SLOT_O: return (extent){width, s.q_rows};
    default: return vector_if(l->o_bias, width); /* SLUICE__SLOT_O_BIAS */
    }
}

static extent delta_extent(const sluice_config *c, int layer, sluice__slot slot) {
    const sluice_delta_spec *d = &c->layers[layer].delta;
    int64_t width = c->hidden_size, key = (int64_t)d->num_key_heads * d->key_head_dim,
            value = (int64_t)d->num_value_heads * d->value_head_dim;
    if (!d->num_value_heads) return (extent){0, 0};
    switch (slot) {
    case SLUICE__SLOT_DELTA_Q:
    case SLUICE__SLOT_DELTA_K: return (extent){key, width};
    case SLUICE__SLOT_DELTA_V:
    case SLUICE__SLOT_DELTA_Z: return (extent){value, width};
    case SLUICE__SLOT_DELTA_B:
    case SLUICE__SLOT_DELTA_A: return (extent){d->num_value_heads, width};
    case SLUICE__SLOT_DELTA_CONV_Q:
    case SLUICE__SLOT_DELTA_CONV_K: return (extent){key, d->conv_kernel};
    case SLUICE__SLOT_DELTA_CONV_V: return (extent){value, d->conv_kernel};
    case SLUICE__SLOT_DELTA_A_LOG:
    case SLUICE__SLOT_DELTA_DT_BIAS: return vector_if(true, d->num_value_heads);
    case SLUICE__SLOT_DELTA_NORM: return vector_if(true, d->value_head_dim);
    default: return (extent){width, value}; /* SLUICE__SLOT_DELTA_OUT */
    }
}

/* Of the dense MLP, of one expert, and of the shared expert. */
static extent mlp_extent(const sluice_config *c, int layer, sluice__slot slot) {
    const sluice_layer_spec *l = &c->layers[layer];
    const sluice_moe_spec *m = &l->moe;
    bool sparse = m->num_experts > 0;
    int64_t width = c->hidden_size, inner = sparse ? 0 : l->intermediate_size,
            expert = sparse ? m->intermediate_size : 0;
    int64_t shared = sparse ? m->shared_intermediate_size : 0;
    switch (slot) {
    case SLUICE__SLOT_MLP_GATE: return (extent){l->mlp_gelu ? 0 : inner, width};
    case SLUICE__SLOT_MLP_UP: return (extent){inner, width};
    case SLUICE__SLOT_MLP_DOWN: return (extent){inner ? width : 0, inner};
    case SLUICE__SLOT_MLP_GATE_BIAS: return vector_if(l->mlp_bias && !l->mlp_gelu, inner);
    case SLUICE__SLOT_MLP_UP_BIAS: return vector_if(l->mlp_bias, inner);
    case SLUICE__SLOT_MLP_DOWN_BIAS: return vector_if(l->mlp_bias && inner, width);
    case SLUICE__SLOT_ROUTER: return (extent){m->num_experts, width};
    case SLUICE__SLOT_ROUTER_BIAS: return vector_if(m->router_bias, m->num_experts);
    case SLUICE__SLOT_SELECTION_BIAS: return vector_if(m->selection_bias, m->num_experts);
    case SLUICE__SLOT_EXPERT_GATE_BIAS:
    case SLUICE__SLOT_EXPERT_UP_BIAS: return vector_if(m->expert_bias, expert);
    case SLUICE__SLOT_EXPERT_DOWN_BIAS: return vector_if(m->expert_bias && expert, width);
    case SLUICE__SLOT_SHARED_GATE_BIAS:
    case SLUICE__SLOT_SHARED_UP_BIAS: return vector_if(l->mlp_bias, shared);
    case SLUICE__SLOT_SHARED_DOWN_BIAS: return vector_if(l->mlp_bias && shared, width);
    case SLUICE__SLOT_EXPERT_GATE:
    case SLUICE__SLOT_EXPERT_UP: return (extent){expert, width};
    case SLUICE__SLOT_EXPERT_DOWN: return (extent){expert ? width : 0, expert};
    case SLUICE__SLOT_SHARED_GATE:
    case SLUICE__SLOT_SHARED_UP: return (extent){shared, width};
    case SLUICE__SLOT_SHARED_DOWN: return (extent){shared ? width : 0, shared};
    default: return (extent){shared && m->shared_expert_gate, width}; /* SLUICE__SLOT_SHARED_EXPERT_GATE */
    }
}

static extent extent_of(const sluice_config *c, int layer, sluice__slot slot) {
    int64_t width = c->hidden_size;
    switch (slot) {
    case SLUICE__SLOT_EMBED_TOKENS: return (extent){c->vocab_size, width};
    case SLUICE__SLOT_LM_HEAD: return (extent){c->tie_word_embeddings ? 0 : c->vocab_size, width};
    case SLUICE__SLOT_NORM: return vector_if(true, width);
    case SLUICE__SLOT_INPUT_NORM:
    case SLUICE__SLOT_POST_ATTENTION_NORM: return vector_if(!c->layers[layer].no_input_norm, width);
    case SLUICE__SLOT_POST_SELF_ATTN_NORM:
    case SLUICE__SLOT_POST_MLP_NORM: return vector_if(c->layers[layer].sandwich_norm, width);
    default:
        if (slot >= SLUICE__SLOT_MLP_GATE) return mlp_extent(c, layer, slot);
        if (slot >= SLUICE__SLOT_DELTA_Q) return delta_extent(c, layer, slot);
        return attention_extent(c, layer, slot);
    }
}

int sluice__slot_shape(const sluice_config *config, int layer, sluice__slot slot, int64_t shape[2]) {
    extent e = extent_of(config, layer, slot);
    shape[0] = e.rows;
    shape[1] = e.columns;
    return e.rows == 0 ? 0 : e.columns == 0 ? 1 : 2;
}

char *sluice__tensor_name_in(const char *prefix, const char *experts, const char *name, sluice__place place) {
    if (place.layer < 0) return sluice__strdup(name);
    if (place.expert < 0) return sluice__asprintf("%slayers.%d.%s", prefix, place.layer, name);
    return sluice__asprintf("%slayers.%d.%s%d.%s", prefix, place.layer, experts ? experts : "mlp.experts.",
                            place.expert, name);
}

static bool is_of_expert(sluice__slot slot) {
    return slot >= SLUICE__SLOT_EXPERT_GATE && slot <= SLUICE__SLOT_EXPERT_DOWN_BIAS;
}

int sluice__slot_copies(const sluice_config *config, int layer, sluice__slot slot) {
    return is_of_expert(slot) && layer >= 0 ? config->layers[layer].moe.num_experts : 1;
}

/* Gate and up of one expert stand together, before those of the next; down stands alone. */
static bool next_expert(sluice__place *p, int last) {
    bool gate = p->slot == SLUICE__SLOT_EXPERT_GATE || p->slot == SLUICE__SLOT_EXPERT_GATE_BIAS;
    bool up = p->slot == SLUICE__SLOT_EXPERT_UP || p->slot == SLUICE__SLOT_EXPERT_UP_BIAS;
    if (gate) {
        p->slot++;
        return true;
    }
    if (p->expert >= last) return false;
    p->expert++;
    if (up) p->slot--;
    return true;
}

bool sluice__place_next(const sluice_config *c, sluice__place *p) {
    if (p->expert >= 0 && next_expert(p, c->layers[p->layer].moe.num_experts - 1)) return true;
    if (++p->slot == SLUICE__SLOTS) return false;
    if (p->slot == SLUICE__SLOT_INPUT_NORM) p->layer = 0;
    if (p->slot == SLUICE__SLOT_NORM) {
        bool more = p->layer + 1 < c->num_hidden_layers;
        p->layer = more ? p->layer + 1 : -1;
        if (more) p->slot = SLUICE__SLOT_INPUT_NORM;
    }
    if (p->slot == SLUICE__SLOT_EXPERT_GATE && !c->layers[p->layer].moe.num_experts)
        p->slot = SLUICE__SLOT_SHARED_GATE;
    p->expert = is_of_expert(p->slot) ? 0 : -1;
    return true;
}

/* An MLP without a gate matrix begins with its up matrix. */
static bool begins_where_last_ends(const sluice_config *c, int layer, sluice__slot slot) {
    return slots[slot].glued && !(slot == SLUICE__SLOT_MLP_UP && c->layers[layer].mlp_gelu);
}

/* Appends the tensor if the model has it; with out NULL it is only counted. */
static bool append(sluice__tensor *out, int *count, int64_t *at, const sluice_config *c, sluice__place place,
                   bool matrices) {
    sluice__slot slot = place.slot;
    sluice__tensor t = {.slot = slot, .layer = place.layer, .expert = place.expert};
    t.ndim = sluice__slot_shape(c, place.layer, slot, t.shape);
    if (!t.ndim) return true;
    t.count = t.shape[0] * (t.ndim == 2 ? t.shape[1] : 1);
    t.glued = begins_where_last_ends(c, place.layer, slot);
    if (!t.glued && place.expert <= 0) *at = (*at + ALIGN_FLOATS - 1) / ALIGN_FLOATS * ALIGN_FLOATS;
    bool outside = !matrices && slots[slot].kind == SLUICE__KIND_MATRIX;
    t.offset = outside ? -1 : *at;
    if (!outside) *at += t.count;
    if (out) {
        t.name = sluice__tensor_name_in("model.", NULL, slots[slot].name, place);
        out[*count] = t;
    }
    ++*count;
    return !out || t.name;
}

static bool append_all(sluice__tensor *out, int *count, int64_t *size, const sluice_config *c, bool matrices) {
    *count = 0;
    *size = 0;
    sluice__place place = SLUICE__FIRST_PLACE;
    bool ok = true;
    do ok = append(out, count, size, c, place, matrices);
    while (ok && sluice__place_next(c, &place));
    *size = (*size + ALIGN_FLOATS - 1) / ALIGN_FLOATS * ALIGN_FLOATS;
    return ok;
}

sluice_status sluice__tensors_new(sluice__tensor **out, int *count, int64_t *flat_size,
                                  const sluice_config *config, bool matrices, sluice_error *err) {
    append_all(NULL, count, flat_size, config, matrices);
    int room = *count;
    *out = sluice__calloc((size_t)room, sizeof **out, SLUICE__MEM_OTHER);
    if (*out && append_all(*out, count, flat_size, config, matrices)) return SLUICE_OK;
    sluice__tensors_free(*out, room);
    *out = NULL;
    return sluice__no_memory(err, (size_t)room * sizeof **out, "the list of tensors");
}

void sluice__tensors_free(sluice__tensor *tensors, int count) {
    for (int i = 0; tensors && i < count; i++) sluice__free(tensors[i].name);
    sluice__free(tensors);
}
