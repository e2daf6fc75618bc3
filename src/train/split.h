/* SPDX-License-Identifier: Apache-2.0 */
/* What is held out. Documents are cut into pieces, each of which belongs to the training or to the held-out part. */
#ifndef SLUICE_TRAIN_SPLIT_H
#define SLUICE_TRAIN_SPLIT_H
#include "sluice/train.h"

typedef struct sluice__piece {
    int64_t document, begin, end; /* [begin, end) in units (bytes or tokens) of the document */
    bool held, begins, ends;      /* begins, ends: at the document's first / last unit */
} sluice__piece;

typedef struct sluice__split_rule {
    int split;    /* SLUICE_SPLIT_*; AUTO is documents from 20 on, parts below */
    double share; /* held out, 0..1 */
    int64_t parts;
    uint64_t seed;
} sluice__split_rule;
sluice__split_rule sluice__split_rule_of(const sluice_train_params *p);

/* Moves a wanted cut of document `document` at `at` to the nearest good place behind it (an end of line or a
 * space), or NULL where any unit will do. The result is at least `at`. */
typedef int64_t (*sluice__cut_fn)(const void *user, int64_t document, int64_t at);

/* Cuts documents of the given sizes. By document: each is held out with probability `share`, by a hash of seed and
 * index, but at least one and not all. By parts: of each of `parts` equal parts of all units the last `share` is
 * held out. Pieces come in the order of the data, empty ones left out; *pieces is freed with sluice__free. */
sluice_status sluice__split(sluice__piece **pieces, int64_t *num_pieces, const sluice__split_rule *rule,
                            const int64_t *sizes, int64_t num_documents, sluice__cut_fn cut, const void *user,
                            sluice_error *err);
#endif
