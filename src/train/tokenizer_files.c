/* SPDX-License-Identifier: Apache-2.0 */
/* Training a tokenizer on files, piece by piece: the pieces end where the pre-tokenizer may be cut, so that the counts
 * are those of whole documents while memory holds the distinct words only. */
#include "base/log.h"
#include "base/progress.h"
#include "model/tokenizer_train.h"
#include "model/utf8.h"
#include "train/text_join.h"

typedef struct reading {
    sluice__text_join join;
    sluice__progress progress;
    bool ended, told;
} reading;

/* Said once: where the first bytes are that no text should have. */
static void note_invalid(reading *r, const sluice__text_piece *piece) {
    if (r->told || sluice__utf8_valid_prefix(piece->data, piece->size) == piece->size) return;
    r->told = true;
    sluice__log(SLUICE_LOG_WARNING, "%s, document from line %lld: bytes that are not UTF-8 are kept as bytes",
                piece->file, (long long)piece->line);
}

static sluice_status next_piece(void *user, const char **text, size_t *size, sluice_error *err) {
    reading *r = user;
    sluice__text_piece piece;
    int64_t done, total;
    SLUICE__TRY(sluice__text_join_next(&r->join, &piece, err));
    sluice__text_source_progress(r->join.source, &done, &total);
    sluice__progress_update(&r->progress, done, " ");
    if (!piece.data) sluice__progress_end(&r->progress, "read; merging");
    r->ended = !piece.data;
    if (piece.data) note_invalid(r, &piece);
    *text = piece.data;
    *size = piece.size;
    return SLUICE_OK;
}

sluice_status sluice_tokenizer_train_files(sluice_tokenizer **out, const sluice_tokenizer_params *params,
                                           const char *const *paths, int num_paths, const sluice_text_params *text,
                                           sluice_error *err) {
    sluice_tokenizer_params p = params ? *params : sluice_tokenizer_params_default();
    sluice_text_params t = text ? *text : sluice_text_params_default();
    sluice_tokenizer *cutter;
    reading r = {.join = {.limit = t.max_document_bytes}};
    int64_t done, total;
    *out = NULL;
    SLUICE__TRY(sluice__training_cutter(&cutter, &p, err));
    r.join.tok = cutter;
    sluice_status st = sluice__text_source_open(&r.join.source, paths, num_paths, &t, SLUICE__TEXT_PIECE, err);
    if (st == SLUICE_OK) {
        sluice__text_source_progress(r.join.source, &done, &total);
        sluice__progress_begin(&r.progress, "counting words", "MB", total, 0, 1e-6);
        st = sluice_tokenizer_train(out, &p, next_piece, &r, err);
        if (!r.ended) sluice__progress_end(&r.progress, "stopped");
    }
    sluice__text_source_close(r.join.source);
    sluice__text_join_free(&r.join);
    sluice_tokenizer_free(cutter);
    return st;
}
