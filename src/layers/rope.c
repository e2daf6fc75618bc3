/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary tables (see rope.h). Length classes: the default, linear, yarn and llama3 types have one table for all
 * lengths; longrope has one up to and one past the original context; dynamic has one up to the original context,
 * then one for every length. sluice__rope_tables computes the numbers. */
#include "layers/rope.h"
#include "base/memory.h"
#include <string.h>

static bool same_factors(const double *a, const double *b, int n) {
    if (!a || !b) return a == b;
    return memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

static bool same_spec(const sluice_rope_spec *a, const sluice_rope_spec *b) {
    if (a == b) return true;
    return a->enabled == b->enabled && a->theta == b->theta && a->rotary_dim == b->rotary_dim && a->type == b->type &&
           a->factor == b->factor && a->original_max_position_embeddings == b->original_max_position_embeddings &&
           a->attention_factor == b->attention_factor && a->beta_fast == b->beta_fast && a->beta_slow == b->beta_slow &&
           a->mscale == b->mscale && a->mscale_all_dim == b->mscale_all_dim && a->truncate == b->truncate &&
           a->low_freq_factor == b->low_freq_factor && a->high_freq_factor == b->high_freq_factor &&
           same_factors(a->long_factor, b->long_factor, a->rotary_dim / 2) &&
           same_factors(a->short_factor, b->short_factor, a->rotary_dim / 2);
}

void sluice__rope_cache_init(sluice__rope_cache *cache, const sluice_config *config) {
    cache->num_tables = 0;
    for (int i = 0; i < config->num_hidden_layers; i++) {
        const sluice_rope_spec *spec = &config->layers[i].rope;
        int t = 0;
        while (t < cache->num_tables && !same_spec(cache->tables[t].spec, spec)) t++;
        if (t == cache->num_tables)
            cache->tables[cache->num_tables++] = (sluice__rope_table){.spec = spec, .length_class = -1};
        cache->table_of_layer[i] = t;
    }
}

int64_t sluice__rope_cache_bytes(const sluice_config *config, int64_t positions) {
    int64_t bytes = 0;
    for (int i = 0; i < config->num_hidden_layers; i++) {
        const sluice_rope_spec *spec = &config->layers[i].rope;
        int earlier = 0;
        while (earlier < i && !same_spec(&config->layers[earlier].rope, spec)) earlier++;
        if (earlier == i && spec->enabled) bytes += positions * spec->rotary_dim * (int64_t)sizeof(float);
    }
    return bytes;
}

void sluice__rope_cache_free(sluice__rope_cache *cache) {
    for (int i = 0; i < cache->num_tables; i++) {
        sluice__free(cache->tables[i].cos);
        sluice__free(cache->tables[i].sin);
    }
}

static int64_t length_class(const sluice_rope_spec *spec, int64_t length) {
    bool beyond = length > spec->original_max_position_embeddings;
    if (spec->type == SLUICE_ROPE_LONGROPE) return beyond;
    if (spec->type == SLUICE_ROPE_DYNAMIC) return beyond ? length : 0;
    return 0;
}

static sluice_status grow(sluice__rope_table *t, int64_t count, sluice_error *err) {
    size_t half = (size_t)t->spec->rotary_dim / 2;
    size_t floats = sluice__mul_size((size_t)count, half);
    float *cos = sluice__realloc(t->cos, floats, sizeof *cos, SLUICE__MEM_ACTIVATIONS);
    if (cos) t->cos = cos;
    float *sin = sluice__realloc(t->sin, floats, sizeof *sin, SLUICE__MEM_ACTIVATIONS);
    if (sin) t->sin = sin;
    if (!cos || !sin) return sluice__no_memory(err, sluice__mul_size(floats, sizeof *cos), "rotary tables");
    t->count = count;
    return SLUICE_OK;
}

static sluice_status reserve(sluice__rope_table *t, int64_t length, sluice_error *err) {
    if (!t->spec->enabled || t->spec->rotary_dim == 0) return SLUICE_OK;
    int64_t cls = length_class(t->spec, length);
    if (length <= t->count && cls == t->length_class) return SLUICE_OK;
    if (length > t->count) {
        int64_t doubled = 2 * t->count;
        SLUICE__TRY(grow(t, length > doubled ? length : doubled, err));
    }
    t->length_class = -1; /* a failure below leaves a table that is made again */
    SLUICE__TRY(sluice__rope_tables(t->spec, t->count, length, t->cos, t->sin, err));
    t->length_class = cls;
    return SLUICE_OK;
}

sluice_status sluice__rope_cache_reserve(sluice__rope_cache *cache, int64_t max_position, sluice_error *err) {
    for (int i = 0; i < cache->num_tables; i++) SLUICE__TRY(reserve(&cache->tables[i], max_position + 1, err));
    return SLUICE_OK;
}
