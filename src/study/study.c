/* SPDX-License-Identifier: Apache-2.0 */
/* The study: recipe, data, a queue of runs that worker threads take from, results. Runs are queued seed by seed, so
 * that a study that is stopped early has complete comparisons. Small models do not keep several cores busy, so several
 * runs go on at once, each with its share of the threads. */
#include "sluice/study.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/progress.h"
#include "sluice/cpu.h"
#include "study/job.h"
#include "study/plan.h"
#include "study/report.h"
#include "study/results.h"
#include "study/scale.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* FLOPs of one pass, forward and backward, below which a model counts as small. */
static const double small_pass = 2e10;
enum { RESULTS_LIMIT = 256 << 20 };

typedef struct study {
    const sluice_study_params *params;
    sluice__recipe recipe;
    sluice__material material;
    char dir[SLUICE_STUDY_PATH];
    bool fresh; /* dir was made by this call */
    sluice__job jobs[SLUICE__MAX_ARMS * SLUICE__MAX_SEEDS]; /* [arm][seed] of the recipe's numbers */
    int num_jobs, order[SLUICE__MAX_ARMS * SLUICE__MAX_SEEDS], num_todo;
    int parallel, threads;
    int64_t updates_todo;
    double start;
    /* shared by the workers */
    pthread_mutex_t lock;
    int next;
    int64_t updates_done;
    sluice__progress progress;
    sluice_status status;
    sluice_error error;
} study;

sluice_study_params sluice_study_params_default(void) { return (sluice_study_params){.recipe = "quick"}; }

const char *sluice_study_recipe_name(int index) { return sluice__recipe_builtin(index); }

const char *sluice_study_recipe_text(const char *name) {
    size_t size;
    return sluice__recipe_text(name, &size);
}

/* ---- setting up ---- */

static sluice_status check_params(const sluice_study_params *p, sluice_error *err) {
    if (p->parallel_arms < 0 || p->parallel_arms > 1024)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "parallel_arms: found %d, expected 0..1024", p->parallel_arms);
    if (p->max_steps < 0)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "max_steps: found %lld, expected 0 or more",
                            (long long)p->max_steps);
    if (p->output_dir && strlen(p->output_dir) > SLUICE_STUDY_PATH - 200)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "output_dir: longer than %d bytes", SLUICE_STUDY_PATH - 200);
    return SLUICE_OK;
}

static void make_jobs(study *s) {
    s->num_jobs = s->recipe.num_arms * s->recipe.num_seeds;
    for (int i = 0; i < s->num_jobs; i++)
        s->jobs[i] = (sluice__job){.recipe = &s->recipe,
                                   .material = &s->material,
                                   .arm = i / s->recipe.num_seeds,
                                   .seed_index = i % s->recipe.num_seeds,
                                   .study_dir = s->dir};
}

static void queue_jobs(study *s) {
    for (int seed = 0; seed < s->recipe.num_seeds; seed++)
        for (int arm = 0; arm < s->recipe.num_arms; arm++) {
            int at = arm * s->recipe.num_seeds + seed;
            if (s->params->overwrite || !sluice__job_recall(&s->jobs[at])) s->order[s->num_todo++] = at;
        }
    if (s->num_todo < s->num_jobs)
        sluice__log(SLUICE_LOG_INFO, "%s: %d of %d runs are complete, going on with the others", s->dir,
                    s->num_jobs - s->num_todo, s->num_jobs);
}

/* A full disk is noticed before hours of work, not after. */
static sluice_status check_disk(const study *s, int64_t bytes, sluice_error *err) {
    long long have = sluice__free_disk(s->dir);
    if (have < 0 || have >= bytes) return SLUICE_OK;
    char need[32], found[32];
    sluice__format_bytes(need, (double)bytes);
    sluice__format_bytes(found, (double)have);
    return sluice__fail(err, SLUICE_ERR_IO, "%s: %s are free on this disk, the study needs about %s", s->dir, found,
                        need);
}

