/* SPDX-License-Identifier: Apache-2.0 */
/* The two big values of a tokenizer.json, model.vocab and model.merges, hold hundreds of thousands of strings. Building
 * a JSON tree of them costs more than all the rest of loading, so one pass over the file reads them straight into the
 * vocabulary and notes where they lie. The rest of the file, with the two replaced by empty ones, goes through the
 * ordinary JSON parser afterwards, which also is the judge of its syntax. */
#include "model/tokenizer_internal.h"
#include "base/memory.h"
#include "model/tokenizer_json.h"
#include "model/utf8.h"

enum { DEPTH = 512 };

typedef struct scanner {
    const char *p, *end, *begin, *file;
    sluice__strbuf text[3]; /* unescaped strings: up to three at a time */
    sluice__vocab *vocab;
    int32_t guess;                    /* id of the token that the next merge probably makes */
    sluice__span vocab_at, merges_at; /* where the two values lie; data NULL = not seen */
    sluice_error *err;
} scanner;

static sluice_status bad(scanner *s, const char *field, const char *what) {
    int line = 1;
    for (const char *q = s->begin; q < s->p && q < s->end; q++) line += *q == '\n';
    return sluice__fail(s->err, SLUICE_ERR_FORMAT, "%s: not valid JSON: line %d, byte %zu%s%s: %s", s->file, line,
                        (size_t)(s->p - s->begin), *field ? ", in " : "", field, what);
}

static void blank(scanner *s) {
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\r' || *s->p == '\t')) s->p++;
}

static bool take(scanner *s, char c) {
    blank(s);
    if (s->p == s->end || *s->p != c) return false;
    s->p++;
    return true;
}

static int hex4(scanner *s) {
    if (s->end - s->p < 4) return -1;
    int value = 0;
    for (int i = 0; i < 4; i++) {
        char c = s->p[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                           : -1;
        if (digit < 0) return -1;
        value = value * 16 + digit;
    }
    s->p += 4;
    return value;
}

/* Behind a backslash. */
static bool unescape(scanner *s, sluice__strbuf *out) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (s->p == s->end) return false;
    const char *known = *s->p ? strchr(from, *s->p) : NULL;
    if (known) {
        sluice__strbuf_add(out, to + (known - from), 1);
        s->p++;
        return true;
    }
    if (*s->p != 'u') return false;
    s->p++;
    int c = hex4(s), low = 0;
    if (c < 0 || (c >= 0xDC00 && c < 0xE000)) return false;
    if (c >= 0xD800 && c < 0xDC00) {
        if (s->end - s->p < 2 || s->p[0] != '\\' || s->p[1] != 'u') return false;
        s->p += 2;
        low = hex4(s);
        if (low < 0xDC00 || low > 0xDFFF) return false;
        c = 0x10000 + (c - 0xD800) * 0x400 + (low - 0xDC00);
    }
    char buffer[4];
    sluice__strbuf_add(out, buffer, (size_t)sluice__utf8_put(buffer, (uint32_t)c));
    return true;
}

/* A string; *out points into the file where nothing is escaped, otherwise into buffer `slot`. */
static sluice_status string(scanner *s, const char *field, int slot, sluice__span *out) {
    if (!take(s, '"')) return bad(s, field, "expected a string");
    const char *start = s->p;
    while (s->p < s->end && *s->p != '"' && *s->p != '\\' && (unsigned char)*s->p >= 0x20) s->p++;
    *out = (sluice__span){start, (size_t)(s->p - start)};
    if (s->p < s->end && *s->p == '\\') {
        sluice__strbuf *b = &s->text[slot];
        b->size = 0;
        sluice__strbuf_add(b, start, out->size);
        while (s->p < s->end && *s->p != '"') {
            if ((unsigned char)*s->p < 0x20) return bad(s, field, "a control character in a string");
            if (*s->p != '\\')
                sluice__strbuf_add(b, s->p++, 1);
            else if (s->p++, !unescape(s, b))
                return bad(s, field, "a wrong escape in a string");
        }
        if (b->failed) return sluice__no_memory(s->err, b->size, "a string");
        *out = (sluice__span){b->data, b->size};
    }
    if (s->p == s->end || *s->p != '"')
        return bad(s, field, s->p == s->end ? "a string without its end" : "a control character in a string");
    s->p++;
    if (sluice__utf8_valid_prefix(out->data, out->size) != out->size) return bad(s, field, "a string is not UTF-8");
    return SLUICE_OK;
}

