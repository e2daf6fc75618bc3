/* SPDX-License-Identifier: Apache-2.0 */
/* The vocabulary: an array by id, one arena for all texts, and two open-addressing tables (spelling -> id, pair ->
 * merge) with linear probing, because a lookup then costs one cache miss as a rule. Tables are filled to at most two
 * thirds. */
#include "model/tokenizer_internal.h"
#include "base/memory.h"
#include "model/utf8.h"

enum { MIN_TABLE = 64 };

static uint64_t table_size(uint64_t entries) {
    uint64_t n = MIN_TABLE;
    while (n * 2 < entries * 3) n *= 2;
    return n;
}

static bool grow(void **block, size_t *capacity, size_t need, size_t size) {
    if (need <= *capacity) return true;
    size_t n = *capacity ? *capacity : 64;
    while (n < need) n *= 2;
    void *fresh = sluice__realloc(*block, n, size, SLUICE__MEM_DATA);
    if (!fresh) return false;
    *block = fresh;
    *capacity = n;
    return true;
}

static uint64_t *new_index(uint64_t size) {
    return sluice__calloc(size, sizeof(uint64_t), SLUICE__MEM_DATA);
}

static uint64_t index_entry(uint64_t hash, int32_t id) {
    return (hash & 0xFFFFFFFF00000000ULL) | (uint32_t)(id + 1);
}

static int32_t entry_id(uint64_t entry) {
    return (int32_t)(uint32_t)entry - 1;
}

static void index_put(uint64_t *index, uint64_t mask, uint64_t hash, int32_t id) {
    uint64_t i = hash & mask;
    while (index[i]) i = (i + 1) & mask;
    index[i] = index_entry(hash, id);
}

static sluice_status rebuild_index(sluice__vocab *v, uint64_t size, sluice_error *err) {
    uint64_t *index = new_index(size);
    if (!index) return sluice__no_memory(err, size * sizeof *index, "a vocabulary index");
    for (int32_t id = 0; id < v->size; id++)
        if (v->tokens[id].flags)
            index_put(index, size - 1, sluice__hash_span(sluice__token_text(v, id), v->tokens[id].text_size), id);
    sluice__free(v->index);
    v->index = index;
    v->index_mask = size - 1;
    return SLUICE_OK;
}

sluice_status sluice__vocab_reserve(sluice__vocab *v, size_t tokens, size_t bytes, sluice_error *err) {
    void *arena = v->arena, *table = v->tokens;
    size_t capacity = (size_t)v->capacity;
    if (bytes > UINT32_MAX - 1 || !grow(&arena, &v->arena_capacity, bytes, 1))
        return sluice__no_memory(err, bytes, "the texts of a vocabulary");
    v->arena = arena;
    if (!grow(&table, &capacity, tokens, sizeof *v->tokens))
        return sluice__no_memory(err, tokens * sizeof *v->tokens, "a vocabulary");
    v->tokens = table;
    v->capacity = (int32_t)capacity;
    uint64_t need = table_size(tokens);
    return v->index && need <= v->index_mask + 1 ? SLUICE_OK : rebuild_index(v, need, err);
}

static uint32_t arena_put(sluice__vocab *v, const char *data, size_t size) {
    uint32_t at = (uint32_t)v->arena_size;
    if (size) memcpy(v->arena + at, data, size);
    v->arena[at + size] = '\0';
    v->arena_size += size + 1;
    return at;
}

static int shown(size_t size) {
    return size > 60 ? 60 : (int)size;
}

sluice_status sluice__vocab_add(sluice__vocab *v, const char *file, int64_t id, sluice__span text, unsigned flags,
                                sluice_error *err) {
    if (id < 0 || id > SLUICE__MAX_TOKEN_ID)
        return sluice__fail(err, SLUICE_ERR_CONFIG, "%s: id of token \"%.*s\": found %lld, expected 0..%d", file,
                            shown(text.size), text.data, (long long)id, SLUICE__MAX_TOKEN_ID);
    size_t top = (size_t)(id >= v->size ? id + 1 : v->size);
    SLUICE__TRY(sluice__vocab_reserve(v, top, v->arena_size + text.size + 1, err));
    if (v->tokens[id].flags)
        return sluice__fail(err, SLUICE_ERR_CONFIG, "%s: id %lld belongs to two tokens, \"%.60s\" and \"%.*s\"", file,
                            (long long)id, sluice__token_text(v, (int32_t)id), shown(text.size), text.data);
    uint64_t hash = sluice__hash_span(text.data, text.size), i = hash & v->index_mask;
    for (; v->index[i]; i = (i + 1) & v->index_mask) {
        const sluice__token *t = &v->tokens[entry_id(v->index[i])];
        if ((v->index[i] ^ hash) >> 32 == 0 && t->text_size == text.size &&
            !memcmp(v->arena + t->text, text.data, text.size))
            return sluice__fail(err, SLUICE_ERR_CONFIG, "%s: token \"%.*s\" has two ids, %d and %lld", file,
                                shown(text.size), text.data, entry_id(v->index[i]), (long long)id);
    }
    v->index[i] = index_entry(hash, (int32_t)id);
    v->size = (int32_t)top;
    v->used++;
    sluice__token *t = &v->tokens[id];
    t->text = t->bytes = arena_put(v, text.data, text.size);
    t->text_size = t->bytes_size = (uint32_t)text.size;
    t->flags = flags;
    return SLUICE_OK;
}

void sluice__vocab_set_bytes(sluice__vocab *v, int32_t id, const char *bytes, size_t size) {
    v->tokens[id].bytes = arena_put(v, bytes, size);
    v->tokens[id].bytes_size = (uint32_t)size;
}

