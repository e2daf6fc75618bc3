/* SPDX-License-Identifier: Apache-2.0 */
/* Timing of inference: a prompt into an empty session, then single tokens of one or several sequences, with fixed random
 * tokens. All models are loaded at once and take turns, because machines are slower at some moments than at others, and the
 * question is the ratio. For the same reason the bandwidth that decoding is measured by is that of a reader in turn with it. */
#include "sluice/bench.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/progress.h"
#include "base/rng.h"
#include "kernels/profile.h"
#include "kernels/read.h"
#include "sluice/session.h"
#include <math.h>
#include <stdlib.h>

enum { READER_FLOATS = 64 << 20, READER_STEPS = 4 };

/* One loaded model, and its times. */
typedef struct runner {
    sluice_model *model;
    sluice_session *session;
    int32_t *ids;  /* [tokens] */
    float *logits; /* [parallel, vocab_size] */
    sluice_batch_item *items; /* [parallel] */
    double *prefill, *decode; /* seconds [repeat] */
    float *reader;            /* [READER_FLOATS], of all models together; NULL: none */
    double best_decode, reader_gbs;
    sluice_bench_profile *profiles; /* [2] of the best: prefill, one token of decoding; NULL: none */
} runner;

sluice_bench_infer_params sluice_bench_infer_default(void) {
    return (sluice_bench_infer_params){.prefill = 512, .decode = 128, .parallel = 1, .repeat = 5};
}

static void runner_free(runner *r) {
    sluice_session_free(r->session);
    sluice_model_free(r->model);
    sluice__free(r->ids);
    sluice__free(r->logits);
    sluice__free(r->items);
    sluice__free(r->prefill);
    sluice__free(r->decode);
}

static sluice_status stored_bytes(int64_t *out, const char *path, sluice_error *err) {
    sluice_weight_files *files;
    sluice_status st = sluice_weight_files_open(&files, path, err);
    if (st != SLUICE_OK) return st;
    *out = 0;
    for (int i = 0; i < sluice_weight_files_count(files); i++) *out += sluice_weight_files_at(files, i).bytes;
    sluice_weight_files_close(files);
    return SLUICE_OK;
}

/* Loads the model and evaluates one token: what a user waits for. */
static sluice_status start(runner *r, const char *path, int tokens, int parallel, sluice_bench_infer_row *row,
                           sluice_error *err) {
    sluice_load_params load = sluice_load_params_default();
    sluice_session_params params = sluice_session_params_default();
    load.weights = SLUICE_LOAD_AS_STORED;
    params.capacity = tokens;
    params.num_sequences = parallel;
    double begin = sluice__now();
    sluice_status st = sluice_model_load(&r->model, path, &load, err);
    if (st != SLUICE_OK) return st;
    const sluice_config *config = sluice_model_config(r->model);
    row->load_seconds = sluice__now() - begin;
    row->parameters = sluice_config_num_parameters(config);
    r->ids = sluice__calloc((size_t)tokens, sizeof *r->ids, SLUICE__MEM_OTHER);
    r->logits = sluice__calloc((size_t)parallel * (size_t)config->vocab_size, sizeof *r->logits, SLUICE__MEM_OTHER);
    r->items = sluice__calloc((size_t)parallel, sizeof *r->items, SLUICE__MEM_OTHER);
    if (!r->ids || !r->logits || !r->items) return sluice__fail(err, SLUICE_ERR_MEMORY, "out of memory");
    sluice__rng random = {7, 0, 0};
    for (int i = 0; i < tokens; i++) r->ids[i] = (int32_t)sluice__rng_below(&random, (uint64_t)config->vocab_size);
    st = sluice_session_new(&r->session, r->model, &params, err);
    if (st == SLUICE_OK) st = sluice_session_eval(r->session, r->ids, 1, r->logits, err);
    row->first_token_seconds = sluice__now() - begin;
    return st;
}

