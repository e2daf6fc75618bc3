/* SPDX-License-Identifier: Apache-2.0 */
/* A run's directory is DIR/arms/NAME/seed-S: the trainer's files, model/ and, once everything is measured, run.json.
 * That file alone says that the run is complete, so a kill at any moment costs at most the updates since the last
 * checkpoint. */
#include "study/job.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "inspect/inspection_json.h"
#include "sluice/cpu.h"
#include "study/curves.h"
#include "study/subject.h"
#include "train/options.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* On the disk, roughly: a line of metrics.jsonl, and results with tokenizer. */
enum { LINE_BYTES = 200, RESULT_BYTES = 1 << 20 };

/* What a run in progress holds. */
typedef struct work {
    sluice__job *job;
    const sluice__arm *arm;
    const sluice__material_entry *entry;
    const sluice_dataset *dataset;
    sluice_train_params params;
    sluice_config config;
    sluice_model *model;
    sluice_trainer *trainer;
    char *dir, *model_dir, *result_path;
    int64_t step; /* updates that on_update has been told of */
} work;

static int64_t seed_of(const sluice__job *job) { return job->recipe->seeds[job->seed_index]; }

static char *run_path(const sluice__job *job, const char *name) {
    return sluice__asprintf("%s/arms/%s/seed-%lld%s%s", job->study_dir, job->recipe->arms[job->arm].name,
                            (long long)seed_of(job), *name ? "/" : "", name);
}

bool sluice__job_recall(sluice__job *job) {
    char *path = run_path(job, "run.json");
    json_t *found = NULL;
    if (path && sluice__is_file(path)) sluice__json_load(&found, path, NULL);
    sluice__free(path);
    const char *status = json_string_value(json_object_get(found, "status"));
    bool complete = status && (!strcmp(status, "done") || !strcmp(status, "diverged"));
    if (complete)
        job->result = found;
    else
        json_decref(found);
    return complete;
}

/* ---- preparing ---- */

static sluice_status prepare(work *w, sluice__job *job, sluice_error *err) {
    *w = (work){.job = job, .arm = &job->recipe->arms[job->arm]};
    w->entry = &job->material->entries[job->material->entry_of_arm[job->arm]];
    w->dataset = w->entry->ordered[job->seed_index];
    SLUICE__TRY(sluice__arm_params(&w->params, w->arm, seed_of(job), err));
    return sluice__arm_config(&w->config, NULL, w->arm, &w->params, w->entry->tokenizer,
                              sluice_dataset_get_info(w->dataset).vocab_size, err);
}

static sluice_status prepare_paths(work *w, sluice_error *err) {
    w->dir = run_path(w->job, "");
    w->model_dir = run_path(w->job, "model");
    w->result_path = run_path(w->job, "run.json");
    if (!w->dir || !w->model_dir || !w->result_path) return sluice__no_memory(err, 0, "paths");
    if (strlen(w->dir) >= sizeof w->params.output_dir)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "%s: the path is longer than %zu bytes", w->dir,
                            sizeof w->params.output_dir - 1);
    snprintf(w->params.output_dir, sizeof w->params.output_dir, "%s", w->dir);
    if (sluice__is_dir(w->dir)) /* begun earlier */
        snprintf(w->params.resume_from_checkpoint, sizeof w->params.resume_from_checkpoint, "last");
    return sluice__make_dirs(w->dir, err);
}

static void release(work *w) {
    sluice_trainer_free(w->trainer);
    sluice_model_free(w->model);
    sluice_config_free(&w->config);
    sluice__free(w->dir);
    sluice__free(w->model_dir);
    sluice__free(w->result_path);
}

static sluice_status size_up(sluice__job_size *out, const work *w, sluice_error *err) {
    const sluice_train_params *p = &w->params;
    sluice__schedule schedule;
    SLUICE__TRY(sluice_train_params_check(p, err));
    SLUICE__TRY(sluice__train_schedule(&schedule, p, sluice_dataset_get_info(w->dataset).train_windows, err));
    out->bytes = sluice_train_get_plan(&w->config, p, w->dataset).total;
    out->updates = schedule.total;
    int64_t weights = 4 * sluice_config_num_parameters(&w->config);
    out->disk_bytes = weights + LINE_BYTES * schedule.total + RESULT_BYTES;
    out->checkpoint_bytes = 2 * 3 * weights; /* the old one goes when the new one is complete */
    out->pass_flops = 3 * sluice_config_forward_flops(&w->config, p->seq_len) * (double)p->seq_len *
                      (double)p->per_device_train_batch_size;
    return SLUICE_OK;
}

sluice_status sluice__job_plan(sluice__job_size *out, const sluice__job *job, sluice_error *err) {
    work w;
    sluice__job copy = *job;
    sluice_status st = prepare(&w, &copy, err);
    if (st == SLUICE_OK) st = size_up(out, &w, err);
    if (st != SLUICE_OK) st = sluice__fail_in(err, st, "arm \"%s\"", job->recipe->arms[job->arm].name);
    release(&w);
    return st;
}

/* ---- training ---- */

static bool stop_requested(void *user) {
    const work *w = user;
    return w->job->stop_requested && w->job->stop_requested(w->job->user);
}

static sluice_status on_step(void *user, const sluice_step_record *r, sluice_error *err) {
    work *w = user;
    (void)err;
    if (w->job->on_update) w->job->on_update(w->job->user, r->step - w->step);
    w->step = r->step;
    return SLUICE_OK;
}

