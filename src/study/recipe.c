/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a recipe. The result is complete (every default written out), because it is copied into results.json and
 * decides whether an interrupted study may continue; and it is checked down to the last option before any work starts.
 */
#include "study/recipe.h"
#include "base/asset.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/strbuf.h"
#include "study/extension.h"
#include "study/ladder.h"
#include "study/match.h"
#include "study/scale.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const root_keys[] = {"name",
                                        "title",
                                        "about",
                                        "scale",
                                        "arms",
                                        "seeds",
                                        "model",
                                        "data",
                                        "training",
                                        "evaluation",
                                        "extension",
                                        SLUICE__MATCH_KEY,
                                        SLUICE__MATCH_MULTIPLE,
                                        SLUICE__LADDER_KEY,
                                        NULL};
static const char *const arm_keys[] = {"name", "label", "config", "data", "training", SLUICE__MATCH_KEY, NULL};
static const char *const evaluation_keys[] = {
    "heldout_windows", "inspect_windows", "sentence",      "map_tokens",    "lengths",     "yarn", "length_tokens",
    "prompts",         "heldout_prompts", "prompt_tokens", "sample_tokens", "temperature", NULL};
/* In `data`: keys of the study, beside the options of training that decide the dataset. */
static const char *const data_keys[] = {"kind",    "vocab_size",   "symbols",   "triggers", "tokens", "document_tokens",
                                        "needles", "mentions", "needle_share", "documents", "seed",     NULL};
/* Options that the study sets itself. */
static const char *const own_options[] = {"model_name_or_path",
                                          "config_name",
                                          "tokenizer_name",
                                          "train_tokenizer_vocab_size",
                                          "seed",
                                          "data_seed",
                                          "text",
                                          "shards",
                                          "validation_text",
                                          "output_dir",
                                          "overwrite_output_dir",
                                          "resume_from_checkpoint",
                                          "logging_steps",
                                          "tensorboard",
                                          "save_total_limit",
                                          NULL};

static bool listed(const char *key, const char *const *list) {
    for (; *list; list++)
        if (!strcmp(*list, key)) return true;
    return false;
}

static bool is_train_option(const char *key) {
    for (int i = 0; i < sluice_train_num_options(); i++)
        if (!strcmp(sluice_train_option(i).name, key)) return true;
    return false;
}

static bool is_model_option(const char *key) {
    for (int i = 0; i < sluice_model_num_options(); i++)
        if (!strcmp(sluice_model_option(i).name, key)) return true;
    return false;
}

static bool is_data_key(const char *key) { return listed(key, data_keys) || sluice__is_data_option(key); }

static bool is_training_key(const char *key) {
    return is_train_option(key) && !sluice__is_data_option(key) && !listed(key, own_options);
}

static bool is_model_key(const char *key) { return is_model_option(key) && strcmp(key, "vocab_size") != 0; }

static bool is_root_key(const char *key) { return listed(key, root_keys); }
static bool is_arm_key(const char *key) { return listed(key, arm_keys); }
static bool is_evaluation_key(const char *key) { return listed(key, evaluation_keys); }

/* An object (or nothing) whose keys all are known. */
static sluice_status check_keys(const sluice__json *at, bool (*known)(const char *), sluice_error *err) {
    if (!at->value) return SLUICE_OK;
    if (!json_is_object(at->value)) return sluice__json_fail(at, NULL, err, "expected an object");
    const char *key;
    json_t *value;
    json_object_foreach(at->value, key, value) {
        if (known(key)) continue;
        if (listed(key, own_options)) return sluice__json_fail(at, key, err, "a study sets this option itself");
        return sluice__json_fail(at, key, err, "unknown key");
    }
    return SLUICE_OK;
}

/* Names become directories. */
static sluice_status check_name(const sluice__json *at, const char *name, sluice_error *err) {
    size_t n = strlen(name);
    bool ok = n >= 1 && n <= 40 && name[0] != '-';
    for (size_t i = 0; i < n; i++) ok &= isalnum((unsigned char)name[i]) || name[i] == '-' || name[i] == '_';
    if (ok) return SLUICE_OK;
    return sluice__json_fail(at, "name", err, "found \"%s\", expected 1..40 letters, digits, - and _", name);
}

/* ---- where a recipe comes from ---- */

