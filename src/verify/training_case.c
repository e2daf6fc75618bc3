/* SPDX-License-Identifier: Apache-2.0 */
/* Training cases: logits and residuals of the first batch, its loss and every gradient summed over micro-batches,
 * then all optimiser steps: schedule, clipping, AdamW. The limits are about six times the worst that fp32 shows
 * against fp64. */
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "layers/transformer.h"
#include "train/optimizer.h"
#include "train/schedule.h"
#include "verify/cases.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static const double LIMIT_LOGITS = 5e-5, LIMIT_LOSS = 1e-5, LIMIT_GRADIENT = 3e-5, LIMIT_STEP_LOSS = 5e-5,
                    LIMIT_STEP_NORM = 2e-4, LIMIT_FINAL = 1e-3, LIMIT_FINAL_NORM = 1e-4, LIMIT_LR = 1e-12;
enum { MAX_MICRO = 256, MAX_STEPS = 100000 };

/* batch.safetensors: [steps, B, T] each. */
typedef struct batches {
    int steps, batch, seq_len;
    int32_t *ids, *labels;
    int32_t *positions, *key_start; /* NULL when the file has none */
} batches;

/* golden.json */
typedef struct settings {
    int micro_rows[MAX_MICRO], num_micro;
    int steps;
    double clip;
    sluice__schedule schedule;
    sluice__adamw_options adamw;
    bool muon;
} settings;

typedef struct training {
    const sluice__verify_run *run;
    sluice_model *model;
    const sluice__safetensors *golden;
    sluice__json info;
    settings set;
    batches data;
    sluice__workspace *ws;
    float *grads;
    sluice__results results;
} training;

static sluice_status read_series(int32_t **out, batches *b, const sluice__safetensors *file, const char *name,
                                 sluice_error *err) {
    const sluice__st_tensor *t = sluice__safetensors_find(file, name);
    if (!t) return SLUICE_OK;
    bool first = b->steps == 0;
    if (t->ndim != 3 || t->count < 1 || t->count > INT32_MAX / 2 ||
        (!first && (t->shape[0] != b->steps || t->shape[1] != b->batch || t->shape[2] != b->seq_len)))
        return sluice__fail(
            err, SLUICE_ERR_FORMAT, "%s: %s: found %lld values in %d dimensions, expected [steps, batch, tokens]%s",
            sluice__safetensors_path(file), name, (long long)t->count, t->ndim, first ? "" : " as in ids");
    if (first) {
        b->steps = (int)t->shape[0];
        b->batch = (int)t->shape[1];
        b->seq_len = (int)t->shape[2];
    }
    return sluice__golden_ids(out, file, t, err);
}

/* Turns document numbers into the first visible position of each token, in place. */
static sluice_status documents_to_key_start(int32_t *doc, const batches *b, const char *path, sluice_error *err) {
    for (int64_t row = 0; row < (int64_t)b->steps * b->batch; row++, doc += b->seq_len) {
        int32_t current = doc[0], start = 0;
        for (int t = 0; t < b->seq_len; t++) {
            if (doc[t] < current)
                return sluice__fail(err, SLUICE_ERR_FORMAT,
                                    "%s: doc_ids: row %lld goes from %d back to %d at token %d; documents "
                                    "have to be contiguous and numbered upwards",
                                    path, (long long)row, current, doc[t], t);
            if (doc[t] != current) start = t;
            current = doc[t];
            doc[t] = start;
        }
    }
    return SLUICE_OK;
}

static void batches_free(batches *b) {
    sluice__free(b->ids);
    sluice__free(b->labels);
    sluice__free(b->positions);
    sluice__free(b->key_start);
}

static sluice_status batches_read(batches *b, const char *path, sluice_error *err) {
    sluice__safetensors *file;
    SLUICE__TRY(sluice__safetensors_open(&file, path, err));
    sluice_status st = read_series(&b->ids, b, file, "ids", err);
    if (st == SLUICE_OK && b->ids) st = read_series(&b->labels, b, file, "labels", err);
    if (st == SLUICE_OK && !b->labels)
        st = sluice__fail(err, SLUICE_ERR_FORMAT, "%s: ids and labels are expected", path);
    if (st == SLUICE_OK) st = read_series(&b->positions, b, file, "positions", err);
    if (st == SLUICE_OK) st = read_series(&b->key_start, b, file, "doc_ids", err);
    if (st == SLUICE_OK && b->key_start) st = documents_to_key_start(b->key_start, b, path, err);
    sluice__safetensors_close(file);
    return st;
}

