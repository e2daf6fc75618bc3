/* SPDX-License-Identifier: Apache-2.0 */
/* Writing GGUF files, version 3. Metadata are collected first, then tensors are announced; their values are asked for while
 * the file is written, a few rows at a time, and encoded on the way. */
#ifndef SLUICE_MODEL_GGUF_WRITE_H
#define SLUICE_MODEL_GGUF_WRITE_H
#include "base/strbuf.h"
#include "model/gguf.h"

typedef struct sluice__gguf_new_tensor {
    char *name;
    sluice__dtype dtype; /* F32, F16, BF16 or one of kernels/quant.h */
    int ndim;
    int64_t shape[SLUICE__GGUF_MAX_DIMS]; /* row-major */
    int64_t count;
    const void *raw; /* its bytes, where they need not be made; NULL */
} sluice__gguf_new_tensor;

typedef struct sluice__gguf_writer {
    sluice__strbuf metadata; /* its failure stands for any lack of memory so far */
    uint64_t entries;
    sluice__gguf_new_tensor *tensors;
    int num_tensors;
} sluice__gguf_writer;

void sluice__gguf_put_u32(sluice__gguf_writer *w, const char *key, uint32_t value);
void sluice__gguf_put_f32(sluice__gguf_writer *w, const char *key, double value);
void sluice__gguf_put_bool(sluice__gguf_writer *w, const char *key, bool value);
void sluice__gguf_put_string(sluice__gguf_writer *w, const char *key, const char *text, size_t size);
/* An array; its elements follow as little-endian bytes (sluice__gguf_put_element, or _text for strings). */
void sluice__gguf_put_array(sluice__gguf_writer *w, const char *key, sluice__gguf_type of, uint64_t count);
void sluice__gguf_put_text(sluice__gguf_writer *w, const char *text, size_t size);
void sluice__gguf_put_element(sluice__gguf_writer *w, uint32_t value, int bytes);
/* An entry of another file as it is. */
void sluice__gguf_put_copy(sluice__gguf_writer *w, sluice__gguf_text key, const sluice__gguf_value *value);

/* Index of the new tensor; -1 when there is no memory. The name is copied. */
int sluice__gguf_add_tensor(sluice__gguf_writer *w, const char *name, sluice__dtype dtype, int ndim, const int64_t *shape);
void sluice__gguf_writer_free(sluice__gguf_writer *w);

/* values [rows * length of a row] = rows first..first+rows-1 of a tensor, seen as a matrix of rows of its last dimension. */
typedef sluice_status (*sluice__gguf_rows_fn)(void *user, int tensor, int64_t first, int64_t rows, float *values,
                                              sluice_error *err);
/* Sees data [count], in the tensor's type, as a part of it goes into the file; `last` with the last part. */
typedef void (*sluice__gguf_wrote_fn)(void *user, int tensor, const void *data, int64_t count, bool last);
/* The file appears whole or not at all. */
sluice_status sluice__gguf_write(sluice__gguf_writer *w, const char *path, sluice__gguf_rows_fn rows, sluice__gguf_wrote_fn wrote,
                                 void *user, sluice_error *err);

/* out = values in a type, `count` whole blocks; threads share the work. F32, F16, BF16 and blocks. */
void sluice__encode(void *out, sluice__dtype dtype, const float *values, int64_t count);
#endif
