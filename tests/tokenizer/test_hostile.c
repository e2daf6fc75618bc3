/* SPDX-License-Identifier: Apache-2.0 */
/* Damaged and malicious tokenizer files: a clear error that names file and field, and never anything worse. */
#include "tokenizer/check.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/rng.h"
#include <stdio.h>
#include <stdlib.h>

#define HEAD "{\"added_tokens\": [], \"pre_tokenizer\": null, \"model\": {\"type\": \"BPE\", "
#define TAIL "}}"

static void refused(const char *json, size_t size, const char *part) {
    sluice_tokenizer *tok;
    err = (sluice_error){0};
    sluice_status st = sluice_tokenizer_parse(&tok, json, size, "dir/tokenizer.json", &err);
    if (st == SLUICE_OK) fail_msg("accepted: %.300s", json);
    assert_null(tok);
    assert_int_equal(st, err.code);
    if (!strstr(err.message, "tokenizer.json")) fail_msg("\"%s\" does not name the file", err.message);
    if (!strstr(err.message, part)) fail_msg("\"%s\" lacks \"%s\"\nfor %.300s", err.message, part, json);
}

static void wrong_files(void **state) {
    (void)state;
    static const struct {
        const char *json, *part;
    } rows[] = {
        {"", "not valid JSON"},
        {"nonsense", "not valid JSON"},
        {"[]", "expected an object"},
        {"{}", "model: expected an object"},
        {"{\"model\": 1}", "model: expected an object"},
        {"{\"model\": {}}", "model.vocab: missing"},
        {HEAD "\"vocab\": {\"a\": 0}" TAIL, "model.merges: missing"},
        {HEAD "\"vocab\": [], \"merges\": []" TAIL, "model.vocab: missing, or not an object"},
        {HEAD "\"vocab\": {\"a\": 0}, \"merges\": {}" TAIL, "model.merges: missing, or not an array"},
        {HEAD "\"vocab\": {}, \"merges\": []" TAIL, "model.vocab: empty"},
        {HEAD "\"vocab\": {\"a\": 0, \"b\": 0}, \"merges\": []" TAIL, "id 0 belongs to two tokens"},
        {HEAD "\"vocab\": {\"a\": 0, \"a\": 1}, \"merges\": []" TAIL, "token \"a\" has two ids"},
        {HEAD "\"vocab\": {\"a\": -1}, \"merges\": []" TAIL,
         "id of token \"a\": found -1, expected an integer 0..16777215"},
        {HEAD "\"vocab\": {\"a\": 16777216}, \"merges\": []" TAIL, "found 16777216"},
        {HEAD "\"vocab\": {\"a\": 99999999999999999999999}, \"merges\": []" TAIL, "id of token \"a\""},
        {HEAD "\"vocab\": {\"a\": 1.5}, \"merges\": []" TAIL, "found 1.5"},
        {HEAD "\"vocab\": {\"a\": \"0\"}, \"merges\": []" TAIL, "found \"0\""},
        {HEAD "\"vocab\": {\"a\": null}, \"merges\": []" TAIL, "found null"},
        {HEAD "\"vocab\": {\"a\": 0", "not valid JSON"},
        {HEAD "\"vocab\": {\"a\" 0}, \"merges\": []" TAIL, "expected ':'"},
        {HEAD "\"vocab\": {\"\\ud800\": 0}, \"merges\": []" TAIL, "a wrong escape"},
        {HEAD "\"vocab\": {\"\\q\": 0}, \"merges\": []" TAIL, "a wrong escape"},
        {HEAD "\"vocab\": {\"\n\": 0}, \"merges\": []" TAIL, "a control character"},
        {HEAD "\"vocab\": {\"\xFF\": 0}, \"merges\": []" TAIL, "not UTF-8"},
        {HEAD "\"vocab\": {\"a\": 0}, \"vocab\": {\"b\": 1}, \"merges\": []" TAIL, "occurs twice"},
        {HEAD "\"vocab\": {\"a\": 0}, \"merges\": [\"a a\"]" TAIL,
         "model.merges[0]: found \"a\" and \"a\", but the two together is not in model.vocab"},
        {HEAD "\"vocab\": {\"a\": 0}, \"merges\": [[\"a\", \"b\"]]" TAIL,
         "model.merges[0]: found \"a\" and \"b\", but the second"},
        {HEAD "\"vocab\": {\"b\": 0}, \"merges\": [[\"a\", \"b\"]]" TAIL, "the first is not in model.vocab"},
        {HEAD "\"merges\": [[\"a\", \"b\"]], \"vocab\": {\"b\": 0}" TAIL, "the first is not in model.vocab"},
        {HEAD "\"vocab\": {\"a\": 0}, \"merges\": [\"aa\"]" TAIL, "expected two tokens and one space"},
        {HEAD "\"vocab\": {\"a\": 0}, \"merges\": [\"a a a\"]" TAIL, "expected two tokens and one space"},
        {HEAD "\"vocab\": {\"a\": 0}, \"merges\": [[\"a\"]]" TAIL, "expected two strings"},
        {HEAD "\"vocab\": {\"a\": 0}, \"merges\": [[\"a\", \"a\", \"a\"]]" TAIL, "expected two strings"},
        {HEAD "\"vocab\": {\"a\": 0}, \"merges\": [1]" TAIL, "expected a string"},
        {HEAD "\"vocab\": {\"a\": 0}, \"merges\": [], \"unk_token\": \"u\"" TAIL,
         "model.unk_token: \"u\" is not in model.vocab"},
        {HEAD "\"vocab\": {\"a\": 0}, \"merges\": [], \"fuse_unk\": 1" TAIL,
         "model.fuse_unk: found an integer, expected true or false"},
        {"{\"model\": {\"type\": \"Unigram\", \"vocab\": [[\"a\", 0]]}}", "the model \"Unigram\" is not supported"},
        {"{\"added_tokens\": [{\"id\": 1, \"content\": \"a\"}], \"model\": {\"vocab\": {\"a\": 0}, \"merges\": []}}",
         "added_tokens[0].id: found 1, but \"a\" has the id 0"},
        {"{\"added_tokens\": [{\"id\": 0, \"content\": \"b\"}], \"model\": {\"vocab\": {\"a\": 0}, \"merges\": []}}",
         "id 0 belongs to two tokens"},
        {"{\"added_tokens\": [{\"id\": -2, \"content\": \"b\"}], \"model\": {\"vocab\": {\"a\": 0}, \"merges\": []}}",
         "added_tokens[0].id: found -2"},
        {"{\"added_tokens\": [{\"id\": 5}], \"model\": {\"vocab\": {\"a\": 0}, \"merges\": []}}",
         "added_tokens[0].content: missing"},
        {"{\"added_tokens\": 5, \"model\": {\"vocab\": {\"a\": 0}, \"merges\": []}}",
         "added_tokens: expected an array"},
        {"{\"pre_tokenizer\": {\"type\": \"Split\", \"behavior\": \"Isolated\", \"pattern\": {\"Regex\": \"(\"}}, "
         "\"model\": {\"vocab\": {\"a\": 0}, \"merges\": []}}",
         "pre_tokenizer.pattern.Regex"},
        {"{\"pre_tokenizer\": {\"type\": \"Split\", \"behavior\": \"Sideways\", \"pattern\": {\"Regex\": \"a\"}}, "
         "\"model\": {\"vocab\": {\"a\": 0}, \"merges\": []}}",
         "pre_tokenizer.behavior: found \"Sideways\""},
        {"{\"pre_tokenizer\": {\"type\": \"Split\", \"behavior\": \"Isolated\", \"pattern\": \"a\"}, \"model\": "
         "{\"vocab\": {\"a\": 0}, \"merges\": []}}",
         "pre_tokenizer.pattern"},
        {"{\"pre_tokenizer\": {\"type\": \"Sequence\"}, \"model\": {\"vocab\": {\"a\": 0}, \"merges\": []}}",
         "pre_tokenizer.pretokenizers"},
        {"{\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"ab\"}, \"model\": {\"vocab\": {\"a\": 0}, "
         "\"merges\": []}}",
         "expected one character"},
        {"{\"pre_tokenizer\": \"ByteLevel\", \"model\": {\"vocab\": {\"a\": 0}, \"merges\": []}}",
         "pre_tokenizer: expected an object"},
        {"{\"decoder\": {\"type\": \"Strip\", \"content\": \"\", \"start\": 1, \"stop\": 0}, \"model\": {\"vocab\": "
         "{\"a\": 0}, \"merges\": []}}",
         "decoder.content"},
        {"{\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": []}, \"model\": {\"vocab\": {\"a\": 0}, "
         "\"merges\": []}}",
         "post_processor.single"},
        {"{\"post_processor\": {\"type\": \"BertProcessing\", \"sep\": [\"a\", 9], \"cls\": [\"a\", 0]}, \"model\": "
         "{\"vocab\": {\"a\": 0}, \"merges\": []}}",
         "post_processor.sep: found 9"},
        {"{\"normalizer\": {\"type\": \"Precompiled\"}, \"model\": {\"vocab\": {\"a\": 0}, \"merges\": []}}",
         "the normaliser \"Precompiled\" is not supported"},
        {"{\"normalizer\": {\"type\": 3}, \"model\": {\"vocab\": {\"a\": 0}, \"merges\": []}}", "normalizer.type"},
        {"{\"model\": {\"vocab\": {\"a\": 0}, \"merges\": []}} x", "not valid JSON"},
        {"{\"version\": tru, \"model\": {\"vocab\": {\"a\": 0}, \"merges\": []}}", "not valid JSON"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) refused(rows[i].json, strlen(rows[i].json), rows[i].part);
    refused("{\"a\": \0}", 8, "not valid JSON");
}