int32_t sluice__vocab_find(const sluice__vocab *v, const char *text, size_t size) {
    if (!v->index) return -1;
    uint64_t hash = sluice__hash_span(text, size);
    for (uint64_t i = hash & v->index_mask; v->index[i]; i = (i + 1) & v->index_mask) {
        if ((v->index[i] ^ hash) >> 32) continue;
        const sluice__token *t = &v->tokens[entry_id(v->index[i])];
        if (t->text_size == size && !memcmp(v->arena + t->text, text, size)) return entry_id(v->index[i]);
    }
    return -1;
}

sluice_status sluice__vocab_index_bytes(sluice__vocab *v, sluice_error *err) {
    uint64_t size = table_size((uint64_t)v->used);
    v->byte_index = new_index(size);
    if (!v->byte_index) return sluice__no_memory(err, size * sizeof *v->byte_index, "a vocabulary index");
    v->byte_index_mask = size - 1;
    for (int32_t id = 0; id < v->size; id++) {
        const sluice__token *t = &v->tokens[id];
        if (t->flags & SLUICE__TOKEN_MODEL)
            index_put(v->byte_index, v->byte_index_mask, sluice__hash_span(v->arena + t->bytes, t->bytes_size), id);
    }
    return SLUICE_OK;
}

int32_t sluice__vocab_find_bytes(const sluice__vocab *v, const char *bytes, size_t size) {
    uint64_t hash = sluice__hash_span(bytes, size);
    for (uint64_t i = hash & v->byte_index_mask; v->byte_index[i]; i = (i + 1) & v->byte_index_mask) {
        if ((v->byte_index[i] ^ hash) >> 32) continue;
        const sluice__token *t = &v->tokens[entry_id(v->byte_index[i])];
        if (t->bytes_size == size && !memcmp(v->arena + t->bytes, bytes, size)) return entry_id(v->byte_index[i]);
    }
    return -1;
}

sluice_status sluice__merges_reserve(sluice__vocab *v, size_t count, sluice_error *err) {
    sluice__merges *m = &v->merges;
    uint64_t size = table_size(count);
    m->wide = v->size >= 1 << SLUICE__NARROW_ID_BITS || count >= 1 << SLUICE__NARROW_RANK_BITS;
    if (count > INT32_MAX)
        return sluice__fail(err, SLUICE_ERR_CONFIG, "model.merges: %zu merges, expected at most %d", count, INT32_MAX);
    m->slots = sluice__calloc(size, m->wide ? 16 : 8, SLUICE__MEM_DATA);
    m->id = sluice__calloc(count, sizeof *m->id, SLUICE__MEM_DATA);
    m->filter = sluice__calloc(size / 8, sizeof *m->filter, SLUICE__MEM_DATA);
    if (!m->slots || !m->id || !m->filter) return sluice__no_memory(err, sluice__mul_size(size, 16), "merges");
    memset(m->slots, 0xFF, size * (m->wide ? 16 : 8));
    m->mask = size - 1;
    m->filter_mask = size * 8 - 1;
    m->capacity = (int32_t)count;
    return SLUICE_OK;
}

void sluice__merges_add(sluice__vocab *v, uint32_t left, uint32_t right, uint32_t id) {
    sluice__merges *m = &v->merges;
    uint64_t key = (uint64_t)left << 32 | right, h = sluice__mix(key, key), i = h & m->mask,
             f = h >> 32 & m->filter_mask;
    uint32_t rank = (uint32_t)m->count++;
    m->filter[f >> 6] |= (uint64_t)1 << (f & 63);
    m->id[rank] = id;
    if (m->wide) {
        while (m->slots[2 * i] != UINT64_MAX && m->slots[2 * i] != key) i = (i + 1) & m->mask;
        m->slots[2 * i] = key;
        m->slots[2 * i + 1] = rank;
        return;
    }
    uint64_t want = (uint64_t)left << SLUICE__NARROW_ID_BITS | right;
    while (m->slots[i] != UINT64_MAX && m->slots[i] >> SLUICE__NARROW_RANK_BITS != want) i = (i + 1) & m->mask;
    m->slots[i] = want << SLUICE__NARROW_RANK_BITS | rank;
}

void sluice__vocab_free(sluice__vocab *v) {
    sluice__free(v->tokens);
    sluice__free(v->arena);
    sluice__free(v->index);
    sluice__free(v->byte_index);
    sluice__free(v->merges.slots);
    sluice__free(v->merges.id);
    sluice__free(v->merges.filter);
    *v = (sluice__vocab){0};
}

/* GPT-2's table: bytes that print as themselves in Latin-1 keep their code point, the others follow from U+0100 on. */
static bool prints(unsigned byte) {
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

uint32_t sluice__byte_char(unsigned byte) {
    if (prints(byte)) return byte;
    return 256 + (byte < 33 ? byte : byte <= 160 ? byte - 127 + 33 : 67);
}

int sluice__char_byte(uint32_t c) {
    if (c < 256) return prints(c) ? (int)c : -1;
    if (c < 256 + 33) return (int)c - 256;
    if (c < 256 + 67) return (int)c - 256 - 33 + 127;
    return c == 256 + 67 ? 173 : -1;
}

bool sluice__add_byte_chars(sluice__strbuf *out, sluice__span text) {
    const unsigned char *p = (const unsigned char *)text.data, *end = p + text.size;
    for (int n; p < end; p += n) {
        int byte = sluice__char_byte(sluice__utf8_get(p, &n));
        char c = (char)byte;
        if (byte < 0) return false;
        sluice__strbuf_add(out, &c, 1);
    }
    return true;
}
