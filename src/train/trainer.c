/* SPDX-License-Identifier: Apache-2.0 */
/* The trainer: one update, and what may go wrong in it. */
#include "train/trainer.h"
#include "base/log.h"
#include "base/memory.h"
#include "kernels/ops.h"
#include "train/guard.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_SKIPS_IN_A_ROW = 20, SPIKES_TOLD = 5 };

static sluice_status no_room(sluice_error *err, const sluice_trainer *t) {
    return sluice__no_memory(err, (size_t)sluice__flat_size(t->model) * sizeof(float), "gradients and batches");
}

/* Of the largest batch. */
static int64_t most_rows(const sluice_trainer *t) {
    return t->params.per_device_train_batch_size * t->params.gradient_accumulation_steps;
}

/* Of the current batch, which may be one of the batch-size warm-up. */
static int64_t passes_now(const sluice_trainer *t) {
    return sluice__batches_passes(&t->batches, t->state.batch);
}

static int64_t rows_now(const sluice_trainer *t) {
    return t->params.per_device_train_batch_size * passes_now(t);
}

static sluice_status allocate(sluice_trainer *t, sluice_error *err) {
    const sluice_train_params *p = &t->params;
    int batch = (int)p->per_device_train_batch_size;
    sluice__adamw_options adamw = {p->adam_beta1, p->adam_beta2, p->adam_epsilon, p->weight_decay};
    size_t cells = (size_t)most_rows(t) * (size_t)t->data.seq_len;
    sluice__muon_options muon = {
        .on = p->optim == SLUICE_OPTIM_MUON,
        .lr_factor = p->muon_learning_rate > 0 ? p->muon_learning_rate / p->learning_rate : 1,
        .momentum = p->muon_momentum,
        .weight_decay = p->weight_decay,
        .adjust = p->muon_adjust == SLUICE_MUON_ORIGINAL ? SLUICE__MUON_ORIGINAL : SLUICE__MUON_MATCH_RMS,
        .iterations = (int)p->muon_ns_steps};
    sluice__lion_options lion = {p->optim == SLUICE_OPTIM_LION, p->lion_beta1, p->lion_beta2};
    SLUICE__TRY(sluice__optimizer_new(&t->optimizer, t->model, &adamw, &muon, &lion, err));
    SLUICE__TRY(sluice__router_new(&t->router, sluice_model_config(t->model), err));
    SLUICE__TRY(sluice__workspace_new(&t->workspace, t->model, batch, t->data.seq_len, sluice__train_mode(p), err));
    SLUICE__TRY(sluice__sink_probe_new(&t->probe, sluice_model_config(t->model)->num_hidden_layers, err));
    t->grads = sluice__calloc((size_t)sluice__flat_size(t->model), sizeof *t->grads, SLUICE__MEM_GRADIENTS);
    t->tokens = sluice__calloc(cells, 4 * sizeof *t->tokens, SLUICE__MEM_DATA);
    t->nll = sluice__calloc((size_t)batch * (size_t)t->data.seq_len, sizeof *t->nll, SLUICE__MEM_ACTIVATIONS);
    size_t layers = (size_t)sluice_model_config(t->model)->num_hidden_layers;
    t->layer_entropy = sluice__calloc(layers, sizeof *t->layer_entropy, SLUICE__MEM_OTHER);
    return t->grads && t->tokens && t->nll && t->layer_entropy ? SLUICE_OK : no_room(err, t);
}

static sluice_status check_parts(sluice_trainer *t, sluice_error *err) {
    const sluice_train_params *p = &t->params;
    const sluice_config *c = sluice_model_config(t->model);
    SLUICE__TRY(sluice_train_params_check(p, err));
    if (t->data.vocab_size > c->vocab_size)
        return sluice__fail(err, SLUICE_ERR_CONFIG, "vocab_size: found %d, but the data has ids up to %d",
                            c->vocab_size, t->data.vocab_size - 1);
    if (t->data.seq_len != p->seq_len)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "seq_len: found %" PRId64 ", but the data was made for %d",
                            p->seq_len, t->data.seq_len);
    if (most_rows(t) > INT32_MAX / 4)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "gradient_accumulation_steps: %" PRId64 " windows in an update, expected "
                            "at most %d",
                            most_rows(t), INT32_MAX / 4);
    if (!*p->output_dir && (p->on_spike == SLUICE_ON_SPIKE_REWIND || p->on_nan == SLUICE_ON_NAN_REWIND))
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "on_spike, on_nan: rewind needs an output_dir to keep checkpoints in");
    SLUICE__TRY(sluice__batches_of(&t->batches, p, err));
    return sluice__train_schedule(&t->schedule, p, t->data.train_windows, err);
}

