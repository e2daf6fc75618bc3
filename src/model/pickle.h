/* SPDX-License-Identifier: Apache-2.0 */
/* An interpreter for the pickles of PyTorch checkpoints that executes nothing: it builds plain values, knows
 * the few globals that dictionaries of tensors need, and refuses every other global and opcode by name. */
#ifndef SLUICE_MODEL_PICKLE_H
#define SLUICE_MODEL_PICKLE_H
#include <stddef.h>
#include "base/error.h"
#include "model/dtype.h"
#include "model/safetensors.h"

typedef enum sluice__pickle_kind {
    SLUICE__PICKLE_NONE,
    SLUICE__PICKLE_BOOL,
    SLUICE__PICKLE_INT, /* 64 bits; longer integers are kept as their bytes */
    SLUICE__PICKLE_LONG,
    SLUICE__PICKLE_FLOAT,
    SLUICE__PICKLE_TEXT,
    SLUICE__PICKLE_TUPLE,
    SLUICE__PICKLE_LIST,
    SLUICE__PICKLE_DICT, /* OrderedDict as well */
    SLUICE__PICKLE_GLOBAL,
    SLUICE__PICKLE_STORAGE,
    SLUICE__PICKLE_TENSOR,
    SLUICE__PICKLE_MARK
} sluice__pickle_kind;

/* Elements of a tensor: those of storage `storage` from `offset` on, by strides. Checked to lie inside the
 * storage. */
typedef struct sluice__pickle_tensor {
    int storage; /* index of a sluice__pickle_storage */
    int ndim;
    int64_t shape[SLUICE__TENSOR_MAX_DIMS], stride[SLUICE__TENSOR_MAX_DIMS];
    int64_t offset, count;
} sluice__pickle_tensor;

typedef struct sluice__pickle_storage {
    const char *key; /* not terminated */
    int key_length;
    sluice__dtype dtype;
    int64_t count; /* elements */
} sluice__pickle_storage;

typedef struct sluice__pickle sluice__pickle;
typedef int sluice__pickle_value; /* index of a value; -1 = none */

/* One object may run several pickles, whose values stay. `file` is for messages and borrowed, as are the bytes
 * of all pickles: texts and keys point into them. */
sluice_status sluice__pickle_new(sluice__pickle **out, const char *file, sluice_error *err);
void sluice__pickle_free(sluice__pickle *p);
/* Runs one pickle from the start of data; *used is its length, *value what it holds. */
sluice_status sluice__pickle_run(sluice__pickle *p, const unsigned char *data, size_t size, size_t *used,
                                 sluice__pickle_value *value, sluice_error *err);

sluice__pickle_kind sluice__pickle_kind_of(const sluice__pickle *p, sluice__pickle_value v);
int64_t sluice__pickle_int(const sluice__pickle *p, sluice__pickle_value v);
/* Text, or the little-endian bytes of a LONG. */
const char *sluice__pickle_text(const sluice__pickle *p, sluice__pickle_value v, int *length);
const sluice__pickle_tensor *sluice__pickle_tensor_of(const sluice__pickle *p, sluice__pickle_value v);
const sluice__pickle_storage *sluice__pickle_storage_of(const sluice__pickle *p, int storage);
int sluice__pickle_num_storages(const sluice__pickle *p);
/* Walks the items of a tuple, list or dictionary: *at starts at 0 before the first call. key may be NULL. False
 * at the end. */
bool sluice__pickle_next(const sluice__pickle *p, sluice__pickle_value container, int *at,
                         sluice__pickle_value *key, sluice__pickle_value *value);
#endif
