/* SPDX-License-Identifier: Apache-2.0 */
/* JSON through jansson with errors that say where: "config.json: text_config.hidden_size: found -1, expected 1..1048576".
 * A sluice__json is a view (object, file name for messages, dotted path inside it). */
#ifndef SLUICE_BASE_JSON_H
#define SLUICE_BASE_JSON_H
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/error.h"

typedef struct sluice__json {
    json_t *value;    /* borrowed; NULL = absent */
    const char *file; /* for messages; borrowed */
    char path[160];   /* dotted path from the root; "" = root */
} sluice__json;

/* Parses a file of at most 256 MiB. *root is owned by the caller (json_decref). Duplicate keys are refused. */
sluice_status sluice__json_load(json_t **root, const char *path, sluice_error *err);
sluice_status sluice__json_parse(json_t **root, const char *text, size_t size, const char *file, sluice_error *err);
/* Writes atomically, two-space indent, keys in insertion order, reals with 15 digits, or with 17 where 15 would
 * change one. */
sluice_status sluice__json_save(const json_t *root, const char *path, sluice_error *err);

sluice__json sluice__json_view(json_t *root, const char *file);
sluice__json sluice__json_get(const sluice__json *in, const char *key); /* .value NULL when absent or null */
sluice__json sluice__json_at(const sluice__json *in, size_t index);
bool sluice__json_has(const sluice__json *in, const char *key);          /* present and not null */

/* Field readers. With `required` an absent field is an error, otherwise *out keeps its value (so set the default
 * first). A field of the wrong type or outside [min, max] is always an error. Integers accept 3.0 but not 3.5. */
sluice_status sluice__json_int(const sluice__json *in, const char *key, bool required, int64_t min, int64_t max,
                               int64_t *out, sluice_error *err);
sluice_status sluice__json_real(const sluice__json *in, const char *key, bool required, double min, double max,
                                double *out, sluice_error *err);
sluice_status sluice__json_bool(const sluice__json *in, const char *key, bool required, bool *out, sluice_error *err);
/* *out points into the JSON value: valid as long as it lives. */
sluice_status sluice__json_string(const sluice__json *in, const char *key, bool required, const char **out,
                                  sluice_error *err);
/* A string out of a NULL-terminated list; *out becomes its index. */
sluice_status sluice__json_choice(const sluice__json *in, const char *key, bool required, const char *const *choices,
                                  int *out, sluice_error *err);
/* An error at this place: "<file>: <path>.<key>: <text>" (key may be NULL). */
sluice_status sluice__json_fail(const sluice__json *in, const char *key, sluice_error *err, const char *fmt, ...)
    SLUICE__PRINTF(4, 5);
#endif
