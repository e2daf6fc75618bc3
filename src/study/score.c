/* SPDX-License-Identifier: Apache-2.0 */
/* Batches of held-out windows and their losses. */
#include "study/score.h"
#include "base/memory.h"
#include "inspect/inspection_json.h"
#include <math.h>

enum { PASS_TOKENS = 4096 };

/* ---- batches ---- */

void sluice__batch_free(sluice__batch *b) {
    sluice__workspace_free(b->ws);
    sluice__free(b->ids);
    sluice__free(b->labels);
    sluice__free(b->positions);
    sluice__free(b->key_start);
    sluice__free(b->nll);
    *b = (sluice__batch){0};
}

sluice_status sluice__batch_new(sluice__batch *b, const sluice_model *model, int seq_len, int64_t windows,
                                sluice_error *err) {
    int64_t size = PASS_TOKENS / seq_len;
    size = size < 1 ? 1 : size > windows ? windows : size;
    *b = (sluice__batch){.size = (int)size, .seq_len = seq_len};
    size_t tokens = (size_t)size * (size_t)seq_len;
    b->ids = sluice__calloc(tokens, sizeof *b->ids, SLUICE__MEM_DATA);
    b->labels = sluice__calloc(tokens, sizeof *b->labels, SLUICE__MEM_DATA);
    b->positions = sluice__calloc(tokens, sizeof *b->positions, SLUICE__MEM_DATA);
    b->key_start = sluice__calloc(tokens, sizeof *b->key_start, SLUICE__MEM_DATA);
    b->nll = sluice__calloc(tokens, sizeof *b->nll, SLUICE__MEM_DATA);
    bool ok = b->ids && b->labels && b->positions && b->key_start && b->nll;
    sluice_status st = ok ? sluice__workspace_new(&b->ws, model, b->size, seq_len, SLUICE__INFER, err)
                          : sluice__no_memory(err, 20 * tokens, "held-out windows");
    if (st != SLUICE_OK) sluice__batch_free(b);
    return st;
}

sluice_status sluice__batch_run(sluice__batch *b, const sluice_model *model, int windows, bool packed,
                                sluice_error *err) {
    sluice__input in = {.batch = windows, .seq_len = b->seq_len, .ids = b->ids, .labels = b->labels};
    if (packed) {
        in.positions = b->positions;
        in.key_start = b->key_start;
    }
    sluice__loss loss;
    return sluice__evaluate(model, b->ws, &in, NULL, b->nll, &loss, err);
}

/* ---- losses by position ---- */

void sluice__tally_init(sluice__tally *t, int seq_len, int64_t from) {
    *t = (sluice__tally){.from = from};
    for (int e = 1; e < seq_len && t->buckets < SLUICE__MAX_BUCKETS - 1; e *= 2) t->edges[++t->buckets] = e;
    t->edges[++t->buckets] = seq_len;
}

void sluice__tally_add(sluice__tally *t, const sluice__batch *b, int window) {
    int bucket = 0;
    for (int i = 0; i < b->seq_len; i++) {
        size_t at = (size_t)window * (size_t)b->seq_len + (size_t)i;
        while (i >= t->edges[bucket + 1]) bucket++;
        if (b->labels[at] < 0) continue;
        t->sum[bucket] += b->nll[at];
        t->count[bucket]++;
        if (i < t->from) continue;
        t->sum_from += b->nll[at];
        t->count_from++;
    }
}

int64_t sluice__tally_count(const sluice__tally *t) {
    int64_t count = 0;
    for (int i = 0; i < t->buckets; i++) count += t->count[i];
    return count;
}

double sluice__tally_mean(const sluice__tally *t) {
    double sum = 0;
    int64_t count = sluice__tally_count(t);
    for (int i = 0; i < t->buckets; i++) sum += t->sum[i];
    return count ? sum / (double)count : NAN;
}

json_t *sluice__tally_to_json(const sluice__tally *t) {
    double loss[SLUICE__MAX_BUCKETS];
    json_t *edges = json_array();
    for (int i = 0; i <= t->buckets; i++) json_array_append_new(edges, json_integer(t->edges[i]));
    for (int i = 0; i < t->buckets; i++) loss[i] = t->count[i] ? t->sum[i] / (double)t->count[i] : NAN;
    return json_pack("{s:o, s:o}", "edges", edges, "loss", sluice__json_numbers(loss, t->buckets));
}

/* ---- one stretch, many lengths ---- */

sluice_status sluice__stretch_read(sluice__stretch *out, int *count, const sluice_dataset *text, int bos,
                                   int64_t trained, const int64_t *multiples, int64_t most, sluice_error *err) {
    int64_t held = sluice_dataset_get_info(text).heldout_tokens - 1, unit = 0;
    *out = (sluice__stretch){.bos = bos};
    for (; *count > 0; --*count) {
        unit = trained * multiples[*count - 1]; /* the shorter ones divide it */
        if (unit <= held) break;
    }
    if (*count == 0) return SLUICE_OK;
    if (most > held) most = held;
    out->scored = most < unit ? unit : most / unit * unit;
    out->ids = sluice__calloc((size_t)out->scored + 1, sizeof *out->ids, SLUICE__MEM_DATA);
    if (!out->ids) return sluice__no_memory(err, (size_t)out->scored * sizeof *out->ids, "held-out tokens");
    sluice_dataset_heldout_tokens(text, 0, out->scored + 1, out->ids);
    return SLUICE_OK;
}

static void fill_window(const sluice__stretch *s, int64_t first, int length, int32_t *ids, int32_t *labels) {
    for (int i = 0; i < length; i++) {
        ids[i] = s->ids[first + i];
        labels[i] = s->ids[first + i + 1];
    }
    if (s->bos >= 0) ids[0] = s->bos;
}

sluice_status sluice__stretch_score(sluice__tally *out, const sluice_model *model, const sluice__stretch *s,
                                    int length, int64_t from, sluice_error *err) {
    sluice__batch b;
    sluice__tally_init(out, length, from);
    SLUICE__TRY(sluice__batch_new(&b, model, length, s->scored / length, err));
    sluice_status st = SLUICE_OK;
    for (int64_t at = 0; st == SLUICE_OK && at + length <= s->scored;) {
        int n = 0;
        for (; n < b.size && at + length <= s->scored; n++, at += length)
            fill_window(s, at, length, b.ids + (size_t)n * (size_t)length, b.labels + (size_t)n * (size_t)length);
        st = sluice__batch_run(&b, model, n, false, err);
        for (int i = 0; st == SLUICE_OK && i < n; i++) sluice__tally_add(out, &b, i);
    }
    sluice__batch_free(&b);
    return st;
}
