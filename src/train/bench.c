/* SPDX-License-Identifier: Apache-2.0 */
/* Timing of training steps: what a trainer does in a step (forward, backward, global norm, AdamW with clearing of the
 * gradients) on random tokens, for the same model with and without gates, or as any variant of the paper. Models of all gates exist at once and take
 * turns, because machines are slower at some moments than at others, and the question is the ratio. */
#include "sluice/bench.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/progress.h"
#include "base/rng.h"
#include "kernels/profile.h"
#include "layers/transformer.h"
#include "sluice/train.h"
#include "sluice/variants.h"
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
    {"moe", "\"num_hidden_layers\": 4, \"hidden_size\": 256, \"num_attention_heads\": 4, \"head_dim\": 64, "
            "\"num_experts\": 32, \"num_experts_per_tok\": 4, \"moe_intermediate_size\": 176, \"vocab_size\": 4096"},
    {"d512", "\"num_hidden_layers\": 2, \"hidden_size\": 512, \"num_attention_heads\": 8, \"head_dim\": 64, "
             "\"num_key_value_heads\": 4, \"intermediate_size\": 1408, \"vocab_size\": 4096"},
};
#define SHAPES "124M, small, moe or d512"
/* Short names of three variants. */
static const char *const short_names[][2] = {
    {"none", "baseline"}, {"headwise", "g1-headwise"}, {"elementwise", "g1-elementwise"}};
static const char *const dtypes[SLUICE_BENCH_DTYPES] = {"float32", "bf16"};

/* One model in training, and its times. */
typedef struct runner {
    const char *gate, *dtype;
    int variant;
    sluice_model *model;
    sluice__workspace *ws;
    sluice__router *router; /* NULL without experts */
    sluice__optimizer *optimizer;
    float *grads;
    int32_t *ids, *labels;
    double *step_seconds;
    double adamw_best;
    int timed;
    sluice_bench_profile *profile; /* of the best step; NULL: none */
} runner;

sluice_bench_train_params sluice_bench_train_default(void) {
    return (sluice_bench_train_params){
        .shape = "124M:4x64", .gates = "none,headwise,elementwise", .dtypes = "float32", .optim = "adamw", .steps = 8,
        .warmup = 2};
}

static void runner_free(runner *r) {
    sluice__workspace_free(r->ws);
    sluice__router_free(r->router);
    sluice__optimizer_free(r->optimizer);
    sluice_model_free(r->model);
    sluice__free(r->grads);
    sluice__free(r->ids);
    sluice__free(r->labels);
    sluice__free(r->step_seconds);
}

static sluice_status config_of(sluice_config *config, int variant, const shape *s, int seq_len, sluice_error *err) {
    char json[512];
    snprintf(json, sizeof json, "{%s, \"use_qk_norm\": false, \"tie_word_embeddings\": true}", s->options);
    sluice_train_params params = sluice_train_params_default();
    sluice_config base;
    params.seq_len = seq_len;
    SLUICE__TRY(sluice_train_model_config(&base, NULL, &params, json, 0, err));
    sluice_status st = sluice_variant_config(config, &base, variant, err);
    sluice_config_free(&base);
    return st;
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
        SLUICE__TRY(config_of(&config, r[g].variant, s, seq_len, err));
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
    SLUICE__TRY(config_of(&config, r->variant, s, seq_len, err));
    sluice_status st = sluice_model_new(&r->model, &config, 1, err);
    sluice_config_free(&config);
    return st;
}