static const char *const builtin[] = {"quick", "sink", "sink-deep", "backcopy", "sink-factors",
                                      "paper-gates", "moe",  "length", "stability"};
enum { BUILTINS = sizeof builtin / sizeof *builtin, RECIPE_LIMIT = 1 << 20 };

const char *sluice__recipe_builtin(int index) { return index >= 0 && index < BUILTINS ? builtin[index] : NULL; }

const char *sluice__recipe_text(const char *name, size_t *size) {
    char path[96];
    snprintf(path, sizeof path, "recipes/%.60s.json", name);
    const sluice__asset_entry *a = sluice__asset(path);
    if (a) *size = a->size;
    return a ? (const char *)a->data : NULL;
}

static bool is_file_name(const char *name) {
    size_t n = strlen(name);
    return strchr(name, '/') || (n > 5 && !strcmp(name + n - 5, ".json"));
}

static sluice_status parse_source(json_t **root, const char *name, sluice_error *err) {
    if (is_file_name(name)) {
        char *text;
        size_t size;
        SLUICE__TRY(sluice__read_file(&text, &size, name, RECIPE_LIMIT, err));
        sluice_status st = sluice__json_parse(root, text, size, name, err);
        sluice__free(text);
        return st;
    }
    size_t size;
    const char *text = sluice__recipe_text(name, &size);
    if (text) return sluice__json_parse(root, text, size, name, err);
    sluice__strbuf known = {0};
    for (int i = 0; i < BUILTINS; i++) sluice__strbuf_printf(&known, "%s%s", i ? ", " : "", builtin[i]);
    sluice_status st = sluice__fail(err, SLUICE_ERR_ARGUMENT,
                                    "unknown recipe \"%s\"; known ones are %s, or give a file that ends in .json", name,
                                    known.data ? known.data : "?");
    sluice__strbuf_free(&known);
    return st;
}

/* ---- completing ---- */

static json_t *own_or_empty(json_t *root, const char *key) {
    json_t *v = json_object_get(root, key);
    return v && !json_is_null(v) ? json_deep_copy(v) : json_object();
}

static void set_default(json_t *object, const char *key, json_t *value) {
    if (!json_object_get(object, key))
        json_object_set_new(object, key, value);
    else
        json_decref(value);
}

static void evaluation_defaults(json_t *e) {
    set_default(e, "heldout_windows", json_integer(0));
    set_default(e, "inspect_windows", json_integer(64));
    set_default(e, "sentence", json_null());
    set_default(e, "map_tokens", json_integer(32));
    set_default(e, "lengths", json_pack("[i, i, i]", 1, 2, 4));
    set_default(e, "yarn", json_true());
    set_default(e, "length_tokens", json_integer(65536));
    set_default(e, "prompts", json_array());
    set_default(e, "heldout_prompts", json_integer(2));
    set_default(e, "prompt_tokens", json_integer(16));
    set_default(e, "sample_tokens", json_integer(96));
    set_default(e, "temperature", json_real(0.8));
}

static json_t *complete_arms(json_t *arms) {
    json_t *out = json_array();
    size_t i;
    json_t *arm;
    json_array_foreach(arms, i, arm) {
        const char *name = json_string_value(json_object_get(arm, "name"));
        json_t *label = json_object_get(arm, "label");
        json_array_append_new(out, json_pack("{s:s, s:o, s:o, s:o, s:o}", "name", name, "label",
                                             label && !json_is_null(label) ? json_incref(label) : json_string(name),
                                             "config", own_or_empty(arm, "config"), "data", own_or_empty(arm, "data"),
                                             "training", own_or_empty(arm, "training")));
        json_t *match = json_object_get(arm, SLUICE__MATCH_KEY);
        if (match) json_object_set(json_array_get(out, i), SLUICE__MATCH_KEY, match);
    }
    return out;
}

