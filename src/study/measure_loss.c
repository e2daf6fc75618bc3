/* SPDX-License-Identifier: Apache-2.0 */
/* Losses of a trained model on held-out text: over windows of the training length (in all, and by position in the
 * window), and over windows of 1, 2, 4 times that length with plain and YaRN positions.
 *
 * Every length scores the very same tokens: a stretch of the held-out text that the longest window divides is cut into
 * windows of each length, so that losses differ by context alone. */
#include "study/subject.h"
#include "base/memory.h"
#include "inspect/inspection_json.h"
#include "layers/transformer.h"
#include <math.h>
#include <string.h>

enum { PASS_TOKENS = 4096, MAX_BUCKETS = 40 };

/* A batch of windows of one length and what scoring it needs. */
typedef struct batch {
    sluice__workspace *ws;
    int size, seq_len;
    int32_t *ids, *labels, *positions, *key_start; /* [size, seq_len] */
    float *nll;
} batch;

static void batch_free(batch *b) {
    sluice__workspace_free(b->ws);
    sluice__free(b->ids);
    sluice__free(b->labels);
    sluice__free(b->positions);
    sluice__free(b->key_start);
    sluice__free(b->nll);
    *b = (batch){0};
}

static sluice_status batch_new(batch *b, const sluice_model *model, int seq_len, int64_t windows, sluice_error *err) {
    int64_t size = PASS_TOKENS / seq_len;
    size = size < 1 ? 1 : size > windows ? windows : size;
    *b = (batch){.size = (int)size, .seq_len = seq_len};
    size_t tokens = (size_t)size * (size_t)seq_len;
    b->ids = sluice__calloc(tokens, sizeof *b->ids, SLUICE__MEM_DATA);
    b->labels = sluice__calloc(tokens, sizeof *b->labels, SLUICE__MEM_DATA);
    b->positions = sluice__calloc(tokens, sizeof *b->positions, SLUICE__MEM_DATA);
    b->key_start = sluice__calloc(tokens, sizeof *b->key_start, SLUICE__MEM_DATA);
    b->nll = sluice__calloc(tokens, sizeof *b->nll, SLUICE__MEM_DATA);
    bool ok = b->ids && b->labels && b->positions && b->key_start && b->nll;
    sluice_status st = ok ? sluice__workspace_new(&b->ws, model, b->size, seq_len, SLUICE__INFER, err)
                          : sluice__no_memory(err, 20 * tokens, "held-out windows");
    if (st != SLUICE_OK) batch_free(b);
    return st;
}

static sluice_status batch_run(batch *b, const sluice_model *model, int windows, bool packed, sluice_error *err) {
    sluice__input in = {.batch = windows, .seq_len = b->seq_len, .ids = b->ids, .labels = b->labels};
    if (packed) {
        in.positions = b->positions;
        in.key_start = b->key_start;
    }
    sluice__loss loss;
    return sluice__evaluate(model, b->ws, &in, NULL, b->nll, &loss, err);
}

/* ---- windows of the training length ---- */

typedef struct tally {
    double sum[MAX_BUCKETS];
    int64_t count[MAX_BUCKETS], bytes;
    int edges[MAX_BUCKETS + 1], buckets;
} tally;

/* 0, 1, 2, 4, ... , seq_len */
static void make_buckets(tally *t, int seq_len) {
    t->edges[0] = 0;
    for (int e = 1; e < seq_len && t->buckets < MAX_BUCKETS - 1; e *= 2) t->edges[++t->buckets] = e;
    t->edges[++t->buckets] = seq_len;
}

static void count_window(tally *t, const sluice__subject *s, const batch *b, int window) {
    int bucket = 0;
    for (int i = 0; i < b->seq_len; i++) {
        size_t at = (size_t)window * (size_t)b->seq_len + (size_t)i;
        while (i >= t->edges[bucket + 1]) bucket++;
        if (b->labels[at] < 0) continue;
        t->sum[bucket] += b->nll[at];
        t->count[bucket]++;
        t->bytes += sluice_dataset_token_bytes(s->dataset, b->labels[at]);
    }
}