static sluice_status read_schedule(sluice__schedule *out, const sluice__json *info, sluice_error *err) {
    sluice__json s = sluice__json_get(info, "schedule");
    const char *kind = "cosine", *shape = "linear";
    *out = (sluice__schedule){0};
    SLUICE__TRY(sluice__json_string(&s, "kind", true, &kind, err));
    SLUICE__TRY(sluice__json_string(&s, "decay_shape", false, &shape, err));
    if (!sluice__schedule_kind_of(kind, &out->kind))
        return sluice__json_fail(&s, "kind", err, "\"%s\" is not known", kind);
    if (!sluice__decay_shape_of(shape, &out->decay_shape))
        return sluice__json_fail(&s, "decay_shape", err, "\"%s\" is not known", shape);
    SLUICE__TRY(sluice__json_real(&s, "max_lr", true, 0, 1e3, &out->max_lr, err));
    SLUICE__TRY(sluice__json_real(&s, "min_lr", true, 0, 1e3, &out->min_lr, err));
    SLUICE__TRY(sluice__json_int(&s, "warmup", true, 0, INT32_MAX, &out->warmup, err));
    SLUICE__TRY(sluice__json_int(&s, "total", true, 1, INT32_MAX, &out->total, err));
    return sluice__json_int(&s, "decay", false, 0, INT32_MAX, &out->decay, err);
}

static sluice_status read_optimizer(settings *set, const sluice__json *info, sluice_error *err) {
    sluice__json optimizer = sluice__json_get(info, "optimizer"), adamw = sluice__json_get(&optimizer, "adamw");
    sluice__json betas = sluice__json_get(&adamw, "betas");
    if (json_array_size(betas.value) != 2) return sluice__json_fail(&adamw, "betas", err, "expected two numbers");
    set->adamw.beta1 = json_number_value(json_array_get(betas.value, 0));
    set->adamw.beta2 = json_number_value(json_array_get(betas.value, 1));
    set->muon = sluice__json_has(&optimizer, "muon");
    SLUICE__TRY(sluice__json_real(&adamw, "eps", true, 0, 1, &set->adamw.eps, err));
    return sluice__json_real(&adamw, "weight_decay", true, 0, 1e3, &set->adamw.weight_decay, err);
}

static sluice_status read_settings(settings *set, const sluice__json *info, const batches *data, sluice_error *err) {
    sluice__json rows = sluice__json_get(info, "micro_rows");
    int64_t steps = data->steps, sum = 0;
    set->num_micro = (int)json_array_size(rows.value);
    if (set->num_micro < 1 || set->num_micro > MAX_MICRO)
        return sluice__json_fail(info, "micro_rows", err, "expected a list of 1..%d row counts", MAX_MICRO);
    for (int i = 0; i < set->num_micro; i++) {
        json_int_t n = json_integer_value(json_array_get(rows.value, (size_t)i));
        if (n < 1 || n > data->batch)
            return sluice__json_fail(info, "micro_rows", err, "entry %d: expected 1..%d", i, data->batch);
        set->micro_rows[i] = (int)n;
        sum += n;
    }
    if (sum != data->batch)
        return sluice__json_fail(info, "micro_rows", err, "sum is %lld, the batch has %d rows", (long long)sum,
                                 data->batch);
    SLUICE__TRY(
        sluice__json_int(info, "steps", false, 1, data->steps < MAX_STEPS ? data->steps : MAX_STEPS, &steps, err));
    set->steps = (int)steps;
    SLUICE__TRY(sluice__json_real(info, "clip", true, 0, 1e9, &set->clip, err));
    SLUICE__TRY(read_schedule(&set->schedule, info, err));
    return read_optimizer(set, info, err);
}

static const int32_t *at(const training *t, const int32_t *series, int step, int row) {
    return series ? series + ((int64_t)step * t->data.batch + row) * t->data.seq_len : NULL;
}

/* grads += gradient of the mean loss of batch `step`, micro-batch by micro-batch; *loss is that mean. */
static sluice_status gradients(const training *t, int step, double *loss) {
    int64_t scored = 0, per_step = (int64_t)t->data.batch * t->data.seq_len;
    const int32_t *labels = at(t, t->data.labels, step, 0);
    for (int64_t i = 0; i < per_step; i++) scored += labels[i] >= 0;
    double sum = 0, scale = scored ? 1.0 / (double)scored : 0;
    for (int m = 0, row = 0; m < t->set.num_micro; row += t->set.micro_rows[m++]) {
        sluice__input in = {t->set.micro_rows[m],
                            t->data.seq_len,
                            at(t, t->data.ids, step, row),
                            at(t, t->data.labels, step, row),
                            at(t, t->data.positions, step, row),
                            at(t, t->data.key_start, step, row)};
        sluice__loss part;
        SLUICE__TRY(sluice__loss_and_grads(t->model, t->ws, &in, NULL, scale, t->grads, &part, t->run->err));
        sum += part.nll_sum;
    }
    *loss = sum * scale;
    return SLUICE_OK;
}

