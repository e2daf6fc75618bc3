/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the cache. Keys are stored after norm and RoPE, values as attention reads them, fp32,
 * [layer][batch][capacity][kv_heads * head_dim]. A layer of linear attention has, for every sequence, the state of its
 * heads and the last inputs of its convolution instead; they stand behind the last token and cannot go back. */
#ifndef SLUICE_LAYERS_CACHE_H
#define SLUICE_LAYERS_CACHE_H
#include "layers/transformer.h"

typedef struct sluice__cache_layer {
    float *k, *v; /* [batch, capacity, kv_width] */
    int64_t kv_width;
    float *state, *conv;            /* [batch, state_size], [batch, conv_size] of linear attention */
    int64_t state_size, conv_size;  /* floats; [Hv, dk, dv], [taps - 1, channels] */
} sluice__cache_layer;

struct sluice__cache {
    const sluice_model *model;
    int batch, capacity, length;
    int state_length; /* tokens that the states of linear attention have seen; length when there are none */
    sluice__cache_layer *layers;
};
#endif
