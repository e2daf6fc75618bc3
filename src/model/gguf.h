/* SPDX-License-Identifier: Apache-2.0 */
/* The container of GGUF files, versions 2 and 3: metadata, a table of tensors, their data. Everything is read through a
 * map and checked when the file is opened: counts against the bytes that are left, names, types, alignment, extents. What
 * the metadata means is not this file's business (gguf_config.c, gguf_tokenizer.c, gguf_names.c). */
#ifndef SLUICE_MODEL_GGUF_H
#define SLUICE_MODEL_GGUF_H
#include <stddef.h>
#include "base/error.h"
#include "model/dtype.h"

enum { SLUICE__GGUF_MAX_DIMS = 4 };

/* Numbers of the format. */
typedef enum sluice__gguf_type {
    SLUICE__GGUF_U8,
    SLUICE__GGUF_I8,
    SLUICE__GGUF_U16,
    SLUICE__GGUF_I16,
    SLUICE__GGUF_U32,
    SLUICE__GGUF_I32,
    SLUICE__GGUF_F32,
    SLUICE__GGUF_BOOL,
    SLUICE__GGUF_STRING,
    SLUICE__GGUF_ARRAY,
    SLUICE__GGUF_U64,
    SLUICE__GGUF_I64,
    SLUICE__GGUF_F64,
    SLUICE__GGUF_TYPES
} sluice__gguf_type;

typedef struct sluice__gguf_text {
    const char *data; /* in the map, not NUL-terminated */
    size_t size;
} sluice__gguf_text;

/* A metadata entry, or an element of an array. */
typedef struct sluice__gguf_value {
    sluice__gguf_type type;
    sluice__gguf_type of;      /* of the elements of an array */
    uint64_t count;            /* elements of an array, otherwise 1 */
    const unsigned char *data; /* what stands behind type and count; in the map */
} sluice__gguf_value;

typedef struct sluice__gguf_tensor {
    char *name;
    sluice__dtype dtype;
    int ndim;
    int64_t shape[SLUICE__GGUF_MAX_DIMS]; /* row-major: the last is the length of a row */
    int64_t count, bytes;
    const unsigned char *data;
} sluice__gguf_tensor;

typedef struct sluice__gguf sluice__gguf;

sluice_status sluice__gguf_open(sluice__gguf **out, const char *path, sluice_error *err);
void sluice__gguf_close(sluice__gguf *g);
const char *sluice__gguf_path(const sluice__gguf *g);
int sluice__gguf_version(const sluice__gguf *g);
int sluice__gguf_num_tensors(const sluice__gguf *g);
const sluice__gguf_tensor *sluice__gguf_tensor_at(const sluice__gguf *g, int index); /* in the order of the file */
const sluice__gguf_tensor *sluice__gguf_find_tensor(const sluice__gguf *g, const char *name); /* or NULL */
/* The data of the tensor will not be read again soon. */
void sluice__gguf_done(const sluice__gguf *g, const sluice__gguf_tensor *t);

int sluice__gguf_num_entries(const sluice__gguf *g);
sluice__gguf_text sluice__gguf_key_at(const sluice__gguf *g, int index); /* sorted */
const sluice__gguf_value *sluice__gguf_value_at(const sluice__gguf *g, int index);
const sluice__gguf_value *sluice__gguf_find(const sluice__gguf *g, const char *key); /* or NULL */

/* Scalars. False when the value is of another kind or does not fit. Integers of any width count as integers, floats of
 * both widths and integers as reals. */
bool sluice__gguf_integer(const sluice__gguf_value *v, int64_t *out);
bool sluice__gguf_real(const sluice__gguf_value *v, double *out);
bool sluice__gguf_bool(const sluice__gguf_value *v, bool *out);
bool sluice__gguf_string(const sluice__gguf_value *v, sluice__gguf_text *out);
/* Bytes at data. */
size_t sluice__gguf_value_bytes(const sluice__gguf_value *v);
/* Walks over an array: start with *at = 0 and *cursor = NULL; false behind the last element. */
bool sluice__gguf_next(const sluice__gguf_value *array, uint64_t *at, const unsigned char **cursor,
                       sluice__gguf_value *out);
#endif
