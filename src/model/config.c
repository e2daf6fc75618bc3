/* SPDX-License-Identifier: Apache-2.0 */
/* Reading config.json. The common keys are read here with the family's defaults; the family's own `read` adds
 * what is particular to it. Every count has a limit, so that no later product can overflow 64 bits: the largest
 * model these limits allow has fewer than 2^60 parameters. */
#include "model/config.h"
#include "base/file.h"
#include "base/memory.h"
#include "model/family.h"
#include "model/gguf_model.h"
#include <math.h>
#include <string.h>

enum {
    MAX_VOCAB = 1 << 24,
    MAX_WIDTH = 1 << 20,
    MAX_LAYERS = 1 << 12,
    MAX_HEADS = 1 << 12,
    MAX_HEAD_DIM = 1 << 12,
    MAX_DELTA_DIM = 1 << 10, /* of keys and values of linear attention */
    MAX_TAPS = 64,
    MAX_POSITIONS = 1 << 30,
    MAX_EXPERTS = 1 << 12,
    MAX_CONFIG = 4 << 20 /* bytes of a config.json */
};

/* ---- readers shared by families ---- */

static sluice_status read_count(const sluice__json *json, const char *key, int fallback, int max, int *out,
                                sluice_error *err) {
    int64_t value = fallback;
    SLUICE__TRY(sluice__json_int(json, key, fallback == 0, 1, max, &value, err));
    *out = (int)value;
    return SLUICE_OK;
}

sluice_status sluice__read_flag(const sluice__config_reader *r, const char *key, bool fallback, bool *out,
                                sluice_error *err) {
    *out = fallback;
    return sluice__json_bool(&r->json, key, false, out, err);
}

sluice_status sluice__read_attention_bias(sluice__config_reader *r, sluice_error *err) {
    bool bias;
    SLUICE__TRY(sluice__read_flag(r, "attention_bias", false, &bias, err));
    for (int i = 0; i < r->config->num_hidden_layers; i++)
        r->config->layers[i].qkv_bias = r->config->layers[i].o_bias = bias;
    return SLUICE_OK;
}

void sluice__set_qk_norm(sluice__config_reader *r, bool on) {
    for (int i = 0; i < r->config->num_hidden_layers; i++) r->config->layers[i].qk_norm = on;
}

sluice_status sluice__read_delta(const sluice__config_reader *r, const sluice_delta_spec *defaults,
                                 sluice_delta_spec *out, sluice_error *err) {
    *out = *defaults;
    const sluice__json *json = &r->json;
    SLUICE__TRY(read_count(json, "linear_num_key_heads", defaults->num_key_heads, MAX_HEADS, &out->num_key_heads, err));
    SLUICE__TRY(
        read_count(json, "linear_num_value_heads", defaults->num_value_heads, MAX_HEADS, &out->num_value_heads, err));
    SLUICE__TRY(
        read_count(json, "linear_key_head_dim", defaults->key_head_dim, MAX_DELTA_DIM, &out->key_head_dim, err));
    SLUICE__TRY(
        read_count(json, "linear_value_head_dim", defaults->value_head_dim, MAX_DELTA_DIM, &out->value_head_dim, err));
    SLUICE__TRY(
        read_count(json, "linear_conv_kernel_dim", defaults->conv_kernel, MAX_TAPS, &out->conv_kernel, err));
    if (out->num_value_heads % out->num_key_heads)
        return sluice__json_fail(json, "linear_num_value_heads", err,
                                 "found %d, expected a multiple of linear_num_key_heads (%d)", out->num_value_heads,
                                 out->num_key_heads);
    return SLUICE_OK;
}

void sluice__set_gate(sluice__config_reader *r, const sluice_gate_spec *gate) {
    for (int i = 0; i < r->config->num_hidden_layers; i++)
        if (!sluice_layer_is_linear(&r->config->layers[i])) r->config->layers[i].gate = *gate;
}

/* ---- the common part ---- */

