/* SPDX-License-Identifier: Apache-2.0 */
/* From the metadata of a GGUF file to the config.json of the same model. One table says which architecture is which
 * model_type and what only it has; the families' own readers check the result as they would check a file. */
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "model/gguf_model.h"
#include "model/gguf_neutral.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef struct reader {
    const sluice__gguf *g;
    const char *arch;
    json_t *out;
    sluice_error *err;
} reader;

typedef struct architecture {
    const char *name, *model_type;
    sluice_status (*read)(const reader *r); /* what is not common to all; may be NULL */
} architecture;

static const sluice__gguf_value *value_of(const reader *r, const char *key) {
    char full[160];
    snprintf(full, sizeof full, "%s.%s", r->arch, key);
    return sluice__gguf_find(r->g, full);
}

static sluice_status wrong(const reader *r, const char *key, const char *expected) {
    return sluice__fail(r->err, SLUICE_ERR_CONFIG, "%s: %s.%s: expected %s", sluice__gguf_path(r->g), r->arch, key,
                        expected);
}

static sluice_status set(const reader *r, const char *name, json_t *value) {
    return json_object_set_new(r->out, name, value) ? sluice__no_memory(r->err, 64, "the configuration") : SLUICE_OK;
}

/* An integer, or an array of integers for the layers that agree but for zeros (layers that have none). */
static sluice_status find_integer(const reader *r, const char *key, bool *found, int64_t *out) {
    const sluice__gguf_value *v = value_of(r, key);
    *found = v != NULL;
    if (!v) return SLUICE_OK;
    if (sluice__gguf_integer(v, out)) return SLUICE_OK;
    sluice__gguf_value element;
    uint64_t at = 0;
    const unsigned char *cursor = NULL;
    int64_t one;
    *out = 0;
    while (sluice__gguf_next(v, &at, &cursor, &element)) {
        if (!sluice__gguf_integer(&element, &one)) return wrong(r, key, "integers");
        if (one && *out && one != *out) return wrong(r, key, "the same number for every layer that has one");
        if (one) *out = one;
    }
    return at ? SLUICE_OK : wrong(r, key, "an integer");
}

static sluice_status copy_integer(const reader *r, const char *key, const char *name, bool required) {
    bool found;
    int64_t value;
    SLUICE__TRY(find_integer(r, key, &found, &value));
    if (found) return set(r, name, json_integer(value));
    return required ? wrong(r, key, "an integer, but the key is missing") : SLUICE_OK;
}

/* A number that was written as F32: the shortest decimal that is the same F32, 1e-06 and not 9.99999997e-07. */
static bool read_real(const sluice__gguf_value *v, double *out) {
    if (!sluice__gguf_real(v, out)) return false;
    for (int digits = 1; v->type == SLUICE__GGUF_F32 && isfinite(*out) && digits < 9; digits++) {
        char text[32];
        snprintf(text, sizeof text, "%.*g", digits, *out);
        if (strtof(text, NULL) != (float)*out) continue;
        *out = strtod(text, NULL);
        break;
    }
    return true;
}

static sluice_status copy_real(const reader *r, const char *key, const char *name, bool required) {
    const sluice__gguf_value *v = value_of(r, key);
    double value;
    if (!v) return required ? wrong(r, key, "a number, but the key is missing") : SLUICE_OK;
    if (!read_real(v, &value)) return wrong(r, key, "a number");
    return set(r, name, json_real(value));
}

static bool has_tensor(const reader *r, const char *name) { return sluice__gguf_find_tensor(r->g, name) != NULL; }

/* ---- rotary embedding ---- */

static sluice_status find_real(const reader *r, const char *key, double fallback, double *out) {
    const sluice__gguf_value *v = value_of(r, key);
    *out = fallback;
    return !v || read_real(v, out) ? SLUICE_OK : wrong(r, key, "a number");
}

/* rope_freqs.weight divides the frequencies, which is longrope with one list for all lengths. */
static sluice_status set_frequency_factors(const reader *r, json_t *rope) {
    const sluice__gguf_tensor *t = sluice__gguf_find_tensor(r->g, "rope_freqs.weight");
    json_t *factors = json_array();
    if (t->dtype != SLUICE__F32 || t->ndim != 1) {
        json_decref(factors);
        return sluice__fail(r->err, SLUICE_ERR_FORMAT, "%s: tensor rope_freqs.weight: expected a vector of F32",
                            sluice__gguf_path(r->g));
    }
    for (int64_t i = 0; i < t->count; i++) {
        float f;
        memcpy(&f, t->data + 4 * i, sizeof f);
        json_array_append_new(factors, json_real((double)f));
    }
    int bad = json_object_set_new(rope, "rope_type", json_string("longrope")) |
              json_object_set(rope, "long_factor", factors) | json_object_set_new(rope, "short_factor", factors) |
              json_object_set_new(rope, "factor", json_real(1)) |
              json_object_set_new(rope, "attention_factor", json_real(1));
    return bad ? sluice__no_memory(r->err, 64, "RoPE factors") : SLUICE_OK;
}