sluice_status sluice_trainer_new(sluice_trainer **out, const sluice_train_params *p, sluice_model *model,
                                 const sluice_dataset *dataset, const sluice_tokenizer *tokenizer, const char *label,
                                 sluice_error *err) {
    *out = NULL;
    sluice_trainer *t = sluice__calloc(1, sizeof *t, SLUICE__MEM_OTHER);
    if (!t) return sluice__no_memory(err, sizeof *t, "a trainer");
    t->params = *p;
    t->model = model;
    t->dataset = dataset;
    t->tokenizer = tokenizer;
    t->data = sluice_dataset_get_info(dataset);
    t->lock = -1;
    t->saved_step = -1;
    t->state.last_eval = -1;
    t->last.loss = NAN;
    snprintf(t->label, sizeof t->label, "%s", label ? label : "train");
    sluice__spike_watch_init(&t->state.watch, (sluice__spike_options){p->loss_spike_alpha, p->loss_spike_threshold,
                                                                      p->loss_spike_start, p->loss_spike_min_gap});
    sluice_status st = check_parts(t, err);
    if (st == SLUICE_OK) st = allocate(t, err);
    if (st != SLUICE_OK) sluice_trainer_free(t);
    else *out = t;
    return st;
}

void sluice_trainer_free(sluice_trainer *t) {
    if (!t) return;
    sluice__trainer_close_dir(t);
    sluice__optimizer_free(t->optimizer);
    sluice__router_free(t->router);
    sluice__workspace_free(t->workspace);
    sluice__sink_probe_free(t->probe);
    sluice__free(t->grads);
    sluice__free(t->tokens);
    sluice__free(t->nll);
    sluice__free(t->layer_entropy);
    sluice__free(t);
}

int64_t sluice_trainer_current_step(const sluice_trainer *t) {
    return t->state.step;
}

int64_t sluice_trainer_total_steps(const sluice_trainer *t) {
    return t->schedule.total;
}

sluice__checkpoint_parts sluice__trainer_parts(sluice_trainer *t) {
    return (sluice__checkpoint_parts){&t->params, t->model, t->tokenizer, t->optimizer, &t->state, t->data, false};
}

/* ---- batches ---- */

sluice_window sluice__trainer_row(const sluice_trainer *t, int64_t row) {
    int64_t plane = most_rows(t) * t->data.seq_len;
    int32_t *at = t->tokens + row * t->data.seq_len;
    return (sluice_window){at, at + plane, at + 2 * plane, at + 3 * plane};
}

sluice__input sluice__trainer_input(const sluice_trainer *t, int64_t first, int rows) {
    sluice_window w = sluice__trainer_row(t, first);
    bool mask = t->params.document_mask;
    return (sluice__input){rows,     t->data.seq_len,           w.ids,
                           w.labels, mask ? w.positions : NULL, mask ? w.key_start : NULL};
}

/* Fills t->tokens with the windows of the current batch; returns the number of scored tokens. */
static int64_t fill_batch(sluice_trainer *t) {
    int64_t rows = rows_now(t), first = sluice__batches_before(&t->batches, t->state.batch), scored = 0;
    for (int64_t r = 0; r < rows; r++) {
        sluice_window w = sluice__trainer_row(t, r);
        sluice_dataset_train_window(t->dataset, first + r, &w);
        for (int i = 0; i < t->data.seq_len; i++) scored += w.labels[i] >= 0;
    }
    return scored;
}

/* ---- one update ---- */

/* The balance loss of several passes needs their counts before the first gradient. */
static sluice_status begin_routing(sluice_trainer *t, sluice_error *err) {
    static const sluice__balance kinds[] = {SLUICE__BALANCE_GLOBAL, SLUICE__BALANCE_RUNNING, SLUICE__BALANCE_MICRO};
    int64_t passes = passes_now(t), micro = t->params.per_device_train_batch_size;
    sluice__balance kind = kinds[t->params.router_balance];
    sluice__router_reset(t->router, kind, rows_now(t) * t->data.seq_len);
    if (kind != SLUICE__BALANCE_GLOBAL || passes == 1 || t->router->aux_coef == 0) return SLUICE_OK;
    for (int64_t i = 0; i < passes; i++) {
        sluice__input in = sluice__trainer_input(t, i * micro, (int)micro);
        SLUICE__TRY(sluice__count_routing(t->model, t->workspace, &in, t->router, err));
    }
    return SLUICE_OK;
}

