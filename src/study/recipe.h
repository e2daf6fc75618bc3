/* SPDX-License-Identifier: Apache-2.0 */
/* Recipes: what a study trains and measures, as JSON (docs/study.md describes the keys). */
#ifndef SLUICE_STUDY_RECIPE_H
#define SLUICE_STUDY_RECIPE_H
#include <jansson.h>
#include "base/error.h"
#include "sluice/train.h"

enum { SLUICE__MAX_ARMS = 48, SLUICE__MAX_SEEDS = 10, SLUICE__MAX_LENGTHS = 8, SLUICE__MAX_PROMPTS = 16 };

/* One model of the study. The JSON is the shared part with the arm's own on top; owned. */
typedef struct sluice__arm {
    const char *name, *label; /* inside the recipe's JSON */
    json_t *config;           /* model options */
    json_t *data;             /* what decides its dataset: arms with equal data share one */
    json_t *training;         /* the other options of training */
} sluice__arm;

typedef struct sluice__evaluation {
    int64_t heldout_windows; /* for loss and position; 0 = all */
    int64_t inspect_windows;
    const char *sentence; /* NULL = the first sentence of the held-out text */
    int64_t map_tokens;
    int64_t lengths[SLUICE__MAX_LENGTHS]; /* in seq_len; rising, each divides the next */
    int num_lengths;
    bool yarn;
    int64_t length_tokens; /* scored for every length at most */
    const char *prompts[SLUICE__MAX_PROMPTS];
    int num_prompts;
    int64_t heldout_prompts, prompt_tokens, sample_tokens;
    double temperature;
} sluice__evaluation;

/* A second stage of every run: the trained model goes on with longer windows and another RoPE base, then both models
 * are measured at several lengths, plain and with YaRN. JSON: extension; docs/length.md. */
typedef struct sluice__extension {
    bool on;
    int64_t seq_len;  /* of the second stage, a multiple of the first's */
    double rope_theta;
    int64_t lengths[SLUICE__MAX_LENGTHS]; /* in seq_len of the first stage; rising, each divides the next */
    int num_lengths;
    int64_t length_tokens; /* scored for every length at most */
    int64_t questions;     /* asked at every length; 0 = none */
    json_t *training;      /* over the arm's: what differs in the second stage; borrowed from the recipe */
} sluice__extension;

typedef struct sluice__recipe {
    json_t *root; /* complete: defaults filled in; owned */
    const char *name, *title, *scale;
    sluice__arm arms[SLUICE__MAX_ARMS];
    int num_arms;
    int64_t seeds[SLUICE__MAX_SEEDS];
    int num_seeds;
    sluice__evaluation evaluation;
    sluice__extension extension;
} sluice__recipe;

/* What the command line changes; NULL and 0 leave the recipe as it is. */
typedef struct sluice__recipe_changes {
    const char *scale;        /* name of one of the recipe's scales */
    const char *arms, *seeds; /* lists with commas */
    int64_t max_steps;
} sluice__recipe_changes;

/* name: of a built-in recipe, or a file when it contains a slash or ends in .json. An unknown name is refused with the
 * list of known ones; an unknown key, a wrong type or value with its path. */
sluice_status sluice__recipe_load(sluice__recipe *out, const char *name, const sluice__recipe_changes *changes,
                                  sluice_error *err);
void sluice__recipe_free(sluice__recipe *recipe);

/* Applies them to a complete recipe. */
sluice_status sluice__recipe_change(json_t *root, const sluice__recipe_changes *changes, sluice_error *err);
/* A copy of `shared` with the keys of `own` in it; null takes a key away. NULL when out of memory. */
json_t *sluice__laid_over(const json_t *shared, const json_t *own);
/* Refuses a wrong kind or missing keys in the arm's data. `file` stands for the recipe in messages. */
sluice_status sluice__read_data(const sluice__arm *arm, const char *file, sluice_error *err);

/* Names of the built-in recipes by index, then NULL; and the JSON text of one, or NULL. */
const char *sluice__recipe_builtin(int index);
const char *sluice__recipe_text(const char *name, size_t *size);

/* Options of training that stand in `data`. */
bool sluice__is_data_option(const char *key);
/* Options of one run: training defaults of a study, the arm's data and training on top, the seed in seed and data_seed.
 */
sluice_status sluice__arm_params(sluice_train_params *out, const sluice__arm *arm, int64_t seed, sluice_error *err);
/* Those of the second stage. */
sluice_status sluice__extension_params(sluice_train_params *out, const sluice__extension *extension,
                                       const sluice__arm *arm, int64_t seed, sluice_error *err);
/* The arm's model. tokenizer (may be NULL) names its special tokens in it. json (may be NULL): the completed options,
 * freed with sluice_train_free_text. */
sluice_status sluice__arm_config(sluice_config *out, char **json, const sluice__arm *arm, const sluice_train_params *p,
                                 const sluice_tokenizer *tokenizer, int vocab_size, sluice_error *err);
/* "text", "backcopy" or "needle". */
const char *sluice__arm_data_kind(const sluice__arm *arm);
/* Tokens of the vocabulary that is asked for; for synthetic data the symbols and BOS. */
int64_t sluice__arm_vocab_size(const sluice__arm *arm);
#endif
