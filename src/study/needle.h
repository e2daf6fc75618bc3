/* SPDX-License-Identifier: Apache-2.0 */
/* Text with something to find in it: tags "[K7]" (a key, a digit) are scattered over natural text; the first tag of a
 * key cannot be predicted, later ones repeat the value. Recall at a length is asked with one such repetition
 * at the end of a window. docs/length.md defines both exactly. */
#ifndef SLUICE_STUDY_NEEDLE_H
#define SLUICE_STUDY_NEEDLE_H
#include "sluice/tokenizer.h"
#include "sluice/train.h"

enum { SLUICE__NEEDLE_KEYS = 26, SLUICE__NEEDLE_VALUES = 10, SLUICE__NEEDLE_MENTIONS = 8, SLUICE__TAG_TOKENS = 4 };

/* Ids of "[", "]", "A".."Z", "0".."9". */
typedef struct sluice__tags {
    int32_t open, close, keys[SLUICE__NEEDLE_KEYS], values[SLUICE__NEEDLE_VALUES];
} sluice__tags;
/* Every one of these characters must be one token; byte-level tokenizers have them all. */
sluice_status sluice__tags_of(sluice__tags *out, const sluice_tokenizer *tokenizer, sluice_error *err);

typedef struct sluice__needle_params {
    int needles;    /* keys a document or question, 1..26 */
    int mentions;   /* tags of each key in a document, 2..8: one that sets, the others repeat */
    double share;   /* of documents that have tags at all */
    uint64_t seed;
} sluice__needle_params;

/* Shortest document that holds the tags. */
int64_t sluice__needle_least(const sluice__needle_params *p);

/* Documents of p->seq_len - 1 ids each (a window of the dataset is one document behind its BOS): `count` with tags,
 * over text from random places of the training part of `text`; the held-out part in order, without tags. */
sluice_status sluice__needle_dataset(sluice_dataset **out, const sluice_train_params *p, const sluice_dataset *text,
                                     const sluice_tokenizer *tokenizer, const sluice__needle_params *needle,
                                     int64_t count, sluice_error *err);

/* Question number `index` of `length` ids: BOS (when bos >= 0), held-out text with `needles` tags of different keys,
 * and at the end "[K" with the key of one of them. */
typedef struct sluice__question {
    int32_t answer; /* the digit's id */
    int asked;      /* index of the asked tag among the tags, by place */
    double depth;   /* place of that tag in the window, 0..1 */
} sluice__question;
sluice__question sluice__needle_question(int32_t *ids, int length, const sluice_dataset *text, int32_t bos,
                                         const sluice__tags *tags, const sluice__needle_params *needle,
                                         int64_t index);
#endif
