/* SPDX-License-Identifier: Apache-2.0 */
/* See match.h. Widths are multiples of eight, as those of a study's arms are by default. */
#include "train/match.h"
#include "base/log.h"
#include "base/memory.h"
#include "train/options.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

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

/* The same model without its gate. */
static sluice_status count_ungated(const candidate *c, int64_t *parameters, sluice_error *err) {
    json_t *options = json_object(), *value;
    const char *key;
    sluice_config config;
    json_object_foreach((json_t *)(uintptr_t)c->options, key, value) {
        if (strncmp(key, "gate_", strlen("gate_"))) json_object_set(options, key, value);
    }
    json_object_set_new(options, "gate_position", json_string("none"));
    sluice_status st = config_of(&config, c, options, err);
    json_decref(options);
    if (st != SLUICE_OK) return st;
    *parameters = sluice_config_num_parameters(&config);
    sluice_config_free(&config);
    return SLUICE_OK;
}

/* Which width it is, and whether there is a gate to pay for. */
static sluice_status look(candidate *c, sluice_error *err) {
    sluice_config config;
    SLUICE__TRY(config_of(&config, c, c->options, err));
    bool gated = config.layers[0].gate.position != SLUICE_GATE_NONE;
    c->key = config.layers[0].moe.num_experts ? "moe_intermediate_size" : "intermediate_size";
    sluice_config_free(&config);
    if (gated) return SLUICE_OK;
    return sluice__fail(err, SLUICE_ERR_ARGUMENT, "match_parameters: found true, which has no effect with gate_position none");
}

sluice_status sluice__match_parameters(char **model_options, const sluice_train_params *p, int vocab_size, sluice_error *err) {
    json_t *options;
    int64_t target = 0, width = 0, reached = 0;
    SLUICE__TRY(sluice__model_options_object(&options, *model_options, err));
    candidate c = {.params = p, .options = options, .vocab_size = vocab_size};
    sluice_status st = look(&c, err);
    if (st == SLUICE_OK) st = count_ungated(&c, &target, err);
    if (st == SLUICE_OK) st = sluice__solve_width(&width, MULTIPLE, target, c.key, count, &c, err);
    if (st == SLUICE_OK) st = count(&c, width, &reached, err);
    if (st == SLUICE_OK) {
        json_object_set_new(options, c.key, json_integer(width));
        st = sluice__model_options_text(model_options, options, err);
        sluice__log(SLUICE_LOG_INFO, "match_parameters: %s %" PRId64 ": %" PRId64 " parameters, %" PRId64 " without the gate", c.key,
                    width, reached, target);
    }
    json_decref(options);
    return st;
}
