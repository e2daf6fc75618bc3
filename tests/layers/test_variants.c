/* SPDX-License-Identifier: Apache-2.0 */
/* Every gate there is: position x granularity x sharing x op x act x input, each with meaning once. For each of them the
 * logits that training's forward pass gives are what one gets after saving and loading, through a cache in any split,
 * token by token, by a session, and with an inspection listening; and the loss of training is theirs. */
#include "base/rng.h"
#include "layers/transformer.h"
#include "sluice/cpu.h"
#include "sluice/inspect.h"
#include "sluice/session.h"
#include "support/small_model.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { B = 1, T = 17, VOCAB = 96 };
static const float TOLERANCE = 5e-5f; /* logits are about 3; sums in another order */
/* A score near 0 in front of the norm of queries and keys: the norm magnifies the rounding of what is left. */
static const float SMALL_SCORE_TOLERANCE = 1e-3f;

static const char *const positions[] = {"sdpa", "value", "key", "query", "output"};
static const char *const granularities[] = {"elementwise", "headwise"};
static const char *const sharings[] = {"\"specific\"", "\"shared\"", "\"shared\", \"gate_share_mean\": \"logit\""};
static const char *const ops[] = {"multiply", "add"};
static const char *const acts[] = {"sigmoid", "silu", "identity", "ns_sigmoid", "softplus"};
static const char *const inputs[] = {"hidden", "none"};

typedef struct subject {
    const char *name;
    sluice_model *model, *loaded;
    int32_t ids[T], labels[T];
    float logits[T * VOCAB]; /* of training's forward pass */
} subject;

static void check(const subject *s, const char *how, const float *found, int first, int count) {
    float worst = 0;
    for (int i = 0; i < count * VOCAB; i++) {
        float d = fabsf(found[i] - s->logits[first * VOCAB + i]);
        worst = d <= worst ? worst : d; /* NaN counts */
    }
    bool before_norm = strstr(s->name, "\"key\"") || strstr(s->name, "\"query\"");
    bool small = before_norm && (strstr(s->name, "\"silu\"") || strstr(s->name, "\"identity\""));
    if (!(worst < (small ? SMALL_SCORE_TOLERANCE : TOLERANCE))) fail_msg("{%s}, %s: logits differ by %.2e", s->name, how, (double)worst);
}

/* Logits in a training workspace, and that the loss of a training step is the loss of these logits. */
static void train_forward(subject *s) {
    sluice__workspace *ws;
    sluice_error err = {0};
    sluice__loss loss;
    double nll = 0;
    float *grads = calloc((size_t)sluice__flat_size(s->model), sizeof *grads);
    sluice__input in = {B, T, s->ids, s->labels, NULL, NULL};
    assert_ok_err(sluice__workspace_new(&ws, s->model, B, T, SLUICE__TRAIN, &err), &err);
    assert_ok_err(sluice__forward(s->model, ws, &in, NULL, NULL, SLUICE__LOGITS_ALL, s->logits, &err), &err);
    assert_ok_err(sluice__loss_and_grads(s->model, ws, &in, NULL, 1.0 / T, grads, &loss, &err), &err);
    for (int t = 0; t < T; t++) {
        double sum = 0;
        for (int v = 0; v < VOCAB; v++) sum += exp((double)s->logits[t * VOCAB + v]);
        nll += log(sum) - (double)s->logits[t * VOCAB + s->labels[t]];
    }
    if (!(fabs(loss.nll_sum - nll) < 1e-3)) fail_msg("{%s}: loss %g, of the logits %g", s->name, loss.nll_sum, nll);
    free(grads);
    sluice__workspace_free(ws);
}

/* The saved and loaded model, in the splits `n` gives (0 behind the last). */
static void in_pieces(const subject *s, const char *how, const int *n) {
    sluice__workspace *ws;
    sluice__cache *cache;
    sluice_error err = {0};
    float logits[T * VOCAB];
    assert_ok_err(sluice__workspace_new(&ws, s->loaded, B, T, SLUICE__INFER, &err), &err);
    assert_ok_err(sluice__cache_new(&cache, s->loaded, B, T, &err), &err);
    for (int first = 0; *n; first += *n++) {
        sluice__input in = {B, *n, s->ids + first, NULL, NULL, NULL};
        assert_ok_err(sluice__forward(s->loaded, ws, &in, cache, NULL, SLUICE__LOGITS_ALL, logits, &err), &err);
        check(s, how, logits, first, *n);
    }
    sluice__cache_free(cache);
    sluice__workspace_free(ws);
}

static void cached(const subject *s, uint64_t seed) {
    int one[T + 1] = {0}, whole[] = {T, 0}, random[T + 1] = {0};
    sluice__rng r = {.seed = seed};
    for (int t = 0; t < T; t++) one[t] = 1;
    for (int left = T, i = 0; left; left -= random[i++]) random[i] = 1 + (int)sluice__rng_below(&r, (uint64_t)left);
    in_pieces(s, "cache, one piece", whole);
    in_pieces(s, "cache, token by token", one);
    in_pieces(s, "cache, random split", random);
}

