/* SPDX-License-Identifier: Apache-2.0 */
/* Counting instead of formulas: a candidate configuration is made and asked for its parameters, so whatever an arm
 * has (experts, switch heads, shared gates) is counted as it will be trained. Widths of MLPs are solved for, because
 * the count is linear in them; heads and experts are few enough to try all. The vocabulary is the one that is asked
 * for; a text that is too short for it changes all arms alike. */
#include "study/match.h"
#include "base/json.h"
#include "study/recipe.h"
#include "train/match.h"
#include <stdlib.h>
#include <string.h>

static const char *const options[] = {"intermediate_size",   "moe_intermediate_size", "num_key_value_heads",
                                      "num_attention_heads", "num_experts",           NULL};
enum { MOST_GROWTH = 8 }; /* heads and experts are tried up to so many times those of the arm */

sluice_status sluice__match_check(const json_t *value, bool arm, const char *file, const char *path,
                                  sluice_error *err) {
    if (!value || json_is_null(value) || json_is_boolean(value)) return SLUICE_OK;
    const char *what = arm ? "true, false or {\"with\": option, \"to\": arm}" : "true or false";
    if (!arm || !json_is_object(value))
        return sluice__fail(err, SLUICE_ERR_CONFIG, "%s: %s: expected %s", file, path, what);
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)value, key,
                        v) if ((strcmp(key, "with") && strcmp(key, "to")) ||
                               !json_is_string(v)) return sluice__fail(err, SLUICE_ERR_CONFIG,
                                                                       "%s: %s.%s: expected %s", file, path, key,
                                                                       what);
    const char *with = json_string_value(json_object_get(value, "with"));
    for (const char *const *o = options; with && *o; o++)
        if (!strcmp(*o, with)) return SLUICE_OK;
    if (!with) return SLUICE_OK;
    return sluice__fail(err, SLUICE_ERR_CONFIG,
                        "%s: %s.with: found \"%.40s\", expected intermediate_size, moe_intermediate_size, "
                        "num_key_value_heads, num_attention_heads or num_experts",
                        file, path, with);
}

/* ---- counting ---- */

/* The configuration of an arm with `key` (may be NULL) set to value; freed with sluice_config_free. */
static sluice_status config_of(sluice_config *out, const json_t *root, const json_t *arm, const char *key,
                               int64_t value, sluice_error *err) {
    sluice__arm a = {.name = json_string_value(json_object_get(arm, "name")),
                     .config = sluice__laid_over(json_object_get(root, "model"), json_object_get(arm, "config")),
                     .data = sluice__laid_over(json_object_get(root, "data"), json_object_get(arm, "data")),
                     .training =
                         sluice__laid_over(json_object_get(root, "training"), json_object_get(arm, "training"))};
    sluice_train_params p;
    sluice_status st = a.config && a.data && a.training ? SLUICE_OK : sluice__fail(err, SLUICE_ERR_MEMORY, "an arm");
    if (st == SLUICE_OK) st = sluice__read_data(&a, "recipe", err);
    if (st == SLUICE_OK && key) json_object_set_new(a.config, key, json_integer(value));
    if (st == SLUICE_OK) st = sluice__arm_params(&p, &a, 1, err);
    if (st == SLUICE_OK) st = sluice__arm_config(out, NULL, &a, &p, NULL, (int)sluice__arm_vocab_size(&a), err);
    json_decref(a.config);
    json_decref(a.data);
    json_decref(a.training);
    return st;
}

static sluice_status count(int64_t *out, const json_t *root, const json_t *arm, const char *key, int64_t value,
                           sluice_error *err) {
    sluice_config c;
    SLUICE__TRY(config_of(&c, root, arm, key, value, err));
    *out = sluice_config_num_parameters(&c);
    sluice_config_free(&c);
    return SLUICE_OK;
}

/* ---- searching ---- */

typedef struct search {
    const json_t *root;
    json_t *arm;
    const char *with;
    int64_t target, value, parameters; /* parameters: with `value`, the nearest so far; -1 = none */
} search;

static sluice_status try_value(search *s, int64_t value, sluice_error *err) {
    int64_t n;
    SLUICE__TRY(count(&n, s->root, s->arm, s->with, value, err));
    if (s->parameters >= 0 && llabs(n - s->target) >= llabs(s->parameters - s->target)) return SLUICE_OK;
    s->value = value;
    s->parameters = n;
    return SLUICE_OK;
}

static sluice_status count_width(void *user, int64_t width, int64_t *parameters, sluice_error *err) {
    const search *s = user;
    return count(parameters, s->root, s->arm, s->with, width, err);
}

static sluice_status solve_width(search *s, int64_t multiple, sluice_error *err) {
    int64_t width = 0;
    SLUICE__TRY(sluice__solve_width(&width, multiple, s->target, s->with, count_width, s, err));
    return try_value(s, width, err);
}

