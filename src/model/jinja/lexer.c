/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens of a template, by the rules of jinja2's lexer with trim_blocks and lstrip_blocks: one newline behind a block
 * or comment goes, blanks between the start of a line and a block or comment go, "-" takes all white space on its side
 * and
 * "+" keeps it. Inside of brackets "}}" and "%}" are operators. One newline at the very end of the template goes. */
#include "base/memory.h"
#include "model/jinja/syntax.h"
#include "model/utf8.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BRACKETS = 256 };

typedef struct lexer {
    jinja_run *run;
    const char *at, *end;
    int line;
    bool line_starting; /* the last match ended with a newline */
    jinja_tokens *out;
    char brackets[MAX_BRACKETS];
    int open;
} lexer;

jinja_value sluice__jinja_syntax_error(jinja_run *run, int line, const char *fmt, ...) {
    char text[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (run->st == SLUICE_OK)
        run->st = sluice__fail(run->err, SLUICE_ERR_FORMAT, "%s: line %d: %s", run->name, line, text);
    return sluice__jinja_undefined("");
}

static void emit(lexer *l, jinja_token_type type, jinja_value value) {
    jinja_tokens *t = l->out;
    if (!sluice__jinja_spend(l->run, 0)) return;
    if (t->count == t->capacity) {
        size_t capacity = t->capacity ? 2 * t->capacity : 64;
        jinja_token *data = sluice__jinja_take(l->run, capacity, sizeof *data);
        if (!data) return;
        if (t->count) memcpy(data, t->data, t->count * sizeof *data);
        t->data = data;
        t->capacity = capacity;
    }
    t->data[t->count++] = (jinja_token){type, l->line, value};
}

static bool starts(const lexer *l, const char *p, const char *text) {
    size_t n = strlen(text);
    return (size_t)(l->end - p) >= n && !memcmp(p, text, n);
}

static const char *skip_space(const lexer *l, const char *p) {
    while (p < l->end) {
        int n;
        if (!sluice__jinja_is_space(sluice__utf8_get((const unsigned char *)p, &n))) break;
        p += n;
    }
    return p;
}

static const char *trim_end(const char *begin, const char *p) {
    while (p > begin) {
        const char *before = (const char *)sluice__utf8_back((const unsigned char *)p);
        int n;
        if (!sluice__jinja_is_space(sluice__utf8_get((const unsigned char *)before, &n))) break;
        p = before;
    }
    return p;
}

static int newlines(const char *p, const char *end) {
    int n = 0;
    for (; p < end; p++) n += *p == '\n';
    return n;
}

/* Goes on to p, counting lines. */
static void move(lexer *l, const char *p) {
    l->line += newlines(l->at, p);
    l->line_starting = p > l->at && p[-1] == '\n';
    l->at = p;
}

/* Data between l->at and a tag at `tag` whose sign is `sign` (0 = none). */
static void emit_data(lexer *l, const char *tag, char sign, bool lstrip) {
    const char *begin = l->at, *end = tag;
    if (sign == '-') {
        end = trim_end(begin, end);
    } else if (sign != '+' && lstrip) {
        const char *line = end;
        while (line > begin && line[-1] != '\n') line--;
        bool at_line_start = line > begin || l->line_starting;
        if (at_line_start && trim_end(line, end) == line) end = line;
    }
    if (end > begin) emit(l, JINJA_TOKEN_DATA, sluice__jinja_text(begin, (size_t)(end - begin)));
}

/* p stands behind "{%", a sign and white space: whether `word` and an end of block follow; *behind it. The end of
 * {% raw %} is matched without trimming a newline, that of {% endraw %} with it. */
static bool raw_tag(const lexer *l, const char *p, const char *word, bool ending, const char **behind) {
    p = skip_space(l, p);
    if (!starts(l, p, word)) return false;
    p = skip_space(l, p + strlen(word));
    if (ending && starts(l, p, "+%}"))
        *behind = p + 3;
    else if (starts(l, p, "-%}"))
        *behind = skip_space(l, p + 3);
    else if (starts(l, p, "%}"))
        *behind = p + 2 + (ending && p + 2 < l->end && p[2] == '\n');
    else
        return false;
    return true;
}

static char sign_at(const lexer *l, const char *p) { return p < l->end && (*p == '-' || *p == '+') ? *p : 0; }

static void lex_raw(lexer *l) {
    for (const char *p = l->at; p < l->end; p++) {
        const char *behind;
        if (!starts(l, p, "{%")) continue;
        char sign = sign_at(l, p + 2);
        if (!raw_tag(l, p + 2 + (sign != 0), "endraw", true, &behind)) continue;
        emit_data(l, p, sign, true);
        move(l, behind);
        return;
    }
    sluice__jinja_syntax_error(l->run, l->line, "missing end of raw directive");
}

static void lex_comment(lexer *l) {
    for (const char *p = l->at; p < l->end; p++) {
        const char *behind = NULL;
        if (starts(l, p, "+#}"))
            behind = p + 3;
        else if (starts(l, p, "-#}"))
            behind = skip_space(l, p + 3);
        else if (starts(l, p, "#}"))
            behind = p + 2 + (p + 2 < l->end && p[2] == '\n');
        if (!behind) continue;
        move(l, behind);
        return;
    }
    sluice__jinja_syntax_error(l->run, l->line, "missing end of comment tag");
}

/* ---- inside of tags ---- */

static jinja_value text_of(lexer *l, const char *p, size_t size) {
    char *copy = sluice__jinja_take(l->run, size + 1, 1);
    if (!copy) return sluice__jinja_undefined("");
    memcpy(copy, p, size);
    return sluice__jinja_text(copy, size);
}

static int hex_digits(const lexer *l, const char *p, int want, uint32_t *c) {
    *c = 0;
    for (int i = 0; i < want; i++) {
        char d = p + i < l->end ? p[i] : 0;
        int v = d >= '0' && d <= '9' ? d - '0' : (d | 32) >= 'a' && (d | 32) <= 'f' ? (d | 32) - 'a' + 10 : -1;
        if (v < 0) return 0;
        *c = *c * 16 + (uint32_t)v;
    }
    return want;
}

/* One escape of Python's; p stands behind the backslash. Bytes read, 0 = failed. */
static size_t unescape(lexer *l, const char *p, sluice__strbuf *b) {
    static const char from[] = "abfnrtv\\'\"", to[] = "\a\b\f\n\r\t\v\\'\"";
    uint32_t c = 0;
    size_t used = 1;
    const char *simple = *p ? strchr(from, *p) : NULL;
    if (simple) {
        sluice__strbuf_add(b, &to[simple - from], 1);
        return 1;
    }
    if (*p == '\n') return 1;
    if (*p >= '0' && *p <= '7') {
        for (used = 0; used < 3 && p + used < l->end && p[used] >= '0' && p[used] <= '7'; used++)
            c = c * 8 + (uint32_t)(p[used] - '0');
    } else if (*p == 'x' || *p == 'u' || *p == 'U') {
        int want = *p == 'x' ? 2 : *p == 'u' ? 4 : 8;
        if (!hex_digits(l, p + 1, want, &c)) {
            sluice__jinja_syntax_error(l->run, l->line, "truncated \\%c escape", *p);
            return 0;
        }
        used = 1 + (size_t)want;
    } else if (*p == 'N') {
        l->run->line = l->line;
        sluice__jinja_unsupported(l->run, "the escape \\N in a string");
        return 0;
    } else {
        sluice__strbuf_puts(b, "\\");
        return sluice__strbuf_add(b, p, 1), 1;
    }
    if (c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) {
        l->run->line = l->line;
        sluice__jinja_unsupported(l->run, "the character U+%04X in a string", c);
        return 0;
    }
    char bytes[4];
    sluice__strbuf_add(b, bytes, (size_t)sluice__utf8_put(bytes, c));
    return used;
}

static void lex_string(lexer *l) {
    char quote = *l->at;
    const char *p = l->at + 1;
    while (p < l->end && *p != quote) p += *p == '\\' && p + 1 < l->end ? 2 : 1;
    if (p >= l->end) {
        sluice__jinja_syntax_error(l->run, l->line, "unexpected char '%c': a string without an end", quote);
        return;
    }
    sluice__strbuf b = {0};
    for (const char *s = l->at + 1; s < p;) {
        if (*s != '\\') {
            sluice__strbuf_add(&b, s++, 1);
            continue;
        }
        size_t used = unescape(l, s + 1, &b);
        if (!used) break;
        s += 1 + used;
    }
    jinja_value v = sluice__jinja_take_text(l->run, &b);
    emit(l, JINJA_TOKEN_CONSTANT, v);
    move(l, p + 1);
}

static bool is_digit_of(char c, int base) {
    if (base == 16) return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'f');
    return c >= '0' && c < '0' + base;
}

