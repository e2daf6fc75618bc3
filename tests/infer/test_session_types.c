/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions with caches of every type, of several sequences, and in files; what is reused is not computed again. */
#include "support/small_model.h"
#include "support/test_support.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/rng.h"
#include "sluice/session.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { V = 64, N = 150 };
static const float SPLIT_TOLERANCE = 1e-4f; /* logits of about 3; float32 sums in another order */

static const char PLAIN[] =
    "{\"vocab_size\": 64, \"hidden_size\": 32, \"intermediate_size\": 48, \"num_hidden_layers\": 3,"
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 32,"
    "\"initializer_range\": 0.3, \"gate_position\": \"sdpa\", \"gate_granularity\": \"headwise\"}";

static void make_ids(int32_t *ids, int n, uint64_t seed) {
    sluice__rng rng = {seed, 0, 0};
    for (int i = 0; i < n; i++) ids[i] = (int32_t)sluice__rng_below(&rng, V);
}

static sluice_session *session_of(const sluice_model *model, int chunk, int sequences, sluice_kv_dtype dtype) {
    sluice_error err = {0};
    sluice_session *s;
    sluice_session_params p = {
        .capacity = 400, .prefill_chunk = chunk, .num_sequences = sequences, .cache_dtype = dtype};
    assert_ok_err(sluice_session_new(&s, model, &p, &err), &err);
    return s;
}

static float distance(const float *a, const float *b) {
    float most = 0;
    for (int i = 0; i < V; i++) most = fmaxf(most, fabsf(a[i] - b[i]));
    return most;
}

static void types_stay_close_and_split_alike(void **state) {
    (void)state;
    static const float most[] = {0, 0.01f, 0.08f, 0.08f}; /* logits of about 3 */
    static const int chunks[] = {1, 7, 64};
    sluice_error err = {0};
    for (int kind = 0; kind < 2; kind++) {
        sluice_model *model = test_model_of(kind ? test_hybrid_config : PLAIN, 3);
        int32_t ids[N];
        float exact[V], whole[V], parts[V];
        make_ids(ids, N, 4);
        for (int dtype = 0; dtype < 4; dtype++) {
            sluice_session *s = session_of(model, N, 1, (sluice_kv_dtype)dtype);
            assert_ok_err(sluice_session_eval(s, ids, N, dtype ? whole : exact, &err), &err);
            if (!dtype) memcpy(whole, exact, sizeof whole);
            sluice_session_free(s);
            float away = distance(whole, exact);
            if (!(away <= most[dtype]) || (dtype && away == 0)) fail_msg("type %d: %g from fp32", dtype, (double)away);
            for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++) {
                s = session_of(model, chunks[c], 1, (sluice_kv_dtype)dtype);
                assert_ok_err(sluice_session_eval(s, ids, N, parts, &err), &err);
                /* what is rounded may fall to the other side when it comes by another way */
                assert_true(distance(parts, whole) <= (dtype ? most[dtype] / 2 : SPLIT_TOLERANCE));
                sluice_session_free(s);
            }
        }
        sluice_model_free(model);
    }
}

static void small_types_take_less(void **state) {
    (void)state;
    sluice_model *model = test_model_of(PLAIN, 3);
    sluice_session_params p = sluice_session_params_default();
    p.capacity = 4096;
    int64_t bytes[4];
    for (int i = 0; i < 4; i++) {
        p.cache_dtype = (sluice_kv_dtype)i;
        bytes[i] = sluice_session_cache_bytes(sluice_model_config(model), &p);
    }
    int64_t numbers = (int64_t)4096 * 3 * 2 * 2 * 32;
    assert_true(bytes[0] >= numbers * 4 && bytes[0] < numbers * 4 + 10000);
    assert_true(bytes[1] >= numbers * 2 && bytes[1] < numbers * 2 + 10000);
    assert_true(bytes[3] >= numbers * 34 / 32 && bytes[3] < numbers * 34 / 32 + 10000);
    sluice_model_free(model);
}

static void heads_that_are_no_blocks_are_refused(void **state) {
    (void)state;
    static const char odd[] =
        "{\"vocab_size\": 64, \"hidden_size\": 32, \"intermediate_size\": 48, \"num_hidden_layers\": 1,"
        "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 8}";
    sluice_model *model = test_model_of(odd, 1);
    sluice_session_params p = {.capacity = 10, .prefill_chunk = 5, .cache_dtype = SLUICE_KV_Q8_0};
    sluice_error err = {0};
    sluice_session *s;
    assert_int_equal(sluice_session_new(&s, model, &p, &err), SLUICE_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "head_dim 8"));
    assert_null(s);
    sluice_model_free(model);
}