static void accepted_oddities(void **state) {
    (void)state;
    static const char *const rows[] = {
        HEAD "\"vocab\": {\"a\": 0, \"b\": 7}, \"merges\": []" TAIL, /* holes */
        "{\"model\": {\"merges\": [[\"a\", \"b\"]], \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}}}",
        "{\"model\": {\"vocab\": {\"a\": 0}, \"merges\": []}, \"added_tokens\": [{\"id\": 3, \"content\": \"x\"}, "
        "{\"id\": 3, \"content\": \"x\"}]}",
        "{\"model\": {\"vocab\": {\"\": 1, \"\\u0000\": 0}, \"merges\": []}, \"added_tokens\": [{\"id\": 1, "
        "\"content\": \"\"}]}",
        " { \"model\" : { \"vocab\" : { \"a\" : 0 } , \"merges\" : [ ] } } ",
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sluice_tokenizer *tok;
        sluice_ids ids = {0};
        assert_ok_err(sluice_tokenizer_parse(&tok, rows[i], strlen(rows[i]), "tokenizer.json", &err), &err);
        assert_ok(sluice_tokenizer_encode(tok, "abxa\0", 5, 3, &ids, NULL));
        sluice_ids_free(&ids);
        sluice_tokenizer_free(tok);
    }
}

