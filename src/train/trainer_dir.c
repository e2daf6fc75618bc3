/* SPDX-License-Identifier: Apache-2.0 */
/* The run directory of a trainer: who may write there, starting, continuing, saving, going back. */
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "model/save.h"
#include "sluice/cpu.h"
#include "sluice/tokenizer.h"
#include "train/guard.h"
#include "train/trainer.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static sluice_status no_path(sluice_error *err) {
    return sluice__no_memory(err, SLUICE_TRAIN_PATH, "a path");
}

/* ---- what lies in the directory ---- */

static bool is_run_file(const char *name) {
    static const char *const names[] = {"config.json", "metrics.jsonl", "checkpoints", "model"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i])) return true;
    return !strncmp(name, "events.out.tfevents.", 20);
}

/* Calls fn for every entry of dir that bears a name of ours. */
static sluice_status each_run_file(const char *dir, sluice_status (*fn)(void *user, const char *path, sluice_error *err),
                                   void *user, sluice_error *err) {
    DIR *d = opendir(dir);
    if (!d) return sluice__fail(err, SLUICE_ERR_IO, "%s: cannot read: %s", dir, strerror(errno));
    sluice_status st = SLUICE_OK;
    for (struct dirent *e; st == SLUICE_OK && (e = readdir(d));) {
        if (!is_run_file(e->d_name)) continue;
        char *path = sluice__path_join(dir, e->d_name);
        st = path ? fn(user, path, err) : no_path(err);
        sluice__free(path);
    }
    closedir(d);
    return st;
}

static sluice_status note_found(void *user, const char *path, sluice_error *err) {
    (void)path, (void)err;
    *(bool *)user = true;
    return SLUICE_OK;
}

/* Whether dir holds (part of) a run, or something under the names of one. */
static sluice_status look_for_run(const char *dir, bool *found, sluice_error *err) {
    *found = false;
    return each_run_file(dir, note_found, found, err);
}

bool sluice__holds_run(const char *dir) {
    char *path = sluice__path_join(dir, "config.json");
    json_t *root = NULL;
    if (path && sluice__is_file(path)) sluice__json_load(&root, path, NULL);
    const char *format = json_string_value(json_object_get(root, "format"));
    bool ours = format && !strncmp(format, "sluice-run-", 11);
    json_decref(root);
    sluice__free(path);
    return ours;
}

/* Logs alone may be what a kill left of a run that had just begun; anything else needs the config.json of a run beside
 * it to be taken for ours. */
static sluice_status refuse_foreign(void *user, const char *path, sluice_error *err) {
    (void)user;
    const char *name = strrchr(path, '/') + 1;
    if (!strcmp(name, "metrics.jsonl") || !strncmp(name, "events.out.tfevents.", 20)) return SLUICE_OK;
    return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                        "overwrite_output_dir: %s does not belong to a run (no config.json of a run is beside it) and "
                        "would be removed; give another output_dir",
                        path);
}

static sluice_status check_overwritable(const char *dir, sluice_error *err) {
    return sluice__holds_run(dir) ? SLUICE_OK : each_run_file(dir, refuse_foreign, NULL, err);
}

static sluice_status remove_file(void *user, const char *path, sluice_error *err) {
    (void)user;
    return sluice__remove_tree(path, err);
}

static sluice_status holds_a_run(const char *dir, sluice_error *err) {
    return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                        "output_dir %s holds a run already; resume it, overwrite it "
                        "(overwrite_output_dir), or give another directory",
                        dir);
}

sluice_status sluice__check_output_dir(const sluice_train_params *p, sluice_error *err) {
    bool found;
    if (!*p->output_dir)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "output_dir: missing; where shall the run be written?");
    if (sluice__is_dir(p->output_dir) && !*p->resume_from_checkpoint) {
        if (p->overwrite_output_dir) SLUICE__TRY(check_overwritable(p->output_dir, err));
        SLUICE__TRY(look_for_run(p->output_dir, &found, err));
        if (found && !p->overwrite_output_dir) return holds_a_run(p->output_dir, err);
    }
    char *at = sluice__strdup(p->output_dir);
    if (!at) return no_path(err);
    while (access(at, F_OK) != 0 && strrchr(at, '/')) *(strrchr(at, '/') + (strrchr(at, '/') == at)) = '\0';
    const char *nearest = access(at, F_OK) == 0 ? at : ".";
    sluice_status st = SLUICE_OK;
    if (!sluice__is_dir(nearest))
        st = sluice__fail(err, SLUICE_ERR_IO, "output_dir %s: %s is not a directory", p->output_dir, nearest);
    else if (access(nearest, W_OK | X_OK) != 0)
        st = sluice__fail(err, SLUICE_ERR_IO, "output_dir %s: cannot write into %s: %s", p->output_dir, nearest,
                          strerror(errno));
    sluice__free(at);
    return st;
}

