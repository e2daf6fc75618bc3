/* SPDX-License-Identifier: Apache-2.0 */
/* A long document is collected until a safe cut is in sight; what lies behind the cut waits for the next piece. */
#include "train/text_join.h"
#include "base/memory.h"
#include <string.h>

static sluice_status add(sluice__text_join *j, const sluice__text_piece *t, sluice_error *err) {
    int64_t limit = j->limit > 0 ? j->limit : (int64_t)1 << 30;
    sluice__strbuf_add(&j->carry, t->data, t->size);
    if (j->carry.failed) return sluice__no_memory(err, j->carry.size + t->size, "text");
    if ((int64_t)j->carry.size <= limit) return SLUICE_OK;
    return sluice__fail(err, SLUICE_ERR_FORMAT,
                        "%s: line %lld: more than %lld bytes without a place where the text can be cut for this "
                        "tokenizer; part it, or raise the limit",
                        t->file, (long long)t->line, (long long)limit);
}

sluice_status sluice__text_join_next(sluice__text_join *j, sluice__text_piece *piece, sluice_error *err) {
    if (j->given) memmove(j->carry.data, j->carry.data + j->given, j->carry.size - j->given);
    j->carry.size -= j->given;
    j->given = 0;
    for (;;) {
        SLUICE__TRY(sluice__text_source_next(j->source, piece, err));
        if (!piece->data || (piece->starts && piece->ends)) return SLUICE_OK;
        SLUICE__TRY(add(j, piece, err));
        size_t cut = piece->ends ? j->carry.size
                     : j->tok    ? sluice_tokenizer_cut(j->tok, j->carry.data, j->carry.size)
                                 : 0;
        if (!cut) continue;
        piece->data = j->carry.data;
        piece->size = j->given = cut;
        piece->starts = !j->open;
        j->open = !piece->ends;
        return SLUICE_OK;
    }
}

void sluice__text_join_free(sluice__text_join *j) {
    sluice__strbuf_free(&j->carry);
}