static void nesting(void **state) {
    (void)state;
    enum { N = 1 << 20 };
    char *json = malloc(N + 64);
    assert_non_null(json);
    size_t n = (size_t)sprintf(json, "{\"model\": {\"vocab\": ");
    memset(json + n, '[', N);
    refused(json, n + N, "nested too deeply");
    n = (size_t)sprintf(json, "{\"x\": ");
    memset(json + n, '[', N);
    refused(json, n + N, "nested too deeply");
    free(json);
    /* as deep as the parser allows: the recursion over sequences ends well */
    sluice__strbuf b = {0};
    sluice__strbuf_puts(&b, "{\"model\": {\"vocab\": {\"a\": 0}, \"merges\": []}, \"pre_tokenizer\": ");
    for (int i = 0; i < 200; i++) sluice__strbuf_puts(&b, "{\"type\": \"Sequence\", \"pretokenizers\": [");
    sluice__strbuf_puts(&b, "{\"type\": \"Digits\"}");
    for (int i = 0; i < 200; i++) sluice__strbuf_puts(&b, "]}");
    sluice__strbuf_puts(&b, "}");
    sluice_tokenizer *tok;
    assert_ok_err(sluice_tokenizer_parse(&tok, b.data, b.size, "tokenizer.json", &err), &err);
    sluice_tokenizer_free(tok);
    sluice__strbuf_free(&b);
}

