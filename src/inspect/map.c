/* SPDX-License-Identifier: Apache-2.0 */
/* The attention map of one text: the only place where whole maps are kept, so its length is
 * bounded. */
#include "sluice/inspect.h"
#include "base/memory.h"
#include "layers/transformer.h"
#include <string.h>

void sluice_attention_map_free(sluice_attention_map *map) {
    if (!map) return;
    for (int i = 0; i < map->num_layers; i++) {
        if (map->probs) sluice__free(map->probs[i]);
        if (map->gate) sluice__free(map->gate[i]);
    }
    sluice__free(map->probs);
    sluice__free(map->gate);
    sluice__free(map->heads);
    sluice__free(map->gate_heads);
    sluice__free(map);
}

/* [H,rows,keys] into rows of [H,T,T] */
static sluice_status keep_rows(sluice_attention_map *map, const sluice__probe_event *e,
                               sluice_error *err) {
    int64_t heads = e->shape[0], rows = e->shape[1], keys = e->shape[2], len = map->seq_len;
    if (!map->probs[e->layer]) {
        size_t count = (size_t)heads * (size_t)len * (size_t)len;
        map->probs[e->layer] = sluice__calloc(count, sizeof(float), SLUICE__MEM_OTHER);
        if (!map->probs[e->layer])
            return sluice__no_memory(err, count * sizeof(float), "an attention map");
        map->heads[e->layer] = (int)heads;
    }
    for (int64_t h = 0; h < heads; h++)
        for (int64_t r = 0; r < rows; r++)
            memcpy(map->probs[e->layer] + (h * len + e->first_query + r) * len,
                   e->data + (h * rows + r) * keys, (size_t)keys * sizeof(float));
    return SLUICE_OK;
}

/* [1,T,n,w] -> [n,T] */
static sluice_status keep_gate(sluice_attention_map *map, const sluice__probe_event *e,
                               sluice_error *err) {
    int64_t heads = e->shape[2], width = e->shape[3];
    float *mean =
        sluice__calloc((size_t)heads * (size_t)map->seq_len, sizeof *mean, SLUICE__MEM_OTHER);
    if (!mean)
        return sluice__no_memory(err, (size_t)heads * (size_t)map->seq_len * sizeof *mean,
                                 "gate scores");
    for (int64_t t = 0; t < e->shape[1]; t++)
        for (int64_t h = 0; h < heads; h++) {
            double sum = 0;
            for (int64_t i = 0; i < width; i++) sum += e->data[(t * heads + h) * width + i];
            mean[h * map->seq_len + t] = (float)(sum / (double)width);
        }
    map->gate_heads[e->layer] = (int)heads;
    map->gate[e->layer] = mean;
    return SLUICE_OK;
}

static sluice_status on_event(void *user, const sluice__probe_event *e, sluice_error *err) {
    sluice_attention_map *map = user;
    if (e->point == SLUICE__PROBE_ATTN_ROWS) return keep_rows(map, e, err);
    if (e->point == SLUICE__PROBE_GATE && !map->gate[e->layer]) return keep_gate(map, e, err);
    return SLUICE_OK;
}

static sluice_status alloc_map(sluice_attention_map **out, int layers, int seq_len,
                               sluice_error *err) {
    sluice_attention_map *map = sluice__calloc(1, sizeof *map, SLUICE__MEM_OTHER);
    if (!map) return sluice__no_memory(err, sizeof *map, "an attention map");
    size_t n = (size_t)layers;
    map->seq_len = seq_len;
    map->num_layers = layers;
    map->heads = sluice__calloc(n, sizeof *map->heads, SLUICE__MEM_OTHER);
    map->gate_heads = sluice__calloc(n, sizeof *map->gate_heads, SLUICE__MEM_OTHER);
    map->probs = sluice__calloc(n, sizeof *map->probs, SLUICE__MEM_OTHER);
    map->gate = sluice__calloc(n, sizeof *map->gate, SLUICE__MEM_OTHER);
    *out = map;
    if (map->heads && map->gate_heads && map->probs && map->gate) return SLUICE_OK;
    return sluice__no_memory(err, n * sizeof *map->probs, "an attention map");
}

sluice_status sluice_attention_map_new(sluice_attention_map **out, const sluice_model *model,
                                       const int32_t *ids, int seq_len, sluice_error *err) {
    *out = NULL;
    if (seq_len < 1 || seq_len > SLUICE_MAP_MAX_TOKENS)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "attention map: found %d tokens, expected 1..%d", seq_len,
                            SLUICE_MAP_MAX_TOKENS);
    sluice_attention_map *map = NULL;
    sluice__workspace *ws = NULL;
    sluice__input in = {.batch = 1, .seq_len = seq_len, .ids = ids};
    sluice_status st = alloc_map(&map, sluice_model_config(model)->num_hidden_layers, seq_len, err);
    sluice__probe probe = {.user = map,
                           .wants = 1u << SLUICE__PROBE_ATTN_ROWS | 1u << SLUICE__PROBE_GATE,
                           .on = on_event};
    if (st == SLUICE_OK) st = sluice__workspace_new(&ws, model, 1, seq_len, SLUICE__INFER, err);
    if (st == SLUICE_OK)
        st = sluice__forward(model, ws, &in, NULL, &probe, SLUICE__LOGITS_NONE, NULL, err);
    sluice__workspace_free(ws);
    if (st != SLUICE_OK)
        sluice_attention_map_free(map);
    else
        *out = map;
    return st;
}
