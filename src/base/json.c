/* SPDX-License-Identifier: Apache-2.0 */
/* JSON access. jansson parses; this file only adds the path to every complaint. */
#include "base/json.h"
#include "base/file.h"
#include "base/memory.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { JSON_LIMIT = 256 << 20 };

/* jansson does not say which key stands twice: it is the quoted text that ends where parsing stopped. */
static sluice_status duplicate_key(const char *text, const json_error_t *je, const char *file, sluice_error *err) {
    int end = je->position;
    while (end > 0 && text[end - 1] != '"') end--;
    int begin = end - 1;
    while (begin > 0 && text[begin - 1] != '"') begin--;
    if (end < 2 || begin <= 0) begin = end = 1;
    int length = end - 1 - begin;
    return sluice__fail(err, SLUICE_ERR_FORMAT, "%s: line %d: the key \"%.*s\" stands twice", file, je->line,
                        length < 300 ? length : 300, text + begin);
}

/* Parsing takes some tens of bytes for every value, which a short text can have many of. */
static bool too_many_values(const char *text, size_t size) {
    enum { LIMIT = 8 << 20 };
    size_t values = 0;
    for (size_t i = 0; i < size; i++) values += text[i] == ',' || text[i] == ':';
    return values > LIMIT;
}

sluice_status sluice__json_parse(json_t **root, const char *text, size_t size, const char *file, sluice_error *err) {
    json_error_t je;
    *root = NULL;
    if (too_many_values(text, size))
        return sluice__fail(err, SLUICE_ERR_FORMAT, "%s: more than 8 million JSON values", file);
    *root = json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &je);
    if (*root) return SLUICE_OK;
    if (json_error_code(&je) == json_error_duplicate_key && je.position > 0 && (size_t)je.position <= size)
        return duplicate_key(text, &je, file, err);
    return sluice__fail(err, SLUICE_ERR_FORMAT, "%s: not valid JSON: line %d, column %d: %s", file, je.line, je.column,
                        je.text);
}

sluice_status sluice__json_load(json_t **root, const char *path, sluice_error *err) {
    char *text;
    size_t size;
    *root = NULL;
    SLUICE__TRY(sluice__read_file(&text, &size, path, JSON_LIMIT, err));
    sluice_status st = sluice__json_parse(root, text, size, path, err);
    sluice__free(text);
    return st;
}

/* 15 digits when they say the same as 17: then 1e-6 is written as a person would. */
static size_t real_digits(const json_t *root) {
    size_t flags = JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15);
    char *text = json_dumps(root, flags);
    json_t *again = text ? json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL) : NULL;
    size_t digits = again && json_equal(root, again) ? 15 : 17;
    json_decref(again);
    free(text);
    return digits;
}

sluice_status sluice__json_save(const json_t *root, const char *path, sluice_error *err) {
    sluice__atomic_file w;
    SLUICE__TRY(sluice__atomic_open(&w, path, err));
    if (json_dumpf(root, w.stream, JSON_INDENT(2) | JSON_REAL_PRECISION(real_digits(root)) | JSON_ENCODE_ANY) != 0 ||
        fputc('\n', w.stream) == EOF) {
        sluice__atomic_abort(&w);
        return sluice__fail(err, SLUICE_ERR_IO, "%s: cannot write JSON (full disk, or a number that is not finite)", path);
    }
    return sluice__atomic_commit(&w, err);
}

sluice__json sluice__json_view(json_t *root, const char *file) {
    return (sluice__json){.value = root, .file = file};
}

static void child_path(char out[160], const sluice__json *in, const char *key) {
    snprintf(out, 160, "%.80s%s%.76s", in->path, *in->path && *key != '[' ? "." : "", key);
}

sluice__json sluice__json_get(const sluice__json *in, const char *key) {
    sluice__json out = {.file = in->file};
    json_t *v = in->value ? json_object_get(in->value, key) : NULL;
    out.value = v && !json_is_null(v) ? v : NULL;
    child_path(out.path, in, key);
    return out;
}

sluice__json sluice__json_at(const sluice__json *in, size_t index) {
    sluice__json out = {.file = in->file};
    char key[32];
    snprintf(key, sizeof key, "[%zu]", index);
    json_t *v = in->value ? json_array_get(in->value, index) : NULL;
    out.value = v && !json_is_null(v) ? v : NULL;
    child_path(out.path, in, key);
    return out;
}

