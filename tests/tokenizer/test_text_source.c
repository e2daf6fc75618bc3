/* SPDX-License-Identifier: Apache-2.0 */
/* Documents from plain text, JSON lines, compressed files, directories; and the errors. */
#include "support/test_support.h"
#include "base/file.h"
#include "base/memory.h"
#include "train/text_source.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static sluice_error err;

static const char *put(const char *dir, const char *name, const char *data, size_t size) {
    static char paths[8][256];
    static int at;
    char *path = paths[at++ % 8];
    snprintf(path, 256, "%s/%s", dir, name);
    assert_ok(sluice__write_file(path, data, size, NULL));
    return path;
}

/* All documents joined: "<line>:<text>|", pieces of one document by "+". */
static sluice_status read_all(const char *const *paths, int n, const sluice_text_params *params, size_t max_piece,
                              char *out, size_t size) {
    sluice__text_source *s;
    sluice__text_piece p;
    *out = '\0';
    sluice_status st = sluice__text_source_open(&s, paths, n, params, max_piece, &err);
    while (st == SLUICE_OK) {
        st = sluice__text_source_next(s, &p, &err);
        if (st != SLUICE_OK || !p.data) break;
        size_t used = strlen(out);
        if (p.starts) used += (size_t)snprintf(out + used, size - used, "%lld:", (long long)p.line);
        snprintf(out + used, size - used, "%.*s%s", (int)p.size, p.data, p.ends ? "|" : "+");
    }
    sluice__text_source_close(s);
    return st;
}

static void expect(const char *path, const sluice_text_params *params, size_t max_piece, const char *expected) {
    char out[65536];
    assert_ok_err(read_all(&path, 1, params, max_piece, out, sizeof out), &err);
    assert_string_equal(out, expected);
}

static void refused(const char *path, const sluice_text_params *params, const char *part) {
    char out[65536];
    assert_int_not_equal(read_all(&path, 1, params, 0, out, sizeof out), SLUICE_OK);
    if (!strstr(err.message, part)) fail_msg("\"%s\" lacks \"%s\"", err.message, part);
}

static void plain_text(void **state) {
    (void)state;
    const char *dir = test_temp_dir();
    sluice_text_params blank = sluice_text_params_default(), mark = blank;
    blank.separator = "";
    mark.separator = "<|endoftext|>";
    const char *a = put(dir, "a.txt", "one\ntwo\n", 8);
    expect(a, NULL, 0, "1:one\ntwo\n|");
    expect(put(dir, "empty.txt", "", 0), NULL, 0, "");
    expect(put(dir, "bom.txt", "\xEF\xBB\xBFx", 4), NULL, 0, "1:x|");
    const char *b = put(dir, "b.txt", "\n\none\ntwo\n\n\r\n\nthree\r\n\nfour", 27);
    expect(b, &blank, 0, "3:one\ntwo|8:three|10:four|");
    expect(a, &blank, 0, "1:one\ntwo|");
    const char *c = put(dir, "c.txt", "x\n<|endoftext|>\ny <|endoftext|>\nz\n<|endoftext|>", 47);
    expect(c, &mark, 0, "1:x|3:y <|endoftext|>\nz|");
}

static void long_documents(void **state) {
    (void)state;
    const char *dir = test_temp_dir();
    enum { N = 1000000 };
    char *text = malloc(N + 1);
    assert_non_null(text);
    for (int i = 0; i < N; i += 2) memcpy(text + i, "\xC3\xA9", 2); /* é */
    const char *path = put(dir, "long.txt", text, N);
    sluice__text_source *s;
    sluice__text_piece p;
    size_t total = 0, pieces = 0;
    assert_ok(sluice__text_source_open(&s, &path, 1, NULL, 1001, NULL));
    for (;;) {
        assert_ok_err(sluice__text_source_next(s, &p, &err), &err);
        if (!p.data) break;
        assert_true(p.size <= 1001 && p.size % 2 == 0);
        assert_memory_equal(p.data, text + total, p.size);
        assert_int_equal(p.starts, total == 0);
        total += p.size;
        pieces++;
        assert_int_equal(p.ends, total == N);
    }
    assert_int_equal(total, N);
    assert_int_equal(pieces, N / 1000);
    sluice__text_source_close(s);
    sluice_text_params small = sluice_text_params_default();
    small.max_document_bytes = 1000;
    refused(path, &small, "long.txt: line 1: a document of more than 1000 bytes");
    small.separator = "";
    refused(path, &small, "a document of more than 1000 bytes");
    free(text);
}