/* How many runs at once, with how many threads each; never more than memory holds. */
static sluice_status share_out(study *s, sluice_error *err) {
    int cores = sluice_get_num_threads();
    int64_t most = 0, disk = 0, checkpoint = 0, available = sluice__mem_available();
    double flops = 0;
    for (int i = 0; i < s->num_todo; i++) {
        sluice__job_size size;
        SLUICE__TRY(sluice__job_plan(&size, &s->jobs[s->order[i]], err));
        most = size.bytes > most ? size.bytes : most;
        flops = size.pass_flops > flops ? size.pass_flops : flops;
        disk += size.disk_bytes;
        checkpoint = size.checkpoint_bytes > checkpoint ? size.checkpoint_bytes : checkpoint;
        s->updates_todo += size.updates;
    }
    int asked = s->params->parallel_arms ? s->params->parallel_arms : flops < small_pass ? cores : 1;
    s->parallel = asked > s->num_todo ? s->num_todo : asked;
    char need[32], have[32];
    sluice__format_bytes(need, (double)most);
    sluice__format_bytes(have, (double)available);
    if (s->parallel && most > available)
        return sluice__fail(err, SLUICE_ERR_MEMORY,
                            "a run needs %s and %s are free: take fewer layers, a smaller batch or "
                            "shorter windows",
                            need, have);
    while (s->parallel > 1 && most * s->parallel > available) s->parallel--;
    SLUICE__TRY(check_disk(s, disk + s->parallel * checkpoint, err));
    s->threads = s->parallel > 0 && cores > s->parallel ? cores / s->parallel : 1;
    if (s->parallel)
        sluice__log(SLUICE_LOG_INFO,
                    "%d run%s to do, %d at a time with %d thread%s each; a run takes up to %s of memory, %s are "
                    "free",
                    s->num_todo, s->num_todo == 1 ? "" : "s", s->parallel, s->threads, s->threads == 1 ? "" : "s", need,
                    have);
    return SLUICE_OK;
}

static void describe(const study *s) {
    const sluice__material_entry *e = &s->material.entries[s->material.entry_of_arm[0]];
    sluice_dataset_info i = sluice_dataset_get_info(e->dataset);
    char train[32], held[32];
    sluice__format_count(train, (double)i.train_tokens);
    sluice__format_count(held, (double)i.heldout_tokens);
    sluice__log(SLUICE_LOG_INFO, "recipe %s, scale %s: %d arm%s, %d seed%s", s->recipe.name, s->recipe.scale,
                s->recipe.num_arms,
                s->recipe.num_arms == 1 ? "" : "s", s->recipe.num_seeds, s->recipe.num_seeds == 1 ? "" : "s");
    sluice__log(SLUICE_LOG_INFO, "data: %s; %s tokens to train on, %s held out, vocabulary %d", s->material.source,
                train, held, i.vocab_size);
}

static sluice_status set_up(study *s, sluice_error *err) {
    const sluice_study_params *p = s->params;
    sluice__recipe_changes changes = {.scale = p->scale, .arms = p->arms, .seeds = p->seeds, .max_steps = p->max_steps};
    SLUICE__TRY(check_params(p, err));
    SLUICE__TRY(sluice__recipe_load(&s->recipe, p->recipe ? p->recipe : "quick", &changes, err));
    if (p->output_dir)
        snprintf(s->dir, sizeof s->dir, "%s", p->output_dir);
    else if (!strcmp(s->recipe.scale, SLUICE__SCALE_NORMAL))
        snprintf(s->dir, sizeof s->dir, "study-%s", s->recipe.name);
    else
        snprintf(s->dir, sizeof s->dir, "study-%s-%.60s", s->recipe.name, s->recipe.scale);
    s->fresh = !sluice__is_dir(s->dir);
    SLUICE__TRY(sluice__check_writable_dir(s->dir, err));
    sluice__log(SLUICE_LOG_INFO, "reading text, training a tokenizer");
    SLUICE__TRY(sluice__material_new(&s->material, &s->recipe, p->texts, p->num_texts, err));
    describe(s);
    return SLUICE_OK;
}

/* ---- running ---- */

static bool stop_requested(void *user) {
    study *s = user;
    return s->params->stop_requested && s->params->stop_requested(s->params->user);
}

static void on_update(void *user, int64_t updates) {
    study *s = user;
    pthread_mutex_lock(&s->lock);
    s->updates_done += updates;
    if (updates > 1) s->progress.first += updates - 1; /* of an earlier call: done, but not at today's speed */
    sluice__progress_update(&s->progress, s->updates_done, "%d of %d runs under way or done", s->next, s->num_todo);
    pthread_mutex_unlock(&s->lock);
}

static sluice__job *take_job(study *s) {
    pthread_mutex_lock(&s->lock);
    bool go_on = s->next < s->num_todo && s->status == SLUICE_OK && !stop_requested(s);
    sluice__job *job = go_on ? &s->jobs[s->order[s->next++]] : NULL;
    pthread_mutex_unlock(&s->lock);
    return job;
}

static void *worker(void *user) {
    study *s = user;
    sluice__job *job;
    while ((job = take_job(s))) {
        sluice_error err = {0};
        job->threads = s->threads;
        job->stop_requested = stop_requested;
        job->on_update = on_update;
        job->user = s;
        sluice_status st = sluice__job_run(job, &err);
        if (st == SLUICE_OK) continue;
        pthread_mutex_lock(&s->lock);
        if (s->status == SLUICE_OK) {
            s->status = st;
            s->error = err;
        }
        pthread_mutex_unlock(&s->lock);
    }
    return NULL;
}

