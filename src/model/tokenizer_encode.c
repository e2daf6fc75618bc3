/* SPDX-License-Identifier: Apache-2.0 */
/* Encoding: the steps put together, and long texts in parallel. */
#include "model/tokenizer_internal.h"
#include "base/memory.h"
#include "model/utf8.h"
#include "sluice/cpu.h"

sluice_status sluice__ids_reserve(sluice_ids *ids, size_t more, sluice_error *err) {
    if (ids->capacity - ids->count >= more) return SLUICE_OK;
    size_t n = ids->capacity ? ids->capacity * 2 : 64;
    if (n < ids->count + more) n = ids->count + more;
    void *fresh = sluice__realloc(ids->data, n, sizeof *ids->data, SLUICE__MEM_DATA);
    if (!fresh) return sluice__no_memory(err, sluice__mul_size(n, sizeof *ids->data), "token ids");
    ids->data = fresh;
    ids->capacity = n;
    return SLUICE_OK;
}

void sluice_ids_free(sluice_ids *ids) {
    sluice__free(ids->data);
    *ids = (sluice_ids){0};
}

/* ---- encoders: what a call changes, kept for the next call ---- */
sluice_status sluice__encoder_get(sluice__encoder **out, const sluice_tokenizer *tok, sluice_error *err) {
    sluice_tokenizer *pool =
        (sluice_tokenizer *)(uintptr_t)tok; /* the pool is the one part that changes, under its lock */
    pthread_mutex_lock(&pool->pool_lock);
    sluice__encoder *e = pool->pool;
    if (e) pool->pool = e->next;
    pthread_mutex_unlock(&pool->pool_lock);
    *out = e;
    if (e) return SLUICE_OK;
    e = sluice__calloc(1, sizeof *e, SLUICE__MEM_DATA);
    if (!e) return sluice__no_memory(err, sizeof *e, "an encoder");
    e->tok = tok;
    sluice_status st = sluice__matcher_new(&e->matcher, err);
    if (st == SLUICE_OK)
        *out = e;
    else
        sluice__encoder_free(e);
    return st;
}

enum { KEEP = 4 << 20 }; /* an idle encoder keeps no buffer beyond it */

static void trim(sluice__strbuf *b) {
    if (b->capacity > KEEP) sluice__strbuf_free(b);
}

void sluice__encoder_put(sluice__encoder *e) {
    sluice_tokenizer *pool = (sluice_tokenizer *)(uintptr_t)e->tok;
    e->num_waiting = 0; /* left by a call that failed */
    e->out = NULL;
    for (int i = 0; i < 2; i++) trim(&e->norm[i]);
    for (int i = 0; i < SLUICE__MAX_STEPS; i++) trim(&e->changed[i]);
    if (e->words_capacity > KEEP) {
        sluice__free(e->words);
        e->words = NULL;
        e->words_capacity = 0;
    }
    pthread_mutex_lock(&pool->pool_lock);
    e->next = pool->pool;
    pool->pool = e;
    pthread_mutex_unlock(&pool->pool_lock);
}

void sluice__encoder_free(sluice__encoder *e) {
    sluice__matcher_free(&e->matcher);
    for (int i = 0; i < 2; i++) sluice__strbuf_free(&e->norm[i]);
    for (int i = 0; i < SLUICE__MAX_STEPS; i++) {
        sluice__strbuf_free(&e->changed[i]);
        sluice__free(e->pieces[i].at);
    }
    sluice__free(e->cache);
    sluice__free(e->waiting);
    sluice__free(e->words);
    sluice__free(e);
}

/* ---- text without ill-formed bytes and without raw added tokens ---- */
static sluice_status emit_ids(sluice__encoder *e, const char *data, size_t size, void *user, sluice_error *err) {
    (void)user;
    return sluice__bpe(e, data, size, err);
}

sluice_status sluice__cut_normalized(sluice__encoder *e, sluice__span text, bool first, unsigned flags,
                                     sluice__piece_fn emit, void *user, sluice_error *err) {
    sluice__span norm;
    SLUICE__TRY(sluice__normalize(e, text.data, text.size, &norm, err));
    sluice__added_search s = {.tok = e->tok, .trie = &e->tok->normalized_trie, .text = norm};
    while (sluice__added_next(&s, flags)) {
        SLUICE__TRY(sluice__pretokenize(e, s.gap.data, s.gap.size, first && s.gap.data == norm.data, emit, user, err));
        if (e->out) SLUICE__TRY(sluice__bpe_flush(e, err));
        if (e->out) SLUICE__TRY(sluice__ids_push(e->out, s.id, err));
    }
    SLUICE__TRY(sluice__pretokenize(e, norm.data + s.done, norm.size - s.done, first && s.done == 0, emit, user, err));
    return e->out ? sluice__bpe_flush(e, err) : SLUICE_OK;
}

static sluice_status serial(sluice__encoder *e, sluice__span text, bool first, unsigned flags, sluice_ids *ids,
                            sluice_error *err) {
    e->out = ids;
    return sluice__cut_normalized(e, text, first, flags, emit_ids, NULL, err);
}

enum { CHUNK = 256 << 10 };

typedef struct chunk {
    sluice__span text;
    sluice_ids ids;
} chunk;