static sluice_status make_runner(runner *r, const shape *s, int batch, int seq_len, const sluice_bench_train_params *p,
                                 sluice_error *err) {
    sluice__muon_options muon = {.on = !strcmp(p->optim, "muon"),
                                 .lr_factor = 1,
                                 .momentum = 0.95,
                                 .weight_decay = 0.1,
                                 .adjust = SLUICE__MUON_MATCH_RMS,
                                 .iterations = 5};
    SLUICE__TRY(make_model(r, s, seq_len, err));
    SLUICE__TRY(sluice__router_new(&r->router, sluice_model_config(r->model), err));
    SLUICE__TRY(sluice__workspace_new(&r->ws, r->model, batch, seq_len, mode_of(r), err));
    sluice__adamw_options options = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
    SLUICE__TRY(sluice__optimizer_new(&r->optimizer, r->model, &options, &muon, NULL, err));
    size_t tokens = (size_t)batch * (size_t)seq_len, floats = (size_t)sluice__flat_size(r->model);
    r->grads = sluice__calloc(floats, sizeof *r->grads, SLUICE__MEM_GRADIENTS);
    r->ids = sluice__calloc(tokens, sizeof *r->ids, SLUICE__MEM_DATA);
    r->labels = sluice__calloc(tokens, sizeof *r->labels, SLUICE__MEM_DATA);
    r->step_seconds = sluice__calloc((size_t)p->steps, sizeof *r->step_seconds, SLUICE__MEM_OTHER);
    if (!r->grads || !r->ids || !r->labels || !r->step_seconds)
        return sluice__no_memory(err, floats * sizeof *r->grads, "gradients");
    sluice__rng rng = {.seed = 1};
    uint64_t vocab = (uint64_t)sluice_model_config(r->model)->vocab_size;
    for (size_t i = 0; i < tokens; i++) r->ids[i] = (int32_t)sluice__rng_below(&rng, vocab);
    for (size_t i = 0; i < tokens; i++) r->labels[i] = (int32_t)sluice__rng_below(&rng, vocab);
    r->adamw_best = INFINITY;
    return SLUICE_OK;
}

static sluice_status run_step(runner *r, int batch, int seq_len, bool timed, sluice_error *err) {
    sluice__input in = {.batch = batch, .seq_len = seq_len, .ids = r->ids, .labels = r->labels};
    sluice__loss loss;
    double start = sluice__now();
    if (r->router) sluice__router_reset(r->router, SLUICE__BALANCE_GLOBAL, (int64_t)batch * seq_len);
    SLUICE__TRY(sluice__loss_and_grads_routed(r->model, r->ws, &in, NULL, 1.0 / ((double)batch * seq_len), r->router,
                                              r->grads, &loss, err));
    double scale = sluice__clip_factor(sluice__grad_norm(r->optimizer, r->grads), 1.0), update = sluice__now();
    sluice__optimizer_step(r->optimizer, sluice__flat_params(r->model), r->grads, 1e-4, scale);
    double end = sluice__now();
    if (!timed) return SLUICE_OK;
    r->step_seconds[r->timed++] = end - start;
    r->adamw_best = fmin(r->adamw_best, end - update);
    return SLUICE_OK;
}

static sluice_status step(runner *r, int batch, int seq_len, bool timed, sluice_error *err) {
    if (!timed || !r->profile) return run_step(r, batch, seq_len, timed, err);
    sluice_bench_profile profile = {0};
    sluice__profile_start(&profile);
    sluice_status st = run_step(r, batch, seq_len, true, err);
    sluice__profile_stop();
    if (st == SLUICE_OK) sluice__profile_best(r->profile, &profile, 1, r->step_seconds[r->timed - 1]);
    return st;
}

static sluice_bench_train_row result(const runner *r, const char *name, int batch, int seq_len) {
    const sluice_config *c = sluice_model_config(r->model);
    double best, median;
    sluice__best_and_median(r->step_seconds, r->timed, &best, &median);
    int64_t parameters = sluice_config_num_parameters(c);
    return (sluice_bench_train_row){.shape = name,
                                    .gate = r->gate,
                                    .dtype = r->dtype,
                                    .parameters = parameters,
                                    .tokens = (int64_t)batch * seq_len,
                                    .best_seconds = best,
                                    .median_seconds = median,
                                    .flops = 3.0 * batch * seq_len * sluice_config_forward_flops(c, seq_len),
                                    .adamw_seconds = r->adamw_best,
                                    .adamw_gbs = 28.0 * (double)parameters / r->adamw_best / 1e9};
}