/* Passes over one value of any kind. Only brackets and strings matter: the parser checks the rest. */
static sluice_status skip_value(scanner *s) {
    char stack[DEPTH];
    int depth = 0;
    do {
        blank(s);
        if (s->p == s->end) return bad(s, "", "the file ends early");
        char c = *s->p;
        if (c == '"') {
            for (s->p++; s->p < s->end && *s->p != '"'; s->p++)
                if (*s->p == '\\' && ++s->p == s->end) break;
            if (s->p == s->end) return bad(s, "", "a string without its end");
            s->p++;
        } else if (c == '{' || c == '[') {
            if (depth == DEPTH) return bad(s, "", "nested too deeply");
            stack[depth++] = c;
            s->p++;
        } else if (c == '}' || c == ']') {
            if (!depth || stack[--depth] != (c == '}' ? '{' : '[')) return bad(s, "", "a bracket that closes nothing");
            s->p++;
        } else if ((c == ',' || c == ':') && depth) {
            s->p++;
        } else {
            const char *start = s->p;
            while (s->p < s->end && !strchr(" \n\r\t,:{}[]\"", *s->p)) s->p++;
            if (s->p == start) return bad(s, "", "expected a value");
        }
    } while (depth);
    return SLUICE_OK;
}

/* A non-negative integer; anything else is refused with what was found. */
static sluice_status token_id(scanner *s, sluice__span token, int64_t *id) {
    blank(s);
    const char *start = s->p;
    int64_t value = 0;
    while (s->p < s->end && *s->p >= '0' && *s->p <= '9' && value <= SLUICE__MAX_TOKEN_ID)
        value = value * 10 + (*s->p++ - '0');
    if (s->p == s->end) return bad(s, "model.vocab", "the file ends early");
    bool ends = strchr(" \n\r\t,}", *s->p) != NULL;
    if (s->p > start && ends && value <= SLUICE__MAX_TOKEN_ID) {
        *id = value;
        return SLUICE_OK;
    }
    const char *q = start;
    while (q < s->end && q - start < 24 && !strchr(" \n\r\t,}", *q)) q++;
    return sluice__fail(
        s->err, SLUICE_ERR_CONFIG, "%s: model.vocab: id of token \"%.*s\": found %.*s, expected an integer 0..%d",
        s->file, token.size > 60 ? 60 : (int)token.size, token.data, (int)(q - start), start, SLUICE__MAX_TOKEN_ID);
}

/* {"token": id, ...} */
static sluice_status vocab_entries(scanner *s) {
    s->p++;
    if (take(s, '}')) return SLUICE_OK;
    do {
        sluice__span token;
        int64_t id = 0;
        SLUICE__TRY(string(s, "model.vocab", 0, &token));
        if (!take(s, ':')) return bad(s, "model.vocab", "expected ':'");
        SLUICE__TRY(token_id(s, token, &id));
        SLUICE__TRY(sluice__vocab_add(s->vocab, s->file, id, token, SLUICE__TOKEN_MODEL, s->err));
    } while (take(s, ','));
    return take(s, '}') ? SLUICE_OK : bad(s, "model.vocab", "expected ',' or '}'");
}

static sluice_status merge_pair(scanner *s, sluice__span pair[2], int64_t number) {
    if (take(s, '[')) {
        SLUICE__TRY(string(s, "model.merges", 0, &pair[0]));
        if (!take(s, ',')) return bad(s, "model.merges", "expected two strings");
        SLUICE__TRY(string(s, "model.merges", 1, &pair[1]));
        return take(s, ']') ? SLUICE_OK : bad(s, "model.merges", "expected two strings");
    }
    sluice__span both;
    SLUICE__TRY(string(s, "model.merges", 0, &both));
    const char *space = memchr(both.data, ' ', both.size), *end = both.data + both.size;
    if (both.size >= 8 && !memcmp(both.data, "#version", 8)) {
        pair[0] = (sluice__span){0};
        return SLUICE_OK;
    }
    if (!space || memchr(space + 1, ' ', (size_t)(end - space - 1)))
        return sluice__fail(s->err, SLUICE_ERR_CONFIG,
                            "%s: model.merges[%lld]: found \"%.*s\", expected two tokens and one space", s->file,
                            (long long)number, both.size > 60 ? 60 : (int)both.size, both.data);
    pair[0] = (sluice__span){both.data, (size_t)(space - both.data)};
    pair[1] = (sluice__span){space + 1, (size_t)(end - space - 1)};
    return SLUICE_OK;
}

/* The token left + right. Merges mostly come in the order of the tokens that they make, so the one behind the last is
 * tried before the index is asked. */
static int32_t joined_token(scanner *s, const sluice__span pair[2]) {
    const sluice__vocab *v = s->vocab;
    size_t n = pair[0].size, m = pair[1].size;
    if (s->guess < v->size && v->tokens[s->guess].flags && v->tokens[s->guess].text_size == n + m) {
        const char *text = sluice__token_text(v, s->guess);
        if (!memcmp(text, pair[0].data, n) && !memcmp(text + n, pair[1].data, m)) return s->guess++;
    }
    sluice__strbuf *both = &s->text[2];
    both->size = 0;
    sluice__strbuf_add(both, pair[0].data, n);
    sluice__strbuf_add(both, pair[1].data, m);
    int32_t id = both->failed ? -1 : sluice__vocab_find(v, both->data, both->size);
    if (id >= 0) s->guess = id + 1;
    return id;
}

static int shown(size_t size) {
    return size > 60 ? 60 : (int)size;
}