static sluice_status start_workers(study *s, sluice_error *err) {
    pthread_t threads[1024];
    int started = 0;
    while (started < s->parallel && pthread_create(&threads[started], NULL, worker, s) == 0) started++;
    for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
    if (s->parallel && !started) return sluice__fail(err, SLUICE_ERR_MEMORY, "cannot start a thread");
    if (s->status != SLUICE_OK && err) *err = s->error;
    if (s->status == SLUICE_OK && s->next < s->num_todo)
        return sluice__fail(err, SLUICE_INTERRUPTED, "stopped; the same command continues");
    return s->status;
}

static sluice_status run_all(study *s, sluice_error *err) {
    if (s->num_todo) sluice__progress_begin(&s->progress, "study", "updates", s->updates_todo, 0, 1);
    sluice_status st = start_workers(s, err);
    if (s->num_todo) sluice__progress_end(&s->progress, "%s", st == SLUICE_OK ? "all runs done" : "stopped");
    return st;
}

static sluice_status any_measured(const study *s, sluice_error *err) {
    const char *why = NULL;
    for (int i = 0; i < s->num_jobs; i++) {
        const char *status = json_string_value(json_object_get(s->jobs[i].result, "status"));
        if (status && !strcmp(status, "done")) return SLUICE_OK;
        if (!why) why = json_string_value(json_object_get(s->jobs[i].result, "error"));
    }
    return sluice__fail(err, SLUICE_ERR_NUMERIC, "no run could be measured; the first one says: %s",
                        why ? why : "nothing");
}

static sluice_status write_results(const study *s, sluice_study_summary *out, sluice_error *err) {
    json_t *runs[SLUICE__MAX_ARMS * SLUICE__MAX_SEEDS], *results = NULL;
    for (int i = 0; i < s->num_jobs; i++) runs[i] = s->jobs[i].result;
    sluice__run_facts facts = {s->threads, s->parallel, sluice__now() - s->start};
    SLUICE__TRY(sluice__study_results_new(&results, &s->recipe, &s->material, runs, &facts, err));
    sluice__study_results_summary(out, results);
    sluice_status st = sluice__study_results_write(results, s->dir, err);
    json_decref(results);
    return st;
}

static sluice_status run_study(study *s, sluice_study_summary *out, sluice_error *err) {
    SLUICE__TRY(set_up(s, err));
    sluice__study_lock lock;
    SLUICE__TRY(sluice__study_lock_take(&lock, s->dir, err));
    sluice_status st = sluice__plan_check(s->dir, &s->recipe, &s->material, s->params->overwrite, err);
    if (st == SLUICE_OK && !s->params->overwrite) sluice__plan_tell_others(s->dir, &s->recipe);
    make_jobs(s);
    if (st == SLUICE_OK) queue_jobs(s);
    if (st == SLUICE_OK) st = share_out(s, err);
    if (st == SLUICE_OK && s->params->overwrite) st = sluice__plan_remove(s->dir, err); /* nothing can be refused now */
    if (st == SLUICE_OK) st = sluice__plan_write(s->dir, &s->recipe, &s->material, err);
    if (st == SLUICE_OK) st = run_all(s, err);
    if (st == SLUICE_OK) st = write_results(s, out, err);
    if (st == SLUICE_OK) st = any_measured(s, err);
    sluice__study_lock_release(&lock);
    snprintf(out->output_dir, sizeof out->output_dir, "%s", s->dir);
    snprintf(out->results, sizeof out->results, "%s/results.json", s->dir);
    snprintf(out->report, sizeof out->report, "%s/report.html", s->dir);
    out->seconds = sluice__now() - s->start;
    return st;
}

sluice_status sluice_study_run(sluice_study_summary *out, const sluice_study_params *params, sluice_error *err) {
    study *s = sluice__calloc(1, sizeof *s, SLUICE__MEM_OTHER);
    if (!s) return sluice__no_memory(err, sizeof *s, "a study");
    *out = (sluice_study_summary){0};
    s->params = params;
    s->start = sluice__now();
    pthread_mutex_init(&s->lock, NULL);
    sluice_status st = run_study(s, out, err);
    if (st != SLUICE_OK && s->fresh) sluice__study_dir_withdraw(s->dir);
    for (int i = 0; i < s->num_jobs; i++) json_decref(s->jobs[i].result);
    pthread_mutex_destroy(&s->lock);
    sluice__material_free(&s->material);
    sluice__recipe_free(&s->recipe);
    sluice__free(s);
    return st;
}

sluice_status sluice_study_report(const char *dir, sluice_error *err) {
    char *results = sluice__path_join(dir, "results.json"), *page = sluice__path_join(dir, "report.html"), *text = NULL;
    size_t size = 0;
    sluice_status st = results && page ? sluice__read_file(&text, &size, results, RESULTS_LIMIT, err)
                                       : sluice__no_memory(err, strlen(dir), "a path");
    if (st == SLUICE_OK) st = sluice__report_write(text, size, page, err);
    sluice__free(text);
    sluice__free(results);
    sluice__free(page);
    return st;
}
