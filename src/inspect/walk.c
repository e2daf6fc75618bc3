/* SPDX-License-Identifier: Apache-2.0 */
/* Windows go through the model in batches; a pass ends early when an accumulator objects. */
#include "inspect/walk.h"
#include "base/error.h"
#include "base/memory.h"

enum { PASS_TOKENS = 4096 };

typedef struct listener {
    sluice__layer_metrics *layers;
    sluice__row_tokens tokens;
    int64_t window; /* first one of the batch */
    bool second;
} listener;

sluice_status sluice__walk_new(sluice__walk *w, const sluice_model *model, const int32_t *ids,
                               int64_t windows, int seq_len, int batch, sluice_error *err) {
    int64_t fit = batch ? batch : PASS_TOKENS / seq_len;
    *w = (sluice__walk){.model = model, .ids = ids, .windows = windows, .seq_len = seq_len};
    w->batch = fit < 1 ? 1 : fit > windows ? (int)windows : (int)fit;
    size_t tokens = (size_t)w->batch * (size_t)seq_len;
    w->labels = sluice__calloc(tokens, sizeof *w->labels, SLUICE__MEM_DATA);
    w->earlier = sluice__calloc(tokens, sizeof *w->earlier, SLUICE__MEM_DATA);
    w->nll = sluice__calloc(tokens, sizeof *w->nll, SLUICE__MEM_DATA);
    sluice_status st = w->labels && w->earlier && w->nll
                           ? SLUICE_OK
                           : sluice__no_memory(err, 12 * tokens, "windows");
    if (st == SLUICE_OK)
        st = sluice__workspace_new(&w->ws, model, w->batch, seq_len, SLUICE__INFER, err);
    if (st != SLUICE_OK) sluice__walk_free(w);
    return st;
}

void sluice__walk_free(sluice__walk *w) {
    sluice__workspace_free(w->ws);
    sluice__free(w->labels);
    sluice__free(w->earlier);
    sluice__free(w->nll);
    *w = (sluice__walk){0};
}

static int num_layers(const sluice__walk *w) {
    return sluice_model_config(w->model)->num_hidden_layers;
}

sluice_status sluice__walk_metrics_new(sluice__layer_metrics **out, const sluice__walk *w,
                                       const sluice__measuring *ask, sluice_error *err) {
    const sluice_config *c = sluice_model_config(w->model);
    size_t n = (size_t)c->num_hidden_layers;
    sluice__layer_metrics *layers = sluice__calloc(n, sizeof *layers, SLUICE__MEM_OTHER);
    *out = NULL;
    if (!layers) return sluice__no_memory(err, n * sizeof *layers, "layer statistics");
    sluice_status st = SLUICE_OK;
    for (int i = 0; st == SLUICE_OK && i < num_layers(w); i++)
        st = sluice__layer_metrics_new(&layers[i], &c->layers[i], ask, err);
    if (st == SLUICE_OK)
        *out = layers;
    else
        sluice__walk_metrics_free(layers, w);
    return st;
}

void sluice__walk_metrics_free(sluice__layer_metrics *layers, const sluice__walk *w) {
    if (!layers) return;
    for (int i = 0; i < num_layers(w); i++) sluice__layer_metrics_free(&layers[i]);
    sluice__free(layers);
}

static sluice_status on_event(void *user, const sluice__probe_event *e, sluice_error *err) {
    listener *l = user;
    if (e->layer < 0) return SLUICE_OK;
    sluice__layer_metrics *m = &l->layers[e->layer];
    m->window = l->window;
    m->tokens = &l->tokens;
    if (!l->second) return sluice__metrics_first(m, e, err);
    sluice__metrics_second(m, e);
    return SLUICE_OK;
}

/* The batch that begins with window `at`. */
static sluice__input batch_at(const sluice__walk *w, int64_t at) {
    int64_t left = w->windows - at;
    return (sluice__input){.batch = left < w->batch ? (int)left : w->batch,
                           .seq_len = w->seq_len,
                           .ids = w->ids + at * w->seq_len};
}

