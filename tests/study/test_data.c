/* SPDX-License-Identifier: Apache-2.0 */
/* The embedded corpus and the synthetic data: references are stripped, foreign programs refused, chains follow the
 * bigrams and copy behind triggers. */
#include "support/test_support.h"
#include "study/backcopy.h"
#include "study/corpus.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char verses[] =
    "Ge1:1 In the beginning.\nGe1:2 And the earth: 3:16 was\nGe2:1 Thus.\n1Sm1:1 Now\nJude1:1 End";

static void test_verses(void **state) {
    (void)state;
    sluice__corpus c;
    assert_ok(sluice__corpus_from_verses(&c, verses, sizeof verses - 1, "x", NULL));
    assert_int_equal(c.count, 3);
    assert_string_equal(c.text, "In the beginning. And the earth: 3:16 was\nThus.\nNow\nEnd\n");
    assert_int_equal(c.offsets[1], strlen("In the beginning. And the earth: 3:16 was\nThus.\n"));
    assert_int_equal(c.offsets[3], strlen(c.text));
    sluice__corpus_free(&c);
}

static void test_bad_verses(void **state) {
    (void)state;
    static const char *const bad[] = {"",      "Usage: bible", "Ge1:1 a\n\nGe1:2 b", "Ge1 a", "1:1 a", "Ge:1 a",
                                      "Ge1:a", "Ge1:1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        sluice__corpus c;
        sluice_error err = {0};
        assert_int_equal(sluice__corpus_from_verses(&c, bad[i], strlen(bad[i]), "bible", &err), SLUICE_ERR_FORMAT);
        assert_non_null(strstr(err.message, "bible"));
        assert_null(c.text);
    }
}

/* Runs with another PATH, where `bible` is not, or is something else. */
static void embedded_with(const char *path, const char *expected) {
    char *old = strdup(getenv("PATH"));
    setenv("PATH", path, 1);
    sluice__corpus c;
    sluice_error err = {0};
    assert_int_not_equal(sluice__corpus_embedded(&c, &err), SLUICE_OK);
    setenv("PATH", old, 1);
    free(old);
    if (!strstr(err.message, expected)) fail_msg("\"%s\" lacks \"%s\"", err.message, expected);
}

static void write_program(const char *dir, const char *text) {
    char command[1024];
    snprintf(command, sizeof command, "printf '%%s\\n' '#!/bin/sh' '%s' > %s/bible && chmod +x %s/bible", text, dir,
             dir);
    assert_int_equal(system(command), 0);
}

static void test_program(void **state) {
    (void)state;
    const char *dir = test_temp_dir();
    char path[512];
    embedded_with(dir, "bible-kjv");
    snprintf(path, sizeof path, "%s:/usr/bin:/bin", dir);
    write_program(dir, "exit 3");
    embedded_with(path, "exit code 3");
    write_program(dir, "echo Ge1:1 text");
    embedded_with(path, "11 bytes of output");
    write_program(dir, "head -c 2000000 /dev/zero | tr \"\\\\0\" x");
    embedded_with(path, "line 1");
    write_program(dir, "kill -9 $$");
    embedded_with(path, "signal 9");
    write_program(
        dir, "while :; do echo Ge1:1 xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done | head -c 80000000");
    embedded_with(path, "more than");
}

/* The real program, where it is installed. */
static void test_embedded(void **state) {
    (void)state;
    if (system("command -v bible > /dev/null") != 0) skip();
    sluice__corpus c;
    sluice_error err = {0};
    assert_ok_err(sluice__corpus_embedded(&c, &err), &err);
    assert_int_equal(c.count, 66);
    assert_in_range(c.offsets[66], 3900000, 4300000);
    assert_int_equal(strncmp(c.text, "In the beginning God created the heaven and the earth. And the earth was", 60),
                     0);
    assert_non_null(strstr(c.source, "bible-kjv"));
    sluice__corpus_free(&c);
}

static const char text[] = "the cat sat on the mat. the rat ate the hat; that cat ate that rat at ten.";

