/* SPDX-License-Identifier: Apache-2.0 */
/* Options that another one leaves without effect. Whoever gives one expects something of it, so it is an error that names
 * both. What counts is a value other than the default: a run's config.json holds all of them. */
#include "train/options.h"
#include <string.h>

/* All that is asked of the other options. */
typedef struct situation {
    bool lion, muon, decays_late, falls, cut, rewinds, no_documents;
} situation;

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
