/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the accumulators over windows of tokens and turns them into one inspection. */
#include "sluice/inspect.h"
#include "base/memory.h"
#include "inspect/intervene.h"
#include "kernels/ops.h"
#include <math.h>

enum { MAX_SEQ_LEN = 1 << 24 };

sluice_inspect_params sluice_inspect_params_default(void) {
    return (sluice_inspect_params){.batch = 0};
}

static double *doubles(size_t n) {
    return sluice__calloc(n, sizeof(double), SLUICE__MEM_OTHER);
}

static bool new_gate(sluice_gate_stats *g, size_t heads) {
    g->heads_mean = doubles(heads);
    g->heads_std = doubles(heads);
    g->heads_min = doubles(heads);
    g->heads_max = doubles(heads);
    g->heads_below_01 = doubles(heads);
    g->heads_hist =
        sluice__calloc(heads * SLUICE_GATE_BINS, sizeof *g->heads_hist, SLUICE__MEM_OTHER);
    return g->heads_mean && g->heads_std && g->heads_min && g->heads_max && g->heads_below_01 &&
           g->heads_hist;
}

static void free_gate(sluice_gate_stats *g) {
    sluice__free(g->heads_mean);
    sluice__free(g->heads_std);
    sluice__free(g->heads_min);
    sluice__free(g->heads_max);
    sluice__free(g->heads_below_01);
    sluice__free(g->heads_hist);
}

static bool new_layer(sluice_inspect_layer *l, const sluice_layer_spec *spec, int seq_len) {
    bool linear = sluice_layer_is_linear(spec);
    size_t heads = linear ? 0 : (size_t)spec->num_attention_heads,
           kv = linear ? 0 : (size_t)spec->num_key_value_heads;
    size_t states = (size_t)spec->delta.num_value_heads;
    l->share_heads = sluice__calloc(heads, sizeof *l->share_heads, SLUICE__MEM_OTHER);
    l->head_stats = sluice__calloc(heads, sizeof *l->head_stats, SLUICE__MEM_OTHER);
    l->share_queries = doubles((size_t)sluice__query_bins(seq_len));
    l->value_norm_first = doubles(kv);
    l->value_norm_others = doubles(kv);
    l->key_norm_first = doubles(kv);
    l->key_norm_others = doubles(kv);
    l->router.load = doubles((size_t)spec->moe.num_experts);
    l->delta.decay_heads = doubles(states);
    l->delta.beta_heads = doubles(states);
    l->learned_sink = doubles(heads);
    return l->delta.decay_heads && l->delta.beta_heads && l->learned_sink &&
           new_gate(&l->gate, heads) && l->share_heads && l->head_stats && l->share_queries &&
           l->value_norm_first && l->value_norm_others && l->key_norm_first && l->key_norm_others &&
           l->router.load;
}

static void free_layer(sluice_inspect_layer *l) {
    free_gate(&l->gate);
    sluice__free(l->share_heads);
    sluice__free(l->head_stats);
    sluice__free(l->share_queries);
    sluice__free(l->value_norm_first);
    sluice__free(l->value_norm_others);
    sluice__free(l->key_norm_first);
    sluice__free(l->key_norm_others);
    sluice__free(l->router.load);
    sluice__free(l->delta.decay_heads);
    sluice__free(l->delta.beta_heads);
    sluice__free(l->learned_sink);
}

static sluice_status new_inspection(sluice_inspection **out, const sluice__walk *w,
                                    sluice_error *err) {
    const sluice_config *c = sluice_model_config(w->model);
    sluice_inspection *r = sluice__calloc(1, sizeof *r, SLUICE__MEM_OTHER);
    if (!r) return sluice__no_memory(err, sizeof *r, "an inspection");
    r->windows = w->windows;
    r->seq_len = w->seq_len;
    r->query_bins = sluice__query_bins(w->seq_len);
    r->layers = sluice__calloc((size_t)c->num_hidden_layers, sizeof *r->layers, SLUICE__MEM_OTHER);
    bool ok = r->layers != NULL;
    if (ok) r->num_layers = c->num_hidden_layers;
    for (int i = 0; ok && i < r->num_layers; i++)
        ok = new_layer(&r->layers[i], &c->layers[i], w->seq_len);
    if (!ok) {
        sluice_inspection_free(r);
        return sluice__no_memory(err, (size_t)c->num_hidden_layers * sizeof *r->layers,
                                 "an inspection");
    }
    *out = r;
    return SLUICE_OK;
}