static sluice_status resolve(scanner *s, const sluice__span pair[2], int64_t number) {
    int32_t left = sluice__vocab_find(s->vocab, pair[0].data, pair[0].size);
    int32_t right = sluice__vocab_find(s->vocab, pair[1].data, pair[1].size), id = joined_token(s, pair);
    if (left >= 0 && right >= 0 && id >= 0) {
        sluice__merges_add(s->vocab, (uint32_t)left, (uint32_t)right, (uint32_t)id);
        return SLUICE_OK;
    }
    if (s->text[2].failed) return sluice__no_memory(s->err, pair[0].size + pair[1].size, "a merge");
    const char *what = left < 0 ? "the first" : right < 0 ? "the second" : "the two together";
    return sluice__fail(s->err, SLUICE_ERR_CONFIG,
                        "%s: model.merges[%lld]: found \"%.*s\" and \"%.*s\", but %s is not in model.vocab", s->file,
                        (long long)number, shown(pair[0].size), pair[0].data, shown(pair[1].size), pair[1].data, what);
}

/* ["a b", ...] or [["a", "b"], ...] */
static sluice_status merge_entries(scanner *s) {
    s->p++;
    if (take(s, ']')) return SLUICE_OK;
    int64_t number = 0;
    do {
        sluice__span pair[2];
        SLUICE__TRY(merge_pair(s, pair, number));
        if (pair[0].data) SLUICE__TRY(resolve(s, pair, number));
        number++;
    } while (take(s, ','));
    return take(s, ']') ? SLUICE_OK : bad(s, "model.merges", "expected ',' or ']'");
}

/* Every entry has two or four quotation marks: counting those up to the end bounds the table by the file. */
static sluice_status merges(scanner *s) {
    size_t quotes = 0;
    const char *first = s->p + 1;
    while (first < s->end && strchr(" \n\r\t", *first)) first++;
    for (const char *q = first; q < s->end; q++) quotes += *q == '"';
    SLUICE__TRY(sluice__merges_reserve(s->vocab, quotes / (first < s->end && *first == '[' ? 4 : 2) + 1, s->err));
    return merge_entries(s);
}

/* ---- the file ---- */
static bool is(sluice__span t, const char *text) {
    return t.size == strlen(text) && !memcmp(t.data, text, t.size);
}

/* One member of "model". Values of another type than expected are left to the caller, who finds no place for them. */
static sluice_status model_value(scanner *s, sluice__span key) {
    const char *start = s->p;
    bool vocab = is(key, "vocab") && start < s->end && *start == '{',
         list = is(key, "merges") && start < s->end && *start == '[';
    if ((vocab && s->vocab_at.data) || (list && s->merges_at.data)) return bad(s, "model", "a key that occurs twice");
    if (vocab) {
        SLUICE__TRY(vocab_entries(s));
        s->vocab_at = (sluice__span){start, (size_t)(s->p - start)};
        return SLUICE_OK;
    }
    if (list && s->vocab_at.data)
        SLUICE__TRY(merges(s));
    else
        SLUICE__TRY(skip_value(s));
    if (list) s->merges_at = (sluice__span){start, (size_t)(s->p - start)};
    return SLUICE_OK;
}

/* The members of the file (depth 0) or of its "model" (depth 1). */
static sluice_status members(scanner *s, int depth) {
    if (!take(s, '{')) return bad(s, "", "expected an object");
    if (take(s, '}')) return SLUICE_OK;
    do {
        sluice__span key;
        SLUICE__TRY(string(s, "", 0, &key));
        bool model = depth == 0 && is(key, "model");
        if (!take(s, ':')) return bad(s, "", "expected ':'");
        blank(s);
        if (model && s->p < s->end && *s->p == '{')
            SLUICE__TRY(members(s, 1));
        else if (depth == 1)
            SLUICE__TRY(model_value(s, key));
        else
            SLUICE__TRY(skip_value(s));
    } while (take(s, ','));
    return take(s, '}') ? SLUICE_OK : bad(s, "", "expected ',' or '}'");
}

sluice_status sluice__json_read_model(sluice__vocab *v, const char *json, size_t size, const char *file,
                                      sluice__span *vocab_at, sluice__span *merges_at, sluice_error *err) {
    scanner s = {.p = json, .end = json + size, .begin = json, .file = file, .vocab = v, .err = err};
    /* A first guess of one token per 64 bytes of the file; the tables grow when it is too small. */
    sluice_status st = sluice__vocab_reserve(v, size / 64 + 256, size / 8 + 1, err);
    if (st == SLUICE_OK) st = members(&s, 0);
    if (st == SLUICE_OK && s.merges_at.data && !v->merges.slots && s.vocab_at.data) { /* merges stand in front */
        s.p = s.merges_at.data;
        st = merges(&s);
    }
    *vocab_at = s.vocab_at;
    *merges_at = s.merges_at;
    for (int i = 0; i < 3; i++) sluice__strbuf_free(&s.text[i]);
    return st;
}