static sluice_status run_all(runner *r, int count, const shape *s, const sluice_bench_train_params *p, int batch,
                             int seq_len, sluice_error *err) {
    for (int g = 0; g < count; g++) {
        SLUICE__TRY(make_runner(&r[g], s, batch, seq_len, p, err));
        r[g].profile = p->profiles ? &p->profiles[g] : NULL;
        if (r[g].profile) *r[g].profile = (sluice_bench_profile){0};
    }
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
        "shape: found \"%s\", expected MODEL:BATCHxTOKENS with MODEL " SHAPES ", for example 124M:4x64",
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

/* Number of the variant that the first `length` letters name; -1 = none. *name: as rows call it. */
static int variant_of(const char *text, size_t length, const char **name) {
    for (size_t i = 0; i < sizeof short_names / sizeof *short_names; i++)
        if (strlen(short_names[i][0]) == length && !strncmp(text, short_names[i][0], length)) {
            const char *unused;
            int variant = variant_of(short_names[i][1], strlen(short_names[i][1]), &unused);
            *name = short_names[i][0];
            return variant;
        }
    for (int i = 0; i < sluice_num_variants(); i++) {
        *name = sluice_variant_at(i).name;
        if (strlen(*name) == length && !strncmp(text, *name, length)) return i;
    }
    return -1;
}

/* Every variant that means something for this shape. */
static sluice_status take_all(const shape *s, runner *r, int *count, sluice_error *err) {
    for (int i = 0; i < sluice_num_variants(); i++) {
        sluice_config c;
        sluice_error why = {0};
        sluice_status st = config_of(&c, i, s, 64, &why);
        if (st == SLUICE_ERR_UNSUPPORTED) continue;
        if (st != SLUICE_OK) return sluice__fail(err, st, "%s", why.message);
        sluice_config_free(&c);
        r[(*count)++] = (runner){.gate = i ? sluice_variant_at(i).name : "none", .variant = i};
    }
    return SLUICE_OK;
}

static sluice_status parse_gates(const char *text, const shape *s, runner *r, int *count, sluice_error *err) {
    if (text && !strcmp(text, "all")) return take_all(s, r, count, err);
    for (const char *at = text ? text : ""; *count < SLUICE_BENCH_GATES; at++) {
        size_t length = strcspn(at, ",");
        const char *name;
        int variant = variant_of(at, length, &name);
        if (variant < 0) break;
        r[(*count)++] = (runner){.gate = name, .variant = variant};
        at += length;
        if (!*at) return SLUICE_OK;
    }
    return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                        "gates: found \"%s\", expected all, or up to %d of none, headwise, elementwise and the variants "
                        "that `sluice info --variants --json` names, separated by commas",
                        text ? text : "", SLUICE_BENCH_GATES);
}

/* Every gate with every dtype; gates of one dtype next to each other. */
static sluice_status parse_arms(const sluice_bench_train_params *p, const shape *s, runner *r, int *count,
                                sluice_error *err) {
    const char *dtype[SLUICE_BENCH_DTYPES];
    int gates = 0, num_dtypes = parse_list(p->dtypes, dtypes, SLUICE_BENCH_DTYPES, dtype);
    SLUICE__TRY(parse_gates(p->gates, s, r, &gates, err));
    if (!num_dtypes)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "dtypes: found \"%s\", expected float32, bf16 or both, with a comma",
                            p->dtypes ? p->dtypes : "");
    for (int i = 0; i < num_dtypes; i++)
        for (int g = 0; g < gates; g++) {
            r[i * gates + g] = r[g];
            r[i * gates + g].dtype = dtype[i];
        }
    *count = num_dtypes * gates;
    return SLUICE_OK;
}

static sluice_status parse(const sluice_bench_train_params *p, const shape **s, int *batch, int *seq_len, runner *r,
                           int *count, sluice_error *err) {
    *count = 0;
    SLUICE__TRY(parse_shape(p->shape, s, batch, seq_len, err));
    SLUICE__TRY(parse_arms(p, *s, r, count, err));
    if (!p->optim || (strcmp(p->optim, "adamw") && strcmp(p->optim, "muon")))
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "optim: found \"%s\", expected adamw or muon",
                            p->optim ? p->optim : "");
    if (p->steps < 1 || p->steps > 100000)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "steps: found %d, expected 1 to 100000", p->steps);
    if (p->warmup < 0) return sluice__fail(err, SLUICE_ERR_ARGUMENT, "warmup: found %d, expected at least 0", p->warmup);
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
