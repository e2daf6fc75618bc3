/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of documents that end where a tokenizer may be cut: encoding them one by one gives the ids of the whole
 * document. */
#ifndef SLUICE_TRAIN_TEXT_JOIN_H
#define SLUICE_TRAIN_TEXT_JOIN_H
#include "base/strbuf.h"
#include "train/text_source.h"

enum { SLUICE__TEXT_PIECE = 8 << 20 }; /* bytes that a source read through a joiner gives at a time */

/* Start it as {source, tok, limit}. */
typedef struct sluice__text_join {
    sluice__text_source *source;
    const sluice_tokenizer *tok; /* NULL = never cut: documents stay whole */
    int64_t limit;               /* bytes that may wait for a safe cut; 0 = 1 GiB */
    sluice__strbuf carry;
    size_t given; /* bytes at the front of carry that the last call gave out */
    bool open;    /* a document has begun and not ended */
} sluice__text_join;

/* piece->data NULL at the end. */
sluice_status sluice__text_join_next(sluice__text_join *j, sluice__text_piece *piece, sluice_error *err);
void sluice__text_join_free(sluice__text_join *j); /* not the source */
#endif
