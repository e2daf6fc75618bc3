/* SPDX-License-Identifier: Apache-2.0 */
/* The neutral layer of GGUF files: llama.cpp's graphs of the hybrid architectures, the only ones with a gate on the attention
 * output, want at least one recurrent layer. A model whose layers are all softmax attention gets one behind its last: linear
 * attention and an MLP whose output projections are zero, so that the residual stream passes unchanged. The metadata key
 * names the block, by which readers here leave it out again. */
#ifndef SLUICE_MODEL_GGUF_NEUTRAL_H
#define SLUICE_MODEL_GGUF_NEUTRAL_H
#include "model/gguf.h"
#include "model/tensors.h"

#define SLUICE__GGUF_NEUTRAL_KEY "sluice.neutral_layer"

/* Whether files of the architecture need one for this model. */
bool sluice__gguf_needs_neutral(const char *arch, const sluice_config *config);
/* The configuration with the layer behind its last. Its layers alone are owned: sluice__free(out->layers). */
sluice_status sluice__gguf_add_neutral(sluice_config *out, const sluice_config *config, sluice_error *err);

typedef struct sluice__neutral_tensor {
    char name[96];
    int ndim;
    int64_t shape[3];
    float fill;        /* every element */
    sluice__slot slot; /* whose type it shares unless it stays F32 */
} sluice__neutral_tensor;
/* The tensor that a slot stands for in the last layer of `config`; false when there is none, or it is part of another's. */
bool sluice__gguf_neutral_tensor(sluice__neutral_tensor *out, const sluice_config *config, const char *arch, sluice__slot slot);

/* The block of a file that is neutral, -1 when none is. A file that only says so is refused. */
sluice_status sluice__gguf_find_neutral(int *block, const sluice__gguf *g, sluice_error *err);
/* Whether a tensor belongs to that block (-1: to none). */
bool sluice__gguf_is_neutral(const char *tensor, int block);
/* Whether a tensor of a file may have another type than F32: a matrix that is no router and none of the small ones of linear
 * attention, and in the neutral block only the MLP. Biases of experts are vectors whatever their shape. */
bool sluice__gguf_is_typed(const char *tensor, int ndim, int neutral_block);
#endif