/* `root` has been checked: types of containers and names of keys are right. */
static json_t *complete(json_t *root) {
    json_t *data = own_or_empty(root, "data"), *evaluation = own_or_empty(root, "evaluation");
    json_t *seeds = json_object_get(root, "seeds"), *title = json_object_get(root, "title");
    json_t *about = json_object_get(root, "about"), *name = json_object_get(root, "name");
    json_t *scale = json_object_get(root, "scale"), *match = json_object_get(root, SLUICE__MATCH_KEY);
    json_t *multiple = json_object_get(root, SLUICE__MATCH_MULTIPLE);
    json_t *text = json_string("text"), *needle = json_string("needle"), *kind;
    set_default(data, "kind", json_incref(text));
    kind = json_object_get(data, "kind");
    if (json_equal(kind, text) || json_equal(kind, needle)) set_default(data, "vocab_size", json_integer(1024));
    json_decref(text);
    json_decref(needle);
    evaluation_defaults(evaluation);
    json_t *out = json_pack("{s:O, s:O, s:o, s:O, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "name", name, "title", title ? title : name,
                     "about", about ? json_incref(about) : json_string(""), "scale", scale,
                     SLUICE__MATCH_KEY, match ? json_incref(match) : json_false(), SLUICE__MATCH_MULTIPLE,
                     multiple ? json_incref(multiple) : json_integer(8), "seeds",
                     seeds ? json_incref(seeds) : json_pack("[i]", 1), "model", own_or_empty(root, "model"), "data",
                     data, "training", own_or_empty(root, "training"), "evaluation", evaluation, "arms",
                     complete_arms(json_object_get(root, "arms")));
    sluice__extension_complete(out, json_object_get(root, "extension"));
    json_t *ladder = json_object_get(root, SLUICE__LADDER_KEY);
    if (out && ladder && !json_is_null(ladder)) json_object_set(out, SLUICE__LADDER_KEY, ladder);
    return out;
}

/* ---- checking ---- */

static sluice_status check_sections(const sluice__json *at, sluice_error *err) {
    sluice__json model = sluice__json_get(at, "model"), data = sluice__json_get(at, "data");
    sluice__json config = sluice__json_get(at, "config"), training = sluice__json_get(at, "training");
    SLUICE__TRY(check_keys(&model, is_model_key, err));
    SLUICE__TRY(check_keys(&config, is_model_key, err));
    SLUICE__TRY(check_keys(&data, is_data_key, err));
    return check_keys(&training, is_training_key, err);
}

static sluice_status check_arm(const sluice__json *arm, sluice_error *err) {
    const char *name = NULL, *label = NULL;
    if (!arm->value) return sluice__json_fail(arm, NULL, err, "expected an object");
    SLUICE__TRY(check_keys(arm, is_arm_key, err));
    SLUICE__TRY(sluice__json_string(arm, "name", true, &name, err));
    SLUICE__TRY(check_name(arm, name, err));
    SLUICE__TRY(sluice__json_string(arm, "label", false, &label, err));
    char match[200];
    snprintf(match, sizeof match, "%.150s.%s", arm->path, SLUICE__MATCH_KEY);
    SLUICE__TRY(sluice__match_check(json_object_get(arm->value, SLUICE__MATCH_KEY), true, arm->file, match, err));
    return check_sections(arm, err);
}

static sluice_status check_arms(const sluice__json *root, sluice_error *err) {
    sluice__json arms = sluice__json_get(root, "arms");
    size_t n = json_array_size(arms.value);
    if (!json_is_array(arms.value) || n < 1 || n > SLUICE__MAX_ARMS)
        return sluice__json_fail(root, "arms", err, "expected an array of 1..%d arms", SLUICE__MAX_ARMS);
    for (size_t i = 0; i < n; i++) {
        sluice__json arm = sluice__json_at(&arms, i);
        SLUICE__TRY(check_arm(&arm, err));
        const char *name = json_string_value(json_object_get(arm.value, "name"));
        for (size_t j = 0; j < i; j++)
            if (!strcmp(name, json_string_value(json_object_get(json_array_get(arms.value, j), "name"))))
                return sluice__json_fail(&arm, "name", err, "\"%s\" stands twice", name);
    }
    return SLUICE_OK;
}

static sluice_status check_root(const sluice__json *root, sluice_error *err) {
    const char *name = NULL, *title = NULL, *about = NULL;
    SLUICE__TRY(check_keys(root, is_root_key, err));
    SLUICE__TRY(sluice__json_string(root, "name", true, &name, err));
    SLUICE__TRY(check_name(root, name, err));
    SLUICE__TRY(sluice__json_string(root, "title", false, &title, err));
    SLUICE__TRY(sluice__json_string(root, "about", false, &about, err));
    int64_t multiple;
    SLUICE__TRY(sluice__json_int(root, SLUICE__MATCH_MULTIPLE, false, 1, 4096, &multiple, err));
    SLUICE__TRY(sluice__match_check(json_object_get(root->value, SLUICE__MATCH_KEY), false, root->file,
                                    SLUICE__MATCH_KEY, err));
    SLUICE__TRY(sluice__ladder_check(root, err));
    SLUICE__TRY(check_sections(root, err));
    sluice__json evaluation = sluice__json_get(root, "evaluation");
    SLUICE__TRY(check_keys(&evaluation, is_evaluation_key, err));
    SLUICE__TRY(sluice__extension_check(root, is_training_key, err));
    return check_arms(root, err);
}

