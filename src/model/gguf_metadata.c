/* SPDX-License-Identifier: Apache-2.0 */
/* See gguf_metadata.h. Architectures are chosen by what the layers do, not by the name in config.json: the paper's models
 * call themselves qwen2 and are not. */
#include "model/gguf_metadata.h"
#include "base/log.h"
#include "model/gguf_model.h"
#include "model/save.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* The first layer with softmax attention; of a model without one, the first. */
static const sluice_layer_spec *first_attention(const sluice_config *c) {
    for (int i = 0; i < c->num_hidden_layers; i++)
        if (!sluice_layer_is_linear(&c->layers[i])) return &c->layers[i];
    return &c->layers[0];
}

static const sluice_layer_spec *first_linear(const sluice_config *c) {
    for (int i = 0; i < c->num_hidden_layers; i++)
        if (sluice_layer_is_linear(&c->layers[i])) return &c->layers[i];
    return NULL;
}

static sluice_status cannot(sluice_error *err, const char *arch, const char *what) {
    return sluice__fail(err, SLUICE_ERR_UNSUPPORTED, "%s cannot be expressed in a GGUF file of architecture %s", what, arch);
}

/* What no graph of our architectures in llama.cpp has; NULL when the layer has nothing of that kind. */
static const char *foreign_part(const sluice_layer_spec *l, bool oss) {
    const sluice_moe_spec *m = &l->moe;
    bool linear = sluice_layer_is_linear(l);
    if (l->sandwich_norm || l->no_input_norm || l->residual_clip > 0) return "another order of norms or a clipped residual";
    if (l->sdpa_norm || l->sdpa_silu || l->switch_head.head != SLUICE_SWITCH_NONE) return "attention with parts of our own";
    if (l->mlp_gelu || l->mlp_bias || l->mlp_limit > 0 || l->mlp_act != (oss ? SLUICE_MLP_GPT_OSS : SLUICE_MLP_SILU))
        return "this MLP";
    if (m->score != SLUICE_ROUTER_SOFTMAX || m->logit_softcap > 0 || m->selection_bias ||
        (m->route_scale != 0 && m->route_scale != 1) || m->router_bias != oss || m->expert_bias != oss)
        return "this router";
    if (linear) return l->delta.double_beta ? "linear attention that writes with twice the strength" : NULL;
    if (l->qk_norm_whole || l->qk_norm_weightless || l->sinks != oss) return "this kind of attention";
    if (fabs((double)l->attention_scale * sqrt(l->head_dim) - 1) > 1e-6) return "this attention scale";
    return NULL;
}

static sluice_status check_rope(const sluice_config *c, const char *arch, sluice_error *err) {
    const sluice_rope_spec *rope = &first_attention(c)->rope;
    for (int i = 0; i < c->num_hidden_layers; i++)
        if (!sluice_layer_is_linear(&c->layers[i]) && !sluice__rope_equal(&c->layers[i].rope, rope))
            return cannot(err, arch, "RoPE that differs between layers");
    bool plain = rope->type == SLUICE_ROPE_DEFAULT || rope->type == SLUICE_ROPE_LINEAR || rope->type == SLUICE_ROPE_YARN;
    if (!rope->enabled || (!plain && (rope->type != SLUICE_ROPE_LLAMA3 || strcmp(arch, "llama"))))
        return cannot(err, arch, "this kind of RoPE");
    return SLUICE_OK;
}

static sluice_status check_layers(const sluice_config *c, const char *arch, sluice_error *err) {
    bool oss = !strcmp(arch, "gpt-oss");
    bool odd = (c->embedding_scale != 0 && c->embedding_scale != 1) || c->embedding_norm || c->logit_softcap > 0 ||
               (c->logit_scale != 0 && c->logit_scale != 1);
    if (odd) return cannot(err, arch, "scaled or normed embeddings or logits");
    for (int i = 0; i < c->num_hidden_layers; i++) {
        const sluice_layer_spec *l = &c->layers[i];
        const char *part = foreign_part(l, oss);
        if (part) return cannot(err, arch, part);
        if (!oss && !sluice_layer_is_linear(l) && l->sliding_window > 0 && l->sliding_window < c->max_position_embeddings)
            return cannot(err, arch, "a sliding window");
        if ((l->moe.num_experts > 0) != (c->layers[0].moe.num_experts > 0))
            return cannot(err, arch, "a mixture of dense layers and layers with experts");
    }
    return check_rope(c, arch, err);
}

sluice_status sluice__gguf_choose_architecture(const char **arch, const sluice_config *config, sluice_error *err) {
    const sluice__target *target = sluice__target_of(config);
    const char *type = target ? target->model_type : config->model_type;
    *arch = sluice__gguf_architecture(type);
    if (!*arch)
        return sluice__fail(err, SLUICE_ERR_UNSUPPORTED,
                            "a model of type %s with these layers has no GGUF architecture that we write (llama, qwen2, "
                            "qwen3, qwen2moe, qwen3moe, qwen3next, qwen35, qwen35moe, gpt-oss)",
                            type);
    bool gated = first_attention(config)->gate.position != SLUICE_GATE_NONE;
    bool can_gate = !strncmp(*arch, "qwen35", 6) || !strcmp(*arch, "qwen3next");
    if (gated && !can_gate) return cannot(err, *arch, "this gate");
    return check_layers(config, *arch, err);
}

typedef struct keys {
    sluice__gguf_writer *w;
    const char *arch;
} keys;

static void put_integer(const keys *k, const char *key, int64_t value) {
    char full[96];
    snprintf(full, sizeof full, "%s.%s", k->arch, key);
    sluice__gguf_put_u32(k->w, full, (uint32_t)value);
}

