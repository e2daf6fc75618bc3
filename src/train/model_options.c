/* SPDX-License-Identifier: Apache-2.0 */
/* Model options: the table behind sluice/model_options.def, options as text into a flat JSON object, files of
 * options. */
#include "base/memory.h"
#include "train/options.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef struct option_row {
    sluice_option public;
    const char *def;
} option_row;

static const option_row rows[] = {
#define OPTION(kind, name, def, choices, unit, help) {{#name, SLUICE_OPTION_##kind, choices, unit, help}, def},
#include "sluice/model_options.def"
#undef OPTION
};
enum { NUM_ROWS = sizeof rows / sizeof *rows };

int sluice_model_num_options(void) {
    return NUM_ROWS;
}

sluice_option sluice_model_option(int index) {
    return rows[index].public;
}

const char *sluice_model_option_default(int index) {
    return rows[index].def;
}

void sluice_train_free_text(char *text) {
    sluice__free(text);
}

static const option_row *find(const char *key) {
    while (*key == '-') key++;
    for (int i = 0; i < NUM_ROWS; i++) {
        const char *name = rows[i].public.name, *k = key;
        while (*name && *k && *name == (*k == '-' ? '_' : *k)) name++, k++;
        if (!*name && !*k) return &rows[i];
    }
    return NULL;
}

/* Text to a JSON value of the option's kind; NULL when it is none. */
static json_t *value_of(const option_row *r, const char *text) {
    char *end;
    if (!*text) return NULL;
    switch (r->public.kind) {
    case SLUICE_OPTION_INT: {
        errno = 0;
        long long v = strtoll(text, &end, 10);
        return *end || errno ? NULL : json_integer(v);
    }
    case SLUICE_OPTION_REAL: {
        double v = strtod(text, &end);
        return *end || !isfinite(v) ? NULL : json_real(v);
    }
    case SLUICE_OPTION_BOOL:
        if (!strcasecmp(text, "true") || !strcmp(text, "1")) return json_true();
        return !strcasecmp(text, "false") || !strcmp(text, "0") ? json_false() : NULL;
    default: return json_string(text);
    }
}

json_t *sluice__model_option_default_json(int index) {
    return value_of(&rows[index], rows[index].def);
}

static const char *expected(const option_row *r) {
    switch (r->public.kind) {
    case SLUICE_OPTION_INT: return "an integer";
    case SLUICE_OPTION_REAL: return "a number";
    case SLUICE_OPTION_BOOL: return "true or false";
    default: return r->public.choices;
    }
}

/* "|word|" is in "|a|b|c|". */
static bool is_choice(const char *choices, const char *word) {
    size_t n = strlen(word);
    for (const char *c = choices; c; c = strchr(c, '|') ? strchr(c, '|') + 1 : NULL)
        if (!strncmp(c, word, n) && (c[n] == '|' || c[n] == '\0')) return true;
    return false;
}

sluice_status sluice__model_options_object(json_t **out, const char *text, sluice_error *err) {
    SLUICE__TRY(sluice__json_parse(out, text ? text : "{}", strlen(text ? text : "{}"), "model options", err));
    if (json_is_object(*out)) return SLUICE_OK;
    json_decref(*out);
    return sluice__fail(err, SLUICE_ERR_CONFIG, "model options: expected a JSON object");
}

sluice_status sluice__model_options_text(char **text, const json_t *object, sluice_error *err) {
    char *made = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(17));
    char *copy = made ? sluice__strdup(made) : NULL;
    free(made);
    if (!copy) return sluice__no_memory(err, 4096, "model options");
    sluice__free(*text);
    *text = copy;
    return SLUICE_OK;
}

sluice_status sluice_train_set_model_option(char **model_options, const char *key, const char *value,
                                            sluice_error *err) {
    const option_row *r = find(key);
    if (!r) return sluice__fail(err, SLUICE_ERR_ARGUMENT, "%.60s: no such model option", key);
    json_t *v = value_of(r, value), *object;
    if (!v || (r->public.choices && !is_choice(r->public.choices, value))) {
        json_decref(v);
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "%s: found \"%.60s\", expected %s", key, value, expected(r));
    }
    sluice_status st = sluice__model_options_object(&object, *model_options, err);
    if (st != SLUICE_OK) {
        json_decref(v);
        return st;
    }
    json_object_set_new(object, r->public.name, v);
    st = sluice__model_options_text(model_options, object, err);
    json_decref(object);
    return st;
}

/* ---- reading a file of options ---- */

static bool informational(const char *key) {
    static const char *const keys[] = {"format", "sluice_version", "parameters", "dataset", "tokenizer", "machine"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!strcmp(keys[i], key)) return true;
    return false;
}

static sluice_status take(sluice_train_params *p, json_t *model, bool own_run, const char *path, const char *key,
                          json_t *value, sluice_error *err) {
    int index = sluice__train_option_find(key);
    if (index >= 0) return sluice__train_option_set_json(p, index, path, value, err);
    if (find(key)) return json_object_set(model, find(key)->public.name, value), SLUICE_OK;
    if (!strcmp(key, "model_config") && json_is_object(value)) return json_object_update(model, value), SLUICE_OK;
    if (own_run && informational(key)) return SLUICE_OK;
    return sluice__fail(err, SLUICE_ERR_CONFIG, "%s: %.60s: neither a training nor a model option", path, key);
}

sluice_status sluice_train_read_options(sluice_train_params *p, char **model_options, const char *path,
                                        sluice_error *err) {
    json_t *root, *model, *value;
    const char *key;
    SLUICE__TRY(sluice__json_load(&root, path, err));
    sluice_status st = json_is_object(root)
                           ? sluice__model_options_object(&model, *model_options, err)
                           : sluice__fail(err, SLUICE_ERR_CONFIG, "%s: expected a JSON object", path);
    if (st != SLUICE_OK) {
        json_decref(root);
        return st;
    }
    const char *format = json_string_value(json_object_get(root, "format"));
    bool own_run = format && !strcmp(format, "sluice-run-1");
    json_object_foreach(root, key, value) {
        st = take(p, model, own_run, path, key, value, err);
        if (st != SLUICE_OK) break;
    }
    if (st == SLUICE_OK) st = sluice__model_options_text(model_options, model, err);
    json_decref(model);
    json_decref(root);
    return st;
}
