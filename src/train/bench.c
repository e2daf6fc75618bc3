/* SPDX-License-Identifier: Apache-2.0 */
/* Timing of training steps: what a trainer does in a step (forward, backward, global norm, AdamW with clearing of the
 * gradients) on random tokens, for the same model with and without gates. Models of all gates exist at once and take
 * turns, because machines are slower at some moments than at others, and the question is the ratio. */
#include "sluice/bench.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/progress.h"
#include "base/rng.h"
#include "layers/transformer.h"
#include "sluice/train.h"
#include "train/optimizer.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct shape {
    const char *name, *options; /* flat model options, without gate */
} shape;
static const shape shapes[] = {
    {"124M", "\"num_hidden_layers\": 12, \"hidden_size\": 768, \"num_attention_heads\": 12, \"head_dim\": 64, "
             "\"intermediate_size\": 2048, \"vocab_size\": 50304"},
    {"small", "\"num_hidden_layers\": 6, \"hidden_size\": 256, \"num_attention_heads\": 4, \"head_dim\": 64, "
              "\"intermediate_size\": 704, \"vocab_size\": 4096"},
};
static const char *const gates[SLUICE_BENCH_GATES] = {"none", "headwise", "elementwise"};
static const char *const dtypes[SLUICE_BENCH_DTYPES] = {"float32", "bf16"};

/* One model in training, and its times. */
typedef struct runner {
    const char *gate, *dtype;
    sluice_model *model;
    sluice__workspace *ws;
    sluice__optimizer *optimizer;
    float *grads;
    int32_t *ids, *labels;
    double *step_seconds;
    double adamw_best;
    int timed;
} runner;

sluice_bench_train_params sluice_bench_train_default(void) {
    return (sluice_bench_train_params){
        .shape = "124M:4x64", .gates = "none,headwise,elementwise", .dtypes = "float32", .steps = 8, .warmup = 2};
}

static void runner_free(runner *r) {
    sluice__workspace_free(r->ws);
    sluice__optimizer_free(r->optimizer);
    sluice_model_free(r->model);
    sluice__free(r->grads);
    sluice__free(r->ids);
    sluice__free(r->labels);
    sluice__free(r->step_seconds);
}

static sluice_status config_of(sluice_config *config, const char *gate, const shape *s, int seq_len, sluice_error *err) {
    char json[512];
    bool gated = strcmp(gate, "none") != 0;
    snprintf(json, sizeof json,
             "{%s, \"use_qk_norm\": false, \"tie_word_embeddings\": true, \"gate_position\": \"%s\", "
             "\"gate_granularity\": \"%s\"}",
             s->options, gated ? "sdpa" : "none", gated ? gate : "elementwise");
    sluice_train_params params = sluice_train_params_default();
    params.seq_len = seq_len;
    return sluice_train_model_config(config, NULL, &params, json, 0, err);
}

static sluice__mode mode_of(const runner *r) {
    return SLUICE__TRAIN | (!strcmp(r->dtype, "bf16") ? SLUICE__IN_BF16 : 0);
}

/* Weights, gradients, moments and activations of all models at once. */
static sluice_status check_memory(const runner *r, int count, const shape *s, int batch, int seq_len, sluice_error *err) {
    double need = 0, have = (double)sluice__mem_available();
    char need_text[32], have_text[32];
    for (int g = 0; g < count; g++) {
        sluice_config config;
        SLUICE__TRY(config_of(&config, r[g].gate, s, seq_len, err));
        need += 16.0 * (double)sluice_config_num_parameters(&config) +
                (double)sluice__workspace_bytes(&config, batch, seq_len, mode_of(&r[g]));
        sluice_config_free(&config);
    }
    if (need <= have) return SLUICE_OK;
    return sluice__fail(err, SLUICE_ERR_MEMORY,
                        "%d models in training need %s, but %s are available: give fewer gates or a smaller shape", count,
                        sluice__format_bytes(need_text, need), sluice__format_bytes(have_text, have));
}

static sluice_status make_model(runner *r, const shape *s, int seq_len, sluice_error *err) {
    sluice_config config;
    SLUICE__TRY(config_of(&config, r->gate, s, seq_len, err));
    sluice_status st = sluice_model_new(&r->model, &config, 1, err);
    sluice_config_free(&config);
    return st;
}