static void record_routing(sluice_trainer *t) {
    const sluice__router *r = t->router;
    sluice__router_summary s = sluice__router_summarise(r, sluice_model_config(t->model));
    t->last.routed = true;
    t->last.balance_loss = r->balance_loss;
    t->last.z_loss = r->z_loss;
    t->last.router_entropy = s.entropy;
    t->last.max_expert_load = s.max_load;
    t->last.dead_experts = s.dead_experts;
    t->last.num_layers = r->layers;
    t->last.num_experts = r->experts;
    t->last.expert_load = r->counts;
    for (int l = 0; l < r->layers; l++)
        t->layer_entropy[l] = sluice__router_summarise_layer(r, sluice_model_config(t->model), l).entropy;
    t->last.layer_entropy = t->layer_entropy;
}

/* Gradients of the mean loss over the whole step: every micro-batch is scaled by the step's number of scored
 * tokens. */
static sluice_status accumulate(sluice_trainer *t, double *loss, sluice_error *err) {
    int64_t scored = fill_batch(t), micro = t->params.per_device_train_batch_size;
    double scale = 1.0 / (double)(scored > 0 ? scored : 1), sum = 0;
    if (t->router) SLUICE__TRY(begin_routing(t, err));
    for (int64_t i = 0, passes = passes_now(t); i < passes; i++) {
        sluice__input in = sluice__trainer_input(t, i * micro, (int)micro);
        sluice__loss part;
        SLUICE__TRY(sluice__loss_and_grads_routed(t->model, t->workspace, &in, NULL, scale, t->router, t->grads,
                                                  &part, err));
        sum += part.nll_sum;
    }
    *loss = sum * scale;
    if (t->router) record_routing(t);
    return SLUICE_OK;
}

void sluice__trainer_diagnose(sluice_trainer *t, char *out, size_t size) {
    sluice__guard_weights(t->model, out, size);
    int64_t micro = t->params.per_device_train_batch_size;
    for (int64_t i = 0, passes = passes_now(t); i < passes && !*out; i++) {
        sluice__input in = sluice__trainer_input(t, i * micro, (int)micro);
        if (sluice__guard_activations(t->model, t->workspace, &in, out, size, NULL) != SLUICE_OK) *out = '\0';
    }
    if (!*out) sluice__guard_gradients(t->model, t->grads, out, size);
    if (!*out) snprintf(out, size, "the sum of squares of the gradients (every element is finite)");
}

static void drop_gradients(sluice_trainer *t) {
    memset(t->grads, 0, (size_t)sluice__flat_size(t->model) * sizeof *t->grads);
}

static sluice_status leave_out(sluice_trainer *t, const char *why, sluice_error *err) {
    char bad[160];
    drop_gradients(t);
    sluice__guard_weights(t->model, bad, sizeof bad);
    if (*bad)
        return sluice__fail(err, SLUICE_ERR_NUMERIC, "step %" PRId64 ": %s; leaving the batch out does not help: %s",
                            t->state.step + 1, why, bad);
    if (++t->skips_in_row > MOST_SKIPS_IN_A_ROW)
        return sluice__fail(err, SLUICE_ERR_NUMERIC, "step %" PRId64 ": %s; %d batches in a row were left out",
                            t->state.step + 1, why, MOST_SKIPS_IN_A_ROW);
    t->state.skipped++;
    t->state.batch++;
    t->last.verdict = SLUICE_STEP_SKIPPED;
    sluice__log(SLUICE_LOG_WARNING, "%s: step %" PRId64 ": %s; the batch is left out", t->label, t->state.step + 1,
                why);
    if (t->begun && *t->params.output_dir) sluice__run_log_event(&t->log, "skip", t->state.step, t->last.loss, why);
    return SLUICE_OK;
}

static sluice_status stop(sluice_trainer *t, const char *why, sluice_error *err) {
    drop_gradients(t);
    char kept[SLUICE_TRAIN_PATH + 64] = "";
    bool finite = isfinite(t->last.loss) && isfinite(t->last.grad_norm); /* then the run saves this state itself */
    if (t->saved_step >= 0 && !finite)
        snprintf(kept, sizeof kept, "; the last checkpoint is %s/checkpoints/step-%" PRId64, t->params.output_dir,
                 t->saved_step);
    if (t->begun && *t->params.output_dir) sluice__run_log_event(&t->log, "stop", t->state.step, t->last.loss, why);
    return sluice__fail(err, SLUICE_ERR_NUMERIC, "step %" PRId64 ": %s%s", t->state.step + 1, why, kept);
}

