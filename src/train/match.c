/* SPDX-License-Identifier: Apache-2.0 */
/* See match.h. Widths are multiples of eight, as those of a study's arms are by default, unless a gate is too small for that. */
#include "train/match.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "train/options.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum { MULTIPLE = 8 };

sluice_status sluice__solve_width(int64_t *width, int64_t multiple, int64_t target, const char *what, sluice__count_fn count,
                                  void *user, sluice_error *err) {
    int64_t one, two;
    SLUICE__TRY(count(user, multiple, &one, err));
    SLUICE__TRY(count(user, 2 * multiple, &two, err));
    if (two <= one) return sluice__fail(err, SLUICE_ERR_CONFIG, "%s does not change the number of parameters", what);
    int64_t steps = llround((double)(target - one) / (double)(two - one));
    if (steps < 0)
        return sluice__fail(err, SLUICE_ERR_CONFIG,
                            "even with %s %" PRId64 " it has %" PRId64 " parameters, more than the %" PRId64 " it is matched to",
                            what, multiple, one, target);
    *width = multiple * (1 + steps);
    return SLUICE_OK;
}

typedef struct candidate {
    const sluice_train_params *params;
    const json_t *options;
    const char *key; /* of the width */
    int vocab_size;
} candidate;

static sluice_status config_of(sluice_config *out, const candidate *c, const json_t *options, sluice_error *err) {
    char *text = NULL;
    sluice_status st = sluice__model_options_text(&text, options, err);
    if (st == SLUICE_OK) st = sluice_train_model_config(out, NULL, c->params, text, c->vocab_size, err);
    sluice__free(text);
    return st;
}

static sluice_status count(void *user, int64_t width, int64_t *parameters, sluice_error *err) {
    const candidate *c = user;
    json_t *options = json_copy((json_t *)(uintptr_t)c->options);
    sluice_config config;
    if (!options || json_object_set_new(options, c->key, json_integer(width))) {
        json_decref(options);
        return sluice__no_memory(err, 4096, "model options");
    }
    sluice_status st = config_of(&config, c, options, err);
    json_decref(options);
    if (st != SLUICE_OK) return st;
    *parameters = sluice_config_num_parameters(&config);
    sluice_config_free(&config);
    return SLUICE_OK;
}

/* The same model without its gate: taken off the parsed configuration, since a file may spell it in any of several ways. */
static int64_t ungated_parameters(sluice_config *config) {
    for (int i = 0; i < config->num_hidden_layers; i++) config->layers[i].gate = (sluice_gate_spec){0};
    return sluice_config_num_parameters(config);
}

/* The model as it was asked for: its width, and what it has with its gate and without. */
typedef struct asked {
    int64_t parameters, gated, ungated;
    int width;
} asked;

static sluice_status look(asked *out, candidate *c, sluice_error *err) {
    sluice_config config;
    SLUICE__TRY(config_of(&config, c, c->options, err));
    bool experts = config.layers[0].moe.num_experts > 0;
    c->key = experts ? "moe_intermediate_size" : "intermediate_size";
    out->width = experts ? config.layers[0].moe.intermediate_size : config.layers[0].intermediate_size;
    out->parameters = sluice_config_num_parameters(&config);
    out->ungated = ungated_parameters(&config);
    out->gated = out->parameters - out->ungated;
    sluice_config_free(&config);
    if (out->gated > 0) return SLUICE_OK;
    return sluice__fail(err, SLUICE_ERR_ARGUMENT, "match_parameters: found true, which has no effect with gate_position none");
}

/* Eight columns at a time, fewer where that leaves more than half of the gate unpaid. */
static sluice_status solve(int64_t *width, int64_t *reached, candidate *c, const asked *a, sluice_error *err) {
    for (int64_t multiple = MULTIPLE;; multiple /= 2) {
        sluice_error why = {0};
        sluice_status st = sluice__solve_width(width, multiple, a->ungated, c->key, count, c, &why);
        if (st == SLUICE_OK) st = count(c, *width, reached, &why);
        if (st == SLUICE_OK && (multiple == 1 || 2 * llabs(*reached - a->ungated) <= a->gated)) return SLUICE_OK;
        if (st == SLUICE_OK || (multiple > 1 && st == SLUICE_ERR_CONFIG)) continue;
        return sluice__fail(err, st, "match_parameters: %s", why.message);
    }
}

static void report(const candidate *c, const asked *a, int64_t width, int64_t reached) {
    int64_t rest = reached - a->ungated;
    sluice__log(SLUICE_LOG_INFO,
                "match_parameters: %s %d becomes %" PRId64 ": %" PRId64 " parameters, %" PRId64 " without the gate (which has %" PRId64
                "): a difference of %+" PRId64,
                c->key, a->width, width, reached, a->ungated, a->gated, rest);
    if (2 * llabs(rest) > a->gated)
        sluice__log(SLUICE_LOG_WARNING,
                    "match_parameters: %" PRId64 " parameters %s than without the gate, of the %" PRId64
                    " of the gate: one column of %s is worth more than that",
                    (int64_t)llabs(rest), rest > 0 ? "more" : "fewer", a->gated, c->key);
}

/* Whether the run in output_dir, which is continued, has this width: its config.json says what the matching made. */
static bool run_has_width(const sluice_train_params *p, const char *key, int width) {
    char *path = sluice__path_join(p->output_dir, "config.json");
    json_t *root = NULL;
    if (*p->resume_from_checkpoint && path && sluice__is_file(path)) sluice__json_load(&root, path, NULL);
    const json_t *value = json_object_get(json_object_get(root, "model_config"), key);
    bool same = json_is_integer(value) && json_integer_value(value) == width;
    json_decref(root);
    sluice__free(path);
    if (same) sluice__log(SLUICE_LOG_INFO, "match_parameters: the run in %s has %s %d: it stays", p->output_dir, key, width);
    return same;
}

static sluice_status match(json_t *options, candidate *c, sluice_error *err) {
    asked a;
    int64_t width = 0, reached = 0;
    SLUICE__TRY(look(&a, c, err));
    if (run_has_width(c->params, c->key, a.width)) return SLUICE_OK;
    SLUICE__TRY(solve(&width, &reached, c, &a, err));
    report(c, &a, width, reached);
    return json_object_set_new(options, c->key, json_integer(width)) ? sluice__no_memory(err, 4096, "model options") : SLUICE_OK;
}

sluice_status sluice__match_parameters(char **model_options, const sluice_train_params *p, int vocab_size, sluice_error *err) {
    json_t *options;
    SLUICE__TRY(sluice__model_options_object(&options, *model_options, err));
    candidate c = {.params = p, .options = options, .vocab_size = vocab_size};
    sluice_status st = match(options, &c, err);
    if (st == SLUICE_OK) st = sluice__model_options_text(model_options, options, err);
    json_decref(options);
    return st;
}