/* One writer a directory: a second one would overwrite the checkpoints of the first. The lock goes with the
 * process. */
static sluice_status take_lock(sluice_trainer *t, sluice_error *err) {
    const char *dir = t->params.output_dir;
    char *path = sluice__path_join(dir, ".lock");
    if (!path) return no_path(err);
    t->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    sluice_status st = SLUICE_OK;
    if (t->lock < 0) st = sluice__fail(err, SLUICE_ERR_IO, "%s: cannot create: %s", path, strerror(errno));
    else if (flock(t->lock, LOCK_EX | LOCK_NB) != 0)
        st = sluice__fail(err, SLUICE_ERR_IO, "output_dir %s: another run is writing there", dir);
    sluice__free(path);
    return st;
}

/* ---- config.json of the run ---- */

static json_t *hash_text(uint64_t hash) {
    char text[24];
    snprintf(text, sizeof text, "%016" PRIx64, hash);
    return json_string(text);
}

static void describe(json_t *o, const sluice_trainer *t) {
    char cpu[256];
    sluice_cpu_describe(cpu, sizeof cpu);
    const sluice_dataset_info *d = &t->data;
    json_object_set_new(o, "model_config",
                        sluice__config_to_json(sluice_model_config(t->model), &sluice__target_native));
    json_object_set_new(o, "parameters", json_integer(sluice_config_num_parameters(sluice_model_config(t->model))));
    json_object_set_new(o, "dataset",
                        json_pack("{s:o, s:I, s:I, s:I, s:I, s:I}", "hash", hash_text(d->hash), "train_documents",
                                  (json_int_t)d->train_documents, "train_tokens", (json_int_t)d->train_tokens,
                                  "train_windows", (json_int_t)d->train_windows, "heldout_tokens",
                                  (json_int_t)d->heldout_tokens, "heldout_bytes", (json_int_t)d->heldout_bytes));
    if (t->tokenizer)
        json_object_set_new(o, "tokenizer",
                            json_pack("{s:o, s:i}", "hash", hash_text(sluice_tokenizer_hash(t->tokenizer)),
                                      "vocab_size", sluice_tokenizer_vocab_size(t->tokenizer)));
    json_object_set_new(o, "machine", json_pack("{s:s, s:i}", "cpu", cpu, "threads", sluice_get_num_threads()));
}

static sluice_status write_config(const sluice_trainer *t, sluice_error *err) {
    static const char *const of_this_call[] = {"output_dir", "overwrite_output_dir", "resume_from_checkpoint"};
    char *path = sluice__path_join(t->params.output_dir, "config.json");
    json_t *o = json_pack("{s:s, s:s}", "format", "sluice-run-1", "sluice_version", SLUICE_VERSION);
    json_t *params = sluice__train_params_to_json(&t->params);
    sluice_status st = path && o && params ? SLUICE_OK : no_path(err);
    if (st == SLUICE_OK) {
        for (int i = 0; i < 3; i++) json_object_del(params, of_this_call[i]);
        json_object_update(o, params);
        describe(o, t);
        st = sluice__json_save(o, path, err);
    }
    json_decref(params);
    json_decref(o);
    sluice__free(path);
    return st;
}

/* ---- starting and continuing ---- */

static bool asks_for_newest(const char *from) {
    return !strcmp(from, "true") || !strcmp(from, "True") || !strcmp(from, "last");
}

static sluice_status load(sluice_trainer *t, const char *path, sluice_error *err) {
    sluice__checkpoint_parts parts = sluice__trainer_parts(t);
    SLUICE__TRY(sluice__checkpoint_load(path, &parts, err));
    t->resumed = true;
    sluice__log(SLUICE_LOG_INFO, "%s: continuing from %s, step %" PRId64 " of %" PRId64, t->label, path,
                t->state.step, t->schedule.total);
    return SLUICE_OK;
}

