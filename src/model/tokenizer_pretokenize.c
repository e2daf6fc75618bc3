/* SPDX-License-Identifier: Apache-2.0 */
/* Cutting normalised text into pre-tokens. The steps of a file's pre-tokenizer are a list; each cuts a piece and hands
 * the parts to the next step at once, depth first, so that only the parts of one piece per step are ever held. A known
 * pattern hands over each pre-token as it finds it. */
#include "model/tokenizer_internal.h"
#include "base/memory.h"
#include "model/utf8.h"
#include <utf8proc.h>

typedef const unsigned char *at;

typedef struct walk {
    sluice__encoder *e;
    sluice__piece_fn emit;
    void *user;
} walk;

static sluice_status feed(const walk *w, int step, sluice__span text, bool first, sluice_error *err);

static sluice_status put(sluice__pieces *list, size_t start, size_t end, bool match, sluice_error *err) {
    if (list->count == list->capacity) {
        size_t n = list->capacity ? list->capacity * 2 : 64;
        void *fresh = sluice__realloc(list->at, n, sizeof *list->at, SLUICE__MEM_DATA);
        if (!fresh) return sluice__no_memory(err, n * sizeof *list->at, "pre-tokens");
        list->at = fresh;
        list->capacity = n;
    }
    list->at[list->count++] = (sluice__piece){start, end, match};
    return SLUICE_OK;
}

/* Fills the list with a pattern's matches and the gaps between them, which together cover the text. */
static sluice_status by_pattern(sluice__encoder *e, const sluice__pre_step *s, sluice__span text, sluice__pieces *list,
                                sluice_error *err) {
    size_t done = 0, start, end;
    sluice__matches m = sluice__matches_of(&s->pattern, &e->matcher, text);
    for (;;) {
        bool found;
        SLUICE__TRY(sluice__match_next(&m, &found, &start, &end, err));
        if (!found) break;
        if (start > done) SLUICE__TRY(put(list, done, start, false, err));
        SLUICE__TRY(put(list, start, end, true, err));
        done = end;
    }
    return done < text.size ? put(list, done, text.size, false, err) : SLUICE_OK;
}

static bool is_match(const sluice__pre_step *s, uint32_t c) {
    sluice__char_class k = sluice__char_class_of(c);
    switch (s->kind) {
    case SLUICE__PRE_DIGITS:
        return k == SLUICE__CHAR_NUMBER;
    case SLUICE__PRE_SPACE:
        return k == SLUICE__CHAR_SPACE || k == SLUICE__CHAR_NEWLINE;
    default: /* punctuation: Unicode's and the ASCII symbols */
        return k == SLUICE__CHAR_PUNCTUATION || (c < 0x80 && c > 0x20 && c < 0x7F && k == SLUICE__CHAR_OTHER);
    }
}

/* The same where a match is one character of a class. */
static sluice_status by_class(const sluice__pre_step *s, sluice__span text, sluice__pieces *list, sluice_error *err) {
    at start = (at)text.data, end = start + text.size, gap = start;
    int n;
    for (at p = start; p < end; p += n) {
        if (!is_match(s, sluice__utf8_get(p, &n))) continue;
        if (p > gap) SLUICE__TRY(put(list, (size_t)(gap - start), (size_t)(p - start), false, err));
        SLUICE__TRY(put(list, (size_t)(p - start), (size_t)(p + n - start), true, err));
        gap = p + n;
    }
    return gap < end ? put(list, (size_t)(gap - start), text.size, false, err) : SLUICE_OK;
}

/* \w+|[^\w\s]+ are matches, white space is not. */
static sluice_status by_words(sluice__span text, sluice__pieces *list, sluice_error *err) {
    at start = (at)text.data, end = start + text.size, from = start;
    int n, kind = -1;
    for (at p = start; p < end; p += n) {
        uint32_t c = sluice__utf8_get(p, &n);
        int now = sluice__char_is_space(c) ? 0 : sluice__char_is_word(c) ? 1 : 2;
        if (now != kind && p > from) {
            SLUICE__TRY(put(list, (size_t)(from - start), (size_t)(p - start), kind != 0, err));
            from = p;
        }
        kind = now;
    }
    return end > from ? put(list, (size_t)(from - start), text.size, kind != 0, err) : SLUICE_OK;
}

/* Joins or drops neighbours. Every behaviour keeps the order, so it is done in place; a piece to drop becomes empty. */
static void behave(sluice__pieces *list, sluice__behavior behavior, bool invert) {
    sluice__piece *p = list->at;
    size_t n = list->count, out = 0;
    bool previous = false;
    for (size_t i = 0; i < n && invert; i++) p[i].match = !p[i].match;
    if (behavior == SLUICE__MERGED_WITH_NEXT) {
        for (size_t i = n; i-- > 0;) {
            bool match = p[i].match, join = match && !previous && i + 1 < n;
            if (join) {
                p[i].end = p[i + 1].end;
                p[i + 1].end = p[i + 1].start;
            }
            previous = match;
        }
        return;
    }
    for (size_t i = 0; i < n; i++) {
        bool match = p[i].match, join = false;
        if (behavior == SLUICE__REMOVED && match) continue;
        if (behavior == SLUICE__CONTIGUOUS) join = match == previous && out > 0;
        if (behavior == SLUICE__MERGED_WITH_PREVIOUS) join = match && !previous && out > 0;
        previous = match;
        if (join)
            p[out - 1].end = p[i].end;
        else
            p[out++] = p[i];
    }
    list->count = out;
}

