/* SPDX-License-Identifier: Apache-2.0 */
/* Maps of one model for the page: attention weights of every head, and |h| of the residual stream
 * behind every layer (tokens by channels), both as bytes. The number of tokens is chosen so that
 * the page of a model of 80 layers with 64 heads each stays below 10 MB. */
#include "base/memory.h"
#include "inspect/inspection_json.h"
#include "inspect/job.h"
#include "layers/transformer.h"
#include <math.h>
#include <string.h>

enum {
    MAP_BYTES = 3 << 20, /* of all heads together, before base64 */
    MAP_LEAST = 16,
    MAP_MOST = 96,
    SURFACE_BINS = 128,
    SURFACE_HEAVY = 6
};

static int choose_tokens(const sluice_config *c, const sluice_inspect_job *job) {
    int64_t heads = 0;
    if (job->map_tokens > 0) return job->map_tokens;
    for (int i = 0; i < c->num_hidden_layers; i++)
        heads += sluice_layer_is_linear(&c->layers[i]) ? 0 : c->layers[i].num_attention_heads;
    int n = MAP_LEAST;
    while (n < MAP_MOST && heads * (n + 1) * (n + 2) / 2 <= MAP_BYTES) n++;
    return n;
}

static sluice_status token_texts(json_t **out, const sluice__job_text *t, const sluice_ids *ids,
                                 sluice_error *err) {
    *out = json_array();
    for (size_t i = 0; i < ids->count; i++) {
        json_t *one;
        SLUICE__TRY(sluice__job_token(&one, t, ids->data[i], err));
        json_array_append_new(*out, one);
    }
    return SLUICE_OK;
}

/* ---- surfaces ---- */

typedef struct surface {
    json_t *layers; /* of objects */
    int tokens;
} surface;

/* Adds {channel, position, value} of the largest elements, one a channel. */
static json_t *heavy_channels(const float *h, int tokens, int64_t dim) {
    json_t *heavy = json_array();
    float above = INFINITY;
    for (int k = 0; k < SURFACE_HEAVY; k++) {
        float most = 0;
        int64_t channel = -1;
        int position = 0;
        for (int64_t d = 0; d < dim; d++) {
            float here = 0;
            int at = 0;
            for (int t = 0; t < tokens; t++)
                if (fabsf(h[t * dim + d]) > here) here = fabsf(h[t * dim + d]), at = t;
            if (here > most && here < above) most = here, channel = d, position = at;
        }
        if (channel < 0) break;
        json_array_append_new(heavy,
                              json_pack("{s:i, s:i, s:f}", "channel", (int)channel, "position",
                                        position, "value", (double)h[position * dim + channel]));
        above = most;
    }
    return heavy;
}

/* Largest |h| of each bin of channels, as bytes on a logarithmic scale: 255 log(1 + |h|) / log(1 +
 * max). */
static sluice_status on_residual(void *user, const sluice__probe_event *e, sluice_error *err) {
    surface *s = user;
    int64_t dim = e->shape[2], bins = dim < SURFACE_BINS ? dim : SURFACE_BINS;
    size_t count = (size_t)s->tokens * (size_t)bins;
    float *most = sluice__calloc(count, sizeof *most, SLUICE__MEM_OTHER), top = 0;
    if (!most) return sluice__no_memory(err, count * sizeof *most, "an activation surface");
    for (int t = 0; t < s->tokens; t++)
        for (int64_t d = 0; d < dim; d++) {
            float size = fabsf(e->data[t * dim + d]), *to = &most[t * bins + d * bins / dim];
            if (size > *to) *to = size;
            if (size > top) top = size;
        }
    for (size_t i = 0; i < count; i++) most[i] = top > 0 ? log1pf(most[i]) / log1pf(top) : 0;
    json_array_append_new(s->layers, json_pack("{s:f, s:o, s:o}", "max", (double)top, "data",
                                               sluice__bytes_to_json(most, count), "heavy",
                                               heavy_channels(e->data, s->tokens, dim)));
    sluice__free(most);
    return SLUICE_OK;
}

static sluice_status add_surface(json_t *entry, const sluice_model *model, const sluice_ids *ids,
                                 const json_t *tokens, sluice_error *err) {
    surface s = {.layers = json_array(), .tokens = (int)ids->count};
    int dim = sluice_model_config(model)->hidden_size;
    sluice__workspace *ws = NULL;
    sluice__input in = {.batch = 1, .seq_len = s.tokens, .ids = ids->data};
    sluice__probe probe = {.user = &s, .wants = 1u << SLUICE__PROBE_RESID_FFN, .on = on_residual};
    sluice_status st = sluice__workspace_new(&ws, model, 1, s.tokens, SLUICE__INFER, err);
    if (st == SLUICE_OK)
        st = sluice__forward(model, ws, &in, NULL, &probe, SLUICE__LOGITS_NONE, NULL, err);
    sluice__workspace_free(ws);
    if (st != SLUICE_OK) {
        json_decref(s.layers);
        return st;
    }
    json_object_set_new(entry, "surface",
                        json_pack("{s:O, s:i, s:i, s:o}", "tokens", tokens, "channels", dim, "bins",
                                  dim < SURFACE_BINS ? dim : SURFACE_BINS, "layers", s.layers));
    return SLUICE_OK;
}

/* ---- attention ---- */

static sluice_status add_attention(json_t *entry, const sluice_model *model, const sluice_ids *ids,
                                   const json_t *tokens, sluice_error *err) {
    sluice_attention_map *map;
    SLUICE__TRY(sluice_attention_map_new(&map, model, ids->data, (int)ids->count, err));
    json_t *json = sluice__map_to_json_lower(map);
    if (json) json_object_set(json, "tokens", (json_t *)(uintptr_t)tokens);
    json_object_set_new(entry, "map", json ? json : json_null());
    sluice_attention_map_free(map);
    return SLUICE_OK;
}

sluice_status sluice__job_add_maps(json_t *entry, const sluice_model *model,
                                   const sluice__job_text *t, const sluice_inspect_job *job,
                                   sluice_error *err) {
    const sluice_config *c = sluice_model_config(model);
    sluice_ids ids = {0};
    json_t *tokens = NULL;
    if (job->map_tokens < 0) return SLUICE_OK;
    sluice_status st = sluice__job_map_ids(&ids, t, job, choose_tokens(c, job), err);
    if (st == SLUICE_OK) st = token_texts(&tokens, t, &ids, err);
    if (st == SLUICE_OK) st = add_attention(entry, model, &ids, tokens, err);
    if (st == SLUICE_OK) st = add_surface(entry, model, &ids, tokens, err);
    json_decref(tokens);
    sluice_ids_free(&ids);
    return st;
}