void sluice_inspection_free(sluice_inspection *r) {
    if (!r) return;
    for (int i = 0; i < r->num_layers; i++) free_layer(&r->layers[i]);
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

static double get_all(const sluice_inspect_layer *l) {
    return l->share.all;
}
static double get_from_1(const sluice_inspect_layer *l) {
    return l->share.from_1;
}
static double get_from_4(const sluice_inspect_layer *l) {
    return l->share.from_4;
}
static double get_from_quarter(const sluice_inspect_layer *l) {
    return l->share.from_quarter;
}
static double get_sink_rate(const sluice_inspect_layer *l) {
    return l->sink_rate;
}
static double get_sink_rate_64(const sluice_inspect_layer *l) {
    return l->sink_rate_64;
}
static double get_max(const sluice_inspect_layer *l) {
    return l->residual_max;
}
static double get_gate(const sluice_inspect_layer *l) {
    return l->gate.mean;
}

static void summarise(sluice_inspection *r) {
    r->share = (sluice_first_share){layer_mean(r, get_all), layer_mean(r, get_from_1),
                                    layer_mean(r, get_from_4), layer_mean(r, get_from_quarter)};
    r->sink_rate = layer_mean(r, get_sink_rate);
    r->sink_rate_64 = layer_mean(r, get_sink_rate_64);
    r->m_act = layer_mean(r, get_max);
    r->gate_mean = layer_mean(r, get_gate);
    for (int i = 0; i < r->num_layers; i++) {
        const sluice_inspect_layer *l = &r->layers[i];
        r->massive_total += l->residual_massive;
        r->heads += l->heads;
        for (int h = 0; h < l->heads; h++)
            r->sink_heads += l->share_heads[h].from_quarter > SLUICE_SINK_THRESHOLD;
    }
}

static void loss_result(sluice_inspection *r, const sluice__walk_loss *loss) {
    r->scored = loss->scored;
    r->scored_half = loss->scored_half;
    r->loss = loss->scored ? loss->nll / (double)loss->scored : NAN;
    r->perplexity = exp(r->loss);
    r->perplexity_half = loss->scored_half ? exp(loss->nll_half / (double)loss->scored_half) : NAN;
}

/* A pass that ended at a number that is not finite: says which weight is to blame, if one is. */
static sluice_status blame_weights(const sluice_model *model, sluice_status st, sluice_error *err) {
    for (int i = 0; st == SLUICE_ERR_NUMERIC && i < sluice_model_num_tensors(model); i++) {
        sluice_tensor_info t = sluice_model_tensor(model, i);
        if (t.data) t.nonfinite |= sluice__first_nonfinite(t.data, t.count) >= 0;
        if (t.nonfinite)
            return sluice__fail_in(
                err, st, "%s holds NaN or infinite values, so the weights are damaged", t.name);
    }
    return st;
}

static sluice_status measure(const sluice__walk *w, const sluice_inspect_params *p,
                             sluice_inspection **out, sluice_error *err) {
    sluice__measuring ask = {.seq_len = w->seq_len,
                             .measures = p->measures ? p->measures : SLUICE_MEASURE_DEFAULT,
                             .other_keys = p->other_keys};
    sluice__walk_loss loss = {0};
    sluice__layer_metrics *layers;
    SLUICE__TRY(sluice__walk_metrics_new(&layers, w, &ask, err));
    sluice_status st = sluice__walk_measure(w, layers, &ask,
                                            ask.measures & SLUICE_MEASURE_LOSS ? &loss : NULL, err);
    if (st == SLUICE_OK) st = new_inspection(out, w, err);
    if (st == SLUICE_OK) {
        for (int i = 0; i < (*out)->num_layers; i++)
            sluice__metrics_result(&layers[i], &(*out)->layers[i]);
        loss_result(*out, &loss);
        summarise(*out);
    }
    sluice__walk_metrics_free(layers, w);
    return st;
}

static sluice_status measure_changed(sluice__walk *w, const sluice_inspect_params *p,
                                     sluice_inspection **out, sluice_error *err) {
    sluice__prepared change;
    if (!p->change) return measure(w, p, out, err);
    sluice_status st = sluice__intervention_prepare(&change, p->change, w, err);
    sluice__workspace_intervene(w->ws, &change.change);
    if (st == SLUICE_OK) st = measure(w, p, out, err);
    sluice__workspace_intervene(w->ws, NULL);
    sluice__prepared_free(&change);
    return st;
}

sluice_status sluice_inspect(sluice_inspection **out, const sluice_model *model, const int32_t *ids,
                             int64_t windows, int seq_len, const sluice_inspect_params *params,
                             sluice_error *err) {
    sluice_inspect_params p = params ? *params : sluice_inspect_params_default();
    *out = NULL;
    if (windows < 1 || seq_len < 1 || seq_len > MAX_SEQ_LEN || p.batch < 0)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "inspect: found %lld windows of %d tokens and batch %d, expected at "
                            "least 1, 1..%d and 0",
                            (long long)windows, seq_len, p.batch, MAX_SEQ_LEN);
    sluice__walk w;
    SLUICE__TRY(sluice__walk_new(&w, model, ids, windows, seq_len, p.batch, err));
    w.marks = p.marks;
    w.stop_requested = p.stop_requested;
    w.user = p.user;
    sluice_status st = measure_changed(&w, &p, out, err);
    sluice__walk_free(&w);
    return blame_weights(model, st, err);
}