static sluice_status cut(const walk *w, int step, sluice__span text, bool first, sluice_error *err) {
    const sluice__pre_step *s = &w->e->tok->pre[step];
    sluice__pieces *list = &w->e->pieces[step];
    list->count = 0;
    if (s->kind == SLUICE__PRE_SPLIT || s->kind == SLUICE__PRE_METASPACE)
        SLUICE__TRY(by_pattern(w->e, s, text, list, err));
    else if (s->kind == SLUICE__PRE_WORDS)
        SLUICE__TRY(by_words(text, list, err));
    else
        SLUICE__TRY(by_class(s, text, list, err));
    behave(list, s->behavior, s->invert);
    for (size_t i = 0; i < list->count; i++) {
        sluice__piece p = list->at[i];
        if (p.end == p.start) continue;
        SLUICE__TRY(
            feed(w, step + 1, (sluice__span){text.data + p.start, p.end - p.start}, first && p.start == 0, err));
    }
    return SLUICE_OK;
}

static sluice_status known(const walk *w, int step, sluice__span text, bool first, sluice_error *err) {
    const sluice__known *k = w->e->tok->pre[step].pattern.known;
    bool last = step + 1 == w->e->tok->num_pre;
    at p = (at)text.data, end = p + text.size;
    while (p < end) {
        at q = sluice__known_next(k, p, end);
        sluice__span piece = {(const char *)p, (size_t)(q - p)};
        if (last)
            SLUICE__TRY(w->emit(w->e, piece.data, piece.size, w->user, err));
        else
            SLUICE__TRY(feed(w, step + 1, piece, first && piece.data == text.data, err));
        p = q;
    }
    return SLUICE_OK;
}

/* " " becomes the replacement, which may also be put in front. */
static sluice_status metaspace(const walk *w, int step, sluice__span text, bool first, sluice_error *err) {
    const sluice__pre_step *s = &w->e->tok->pre[step];
    sluice__strbuf *out = &w->e->changed[step];
    size_t n = strlen(s->replacement);
    SLUICE__TRY(sluice__bpe_flush(w->e, err)); /* what waits may lie in the buffer */
    out->size = 0;
    bool there = text.size && (text.data[0] == ' ' || (text.size >= n && !memcmp(text.data, s->replacement, n)));
    if (!there && (s->prepend == SLUICE__PREPEND_ALWAYS || (s->prepend == SLUICE__PREPEND_FIRST && first)))
        sluice__strbuf_add(out, s->replacement, n);
    for (const char *p = text.data, *end = p + text.size; p < end;) {
        const char *q = memchr(p, ' ', (size_t)(end - p));
        sluice__strbuf_add(out, p, (size_t)((q ? q : end) - p));
        if (q) sluice__strbuf_add(out, s->replacement, n);
        p = q ? q + 1 : end;
    }
    if (out->failed) return sluice__no_memory(err, text.size, "pre-tokens");
    sluice__span changed = {out->data ? out->data : "", out->size};
    return s->split ? cut(w, step, changed, first, err) : feed(w, step + 1, changed, first, err);
}

static sluice_status prefix_space(const walk *w, int step, sluice__span text, bool first, sluice_error *err) {
    if (text.data[0] == ' ') return feed(w, step + 1, text, first, err);
    sluice__strbuf *out = &w->e->changed[step];
    SLUICE__TRY(sluice__bpe_flush(w->e, err)); /* what waits may lie in the buffer */
    out->size = 0;
    sluice__strbuf_add(out, " ", 1);
    sluice__strbuf_add(out, text.data, text.size);
    if (out->failed) return sluice__no_memory(err, text.size, "pre-tokens");
    return feed(w, step + 1, (sluice__span){out->data, out->size}, first, err);
}

static sluice_status feed(const walk *w, int step, sluice__span text, bool first, sluice_error *err) {
    if (text.size == 0) return SLUICE_OK;
    if (step == w->e->tok->num_pre) return w->emit(w->e, text.data, text.size, w->user, err);
    switch (w->e->tok->pre[step].kind) {
    case SLUICE__PRE_KNOWN:
        return known(w, step, text, first, err);
    case SLUICE__PRE_METASPACE:
        return metaspace(w, step, text, first, err);
    case SLUICE__PRE_PREFIX_SPACE:
        return prefix_space(w, step, text, first, err);
    default:
        return cut(w, step, text, first, err);
    }
}

sluice_status sluice__pretokenize(sluice__encoder *e, const char *text, size_t size, bool at_start,
                                  sluice__piece_fn emit, void *user, sluice_error *err) {
    walk w = {e, emit, user};
    return feed(&w, 0, (sluice__span){text, size}, at_start, err);
}