static void sequences_do_not_disturb_each_other(void **state) {
    (void)state;
    sluice_error err = {0};
    for (int kind = 0; kind < 2; kind++) {
        sluice_model *model = test_model_of(kind ? test_hybrid_config : PLAIN, 5);
        sluice_session *many = session_of(model, 32, 3, SLUICE_KV_F32);
        int32_t a[N], b[N];
        float want_a[V], want_b[V], got[V];
        make_ids(a, N, 1);
        make_ids(b, N, 2);
        for (int i = 0; i < 2; i++) {
            sluice_session *one = session_of(model, 32, 1, SLUICE_KV_F32);
            assert_ok_err(sluice_session_eval(one, a, 40, NULL, &err), &err);
            assert_ok_err(sluice_session_eval(one, (i ? b : a) + 40, 60, i ? want_b : want_a, &err), &err);
            sluice_session_free(one);
        }
        assert_ok_err(sluice_session_eval(many, a, 40, NULL, &err), &err);
        assert_ok_err(sluice_session_select(many, 2, &err), &err);
        assert_int_equal(sluice_session_length(many), 0);
        assert_ok_err(sluice_session_eval(many, b, 9, NULL, &err), &err);
        assert_ok_err(sluice_session_copy(many, 0, &err), &err);
        assert_int_equal(sluice_session_length(many), 40);
        assert_ok_err(sluice_session_eval(many, b + 40, 60, got, &err), &err);
        assert_memory_equal(got, want_b, sizeof got);
        assert_ok_err(sluice_session_select(many, 0, &err), &err);
        assert_ok_err(sluice_session_eval(many, a + 40, 60, got, &err), &err);
        assert_memory_equal(got, want_a, sizeof got);
        assert_int_equal(sluice_session_select(many, 3, &err), SLUICE_ERR_ARGUMENT);
        assert_int_equal(sluice_session_copy(many, -1, &err), SLUICE_ERR_ARGUMENT);
        sluice_session_free(many);
        sluice_model_free(model);
    }
}

static void what_is_held_is_reused(void **state) {
    (void)state;
    sluice_error err = {0};
    sluice_model *model = test_model_of(PLAIN, 5);
    sluice_session *s = session_of(model, 32, 1, SLUICE_KV_F32);
    int32_t ids[N];
    int64_t kept;
    make_ids(ids, N, 1);
    assert_ok_err(sluice_session_eval(s, ids, 100, NULL, &err), &err);
    assert_memory_equal(sluice_session_ids(s), ids, 100 * sizeof *ids);
    assert_ok_err(sluice_session_reuse(s, ids, 150, &kept, &err), &err);
    assert_int_equal(kept, 100);
    assert_ok_err(sluice_session_reuse(s, ids, 100, &kept, &err), &err);
    assert_int_equal(kept, 99); /* one is left to evaluate */
    ids[70] ^= 1;
    assert_ok_err(sluice_session_reuse(s, ids, 100, &kept, &err), &err);
    assert_int_equal(kept, 70);
    assert_int_equal(sluice_session_length(s), 70);
    sluice_session_free(s);
    sluice_model_free(model);
}

/* ---- files ---- */

static void saved_sessions_go_on_bit_for_bit(void **state) {
    (void)state;
    sluice_error err = {0};
    char path[600];
    snprintf(path, sizeof path, "%s/session", test_temp_dir());
    for (int kind = 0; kind < 2; kind++)
        for (int dtype = 0; dtype < 4; dtype++) {
            sluice_model *model = test_model_of(kind ? test_hybrid_config : PLAIN, 6);
            sluice_session *s = session_of(model, 32, 1, (sluice_kv_dtype)dtype),
                           *again = session_of(model, 32, 2, (sluice_kv_dtype)dtype);
            int32_t ids[N];
            float want[V], got[V];
            sluice_text note = {0};
            make_ids(ids, N, 7);
            assert_ok_err(sluice_session_eval(s, ids, 90, NULL, &err), &err);
            assert_ok_err(sluice_session_save(s, path, "a note: \xE6\x97\xA5", &err), &err);
            assert_ok_err(sluice_session_eval(s, ids + 90, 60, want, &err), &err);
            assert_ok_err(sluice_session_select(again, 1, &err), &err);
            assert_ok_err(sluice_session_eval(again, ids, 20, NULL, &err), &err);
            assert_ok_err(sluice_session_load(again, path, &note, &err), &err);
            assert_string_equal(note.data, "a note: \xE6\x97\xA5");
            assert_int_equal(sluice_session_length(again), 90);
            assert_memory_equal(sluice_session_ids(again), ids, 90 * sizeof *ids);
            assert_ok_err(sluice_session_eval(again, ids + 90, 60, got, &err), &err);
            assert_memory_equal(got, want, sizeof got);
            sluice_text_free(&note);
            sluice_session_free(s);
            sluice_session_free(again);
            sluice_model_free(model);
        }
}

