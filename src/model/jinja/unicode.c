/* SPDX-License-Identifier: Apache-2.0 */
/* What Python's str knows about characters: white space, printable characters, classes, and changes of case. utf8proc
 * gives categories and the simple mappings; the characters that become several ones (SpecialCasing.txt) are listed
 * here. */
#include "model/jinja/value.h"
#include "model/utf8.h"
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

typedef struct special_case {
    uint32_t c;
    const char *upper, *title;
} special_case;

/* In rising order. */
static const special_case specials[] = {
    {0x00DF, "SS", "Ss"},
    {0x0149, "\312\274N", "\312\274N"},
    {0x01F0, "J\314\214", "J\314\214"},
    {0x0390, "\316\231\314\210\314\201", "\316\231\314\210\314\201"},
    {0x03B0, "\316\245\314\210\314\201", "\316\245\314\210\314\201"},
    {0x0587, "\324\265\325\222", "\324\265\326\202"},
    {0x1E96, "H\314\261", "H\314\261"},
    {0x1E97, "T\314\210", "T\314\210"},
    {0x1E98, "W\314\212", "W\314\212"},
    {0x1E99, "Y\314\212", "Y\314\212"},
    {0x1E9A, "A\312\276", "A\312\276"},
    {0x1F50, "\316\245\314\223", "\316\245\314\223"},
    {0x1F52, "\316\245\314\223\314\200", "\316\245\314\223\314\200"},
    {0x1F54, "\316\245\314\223\314\201", "\316\245\314\223\314\201"},
    {0x1F56, "\316\245\314\223\315\202", "\316\245\314\223\315\202"},
    {0x1F80, "\341\274\210\316\231", "\341\276\210"},
    {0x1F81, "\341\274\211\316\231", "\341\276\211"},
    {0x1F82, "\341\274\212\316\231", "\341\276\212"},
    {0x1F83, "\341\274\213\316\231", "\341\276\213"},
    {0x1F84, "\341\274\214\316\231", "\341\276\214"},
    {0x1F85, "\341\274\215\316\231", "\341\276\215"},
    {0x1F86, "\341\274\216\316\231", "\341\276\216"},
    {0x1F87, "\341\274\217\316\231", "\341\276\217"},
    {0x1F88, "\341\274\210\316\231", "\341\276\210"},
    {0x1F89, "\341\274\211\316\231", "\341\276\211"},
    {0x1F8A, "\341\274\212\316\231", "\341\276\212"},
    {0x1F8B, "\341\274\213\316\231", "\341\276\213"},
    {0x1F8C, "\341\274\214\316\231", "\341\276\214"},
    {0x1F8D, "\341\274\215\316\231", "\341\276\215"},
    {0x1F8E, "\341\274\216\316\231", "\341\276\216"},
    {0x1F8F, "\341\274\217\316\231", "\341\276\217"},
    {0x1F90, "\341\274\250\316\231", "\341\276\230"},
    {0x1F91, "\341\274\251\316\231", "\341\276\231"},
    {0x1F92, "\341\274\252\316\231", "\341\276\232"},
    {0x1F93, "\341\274\253\316\231", "\341\276\233"},
    {0x1F94, "\341\274\254\316\231", "\341\276\234"},
    {0x1F95, "\341\274\255\316\231", "\341\276\235"},
    {0x1F96, "\341\274\256\316\231", "\341\276\236"},
    {0x1F97, "\341\274\257\316\231", "\341\276\237"},
    {0x1F98, "\341\274\250\316\231", "\341\276\230"},
    {0x1F99, "\341\274\251\316\231", "\341\276\231"},
    {0x1F9A, "\341\274\252\316\231", "\341\276\232"},
    {0x1F9B, "\341\274\253\316\231", "\341\276\233"},
    {0x1F9C, "\341\274\254\316\231", "\341\276\234"},
    {0x1F9D, "\341\274\255\316\231", "\341\276\235"},
    {0x1F9E, "\341\274\256\316\231", "\341\276\236"},
    {0x1F9F, "\341\274\257\316\231", "\341\276\237"},
    {0x1FA0, "\341\275\250\316\231", "\341\276\250"},
    {0x1FA1, "\341\275\251\316\231", "\341\276\251"},
    {0x1FA2, "\341\275\252\316\231", "\341\276\252"},
    {0x1FA3, "\341\275\253\316\231", "\341\276\253"},
    {0x1FA4, "\341\275\254\316\231", "\341\276\254"},
    {0x1FA5, "\341\275\255\316\231", "\341\276\255"},
    {0x1FA6, "\341\275\256\316\231", "\341\276\256"},
    {0x1FA7, "\341\275\257\316\231", "\341\276\257"},
    {0x1FA8, "\341\275\250\316\231", "\341\276\250"},
    {0x1FA9, "\341\275\251\316\231", "\341\276\251"},
    {0x1FAA, "\341\275\252\316\231", "\341\276\252"},
    {0x1FAB, "\341\275\253\316\231", "\341\276\253"},
    {0x1FAC, "\341\275\254\316\231", "\341\276\254"},
    {0x1FAD, "\341\275\255\316\231", "\341\276\255"},
    {0x1FAE, "\341\275\256\316\231", "\341\276\256"},
    {0x1FAF, "\341\275\257\316\231", "\341\276\257"},
    {0x1FB2, "\341\276\272\316\231", "\341\276\272\315\205"},
    {0x1FB3, "\316\221\316\231", "\341\276\274"},
    {0x1FB4, "\316\206\316\231", "\316\206\315\205"},
    {0x1FB6, "\316\221\315\202", "\316\221\315\202"},
    {0x1FB7, "\316\221\315\202\316\231", "\316\221\315\202\315\205"},
    {0x1FBC, "\316\221\316\231", "\341\276\274"},
    {0x1FC2, "\341\277\212\316\231", "\341\277\212\315\205"},
    {0x1FC3, "\316\227\316\231", "\341\277\214"},
    {0x1FC4, "\316\211\316\231", "\316\211\315\205"},
    {0x1FC6, "\316\227\315\202", "\316\227\315\202"},
    {0x1FC7, "\316\227\315\202\316\231", "\316\227\315\202\315\205"},
    {0x1FCC, "\316\227\316\231", "\341\277\214"},
    {0x1FD2, "\316\231\314\210\314\200", "\316\231\314\210\314\200"},
    {0x1FD3, "\316\231\314\210\314\201", "\316\231\314\210\314\201"},
    {0x1FD6, "\316\231\315\202", "\316\231\315\202"},
    {0x1FD7, "\316\231\314\210\315\202", "\316\231\314\210\315\202"},
    {0x1FE2, "\316\245\314\210\314\200", "\316\245\314\210\314\200"},
    {0x1FE3, "\316\245\314\210\314\201", "\316\245\314\210\314\201"},
    {0x1FE4, "\316\241\314\223", "\316\241\314\223"},
    {0x1FE6, "\316\245\315\202", "\316\245\315\202"},
    {0x1FE7, "\316\245\314\210\315\202", "\316\245\314\210\315\202"},
    {0x1FF2, "\341\277\272\316\231", "\341\277\272\315\205"},
    {0x1FF3, "\316\251\316\231", "\341\277\274"},
    {0x1FF4, "\316\217\316\231", "\316\217\315\205"},
    {0x1FF6, "\316\251\315\202", "\316\251\315\202"},
    {0x1FF7, "\316\251\315\202\316\231", "\316\251\315\202\315\205"},
    {0x1FFC, "\316\251\316\231", "\341\277\274"},
    {0xFB00, "FF", "Ff"},
    {0xFB01, "FI", "Fi"},
    {0xFB02, "FL", "Fl"},
    {0xFB03, "FFI", "Ffi"},
    {0xFB04, "FFL", "Ffl"},
    {0xFB05, "ST", "St"},
    {0xFB06, "ST", "St"},
    {0xFB13, "\325\204\325\206", "\325\204\325\266"},
    {0xFB14, "\325\204\324\265", "\325\204\325\245"},
    {0xFB15, "\325\204\324\273", "\325\204\325\253"},
    {0xFB16, "\325\216\325\206", "\325\216\325\266"},
    {0xFB17, "\325\204\324\275", "\325\204\325\255"},
};

