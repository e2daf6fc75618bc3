/* SPDX-License-Identifier: Apache-2.0 */
/* The cache: one allocation, counted and placed by the same functions. */
#include "layers/cache.h"
#include "base/memory.h"
#include <string.h>

static const size_t LIMIT = SIZE_MAX / 4;

static size_t add(size_t a, size_t b) { return a > LIMIT || b > LIMIT ? LIMIT + 1 : a + b; }

/* Bytes in front of the keys and values. */
static size_t header_bytes(const sluice_config *config) {
    size_t bytes = sizeof(sluice__cache) + (size_t)config->num_hidden_layers * sizeof(sluice__cache_layer);
    return (bytes + 63) / 64 * 64;
}

/* Of the keys of one token. */
static size_t row_bytes(const sluice_config *config, int layer, sluice_kv_dtype dtype) {
    const sluice_layer_spec *spec = &config->layers[layer];
    if (sluice_layer_is_linear(spec)) return 0;
    return sluice__kv_bytes(dtype, (int64_t)spec->num_key_value_heads * spec->head_dim);
}

static size_t tensor_bytes(const sluice_config *config, int layer, int batch, int capacity, sluice_kv_dtype dtype) {
    size_t row = row_bytes(config, layer, dtype);
    size_t bytes = sluice__mul_size(sluice__mul_size((size_t)batch, (size_t)capacity), row);
    return bytes > LIMIT ? LIMIT + 1 : (bytes + 63) / 64 * 64;
}

/* Floats of one sequence. */
static int64_t state_size(const sluice_delta_spec *d) {
    return (int64_t)d->num_value_heads * d->key_head_dim * d->value_head_dim;
}

static int64_t conv_size(const sluice_delta_spec *d) {
    int64_t channels = 2 * (int64_t)d->num_key_heads * d->key_head_dim + (int64_t)d->num_value_heads * d->value_head_dim;
    return d->num_value_heads ? channels * (d->conv_kernel - 1) : 0;
}

static size_t floats_bytes(int batch, int64_t floats) {
    size_t bytes = sluice__mul_size((size_t)batch, (size_t)floats * sizeof(float));
    return bytes > LIMIT ? LIMIT + 1 : (bytes + 63) / 64 * 64;
}

static size_t all_bytes(const sluice_config *config, int batch, int capacity, sluice_kv_dtype dtype) {
    size_t bytes = header_bytes(config);
    for (int i = 0; i < config->num_hidden_layers; i++) {
        size_t one = tensor_bytes(config, i, batch, capacity, dtype);
        bytes = add(bytes, add(one, one));
        const sluice_delta_spec *d = &config->layers[i].delta;
        bytes = add(bytes, add(floats_bytes(batch, state_size(d)), floats_bytes(batch, conv_size(d))));
    }
    return bytes;
}

int64_t sluice__cache_bytes(const sluice_config *config, int batch, int capacity) {
    return sluice__cache_bytes_typed(config, batch, capacity, SLUICE_KV_F32);
}

int64_t sluice__cache_bytes_typed(const sluice_config *config, int batch, int capacity, sluice_kv_dtype dtype) {
    return (int64_t)all_bytes(config, batch, capacity, dtype);
}

/* Whether every head falls into whole blocks of the type. */
static sluice_status check_dtype(const sluice_config *config, sluice_kv_dtype dtype, sluice_error *err) {
    int multiple = sluice__kv_multiple(dtype);
    for (int i = 0; i < config->num_hidden_layers; i++)
        if (!sluice_layer_is_linear(&config->layers[i]) && config->layers[i].head_dim % multiple)
            return sluice__fail(err, SLUICE_ERR_UNSUPPORTED,
                                "key/value cache: layer %d has head_dim %d, q8_0 needs a multiple of %d; take f16", i,
                                config->layers[i].head_dim, multiple);
    return SLUICE_OK;
}

