/* SPDX-License-Identifier: Apache-2.0 */
/* Files of the tokenizers package write patterns for Oniguruma. Most of that is PCRE2's syntax too; this file rewrites
 * what reads differently, and refuses what has no counterpart:
 *
 *   \s \S        Unicode White_Space (PCRE2's \s also takes U+180E)
 *   \w \W \b \B  letters, marks, digits, connector punctuation (PCRE2: letters, numbers, _)
 *   \h \H        hexadecimal digits (PCRE2: horizontal space)
 *   (?m)         the dot takes newlines: PCRE2's (?s). Always on here: ^ and $ at line ends.
 *   \uHHHH       \x{HHHH}
 *   [a[bc]]      a class within a class; [x&&y] an intersection. A class becomes an alternation of lookaheads:
 *                [A&&B] is (?:(?=B)A), [^X] is (?:(?!X)any character) */
#include "model/tokenizer_internal.h"
#include "base/memory.h"

#define SPACE_SET "\\t-\\r\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define NO_SPACE_SET                                                                                                   \
    "\\x00-\\x08\\x0e-\\x1f\\x21-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}"        \
    "\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{d7ff}\\x{e000}-\\x{10ffff}"
#define WORD_SET "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}"

enum { CLASS_DEPTH = 16 };

typedef struct reader {
    const char *p, *end, *where, *pattern;
    sluice_error *err;
} reader;

static sluice_status refuse(reader *r, const char *what) {
    return sluice__fail(r->err, SLUICE_ERR_UNSUPPORTED, "%s: the pattern \"%.200s\" uses %s, which is not supported",
                        r->where, r->pattern, what);
}