/* ---- reading ---- */

static sluice_status read_seeds(sluice__recipe *r, const sluice__json *root, sluice_error *err) {
    sluice__json seeds = sluice__json_get(root, "seeds");
    size_t n = json_array_size(seeds.value);
    if (n < 1 || n > SLUICE__MAX_SEEDS)
        return sluice__json_fail(root, "seeds", err, "expected an array of 1..%d numbers", SLUICE__MAX_SEEDS);
    for (size_t i = 0; i < n; i++) {
        json_t *v = json_array_get(seeds.value, i);
        sluice__json at = sluice__json_at(&seeds, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0)
            return sluice__json_fail(&at, NULL, err, "expected a whole number from 0");
        r->seeds[i] = json_integer_value(v);
        for (size_t j = 0; j < i; j++)
            if (r->seeds[j] == r->seeds[i])
                return sluice__json_fail(&at, NULL, err, "%lld stands twice", (long long)r->seeds[i]);
    }
    r->num_seeds = (int)n;
    return SLUICE_OK;
}

sluice_status sluice__read_lengths(int64_t *lengths, int *num_lengths, const sluice__json *at, sluice_error *err) {
    sluice__json list = sluice__json_get(at, "lengths");
    size_t n = json_array_size(list.value);
    if (list.value && (!json_is_array(list.value) || n > SLUICE__MAX_LENGTHS))
        return sluice__json_fail(at, "lengths", err, "expected an array of at most %d multiples", SLUICE__MAX_LENGTHS);
    int64_t last = 0;
    for (size_t i = 0; i < n; i++) {
        json_t *v = json_array_get(list.value, i);
        if (!json_is_integer(v) || json_integer_value(v) <= last || json_integer_value(v) > 1024 ||
            (last && json_integer_value(v) % last))
            return sluice__json_fail(at, "lengths", err,
                                     "expected numbers from 1 to 1024, each a multiple of the one before");
        lengths[i] = last = json_integer_value(v);
    }
    *num_lengths = (int)n;
    return SLUICE_OK;
}

static sluice_status read_prompts(sluice__evaluation *e, const sluice__json *at, sluice_error *err) {
    sluice__json list = sluice__json_get(at, "prompts");
    size_t n = json_array_size(list.value);
    if (list.value && (!json_is_array(list.value) || n > SLUICE__MAX_PROMPTS))
        return sluice__json_fail(at, "prompts", err, "expected an array of at most %d strings", SLUICE__MAX_PROMPTS);
    for (size_t i = 0; i < n; i++) {
        e->prompts[i] = json_string_value(json_array_get(list.value, i));
        if (!e->prompts[i] || !*e->prompts[i])
            return sluice__json_fail(at, "prompts", err, "expected strings that are not empty");
    }
    e->num_prompts = (int)n;
    return SLUICE_OK;
}

static sluice_status read_evaluation(sluice__evaluation *e, const sluice__json *root, sluice_error *err) {
    sluice__json at = sluice__json_get(root, "evaluation");
    const int64_t many = INT64_C(1) << 40;
    SLUICE__TRY(sluice__json_int(&at, "heldout_windows", true, 0, many, &e->heldout_windows, err));
    SLUICE__TRY(sluice__json_int(&at, "inspect_windows", true, 1, 1 << 20, &e->inspect_windows, err));
    SLUICE__TRY(sluice__json_string(&at, "sentence", false, &e->sentence, err));
    SLUICE__TRY(sluice__json_int(&at, "map_tokens", true, 2, 256, &e->map_tokens, err));
    SLUICE__TRY(sluice__read_lengths(e->lengths, &e->num_lengths, &at, err));
    SLUICE__TRY(sluice__json_bool(&at, "yarn", true, &e->yarn, err));
    SLUICE__TRY(sluice__json_int(&at, "length_tokens", true, 1, many, &e->length_tokens, err));
    SLUICE__TRY(read_prompts(e, &at, err));
    SLUICE__TRY(sluice__json_int(&at, "heldout_prompts", true, 0, SLUICE__MAX_PROMPTS, &e->heldout_prompts, err));
    SLUICE__TRY(sluice__json_int(&at, "prompt_tokens", true, 1, 65536, &e->prompt_tokens, err));
    SLUICE__TRY(sluice__json_int(&at, "sample_tokens", true, 1, 65536, &e->sample_tokens, err));
    return sluice__json_real(&at, "temperature", true, 0, 100, &e->temperature, err);
}

