/* SPDX-License-Identifier: Apache-2.0 */
/* A trained model with all that is needed to measure it. */
#ifndef SLUICE_STUDY_SUBJECT_H
#define SLUICE_STUDY_SUBJECT_H
#include "study/material.h"
#include "study/recipe.h"

typedef struct sluice__subject {
    const sluice_model *model;
    const char *model_dir; /* where it was saved: loaded again for other rotary positions */
    const sluice__material_entry *entry;
    const sluice_dataset *dataset;
    const sluice_train_params *params;
    const sluice__evaluation *evaluation;
    int64_t seed;
} sluice__subject;

/* Each adds its keys to `run` (docs/study.md): eval and position, inspect, router (of mixtures), attention_map, length,
 * samples. */
sluice_status sluice__measure_loss(json_t *run, const sluice__subject *s, sluice_error *err);
sluice_status sluice__measure_inside(json_t *run, const sluice__subject *s, sluice_error *err);
sluice_status sluice__measure_router(json_t *run, const sluice__subject *s, sluice_error *err);
sluice_status sluice__measure_map(json_t *run, const sluice__subject *s, sluice_error *err);
sluice_status sluice__measure_length(json_t *run, const sluice__subject *s, sluice_error *err);
sluice_status sluice__measure_samples(json_t *run, const sluice__subject *s, sluice_error *err);
#endif