/* Digits with single underscores between them; stops where they end. */
static const char *digits(const lexer *l, const char *p, int base) {
    while (p < l->end && (is_digit_of(*p, base) || (*p == '_' && p + 1 < l->end && is_digit_of(p[1], base)))) p++;
    return p;
}

/* End of the fraction and exponent behind the integer part, or p when there is none. */
static const char *real_end(const lexer *l, const char *p) {
    const char *q = p;
    if (q + 1 < l->end && *q == '.' && is_digit_of(q[1], 10)) q = digits(l, q + 1, 10);
    if (q < l->end && (*q | 32) == 'e') {
        const char *e = q + 1;
        if (e < l->end && (*e == '+' || *e == '-')) e++;
        if (e < l->end && is_digit_of(*e, 10)) q = digits(l, e, 10);
    }
    return q;
}

static void lex_number(lexer *l) {
    const char *p = l->at, *end;
    int base = 10;
    if (p + 1 < l->end && *p == '0') {
        char kind = (char)(p[1] | 32);
        base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
    }
    const char *first = base == 10 ? p : p + 2 + (p + 2 < l->end && p[2] == '_');
    if (base != 10 && !(first < l->end && is_digit_of(*first, base))) base = 10, first = p;
    end = digits(l, first, base);
    const char *real = base == 10 ? real_end(l, end) : end;
    if (base == 10 && real == end && *p == '0') { /* leading zeros are zeros only */
        end = p;
        while (end < l->end && (*end == '0' || (*end == '_' && end + 1 < l->end && end[1] == '0'))) end++;
        real = end;
    }
    char text[400];
    size_t n = 0;
    for (const char *s = first; s < real && n + 1 < sizeof text; s++)
        if (*s != '_') text[n++] = *s;
    text[n] = 0;
    errno = 0;
    jinja_value v = real > end ? sluice__jinja_real(strtod(text, NULL)) : sluice__jinja_int(strtoll(text, NULL, base));
    if (n + 1 == sizeof text || (real == end && errno == ERANGE)) {
        l->run->line = l->line;
        sluice__jinja_unsupported(l->run, "the number %.40s...: more than 64 bits", text);
        return;
    }
    emit(l, JINJA_TOKEN_CONSTANT, v);
    move(l, real);
}