sluice_status sluice__cache_new(sluice__cache **out, const sluice_model *model, int batch, int capacity,
                                sluice_error *err) {
    return sluice__cache_new_typed(out, model, batch, capacity, SLUICE_KV_F32, err);
}

sluice_status sluice__cache_new_typed(sluice__cache **out, const sluice_model *model, int batch, int capacity,
                                      sluice_kv_dtype dtype, sluice_error *err) {
    *out = NULL;
    if (batch < 1 || capacity < 1)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "key/value cache of batch %d and capacity %d: both have to be at least 1", batch,
                            capacity);
    const sluice_config *config = sluice_model_config(model);
    SLUICE__TRY(check_dtype(config, dtype, err));
    size_t bytes = all_bytes(config, batch, capacity, dtype);
    char *base = bytes > LIMIT ? NULL : sluice__calloc(1, bytes, SLUICE__MEM_CACHE);
    if (!base) return sluice__no_memory(err, bytes, "the key/value cache");
    sluice__cache *cache = (void *)base;
    *cache = (sluice__cache){.model = model, .dtype = dtype, .batch = batch, .capacity = capacity, .layers = (void *)(cache + 1)};
    base += header_bytes(config);
    for (int i = 0; i < config->num_hidden_layers; i++) {
        size_t one = tensor_bytes(config, i, batch, capacity, dtype);
        int64_t width = (int64_t)config->layers[i].num_key_value_heads * config->layers[i].head_dim;
        const sluice_delta_spec *d = &config->layers[i].delta;
        sluice__cache_layer *l = &cache->layers[i];
        *l = (sluice__cache_layer){.state_size = state_size(d), .conv_size = conv_size(d)};
        if (one) {
            l->k = base;
            l->v = base + one;
            l->kv_width = width;
            l->row_bytes = row_bytes(config, i, dtype);
        }
        base += 2 * one;
        if (l->state_size) l->state = (void *)base;
        base += floats_bytes(batch, l->state_size);
        if (l->conv_size) l->conv = (void *)base;
        base += floats_bytes(batch, l->conv_size);
    }
    *out = cache;
    return SLUICE_OK;
}

void sluice__cache_copy(sluice__cache *to, const sluice__cache *from) {
    size_t batch = (size_t)from->batch;
    for (int i = 0; i < sluice_model_config(from->model)->num_hidden_layers; i++) {
        const sluice__cache_layer *x = &from->layers[i], *y = &to->layers[i];
        if (x->state_size) memcpy(y->state, x->state, batch * (size_t)x->state_size * sizeof(float));
        if (x->conv_size) memcpy(y->conv, x->conv, batch * (size_t)x->conv_size * sizeof(float));
        for (size_t b = 0; b < batch && x->row_bytes; b++) {
            size_t used = x->row_bytes * (size_t)from->length, at = x->row_bytes * (size_t)to->capacity * b,
                   from_at = x->row_bytes * (size_t)from->capacity * b;
            memcpy(y->k + at, x->k + from_at, used);
            memcpy(y->v + at, x->v + from_at, used);
        }
    }
    to->length = from->length;
    to->state_length = from->state_length;
}

sluice_status sluice__cache_grow(sluice__cache **cache, int capacity, sluice_error *err) {
    const sluice__cache *old = *cache;
    if (capacity <= old->capacity) return SLUICE_OK;
    sluice__cache *fresh;
    SLUICE__TRY(sluice__cache_new_typed(&fresh, old->model, old->batch, capacity, old->dtype, err));
    sluice__cache_copy(fresh, old);
    sluice__cache_free(*cache);
    *cache = fresh;
    return SLUICE_OK;
}

int sluice__cache_capacity(const sluice__cache *cache) { return cache->capacity; }

void sluice__cache_free(sluice__cache *cache) { sluice__free(cache); }

int sluice__cache_length(const sluice__cache *cache) { return cache->length; }

