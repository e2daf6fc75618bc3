/* SPDX-License-Identifier: Apache-2.0 */
/* train: from text files to datasets: no byte is lost or crosses the split, special tokens, bytes that are not
 * UTF-8, shards, model configurations from options. */
#include "support/test_support.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/strbuf.h"
#include "sluice/shards.h"
#include "train/dataset.h"
#include "train/options.h"
#include "train/texts.h"
#include <jansson.h>
#include <stdio.h>
#include <string.h>

static char dir[128];

static char *make_text(unsigned seed, int words) {
    static const char *const word[] = {"the ",     "light ", "was ",     "\xe6\xb0\xb4", "upon ",
                                       "waters, ", "and ",   "evening ", "came.\n"};
    sluice__strbuf b = {0};
    for (unsigned r = seed; words > 0; words--)
        sluice__strbuf_puts(&b, word[(r = r * 1103515245u + 12345u) >> 16 & 7]);
    return b.data;
}

static void put(const char *name, const char *text, size_t size) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_ok(sluice__write_file(path, text, size, NULL));
}

static sluice_train_params params(const char *text) {
    sluice_train_params p = sluice_train_params_default();
    p.seq_len = 8;
    snprintf(p.text, sizeof p.text, "%s/%s", dir, text);
    return p;
}

/* Text of the training and the held-out stream, the latter in held. */
static void decode_streams(const sluice_dataset *d, const sluice_tokenizer *tok, sluice_text *train,
                           sluice_text *held) {
    const sluice__stream *streams[2] = {&d->train, &d->heldout};
    sluice_text *out[2] = {train, held};
    for (int i = 0; i < 2; i++) {
        int64_t n = sluice__stream_length(streams[i]);
        int32_t *ids = sluice__calloc((size_t)n, sizeof *ids, SLUICE__MEM_DATA);
        sluice__stream_read(streams[i], d->stores, 0, n, ids, NULL);
        assert_ok(sluice_tokenizer_decode(tok, ids, (size_t)n, true, out[i], NULL));
        sluice__free(ids);
    }
}

static void no_byte_is_lost_and_held_out_text_stays_out(void **state) {
    (void)state;
    char *text = make_text(1, 4000);
    put("book.txt", text, strlen(text));
    sluice_train_params p = params("book.txt");
    sluice_error err = {0};
    sluice_tokenizer *tok;
    sluice_dataset *d;
    p.bos = SLUICE_BOS_WINDOW;
    assert_ok_err(sluice_train_tokenizer(&tok, &p, 300, &err), &err);
    assert_ok_err(sluice_dataset_load(&d, &p, tok, 300, &err), &err);
    sluice_text train = {0}, held = {0};
    decode_streams(d, tok, &train, &held);
    assert_int_equal(train.size + held.size, strlen(text));
    assert_true(held.size > strlen(text) / 25 && held.size < strlen(text) / 16);
    assert_non_null(strstr(text, "evening"));
    char piece[41] = ""; /* each end is where the other side goes on */
    memcpy(piece, held.data, 40);
    assert_non_null(strstr(text, piece));
    sluice_dataset_info info = sluice_dataset_get_info(d);
    assert_int_equal(info.heldout_bytes, held.size);
    assert_int_equal(info.train_documents, 1);
    int32_t ids[8], labels[8];
    sluice_window w = {ids, labels, NULL, NULL};
    sluice_dataset_train_window(d, 3, &w);
    assert_int_equal(ids[0], sluice_tokenizer_bos_id(tok));
    assert_true(sluice_tokenizer_bos_id(tok) != sluice_tokenizer_eos_id(tok));
    assert_memory_equal(ids + 1, labels, 7 * sizeof *ids);
    sluice_dataset_free(d);
    sluice_tokenizer_free(tok);
    sluice_text_free(&train);
    sluice_text_free(&held);
    sluice__free(text);
}

/* A word that only held-out text has must leave no token behind. */
static void a_tokenizer_does_not_see_held_out_text(void **state) {
    (void)state;
    sluice_train_params p = sluice_train_params_default();
    sluice_tokenizer *tok;
    sluice_error err = {0};
    sluice_document documents[40];
    char *text = make_text(2, 300);
    p.split = SLUICE_SPLIT_DOCUMENT;
    p.validation_split_percentage = 20;
    sluice__split_rule rule = sluice__split_rule_of(&p);
    int64_t sizes[40], n;
    for (int i = 0; i < 40; i++) sizes[i] = 1;
    sluice__piece *pieces;
    assert_ok(sluice__split(&pieces, &n, &rule, sizes, 40, NULL, NULL, NULL));
    static const char secret[] =
        "zyxw zyxw zyxw zyxw zyxw zyxw zyxw zyxw zyxw zyxw zyxw zyxw zyxw zyxw zyxw zyxw zyxw zyxw";
    for (int i = 0; i < 40; i++)
        documents[i] = pieces[i].held ? (sluice_document){secret, sizeof secret - 1}
                                      : (sluice_document){text, strlen(text)};
    assert_ok_err(sluice_train_tokenizer_on_text(&tok, &p, 300, documents, 40, &err), &err);
    for (int i = 0; i < sluice_tokenizer_vocab_size(tok); i++) {
        const char *bytes = sluice_tokenizer_bytes(tok, i, NULL);
        assert_true(!bytes || !strstr(bytes, "zy"));
    }
    sluice_tokenizer_free(tok);
    sluice__free(pieces);
    sluice__free(text);
}

