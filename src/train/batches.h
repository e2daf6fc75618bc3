/* SPDX-License-Identifier: Apache-2.0 */
/* How many passes each update has, and with that which windows: the batch-size warm-up as a pure function of the
 * batch's number, so that resuming needs nothing else. */
#ifndef SLUICE_TRAIN_BATCHES_H
#define SLUICE_TRAIN_BATCHES_H
#include "sluice/train.h"

enum { SLUICE__MAX_BATCH_STAGES = 16 };

typedef struct sluice__batches {
    int64_t passes[SLUICE__MAX_BATCH_STAGES], batches[SLUICE__MAX_BATCH_STAGES]; /* of each stage of the warm-up */
    int stages;
    int64_t last;  /* passes of all later batches */
    int64_t micro; /* windows of a pass */
} sluice__batches;

/* From per_device_train_batch_size, gradient_accumulation_steps and batch_size_warmup. */
sluice_status sluice__batches_of(sluice__batches *out, const sluice_train_params *p, sluice_error *err);
/* Passes of batch number `batch`, counted from 0. */
int64_t sluice__batches_passes(const sluice__batches *b, int64_t batch);
/* Windows that come before batch number `batch`. */
int64_t sluice__batches_before(const sluice__batches *b, int64_t batch);
/* The fewest batches that cover `windows` windows; -1 when those are more than 9e15. */
int64_t sluice__batches_covering(const sluice__batches *b, double windows);
#endif
