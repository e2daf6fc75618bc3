/* SPDX-License-Identifier: Apache-2.0 */
/* Layers with a sliding window keep little more than it: long sequences give the bits that a cache of everything gives, going
 * back is exact near and far, and snapshots, files and copies hold what is needed. */
#include "support/reference.h"
#include "support/small_model.h"
#include "support/test_support.h"
#include "base/file.h"
#include "base/rng.h"
#include "infer/session.h"
#include "layers/cache.h"
#include "model/config.h"
#include "sluice/cpu.h"
#include "sluice/snapshots.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONG = 900, CHUNK = 48, V = 64 };

static const char ALL[] =
    "{\"model_type\": \"mistral\", \"vocab_size\": 64, \"hidden_size\": 32, \"intermediate_size\": 48,"
    "\"num_hidden_layers\": 3, \"num_attention_heads\": 3, \"num_key_value_heads\": 1, \"head_dim\": 32,"
    "\"sliding_window\": 20, \"max_position_embeddings\": 2048, \"initializer_range\": 0.3, \"rms_norm_eps\": 1e-6,"
    "\"rope_theta\": 10000}";
static const char SOME[] =
    "{\"vocab_size\": 64, \"hidden_size\": 32, \"intermediate_size\": 48, \"num_hidden_layers\": 4,"
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 32, \"max_position_embeddings\": 2048,"
    "\"layer_types\": [\"sliding_attention\", \"full_attention\", \"sliding_attention\", \"full_attention\"],"
    "\"sliding_window\": 70, \"initializer_range\": 0.3, \"gate_position\": \"sdpa\", \"gate_granularity\": \"headwise\"}";

static void make_ids(int32_t *ids, int n, int vocab, uint64_t seed) {
    sluice__rng rng = {seed, 0, 0};
    for (int i = 0; i < n; i++) ids[i] = (int32_t)sluice__rng_below(&rng, (uint64_t)vocab);
}

static sluice_session *session_of(const sluice_model *model, int capacity, int chunk, int sequences, sluice_kv_dtype dtype) {
    sluice_error err = {0};
    sluice_session *s;
    sluice_session_params p = {
        .capacity = capacity, .prefill_chunk = chunk, .num_sequences = sequences, .cache_dtype = dtype};
    sluice_status st = sluice_session_new(&s, model, &p, &err);
    if (st == SLUICE_ERR_UNSUPPORTED && dtype == SLUICE_KV_Q8_0) return NULL;
    assert_ok_err(st, &err);
    return s;
}

static bool drops(const sluice_session *s) {
    for (int i = 0; i < sluice_model_config(s->model)->num_hidden_layers; i++)
        if (sluice__layer_drops(sluice_model_config(s->model), i)) return true;
    return false;
}

/* That every layer with a window has dropped tokens, and no other. */
static void check_dropped(const sluice_session *s) {
    for (int i = 0; i < sluice_model_config(s->model)->num_hidden_layers; i++) {
        const sluice__cache_layer *l = &s->now->cache->layers[i];
        assert_int_equal(l->start > LONG / 3, sluice__layer_drops(sluice_model_config(s->model), i));
        if (!l->window) assert_int_equal(l->start, 0);
    }
}

