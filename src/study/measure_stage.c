/* SPDX-License-Identifier: Apache-2.0 */
/* What a model does at 1x, 2x, 4x, 8x the first stage's length: loss on plain held-out text by position, and recall of
 * a tag (needle.h). With YaRN one factor, that of the longest length, serves all lengths, as a deployed configuration
 * would have it. Text, tags and questions are the same for every model. */
#include "study/subject.h"
#include "base/memory.h"
#include "inspect/inspection_json.h"
#include "study/score.h"
#include <math.h>
#include <string.h>

enum { DEPTHS = 4 };

typedef struct recall {
    int64_t asked, right;
    int64_t asked_at[DEPTHS], right_at[DEPTHS]; /* by the quarter of the window that holds the needle */
    double nll;
} recall;

/* What a stage is measured on. */
typedef struct stage {
    const sluice__subject *s;
    const sluice__extension *e;
    sluice__stretch text;
    int lengths; /* of the extension's, that the held-out text is long enough for */
    int64_t trained;
} stage;

/* ---- recall ---- */

typedef struct asking {
    int32_t *ids; /* [batch, length] */
    float *logits; /* [batch, vocab] of the last token */
    sluice__question *questions;
    sluice__workspace *ws;
    int batch, length;
} asking;

static void asking_free(asking *a) {
    sluice__free(a->ids);
    sluice__free(a->logits);
    sluice__free(a->questions);
    sluice__workspace_free(a->ws);
}

static sluice_status asking_new(asking *a, const sluice_model *model, int length, int64_t questions,
                                sluice_error *err) {
    int64_t batch = 4096 / length;
    batch = batch < 1 ? 1 : batch > questions ? questions : batch;
    *a = (asking){.batch = (int)batch, .length = length};
    size_t n = (size_t)batch, vocab = (size_t)sluice_model_config(model)->vocab_size;
    a->ids = sluice__calloc(n * (size_t)length, sizeof *a->ids, SLUICE__MEM_DATA);
    a->logits = sluice__calloc(n * vocab, sizeof *a->logits, SLUICE__MEM_DATA);
    a->questions = sluice__calloc(n, sizeof *a->questions, SLUICE__MEM_DATA);
    if (!a->ids || !a->logits || !a->questions) return sluice__no_memory(err, n * vocab * sizeof(float), "questions");
    return sluice__workspace_new(&a->ws, model, a->batch, length, SLUICE__INFER, err);
}

/* Right: the answer has the largest logit of the whole vocabulary. */
static void judge(recall *r, const sluice__question *q, const float *logits, int vocab) {
    int best = 0, quarter = (int)(q->depth * DEPTHS);
    double most, sum = 0;
    for (int i = 1; i < vocab; i++)
        if (logits[i] > logits[best]) best = i;
    most = (double)logits[best];
    for (int i = 0; i < vocab; i++) sum += exp((double)logits[i] - most);
    bool right = best == q->answer;
    if (quarter >= DEPTHS) quarter = DEPTHS - 1;
    r->asked++;
    r->right += right;
    r->asked_at[quarter]++;
    r->right_at[quarter] += right;
    r->nll += most + log(sum) - (double)logits[q->answer];
}

static sluice_status ask_all(recall *r, asking *a, const stage *g, const sluice_model *model, sluice_error *err) {
    const sluice__material_entry *entry = g->s->entry;
    int vocab = sluice_model_config(model)->vocab_size;
    for (int64_t done = 0; done < g->e->questions;) {
        int n = 0;
        for (; n < a->batch && done < g->e->questions; n++, done++)
            a->questions[n] = sluice__needle_question(a->ids + (size_t)n * (size_t)a->length, a->length, entry->text,
                                                      entry->bos, &entry->tags, &entry->needle, done);
        sluice__input in = {.batch = n, .seq_len = a->length, .ids = a->ids};
        SLUICE__TRY(sluice__forward(model, a->ws, &in, NULL, NULL, SLUICE__LOGITS_LAST, a->logits, err));
        for (int i = 0; i < n; i++) judge(r, &a->questions[i], a->logits + (size_t)i * (size_t)vocab, vocab);
    }
    return SLUICE_OK;
}