static sluice_status read_sizes(sluice__config_reader *r, sluice_error *err) {
    sluice_config *c = r->config;
    const sluice__family_defaults *d = &r->family->defaults;
    SLUICE__TRY(read_count(&r->json, "vocab_size", d->vocab_size, MAX_VOCAB, &c->vocab_size, err));
    SLUICE__TRY(read_count(&r->json, "hidden_size", d->hidden_size, MAX_WIDTH, &c->hidden_size, err));
    SLUICE__TRY(read_count(&r->json, "num_hidden_layers", d->num_hidden_layers, MAX_LAYERS,
                           &c->num_hidden_layers, err));
    SLUICE__TRY(read_count(&r->json, "max_position_embeddings", d->max_position_embeddings, MAX_POSITIONS,
                           &c->max_position_embeddings, err));
    c->rms_norm_eps = d->rms_norm_eps > 0 ? d->rms_norm_eps : 1e-6;
    c->initializer_range = 0.02;
    SLUICE__TRY(sluice__json_real(&r->json, "rms_norm_eps", false, 0, 1, &c->rms_norm_eps, err));
    return sluice__json_real(&r->json, "initializer_range", false, 0, 1e3, &c->initializer_range, err);
}

/* A token id may be a number, null, or for the end of text a list, of which the first is kept. -1 = none. */
static sluice_status read_token(const sluice__config_reader *r, const char *key, int fallback, int *out,
                                sluice_error *err) {
    *out = fallback;
    sluice__json v = sluice__json_get(&r->json, key);
    if (!v.value) {
        /* an explicit null means none, whatever the family's default */
        if (json_object_get(r->json.value, key)) *out = -1;
        return SLUICE_OK;
    }
    if (json_is_array(v.value)) {
        if (json_array_size(v.value) == 0) return *out = -1, SLUICE_OK;
        v = sluice__json_at(&v, 0);
    }
    if (!json_is_integer(v.value) || json_integer_value(v.value) < -1 ||
        json_integer_value(v.value) >= MAX_VOCAB)
        return sluice__json_fail(&r->json, key, err, "found no token id, expected one in 0..%d or null",
                                 MAX_VOCAB - 1);
    *out = (int)json_integer_value(v.value);
    return SLUICE_OK;
}

/* What follows the first id of a list. */
static sluice_status read_other_eos(const sluice__config_reader *r, sluice_config *c, sluice_error *err) {
    sluice__json list = sluice__json_get(&r->json, "eos_token_id");
    size_t n = json_is_array(list.value) ? json_array_size(list.value) : 0;
    if (n > SLUICE_MAX_EOS)
        return sluice__json_fail(&list, NULL, err, "found %zu ids, expected at most %d", n, SLUICE_MAX_EOS);
    for (size_t i = 1; i < n; i++) {
        json_t *id = json_array_get(list.value, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= MAX_VOCAB)
            return sluice__json_fail(&list, NULL, err, "element %zu: found no token id, expected one in 0..%d", i,
                                     MAX_VOCAB - 1);
        c->other_eos[c->num_other_eos++] = (int)json_integer_value(id);
    }
    return SLUICE_OK;
}

static sluice_status refuse_quantised(const sluice__config_reader *r, sluice_error *err) {
    sluice__json q = sluice__json_get(&r->json, "quantization_config");
    if (!q.value) q = sluice__json_get(&r->root, "quantization_config");
    if (!q.value) return SLUICE_OK;
    const char *method = json_string_value(json_object_get(q.value, "quant_method"));
    return sluice__fail(err, SLUICE_ERR_UNSUPPORTED,
                        "%s: %s: quantised weights%s%.40s%s are not supported by this version", q.file, q.path,
                        method ? " (" : "", method ? method : "", method ? ")" : "");
}

static sluice_status read_top(sluice__config_reader *r, sluice_error *err) {
    sluice_config *c = r->config;
    const sluice__family_defaults *d = &r->family->defaults;
    const char *type = "sluice";
    SLUICE__TRY(refuse_quantised(r, err));
    SLUICE__TRY(sluice__json_string(&r->json, "model_type", false, &type, err));
    snprintf(c->model_type, sizeof c->model_type, "%s", type);
    SLUICE__TRY(read_sizes(r, err));
    c->tie_word_embeddings = d->tie_word_embeddings;
    SLUICE__TRY(sluice__json_bool(&r->json, "tie_word_embeddings", false, &c->tie_word_embeddings, err));
    if (r->family->nested)
        SLUICE__TRY(sluice__json_bool(&r->root, "tie_word_embeddings", false, &c->tie_word_embeddings, err));
    SLUICE__TRY(read_token(r, "bos_token_id", d->bos_token_id, &c->bos_token_id, err));
    SLUICE__TRY(read_token(r, "eos_token_id", d->eos_token_id, &c->eos_token_id, err));
    SLUICE__TRY(read_other_eos(r, c, err));
    SLUICE__TRY(read_token(r, "pad_token_id", -1, &c->pad_token_id, err));
    c->norm = r->family->norm;
    c->gate_packing = r->family->gate_packing;
    snprintf(c->family, sizeof c->family, "%s", r->family->name);
    return SLUICE_OK;
}