static void count_loss(const sluice__walk *w, int batch, sluice__walk_loss *sum) {
    for (int b = 0; b < batch; b++)
        for (int t = 0; t + 1 < w->seq_len; t++) {
            double nll = w->nll[(int64_t)b * w->seq_len + t];
            bool late = t >= w->seq_len / 2;
            sum->nll += nll;
            sum->scored++;
            sum->nll_half += late ? nll : 0;
            sum->scored_half += late;
        }
}

/* Between a listener (probe NULL = none) and the pass: asks behind every layer whether to go on. One window may take minutes. */
typedef struct guard {
    const sluice__walk *walk;
    const sluice__probe *probe;
} guard;

static sluice_status on_guarded(void *user, const sluice__probe_event *e, sluice_error *err) {
    const guard *g = user;
    const sluice__walk *w = g->walk;
    if (e->point == SLUICE__PROBE_RESID_FFN && w->stop_requested(w->user))
        return sluice__fail(err, SLUICE_INTERRUPTED, "interrupted");
    bool wanted = g->probe && g->probe->wants >> e->point & 1;
    return wanted ? g->probe->on(g->probe->user, e, err) : SLUICE_OK;
}

static sluice_status run_batch(const sluice__walk *w, int64_t at, const sluice__probe *probe,
                               sluice__walk_loss *sum, sluice_error *err) {
    guard g = {w, probe};
    sluice__probe guarded = {.user = &g,
                             .wants = (probe ? probe->wants : 0) | 1u << SLUICE__PROBE_RESID_FFN,
                             .on = on_guarded};
    if (w->stop_requested) probe = &guarded;
    sluice__input in = batch_at(w, at);
    if (!sum)
        return sluice__forward(w->model, w->ws, &in, NULL, probe, SLUICE__LOGITS_NONE, NULL, err);
    int64_t tokens = (int64_t)in.batch * w->seq_len;
    for (int64_t i = 0; i < tokens; i++) w->labels[i] = (i + 1) % w->seq_len ? in.ids[i + 1] : -1;
    in.labels = w->labels;
    sluice__loss loss;
    SLUICE__TRY(sluice__evaluate(w->model, w->ws, &in, probe, w->nll, &loss, err));
    count_loss(w, in.batch, sum);
    return SLUICE_OK;
}

sluice_status sluice__walk_listen(const sluice__walk *w, const sluice__probe *probe,
                                  sluice_error *err) {
    for (int64_t at = 0; at < w->windows; at += w->batch)
        SLUICE__TRY(run_batch(w, at, probe, NULL, err));
    return SLUICE_OK;
}

static sluice_status run_pass(const sluice__walk *w, sluice__layer_metrics *layers, uint32_t wants,
                              bool second, sluice__walk_loss *sum, sluice_error *err) {
    bool rows = wants >> SLUICE__PROBE_ATTN_ROWS & 1;
    listener l = {.layers = layers, .second = second};
    sluice__probe probe = {.user = &l, .wants = wants, .on = on_event};
    for (int64_t at = 0; at < w->windows; at += w->batch) {
        sluice__input in = batch_at(w, at);
        if (rows) SLUICE__TRY(sluice__find_earlier(w->earlier, in.ids, in.batch, w->seq_len, err));
        l.window = at;
        l.tokens = (sluice__row_tokens){w->seq_len, w->earlier,
                                        w->marks ? w->marks + at * w->seq_len : NULL};
        SLUICE__TRY(run_batch(w, at, &probe, sum, err));
    }
    return SLUICE_OK;
}

sluice_status sluice__walk_measure(const sluice__walk *w, sluice__layer_metrics *layers,
                                   const sluice__measuring *ask, sluice__walk_loss *loss,
                                   sluice_error *err) {
    uint32_t first = sluice__metrics_wants(ask, false), second = sluice__metrics_wants(ask, true);
    if (first || loss) SLUICE__TRY(run_pass(w, layers, first, false, loss, err));
    for (int i = 0; i < num_layers(w); i++) SLUICE__TRY(sluice__metrics_between(&layers[i], err));
    return second ? run_pass(w, layers, second, true, NULL, err) : SLUICE_OK;
}