static void bytes_that_are_not_utf8_are_kept(void **state) {
    (void)state;
    char bytes[3000];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (char)(i * 7 % 251 + (i % 3 == 0 ? 128 : 1));
    for (size_t i = 0; i < sizeof bytes; i++)
        if (!bytes[i]) bytes[i] = 'x';
    put("raw.txt", bytes, sizeof bytes);
    sluice_train_params p = params("raw.txt");
    sluice_error err = {0};
    sluice_tokenizer *tok;
    sluice_dataset *d;
    assert_ok_err(sluice_train_tokenizer(&tok, &p, 260, &err), &err);
    assert_ok_err(sluice_dataset_load(&d, &p, tok, 260, &err), &err);
    int64_t total = 0;
    const sluice__stream *streams[2] = {&d->train, &d->heldout};
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < sluice__stream_length(streams[k]); i++) {
            int32_t id;
            sluice__stream_read(streams[k], d->stores, i, 1, &id, NULL);
            total += sluice_dataset_token_bytes(d, id);
        }
    assert_int_equal(total, sizeof bytes);
    sluice_dataset_free(d);
    sluice_tokenizer_free(tok);
}

static void documents_and_separate_held_out_files(void **state) {
    (void)state;
    char *a = make_text(3, 400), *b = make_text(4, 100), line[8192];
    snprintf(line, sizeof line,
             "{\"body\": \"one two three four five six\"}\n{\"body\": \"seven eight nine ten\"}\n");
    put("a.jsonl", line, strlen(line));
    put("held.txt", b, strlen(b));
    sluice_train_params p = params("a.jsonl");
    snprintf(p.validation_text, sizeof p.validation_text, "%s/held.txt", dir);
    snprintf(p.text_column, sizeof p.text_column, "body");
    sluice_error err = {0};
    sluice_tokenizer *tok;
    sluice_dataset *d;
    assert_ok_err(sluice_train_tokenizer(&tok, &p, 270, &err), &err);
    assert_ok_err(sluice_dataset_load(&d, &p, tok, 270, &err), &err);
    sluice_dataset_info info = sluice_dataset_get_info(d);
    assert_int_equal(info.train_documents, 2);
    assert_int_equal(info.heldout_documents, 1);
    int32_t opening;
    sluice_dataset_heldout_tokens(d, 0, 1, &opening); /* nothing predicts it */
    assert_int_equal(info.heldout_bytes, (int)strlen(b) - sluice_dataset_token_bytes(d, opening));
    int32_t id;
    sluice__stream_read(&d->train, d->stores, info.train_tokens - 1, 1, &id, NULL);
    assert_int_equal(id, sluice_tokenizer_eos_id(tok));
    sluice_dataset_free(d);
    snprintf(p.bos_token, sizeof p.bos_token, "<none>");
    p.bos = SLUICE_BOS_DOCUMENT;
    assert_int_equal(sluice_dataset_load(&d, &p, tok, 270, &err), SLUICE_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "bos_token"));
    snprintf(p.text, sizeof p.text, "%s/absent.txt", dir);
    assert_int_not_equal(sluice_dataset_load(&d, &p, tok, 270, &err), SLUICE_OK);
    *p.text = '\0';
    assert_int_equal(sluice_dataset_load(&d, &p, tok, 270, &err), SLUICE_ERR_ARGUMENT);
    sluice_tokenizer_free(tok);
    sluice__free(a);
    sluice__free(b);
}