static sluice_status train(work *w, sluice_error *err) {
    char label[48];
    snprintf(label, sizeof label, "%.30s seed %lld", w->arm->name, (long long)seed_of(w->job));
    sluice_train_callbacks callbacks = {.user = w, .on_step = on_step, .stop_requested = stop_requested};
    SLUICE__TRY(sluice_model_new(&w->model, &w->config, (uint64_t)seed_of(w->job), err));
    SLUICE__TRY(sluice_trainer_new(&w->trainer, &w->params, w->model, w->dataset, w->entry->tokenizer, label, err));
    SLUICE__TRY(sluice_trainer_run(w->trainer, &callbacks, err));
    return sluice_trainer_save_model(w->trainer, w->model_dir, err);
}

static sluice_status measure(work *w, json_t *run, sluice_error *err) {
    sluice__subject s = {.model = w->model,
                         .model_dir = w->model_dir,
                         .entry = w->entry,
                         .dataset = w->dataset,
                         .params = &w->params,
                         .evaluation = &w->job->recipe->evaluation,
                         .seed = seed_of(w->job)};
    SLUICE__TRY(sluice__measure_loss(run, &s, err));
    SLUICE__TRY(sluice__measure_inside(run, &s, err));
    SLUICE__TRY(sluice__measure_router(run, &s, err));
    SLUICE__TRY(sluice__measure_map(run, &s, err));
    SLUICE__TRY(sluice__measure_length(run, &s, err));
    return sluice__measure_samples(run, &s, err);
}

/* A model that predicts worse than equal probabilities has diverged, even if every number stayed finite. */
static sluice_status check_loss(const work *w, const json_t *run, sluice_error *err) {
    json_t *loss = json_object_get(json_object_get(run, "eval"), "loss");
    double found = json_is_number(loss) ? json_number_value(loss) : NAN, guess = log((double)w->config.vocab_size);
    if (found <= guess) return SLUICE_OK;
    return sluice__fail(err, SLUICE_ERR_NUMERIC, "held-out loss %.3f, more than the %.3f of equal probabilities", found,
                        guess);
}

static sluice_status add_curves(const work *w, json_t *run, sluice_error *err) {
    char *path = sluice__path_join(w->dir, "metrics.jsonl");
    json_t *curves = NULL;
    sluice_status st = path ? sluice__curves_read(&curves, path, &w->params, err) : sluice__no_memory(err, 0, "a path");
    sluice__free(path);
    if (st != SLUICE_OK) return st;
    json_object_set_new(curves, "peak_memory_bytes",
                        json_integer(sluice_train_get_plan(&w->config, &w->params, w->dataset).total));
    json_object_set_new(run, "train", curves);
    return SLUICE_OK;
}

static const char *status_word(sluice_status st) {
    return st == SLUICE_OK ? "done" : st == SLUICE_ERR_NUMERIC ? "diverged" : "failed";
}

static void set_outcome(const work *w, json_t *run, sluice_status st, sluice_error *why) {
    json_object_set_new(run, "status", json_string(status_word(st)));
    if (st == SLUICE_OK) return;
    char *hint = strstr(why->message, "; the last checkpoint is"); /* the trainer's; it will have been removed */
    if (hint) *hint = '\0';
    json_object_set_new(run, "error", json_string(why->message));
    sluice__log(SLUICE_LOG_WARNING, "%s seed %lld %s: %s", w->arm->name, (long long)seed_of(w->job), status_word(st),
                why->message);
}

static json_t *new_result(const work *w) {
    return json_pack("{s:I, s:s, s:n, s:n}", "seed", (json_int_t)seed_of(w->job), "status", "failed", "error",
                     "model_dir");
}

static void remove_checkpoints(const work *w) {
    char *path = sluice__path_join(w->dir, "checkpoints");
    if (path && sluice__is_dir(path)) sluice__remove_tree(path, NULL);
    sluice__free(path);
}

static sluice_status finish(work *w, json_t *run, sluice_error *err) {
    char relative[160];
    snprintf(relative, sizeof relative, "arms/%s/seed-%lld/model", w->arm->name, (long long)seed_of(w->job));
    json_object_set_new(run, "model_dir", sluice__is_dir(w->model_dir) ? json_string(relative) : json_null());
    SLUICE__TRY(add_curves(w, run, err));
    return sluice__json_save(run, w->result_path, err);
}

/* Failures that belong to this run are put into its result; the study goes on. */
static sluice_status run(work *w, json_t *result) {
    sluice_error why = {0};
    sluice_status st = prepare_paths(w, &why);
    if (st == SLUICE_OK) st = train(w, &why);
    if (st == SLUICE_INTERRUPTED) return st;
    if (st == SLUICE_OK) st = measure(w, result, &why);
    if (st == SLUICE_OK) st = check_loss(w, result, &why);
    set_outcome(w, result, st, &why);
    if (w->result_path && finish(w, result, &why) != SLUICE_OK) {
        set_outcome(w, result, SLUICE_ERR_IO, &why);
        return SLUICE_OK;
    }
    if (st == SLUICE_OK || st == SLUICE_ERR_NUMERIC) remove_checkpoints(w);
    return SLUICE_OK;
}

sluice_status sluice__job_run(sluice__job *job, sluice_error *err) {
    work w;
    sluice_set_num_threads(job->threads);
    sluice_status st = prepare(&w, job, err);
    json_t *result = st == SLUICE_OK ? new_result(&w) : NULL;
    if (st == SLUICE_OK && !result) st = sluice__no_memory(err, 0, "a result");
    if (st == SLUICE_OK) st = run(&w, result);
    if (st == SLUICE_OK) job->result = json_incref(result);
    json_decref(result);
    release(&w);
    return st;
}
