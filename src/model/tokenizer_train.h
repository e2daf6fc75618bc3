/* SPDX-License-Identifier: Apache-2.0 */
/* Counting pre-tokens for training. */
#ifndef SLUICE_MODEL_TOKENIZER_TRAIN_H
#define SLUICE_MODEL_TOKENIZER_TRAIN_H
#include "model/tokenizer_internal.h"

typedef struct sluice__word {
    uint64_t text; /* offset into the arena */
    uint32_t size;
    uint32_t tag; /* of the hash */
    int64_t count;
} sluice__word;

/* Distinct pre-tokens and how often each occurred. */
typedef struct sluice__words {
    sluice__word *at;
    size_t count, capacity;
    char *arena;
    size_t arena_capacity, bytes; /* bytes: of all words together */
    uint32_t *index;              /* 1 + word; 0 = empty */
    uint64_t mask;
} sluice__words;

/* A tokenizer that cuts texts as training with these parameters does: for sluice_tokenizer_cut. */
sluice_status sluice__training_cutter(sluice_tokenizer **out, const sluice_tokenizer_params *params, sluice_error *err);
/* Cuts every document with the tokenizer's normaliser and pre-tokenizer and counts the pieces. */
sluice_status sluice__count_words(sluice__words *out, const sluice_tokenizer *tok, sluice_text_fn next, void *user,
                                  sluice_error *err);
void sluice__words_free(sluice__words *w);
#endif
