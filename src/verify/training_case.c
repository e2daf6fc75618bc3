/* SPDX-License-Identifier: Apache-2.0 */
/* Training cases: logits and residuals of the first batch, its loss and every gradient summed over micro-batches,
 * router losses in all readings of balance, then all optimiser steps: schedule, clipping, AdamW and Muon. The
 * limits are about six times the worst that fp32 shows against fp64. */
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
    sluice__muon_options muon;
} settings;

typedef struct training {
    const sluice__verify_run *run;
    sluice_model *model;
    const sluice__safetensors *golden;
    sluice__json info;
    settings set;
    batches data;
    sluice__workspace *ws;
    sluice__router *router; /* NULL without experts */
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

static sluice_status read_muon(settings *set, const sluice__json *optimizer, sluice_error *err) {
    static const char *const adjusts[] = {"original", "match_rms_adamw", NULL};
    if (!sluice__json_has(optimizer, "muon")) return SLUICE_OK;
    sluice__json muon = sluice__json_get(optimizer, "muon");
    double max_lr = 0;
    int64_t iterations = 5;
    int adjust = 0;
    bool nesterov = true;
    set->muon = (sluice__muon_options){.on = true};
    SLUICE__TRY(sluice__json_real(&muon, "max_lr", true, 0, 1e3, &max_lr, err));
    SLUICE__TRY(sluice__json_real(&muon, "momentum", true, 0, 1, &set->muon.momentum, err));
    SLUICE__TRY(sluice__json_real(&muon, "weight_decay", true, 0, 1e3, &set->muon.weight_decay, err));
    SLUICE__TRY(sluice__json_int(&muon, "ns_steps", false, 1, 100, &iterations, err));
    SLUICE__TRY(sluice__json_choice(&muon, "adjust", true, adjusts, &adjust, err));
    SLUICE__TRY(sluice__json_bool(&muon, "nesterov", false, &nesterov, err));
    if (!nesterov)
        return sluice__json_fail(&muon, "nesterov", err, "found false, but Muon has Nesterov momentum here");
    set->muon.adjust = (sluice__muon_adjust)adjust;
    set->muon.iterations = (int)iterations;
    set->muon.lr_factor = max_lr / set->schedule.max_lr;
    return SLUICE_OK;
}

static sluice_status read_optimizer(settings *set, const sluice__json *info, sluice_error *err) {
    sluice__json optimizer = sluice__json_get(info, "optimizer"), adamw = sluice__json_get(&optimizer, "adamw");
    sluice__json betas = sluice__json_get(&adamw, "betas");
    if (json_array_size(betas.value) != 2) return sluice__json_fail(&adamw, "betas", err, "expected two numbers");
    set->adamw.beta1 = json_number_value(json_array_get(betas.value, 0));
    set->adamw.beta2 = json_number_value(json_array_get(betas.value, 1));
    SLUICE__TRY(read_muon(set, &optimizer, err));
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

static sluice__input micro_batch(const training *t, int step, int row, int rows) {
    return (sluice__input){rows,
                           t->data.seq_len,
                           at(t, t->data.ids, step, row),
                           at(t, t->data.labels, step, row),
                           at(t, t->data.positions, step, row),
                           at(t, t->data.key_start, step, row)};
}

static sluice_status begin_routing(const training *t, int step, sluice__balance balance) {
    if (!t->router) return SLUICE_OK;
    sluice__router_reset(t->router, balance, (int64_t)t->data.batch * t->data.seq_len);
    if (balance != SLUICE__BALANCE_GLOBAL || t->set.num_micro == 1) return SLUICE_OK;
    for (int m = 0, row = 0; m < t->set.num_micro; row += t->set.micro_rows[m++]) {
        sluice__input in = micro_batch(t, step, row, t->set.micro_rows[m]);
        SLUICE__TRY(sluice__count_routing(t->model, t->ws, &in, t->router, t->run->err));
    }
    return SLUICE_OK;
}

/* What one step differentiates, and its parts. */
typedef struct objective {
    double total, ce, lbl, z;
} objective;

/* grads += gradient of the objective of batch `step`, micro-batch by micro-batch. */
static sluice_status gradients(const training *t, int step, sluice__balance balance, objective *out) {
    int64_t scored = 0, per_step = (int64_t)t->data.batch * t->data.seq_len;
    const int32_t *labels = at(t, t->data.labels, step, 0);
    for (int64_t i = 0; i < per_step; i++) scored += labels[i] >= 0;
    double sum = 0, scale = scored ? 1.0 / (double)scored : 0;
    SLUICE__TRY(begin_routing(t, step, balance));
    for (int m = 0, row = 0; m < t->set.num_micro; row += t->set.micro_rows[m++]) {
        sluice__input in = micro_batch(t, step, row, t->set.micro_rows[m]);
        sluice__loss part;
        SLUICE__TRY(sluice__loss_and_grads_routed(t->model, t->ws, &in, NULL, scale, t->router, t->grads, &part,
                                                  t->run->err));
        sum += part.nll_sum;
    }
    *out = (objective){.total = sum * scale, .ce = sum * scale};
    if (!t->router) return SLUICE_OK;
    out->lbl = t->router->balance_loss;
    out->z = t->router->z_loss;
    out->total += sluice__router_objective(t->router);
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

/* The parts of the objective against the object `recorded`. */
static sluice_status check_objective(const training *t, const char *label, const sluice__json *recorded,
                                     const objective *got) {
    const struct {
        const char *key;
        double value;
    } parts[] = {{"total", got->total}, {"ce", got->ce}, {"lbl", got->lbl}, {"z", got->z}};
    for (int i = 0; i < (t->router ? 4 : 1); i++) {
        double golden = 0;
        SLUICE__TRY(sluice__json_real(recorded, parts[i].key, true, -1e30, 1e30, &golden, t->run->err));
        SLUICE__TRY(sluice__report_value(t->run, SLUICE_VERIFY_MAX_ABS, fabs(parts[i].value - golden), LIMIT_LOSS,
                                         "%s%s%s", label, i ? "." : "", i ? parts[i].key : ""));
    }
    return SLUICE_OK;
}

static void clear_gradients(const training *t) {
    memset(t->grads, 0, (size_t)sluice__flat_size(t->model) * sizeof *t->grads);
}

static sluice_status check_gradients(training *t) {
    objective got;
    sluice__json recorded = sluice__json_get(&t->info, "loss");
    SLUICE__TRY(gradients(t, 0, SLUICE__BALANCE_GLOBAL, &got));
    SLUICE__TRY(check_objective(t, "loss", &recorded, &got));
    return check_tensors(t, "grad.", t->grads, LIMIT_GRADIENT);
}

/* The other readings of the balance loss, where the case has them. */
static sluice_status check_balance(training *t) {
    static const char *const kinds[] = {"global", "running", "micro"}, *const prefixes[] = {"grad_global.",
                                                                                            "grad_running.",
                                                                                            "grad_micro."};
    static const sluice__balance balances[] = {SLUICE__BALANCE_GLOBAL, SLUICE__BALANCE_RUNNING,
                                               SLUICE__BALANCE_MICRO};
    sluice__json all = sluice__json_get(&t->info, "balance");
    for (int i = 0; all.value && t->router && i < 3; i++) {
        objective got;
        char label[32];
        sluice__json recorded = sluice__json_get(&all, kinds[i]);
        if (!recorded.value) continue;
        clear_gradients(t);
        snprintf(label, sizeof label, "loss, %s balance", kinds[i]);
        SLUICE__TRY(gradients(t, 0, balances[i], &got));
        SLUICE__TRY(check_objective(t, label, &recorded, &got));
        SLUICE__TRY(check_tensors(t, prefixes[i], t->grads, LIMIT_GRADIENT));
    }
    return SLUICE_OK;
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

/* Series of the optimiser's steps, each [steps]. */
enum { TOTAL, CE, LBL, Z, GRAD_NORM, LR, SERIES };

static sluice_status compare_series(const training *t, const double *series) {
    static const struct {
        const char *key, *name;
        bool relative, routed;
    } all[SERIES] = {{"total", "loss", false, false},       {"ce", "loss.ce", false, true},
                     {"lbl", "loss.lbl", false, true},      {"z", "loss.z", false, true},
                     {"grad_norm", "gradient norm", true, false}, {"lr", "learning rate", true, false}};
    const double limits[SERIES] = {LIMIT_STEP_LOSS, LIMIT_STEP_LOSS, LIMIT_STEP_LOSS,
                                   LIMIT_STEP_LOSS, LIMIT_STEP_NORM, LIMIT_LR};
    int n = t->set.steps;
    for (int i = 0; i < SERIES; i++) {
        if (all[i].routed && !t->router) continue;
        SLUICE__TRY(sluice__report_value(t->run, all[i].relative ? SLUICE_VERIFY_RELATIVE : SLUICE_VERIFY_MAX_ABS,
                                         series_error(t, all[i].key, series + (int64_t)i * n, all[i].relative),
                                         limits[i], "%s of %d steps", all[i].name, n));
    }
    return SLUICE_OK;
}

/* From the start weights. */
static sluice_status steps(training *t, sluice__optimizer *o, double *series) {
    int n = t->set.steps;
    clear_gradients(t);
    for (int s = 0; s < n; s++) {
        objective got;
        SLUICE__TRY(gradients(t, s, SLUICE__BALANCE_GLOBAL, &got));
        double norm = sluice__grad_norm(o, t->grads), lr = sluice__lr_at(&t->set.schedule, s + 1);
        const double now[SERIES] = {got.total, got.ce, got.lbl, got.z, norm, lr};
        for (int i = 0; i < SERIES; i++) series[(int64_t)i * n + s] = now[i];
        sluice__optimizer_step(o, sluice__flat_params(t->model), t->grads, lr,
                               sluice__clip_factor(norm, t->set.clip));
    }
    return compare_series(t, series);
}

static sluice_status check_steps(training *t) {
    sluice__optimizer *o = NULL;
    size_t count = SERIES * (size_t)t->set.steps;
    double *series = sluice__calloc(count, sizeof *series, SLUICE__MEM_OTHER);
    sluice_status st = series ? sluice__optimizer_new(&o, t->model, &t->set.adamw, &t->set.muon, NULL, t->run->err)
                              : sluice__no_memory(t->run->err, count * sizeof *series, "losses");
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
    SLUICE__TRY(sluice__router_new(&t->router, config, t->run->err));
    size_t size = (size_t)sluice__flat_size(t->model);
    t->grads = sluice__calloc(size, sizeof *t->grads, SLUICE__MEM_GRADIENTS);
    return t->grads ? SLUICE_OK : sluice__no_memory(t->run->err, size * sizeof *t->grads, "gradients");
}

static sluice_status check_all(training *t) {
    SLUICE__TRY(prepare(t));
    SLUICE__TRY(check_forward(t));
    SLUICE__TRY(check_gradients(t));
    SLUICE__TRY(check_balance(t));
    SLUICE__TRY(check_steps(t));
    return t->run->params->dump_path ? sluice__results_write(t->run, &t->results, t->run->params->dump_path)
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
    sluice__router_free(t.router);
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
