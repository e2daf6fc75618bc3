/* SPDX-License-Identifier: Apache-2.0 */
/* Documents out of text files: plain text and JSON lines, plain, .gz or .zst, directories of them, standard input. One
 * document, or one piece of a long one, at a time, so memory holds no more than that. Errors name file and line. */
#ifndef SLUICE_TRAIN_TEXT_SOURCE_H
#define SLUICE_TRAIN_TEXT_SOURCE_H
#include "sluice/shards.h"

typedef struct sluice__text_source sluice__text_source;

typedef struct sluice__text_piece {
    const char *data; /* until the next call */
    size_t size;
    bool starts, ends; /* the document begins / ends with this piece; both for a whole one */
    int64_t document;  /* number of the document, from 0 */
    const char *file;  /* where it lies; until close */
    int64_t line;      /* of its beginning, from 1 */
} sluice__text_piece;

/* max_piece 0: pieces are whole documents. Otherwise documents of plain text come in pieces of at most so many bytes
 * (64 at least), cut between characters. params NULL = default. Paths are checked at once: a missing file is an error
 * here. */
sluice_status sluice__text_source_open(sluice__text_source **out, const char *const *paths, int num_paths,
                                       const sluice_text_params *params, size_t max_piece, sluice_error *err);
/* piece->data NULL at the end. Documents without a byte are passed over. */
sluice_status sluice__text_source_next(sluice__text_source *s, sluice__text_piece *piece, sluice_error *err);
/* Bytes of files read so far (compressed ones as they lie on the disk), and of all files; *total 0 = unknown. */
void sluice__text_source_progress(const sluice__text_source *s, int64_t *done, int64_t *total);
void sluice__text_source_close(sluice__text_source *s); /* NULL does nothing */

/* A sluice_text_fn over whole documents; user is a sluice__text_source opened with max_piece 0. */
sluice_status sluice__text_source_document(void *source, const char **text, size_t *size, sluice_error *err);
#endif
