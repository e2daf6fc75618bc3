/* SPDX-License-Identifier: Apache-2.0 */
/* Hand-written matchers for the patterns that nearly every byte-level tokenizer uses: GPT-2's, and the family of cl100k
 * (Qwen, Llama 3) that differs in the length of digit runs and in whether marks count as letters. Each alternative is
 * decided by the class of one or two characters, so no backtracking is left. tests/tokenizer/test_known.c holds them
 * against PCRE2. */
#include "model/tokenizer_internal.h"
#include "model/utf8.h"

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define CL100K(letter, digits)                                                                                         \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?" letter "+|" digits                                           \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define QWEN35                                                                                                         \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"                                        \
    "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

typedef struct spelling {
    const char *text;
    sluice__known known;
} spelling;
/* The first of each name is what training writes; the others are ways in which files spell the same thing. */
static const spelling spellings[] = {
    {GPT2, {"gpt2", true, false, 0}},
    {CL100K("\\p{L}", "\\p{N}"), {"qwen2", false, false, 1}},
    {QWEN35, {"qwen3.5", false, true, 1}},
    {CL100K("\\p{L}", "\\p{N}{1,3}"), {"llama3", false, false, 3}},
    {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}| "
     "?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
     {"llama3", false, false, 3}},
};
enum { SPELLINGS = sizeof spellings / sizeof *spellings };

const sluice__known *sluice__known_find(const char *pattern, size_t size) {
    for (int i = 0; i < SPELLINGS; i++)
        if (strlen(spellings[i].text) == size && !memcmp(spellings[i].text, pattern, size)) return &spellings[i].known;
    return NULL;
}

const sluice__known *sluice__known_named(const char *name, const char **pattern) {
    for (int i = 0; i < SPELLINGS; i++)
        if (!strcmp(spellings[i].known.name, name)) {
            *pattern = spellings[i].text;
            return &spellings[i].known;
        }
    return NULL;
}

typedef const unsigned char *at;

static inline sluice__char_class class_at(at p, int *n) {
    if (*p < 0x80) {
        *n = 1;
        return sluice__ascii_class[*p];
    }
    return sluice__char_class_of(sluice__utf8_get(p, n));
}

/* Classes as bit sets, so that a run is "while the class is in the set". */
#define BIT(c) (1u << (c))
#define LETTERS BIT(SLUICE__CHAR_LETTER)
#define MARKS BIT(SLUICE__CHAR_MARK)
#define NUMBERS BIT(SLUICE__CHAR_NUMBER)
#define SPACES (BIT(SLUICE__CHAR_SPACE) | BIT(SLUICE__CHAR_NEWLINE))
#define OTHERS (BIT(SLUICE__CHAR_OTHER) | BIT(SLUICE__CHAR_PUNCTUATION) | MARKS)

static inline at run(at p, at end, unsigned set) {
    int n;
    while (p < end && set & BIT(class_at(p, &n))) p += n;
    return p;
}

static inline at digits(at p, at end, int most) {
    int n;
    for (int k = 0; (most == 0 || k < most) && p < end && NUMBERS & BIT(class_at(p, &n)); k++) p += n;
    return p;
}

/* 's 't 're 've 'm 'll 'd at p, where an apostrophe stands; NULL = none of them. U+017F folds to s. */
static at contraction(at p, at end, bool fold) {
    size_t left = (size_t)(end - p);
    if (left < 2) return NULL;
    unsigned a = p[1], b = left > 2 ? p[2] : 0;
    if (fold && a == 0xC5 && b == 0xBF) return p + 3;
    if (fold && a >= 'A' && a <= 'Z') a += 32;
    if (fold && b >= 'A' && b <= 'Z') b += 32;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return p + 2;
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? p + 3 : NULL;
}

