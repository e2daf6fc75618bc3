/* SPDX-License-Identifier: Apache-2.0 */
/* Packing text into shards and reading them back; the bytes of the .idx; damaged and hostile files. */
#include "support/test_support.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/rng.h"
#include "sluice/shards.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static sluice_error err;

static sluice_tokenizer *small_tokenizer(int vocab_size) {
    static const char text[] = "the cat and the hat and the bat sat on the mat with that cat in the hat\n";
    sluice_tokenizer *tok;
    sluice_tokenizer_params p = sluice_tokenizer_params_default();
    p.vocab_size = vocab_size;
    assert_ok_err(sluice_tokenizer_train_text(&tok, &p, text, sizeof text - 1, &err), &err);
    return tok;
}

static char *path_in(const char *dir, const char *name) {
    static char paths[8][256];
    static int at;
    char *path = paths[at++ % 8];
    snprintf(path, 256, "%s/%s", dir, name);
    return path;
}

/* The exact bytes of a small pair, as Megatron's own reader expects them. */
static void bytes_of_idx(void **state) {
    (void)state;
    const char *dir = test_temp_dir(), *text = path_in(dir, "a.jsonl"), *prefix = path_in(dir, "out");
    sluice_tokenizer *tok = small_tokenizer(257);
    assert_ok(sluice__write_file(text, "{\"text\": \"!!\"}\n{\"text\": \"\"}\n{\"text\": \"#\"}\n", 42, NULL));
    sluice_pack_params p = sluice_pack_params_default();
    sluice_pack_result r;
    p.output = prefix;
    p.eod_id = 0;
    assert_ok_err(sluice_pack(tok, &p, &text, 1, &r, &err), &err);
    assert_int_equal(r.documents, 2);
    assert_int_equal(r.tokens, 5);
    assert_int_equal(r.bytes, 3);
    assert_int_equal(r.token_bytes, 2);
    static const unsigned char idx[] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 8, 2, 0, 0,
                                        0,   0,   0,   0,   0,   3,   0,   0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0,
                                        0,   0,   0,   0,   0,   0,   0,   0, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                                        0,   0,   0,   1,   0,   0,   0,   0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0};
    static const unsigned char bin[] = {1, 0, 1, 0, 0, 0, 3, 0, 0, 0};
    char *found;
    size_t size;
    assert_ok(sluice__read_file(&found, &size, path_in(dir, "out.idx"), 1 << 20, NULL));
    assert_int_equal(size, sizeof idx);
    assert_memory_equal(found, idx, size);
    sluice__free(found);
    assert_ok(sluice__read_file(&found, &size, path_in(dir, "out.bin"), 1 << 20, NULL));
    assert_int_equal(size, sizeof bin);
    assert_memory_equal(found, bin, size);
    sluice__free(found);
    sluice_shard *s;
    uint64_t hash;
    assert_ok_err(sluice_shard_open(&s, path_in(dir, "out.idx"), &err), &err);
    assert_true(sluice_shard_tokenizer_hash(s, &hash) && hash == sluice_tokenizer_hash(tok));
    sluice_shard_close(s);
    sluice_tokenizer_free(tok);
}

/* Long documents come in pieces; their ids are those of the whole. */
static void same_ids(void **state) {
    (void)state;
    const char *dir = test_temp_dir(), *text = path_in(dir, "long.txt"), *prefix = path_in(dir, "out");
    enum { N = 20 << 20 };
    static const char *const words[] = {"the ", "cat", " sat", "\n", "\n\n", " on", "  ", "mat", "'s", "12", "é", "."};
    char *data = malloc(N + 16);
    assert_non_null(data);
    sluice__rng rng = {1, 2, 0};
    size_t n = 0;
    while (n < N) {
        const char *w = words[sluice__rng_below(&rng, 12)];
        memcpy(data + n, w, strlen(w));
        n += strlen(w);
    }
    assert_ok(sluice__write_file(text, data, n, NULL));
    sluice_tokenizer *tok = small_tokenizer(300);
    sluice_pack_params p = sluice_pack_params_default();
    sluice_pack_result r;
    sluice_ids ids = {0};
    p.output = prefix;
    assert_ok_err(sluice_pack(tok, &p, &text, 1, &r, &err), &err);
    assert_ok(sluice_tokenizer_encode(tok, data, n, 0, &ids, NULL));
    assert_int_equal(r.documents, 1);
    assert_int_equal(r.tokens, ids.count);
    sluice_shard *s;
    assert_ok_err(sluice_shard_open(&s, prefix, &err), &err);
    assert_int_equal(sluice_shard_num_tokens(s), ids.count);
    int32_t *back = malloc(ids.count * sizeof *back);
    assert_non_null(back);
    sluice_shard_read(s, 0, (int64_t)ids.count, back);
    assert_memory_equal(back, ids.data, ids.count * sizeof *back);
    sluice_shard_close(s);
    free(back);
    free(data);
    sluice_ids_free(&ids);
    sluice_tokenizer_free(tok);
}

