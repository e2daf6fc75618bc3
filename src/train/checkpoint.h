/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints: <output_dir>/checkpoints/step-N is a model directory with the tokenizer, optimizer.safetensors and
 * trainer_state.json beside the weights. Written under another name and renamed when complete. */
#ifndef SLUICE_TRAIN_CHECKPOINT_H
#define SLUICE_TRAIN_CHECKPOINT_H
#include "base/json.h"
#include "sluice/train.h"
#include "train/optimizer.h"
#include "train/spikes.h"

/* What changes from step to step beside weights and moments. */
typedef struct sluice__train_state {
    int64_t step;   /* updates done */
    int64_t batch;  /* batches used up, left-out ones included: the position in the data */
    int64_t tokens; /* input tokens seen */
    int64_t spikes, spike_events, skipped, rewinds;
    int64_t last_eval; /* step of the last evaluation that was logged; -1 = none */
    sluice__spike_watch watch;
} sluice__train_state;

/* Everything a checkpoint is made of. */
typedef struct sluice__checkpoint_parts {
    const sluice_train_params *params;
    sluice_model *model;
    const sluice_tokenizer *tokenizer; /* or NULL */
    sluice__optimizer *optimizer;
    sluice__train_state *state;
    sluice_dataset_info data;
    bool adopts; /* moments that the file lacks stay as they are */
} sluice__checkpoint_parts;

/* Path of the checkpoint of `step`; NULL when out of memory. Freed with sluice__free. */
char *sluice__checkpoint_path(const char *output_dir, int64_t step);
/* The newest complete checkpoint below output_dir; *step -1 when there is none. */
sluice_status sluice__checkpoint_newest(const char *output_dir, int64_t *step, sluice_error *err);
/* The newest one before `step` that is whole, as far as its files' headers tell; *older -1 when there is none. */
sluice_status sluice__checkpoint_before(const char *output_dir, int64_t step, int64_t *older, sluice_error *err);
/* Removes what a kill has left half written or half removed. */
sluice_status sluice__checkpoint_clean(const char *output_dir, sluice_error *err);
/* Removes all but the `keep` newest; keep 0 = keeps all. */
sluice_status sluice__checkpoint_prune(const char *output_dir, int64_t keep, sluice_error *err);

/* All files are there, and those with tensors have good headers. */
bool sluice__checkpoint_is_whole(const char *path);
sluice_status sluice__checkpoint_save(const char *path, const sluice__checkpoint_parts *c, sluice_error *err);
/* Puts the checkpoint at `path` into weights, moments and state. Refuses, naming it, whatever is missing or belongs
 * to another run: files, configuration, data, tokenizer, options. On failure weights and moments are undefined. */
sluice_status sluice__checkpoint_load(const char *path, sluice__checkpoint_parts *c, sluice_error *err);
/* Only the moments and the optimiser's count of steps, of a checkpoint of another run with the same optimiser. Tensors
 * that it does not have keep moments of 0. */
sluice_status sluice__checkpoint_adopt_moments(const char *path, sluice__checkpoint_parts *c, sluice_error *err);
#endif