static sluice_status go_back(sluice_trainer *t, const char *why, sluice_error *err) {
    if (t->rewinds_in_row >= t->params.max_rewinds)
        return sluice__fail(err, SLUICE_ERR_NUMERIC, "step %" PRId64 ": %s; gave up after %" PRId64 " rewinds",
                            t->state.step + 1, why, t->rewinds_in_row);
    drop_gradients(t);
    int64_t from = t->state.step;
    t->state.batch++;
    SLUICE__TRY(sluice__trainer_rewind(t, err));
    char text[512];
    snprintf(text, sizeof text,
             "%.300s; back from step %" PRId64 " to %" PRId64 ", the batches since then are left out", why, from,
             t->state.step);
    sluice__log(SLUICE_LOG_WARNING, "%s: %s", t->label, text);
    sluice__run_log_event(&t->log, "rewind", t->state.step, t->last.loss, text);
    t->last.verdict = SLUICE_STEP_REWOUND;
    return SLUICE_OK;
}

/* What to do about a loss or gradient that is not finite. */
static sluice_status handle_nan(sluice_trainer *t, sluice_error *err) {
    char where[192], why[320];
    sluice__trainer_diagnose(t, where, sizeof where);
    snprintf(why, sizeof why, "loss %g, gradient norm %g; the first tensor that is not finite: %s", t->last.loss,
             t->last.grad_norm, where);
    if (t->params.on_nan == SLUICE_ON_NAN_SKIP) return leave_out(t, why, err);
    if (t->params.on_nan == SLUICE_ON_NAN_REWIND) return go_back(t, why, err);
    return stop(t, why, err);
}

static sluice_status handle_spike(sluice_trainer *t, double average, sluice_error *err) {
    char why[160];
    snprintf(why, sizeof why, "loss spike: %.4f, %.4f above its running average", t->last.loss,
             t->last.loss - average);
    switch (t->params.on_spike) {
    case SLUICE_ON_SPIKE_STOP: return stop(t, why, err);
    case SLUICE_ON_SPIKE_SKIP: return leave_out(t, why, err);
    case SLUICE_ON_SPIKE_REWIND: return go_back(t, why, err);
    default: break;
    }
    t->last.verdict = SLUICE_STEP_SPIKE;
    if (t->last.spike_event && t->state.spike_events <= SPIKES_TOLD)
        sluice__log(SLUICE_LOG_INFO, "%s: step %" PRId64 ": %s%s", t->label, t->state.step + 1, why,
                    t->state.spike_events == SPIKES_TOLD ? " (more of them are counted in silence)" : "");
    return SLUICE_OK;
}

static void update(sluice_trainer *t) {
    double factor = sluice__clip_factor(t->last.grad_norm, t->params.max_grad_norm);
    sluice__optimizer_step(t->optimizer, sluice__flat_params(t->model), t->grads, t->last.learning_rate, factor);
    t->state.step++;
    t->state.batch++;
    t->skips_in_row = 0;
}

static sluice_status judge_and_update(sluice_trainer *t, sluice_error *err) {
    bool finite = isfinite(t->last.loss) && isfinite(t->last.grad_norm);
    double average = t->state.watch.average;
    sluice__spike spike = sluice__spike_watch_next(&t->state.watch, finite ? t->last.loss : NAN);
    t->last.spike = spike != SLUICE__SPIKE_NONE;
    t->last.spike_event = spike == SLUICE__SPIKE_EVENT;
    t->state.spikes += t->last.spike;
    t->state.spike_events += t->last.spike_event;
    if (!finite) SLUICE__TRY(handle_nan(t, err));
    else if (t->last.spike) SLUICE__TRY(handle_spike(t, average, err));
    if (t->last.verdict <= SLUICE_STEP_SPIKE) update(t);
    return SLUICE_OK;
}

sluice_status sluice_trainer_step(sluice_trainer *t, sluice_step_record *out, sluice_error *err) {
    if (t->state.step >= t->schedule.total)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "all %" PRId64 " updates are done", t->schedule.total);
    double start = sluice__now();
    sluice__train_state before = t->state;
    t->last = (sluice_step_record){.step = t->state.step + 1,
                                   .learning_rate = sluice__lr_at(&t->schedule, t->state.step + 1)};
    SLUICE__TRY(accumulate(t, &t->last.loss, err));
    t->last.grad_norm = sluice__grad_norm(t->optimizer, t->grads);
    int64_t tokens = rows_now(t) * t->data.seq_len;
    t->state.tokens += tokens;
    t->step_tokens += tokens;
    t->last.tokens = t->state.tokens;
    sluice_status st = judge_and_update(t, err);
    t->step_seconds += sluice__now() - start;
    if (t->step_seconds > 0) t->last.tokens_per_second = (double)t->step_tokens / t->step_seconds;
    if (st != SLUICE_OK) t->state = before; /* a run resumed from here meets the same batch */
    else if (out) *out = t->last;
    return st;
}