static void json_lines(void **state) {
    (void)state;
    const char *dir = test_temp_dir();
    const char rows[] =
        "{\"text\": \"one\"}\n\n  {\"id\": 1, \"text\": \"t\\u00e9\\n\"}\n{\"text\":\"\"}\n{\"text\": \"last\"}";
    const char *path = put(dir, "a.jsonl", rows, sizeof rows - 1);
    expect(path, NULL, 0, "1:one|3:t\xC3\xA9\n|5:last|");
    sluice_text_params p = sluice_text_params_default();
    p.text_key = "body";
    refused(path, &p, "a.jsonl: line 1: expected a member \"body\"");
    refused(put(dir, "b.jsonl", "{\"text\": \"a\"}\n{\"text\"\n", 23), NULL, "b.jsonl: line 2: not a JSON object");
    refused(put(dir, "c.jsonl", "{\"text\": 1}\n", 12), NULL, "c.jsonl: line 1");
    refused(put(dir, "d.jsonl", "[1]\n", 4), NULL, "expected an object");
    refused(put(dir, "e.jsonl", "{\"text\": \"\xFF\"}\n", 14), NULL, "e.jsonl: line 1");
    p = sluice_text_params_default();
    p.format = SLUICE_TEXT_PLAIN;
    expect(put(dir, "f.jsonl", "{}", 2), &p, 0, "1:{}|");
}

static void invalid_bytes(void **state) {
    (void)state;
    const char *dir = test_temp_dir();
    const char *path = put(dir, "a.txt", "ok\nalso \xE9 bad\n", 14);
    refused(path, NULL, "a.txt: line 2: byte 0xE9 is not UTF-8");
    refused(put(dir, "b.txt", "cut \xE4\xBD", 6), NULL, "byte 0xE4");
    sluice_text_params p = sluice_text_params_default();
    p.allow_invalid = true;
    expect(path, &p, 0, "1:ok\nalso \xE9 bad\n|");
}

static void compressed(void **state) {
    (void)state;
    const char *dir = test_temp_dir();
    char command[1024];
    put(dir, "a.txt", "plain\n", 6);
    put(dir, "b.jsonl", "{\"text\": \"row\"}\n", 16);
    snprintf(command, sizeof command,
             "cd %s && gzip -k a.txt && gzip -c a.txt >> a.txt.gz && zstd -q b.jsonl && mkdir sub .hidden && mv a.txt "
             "b.jsonl sub && "
             "echo no > sub/other.bin && echo no > .hidden/x.txt && head -c 20 a.txt.gz > cut.gz && head -c 12 "
             "b.jsonl.zst > cut.zst",
             dir);
    assert_int_equal(test_run(command, NULL), 0);
    char path[256];
    snprintf(path, sizeof path, "%s/a.txt.gz", dir);
    expect(path, NULL, 0, "1:plain\nplain\n|");
    snprintf(path, sizeof path, "%s/b.jsonl.zst", dir);
    expect(path, NULL, 0, "1:row|");
    snprintf(path, sizeof path, "%s/cut.gz", dir);
    refused(path, NULL, "cut.gz: damaged gzip data");
    snprintf(path, sizeof path, "%s/cut.zst", dir);
    refused(path, NULL, "cut.zst: damaged zstd data");
    expect(dir, NULL, 0, "1:plain\nplain\n|1:row|1:plain\n|1:row|");
}

static void paths(void **state) {
    (void)state;
    const char *dir = test_temp_dir();
    char none[256];
    snprintf(none, sizeof none, "%s/none.txt", dir);
    refused(none, NULL, "none.txt: cannot open");
    refused(dir, NULL, "no text in this directory");
    sluice__text_source *s;
    assert_int_equal(sluice__text_source_open(&s, NULL, 0, NULL, 0, &err), SLUICE_ERR_ARGUMENT);
    assert_null(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(plain_text), cmocka_unit_test(long_documents),
                                       cmocka_unit_test(json_lines), cmocka_unit_test(invalid_bytes),
                                       cmocka_unit_test(compressed), cmocka_unit_test(paths)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
