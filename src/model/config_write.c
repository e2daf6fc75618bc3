/* SPDX-License-Identifier: Apache-2.0 */
/* Writing config.json: our own flat keys. */
#include "base/memory.h"
#include "model/config.h"
#include "model/family.h"
#include "model/save.h"
#include <string.h>

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

int sluice__write_sizes(json_t *o, const sluice_config *c) {
    const sluice_layer_spec *l = &c->layers[0];
    return set_int(o, "vocab_size", c->vocab_size) | set_int(o, "hidden_size", c->hidden_size) |
           set_int(o, "intermediate_size", l->intermediate_size) | set_int(o, "num_hidden_layers", c->num_hidden_layers) |
           set_int(o, "num_attention_heads", l->num_attention_heads) | set_int(o, "num_key_value_heads", l->num_key_value_heads) |
           set_int(o, "head_dim", l->head_dim) | set_text(o, "hidden_act", "silu") |
           set_int(o, "max_position_embeddings", c->max_position_embeddings) | set_real(o, "rms_norm_eps", c->rms_norm_eps) |
           set_real(o, "initializer_range", c->initializer_range) | set_bool(o, "tie_word_embeddings", c->tie_word_embeddings) |
           set_token(o, "bos_token_id", c->bos_token_id) | set_token(o, "eos_token_id", c->eos_token_id) |
           set_token(o, "pad_token_id", c->pad_token_id) | set_text(o, "torch_dtype", "float32");
}

int sluice__write_rope(json_t *o, const sluice_config *c) {
    json_t *rope = sluice__rope_to_json(&c->layers[0].rope, c->layers[0].head_dim);
    return rope ? json_object_set_new(o, "rope_parameters", rope) : -1;
}

int sluice__write_kinds(json_t *o, const sluice_config *c) {
    json_t *kinds = json_array();
    int window = 0, bad = !kinds;
    for (int i = 0; i < c->num_hidden_layers; i++) {
        if (c->layers[i].sliding_window) window = c->layers[i].sliding_window;
        bad |= json_array_append_new(kinds, json_string(c->layers[i].sliding_window ? "sliding_attention" : "full_attention"));
    }
    bad |= json_object_set_new(o, "layer_types", kinds);
    return bad | json_object_set_new(o, "sliding_window", window ? json_integer(window) : json_null());
}

static int write_native(json_t *o, const sluice_config *c) {
    const sluice_layer_spec *l = &c->layers[0];
    json_t *map = json_pack("{s:s, s:s}", "AutoConfig", "configuration_sluice.SluiceConfig", "AutoModelForCausalLM",
                            "modeling_sluice.SluiceForCausalLM");
    json_t *architectures = json_pack("[s]", "SluiceForCausalLM");
    return json_object_set_new(o, "architectures", architectures) | json_object_set_new(o, "auto_map", map) |
           set_text(o, "model_type", "sluice") | sluice__write_sizes(o, c) | sluice__write_rope(o, c) | sluice__write_kinds(o, c) |
           set_bool(o, "use_qk_norm", l->qk_norm) | set_bool(o, "qkv_bias", l->qkv_bias) | set_bool(o, "o_bias", l->o_bias) |
           set_bool(o, "sandwich_norm", l->sandwich_norm) | set_real(o, "residual_clip", (double)l->residual_clip) |
           set_bool(o, "sdpa_norm", l->sdpa_norm) | set_bool(o, "sdpa_silu", l->sdpa_silu) | sluice__gate_to_json(o, &l->gate);
}

json_t *sluice__config_to_native(const sluice_config *c) {
    json_t *o = json_object();
    if (o && write_native(o, c) == 0) return o;
    json_decref(o);
    return NULL;
}