static int by_character(const void *key, const void *entry) {
    uint32_t c = *(const uint32_t *)key, e = ((const special_case *)entry)->c;
    return (c > e) - (c < e);
}

static const special_case *special_of(uint32_t c) {
    if (c < 0x80) return NULL;
    return bsearch(&c, specials, sizeof specials / sizeof *specials, sizeof *specials, by_character);
}

bool sluice__jinja_is_space(uint32_t c) {
    return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool sluice__jinja_is_printable(uint32_t c) {
    if (c == ' ') return true;
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
    }
}

size_t sluice__jinja_length(jinja_value text) {
    size_t n = 0;
    for (size_t i = 0; i < text.size; i++) n += ((unsigned char)text.text[i] & 0xC0) != 0x80;
    return n;
}

size_t sluice__jinja_offset(jinja_value text, size_t character) {
    size_t i = 0;
    for (; i < text.size; i++)
        if (((unsigned char)text.text[i] & 0xC0) != 0x80 && character-- == 0) break;
    return i;
}

static bool is_cased(uint32_t c) {
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT;
}

static bool is_case_ignorable(uint32_t c) {
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK: return true;
    default: return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x2019 || c == 0x2024 || c == 0x2027;
    }
}

/* Whether the capital sigma of `length` bytes at `at` ends a word: then its small letter is another one. */
static bool is_final_sigma(jinja_value text, size_t at, size_t length) {
    const unsigned char *base = (const unsigned char *)text.text, *p = base + at, *end = base + text.size;
    bool behind_letter = false;
    int n;
    while (p > base) {
        p = sluice__utf8_back(p);
        uint32_t c = sluice__utf8_get(p, &n);
        if (is_case_ignorable(c)) continue;
        behind_letter = is_cased(c);
        break;
    }
    for (p = base + at + length; behind_letter && p < end; p += n) {
        uint32_t c = sluice__utf8_get(p, &n);
        if (!is_case_ignorable(c)) return !is_cased(c);
    }
    return behind_letter;
}