static void long_strings(void **state) {
    (void)state;
    enum { N = 8 << 20 };
    char *json = malloc(N + 256);
    assert_non_null(json);
    size_t n = (size_t)sprintf(json, "{\"model\": {\"merges\": [], \"vocab\": {\"");
    memset(json + n, 'x', N);
    n += N;
    n += (size_t)sprintf(json + n, "\": 0}}}");
    sluice_tokenizer *tok;
    assert_ok_err(sluice_tokenizer_parse(&tok, json, n, "tokenizer.json", &err), &err);
    sluice_tokenizer_free(tok);
    n = (size_t)sprintf(
        json, "{\"model\": {\"merges\": [], \"vocab\": {\"a\": 0}}, \"added_tokens\": [{\"id\": 1, \"content\": \"");
    memset(json + n, 'x', N);
    n += N;
    n += (size_t)sprintf(json + n, "\"}]}");
    refused(json, n, "added_tokens[0].content: 8388608 bytes, expected at most 4096");
    free(json);
}

/* Patterns that explode end with an error within a moment. */
static void exploding_patterns(void **state) {
    (void)state;
    static const char *const patterns[] = {"(a+)+$", "(a|a)*b", "(?:a?){60}a{60}", "((a*)*)*b",
                                           "(?<x>a(?:\\\\g<x>|b))"};
    char text[2000];
    memset(text, 'a', sizeof text);
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        char json[512];
        snprintf(
            json, sizeof json,
            "{\"pre_tokenizer\": {\"type\": \"Split\", \"behavior\": \"Isolated\", \"pattern\": {\"Regex\": \"%s\"}}, "
            "\"model\": {\"vocab\": {\"a\": 0}, \"merges\": []}}",
            patterns[i]);
        sluice_tokenizer *tok;
        sluice_ids ids = {0};
        if (sluice_tokenizer_parse(&tok, json, strlen(json), "tokenizer.json", &err) != SLUICE_OK) continue;
        text[sizeof text - 1] = 'c';
        sluice_status st = sluice_tokenizer_encode(tok, text, sizeof text, 0, &ids, &err);
        if (st != SLUICE_OK) {
            assert_non_null(strstr(err.message, "backtracks"));
            assert_int_equal(ids.count, 0);
        }
        ids.count = 0; /* and the tokenizer works on */
        assert_ok(sluice_tokenizer_encode(tok, "a", 1, 0, &ids, NULL));
        assert_int_equal(ids.count, 1);
        sluice_ids_free(&ids);
        sluice_tokenizer_free(tok);
    }
}

/* Random damage to a good file. Whatever loads has to encode and decode. */
static void mutations(void **state) {
    (void)state;
    char *good, *json;
    size_t size;
    static const char pieces[][16] = {"\"",   "{",    "}",       "[",  "]",    ",",      ":", "-1", "1e9",
                                      "null", "true", "\\u0000", "\\", "\xFF", "999999", "Ġ", "0"};
    assert_ok(sluice__read_file(&good, &size, test_data("tokenizer/small.json"), 1 << 20, NULL));
    json = malloc(size + 64);
    assert_non_null(json);
    int loaded = 0;
    sluice__rng r = {6, 0, 0};
    for (int round = 0; round < 3000; round++) {
        size_t n = size;
        memcpy(json, good, size);
        for (uint64_t k = 1 + sluice__rng_below(&r, 3); k > 0; k--) {
            /* half of the damage goes to the front, where everything but vocabulary and merges lies */
            size_t at = sluice__rng_below(&r, sluice__rng_u32(&r) % 2 ? n : n < 1800 ? n : 1800);
            switch (sluice__rng_below(&r, 4)) {
            case 0:
                json[at] = (char)sluice__rng_u32(&r);
                break;
            case 1:
                json[at] ^= (char)(1 << sluice__rng_below(&r, 7));
                break;
            case 2: {
                const char *p = pieces[sluice__rng_below(&r, sizeof pieces / sizeof *pieces)];
                size_t m = strlen(p) < n - at ? strlen(p) : n - at;
                memcpy(json + at, p, m);
                break;
            }
            default: {
                size_t gone = 1 + sluice__rng_below(&r, 12);
                if (gone > n - at) gone = n - at;
                memmove(json + at, json + at + gone, n - at - gone);
                n -= gone;
                if (n < 2) n = 2;
            }
            }
        }
        sluice_tokenizer *tok;
        err = (sluice_error){0};
        if (sluice_tokenizer_parse(&tok, json, n, "tokenizer.json", &err) != SLUICE_OK) {
            assert_true(*err.message);
            continue;
        }
        loaded++;
        sluice_ids ids = {0};
        sluice_text text = {0};
        static const char sample[] = "The cat's <|im_start|> e\u0301 mask <mask> 12\n\n好 \xFF!";
        if (sluice_tokenizer_encode(tok, sample, sizeof sample - 1, round % 4u, &ids, &err) == SLUICE_OK) {
            assert_ok(sluice_tokenizer_decode(tok, ids.data, ids.count, round % 2, &text, NULL));
            assert_int_equal(sluice__utf8_valid_prefix(text.data ? text.data : "", text.size), text.size);
        }
        sluice_ids_free(&ids);
        sluice_text_free(&text);
        sluice_tokenizer_free(tok);
    }
    assert_in_range(loaded, 100, 2900);
    free(json);
    sluice__free(good);
}

