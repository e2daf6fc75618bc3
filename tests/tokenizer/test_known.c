/* SPDX-License-Identifier: Apache-2.0 */
/* The hand-written pattern matchers against PCRE2 on random text, and the safe cuts against encoding in one go. */
#include "support/test_support.h"
#include "base/memory.h"
#include "base/rng.h"
#include "model/tokenizer_internal.h"
#include "model/utf8.h"
#include <stdlib.h>

enum { CODES = 0x110000, ROUNDS = 4000 };

static sluice_error err;
static unsigned char agrees[CODES]; /* utf8proc and PCRE2 put the character into the same class */
static const char *const names[] = {"gpt2", "qwen2", "qwen3.5", "llama3"};

/* Marks the characters that a one-character pattern matches. */
static void mark(const char *pattern, unsigned char *out, unsigned char value) {
    sluice__regex r;
    sluice__matcher m;
    static char text[4 * 0x1000];
    assert_ok_err(sluice__regex_new(&r, pattern, strlen(pattern), "test", &err), &err);
    assert_ok(sluice__matcher_new(&m, NULL));
    for (uint32_t block = 0; block < CODES; block += 0x1000) {
        size_t size = 0, at = 0, start, end;
        for (uint32_t c = block; c < block + 0x1000; c++)
            if (c < 0xD800 || c > 0xDFFF) size += (size_t)sluice__utf8_put(text + size, c);
        bool found = true;
        while (at < size && found) {
            assert_ok(sluice__regex_search(&r, &m, text, size, at, &found, &start, &end, NULL));
            int n;
            if (found) out[sluice__utf8_get((unsigned char *)text + start, &n)] = value;
            at = end;
        }
    }
    sluice__matcher_free(&m);
    sluice__regex_free(&r);
}

static unsigned char simple_class(uint32_t c) {
    switch (sluice__char_class_of(c)) {
    case SLUICE__CHAR_LETTER:
        return 1;
    case SLUICE__CHAR_MARK:
        return 2;
    case SLUICE__CHAR_NUMBER:
        return 3;
    case SLUICE__CHAR_SPACE:
    case SLUICE__CHAR_NEWLINE:
        return 4;
    default:
        return 0;
    }
}

/* The two libraries may know different versions of Unicode; they may only differ about characters that one of them
 * lacks. */
static void classes(void **state) {
    (void)state;
    unsigned char *pcre = calloc(1, CODES), *unassigned = calloc(1, CODES);
    int differ = 0;
    assert_non_null(pcre);
    assert_non_null(unassigned);
    mark("\\p{L}", pcre, 1);
    mark("\\p{M}", pcre, 2);
    mark("\\p{N}", pcre, 3);
    mark("\\s", pcre, 4);
    mark("\\p{Cn}", unassigned, 1);
    for (uint32_t c = 0; c < CODES; c++) {
        agrees[c] = pcre[c] == simple_class(c) && (c < 0xD800 || c > 0xDFFF);
        if (agrees[c] || (c >= 0xD800 && c <= 0xDFFF)) continue;
        differ++;
        if (!unassigned[c] && simple_class(c))
            fail_msg("U+%04X: class %d in PCRE2, %d here", c, pcre[c], simple_class(c));
    }
    print_message("%d characters are in one library's Unicode only\n", differ);
    assert_true(differ < 20000);
    free(pcre);
    free(unassigned);
}

static uint32_t random_char(sluice__rng *r) {
    static const char common[] = "  \t\n\n\r''''sStTmMdDlLrReEvV019aZ.,!?-_$+<>/\\\"()";
    static const uint32_t special[] = {0x85,  0xA0,  0x17F,   0x212A, 0x180E, 0x200B, 0x2028, 0x2029, 0x3000, 0xFEFF,
                                       0x301, 0x94D, 0x1F600, 0x661,  0xB2,   0x4E00, 0x2019, 0,      0x7F,   0x10FFFF};
    for (;;) {
        uint32_t c, k = sluice__rng_u32(r) % 16;
        if (k < 9)
            c = (unsigned char)common[sluice__rng_below(r, sizeof common - 1)];
        else if (k < 11)
            c = special[sluice__rng_below(r, sizeof special / sizeof *special)];
        else if (k < 14)
            c = (uint32_t)sluice__rng_below(r, 0x3000);
        else
            c = (uint32_t)sluice__rng_below(r, CODES);
        if (agrees[c]) return c;
    }
}