static sluice_status measure_recall(recall *r, const stage *g, const sluice_model *model, int length,
                                    sluice_error *err) {
    asking a = {0};
    *r = (recall){0};
    if (!g->s->entry->text || !g->e->questions) return SLUICE_OK;
    sluice_status st = asking_new(&a, model, length, g->e->questions, err);
    if (st == SLUICE_OK) st = ask_all(r, &a, g, model, err);
    asking_free(&a);
    return st;
}

static json_t *share(int64_t right, int64_t asked) {
    return asked ? json_real((double)right / (double)asked) : json_null();
}

static void put_recall(json_t *row, const recall *r) {
    json_t *depths = json_array();
    for (int i = 0; i < DEPTHS; i++) json_array_append_new(depths, share(r->right_at[i], r->asked_at[i]));
    json_object_set_new(row, "recall", share(r->right, r->asked));
    json_object_set_new(row, "recall_by_depth", depths);
    json_object_set_new(row, "recall_loss", r->asked ? sluice__json_number(r->nll / (double)r->asked) : json_null());
    json_object_set_new(row, "questions", json_integer(r->asked));
}

/* ---- rows ---- */

static sluice_status measure_row(json_t *rows, const stage *g, const sluice_model *model, int64_t multiple,
                                 double factor, sluice_error *err) {
    int length = (int)(g->trained * multiple);
    sluice__tally t;
    recall r;
    SLUICE__TRY(sluice__stretch_score(&t, model, &g->text, length, g->trained, err));
    SLUICE__TRY(measure_recall(&r, g, model, length, err));
    double loss = sluice__tally_mean(&t);
    json_t *row = json_pack("{s:i, s:I, s:s, s:f, s:o, s:o, s:I, s:o}", "length", length, "multiple",
                            (json_int_t)multiple, "rope", factor > 1 ? "yarn" : "plain", "factor", factor, "loss",
                            sluice__json_number(loss), "perplexity", sluice__json_number(exp(loss)), "tokens",
                            (json_int_t)sluice__tally_count(&t), "position", sluice__tally_to_json(&t));
    if (!row) return sluice__no_memory(err, 0, "a row of results");
    put_recall(row, &r);
    json_array_append_new(rows, row);
    return SLUICE_OK;
}

static sluice_status measure_rows(json_t *rows, const stage *g, double factor, sluice_error *err) {
    const sluice__subject *s = g->s;
    sluice_model *stretched = NULL;
    sluice_status st = SLUICE_OK;
    if (factor > 1) SLUICE__TRY(sluice__load_yarn(&stretched, s->model, s->model_dir, factor, s->params->seq_len, err));
    for (int i = 0; i < g->lengths && st == SLUICE_OK; i++)
        st = measure_row(rows, g, stretched ? stretched : s->model, g->e->lengths[i], factor, err);
    sluice_model_free(stretched);
    return st;
}

sluice_status sluice__measure_stage(json_t *stages, const char *name, const sluice__subject *s,
                                    const sluice__extension *extension, int64_t trained, sluice_error *err) {
    stage g = {.s = s, .e = extension, .lengths = extension->num_lengths, .trained = trained};
    const sluice_dataset *text = s->entry->text ? s->entry->text : s->dataset;
    int bos = s->params->bos == SLUICE_BOS_NONE ? -1 : s->entry->bos;
    SLUICE__TRY(sluice__stretch_read(&g.text, &g.lengths, text, bos, trained, extension->lengths,
                                     extension->length_tokens, err));
    json_t *rows = json_array();
    double factor = g.lengths ? (double)(trained * extension->lengths[g.lengths - 1]) / (double)s->params->seq_len : 1;
    sluice_status st = measure_rows(rows, &g, 1, err);
    if (st == SLUICE_OK && factor > 1) st = measure_rows(rows, &g, factor, err);
    if (st == SLUICE_OK)
        json_array_append_new(
            stages, json_pack("{s:s, s:I, s:f, s:O}", "name", name, "seq_len", (json_int_t)s->params->seq_len,
                              "rope_theta", sluice_model_config(s->model)->layers[0].rope.theta, "rows", rows));
    json_decref(rows);
    sluice__free(g.text.ids);
    return st;
}