static sluice_status set_scaling(const reader *r, json_t *rope) {
    static const char *const numbers[][2] = {{"rope.scaling.factor", "factor"},
                                             {"rope.scaling.yarn_beta_fast", "beta_fast"},
                                             {"rope.scaling.yarn_beta_slow", "beta_slow"}};
    const sluice__gguf_value *kind = value_of(r, "rope.scaling.type");
    sluice__gguf_text text;
    if (kind && !sluice__gguf_string(kind, &text)) return wrong(r, "rope.scaling.type", "a text");
    if (has_tensor(r, "rope_freqs.weight")) return set_frequency_factors(r, rope);
    if (!kind || (text.size == 4 && !memcmp(text.data, "none", 4))) return SLUICE_OK;
    bool yarn = text.size == 4 && !memcmp(text.data, "yarn", 4);
    if (!yarn && (text.size != 6 || memcmp(text.data, "linear", 6))) return wrong(r, "rope.scaling.type", "none, linear or yarn");
    int bad = json_object_set_new(rope, "rope_type", json_string(yarn ? "yarn" : "linear"));
    for (int i = 0; i < (yarn ? 3 : 1); i++) {
        double value;
        SLUICE__TRY(find_real(r, numbers[i][0], 0, &value));
        if (value != 0) bad |= json_object_set_new(rope, numbers[i][1], json_real(value));
    }
    bool found;
    int64_t original;
    SLUICE__TRY(find_integer(r, "rope.scaling.original_context_length", &found, &original));
    if (yarn && found) bad |= json_object_set_new(rope, "original_max_position_embeddings", json_integer(original));
    return bad ? sluice__no_memory(r->err, 64, "RoPE parameters") : SLUICE_OK;
}

static sluice_status set_rope(const reader *r, int64_t head_dim) {
    double theta;
    bool found;
    int64_t rotary = head_dim;
    SLUICE__TRY(find_real(r, "rope.freq_base", 10000, &theta));
    SLUICE__TRY(find_integer(r, "rope.dimension_count", &found, &rotary));
    if (rotary < 0 || rotary > head_dim) return wrong(r, "rope.dimension_count", "at most the size of a head");
    json_t *rope = json_pack("{s:s, s:f, s:f}", "rope_type", "default", "rope_theta", theta, "partial_rotary_factor",
                             head_dim ? (double)rotary / (double)head_dim : 1.0);
    if (!rope) return sluice__no_memory(r->err, 64, "RoPE parameters");
    sluice_status st = set_scaling(r, rope);
    if (st == SLUICE_OK) st = set(r, "rope_parameters", json_incref(rope));
    json_decref(rope);
    return st;
}

/* ---- what all architectures have ---- */

static sluice_status set_heads(const reader *r) {
    bool found, has_value;
    int64_t heads = 0, width = 0, head_dim, value_dim;
    SLUICE__TRY(copy_integer(r, "attention.head_count", "num_attention_heads", true));
    SLUICE__TRY(copy_integer(r, "attention.head_count_kv", "num_key_value_heads", false));
    SLUICE__TRY(find_integer(r, "attention.head_count", &found, &heads));
    SLUICE__TRY(find_integer(r, "embedding_length", &found, &width));
    if (!json_object_get(r->out, "num_key_value_heads"))
        SLUICE__TRY(set(r, "num_key_value_heads", json_integer(heads)));
    SLUICE__TRY(find_integer(r, "attention.key_length", &found, &head_dim));
    SLUICE__TRY(find_integer(r, "attention.value_length", &has_value, &value_dim));
    if (!found) {
        if (heads < 1 || width % heads) return wrong(r, "embedding_length", "a multiple of attention.head_count, or a key_length");
        head_dim = width / heads;
    }
    if (has_value && value_dim != head_dim) return wrong(r, "attention.value_length", "the same as attention.key_length");
    SLUICE__TRY(set(r, "head_dim", json_integer(head_dim)));
    return set_rope(r, head_dim);
}

