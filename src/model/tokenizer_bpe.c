/* SPDX-License-Identifier: Apache-2.0 */
/* BPE of one pre-token: while any neighbours have a merge, the pair of lowest rank is merged, the leftmost of equals
 * first. Short pre-tokens keep symbols and pair ranks in two small arrays and look for the minimum by a linear scan;
 * long ones use a heap over a linked list, so that a megabyte without a space costs n log n. Results of short
 * pre-tokens are remembered in a direct-mapped cache of one cache line a slot: real text repeats a few thousand words.
 * The slots of a whole group of pre-tokens are asked for before the first is looked at, because each of them is a cache
 * miss of the processor. */
#include "model/tokenizer_internal.h"
#include "base/memory.h"
#include "model/utf8.h"

enum {
    SHORT = 64, /* symbols of a pre-token that is merged by scanning */
    CACHE_SLOTS = 1 << 15,
    CACHE_BYTES = 32,
    CACHE_IDS = 7,
    GROUP = 16
};
static const uint32_t NO_MERGE = SLUICE__NO_MERGE;

/* The bytes of a pre-token of at most CACHE_BYTES, told by its size and four words. */
typedef struct cache_key {
    uint64_t word[4];
} cache_key;

struct sluice__cache_slot {
    cache_key key;
    uint16_t size, count; /* size 0 = empty */
    int32_t ids[CACHE_IDS];
};
_Static_assert(sizeof(struct sluice__cache_slot) == 64, "a slot is a cache line");

struct sluice__waiting {
    const char *data;
    size_t size;
    cache_key key;
    struct sluice__cache_slot *slot; /* NULL: too long for the cache */
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
static size_t merge_short(const sluice__merges *m, uint32_t *ids, uint32_t *rank, size_t n) {
    while (n > 1) {
        size_t best = 0;
        uint32_t least = rank[0];
        for (size_t i = 1; i + 1 < n; i++) {
            bool less = rank[i] < least;
            best = less ? i : best;
            least = less ? rank[i] : least;
        }
        if (least == NO_MERGE) break;
        uint32_t id = ids[best] = m->id[least];
        n--;
        for (size_t i = best + 1; i < n; i++) ids[i] = ids[i + 1];
        for (size_t i = best; i + 1 < n; i++) rank[i] = rank[i + 1];
        if (best + 1 < n) rank[best] = sluice__merge_rank(m, id, ids[best + 1]);
        if (best) rank[best - 1] = sluice__merge_rank(m, ids[best - 1], id);
    }
    return n;
}

static size_t bpe_short(const sluice_tokenizer *tok, const unsigned char *p, size_t size, uint32_t *ids, size_t n) {
    uint32_t rank[SHORT];
    if (tok->byte_pairs) /* symbols are bytes, one each */
        for (size_t i = 0; i + 1 < size; i++) rank[i] = tok->byte_pairs[p[i] << 8 | p[i + 1]];
    else
        for (size_t i = 0; i + 1 < n; i++) rank[i] = sluice__merge_rank(&tok->vocab.merges, ids[i], ids[i + 1]);
    return merge_short(&tok->vocab.merges, ids, rank, n);
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
    const sluice__merges *merges;
    uint32_t *ids, *rank, *next, *prev;
    heap heap;
} chain;

static void push_pair(chain *c, uint32_t i) {
    uint32_t j = c->next[i];
    c->rank[i] = j == NO_MERGE ? NO_MERGE : sluice__merge_rank(c->merges, c->ids[i], c->ids[j]);
    if (c->rank[i] != NO_MERGE) sift_up(&c->heap, (uint64_t)c->rank[i] << 32 | i);
}

/* scratch: 7 n words, aligned to 8 bytes. A heap entry is stale unless the pair at its place still has its rank. At
 * most n entries from the start are alive with the two that each of n merges adds, hence 2 n of two words. */
static size_t merge_long(const sluice__merges *m, uint32_t *ids, size_t n, uint32_t *scratch) {
    chain c = {m, ids, scratch + 4 * n, scratch + 5 * n, scratch + 6 * n, {(uint64_t *)(void *)scratch, 0}};
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
        ids[i] = m->id[c.rank[i]];
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
    int32_t id = tok->byte_level ? sluice__vocab_find_bytes(&tok->vocab, data, size)
                                 : sluice__vocab_find(&tok->vocab, data, size);
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
        n = bpe_short(tok, p, size, ids, n);
    } else {
        if (n > UINT32_MAX / 7)
            return sluice__fail(err, SLUICE_ERR_ARGUMENT, "a pre-token of %zu bytes is too long", size);
        if (e->words_capacity < 7 * n) {
            sluice__free(e->words);
            e->words_capacity = 0;
            e->words = sluice__calloc(7 * n, sizeof *e->words, SLUICE__MEM_DATA);
            if (!e->words) return sluice__no_memory(err, 7 * n * sizeof *e->words, "merging a long pre-token");
            e->words_capacity = 7 * n;
        }
        n = merge_long(&tok->vocab.merges, ids, n, e->words);
    }
    e->out->count += n;
    return SLUICE_OK;
}

