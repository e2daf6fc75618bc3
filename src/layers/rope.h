/* SPDX-License-Identifier: Apache-2.0 */
/* Cosines and sines for the layers of one workspace. Layers with the same rotary settings share a table; a table
 * grows by doubling as positions come, so that decoding one token at a time costs nothing. Types whose frequencies
 * depend on the length of the sequence (dynamic, longrope) are made again when that dependence shows, as
 * transformers does. */
#ifndef SLUICE_LAYERS_ROPE_H
#define SLUICE_LAYERS_ROPE_H
#include "model/weights.h"

typedef struct sluice__rope_table {
    const sluice_rope_spec *spec; /* of the first layer that uses it; NULL = no rotation */
    float *cos, *sin;             /* [count, rotary_dim/2] */
    int64_t count, length_class;  /* positions held; what they depend on (see rope.c) */
} sluice__rope_table;

typedef struct sluice__rope_cache {
    sluice__rope_table *tables; /* [num_tables] */
    int num_tables;
    int *table_of_layer; /* [num_hidden_layers] */
} sluice__rope_cache;

/* tables and table_of_layer have room for num_hidden_layers entries. */
void sluice__rope_cache_init(sluice__rope_cache *cache, const sluice_config *config);
/* Bytes of the tables of this configuration for positions 0..positions-1. */
int64_t sluice__rope_cache_bytes(const sluice_config *config, int64_t positions);
void sluice__rope_cache_free(sluice__rope_cache *cache);
/* Makes every table good for positions 0..max_position. */
sluice_status sluice__rope_cache_reserve(sluice__rope_cache *cache, int64_t max_position, sluice_error *err);
#endif