/* A measurement that may be profiled. */
typedef struct stopwatch {
    sluice_bench_profile *best, now; /* best NULL: no profile */
    double begin;
} stopwatch;

static void start_watch(stopwatch *c, sluice_bench_profile *best) {
    c->best = best;
    c->now = (sluice_bench_profile){0};
    if (best) sluice__profile_start(&c->now);
    c->begin = sluice__now();
}

static double stop_watch(stopwatch *c, int64_t parts) {
    double seconds = sluice__now() - c->begin;
    if (!c->best) return seconds;
    sluice__profile_stop();
    sluice__profile_best(c->best, &c->now, parts, seconds);
    return seconds;
}

static sluice_status time_prefill(runner *r, int count, double *seconds, sluice_bench_profile *profile, sluice_error *err) {
    sluice_status st = sluice_session_truncate(r->session, 0, err);
    stopwatch c;
    start_watch(&c, profile);
    if (st == SLUICE_OK) st = sluice_session_eval(r->session, r->ids, count, r->logits, err);
    *seconds = stop_watch(&c, 1);
    return st;
}

/* Every sequence holds the first `depth` tokens. */
static sluice_status fill(runner *r, int depth, int parallel, sluice_error *err) {
    sluice_status st = SLUICE_OK;
    for (int q = 0; st == SLUICE_OK && q < parallel; q++) {
        st = sluice_session_select(r->session, q, err);
        if (st == SLUICE_OK) st = q ? sluice_session_copy(r->session, 0, err) : sluice_session_truncate(r->session, 0, err);
        if (st == SLUICE_OK && !q && depth) st = sluice_session_eval(r->session, r->ids, depth, NULL, err);
    }
    return st == SLUICE_OK ? sluice_session_select(r->session, 0, err) : st;
}

/* One token of every sequence; not the same ones, which experts would share. */
static sluice_status step(runner *r, int at, int depth, int count, int parallel, sluice_error *err) {
    int64_t vocab = sluice_model_config(r->model)->vocab_size;
    for (int q = 0; q < parallel; q++)
        r->items[q] = (sluice_batch_item){q, r->ids + depth + (at + q) % count, 1, r->logits + q * vocab};
    return sluice_session_eval_batch(r->session, r->items, parallel, err);
}

/* The reader's turn is not a part of *seconds. */
static sluice_status time_decode(runner *r, const sluice_bench_infer_params *p, double *seconds, sluice_bench_profile *profile,
                                 sluice_error *err) {
    sluice_status st = fill(r, p->depth, p->parallel, err);
    stopwatch c;
    double reading = 0;
    int passes = 0;
    start_watch(&c, profile);
    for (int i = 0; st == SLUICE_OK && i < p->decode; i++) {
        st = step(r, i, p->depth, p->decode, p->parallel, err);
        if (!r->reader || i % READER_STEPS) continue;
        reading += sluice__read_seconds(r->reader, READER_FLOATS);
        passes++;
    }
    *seconds = stop_watch(&c, p->decode) - reading;
    if (passes && *seconds < r->best_decode) {
        r->best_decode = *seconds;
        r->reader_gbs = (double)passes * READER_FLOATS * sizeof(float) / reading / 1e9;
    }
    return st;
}

/* profiles: [2] or NULL. */
static sluice_status run_once(runner *r, const sluice_bench_infer_params *p, double *prefill, double *decode,
                              sluice_bench_profile *profiles, sluice_error *err) {
    sluice_status st = SLUICE_OK;
    if (p->prefill) st = time_prefill(r, p->prefill, prefill, profiles, err);
    if (st == SLUICE_OK && p->decode)
        st = time_decode(r, p, decode, profiles ? profiles + 1 : NULL, err);
    return st;
}