/* ---- the cache ---- */
static sluice_status new_cache(sluice__encoder *e, sluice_error *err) {
    if (!e->cache) e->cache = sluice__calloc(CACHE_SLOTS, sizeof *e->cache, SLUICE__MEM_DATA);
    e->waiting = sluice__calloc(GROUP, sizeof *e->waiting, SLUICE__MEM_DATA);
    return e->cache && e->waiting ? SLUICE_OK
                                  : sluice__no_memory(err, CACHE_SLOTS * sizeof *e->cache, "the pre-token cache");
}

static bool same(const cache_key *a, const cache_key *b) {
    return ((a->word[0] ^ b->word[0]) | (a->word[1] ^ b->word[1]) | (a->word[2] ^ b->word[2]) |
            (a->word[3] ^ b->word[3])) == 0;
}

static sluice_status resolve(sluice__encoder *e, const struct sluice__waiting *w, sluice_error *err) {
    struct sluice__cache_slot *s = w->slot;
    sluice_ids *out = e->out;
    if (!s) return merge_word(e, w->data, w->size, err);
    if (s->size == w->size && same(&s->key, &w->key)) {
        if (out->capacity - out->count < CACHE_IDS) SLUICE__TRY(sluice__ids_reserve(out, CACHE_IDS, err));
        memcpy(out->data + out->count, s->ids, sizeof s->ids);
        out->count += s->count;
        return SLUICE_OK;
    }
    size_t before = out->count;
    SLUICE__TRY(merge_word(e, w->data, w->size, err));
    size_t n = out->count - before;
    if (n > CACHE_IDS) return SLUICE_OK;
    s->key = w->key;
    s->size = (uint16_t)w->size;
    s->count = (uint16_t)n;
    memcpy(s->ids, out->data + before, n * sizeof *s->ids);
    return SLUICE_OK;
}

sluice_status sluice__bpe_flush(sluice__encoder *e, sluice_error *err) {
    int n = e->num_waiting;
    e->num_waiting = 0;
    for (int i = 0; i < n; i++) SLUICE__TRY(resolve(e, &e->waiting[i], err));
    return SLUICE_OK;
}

sluice_status sluice__bpe(sluice__encoder *e, const char *data, size_t size, sluice_error *err) {
    if (!e->waiting) SLUICE__TRY(new_cache(e, err));
    struct sluice__waiting *w = &e->waiting[e->num_waiting++];
    w->data = data;
    w->size = size;
    w->slot = NULL;
    if (size <= CACHE_BYTES) {
        uint64_t hash = size;
        w->key = (cache_key){{0, 0, 0, 0}};
        sluice__two_words(data, size > 16 ? 16 : size, &w->key.word[0], &w->key.word[1]);
        if (size > 16) {
            sluice__two_words(data + size - 16, 16, &w->key.word[2], &w->key.word[3]);
            hash = sluice__mix(w->key.word[2] ^ size, w->key.word[3]);
        }
        hash = sluice__mix(hash ^ w->key.word[0], w->key.word[1]);
        w->slot = &e->cache[hash & (CACHE_SLOTS - 1)];
        __builtin_prefetch(w->slot, 1);
    }
    return e->num_waiting == GROUP ? sluice__bpe_flush(e, err) : SLUICE_OK;
}
