/* SPDX-License-Identifier: Apache-2.0 */
/* Added tokens in a text: the leftmost match, of those the longest, found through a trie. Most text has no first byte
 * of any of them, and then one memchr or one table pass is all that it costs. */
#include "model/tokenizer_internal.h"
#include "base/memory.h"
#include "model/utf8.h"

static uint32_t new_node(sluice__trie *t, unsigned char byte) {
    if (t->count == t->capacity) {
        uint32_t n = t->capacity ? t->capacity * 2 : 256;
        void *fresh = sluice__realloc(t->nodes, n, sizeof *t->nodes, SLUICE__MEM_DATA);
        if (!fresh) return 0;
        t->nodes = fresh;
        t->capacity = n;
        if (!t->count) t->count = 1;
    }
    t->nodes[t->count] = (sluice__trie_node){0, 0, -1, byte};
    return t->count++;
}

static uint32_t find_child(const sluice__trie *t, uint32_t node, unsigned char byte) {
    uint32_t c = t->nodes[node].child;
    while (c && t->nodes[c].byte != byte) c = t->nodes[c].sibling;
    return c;
}

static bool trie_add(sluice__trie *t, const char *text, size_t size, int token) {
    unsigned char first = (unsigned char)text[0];
    if (!t->first[first]) {
        t->first[first] = new_node(t, first);
        t->num_first++;
        t->only = first;
    }
    uint32_t node = t->first[first];
    for (size_t i = 1; i < size && node; i++) {
        uint32_t c = find_child(t, node, (unsigned char)text[i]);
        if (!c && (c = new_node(t, (unsigned char)text[i]))) {
            t->nodes[c].sibling = t->nodes[node].child;
            t->nodes[node].child = c;
        }
        node = c;
    }
    if (node && t->nodes[node].token < 0) t->nodes[node].token = token;
    return node != 0;
}

/* The content of an added token after the normalisers. */
static sluice_status normalize_content(sluice_tokenizer *tok, sluice__added *a, sluice__span *text, sluice_error *err) {
    sluice__encoder *e;
    sluice__span normal;
    SLUICE__TRY(sluice__encoder_get(&e, tok, err));
    sluice_status st = sluice__normalize(e, text->data, text->size, &normal, err);
    if (st == SLUICE_OK && (normal.size != text->size || memcmp(normal.data, text->data, normal.size))) {
        a->normal = sluice__strndup(normal.data, normal.size);
        a->normal_size = normal.size;
        tok->vocab.tokens[a->id].flags |= SLUICE__TOKEN_NORMALIZED;
        if (!a->normal) st = sluice__no_memory(err, normal.size, "added tokens");
        *text = (sluice__span){a->normal, normal.size};
    }
    sluice__encoder_put(e);
    return st;
}

sluice_status sluice__build_tries(sluice_tokenizer *tok, sluice_error *err) {
    for (int i = 0; i < tok->num_added; i++) {
        sluice__added *a = &tok->added[i];
        sluice__span text = {sluice__token_text(&tok->vocab, a->id), tok->vocab.tokens[a->id].text_size};
        if (a->normalized && tok->num_norm) SLUICE__TRY(normalize_content(tok, a, &text, err));
        if (!text.size) continue;
        if (!trie_add(a->normalized ? &tok->normalized_trie : &tok->raw_trie, text.data, text.size, i))
            return sluice__no_memory(err, text.size, "added tokens");
        if (a->lstrip || a->rstrip || memchr(text.data, ' ', text.size) || memchr(text.data, '\n', text.size))
            tok->added_blocks_cuts = true;
    }
    return SLUICE_OK;
}

sluice__span sluice__decoded_text(const sluice_tokenizer *tok, int32_t id) {
    const sluice__token *t = &tok->vocab.tokens[id];
    for (int i = 0; i < tok->num_added && t->flags & SLUICE__TOKEN_NORMALIZED; i++)
        if (tok->added[i].id == id) return (sluice__span){tok->added[i].normal, tok->added[i].normal_size};
    return (sluice__span){tok->vocab.arena + t->text, t->text_size};
}

static const unsigned char *candidate(const sluice__trie *t, const unsigned char *p, const unsigned char *end) {
    if (t->num_first == 1) {
        p = memchr(p, t->only, (size_t)(end - p));
        return p ? p : end;
    }
    while (p < end && !t->first[*p]) p++;
    return p;
}

/* The longest token that begins at p, or -1. */
static int longest(const sluice__trie *t, const unsigned char *p, const unsigned char *end, size_t *size) {
    const unsigned char *q = p;
    int token = -1;
    for (uint32_t node = t->first[*q]; node; node = q < end ? find_child(t, node, *q) : 0) {
        q++;
        if (t->nodes[node].token < 0) continue;
        token = t->nodes[node].token;
        *size = (size_t)(q - p);
    }
    return token;
}

static bool word_before(const char *text, const char *start) {
    if (start == text) return false;
    int n;
    return sluice__char_is_word(sluice__utf8_get(sluice__utf8_back((const unsigned char *)start), &n));
}

static bool word_after(const char *p, const char *end) {
    int n;
    return p < end && sluice__char_is_word(sluice__utf8_get((const unsigned char *)p, &n));
}

bool sluice__added_next(sluice__added_search *s, unsigned flags) {
    const sluice_tokenizer *tok = s->tok;
    const char *text = s->text.data, *end = text + s->text.size;
    if (!s->trie->num_first) return false;
    while (s->from < s->text.size) {
        const unsigned char *p = candidate(s->trie, (const unsigned char *)text + s->from, (const unsigned char *)end);
        size_t size = 0;
        if ((const char *)p == end) break;
        int token = longest(s->trie, p, (const unsigned char *)end, &size);
        s->from = (size_t)((const char *)p - text) + (token < 0 ? 1 : size);
        if (token < 0) continue;
        const sluice__added *a = &tok->added[token];
        const char *start = (const char *)p, *stop = start + size;
        if (a->special && !(flags & SLUICE_ENCODE_PARSE_SPECIAL)) continue;
        if (a->single_word && (word_before(text, start) || word_after(stop, end))) continue;
        int n;
        while (a->lstrip && start > text + s->done) {
            const unsigned char *back = sluice__utf8_back((const unsigned char *)start);
            if (!sluice__char_is_space(sluice__utf8_get(back, &n))) break;
            start = (const char *)back;
        }
        while (a->rstrip && stop < end && sluice__char_is_space(sluice__utf8_get((const unsigned char *)stop, &n)))
            stop += n;
        s->gap = (sluice__span){text + s->done, start > text + s->done ? (size_t)(start - text) - s->done : 0};
        s->id = a->id;
        s->done = (size_t)(stop - text);
        return true;
    }
    return false;
}
