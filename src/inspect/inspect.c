/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the forward pass over windows with the accumulators listening, twice, and turns them into one inspection. */
#include "sluice/inspect.h"
#include "base/memory.h"
#include "inspect/metrics.h"
#include "layers/transformer.h"
#include <math.h>

enum { PASS_TOKENS = 4096, MAX_SEQ_LEN = 1 << 24 };

typedef struct walk {
    const sluice_model *model;
    const int32_t *ids;
    int64_t windows;
    int seq_len, batch;
    sluice__workspace *ws;
    sluice__layer_metrics *layers;
    bool second;
} walk;

sluice_inspect_params sluice_inspect_params_default(void) {
    return (sluice_inspect_params){.batch = 0, .other_keys = false};
}

static sluice_status on_event(void *user, const sluice__probe_event *e, sluice_error *err) {
    walk *w = user;
    if (e->layer < 0) return SLUICE_OK;
    sluice__layer_metrics *m = &w->layers[e->layer];
    return w->second ? sluice__metrics_second(m, e, err) : sluice__metrics_first(m, e, err);
}

static sluice_status run_pass(walk *w, uint32_t wants, sluice_error *err) {
    sluice__probe probe = {.user = w, .wants = wants, .on = on_event};
    for (int64_t at = 0; at < w->windows; at += w->batch) {
        int64_t left = w->windows - at;
        sluice__input in = {
            .batch = left < w->batch ? (int)left : w->batch, .seq_len = w->seq_len, .ids = w->ids + at * w->seq_len};
        SLUICE__TRY(sluice__forward(w->model, w->ws, &in, NULL, &probe, SLUICE__LOGITS_NONE, NULL, err));
    }
    return SLUICE_OK;
}

static bool new_layer(sluice_inspect_layer *l, const sluice_layer_spec *spec) {
    size_t heads = (size_t)spec->num_attention_heads, kv = (size_t)spec->num_key_value_heads;
    l->share_heads = sluice__calloc(heads, sizeof *l->share_heads, SLUICE__MEM_OTHER);
    l->gate.heads_mean = sluice__calloc(heads, sizeof(double), SLUICE__MEM_OTHER);
    l->value_norm_first = sluice__calloc(kv, sizeof(double), SLUICE__MEM_OTHER);
    l->value_norm_others = sluice__calloc(kv, sizeof(double), SLUICE__MEM_OTHER);
    return l->share_heads && l->gate.heads_mean && l->value_norm_first && l->value_norm_others;
}

static sluice_status new_inspection(sluice_inspection **out, const walk *w, sluice_error *err) {
    const sluice_config *c = sluice_model_config(w->model);
    sluice_inspection *r = sluice__calloc(1, sizeof *r, SLUICE__MEM_OTHER);
    if (!r) return sluice__no_memory(err, sizeof *r, "an inspection");
    r->windows = w->windows;
    r->seq_len = w->seq_len;
    r->layers = sluice__calloc((size_t)c->num_hidden_layers, sizeof *r->layers, SLUICE__MEM_OTHER);
    bool ok = r->layers != NULL;
    if (ok) r->num_layers = c->num_hidden_layers;
    for (int i = 0; ok && i < r->num_layers; i++) ok = new_layer(&r->layers[i], &c->layers[i]);
    if (!ok) {
        sluice_inspection_free(r);
        return sluice__no_memory(err, (size_t)c->num_hidden_layers * sizeof *r->layers, "an inspection");
    }
    *out = r;
    return SLUICE_OK;
}

void sluice_inspection_free(sluice_inspection *r) {
    if (!r) return;
    for (int i = 0; i < r->num_layers; i++) {
        sluice__free(r->layers[i].share_heads);
        sluice__free(r->layers[i].gate.heads_mean);
        sluice__free(r->layers[i].value_norm_first);
        sluice__free(r->layers[i].value_norm_others);
    }
    sluice__free(r->layers);
    sluice__free(r);
}

/* Layers without the value (NaN) are left out of a mean. */
static void add_to_mean(double *sum, int *count, double v) {
    if (isnan(v)) return;
    *sum += v;
    ++*count;
}

static double layer_mean(const sluice_inspection *r, double (*get)(const sluice_inspect_layer *)) {
    double sum = 0;
    int count = 0;
    for (int i = 0; i < r->num_layers; i++) add_to_mean(&sum, &count, get(&r->layers[i]));
    return count ? sum / count : NAN;
}

