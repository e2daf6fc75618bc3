/* SPDX-License-Identifier: Apache-2.0 */
/* One run of a study: one arm at one seed, from fresh weights to measured model. */
#ifndef SLUICE_STUDY_JOB_H
#define SLUICE_STUDY_JOB_H
#include "study/material.h"
#include "study/recipe.h"

typedef struct sluice__job {
    const sluice__recipe *recipe;
    const sluice__material *material;
    int arm, seed_index; /* into the recipe */
    int threads;
    const char *study_dir;
    bool (*stop_requested)(void *user);
    void (*on_update)(void *user, int64_t updates); /* after every update: 1, and more once when a run is continued */
    void *user;
    json_t *result; /* owned: what goes into results.json; NULL until the run has ended */
} sluice__job;

/* The result that an earlier call left, complete; false when the run has to be done (or done to its end, or again
 * because it failed for an outside reason). Reads files only. */
bool sluice__job_recall(sluice__job *job);
/* Trains, or continues training, saves the model, measures, writes run.json and removes the checkpoints. A run that
 * diverges or fails ends with OK and says so in its result; INTERRUPTED leaves a checkpoint and no result. */
sluice_status sluice__job_run(sluice__job *job, sluice_error *err);
/* What a run takes. Settings that cannot work are refused here, before anything starts. */
typedef struct sluice__job_size {
    int64_t bytes, disk_bytes, checkpoint_bytes, updates; /* memory; what stays on the disk, what is there for a time */
    double pass_flops;                                    /* one forward and backward pass */
} sluice__job_size;
sluice_status sluice__job_plan(sluice__job_size *out, const sluice__job *job, sluice_error *err);
#endif