/* The same pieces into a session and into a cache that keeps everything. */
static bool long_sequence(const char *name, const sluice_model *model, sluice_kv_dtype dtype) {
    sluice_error err = {0};
    int vocab = sluice_model_config(model)->vocab_size;
    sluice_session *s = session_of(model, LONG, CHUNK, 1, dtype);
    if (!s) return false;
    bool tested = drops(s);
    sluice__cache *all = NULL;
    sluice__workspace *ws = NULL;
    int32_t ids[LONG];
    float *got = calloc(2 * (size_t)vocab, sizeof *got), *want = got + vocab;
    sluice__rng rng = {3, 1, 0};
    make_ids(ids, LONG, vocab, 5);
    if (tested) {
        assert_ok_err(sluice__cache_new_typed(&all, model, 1, LONG, dtype, 0, &err), &err);
        assert_ok_err(sluice__workspace_new(&ws, model, 1, CHUNK, SLUICE__INFER, &err), &err);
    }
    for (int at = 0, n; tested && at < LONG; at += n) {
        n = sluice__rng_below(&rng, 3) ? 1 + (int)sluice__rng_below(&rng, CHUNK) : 1;
        if (n > LONG - at) n = LONG - at;
        sluice__input in = {.batch = 1, .seq_len = n, .ids = ids + at};
        assert_ok_err(sluice__forward(model, ws, &in, all, NULL, SLUICE__LOGITS_LAST, want, &err), &err);
        assert_ok_err(sluice_session_eval(s, ids + at, n, got, &err), &err);
        if (memcmp(got, want, (size_t)vocab * sizeof *got) != 0) fail_msg("%s, type %d: differs at %d + %d", name, dtype, at, n);
    }
    if (tested) check_dropped(s);
    sluice__cache_free(all);
    sluice__workspace_free(ws);
    sluice_session_free(s);
    free(got);
    return tested;
}

static void long_sequences_have_the_same_bits(void **state) {
    (void)state;
    sluice_model *models[] = {test_model_of(ALL, 7), test_model_of(SOME, 7)};
    for (int dtype = SLUICE_KV_F32; dtype <= SLUICE_KV_Q8_0; dtype++) {
        sluice_set_num_threads(dtype % 2 ? 1 : 3);
        assert_true(long_sequence("all layers", models[0], (sluice_kv_dtype)dtype));
        assert_true(long_sequence("every other layer", models[1], (sluice_kv_dtype)dtype));
    }
    sluice_set_num_threads(1);
    sluice_model_free(models[0]);
    sluice_model_free(models[1]);
}

static void visit_model(void *user, const char *name, const sluice_model *model) {
    int *seen = user;
    *seen += long_sequence(name, model, SLUICE_KV_F32);
    *seen += long_sequence(name, model, SLUICE_KV_F16);
}

static void reference_models_too(void **state) {
    (void)state;
    int seen = 0;
    test_each_model(visit_model, &seen);
    assert_true(seen >= 8);
}

/* Logits of ids[0..n-1] in a session of its own. */
static void fresh(const sluice_model *model, const int32_t *ids, int n, float *logits) {
    sluice_session *s = session_of(model, LONG, CHUNK, 1, SLUICE_KV_F32);
    assert_ok(sluice_session_eval(s, ids, n, logits, NULL));
    sluice_session_free(s);
}

static void close_to(const float *a, const float *b) {
    for (int i = 0; i < V; i++)
        if (!(fabsf(a[i] - b[i]) < 1e-4f)) fail_msg("logit %d: %g against %g", i, (double)a[i], (double)b[i]);
}

static void going_back_is_exact(void **state) {
    (void)state;
    static const char *const texts[] = {ALL, SOME};
    static const int lengths[] = {840, 700, 300, 10, 0};
    int32_t ids[LONG];
    float want[V], got[V];
    int64_t kept;
    make_ids(ids, LONG, V, 6);
    for (int m = 0; m < 2; m++) {
        sluice_model *model = test_model_of(texts[m], 7);
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            int n = lengths[i];
            sluice_session *s = session_of(model, LONG, CHUNK, 1, SLUICE_KV_F32);
            assert_ok(sluice_session_eval(s, ids, 850, NULL, NULL));
            assert_int_equal(sluice__cache_keeps(s->now->cache, n), n > 600 || n == 0);
            assert_ok(sluice_session_truncate(s, n, NULL));
            assert_ok(sluice_session_eval(s, ids + n, 3, got, NULL));
            assert_int_equal(sluice_session_length(s), n + 3);
            fresh(model, ids, n + 3, want);
            close_to(got, want);
            assert_ok(sluice_session_eval(s, ids + n + 3, 847 - n, NULL, NULL));
            assert_ok(sluice_session_reuse(s, ids, n + 1, &kept, NULL));
            assert_int_equal(kept, n > 600 ? n : 0);
            sluice_session_free(s);
        }
        sluice_model_free(model);
    }
}

