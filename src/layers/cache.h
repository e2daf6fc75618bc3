/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the key/value cache. Keys are stored after norm and RoPE, values as attention reads them, fp32,
 * [layer][batch][capacity][kv_heads * head_dim]. */
#ifndef SLUICE_LAYERS_CACHE_H
#define SLUICE_LAYERS_CACHE_H
#include "layers/transformer.h"

typedef struct sluice__cache_layer {
    float *k, *v; /* [batch, capacity, kv_width] */
    int64_t kv_width;
} sluice__cache_layer;

struct sluice__cache {
    const sluice_model *model;
    int batch, capacity, length;
    sluice__cache_layer *layers;
};
#endif
