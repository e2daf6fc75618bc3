/* SPDX-License-Identifier: Apache-2.0 */
/* From model options to a configuration: the flat JSON object of our own config.json is completed with defaults and
 * handed to the one reader of configurations. */
#include "base/file.h"
#include "base/memory.h"
#include "model/save.h"
#include "sluice/tokenizer.h"
#include "train/options.h"
#include <math.h>
#include <string.h>

static void set_default(json_t *o, const char *key, json_t *value) {
    if (json_object_get(o, key)) json_decref(value);
    else json_object_set_new(o, key, value);
}

/* Positive integer at key, or 0: what does not fit is left to the configuration reader, which says so. */
static int64_t positive(const json_t *o, const char *key) {
    int64_t v = json_integer_value(json_object_get(o, key));
    return v > 0 && v <= INT32_MAX ? v : 0;
}

static void complete(json_t *o, const sluice_train_params *p) {
    for (int i = 0; i < sluice_model_num_options(); i++)
        if (*sluice_model_option_default(i))
            set_default(o, sluice_model_option(i).name, sluice__model_option_default_json(i));
    int64_t hidden = positive(o, "hidden_size"), heads = positive(o, "num_attention_heads");
    if (hidden) set_default(o, "intermediate_size", json_integer((hidden * 8 + 95) / 96 * 32));
    if (heads) set_default(o, "num_key_value_heads", json_integer(heads));
    if (heads && hidden) set_default(o, "head_dim", json_integer(hidden / heads > 0 ? hidden / heads : 1));
    set_default(o, "max_position_embeddings", json_integer(p->seq_len));
}

static void set_token(json_t *o, const char *key, int32_t id) {
    if (id >= 0) set_default(o, key, json_integer(id));
}

sluice_status sluice_train_add_token_ids(char **model_options, const sluice_tokenizer *t, sluice_error *err) {
    json_t *o;
    SLUICE__TRY(sluice__model_options_object(&o, *model_options, err));
    set_token(o, "bos_token_id", sluice_tokenizer_bos_id(t));
    set_token(o, "eos_token_id", sluice_tokenizer_eos_id(t));
    set_token(o, "pad_token_id", sluice_tokenizer_pad_id(t));
    sluice_status st = sluice__model_options_text(model_options, o, err);
    json_decref(o);
    return st;
}

static sluice_status load_base(json_t **base, const char *name, sluice_error *err) {
    char *inside = sluice__is_dir(name) ? sluice__path_join(name, "config.json") : sluice__strdup(name);
    if (!inside) return sluice__no_memory(err, strlen(name), "a path");
    sluice_status st = sluice__json_load(base, inside, err);
    if (st == SLUICE_OK && !json_is_object(*base)) {
        json_decref(*base);
        st = sluice__fail(err, SLUICE_ERR_CONFIG, "%s: expected a JSON object", inside);
    }
    sluice__free(inside);
    return st;
}

/* RoPE is written inside rope_parameters. */
static void flatten_rope(json_t *is, const sluice_config *config) {
    const sluice_layer_spec *l = &config->layers[0];
    if (!l->rope.enabled) return;
    json_object_set_new(is, "rope_theta", json_real(l->rope.theta));
    json_object_set_new(is, "partial_rotary_factor", json_real((double)l->rope.rotary_dim / l->head_dim));
}

/* Reals may have been rounded to float, and a share of a head to whole components. */
static bool same_value(const sluice_option *o, const json_t *want, const json_t *have) {
    if (o->kind != SLUICE_OPTION_REAL || !json_is_number(want) || !json_is_number(have)) return json_equal(want, have);
    double a = json_number_value(want), b = json_number_value(have);
    bool share = !strcmp(o->name, "partial_rotary_factor");
    return share ? fabs(a - b) < 0.1 : fabs(a - b) <= 1e-6 * fabs(a);
}

/* Options that say how experts are. */
static bool is_of_experts(const char *key) {
    static const char *const keys[] = {"num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob", "num_shared_experts",
                                       "shared_expert_gate"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!strcmp(keys[i], key)) return true;
    return false;
}

static sluice_status not_followed(const char *key, const json_t *want, const json_t *is, const char *model_type,
                                  sluice_error *err) {
    char *a = json_dumps(want, JSON_ENCODE_ANY), *b = json_dumps(json_object_get(is, key), JSON_ENCODE_ANY);
    bool idle = is_of_experts(key) && !json_integer_value(json_object_get(is, "num_experts"));
    sluice_status st =
        idle ? sluice__fail(err, SLUICE_ERR_CONFIG, "%s: found %.60s, which has no effect with num_experts 0", key, a ? a : "?")
             : sluice__fail(err, SLUICE_ERR_CONFIG, "%s: found %.60s, but this model has %.60s (%s, gate_position %s)", key,
                            a ? a : "?", b ? b : "?", model_type,
                            json_string_value(json_object_get(is, "gate_position")));
    free(a);
    free(b);
    return st;
}