static void put_real(const keys *k, const char *key, double value) {
    char full[96];
    snprintf(full, sizeof full, "%s.%s", k->arch, key);
    sluice__gguf_put_f32(k->w, full, value);
}

static void put_rope(const keys *k, const sluice_rope_spec *rope) {
    char full[96];
    put_real(k, "rope.freq_base", rope->theta);
    put_integer(k, "rope.dimension_count", rope->rotary_dim);
    bool yarn = rope->type == SLUICE_ROPE_YARN;
    if (!yarn && rope->type != SLUICE_ROPE_LINEAR) return;
    snprintf(full, sizeof full, "%s.rope.scaling.type", k->arch);
    sluice__gguf_put_string(k->w, full, yarn ? "yarn" : "linear", yarn ? 4 : 6);
    put_real(k, "rope.scaling.factor", rope->factor);
    if (yarn) put_integer(k, "rope.scaling.original_context_length", rope->original_max_position_embeddings);
    if (yarn && !rope->truncate)
        sluice__log(SLUICE_LOG_WARNING, "YaRN without truncation: llama.cpp truncates and gives slightly other logits");
}

static void put_experts(const keys *k, const sluice_moe_spec *m) {
    put_integer(k, "expert_count", m->num_experts);
    put_integer(k, "expert_used_count", m->num_experts_per_tok);
    put_integer(k, "expert_feed_forward_length", m->intermediate_size);
    if (m->shared_intermediate_size) put_integer(k, "expert_shared_feed_forward_length", m->shared_intermediate_size);
}

/* Every n-th layer softmax attention and no other: n; otherwise 0. */
static int interval_of(const sluice_config *c) {
    int first = 0;
    while (first < c->num_hidden_layers && sluice_layer_is_linear(&c->layers[first])) first++;
    for (int i = 0; i < c->num_hidden_layers; i++)
        if (sluice_layer_is_linear(&c->layers[i]) != ((i + 1) % (first + 1) != 0)) return 0;
    return first + 1;
}

/* Keys of linear attention; every file of these architectures has a layer of it (gguf_neutral.h). */
static void put_linear(const keys *k, const sluice_config *c) {
    const sluice_delta_spec *d = &first_linear(c)->delta;
    int interval = interval_of(c);
    char full[96];
    put_integer(k, "ssm.conv_kernel", d->conv_kernel);
    put_integer(k, "ssm.state_size", d->key_head_dim);
    put_integer(k, "ssm.group_count", d->num_key_heads);
    put_integer(k, "ssm.time_step_rank", d->num_value_heads);
    put_integer(k, "ssm.inner_size", (int64_t)d->num_value_heads * d->value_head_dim);
    if (interval) {
        put_integer(k, "full_attention_interval", interval);
        return;
    }
    snprintf(full, sizeof full, "%s.attention.recurrent_layers", k->arch);
    sluice__gguf_put_array(k->w, full, SLUICE__GGUF_BOOL, (uint64_t)c->num_hidden_layers);
    for (int i = 0; i < c->num_hidden_layers; i++)
        sluice__gguf_put_element(k->w, sluice_layer_is_linear(&c->layers[i]), 1);
}

static void put_sections(const keys *k, int rotary_dim) {
    char full[96];
    int half = rotary_dim / 2, sections[4] = {(half + 2) / 3, (half + 1) / 3, half / 3, 0};
    snprintf(full, sizeof full, "%s.rope.dimension_sections", k->arch);
    sluice__gguf_put_array(k->w, full, SLUICE__GGUF_I32, 4);
    for (int i = 0; i < 4; i++) sluice__gguf_put_element(k->w, (uint32_t)sections[i], 4);
}

/* The window of the layers that have one. */
static int window_of(const sluice_config *c) {
    for (int i = 0; i < c->num_hidden_layers; i++)
        if (c->layers[i].sliding_window) return c->layers[i].sliding_window;
    return c->max_position_embeddings;
}

sluice_status sluice__gguf_put_config(sluice__gguf_writer *w, const char *arch, const sluice_config *c, sluice_error *err) {
    const sluice_layer_spec *l = first_attention(c);
    const keys k = {w, arch};
    (void)err;
    sluice__gguf_put_string(w, "general.architecture", arch, strlen(arch));
    put_integer(&k, "context_length", c->max_position_embeddings);
    put_integer(&k, "embedding_length", c->hidden_size);
    put_integer(&k, "block_count", c->num_hidden_layers);
    put_integer(&k, "feed_forward_length", l->intermediate_size);
    put_integer(&k, "attention.head_count", l->num_attention_heads);
    put_integer(&k, "attention.head_count_kv", l->num_key_value_heads);
    put_integer(&k, "attention.key_length", l->head_dim);
    put_integer(&k, "attention.value_length", l->head_dim);
    put_real(&k, "attention.layer_norm_rms_epsilon", c->rms_norm_eps);
    put_integer(&k, "vocab_size", c->vocab_size);
    put_rope(&k, &l->rope);
    if (l->moe.num_experts) put_experts(&k, &l->moe);
    bool hybrid = !strncmp(arch, "qwen35", 6) || !strcmp(arch, "qwen3next");
    if (hybrid) put_linear(&k, c);
    bool headwise = l->gate.position != SLUICE_GATE_NONE && l->gate.granularity == SLUICE_GATE_HEADWISE;
    if (headwise) sluice__gguf_put_string(w, SLUICE__GGUF_GRANULARITY_KEY, "headwise", strlen("headwise"));
    if (!strcmp(arch, "gpt-oss")) put_integer(&k, "attention.sliding_window", window_of(c));
    if (!strncmp(arch, "qwen35", 6)) put_sections(&k, l->rope.rotary_dim);
    return SLUICE_OK;
}