static sluice_status score_windows(tally *t, const sluice__subject *s, batch *b, int64_t windows, sluice_error *err) {
    int64_t total = sluice_dataset_get_info(s->dataset).heldout_windows;
    for (int64_t done = 0; done < windows;) {
        int n = 0;
        for (; n < b->size && done + n < windows; n++) {
            size_t at = (size_t)n * (size_t)b->seq_len;
            sluice_window w = {b->ids + at, b->labels + at, b->positions + at, b->key_start + at};
            sluice_dataset_heldout_window(s->dataset, (int64_t)((double)(done + n) * (double)total / (double)windows),
                                          &w);
        }
        SLUICE__TRY(batch_run(b, s->model, n, s->params->document_mask, err));
        for (int i = 0; i < n; i++) count_window(t, s, b, i);
        done += n;
    }
    return SLUICE_OK;
}

static void loss_to_json(json_t *run, const tally *t) {
    double sum = 0, loss[MAX_BUCKETS];
    int64_t count = 0;
    json_t *edges = json_array();
    for (int i = 0; i <= t->buckets; i++) json_array_append_new(edges, json_integer(t->edges[i]));
    for (int i = 0; i < t->buckets; i++) {
        loss[i] = t->count[i] ? t->sum[i] / (double)t->count[i] : NAN;
        sum += t->sum[i];
        count += t->count[i];
    }
    double mean = count ? sum / (double)count : NAN;
    json_t *bits = t->bytes ? sluice__json_number(sum / log(2.0) / (double)t->bytes) : json_null();
    json_object_set_new(run, "eval",
                        json_pack("{s:o, s:o, s:o, s:I, s:I}", "loss", sluice__json_number(mean), "perplexity",
                                  sluice__json_number(exp(mean)), "bits_per_byte", bits, "tokens", (json_int_t)count,
                                  "bytes", (json_int_t)t->bytes));
    json_object_set_new(run, "position",
                        json_pack("{s:o, s:o}", "edges", edges, "loss", sluice__json_numbers(loss, t->buckets)));
}

sluice_status sluice__measure_loss(json_t *run, const sluice__subject *s, sluice_error *err) {
    int64_t total = sluice_dataset_get_info(s->dataset).heldout_windows, asked = s->evaluation->heldout_windows;
    int64_t windows = asked && asked < total ? asked : total;
    tally t = {0};
    batch b;
    make_buckets(&t, (int)s->params->seq_len);
    SLUICE__TRY(batch_new(&b, s->model, (int)s->params->seq_len, windows, err));
    sluice_status st = score_windows(&t, s, &b, windows, err);
    if (st == SLUICE_OK) loss_to_json(run, &t);
    batch_free(&b);
    return st;
}

/* ---- other lengths ---- */

typedef struct stretch {
    int32_t *ids; /* [scored + 1]; with a BOS in every window ids[0] is not used */
    int64_t scored;
    int bos; /* -1 = windows have none */
} stretch;

/* The stretch that every length can tile. Lengths that do not fit into the held-out text are left out of *lengths. */
static sluice_status read_stretch(stretch *t, int *lengths, const sluice__subject *s, sluice_error *err) {
    const sluice__evaluation *e = s->evaluation;
    int64_t held = sluice_dataset_get_info(s->dataset).heldout_tokens - 1, unit = 0;
    int64_t most = held < e->length_tokens ? held : e->length_tokens;
    for (*lengths = e->num_lengths; *lengths > 0; --*lengths) {
        unit = s->params->seq_len * e->lengths[*lengths - 1]; /* the shorter ones divide it */
        if (unit <= held) break;
    }
    if (*lengths == 0) return SLUICE_OK;
    t->scored = most < unit ? unit : most / unit * unit;
    t->bos = s->params->bos == SLUICE_BOS_WINDOW ? s->entry->bos : -1;
    t->ids = sluice__calloc((size_t)t->scored + 1, sizeof *t->ids, SLUICE__MEM_DATA);
    if (!t->ids) return sluice__no_memory(err, (size_t)t->scored * sizeof *t->ids, "held-out tokens");
    sluice_dataset_heldout_tokens(s->dataset, 0, t->scored + 1, t->ids);
    return SLUICE_OK;
}

static void fill_window(const stretch *t, int64_t first, int length, int32_t *ids, int32_t *labels) {
    for (int i = 0; i < length; i++) {
        ids[i] = t->ids[first + i];
        labels[i] = t->ids[first + i + 1];
    }
    if (t->bos >= 0) ids[0] = t->bos;
}

typedef struct sums {
    double all, beyond;
    int64_t count, count_beyond;
} sums;