static sluice_status check_forward(training *t) {
    sluice__verify_input in = {t->data.batch, t->data.seq_len, t->data.ids, t->data.positions, t->data.key_start};
    SLUICE__TRY(sluice__verify_forward(t->run, t->model, t->golden, &in, &t->results));
    for (int i = 0; i < sluice__safetensors_count(t->golden); i++) {
        const sluice__st_tensor *g = sluice__safetensors_at(t->golden, i);
        if (!strncmp(g->name, "grad", 4) || !strncmp(g->name, "final.", 6)) continue;
        SLUICE__TRY(sluice__report_tensor(t->run, "", g, sluice__results_find(&t->results, g->name),
                                          SLUICE_VERIFY_MAX_ABS, LIMIT_LOGITS));
    }
    return SLUICE_OK;
}

/* Copies every tensor of the model from `flat` into the results as <prefix><name>, and compares those the golden
 * has. */
static sluice_status check_tensors(training *t, const char *prefix, const float *flat, double limit) {
    char name[256];
    for (int i = 0; i < sluice_model_num_tensors(t->model); i++) {
        sluice_tensor_info info = sluice_model_tensor(t->model, i);
        float *data;
        snprintf(name, sizeof name, "%s%s", prefix, info.name);
        SLUICE__TRY(sluice__results_add(&t->results, name, info.ndim, info.shape, &data, t->run->err));
        memcpy(data, flat + sluice__grad_offset(t->model, i), (size_t)info.count * sizeof *data);
    }
    for (int i = 0; i < sluice__safetensors_count(t->golden); i++) {
        const sluice__st_tensor *g = sluice__safetensors_at(t->golden, i);
        if (strncmp(g->name, prefix, strlen(prefix)) != 0) continue;
        SLUICE__TRY(sluice__report_tensor(t->run, "", g, sluice__results_find(&t->results, g->name),
                                          SLUICE_VERIFY_RELATIVE_L2, limit));
    }
    return SLUICE_OK;
}

static sluice_status check_gradients(training *t) {
    double loss, golden = 0;
    sluice__json recorded = sluice__json_get(&t->info, "loss");
    SLUICE__TRY(sluice__json_real(&recorded, "total", true, -1e30, 1e30, &golden, t->run->err));
    SLUICE__TRY(gradients(t, 0, &loss));
    SLUICE__TRY(sluice__report_value(t->run, SLUICE_VERIFY_MAX_ABS, fabs(loss - golden), LIMIT_LOSS, "loss"));
    return check_tensors(t, "grad.", t->grads, LIMIT_GRADIENT);
}

/* Largest |got - recorded| or |got / recorded - 1| over the steps; NaN when the list is too short. */
static double series_error(const training *t, const char *key, const double *got, bool relative) {
    sluice__json train = sluice__json_get(&t->info, "train"), list = sluice__json_get(&train, key);
    if ((int)json_array_size(list.value) < t->set.steps) return NAN;
    double worst = 0;
    for (int s = 0; s < t->set.steps; s++) {
        double golden = json_number_value(json_array_get(list.value, (size_t)s));
        double d = relative ? fabs(got[s] / golden - 1) : fabs(got[s] - golden);
        if (!(d <= worst)) worst = isnan(worst) ? worst : d;
    }
    return worst;
}

static sluice_status check_final_norms(const training *t) {
    sluice__json final = sluice__json_get(&t->info, "final_weights");
    if (!final.value) return SLUICE_OK;
    double worst = 0;
    for (int i = 0; i < sluice_model_num_tensors(t->model); i++) {
        sluice_tensor_info info = sluice_model_tensor(t->model, i);
        sluice__json one = sluice__json_get(&final, info.name);
        double golden = 0, square = 0;
        SLUICE__TRY(sluice__json_real(&one, "l2", true, 0, 1e30, &golden, t->run->err));
        for (int64_t k = 0; k < info.count; k++) square += (double)info.data[k] * info.data[k];
        double d = fabs(sqrt(square) / golden - 1);
        if (!(d <= worst)) worst = isnan(worst) ? worst : d;
    }
    return sluice__report_value(t->run, SLUICE_VERIFY_RELATIVE, worst, LIMIT_FINAL_NORM, "norms of all final tensors");
}

