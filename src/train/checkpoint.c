/* SPDX-License-Identifier: Apache-2.0 */
/* Writing and reading a checkpoint. */
#include "train/checkpoint.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "model/safetensors.h"
#include "model/save.h"
#include "sluice/cpu.h"
#include "sluice/tokenizer.h"
#include "train/options.h"
#include <inttypes.h>
#include <string.h>

static const char state_format[] = "sluice-trainer-state-1";

/* ---- optimizer.safetensors: exp_avg.<tensor> and exp_avg_sq.<tensor> ---- */

static const char *const moment_prefix[2] = {"exp_avg.", "exp_avg_sq."};

/* NULL where the optimiser has no such moment. */
static float *moment_of(const sluice__checkpoint_parts *c, int moment, int tensor) {
    int64_t offset = sluice__grad_offset(c->model, tensor);
    return moment ? sluice__optimizer_second(c->optimizer, offset) : c->optimizer->exp_avg + offset;
}

static sluice_status write_moments(const char *path, const sluice__checkpoint_parts *c, sluice_error *err) {
    int n = sluice_model_num_tensors(c->model), made = 0;
    sluice__st_tensor *list = sluice__calloc(2 * (size_t)n, sizeof *list, SLUICE__MEM_OTHER);
    char **names = sluice__calloc(2 * (size_t)n, sizeof *names, SLUICE__MEM_OTHER);
    sluice_status st = list && names ? SLUICE_OK
                                     : sluice__no_memory(err, (size_t)n * sizeof *list, "the list of moments");
    for (int i = 0; st == SLUICE_OK && i < 2 * n; i++) {
        sluice_tensor_info t = sluice_model_tensor(c->model, i % n);
        float *values = moment_of(c, i / n, i % n);
        if (!values) continue;
        names[made] = sluice__asprintf("%s%s", moment_prefix[i / n], t.name);
        if (!names[made]) st = sluice__no_memory(err, 64, "a tensor name");
        else list[made] = sluice__st_f32(names[made], values, t.ndim, t.shape), made++;
    }
    if (st == SLUICE_OK) st = sluice__safetensors_write(path, list, made, NULL, err);
    for (int i = 0; names && i < made; i++) sluice__free(names[i]);
    sluice__free(names);
    sluice__free(list);
    return st;
}

/* Tensor `name` of the file, which must have the shape of t, to out. */
static sluice_status read_tensor(const sluice__safetensors *file, const char *name, const sluice_tensor_info *t,
                                 float *out, sluice_error *err) {
    const sluice__st_tensor *found = sluice__safetensors_find(file, name);
    const char *path = sluice__safetensors_path(file);
    if (!found) return sluice__fail(err, SLUICE_ERR_FORMAT, "%s: tensor %s is missing", path, name);
    bool same = found->ndim == t->ndim && found->count == t->count && found->dtype == SLUICE__F32;
    for (int i = 0; same && i < t->ndim; i++) same = found->shape[i] == t->shape[i];
    if (!same)
        return sluice__fail(err, SLUICE_ERR_FORMAT,
                            "%s: tensor %s: found %s with %" PRId64 " elements, expected F32 with %" PRId64, path,
                            name, sluice__dtype_name(found->dtype), found->count, t->count);
    if (t->count) memcpy(out, found->data, (size_t)t->count * sizeof *out);
    return SLUICE_OK;
}

static sluice_status read_weights(const sluice__safetensors *file, const sluice__checkpoint_parts *c,
                                  sluice_error *err) {
    for (int i = 0; i < sluice_model_num_tensors(c->model); i++) {
        sluice_tensor_info t = sluice_model_tensor(c->model, i);
        SLUICE__TRY(read_tensor(file, t.name, &t, t.data, err));
    }
    return SLUICE_OK;
}

