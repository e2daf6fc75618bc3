/* SPDX-License-Identifier: Apache-2.0 */
/* A small tokenizer against what the tokenizers package made of it (record_small.py), and everything about encoding
 * that needs no outside answer: pieces and threads, long words, ill-formed bytes, the pool of encoders. */
#include "tokenizer/check.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/rng.h"
#include "sluice/cpu.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static json_t *cases(void) {
    json_t *root;
    assert_ok_err(sluice__json_load(&root, test_data("tokenizer/small_cases.json"), &err), &err);
    return root;
}

static void encode(const sluice_tokenizer *tok, const char *text, size_t size, unsigned flags, sluice_ids *ids) {
    ids->count = 0;
    assert_ok_err(sluice_tokenizer_encode(tok, text, size, flags, ids, &err), &err);
}

static void recorded(void **state) {
    (void)state;
    sluice_tokenizer *tok = load(test_data("tokenizer/small.json"));
    json_t *root = cases(), *c;
    sluice_ids ids = {0};
    size_t i;
    json_array_foreach(json_object_get(root, "cases"), i, c) {
        const json_t *text = json_object_get(c, "text");
        encode(tok, json_string_value(text), json_string_length(text), SLUICE_ENCODE_PARSE_SPECIAL, &ids);
        check_ids(json_object_get(c, "ids"), &ids, json_string_value(text));
        check_decode(tok, ids.data, ids.count, false, json_object_get(c, "decoded"));
        check_decode(tok, ids.data, ids.count, true, json_object_get(c, "decoded_skip_special"));
        size_t plain = ids.count;
        encode(tok, json_string_value(text), json_string_length(text),
               SLUICE_ENCODE_PARSE_SPECIAL | SLUICE_ENCODE_ADD_SPECIAL, &ids);
        assert_int_equal(ids.count, plain + 1);
        assert_int_equal(ids.data[0], sluice_tokenizer_bos_id(tok));
    }
    json_array_foreach(json_object_get(root, "decode"), i, c) {
        int32_t list[16];
        json_t *array = json_object_get(c, "ids");
        for (size_t k = 0; k < json_array_size(array); k++)
            list[k] = (int32_t)json_integer_value(json_array_get(array, k));
        check_decode(tok, list, json_array_size(array), false, json_object_get(c, "decoded"));
    }
    sluice_ids_free(&ids);
    json_decref(root);
    sluice_tokenizer_free(tok);
}

static void check_training(const char *pattern, int vocab_size, const json_t *corpus, const json_t *merges) {
    sluice_tokenizer_params p = sluice_tokenizer_params_default();
    sluice_tokenizer *tok;
    p.pattern = pattern;
    p.vocab_size = vocab_size;
    assert_ok_err(sluice_tokenizer_train_text(&tok, &p, json_string_value(corpus), json_string_length(corpus), &err),
                  &err);
    assert_int_equal(sluice_tokenizer_num_merges(tok), json_array_size(merges));
    json_t *root, *list, *m;
    const char *dir = test_temp_dir();
    char path[256];
    size_t i;
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    assert_ok(sluice_tokenizer_save(tok, path, NULL));
    assert_ok(sluice__json_load(&root, path, NULL));
    list = json_object_get(json_object_get(root, "model"), "merges");
    json_array_foreach(list, i, m) {
        char found[256];
        snprintf(found, sizeof found, "%s %s", json_string_value(json_array_get(m, 0)),
                 json_string_value(json_array_get(m, 1)));
        assert_string_equal(found, json_string_value(json_array_get(merges, i)));
    }
    json_decref(root);
    sluice_tokenizer_free(tok);
}

static void training(void **state) {
    (void)state;
    json_t *root = cases(), *merges;
    const char *pattern;
    json_object_foreach(json_object_get(root, "train"), pattern, merges)
        check_training(pattern, 500, json_object_get(root, "corpus"), merges);
    check_training("gpt2", 1000, json_object_get(root, "equal_corpus"), json_object_get(root, "train_equal"));
    json_decref(root);
}