static sluice_status set_layers(const reader *r) {
    bool found, extra;
    int64_t blocks, predicted;
    SLUICE__TRY(find_integer(r, "block_count", &found, &blocks));
    SLUICE__TRY(find_integer(r, "nextn_predict_layers", &extra, &predicted));
    if (!found) return wrong(r, "block_count", "an integer, but the key is missing");
    int neutral;
    SLUICE__TRY(sluice__gguf_find_neutral(&neutral, r->g, r->err));
    if (neutral >= 0) return set(r, "num_hidden_layers", json_integer(neutral));
    if (extra && predicted > 0 && predicted < blocks) {
        char name[64]; /* files announce layers for multi-token prediction that they do not have */
        snprintf(name, sizeof name, "blk.%lld.nextn.eh_proj.weight", (long long)(blocks - predicted));
        if (has_tensor(r, name)) blocks -= predicted;
    }
    return set(r, "num_hidden_layers", json_integer(blocks));
}

/* Rows of the embedding count, whatever the metadata says. */
static sluice_status set_vocabulary(const reader *r) {
    static const char *const ids[][2] = {{"tokenizer.ggml.bos_token_id", "bos_token_id"},
                                         {"tokenizer.ggml.eos_token_id", "eos_token_id"},
                                         {"tokenizer.ggml.padding_token_id", "pad_token_id"}};
    const sluice__gguf_tensor *t = sluice__gguf_find_tensor(r->g, "token_embd.weight");
    if (!t || t->ndim != 2)
        return sluice__fail(r->err, SLUICE_ERR_FORMAT, "%s: tensor token_embd.weight is missing or no matrix",
                            sluice__gguf_path(r->g));
    SLUICE__TRY(set(r, "vocab_size", json_integer(t->shape[0])));
    for (int i = 0; i < 3; i++) {
        int64_t id;
        bool good = sluice__gguf_integer(sluice__gguf_find(r->g, ids[i][0]), &id) && id >= 0 && id < t->shape[0];
        SLUICE__TRY(set(r, ids[i][1], good ? json_integer(id) : json_null()));
    }
    return set(r, "tie_word_embeddings", json_boolean(!has_tensor(r, "output.weight")));
}

static sluice_status set_common(const reader *r) {
    SLUICE__TRY(copy_integer(r, "embedding_length", "hidden_size", true));
    SLUICE__TRY(copy_integer(r, "feed_forward_length", "intermediate_size", false));
    SLUICE__TRY(copy_integer(r, "context_length", "max_position_embeddings", false));
    SLUICE__TRY(copy_real(r, "attention.layer_norm_rms_epsilon", "rms_norm_eps", true));
    SLUICE__TRY(set_layers(r));
    SLUICE__TRY(set_vocabulary(r));
    return set_heads(r);
}

/* ---- architectures ---- */

static sluice_status set_experts(const reader *r, bool normalised) {
    SLUICE__TRY(copy_integer(r, "expert_count", "num_experts", true));
    SLUICE__TRY(copy_integer(r, "expert_used_count", "num_experts_per_tok", true));
    SLUICE__TRY(copy_integer(r, "expert_feed_forward_length", "moe_intermediate_size", true));
    SLUICE__TRY(copy_integer(r, "expert_shared_feed_forward_length", "shared_expert_intermediate_size", false));
    return set(r, "norm_topk_prob", json_boolean(normalised));
}

/* Biases of all four projections, or of none. */
static sluice_status set_bias(const reader *r) {
    return set(r, "attention_bias", json_boolean(has_tensor(r, "blk.0.attn_q.bias")));
}

static sluice_status read_llama(const reader *r) {
    bool found;
    int64_t experts;
    SLUICE__TRY(find_integer(r, "expert_count", &found, &experts));
    if (found && experts > 0) return wrong(r, "expert_count", "0 (Mixtral is not supported)");
    return set_bias(r);
}

static sluice_status no_window(const reader *r) { return set(r, "use_sliding_window", json_false()); }

static sluice_status read_qwen2(const reader *r) { return no_window(r); }

static sluice_status read_qwen3(const reader *r) {
    SLUICE__TRY(no_window(r));
    return set_bias(r);
}

static sluice_status read_qwen2_moe(const reader *r) {
    SLUICE__TRY(no_window(r));
    return set_experts(r, false);
}

static sluice_status read_qwen3_moe(const reader *r) {
    SLUICE__TRY(read_qwen3(r));
    return set_experts(r, true);
}