bool sluice__json_has(const sluice__json *in, const char *key) {
    json_t *v = in->value ? json_object_get(in->value, key) : NULL;
    return v && !json_is_null(v);
}

sluice_status sluice__json_fail(const sluice__json *in, const char *key, sluice_error *err, const char *fmt, ...) {
    char where[160], text[768];
    if (key) child_path(where, in, key);
    else snprintf(where, sizeof where, "%s", in->path);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return sluice__fail(err, SLUICE_ERR_CONFIG, "%s: %s%s%s", in->file, where, *where ? ": " : "", text);
}

static const char *type_name(const json_t *v) {
    static const char *const names[] = {"an object", "an array", "a string", "an integer", "a number", "true", "false",
                                        "null"};
    return names[json_typeof(v)];
}

/* Absent: OK with *v NULL, or an error when required. */
static sluice_status field(const sluice__json *in, const char *key, bool required, json_t **v, sluice_error *err) {
    if (in->value && !json_is_object(in->value))
        return sluice__json_fail(in, NULL, err, "found %s, expected an object", type_name(in->value));
    *v = sluice__json_has(in, key) ? json_object_get(in->value, key) : NULL;
    return *v || !required ? SLUICE_OK : sluice__json_fail(in, key, err, "missing");
}

sluice_status sluice__json_int(const sluice__json *in, const char *key, bool required, int64_t min, int64_t max,
                               int64_t *out, sluice_error *err) {
    json_t *v = NULL;
    SLUICE__TRY(field(in, key, required, &v, err));
    if (!v) return SLUICE_OK;
    int64_t found;
    if (json_is_integer(v)) found = json_integer_value(v);
    else if (json_is_real(v) && fabs(json_real_value(v)) < 9e15 && floor(json_real_value(v)) == json_real_value(v))
        found = (int64_t)json_real_value(v);
    else return sluice__json_fail(in, key, err, "found %s, expected an integer", type_name(v));
    if (found < min || found > max)
        return sluice__json_fail(in, key, err, "found %lld, expected %lld..%lld", (long long)found, (long long)min,
                                 (long long)max);
    *out = found;
    return SLUICE_OK;
}

sluice_status sluice__json_real(const sluice__json *in, const char *key, bool required, double min, double max,
                                double *out, sluice_error *err) {
    json_t *v = NULL;
    SLUICE__TRY(field(in, key, required, &v, err));
    if (!v) return SLUICE_OK;
    if (!json_is_number(v)) return sluice__json_fail(in, key, err, "found %s, expected a number", type_name(v));
    double found = json_number_value(v);
    if (!(found >= min && found <= max))
        return sluice__json_fail(in, key, err, "found %g, expected %g..%g", found, min, max);
    *out = found;
    return SLUICE_OK;
}

sluice_status sluice__json_bool(const sluice__json *in, const char *key, bool required, bool *out, sluice_error *err) {
    json_t *v = NULL;
    SLUICE__TRY(field(in, key, required, &v, err));
    if (!v) return SLUICE_OK;
    if (!json_is_boolean(v)) return sluice__json_fail(in, key, err, "found %s, expected true or false", type_name(v));
    *out = json_is_true(v);
    return SLUICE_OK;
}

sluice_status sluice__json_string(const sluice__json *in, const char *key, bool required, const char **out,
                                  sluice_error *err) {
    json_t *v = NULL;
    SLUICE__TRY(field(in, key, required, &v, err));
    if (!v) return SLUICE_OK;
    if (!json_is_string(v)) return sluice__json_fail(in, key, err, "found %s, expected a string", type_name(v));
    if (strlen(json_string_value(v)) != json_string_length(v))
        return sluice__json_fail(in, key, err, "the string holds a NUL character");
    *out = json_string_value(v);
    return SLUICE_OK;
}

sluice_status sluice__json_choice(const sluice__json *in, const char *key, bool required, const char *const *choices,
                                  int *out, sluice_error *err) {
    const char *text = NULL;
    SLUICE__TRY(sluice__json_string(in, key, required, &text, err));
    if (!text) return SLUICE_OK;
    char list[256] = "";
    for (int i = 0; choices[i]; i++) {
        if (strcmp(choices[i], text) == 0) {
            *out = i;
            return SLUICE_OK;
        }
        size_t n = strlen(list);
        snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", choices[i]);
    }
    return sluice__json_fail(in, key, err, "found \"%.60s\", expected one of %s", text, list);
}
