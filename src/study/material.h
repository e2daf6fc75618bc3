/* SPDX-License-Identifier: Apache-2.0 */
/* What the runs of a study are trained on: the text, a tokenizer trained on its training part, tokens with a held-out
 * part. Arms with equal data share one entry; every seed has its own order of windows over the same split. */
#ifndef SLUICE_STUDY_MATERIAL_H
#define SLUICE_STUDY_MATERIAL_H
#include "sluice/study.h"
#include "sluice/tokenizer.h"
#include "study/backcopy.h"
#include "study/corpus.h"
#include "study/needle.h"
#include "study/recipe.h"

typedef struct sluice__material_entry {
    json_t *data;                               /* the arms' data section; borrowed from the recipe */
    sluice_tokenizer *tokenizer;                /* NULL for synthetic data */
    sluice__backcopy chain;                     /* synthetic data */
    sluice_dataset *dataset;                    /* the split */
    sluice_dataset *ordered[SLUICE__MAX_SEEDS]; /* the same in the order of each seed of the recipe */
    sluice_dataset *longer, *longer_ordered[SLUICE__MAX_SEEDS]; /* of the second stage; NULL without */
    sluice_dataset *text; /* kind needle: the text without tags and start tokens, split alike; else NULL */
    sluice__tags tags;    /* kind needle */
    sluice__needle_params needle;
    int bos;                                    /* -1 = none */
} sluice__material_entry;

typedef struct sluice__material {
    char source[256]; /* for the report */
    int64_t bytes;    /* of text; -1 = unknown */
    sluice__material_entry entries[SLUICE__MAX_ARMS];
    int num_entries, entry_of_arm[SLUICE__MAX_ARMS];
} sluice__material;

/* texts: files, or NULL for the embedded corpus. */
sluice_status sluice__material_new(sluice__material *out, const sluice__recipe *recipe, const char *const *texts,
                                   int num_texts, sluice_error *err);
void sluice__material_free(sluice__material *m);

/* Appends the text of one id to out: its bytes, special tokens spelled out. */
sluice_status sluice__entry_decode(const sluice__material_entry *e, const int32_t *ids, int64_t count, sluice_text *out,
                                   sluice_error *err);
/* Appends the ids of a text. Characters that synthetic data does not have are refused. */
sluice_status sluice__entry_encode(const sluice__material_entry *e, const char *text, sluice_ids *out,
                                   sluice_error *err);
#endif
