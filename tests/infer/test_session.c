/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions: recorded greedy continuations, chunk sizes, truncation, growth, bad input. */
#include "support/reference.h"
#include "support/test_support.h"
#include "base/json.h"
#include "base/rng.h"
#include "sluice/log.h"
#include "sluice/session.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static const float SPLIT_TOLERANCE = 1e-4f; /* logits of about 3; float32 sums in another order */

static const char SMALL[] = "{\"vocab_size\": 64, \"hidden_size\": 32, \"intermediate_size\": 48, \"num_hidden_layers\": 2,"
                            "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 8,"
                            "\"initializer_range\": 0.5, \"gate_position\": \"sdpa\", \"gate_granularity\": \"headwise\"}";

static sluice_model *small_model(void) {
    sluice_error err = {0};
    sluice_config config;
    sluice_model *model;
    assert_ok_err(sluice_config_parse(&config, SMALL, "small.json", &err), &err);
    assert_ok_err(sluice_model_new(&model, &config, 3, &err), &err);
    sluice_config_free(&config);
    return model;
}

static int read_ids(json_t *list, int32_t *ids, int most) {
    int n = (int)json_array_size(list);
    assert_true(n > 0 && n <= most);
    for (int i = 0; i < n; i++) ids[i] = (int32_t)json_integer_value(json_array_get(list, (size_t)i));
    return n;
}

/* One recorded continuation; false when this version does not run the model's kind of layer. */
static bool greedy_case(const char *dir) {
    sluice_error err = {0};
    sluice_model *model;
    char path[1200];
    snprintf(path, sizeof path, "%s/greedy.json", dir);
    sluice_status st = sluice_model_load(&model, dir, NULL, &err);
    if (st == SLUICE_ERR_UNSUPPORTED) return false;
    assert_ok_err(st, &err);
    json_t *root;
    assert_ok_err(sluice__json_load(&root, path, &err), &err);
    int32_t prompt[256], want[256];
    int n = read_ids(json_object_get(root, "prompt"), prompt, 256);
    int count = read_ids(json_object_get(root, "tokens"), want, 256);
    sluice_session *s;
    assert_ok_err(sluice_session_new(&s, model, NULL, &err), &err);
    sluice_generate_params p = sluice_generate_params_default();
    p.sampling.temperature = 0;
    p.max_new_tokens = count;
    sluice_generation g;
    assert_ok_err(sluice_generate(s, prompt, n, &p, &g, &err), &err);
    assert_int_equal(g.count, count);
    assert_memory_equal(g.tokens, want, (size_t)count * sizeof *want);
    sluice_generation_free(&g);
    sluice_session_free(s);
    sluice_model_free(model);
    json_decref(root);
    return true;
}

static void check_greedy(void *seen, const char *name, const char *dir) {
    char path[512];
    snprintf(path, sizeof path, "reference/models/%.200s/greedy.json", name);
    if (test_shared(path)) *(int *)seen += greedy_case(dir);
}

static void greedy_continuations_are_the_recorded_ones(void **state) {
    (void)state;
    int seen = 0;
    test_each_case("reference/models", check_greedy, &seen);
    assert_true(seen >= 2);
}

static void any_chunk_size_gives_the_same_logits(void **state) {
    (void)state;
    enum { N = 600, V = 64 };
    sluice_error err = {0};
    sluice_model *model = small_model();
    int32_t ids[N];
    float want[V], got[V];
    sluice__rng rng = {11, 0, 0};
    for (int i = 0; i < N; i++) ids[i] = (int32_t)sluice__rng_below(&rng, V);
    static const int chunks[] = {N, 1, 7, 64, 512};
    for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++) {
        sluice_session_params p = {.capacity = N, .prefill_chunk = chunks[c]};
        sluice_session *s;
        assert_ok_err(sluice_session_new(&s, model, &p, &err), &err);
        assert_ok_err(sluice_session_eval(s, ids, N, c ? got : want, &err), &err);
        assert_int_equal(sluice_session_length(s), N);
        for (int i = 0; c && i < V; i++)
            if (!(fabsf(got[i] - want[i]) <= SPLIT_TOLERANCE))
                fail_msg("chunk %d, logit %d: %g against %g", chunks[c], i, (double)got[i], (double)want[i]);
        sluice_session_free(s);
    }
    sluice_model_free(model);
}

