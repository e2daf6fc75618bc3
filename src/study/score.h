/* SPDX-License-Identifier: Apache-2.0 */
/* Scoring held-out tokens in windows: batches of one length, and a stretch of text that several lengths can tile. */
#ifndef SLUICE_STUDY_SCORE_H
#define SLUICE_STUDY_SCORE_H
#include <jansson.h>
#include "layers/transformer.h"
#include "sluice/train.h"

enum { SLUICE__MAX_BUCKETS = 40 };

/* A batch of windows of one length and what scoring it needs. */
typedef struct sluice__batch {
    sluice__workspace *ws;
    int size, seq_len;
    int32_t *ids, *labels, *positions, *key_start; /* [size, seq_len] */
    float *nll;
} sluice__batch;

/* As many windows as make a pass of some thousand tokens, at most `windows`. */
sluice_status sluice__batch_new(sluice__batch *b, const sluice_model *model, int seq_len, int64_t windows,
                                sluice_error *err);
void sluice__batch_free(sluice__batch *b);
/* Fills nll of the first `windows` windows. packed: positions and key_start count. */
sluice_status sluice__batch_run(sluice__batch *b, const sluice_model *model, int windows, bool packed,
                                sluice_error *err);

/* Losses by position in the window, in buckets 0, 1, 2, 4, ... */
typedef struct sluice__tally {
    double sum[SLUICE__MAX_BUCKETS];
    int64_t count[SLUICE__MAX_BUCKETS];
    int edges[SLUICE__MAX_BUCKETS + 1], buckets;
    int64_t from; /* positions from here on are also summed by themselves: */
    double sum_from;
    int64_t count_from;
} sluice__tally;
void sluice__tally_init(sluice__tally *t, int seq_len, int64_t from);
/* The scored tokens of one window of a batch that was run. */
void sluice__tally_add(sluice__tally *t, const sluice__batch *b, int window);
double sluice__tally_mean(const sluice__tally *t); /* NaN when nothing was scored */
int64_t sluice__tally_count(const sluice__tally *t);
/* {"edges": [..], "loss": [per bucket]} */
json_t *sluice__tally_to_json(const sluice__tally *t);

/* The same tokens in windows of several lengths, so that losses differ by context alone. */
typedef struct sluice__stretch {
    int32_t *ids; /* [scored + 1]; with a BOS in every window ids[0] is not used */
    int64_t scored;
    int bos; /* -1 = windows have none */
} sluice__stretch;

/* Held-out tokens of `text` that windows of trained * multiples[..] tokens tile, at most `most` of them but one window
 * of each at least. *count comes in as the number of multiples (each divides the next) and goes out as how many of them
 * the text is long enough for; 0 leaves the stretch empty. Freed with sluice__free(ids). */
sluice_status sluice__stretch_read(sluice__stretch *out, int *count, const sluice_dataset *text, int bos,
                                   int64_t trained, const int64_t *multiples, int64_t most, sluice_error *err);
/* All of it in windows of `length`. from: see the tally. */
sluice_status sluice__stretch_score(sluice__tally *out, const sluice_model *model, const sluice__stretch *s,
                                    int length, int64_t from, sluice_error *err);
#endif