static size_t random_text(sluice__rng *r, char *text, size_t characters) {
    size_t size = 0;
    uint32_t last = 'a';
    for (size_t i = 0; i < characters; i++) {
        uint32_t c = sluice__rng_u32(r) % 4 ? random_char(r) : last; /* runs are frequent */
        size += (size_t)sluice__utf8_put(text + size, c);
        last = c;
    }
    return size;
}

static void against_pcre2(void **state) {
    (void)state;
    sluice__matcher m;
    char text[4 * 64];
    assert_ok(sluice__matcher_new(&m, NULL));
    for (size_t p = 0; p < sizeof names / sizeof *names; p++) {
        const char *pattern;
        const sluice__known *k = sluice__known_named(names[p], &pattern);
        sluice__regex r;
        sluice__rng rng = {7, p, 0};
        assert_non_null(k);
        assert_ok_err(sluice__regex_new(&r, pattern, strlen(pattern), "test", &err), &err);
        for (int round = 0; round < ROUNDS; round++) {
            size_t size = random_text(&rng, text, 1 + sluice__rng_below(&rng, 40)), start, end;
            for (size_t at = 0; at < size; at = end) {
                bool found;
                assert_ok(sluice__regex_search(&r, &m, text, size, at, &found, &start, &end, NULL));
                size_t mine = (size_t)(sluice__known_next(k, (unsigned char *)text + at, (unsigned char *)text + size) -
                                       (unsigned char *)text);
                if (found && start == at && mine == end) continue;
                fail_msg("%s, round %d, at %zu of \"%.*s\": PCRE2 %zu..%zu, here to %zu", names[p], round, at,
                         (int)size, text, start, end, mine);
            }
        }
        sluice__regex_free(&r);
    }
    sluice__matcher_free(&m);
}

/* Pre-tokens of text[0, cut) and of text[cut, size) are those of the whole. */
static void cuts(void **state) {
    (void)state;
    char text[4 * 256];
    int made = 0;
    for (size_t p = 0; p < sizeof names / sizeof *names; p++) {
        const char *pattern;
        const sluice__known *k = sluice__known_named(names[p], &pattern);
        sluice__rng rng = {8, p, 0};
        for (int round = 0; round < ROUNDS; round++) {
            size_t size = random_text(&rng, text, 1 + sluice__rng_below(&rng, 60)),
                   cut = sluice__known_cut(k, text, sluice__rng_below(&rng, size + 1));
            const unsigned char *at = (unsigned char *)text, *end = at + size, *want = at + cut;
            assert_true(cut <= size);
            if (!cut) continue;
            made++;
            for (const unsigned char *q = at; q < want;) { /* as a whole, a pre-token ends at the cut */
                q = sluice__known_next(k, q, end);
                if (q > want)
                    fail_msg("%s: a pre-token reaches over the cut at %zu of \"%.*s\"", names[p], cut, (int)size, text);
            }
            for (const unsigned char *q = at, *w = at; q < want;) { /* and nothing changes in front of it */
                q = sluice__known_next(k, q, end);
                w = sluice__known_next(k, w, want);
                if (q != w) fail_msg("%s: the cut at %zu changes \"%.*s\"", names[p], cut, (int)size, text);
            }
        }
    }
    assert_true(made > ROUNDS / 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(classes), cmocka_unit_test(against_pcre2),
                                       cmocka_unit_test(cuts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
