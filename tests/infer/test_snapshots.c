/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots, for a model with linear attention and one without: resuming is bit-equal to going on, what is shared is
 * stored once, the budget holds and the oldest goes first; and sessions of hybrids that are cut. */
#include "support/test_support.h"
#include "base/rng.h"
#include "sluice/snapshots.h"
#include <math.h>
#include <string.h>

enum { VOCAB = 64, LONGEST = 300 };

#define SIZES                                                                                                  \
    "\"vocab_size\": 64, \"hidden_size\": 32, \"intermediate_size\": 48, \"num_hidden_layers\": 3, \"num_attention_heads\": 4," \
    "\"num_key_value_heads\": 2, \"head_dim\": 8, \"initializer_range\": 0.3"
static const char HYBRID[] = "{\"model_type\": \"qwen3_5_text\", " SIZES
                             ", \"layer_types\": [\"linear_attention\", \"full_attention\", \"linear_attention\"],"
                             "\"linear_num_key_heads\": 2, \"linear_num_value_heads\": 4, \"linear_key_head_dim\": 8,"
                             "\"linear_value_head_dim\": 12}";
static const char PLAIN[] = "{" SIZES ", \"gate_position\": \"sdpa\"}";

typedef struct fixture {
    sluice_model *model;
    sluice_session *session;
    sluice_snapshots *store;
    int32_t ids[LONGEST];
} fixture;

static void open_with(fixture *f, const char *json, int64_t budget) {
    sluice_error err = {0};
    sluice_config config;
    sluice__rng rng = {.seed = 11};
    assert_ok_err(sluice_config_parse(&config, json, "test", &err), &err);
    assert_ok_err(sluice_model_new(&f->model, &config, 3, &err), &err);
    sluice_config_free(&config);
    assert_ok_err(sluice_session_new(&f->session, f->model, NULL, &err), &err);
    assert_ok_err(sluice_snapshots_new(&f->store, f->model, budget, &err), &err);
    for (int i = 0; i < LONGEST; i++) f->ids[i] = (int32_t)sluice__rng_below(&rng, VOCAB);
}

static void close_all(fixture *f) {
    sluice_snapshots_free(f->store);
    sluice_session_free(f->session);
    sluice_model_free(f->model);
}

static void eval(fixture *f, sluice_session *s, int from, int to, float *logits) {
    sluice_error err = {0};
    assert_ok_err(sluice_session_eval(s, f->ids + from, to - from, logits, &err), &err);
}

static void keep(fixture *f) {
    sluice_error err = {0};
    assert_ok_err(sluice_snapshots_keep(f->store, f->session, &err), &err);
}

static int64_t resume(fixture *f, sluice_session *s, int n) {
    sluice_error err = {0};
    int64_t reused;
    assert_ok_err(sluice_snapshots_resume(f->store, s, f->ids, n, &reused, &err), &err);
    assert_int_equal(sluice_session_length(s), reused);
    return reused;
}

static void resumed_sessions_give_the_same_bits(const char *json) {
    fixture f;
    float want[VOCAB], got[VOCAB];
    open_with(&f, json, 1 << 24);
    static const int ends[] = {1, 2, 63, 64, 65, 130, 200};
    for (int i = 0, at = 0; i < 7; at = ends[i++]) {
        eval(&f, f.session, at, ends[i], NULL);
        keep(&f);
    }
    eval(&f, f.session, 200, 260, want);
    assert_int_equal(sluice_snapshots_get_stats(f.store).count, 7);
    for (int i = 6; i >= 0; i--) { /* a session of its own, and the old one going back */
        sluice_session *other;
        assert_ok(sluice_session_new(&other, f.model, NULL, NULL));
        assert_int_equal(resume(&f, other, ends[i] + 1), ends[i]);
        assert_int_equal(resume(&f, f.session, ends[i] + 1), ends[i]);
        for (int k = i; k < 6; k++) {
            eval(&f, other, ends[k], ends[k + 1], NULL);
            eval(&f, f.session, ends[k], ends[k + 1], NULL);
        }
        eval(&f, other, 200, 260, got);
        assert_memory_equal(got, want, sizeof want);
        eval(&f, f.session, 200, 260, got);
        assert_memory_equal(got, want, sizeof want);
        sluice_session_free(other);
    }
    close_all(&f);
}

static void test_bits(void **state) {
    (void)state;
    resumed_sessions_give_the_same_bits(HYBRID);
    resumed_sessions_give_the_same_bits(PLAIN);
}

/* A turn more costs its own tokens and one set of states; another branch does not disturb the first. */
static void test_sharing(void **state) {
    (void)state;
    fixture f;
    float want[VOCAB], got[VOCAB];
    open_with(&f, HYBRID, 1 << 24);
    int64_t states = sluice_config_state_bytes(sluice_model_config(f.model)), token = 2 * 2 * 8 * 4 + 4;
    eval(&f, f.session, 0, 100, NULL);
    keep(&f);
    int64_t first = sluice_snapshots_get_stats(f.store).bytes;
    assert_true(first >= states + 100 * token && first < states + 100 * token + 200);
    eval(&f, f.session, 100, 110, want);
    keep(&f);
    int64_t second = sluice_snapshots_get_stats(f.store).bytes - first;
    assert_true(second >= states + 10 * token && second < states + 10 * token + 200);
    keep(&f);
    assert_int_equal(sluice_snapshots_get_stats(f.store).bytes, first + second);
    f.ids[105]++; /* another answer after the same 100 tokens */
    f.ids[105] %= VOCAB;
    assert_int_equal(resume(&f, f.session, 110), 100);
    eval(&f, f.session, 100, 130, NULL);
    keep(&f);
    f.ids[105] = (f.ids[105] + VOCAB - 1) % VOCAB;
    assert_int_equal(resume(&f, f.session, 120), 110);
    assert_int_equal(resume(&f, f.session, 110), 100);
    eval(&f, f.session, 100, 110, got);
    assert_memory_equal(got, want, sizeof want);
    assert_int_equal(sluice_snapshots_get_stats(f.store).resumed, 3);
    close_all(&f);
}

