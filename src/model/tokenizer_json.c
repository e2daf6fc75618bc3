/* SPDX-License-Identifier: Apache-2.0 */
/* The two big values of a tokenizer.json, model.vocab and model.merges, hold hundreds of thousands of strings. Building a JSON tree of them
 * costs more than all the rest of loading, so this file finds where they lie and reads them in one pass each, straight into the
 * vocabulary. The rest of the file, with the two replaced by empty ones, goes through the ordinary JSON parser, which also is
 * the judge of its syntax. */
#include "model/tokenizer_internal.h"
#include "base/memory.h"
#include "model/tokenizer_json.h"
#include "model/utf8.h"

enum { DEPTH = 512 };

typedef struct scanner {
    const char *p, *end, *begin, *file;
    sluice__strbuf text[3]; /* unescaped strings: up to three at a time */
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
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
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
            if (*s->p != '\\') sluice__strbuf_add(b, s->p++, 1);
            else if (s->p++, !unescape(s, b)) return bad(s, field, "a wrong escape in a string");
        }
        if (b->failed) return sluice__no_memory(s->err, b->size, "a string");
        *out = (sluice__span){b->data, b->size};
    }
    if (s->p == s->end || *s->p != '"') return bad(s, field, s->p == s->end ? "a string without its end" : "a control character in a string");
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

static bool is(sluice__span t, const char *text) {
    return t.size == strlen(text) && !memcmp(t.data, text, t.size);
}

/* Walks the members of an object and remembers where the values of up to two keys begin and end. */
static sluice_status members(scanner *s, const char *key1, sluice__span *value1, const char *key2, sluice__span *value2) {
    if (!take(s, '{')) return bad(s, "", "expected an object");
    if (take(s, '}')) return SLUICE_OK;
    do {
        sluice__span key;
        SLUICE__TRY(string(s, "", 0, &key));
        sluice__span *value = is(key, key1) ? value1 : key2 && is(key, key2) ? value2 : NULL;
        if (!take(s, ':')) return bad(s, "", "expected ':'");
        blank(s);
        const char *start = s->p;
        SLUICE__TRY(skip_value(s));
        if (value) *value = (sluice__span){start, (size_t)(s->p - start)};
    } while (take(s, ','));
    return take(s, '}') ? SLUICE_OK : bad(s, "", "expected ',' or '}'");
}

static void scanner_free(scanner *s) {
    for (int i = 0; i < 3; i++) sluice__strbuf_free(&s->text[i]);
}

sluice_status sluice__json_find_model(const char *json, size_t size, const char *file, sluice__span *vocab, sluice__span *merges,
                                      sluice_error *err) {
    sluice__span model = {0};
    *vocab = *merges = (sluice__span){0};
    scanner s = {.p = json, .end = json + size, .begin = json, .file = file, .err = err};
    sluice_status st = members(&s, "model", &model, NULL, NULL);
    if (st == SLUICE_OK && model.data && model.size && *model.data == '{') {
        s.p = model.data;
        s.end = model.data + model.size;
        st = members(&s, "vocab", vocab, "merges", merges);
    }
    scanner_free(&s);
    return st;
}

/* A non-negative integer; anything else is refused with what was found. */
static sluice_status token_id(scanner *s, sluice__span token, int64_t *id) {
    blank(s);
    const char *start = s->p;
    int64_t value = 0;
    while (s->p < s->end && *s->p >= '0' && *s->p <= '9' && value <= SLUICE__MAX_TOKEN_ID) value = value * 10 + (*s->p++ - '0');
    bool ends = s->p < s->end && strchr(" \n\r\t,}", *s->p);
    if (s->p > start && ends && value <= SLUICE__MAX_TOKEN_ID) {
        *id = value;
        return SLUICE_OK;
    }
    const char *q = start;
    while (q < s->end && q - start < 24 && !strchr(" \n\r\t,}", *q)) q++;
    return sluice__fail(s->err, SLUICE_ERR_CONFIG, "%s: model.vocab: id of token \"%.*s\": found %.*s, expected an integer 0..%d",
                        s->file, token.size > 60 ? 60 : (int)token.size, token.data, (int)(q - start), start,
                        SLUICE__MAX_TOKEN_ID);
}

