/* SPDX-License-Identifier: Apache-2.0 */
/* Reading text files into memory. */
#include "train/texts.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/progress.h"
#include "model/utf8.h"
#include "train/text_files.h"
#include "train/text_source.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { BLOCK = 4 << 20, MOST_PATHS = SLUICE_TRAIN_LIST / 2, SPARE = 64 << 20 };

struct sluice__text_block {
    sluice__text_block *next;
    size_t used, size;
    char data[];
};

void sluice__texts_free(sluice__texts *t) {
    while (t->blocks) {
        sluice__text_block *next = t->blocks->next;
        sluice__free(t->blocks);
        t->blocks = next;
    }
    sluice__free(t->documents);
    *t = (sluice__texts){0};
}

static sluice_status add_block(sluice__texts *t, size_t size, sluice_error *err) {
    size_t room = size > BLOCK ? size : BLOCK;
    char have[32];
    sluice__text_block *b = NULL;
    if ((int64_t)room < sluice__mem_available() - SPARE) b = sluice__calloc(1, sizeof *b + room, SLUICE__MEM_DATA);
    if (!b)
        return sluice__fail(err, SLUICE_ERR_MEMORY,
                            "text: more than %s do not fit in memory; `sluice tokenize pack` makes "
                            "shards of any size, which are trained on without loading",
                            sluice__format_bytes(have, (double)t->bytes));
    b->size = room;
    b->next = t->blocks;
    t->blocks = b;
    return SLUICE_OK;
}

static sluice_status add_document(sluice__texts *t, const char *data, size_t size, sluice_error *err) {
    if (!t->blocks || t->blocks->size - t->blocks->used < size) SLUICE__TRY(add_block(t, size, err));
    if (t->count == t->capacity) {
        int64_t capacity = t->capacity ? t->capacity * 2 : 64;
        void *grown = sluice__realloc(t->documents, (size_t)capacity, sizeof *t->documents, SLUICE__MEM_DATA);
        if (!grown) return sluice__no_memory(err, (size_t)capacity * sizeof *t->documents, "the table of documents");
        t->documents = grown;
        t->capacity = capacity;
    }
    char *at = t->blocks->data + t->blocks->used;
    memcpy(at, data, size);
    t->blocks->used += size;
    t->documents[t->count++] = (sluice_document){at, size};
    t->bytes += (int64_t)size;
    return SLUICE_OK;
}

/* ---- the files ---- */

/* The lines of a LIST option as a vector of paths inside `copy`. */
static int list_paths(const char **paths, char *copy, const char *list) {
    int n = 0;
    snprintf(copy, SLUICE_TRAIN_LIST, "%s", list);
    for (char *line = copy; *line && n < MOST_PATHS;) {
        char *end = line + strcspn(line, "\n");
        bool last = !*end;
        *end = '\0';
        if (*line) paths[n++] = line;
        line = last ? end : end + 1;
    }
    return n;
}

typedef struct invalid_text {
    int64_t documents;
    char where[SLUICE_TRAIN_PATH + 64];
} invalid_text;

static void note_invalid(invalid_text *bad, const sluice__text_piece *piece) {
    size_t valid = sluice__utf8_valid_prefix(piece->data, piece->size);
    if (valid == piece->size) return;
    if (!bad->documents++)
        snprintf(bad->where, sizeof bad->where, "%s, document from line %" PRId64 ", byte %zu of it", piece->file,
                 piece->line, valid);
}

static sluice_status read_all(sluice__texts *out, sluice__text_source *source, invalid_text *bad, sluice_error *err) {
    for (;;) {
        sluice__text_piece piece;
        SLUICE__TRY(sluice__text_source_next(source, &piece, err));
        if (!piece.data) return SLUICE_OK;
        note_invalid(bad, &piece);
        SLUICE__TRY(add_document(out, piece.data, piece.size, err));
    }
}

bool sluice__texts_have(const char *list, bool jsonl) {
    static const size_t bytes = MOST_PATHS * sizeof(char *) + SLUICE_TRAIN_LIST;
    const char **paths = sluice__calloc(1, bytes, SLUICE__MEM_OTHER);
    if (!paths) return true;
    int n = list_paths(paths, (char *)(paths + MOST_PATHS), list);
    sluice__text_files files = {0};
    bool found = n > 0 && sluice__text_files_list(&files, paths, n, SLUICE_TEXT_AUTO, NULL) != SLUICE_OK;
    for (int i = 0; i < files.count && !found; i++) found = files.at[i].jsonl == jsonl;
    sluice__text_files_free(&files);
    sluice__free((void *)paths);
    return found;
}

static sluice_text_params text_params(const sluice_train_params *p) {
    sluice_text_params t = sluice_text_params_default();
    t.text_key = p->text_column;
    if (*p->text_separator) t.separator = !strcmp(p->text_separator, "blank") ? "" : p->text_separator;
    t.allow_invalid = true;
    t.max_document_bytes = INT64_MAX / 4;
    return t;
}

sluice_status sluice__texts_read(sluice__texts *out, const char *list, const char *option,
                                 const sluice_train_params *p, sluice_error *err) {
    static const size_t bytes = MOST_PATHS * sizeof(char *) + SLUICE_TRAIN_LIST;
    *out = (sluice__texts){0};
    const char **paths = sluice__calloc(1, bytes, SLUICE__MEM_OTHER);
    if (!paths) return sluice__no_memory(err, bytes, "file names");
    int n = list_paths(paths, (char *)(paths + MOST_PATHS), list);
    sluice_text_params params = text_params(p);
    sluice__text_source *source;
    invalid_text bad = {0};
    sluice_status st = sluice__text_source_open(&source, paths, n, &params, 0, err);
    if (st == SLUICE_OK) {
        st = read_all(out, source, &bad, err);
        sluice__text_source_close(source);
    }
    sluice__free((void *)paths);
    if (st != SLUICE_OK) st = sluice__fail_in(err, st, "%s", option);
    else if (!out->bytes) st = sluice__fail(err, SLUICE_ERR_ARGUMENT, "%s: the files hold no text", option);
    if (st == SLUICE_OK && bad.documents)
        sluice__log(SLUICE_LOG_WARNING,
                    "%s: %" PRId64 " document%s bytes that are not UTF-8 and are kept as bytes (%s)", option,
                    bad.documents, bad.documents == 1 ? " holds" : "s hold", bad.where);
    if (st != SLUICE_OK) sluice__texts_free(out);
    return st;
}