static void shards_give_the_tokens_of_the_text(void **state) {
    (void)state;
    char *text = make_text(5, 3000), path[256], prefix[256];
    put("s.txt", text, strlen(text));
    sluice_train_params p = params("s.txt");
    p.split = SLUICE_SPLIT_NONE;
    sluice_error err = {0};
    sluice_tokenizer *tok, *other;
    sluice_dataset *from_text, *from_shards;
    assert_ok_err(sluice_train_tokenizer(&tok, &p, 280, &err), &err);
    assert_ok_err(sluice_train_tokenizer(&other, &p, 270, &err), &err);
    assert_ok_err(sluice_dataset_load(&from_text, &p, tok, 280, &err), &err);
    sluice_pack_params pack = sluice_pack_params_default();
    sluice_pack_result packed;
    snprintf(path, sizeof path, "%s/s.txt", dir);
    snprintf(prefix, sizeof prefix, "%s/shard", dir);
    const char *paths[] = {path};
    pack.output = prefix;
    assert_ok_err(sluice_pack(tok, &pack, paths, 1, &packed, &err), &err);
    *p.text = '\0';
    snprintf(p.shards, sizeof p.shards, "%s", prefix);
    assert_ok_err(sluice_dataset_load(&from_shards, &p, tok, 280, &err), &err);
    sluice_dataset_info a = sluice_dataset_get_info(from_text), b = sluice_dataset_get_info(from_shards);
    assert_int_equal(a.train_tokens, b.train_tokens);
    int32_t x[8], y[8], labels[8];
    sluice_window wx = {x, labels, NULL, NULL}, wy = {y, labels, NULL, NULL};
    for (int64_t i = 0; i < a.train_windows; i++) {
        sluice_dataset_train_window(from_text, i, &wx);
        sluice_dataset_train_window(from_shards, i, &wy);
        assert_memory_equal(x, y, sizeof x);
    }
    sluice_dataset_free(from_shards);
    assert_int_equal(sluice_dataset_load(&from_shards, &p, other, 280, &err), SLUICE_ERR_MISMATCH);
    assert_ok_err(sluice_dataset_load(&from_shards, &p, NULL, 280, &err), &err); /* ids alone */
    sluice_dataset_free(from_shards);
    assert_int_equal(sluice_dataset_load(&from_shards, &p, NULL, 100, &err), SLUICE_ERR_FORMAT);
    assert_non_null(strstr(err.message, "vocab_size"));
    sluice_dataset_free(from_text);
    sluice_tokenizer_free(tok);
    sluice_tokenizer_free(other);
    sluice__free(text);
}

static void configurations_from_options(void **state) {
    (void)state;
    sluice_train_params p = sluice_train_params_default();
    sluice_config c;
    sluice_error err = {0};
    char *json;
    assert_ok_err(sluice_train_model_config(&c, &json, &p,
                                            "{\"hidden_size\": 96, \"num_attention_heads\": 3, "
                                            "\"gate_position\": \"sdpa\", \"gate_granularity\": \"headwise\"}",
                                            500, &err),
                  &err);
    assert_int_equal(c.vocab_size, 500);
    assert_int_equal(c.layers[0].head_dim, 32);
    assert_int_equal(c.layers[0].intermediate_size, 256);
    assert_int_equal(c.layers[0].num_key_value_heads, 3);
    assert_int_equal(c.max_position_embeddings, p.seq_len);
    assert_int_equal(c.layers[0].gate.granularity, SLUICE_GATE_HEADWISE);
    assert_non_null(strstr(json, "intermediate_size"));
    sluice_train_free_text(json);
    sluice_config_free(&c);
    static const char *const bad[][2] = {{"{\"gate_granularity\": \"headwise\"}", "gate_granularity"},
                                         {"{\"vocab_size\": 499}", "vocab_size"},
                                         {"{\"num_attention_heads\": 0}", "num_attention_heads"},
                                         {"{\"hidden_size\": 3000000000}", "hidden_size"},
                                         {"[1]", "object"}};
    for (int i = 0; i < 5; i++) {
        assert_int_not_equal(sluice_train_model_config(&c, NULL, &p, bad[i][0], 500, &err), SLUICE_OK);
        if (!strstr(err.message, bad[i][1])) fail_msg("%s: %s", bad[i][0], err.message);
    }
    assert_int_equal(sluice_train_model_config(&c, NULL, &p, NULL, 0, &err), SLUICE_ERR_CONFIG);
    static const char llama[] =
        "{\"model_type\": \"llama\", \"vocab_size\": 600, \"hidden_size\": 64, \"intermediate_size\": 96, "
        "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"rms_norm_eps\": 1e-5, "
        "\"max_position_embeddings\": 128, \"tie_word_embeddings\": false, \"layer_types\": [\"full_attention\"]}";
    put("config.json", llama, strlen(llama));
    snprintf(p.config_name, sizeof p.config_name, "%s", dir);
    assert_ok_err(sluice_train_model_config(&c, NULL, &p, "{\"num_hidden_layers\": 3}", 500, &err), &err);
    assert_int_equal(c.num_hidden_layers, 3);
    assert_int_equal(c.vocab_size, 600);
    sluice_config_free(&c);
    assert_int_not_equal(sluice_train_model_config(&c, NULL, &p, "{\"sandwich_norm\": true}", 500, &err), SLUICE_OK);
    assert_non_null(strstr(err.message, "sandwich_norm")); /* a llama has none */
}

static int set_up(void **state) {
    (void)state;
    snprintf(dir, sizeof dir, "%s", test_temp_dir());
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_byte_is_lost_and_held_out_text_stays_out),
        cmocka_unit_test(a_tokenizer_does_not_see_held_out_text),
        cmocka_unit_test(bytes_that_are_not_utf8_are_kept),
        cmocka_unit_test(documents_and_separate_held_out_files),
        cmocka_unit_test(shards_give_the_tokens_of_the_text),
        cmocka_unit_test(configurations_from_options),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
