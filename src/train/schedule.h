/* SPDX-License-Identifier: Apache-2.0 */
/* Learning-rate schedules, in double, as pure functions of the update's number. Updates count from 1: the first one
 * uses lr_at(1), so that a warm-up never wastes an update on a rate of 0. */
#ifndef SLUICE_TRAIN_SCHEDULE_H
#define SLUICE_TRAIN_SCHEDULE_H
#include <stdbool.h>
#include <stdint.h>

typedef enum sluice__schedule_kind {
    SLUICE__SCHEDULE_LINEAR,
    SLUICE__SCHEDULE_COSINE,
    SLUICE__SCHEDULE_CONSTANT,
    SLUICE__SCHEDULE_WSD /* warm-up, stable, decay */
} sluice__schedule_kind;

typedef enum sluice__decay_shape {
    SLUICE__DECAY_LINEAR,
    SLUICE__DECAY_SQRT,
    SLUICE__DECAY_COSINE
} sluice__decay_shape;

typedef struct sluice__schedule {
    sluice__schedule_kind kind;
    sluice__decay_shape decay_shape; /* WSD only */
    double max_lr, min_lr;
    int64_t warmup; /* updates; 0 = none */
    int64_t total;  /* updates; later ones keep the last rate */
    int64_t decay;  /* WSD: the last `decay` updates fall to min_lr; 0 = never */
} sluice__schedule;

/* Rate of update `step` >= 1.
 *   step <= warmup: max * step / warmup.      constant: max.
 *   u = (step - warmup) / (total - warmup);  linear: max - (max - min) u;
 *   cosine: min + (max - min) (1 + cos(pi u)) / 2.
 *   WSD: max until total - decay, then u = (step - (total - decay)) / decay:
 *        max - (max - min) u | max - (max - min) sqrt(u) | the cosine above. */
double sluice__lr_at(const sluice__schedule *s, int64_t step);

/* Names as in transformers' lr_scheduler_type: linear, cosine, cosine_with_min_lr, constant, constant_with_warmup,
 * warmup_stable_decay; wsd too. False when unknown. */
bool sluice__schedule_kind_of(const char *name, sluice__schedule_kind *kind);
/* linear, sqrt (also 1-sqrt), cosine. */
bool sluice__decay_shape_of(const char *name, sluice__decay_shape *shape);
#endif
