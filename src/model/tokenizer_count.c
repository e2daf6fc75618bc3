/* SPDX-License-Identifier: Apache-2.0 */
/* Distinct pre-tokens of a text: one hash table over an arena of bytes. */
#include "model/tokenizer_train.h"
#include "base/memory.h"
#include "model/utf8.h"

static bool grow_index(sluice__words *w) {
    uint64_t size = w->index ? (w->mask + 1) * 2 : 1 << 14;
    uint32_t *index = sluice__calloc(size, sizeof *index, SLUICE__MEM_DATA);
    if (!index) return false;
    for (size_t k = 0; k < w->count; k++) {
        uint64_t i = sluice__hash_span(w->arena + w->at[k].text, w->at[k].size) & (size - 1);
        while (index[i]) i = (i + 1) & (size - 1);
        index[i] = (uint32_t)k + 1;
    }
    sluice__free(w->index);
    w->index = index;
    w->mask = size - 1;
    return true;
}

static bool new_word(sluice__words *w, const char *data, size_t size) {
    if (w->count == w->capacity) {
        size_t n = w->capacity ? w->capacity * 2 : 4096;
        void *more = sluice__realloc(w->at, n, sizeof *w->at, SLUICE__MEM_DATA);
        if (!more) return false;
        w->at = more;
        w->capacity = n;
    }
    if (w->bytes + size > w->arena_capacity) {
        size_t n = w->arena_capacity ? w->arena_capacity * 2 : 1 << 16;
        while (n < w->bytes + size) n *= 2;
        void *more = sluice__realloc(w->arena, n, 1, SLUICE__MEM_DATA);
        if (!more) return false;
        w->arena = more;
        w->arena_capacity = n;
    }
    memcpy(w->arena + w->bytes, data, size);
    w->at[w->count++] = (sluice__word){.text = w->bytes, .size = (uint32_t)size};
    w->bytes += size;
    return true;
}

static sluice_status count_piece(sluice__encoder *e, const char *data, size_t size, void *user, sluice_error *err) {
    (void)e;
    sluice__words *w = user;
    if (size > UINT32_MAX || w->count == UINT32_MAX - 1)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "too many different pre-tokens, or one of more than 4 GB");
    if ((!w->index || w->count * 3 > w->mask * 2) && !grow_index(w)) return sluice__no_memory(err, w->mask * 8, "pre-tokens");
    uint64_t hash = sluice__hash_span(data, size), i = hash & w->mask;
    uint32_t tag = (uint32_t)(hash >> 32);
    for (; w->index[i]; i = (i + 1) & w->mask) {
        sluice__word *word = &w->at[w->index[i] - 1];
        if (word->tag != tag || word->size != size || memcmp(w->arena + word->text, data, size)) continue;
        word->count++;
        return SLUICE_OK;
    }
    if (!new_word(w, data, size)) return sluice__no_memory(err, size, "pre-tokens");
    w->at[w->count - 1].tag = tag;
    w->at[w->count - 1].count = 1;
    w->index[i] = (uint32_t)w->count;
    return SLUICE_OK;
}

static sluice_status count_text(sluice__words *w, sluice__encoder *e, const char *text, size_t size, sluice_error *err) {
    for (size_t at = 0; at < size;) {
        size_t good = sluice__utf8_valid_prefix(text + at, size - at);
        if (good) SLUICE__TRY(sluice__cut_normalized(e, (sluice__span){text + at, good}, at == 0, 0, count_piece, w, err));
        at += good;
        size_t bad = sluice__utf8_invalid_prefix(text + at, size - at);
        if (bad) SLUICE__TRY(count_piece(e, text + at, bad, w, err));
        at += bad;
    }
    return SLUICE_OK;
}

sluice_status sluice__count_words(sluice__words *out, const sluice_tokenizer *tok, sluice_text_fn next, void *user,
                                  sluice_error *err) {
    sluice__encoder *e;
    SLUICE__TRY(sluice__encoder_get(&e, tok, err));
    sluice_status st = SLUICE_OK;
    while (st == SLUICE_OK) {
        const char *text = NULL;
        size_t size = 0;
        st = next(user, &text, &size, err);
        if (st != SLUICE_OK || !text) break;
        st = count_text(out, e, text, size, err);
    }
    sluice__encoder_put(e);
    return st;
}

void sluice__words_free(sluice__words *w) {
    sluice__free(w->at);
    sluice__free(w->arena);
    sluice__free(w->index);
    *w = (sluice__words){0};
}
