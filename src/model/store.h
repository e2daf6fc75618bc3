/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors of a model directory, whatever files hold them: model.safetensors, its shards with an index,
 * pytorch_model.bin, its shards, the weights.safetensors of a bare test case, or a GGUF file. Nothing is read but headers
 * until a tensor is asked for. */
#ifndef SLUICE_MODEL_STORE_H
#define SLUICE_MODEL_STORE_H
#include "model/gguf.h"
#include "model/torch_bin.h"

typedef struct sluice__store sluice__store;

typedef struct sluice__store_tensor {
    const char *name, *file; /* file: path, for messages */
    sluice__dtype dtype;
    int ndim;
    int64_t shape[SLUICE__TENSOR_MAX_DIMS];
    int64_t count;
    int source, entry; /* which file, and which tensor in it */
} sluice__store_tensor;

/* path: a directory, or one weight file. */
sluice_status sluice__store_open(sluice__store **out, const char *path, sluice_error *err);
void sluice__store_close(sluice__store *store);
int sluice__store_count(const sluice__store *store);
const sluice__store_tensor *sluice__store_at(const sluice__store *store, int index);
int sluice__store_find(const sluice__store *store, const char *name); /* index or -1 */

/* The GGUF file that the store is made of, or NULL. store may be NULL. */
const sluice__gguf *sluice__store_gguf(const sluice__store *store);
/* Whether several threads may read (different) tensors at once. */
bool sluice__store_is_mapped(const sluice__store *store);
/* The bytes of a tensor where the file is mapped, as long as the store is open; otherwise NULL. Not aligned. */
const void *sluice__store_data(const sluice__store *store, int index);
/* Calls on_row for every row of a view that lies inside the tensor, with the values as fp32. The tensor must have a
 * weight type. A status other than OK from on_row ends the reading with it. */
sluice_status sluice__store_read(sluice__store *store, int index, const sluice__view *view, sluice__row_fn on_row,
                                 void *user, sluice_error *err);
/* Whether rows of the tensor can be had as blocks of kernels/quant.h, and of which type. */
bool sluice__store_blocks(const sluice__store *store, int index, sluice__quant *quant);
/* Calls on_row for every row of a view of whole rows of such a tensor, with its blocks. */
typedef void (*sluice__blocks_fn)(void *user, int64_t row, const void *blocks);
sluice_status sluice__store_read_blocks(sluice__store *store, int index, const sluice__view *view,
                                        sluice__blocks_fn on_row, void *user, sluice_error *err);
#endif