/* Sizes that all layers share. */
static sluice_status read_layer(const sluice__config_reader *r, sluice_layer_spec *l, sluice_error *err) {
    const sluice_config *c = r->config;
    const sluice__family_defaults *d = &r->family->defaults;
    SLUICE__TRY(read_count(&r->json, "num_attention_heads", d->num_attention_heads, MAX_HEADS,
                           &l->num_attention_heads, err));
    /* In transformers' classes an explicit null means as many as query heads, whatever the default. */
    bool null = !d->num_attention_heads && json_is_null(json_object_get(r->json.value, "num_key_value_heads"));
    int kv = d->num_key_value_heads && !null ? d->num_key_value_heads : l->num_attention_heads;
    SLUICE__TRY(read_count(&r->json, "num_key_value_heads", kv, MAX_HEADS, &l->num_key_value_heads, err));
    if (l->num_attention_heads % l->num_key_value_heads)
        return sluice__json_fail(&r->json, "num_key_value_heads", err,
                                 "found %d, expected a divisor of num_attention_heads (%d)",
                                 l->num_key_value_heads, l->num_attention_heads);
    int head_dim = d->head_dim;
    if (!head_dim && !sluice__json_has(&r->json, "head_dim")) {
        if (c->hidden_size % l->num_attention_heads)
            return sluice__json_fail(&r->json, "hidden_size", err,
                                     "found %d, expected a multiple of num_attention_heads (%d), or a head_dim",
                                     c->hidden_size, l->num_attention_heads);
        head_dim = c->hidden_size / l->num_attention_heads;
    }
    SLUICE__TRY(read_count(&r->json, "head_dim", head_dim, MAX_HEAD_DIM, &l->head_dim, err));
    if (l->head_dim % 2)
        return sluice__json_fail(&r->json, "head_dim", err, "found %d, expected an even number", l->head_dim);
    SLUICE__TRY(
        read_count(&r->json, "intermediate_size", d->intermediate_size, MAX_WIDTH, &l->intermediate_size, err));
    l->attention_scale = (float)(1.0 / sqrt(l->head_dim));
    return sluice__read_act(r, &l->mlp_act, err);
}

/* ---- layer kinds ---- */

typedef enum layer_kind { KIND_FULL, KIND_SLIDING, KIND_LINEAR, KIND_OTHER } layer_kind;

static layer_kind kind_of(const char *name) {
    if (!strcmp(name, "linear_attention") || !strcmp(name, "mamba")) return KIND_LINEAR;
    if (!strcmp(name, "full_attention") || !strcmp(name, "attention")) return KIND_FULL;
    return strcmp(name, "sliding_attention") ? KIND_OTHER : KIND_SLIDING;
}

/* Kinds that transformers knows and this version cannot compute. */
static const char *const unsupported_kinds[] = {"chunked_attention",
                                                "compressed_sparse_attention",
                                                "heavily_compressed_attention",
                                                "indexed_attention",
                                                "deepseek_sparse_attention",
                                                "qwen_sparse_attention",
                                                "conv",
                                                "hybrid",
                                                NULL};

static bool is_known_elsewhere(const char *name) {
    int k = 0;
    while (unsupported_kinds[k] && strcmp(unsupported_kinds[k], name)) k++;
    return unsupported_kinds[k] != NULL;
}

/* Every entry must be a known name; of those, the first that cannot be computed is refused. */
static sluice_status check_kinds(const sluice__config_reader *r, const sluice__json *list, sluice_error *err) {
    const char *refused = NULL;
    size_t at = 0;
    for (size_t i = 0; i < json_array_size(list->value); i++) {
        const char *name = json_string_value(json_array_get(list->value, i));
        if (!name) return sluice__json_fail(list, NULL, err, "entry %zu is not a string", i);
        layer_kind kind = kind_of(name);
        if (kind != KIND_OTHER && (kind != KIND_LINEAR || r->family->read_delta)) continue;
        if (kind == KIND_OTHER && !is_known_elsewhere(name))
            return sluice__json_fail(
                list, NULL, err,
                "layer %zu: found \"%.40s\", expected full_attention, sliding_attention or linear_attention", i, name);
        if (!refused) at = i;
        if (!refused) refused = name;
    }
    if (!refused) return SLUICE_OK;
    return sluice__fail(err, SLUICE_ERR_UNSUPPORTED,
                        "%s: %s: layer %zu is %s, which is not supported by this version for model_type %s",
                        list->file, list->path, at, refused, r->config->model_type);
}