/* A run of white space begins at p: \s*[\r\n]+ (unless gpt2), \s+(?!\S), \s+ in this order. */
static at spaces(at p, at end, bool newlines) {
    at q = p, last = p, newline = NULL;
    int n;
    sluice__char_class c;
    while (q < end && SPACES & BIT(c = class_at(q, &n))) {
        last = q;
        q += n;
        if (c == SLUICE__CHAR_NEWLINE) newline = q;
    }
    if (newlines && newline) return newline;
    return q == end || last == p ? q : last;
}

static at next_gpt2(at p, at end) {
    at q;
    int n;
    if (*p == '\'' && (q = contraction(p, end, false))) return q;
    sluice__char_class c = class_at(p, &n);
    at s = p;
    if (*p == ' ' && p + 1 < end) {
        s = p + 1;
        c = class_at(s, &n);
    }
    if (BIT(c) & LETTERS) return run(s + n, end, LETTERS);
    if (BIT(c) & NUMBERS) return run(s + n, end, NUMBERS);
    if (BIT(c) & OTHERS) return run(s + n, end, OTHERS);
    return spaces(p, end, false);
}

static at next_cl100k(const sluice__known *k, at p, at end) {
    unsigned letters = k->marks ? LETTERS | MARKS : LETTERS, others = OTHERS & ~letters;
    at q;
    int n, n2;
    if (*p == '\'' && (q = contraction(p, end, true))) return q;
    sluice__char_class c = class_at(p, &n);
    if (BIT(c) & letters) return run(p + n, end, letters);
    if (BIT(c) & NUMBERS) return digits(p, end, k->digits);
    sluice__char_class c2 = p + n < end ? class_at(p + n, &n2) : SLUICE__CHAR_NEWLINE;
    if (c != SLUICE__CHAR_NEWLINE && p + n < end && BIT(c2) & letters) return run(p + n + n2, end, letters);
    at s = *p == ' ' && p + n < end && BIT(c2) & others ? p + n : p;
    q = run(s, end, others);
    if (q > s) {
        while (q < end && (*q == '\r' || *q == '\n')) q++;
        return q;
    }
    return spaces(p, end, true);
}

const unsigned char *sluice__known_next(const sluice__known *k, const unsigned char *p, const unsigned char *end) {
    return k->gpt2 ? next_gpt2(p, end) : next_cl100k(k, p, end);
}

/* A character that ends before p, where p > start; 0 when the bytes there are not well-formed. */
static uint32_t char_before(at start, at p) {
    at q = p - 1;
    int n;
    while (q > start && p - q < 4 && (*q & 0xC0) == 0x80) q--;
    return sluice__utf8_length(q, p) == p - q ? sluice__utf8_get(q, &n) : 0;
}

/* Safe places, where a match always ends and the next begins whatever stands around, because no alternative looks
 * behind:
 *
 *   x|" "   x not white space: no alternative takes anything else than line ends behind it
 *   x|\n    the same for GPT-2's; in cl100k's only behind a letter or digit, as other characters take line ends along
 *   \n|x    x not white space, in cl100k's: its alternatives take line ends up to the last of a run
 *
 * They stay safe when the text is normalised: no normal form turns x into something that ends in white space, and
 * only ASCII letters and digits, which it leaves alone, are relied on to be what they are. */
static bool is_cut(const sluice__known *k, at start, at p, at end) {
    int n = sluice__utf8_length(p, end);
    if (*p == ' ' || *p == '\n') {
        uint32_t c = char_before(start, p);
        if (c == 0 || sluice__char_is_space(c)) return false;
        return *p == ' ' || k->gpt2 || (c < 0x80 && BIT(sluice__ascii_class[c]) & (LETTERS | NUMBERS));
    }
    return p[-1] == '\n' && !k->gpt2 && n && !sluice__char_is_space(sluice__utf8_get(p, &n));
}

size_t sluice__known_cut(const sluice__known *k, const char *text, size_t size) {
    at start = (at)text, end = start + size;
    for (at p = end; p > start + 1;) {
        p--;
        if ((*p == ' ' || *p == '\n' || p[-1] == '\n') && is_cut(k, start, p, end)) return (size_t)(p - start);
    }
    return 0;
}
