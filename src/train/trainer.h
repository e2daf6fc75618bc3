/* SPDX-License-Identifier: Apache-2.0 */
/* The trainer object, for the files of this part. */
#ifndef SLUICE_TRAIN_TRAINER_H
#define SLUICE_TRAIN_TRAINER_H
#include "base/progress.h"
#include "layers/transformer.h"
#include "sluice/train.h"
#include "train/batches.h"
#include "train/checkpoint.h"
#include "train/optimizer.h"
#include "train/options.h"
#include "train/run_log.h"
#include "train/schedule.h"
#include "train/sink_probe.h"

struct sluice_trainer {
    sluice_train_params params;
    sluice_model *model;               /* borrowed, its weights change */
    const sluice_dataset *dataset;     /* borrowed */
    const sluice_tokenizer *tokenizer; /* borrowed or NULL */
    char label[48];
    sluice_dataset_info data;
    sluice__schedule schedule;
    sluice__batches batches;
    sluice__optimizer *optimizer;
    sluice__workspace *workspace; /* of one micro-batch */
    sluice__router *router;       /* NULL without experts */
    double *layer_entropy;        /* [layers] of the last update's routers */
    float *grads;                 /* flat, zero between steps */
    int32_t *tokens; /* [4, accumulation * batch, seq_len]: ids, labels, positions, key_start of a whole step */
    float *nll;      /* [batch, seq_len] of an evaluation */
    sluice__sink_probe *probe;
    sluice__train_state state;
    sluice__run_log log; /* open between begin and free when there is an output_dir */
    int lock;            /* descriptor of the lock on output_dir; -1 = none */
    bool begun, resumed;
    bool finished; /* resumed where nothing is left to do: nothing is written either */
    int64_t saved_step;     /* newest checkpoint of this run; -1 = none */
    int64_t rewinds_in_row; /* since it was written */
    int64_t skips_in_row;
    double step_seconds; /* spent in steps since the last logged one */
    int64_t step_tokens;
    sluice_step_record last;
    sluice_eval_record last_eval;
};

/* Windows of a micro-batch, `rows` of them, inside t->tokens from row `first` on. */
sluice__input sluice__trainer_input(const sluice_trainer *t, int64_t first, int rows);
/* The four arrays of row `row`. */
sluice_window sluice__trainer_row(const sluice_trainer *t, int64_t row);
sluice__checkpoint_parts sluice__trainer_parts(sluice_trainer *t);
/* What is not finite, in words, after a step over the micro-batches in t->tokens. */
void sluice__trainer_diagnose(sluice_trainer *t, char *out, size_t size);

/* run directory: trainer_dir.c */
/* Whether p->output_dir could be made and used, as far as can be said without writing. */
sluice_status sluice__check_output_dir(const sluice_train_params *p, sluice_error *err);
/* Whether the config.json of a run is there. */
bool sluice__holds_run(const char *output_dir);
/* Path of the checkpoint that p resumes from, or NULL when there is none (then nothing is resumed). */
sluice_status sluice__resume_path(char **path, const sluice_train_params *p, sluice_error *err);
sluice_status sluice__trainer_open_dir(sluice_trainer *t, sluice_error *err);
void sluice__trainer_close_dir(sluice_trainer *t);
sluice_status sluice__trainer_rewind(sluice_trainer *t, sluice_error *err);
#endif
