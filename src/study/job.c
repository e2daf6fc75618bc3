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
#include "train/adapt.h"
#include "train/options.h"
#include "train/trainer.h"
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
    /* the second stage, when the recipe has one */
    const sluice_dataset *longer;
    sluice_train_params longer_params;
    sluice_config longer_config; /* layers NULL without */
    char *longer_dir, *longer_model_dir;
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

/* The second stage's model is the first one's with another RoPE base, for longer windows. */
static sluice_status prepare_longer(work *w, sluice_error *err) {
    const sluice__extension *e = &w->job->recipe->extension;
    char options[64];
    w->longer = w->entry->longer_ordered[w->job->seed_index];
    SLUICE__TRY(sluice__extension_params(&w->longer_params, e, w->arm, seed_of(w->job), err));
    snprintf(options, sizeof options, "{\"rope_theta\": %.17g}", e->rope_theta);
    return sluice__config_adapt(&w->longer_config, &w->config, options, e->seq_len, err);
}

static sluice_status prepare(work *w, sluice__job *job, sluice_error *err) {
    *w = (work){.job = job, .arm = &job->recipe->arms[job->arm]};
    w->entry = &job->material->entries[job->material->entry_of_arm[job->arm]];
    w->dataset = w->entry->ordered[job->seed_index];
    SLUICE__TRY(sluice__arm_params(&w->params, w->arm, seed_of(job), err));
    SLUICE__TRY(sluice__arm_config(&w->config, NULL, w->arm, &w->params, w->entry->tokenizer,
                                   sluice_dataset_get_info(w->dataset).vocab_size, err));
    return job->recipe->extension.on ? prepare_longer(w, err) : SLUICE_OK;
}

/* A directory that is there already was begun earlier. */
static sluice_status set_run_dir(sluice_train_params *p, const char *dir, sluice_error *err) {
    if (strlen(dir) >= sizeof p->output_dir)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "%s: the path is longer than %zu bytes", dir,
                            sizeof p->output_dir - 1);
    snprintf(p->output_dir, sizeof p->output_dir, "%s", dir);
    if (sluice__is_dir(dir)) snprintf(p->resume_from_checkpoint, sizeof p->resume_from_checkpoint, "last");
    return sluice__make_dirs(dir, err);
}

static sluice_status prepare_paths(work *w, sluice_error *err) {
    w->dir = run_path(w->job, "");
    w->model_dir = run_path(w->job, "model");
    w->result_path = run_path(w->job, "run.json");
    w->longer_dir = run_path(w->job, "longer");
    w->longer_model_dir = run_path(w->job, "longer/model");
    if (!w->dir || !w->model_dir || !w->result_path || !w->longer_dir || !w->longer_model_dir)
        return sluice__no_memory(err, 0, "paths");
    SLUICE__TRY(set_run_dir(&w->params, w->dir, err));
    return w->longer ? set_run_dir(&w->longer_params, w->longer_dir, err) : SLUICE_OK;
}

static void release(work *w) {
    sluice_trainer_free(w->trainer);
    sluice_model_free(w->model);
    sluice_config_free(&w->config);
    if (w->longer_config.layers) sluice_config_free(&w->longer_config);
    sluice__free(w->longer_dir);
    sluice__free(w->longer_model_dir);
    sluice__free(w->dir);
    sluice__free(w->model_dir);
    sluice__free(w->result_path);
}