static sluice_status chain(sluice__backcopy *b, int symbols, const char *triggers, int64_t count, int64_t document,
                           uint64_t seed, sluice_error *err) {
    sluice__backcopy_params p = {symbols, triggers, count, document, seed};
    return sluice__backcopy_new(b, text, sizeof text - 1, &p, err);
}

static void check_chain(const sluice__backcopy *b, int64_t document) {
    int64_t copied = 0, drawn = 0;
    for (int t = 0; t < b->count; t++) {
        assert_in_range(b->ids[t], 0, b->symbols - 1);
        char before = t ? (char)b->bytes[b->ids[t - 1]] : 0;
        if (t == 0 || (document && t % document == 0)) {
            assert_null(strchr("h ", b->bytes[b->ids[t]])); /* no chain begins with a trigger */
        } else if (before == 'h' || before == ' ') {
            assert_int_equal(b->ids[t], b->ids[t - 2]);
            copied++;
        } else {
            char pair[3] = {before, (char)b->bytes[b->ids[t]], 0};
            assert_non_null(strstr(text, pair)); /* only pairs that the text has */
            drawn++;
        }
    }
    assert_true(copied > b->count / 10 && drawn > b->count / 10);
}

static void test_backcopy(void **state) {
    (void)state;
    sluice__backcopy b, again, other;
    for (int64_t document = 0; document <= 21; document += 21) {
        assert_ok(chain(&b, 8, "h ", 5000, document, 3, NULL));
        assert_ok(chain(&again, 8, "h ", 5000, document, 3, NULL));
        assert_ok(chain(&other, 8, "h ", 5000, document, 4, NULL));
        assert_memory_equal(b.ids, again.ids, 5000 * sizeof *b.ids);
        assert_true(memcmp(b.ids, other.ids, 5000 * sizeof *b.ids) != 0);
        assert_true(strchr("t ", b.bytes[0]) && strchr("t ", b.bytes[1])); /* the two most frequent ones */
        check_chain(&b, document);
        sluice__backcopy_free(&b);
        sluice__backcopy_free(&again);
        sluice__backcopy_free(&other);
    }
}

static void test_bad_backcopy(void **state) {
    (void)state;
    const struct {
        int symbols;
        const char *triggers, *word;
        int64_t count, document;
    } bad[] = {{1, "t", "symbols", 10, 0},  {300, "t", "symbols", 10, 0},
               {8, "z", "triggers", 10, 0}, {8, "", "triggers", 10, 0},
               {8, "t", "tokens", 1, 0},    {8, "tttttttttttttttttt", "triggers", 10, 0},
               {8, "t", "document", 10, 1}, {2, "t ", "every symbol", 10, 0}};
    sluice__backcopy b;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        sluice_error err = {0};
        assert_int_equal(chain(&b, bad[i].symbols, bad[i].triggers, bad[i].count, bad[i].document, 1, &err),
                         SLUICE_ERR_CONFIG);
        if (!strstr(err.message, bad[i].word)) fail_msg("%s", err.message);
    }
    assert_ok(chain(&b, 200, "t", 10, 0, 1, NULL)); /* as many as there are */
    assert_in_range(b.symbols, 8, 20);
    sluice__backcopy_free(&b);
    sluice__backcopy_params p = {2, "a", 10, 0, 1};
    assert_int_equal(sluice__backcopy_new(&b, "aaaa", 4, &p, NULL), SLUICE_ERR_CONFIG);
    assert_int_equal(sluice__backcopy_new(&b, "", 0, &p, NULL), SLUICE_ERR_CONFIG);
    assert_int_equal(sluice__backcopy_new(&b, "aab", 3, &p, NULL), SLUICE_OK);
    sluice__backcopy_free(&b);
    p.triggers = "b";
    assert_int_equal(sluice__backcopy_new(&b, "ab", 2, &p, NULL), SLUICE_ERR_CONFIG); /* only b follows anything */
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_verses),   cmocka_unit_test(test_bad_verses),
                                       cmocka_unit_test(test_program),  cmocka_unit_test(test_embedded),
                                       cmocka_unit_test(test_backcopy), cmocka_unit_test(test_bad_backcopy)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
