/* SPDX-License-Identifier: Apache-2.0 */
/* From text files to a dataset: documents are read into memory, cut into training and held-out pieces, a tokenizer
 * may be trained on the former, and all are encoded. Text that does not fit is for `sluice tokenize pack` and
 * shards. */
#ifndef SLUICE_TRAIN_TEXTS_H
#define SLUICE_TRAIN_TEXTS_H
#include "sluice/tokenizer.h"
#include "sluice/train.h"

typedef struct sluice__text_block sluice__text_block;

typedef struct sluice__texts {
    sluice_document *documents; /* data lies in the blocks */
    int64_t count, capacity, bytes;
    sluice__text_block *blocks;
} sluice__texts;

/* Reads the files of a LIST option. Empty documents are left out; no document at all is an error that names
 * `option`. Bytes that are not UTF-8 are kept and reported. */
sluice_status sluice__texts_read(sluice__texts *out, const char *list, const char *option,
                                 const sluice_train_params *p, sluice_error *err);
/* Whether a LIST option names JSON lines (jsonl), or plain text (else), in directories too; true when that cannot be known. */
bool sluice__texts_have(const char *list, bool jsonl);
void sluice__texts_free(sluice__texts *texts);

/* A dataset from documents in memory, held-out ones besides (may be 0), and the shards of p. tokenizer NULL: shards
 * only. */
sluice_status sluice__texts_dataset(sluice_dataset **out, const sluice_train_params *p,
                                    const sluice_tokenizer *tokenizer, int vocab_size,
                                    const sluice_document *documents, int64_t count, const sluice_document *held,
                                    int64_t num_held, sluice_error *err);
#endif
