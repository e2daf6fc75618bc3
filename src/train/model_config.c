/* SPDX-License-Identifier: Apache-2.0 */
/* From model options to a configuration: the flat JSON object of our own config.json is completed with defaults and
 * handed to the one reader of configurations. */
#include "base/file.h"
#include "base/memory.h"
#include "train/options.h"
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

static void complete(json_t *o, const sluice_train_params *p, int vocab_size) {
    for (int i = 0; i < sluice_model_num_options(); i++)
        if (*sluice_model_option_default(i))
            set_default(o, sluice_model_option(i).name, sluice__model_option_default_json(i));
    int64_t hidden = positive(o, "hidden_size"), heads = positive(o, "num_attention_heads");
    if (vocab_size > 0) set_default(o, "vocab_size", json_integer(vocab_size));
    if (hidden) set_default(o, "intermediate_size", json_integer((hidden * 8 + 95) / 96 * 32));
    if (heads) set_default(o, "num_key_value_heads", json_integer(heads));
    if (heads && hidden) set_default(o, "head_dim", json_integer(hidden / heads > 0 ? hidden / heads : 1));
    set_default(o, "max_position_embeddings", json_integer(p->seq_len));
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

/* A vocabulary smaller than the tokenizer's would make ids point outside the embedding. */
static sluice_status check_vocabulary(const sluice_config *config, int needed, sluice_error *err) {
    if (config->vocab_size >= needed) return SLUICE_OK;
    return sluice__fail(err, SLUICE_ERR_CONFIG, "vocab_size: found %d, but the tokenizer has ids up to %d: give at least %d",
                        config->vocab_size, needed - 1, needed);
}

sluice_status sluice_train_model_config(sluice_config *out, char **json, const sluice_train_params *p,
                                        const char *model_options, int vocab_size, sluice_error *err) {
    json_t *o = NULL, *options;
    if (json) *json = NULL;
    SLUICE__TRY(sluice__model_options_object(&options, model_options, err));
    sluice_status st = *p->config_name ? load_base(&o, p->config_name, err) : SLUICE_OK;
    if (st != SLUICE_OK) {
        json_decref(options);
        return st;
    }
    if (o) json_object_update(o, options);
    else o = json_incref(options);
    json_decref(options);
    if (!*p->config_name) complete(o, p, vocab_size);
    char *text = NULL;
    st = sluice__model_options_text(&text, o, err);
    json_decref(o);
    if (st == SLUICE_OK) st = sluice_config_parse(out, text, *p->config_name ? p->config_name : "model options", err);
    if (st == SLUICE_OK && (st = check_vocabulary(out, vocab_size, err)) != SLUICE_OK) sluice_config_free(out);
    if (st == SLUICE_OK && json) *json = text;
    else sluice__free(text);
    return st;
}