static sluice_status read_moments(const sluice__safetensors *file, const sluice__checkpoint_parts *c,
                                  sluice_error *err) {
    int n = sluice_model_num_tensors(c->model);
    for (int i = 0; i < 2 * n; i++) {
        sluice_tensor_info t = sluice_model_tensor(c->model, i % n);
        float *values = moment_of(c, i / n, i % n);
        if (!values) continue;
        char *name = sluice__asprintf("%s%s", moment_prefix[i / n], t.name);
        if (!name) return sluice__no_memory(err, 64, "a tensor name");
        bool fresh = c->adopts && !sluice__safetensors_find(file, name); /* a gate that is new: moments stay 0 */
        sluice_status st = fresh ? SLUICE_OK : read_tensor(file, name, &t, values, err);
        sluice__free(name);
        if (st != SLUICE_OK) return st;
    }
    return SLUICE_OK;
}

/* Opens dir/name, hands it to `read` and closes it. */
static sluice_status with_file(const char *dir, const char *name, const sluice__checkpoint_parts *c,
                               sluice_status (*read)(const sluice__safetensors *, const sluice__checkpoint_parts *,
                                                     sluice_error *),
                               sluice_error *err) {
    char *path = sluice__path_join(dir, name);
    if (!path) return sluice__no_memory(err, strlen(dir), "a path");
    sluice__safetensors *file;
    sluice_status st = sluice__safetensors_open(&file, path, err);
    if (st == SLUICE_OK) {
        st = read(file, c, err);
        sluice__safetensors_close(file);
    }
    sluice__free(path);
    return st;
}

/* ---- trainer_state.json ---- */

static json_t *hex(uint64_t hash) {
    char text[24];
    snprintf(text, sizeof text, "%016" PRIx64, hash);
    return json_string(text);
}

static json_t *data_to_json(const sluice_dataset_info *d) {
    return json_pack("{s:o, s:I, s:I, s:I}", "hash", hex(d->hash), "train_tokens", (json_int_t)d->train_tokens,
                     "train_windows", (json_int_t)d->train_windows, "heldout_tokens", (json_int_t)d->heldout_tokens);
}

static json_t *watch_to_json(const sluice__spike_watch *w) {
    return json_pack("{s:I, s:I, s:b, s:f}", "index", (json_int_t)w->index, "last_flagged",
                     (json_int_t)w->last_flagged, "has_average", w->has_average, "average", w->average);
}

static json_t *state_to_json(const sluice__checkpoint_parts *c) {
    const sluice__train_state *s = c->state;
    json_t *o = json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "format", state_format,
                          "sluice_version", SLUICE_VERSION, "step", (json_int_t)s->step, "optimizer_step",
                          (json_int_t)c->optimizer->step, "batch", (json_int_t)s->batch, "tokens",
                          (json_int_t)s->tokens, "spikes", (json_int_t)s->spikes, "spike_events",
                          (json_int_t)s->spike_events, "skipped", (json_int_t)s->skipped, "rewinds",
                          (json_int_t)s->rewinds, "last_eval", (json_int_t)s->last_eval);
    if (!o) return NULL;
    json_object_set_new(o, "spike_watch", watch_to_json(&s->watch));
    json_object_set_new(o, "dataset", data_to_json(&c->data));
    json_object_set_new(o, "tokenizer_hash", c->tokenizer ? hex(sluice_tokenizer_hash(c->tokenizer)) : json_null());
    json_object_set_new(o, "threads", json_integer(sluice_get_num_threads()));
    json_object_set_new(o, "cpu_flags", json_integer(sluice_cpu_flags()));
    json_object_set_new(o, "params", sluice__train_params_to_json(c->params));
    return o;
}

static sluice_status read_count(const sluice__json *in, const char *key, int64_t least, int64_t *out,
                                sluice_error *err) {
    return sluice__json_int(in, key, true, least, INT64_MAX, out, err);
}

static sluice_status read_watch(const sluice__json *root, sluice__spike_watch *w, sluice_error *err) {
    sluice__json in = sluice__json_get(root, "spike_watch");
    SLUICE__TRY(read_count(&in, "index", 0, &w->index, err));
    SLUICE__TRY(read_count(&in, "last_flagged", -1, &w->last_flagged, err));
    SLUICE__TRY(sluice__json_bool(&in, "has_average", true, &w->has_average, err));
    return sluice__json_real(&in, "average", true, -1e300, 1e300, &w->average, err);
}