static sluice_status make_runner(runner *r, const shape *s, int batch, int seq_len, int steps, sluice_error *err) {
    SLUICE__TRY(make_model(r, s, seq_len, err));
    SLUICE__TRY(sluice__workspace_new(&r->ws, r->model, batch, seq_len, mode_of(r), err));
    sluice__adamw_options options = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
    SLUICE__TRY(sluice__optimizer_new(&r->optimizer, r->model, &options, NULL, NULL, err));
    size_t tokens = (size_t)batch * (size_t)seq_len, floats = (size_t)sluice__flat_size(r->model);
    r->grads = sluice__calloc(floats, sizeof *r->grads, SLUICE__MEM_GRADIENTS);
    r->ids = sluice__calloc(tokens, sizeof *r->ids, SLUICE__MEM_DATA);
    r->labels = sluice__calloc(tokens, sizeof *r->labels, SLUICE__MEM_DATA);
    r->step_seconds = sluice__calloc((size_t)steps, sizeof *r->step_seconds, SLUICE__MEM_OTHER);
    if (!r->grads || !r->ids || !r->labels || !r->step_seconds)
        return sluice__no_memory(err, floats * sizeof *r->grads, "gradients");
    sluice__rng rng = {.seed = 1};
    uint64_t vocab = (uint64_t)sluice_model_config(r->model)->vocab_size;
    for (size_t i = 0; i < tokens; i++) r->ids[i] = (int32_t)sluice__rng_below(&rng, vocab);
    for (size_t i = 0; i < tokens; i++) r->labels[i] = (int32_t)sluice__rng_below(&rng, vocab);
    r->adamw_best = INFINITY;
    return SLUICE_OK;
}

static sluice_status step(runner *r, int batch, int seq_len, bool timed, sluice_error *err) {
    sluice__input in = {.batch = batch, .seq_len = seq_len, .ids = r->ids, .labels = r->labels};
    sluice__loss loss;
    double start = sluice__now();
    SLUICE__TRY(
        sluice__loss_and_grads(r->model, r->ws, &in, NULL, 1.0 / ((double)batch * seq_len), r->grads, &loss, err));
    double scale = sluice__clip_factor(sluice__grad_norm(r->optimizer, r->grads), 1.0), update = sluice__now();
    sluice__optimizer_step(r->optimizer, sluice__flat_params(r->model), r->grads, 1e-4, scale);
    double end = sluice__now();
    if (!timed) return SLUICE_OK;
    r->step_seconds[r->timed++] = end - start;
    r->adamw_best = fmin(r->adamw_best, end - update);
    return SLUICE_OK;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Matrix products of forward and backward, three times those of forward: every weight matrix (the head included, the
 * embedding look-up not), and causal attention as half a square. */
static double step_flops(const sluice_config *c, const sluice_model *model, int batch, int seq_len) {
    double matrices = 0, attention = 0;
    for (int i = 0; i < sluice_model_num_tensors(model); i++) {
        sluice_tensor_info t = sluice_model_tensor(model, i);
        if (t.ndim == 2) matrices += (double)t.count; /* tied: the embedding stands for the head */
    }
    for (int i = 0; i < c->num_hidden_layers; i++)
        attention += 4 * (seq_len + 1) / 2.0 * c->layers[i].num_attention_heads * c->layers[i].head_dim;
    return 3.0 * batch * seq_len * (2 * matrices + attention);
}

static sluice_bench_train_row result(const runner *r, const char *name, int batch, int seq_len) {
    const sluice_config *c = sluice_model_config(r->model);
    qsort(r->step_seconds, (size_t)r->timed, sizeof *r->step_seconds, by_value);
    int64_t parameters = sluice_config_num_parameters(c);
    return (sluice_bench_train_row){.shape = name,
                                    .gate = r->gate,
                                    .dtype = r->dtype,
                                    .parameters = parameters,
                                    .tokens = (int64_t)batch * seq_len,
                                    .best_seconds = r->step_seconds[0],
                                    .median_seconds = r->step_seconds[r->timed / 2],
                                    .flops = step_flops(c, r->model, batch, seq_len),
                                    .adamw_seconds = r->adamw_best,
                                    .adamw_gbs = 28.0 * (double)parameters / r->adamw_best / 1e9};
}

static sluice_status run_all(runner *r, int count, const shape *s, const sluice_bench_train_params *p, int batch,
                             int seq_len, sluice_error *err) {
    for (int g = 0; g < count; g++) SLUICE__TRY(make_runner(&r[g], s, batch, seq_len, p->steps, err));
    for (int i = 0; i < p->warmup + p->steps; i++)
        for (int g = 0; g < count; g++) SLUICE__TRY(step(&r[g], batch, seq_len, i >= p->warmup, err));
    return SLUICE_OK;
}

/* "124M:4x64" */
static sluice_status parse_shape(const char *text, const shape **s, int *batch, int *seq_len, sluice_error *err) {
    const char *colon = text ? strchr(text, ':') : NULL;
    int end = 0;
    if (colon && sscanf(colon, ":%4dx%6d%n", batch, seq_len, &end) == 2 && !colon[end] && *batch > 0 &&
        *seq_len > 0)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            *s = &shapes[i];
            if (strlen((*s)->name) == (size_t)(colon - text) && !strncmp(text, (*s)->name, (size_t)(colon - text)))
                return SLUICE_OK;
        }
    return sluice__fail(
        err, SLUICE_ERR_ARGUMENT,
        "shape: found \"%s\", expected MODEL:BATCHxTOKENS with MODEL 124M or small, for example 124M:4x64",
        text ? text : "");
}