static bool is_name_byte(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static void lex_name(lexer *l) {
    const char *p = l->at;
    while (p < l->end && is_name_byte(*p)) p++;
    emit(l, JINJA_TOKEN_NAME, text_of(l, l->at, (size_t)(p - l->at)));
    move(l, p);
}

/* Keeps the balance of brackets; false = failed. */
static bool bracket(lexer *l, char c) {
    static const char opening[] = "([{", closing[] = ")]}";
    const char *o = strchr(opening, c), *e = strchr(closing, c);
    if (o) {
        if (l->open == MAX_BRACKETS) {
            l->run->line = l->line;
            sluice__jinja_unsupported(l->run, "more than %d nested brackets", MAX_BRACKETS);
            return false;
        }
        l->brackets[l->open++] = closing[o - opening];
    } else if (e) {
        char expected = l->open ? l->brackets[--l->open] : 0;
        if (expected != c) {
            if (expected)
                sluice__jinja_syntax_error(l->run, l->line, "unexpected '%c', expected '%c'", c, expected);
            else
                sluice__jinja_syntax_error(l->run, l->line, "unexpected '%c'", c);
            return false;
        }
    }
    return true;
}

static void lex_operator(lexer *l) {
    static const char *const doubles[] = {"//", "**", "==", "!=", ">=", "<="};
    size_t n = 0;
    for (size_t i = 0; i < sizeof doubles / sizeof *doubles && !n; i++) n = starts(l, l->at, doubles[i]) ? 2 : 0;
    if (!n && *l->at && strchr("+-/*%~[](){}><=.:|,;", *l->at)) n = 1;
    if (!n) {
        unsigned char c = (unsigned char)*l->at;
        l->run->line = l->line;
        if (c >= 0x80)
            sluice__jinja_unsupported(l->run, "names with characters beyond ASCII");
        else
            sluice__jinja_syntax_error(l->run, l->line, "unexpected char '%c'", c >= 32 ? c : '?');
        return;
    }
    if (n == 1 && !bracket(l, *l->at)) return;
    emit(l, JINJA_TOKEN_OPERATOR, text_of(l, l->at, n));
    move(l, l->at + n);
}

/* The end of a tag at l->at, if there is one: what stands behind it, else NULL. */
static const char *tag_end(const lexer *l, bool block) {
    const char *p = l->at;
    if (block) {
        if (starts(l, p, "+%}")) return p + 3;
        if (starts(l, p, "-%}")) return skip_space(l, p + 3);
        if (starts(l, p, "%}")) return p + 2 + (p + 2 < l->end && p[2] == '\n');
        return NULL;
    }
    if (starts(l, p, "-}}")) return skip_space(l, p + 3);
    return starts(l, p, "}}") ? p + 2 : NULL;
}

static void lex_tag(lexer *l, bool block) {
    while (l->at < l->end && l->run->st == SLUICE_OK) {
        const char *behind = l->open ? NULL : tag_end(l, block);
        if (behind) {
            emit(l, block ? JINJA_TOKEN_BLOCK_END : JINJA_TOKEN_OUTPUT_END, sluice__jinja_none());
            move(l, behind);
            return;
        }
        const char *p = skip_space(l, l->at);
        char c = *l->at;
        if (p > l->at)
            move(l, p);
        else if (c >= '0' && c <= '9')
            lex_number(l);
        else if (is_name_byte(c))
            lex_name(l);
        else if (c == '\'' || c == '"')
            lex_string(l);
        else
            lex_operator(l);
    }
}

/* Text up to the next tag, and the tag. */
static void lex_root(lexer *l) {
    const char *p = l->at, *behind;
    while (p < l->end && !(*p == '{' && p + 1 < l->end && (p[1] == '{' || p[1] == '%' || p[1] == '#'))) p++;
    if (p >= l->end) {
        emit_data(l, l->end, '+', false);
        l->at = l->end;
        return;
    }
    char kind = p[1], sign = sign_at(l, p + 2);
    const char *inside = p + 2 + (sign != 0);
    emit_data(l, p, sign, kind != '{');
    bool raw = kind == '%' && raw_tag(l, inside, "raw", false, &behind);
    move(l, raw ? behind : inside);
    if (raw) {
        lex_raw(l);
    } else if (kind == '#') {
        lex_comment(l);
    } else {
        emit(l, kind == '%' ? JINJA_TOKEN_BLOCK_BEGIN : JINJA_TOKEN_OUTPUT_BEGIN, sluice__jinja_none());
        lex_tag(l, kind == '%');
    }
}

/* \r\n and \r become \n; one newline at the end goes. */
static size_t normalize(char *out, const char *text, size_t size) {
    size_t n = 0;
    for (size_t i = 0; i < size; i++) {
        bool cr = text[i] == '\r';
        out[n++] = cr ? '\n' : text[i];
        if (cr && i + 1 < size && text[i + 1] == '\n') i++;
    }
    return n && out[n - 1] == '\n' ? n - 1 : n;
}

void sluice__jinja_tokenize(jinja_run *run, const char *text, size_t size, jinja_tokens *out) {
    if (sluice__utf8_valid_prefix(text, size) != size) {
        run->st = sluice__fail(run->err, SLUICE_ERR_FORMAT, "%s: not UTF-8", run->name);
        return;
    }
    char *copy = sluice__jinja_take(run, size + 1, 1);
    lexer *l = sluice__jinja_take(run, 1, sizeof *l);
    if (!copy || !l) return;
    size = normalize(copy, text, size);
    *l = (lexer){.run = run, .at = copy, .end = copy + size, .line = 1, .line_starting = true, .out = out};
    while (l->at < l->end && run->st == SLUICE_OK) lex_root(l);
    emit(l, JINJA_TOKEN_EOF, sluice__jinja_none());
}
