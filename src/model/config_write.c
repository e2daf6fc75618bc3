/* SPDX-License-Identifier: Apache-2.0 */
/* Writing config.json for the classes of transformers that express our models, and in our own flat keys for the
 * rest. What each class can do was read from transformers 5.18 and tried with it
 * (tests/model/test_transformers.py): llama and qwen3 ignore partial_rotary_factor, only qwen3_5_text has a
 * gate, and that has q/k norm always. */
#include "base/memory.h"
#include "model/save.h"
#include <math.h>

static int set_int(json_t *o, const char *key, int64_t value) {
    return json_object_set_new(o, key, json_integer(value));
}

static int set_real(json_t *o, const char *key, double value) {
    return json_object_set_new(o, key, json_real(value));
}

static int set_bool(json_t *o, const char *key, bool value) {
    return json_object_set_new(o, key, json_boolean(value));
}

static int set_text(json_t *o, const char *key, const char *value) {
    return json_object_set_new(o, key, json_string(value));
}

static int set_token(json_t *o, const char *key, int id) {
    return json_object_set_new(o, key, id < 0 ? json_null() : json_integer(id));
}

static int set_eos(json_t *o, const sluice_config *c) {
    if (!c->num_other_eos) return set_token(o, "eos_token_id", c->eos_token_id);
    json_t *list = json_pack("[i]", c->eos_token_id);
    int bad = !list;
    for (int i = 0; i < c->num_other_eos; i++) bad |= json_array_append_new(list, json_integer(c->other_eos[i]));
    return bad | json_object_set_new(o, "eos_token_id", list);
}

/* The first layer that slides, or does not; NULL when there is none. */
static const sluice_layer_spec *first_of_kind(const sluice_config *c, bool sliding) {
    for (int i = 0; i < c->num_hidden_layers; i++)
        if ((c->layers[i].sliding_window > 0) == sliding) return &c->layers[i];
    return NULL;
}

/* Whether both kinds of layers rotate alike. */
static bool one_rope(const sluice_config *c) {
    const sluice_layer_spec *full = first_of_kind(c, false), *sliding = first_of_kind(c, true);
    return !full || !sliding || sluice__rope_equal(&full->rope, &sliding->rope);
}

static json_t *rope_json(const sluice_config *c) {
    const sluice_layer_spec *full = first_of_kind(c, false), *sliding = first_of_kind(c, true);
    if (one_rope(c)) return sluice__rope_to_json(&c->layers[0].rope, c->layers[0].head_dim);
    return json_pack("{s:o, s:o}", "full_attention", sluice__rope_to_json(&full->rope, full->head_dim),
                     "sliding_attention", sluice__rope_to_json(&sliding->rope, sliding->head_dim));
}

/* Keys that every class reads alike. */
static int write_common(json_t *o, const sluice_config *c) {
    const sluice_layer_spec *l = &c->layers[0];
    return set_int(o, "vocab_size", c->vocab_size) | set_int(o, "hidden_size", c->hidden_size) |
           set_int(o, "intermediate_size", l->intermediate_size) |
           set_int(o, "num_hidden_layers", c->num_hidden_layers) |
           set_int(o, "num_attention_heads", l->num_attention_heads) |
           set_int(o, "num_key_value_heads", l->num_key_value_heads) | set_int(o, "head_dim", l->head_dim) |
           set_text(o, "hidden_act", l->mlp_gelu ? "gelu" : "silu") |
           set_int(o, "max_position_embeddings", c->max_position_embeddings) |
           set_real(o, "rms_norm_eps", c->rms_norm_eps) |
           set_real(o, "initializer_range", c->initializer_range) |
           set_bool(o, "tie_word_embeddings", c->tie_word_embeddings) |
           set_token(o, "bos_token_id", c->bos_token_id) | set_eos(o, c) |
           set_token(o, "pad_token_id", c->pad_token_id) | set_text(o, "torch_dtype", "float32") |
           json_object_set_new(o, "rope_parameters", rope_json(c));
}

static int window_of(const sluice_config *c) {
    const sluice_layer_spec *sliding = first_of_kind(c, true);
    return sliding ? sliding->sliding_window : 0;
}

static int write_kinds(json_t *o, const sluice_config *c) {
    json_t *kinds = json_array();
    int window = window_of(c), bad = !kinds;
    for (int i = 0; i < c->num_hidden_layers; i++)
        bad |= json_array_append_new(
            kinds, json_string(c->layers[i].sliding_window ? "sliding_attention" : "full_attention"));
    bad |= json_object_set_new(o, "layer_types", kinds);
    return bad | json_object_set_new(o, "sliding_window", window ? json_integer(window) : json_null());
}

static int write_window(json_t *o, const sluice_config *c) {
    return write_kinds(o, c) | set_bool(o, "use_sliding_window", window_of(c) > 0);
}

static int write_attention_bias(json_t *o, const sluice_config *c) {
    return set_bool(o, "attention_bias", c->layers[0].qkv_bias) |
           json_object_set_new(o, "attention_dropout", json_real(0));
}

