/* SPDX-License-Identifier: Apache-2.0 */
/* pytorch_model.bin: the zip container of PyTorch 1.6 and later, and the format before it. */
#ifndef SLUICE_MODEL_TORCH_BIN_H
#define SLUICE_MODEL_TORCH_BIN_H
#include "model/safetensors.h"
#include "model/view.h"

typedef struct sluice__torch_bin sluice__torch_bin;

/* A tensor of the state dictionary. Elements lie in a storage that it may share with others, by strides. */
typedef struct sluice__bin_tensor {
    char *name;
    sluice__dtype dtype;
    int ndim;
    int64_t shape[SLUICE__TENSOR_MAX_DIMS];
    int64_t count;
    int value; /* inside */
} sluice__bin_tensor;

sluice_status sluice__torch_bin_open(sluice__torch_bin **out, const char *path, sluice_error *err);
void sluice__torch_bin_close(sluice__torch_bin *bin);
int sluice__torch_bin_count(const sluice__torch_bin *bin);
const sluice__bin_tensor *sluice__torch_bin_at(const sluice__torch_bin *bin, int index);
const char *sluice__torch_bin_path(const sluice__torch_bin *bin);

/* Rows of a view of the tensor, as in sluice__store_read. The dtype must be a weight type. */
typedef sluice_status (*sluice__row_fn)(void *user, int64_t row, const float *values, sluice_error *err);
sluice_status sluice__torch_bin_read(sluice__torch_bin *bin, int index, const sluice__view *view,
                                     sluice__row_fn on_row, void *user, sluice_error *err);
#endif
