/* SPDX-License-Identifier: Apache-2.0 */
/* The whole of `sluice train` behind its command line: from texts to a run directory. */
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/progress.h"
#include "sluice/cpu.h"
#include "sluice/tokenizer.h"
#include "train/adapt.h"
#include "train/branch.h"
#include "train/match.h"
#include "train/texts.h"
#include "train/trainer.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { DEFAULT_VOCABULARY = 8192 };

/* What a job holds while it goes; released in one place. */
typedef struct job {
    sluice_train_params params;
    char *options;     /* model options, JSON text */
    char *resume_path; /* checkpoint, or NULL */
    sluice__texts texts, held;
    sluice_tokenizer *tokenizer;
    sluice_config config;
    bool has_config;
    sluice_dataset *dataset;
    sluice_model *model;
    sluice_trainer *trainer;
    sluice_train_callbacks call;
} job;

static void release(job *j) {
    sluice_trainer_free(j->trainer);
    sluice_model_free(j->model);
    sluice_dataset_free(j->dataset);
    if (j->has_config) sluice_config_free(&j->config);
    sluice_tokenizer_free(j->tokenizer);
    sluice__texts_free(&j->texts);
    sluice__texts_free(&j->held);
    sluice__free(j->resume_path);
    sluice__free(j->options);
}

static sluice_status poll_stop(const job *j, sluice_error *err) {
    if (!j->call.stop_requested || !j->call.stop_requested(j->call.user)) return SLUICE_OK;
    return sluice__fail(err, SLUICE_INTERRUPTED, "interrupted before training began");
}

/* ---- texts and tokenizer ---- */

static sluice_status read_texts(job *j, sluice_error *err) {
    const sluice_train_params *p = &j->params;
    char size[32];
    if (!*p->text && !*p->shards && *p->resume_from_checkpoint && !j->resume_path)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "resume_from_checkpoint: output_dir %s holds no checkpoint to continue from, and there is no "
                            "text (or shards) to begin a run with",
                            p->output_dir);
    if (!*p->text && !*p->shards)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "text: missing; give text files (or shards) to train on");
    if (*p->text) SLUICE__TRY(sluice__texts_read(&j->texts, p->text, "text", p, err));
    if (*p->validation_text) SLUICE__TRY(sluice__texts_read(&j->held, p->validation_text, "validation_text", p, err));
    if (j->texts.count)
        sluice__log(SLUICE_LOG_INFO, "text: %s in %" PRId64 " document%s",
                    sluice__format_bytes(size, (double)j->texts.bytes), j->texts.count,
                    j->texts.count == 1 ? "" : "s");
    return SLUICE_OK;
}

static bool has_tokenizer(const char *dir) {
    char *path = dir && *dir ? sluice__path_join(dir, "tokenizer.json") : NULL;
    bool there = path && sluice__is_file(path);
    sluice__free(path);
    return there;
}

/* vocab_size among the options or in config_name; 0 when neither says. */
static sluice_status wanted_vocabulary(const job *j, int64_t *out, sluice_error *err) {
    json_t *o;
    *out = 0;
    SLUICE__TRY(sluice__model_options_object(&o, j->options, err));
    *out = json_integer_value(json_object_get(o, "vocab_size"));
    json_decref(o);
    if (*out || !*j->params.config_name) return SLUICE_OK;
    sluice_config config;
    SLUICE__TRY(sluice_train_model_config(&config, NULL, &j->params, j->options, 0, err));
    *out = config.vocab_size;
    sluice_config_free(&config);
    return SLUICE_OK;
}

static sluice_status train_tokenizer(job *j, sluice_error *err) {
    int64_t size = j->params.train_tokenizer_vocab_size;
    if (!size) SLUICE__TRY(wanted_vocabulary(j, &size, err));
    if (!size) size = DEFAULT_VOCABULARY;
    if (size < 1 || size > 1000000)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "vocab_size: found %" PRId64 ", expected 1 to 1000000", size);
    double start = sluice__now();
    char took[32];
    SLUICE__TRY(sluice_train_tokenizer_on_text(&j->tokenizer, &j->params, (int)size, j->texts.documents,
                                               j->texts.count, err));
    sluice__log(SLUICE_LOG_INFO, "tokenizer: %d tokens, trained on the text in %s",
                sluice_tokenizer_vocab_size(j->tokenizer), sluice__format_seconds(took, sluice__now() - start));
    return SLUICE_OK;
}