static void training_refused(void **state) {
    (void)state;
    static const char *const empty[] = {""}, *const twice[] = {"<s>", "<s>"}, *const byte[] = {"a"},
                             *const invalid[] = {"\xFF"};
    const struct {
        int vocab_size, num;
        const char *const *special;
        const char *pattern, *normalizer, *part;
    } bad[] = {
        {256, 1, twice, "gpt2", NULL, "vocab_size: found 256, expected 257"},
        {-1, 0, NULL, "gpt2", NULL, "vocab_size"},
        {300, 1, empty, "gpt2", NULL, "special token 0"},
        {300, 2, twice, "gpt2", NULL, "two ids"},
        {300, 1, byte, "gpt2", NULL, "two ids"},
        {300, 1, invalid, "gpt2", NULL, "UTF-8"},
        {300, 0, NULL, "(a", NULL, "(a"},
        {300, 0, NULL, "gpt-2", NULL, "expected gpt2, qwen2"},
        {300, 0, NULL, "gpt2", "NFX", "NFX"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        sluice_tokenizer_params p = {.vocab_size = bad[i].vocab_size,
                                     .num_special_tokens = bad[i].num,
                                     .special_tokens = bad[i].special,
                                     .pattern = bad[i].pattern,
                                     .normalizer = bad[i].normalizer};
        sluice_tokenizer *tok;
        assert_int_not_equal(sluice_tokenizer_train_text(&tok, &p, "abc", 3, &err), SLUICE_OK);
        assert_null(tok);
        if (!strstr(err.message, bad[i].part)) fail_msg("\"%s\" lacks \"%s\"", err.message, bad[i].part);
    }
}

static char *random_text(sluice__rng *r, size_t size, size_t *found) {
    static const char *const parts[] = {"the", " cat", "s",  "\n", "\n\n",    " ",    "  ",     "é", "e\u0301",
                                        "12",  "好",   "'s", ".",  "<think>", "\r\n", "\u0301", "ﬁ", "İ"};
    char *text = malloc(size + 16);
    size_t n = 0;
    assert_non_null(text);
    while (n < size) {
        const char *p = parts[sluice__rng_below(r, sizeof parts / sizeof *parts)];
        memcpy(text + n, p, strlen(p));
        n += strlen(p);
    }
    *found = n;
    return text;
}

/* Encoding a long text by several threads, and piece by piece, gives the same ids. */
static void pieces_and_threads(void **state) {
    (void)state;
    static const char *const forms[] = {"none", "NFC", "NFD", "NFKC", "NFKD"}, *const patterns[] = {"gpt2", "qwen2",
                                                                                                    "qwen3.5",
                                                                                                    "llama3"};
    json_t *root = cases();
    for (int i = 0; i < 20; i++) {
        sluice_tokenizer_params p = sluice_tokenizer_params_default();
        sluice_tokenizer *tok;
        sluice__rng r = {3, (uint64_t)i, 0};
        size_t size, done = 0;
        p.vocab_size = 400;
        p.pattern = patterns[i % 4];
        p.normalizer = forms[i % 5];
        assert_ok(sluice_tokenizer_train_text(&tok, &p, json_string_value(json_object_get(root, "corpus")),
                                              json_string_length(json_object_get(root, "corpus")), NULL));
        char *text = random_text(&r, 700000, &size);
        sluice_ids one = {0}, many = {0};
        sluice_set_num_threads(1);
        encode(tok, text, size, 0, &one);
        sluice_set_num_threads(3);
        encode(tok, text, size, 0, &many);
        assert_int_equal(one.count, many.count);
        assert_memory_equal(one.data, many.data, one.count * sizeof *one.data);
        many.count = 0;
        while (done < size) {
            size_t want = 1 + sluice__rng_below(&r, 5000),
                   cut = size - done > want ? sluice_tokenizer_cut(tok, text + done, want) : size - done;
            if (!cut) cut = size - done;
            assert_ok(sluice_tokenizer_encode(tok, text + done, cut, 0, &many, NULL));
            done += cut;
        }
        assert_int_equal(one.count, many.count);
        assert_memory_equal(one.data, many.data, one.count * sizeof *one.data);
        sluice_ids_free(&one);
        sluice_ids_free(&many);
        sluice_tokenizer_free(tok);
        free(text);
    }
    sluice_set_num_threads(0);
    json_decref(root);
}

/* The heap of long pre-tokens against the scan of short ones, by their definition: merge the lowest rank, leftmost
 * first. */
static size_t merge_slowly(const sluice_tokenizer *tok, const char *text, size_t size, uint32_t *ids) {
    size_t n = size;
    for (size_t i = 0; i < n; i++) ids[i] = (uint32_t)tok->symbol[(unsigned char)text[i]];
    for (;;) {
        size_t best = 0;
        uint32_t least = SLUICE__NO_MERGE;
        for (size_t i = 0; i + 1 < n; i++) {
            uint32_t rank = sluice__merge_rank(&tok->vocab.merges, ids[i], ids[i + 1]);
            if (rank < least) least = rank, best = i;
        }
        if (least == SLUICE__NO_MERGE) return n;
        ids[best] = tok->vocab.merges.id[least];
        memmove(ids + best + 1, ids + best + 2, (n - best - 2) * sizeof *ids);
        n--;
    }
}

static void merging(void **state) {
    (void)state;
    sluice_tokenizer *tok = load(test_data("tokenizer/small.json"));
    sluice__encoder *e;
    sluice__rng r = {4, 0, 0};
    char text[400];
    uint32_t slow[400];
    sluice_ids ids = {0};
    assert_ok(sluice__encoder_get(&e, tok, NULL));
    for (int round = 0; round < 3000; round++) {
        size_t size = 1 + sluice__rng_below(&r, round % 10 ? 80 : 400);
        for (size_t i = 0; i < size; i++) text[i] = "thecatsonm d'Ga\xC3\xA9\xFF"[sluice__rng_below(&r, 18)];
        ids.count = 0;
        e->out = &ids;
        assert_ok(sluice__bpe(e, text, size, NULL));
        assert_ok(sluice__bpe_flush(e, NULL));
        size_t n = merge_slowly(tok, text, size, slow);
        assert_int_equal(ids.count, n);
        assert_memory_equal(ids.data, slow, n * sizeof *slow);
    }
    sluice__encoder_put(e);
    sluice_ids_free(&ids);
    sluice_tokenizer_free(tok);
}

/* A megabyte without a place to cut is one pre-token. */
static void long_word(void **state) {
    (void)state;
    sluice_tokenizer *tok = load(test_data("tokenizer/small.json"));
    enum { N = 1 << 20 };
    char *text = malloc(N);
    sluice_ids ids = {0};
    sluice_text back = {0};
    assert_non_null(text);
    for (int i = 0; i < N; i++) text[i] = "catonthem"[i * 7 % 9];
    encode(tok, text, N, 0, &ids);
    assert_ok(sluice_tokenizer_decode(tok, ids.data, ids.count, false, &back, NULL));
    assert_int_equal(back.size, N);
    assert_memory_equal(back.data, text, N);
    sluice_ids_free(&ids);
    sluice_text_free(&back);
    free(text);
    sluice_tokenizer_free(tok);
}

/* Nothing is lost of bytes that are not UTF-8: the tokens' bytes are the text again. */
static void ill_formed(void **state) {
    (void)state;
    sluice_tokenizer_params p = {.vocab_size = 300, .pattern = "qwen2"};
    sluice_tokenizer *tok;
    sluice__rng r = {5, 0, 0};
    sluice_ids ids = {0};
    assert_ok(sluice_tokenizer_train_text(&tok, &p, "the cat \xFF\xFF\xFF the cat", 19, NULL));
    for (int round = 0; round < 2000; round++) {
        char text[64], back[64];
        size_t size = 1 + sluice__rng_below(&r, 60), n = 0;
        for (size_t i = 0; i < size; i++)
            text[i] =
                (char)(sluice__rng_u32(&r) % 3
                           ? (unsigned char)"the cat\xC3\xA9\xE4\xBD\xA0\xF0\x9F\x98\x80\xED\xA0"[sluice__rng_below(&r,
                                                                                                                    18)]
                           : sluice__rng_u32(&r));
        encode(tok, text, size, 0, &ids);
        for (size_t i = 0; i < ids.count; i++) {
            size_t k;
            const char *bytes = sluice_tokenizer_bytes(tok, ids.data[i], &k);
            assert_true(n + k <= size);
            memcpy(back + n, bytes, k);
            n += k;
        }
        assert_int_equal(n, size);
        assert_memory_equal(back, text, size);
    }
    sluice_ids_free(&ids);
    sluice_tokenizer_free(tok);
}

/* U+FFFD for each maximal ill-formed part, as in Unicode 3.9 and Rust's from_utf8_lossy. */
static void lossy(void **state) {
    (void)state;
    static const struct {
        const char *bytes, *text;
    } rows[] = {{"\xFF", "\uFFFD"},
                {"a\xC3", "a\uFFFD"},
                {"\xC3\x28", "\uFFFD("},
                {"\xE4\xBD", "\uFFFD"},
                {"\xE4\xBDx", "\uFFFDx"},
                {"\xF0\x9F\x98", "\uFFFD"},
                {"\xF0\x9F\x98\xFF", "\uFFFD\uFFFD"},
                {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD"},
                {"\xC0\xAF", "\uFFFD\uFFFD"},
                {"\xF4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},
                {"\xE0\x80\x80", "\uFFFD\uFFFD\uFFFD"},
                {"\x80\x80", "\uFFFD\uFFFD"},
                {"\xF1\x80\x80\x41", "\uFFFD"
                                     "A"}};
    sluice_tokenizer_params p = {.vocab_size = 256, .pattern = "gpt2"};
    sluice_tokenizer *tok;
    assert_ok(sluice_tokenizer_train_text(&tok, &p, "", 0, NULL));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sluice_ids ids = {0};
        json_t *expected = json_string(rows[i].text);
        encode(tok, rows[i].bytes, strlen(rows[i].bytes), 0, &ids);
        check_decode(tok, ids.data, ids.count, false, expected);
        json_decref(expected);
        sluice_ids_free(&ids);
    }
    sluice_tokenizer_free(tok);
}

static void unknown_ids(void **state) {
    (void)state;
    sluice_tokenizer *tok = load(test_data("tokenizer/small.json"));
    int32_t ids[] = {-1, INT32_MAX, INT32_MIN, sluice_tokenizer_vocab_size(tok), sluice_tokenizer_id(tok, "a", 1)};
    json_t *expected = json_string("a");
    check_decode(tok, ids, 5, false, expected);
    assert_null(sluice_tokenizer_token(tok, -1, NULL));
    assert_null(sluice_tokenizer_bytes(tok, sluice_tokenizer_vocab_size(tok), NULL));
    assert_false(sluice_tokenizer_is_special(tok, INT32_MAX));
    assert_int_equal(sluice_tokenizer_id(tok, "no such token", 13), -1);
    json_decref(expected);
    sluice_tokenizer_free(tok);
}

static void facts(void **state) {
    (void)state;
    sluice_tokenizer *tok = load(test_data("tokenizer/small.json"));
    bool fast;
    assert_int_equal(sluice_tokenizer_vocab_size(tok), 408);
    assert_int_equal(sluice_tokenizer_num_tokens(tok), 408);
    assert_string_equal(sluice_tokenizer_pretokenizer(tok, &fast), "Split(qwen2) ByteLevel");
    assert_true(fast);
    assert_int_equal(sluice_tokenizer_eos_id(tok), 1);
    assert_int_equal(sluice_tokenizer_unk_id(tok), -1);
    assert_true(sluice_tokenizer_is_special(tok, 0) && sluice_tokenizer_is_added(tok, 0));
    assert_true(sluice_tokenizer_is_added(tok, 406) && !sluice_tokenizer_is_special(tok, 406));
    size_t size;
    int32_t id = sluice_tokenizer_id(tok, "Ġ", 2);
    assert_string_equal(sluice_tokenizer_bytes(tok, id, &size), " ");
    assert_int_equal(size, 1);
    sluice_tokenizer_free(tok);
}

typedef struct job {
    const sluice_tokenizer *tok;
    const json_t *list;
    bool ok;
} job;

static void *encode_all(void *arg) {
    job *j = arg;
    sluice_ids ids = {0};
    j->ok = true;
    for (int round = 0; round < 5; round++)
        for (size_t i = 0; i < json_array_size(j->list); i++) {
            const json_t *c = json_array_get(j->list, i), *text = json_object_get(c, "text"),
                         *expected = json_object_get(c, "ids");
            ids.count = 0;
            j->ok &= sluice_tokenizer_encode(j->tok, json_string_value(text), json_string_length(text),
                                             SLUICE_ENCODE_PARSE_SPECIAL, &ids, NULL) == SLUICE_OK;
            j->ok &= ids.count == json_array_size(expected);
            for (size_t k = 0; k < ids.count && j->ok; k++)
                j->ok = ids.data[k] == json_integer_value(json_array_get(expected, k));
        }
    sluice_ids_free(&ids);
    return NULL;
}

static void shared_by_threads(void **state) {
    (void)state;
    sluice_tokenizer *tok = load(test_data("tokenizer/small.json"));
    json_t *root = cases();
    pthread_t threads[4];
    job jobs[4];
    for (int i = 0; i < 4; i++) {
        jobs[i] = (job){tok, json_object_get(root, "cases"), false};
        assert_int_equal(pthread_create(&threads[i], NULL, encode_all, &jobs[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_true(jobs[i].ok);
    }
    json_decref(root);
    sluice_tokenizer_free(tok);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(recorded),         cmocka_unit_test(training),
                                       cmocka_unit_test(training_refused), cmocka_unit_test(pieces_and_threads),
                                       cmocka_unit_test(merging),          cmocka_unit_test(long_word),
                                       cmocka_unit_test(ill_formed),       cmocka_unit_test(lossy),
                                       cmocka_unit_test(unknown_ids),      cmocka_unit_test(facts),
                                       cmocka_unit_test(shared_by_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
