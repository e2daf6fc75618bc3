/* SPDX-License-Identifier: Apache-2.0 */
/* BPE of one pre-token: while any neighbours have a merge, the pair of lowest rank is merged, the leftmost of equals first.
 * Short pre-tokens keep symbols and pair ranks in two small arrays and look for the minimum by a linear scan; long ones use a heap over a
 * linked list, so that a megabyte without a space costs n log n. Results of short pre-tokens are remembered in a
 * direct-mapped cache of one cache line a slot: real text repeats a few thousand words. */
#include "model/tokenizer_internal.h"
#include "base/memory.h"
#include "model/utf8.h"
#include <stdio.h>

enum {
    SHORT = 64,         /* symbols of a pre-token that is merged by scanning */
    CACHE_SLOTS = 1 << 15,
    CACHE_BYTES = 24,
    CACHE_IDS = 8
};
static const uint32_t NO_MERGE = UINT32_MAX;

struct sluice__cache_slot {
    uint32_t tag; /* 0 = empty */
    uint8_t size, count;
    char data[CACHE_BYTES];
    int32_t ids[CACHE_IDS];
};

/* ---- symbols ---- */

/* First ids of a byte-level pre-token. A byte without a token is the unknown token, or nothing when there is none. */
static size_t byte_symbols(const sluice_tokenizer *tok, const unsigned char *p, size_t size, uint32_t *ids) {
    size_t n = 0;
    bool in_unknown = false;
    for (size_t i = 0; i < size; i++) {
        int32_t id = tok->symbol[p[i]];
        bool unknown = id < 0;
        if (unknown) id = in_unknown && tok->fuse_unk ? -1 : tok->unk_id;
        in_unknown = unknown;
        if (id >= 0) ids[n++] = (uint32_t)id;
    }
    return n;
}

/* First ids of a pre-token whose symbols are characters. An ill-formed byte is a character without a token. The unknown
 * token is written late, exactly as in the tokenizers package: byte tokens overtake it. */
static size_t char_symbols(const sluice_tokenizer *tok, const unsigned char *p, size_t size, uint32_t *ids) {
    size_t n = 0;
    bool pending = false;
    const unsigned char *end = p + size;
    while (p < end) {
        int length = sluice__utf8_length(p, end);
        int32_t id = length ? sluice__vocab_find(&tok->vocab, (const char *)p, (size_t)length) : -1;
        bool bytes = id < 0 && tok->byte_fallback;
        if (!length) length = 1;
        if (id >= 0 && !(tok->vocab.tokens[id].flags & SLUICE__TOKEN_MODEL)) id = -1;
        for (int i = 0; i < length && bytes; i++) bytes = tok->symbol[p[i]] >= 0;
        if (id >= 0) {
            if (pending) ids[n++] = (uint32_t)tok->unk_id;
            pending = false;
            ids[n++] = (uint32_t)id;
        } else if (bytes) {
            for (int i = 0; i < length; i++) ids[n++] = (uint32_t)tok->symbol[p[i]];
        } else if (tok->unk_id >= 0) {
            if (pending && !tok->fuse_unk) ids[n++] = (uint32_t)tok->unk_id;
            pending = true;
        }
        p += length;
    }
    if (pending) ids[n++] = (uint32_t)tok->unk_id;
    return n;
}

/* ---- short ---- */
static uint32_t pair_rank(const sluice__vocab *v, uint32_t left, uint32_t right, uint32_t *id) {
    const sluice__merge *m = sluice__merge_find(v, left, right);
    if (!m) return NO_MERGE;
    *id = m->id;
    return m->rank;
}

static size_t merge_short(const sluice__vocab *v, uint32_t *ids, size_t n) {
    uint32_t rank[SHORT], into[SHORT];
    for (size_t i = 0; i + 1 < n; i++) rank[i] = pair_rank(v, ids[i], ids[i + 1], &into[i]);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best]) best = i;
        if (rank[best] == NO_MERGE) break;
        ids[best] = into[best];
        n--;
        size_t tail = n - best - 1; /* symbols behind the merged one */
        memmove(ids + best + 1, ids + best + 2, tail * sizeof *ids);
        if (tail) {
            memmove(rank + best + 1, rank + best + 2, (tail - 1) * sizeof *rank);
            memmove(into + best + 1, into + best + 2, (tail - 1) * sizeof *into);
            rank[best] = pair_rank(v, ids[best], ids[best + 1], &into[best]);
        }
        if (best) rank[best - 1] = pair_rank(v, ids[best - 1], ids[best], &into[best - 1]);
    }
    return n;
}

/* ---- long ---- */
typedef struct heap {
    uint64_t *at; /* rank << 32 | position */
    size_t count;
} heap;

static void sift_up(heap *h, uint64_t x) {
    size_t i = h->count++;
    for (; i && h->at[(i - 1) / 2] > x; i = (i - 1) / 2) h->at[i] = h->at[(i - 1) / 2];
    h->at[i] = x;
}

static uint64_t pop(heap *h) {
    uint64_t top = h->at[0], x = h->at[--h->count];
    size_t i = 0, child;
    while ((child = 2 * i + 1) < h->count) {
        if (child + 1 < h->count && h->at[child + 1] < h->at[child]) child++;
        if (h->at[child] >= x) break;
        h->at[i] = h->at[child];
        i = child;
    }
    if (h->count) h->at[i] = x;
    return top;
}

typedef struct chain {
    const sluice__vocab *v;
    uint32_t *ids, *rank, *into, *next, *prev;
    heap heap;
} chain;