/* The name that the run of a checkpoint recorded. */
static sluice_status recorded_tokenizer(char *name, const char *checkpoint, sluice_error *err) {
    sluice_train_params before;
    char *options = NULL;
    sluice_status st = sluice_train_read_checkpoint(&before, &options, checkpoint, err);
    sluice__free(options);
    if (st == SLUICE_OK) memcpy(name, before.tokenizer_name, sizeof before.tokenizer_name);
    return st;
}

/* A run keeps its tokenizer: one that is named beside the checkpoint's must be the same. What the run itself recorded may be
 * gone by now. */
static sluice_status check_named_tokenizer(const job *j, sluice_error *err) {
    const char *name = j->params.tokenizer_name;
    char recorded[SLUICE_TRAIN_PATH];
    sluice_tokenizer *named;
    if (!*name || !has_tokenizer(j->resume_path)) return SLUICE_OK;
    SLUICE__TRY(recorded_tokenizer(recorded, j->resume_path, err));
    if (!strcmp(name, recorded) && !sluice__is_file(name) && !has_tokenizer(name)) return SLUICE_OK;
    sluice_status st = sluice_tokenizer_load(&named, name, err);
    if (st != SLUICE_OK) return sluice__fail_in(err, st, "tokenizer_name");
    bool same = sluice_tokenizer_hash(named) == sluice_tokenizer_hash(j->tokenizer);
    sluice_tokenizer_free(named);
    if (same) return SLUICE_OK;
    return sluice__fail(err, SLUICE_ERR_CONFIG,
                        "tokenizer_name: %s is another tokenizer than that of the run, which is in %s; give that one, or start a new run",
                        name, j->resume_path);
}

/* In this order: the checkpoint's, the one that is named, the model's, a new one. Shards alone need none. */
static sluice_status find_tokenizer(job *j, sluice_error *err) {
    const sluice_train_params *p = &j->params;
    const char *from = has_tokenizer(j->resume_path)          ? j->resume_path
                       : *p->tokenizer_name                   ? p->tokenizer_name
                       : has_tokenizer(p->model_name_or_path) ? p->model_name_or_path
                                                              : NULL;
    if (!from && j->texts.count && *p->model_name_or_path)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "tokenizer_name: %s holds no tokenizer.json; name the tokenizer its "
                            "weights were trained with", p->model_name_or_path);
    if (!from) return j->texts.count ? train_tokenizer(j, err) : SLUICE_OK;
    SLUICE__TRY(sluice_tokenizer_load(&j->tokenizer, from, err));
    sluice__log(SLUICE_LOG_INFO, "tokenizer: %d tokens, from %s", sluice_tokenizer_vocab_size(j->tokenizer), from);
    return check_named_tokenizer(j, err);
}

/* ---- model ---- */

static sluice_status config_of_dir(job *j, const char *dir, sluice_error *err) {
    char *path = sluice__path_join(dir, "config.json");
    sluice_config found;
    sluice_status st = path ? sluice_config_load(&found, path, err) : sluice__no_memory(err, strlen(dir), "a path");
    sluice__free(path);
    if (st != SLUICE_OK) return st;
    st = sluice__config_trainable(&found, err);
    if (st == SLUICE_OK) st = sluice__config_adapt(&j->config, &found, j->options, j->params.seq_len, err);
    j->has_config = st == SLUICE_OK;
    sluice_config_free(&found);
    return st == SLUICE_OK ? st : sluice__fail_in(err, st, "%s", dir);
}

/* A family that cannot be trained is refused before texts are read. */
static sluice_status check_family(const job *j, sluice_error *err) {
    sluice_config found;
    if (!*j->params.model_name_or_path) return SLUICE_OK;
    char *path = sluice__path_join(j->params.model_name_or_path, "config.json");
    if (!path) return sluice__no_memory(err, SLUICE_TRAIN_PATH, "a path");
    sluice_status st = sluice__is_file(path) ? sluice_config_load(&found, path, err) : SLUICE_ERR_IO;
    sluice__free(path);
    if (st == SLUICE_ERR_IO) return SLUICE_OK; /* what is missing is said where it is needed */
    if (st != SLUICE_OK) return st;
    st = sluice__config_trainable(&found, err);
    sluice_config_free(&found);
    return st == SLUICE_OK ? st : sluice__fail_in(err, st, "%s", j->params.model_name_or_path);
}