static void several_shards(void **state) {
    (void)state;
    const char *dir = test_temp_dir(), *text = path_in(dir, "a.txt"), *prefix = path_in(dir, "out");
    assert_ok(sluice__write_file(text, "aaaa\n\nbbbb\n\ncccc\n\ndddddddddddd\n\ne\n", 34, NULL));
    sluice_tokenizer *tok = small_tokenizer(257);
    sluice_pack_params p = sluice_pack_params_default();
    sluice_pack_result r;
    p.output = prefix;
    p.text.separator = "";
    p.shard_tokens = 9;
    assert_ok_err(sluice_pack(tok, &p, &text, 1, &r, &err), &err);
    assert_int_equal(r.shards, 4);
    static const int expected[] = {8, 4, 12, 1};
    for (int i = 0; i < 4; i++) {
        char name[32];
        snprintf(name, sizeof name, "out-%05d.bin", i);
        sluice_shard *s;
        assert_ok_err(sluice_shard_open(&s, path_in(dir, name), &err), &err);
        assert_int_equal(sluice_shard_num_tokens(s), expected[i]);
        sluice_shard_close(s);
    }
    sluice_tokenizer_free(tok);
}

static void statistics(void **state) {
    (void)state;
    const char *dir = test_temp_dir(), *text = path_in(dir, "a.txt"), *prefix = path_in(dir, "out");
    assert_ok(sluice__write_file(text, "aabb\n\ncd", 8, NULL));
    sluice_tokenizer *tok = small_tokenizer(257);
    sluice_pack_params p = sluice_pack_params_default();
    sluice_pack_result r;
    p.output = prefix;
    p.text.separator = "";
    assert_ok_err(sluice_pack(tok, &p, &text, 1, &r, &err), &err);
    sluice_shard *s;
    sluice_shard_stats st;
    assert_ok_err(sluice_shard_open(&s, prefix, &err), &err);
    assert_ok(sluice_shard_statistics(s, sluice_tokenizer_id(tok, "b", 1), &st, NULL));
    assert_int_equal(st.documents, 2);
    assert_int_equal(st.tokens, 6);
    assert_int_equal(st.distinct, 4);
    assert_int_equal(st.shortest, 2);
    assert_int_equal(st.longest, 4);
    assert_int_equal(st.unk_tokens, 2);
    assert_float_equal(st.entropy, 1.9182958340544896, 1e-12);
    sluice_shard_close(s);
    sluice_tokenizer_free(tok);
}

/* ---- hostile files ---- */
static void expect_refused(const char *dir, const unsigned char *idx, size_t size, const char *part) {
    sluice_shard *s;
    assert_ok(sluice__write_file(path_in(dir, "bad.idx"), idx, size, NULL));
    assert_ok(sluice__write_file(path_in(dir, "bad.bin"), "0123456789", 10, NULL));
    assert_int_not_equal(sluice_shard_open(&s, path_in(dir, "bad"), &err), SLUICE_OK);
    assert_null(s);
    if (!strstr(err.message, part)) fail_msg("\"%s\" lacks \"%s\"", err.message, part);
}