static sluice_status read_state(const sluice__json *in, sluice__train_state *s, int64_t *optimizer_step,
                                sluice_error *err) {
    SLUICE__TRY(read_count(in, "step", 0, &s->step, err));
    SLUICE__TRY(read_count(in, "optimizer_step", 0, optimizer_step, err));
    SLUICE__TRY(read_count(in, "batch", 0, &s->batch, err));
    SLUICE__TRY(read_count(in, "tokens", 0, &s->tokens, err));
    SLUICE__TRY(read_count(in, "spikes", 0, &s->spikes, err));
    SLUICE__TRY(read_count(in, "spike_events", 0, &s->spike_events, err));
    SLUICE__TRY(read_count(in, "skipped", 0, &s->skipped, err));
    SLUICE__TRY(read_count(in, "rewinds", 0, &s->rewinds, err));
    SLUICE__TRY(read_count(in, "last_eval", -1, &s->last_eval, err));
    return read_watch(in, &s->watch, err);
}

/* ---- does it belong to this run? ---- */

static sluice_status check_hash(const sluice__json *in, const char *key, const json_t *now, const char *what,
                                sluice_error *err) {
    sluice__json found = sluice__json_get(in, key);
    const char *text = json_string_value(found.value), *wanted = json_string_value(now);
    if (!text && !wanted) return SLUICE_OK;
    if (text && wanted && !strcmp(text, wanted)) return SLUICE_OK;
    return sluice__json_fail(in, key, err,
                             "found %.32s, but %s of this run is %.32s; a checkpoint continues only with what "
                             "it was made with",
                             text ? text : "none", what, wanted ? wanted : "none");
}

static sluice_status check_options(const sluice__json *in, const sluice__checkpoint_parts *c, int64_t step,
                                   sluice_error *err) {
    sluice_train_params before = sluice_train_params_default();
    sluice__json params = sluice__json_get(in, "params");
    if (!json_is_object(params.value)) return sluice__json_fail(in, "params", err, "missing");
    const char *key;
    json_t *value;
    json_object_foreach(params.value, key, value) {
        int index = sluice__train_option_find(key);
        if (index < 0) return sluice__json_fail(&params, key, err, "no such training option");
        SLUICE__TRY(sluice__train_option_set_json(&before, index, in->file, value, err));
    }
    sluice__schedule was, is;
    SLUICE__TRY(sluice__train_schedule(&was, &before, c->data.train_windows, err));
    SLUICE__TRY(sluice__train_schedule(&is, c->params, c->data.train_windows, err));
    sluice_status st = sluice__train_params_continue(&before, c->params, &was, &is, step, err);
    return st == SLUICE_OK ? st : sluice__fail_in(err, st, "%s", in->file);
}

static void warn_of_other_bits(const sluice__json *in) {
    int64_t threads = json_integer_value(json_object_get(in->value, "threads"));
    int64_t flags = json_integer_value(json_object_get(in->value, "cpu_flags"));
    if (threads != sluice_get_num_threads())
        sluice__log(SLUICE_LOG_WARNING,
                    "%s: made with %" PRId64 " threads, now %d: the run continues, but not with the same bits",
                    in->file, threads, sluice_get_num_threads());
    if (flags != (int64_t)sluice_cpu_flags())
        sluice__log(SLUICE_LOG_WARNING,
                    "%s: made with other CPU features: the run continues, but not with the same bits", in->file);
}