static sluice_status find_config(job *j, sluice_error *err) {
    const sluice_train_params *p = &j->params;
    int needed = j->tokenizer ? sluice_tokenizer_vocab_size(j->tokenizer) : 0;
    if (*p->model_name_or_path) {
        if (*p->config_name)
            return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                                "config_name: model_name_or_path brings its own configuration");
        SLUICE__TRY(config_of_dir(j, j->resume_path ? j->resume_path : p->model_name_or_path, err));
        if (j->config.vocab_size < needed)
            return sluice__fail(err, SLUICE_ERR_CONFIG, "tokenizer_name: ids up to %d, but %s has a vocabulary of %d",
                                needed - 1, p->model_name_or_path, j->config.vocab_size);
    } else {
        if (j->tokenizer) SLUICE__TRY(sluice_train_add_token_ids(&j->options, j->tokenizer, err));
        if (p->match_parameters) SLUICE__TRY(sluice__match_parameters(&j->options, p, needed, err));
        j->params.match_parameters = false; /* done: the run's own options say the width */
        SLUICE__TRY(sluice_train_model_config(&j->config, NULL, p, j->options, needed, err));
        j->has_config = true;
    }
    SLUICE__TRY(sluice__model_check_effect(&j->config, j->options, p, err));
    if (p->seq_len > j->config.max_position_embeddings)
        sluice__log(SLUICE_LOG_WARNING, "seq_len %" PRId64 " is more than the model's max_position_embeddings %d",
                    p->seq_len, j->config.max_position_embeddings);
    return SLUICE_OK;
}

static sluice_status make_model(job *j, sluice_error *err) {
    const sluice_train_params *p = &j->params;
    sluice_model *from;
    if (!*p->model_name_or_path || j->resume_path)
        return sluice_model_new(&j->model, &j->config, (uint64_t)p->seed, err); /* a checkpoint overwrites the weights */
    SLUICE__TRY(sluice_model_load(&from, p->model_name_or_path, NULL, err));
    return sluice__model_adapt(&j->model, from, &j->config, (uint64_t)p->seed, p->gate_start, err);
}

/* ---- what the user reads first ---- */

static void report_data(const sluice_dataset_info *d) {
    sluice__log(SLUICE_LOG_INFO,
                "data: %" PRId64 " training tokens (%" PRId64 " windows of %d), %" PRId64 " held out (%" PRId64
                " windows)",
                d->train_tokens, d->train_windows, d->seq_len, d->heldout_tokens, d->heldout_windows);
    if (!d->heldout_windows) sluice__log(SLUICE_LOG_WARNING, "nothing is held out: there will be no evaluation");
}

static const char *format_name(const sluice_train_params *p) {
    if (!sluice__train_in_bf16(p)) return "float32";
    return sluice_cpu_flags() & SLUICE_CPU_AVX512_BF16 ? "bf16 products, fp32 sums and weights"
                                                       : "bf16 products (emulated on this CPU), fp32 sums and weights";
}

static void report_plan(const sluice_train_plan *m, const sluice_config *c, const sluice_train_params *p) {
    char all[32], w[32], g[32], o[32], a[32], d[32], t[32], v[32];
    sluice__log(SLUICE_LOG_INFO, "model: %s parameters (%" PRId64 " in gates), %d layers; dtype: %s",
                sluice__format_count(all, (double)m->parameters), sluice_config_num_gate_parameters(c),
                c->num_hidden_layers, format_name(p));
    sluice__log(SLUICE_LOG_INFO,
                "memory: weights %s, gradients %s, moments %s, activations %s, data %s: %s more of %s available",
                sluice__format_bytes(w, (double)m->weights), sluice__format_bytes(g, (double)m->gradients),
                sluice__format_bytes(o, (double)m->optimizer), sluice__format_bytes(a, (double)m->activations),
                sluice__format_bytes(d, (double)m->data), sluice__format_bytes(t, (double)m->total),
                sluice__format_bytes(v, (double)m->available));
}

/* Weights and moments of a checkpoint have to fit on the disk beside the kept ones. */
static void warn_of_disk(const job *j, const sluice_train_plan *m) {
    long long free_bytes = sluice__free_disk(j->params.output_dir);
    int64_t keep = j->params.save_total_limit > 0 ? j->params.save_total_limit + 1 : 2;
    double need = (double)(m->weights + m->optimizer) * (double)keep + (double)m->weights;
    char a[32], b[32];
    if (free_bytes >= 0 && (double)free_bytes < need)
        sluice__log(SLUICE_LOG_WARNING, "checkpoints may take %s, but %s are free in output_dir",
                    sluice__format_bytes(a, need), sluice__format_bytes(b, (double)free_bytes));
}