/* A list of words with commas between them, at most `most`; 0 when it is none. */
static int parse_list(const char *text, const char *const *words, int most, const char **out) {
    int count = 0;
    for (const char *at = text ? text : ""; count < most; at++) {
        size_t length = strcspn(at, ",");
        int w = 0;
        while (w < most && (strlen(words[w]) != length || strncmp(at, words[w], length))) w++;
        if (w == most) return 0;
        out[count++] = words[w];
        at += length;
        if (!*at) return count;
    }
    return 0;
}

static sluice_status parse_arms(const sluice_bench_train_params *p, runner *r, int *count, sluice_error *err) {
    const char *gate[SLUICE_BENCH_GATES], *dtype[SLUICE_BENCH_DTYPES];
    int num_gates = parse_list(p->gates, gates, SLUICE_BENCH_GATES, gate);
    int num_dtypes = parse_list(p->dtypes, dtypes, SLUICE_BENCH_DTYPES, dtype);
    if (!num_gates)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "gates: found \"%s\", expected up to %d of none, headwise, elementwise, separated by commas",
                            p->gates ? p->gates : "", SLUICE_BENCH_GATES);
    if (!num_dtypes)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "dtypes: found \"%s\", expected float32, bf16 or both, with a comma",
                            p->dtypes ? p->dtypes : "");
    for (int i = 0; i < num_dtypes; i++)
        for (int g = 0; g < num_gates; g++) {
            r[*count].gate = gate[g];
            r[(*count)++].dtype = dtype[i];
        }
    return SLUICE_OK;
}

static sluice_status parse(const sluice_bench_train_params *p, const shape **s, int *batch, int *seq_len, runner *r,
                           int *count, sluice_error *err) {
    *count = 0;
    SLUICE__TRY(parse_shape(p->shape, s, batch, seq_len, err));
    SLUICE__TRY(parse_arms(p, r, count, err));
    if (p->steps < 1 || p->steps > 100000 || p->warmup < 0)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "steps: found %d (warmup %d), expected at least 1 (0)", p->steps,
                            p->warmup);
    return check_memory(r, *count, *s, *batch, *seq_len, err);
}

sluice_status sluice_bench_train_check(const sluice_bench_train_params *p, sluice_error *err) {
    runner r[SLUICE_BENCH_ROWS];
    const shape *s;
    int batch, seq_len, count;
    return parse(p, &s, &batch, &seq_len, r, &count, err);
}

sluice_status sluice_bench_train(const sluice_bench_train_params *p, sluice_bench_train_row *rows, int *count,
                                 sluice_error *err) {
    runner r[SLUICE_BENCH_ROWS] = {0};
    const shape *s;
    int batch, seq_len;
    SLUICE__TRY(parse(p, &s, &batch, &seq_len, r, count, err));
    sluice_status st = run_all(r, *count, s, p, batch, seq_len, err);
    for (int g = 0; g < *count; g++) {
        if (st == SLUICE_OK) rows[g] = result(&r[g], p->shape, batch, seq_len);
        runner_free(&r[g]);
    }
    return st;
}
