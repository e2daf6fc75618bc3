/* SPDX-License-Identifier: Apache-2.0 */
/* The recorded outputs of the tokenizers package: ids, decoded text, pre-token lengths, BPE of arbitrary bytes,
 * training. */
#include "tokenizer/check.h"
#include "base/file.h"
#include "base/memory.h"
#include <stdio.h>

typedef struct lengths {
    size_t at[4096];
    size_t count;
} lengths;

static sluice_status note_length(sluice__encoder *e, const char *data, size_t size, void *user, sluice_error *error) {
    (void)e, (void)data, (void)error;
    lengths *l = user;
    assert_true(l->count < 4096);
    l->at[l->count++] = size;
    return SLUICE_OK;
}

static void check_pieces(const sluice_tokenizer *tok, const char *text, size_t size, const json_t *expected) {
    lengths l = {.count = 0};
    sluice__encoder *e;
    assert_ok(sluice__encoder_get(&e, tok, NULL));
    e->out = NULL;
    assert_ok(sluice__cut_normalized(e, (sluice__span){text, size}, true, 0, note_length, &l, NULL));
    sluice__encoder_put(e);
    assert_int_equal(l.count, json_array_size(expected));
    for (size_t i = 0; i < l.count; i++) assert_int_equal(l.at[i], json_integer_value(json_array_get(expected, i)));
}

static void check_case(const sluice_tokenizer *tok, const json_t *c) {
    const json_t *text = json_object_get(c, "text"), *plain = json_object_get(c, "ids_specials_as_text");
    const json_t *skip = json_object_get(c, "decoded_skip_special"), *pieces = json_object_get(c, "piece_bytes");
    const char *data = json_string_value(text);
    size_t size = json_string_length(text);
    sluice_ids ids = {0};
    assert_ok_err(sluice_tokenizer_encode(tok, data, size, SLUICE_ENCODE_PARSE_SPECIAL, &ids, &err), &err);
    check_ids(json_object_get(c, "ids"), &ids, data);
    check_decode(tok, ids.data, ids.count, false, json_object_get(c, "decoded"));
    check_decode(tok, ids.data, ids.count, true, skip ? skip : json_object_get(c, "decoded"));
    if (pieces) check_pieces(tok, data, size, pieces);
    ids.count = 0;
    assert_ok_err(sluice_tokenizer_encode(tok, data, size, 0, &ids, &err), &err);
    check_ids(plain ? plain : json_object_get(c, "ids"), &ids, data);
    sluice_ids_free(&ids);
}

static void check_bytes(const sluice_tokenizer *tok, const json_t *c) {
    const char *hex = json_string_value(json_object_get(c, "hex"));
    char bytes[256];
    size_t n = strlen(hex) / 2;
    assert_true(n <= sizeof bytes);
    for (size_t i = 0; i < n; i++) {
        unsigned b;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &b), 1);
        bytes[i] = (char)b;
    }
    sluice_ids ids = {0};
    sluice__encoder *e;
    assert_ok(sluice__encoder_get(&e, tok, NULL));
    e->out = &ids;
    assert_ok(sluice__bpe(e, bytes, n, NULL));
    assert_ok(sluice__bpe_flush(e, NULL));
    check_ids(json_object_get(c, "ids"), &ids, hex);
    sluice__encoder_put(e);
    sluice_ids_free(&ids);
}

static void check_file(const sluice_tokenizer *tok, const json_t *c) {
    char name[256], *text;
    snprintf(name, sizeof name, "data/%s", json_string_value(json_object_get(c, "file")));
    size_t size, want = (size_t)json_integer_value(json_object_get(c, "bytes"));
    assert_ok(sluice__read_file(&text, &size, test_shared(name), 1 << 30, NULL));
    sluice_ids ids = {0};
    assert_ok(sluice_tokenizer_encode(tok, text, want, 0, &ids, NULL));
    check_ids(json_object_get(c, "ids"), &ids, name);
    sluice_text back = {0};
    assert_ok(sluice_tokenizer_decode(tok, ids.data, ids.count, false, &back, NULL));
    assert_int_equal(back.size, want);
    assert_memory_equal(back.data, text, want);
    sluice_text_free(&back);
    sluice_ids_free(&ids);
    sluice__free(text);
}

