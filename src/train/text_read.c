/* SPDX-License-Identifier: Apache-2.0 */
/* Documents as one text, for commands that read a text instead of training on it. Pieces are small,
 * so that a compressed file cannot fill the memory before the limit is noticed. */
#include "base/memory.h"
#include "base/strbuf.h"
#include "train/text_source.h"
#include <string.h>

enum { PIECE = 1 << 20 };

static sluice_status add(sluice__strbuf *all, const sluice__text_piece *piece, size_t most,
                         sluice_error *err) {
    static const char blank_line[] = "\n\n";
    size_t gap = piece->starts && all->size ? sizeof blank_line - 1 : 0;
    if (piece->size + gap > most || all->size > most - piece->size - gap)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "%s: found more than %zu bytes of text; give a part of it", piece->file,
                            most);
    sluice__strbuf_add(all, blank_line, gap);
    sluice__strbuf_add(all, piece->data, piece->size);
    return all->failed ? sluice__no_memory(err, all->size, piece->file) : SLUICE_OK;
}

static sluice_status read_all(sluice__strbuf *all, sluice__text_source *source, size_t most,
                              sluice_error *err) {
    for (;;) {
        sluice__text_piece piece;
        SLUICE__TRY(sluice__text_source_next(source, &piece, err));
        if (!piece.data) return SLUICE_OK;
        SLUICE__TRY(add(all, &piece, most, err));
    }
}

sluice_status sluice_text_read(sluice_text *out, const char *path, const sluice_text_params *params,
                               size_t most, sluice_error *err) {
    sluice__text_source *source;
    sluice__strbuf all = {0};
    *out = (sluice_text){0};
    SLUICE__TRY(sluice__text_source_open(&source, &path, 1, params, PIECE, err));
    sluice_status st = read_all(&all, source, most, err);
    sluice__text_source_close(source);
    if (st == SLUICE_OK)
        *out = (sluice_text){all.data, all.size, all.capacity};
    else
        sluice__strbuf_free(&all);
    return st;
}
