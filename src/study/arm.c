/* SPDX-License-Identifier: Apache-2.0 */
/* What an arm of a recipe comes to: options of training, model configuration, vocabulary. */
#include "study/recipe.h"
#include "base/memory.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Options of training that decide the dataset: they stand in `data`, so that arms with equal data can share it. */
static const char *const data_options[] = {
    "seq_len",      "bos", "append_eos", "document_mask", "split", "split_parts", "validation_split_percentage",
    "window_order", NULL};

bool sluice__is_data_option(const char *key) {
    for (const char *const *o = data_options; *o; o++)
        if (!strcmp(*o, key)) return true;
    return false;
}

static sluice_status set_option(sluice_train_params *p, const char *section, const char *key, json_t *value,
                                sluice_error *err) {
    char number[64];
    const char *text = number;
    if (json_is_string(value))
        text = json_string_value(value);
    else if (json_is_boolean(value))
        text = json_is_true(value) ? "true" : "false";
    else if (json_is_integer(value))
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        snprintf(number, sizeof number, "%.17g", json_real_value(value));
    else
        return sluice__fail(err, SLUICE_ERR_CONFIG, "%s.%s: expected a number, a string, true or false", section, key);
    sluice_status st = sluice_train_params_set(p, key, text, err);
    return st == SLUICE_OK ? st : sluice__fail_in(err, st, "%s.%s", section, key);
}

sluice_status sluice__arm_params(sluice_train_params *out, const sluice__arm *arm, int64_t seed, sluice_error *err) {
    sluice_train_params p = sluice_train_params_default();
    p.eval_steps = 0;
    const char *key;
    json_t *value;
    json_object_foreach(arm->data, key, value) if (sluice__is_data_option(key))
        SLUICE__TRY(set_option(&p, "data", key, value, err));
    json_object_foreach(arm->training, key, value) SLUICE__TRY(set_option(&p, "training", key, value, err));
    if (p.match_parameters)
        return sluice__fail(err, SLUICE_ERR_CONFIG, "training.match_parameters: stands at the arm or at the recipe instead");
    p.seed = p.data_seed = seed;
    p.logging_steps = 1; /* spikes are judged on every step, and an interrupted run keeps its whole curve */
    p.tensorboard = false;
    p.save_total_limit = 1;
    *out = p;
    return SLUICE_OK;
}

sluice_status sluice__arm_config(sluice_config *out, char **json, const sluice__arm *arm, const sluice_train_params *p,
                                 const sluice_tokenizer *tokenizer, int vocab_size, sluice_error *err) {
    char *dump = json_dumps(arm->config, 0), *options = dump ? sluice__strdup(dump) : NULL;
    free(dump);
    sluice_status st = options ? SLUICE_OK : sluice__no_memory(err, 0, "model options");
    if (st == SLUICE_OK && tokenizer) st = sluice_train_add_token_ids(&options, tokenizer, err);
    if (st == SLUICE_OK) st = sluice_train_model_config(out, json, p, options, vocab_size, err);
    sluice_train_free_text(options);
    return st;
}

const char *sluice__arm_data_kind(const sluice__arm *arm) {
    return json_string_value(json_object_get(arm->data, "kind"));
}

int64_t sluice__arm_vocab_size(const sluice__arm *arm) {
    bool text = strcmp(sluice__arm_data_kind(arm), "backcopy") != 0;
    return (int64_t)json_number_value(json_object_get(arm->data, text ? "vocab_size" : "symbols")) + !text;
}