/* Cutting a good file anywhere is an error. */
static void truncations(void **state) {
    (void)state;
    char *good;
    size_t size;
    assert_ok(sluice__read_file(&good, &size, test_data("tokenizer/small.json"), 1 << 20, NULL));
    while (good[size - 1] != '}') size--;
    for (size_t n = 0; n < size; n += n < 2000 ? 1 : 13) {
        sluice_tokenizer *tok;
        assert_int_not_equal(sluice_tokenizer_parse(&tok, good, n, "tokenizer.json", NULL), SLUICE_OK);
    }
    sluice__free(good);
}

static void shared_cases(void **state) {
    (void)state;
    const char *const dirs[] = {"reference/bad/tokenizer_not_json", "reference/bad/tokenizer_bad_merge"};
    for (int i = 0; i < 2; i++) {
        const char *path = test_shared(dirs[i]);
        sluice_tokenizer *tok;
        if (!path) continue;
        assert_int_not_equal(sluice_tokenizer_load(&tok, path, &err), SLUICE_OK);
        assert_null(tok);
        assert_non_null(strstr(err.message, "tokenizer.json"));
    }
}

static void missing_files(void **state) {
    (void)state;
    sluice_tokenizer *tok;
    const char *dir = test_temp_dir();
    char path[256];
    assert_int_equal(sluice_tokenizer_load(&tok, dir, &err), SLUICE_ERR_IO);
    assert_non_null(strstr(err.message, "tokenizer.json"));
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    assert_ok(sluice__write_file(path, "{\"model\": {\"vocab\": {\"a\": 0}, \"merges\": []}}", 44, NULL));
    assert_ok_err(sluice_tokenizer_load(&tok, dir, &err), &err);
    assert_int_equal(sluice_tokenizer_bos_id(tok), -1);
    assert_int_not_equal(sluice_tokenizer_save(tok, "/no/such/directory/tokenizer.json", &err), SLUICE_OK);
    sluice_tokenizer_free(tok);
    snprintf(path, sizeof path, "%s/tokenizer_config.json", dir);
    assert_ok(sluice__write_file(
        path, "{\"bos_token\": {\"content\": \"a\"}, \"eos_token\": \"b\", \"pad_token\": null}", 68, NULL));
    assert_ok_err(sluice_tokenizer_load(&tok, dir, &err), &err);
    assert_int_equal(sluice_tokenizer_bos_id(tok), 0);
    assert_int_equal(sluice_tokenizer_eos_id(tok), -1);
    sluice_tokenizer_free(tok);
    assert_ok(sluice__write_file(path, "{\"bos_token\": 5}", 16, NULL));
    assert_int_not_equal(sluice_tokenizer_load(&tok, dir, &err), SLUICE_OK);
    assert_non_null(strstr(err.message, "tokenizer_config.json: bos_token"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_files),  cmocka_unit_test(accepted_oddities),  cmocka_unit_test(nesting),
        cmocka_unit_test(long_strings), cmocka_unit_test(exploding_patterns), cmocka_unit_test(mutations),
        cmocka_unit_test(truncations),  cmocka_unit_test(shared_cases),       cmocka_unit_test(missing_files)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
