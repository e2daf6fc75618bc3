/* SPDX-License-Identifier: Apache-2.0 */
/* Several sequences in one pass give what each gives alone: random schedules of single tokens and longer pieces, every model of
 * reference/models, a hybrid and a mixture made here, every type of cache. And what is refused changes nothing. */
#include "support/reference.h"
#include "support/small_model.h"
#include "support/test_support.h"
#include "base/file.h"
#include "base/rng.h"
#include "sluice/cpu.h"
#include "sluice/session.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEQUENCES = 5, TOKENS = 70, CHUNK = 24 };

static const char MIXTURE[] =
    "{\"model_type\": \"qwen3_moe\", \"vocab_size\": 64, \"hidden_size\": 32, \"intermediate_size\": 48, "
    "\"num_hidden_layers\": 3, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 32,"
    "\"num_experts\": 8, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 16, \"norm_topk_prob\": true,"
    "\"decoder_sparse_step\": 1, \"max_position_embeddings\": 512, \"initializer_range\": 0.3, \"rms_norm_eps\": 1e-6,"
    "\"sliding_window\": null, \"rope_theta\": 10000}";

/* As in golden/test_splits.c; 16-bit and 8-bit caches round what differs in the last bits, sometimes to the other side. */
static double tolerance(const sluice_config *c, sluice_kv_dtype dtype) {
    static const double typed[] = {3e-4, 1e-2, 8e-2, 8e-2};
    for (int i = 0; i < c->num_hidden_layers && dtype == SLUICE_KV_F32; i++)
        if (sluice_layer_is_linear(&c->layers[i])) return 3e-3;
    return typed[dtype];
}

static sluice_session *session_of(const sluice_model *model, int sequences, sluice_kv_dtype dtype) {
    sluice_error err = {0};
    sluice_session *s;
    sluice_session_params p = {
        .capacity = TOKENS, .prefill_chunk = CHUNK, .num_sequences = sequences, .cache_dtype = dtype};
    sluice_status st = sluice_session_new(&s, model, &p, &err);
    if (st == SLUICE_ERR_UNSUPPORTED && dtype == SLUICE_KV_Q8_0) return NULL; /* heads that are not whole blocks */
    assert_ok_err(st, &err);
    return s;
}

typedef struct schedule {
    sluice_session *together, *alone; /* as many sequences in both; those of alone take turns */
    int32_t ids[SEQUENCES][TOKENS];
    int length[SEQUENCES];
    int vocab;
    float *got, *want; /* [SEQUENCES, vocab], [vocab] */
    sluice__rng rng;
    double worst;
} schedule;

static int below(schedule *s, int n) { return (int)sluice__rng_below(&s->rng, (uint64_t)n); }

/* Some of the sequences, in any order, with one token or a piece each. */
static int choose(schedule *s, sluice_batch_item *items) {
    int count = 0, first = below(s, SEQUENCES);
    for (int k = 0; k < SEQUENCES; k++) {
        int q = (first + k) % SEQUENCES, left = TOKENS - s->length[q], n = below(s, 3) ? 1 : 1 + below(s, 2 * CHUNK);
        if (!left || !below(s, 4)) continue;
        items[count] = (sluice_batch_item){q, s->ids[q] + s->length[q], n < left ? n : left,
                                           below(s, 5) ? s->got + (int64_t)q * s->vocab : NULL};
        count++;
    }
    return count;
}

static void compare(schedule *s, const sluice_batch_item *item) {
    sluice_error err = {0};
    assert_ok(sluice_session_select(s->alone, item->sequence, NULL));
    assert_ok_err(sluice_session_eval(s->alone, item->ids, item->n, s->want, &err), &err);
    s->length[item->sequence] += (int)item->n;
    assert_ok(sluice_session_select(s->together, item->sequence, NULL));
    assert_int_equal(sluice_session_length(s->together), s->length[item->sequence]);
    assert_memory_equal(sluice_session_ids(s->together), s->ids[item->sequence],
                        (size_t)s->length[item->sequence] * sizeof(int32_t));
    for (int i = 0; item->logits && i < s->vocab; i++) {
        double d = fabs((double)item->logits[i] - s->want[i]);
        if (!(d <= s->worst)) s->worst = d;
    }
}

