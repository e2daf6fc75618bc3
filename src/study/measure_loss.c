/* SPDX-License-Identifier: Apache-2.0 */
/* Losses of a trained model on held-out text: over windows of the training length (in all, and by position in the
 * window), and over windows of 1, 2, 4 times that length with plain and YaRN positions.
 *
 * Every length scores the very same tokens: a stretch of the held-out text that the longest window divides is cut into
 * windows of each length, so that losses differ by context alone. */
#include "study/subject.h"
#include "base/memory.h"
#include "inspect/inspection_json.h"
#include "study/score.h"
#include <math.h>
#include <string.h>

/* ---- windows of the training length ---- */

static int64_t bytes_of(const sluice__subject *s, const sluice__batch *b, int windows) {
    int64_t bytes = 0;
    for (int i = 0; i < windows * b->seq_len; i++)
        if (b->labels[i] >= 0) bytes += sluice_dataset_token_bytes(s->dataset, b->labels[i]);
    return bytes;
}

static sluice_status score_windows(sluice__tally *t, int64_t *bytes, const sluice__subject *s, sluice__batch *b,
                                   int64_t windows, sluice_error *err) {
    int64_t total = sluice_dataset_get_info(s->dataset).heldout_windows;
    for (int64_t done = 0; done < windows;) {
        int n = 0;
        for (; n < b->size && done + n < windows; n++) {
            size_t at = (size_t)n * (size_t)b->seq_len;
            sluice_window w = {b->ids + at, b->labels + at, b->positions + at, b->key_start + at};
            sluice_dataset_heldout_window(s->dataset, (int64_t)((double)(done + n) * (double)total / (double)windows),
                                          &w);
        }
        SLUICE__TRY(sluice__batch_run(b, s->model, n, s->params->document_mask, err));
        for (int i = 0; i < n; i++) sluice__tally_add(t, b, i);
        *bytes += bytes_of(s, b, n);
        done += n;
    }
    return SLUICE_OK;
}

static void loss_to_json(json_t *run, const sluice__tally *t, int64_t bytes) {
    double mean = sluice__tally_mean(t);
    int64_t count = sluice__tally_count(t);
    json_t *bits = bytes ? sluice__json_number(mean * (double)count / log(2.0) / (double)bytes) : json_null();
    json_object_set_new(run, "eval",
                        json_pack("{s:o, s:o, s:o, s:I, s:I}", "loss", sluice__json_number(mean), "perplexity",
                                  sluice__json_number(exp(mean)), "bits_per_byte", bits, "tokens", (json_int_t)count,
                                  "bytes", (json_int_t)bytes));
    json_object_set_new(run, "position", sluice__tally_to_json(t));
}

sluice_status sluice__measure_loss(json_t *run, const sluice__subject *s, sluice_error *err) {
    int64_t total = sluice_dataset_get_info(s->dataset).heldout_windows, asked = s->evaluation->heldout_windows;
    int64_t windows = asked && asked < total ? asked : total, bytes = 0;
    sluice__tally t;
    sluice__batch b;
    sluice__tally_init(&t, (int)s->params->seq_len, 0);
    SLUICE__TRY(sluice__batch_new(&b, s->model, (int)s->params->seq_len, windows, err));
    sluice_status st = score_windows(&t, &bytes, s, &b, windows, err);
    if (st == SLUICE_OK) loss_to_json(run, &t, bytes);
    sluice__batch_free(&b);
    return st;
}

/* ---- other lengths ---- */

static json_t *length_row(int length, const char *rope, double factor, const sluice__tally *t) {
    double loss = sluice__tally_mean(t);
    json_t *beyond = t->count_from ? sluice__json_number(t->sum_from / (double)t->count_from) : json_null();
    return json_pack("{s:i, s:s, s:f, s:o, s:o, s:o, s:I}", "length", length, "rope", rope, "factor", factor, "loss",
                     sluice__json_number(loss), "perplexity", sluice__json_number(exp(loss)), "loss_beyond", beyond,
                     "tokens", (json_int_t)sluice__tally_count(t));
}

sluice_status sluice__load_yarn(sluice_model **out, const sluice_model *model, const char *dir, double factor,
                                int64_t trained, sluice_error *err) {
    const sluice_rope_spec *rope = &sluice_model_config(model)->layers[0].rope;
    double partial = (double)rope->rotary_dim / sluice_model_config(model)->layers[0].head_dim;
    char json[512];
    snprintf(json, sizeof json,
             "{\"rope_type\": \"yarn\", \"rope_theta\": %.17g, \"factor\": %.17g, "
             "\"original_max_position_embeddings\": %lld, "
             "\"partial_rotary_factor\": %.17g}",
             rope->theta, factor, (long long)trained, partial);
    sluice_load_params params = sluice_load_params_default();
    params.rope_override = json;
    return sluice_model_load(out, dir, &params, err);
}

static sluice_status measure_rope(json_t *rows, const sluice__subject *s, const sluice__stretch *t, int64_t multiple,
                                  bool yarn, sluice_error *err) {
    int length = (int)(s->params->seq_len * multiple);
    sluice_model *stretched = NULL;
    sluice__tally found;
    if (yarn)
        SLUICE__TRY(sluice__load_yarn(&stretched, s->model, s->model_dir, (double)multiple, s->params->seq_len, err));
    sluice_status st =
        sluice__stretch_score(&found, yarn ? stretched : s->model, t, length, s->params->seq_len, err);
    if (st == SLUICE_OK)
        json_array_append_new(rows, length_row(length, yarn ? "yarn" : "plain", yarn ? (double)multiple : 1, &found));
    sluice_model_free(stretched);
    return st;
}

static sluice_status measure_lengths(json_t *rows, const sluice__subject *s, const sluice__stretch *t, int lengths,
                                     sluice_error *err) {
    const sluice__evaluation *e = s->evaluation;
    for (int i = 0; i < lengths; i++) {
        SLUICE__TRY(measure_rope(rows, s, t, e->lengths[i], false, err));
        if (e->yarn && e->lengths[i] > 1) SLUICE__TRY(measure_rope(rows, s, t, e->lengths[i], true, err));
    }
    return SLUICE_OK;
}

sluice_status sluice__measure_length(json_t *run, const sluice__subject *s, sluice_error *err) {
    const sluice__evaluation *e = s->evaluation;
    sluice__stretch t;
    int lengths = e->num_lengths, bos = s->params->bos == SLUICE_BOS_WINDOW ? s->entry->bos : -1;
    SLUICE__TRY(sluice__stretch_read(&t, &lengths, s->dataset, bos, s->params->seq_len, e->lengths, e->length_tokens,
                                     err));
    json_t *rows = json_array();
    sluice_status st = measure_lengths(rows, s, &t, lengths, err);
    if (st == SLUICE_OK) json_object_set(run, "length", rows);
    json_decref(rows);
    sluice__free(t.ids);
    return st;
}
