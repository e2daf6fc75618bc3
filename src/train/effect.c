/* SPDX-License-Identifier: Apache-2.0 */
/* Options that another one leaves without effect. Whoever gives one expects something of it, so it is an error that names
 * both. What counts is a value other than the default: a run's config.json holds all of them. */
#include "base/json.h"
#include "train/batches.h"
#include "train/options.h"
#include "train/texts.h"
#include <stdlib.h>
#include <string.h>

/* All that is asked of the other options. */
typedef struct situation {
    bool lion, muon, decays_late, falls, cut, rewinds, no_documents, lines, plain, grows;
} situation;

/* A warm-up of batches whose stages are as large as all others. */
static bool batches_grow(const sluice_train_params *p) {
    sluice__batches b;
    if (sluice__batches_of(&b, p, NULL) != SLUICE_OK) return true;
    for (int i = 0; i < b.stages; i++)
        if (b.passes[i] != b.last) return true;
    return false;
}

static bool have(const sluice_train_params *p, bool jsonl) {
    return sluice__texts_have(p->text, jsonl) || sluice__texts_have(p->validation_text, jsonl);
}

static situation situation_of(const sluice_train_params *p) {
    char course[64];
    sluice_train_option_value(p, sluice__train_option_find("lr_scheduler_type"), course, sizeof course);
    bool late = !strcmp(course, "warmup_stable_decay") || !strcmp(course, "wsd");
    return (situation){
        .lion = p->optim == SLUICE_OPTIM_LION,
        .muon = p->optim == SLUICE_OPTIM_MUON,
        .decays_late = late,
        .falls = strncmp(course, "constant", strlen("constant")) != 0,
        .cut = p->split != SLUICE_SPLIT_NONE && !*p->validation_text,
        .rewinds = p->on_spike == SLUICE_ON_SPIKE_REWIND || p->on_nan == SLUICE_ON_NAN_REWIND,
        .no_documents = *p->shards && !*p->text && !*p->validation_text,
        .lines = have(p, true),
        .plain = have(p, false),
        .grows = batches_grow(p),
    };
}

typedef struct rule {
    const char *option, *other; /* the other one's value is printed */
    bool idle;
} rule;

sluice_status sluice__train_check_effect(const sluice_train_params *p, sluice_error *err) {
    const situation s = situation_of(p);
    const rule rules[] = {
        {"lion_beta1", "optim", !s.lion},
        {"lion_beta2", "optim", !s.lion},
        {"adam_beta1", "optim", s.lion},
        {"adam_beta2", "optim", s.lion},
        {"adam_epsilon", "optim", s.lion},
        {"muon_learning_rate", "optim", !s.muon},
        {"muon_momentum", "optim", !s.muon},
        {"muon_adjust", "optim", !s.muon},
        {"muon_ns_steps", "optim", !s.muon},
        {"min_lr", "lr_scheduler_type", !s.falls},
        {"num_decay_steps", "lr_scheduler_type", !s.decays_late},
        {"decay_type", "lr_scheduler_type", !s.decays_late},
        {"warmup_ratio", "warmup_steps", p->warmup_steps > 0},
        {"num_train_epochs", "max_steps", p->max_steps > 0},
        {"train_tokenizer_vocab_size", "tokenizer_name", *p->tokenizer_name},
        {"text_column", "shards", s.no_documents},
        {"text_separator", "shards", s.no_documents},
        {"text_column", "text", !s.lines},
        {"text_separator", "text", !s.plain},
        {"batch_size_warmup", "gradient_accumulation_steps", !s.grows},
        {"bos_token", "bos", p->bos == SLUICE_BOS_NONE},
        {"split_parts", "split", p->split == SLUICE_SPLIT_DOCUMENT || p->split == SLUICE_SPLIT_NONE},
        {"validation_split_percentage", *p->validation_text ? "validation_text" : "split", !s.cut},
        {"gate_start", "model_name_or_path", !*p->model_name_or_path},
        {"match_parameters", "model_name_or_path", *p->model_name_or_path}, /* whose widths are what they are */
        {"probe_samples", "probe_steps", p->probe_steps == 0},
        {"max_rewinds", "on_spike", !s.rewinds},
    };
    const sluice_train_params fallback = sluice_train_params_default();
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        char given[96], usual[96], why[96];
        int index = sluice__train_option_find(rules[i].option);
        sluice_train_option_value(p, index, given, sizeof given);
        sluice_train_option_value(&fallback, index, usual, sizeof usual);
        if (!rules[i].idle || !strcmp(given, usual)) continue;
        sluice_train_option_value(p, sluice__train_option_find(rules[i].other), why, sizeof why);
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "%s: found %s, which has no effect with %s %s", rules[i].option, given,
                            rules[i].other, *why ? why : "not given");
    }
    return SLUICE_OK;
}

static sluice_status idle(const json_t *asked, const char *key, const char *why, sluice_error *err) {
    char *given = json_dumps(json_object_get(asked, key), JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    sluice_status st =
        sluice__fail(err, SLUICE_ERR_ARGUMENT, "%s: found %.60s, which has no effect with %s", key, given ? given : "?", why);
    free(given);
    return st;
}

static bool is_default(const json_t *value, const char *key) {
    for (int i = 0; i < sluice_model_num_options(); i++) {
        if (strcmp(sluice_model_option(i).name, key)) continue;
        json_t *usual = sluice__model_option_default_json(i);
        bool same = json_is_number(value) && usual && json_number_value(value) == json_number_value(usual);
        json_decref(usual);
        return same;
    }
    return false;
}

static sluice_status check_experts(const sluice_config *config, const json_t *asked, const sluice_train_params *p,
                                   sluice_error *err) {
    static const char *const losses[] = {"router_aux_loss_coef", "router_z_loss_coef"};
    int sparse = 0;
    for (int i = 0; i < config->num_hidden_layers; i++) sparse += config->layers[i].moe.num_experts > 0;
    for (int i = 0; i < 2 && !sparse; i++) {
        const json_t *value = json_object_get(asked, losses[i]);
        if (value && !is_default(value, losses[i])) return idle(asked, losses[i], "num_experts 0", err);
    }
    if (!sparse && p->router_balance) {
        char given[32];
        sluice_train_option_value(p, sluice__train_option_find("router_balance"), given, sizeof given);
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "router_balance: found %s, which has no effect with num_experts 0", given);
    }
    /* a file may call the width of an expert so */
    const json_t *width = json_object_get(asked, "intermediate_size");
    if (sparse < config->num_hidden_layers || !width || json_integer_value(width) == config->layers[0].moe.intermediate_size)
        return SLUICE_OK;
    return idle(asked, "intermediate_size", "experts in every layer (num_experts): the width of one is moe_intermediate_size", err);
}

sluice_status sluice__model_check_effect(const sluice_config *config, const char *model_options, const sluice_train_params *p,
                                         sluice_error *err) {
    json_t *asked;
    SLUICE__TRY(sluice__model_options_object(&asked, model_options, err));
    bool whole = json_object_get(asked, "model_type"); /* that of a run: nobody asked for every key of it */
    sluice_status st = whole ? SLUICE_OK : check_experts(config, asked, p, err);
    json_decref(asked);
    return st;
}