/* Query heads come in multiples of the key/value heads, whose number and width must not follow them. */
static void pin_heads(json_t *config, const json_t *model, const sluice_layer_spec *l) {
    if (!json_object_get(config, "head_dim") && !json_object_get(model, "head_dim"))
        json_object_set_new(config, "head_dim", json_integer(l->head_dim));
    if (!json_object_get(config, "num_key_value_heads") && !json_object_get(model, "num_key_value_heads"))
        json_object_set_new(config, "num_key_value_heads", json_integer(l->num_key_value_heads));
}

static sluice_status try_heads_or_experts(search *s, const sluice_layer_spec *l, sluice_error *err) {
    bool keys = !strcmp(s->with, "num_key_value_heads"), queries = !strcmp(s->with, "num_attention_heads");
    int first = keys ? 1 : queries ? l->num_key_value_heads : l->moe.num_experts_per_tok;
    int last = keys ? l->num_attention_heads : MOST_GROWTH * (queries ? l->num_attention_heads : l->moe.num_experts);
    if (!keys && !queries && !l->moe.num_experts)
        return sluice__fail(err, SLUICE_ERR_CONFIG, "num_experts: the arm has no experts");
    if (queries) pin_heads(json_object_get(s->arm, "config"), json_object_get(s->root, "model"), l);
    for (int n = first; n <= last; n += queries ? l->num_key_value_heads : 1)
        if (!keys || l->num_attention_heads % n == 0) SLUICE__TRY(try_value(s, n, err));
    return SLUICE_OK;
}

static sluice_status find(search *s, int64_t multiple, sluice_error *err) {
    sluice_config c;
    SLUICE__TRY(config_of(&c, s->root, s->arm, NULL, 0, err));
    sluice_layer_spec l = c.layers[0];
    sluice_config_free(&c); /* what is read of l below is no pointer */
    if (!s->with) s->with = l.moe.num_experts ? "moe_intermediate_size" : "intermediate_size";
    if (!strcmp(s->with, "intermediate_size") || !strcmp(s->with, "moe_intermediate_size"))
        return solve_width(s, multiple, err);
    return try_heads_or_experts(s, &l, err);
}

/* ---- recipes ---- */

/* What an arm asks for: NULL = nothing. */
static const json_t *request_of(const json_t *root, const json_t *arm, size_t index) {
    const json_t *own = json_object_get(arm, SLUICE__MATCH_KEY);
    if (!own || json_is_null(own)) own = index ? json_object_get(root, SLUICE__MATCH_KEY) : NULL;
    return own && !json_is_false(own) && !json_is_null(own) ? own : NULL;
}

static sluice_status target_of(const json_t **out, const json_t *root, const json_t *request, size_t self,
                               sluice_error *err) {
    const char *to = json_string_value(json_object_get(request, "to"));
    size_t i;
    json_t *arm, *arms = json_object_get(root, "arms");
    json_array_foreach(arms, i, arm) {
        if (to && strcmp(to, json_string_value(json_object_get(arm, "name")))) continue;
        if (i == self) return sluice__fail(err, SLUICE_ERR_CONFIG, "cannot be matched to itself");
        if (request_of(root, arm, i))
            return sluice__fail(err, SLUICE_ERR_CONFIG, "\"%s\" is matched to another arm itself",
                                json_string_value(json_object_get(arm, "name")));
        *out = arm;
        return SLUICE_OK;
    }
    return sluice__fail(err, SLUICE_ERR_CONFIG, "the recipe has no arm \"%.40s\"", to ? to : "");
}

static sluice_status match(json_t *root, json_t *arm, const json_t *request, size_t index, sluice_error *err) {
    const json_t *target = NULL;
    search s = {
        .root = root, .arm = arm, .with = json_string_value(json_object_get(request, "with")), .parameters = -1};
    int64_t multiple = json_integer_value(json_object_get(root, SLUICE__MATCH_MULTIPLE));
    SLUICE__TRY(target_of(&target, root, request, index, err));
    SLUICE__TRY(count(&s.target, root, target, NULL, 0, err));
    SLUICE__TRY(find(&s, multiple, err));
    json_object_set_new(json_object_get(arm, "config"), s.with, json_integer(s.value));
    json_t *said = json_pack("{s:s, s:O, s:I}", "with", s.with, "to", json_object_get(target, "name"), "value",
                             (json_int_t)s.value);
    if (!said) return sluice__fail(err, SLUICE_ERR_MEMORY, "a match");
    json_object_set_new(arm, "match", said);
    return SLUICE_OK;
}

sluice_status sluice__match_apply(json_t *root, const char *file, sluice_error *err) {
    size_t i;
    json_t *arm;
    json_array_foreach(json_object_get(root, "arms"), i, arm) {
        const json_t *request = request_of(root, arm, i);
        sluice_status st = request ? match(root, arm, request, i, err) : SLUICE_OK;
        if (st != SLUICE_OK) return sluice__fail_in(err, st, "%s: arms[%zu].match_parameters", file, i);
    }
    return SLUICE_OK;
}