/* ---- what transformers' classes can express ---- */

/* No part that is ours alone. */
static bool plain_block(const sluice_layer_spec *l) {
    return !l->mlp_gelu && !l->moe.num_experts && l->switch_head.head == SLUICE_SWITCH_NONE && !l->sandwich_norm &&
           l->residual_clip == 0 && !l->sdpa_norm && !l->sdpa_silu && l->rope.enabled;
}

static bool full_rotary(const sluice_layer_spec *l) {
    return l->rope.rotary_dim == l->head_dim;
}

static bool ungated(const sluice_layer_spec *l) {
    return plain_block(l) && full_rotary(l) && l->gate.position == SLUICE_GATE_NONE;
}

static bool fits_llama(const sluice_config *c) {
    const sluice_layer_spec *l = &c->layers[0];
    return ungated(l) && !l->qk_norm && l->qkv_bias == l->o_bias && !window_of(c) &&
           c->hidden_size % l->num_attention_heads == 0;
}

static bool fits_qwen2(const sluice_config *c) {
    const sluice_layer_spec *l = &c->layers[0];
    return ungated(l) && !l->qk_norm && l->qkv_bias && !l->o_bias;
}

static bool fits_qwen3(const sluice_config *c) {
    const sluice_layer_spec *l = &c->layers[0];
    return ungated(l) && l->qk_norm && l->qkv_bias == l->o_bias;
}

static bool fits_qwen3_5(const sluice_config *c) {
    const sluice_layer_spec *l = &c->layers[0];
    const sluice_gate_spec *g = &l->gate;
    return plain_block(l) && l->qk_norm && l->qkv_bias == l->o_bias && !window_of(c) &&
           g->position == SLUICE_GATE_SDPA && g->op == SLUICE_GATE_MULTIPLY && g->act == SLUICE_GATE_SIGMOID &&
           !g->shared && !g->input_none;
}

static int write_llama(json_t *o, const sluice_config *c) {
    return write_attention_bias(o, c) | set_bool(o, "mlp_bias", false);
}

static int write_qwen3(json_t *o, const sluice_config *c) {
    return write_window(o, c) | write_attention_bias(o, c);
}

/* gate_position and gate_granularity are ours: they tell our reader that a headwise gate's rows were repeated.
 */
static int write_qwen3_5(json_t *o, const sluice_config *c) {
    bool headwise = c->layers[0].gate.granularity == SLUICE_GATE_HEADWISE;
    return write_kinds(o, c) | json_object_del(o, "sliding_window") | write_attention_bias(o, c) |
           set_bool(o, "attn_output_gate", true) | set_text(o, "gate_position", "sdpa") |
           set_text(o, "gate_granularity", headwise ? "headwise" : "elementwise");
}

static int write_switch(json_t *o, const sluice_switch_spec *s) {
    static const char *const heads[] = {"none", "v", "kv"};
    bool on = s->head != SLUICE_SWITCH_NONE;
    return set_text(o, "switch_head", heads[s->head]) | set_int(o, "switch_experts", on ? s->experts : 1) |
           set_int(o, "switch_topk", on ? s->topk : 1);
}

static int write_experts(json_t *o, const sluice_config *c) {
    static const sluice_moe_spec none = {.num_experts_per_tok = 2,
                                         .intermediate_size = 32}; /* the reader's defaults */
    const sluice_moe_spec *m = c->layers[0].moe.num_experts ? &c->layers[0].moe : &none;
    return set_int(o, "num_experts", m->num_experts) | set_int(o, "num_experts_per_tok", m->num_experts_per_tok) |
           set_int(o, "moe_intermediate_size", m->intermediate_size) |
           set_int(o, "num_shared_experts", m->num_shared_experts) |
           set_bool(o, "norm_topk_prob", m->norm_topk_prob) |
           set_bool(o, "shared_expert_gate", m->shared_expert_gate) |
           set_real(o, "router_aux_loss_coef", c->router_aux_loss_coef) |
           set_real(o, "router_z_loss_coef", c->router_z_loss_coef);
}

static int write_native(json_t *o, const sluice_config *c) {
    const sluice_layer_spec *l = &c->layers[0];
    json_t *map = json_pack("{s:s, s:s}", "AutoConfig", "configuration_sluice.SluiceConfig",
                            "AutoModelForCausalLM", "modeling_sluice.SluiceForCausalLM");
    return json_object_set_new(o, "auto_map", map) | write_kinds(o, c) | set_bool(o, "use_qk_norm", l->qk_norm) |
           set_bool(o, "qkv_bias", l->qkv_bias) | set_bool(o, "o_bias", l->o_bias) |
           set_bool(o, "sandwich_norm", l->sandwich_norm) | set_real(o, "residual_clip", (double)l->residual_clip) |
           set_bool(o, "sdpa_norm", l->sdpa_norm) | set_bool(o, "sdpa_silu", l->sdpa_silu) |
           set_text(o, "mlp_type", l->mlp_gelu ? "gelu" : "swiglu") |
           sluice__gate_to_json(o, &l->gate) | write_switch(o, &l->switch_head) | write_experts(o, c);
}

