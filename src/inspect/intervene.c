/* SPDX-License-Identifier: Apache-2.0 */
/* Preparing an intervention. Means are over all tokens of all windows; what is massive follows
 * Sun's rule with the medians of the unchanged model, so that the same elements are meant whatever
 * the change does to the rest. */
#include "inspect/intervene.h"
#include "base/memory.h"
#include "model/weights.h"
#include <math.h>

static bool has_gate(const sluice_config *c) {
    for (int i = 0; i < c->num_hidden_layers; i++)
        if (!sluice_layer_is_linear(&c->layers[i]) &&
            c->layers[i].gate.position != SLUICE_GATE_NONE)
            return true;
    return false;
}

sluice_status sluice__intervention_check(const sluice_intervention *x, const sluice_config *c,
                                         sluice_error *err) {
    if (x->gate != SLUICE_GATE_KEEP && !has_gate(c))
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "intervention on the gate: the model has none");
    if (x->gate == SLUICE_GATE_VALUE_OF && !isfinite(x->gate_value))
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "intervention on the gate: found %g, expected a finite number",
                            x->gate_value);
    if (x->window < 0 || x->sinks < 0 || (x->sinks && !x->window))
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "intervention on attention: found window %d and %d sinks, expected 0 "
                            "or more; sinks need a "
                            "window",
                            x->window, x->sinks);
    if (!(x->residual_clip >= 0) || isinf(x->residual_clip))
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "residual_clip: found %g, expected a positive number or 0 (off)",
                            x->residual_clip);
    return SLUICE_OK;
}

/* Puts scores of the forms that a gate event has, [n, w] or one value, into the layer's [heads, w].
 */
static sluice_status fill_gate(sluice__prepared *p, const sluice_config *c, int layer,
                               const sluice_intervention *x, const sluice__gate_metrics *g,
                               sluice_error *err) {
    sluice__layer_sizes z = sluice__layer_sizes_of(c, layer);
    int64_t n = (int64_t)z.gate_heads * z.gate_width;
    if (!n || (g && !g->tokens && x->gate != SLUICE_GATE_VALUE_OF)) return SLUICE_OK;
    p->gate[layer] = sluice__calloc((size_t)n, sizeof(float), SLUICE__MEM_OTHER);
    if (!p->gate[layer]) return sluice__no_memory(err, (size_t)n * sizeof(float), "gate scores");
    for (int64_t i = 0; i < n; i++) {
        double v = x->gate_value;
        if (x->gate == SLUICE_GATE_LAYER_MEAN) v = sluice__gate_mean(g);
        if (x->gate == SLUICE_GATE_CHANNEL_MEAN)
            v = g->channel[i % ((int64_t)g->heads * g->width)] / (double)g->tokens;
        p->gate[layer][i] = (float)v;
    }
    return SLUICE_OK;
}

/* ---- massive activations ---- */

typedef struct massive_sums {
    const sluice__massive_change *change;
    double **sum;    /* [layers][D] */
    int64_t **count; /* the same */
} massive_sums;

static sluice_status on_residual(void *user, const sluice__probe_event *e, sluice_error *err) {
    massive_sums *s = user;
    (void)err;
    if (e->layer < 0 || !isfinite(s->change[e->layer].bound)) return SLUICE_OK;
    int64_t dim = e->shape[2], n = e->shape[0] * e->shape[1] * dim;
    for (int64_t i = 0; i < n; i++) {
        float size = fabsf(e->data[i]);
        if (!(size > 100.0f && size >= s->change[e->layer].bound)) continue;
        s->sum[e->layer][i % dim] += e->data[i];
        s->count[e->layer][i % dim]++;
    }
    return SLUICE_OK;
}

static sluice_status alloc_sums(massive_sums *s, int layers, int dim, sluice_error *err) {
    s->sum = sluice__calloc((size_t)layers, sizeof *s->sum, SLUICE__MEM_OTHER);
    s->count = sluice__calloc((size_t)layers, sizeof *s->count, SLUICE__MEM_OTHER);
    bool ok = s->sum && s->count;
    for (int i = 0; ok && i < layers; i++) {
        s->sum[i] = sluice__calloc((size_t)dim, sizeof(double), SLUICE__MEM_OTHER);
        s->count[i] = sluice__calloc((size_t)dim, sizeof(int64_t), SLUICE__MEM_OTHER);
        ok = s->sum[i] && s->count[i];
    }
    return ok ? SLUICE_OK
              : sluice__no_memory(err, (size_t)layers * (size_t)dim * 16, "massive activations");
}

static void free_sums(massive_sums *s, int layers) {
    for (int i = 0; i < layers; i++) {
        if (s->sum) sluice__free(s->sum[i]);
        if (s->count) sluice__free(s->count[i]);
    }
    sluice__free(s->sum);
    sluice__free(s->count);
}