static void add_up(sums *out, const batch *b, int windows, int64_t trained) {
    for (int w = 0; w < windows; w++)
        for (int i = 0; i < b->seq_len; i++) {
            double v = b->nll[(size_t)w * (size_t)b->seq_len + (size_t)i];
            out->all += v;
            out->count++;
            if (i < trained) continue;
            out->beyond += v;
            out->count_beyond++;
        }
}

static sluice_status score_length(sums *out, const sluice_model *model, const stretch *t, int length, int64_t trained,
                                  sluice_error *err) {
    batch b;
    SLUICE__TRY(batch_new(&b, model, length, t->scored / length, err));
    sluice_status st = SLUICE_OK;
    for (int64_t at = 0; st == SLUICE_OK && at + length <= t->scored;) {
        int n = 0;
        for (; n < b.size && at + length <= t->scored; n++, at += length)
            fill_window(t, at, length, b.ids + (size_t)n * (size_t)length, b.labels + (size_t)n * (size_t)length);
        st = batch_run(&b, model, n, false, err);
        if (st == SLUICE_OK) add_up(out, &b, n, trained);
    }
    batch_free(&b);
    return st;
}

static json_t *length_row(int length, const char *rope, double factor, const sums *s) {
    double loss = s->all / (double)s->count;
    json_t *beyond = s->count_beyond ? sluice__json_number(s->beyond / (double)s->count_beyond) : json_null();
    return json_pack("{s:i, s:s, s:f, s:o, s:o, s:o, s:I}", "length", length, "rope", rope, "factor", factor, "loss",
                     sluice__json_number(loss), "perplexity", sluice__json_number(exp(loss)), "loss_beyond", beyond,
                     "tokens", (json_int_t)s->count);
}

/* The saved model with its rotary positions stretched by `factor`, as it would be after a change of its config.json. */
static sluice_status load_yarn(sluice_model **out, const sluice__subject *s, double factor, sluice_error *err) {
    const sluice_rope_spec *rope = &sluice_model_config(s->model)->layers[0].rope;
    double partial = (double)rope->rotary_dim / sluice_model_config(s->model)->layers[0].head_dim;
    char json[512];
    snprintf(json, sizeof json,
             "{\"rope_type\": \"yarn\", \"rope_theta\": %.17g, \"factor\": %.17g, "
             "\"original_max_position_embeddings\": %lld, "
             "\"partial_rotary_factor\": %.17g}",
             rope->theta, factor, (long long)s->params->seq_len, partial);
    sluice_load_params params = sluice_load_params_default();
    params.rope_override = json;
    return sluice_model_load(out, s->model_dir, &params, err);
}

static sluice_status measure_rope(json_t *rows, const sluice__subject *s, const stretch *t, int64_t multiple, bool yarn,
                                  sluice_error *err) {
    int length = (int)(s->params->seq_len * multiple);
    sluice_model *stretched = NULL;
    sums found = {0};
    if (yarn) SLUICE__TRY(load_yarn(&stretched, s, (double)multiple, err));
    sluice_status st = score_length(&found, yarn ? stretched : s->model, t, length, s->params->seq_len, err);
    if (st == SLUICE_OK)
        json_array_append_new(rows, length_row(length, yarn ? "yarn" : "plain", yarn ? (double)multiple : 1, &found));
    sluice_model_free(stretched);
    return st;
}

static sluice_status measure_lengths(json_t *rows, const sluice__subject *s, const stretch *t, int lengths,
                                     sluice_error *err) {
    const sluice__evaluation *e = s->evaluation;
    for (int i = 0; i < lengths; i++) {
        SLUICE__TRY(measure_rope(rows, s, t, e->lengths[i], false, err));
        if (e->yarn && e->lengths[i] > 1) SLUICE__TRY(measure_rope(rows, s, t, e->lengths[i], true, err));
    }
    return SLUICE_OK;
}

sluice_status sluice__measure_length(json_t *run, const sluice__subject *s, sluice_error *err) {
    stretch t = {0};
    int lengths;
    SLUICE__TRY(read_stretch(&t, &lengths, s, err));
    json_t *rows = json_array();
    sluice_status st = measure_lengths(rows, s, &t, lengths, err);
    if (st == SLUICE_OK) json_object_set(run, "length", rows);
    json_decref(rows);
    sluice__free(t.ids);
    return st;
}