static void run_schedule(const char *name, const sluice_model *model, sluice_kv_dtype dtype) {
    const sluice_config *config = sluice_model_config(model);
    schedule s = {.vocab = config->vocab_size, .rng = {.seed = 9, .stream = (uint64_t)dtype}};
    sluice_error err = {0};
    s.together = session_of(model, SEQUENCES, dtype);
    s.alone = s.together ? session_of(model, SEQUENCES, dtype) : NULL;
    if (!s.together) return;
    s.got = calloc((size_t)s.vocab * (SEQUENCES + 1), sizeof *s.got);
    assert_non_null(s.got);
    s.want = s.got + (int64_t)SEQUENCES * s.vocab;
    for (int q = 0; q < SEQUENCES; q++)
        for (int i = 0; i < TOKENS; i++) s.ids[q][i] = below(&s, s.vocab);
    for (int round = 0, left = 1; left && round < 400; round++) {
        sluice_batch_item items[SEQUENCES];
        int count = choose(&s, items);
        if (count) assert_ok_err(sluice_session_eval_batch(s.together, items, count, &err), &err);
        for (int i = 0; i < count; i++) compare(&s, &items[i]);
        left = 0;
        for (int q = 0; q < SEQUENCES; q++) left += TOKENS - s.length[q];
    }
    if (!(s.worst <= tolerance(config, dtype)))
        fail_msg("%s, cache of %s: logits differ by %g", name, sluice_kv_dtype_name(dtype), s.worst);
    sluice_session_free(s.together);
    sluice_session_free(s.alone);
    free(s.got);
}

static void run_types(const char *name, const sluice_model *model) {
    for (int dtype = SLUICE_KV_F32; dtype <= SLUICE_KV_Q8_0; dtype++) run_schedule(name, model, (sluice_kv_dtype)dtype);
}

static void models_made_here(void **state) {
    (void)state;
    sluice_model *hybrid = test_model_of(test_hybrid_config, 3), *mixture = test_model_of(MIXTURE, 4);
    for (int threads = 1; threads <= 4; threads += 3) {
        sluice_set_num_threads(threads);
        run_types("a hybrid", hybrid);
        run_types("a mixture", mixture);
    }
    sluice_set_num_threads(1);
    sluice_model_free(hybrid);
    sluice_model_free(mixture);
}

static void visit_model(void *user, const char *name, const sluice_model *model) {
    (void)user;
    run_types(name, model);
}

static void every_reference_model(void **state) {
    (void)state;
    assert_true(test_each_model(visit_model, NULL) >= 31);
}

static void more_sequences_than_the_chunk_holds(void **state) {
    (void)state;
    enum { V = 64 };
    sluice_error err = {0};
    sluice_model *model = test_model_of(MIXTURE, 4);
    sluice_session_params p = {.capacity = 8, .prefill_chunk = 2, .num_sequences = SEQUENCES};
    sluice_session *s;
    float got[SEQUENCES][V], want[V];
    int32_t ids[SEQUENCES][3];
    sluice_batch_item items[SEQUENCES];
    assert_ok_err(sluice_session_new(&s, model, &p, &err), &err);
    for (int q = 0; q < SEQUENCES; q++) {
        for (int i = 0; i < 3; i++) ids[q][i] = (7 * q + 5 * i) % V;
        items[q] = (sluice_batch_item){q, ids[q], q == 2 ? 3 : 1, got[q]};
    }
    assert_ok_err(sluice_session_eval_batch(s, items, SEQUENCES, &err), &err);
    for (int q = 0; q < SEQUENCES; q++) {
        assert_ok(sluice_session_select(s, q, NULL));
        assert_ok(sluice_session_truncate(s, 0, NULL));
        assert_ok(sluice_session_eval(s, ids[q], items[q].n, want, NULL));
        for (int i = 0; i < V; i++) assert_true(fabsf(want[i] - got[q][i]) < 1e-4f);
    }
    sluice_session_free(s);
    sluice_model_free(model);
}