/* Keys were rotated for their positions: another scaling of these is another model. */
static void other_positions_are_another_model(void **state) {
    (void)state;
    static const char *const scalings[] = {
        "", "{\"rope_type\": \"yarn\", \"factor\": 4.0, \"original_max_position_embeddings\": 500}",
        "{\"rope_type\": \"yarn\", \"factor\": 4.0, \"original_max_position_embeddings\": 32}",
        "{\"rope_type\": \"yarn\", \"factor\": 4.0, \"original_max_position_embeddings\": 500, \"attention_factor\": 3}",
        "{\"rope_type\": \"yarn\", \"factor\": 4.0, \"original_max_position_embeddings\": 500, \"beta_fast\": 4}"};
    enum { COUNT = sizeof scalings / sizeof *scalings };
    sluice_error err = {0};
    char dir[600], path[700];
    int32_t ids[N];
    make_ids(ids, N, 7);
    snprintf(dir, sizeof dir, "%s", test_temp_dir());
    sluice_model *model = test_model_of(PLAIN, 6), *scaled[COUNT];
    assert_ok_err(sluice_model_save(model, dir, SLUICE_SAVE_AUTO, &err), &err);
    sluice_model_free(model);
    for (int i = 0; i < COUNT; i++) {
        sluice_load_params load = sluice_load_params_default();
        if (*scalings[i]) load.rope_override = scalings[i];
        assert_ok_err(sluice_model_load(&scaled[i], dir, &load, &err), &err);
        sluice_session *s = session_of(scaled[i], 32, 1, SLUICE_KV_F32);
        snprintf(path, sizeof path, "%s/session-%d", dir, i);
        assert_ok_err(sluice_session_eval(s, ids, 9, NULL, &err), &err);
        assert_ok_err(sluice_session_save(s, path, NULL, &err), &err);
        sluice_session_free(s);
    }
    for (int i = 0; i < COUNT * COUNT; i++) {
        sluice_session *s = session_of(scaled[i / COUNT], 32, 1, SLUICE_KV_F32);
        snprintf(path, sizeof path, "%s/session-%d", dir, i % COUNT);
        assert_int_equal(sluice_session_load(s, path, NULL, &err) == SLUICE_OK, i / COUNT == i % COUNT);
        sluice_session_free(s);
    }
    for (int i = 0; i < COUNT; i++) sluice_model_free(scaled[i]);
}