/* What was asked for must be what the model is: a family may not know an option, or another option may silence it. */
static sluice_status check_followed(const sluice_config *config, const json_t *asked, sluice_error *err) {
    json_t *is = sluice__config_to_json(config, &sluice__target_native);
    if (!is) return sluice__no_memory(err, 4096, "a configuration");
    flatten_rope(is, config);
    sluice_status st = SLUICE_OK;
    for (int i = 0; i < sluice_model_num_options() && st == SLUICE_OK; i++) {
        sluice_option o = sluice_model_option(i);
        json_t *want = json_object_get(asked, o.name), *have = json_object_get(is, o.name);
        if (!want || !have || same_value(&o, want, have)) continue;
        st = not_followed(o.name, want, is, config->model_type, err);
    }
    json_decref(is);
    return st;
}

sluice_status sluice__model_options_followed(const sluice_config *config, const char *model_options,
                                             sluice_error *err) {
    json_t *asked;
    SLUICE__TRY(sluice__model_options_object(&asked, model_options, err));
    sluice_status st = check_followed(config, asked, err);
    json_decref(asked);
    return st;
}

/* A vocabulary smaller than the tokenizer's would make ids point outside the embedding. */
static sluice_status check_vocabulary(const sluice_config *config, int needed, sluice_error *err) {
    if (config->vocab_size >= needed) return SLUICE_OK;
    return sluice__fail(err, SLUICE_ERR_CONFIG,
                        "vocab_size: found %d, but the tokenizer has ids up to %d: give at least %d",
                        config->vocab_size, needed - 1, needed);
}

/* A list with one kind for every layer cannot follow another number of layers; when all are alike it need not be there. */
static void forget_equal_kinds(json_t *o, const json_t *options) {
    json_t *kinds = json_object_get(o, "layer_types"), *kind;
    size_t i;
    if (!json_object_get(options, "num_hidden_layers") || json_object_get(options, "layer_types")) return;
    json_array_foreach(kinds, i, kind) {
        if (!json_equal(kind, json_array_get(kinds, 0))) return;
    }
    json_object_del(o, "layer_types");
}

/* A base that stands inside rope_parameters or rope_scaling wins over one beside it: options must reach it there. */
static void move_rope(json_t *o, const json_t *options) {
    static const char *const holders[] = {"rope_parameters", "rope_scaling"}, *const names[] = {"rope_theta",
                                                                                                 "partial_rotary_factor"};
    for (int h = 0; h < 2; h++)
        for (int n = 0; n < 2; n++) {
            json_t *inside = json_object_get(o, holders[h]), *value = json_object_get(options, names[n]), *kind;
            const char *key;
            if (!value || json_object_get(options, holders[h])) continue;
            if (json_object_get(inside, names[n])) json_object_set(inside, names[n], value);
            json_object_foreach(inside, key, kind)
                if (json_is_object(kind)) json_object_set(kind, names[n], value);
        }
}

/* The completed object: config_name or nothing, options over it, defaults under it. */
static sluice_status compose(json_t **out, const sluice_train_params *p, json_t *options, int vocab_size,
                             sluice_error *err) {
    bool based = *p->config_name;
    if (based) SLUICE__TRY(load_base(out, p->config_name, err));
    else if (!(*out = json_object())) return sluice__no_memory(err, 64, "a configuration");
    forget_equal_kinds(*out, options);
    json_object_update(*out, options);
    move_rope(*out, options);
    if (vocab_size > 0) set_default(*out, "vocab_size", json_integer(vocab_size));
    if (!based) complete(*out, p);
    if (json_object_get(*out, "vocab_size")) return SLUICE_OK;
    json_decref(*out);
    return sluice__fail(err, SLUICE_ERR_CONFIG, "vocab_size: missing; there is no tokenizer to take it from");
}

static sluice_status parse(sluice_config *out, const char *text, const sluice_train_params *p, const json_t *options,
                           int vocab_size, sluice_error *err) {
    SLUICE__TRY(sluice_config_parse(out, text, *p->config_name ? p->config_name : "model options", err));
    sluice_status st = check_vocabulary(out, vocab_size, err);
    if (st == SLUICE_OK) st = check_followed(out, options, err);
    if (st != SLUICE_OK) sluice_config_free(out);
    return st;
}

sluice_status sluice_train_model_config(sluice_config *out, char **json, const sluice_train_params *p,
                                        const char *model_options, int vocab_size, sluice_error *err) {
    json_t *o, *options;
    char *text = NULL;
    if (json) *json = NULL;
    SLUICE__TRY(sluice__model_options_object(&options, model_options, err));
    sluice_status st = compose(&o, p, options, vocab_size, err);
    if (st == SLUICE_OK) {
        st = sluice__model_options_text(&text, o, err);
        json_decref(o);
    }
    if (st == SLUICE_OK) st = parse(out, text, p, options, vocab_size, err);
    json_decref(options);
    if (st == SLUICE_OK && json) *json = text;
    else sluice__free(text);
    return st;
}