static sluice_status read_window(const sluice__config_reader *r, int *window, sluice_error *err) {
    int64_t value = r->family->defaults.sliding_window;
    if (!value && r->family->sliding) value = 4096;
    if (json_is_null(json_object_get(r->json.value, "sliding_window"))) value = 0;
    SLUICE__TRY(sluice__json_int(&r->json, "sliding_window", false, 0, MAX_POSITIONS, &value, err));
    bool use = true;
    if (r->family->sliding) SLUICE__TRY(sluice__read_flag(r, "use_sliding_window", false, &use, err));
    *window = use ? (int)value : 0;
    return SLUICE_OK;
}

static sluice_status kinds_from_list(const sluice__config_reader *r, const sluice__json *list, int window,
                                     const sluice_delta_spec *delta, sluice_error *err) {
    sluice_config *c = r->config;
    if (!json_is_array(list->value) || json_array_size(list->value) != (size_t)c->num_hidden_layers)
        return sluice__json_fail(&r->json, "layer_types", err,
                                 "found %zu entries, expected one for each of %d layers",
                                 json_array_size(list->value), c->num_hidden_layers);
    SLUICE__TRY(check_kinds(r, list, err));
    for (int i = 0; i < c->num_hidden_layers; i++) {
        layer_kind kind = kind_of(json_string_value(json_array_get(list->value, (size_t)i)));
        bool sliding = kind == KIND_SLIDING;
        if (kind == KIND_LINEAR) c->layers[i].delta = *delta;
        if (sliding && !window)
            return sluice__json_fail(list, NULL, err,
                                     "layer %d is sliding_attention, but sliding_window is absent or off", i);
        c->layers[i].sliding_window = sliding ? window : 0;
    }
    return SLUICE_OK;
}

/* A family's own rule; that layers slide without a window is a contradiction. */
static sluice_status kinds_of_family(sluice__config_reader *r, int window, sluice_error *err) {
    SLUICE__TRY(r->family->kinds(r, window ? window : 1, err));
    for (int i = 0; i < r->config->num_hidden_layers && !window; i++)
        if (r->config->layers[i].sliding_window)
            return sluice__json_fail(&r->json, "sliding_window", err,
                                     "absent or 0, but layer %d of this model_type is sliding_attention", i);
    return SLUICE_OK;
}

/* Without layer_types: the family's rule. */
static sluice_status kinds_by_rule(sluice__config_reader *r, int window, const sluice_delta_spec *delta,
                                   sluice_error *err) {
    sluice_config *c = r->config;
    if (r->family->full_attention_interval) {
        int interval;
        SLUICE__TRY(read_count(&r->json, "full_attention_interval", r->family->full_attention_interval,
                               MAX_LAYERS, &interval, err));
        for (int i = 0; i < c->num_hidden_layers; i++)
            if ((i + 1) % interval) c->layers[i].delta = *delta;
    }
    if (r->family->kinds) return kinds_of_family(r, window, err);
    if (!window || !(r->family->sliding || r->family->window_everywhere)) return SLUICE_OK;
    int64_t first = r->family->window_everywhere ? 0 : 28;
    if (!r->family->window_everywhere)
        SLUICE__TRY(sluice__json_int(&r->json, "max_window_layers", false, 0, MAX_LAYERS, &first, err));
    for (int i = 0; i < c->num_hidden_layers; i++) c->layers[i].sliding_window = i >= first ? window : 0;
    return SLUICE_OK;
}

static sluice_status read_kinds(sluice__config_reader *r, sluice_error *err) {
    int window;
    SLUICE__TRY(read_window(r, &window, err));
    sluice__json list = sluice__json_get(&r->json, "layer_types");
    sluice_delta_spec delta = {0};
    if (r->family->read_delta) SLUICE__TRY(r->family->read_delta(r, &delta, err));
    return list.value ? kinds_from_list(r, &list, window, &delta, err) : kinds_by_rule(r, window, &delta, err);
}

/* ---- putting it together ---- */