static void snapshots_files_and_copies(void **state) {
    (void)state;
    static const char *const texts[] = {ALL, SOME};
    static const int lengths[] = {5, 300, 820};
    char path[300];
    int32_t ids[LONG];
    float want[V], got[V];
    int64_t have;
    snprintf(path, sizeof path, "%s/windows.session", test_temp_dir());
    make_ids(ids, LONG, V, 8);
    for (int m = 0; m < 2; m++) {
        sluice_model *model = test_model_of(texts[m], 7);
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            int n = lengths[i];
            sluice_snapshots *store;
            sluice_session *s = session_of(model, LONG, CHUNK, 2, SLUICE_KV_F32), *other = session_of(model, LONG + 50, CHUNK, 1, SLUICE_KV_F32);
            assert_ok(sluice_snapshots_new(&store, model, 64 << 20, NULL));
            assert_ok(sluice_session_eval(s, ids, n, NULL, NULL));
            assert_ok(sluice_snapshots_keep(store, s, NULL));
            assert_ok(sluice_session_save(s, path, NULL, NULL));
            assert_ok(sluice_session_select(s, 1, NULL));
            assert_ok(sluice_session_copy(s, 0, NULL));
            assert_ok(sluice_session_eval(s, ids + n, 40, got, NULL));
            assert_ok(sluice_session_select(s, 0, NULL));
            assert_ok(sluice_session_eval(s, ids + n, 40, want, NULL));
            assert_memory_equal(got, want, sizeof want);
            assert_ok(sluice_snapshots_resume(store, other, ids, n + 40, &have, NULL));
            assert_int_equal(have, n);
            assert_ok(sluice_session_eval(other, ids + n, 40, got, NULL));
            assert_memory_equal(got, want, sizeof want);
            assert_ok(sluice_snapshots_keep(store, other, NULL)); /* behind the first */
            assert_ok(sluice_session_load(other, path, NULL, NULL));
            assert_ok(sluice_session_eval(other, ids + n, 40, got, NULL));
            assert_memory_equal(got, want, sizeof want);
            assert_ok(sluice_session_truncate(other, 0, NULL));
            assert_ok(sluice_snapshots_resume(store, other, ids, n + 41, &have, NULL));
            assert_int_equal(have, n + 40);
            assert_ok(sluice_session_eval(s, ids + n + 40, 1, want, NULL));
            assert_ok(sluice_session_eval(other, ids + n + 40, 1, got, NULL));
            assert_memory_equal(got, want, sizeof want);
            sluice_session_free(s);
            sluice_session_free(other);
            sluice_snapshots_free(store);
        }
        sluice_model_free(model);
    }
}

static void memory_is_bound_by_the_window(void **state) {
    (void)state;
    sluice_model *all = test_model_of(ALL, 7), *some = test_model_of(SOME, 7);
    sluice_session_params p = {.capacity = 100000, .prefill_chunk = CHUNK};
    int64_t once = sluice_session_cache_bytes(sluice_model_config(all), &p), half = sluice_session_cache_bytes(sluice_model_config(some), &p);
    p.capacity = 200000;
    assert_int_equal(sluice_session_cache_bytes(sluice_model_config(all), &p), once);
    assert_true(once < 3 * 2 * 32 * 4 * 600 + 4096);
    int64_t more = sluice_session_cache_bytes(sluice_model_config(some), &p) - half;
    assert_int_equal(more, 100000LL * 2 * 2 * 2 * 32 * 4); /* two layers, keys and values, two heads of 32 */
    assert_int_equal(sluice_config_cache_bytes(sluice_model_config(all), 100000), 3 * 2 * 32 * 4 * (20 + 256 + 512));
    sluice_model_free(all);
    sluice_model_free(some);
}

int main(void) {
    sluice_set_num_threads(1); /* the models are tiny */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_sequences_have_the_same_bits),
        cmocka_unit_test(reference_models_too),
        cmocka_unit_test(going_back_is_exact),
        cmocka_unit_test(snapshots_files_and_copies),
        cmocka_unit_test(memory_is_bound_by_the_window),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