static void test_any_token_of_a_softmax_model(void **state) {
    (void)state;
    fixture f;
    float want[VOCAB], got[VOCAB];
    open_with(&f, PLAIN, 1 << 24);
    eval(&f, f.session, 0, 50, NULL);
    eval(&f, f.session, 50, 60, want);
    eval(&f, f.session, 60, 100, NULL);
    keep(&f);
    sluice_session *other;
    assert_ok(sluice_session_new(&other, f.model, NULL, NULL));
    f.ids[70] = (f.ids[70] + 1) % VOCAB;
    assert_int_equal(resume(&f, other, 100), 70);
    assert_int_equal(resume(&f, other, 51), 50); /* its own beginning */
    eval(&f, other, 50, 60, got);
    assert_memory_equal(got, want, sizeof want);
    sluice_session_free(other);
    close_all(&f);
}

static void test_budget(void **state) {
    (void)state;
    fixture f;
    sluice_error err = {0};
    open_with(&f, HYBRID, 40000);
    for (int end = 20; end <= 200; end += 20) { /* a chain: states of the oldest go, their tokens stay */
        eval(&f, f.session, end - 20, end, NULL);
        keep(&f);
        assert_true(sluice_snapshots_get_stats(f.store).bytes <= 40000);
    }
    sluice_snapshots_stats stats = sluice_snapshots_get_stats(f.store);
    assert_true(stats.count >= 2 && stats.evicted > 0 && stats.count + stats.evicted == 10);
    assert_int_equal(resume(&f, f.session, 201), 200);
    assert_int_equal(resume(&f, f.session, 30), 0); /* its states are gone */
    for (int i = 0; i < 20; i++) { /* sequences of their own: whole chains go */
        f.ids[0] = i;
        assert_int_equal(resume(&f, f.session, 2), 0);
        eval(&f, f.session, 0, 40, NULL);
        keep(&f);
        assert_true(sluice_snapshots_get_stats(f.store).bytes <= 40000);
    }
    assert_int_equal(resume(&f, f.session, 41), 40);
    f.ids[0] = 18;
    assert_int_equal(resume(&f, f.session, 41), 40);
    f.ids[0] = 0;
    assert_int_equal(resume(&f, f.session, 41), 0);
    stats = sluice_snapshots_get_stats(f.store);
    eval(&f, f.session, 0, 300, NULL);
    assert_int_equal(sluice_snapshots_keep(f.store, f.session, &err), SLUICE_ERR_MEMORY);
    assert_int_equal(sluice_snapshots_get_stats(f.store).bytes, stats.bytes);
    close_all(&f);
}

static float difference(const float *a, const float *b) {
    float worst = 0;
    for (int i = 0; i < VOCAB; i++) worst = fmaxf(worst, fabsf(a[i] - b[i]));
    return worst;
}

/* States cannot go back, so what is kept is evaluated once more. */
static void test_cut_hybrids(void **state) {
    (void)state;
    fixture f;
    sluice_error err = {0};
    float want[VOCAB], got[VOCAB];
    open_with(&f, HYBRID, 1 << 20);
    eval(&f, f.session, 0, 90, NULL);
    eval(&f, f.session, 90, 91, want);
    eval(&f, f.session, 91, 120, NULL);
    assert_ok(sluice_session_truncate(f.session, 90, &err));
    assert_int_equal(sluice_session_length(f.session), 90);
    assert_int_equal(sluice_snapshots_keep(f.store, f.session, &err), SLUICE_ERR_ARGUMENT);
    eval(&f, f.session, 90, 91, got);
    assert_true(difference(got, want) < 1e-4f);
    assert_ok(sluice_session_truncate(f.session, 0, &err));
    eval(&f, f.session, 0, 90, NULL);
    eval(&f, f.session, 90, 91, got);
    assert_memory_equal(got, want, sizeof want);
    keep(&f);
    int32_t bad = VOCAB; /* refused before anything changes */
    assert_int_equal(sluice_session_eval(f.session, &bad, 1, NULL, &err), SLUICE_ERR_ARGUMENT);
    keep(&f);
    close_all(&f);
}

static void test_wrong_calls(void **state) {
    (void)state;
    fixture f, g;
    sluice_error err = {0};
    sluice_snapshots *none;
    open_with(&f, HYBRID, 1 << 20);
    open_with(&g, PLAIN, 1 << 20);
    assert_int_equal(sluice_snapshots_new(&none, f.model, 0, &err), SLUICE_ERR_ARGUMENT);
    assert_null(none);
    assert_int_equal(sluice_snapshots_keep(f.store, f.session, &err), SLUICE_ERR_ARGUMENT);
    assert_int_equal(sluice_snapshots_keep(f.store, g.session, &err), SLUICE_ERR_ARGUMENT);
    assert_int_equal(sluice_snapshots_resume(f.store, g.session, f.ids, 3, NULL, &err), SLUICE_ERR_ARGUMENT);
    assert_int_equal(sluice_snapshots_resume(f.store, f.session, f.ids, 0, NULL, &err), SLUICE_ERR_ARGUMENT);
    sluice_snapshots_free(NULL);
    close_all(&f);
    close_all(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits),   cmocka_unit_test(test_sharing),     cmocka_unit_test(test_any_token_of_a_softmax_model),
        cmocka_unit_test(test_budget), cmocka_unit_test(test_cut_hybrids), cmocka_unit_test(test_wrong_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