static void hostile(void **state) {
    (void)state;
    const char *dir = test_temp_dir();
    static const unsigned char good[82] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 8, 2,
                                           0,   0,   0,   0,   0,   0,   0,   3, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0,
                                           2,   0,   0,   0,   0,   0,   0,   0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0,
                                           0,   0,   0,   0,   0,   0,   0,   0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2};
    unsigned char b[82];
    sluice_shard *s;
    assert_ok(sluice__write_file(path_in(dir, "bad.idx"), good, sizeof good, NULL));
    assert_ok(sluice__write_file(path_in(dir, "bad.bin"), "0123456789", 10, NULL));
    assert_ok_err(sluice_shard_open(&s, path_in(dir, "bad"), &err), &err);
    sluice_shard_close(s);
    for (size_t n = 0; n < sizeof good; n++) expect_refused(dir, good, n, n < 34 ? "no Megatron index" : "too few");
#define BAD(at, value, part) (memcpy(b, good, sizeof b), b[at] = (value), expect_refused(dir, b, sizeof b, part))
    BAD(0, 'X', "no Megatron index");
    BAD(9, 2, "version: found 2");
    BAD(17, 6, "token type: found code 6");
    BAD(25, 0x80, "too few");
    BAD(26, 0, "too few");
    BAD(33, 0x7F, "too few");
    BAD(34, 4, "sequence 1: ");
    BAD(37, 0xFF, "sequence 0: -");
    BAD(38, 3, "sequence 1: 3 tokens at token 3");
    BAD(42, 1, "sequence 0: offset: found 1, expected 0");
    BAD(50, 8, "sequence 1: offset: found 8, expected 6");
    BAD(58, 1, "document 0: first sequence: found 1");
    BAD(66, 3, "document 1: first sequence: found 3");
    BAD(74, 1, "document 2: first sequence: found 1");
#undef BAD
    assert_ok(sluice__write_file(path_in(dir, "bad.idx"), good, sizeof good, NULL));
    assert_ok(sluice__write_file(path_in(dir, "bad.json"), "{\"tokenizer_hash\": \"xyz\"}", 25, NULL));
    assert_int_not_equal(sluice_shard_open(&s, path_in(dir, "bad"), &err), SLUICE_OK);
    assert_non_null(strstr(err.message, "tokenizer_hash"));
    assert_int_not_equal(sluice_shard_open(&s, path_in(dir, "none"), &err), SLUICE_OK);
}

/* A failure leaves no file behind. */
static void nothing_written(void **state) {
    (void)state;
    const char *dir = test_temp_dir(), *text = path_in(dir, "a.txt"), *sub = path_in(dir, "out");
    assert_ok(sluice__make_dirs(sub, NULL));
    sluice_tokenizer *tok = small_tokenizer(257);
    sluice_pack_params p = sluice_pack_params_default();
    sluice_pack_result r;
    p.output = path_in(dir, "out/x");
    assert_ok(sluice__write_file(text, "good\n\nbad \xFF\n", 12, NULL));
    assert_int_not_equal(sluice_pack(tok, &p, &text, 1, &r, &err), SLUICE_OK);
    assert_non_null(strstr(err.message, "a.txt: line 3"));
    assert_ok(sluice__write_file(text, "", 0, NULL));
    assert_int_not_equal(sluice_pack(tok, &p, &text, 1, &r, &err), SLUICE_OK);
    assert_non_null(strstr(err.message, "no text"));
    assert_int_equal(rmdir(sub), 0);
    assert_int_not_equal(sluice_pack(tok, &p, &text, 1, &r, &err), SLUICE_OK);
    assert_non_null(strstr(err.message, "cannot create"));
    p.output = "";
    assert_int_equal(sluice_pack(tok, &p, &text, 1, &r, &err), SLUICE_ERR_ARGUMENT);
    p.output = path_in(dir, "x");
    p.eod_id = 257;
    assert_int_equal(sluice_pack(tok, &p, &text, 1, &r, &err), SLUICE_ERR_ARGUMENT);
    sluice_tokenizer_free(tok);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(bytes_of_idx),   cmocka_unit_test(same_ids),
                                       cmocka_unit_test(several_shards), cmocka_unit_test(statistics),
                                       cmocka_unit_test(hostile),        cmocka_unit_test(nothing_written)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