static sluice_status vocab_entries(scanner *s, sluice__vocab *v) {
    if (!take(s, '{')) return sluice__fail(s->err, SLUICE_ERR_CONFIG, "%s: model.vocab: expected an object", s->file);
    if (take(s, '}')) return SLUICE_OK;
    do {
        sluice__span token;
        int64_t id = 0;
        SLUICE__TRY(string(s, "model.vocab", 0, &token));
        if (!take(s, ':')) return bad(s, "model.vocab", "expected ':'");
        SLUICE__TRY(token_id(s, token, &id));
        SLUICE__TRY(sluice__vocab_add(v, s->file, id, token, SLUICE__TOKEN_MODEL, s->err));
    } while (take(s, ','));
    return take(s, '}') ? SLUICE_OK : bad(s, "model.vocab", "expected ',' or '}'");
}

sluice_status sluice__json_read_vocab(sluice__vocab *v, sluice__span in, const char *file, sluice_error *err) {
    scanner s = {.p = in.data, .end = in.data + in.size, .begin = in.data, .file = file, .err = err};
    /* A first guess of one token per 16 bytes; the tables grow when it is too small. */
    sluice_status st = sluice__vocab_reserve(v, in.size / 16 + 256, in.size + 1, err);
    if (st == SLUICE_OK) st = vocab_entries(&s, v);
    scanner_free(&s);
    return st;
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
        return sluice__fail(s->err, SLUICE_ERR_CONFIG, "%s: model.merges[%lld]: found \"%.*s\", expected two tokens and one space",
                            s->file, (long long)number, both.size > 60 ? 60 : (int)both.size, both.data);
    pair[0] = (sluice__span){both.data, (size_t)(space - both.data)};
    pair[1] = (sluice__span){space + 1, (size_t)(end - space - 1)};
    return SLUICE_OK;
}

static sluice_status resolve(scanner *s, sluice__vocab *v, const sluice__span pair[2], int64_t number) {
    sluice__strbuf *both = &s->text[2];
    both->size = 0;
    sluice__strbuf_add(both, pair[0].data, pair[0].size);
    sluice__strbuf_add(both, pair[1].data, pair[1].size);
    if (both->failed) return sluice__no_memory(s->err, both->size, "a merge");
    int32_t left = sluice__vocab_find(v, pair[0].data, pair[0].size), right = sluice__vocab_find(v, pair[1].data, pair[1].size);
    int32_t id = sluice__vocab_find(v, both->data, both->size);
    if (left >= 0 && right >= 0 && id >= 0) {
        sluice__merges_add(v, (uint32_t)left, (uint32_t)right, (uint32_t)id);
        return SLUICE_OK;
    }
    sluice__span missing = left < 0 ? pair[0] : right < 0 ? pair[1] : (sluice__span){both->data, both->size};
    return sluice__fail(s->err, SLUICE_ERR_CONFIG, "%s: model.merges[%lld]: found \"%.*s\" + \"%.*s\", but \"%.*s\" is not in model.vocab",
                        s->file, (long long)number, pair[0].size > 60 ? 60 : (int)pair[0].size, pair[0].data,
                        pair[1].size > 60 ? 60 : (int)pair[1].size, pair[1].data, missing.size > 120 ? 120 : (int)missing.size,
                        missing.data);
}

static sluice_status merge_entries(scanner *s, sluice__vocab *v) {
    if (!take(s, '[')) return sluice__fail(s->err, SLUICE_ERR_CONFIG, "%s: model.merges: expected an array", s->file);
    if (take(s, ']')) return SLUICE_OK;
    int64_t number = 0;
    do {
        sluice__span pair[2];
        SLUICE__TRY(merge_pair(s, pair, number));
        if (pair[0].data) SLUICE__TRY(resolve(s, v, pair, number));
        number++;
    } while (take(s, ','));
    return take(s, ']') ? SLUICE_OK : bad(s, "model.merges", "expected ',' or ']'");
}

sluice_status sluice__json_read_merges(sluice__vocab *v, sluice__span in, const char *file, sluice_error *err) {
    scanner s = {.p = in.data, .end = in.data + in.size, .begin = in.data, .file = file, .err = err};
    /* Every entry has two or four quotation marks: counting them is cheap and bounds the table by the file. */
    size_t quotes = 0;
    for (const char *q = in.data; q < s.end; q++) quotes += *q == '"';
    const char *first = in.data + 1;
    while (first < s.end && strchr(" \n\r\t", *first)) first++;
    size_t each = first < s.end && *first == '[' ? 4 : 2;
    sluice_status st = sluice__merges_reserve(v, quotes / each + 1, err);
    if (st == SLUICE_OK) st = merge_entries(&s, v);
    scanner_free(&s);
    return st;
}
