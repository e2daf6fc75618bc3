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

/* One stage of an extension: losses and recall at every length, plain and with YaRN, as an element of the array
 * `stages`. `trained` is the first stage's window length, of which the lengths are multiples; s->params are those of
 * this stage. */
sluice_status sluice__measure_stage(json_t *stages, const char *name, const sluice__subject *s,
                                    const sluice__extension *extension, int64_t trained, sluice_error *err);

/* The model as it was saved in `dir` with rotary positions stretched by `factor` over the length it was trained at, as
 * it would be after a change of its config.json. */
sluice_status sluice__load_yarn(sluice_model **out, const sluice_model *model, const char *dir, double factor,
                                int64_t trained, sluice_error *err);
#endif