static void files_of_others_and_damaged_ones_change_nothing(void **state) {
    (void)state;
    sluice_error err = {0};
    char path[600], bad[600];
    char *bytes;
    size_t size;
    snprintf(path, sizeof path, "%s/session", test_temp_dir());
    snprintf(bad, sizeof bad, "%s/bad", test_temp_dir());
    sluice_model *model = test_model_of(test_hybrid_config, 6), *other = test_model_of(test_hybrid_config, 7), *plain = test_model_of(PLAIN, 6);
    sluice_session *s = session_of(model, 32, 1, SLUICE_KV_F16), *o = session_of(other, 32, 1, SLUICE_KV_F16),
                   *p = session_of(plain, 32, 1, SLUICE_KV_F16), *f = session_of(model, 32, 1, SLUICE_KV_F32);
    int32_t ids[N];
    make_ids(ids, N, 7);
    assert_ok_err(sluice_session_eval(s, ids, 30, NULL, &err), &err);
    assert_ok_err(sluice_session_save(s, path, NULL, &err), &err);
    assert_int_equal(sluice_session_load(o, path, NULL, &err), SLUICE_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "another model"));
    assert_int_equal(sluice_session_load(p, path, NULL, &err), SLUICE_ERR_ARGUMENT);
    assert_int_equal(sluice_session_load(f, path, NULL, &err), SLUICE_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "f16"));
    assert_ok_err(sluice__read_file(&bytes, &size, path, 1 << 24, &err), &err);
    assert_ok_err(sluice_session_eval(s, ids, 5, NULL, &err), &err);
    sluice__rng rng = {1, 0, 0};
    for (int round = 0; round < 400; round++) {
        size_t at = round < 100 ? (size_t)round : sluice__rng_below(&rng, size), cut = round % 5 == 4 ? at : size;
        char before = bytes[at];
        bytes[at] = (char)(before ^ (1 << round % 8));
        assert_ok_err(sluice__write_file(bad, bytes, cut, &err), &err);
        assert_int_not_equal(sluice_session_load(s, bad, NULL, &err), SLUICE_OK);
        assert_int_equal(sluice_session_length(s), 35);
        bytes[at] = before;
    }
    assert_int_not_equal(sluice_session_load(s, "/nonexistent", NULL, &err), SLUICE_OK);
    assert_int_not_equal(sluice_session_save(s, "/nonexistent/x", NULL, &err), SLUICE_OK);
    sluice__free(bytes);
    sluice_session_free(s), sluice_session_free(o), sluice_session_free(p), sluice_session_free(f);
    sluice_model_free(model), sluice_model_free(other), sluice_model_free(plain);
}

/* ---- generation ---- */

typedef struct heard {
    int steps, cancel_at, asked;
    double sum;
} heard;

static int on_step(void *user, const sluice_step *step) {
    heard *h = user;
    h->steps++;
    assert_int_equal(step->num_top, 3);
    assert_true(step->top_logprobs[0] >= step->top_logprobs[1] && step->top_logprobs[1] >= step->top_logprobs[2]);
    assert_int_equal(step->token, step->top_ids[0]); /* greedy */
    assert_true(fabs(step->logprob - step->top_logprobs[0]) < 1e-9 && step->logprob < 0);
    return 0;
}

static int on_cancel(void *user) {
    heard *h = user;
    return h->cancel_at && ++h->asked >= h->cancel_at;
}

static void steps_are_told_and_can_be_cancelled(void **state) {
    (void)state;
    sluice_error err = {0};
    sluice_model *model = test_model_of(PLAIN, 5);
    sluice_session *s = session_of(model, 32, 1, SLUICE_KV_F32);
    int32_t ids[N];
    heard h = {0};
    sluice_generation g;
    sluice_generate_params p = sluice_generate_params_default();
    make_ids(ids, N, 1);
    p.sampling.temperature = 0;
    p.max_new_tokens = 10;
    p.on_step = on_step;
    p.num_logprobs = 3;
    p.cancelled = on_cancel;
    p.user = &h;
    assert_ok_err(sluice_generate(s, ids, N, &p, &g, &err), &err);
    assert_int_equal(h.steps, 10);
    assert_int_equal(g.stop, SLUICE_STOP_LENGTH);
    sluice_generation_free(&g);
    assert_ok_err(sluice_session_truncate(s, 0, &err), &err);
    h = (heard){.cancel_at = 2}; /* asked between the chunks of the prompt */
    assert_ok_err(sluice_generate(s, ids, N, &p, &g, &err), &err);
    assert_int_equal(g.stop, SLUICE_STOP_CALLER);
    assert_int_equal(g.count, 0);
    assert_int_equal(sluice_session_length(s), 64);
    sluice_generation_free(&g);
    h = (heard){.cancel_at = 6}; /* in the text */
    assert_ok_err(sluice_generate(s, ids, 64, &p, &g, &err), &err);
    assert_int_equal(g.stop, SLUICE_STOP_CALLER);
    assert_true(g.count > 0 && g.count < 10);
    sluice_generation_free(&g);
    sluice_session_free(s);
    sluice_model_free(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_stay_close_and_split_alike),
        cmocka_unit_test(small_types_take_less),
        cmocka_unit_test(heads_that_are_no_blocks_are_refused),
        cmocka_unit_test(sequences_do_not_disturb_each_other),
        cmocka_unit_test(what_is_held_is_reused),
        cmocka_unit_test(saved_sessions_go_on_bit_for_bit),
        cmocka_unit_test(files_of_others_and_damaged_ones_change_nothing),
        cmocka_unit_test(other_positions_are_another_model),
        cmocka_unit_test(steps_are_told_and_can_be_cancelled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