/* Cuts at safe places about every CHUNK bytes; fewer chunks than `most` where there are none. */
static int cut_chunks(const sluice_tokenizer *tok, sluice__span text, size_t each, chunk *chunks, int most) {
    int n = 0;
    size_t at = 0;
    while (at < text.size && n + 1 < most) {
        size_t want = text.size - at > each ? each : text.size - at;
        size_t cut = want < text.size - at ? sluice_tokenizer_cut(tok, text.data + at, want) : want;
        if (!cut) break;
        chunks[n++].text = (sluice__span){text.data + at, cut};
        at += cut;
    }
    if (at < text.size) chunks[n++].text = (sluice__span){text.data + at, text.size - at};
    return n;
}

static sluice_status parallel(const sluice_tokenizer *tok, sluice__span text, bool first, unsigned flags, int threads,
                              sluice_ids *ids, sluice_error *err) {
    size_t each = text.size / ((size_t)threads * 4) + 1;
    if (each < CHUNK) each = CHUNK;
    int most = (int)(text.size / each) + 2, failed = -1;
    chunk *chunks = sluice__calloc((size_t)most, sizeof *chunks, SLUICE__MEM_DATA);
    if (!chunks) return sluice__no_memory(err, (size_t)most * sizeof *chunks, "chunks of text");
    int n = cut_chunks(tok, text, each, chunks, most);
    sluice_status st = SLUICE_OK;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (int i = 0; i < n; i++) {
        sluice_error mine = {0};
        sluice__encoder *e = NULL;
        sluice_status s = sluice__encoder_get(&e, tok, &mine);
        if (s == SLUICE_OK) s = serial(e, chunks[i].text, first && i == 0, flags, &chunks[i].ids, &mine);
        if (e) sluice__encoder_put(e);
        if (s == SLUICE_OK) continue;
#pragma omp critical(sluice_tokenizer_encode)
        if (failed < 0 || i < failed) {
            failed = i;
            st = s;
            if (err) *err = mine;
        }
    }
    size_t total = 0;
    for (int i = 0; i < n; i++) total += chunks[i].ids.count;
    if (st == SLUICE_OK) st = sluice__ids_reserve(ids, total, err);
    for (int i = 0; i < n; i++) {
        if (st == SLUICE_OK && chunks[i].ids.count) {
            memcpy(ids->data + ids->count, chunks[i].ids.data, chunks[i].ids.count * sizeof *ids->data);
            ids->count += chunks[i].ids.count;
        }
        sluice_ids_free(&chunks[i].ids);
    }
    sluice__free(chunks);
    return st;
}

static sluice_status segment(sluice__encoder *e, sluice__span text, bool first, unsigned flags, sluice_ids *ids,
                             sluice_error *err) {
    int threads =
        text.size >= 2 * CHUNK && e->tok->can_cut && !e->tok->added_blocks_cuts ? sluice_get_num_threads() : 1;
    if (threads > 1) return parallel(e->tok, text, first, flags, threads, ids, err);
    return serial(e, text, first, flags, ids, err);
}

/* ---- any text ---- */
static sluice_status well_formed(sluice__encoder *e, sluice__span text, bool first, unsigned flags, sluice_ids *ids,
                                 sluice_error *err) {
    sluice__added_search s = {.tok = e->tok, .trie = &e->tok->raw_trie, .text = text};
    while (sluice__added_next(&s, flags)) {
        SLUICE__TRY(segment(e, s.gap, first && s.gap.data == text.data, flags, ids, err));
        SLUICE__TRY(sluice__ids_push(ids, s.id, err));
    }
    return segment(e, (sluice__span){text.data + s.done, text.size - s.done}, first && s.done == 0, flags, ids, err);
}

static sluice_status encode_with(sluice__encoder *e, const char *text, size_t size, unsigned flags, sluice_ids *ids,
                                 sluice_error *err) {
    for (size_t at = 0; at < size;) {
        size_t good = sluice__utf8_valid_prefix(text + at, size - at);
        if (good) SLUICE__TRY(well_formed(e, (sluice__span){text + at, good}, at == 0, flags, ids, err));
        at += good;
        size_t bad = sluice__utf8_invalid_prefix(text + at, size - at);
        e->out = ids;
        if (bad) SLUICE__TRY(sluice__bpe(e, text + at, bad, err));
        SLUICE__TRY(sluice__bpe_flush(e, err));
        at += bad;
    }
    return SLUICE_OK;
}

sluice_status sluice_tokenizer_encode(const sluice_tokenizer *tok, const char *text, size_t size, unsigned flags,
                                      sluice_ids *ids, sluice_error *err) {
    sluice__encoder *e;
    size_t before = ids->count;
    SLUICE__TRY(sluice__encoder_get(&e, tok, err));
    sluice_status st = SLUICE_OK;
    for (int i = 0; i < tok->num_prefix && st == SLUICE_OK && flags & SLUICE_ENCODE_ADD_SPECIAL; i++)
        st = sluice__ids_push(ids, tok->prefix[i], err);
    if (st == SLUICE_OK) st = encode_with(e, text, size, flags, ids, err);
    for (int i = 0; i < tok->num_suffix && st == SLUICE_OK && flags & SLUICE_ENCODE_ADD_SPECIAL; i++)
        st = sluice__ids_push(ids, tok->suffix[i], err);
    sluice__encoder_put(e);
    if (st != SLUICE_OK) ids->count = before;
    return st;
}

size_t sluice_tokenizer_cut(const sluice_tokenizer *tok, const char *text, size_t size) {
    if (!tok->can_cut || tok->added_blocks_cuts) return 0;
    return sluice__known_cut(tok->sole, text, size);
}