json_t *sluice__laid_over(const json_t *shared, const json_t *own) {
    json_t *out = json_deep_copy(shared), *value;
    const char *key;
    json_object_foreach((json_t *)(uintptr_t)own, key, value) {
        if (json_is_null(value)) json_object_del(out, key);
        else json_object_set(out, key, value);
    }
    return out;
}

/* Everything that a run of this arm would refuse later is refused now. */
static sluice_status try_arm(const sluice__recipe *r, const sluice__arm *arm, const char *file, sluice_error *err) {
    sluice_train_params p;
    sluice_config config;
    sluice_status st = sluice__arm_params(&p, arm, r->seeds[0], err);
    if (st == SLUICE_OK) st = sluice__arm_config(&config, NULL, arm, &p, NULL, (int)sluice__arm_vocab_size(arm), err);
    if (st == SLUICE_OK) sluice_config_free(&config);
    if (st == SLUICE_OK && r->extension.on)
        st = sluice__extension_params(&p, &r->extension, arm, r->seeds[0], err);
    return st == SLUICE_OK ? st : sluice__fail_in(err, st, "%s: arm \"%s\"", file, arm->name);
}

static sluice_status read_needle(const sluice__arm *arm, const sluice__json *at, sluice_error *err) {
    int64_t number;
    double share;
    json_t *bos = json_object_get(arm->data, "bos"), *eos = json_object_get(arm->data, "append_eos");
    SLUICE__TRY(sluice__json_int(at, "vocab_size", true, 258, 1000000, &number, err));
    SLUICE__TRY(sluice__json_int(at, "needles", true, 1, 26, &number, err));
    SLUICE__TRY(sluice__json_int(at, "mentions", true, 2, 8, &number, err));
    SLUICE__TRY(sluice__json_int(at, "documents", true, 1, INT64_C(1) << 32, &number, err));
    SLUICE__TRY(sluice__json_int(at, "seed", true, 0, INT64_MAX, &number, err));
    SLUICE__TRY(sluice__json_real(at, "needle_share", true, 0, 1, &share, err));
    if (!json_is_string(bos) || strcmp(json_string_value(bos), "document") || !json_is_false(eos))
        return sluice__json_fail(at, "bos", err, "kind needle: expected \"document\", with append_eos false: a window is "
                                 "one document behind its start token");
    if (!json_is_true(json_object_get(arm->data, "document_mask")))
        return sluice__json_fail(at, "document_mask", err, "kind needle: expected true, or the last token of every window "
                                 "learns to predict the start token of the next");
    return SLUICE_OK;
}

sluice_status sluice__read_data(const sluice__arm *arm, const char *file, sluice_error *err) {
    static const char *const kinds[] = {"text", "backcopy", "needle", NULL};
    sluice__json at = sluice__json_view(arm->data, file);
    snprintf(at.path, sizeof at.path, "data");
    int kind;
    int64_t number;
    const char *triggers;
    SLUICE__TRY(sluice__json_choice(&at, "kind", true, kinds, &kind, err));
    if (kind == 0) return sluice__json_int(&at, "vocab_size", true, 258, 1000000, &number, err);
    if (kind == 2) return read_needle(arm, &at, err);
    SLUICE__TRY(sluice__json_int(&at, "symbols", true, 2, 255, &number, err));
    SLUICE__TRY(sluice__json_string(&at, "triggers", true, &triggers, err));
    SLUICE__TRY(sluice__json_int(&at, "tokens", true, 2, INT64_C(1) << 32, &number, err));
    SLUICE__TRY(sluice__json_int(&at, "document_tokens", false, 0, INT64_C(1) << 32, &number, err));
    return sluice__json_int(&at, "seed", true, 0, INT64_MAX, &number, err);
}