static sluice_status check_and_read_state(const sluice__json *in, const sluice__checkpoint_parts *c,
                                          sluice__train_state *s, int64_t *optimizer_step, sluice_error *err) {
    const char *format = json_string_value(json_object_get(in->value, "format"));
    if (!format || strcmp(format, state_format))
        return sluice__json_fail(in, "format", err, "found \"%.40s\", expected \"%s\"", format ? format : "nothing",
                                 state_format);
    sluice__json data = sluice__json_get(in, "dataset");
    json_t *now = hex(c->data.hash);
    sluice_status st = check_hash(&data, "hash", now, "the data", err);
    json_decref(now);
    if (st != SLUICE_OK) return st;
    now = c->tokenizer ? hex(sluice_tokenizer_hash(c->tokenizer)) : json_null();
    st = check_hash(in, "tokenizer_hash", now, "the tokenizer", err);
    json_decref(now);
    if (st != SLUICE_OK) return st;
    SLUICE__TRY(read_state(in, s, optimizer_step, err));
    SLUICE__TRY(check_options(in, c, s->step, err));
    warn_of_other_bits(in);
    return SLUICE_OK;
}

static sluice_status load_state(const char *dir, const sluice__checkpoint_parts *c, sluice__train_state *s,
                                int64_t *optimizer_step, sluice_error *err) {
    char *path = sluice__path_join(dir, "trainer_state.json");
    if (!path) return sluice__no_memory(err, strlen(dir), "a path");
    json_t *root;
    sluice_status st = sluice__json_load(&root, path, err);
    if (st == SLUICE_OK) {
        sluice__json in = sluice__json_view(root, path);
        st = check_and_read_state(&in, c, s, optimizer_step, err);
        json_decref(root);
    }
    sluice__free(path);
    return st;
}

static sluice_status compare_configs(const json_t *was, json_t *is, const char *path, sluice_error *err) {
    const char *key;
    json_t *now;
    json_object_foreach(is, key, now) {
        json_t *before = json_object_get(was, key);
        if (before && json_equal(before, now)) continue;
        char *a = before ? json_dumps(before, JSON_ENCODE_ANY) : NULL, *b = json_dumps(now, JSON_ENCODE_ANY);
        sluice_status st = sluice__fail(err, SLUICE_ERR_CONFIG,
                                        "%s: %s: found %.100s, but the model of this run has %.100s", path, key,
                                        a ? a : "nothing", b ? b : "?");
        free(a);
        free(b);
        return st;
    }
    return SLUICE_OK;
}

static sluice_status check_config(const char *dir, const sluice__checkpoint_parts *c, sluice_error *err) {
    char *path = sluice__path_join(dir, "config.json");
    json_t *was = NULL, *is = sluice__config_to_json(sluice_model_config(c->model), &sluice__target_native);
    sluice_status st = path && is ? sluice__json_load(&was, path, err) : sluice__no_memory(err, 4096, "config.json");
    if (st == SLUICE_OK) st = compare_configs(was, is, path, err);
    json_decref(was);
    json_decref(is);
    sluice__free(path);
    return st;
}

static sluice_status check_complete(const char *dir, sluice_error *err) {
    static const char *const files[] = {"config.json", "model.safetensors", "optimizer.safetensors",
                                        "trainer_state.json"};
    if (!sluice__is_dir(dir)) return sluice__fail(err, SLUICE_ERR_IO, "%s: no such checkpoint directory", dir);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char *path = sluice__path_join(dir, files[i]);
        bool there = path && sluice__is_file(path);
        sluice__free(path);
        if (!there)
            return sluice__fail(err, SLUICE_ERR_FORMAT,
                                "%s: %s is missing; training cannot continue from this directory", dir, files[i]);
    }
    return SLUICE_OK;
}

bool sluice__checkpoint_is_whole(const char *path) {
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors"};
    if (check_complete(path, NULL) != SLUICE_OK) return false;
    bool whole = true;
    for (int i = 0; i < 2 && whole; i++) {
        char *name = sluice__path_join(path, files[i]);
        sluice__safetensors *file = NULL;
        whole = name && sluice__safetensors_open(&file, name, NULL) == SLUICE_OK;
        if (whole) sluice__safetensors_close(file);
        sluice__free(name);
    }
    json_t *state = NULL;
    char *name = sluice__path_join(path, "trainer_state.json");
    whole = whole && name && sluice__json_load(&state, name, NULL) == SLUICE_OK;
    json_decref(state);
    sluice__free(name);
    return whole;
}

