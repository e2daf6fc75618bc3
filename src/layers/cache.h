/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the cache. Keys are stored after norm and RoPE, values as attention reads them, in the cache's type,
 * [layer][batch][rows][kv_heads * head_dim]. A layer of linear attention has, for every sequence, the state of its
 * heads and the last inputs of its convolution instead; they stand behind the last token and cannot go back. A layer with a
 * sliding window keeps what the window still needs, some tokens more to go back to, and room for what comes: when that is
 * full, the rows in front are dropped and the others move down, so that kernels find them in one piece. */
#ifndef SLUICE_LAYERS_CACHE_H
#define SLUICE_LAYERS_CACHE_H
#include "kernels/kv.h"
#include "layers/transformer.h"

typedef struct sluice__cache_layer {
    char *k, *v;     /* [batch, rows, row_bytes], of tokens start and later */
    int rows, start;  /* rows is the capacity, and start 0, where nothing is dropped */
    int window;       /* keys that a query sees, in a layer that may drop others; else 0 */
    int64_t kv_width; /* values of a token: kv_heads * head_dim */
    size_t row_bytes; /* of them, in the type of the cache; 0 with linear attention */
    float *state, *conv;            /* [batch, state_size], [batch, conv_size] of linear attention */
    int64_t state_size, conv_size;  /* floats; [Hv, dk, dv], [taps - 1, channels] */
} sluice__cache_layer;

struct sluice__cache {
    const sluice_model *model;
    sluice_kv_dtype dtype;
    int batch, capacity, length;
    int chunk;        /* the most tokens of a pass; 0: layers with a window keep everything */
    int state_length; /* tokens that the states of linear attention have seen; length when there are none */
    sluice__cache_layer *layers;
};
#endif