static double get_all(const sluice_inspect_layer *l) { return l->share.all; }
static double get_from_1(const sluice_inspect_layer *l) { return l->share.from_1; }
static double get_from_4(const sluice_inspect_layer *l) { return l->share.from_4; }
static double get_from_quarter(const sluice_inspect_layer *l) { return l->share.from_quarter; }
static double get_sink_rate(const sluice_inspect_layer *l) { return l->sink_rate; }
static double get_max(const sluice_inspect_layer *l) { return l->residual_max; }
static double get_gate(const sluice_inspect_layer *l) { return l->gate.mean; }

static void summarise(sluice_inspection *r) {
    r->share = (sluice_first_share){layer_mean(r, get_all), layer_mean(r, get_from_1), layer_mean(r, get_from_4),
                                    layer_mean(r, get_from_quarter)};
    r->sink_rate = layer_mean(r, get_sink_rate);
    r->m_act = layer_mean(r, get_max);
    r->gate_mean = layer_mean(r, get_gate);
    for (int i = 0; i < r->num_layers; i++) {
        const sluice_inspect_layer *l = &r->layers[i];
        r->massive_total += l->residual_massive;
        r->heads += l->heads;
        for (int h = 0; h < l->heads; h++) r->sink_heads += l->share_heads[h].from_quarter > SLUICE_SINK_THRESHOLD;
    }
}

static sluice_status measure(walk *w, bool other_keys, sluice_inspection **out, sluice_error *err) {
    int layers = sluice_model_config(w->model)->num_hidden_layers;
    SLUICE__TRY(run_pass(w, sluice__metrics_first_wants(), err));
    for (int i = 0; i < layers; i++) sluice__metrics_between(&w->layers[i]);
    w->second = true;
    SLUICE__TRY(run_pass(w, sluice__metrics_second_wants(other_keys), err));
    SLUICE__TRY(new_inspection(out, w, err));
    for (int i = 0; i < layers; i++) sluice__metrics_result(&w->layers[i], &(*out)->layers[i]);
    summarise(*out);
    return SLUICE_OK;
}

static sluice_status start(walk *w, const sluice_inspect_params *params, sluice_error *err) {
    const sluice_config *c = sluice_model_config(w->model);
    w->layers = sluice__calloc((size_t)c->num_hidden_layers, sizeof *w->layers, SLUICE__MEM_OTHER);
    if (!w->layers) return sluice__no_memory(err, (size_t)c->num_hidden_layers * sizeof *w->layers, "layer statistics");
    for (int i = 0; i < c->num_hidden_layers; i++)
        SLUICE__TRY(sluice__layer_metrics_new(&w->layers[i], &c->layers[i], w->seq_len, params->other_keys, err));
    int64_t batch = params->batch ? params->batch : PASS_TOKENS / w->seq_len;
    w->batch = batch < 1 ? 1 : batch > w->windows ? (int)w->windows : (int)batch;
    return sluice__workspace_new(&w->ws, w->model, w->batch, w->seq_len, SLUICE__INFER, err);
}

sluice_status sluice_inspect(sluice_inspection **out, const sluice_model *model, const int32_t *ids, int64_t windows,
                             int seq_len, const sluice_inspect_params *params, sluice_error *err) {
    sluice_inspect_params defaults = sluice_inspect_params_default();
    if (!params) params = &defaults;
    *out = NULL;
    if (windows < 1 || seq_len < 1 || seq_len > MAX_SEQ_LEN || params->batch < 0)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "inspect: found %lld windows of %d tokens and batch %d, expected at least 1, 1..%d and 0",
                            (long long)windows, seq_len, params->batch, MAX_SEQ_LEN);
    walk w = {.model = model, .ids = ids, .windows = windows, .seq_len = seq_len};
    sluice_status st = start(&w, params, err);
    if (st == SLUICE_OK) st = measure(&w, params->other_keys, out, err);
    for (int i = 0; w.layers && i < sluice_model_config(model)->num_hidden_layers; i++)
        sluice__layer_metrics_free(&w.layers[i]);
    sluice__free(w.layers);
    sluice__workspace_free(w.ws);
    return st;
}
