/* SPDX-License-Identifier: Apache-2.0 */
/* The safetensors format: eight bytes of header length, a JSON header, raw tensors. Files are read through a
 * map; every length, offset, shape and type of the header is checked before it is used. */
#ifndef SLUICE_MODEL_SAFETENSORS_H
#define SLUICE_MODEL_SAFETENSORS_H
#include <stddef.h>
#include "model/dtype.h"
#include "base/error.h"

enum { SLUICE__TENSOR_MAX_DIMS = 8 };

/* A tensor in a file. Dense and row-major. Names and data belong to the file object. */
typedef struct sluice__st_tensor {
    const char *name;
    sluice__dtype dtype;
    int ndim;
    int64_t shape[SLUICE__TENSOR_MAX_DIMS];
    int64_t count;    /* elements */
    const void *data; /* not aligned */
} sluice__st_tensor;

typedef struct sluice__safetensors sluice__safetensors;

/* Opens and checks a file. Accepted headers describe tensors of known types that cover the data without holes
 * or overlap. */
sluice_status sluice__safetensors_open(sluice__safetensors **out, const char *path, sluice_error *err);
void sluice__safetensors_close(sluice__safetensors *file);
int sluice__safetensors_count(const sluice__safetensors *file);
/* Tensors stand in the order of their data. */
const sluice__st_tensor *sluice__safetensors_at(const sluice__safetensors *file, int index);
const sluice__st_tensor *sluice__safetensors_find(const sluice__safetensors *file,
                                                  const char *name); /* or NULL */
/* These elements will not be read again soon: their pages need not stay in memory. */
void sluice__safetensors_done(const sluice__safetensors *file, const sluice__st_tensor *tensor, int64_t first,
                              int64_t count);
const char *sluice__safetensors_path(const sluice__safetensors *file);
/* Text of a __metadata__ entry, or NULL. */
const char *sluice__safetensors_metadata(const sluice__safetensors *file, const char *key);

/* Whether these bytes are what a clone without git-lfs leaves in place of a large file. */
bool sluice__is_lfs_pointer(const void *data, size_t size);

/* Writes tensors (sorted by name, data aligned to 64 bytes) to a new file that replaces path in one step.
 * metadata: key, value, key, value, ..., NULL; {"format": "pt"} is always added. ndim, shape, dtype, data and
 * name are used. */
sluice_status sluice__safetensors_write(const char *path, const sluice__st_tensor *tensors, int count,
                                        const char *const *metadata, sluice_error *err);
/* The same for tensors whose bytes are made when they are written: produce returns them, valid until its next
 * call, or NULL after filling err. `data` of the tensors is not used. */
typedef const void *(*sluice__produce_fn)(void *user, const sluice__st_tensor *tensor, sluice_error *err);
sluice_status sluice__safetensors_write_made(const char *path, const sluice__st_tensor *tensors, int count,
                                             const char *const *metadata, sluice__produce_fn produce,
                                             void *user, sluice_error *err);
/* A dense fp32 / int32 tensor for the writer. */
sluice__st_tensor sluice__st_f32(const char *name, const float *data, int ndim, const int64_t *shape);
sluice__st_tensor sluice__st_i32(const char *name, const int32_t *data, int ndim, const int64_t *shape);
#endif
