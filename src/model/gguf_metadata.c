/* SPDX-License-Identifier: Apache-2.0 */
/* See gguf_metadata.h. Architectures are chosen by what the layers do, not by the name in config.json: the paper's models
 * call themselves qwen2 and are not. */
#include "model/gguf_metadata.h"
#include "model/gguf_model.h"
#include "model/save.h"
#include <stdio.h>
#include <string.h>

static const sluice_layer_spec *first_attention(const sluice_config *c) { return &c->layers[0]; }

static sluice_status cannot(sluice_error *err, const char *arch, const char *what) {
    return sluice__fail(err, SLUICE_ERR_UNSUPPORTED, "%s cannot be expressed in a GGUF file of architecture %s", what, arch);
}

/* What llama.cpp's graphs of all our architectures lack. */
static sluice_status check_layers(const sluice_config *c, const char *arch, sluice_error *err) {
    const sluice_rope_spec *rope = &first_attention(c)->rope;
    for (int i = 0; i < c->num_hidden_layers; i++) {
        const sluice_layer_spec *l = &c->layers[i];
        if (l->sliding_window > 0 && l->sliding_window < c->max_position_embeddings)
            return cannot(err, arch, "a sliding window");
        if (!sluice__rope_equal(&l->rope, rope)) return cannot(err, arch, "RoPE that differs between layers");
        if ((l->moe.num_experts > 0) != (c->layers[0].moe.num_experts > 0))
            return cannot(err, arch, "a mixture of dense layers and layers with experts");
        if (l->sandwich_norm || l->residual_clip > 0 || l->sdpa_norm || l->sdpa_silu || l->mlp_gelu ||
            l->switch_head.head != SLUICE_SWITCH_NONE)
            return cannot(err, arch, "a layer with parts of our own");
    }
    bool plain = rope->type == SLUICE_ROPE_DEFAULT || rope->type == SLUICE_ROPE_LINEAR || rope->type == SLUICE_ROPE_YARN;
    if (!rope->enabled || (!plain && (rope->type != SLUICE_ROPE_LLAMA3 || strcmp(arch, "llama"))))
        return cannot(err, arch, "this kind of RoPE");
    return SLUICE_OK;
}

sluice_status sluice__gguf_choose_architecture(const char **arch, const sluice_config *config, sluice_error *err) {
    const sluice__target *target = sluice__target_of(config);
    const char *type = target ? target->model_type : config->model_type;
    *arch = sluice__gguf_architecture(type);
    if (!*arch)
        return sluice__fail(err, SLUICE_ERR_UNSUPPORTED,
                            "a model of type %s with these layers has no GGUF architecture that we write (llama, qwen2, "
                            "qwen3, qwen2moe, qwen3moe, qwen3next, qwen35, qwen35moe)",
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
}

static void put_experts(const keys *k, const sluice_moe_spec *m) {
    put_integer(k, "expert_count", m->num_experts);
    put_integer(k, "expert_used_count", m->num_experts_per_tok);
    put_integer(k, "expert_feed_forward_length", m->intermediate_size);
    if (m->shared_intermediate_size) put_integer(k, "expert_shared_feed_forward_length", m->shared_intermediate_size);
}

/* Keys of linear attention. Readers of qwen35 want them even where every layer is full attention; then they mean nothing. */
static void put_linear(const keys *k) {
    put_integer(k, "ssm.conv_kernel", 4);
    put_integer(k, "ssm.state_size", 16);
    put_integer(k, "ssm.group_count", 1);
    put_integer(k, "ssm.time_step_rank", 1);
    put_integer(k, "ssm.inner_size", 16);
    put_integer(k, "full_attention_interval", 1);
}

static void put_sections(const keys *k, int rotary_dim) {
    char full[96];
    int half = rotary_dim / 2, sections[4] = {(half + 2) / 3, (half + 1) / 3, half / 3, 0};
    snprintf(full, sizeof full, "%s.rope.dimension_sections", k->arch);
    sluice__gguf_put_array(k->w, full, SLUICE__GGUF_I32, 4);
    for (int i = 0; i < 4; i++) sluice__gguf_put_element(k->w, (uint32_t)sections[i], 4);
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
    if (hybrid) put_linear(&k);
    if (!strncmp(arch, "qwen35", 6)) put_sections(&k, l->rope.rotary_dim);
    return SLUICE_OK;
}