static void truncation_goes_back(void **state) {
    (void)state;
    enum { V = 64 };
    sluice_error err = {0};
    sluice_model *model = small_model();
    const int32_t a[] = {1, 2, 3, 4, 5, 6, 7}, b[] = {9, 9, 9};
    float want[V], got[V];
    sluice_session *s;
    assert_ok_err(sluice_session_new(&s, model, NULL, &err), &err);
    assert_ok_err(sluice_session_eval(s, a, 7, want, &err), &err);
    assert_ok_err(sluice_session_truncate(s, 4, &err), &err);
    assert_ok_err(sluice_session_eval(s, b, 3, got, &err), &err);
    assert_ok_err(sluice_session_truncate(s, 4, &err), &err);
    assert_ok_err(sluice_session_eval(s, a + 4, 3, got, &err), &err);
    for (int i = 0; i < V; i++) assert_true(fabsf(got[i] - want[i]) <= SPLIT_TOLERANCE);
    assert_int_equal(sluice_session_truncate(s, 8, &err), SLUICE_ERR_ARGUMENT);
    sluice_session_free(s);
    sluice_model_free(model);
}

static void bad_input_leaves_the_session_alone(void **state) {
    (void)state;
    sluice_error err = {0};
    sluice_model *model = small_model();
    sluice_session_params p = {.capacity = 4, .prefill_chunk = 512};
    sluice_session *s;
    const int32_t good[] = {1, 2, 3, 4, 5}, high[] = {1, 64};
    assert_ok_err(sluice_session_new(&s, model, &p, &err), &err);
    assert_int_equal(sluice_session_eval(s, good, 5, NULL, &err), SLUICE_ERR_ARGUMENT);
    assert_int_equal(sluice_session_eval(s, high, 2, NULL, &err), SLUICE_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "64"));
    assert_int_equal(sluice_session_eval(s, good, 0, NULL, &err), SLUICE_ERR_ARGUMENT);
    assert_int_equal(sluice_session_length(s), 0);
    sluice_generation g;
    assert_ok_err(sluice_generate(s, good, 2, NULL, &g, &err), &err);
    assert_int_equal(g.stop, SLUICE_STOP_CAPACITY);
    assert_int_equal(g.count, 3); /* two more fit, and the last one needs no place */
    sluice_generation_free(&g);
    sluice_session_free(s);
    p.prefill_chunk = 0;
    assert_int_equal(sluice_session_new(&s, model, &p, &err), SLUICE_ERR_ARGUMENT);
    sluice_model_free(model);
}

static void keep_line(void *user, sluice_log_level level, const char *line) {
    if (level == SLUICE_LOG_WARNING) snprintf(user, 512, "%s", line);
}

static void contexts_past_the_positions_are_warned_of(void **state) {
    (void)state;
    char line[512] = "";
    sluice_model *model = small_model();
    sluice_session *s;
    sluice_session_params params = sluice_session_params_default();
    sluice_log_set(keep_line, line);
    params.capacity = sluice_model_config(model)->max_position_embeddings;
    assert_ok(sluice_session_new(&s, model, &params, NULL));
    sluice_session_free(s);
    assert_int_equal(line[0], 0);
    params.capacity++;
    assert_ok(sluice_session_new(&s, model, &params, NULL));
    sluice_session_free(s);
    assert_non_null(strstr(line, "max_position_embeddings"));
    sluice_log_set(NULL, NULL);
    sluice_model_free(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_continuations_are_the_recorded_ones),
        cmocka_unit_test(any_chunk_size_gives_the_same_logits),
        cmocka_unit_test(truncation_goes_back),
        cmocka_unit_test(bad_input_leaves_the_session_alone),
        cmocka_unit_test(contexts_past_the_positions_are_warned_of),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