static sluice_status read_layers(sluice__config_reader *r, sluice_error *err) {
    sluice_config *c = r->config;
    sluice_layer_spec first = {0};
    SLUICE__TRY(read_layer(r, &first, err));
    c->layers = sluice__calloc((size_t)c->num_hidden_layers, sizeof *c->layers, SLUICE__MEM_OTHER);
    if (!c->layers)
        return sluice__no_memory(err, (size_t)c->num_hidden_layers * sizeof *c->layers, "the layers");
    for (int i = 0; i < c->num_hidden_layers; i++) c->layers[i] = first;
    SLUICE__TRY(read_kinds(r, err));
    for (int i = 0; i < c->num_hidden_layers; i++) {
        if (sluice_layer_is_linear(&c->layers[i])) continue;
        const char *kind = c->layers[i].sliding_window ? "sliding_attention" : "full_attention";
        SLUICE__TRY(sluice__rope_read(&c->layers[i].rope, &r->json, kind, c->layers[i].head_dim,
                                      c->max_position_embeddings,
                                      r->family->defaults.rope_theta > 0 ? r->family->defaults.rope_theta : 10000,
                                      r->family->defaults.partial_rotary_factor, err));
    }
    return r->family->read(r, err);
}

sluice_status sluice__config_read(sluice_config *out, sluice__file_layout *layout, const sluice__json *root,
                                  sluice_error *err) {
    *out = (sluice_config){0};
    sluice__file_layout own_layout;
    sluice__config_reader r = {
        .root = *root, .json = *root, .config = out, .layout = layout ? layout : &own_layout};
    if (!json_is_object(root->value)) return sluice__json_fail(root, NULL, err, "expected a JSON object");
    SLUICE__TRY(sluice__family_find(&r.family, root, err));
    if (r.family->nested) {
        r.json = sluice__json_get(root, r.family->nested);
        if (!json_is_object(r.json.value))
            return sluice__json_fail(root, r.family->nested, err, "expected an object");
    }
    *r.layout = (sluice__file_layout){.family = r.family,
                                      .gate_packing = r.family->gate_packing,
                                      .prefix = r.family->prefix ? r.family->prefix : "model."};
    sluice_status st = r.family->prepare ? r.family->prepare(&r, err) : SLUICE_OK;
    if (st == SLUICE_OK) st = read_top(&r, err);
    if (st == SLUICE_OK) st = read_layers(&r, err);
    if (st != SLUICE_OK) sluice_config_free(out);
    return st;
}

sluice_status sluice__config_read_file(sluice_config *out, sluice__file_layout *layout, const char *path,
                                       sluice_error *err) {
    *out = (sluice_config){0};
    json_t *root;
    char *text;
    size_t size;
    SLUICE__TRY(sluice__read_file(&text, &size, path, MAX_CONFIG, err));
    sluice_status parsed = sluice__json_parse(&root, text, size, path, err);
    sluice__free(text);
    if (parsed != SLUICE_OK) return parsed;
    sluice__json view = sluice__json_view(root, path);
    sluice_status st = sluice__config_read(out, layout, &view, err);
    json_decref(root);
    return st;
}

sluice_status sluice_config_load(sluice_config *out, const char *path, sluice_error *err) {
    if (sluice__is_gguf(path)) return sluice__gguf_config_file(out, path, err);
    return sluice__config_read_file(out, NULL, path, err);
}

sluice_status sluice_config_parse(sluice_config *out, const char *json, const char *name, sluice_error *err) {
    *out = (sluice_config){0};
    json_t *root;
    SLUICE__TRY(sluice__json_parse(&root, json, strlen(json), name, err));
    sluice__json view = sluice__json_view(root, name);
    sluice_status st = sluice__config_read(out, NULL, &view, err);
    json_decref(root);
    return st;
}

void sluice_config_free(sluice_config *c) {
    for (int i = 0; c->layers && i < c->num_hidden_layers; i++) sluice__rope_free(&c->layers[i].rope);
    sluice__free(c->layers);
    *c = (sluice_config){0};
}

sluice_status sluice__config_copy(sluice_config *out, const sluice_config *in, sluice_error *err) {
    *out = *in;
    size_t n = (size_t)in->num_hidden_layers;
    out->layers = sluice__calloc(n, sizeof *out->layers, SLUICE__MEM_OTHER);
    if (!out->layers) return sluice__no_memory(err, n * sizeof *out->layers, "the layers");
    sluice_status st = SLUICE_OK;
    for (size_t i = 0; i < n; i++) {
        out->layers[i] = in->layers[i];
        out->layers[i].rope.long_factor = out->layers[i].rope.short_factor = NULL;
    }
    for (size_t i = 0; i < n && st == SLUICE_OK; i++)
        st = sluice__rope_copy(&out->layers[i].rope, &in->layers[i].rope, err);
    if (st != SLUICE_OK) sluice_config_free(out);
    return st;
}