/* A damaged checkpoint is never passed over in silence; but the user learns of the one before it. */
static sluice_status name_older(const char *dir, const char *path, int64_t newest, const sluice_error *why,
                                sluice_error *err) {
    int64_t older;
    if (sluice__checkpoint_before(dir, newest, &older, NULL) != SLUICE_OK || older < 0)
        return sluice__fail(err, why->code, "%s; %s/checkpoints holds no older one that is whole", why->message, dir);
    return sluice__fail(err, why->code,
                        "%s; %s/checkpoints/step-%" PRId64 " is the newest one that is whole: remove %s and resume again "
                        "to go on from there",
                        why->message, dir, older, path);
}

static sluice_status load_newest(sluice_trainer *t, int64_t newest, sluice_error *err) {
    if (newest < 0) {
        sluice__log(SLUICE_LOG_INFO, "%s: no checkpoint in %s yet: starting at the beginning", t->label,
                    t->params.output_dir);
        return SLUICE_OK;
    }
    char *path = sluice__checkpoint_path(t->params.output_dir, newest);
    sluice_error why = {0};
    sluice_status st = path ? load(t, path, &why) : no_path(&why);
    if (st == SLUICE_OK) t->saved_step = newest;
    else if (st == SLUICE_ERR_FORMAT || st == SLUICE_ERR_IO) st = name_older(t->params.output_dir, path, newest, &why, err);
    else if (err) *err = why;
    sluice__free(path);
    return st;
}

/* The checkpoint that was named is loaded; what lies in output_dir must not be ahead of it. */
static sluice_status check_given(sluice_trainer *t, int64_t newest, sluice_error *err) {
    if (newest > t->state.step)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "resume_from_checkpoint: step %" PRId64 ", but output_dir %s holds step-%" PRId64
                            " already; remove what is newer, or give another output_dir",
                            t->state.step, t->params.output_dir, newest);
    if (newest == t->state.step) t->saved_step = newest;
    return SLUICE_OK;
}

static sluice_status start_or_continue(sluice_trainer *t, sluice_error *err) {
    const char *dir = t->params.output_dir, *from = t->params.resume_from_checkpoint;
    bool found;
    int64_t newest;
    if (*from) {
        SLUICE__TRY(sluice__checkpoint_clean(dir, err));
        SLUICE__TRY(sluice__checkpoint_newest(dir, &newest, err));
        return asks_for_newest(from) ? load_newest(t, newest, err) : check_given(t, newest, err);
    }
    if (t->params.overwrite_output_dir) {
        SLUICE__TRY(check_overwritable(dir, err));
        return each_run_file(dir, remove_file, NULL, err);
    }
    SLUICE__TRY(look_for_run(dir, &found, err));
    return found ? holds_a_run(dir, err) : SLUICE_OK;
}

sluice_status sluice__resume_path(char **path, const sluice_train_params *p, sluice_error *err) {
    int64_t newest;
    *path = NULL;
    if (!*p->resume_from_checkpoint) return SLUICE_OK;
    if (!asks_for_newest(p->resume_from_checkpoint)) {
        *path = sluice__strdup(p->resume_from_checkpoint);
        return *path ? SLUICE_OK : no_path(err);
    }
    SLUICE__TRY(sluice__checkpoint_newest(p->output_dir, &newest, err));
    if (newest < 0) return SLUICE_OK;
    *path = sluice__checkpoint_path(p->output_dir, newest);
    return *path ? SLUICE_OK : no_path(err);
}

sluice_status sluice__trainer_open_dir(sluice_trainer *t, sluice_error *err) {
    const char *dir = t->params.output_dir, *from = t->params.resume_from_checkpoint;
    if (*from && !asks_for_newest(from)) SLUICE__TRY(load(t, from, err)); /* before anything is written */
    SLUICE__TRY(sluice__check_writable_dir(dir, err));
    SLUICE__TRY(take_lock(t, err));
    SLUICE__TRY(start_or_continue(t, err));
    t->finished = t->resumed && t->saved_step == t->state.step && t->state.step >= t->schedule.total &&
                  (!t->data.heldout_windows || t->state.last_eval == t->state.step);
    if (t->finished) return SLUICE_OK;
    SLUICE__TRY(sluice__run_log_open(&t->log, dir, t->resumed ? t->state.step : -1, t->params.tensorboard, err));
    return write_config(t, err);
}