/* What `sluice generate` does: the prompt in chunks, then the most probable token each time. */
static void generated(const subject *s) {
    sluice_session_params sp = {.capacity = T + 1, .prefill_chunk = 5};
    sluice_session *session;
    sluice_error err = {0};
    float logits[VOCAB];
    assert_ok_err(sluice_session_new(&session, s->loaded, &sp, &err), &err);
    assert_ok_err(sluice_session_eval(session, s->ids, T - 1, logits, &err), &err);
    check(s, "session", logits, T - 2, 1);
    assert_ok_err(sluice_session_eval(session, s->ids + T - 1, 1, logits, &err), &err);
    check(s, "session, next token", logits, T - 1, 1);
    assert_ok_err(sluice_session_truncate(session, 0, &err), &err);
    sluice_generate_params gp = sluice_generate_params_default();
    sluice_generation g;
    gp.sampling.temperature = 0;
    gp.max_new_tokens = 1;
    assert_ok_err(sluice_generate(session, s->ids, T, &gp, &g, &err), &err);
    int best = 0;
    for (int v = 1; v < VOCAB; v++)
        if (s->logits[(T - 1) * VOCAB + v] > s->logits[(T - 1) * VOCAB + best]) best = v;
    assert_int_equal(g.tokens[0], best);
    sluice_generation_free(&g);
    sluice_session_free(session);
}

static sluice_status listen(void *user, const sluice__probe_event *event, sluice_error *err) {
    (void)err;
    *(uint32_t *)user |= 1u << event->point;
    return SLUICE_OK;
}

/* With every point listened to, and by the public inspection, which must find the gate. */
static void inspected(const subject *s) {
    uint32_t heard = 0;
    sluice__probe probe = {&heard, (1u << SLUICE__PROBE_POINTS) - 1, listen};
    sluice__workspace *ws;
    sluice_error err = {0};
    float logits[T * VOCAB];
    sluice__input in = {B, T, s->ids, NULL, NULL, NULL};
    assert_ok_err(sluice__workspace_new(&ws, s->loaded, B, T, SLUICE__INFER, &err), &err);
    assert_ok_err(sluice__forward(s->loaded, ws, &in, NULL, &probe, SLUICE__LOGITS_ALL, logits, &err), &err);
    check(s, "inspection", logits, 0, T);
    sluice__workspace_free(ws);
    sluice_inspection *found;
    assert_ok_err(sluice_inspect(&found, s->loaded, s->ids, 1, T, NULL, &err), &err);
    bool gated = sluice_model_config(s->loaded)->layers[0].gate.position != SLUICE_GATE_NONE;
    assert_true(((heard >> SLUICE__PROBE_GATE) & 1) == gated && (found->layers[0].gate.heads > 0) == gated);
    assert_true(isfinite(found->gate_mean) == gated);
    sluice_inspection_free(found);
}

static void check_variant(const char *name, uint64_t seed) {
    subject s = {.name = name, .model = test_small_model(name, seed)};
    sluice_error err = {0};
    static const char *dir;
    if (!dir) dir = test_temp_dir();
    test_random_ids(s.ids, T, VOCAB, seed);
    test_random_ids(s.labels, T, VOCAB, seed + 1);
    train_forward(&s);
    assert_ok_err(sluice_model_save(s.model, dir, SLUICE_SAVE_AUTO, &err), &err);
    assert_ok_err(sluice_model_load(&s.loaded, dir, NULL, &err), &err);
    cached(&s, seed);
    generated(&s);
    inspected(&s);
    sluice_model_free(s.model);
    sluice_model_free(s.loaded);
}

/* What a configuration of `name` is: OK, or refused. */
static sluice_status parse(const char *name, sluice_error *err) {
    sluice_config c;
    char json[512];
    snprintf(json, sizeof json, "{\"hidden_size\": 32, \"num_attention_heads\": 4, \"head_dim\": 8, %s}", name);
    sluice_status st = sluice_config_parse(&c, json, "variant", err);
    if (st == SLUICE_OK) sluice_config_free(&c);
    return st;
}

typedef struct tally {
    int seen, refused;
} tally;

static void one_gate(tally *t, int p, int g, int s, int o, int a, int i) {
    char name[400];
    sluice_error err = {0};
    bool meaning = strcmp(positions[p], "output") || (g == 0 && s == 0); /* the output has no heads */
    snprintf(name, sizeof name,
             "\"gate_position\": \"%s\", \"gate_granularity\": \"%s\", \"gate_sharing\": %s, \"gate_op\": \"%s\", "
             "\"gate_act\": \"%s\", \"gate_input\": \"%s\"",
             positions[p], granularities[g], sharings[s], ops[o], acts[a], inputs[i]);
    sluice_status st = parse(name, &err);
    if ((st == SLUICE_OK) != meaning) fail_msg("{%s}: %s", name, st == SLUICE_OK ? "accepted" : err.message);
    if (!meaning && !strstr(err.message, "no head axis")) fail_msg("{%s}: no reason in \"%s\"", name, err.message);
    t->refused += !meaning;
    if (!meaning) return;
    check_variant(name, (uint64_t)(3 + t->seen++));
}

