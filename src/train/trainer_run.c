/* SPDX-License-Identifier: Apache-2.0 */
/* The course of a run: updates, and between them logs, looks, evaluations and checkpoints. */
#include "base/log.h"
#include "base/memory.h"
#include "train/trainer.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* ---- evaluation ---- */

/* The k-th of `samples` held-out windows spread evenly. */
static int64_t spread(int64_t k, int64_t samples, int64_t windows) {
    return (int64_t)((__int128)k * windows / samples);
}

static sluice_status evaluate_rows(sluice_trainer *t, int rows, double *nll, sluice_eval_record *out,
                                   sluice_error *err) {
    sluice__input in = sluice__trainer_input(t, 0, rows);
    sluice__loss loss;
    SLUICE__TRY(sluice__evaluate(t->model, t->workspace, &in, NULL, NULL, &loss, err));
    *nll += loss.nll_sum;
    out->tokens += loss.scored;
    for (int64_t i = 0; i < (int64_t)rows * t->data.seq_len; i++)
        if (in.labels[i] >= 0) out->bytes += sluice_dataset_token_bytes(t->dataset, in.labels[i]);
    return SLUICE_OK;
}

sluice_status sluice_trainer_evaluate(sluice_trainer *t, int64_t samples, sluice_eval_record *out,
                                      sluice_error *err) {
    int64_t windows = t->data.heldout_windows, batch = t->params.per_device_train_batch_size;
    double nll = 0;
    *out = (sluice_eval_record){.step = t->state.step};
    if (!windows)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "nothing is held out to evaluate on (split, validation_text)");
    if (samples <= 0 || samples > windows) samples = windows;
    for (int64_t first = 0; first < samples; first += batch) {
        int rows = (int)(samples - first < batch ? samples - first : batch);
        for (int r = 0; r < rows; r++) {
            sluice_window w = sluice__trainer_row(t, r);
            sluice_dataset_heldout_window(t->dataset, spread(first + r, samples, windows), &w);
        }
        SLUICE__TRY(evaluate_rows(t, rows, &nll, out, err));
    }
    out->loss = out->tokens ? nll / (double)out->tokens : NAN;
    out->perplexity = exp(out->loss);
    if (out->bytes) out->bits_per_byte = nll / log(2.0) / (double)out->bytes;
    return SLUICE_OK;
}

/* ---- looking at sinks ---- */

/* Held-out windows that are full, spread evenly; training windows when there are none. */
static void fill_probe_row(sluice_trainer *t, int row, int64_t k, int64_t samples) {
    sluice_window w = sluice__trainer_row(t, row);
    int64_t full = t->data.heldout_windows - 1; /* the last may be padded */
    if (full > 0) sluice_dataset_heldout_window(t->dataset, spread(k, samples, full), &w);
    else sluice_dataset_train_window(t->dataset, k, &w);
}

static sluice_status look(sluice_trainer *t, sluice_probe_record *out, sluice_error *err) {
    int64_t samples = t->params.probe_samples, batch = t->params.per_device_train_batch_size;
    sluice__probe listener = sluice__sink_probe_listener(t->probe);
    sluice__sink_probe_reset(t->probe);
    if (t->data.heldout_windows > 1 && samples > t->data.heldout_windows - 1) samples = t->data.heldout_windows - 1;
    for (int64_t first = 0; first < samples; first += batch) {
        int rows = (int)(samples - first < batch ? samples - first : batch);
        for (int r = 0; r < rows; r++) fill_probe_row(t, r, first + r, samples);
        sluice__input in = sluice__trainer_input(t, 0, rows);
        sluice__loss loss;
        SLUICE__TRY(sluice__evaluate(t->model, t->workspace, &in, &listener, NULL, &loss, err));
    }
    *out = sluice__sink_probe_record(t->probe, t->state.step);
    return SLUICE_OK;
}

/* ---- the run ---- */

typedef struct run {
    sluice_trainer *t;
    sluice_train_callbacks call;
    sluice__progress progress;
    bool writes; /* into a run directory */
} run;

static bool due(int64_t step, int64_t every) {
    return every > 0 && step % every == 0;
}

static sluice_status log_step(run *r, sluice_error *err) {
    sluice_trainer *t = r->t;
    if (r->call.on_step) SLUICE__TRY(r->call.on_step(r->call.user, &t->last, err));
    if (t->last.verdict == SLUICE_STEP_SKIPPED || t->last.verdict == SLUICE_STEP_REWOUND) return SLUICE_OK;
    if (!due(t->state.step, t->params.logging_steps) && !t->last.spike) return SLUICE_OK;
    if (r->writes) {
        sluice__run_log_step(&t->log, &t->last);
        SLUICE__TRY(sluice__run_log_tick(&t->log, err));
    }
    t->step_seconds = 0;
    t->step_tokens = 0;
    return SLUICE_OK;
}

static sluice_status probe_now(run *r, sluice_error *err) {
    sluice_probe_record record;
    SLUICE__TRY(look(r->t, &record, err));
    if (r->writes) sluice__run_log_probe(&r->t->log, &record);
    if (r->writes && r->t->last.routed) sluice__run_log_router(&r->t->log, &r->t->last);
    return r->call.on_probe ? r->call.on_probe(r->call.user, &record, err) : SLUICE_OK;
}