static void push_pair(chain *c, uint32_t i) {
    uint32_t j = c->next[i];
    c->rank[i] = j == NO_MERGE ? NO_MERGE : pair_rank(c->v, c->ids[i], c->ids[j], &c->into[i]);
    if (c->rank[i] != NO_MERGE) sift_up(&c->heap, (uint64_t)c->rank[i] << 32 | i);
}

/* scratch: 8 n words behind the ids. A heap entry is stale unless the pair at its place still has its rank. At most n entries from
 * the start are alive with the two that each of n merges adds, hence 2 n of two words. */
static size_t merge_long(const sluice__vocab *v, uint32_t *ids, size_t n, uint32_t *scratch) {
    chain c = {v, ids, scratch, scratch + n, scratch + 2 * n, scratch + 3 * n, {(uint64_t *)(void *)(scratch + 4 * n), 0}};
    for (size_t i = 0; i < n; i++) {
        c.next[i] = i + 1 < n ? (uint32_t)i + 1 : NO_MERGE;
        c.prev[i] = i ? (uint32_t)i - 1 : NO_MERGE;
    }
    for (size_t i = 0; i < n; i++) push_pair(&c, (uint32_t)i);
    while (c.heap.count) {
        uint64_t top = pop(&c.heap);
        uint32_t i = (uint32_t)top;
        if (c.rank[i] != (uint32_t)(top >> 32)) continue;
        uint32_t j = c.next[i];
        ids[i] = c.into[i];
        c.rank[j] = NO_MERGE;
        c.next[i] = c.next[j];
        if (c.next[i] != NO_MERGE) c.prev[c.next[i]] = i;
        push_pair(&c, i);
        if (c.prev[i] != NO_MERGE) push_pair(&c, c.prev[i]);
    }
    size_t out = 0;
    for (uint32_t i = 0; i != NO_MERGE && n; i = c.next[i]) ids[out++] = ids[i];
    return out;
}

/* ---- one pre-token ---- */
static sluice_status whole_word(sluice__encoder *e, const char *data, size_t size, bool *done, sluice_error *err) {
    const sluice_tokenizer *tok = e->tok;
    int32_t id = tok->byte_level ? sluice__vocab_find_bytes(&tok->vocab, data, size) : sluice__vocab_find(&tok->vocab, data, size);
    *done = id >= 0 && tok->vocab.tokens[id].flags & SLUICE__TOKEN_MODEL;
    return *done ? sluice__ids_push(e->out, id, err) : SLUICE_OK;
}

static sluice_status merge_word(sluice__encoder *e, const char *data, size_t size, sluice_error *err) {
    const sluice_tokenizer *tok = e->tok;
    if (tok->ignore_merges) {
        bool done;
        SLUICE__TRY(whole_word(e, data, size, &done, err));
        if (done) return SLUICE_OK;
    }
    SLUICE__TRY(sluice__ids_reserve(e->out, size + 1, err));
    uint32_t *ids = (uint32_t *)e->out->data + e->out->count;
    const unsigned char *p = (const unsigned char *)data;
    size_t n = tok->byte_level ? byte_symbols(tok, p, size, ids) : char_symbols(tok, p, size, ids);
    if (n <= SHORT) {
        n = merge_short(&tok->vocab, ids, n);
    } else {
        if (n > UINT32_MAX / 8) return sluice__fail(err, SLUICE_ERR_ARGUMENT, "a pre-token of %zu bytes is too long", size);
        if (e->words_capacity < 8 * n) {
            sluice__free(e->words);
            e->words_capacity = 0;
            e->words = sluice__calloc(8 * n, sizeof *e->words, SLUICE__MEM_DATA);
            if (!e->words) return sluice__no_memory(err, 8 * n * sizeof *e->words, "merging a long pre-token");
            e->words_capacity = 8 * n;
        }
        n = merge_long(&tok->vocab, ids, n, e->words);
    }
    e->out->count += n;
    return SLUICE_OK;
}

sluice_status sluice__bpe(sluice__encoder *e, const char *data, size_t size, sluice_error *err) {
    if (size > CACHE_BYTES) return merge_word(e, data, size, err);
    if (!e->cache) {
        e->cache = sluice__calloc(CACHE_SLOTS, sizeof *e->cache, SLUICE__MEM_DATA);
        if (!e->cache) return sluice__no_memory(err, CACHE_SLOTS * sizeof *e->cache, "the pre-token cache");
    }
    uint64_t hash = sluice__hash_span(data, size);
    uint32_t tag = (uint32_t)(hash >> 32) | 1;
    struct sluice__cache_slot *s = &e->cache[hash & (CACHE_SLOTS - 1)];
    if (s->tag == tag && s->size == size && !memcmp(s->data, data, size)) {
        if (e->out->capacity - e->out->count < CACHE_IDS) SLUICE__TRY(sluice__ids_reserve(e->out, CACHE_IDS, err));
        memcpy(e->out->data + e->out->count, s->ids, sizeof s->ids);
        e->out->count += s->count;
        return SLUICE_OK;
    }
    size_t before = e->out->count;
    SLUICE__TRY(merge_word(e, data, size, err));
    size_t n = e->out->count - before;
    if (n > CACHE_IDS) return SLUICE_OK;
    s->tag = tag;
    s->size = (uint8_t)size;
    s->count = (uint8_t)n;
    memcpy(s->data, data, size);
    memcpy(s->ids, e->out->data + before, n * sizeof *s->ids);
    return SLUICE_OK;
}