static void test_all_gates(void **state) {
    (void)state;
    tally t = {0, 0};
    for (int p = 0; p < 5; p++)
        for (int g = 0; g < 2; g++)
            for (int s = 0; s < 3; s++)
                for (int o = 0; o < 2; o++)
                    for (int a = 0; a < 5; a++)
                        for (int i = 0; i < 2; i++) one_gate(&t, p, g, s, o, a, i);
    assert_int_equal(t.seen, 4 * 2 * 3 * 2 * 5 * 2 + 2 * 5 * 2);
    assert_int_equal(t.refused, 5 * 2 * 5 * 2);
}

/* Gates with what else a layer may have, and what stands in a gate's place. */
static void test_beside_gates(void **state) {
    (void)state;
    static const char *const variants[] = {
        "\"gate_position\": \"none\"",
        "\"sdpa_norm\": true",
        "\"sdpa_silu\": true",
        "\"sdpa_norm\": true, \"sdpa_silu\": true, \"gate_position\": \"sdpa\"",
        "\"sdpa_norm\": true, \"gate_position\": \"sdpa\", \"gate_granularity\": \"headwise\"",
        "\"gate_position\": \"sdpa\", \"num_key_value_heads\": 4",
        "\"gate_position\": \"value\", \"num_key_value_heads\": 1",
        "\"gate_position\": \"key\", \"use_qk_norm\": false",
        "\"gate_position\": \"query\", \"gate_granularity\": \"headwise\", \"use_qk_norm\": false",
        "\"gate_position\": \"sdpa\", \"sandwich_norm\": true, \"residual_clip\": 2.0",
        "\"gate_position\": \"sdpa\", \"qkv_bias\": true, \"o_bias\": true",
        "\"gate_position\": \"sdpa\", \"sliding_window\": 7",
        "\"gate_position\": \"sdpa\", \"partial_rotary_factor\": 0.5, \"tie_word_embeddings\": false",
        "\"switch_head\": \"v\", \"gate_position\": \"sdpa\"", /* values (headwise) and sdpa together */
        "\"switch_head\": \"v\", \"switch_experts\": 8, \"switch_topk\": 2",
        "\"switch_head\": \"v\", \"switch_experts\": 4, \"switch_topk\": 4",
        "\"switch_head\": \"kv\", \"switch_experts\": 4, \"switch_topk\": 4",
        "\"switch_head\": \"kv\", \"switch_experts\": 8, \"switch_topk\": 8, \"use_qk_norm\": false",
        "\"num_experts\": 6, \"gate_position\": \"sdpa\", \"gate_granularity\": \"headwise\"",
        ("\"num_experts\": 6, \"norm_topk_prob\": true, \"num_shared_experts\": 1, \"shared_expert_gate\": true, "
         "\"gate_position\": \"value\", \"gate_sharing\": \"shared\""),
        "\"mlp_type\": \"gelu\", \"gate_position\": \"output\""};
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) check_variant(variants[i], 900 + i);
}

/* A value gate with one score a head and a switch head with one map are the same model. */
static void test_value_and_sdpa_together(void **state) {
    (void)state;
    sluice_model *gate = test_small_model("\"gate_position\": \"value\", \"gate_granularity\": \"headwise\"", 5);
    sluice_model *map = test_small_model("\"switch_head\": \"v\"", 6);
    for (int i = 0; i < sluice_model_num_tensors(gate); i++) {
        sluice_tensor_info from = sluice_model_tensor(gate, i);
        char name[128];
        snprintf(name, sizeof name, "%s", from.name);
        char *at = strstr(name, "self_attn.gate_proj");
        if (at) snprintf(at, 64, "self_attn.switch_router.weight");
        int to = sluice_model_find_tensor(map, name);
        if (to < 0) fail_msg("no %s", name);
        memcpy(sluice_model_tensor(map, to).data, from.data, (size_t)from.count * sizeof(float));
    }
    subject a = {.name = "value gate", .model = gate}, b = {.name = "switch head", .model = map};
    test_random_ids(a.ids, T, VOCAB, 1);
    test_random_ids(a.labels, T, VOCAB, 2);
    memcpy(b.ids, a.ids, sizeof a.ids);
    memcpy(b.labels, a.labels, sizeof a.labels);
    train_forward(&a);
    train_forward(&b);
    check(&a, "as a switch head", b.logits, 0, T);
    sluice_model_free(gate);
    sluice_model_free(map);
}

int main(void) {
    sluice_set_num_threads(1); /* models of a few thousand weights */
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_gates), cmocka_unit_test(test_beside_gates),
                                       cmocka_unit_test(test_value_and_sdpa_together)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