static bool is_hex(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* An escape at r->p, inside a class or not. Negated sets stand inside a class only where they can be written as one. */
static sluice_status escape(reader *r, sluice__strbuf *out, bool in_class) {
    if (r->end - r->p < 2) return refuse(r, "a backslash at its end");
    char c = r->p[1];
    const char *set = c == 's'   ? SPACE_SET
                      : c == 'S' ? NO_SPACE_SET
                      : c == 'h' ? "0-9a-fA-F"
                      : c == 'w' ? WORD_SET
                                 : NULL;
    if (set) {
        sluice__strbuf_printf(out, in_class ? "%s" : "[%s]", set);
        r->p += 2;
        return SLUICE_OK;
    }
    if (c == 'W' || c == 'H') {
        if (in_class) return refuse(r, c == 'W' ? "\\W inside a class" : "\\H inside a class");
        sluice__strbuf_printf(out, "[^%s]", c == 'W' ? WORD_SET : "0-9a-fA-F");
        r->p += 2;
        return SLUICE_OK;
    }
    if ((c == 'b' || c == 'B') && !in_class) {
        const char *in = "(?<=[" WORD_SET "])", *not_in = "(?<![" WORD_SET "])", *to = "(?=[" WORD_SET "])",
                   *not_to = "(?![" WORD_SET "])";
        sluice__strbuf_printf(out, "(?:%s%s|%s%s)", in, c == 'b' ? not_to : to, not_in, c == 'b' ? to : not_to);
        r->p += 2;
        return SLUICE_OK;
    }
    if (c == 'u') {
        for (int i = 2; i < 6; i++)
            if (r->p + i >= r->end || !is_hex(r->p[i])) return refuse(r, "\\u without four hexadecimal digits");
        sluice__strbuf_printf(out, "\\x{%.4s}", r->p + 2);
        r->p += 6;
        return SLUICE_OK;
    }
    if (c == 'O' || c == 'y' || c == 'Y' || c == 'Q' || c == 'C' || c == 'M' || c == 'c') {
        char what[] = "\\?";
        what[1] = c;
        return refuse(r, what);
    }
    sluice__strbuf_add(out, r->p, 2);
    r->p += 2;
    if ((c == 'p' || c == 'P' || c == 'x') && r->p < r->end && *r->p == '{') {
        const char *close = memchr(r->p, '}', (size_t)(r->end - r->p));
        if (!close) return refuse(r, "a property name without its end");
        sluice__strbuf_add(out, r->p, (size_t)(close + 1 - r->p));
        r->p = close + 1;
    }
    return SLUICE_OK;
}

static sluice_status class(reader *r, sluice__strbuf *out, int depth);

/* One operand of && : plain items in [..] and classes within, as an alternation. */
static sluice_status operand(reader *r, sluice__strbuf *out, int depth) {
    sluice__strbuf items = {0}, nested = {0};
    sluice_status st = SLUICE_OK;
    bool first = true;
    while (st == SLUICE_OK && r->p < r->end && (*r->p != ']' || first) &&
           !(r->end - r->p > 1 && r->p[0] == '&' && r->p[1] == '&')) {
        if (r->end - r->p > 1 && r->p[0] == '[' && r->p[1] == ':') {
            const char *close = memmem(r->p, (size_t)(r->end - r->p), ":]", 2);
            if (!close)
                st = refuse(r, "[: without :]");
            else {
                sluice__strbuf_add(&items, r->p, (size_t)(close + 2 - r->p));
                r->p = close + 2;
            }
        } else if (*r->p == '[') {
            if (nested.size) sluice__strbuf_puts(&nested, "|");
            st = class(r, &nested, depth + 1);
        } else if (*r->p == '\\') {
            st = escape(r, &items, true);
        } else {
            if (*r->p == ']' || *r->p == '[') sluice__strbuf_puts(&items, "\\");
            sluice__strbuf_add(&items, r->p++, 1);
        }
        first = false;
    }
    if (st == SLUICE_OK && !items.size && !nested.size) st = refuse(r, "an empty class");
    if (items.size && nested.size)
        sluice__strbuf_printf(out, "(?:[%s]|%s)", items.data, nested.data);
    else if (items.size)
        sluice__strbuf_printf(out, "[%s]", items.data);
    else if (nested.size)
        sluice__strbuf_printf(out, "(?:%s)", nested.data);
    sluice__strbuf_free(&items);
    sluice__strbuf_free(&nested);
    return st;
}

/* A class from its '[' to its ']'. Without nesting and && it comes out as it was. */
static sluice_status class(reader *r, sluice__strbuf *out, int depth) {
    if (depth > CLASS_DEPTH) return refuse(r, "classes nested too deeply");
    r->p++;
    bool negated = r->p < r->end && *r->p == '^', simple;
    if (negated) r->p++;
    sluice__strbuf part = {0}, all = {0};
    sluice_status st = operand(r, &part, depth);
    simple = part.size && part.data[0] == '[';
    while (st == SLUICE_OK && r->end - r->p > 1 && r->p[0] == '&' && r->p[1] == '&') {
        r->p += 2;
        simple = false;
        sluice__strbuf_printf(&all, "(?=%s)", part.data);
        part.size = 0;
        st = operand(r, &part, depth);
    }
    if (st == SLUICE_OK && (r->p == r->end || *r->p != ']')) st = refuse(r, "a class without its end");
    if (st == SLUICE_OK) {
        r->p++;
        sluice__strbuf_puts(&all, part.data);
        if (simple)
            sluice__strbuf_printf(out, "[%s%s", negated ? "^" : "", all.data + 1);
        else
            sluice__strbuf_printf(out, negated ? "(?:(?!%s)(?s:.))" : "(?:%s)", all.data);
    }
    sluice__strbuf_free(&part);
    sluice__strbuf_free(&all);
    return st;
}

/* "(?imx-imx" : option letters, where m stands for PCRE2's s. Other groups pass as they are. */
static sluice_status group(reader *r, sluice__strbuf *out) {
    const char *q = r->p + 2;
    while (q < r->end && strchr("imxWDSPy-{}", *q)) q++;
    bool options = q < r->end && q > r->p + 2 && (*q == ')' || *q == ':');
    if (r->end - r->p > 2 && r->p[2] == '~') return refuse(r, "the absence operator (?~");
    if (!options) {
        sluice__strbuf_add(out, r->p, 2);
        r->p += 2;
        return SLUICE_OK;
    }
    sluice__strbuf_puts(out, "(?");
    for (r->p += 2; r->p < q; r->p++) {
        if (!strchr("imx-", *r->p)) return refuse(r, "an option other than i, m, x");
        sluice__strbuf_add(out, *r->p == 'm' ? "s" : r->p, 1);
    }
    return SLUICE_OK;
}

sluice_status sluice__regex_translate(sluice__strbuf *out, const char *pattern, size_t size, const char *where,
                                      sluice_error *err) {
    reader r = {pattern, pattern + size, where, pattern, err};
    while (r.p < r.end) {
        if (*r.p == '\\')
            SLUICE__TRY(escape(&r, out, false));
        else if (*r.p == '[')
            SLUICE__TRY(class(&r, out, 0));
        else if (r.end - r.p > 1 && r.p[0] == '(' && r.p[1] == '?')
            SLUICE__TRY(group(&r, out));
        else
            sluice__strbuf_add(out, r.p++, 1);
    }
    return out->failed ? sluice__no_memory(err, size, "a pattern") : SLUICE_OK;
}