static sluice_status evaluate_now(run *r, sluice_error *err) {
    sluice_trainer *t = r->t;
    if (!t->data.heldout_windows) return SLUICE_OK;
    SLUICE__TRY(sluice_trainer_evaluate(t, t->params.max_eval_samples, &t->last_eval, err));
    if (t->state.last_eval == t->state.step) return SLUICE_OK; /* a resumed run that had logged it already */
    t->state.last_eval = t->state.step;
    if (r->writes) {
        sluice__run_log_eval(&t->log, &t->last_eval);
        SLUICE__TRY(sluice__run_log_flush(&t->log, false, err));
    }
    sluice__log(SLUICE_LOG_INFO, "%s: step %" PRId64 ": held-out loss %.4f, perplexity %.2f", t->label, t->state.step,
                t->last_eval.loss, t->last_eval.perplexity);
    return r->call.on_eval ? r->call.on_eval(r->call.user, &t->last_eval, err) : SLUICE_OK;
}

/* What follows a step. The checkpoint comes last: it covers all lines of its step. */
static sluice_status after_step(run *r, sluice_error *err) {
    sluice_trainer *t = r->t;
    const sluice_train_params *p = &t->params;
    SLUICE__TRY(log_step(r, err));
    sluice__progress_update(&r->progress, t->state.step, "loss %.3f", t->last.loss);
    if (t->last.verdict == SLUICE_STEP_SKIPPED || t->last.verdict == SLUICE_STEP_REWOUND) return SLUICE_OK;
    if (due(t->state.step, p->probe_steps)) SLUICE__TRY(probe_now(r, err));
    if (due(t->state.step, p->eval_steps) && t->state.step < t->schedule.total) SLUICE__TRY(evaluate_now(r, err));
    bool last = t->state.step >= t->schedule.total; /* that checkpoint follows the last evaluation */
    if (r->writes && !last && due(t->state.step, p->save_steps)) SLUICE__TRY(sluice_trainer_save(t, err));
    return SLUICE_OK;
}

static sluice_status interrupted(run *r, sluice_error *err) {
    if (!r->writes) return sluice__fail(err, SLUICE_INTERRUPTED, "interrupted at step %" PRId64, r->t->state.step);
    SLUICE__TRY(sluice_trainer_save(r->t, err));
    return sluice__fail(err, SLUICE_INTERRUPTED, "interrupted; %s/checkpoints/step-%" PRId64 " continues here",
                        r->t->params.output_dir, r->t->state.step);
}

/* A spike that stops the run leaves a checkpoint of the state before it; the weights are good. */
static sluice_status stopped(run *r, sluice_status st, sluice_error *err) {
    sluice_trainer *t = r->t;
    if (st != SLUICE_ERR_NUMERIC || !r->writes) return st;
    sluice__run_log_flush(&t->log, false, NULL);
    if (!isfinite(t->last.loss) || !isfinite(t->last.grad_norm)) return st;
    char reason[512];
    sluice_error failure = {0};
    snprintf(reason, sizeof reason, "%.400s", err ? err->message : "");
    if (sluice_trainer_save(t, &failure) != SLUICE_OK)
        return sluice__fail(err, st, "%s; no checkpoint: %.400s", reason, failure.message);
    return sluice__fail(err, st, "%s; %s/checkpoints/step-%" PRId64 " is the state before it", reason,
                        t->params.output_dir, t->state.step);
}

static sluice_status all_steps(run *r, sluice_error *err) {
    sluice_trainer *t = r->t;
    while (t->state.step < t->schedule.total) {
        if (r->call.stop_requested && r->call.stop_requested(r->call.user)) return interrupted(r, err);
        sluice_status st = sluice_trainer_step(t, NULL, err);
        if (st != SLUICE_OK) return stopped(r, st, err);
        SLUICE__TRY(after_step(r, err));
    }
    int64_t evaluated = t->state.last_eval;
    SLUICE__TRY(evaluate_now(r, err));
    if (!r->writes) return SLUICE_OK;
    if (t->state.last_eval != evaluated) t->saved_step = -1; /* a checkpoint of this step does not know of it */
    SLUICE__TRY(sluice_trainer_save(t, err));
    return sluice__run_log_flush(&t->log, false, err);
}

/* A finished run that is resumed: its last evaluation is worked out again for the caller, and nothing is written. */
static sluice_status nothing_left(sluice_trainer *t, sluice_error *err) {
    sluice__log(SLUICE_LOG_INFO, "%s: all %" PRId64 " updates of the run are done already: nothing was left to do",
                t->label, t->schedule.total);
    if (!t->data.heldout_windows) return SLUICE_OK;
    return sluice_trainer_evaluate(t, t->params.max_eval_samples, &t->last_eval, err);
}

sluice_status sluice_trainer_run(sluice_trainer *t, const sluice_train_callbacks *callbacks, sluice_error *err) {
    run r = {.t = t, .writes = *t->params.output_dir};
    if (callbacks) r.call = *callbacks;
    SLUICE__TRY(sluice_trainer_begin(t, err));
    if (t->finished) return nothing_left(t, err);
    double per_step = (double)sluice__batches_before(&t->batches, t->schedule.total) / (double)t->schedule.total *
                      t->data.seq_len; /* the mean, where a warm-up makes updates differ */
    sluice_status st = SLUICE_OK;
    if (!t->resumed && !t->state.batch && t->params.probe_steps > 0) st = probe_now(&r, err);
    sluice__progress_begin(&r.progress, t->label, "tok", t->schedule.total, t->state.step, per_step);
    if (st == SLUICE_OK) st = all_steps(&r, err);
    if (isfinite(t->last.loss)) sluice__progress_end(&r.progress, "loss %.3f", t->last.loss);
    else sluice__progress_end(&r.progress, "%s", st == SLUICE_OK ? "nothing was left to do" : "");
    return st;
}