static void what_is_refused_changes_nothing(void **state) {
    (void)state;
    static const int32_t good[] = {1, 2, 3, 4, 5}, bad[] = {1, 64};
    static const struct {
        sluice_batch_item items[3];
        int count;
        const char *mention;
    } cases[] = {
        {{{0, good, 2, NULL}, {0, good, 1, NULL}}, 2, "sequence 0"},
        {{{0, good, 2, NULL}, {3, good, 1, NULL}}, 2, "expected 0..2"},
        {{{0, good, 2, NULL}, {-1, good, 1, NULL}}, 2, "found -1"},
        {{{1, good, 2, NULL}, {2, bad, 2, NULL}}, 2, "64"},
        {{{1, good, 2, NULL}, {0, good, 5, NULL}}, 2, "context of 6"},
        {{{1, good, 2, NULL}, {0, good, 0, NULL}}, 2, "at least 1"},
        {{{1, good, 2, NULL}}, 0, "found 0"},
        {{{0, good, 1, NULL}, {1, good, 1, NULL}, {2, good, 1, NULL}}, 4, "found 4"},
    };
    sluice_model *model = test_model_of(test_hybrid_config, 3);
    sluice_session_params p = {.capacity = 6, .prefill_chunk = 4, .num_sequences = 3};
    sluice_session *s;
    assert_ok(sluice_session_new(&s, model, &p, NULL));
    assert_ok(sluice_session_eval(s, good, 2, NULL, NULL));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sluice_error err = {0};
        assert_int_equal(sluice_session_eval_batch(s, cases[i].items, cases[i].count, &err), SLUICE_ERR_ARGUMENT);
        if (!strstr(err.message, cases[i].mention)) fail_msg("\"%s\" does not mention \"%s\"", err.message, cases[i].mention);
        for (int q = 2; q >= 0; q--) {
            assert_ok(sluice_session_select(s, q, NULL));
            assert_int_equal(sluice_session_length(s), q ? 0 : 2);
        }
    }
    sluice_session_free(s);
    sluice_model_free(model);
}

/* A sequence that was cut into the middle of what its states have seen, beside one that was not. */
static void cut_states_are_made_again(void **state) {
    (void)state;
    enum { V = 64 };
    int32_t ids[20];
    float want[V], got[2 * V];
    sluice_model *model = test_model_of(test_hybrid_config, 3);
    sluice_session *s = session_of(model, 2, SLUICE_KV_F32);
    for (int i = 0; i < 20; i++) ids[i] = (11 * i + 3) % V;
    assert_ok(sluice_session_eval(s, ids, 12, want, NULL));
    assert_ok(sluice_session_eval(s, ids + 12, 5, NULL, NULL));
    assert_ok(sluice_session_truncate(s, 11, NULL));
    const sluice_batch_item items[] = {{1, ids, 12, got + V}, {0, ids + 11, 1, got}};
    assert_ok(sluice_session_eval_batch(s, items, 2, NULL));
    for (int i = 0; i < 2 * V; i++) assert_true(fabsf(want[i % V] - got[i]) < 1e-3f);
    sluice_session_free(s);
    sluice_model_free(model);
}

static int stop_at_three(void *user, int32_t token, double logprob) {
    (void)token, (void)logprob;
    return ++*(int *)user == 3;
}

static int always(void *user) {
    (void)user;
    return 1;
}

static void expect_generation(const sluice_generation *g, const int32_t *tokens, int count, sluice_stop_reason stop) {
    assert_int_equal(g->count, count);
    assert_int_equal(g->stop, stop);
    assert_memory_equal(g->tokens, tokens, (size_t)count * sizeof *tokens);
}

