/* SPDX-License-Identifier: Apache-2.0 */
/* The dataset object for the files of this part: stores of tokens, a training and a held-out stream over them. */
#ifndef SLUICE_TRAIN_DATASET_H
#define SLUICE_TRAIN_DATASET_H
#include "sluice/tokenizer.h"
#include "sluice/train.h"
#include "train/split.h"
#include "train/stream.h"

struct sluice_dataset {
    sluice__store *stores;
    void (**close_store)(void *owner); /* what frees each store, and its argument */
    void **owners;
    int num_stores;
    sluice__stream train, heldout;
    int64_t train_documents, heldout_documents, train_windows, heldout_windows, heldout_bytes;
    int32_t bos; /* of windows; -1 = none */
    int seq_len, order, vocab_size;
    bool document_mask;
    bool borrows; /* stores, streams and token_bytes belong to another dataset */
    uint64_t seed, hash;
    int32_t *token_bytes; /* [vocab_size]; NULL without a tokenizer */
};

/* An empty dataset with the settings of p. bos, eos: ids or -1; what p asks for and is missing is refused (BOS) or
 * reported and left out (EOS). tokenizer may be NULL. */
sluice_status sluice__dataset_new(sluice_dataset **out, const sluice_train_params *p,
                                  const sluice_tokenizer *tokenizer, int vocab_size, int32_t bos, int32_t eos,
                                  sluice_error *err);
/* Takes over a store: close(owner) frees it, now if this fails. */
sluice_status sluice__dataset_add_store(sluice_dataset *d, sluice__store store, void (*close)(void *), void *owner,
                                        sluice_error *err);
/* Adds a piece whose units are tokens and whose document starts at `offset` of store number `store`. */
sluice_status sluice__dataset_add_piece(sluice_dataset *d, int store, int64_t offset, const sluice__piece *piece,
                                        sluice_error *err);
/* Splits the documents of store number `store` (sizes in tokens, back to back) and adds them; force_held: all are
 * held out. */
sluice_status sluice__dataset_add_documents(sluice_dataset *d, int store, const sluice_train_params *p,
                                            const int64_t *sizes, int64_t num_documents, bool force_held,
                                            sluice_error *err);
/* Counts windows, checks ids against the vocabulary, hashes. The last call of a builder. */
sluice_status sluice__dataset_finish(sluice_dataset *d, sluice_error *err);
#endif