static const sluice__target targets[] = {
    {&sluice__family_llama, "llama", "LlamaForCausalLM", fits_llama, write_llama},
    {&sluice__family_qwen2, "qwen2", "Qwen2ForCausalLM", fits_qwen2, write_window},
    {&sluice__family_qwen3, "qwen3", "Qwen3ForCausalLM", fits_qwen3, write_qwen3},
    {&sluice__family_qwen3_5, "qwen3_5_text", "Qwen3_5ForCausalLM", fits_qwen3_5, write_qwen3_5},
};
const sluice__target sluice__target_native = {&sluice__family_sluice, "sluice", "SluiceForCausalLM", NULL,
                                              write_native};

static bool same_gate(const sluice_gate_spec *a, const sluice_gate_spec *b) {
    return a->position == b->position && a->granularity == b->granularity && a->op == b->op && a->act == b->act &&
           a->shared == b->shared && a->share_mean_logit == b->share_mean_logit && a->input_none == b->input_none;
}

static bool same_switch(const sluice_switch_spec *a, const sluice_switch_spec *b) {
    return a->head == b->head && (a->head == SLUICE_SWITCH_NONE || (a->experts == b->experts && a->topk == b->topk));
}

static bool same_experts(const sluice_moe_spec *a, const sluice_moe_spec *b) {
    return a->num_experts == b->num_experts && a->num_experts_per_tok == b->num_experts_per_tok &&
           a->intermediate_size == b->intermediate_size && a->num_shared_experts == b->num_shared_experts &&
           a->shared_intermediate_size == b->shared_intermediate_size && a->norm_topk_prob == b->norm_topk_prob && a->shared_expert_gate == b->shared_expert_gate;
}

/* Everything but the window and, between the kinds, RoPE. */
static bool alike(const sluice_layer_spec *a, const sluice_layer_spec *b) {
    bool kind = (a->sliding_window > 0) == (b->sliding_window > 0);
    return a->num_attention_heads == b->num_attention_heads &&
           a->num_key_value_heads == b->num_key_value_heads && a->head_dim == b->head_dim &&
           a->attention_scale == b->attention_scale && a->qk_norm == b->qk_norm && a->qkv_bias == b->qkv_bias &&
           a->o_bias == b->o_bias && same_gate(&a->gate, &b->gate) &&
           same_switch(&a->switch_head, &b->switch_head) && same_experts(&a->moe, &b->moe) &&
           a->sdpa_norm == b->sdpa_norm && a->sdpa_silu == b->sdpa_silu &&
           a->intermediate_size == b->intermediate_size && a->mlp_gelu == b->mlp_gelu && a->sandwich_norm == b->sandwich_norm &&
           a->residual_clip == b->residual_clip &&
           (!kind || (a->sliding_window == b->sliding_window && sluice__rope_equal(&a->rope, &b->rope)));
}

sluice_status sluice__config_check_writable(const sluice_config *c, sluice_error *err) {
    const sluice_layer_spec *kinds[] = {first_of_kind(c, false), first_of_kind(c, true)};
    for (int i = 0; i < c->num_hidden_layers; i++) {
        const sluice_layer_spec *layer = &c->layers[i];
        if (sluice_layer_is_linear(layer) || layer->no_input_norm || (layer->qk_norm && layer->qk_norm_whole))
            return sluice__fail(err, SLUICE_ERR_UNSUPPORTED, "layer %d: saving a model with %s is not supported by this version",
                                i, sluice_layer_is_linear(layer) ? "linear attention" : "norms as in OLMo");
    }
    for (int i = 0; i < c->num_hidden_layers; i++)
        for (int k = 0; k < 2; k++)
            if (kinds[k] && !alike(&c->layers[i], kinds[k]))
                return sluice__fail(
                    err, SLUICE_ERR_UNSUPPORTED,
                    "layer %d differs from others in more than its window: no config.json of ours says that",
                    i);
    const char *part = sluice_config_foreign_part(c);
    if (part) return sluice__fail(err, SLUICE_ERR_UNSUPPORTED, "%s cannot be saved", part);
    return SLUICE_OK;
}

const sluice__target *sluice__target_of(const sluice_config *config) {
    if (!one_rope(config)) return NULL;
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
        if (targets[i].fits(config)) return &targets[i];
    return NULL;
}

const char *sluice_config_transformers_class(const sluice_config *config) {
    const sluice__target *target = sluice__target_of(config);
    return target ? target->architecture : NULL;
}

json_t *sluice__config_to_json(const sluice_config *config, const sluice__target *target) {
    json_t *o = json_object();
    int bad = json_object_set_new(o, "architectures", json_pack("[s]", target->architecture)) |
              set_text(o, "model_type", target->model_type) | write_common(o, config) |
              target->write(o, config);
    if (!bad) return o;
    json_decref(o);
    return NULL;
}