static void put(sluice__strbuf *b, uint32_t c) {
    char bytes[4];
    sluice__strbuf_add(b, bytes, (size_t)sluice__utf8_put(bytes, c));
}

static void put_lower(sluice__strbuf *b, jinja_value text, size_t at, int length, uint32_t c) {
    if (c == 0x130)
        sluice__strbuf_puts(b, "i\xCC\x87");
    else if (c == 0x3A3)
        put(b, is_final_sigma(text, at, (size_t)length) ? 0x3C2 : 0x3C3);
    else
        put(b, (uint32_t)utf8proc_tolower((utf8proc_int32_t)c));
}

static void put_upper(sluice__strbuf *b, uint32_t c, bool title) {
    const special_case *s = special_of(c);
    if (s)
        sluice__strbuf_puts(b, title ? s->title : s->upper);
    else
        put(b, (uint32_t)(title ? utf8proc_totitle((utf8proc_int32_t)c) : utf8proc_toupper((utf8proc_int32_t)c)));
}

jinja_value sluice__jinja_recase(jinja_run *run, jinja_value text, jinja_case how) {
    sluice__strbuf b = {0};
    bool inside = false; /* a word */
    if (!sluice__jinja_spend(run, 4 * text.size)) return sluice__jinja_undefined("");
    for (size_t at = 0; at < text.size;) {
        int n;
        uint32_t c = sluice__utf8_get((const unsigned char *)text.text + at, &n);
        bool lower = how == JINJA_LOWER || (how == JINJA_TITLE && inside) || (how == JINJA_CAPITALIZE && at > 0);
        if (how == JINJA_SWAPCASE) lower = utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_LU;
        if (lower)
            put_lower(&b, text, at, n, c);
        else
            put_upper(&b, c, how == JINJA_TITLE || how == JINJA_CAPITALIZE);
        inside = is_cased(c);
        at += (size_t)n;
    }
    return sluice__jinja_take_text(run, &b);
}

/* ---- classes ---- */

static bool is_alpha(uint32_t c) {
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}
static bool is_decimal(uint32_t c) { return utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_ND; }
static bool is_digit(uint32_t c) {
    return is_decimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 || (c >= 0x2074 && c <= 0x2079) ||
           (c >= 0x2080 && c <= 0x2089);
}
static bool is_numeric(uint32_t c) {
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}
static bool is_alnum(uint32_t c) { return is_alpha(c) || is_numeric(c); }
static bool is_ascii(uint32_t c) { return c < 0x80; }

/* islower, isupper, istitle: about the cased characters of the text, of which there must be one. */
static bool case_test(jinja_value text, char kind) {
    bool any = false, inside = false;
    for (size_t at = 0; at < text.size;) {
        int n;
        uint32_t c = sluice__utf8_get((const unsigned char *)text.text + at, &n);
        at += (size_t)n;
        if (!is_cased(c)) {
            inside = false;
            continue;
        }
        bool small = utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_LL;
        if (kind == 't' ? small != inside : small != (kind == 'l')) return false;
        any = inside = true;
    }
    return any;
}

bool sluice__jinja_character_test(jinja_value text, const char *name, bool *known) {
    static const struct {
        const char *name;
        bool (*test)(uint32_t c);
        bool empty; /* what an empty text gives */
    } tests[] = {{"isalpha", is_alpha, false}, {"isdecimal", is_decimal, false},
                 {"isdigit", is_digit, false}, {"isnumeric", is_numeric, false},
                 {"isalnum", is_alnum, false}, {"isspace", sluice__jinja_is_space, false},
                 {"isascii", is_ascii, true},  {"isprintable", sluice__jinja_is_printable, true}};
    *known = true;
    if (!strcmp(name, "islower")) return case_test(text, 'l');
    if (!strcmp(name, "isupper")) return case_test(text, 'u');
    if (!strcmp(name, "istitle")) return case_test(text, 't');
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        if (strcmp(tests[i].name, name)) continue;
        bool good = text.size > 0 || tests[i].empty;
        for (size_t at = 0; at < text.size && good;) {
            int n;
            good = tests[i].test(sluice__utf8_get((const unsigned char *)text.text + at, &n));
            at += (size_t)n;
        }
        return good;
    }
    *known = false;
    return false;
}