/* The optimiser's steps from the start weights; series: [3][steps] losses, gradient norms, rates. */
static sluice_status steps(training *t, sluice__optimizer *o, double *series) {
    int n = t->set.steps;
    memset(t->grads, 0, (size_t)sluice__flat_size(t->model) * sizeof *t->grads);
    for (int s = 0; s < n; s++) {
        SLUICE__TRY(gradients(t, s, &series[s]));
        series[n + s] = sluice__grad_norm(o, t->grads);
        series[2 * n + s] = sluice__lr_at(&t->set.schedule, s + 1);
        sluice__optimizer_step(o, sluice__flat_params(t->model), t->grads, series[2 * n + s],
                               sluice__clip_factor(series[n + s], t->set.clip));
    }
    SLUICE__TRY(sluice__report_value(t->run, SLUICE_VERIFY_MAX_ABS, series_error(t, "total", series, false),
                                     LIMIT_STEP_LOSS, "loss of %d steps", n));
    SLUICE__TRY(sluice__report_value(t->run, SLUICE_VERIFY_RELATIVE, series_error(t, "grad_norm", series + n, true),
                                     LIMIT_STEP_NORM, "gradient norm of %d steps", n));
    return sluice__report_value(t->run, SLUICE_VERIFY_RELATIVE, series_error(t, "lr", series + 2 * n, true), LIMIT_LR,
                                "learning rate of %d steps", n);
}

static sluice_status check_steps(training *t) {
    if (t->set.muon)
        return sluice__report_problem(t->run, "optimiser steps",
                                      "the Muon optimiser is not something that this version has");
    sluice__optimizer *o = NULL;
    double *series = sluice__calloc(3 * (size_t)t->set.steps, sizeof *series, SLUICE__MEM_OTHER);
    sluice_status st = series ? sluice__optimizer_new(&o, t->model, &t->set.adamw, t->run->err)
                              : sluice__no_memory(t->run->err, 3 * (size_t)t->set.steps * sizeof *series, "losses");
    if (st == SLUICE_OK) st = steps(t, o, series);
    if (st == SLUICE_OK) st = check_tensors(t, "final.", sluice__flat_params(t->model), LIMIT_FINAL);
    if (st == SLUICE_OK) st = check_final_norms(t);
    sluice__optimizer_free(o);
    sluice__free(series);
    return st;
}

static sluice_status prepare(training *t) {
    const sluice_config *config = sluice_model_config(t->model);
    int64_t need = sluice__workspace_bytes(config, t->data.batch, t->data.seq_len, SLUICE__TRAIN);
    if (need > sluice__mem_available())
        return sluice__fail(t->run->err, SLUICE_ERR_MEMORY,
                            "batch.safetensors: activations of %d x %d tokens need %lld bytes", t->data.batch,
                            t->data.seq_len, (long long)need);
    SLUICE__TRY(sluice__workspace_new(&t->ws, t->model, t->data.batch, t->data.seq_len, SLUICE__TRAIN, t->run->err));
    size_t size = (size_t)sluice__flat_size(t->model);
    t->grads = sluice__calloc(size, sizeof *t->grads, SLUICE__MEM_GRADIENTS);
    return t->grads ? SLUICE_OK : sluice__no_memory(t->run->err, size * sizeof *t->grads, "gradients");
}

static sluice_status check_all(training *t) {
    SLUICE__TRY(prepare(t));
    SLUICE__TRY(check_forward(t));
    SLUICE__TRY(check_gradients(t));
    SLUICE__TRY(check_steps(t));
    return t->run->params->dump_path ? sluice__results_write(&t->results, t->run->params->dump_path, t->run->err)
                                     : SLUICE_OK;
}

sluice_status sluice__verify_training(const sluice__verify_run *run, sluice_model *model) {
    training t = {.run = run, .model = model};
    sluice__safetensors *golden = NULL;
    json_t *root = NULL;
    char *batch_path = sluice__path_join(run->dir, "batch.safetensors"),
         *info_path = sluice__path_join(run->dir, "golden.json");
    char *golden_path = sluice__path_join(run->dir, "golden.safetensors");
    sluice_status st = SLUICE_ERR_MEMORY;
    if (!batch_path || !info_path || !golden_path) goto done;
    SLUICE__TRY_GOTO(batches_read(&t.data, batch_path, run->err), done);
    SLUICE__TRY_GOTO(sluice__json_load(&root, info_path, run->err), done);
    t.info = sluice__json_view(root, info_path);
    SLUICE__TRY_GOTO(read_settings(&t.set, &t.info, &t.data, run->err), done);
    SLUICE__TRY_GOTO(sluice__safetensors_open(&golden, golden_path, run->err), done);
    t.golden = golden;
    st = check_all(&t);
done:
    sluice__workspace_free(t.ws);
    sluice__free(t.grads);
    sluice__results_free(&t.results);
    sluice__safetensors_close(golden);
    json_decref(root);
    batches_free(&t.data);
    sluice__free(batch_path);
    sluice__free(info_path);
    sluice__free(golden_path);
    return st;
}