void sluice__trainer_close_dir(sluice_trainer *t) {
    sluice__run_log_close(&t->log, NULL);
    if (t->lock >= 0) close(t->lock);
    t->lock = -1;
}

sluice_status sluice_trainer_begin(sluice_trainer *t, sluice_error *err) {
    const sluice_train_params *p = &t->params;
    if (t->begun) return SLUICE_OK;
    if (*p->output_dir) {
        SLUICE__TRY(sluice__trainer_open_dir(t, err));
    } else if (*p->resume_from_checkpoint) {
        if (asks_for_newest(p->resume_from_checkpoint))
            return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                                "resume_from_checkpoint: \"%s\" needs an output_dir to look in",
                                p->resume_from_checkpoint);
        SLUICE__TRY(load(t, p->resume_from_checkpoint, err));
    }
    t->begun = true;
    bool may_rewind = p->on_spike == SLUICE_ON_SPIKE_REWIND || p->on_nan == SLUICE_ON_NAN_REWIND;
    return may_rewind && t->saved_step < 0 ? sluice_trainer_save(t, err) : SLUICE_OK;
}

/* ---- saving and going back ---- */

sluice_status sluice_trainer_save(sluice_trainer *t, sluice_error *err) {
    const char *dir = t->params.output_dir;
    char bad[192];
    if (!*dir) return sluice__fail(err, SLUICE_ERR_ARGUMENT, "output_dir: none given to save a checkpoint in");
    SLUICE__TRY(sluice_trainer_begin(t, err));
    if (t->saved_step == t->state.step) return SLUICE_OK;
    sluice__guard_weights(t->model, bad, sizeof bad);
    if (*bad)
        return sluice__fail(err, SLUICE_ERR_NUMERIC, "step %" PRId64 ": no checkpoint is written: %s", t->state.step,
                            bad);
    SLUICE__TRY(sluice__run_log_flush(&t->log, true, err));
    char *path = sluice__checkpoint_path(dir, t->state.step);
    if (!path) return no_path(err);
    sluice__checkpoint_parts parts = sluice__trainer_parts(t);
    sluice_status st = sluice__checkpoint_save(path, &parts, err);
    sluice__free(path);
    if (st != SLUICE_OK) return st;
    t->saved_step = t->state.step;
    t->rewinds_in_row = 0;
    return sluice__checkpoint_prune(dir, t->params.save_total_limit, err);
}

/* Weights, moments, step and running average of the newest checkpoint; counters and the position in the data stay,
 * so that the batches between it and now are left out. */
sluice_status sluice__trainer_rewind(sluice_trainer *t, sluice_error *err) {
    sluice__train_state now = t->state;
    char *path = sluice__checkpoint_path(t->params.output_dir, t->saved_step);
    if (!path) return no_path(err);
    sluice__checkpoint_parts parts = sluice__trainer_parts(t);
    sluice_status st = sluice__checkpoint_load(path, &parts, err);
    sluice__free(path);
    if (st != SLUICE_OK) return st;
    t->state.batch = now.batch;
    t->state.tokens = now.tokens;
    t->state.spikes = now.spikes;
    t->state.spike_events = now.spike_events;
    t->state.skipped = now.skipped;
    t->state.rewinds = now.rewinds + 1;
    t->rewinds_in_row++;
    return sluice__run_log_rewind(&t->log, t->params.output_dir, t->state.step, err);
}

sluice_status sluice_trainer_save_model(sluice_trainer *t, const char *dir, sluice_error *err) {
    char *temporary;
    SLUICE__TRY(sluice__atomic_dir_begin(&temporary, dir, err));
    sluice_status st = sluice_model_save_as(t->model, temporary, SLUICE_SAVE_AUTO,
                                            t->params.save_dtype ? SLUICE_SAVE_BFLOAT16 : SLUICE_SAVE_FLOAT32, err);
    if (st == SLUICE_OK && t->tokenizer) st = sluice_tokenizer_save(t->tokenizer, temporary, err);
    if (st == SLUICE_OK) return sluice__atomic_dir_commit(temporary, dir, err);
    sluice__atomic_dir_discard(temporary);
    return st;
}