/* From attention.recurrent_layers, or every full_attention_interval-th layer is attention. */
static sluice_status set_layer_types(const reader *r) {
    int64_t layers = json_integer_value(json_object_get(r->out, "num_hidden_layers")), interval = 4;
    const sluice__gguf_value *list = value_of(r, "attention.recurrent_layers");
    bool found;
    SLUICE__TRY(find_integer(r, "full_attention_interval", &found, &interval));
    if (interval < 1) return wrong(r, "full_attention_interval", "at least 1");
    if (layers < 0 || layers > 100000) return wrong(r, "block_count", "a number of layers");
    json_t *types = json_array();
    sluice__gguf_value element;
    uint64_t at = 0;
    const unsigned char *cursor = NULL;
    for (int64_t i = 0; i < layers; i++) {
        bool linear = (i + 1) % interval != 0;
        int64_t number;
        if (list && (!sluice__gguf_next(list, &at, &cursor, &element) ||
                     (!sluice__gguf_bool(&element, &linear) && !sluice__gguf_integer(&element, &number)))) {
            json_decref(types);
            return wrong(r, "attention.recurrent_layers", "a list of true and false for all layers");
        }
        if (list && element.type != SLUICE__GGUF_BOOL) linear = number != 0;
        json_array_append_new(types, json_string(linear ? "linear_attention" : "full_attention"));
    }
    return set(r, "layer_types", types);
}

static sluice_status set_linear_attention(const reader *r) {
    bool found;
    int64_t inner = 0, heads = 0;
    if (sluice__gguf_find(r->g, SLUICE__GGUF_NEUTRAL_KEY)) return set_layer_types(r); /* nothing else is linear */
    SLUICE__TRY(copy_integer(r, "ssm.conv_kernel", "linear_conv_kernel_dim", true));
    SLUICE__TRY(copy_integer(r, "ssm.state_size", "linear_key_head_dim", true));
    SLUICE__TRY(copy_integer(r, "ssm.group_count", "linear_num_key_heads", true));
    SLUICE__TRY(copy_integer(r, "ssm.time_step_rank", "linear_num_value_heads", true));
    SLUICE__TRY(find_integer(r, "ssm.inner_size", &found, &inner));
    SLUICE__TRY(find_integer(r, "ssm.time_step_rank", &found, &heads));
    if (heads < 1 || inner % heads) return wrong(r, "ssm.inner_size", "a multiple of ssm.time_step_rank");
    SLUICE__TRY(set(r, "linear_value_head_dim", json_integer(inner / heads)));
    return set_layer_types(r);
}

/* A headwise gate that we wrote, by our own keys of a configuration. */
static sluice_status set_granularity(const reader *r) {
    const sluice__gguf_value *v = sluice__gguf_find(r->g, SLUICE__GGUF_GRANULARITY_KEY);
    sluice__gguf_text word;
    if (!v) return SLUICE_OK;
    if (!sluice__gguf_string(v, &word) || word.size != strlen("headwise") || memcmp(word.data, "headwise", word.size))
        return sluice__fail(r->err, SLUICE_ERR_CONFIG, "%s: " SLUICE__GGUF_GRANULARITY_KEY ": expected headwise",
                            sluice__gguf_path(r->g));
    SLUICE__TRY(set(r, "gate_position", json_string("sdpa")));
    return set(r, "gate_granularity", json_string("headwise"));
}

static sluice_status read_qwen35(const reader *r) {
    SLUICE__TRY(set_granularity(r));
    return set_linear_attention(r);
}

static sluice_status read_hybrid_moe(const reader *r) {
    SLUICE__TRY(read_qwen35(r));
    return set_experts(r, true);
}

/* Every second layer has the window; YaRN as the released models have it, where the file says yarn. */
static sluice_status read_gpt_oss(const reader *r) {
    SLUICE__TRY(copy_integer(r, "expert_count", "num_local_experts", true));
    SLUICE__TRY(copy_integer(r, "expert_used_count", "num_experts_per_tok", true));
    SLUICE__TRY(copy_integer(r, "expert_feed_forward_length", "intermediate_size", true));
    SLUICE__TRY(copy_integer(r, "attention.sliding_window", "sliding_window", true));
    json_t *rope = json_object_get(r->out, "rope_parameters");
    if (json_object_get(rope, "factor")) json_object_set_new(rope, "truncate", json_false());
    return set(r, "attention_bias", json_boolean(has_tensor(r, "blk.0.attn_q.bias")));
}