static sluice_status read_arms(sluice__recipe *r, const char *file, sluice_error *err) {
    json_t *arm;
    size_t i;
    json_array_foreach(json_object_get(r->root, "arms"), i, arm) {
        sluice__arm *a = &r->arms[r->num_arms++];
        a->name = json_string_value(json_object_get(arm, "name"));
        a->label = json_string_value(json_object_get(arm, "label"));
        a->config = sluice__laid_over(json_object_get(r->root, "model"), json_object_get(arm, "config"));
        a->data = sluice__laid_over(json_object_get(r->root, "data"), json_object_get(arm, "data"));
        a->training = sluice__laid_over(json_object_get(r->root, "training"), json_object_get(arm, "training"));
        if (!a->config || !a->data || !a->training) return sluice__no_memory(err, sizeof *a, "an arm");
        SLUICE__TRY(sluice__read_data(a, file, err));
        SLUICE__TRY(try_arm(r, a, file, err));
    }
    return SLUICE_OK;
}

/* The recipe at one of its scales, names of keys checked; owned by the caller. */
static sluice_status at_scale(json_t **out, json_t *source, const char *scale, const char *file, sluice_error *err) {
    char where[300];
    SLUICE__TRY(sluice__scale_apply(out, source, scale, file, err));
    snprintf(where, sizeof where, "%.200s (scale %.60s)", file, scale ? scale : SLUICE__SCALE_NORMAL);
    sluice__json given = sluice__json_view(*out, json_object_get(source, "scales") ? where : file);
    sluice_status st = check_root(&given, err);
    if (st == SLUICE_OK) return st;
    json_decref(*out);
    *out = NULL;
    return st;
}

/* A mistake in a scale that is not asked for is a mistake too. */
static sluice_status check_scales(json_t *source, const char *file, sluice_error *err) {
    const char *scale;
    json_t *value, *one;
    json_object_foreach(json_object_get(source, "scales"), scale, value) {
        SLUICE__TRY(at_scale(&one, source, scale, file, err));
        json_decref(one);
    }
    return SLUICE_OK;
}

static sluice_status load(sluice__recipe *r, const char *name, json_t *source, const sluice__recipe_changes *changes,
                          sluice_error *err) {
    json_t *scaled;
    if (!json_is_object(source)) return sluice__fail(err, SLUICE_ERR_CONFIG, "%s: a recipe is a JSON object", name);
    SLUICE__TRY(check_scales(source, name, err));
    SLUICE__TRY(at_scale(&scaled, source, changes->scale, name, err));
    r->root = complete(scaled);
    json_decref(scaled);
    if (!r->root) return sluice__no_memory(err, sizeof *r, "a recipe");
    SLUICE__TRY(sluice__match_apply(r->root, name, err));
    SLUICE__TRY(sluice__ladder_apply(r->root, name, err));
    SLUICE__TRY(sluice__recipe_change(r->root, changes, err));
    sluice__json root = sluice__json_view(r->root, name);
    r->name = json_string_value(json_object_get(r->root, "name"));
    r->title = json_string_value(json_object_get(r->root, "title"));
    r->scale = json_string_value(json_object_get(r->root, "scale"));
    SLUICE__TRY(read_seeds(r, &root, err));
    SLUICE__TRY(read_evaluation(&r->evaluation, &root, err));
    SLUICE__TRY(sluice__extension_read(&r->extension, &root, err));
    return read_arms(r, name, err);
}

sluice_status sluice__recipe_load(sluice__recipe *out, const char *name, const sluice__recipe_changes *changes,
                                  sluice_error *err) {
    *out = (sluice__recipe){0};
    json_t *source = NULL;
    SLUICE__TRY(parse_source(&source, name, err));
    sluice_status st = load(out, name, source, changes, err);
    json_decref(source);
    if (st != SLUICE_OK) sluice__recipe_free(out);
    return st;
}

void sluice__recipe_free(sluice__recipe *r) {
    for (int i = 0; i < r->num_arms; i++) {
        json_decref(r->arms[i].config);
        json_decref(r->arms[i].data);
        json_decref(r->arms[i].training);
    }
    json_decref(r->root);
    *r = (sluice__recipe){0};
}