/* Of a layer of linear attention; products of these limits stay far below 2^63. */
static bool delta_fits(const sluice_delta_spec *d) {
    return d->num_value_heads <= MAX_HEADS && d->num_key_heads > 0 && d->num_value_heads % d->num_key_heads == 0 &&
           d->key_head_dim > 0 && d->key_head_dim <= MAX_DELTA_DIM && d->value_head_dim > 0 &&
           d->value_head_dim <= MAX_DELTA_DIM && d->conv_kernel > 0 && d->conv_kernel <= MAX_TAPS;
}

static sluice_status check_layer(const sluice_config *c, int i, sluice_error *err) {
    const sluice_layer_spec *l = &c->layers[i];
    if (sluice_layer_is_linear(l) && !delta_fits(&l->delta))
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "layer %d of the configuration: impossible linear attention", i);
    bool heads = l->num_attention_heads > 0 && l->num_attention_heads <= MAX_HEADS &&
                 l->num_key_value_heads > 0 && l->num_attention_heads % l->num_key_value_heads == 0;
    bool sizes = l->head_dim > 0 && l->head_dim <= MAX_HEAD_DIM && l->intermediate_size > 0 &&
                 l->intermediate_size <= MAX_WIDTH && l->sliding_window >= 0;
    const sluice_moe_spec *m = &l->moe;
    const sluice_switch_spec *w = &l->switch_head;
    bool experts = !m->num_experts || (m->num_experts > 0 && m->num_experts <= MAX_EXPERTS && m->num_experts_per_tok > 0 &&
                                       m->num_experts_per_tok <= m->num_experts && m->intermediate_size > 0 &&
                                       m->num_shared_experts >= 0 && m->shared_intermediate_size >= 0);
    bool maps =
        w->head == SLUICE_SWITCH_NONE || (w->experts > 0 && w->topk > 0 && w->topk <= w->experts && !l->qkv_bias);
    const sluice_rope_spec *r = &l->rope;
    bool rope = !r->enabled ||
                (r->rotary_dim > 0 && r->rotary_dim <= l->head_dim && r->rotary_dim % 2 == 0 && r->theta > 1);
    if (heads && sizes && experts && maps && rope) return SLUICE_OK;
    return sluice__fail(err, SLUICE_ERR_ARGUMENT, "layer %d of the configuration: impossible %s", i,
                        !heads   ? "head counts"
                        : !sizes ? "sizes"
                        : !experts ? "experts"
                        : !maps  ? "switch head"
                                 : "RoPE");
}

sluice_status sluice__config_check(const sluice_config *c, sluice_error *err) {
    if (c->vocab_size < 1 || c->vocab_size > MAX_VOCAB || c->hidden_size < 1 || c->hidden_size > MAX_WIDTH ||
        c->num_hidden_layers < 1 || c->num_hidden_layers > MAX_LAYERS || !c->layers)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "the configuration has impossible sizes or no layers");
    for (int i = 0; i < c->num_hidden_layers; i++) SLUICE__TRY(check_layer(c, i, err));
    return SLUICE_OK;
}

sluice_status sluice__config_override_rope(sluice_config *config, const char *json, sluice_error *err) {
    json_t *parameters;
    SLUICE__TRY(sluice__json_parse(&parameters, json, strlen(json), "RoPE override", err));
    json_t *root = json_pack("{s:o}", "rope_parameters", parameters);
    if (!root) return sluice__no_memory(err, strlen(json), "the RoPE override");
    sluice__json view = sluice__json_view(root, "RoPE override");
    sluice_status st = SLUICE_OK;
    for (int i = 0; i < config->num_hidden_layers && st == SLUICE_OK; i++) {
        sluice_layer_spec *l = &config->layers[i];
        if (!l->rope.enabled) continue;
        sluice_rope_spec fresh;
        st = sluice__rope_read(&fresh, &view, l->sliding_window ? "sliding_attention" : "full_attention",
                               l->head_dim, config->max_position_embeddings, l->rope.theta,
                               (double)l->rope.rotary_dim / l->head_dim, err);
        if (st != SLUICE_OK) break;
        sluice__rope_free(&l->rope);
        l->rope = fresh;
    }
    json_decref(root);
    return st;
}