/* The mean of the massive elements of each layer and channel. */
static sluice_status mean_massive(sluice__prepared *p, const sluice__walk *w, sluice_error *err) {
    int dim = sluice_model_config(w->model)->hidden_size;
    massive_sums s = {.change = p->massive};
    sluice__probe probe = {.user = &s, .wants = 1u << SLUICE__PROBE_RESID_FFN, .on = on_residual};
    sluice_status st = alloc_sums(&s, p->layers, dim, err);
    if (st == SLUICE_OK) st = sluice__walk_listen(w, &probe, err);
    for (int i = 0; st == SLUICE_OK && i < p->layers; i++) {
        p->massive_value[i] = sluice__calloc((size_t)dim, sizeof(float), SLUICE__MEM_OTHER);
        if (!p->massive_value[i])
            st = sluice__no_memory(err, (size_t)dim * sizeof(float), "massive activations");
        for (int d = 0; st == SLUICE_OK && d < dim; d++)
            if (s.count[i][d])
                p->massive_value[i][d] = (float)(s.sum[i][d] / (double)s.count[i][d]);
        p->massive[i].value = p->massive_value[i];
    }
    free_sums(&s, p->layers);
    return st;
}

static sluice_status find_massive(sluice__prepared *p, const sluice_intervention *x,
                                  const sluice__layer_metrics *m, const sluice__walk *w,
                                  sluice_error *err) {
    for (int i = 0; i < p->layers; i++) {
        sluice_place_stats s = sluice__place_result(&m[i].places[SLUICE_PLACE_RESID_FFN]);
        p->massive[i].bound = s.massive ? (float)(1000.0 * s.median) : INFINITY;
    }
    p->change.massive = p->massive;
    return x->massive == SLUICE_MASSIVE_MEAN ? mean_massive(p, w, err) : SLUICE_OK;
}

static sluice_status alloc_prepared(sluice__prepared *p, const sluice__walk *w, sluice_error *err) {
    p->layers = sluice_model_config(w->model)->num_hidden_layers;
    size_t n = (size_t)p->layers;
    p->gate = sluice__calloc(n, sizeof *p->gate, SLUICE__MEM_OTHER);
    p->massive = sluice__calloc(n, sizeof *p->massive, SLUICE__MEM_OTHER);
    p->massive_value = sluice__calloc(n, sizeof *p->massive_value, SLUICE__MEM_OTHER);
    if (p->gate && p->massive && p->massive_value) return SLUICE_OK;
    return sluice__no_memory(err, n * sizeof *p->massive, "an intervention");
}

/* Runs the unchanged model for what has to be known first. */
static sluice_status measure_first(sluice__prepared *p, const sluice_intervention *x,
                                   const sluice__walk *w, sluice_error *err) {
    const sluice_config *c = sluice_model_config(w->model);
    bool means = x->gate == SLUICE_GATE_LAYER_MEAN || x->gate == SLUICE_GATE_CHANNEL_MEAN;
    sluice__measuring ask = {.seq_len = w->seq_len,
                             .measures = x->massive ? SLUICE_MEASURE_MEDIANS : 0,
                             .channels = means};
    sluice__layer_metrics *m;
    SLUICE__TRY(sluice__walk_metrics_new(&m, w, &ask, err));
    sluice_status st =
        x->massive || means ? sluice__walk_measure(w, m, &ask, NULL, err) : SLUICE_OK;
    for (int i = 0; st == SLUICE_OK && x->gate && i < p->layers; i++)
        st = fill_gate(p, c, i, x, &m[i].gate, err);
    if (st == SLUICE_OK && x->massive) st = find_massive(p, x, m, w, err);
    sluice__walk_metrics_free(m, w);
    return st;
}

sluice_status sluice__intervention_prepare(sluice__prepared *p, const sluice_intervention *x,
                                           const sluice__walk *w, sluice_error *err) {
    *p = (sluice__prepared){0};
    SLUICE__TRY(sluice__intervention_check(x, sluice_model_config(w->model), err));
    SLUICE__TRY(alloc_prepared(p, w, err));
    p->change = (sluice__intervention){
        .window = x->window, .sinks = x->sinks, .residual_clip = (float)x->residual_clip};
    if (x->gate) p->change.gate = (const float *const *)p->gate;
    return measure_first(p, x, w, err);
}

void sluice__prepared_free(sluice__prepared *p) {
    for (int i = 0; i < p->layers; i++) {
        if (p->gate) sluice__free(p->gate[i]);
        if (p->massive_value) sluice__free(p->massive_value[i]);
    }
    sluice__free(p->gate);
    sluice__free(p->massive);
    sluice__free(p->massive_value);
    *p = (sluice__prepared){0};
}