static const architecture architectures[] = {
    {"llama", "llama", read_llama},
    {"qwen2", "qwen2", read_qwen2},
    {"qwen3", "qwen3", read_qwen3},
    {"qwen2moe", "qwen2_moe", read_qwen2_moe},
    {"qwen3moe", "qwen3_moe", read_qwen3_moe},
    {"qwen3next", "qwen3_next", read_hybrid_moe},
    {"qwen35", "qwen3_5_text", read_qwen35},
    {"qwen35moe", "qwen3_5_moe_text", read_hybrid_moe},
    {"gpt-oss", "gpt_oss", read_gpt_oss},
};
enum { ARCHITECTURES = sizeof architectures / sizeof *architectures };

const char *sluice__gguf_architecture(const char *model_type) {
    if (!strcmp(model_type, "qwen3_5")) model_type = "qwen3_5_text"; /* the language model inside the vision wrapper */
    if (!strcmp(model_type, "qwen3_5_moe")) model_type = "qwen3_5_moe_text";
    for (int i = 0; i < ARCHITECTURES; i++)
        if (!strcmp(architectures[i].model_type, model_type)) return architectures[i].name;
    return NULL;
}

static sluice_status find_architecture(const sluice__gguf *g, const architecture **out, sluice_error *err) {
    const sluice__gguf_value *v = sluice__gguf_find(g, "general.architecture");
    sluice__gguf_text name;
    if (!sluice__gguf_string(v, &name))
        return sluice__fail(err, SLUICE_ERR_CONFIG, "%s: general.architecture: %s", sluice__gguf_path(g),
                            v ? "expected a text" : "missing");
    for (int i = 0; i < ARCHITECTURES; i++) {
        if (strlen(architectures[i].name) != name.size || memcmp(architectures[i].name, name.data, name.size)) continue;
        *out = &architectures[i];
        return SLUICE_OK;
    }
    char known[200] = "";
    for (int i = 0, n = 0; i < ARCHITECTURES; i++)
        n += snprintf(known + n, sizeof known - (size_t)n, "%s%s", i ? ", " : "", architectures[i].name);
    return sluice__fail(err, SLUICE_ERR_UNSUPPORTED, "%s: general.architecture: \"%.*s\" is not supported; known are %s",
                        sluice__gguf_path(g), (int)(name.size < 60 ? name.size : 60), name.data, known);
}

sluice_status sluice__gguf_config_json(json_t **out, const sluice__gguf *g, sluice_error *err) {
    const architecture *a = NULL;
    *out = NULL;
    SLUICE__TRY(find_architecture(g, &a, err));
    json_t *root = json_pack("{s:s}", "model_type", a->model_type);
    if (!root) return sluice__no_memory(err, 64, "the configuration");
    const reader r = {.g = g, .arch = a->name, .out = root, .err = err};
    sluice_status st = set_common(&r);
    if (st == SLUICE_OK) st = a->read(&r);
    if (st == SLUICE_OK) *out = root;
    else json_decref(root);
    return st;
}

sluice_status sluice__gguf_config(sluice_config *out, sluice__file_layout *layout, const sluice__gguf *g,
                                  sluice_error *err) {
    json_t *root;
    *out = (sluice_config){0};
    SLUICE__TRY(sluice__gguf_config_json(&root, g, err));
    sluice__json view = sluice__json_view(root, sluice__gguf_path(g));
    sluice_status st = sluice__config_read(out, layout, &view, err);
    json_decref(root);
    if (st != SLUICE_OK) return st;
    out->norm = SLUICE_NORM_PLAIN; /* files hold w, whatever the family's own files hold */
    layout->family = &sluice__gguf_names;
    layout->prefix = "";
    return SLUICE_OK;
}

sluice_status sluice__gguf_config_file(sluice_config *out, const char *path, sluice_error *err) {
    sluice__gguf *g;
    sluice__file_layout layout;
    *out = (sluice_config){0};
    SLUICE__TRY(sluice__gguf_open(&g, path, err));
    sluice_status st = sluice__gguf_config(out, &layout, g, err);
    sluice__gguf_close(g);
    return st;
}

bool sluice__is_gguf(const char *path) {
    char magic[4];
    FILE *f = sluice__is_file(path) ? fopen(path, "rbe") : NULL; /* a pipe would wait for who writes to it */
    size_t n = f ? fread(magic, 1, sizeof magic, f) : 0;
    if (f) fclose(f);
    size_t length = strlen(path);
    bool named = length > 5 && !strcasecmp(path + length - 5, ".gguf");
    return (n == sizeof magic && !memcmp(magic, "GGUF", 4)) || (f && named);
}
