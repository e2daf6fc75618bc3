/* SPDX-License-Identifier: Apache-2.0 */
/* The cache: one allocation, counted and placed by the same functions. */
#include "layers/cache.h"
#include "base/memory.h"
#include "model/config.h"
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

static size_t tensor_bytes(const sluice_config *config, int layer, int batch, int64_t rows, sluice_kv_dtype dtype) {
    size_t row = row_bytes(config, layer, dtype);
    size_t bytes = sluice__mul_size(sluice__mul_size((size_t)batch, (size_t)rows), row);
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

static size_t all_bytes(const sluice_config *config, int batch, int capacity, sluice_kv_dtype dtype, int chunk) {
    size_t bytes = header_bytes(config);
    for (int i = 0; i < config->num_hidden_layers; i++) {
        size_t one = tensor_bytes(config, i, batch, sluice__cache_rows(config, i, capacity, chunk), dtype);
        bytes = add(bytes, add(one, one));
        const sluice_delta_spec *d = &config->layers[i].delta;
        bytes = add(bytes, add(floats_bytes(batch, state_size(d)), floats_bytes(batch, conv_size(d))));
    }
    return bytes;
}

int64_t sluice__cache_bytes(const sluice_config *config, int batch, int capacity) {
    return sluice__cache_bytes_typed(config, batch, capacity, SLUICE_KV_F32, 0);
}

int64_t sluice__cache_bytes_typed(const sluice_config *config, int batch, int capacity, sluice_kv_dtype dtype, int chunk) {
    return (int64_t)all_bytes(config, batch, capacity, dtype, chunk);
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
    return sluice__cache_new_typed(out, model, batch, capacity, SLUICE_KV_F32, 0, err);
}

sluice_status sluice__cache_new_typed(sluice__cache **out, const sluice_model *model, int batch, int capacity,
                                      sluice_kv_dtype dtype, int chunk, sluice_error *err) {
    *out = NULL;
    if (batch < 1 || capacity < 1)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "key/value cache of batch %d and capacity %d: both have to be at least 1", batch,
                            capacity);
    const sluice_config *config = sluice_model_config(model);
    SLUICE__TRY(check_dtype(config, dtype, err));
    size_t bytes = all_bytes(config, batch, capacity, dtype, chunk);
    char *base = bytes > LIMIT ? NULL : sluice__calloc(1, bytes, SLUICE__MEM_CACHE);
    if (!base) return sluice__no_memory(err, bytes, "the key/value cache");
    sluice__cache *cache = (void *)base;
    *cache = (sluice__cache){.model = model, .dtype = dtype, .batch = batch, .capacity = capacity, .chunk = chunk,
                             .layers = (void *)(cache + 1)};
    base += header_bytes(config);
    for (int i = 0; i < config->num_hidden_layers; i++) {
        int64_t rows = sluice__cache_rows(config, i, capacity, chunk);
        size_t one = tensor_bytes(config, i, batch, rows, dtype);
        int64_t width = (int64_t)config->layers[i].num_key_value_heads * config->layers[i].head_dim;
        const sluice_delta_spec *d = &config->layers[i].delta;
        sluice__cache_layer *l = &cache->layers[i];
        *l = (sluice__cache_layer){.rows = (int)rows, .state_size = state_size(d), .conv_size = conv_size(d)};
        if (chunk && sluice__layer_drops(config, i)) l->window = config->layers[i].sliding_window;
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
        const sluice__cache_layer *x = &from->layers[i];
        sluice__cache_layer *y = &to->layers[i];
        y->start = x->start;
        if (x->state_size) memcpy(y->state, x->state, batch * (size_t)x->state_size * sizeof(float));
        if (x->conv_size) memcpy(y->conv, x->conv, batch * (size_t)x->conv_size * sizeof(float));
        for (size_t b = 0; b < batch && x->row_bytes; b++) {
            size_t used = x->row_bytes * (size_t)(from->length - x->start), at = x->row_bytes * (size_t)y->rows * b,
                   from_at = x->row_bytes * (size_t)x->rows * b;
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
    SLUICE__TRY(sluice__cache_new_typed(&fresh, old->model, old->batch, capacity, old->dtype, old->chunk, err));
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

static int layers_of(const sluice__cache *cache) { return sluice_model_config(cache->model)->num_hidden_layers; }

void sluice__cache_make_room(sluice__cache *cache, int tokens) {
    for (int i = 0; i < layers_of(cache); i++) {
        sluice__cache_layer *l = &cache->layers[i];
        if (!l->window || cache->length - l->start + tokens <= l->rows) continue;
        int keep = l->window - 1 + SLUICE__WINDOW_SLACK, from = cache->length - keep - l->start;
        for (int b = 0; b < cache->batch; b++) {
            size_t at = l->row_bytes * (size_t)l->rows * (size_t)b, skip = l->row_bytes * (size_t)from;
            memmove(l->k + at, l->k + at + skip, l->row_bytes * (size_t)keep);
            memmove(l->v + at, l->v + at + skip, l->row_bytes * (size_t)keep);
        }
        l->start += from;
    }
}

/* The first token that a layer with a window needs behind `length` tokens. */
static int first_needed(const sluice__cache_layer *l, int length) {
    return length > l->window - 1 ? length - (l->window - 1) : 0;
}

/* Whether layers with a window still hold what the token behind the first `length` sees. */
static bool windows_hold(const sluice__cache *cache, int length) {
    for (int i = 0; i < layers_of(cache); i++)
        if (cache->layers[i].window && cache->layers[i].start > first_needed(&cache->layers[i], length)) return false;
    return true;
}

void sluice__cache_truncate(sluice__cache *cache, int length) {
    if (length < cache->length) cache->length = length < 0 ? 0 : length;
    for (int i = 0; i < layers_of(cache) && cache->length == 0; i++) cache->layers[i].start = 0;
    if (!has_states(cache)) cache->state_length = cache->length;
    else if (cache->length == 0) clear_states(cache);
}

void sluice__cache_spoil(sluice__cache *cache) {
    if (has_states(cache)) cache->state_length = -1;
}

bool sluice__cache_is_whole(const sluice__cache *cache) {
    return cache->state_length == cache->length && windows_hold(cache, cache->length);
}

bool sluice__cache_keeps(const sluice__cache *cache, int length) {
    if (length == 0) return true;
    if (has_states(cache) && (length != cache->length || cache->state_length != length)) return false;
    return windows_hold(cache, length);
}

/* ---- as bytes ---- */

size_t sluice__cache_token_bytes(const sluice__cache *cache) {
    size_t bytes = 0;
    for (int i = 0; i < layers_of(cache); i++)
        if (!cache->layers[i].window) bytes += 2 * cache->layers[i].row_bytes;
    return bytes;
}

void sluice__cache_get_tokens(const sluice__cache *cache, int first, int count, void *to) {
    char *bytes = to;
    for (int i = 0; i < layers_of(cache); i++) {
        const sluice__cache_layer *l = &cache->layers[i];
        size_t size = l->row_bytes * (size_t)count, at = l->row_bytes * (size_t)first;
        if (!size || l->window) continue;
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
        if (!row || l->window) continue;
        memcpy(l->k + at, bytes + row * (size_t)skip, used);
        memcpy(l->v + at, bytes + all + row * (size_t)skip, used);
        bytes += 2 * all;
    }
}

/* Of the keys that a layer with a window needs behind `length` tokens. */
static size_t window_bytes(const sluice__cache_layer *l, int length) {
    return l->window ? l->row_bytes * (size_t)(length - first_needed(l, length)) : 0;
}

size_t sluice__cache_state_bytes(const sluice__cache *cache, int length) {
    size_t bytes = 0;
    for (int i = 0; i < layers_of(cache); i++) {
        const sluice__cache_layer *l = &cache->layers[i];
        bytes += ((size_t)l->state_size + (size_t)l->conv_size) * sizeof(float) + 2 * window_bytes(l, length);
    }
    return bytes;
}

static void copy_states(const sluice__cache *cache, char *bytes, bool out) {
    for (int i = 0; i < layers_of(cache); i++) {
        const sluice__cache_layer *l = &cache->layers[i];
        size_t window = window_bytes(l, cache->length),
               at = window ? l->row_bytes * (size_t)(first_needed(l, cache->length) - l->start) : 0;
        void *const places[] = {l->state, l->conv, window ? l->k + at : NULL, window ? l->v + at : NULL};
        const size_t sizes[] = {(size_t)l->state_size * sizeof(float), (size_t)l->conv_size * sizeof(float), window, window};
        for (int t = 0; t < 4; bytes += sizes[t++])
            if (sizes[t]) memcpy(out ? (void *)bytes : places[t], out ? places[t] : (void *)bytes, sizes[t]);
    }
}

void sluice__cache_get_states(const sluice__cache *cache, void *to) { copy_states(cache, to, true); }

void sluice__cache_put_states(sluice__cache *cache, int length, const void *states) {
    cache->state_length = cache->length = length;
    for (int i = 0; i < layers_of(cache); i++)
        if (cache->layers[i].window) cache->layers[i].start = first_needed(&cache->layers[i], length);
    if (states) copy_states(cache, (char *)(uintptr_t)states, false);
}

bool sluice__is_stateful(const sluice_config *config) {
    for (int i = 0; i < config->num_hidden_layers; i++)
        if (sluice_layer_is_linear(&config->layers[i]) || sluice__layer_drops(config, i)) return true;
    return false;
}
