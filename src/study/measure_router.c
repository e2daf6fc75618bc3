/* SPDX-License-Identifier: Apache-2.0 */
/* What the routers of a trained mixture do with held-out windows: how loads are spread over experts, how undecided
 * the routers are, which experts nobody needs. Held-out text, because the update at the end of training has few
 * tokens. */
#include "study/subject.h"
#include "base/memory.h"
#include "inspect/inspection_json.h"
#include "layers/transformer.h"

enum { BATCH = 8 };

typedef struct windows {
    int64_t count;
    int seq_len;
    int32_t *ids, *labels, *rest; /* [count, seq_len] each; rest [2, seq_len] */
} windows;

static sluice_status read_windows(windows *w, const sluice__subject *s, sluice_error *err) {
    int64_t total = sluice_dataset_get_info(s->dataset).heldout_windows, asked = s->evaluation->inspect_windows;
    *w = (windows){.count = asked < total ? asked : total, .seq_len = (int)s->params->seq_len};
    size_t len = (size_t)w->seq_len, cells = (size_t)w->count * len;
    w->ids = sluice__calloc(2 * cells + 2 * len, sizeof *w->ids, SLUICE__MEM_DATA);
    if (!w->ids) return sluice__no_memory(err, 2 * cells * sizeof *w->ids, "held-out windows");
    w->labels = w->ids + cells;
    w->rest = w->labels + cells;
    for (int64_t i = 0; i < w->count; i++) {
        sluice_window one = {w->ids + i * w->seq_len, w->labels + i * w->seq_len, w->rest, w->rest + len};
        sluice_dataset_heldout_window(s->dataset, i * total / w->count, &one);
    }
    return SLUICE_OK;
}

static sluice_status route_all(const sluice_model *model, sluice__workspace *ws, sluice__router *router,
                               const windows *w, sluice_error *err) {
    sluice__router_reset(router, SLUICE__BALANCE_GLOBAL, w->count * w->seq_len);
    for (int64_t first = 0; first < w->count; first += BATCH) {
        int rows = (int)(w->count - first < BATCH ? w->count - first : BATCH);
        sluice__input in = {rows, w->seq_len, w->ids + first * w->seq_len, w->labels + first * w->seq_len,
                            NULL, NULL};
        sluice__loss loss;
        SLUICE__TRY(sluice__loss_and_grads_routed(model, ws, &in, NULL, 0, router, NULL, &loss, err));
    }
    return SLUICE_OK;
}

static json_t *layer_json(const sluice__router *r, const sluice_config *c, int layer) {
    int experts = c->layers[layer].moe.num_experts;
    const double *counts = r->counts + (int64_t)layer * r->experts;
    sluice__router_summary s = sluice__router_summarise_layer(r, c, layer);
    double sum = 0;
    if (!experts) return json_null();
    json_t *load = json_array();
    for (int e = 0; e < experts; e++) sum += counts[e];
    for (int e = 0; e < experts; e++) json_array_append_new(load, sluice__json_number(counts[e] / sum * experts));
    return json_pack("{s:o, s:o, s:i, s:o}", "entropy", sluice__json_number(s.entropy), "max_load",
                     sluice__json_number(s.max_load), "dead_experts", s.dead_experts, "load", load);
}

static json_t *to_json(const sluice__router *r, const sluice_config *c) {
    sluice__router_summary s = sluice__router_summarise(r, c);
    json_t *layers = json_array();
    for (int l = 0; l < c->num_hidden_layers; l++) json_array_append_new(layers, layer_json(r, c, l));
    return json_pack("{s:i, s:i, s:o, s:o, s:i, s:o, s:o, s:o}", "experts", r->experts, "per_token",
                     c->layers[0].moe.num_experts_per_tok, "entropy", sluice__json_number(s.entropy), "max_load",
                     sluice__json_number(s.max_load), "dead_experts", s.dead_experts, "balance_loss",
                     sluice__json_number(r->balance_loss), "z_loss", sluice__json_number(r->z_loss), "layers",
                     layers);
}

sluice_status sluice__measure_router(json_t *run, const sluice__subject *s, sluice_error *err) {
    const sluice_config *c = sluice_model_config(s->model);
    sluice__router *router;
    sluice__workspace *ws = NULL;
    windows w = {0};
    SLUICE__TRY(sluice__router_new(&router, c, err));
    if (!router) return SLUICE_OK;
    sluice_status st = read_windows(&w, s, err);
    if (st == SLUICE_OK) st = sluice__workspace_new(&ws, s->model, BATCH, w.seq_len, SLUICE__TRAIN, err);
    if (st == SLUICE_OK) st = route_all(s->model, ws, router, &w, err);
    if (st == SLUICE_OK) json_object_set_new(run, "router", to_json(router, c));
    sluice__workspace_free(ws);
    sluice__router_free(router);
    sluice__free(w.ids);
    return st;
}