static bool has_states(const sluice__cache *cache) {
    for (int i = 0; i < sluice_model_config(cache->model)->num_hidden_layers; i++)
        if (cache->layers[i].state_size) return true;
    return false;
}

static void clear_states(sluice__cache *cache) {
    for (int i = 0; i < sluice_model_config(cache->model)->num_hidden_layers; i++) {
        sluice__cache_layer *l = &cache->layers[i];
        size_t batch = (size_t)cache->batch;
        if (l->state_size) memset(l->state, 0, batch * (size_t)l->state_size * sizeof(float));
        if (l->conv_size) memset(l->conv, 0, batch * (size_t)l->conv_size * sizeof(float));
    }
    cache->state_length = 0;
}

void sluice__cache_truncate(sluice__cache *cache, int length) {
    if (length < cache->length) cache->length = length < 0 ? 0 : length;
    if (!has_states(cache)) cache->state_length = cache->length;
    else if (cache->length == 0) clear_states(cache);
}

void sluice__cache_spoil(sluice__cache *cache) {
    if (has_states(cache)) cache->state_length = -1;
}

bool sluice__cache_is_whole(const sluice__cache *cache) { return cache->state_length == cache->length; }

/* ---- as bytes ---- */

static int layers_of(const sluice__cache *cache) { return sluice_model_config(cache->model)->num_hidden_layers; }

size_t sluice__cache_token_bytes(const sluice__cache *cache) {
    size_t bytes = 0;
    for (int i = 0; i < layers_of(cache); i++) bytes += 2 * cache->layers[i].row_bytes;
    return bytes;
}

void sluice__cache_get_tokens(const sluice__cache *cache, int first, int count, void *to) {
    char *bytes = to;
    for (int i = 0; i < layers_of(cache); i++) {
        const sluice__cache_layer *l = &cache->layers[i];
        size_t size = l->row_bytes * (size_t)count, at = l->row_bytes * (size_t)first;
        if (!size) continue;
        memcpy(bytes, l->k + at, size);
        memcpy(bytes + size, l->v + at, size);
        bytes += 2 * size;
    }
}

void sluice__cache_put_tokens(sluice__cache *cache, int first, int count, const void *from, int skip, int held) {
    const char *bytes = from;
    for (int i = 0; i < layers_of(cache); i++) {
        const sluice__cache_layer *l = &cache->layers[i];
        size_t row = l->row_bytes, all = row * (size_t)held, used = row * (size_t)count, at = row * (size_t)first;
        if (!row) continue;
        memcpy(l->k + at, bytes + row * (size_t)skip, used);
        memcpy(l->v + at, bytes + all + row * (size_t)skip, used);
        bytes += 2 * all;
    }
}

size_t sluice__cache_state_bytes(const sluice__cache *cache) {
    size_t floats = 0;
    for (int i = 0; i < layers_of(cache); i++)
        floats += (size_t)cache->layers[i].state_size + (size_t)cache->layers[i].conv_size;
    return floats * sizeof(float);
}

static void copy_states(const sluice__cache *cache, char *bytes, bool out) {
    for (int i = 0; i < layers_of(cache); i++) {
        const sluice__cache_layer *l = &cache->layers[i];
        float *const tensors[] = {l->state, l->conv};
        const size_t sizes[] = {(size_t)l->state_size * sizeof(float), (size_t)l->conv_size * sizeof(float)};
        for (int t = 0; t < 2; bytes += sizes[t++])
            if (sizes[t]) memcpy(out ? (void *)bytes : (void *)tensors[t], out ? (void *)tensors[t] : (void *)bytes, sizes[t]);
    }
}

void sluice__cache_get_states(const sluice__cache *cache, void *to) { copy_states(cache, to, true); }

void sluice__cache_put_states(sluice__cache *cache, int length, const void *states) {
    if (states) copy_states(cache, (char *)(uintptr_t)states, false);
    cache->state_length = cache->length = length;
}