static sluice_status run_all(runner *r, const sluice_bench_infer_params *p, float *reader, sluice_bench_infer_row *rows,
                             sluice_error *err) {
    int tokens = p->prefill > p->depth + p->decode ? p->prefill : p->depth + p->decode;
    double unused;
    sluice_status st = SLUICE_OK;
    for (int m = 0; st == SLUICE_OK && m < p->num_models; m++) {
        rows[m] = (sluice_bench_infer_row){.model = p->models[m]};
        r[m].prefill = sluice__calloc((size_t)p->repeat, sizeof(double), SLUICE__MEM_OTHER);
        r[m].decode = sluice__calloc((size_t)p->repeat, sizeof(double), SLUICE__MEM_OTHER);
        if (!r[m].prefill || !r[m].decode) return sluice__fail(err, SLUICE_ERR_MEMORY, "out of memory");
        st = stored_bytes(&rows[m].weight_bytes, p->models[m], err);
        if (st == SLUICE_OK) st = start(&r[m], p->models[m], tokens, p->parallel, &rows[m], err);
        if (st == SLUICE_OK) st = run_once(&r[m], p, &unused, &unused, NULL, err);
        r[m].profiles = p->profiles ? p->profiles + 2 * m : NULL;
        for (int i = 0; r[m].profiles && i < 2; i++) r[m].profiles[i] = (sluice_bench_profile){0};
        r[m].reader = reader;
        r[m].best_decode = INFINITY;
    }
    for (int i = 0; st == SLUICE_OK && i < p->repeat; i++)
        for (int m = 0; st == SLUICE_OK && m < p->num_models; m++)
            st = run_once(&r[m], p, &r[m].prefill[i], &r[m].decode[i], r[m].profiles, err);
    for (int m = 0; st == SLUICE_OK && m < p->num_models; m++) {
        sluice__best_and_median(r[m].prefill, p->repeat, &rows[m].prefill_seconds, &rows[m].prefill_median);
        sluice__best_and_median(r[m].decode, p->repeat, &rows[m].decode_seconds, &rows[m].decode_median);
        rows[m].reader_gbs = r[m].reader_gbs;
    }
    return st;
}

static sluice_status check(const sluice_bench_infer_params *p, sluice_error *err) {
    enum { MOST = 1 << 24 };
    if (p->num_models < 1) return sluice__fail(err, SLUICE_ERR_ARGUMENT, "num_models: found %d, expected 1 or more", p->num_models);
    if (p->prefill < 0 || p->prefill > MOST || p->decode < 0 || p->decode > MOST || p->depth < 0 || p->depth > MOST)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "prefill %d, decode %d, depth %d: expected 0..%d each", p->prefill,
                            p->decode, p->depth, MOST);
    if (!p->prefill && !p->decode)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "prefill and decode are both 0: nothing to measure");
    if (p->parallel < 1 || p->parallel > 1024)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "parallel: found %d, expected 1..1024", p->parallel);
    if (p->reader && (!p->decode || p->profiles))
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "reader: needs decoding, without a profile, which it would disturb");
    if (p->repeat < 1 || p->repeat > 10000)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "repeat: found %d, expected 1..10000", p->repeat);
    return SLUICE_OK;
}

sluice_status sluice_bench_infer(const sluice_bench_infer_params *p, sluice_bench_infer_row *rows, sluice_error *err) {
    sluice_status st = check(p, err);
    if (st != SLUICE_OK) return st;
    runner *r = sluice__calloc((size_t)p->num_models, sizeof *r, SLUICE__MEM_OTHER);
    float *reader = p->reader ? sluice__calloc(READER_FLOATS, sizeof *reader, SLUICE__MEM_OTHER) : NULL;
    st = r && (reader || !p->reader) ? SLUICE_OK : sluice__fail(err, SLUICE_ERR_MEMORY, "out of memory");
    /* Pages that nobody has written are one page of zeros. */
    for (int64_t i = 0; reader && i < READER_FLOATS; i++) reader[i] = (float)(i & 255);
    if (st == SLUICE_OK) st = run_all(r, p, reader, rows, err);
    for (int m = 0; r && m < p->num_models; m++) runner_free(&r[m]);
    sluice__free(r);
    sluice__free(reader);
    return st;
}
