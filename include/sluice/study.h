/* SPDX-License-Identifier: Apache-2.0 */
/* A study: several arms (a baseline and gated models, or anything else that a recipe names) trained on the same data in
 * the same order, measured alike, compared seed by seed. docs/study.md describes recipes and results. */
#ifndef SLUICE_STUDY_H
#define SLUICE_STUDY_H
#include <stdbool.h>
#include <stdint.h>
#include "sluice/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sluice_study_params {
    const char *recipe; /* name of a built-in recipe, or a file that ends in .json or has a slash. Default "quick" */
    const char *const *texts; /* files or directories of text; num_texts 0 (default) = the embedded corpus */
    int num_texts;
    const char *scale;      /* one of the recipe's scales, like "smallest"; NULL (default) = "normal" */
    const char *output_dir; /* default: "study-" and the recipe's name, behind it the scale when it is not normal */
    const char *arms;       /* names with commas between them; NULL (default) = all of the recipe */
    const char *seeds;      /* "1,2,3"; NULL (default) = the recipe's */
    int64_t max_steps;      /* updates per run; 0 (default) = the recipe's */
    int parallel_arms;      /* runs at the same time; 0 (default) = one per core while models are small, else one */
    bool overwrite;         /* remove an earlier study in output_dir. Default false: it is continued, or refused when it
                               was made with other settings or data */
    bool (*stop_requested)(void *user); /* asked often, from several threads; true = write checkpoints and return
                                           SLUICE_INTERRUPTED. NULL (default) = never */
    void *user;
} sluice_study_params;
sluice_study_params sluice_study_params_default(void);

enum { SLUICE_STUDY_MAX_ARMS = 48, SLUICE_STUDY_PATH = 1024 };

/* One line of the table at the end. Means over the runs that were measured; NaN where there is none. sd: sample
 * standard deviation over seeds, NaN with one. */
typedef struct sluice_study_arm {
    char name[48], label[64];
    int64_t parameters;
    int runs, measured;
    double loss, loss_sd;
    double first_share, first_share_sd; /* attention on the first token, queries from a quarter of the window on */
    double uniform_share;               /* the same for uniform attention */
    double gate_mean, m_act, seconds;
} sluice_study_arm;

typedef struct sluice_study_summary {
    char title[128];
    char output_dir[SLUICE_STUDY_PATH], results[SLUICE_STUDY_PATH + 32], report[SLUICE_STUDY_PATH + 32];
    int num_arms;
    sluice_study_arm arms[SLUICE_STUDY_MAX_ARMS];
    int runs, failed; /* of all arms; failed counts diverged ones too */
    double seconds;   /* of this call */
} sluice_study_summary;

/* Trains and measures what is missing in output_dir, then writes results.json, results.csv and report.html. A run that
 * diverges or fails is recorded and the others go on; the study itself fails only when nothing could be measured. After
 * SLUICE_INTERRUPTED the same call continues. */
sluice_status sluice_study_run(sluice_study_summary *out, const sluice_study_params *params, sluice_error *err);

/* Draws report.html again from DIR/results.json. */
sluice_status sluice_study_report(const char *dir, sluice_error *err);

/* Built-in recipes: names by index (NULL behind the last) and their JSON text (NULL = no such recipe). */
const char *sluice_study_recipe_name(int index);
const char *sluice_study_recipe_text(const char *name);

#ifdef __cplusplus
}
#endif
#endif
