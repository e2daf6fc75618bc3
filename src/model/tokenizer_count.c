/* SPDX-License-Identifier: Apache-2.0 */
/* Distinct pre-tokens of texts: a hash table over an arena of bytes for every thread, put together at the end. Texts
 * are collected to batches, long ones cut where that changes nothing, so that threads have work whether there are many
 * short documents or one long one. The order of the words depends on the threads; what is trained from the counts does
 * not. */
#include "model/tokenizer_train.h"
#include "base/memory.h"
#include "model/utf8.h"
#include "sluice/cpu.h"
#include <omp.h>

enum { BATCH_BYTES = 8 << 20, BATCH_ITEMS = 4096, CHUNK_BYTES = 256 << 10 };

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

static sluice_status add_word(sluice__words *w, const char *data, size_t size, int64_t count, sluice_error *err) {
    if (size > UINT32_MAX || w->count == UINT32_MAX - 1)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "too many different pre-tokens, or one of more than 4 GB");
    if ((!w->index || w->count * 3 > w->mask * 2) && !grow_index(w))
        return sluice__no_memory(err, w->mask * 8, "pre-tokens");
    uint64_t hash = sluice__hash_span(data, size), i = hash & w->mask;
    uint32_t tag = (uint32_t)(hash >> 32);
    for (; w->index[i]; i = (i + 1) & w->mask) {
        sluice__word *word = &w->at[w->index[i] - 1];
        if (word->tag != tag || word->size != size || memcmp(w->arena + word->text, data, size)) continue;
        word->count += count;
        return SLUICE_OK;
    }
    if (!new_word(w, data, size)) return sluice__no_memory(err, size, "pre-tokens");
    w->at[w->count - 1].tag = tag;
    w->at[w->count - 1].count = count;
    w->index[i] = (uint32_t)w->count;
    return SLUICE_OK;
}

static sluice_status count_piece(sluice__encoder *e, const char *data, size_t size, void *user, sluice_error *err) {
    (void)e;
    return add_word(user, data, size, 1, err);
}

static sluice_status count_text(sluice__words *w, sluice__encoder *e, const char *text, size_t size,
                                sluice_error *err) {
    for (size_t at = 0; at < size;) {
        size_t good = sluice__utf8_valid_prefix(text + at, size - at);
        if (good)
            SLUICE__TRY(sluice__cut_normalized(e, (sluice__span){text + at, good}, at == 0, 0, count_piece, w, err));
        at += good;
        size_t bad = sluice__utf8_invalid_prefix(text + at, size - at);
        if (bad) SLUICE__TRY(count_piece(e, text + at, bad, w, err));
        at += bad;
    }
    return SLUICE_OK;
}

/* ---- batches ---- */
typedef struct item {
    size_t start, size; /* in the batch's text */
} item;

typedef struct counter {
    const sluice_tokenizer *tok;
    sluice__words *words; /* [threads] */
    int threads, count;
    sluice__strbuf text;
    item *items; /* [BATCH_ITEMS] */
} counter;

static sluice_status count_item(counter *c, const item *it, sluice__words *words, sluice_error *err) {
    sluice__encoder *e;
    SLUICE__TRY(sluice__encoder_get(&e, c->tok, err));
    sluice_status st = count_text(words, e, c->text.data + it->start, it->size, err);
    sluice__encoder_put(e);
    return st;
}

static sluice_status flush(counter *c, sluice_error *err) {
    sluice_status st = c->text.failed ? sluice__no_memory(err, c->text.size, "text") : SLUICE_OK;
    int failed = c->count, n = st == SLUICE_OK ? c->count : 0;
#pragma omp parallel for schedule(dynamic, 1) num_threads(c->threads) if (c->threads > 1 && n > 1)
    for (int i = 0; i < n; i++) {
        sluice_error mine = {0};
        sluice_status s = count_item(c, &c->items[i], &c->words[omp_get_thread_num()], &mine);
        if (s == SLUICE_OK) continue;
#pragma omp critical(sluice_count_words)
        if (i < failed) {
            failed = i;
            st = s;
            if (err) *err = mine;
        }
    }
    c->count = 0;
    c->text.size = 0;
    return st;
}

static sluice_status add_text(counter *c, const char *text, size_t size, sluice_error *err) {
    for (size_t at = 0; at < size;) {
        size_t left = size - at,
               cut = left > CHUNK_BYTES && c->threads > 1 ? sluice_tokenizer_cut(c->tok, text + at, CHUNK_BYTES) : 0;
        if (!cut) cut = left;
        if (c->count == BATCH_ITEMS || (c->count && c->text.size + cut > BATCH_BYTES)) SLUICE__TRY(flush(c, err));
        c->items[c->count++] = (item){c->text.size, cut};
        sluice__strbuf_add(&c->text, text + at, cut);
        at += cut;
    }
    return SLUICE_OK;
}

static sluice_status put_together(counter *c, sluice__words *out, sluice_error *err) {
    *out = c->words[0];
    c->words[0] = (sluice__words){0};
    for (int t = 1; t < c->threads; t++) {
        const sluice__words *w = &c->words[t];
        for (size_t i = 0; i < w->count; i++)
            SLUICE__TRY(add_word(out, w->arena + w->at[i].text, w->at[i].size, w->at[i].count, err));
    }
    return SLUICE_OK;
}

sluice_status sluice__count_words(sluice__words *out, const sluice_tokenizer *tok, sluice_text_fn next, void *user,
                                  sluice_error *err) {
    counter c = {.tok = tok, .threads = sluice_get_num_threads()};
    c.words = sluice__calloc((size_t)c.threads, sizeof *c.words, SLUICE__MEM_DATA);
    c.items = sluice__calloc(BATCH_ITEMS, sizeof *c.items, SLUICE__MEM_DATA);
    sluice_status st =
        c.words && c.items ? SLUICE_OK : sluice__no_memory(err, BATCH_ITEMS * sizeof *c.items, "a batch of text");
    while (st == SLUICE_OK) {
        const char *text = NULL;
        size_t size = 0;
        st = next(user, &text, &size, err);
        if (st != SLUICE_OK || !text) break;
        st = add_text(&c, text, size, err);
    }
    if (st == SLUICE_OK) st = flush(&c, err);
    if (st == SLUICE_OK) st = put_together(&c, out, err);
    for (int t = 0; t < c.threads && c.words; t++) sluice__words_free(&c.words[t]);
    sluice__free(c.words);
    sluice__free(c.items);
    sluice__strbuf_free(&c.text);
    return st;
}

void sluice__words_free(sluice__words *w) {
    sluice__free(w->at);
    sluice__free(w->arena);
    sluice__free(w->index);
    *w = (sluice__words){0};
}