static sluice_status prepare(sluice_train_result *out, job *j, sluice_error *err) {
    SLUICE__TRY(sluice_train_params_check(&j->params, err));
    SLUICE__TRY(sluice__check_output_dir(&j->params, err));
    SLUICE__TRY(sluice__branch(&j->params, err));
    SLUICE__TRY(sluice__resume_path(&j->resume_path, &j->params, err));
    if (j->resume_path && !sluice__is_dir(j->resume_path))
        return sluice__fail(err, SLUICE_ERR_IO, "resume_from_checkpoint: %s: no such directory", j->resume_path);
    bool inherits = j->resume_path || (*j->params.resume_from_checkpoint && sluice__holds_run(j->params.output_dir));
    if (!inherits) SLUICE__TRY(sluice__train_check_effect(&j->params, err)); /* options of a run were taken by it */
    SLUICE__TRY(check_family(j, err));
    SLUICE__TRY(read_texts(j, err));
    SLUICE__TRY(poll_stop(j, err));
    SLUICE__TRY(find_tokenizer(j, err));
    SLUICE__TRY(find_config(j, err));
    SLUICE__TRY(poll_stop(j, err));
    SLUICE__TRY(sluice__texts_dataset(&j->dataset, &j->params, j->tokenizer, j->config.vocab_size, j->texts.documents,
                                      j->texts.count, j->held.documents, j->held.count, err));
    sluice__texts_free(&j->texts);
    sluice__texts_free(&j->held);
    out->data = sluice_dataset_get_info(j->dataset);
    report_data(&out->data);
    out->plan = sluice_train_get_plan(&j->config, &j->params, j->dataset);
    report_plan(&out->plan, &j->config, &j->params);
    SLUICE__TRY(sluice_train_check_plan(&out->plan, &j->params, err));
    sluice__schedule schedule;
    SLUICE__TRY(sluice__train_schedule(&schedule, &j->params, out->data.train_windows, err));
    warn_of_disk(j, &out->plan);
    return poll_stop(j, err);
}

static void fill_result(sluice_train_result *out, const sluice_trainer *t) {
    out->steps = t->state.step;
    out->loss = t->last.loss;
    out->eval = t->last_eval;
    out->spikes = t->state.spikes;
    out->spike_events = t->state.spike_events;
    out->skipped = t->state.skipped;
    out->rewinds = t->state.rewinds;
}

static sluice_status train(sluice_train_result *out, job *j, sluice_error *err) {
    double start = sluice__now();
    SLUICE__TRY(make_model(j, err));
    SLUICE__TRY(sluice_trainer_new(&j->trainer, &j->params, j->model, j->dataset, j->tokenizer, "train", err));
    if (j->params.keep_optimizer && !j->resume_path) {
        sluice__checkpoint_parts parts = sluice__trainer_parts(j->trainer);
        SLUICE__TRY(sluice__checkpoint_adopt_moments(j->params.model_name_or_path, &parts, err));
    }
    sluice_status st = sluice_trainer_run(j->trainer, &j->call, err);
    out->seconds = sluice__now() - start;
    fill_result(out, j->trainer);
    SLUICE__TRY(st);
    snprintf(out->model_dir, sizeof out->model_dir, "%s/model", j->params.output_dir);
    if (j->trainer->finished && sluice__is_dir(out->model_dir)) return SLUICE_OK;
    return sluice_trainer_save_model(j->trainer, out->model_dir, err);
}

sluice_status sluice_train_job(sluice_train_result *out, const sluice_train_params *p, const char *model_options,
                               const sluice_train_callbacks *callbacks, bool plan_only, sluice_error *err) {
    *out = (sluice_train_result){0};
    job j = {.params = *p, .options = sluice__strdup(model_options ? model_options : "{}")};
    if (!j.options) return sluice__no_memory(err, 64, "model options");
    if (callbacks) j.call = *callbacks;
    sluice_status st = prepare(out, &j, err);
    if (st == SLUICE_OK && !plan_only) st = train(out, &j, err);
    release(&j);
    return st;
}