sluice_status sluice__checkpoint_load(const char *path, sluice__checkpoint_parts *c, sluice_error *err) {
    sluice__train_state s = *c->state;
    int64_t optimizer_step = 0;
    SLUICE__TRY(check_complete(path, err));
    SLUICE__TRY(check_config(path, c, err));
    SLUICE__TRY(load_state(path, c, &s, &optimizer_step, err));
    SLUICE__TRY(with_file(path, "model.safetensors", c, read_weights, err));
    SLUICE__TRY(with_file(path, "optimizer.safetensors", c, read_moments, err));
    c->optimizer->step = optimizer_step;
    *c->state = s;
    return SLUICE_OK;
}

/* ---- moments of another run ---- */

static sluice_status adopted_step(const sluice__json *in, const sluice_train_params *p, int64_t *step,
                                  sluice_error *err) {
    int index = sluice__train_option_find("optim");
    sluice_train_params before = sluice_train_params_default();
    sluice__json params = sluice__json_get(in, "params"), optim = sluice__json_get(&params, "optim");
    if (!optim.value) return sluice__json_fail(&params, "optim", err, "missing");
    SLUICE__TRY(sluice__train_option_set_json(&before, index, in->file, optim.value, err));
    if (before.optim != p->optim) {
        char was[32], is[32];
        sluice_train_option_value(&before, index, was, sizeof was);
        sluice_train_option_value(p, index, is, sizeof is);
        return sluice__json_fail(&params, "optim", err, "keep_optimizer: found %s, but this run has %s", was, is);
    }
    return sluice__json_int(in, "optimizer_step", true, 0, INT64_MAX, step, err);
}

sluice_status sluice__checkpoint_adopt_moments(const char *path, sluice__checkpoint_parts *c, sluice_error *err) {
    char *state = sluice__path_join(path, "trainer_state.json");
    json_t *root;
    int64_t step = 0;
    if (!state) return sluice__no_memory(err, strlen(path), "a path");
    sluice_status st = sluice__is_file(state)
                           ? sluice__json_load(&root, state, err)
                           : sluice__fail(err, SLUICE_ERR_ARGUMENT,
                                          "keep_optimizer: %s is no checkpoint of a run: it has no trainer_state.json; "
                                          "without keep_optimizer the moments start at 0",
                                          path);
    if (st == SLUICE_OK) {
        sluice__json in = sluice__json_view(root, state);
        st = adopted_step(&in, c->params, &step, err);
        json_decref(root);
    }
    sluice__free(state);
    c->adopts = true;
    if (st == SLUICE_OK) st = with_file(path, "optimizer.safetensors", c, read_moments, err);
    c->adopts = false;
    if (st == SLUICE_OK) c->optimizer->step = step;
    return st;
}

/* ---- writing ---- */

static sluice_status write_into(const char *dir, const sluice__checkpoint_parts *c, sluice_error *err) {
    char *moments = sluice__path_join(dir, "optimizer.safetensors"),
         *state = sluice__path_join(dir, "trainer_state.json");
    json_t *o = state_to_json(c);
    sluice_status st = moments && state && o ? SLUICE_OK : sluice__no_memory(err, 4096, "a checkpoint");
    if (st == SLUICE_OK) st = sluice_model_save(c->model, dir, SLUICE_SAVE_NATIVE, err);
    if (st == SLUICE_OK && c->tokenizer) st = sluice_tokenizer_save(c->tokenizer, dir, err);
    if (st == SLUICE_OK) st = write_moments(moments, c, err);
    if (st == SLUICE_OK) st = sluice__json_save(o, state, err);
    json_decref(o);
    sluice__free(moments);
    sluice__free(state);
    return st;
}

sluice_status sluice__checkpoint_save(const char *path, const sluice__checkpoint_parts *c, sluice_error *err) {
    char *temporary;
    SLUICE__TRY(sluice__atomic_dir_begin(&temporary, path, err));
    sluice_status st = write_into(temporary, c, err);
    if (st == SLUICE_OK) return sluice__atomic_dir_commit(temporary, path, err);
    sluice__atomic_dir_discard(temporary);
    return st;
}
