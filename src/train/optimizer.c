/* SPDX-License-Identifier: Apache-2.0 */
/* AdamW (Loshchilov & Hutter 2019) in one pass over the flat buffers; with Muon, what it rules is taken out of that
 * pass; Lion (Chen et al. 2023) is a pass of its own. */
#include "train/optimizer.h"
#include "base/memory.h"
#include "kernels/ops.h"
#include "model/tensors.h"
#include "sluice/train.h"
#include <math.h>
#include <stdlib.h>

static int by_offset(const void *a, const void *b) {
    const sluice__decay_run *x = a, *y = b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* One run a tensor, in flat order, then neighbours of one kind join. The alignment gap behind a tensor goes with
 * it: gaps hold zeros in all four buffers and stay zero. */
static void find_runs(sluice__optimizer *o, const sluice_model *model) {
    int n = sluice_model_num_tensors(model);
    for (int i = 0; i < n; i++) {
        sluice_tensor_info t = sluice_model_tensor(model, i);
        o->runs[i] = (sluice__decay_run){.offset = sluice__grad_offset(model, i),
                                         .decays = t.weight_decay,
                                         .muon = o->muon.on && t.hidden_matrix};
    }
    qsort(o->runs, (size_t)n, sizeof *o->runs, by_offset);
    for (int i = 0; i < n; i++) {
        sluice__decay_run r = o->runs[i];
        r.count = (i + 1 < n ? o->runs[i + 1].offset : o->size) - r.offset;
        sluice__decay_run *last = o->num_runs ? &o->runs[o->num_runs - 1] : NULL;
        if (last && last->decays == r.decays && last->muon == r.muon) last->count += r.count;
        else o->runs[o->num_runs++] = r;
    }
    for (int i = 0; i < o->num_runs; i++) {
        sluice__decay_run *r = &o->runs[i];
        r->second = r->muon || o->lion.on ? -1 : o->second_size;
        if (r->second >= 0) o->second_size += r->count;
    }
}

static sluice_status find_matrices(sluice__optimizer *o, const sluice_model *model, sluice_error *err) {
    int n = sluice_model_num_tensors(model);
    int64_t most = 1;
    o->matrices = sluice__calloc((size_t)n, sizeof *o->matrices, SLUICE__MEM_OPTIMIZER);
    if (!o->matrices) return sluice__no_memory(err, (size_t)n * sizeof *o->matrices, "the matrices of Muon");
    for (int i = 0; i < n; i++) {
        sluice_tensor_info t = sluice_model_tensor(model, i);
        if (!t.hidden_matrix) continue;
        int64_t scratch = sluice__muon_scratch(t.shape[0], t.shape[1]);
        o->matrices[o->num_matrices++] = (sluice__muon_matrix){sluice__grad_offset(model, i), t.shape[0], t.shape[1]};
        most = scratch > most ? scratch : most;
    }
    o->scratch = sluice__calloc((size_t)most, sizeof *o->scratch, SLUICE__MEM_OPTIMIZER);
    return o->scratch ? SLUICE_OK : sluice__no_memory(err, (size_t)most * sizeof *o->scratch, "the scratch of Muon");
}

static sluice_status allocate(sluice__optimizer *o, const sluice_model *model, sluice_error *err) {
    o->runs = sluice__calloc((size_t)sluice_model_num_tensors(model), sizeof *o->runs, SLUICE__MEM_OPTIMIZER);
    if (!o->runs) return sluice__no_memory(err, sizeof *o->runs, "the runs of the optimizer");
    find_runs(o, model);
    o->exp_avg = sluice__calloc((size_t)o->size, sizeof *o->exp_avg, SLUICE__MEM_OPTIMIZER);
    if (o->second_size)
        o->exp_avg_sq = sluice__calloc((size_t)o->second_size, sizeof *o->exp_avg_sq, SLUICE__MEM_OPTIMIZER);
    if (o->exp_avg && (o->exp_avg_sq || !o->second_size)) return SLUICE_OK;
    return sluice__no_memory(err, (size_t)(o->size + o->second_size) * sizeof(float), "the moments of the optimizer");
}

sluice_status sluice__optimizer_new(sluice__optimizer **out, const sluice_model *model,
                                    const sluice__adamw_options *options, const sluice__muon_options *muon,
                                    const sluice__lion_options *lion, sluice_error *err) {
    *out = NULL;
    sluice__optimizer *o = sluice__calloc(1, sizeof *o, SLUICE__MEM_OPTIMIZER);
    if (!o) return sluice__no_memory(err, sizeof *o, "the optimizer");
    o->options = *options;
    if (muon) o->muon = *muon;
    if (lion) o->lion = *lion;
    o->size = sluice__flat_size(model);
    sluice_status st = allocate(o, model, err);
    if (st == SLUICE_OK && o->muon.on) st = find_matrices(o, model, err);
    if (st != SLUICE_OK) {
        sluice__optimizer_free(o);
        return st;
    }
    *out = o;
    return SLUICE_OK;
}

void sluice__optimizer_free(sluice__optimizer *o) {
    if (!o) return;
    sluice__free(o->exp_avg);
    sluice__free(o->exp_avg_sq);
    sluice__free(o->runs);
    sluice__free(o->matrices);
    sluice__free(o->scratch);
    sluice__free(o);
}

int64_t sluice__optimizer_bytes(const sluice_config *config, int optim) {
    int64_t scratch = 0, hidden = 0, all = sluice_config_num_parameters(config), shape[2];
    sluice__place place = SLUICE__FIRST_PLACE;
    while (optim == SLUICE_OPTIM_MUON && sluice__place_next(config, &place)) {
        if (!sluice__slot_is_hidden_matrix(place.slot) ||
            !sluice__slot_shape(config, place.layer, place.slot, shape))
            continue;
        int64_t needs = sluice__muon_scratch(shape[0], shape[1]);
        scratch = needs > scratch ? needs : scratch;
        hidden += shape[0] * shape[1];
    }
    int64_t second = optim == SLUICE_OPTIM_LION ? 0 : all - hidden;
    return (all + second + scratch) * (int64_t)sizeof(float);
}

float *sluice__optimizer_second(const sluice__optimizer *o, int64_t offset) {
    for (int i = 0; i < o->num_runs; i++) {
        const sluice__decay_run *r = &o->runs[i];
        if (offset < r->offset || offset >= r->offset + r->count) continue;
        return r->second < 0 ? NULL : o->exp_avg_sq + r->second + (offset - r->offset);
    }
    return NULL;
}

double sluice__grad_norm(const sluice__optimizer *o, const float *grads) {
    return sqrt(sluice__sum_squares(grads, o->size));
}

double sluice__clip_factor(double norm, double max_norm) {
    double factor = max_norm / (norm + 1e-6);
    return max_norm > 0 && factor < 1.0 ? factor : 1.0;
}

/* A matrix without gradient (an expert that no token met) still decays. */
static void muon_steps(sluice__optimizer *o, float *params, float *grads, double lr, double grad_scale) {
    sluice__muon c = {.lr = lr * o->muon.lr_factor,
                      .momentum = o->muon.momentum,
                      .weight_decay = o->muon.weight_decay,
                      .grad_scale = grad_scale,
                      .adjust = o->muon.adjust,
                      .iterations = o->muon.iterations};
    for (int i = 0; i < o->num_matrices; i++) {
        const sluice__muon_matrix *m = &o->matrices[i];
        sluice__muon_step(&c, params + m->offset, o->exp_avg + m->offset, grads + m->offset, m->rows, m->columns,
                          o->scratch);
    }
}

static void adamw_run(sluice__optimizer *o, const sluice__decay_run *r, float *params, float *grads, double lr,
                      double grad_scale) {
    sluice__adamw c = {
        .lr = lr,
        .beta1 = o->options.beta1,
        .beta2 = o->options.beta2,
        .eps = o->options.eps,
        .weight_decay = r->decays ? o->options.weight_decay : 0.0,
        .grad_scale = grad_scale,
        .step = o->step,
        .zero_grad = true,
    };
    sluice__adamw_step(&c, params + r->offset, o->exp_avg + r->offset, o->exp_avg_sq + r->second, grads + r->offset,
                       r->count);
}

static void lion_run(sluice__optimizer *o, const sluice__decay_run *r, float *params, float *grads, double lr,
                     double grad_scale) {
    sluice__lion c = {.lr = lr,
                      .beta1 = o->lion.beta1,
                      .beta2 = o->lion.beta2,
                      .weight_decay = r->decays ? o->options.weight_decay : 0.0,
                      .grad_scale = grad_scale,
                      .zero_grad = true};
    sluice__lion_step(&c, params + r->offset, o->exp_avg + r->offset, grads + r->offset, r->count);
}

void sluice__optimizer_step(sluice__optimizer *o, float *params, float *grads, double lr, double grad_scale) {
    o->step++;
    muon_steps(o, params, grads, lr, grad_scale);
    for (int i = 0; i < o->num_runs; i++) {
        if (o->runs[i].muon) continue;
        if (o->lion.on) lion_run(o, &o->runs[i], params, grads, lr, grad_scale);
        else adamw_run(o, &o->runs[i], params, grads, lr, grad_scale);
    }
}