/* Greedy, behind what the sequences hold: an end token, a callback, a length, and a full context. */
static void texts_are_those_generated_alone(void **state) {
    (void)state;
    static const int32_t ids[] = {5, 9, 33, 2, 61, 17, 40, 8, 22, 50, 51, 3, 14, 7, 29, 30, 1, 12};
    enum { LENGTH = 12, TEXTS = 4 };
    static const int first[TEXTS] = {0, 3, 7, 2}, n[TEXTS] = {3, 8, 1, 10};
    int32_t alone[TEXTS][LENGTH], end;
    int calls = 0;
    sluice_error err = {0};
    sluice_model *model = test_model_of(test_hybrid_config, 3);
    sluice_session_params sp = {.capacity = 20, .prefill_chunk = 6, .num_sequences = TEXTS};
    sluice_session *s;
    sluice_generation g[TEXTS];
    sluice_generate_request r[TEXTS];
    sluice_generate_params p = sluice_generate_params_default();
    p.sampling.temperature = 0;
    p.max_new_tokens = LENGTH;
    assert_ok(sluice_session_new(&s, model, &sp, NULL));
    for (int t = 0; t < TEXTS; t++) {
        assert_ok(sluice_session_select(s, t, NULL));
        if (t == 1) assert_ok(sluice_session_eval(s, ids + 15, 2, NULL, NULL));
        assert_ok_err(sluice_generate(s, ids + first[t], n[t], &p, &g[0], &err), &err);
        memcpy(alone[t], g[0].tokens, (size_t)g[0].count * sizeof **alone);
        assert_int_equal(g[0].count, t == 1 || t == 3 ? 11 : LENGTH);
        sluice_generation_free(&g[0]);
        assert_ok(sluice_session_truncate(s, 0, NULL));
        if (t == 1) assert_ok(sluice_session_eval(s, ids + 15, 2, NULL, NULL));
        r[t] = (sluice_generate_request){t, ids + first[t], n[t], p};
    }
    end = alone[0][4];
    int until = 0;
    while (alone[0][until] != end) until++;
    r[0].params.eos_ids = &end;
    r[0].params.num_eos = 1;
    r[2].params.on_token = stop_at_three;
    r[2].params.user = &calls;
    r[3].params.max_new_tokens = 5;
    assert_ok_err(sluice_generate_batch(s, r, TEXTS, g, &err), &err);
    expect_generation(&g[0], alone[0], until, SLUICE_STOP_EOS);
    expect_generation(&g[1], alone[1], 11, SLUICE_STOP_CAPACITY);
    expect_generation(&g[2], alone[2], 3, SLUICE_STOP_CALLER);
    expect_generation(&g[3], alone[3], 5, SLUICE_STOP_LENGTH);
    assert_ok(sluice_session_select(s, 3, NULL));
    assert_int_equal(sluice_session_length(s), 10 + 5 - 1);
    for (int t = 0; t < TEXTS; t++) sluice_generation_free(&g[t]);
    sluice_session_free(s);
    sluice_model_free(model);
}

static void one_prompt_is_cancelled(void **state) {
    (void)state;
    static const int32_t ids[] = {5, 9, 33, 2, 61, 17, 40, 8, 22, 50};
    sluice_model *model = test_model_of(MIXTURE, 3);
    sluice_session_params sp = {.capacity = 30, .prefill_chunk = 4, .num_sequences = 2};
    sluice_session *s;
    sluice_generation g[2];
    sluice_generate_params p = sluice_generate_params_default();
    p.max_new_tokens = 2;
    sluice_generate_request r[2] = {{1, ids, 10, p}, {0, ids, 10, p}};
    r[0].params.cancelled = always;
    assert_ok(sluice_session_new(&s, model, &sp, NULL));
    assert_ok(sluice_generate_batch(s, r, 2, g, NULL));
    assert_int_equal(g[0].count, 0);
    assert_int_equal(g[0].stop, SLUICE_STOP_CALLER);
    assert_int_equal(g[1].count, 2);
    assert_int_equal(sluice_session_length(s), 11);
    assert_ok(sluice_session_select(s, 1, NULL));
    assert_int_equal(sluice_session_length(s), 4);
    for (int t = 0; t < 2; t++) sluice_generation_free(&g[t]);
    r[1].params.max_new_tokens = -1;
    assert_int_equal(sluice_generate_batch(s, r, 2, g, NULL), SLUICE_ERR_ARGUMENT);
    r[1].params.max_new_tokens = 1;
    r[1].sequence = 1;
    assert_int_equal(sluice_generate_batch(s, r, 2, g, NULL), SLUICE_ERR_ARGUMENT);
    r[1].sequence = 2;
    assert_int_equal(sluice_generate_batch(s, r, 2, g, NULL), SLUICE_ERR_ARGUMENT);
    for (int t = 0; t < 2; t++) assert_true(!g[t].tokens && !g[t].count);
    assert_int_equal(sluice_generate_batch(s, r, 3, g, NULL), SLUICE_ERR_ARGUMENT);
    sluice_session_free(s);
    sluice_model_free(model);
}

int main(void) {
    sluice_set_num_threads(1); /* the models are tiny */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_made_here),
        cmocka_unit_test(every_reference_model),
        cmocka_unit_test(more_sequences_than_the_chunk_holds),
        cmocka_unit_test(what_is_refused_changes_nothing),
        cmocka_unit_test(cut_states_are_made_again),
        cmocka_unit_test(texts_are_those_generated_alone),
        cmocka_unit_test(one_prompt_is_cancelled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