static void qwen3(void **state) {
    (void)state;
    sluice_tokenizer *tok = load(test_shared("data/qwen3-tokenizer"));
    json_t *root, *c;
    size_t i;
    assert_ok_err(sluice__json_load(&root, test_shared("reference/tokenizer/qwen3.json"), &err), &err);
    assert_int_equal(sluice_tokenizer_num_tokens(tok), json_integer_value(json_object_get(root, "vocab_size")));
    json_array_foreach(json_object_get(root, "cases"), i, c) check_case(tok, c);
    json_array_foreach(json_object_get(root, "bpe_bytes"), i, c) check_bytes(tok, c);
    json_array_foreach(json_object_get(root, "texts"), i, c) check_file(tok, c);
    json_array_foreach(json_object_get(root, "decode"), i, c) {
        int32_t ids[4096];
        json_t *list = json_object_get(c, "ids");
        for (size_t k = 0; k < json_array_size(list); k++)
            ids[k] = (int32_t)json_integer_value(json_array_get(list, k));
        check_decode(tok, ids, json_array_size(list), false, json_object_get(c, "decoded"));
    }
    json_decref(root);
    sluice_tokenizer_free(tok);
}

static void check_merges(const sluice_tokenizer *tok, const char *name) {
    char path[256], *text, *copy = NULL;
    size_t size;
    snprintf(path, sizeof path, "reference/tokenizer/bpe_train/%s.merges.txt", name);
    assert_ok(sluice__read_file(&text, &size, test_shared(path), 1 << 30, NULL));
    json_t *root, *m;
    const char *dir = test_temp_dir();
    assert_ok(sluice_tokenizer_save(tok, dir, NULL));
    copy = sluice__path_join(dir, "tokenizer.json");
    assert_ok_err(sluice__json_load(&root, copy, &err), &err);
    size_t i;
    char *line = text;
    json_array_foreach(json_object_get(json_object_get(root, "model"), "merges"), i, m) {
        char found[512], *end = strchr(line, '\n');
        assert_non_null(end);
        *end = '\0';
        snprintf(found, sizeof found, "%s %s", json_string_value(json_array_get(m, 0)),
                 json_string_value(json_array_get(m, 1)));
        if (strcmp(found, line)) fail_msg("%s: merge %zu: found \"%s\", expected \"%s\"", name, i, found, line);
        line = end + 1;
    }
    assert_int_equal(*line, '\0');
    json_decref(root);
    sluice_tokenizer *again = load(dir);
    assert_int_equal(sluice_tokenizer_eos_id(again), 0);
    sluice_tokenizer_free(again);
    sluice__free(copy);
    sluice__free(text);
}

static void check_run(const json_t *run, const char *text, size_t train, size_t test) {
    sluice_tokenizer_params p = sluice_tokenizer_params_default();
    const char *pre = json_string_value(json_object_get(run, "pre_tokenizer"));
    sluice_tokenizer *tok;
    sluice_ids ids = {0};
    p.pattern = strcmp(pre, "gpt2") ? "qwen2" : "gpt2";
    p.vocab_size = (int)json_integer_value(json_object_get(run, "vocab_size"));
    assert_ok_err(sluice_tokenizer_train_text(&tok, &p, text, train, &err), &err);
    assert_int_equal(sluice_tokenizer_vocab_size(tok), p.vocab_size);
    assert_int_equal(sluice_tokenizer_num_merges(tok), json_integer_value(json_object_get(run, "merges")));
    check_merges(tok, json_string_value(json_object_get(run, "name")));
    json_t *first = json_object_get(run, "first_tokens");
    for (size_t i = 0; i < json_array_size(first); i++)
        assert_string_equal(sluice_tokenizer_token(tok, (int32_t)i, NULL), json_string_value(json_array_get(first, i)));
    assert_ok(sluice_tokenizer_encode(tok, text, train, 0, &ids, NULL));
    assert_int_equal(ids.count, json_integer_value(json_object_get(run, "encode_train_tokens")));
    ids.count = 0;
    assert_ok(sluice_tokenizer_encode(tok, text + train, test, 0, &ids, NULL));
    check_ids(json_object_get(run, "test_ids"), &ids, pre);
    sluice_ids_free(&ids);
    sluice_tokenizer_free(tok);
}

static void training(void **state) {
    (void)state;
    json_t *root, *run;
    char *text;
    size_t size, i;
    assert_ok(sluice__json_load(&root, test_shared("reference/tokenizer/bpe_train/index.json"), NULL));
    assert_ok(sluice__read_file(&text, &size, test_shared("data/sotu.txt"), 1 << 30, NULL));
    size_t train = (size_t)json_integer_value(json_object_get(root, "train_bytes"));
    json_array_foreach(json_object_get(root, "runs"), i, run)
        check_run(run, text, train, (size_t)json_integer_value(json_object_get(root, "test_bytes")));
    sluice__free(text);
    json_decref(root);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(qwen3), cmocka_unit_test(training)};
    if (!test_shared("reference/tokenizer/qwen3.json")) return TEST_SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