static sluice_status size_up_longer(sluice__job_size *out, const work *w, sluice_error *err) {
    const sluice_train_params *p = &w->longer_params;
    sluice__schedule schedule;
    SLUICE__TRY(sluice_train_params_check(p, err));
    SLUICE__TRY(sluice__train_schedule(&schedule, p, sluice_dataset_get_info(w->longer).train_windows, err));
    int64_t bytes = sluice_train_get_plan(&w->longer_config, p, w->longer).total;
    if (bytes > out->bytes) out->bytes = bytes; /* one stage at a time */
    out->updates += schedule.total;
    out->disk_bytes += 4 * sluice_config_num_parameters(&w->config) + LINE_BYTES * schedule.total;
    return SLUICE_OK;
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
    return w->longer ? size_up_longer(out, w, err) : SLUICE_OK;
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

static sluice_status train_model(work *w, const sluice_train_params *p, const sluice_dataset *dataset,
                                 const char *model_dir, const char *what, sluice_error *err) {
    char label[48];
    snprintf(label, sizeof label, "%.30s seed %lld%s", w->arm->name, (long long)seed_of(w->job), what);
    sluice_train_callbacks callbacks = {.user = w, .on_step = on_step, .stop_requested = stop_requested};
    w->step = 0;
    SLUICE__TRY(sluice_trainer_new(&w->trainer, p, w->model, dataset, w->entry->tokenizer, label, err));
    SLUICE__TRY(sluice_trainer_run(w->trainer, &callbacks, err));
    return sluice_trainer_save_model(w->trainer, model_dir, err);
}

static sluice_status train(work *w, sluice_error *err) {
    SLUICE__TRY(sluice_model_new(&w->model, &w->config, (uint64_t)seed_of(w->job), err));
    return train_model(w, &w->params, w->dataset, w->model_dir, "", err);
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

/* ---- the second stage ---- */

static sluice__subject longer_subject(const work *w, bool first) {
    return (sluice__subject){.model = w->model,
                             .model_dir = first ? w->model_dir : w->longer_model_dir,
                             .entry = w->entry,
                             .dataset = first ? w->dataset : w->longer,
                             .params = first ? &w->params : &w->longer_params,
                             .evaluation = &w->job->recipe->evaluation,
                             .seed = seed_of(w->job)};
}

/* The same weights, a fresh optimiser. */
static sluice_status train_longer(work *w, sluice_error *err) {
    sluice_model *first = w->model;
    sluice_trainer_free(w->trainer);
    w->trainer = NULL;
    w->model = NULL;
    SLUICE__TRY(sluice__model_adapt(&w->model, first, &w->longer_config, (uint64_t)seed_of(w->job),
                                    SLUICE_GATE_START_RANDOM, err));
    return train_model(w, &w->longer_params, w->longer, w->longer_model_dir, " longer", err);
}

static sluice_status extend(work *w, json_t *run, sluice_error *err) {
    const sluice__extension *e = &w->job->recipe->extension;
    json_t *stages = json_array();
    if (!stages) return sluice__no_memory(err, 0, "results");
    json_object_set_new(run, "extension", json_pack("{s:o}", "stages", stages));
    sluice__subject before = longer_subject(w, true);
    SLUICE__TRY(sluice__measure_stage(stages, "trained", &before, e, w->params.seq_len, err));
    SLUICE__TRY(train_longer(w, err));
    sluice__subject after = longer_subject(w, false);
    return sluice__measure_stage(stages, "longer", &after, e, w->params.seq_len, err);
}

/* A model that predicts worse than equal probabilities has diverged, even if every number stayed finite; unless it
 * predicts what it was trained on, which it then knows by heart. */
static sluice_status check_loss(const work *w, json_t *run, sluice_error *err) {
    json_t *loss = json_object_get(json_object_get(run, "eval"), "loss");
    double found = json_is_number(loss) ? json_number_value(loss) : NAN, guess = log((double)w->config.vocab_size);
    double training = w->trainer->state.watch.average; /* running mean over the last updates */
    if (found <= guess) return SLUICE_OK;
    if (isfinite(found) && training < guess) {
        char note[160];
        snprintf(note, sizeof note,
                 "overfitted: held-out loss %.3f, more than the %.3f of equal probabilities, at a training loss of %.3f",
                 found, guess, training);
        json_object_set_new(run, "note", json_string(note));
        sluice__log(SLUICE_LOG_WARNING, "%s seed %lld: %s", w->arm->name, (long long)seed_of(w->job), note);
        return SLUICE_OK;
    }
    return sluice__fail(err, SLUICE_ERR_NUMERIC, "held-out loss %.3f, more than the %.3f of equal probabilities", found,
                        guess);
}

static sluice_status add_longer_curves(const work *w, json_t *run, sluice_error *err) {
    char *path = w->longer_dir ? sluice__path_join(w->longer_dir, "metrics.jsonl") : NULL;
    json_t *curves = NULL, *extension = json_object_get(run, "extension");
    if (!extension) return SLUICE_OK; /* the first stage did not end well */
    sluice_status st =
        path ? sluice__curves_read(&curves, path, &w->longer_params, err) : sluice__no_memory(err, 0, "a path");
    sluice__free(path);
    if (st == SLUICE_OK) json_object_set_new(extension, "train", curves);
    return st;
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
    return w->longer ? add_longer_curves(w, run, err) : SLUICE_OK;
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
    const char *dirs[] = {w->dir, w->longer_dir};
    for (int i = 0; i < 2; i++) {
        char *path = dirs[i] ? sluice__path_join(dirs[i], "checkpoints") : NULL;
        if (path && sluice__is_dir(path)) sluice__remove_tree(path, NULL);
        sluice__free(path);
    }
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
    if (st == SLUICE_OK && w->longer) st = extend(w, result, &why);
    if (st == SLUICE_INTERRUPTED) return st;
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
