/* SPDX-License-Identifier: Apache-2.0 */
/* Properties of the forward pass: any split of a prompt over cached calls gives the logits of one call; packed
 * documents behave as separate rows; probes agree with each other and change nothing; sizes are what the plan says;
 * bad input is an error. Values themselves are held against outside references in tests/golden. */
#include "base/memory.h"
#include "base/rng.h"
#include "layers/transformer.h"
#include "model/weights.h"
#include "sluice/cpu.h"
#include "support/small_model.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPT = 130, VOCAB = 96 };
static const float SPLIT_TOLERANCE = 5e-5f; /* logits are about 3 */

static float *forward_all(const sluice_model *model, const sluice__input *in, const sluice__probe *probe) {
    sluice__workspace *ws;
    float *logits = calloc((size_t)in->batch * (size_t)in->seq_len * VOCAB, sizeof *logits);
    assert_ok(sluice__workspace_new(&ws, model, in->batch, in->seq_len, SLUICE__INFER, NULL));
    sluice_error err = {0};
    assert_ok_err(sluice__forward(model, ws, in, NULL, probe, SLUICE__LOGITS_ALL, logits, &err), &err);
    sluice__workspace_free(ws);
    return logits;
}

static float max_difference(const float *a, const float *b, int64_t n) {
    float worst = 0;
    for (int64_t i = 0; i < n; i++) worst = fmaxf(worst, isfinite(b[i]) ? fabsf(a[i] - b[i]) : INFINITY);
    return worst;
}

typedef struct cached {
    const sluice_model *model;
    sluice__workspace *ws;
    sluice__cache *cache;
    const sluice__input *whole; /* [B, PROMPT] */
    float *logits;              /* [B, PROMPT, V] of one call */
} cached;

static cached cached_new(const sluice_model *model, const sluice__input *whole) {
    cached c = {.model = model, .whole = whole};
    assert_ok(sluice__workspace_new(&c.ws, model, whole->batch, PROMPT, SLUICE__INFER, NULL));
    assert_ok(sluice__cache_new(&c.cache, model, whole->batch, PROMPT, NULL));
    c.logits = calloc((size_t)whole->batch * PROMPT * VOCAB, sizeof *c.logits);
    return c;
}

static void cached_free(cached *c) {
    sluice__workspace_free(c->ws);
    sluice__cache_free(c->cache);
    free(c->logits);
}

/* Appends tokens first..first+n-1; returns the largest difference of their logits from all [B, PROMPT, V]. */
static float feed(cached *c, int first, int n, const float *all) {
    int32_t ids[2 * PROMPT], start[2 * PROMPT];
    for (int b = 0; b < c->whole->batch; b++)
        for (int t = 0; t < n; t++) {
            ids[b * n + t] = c->whole->ids[b * PROMPT + first + t];
            if (c->whole->key_start) start[b * n + t] = c->whole->key_start[b * PROMPT + first + t];
        }
    sluice__input in = {c->whole->batch, n, ids, NULL, NULL, c->whole->key_start ? start : NULL};
    sluice_error err = {0};
    assert_int_equal(sluice__cache_length(c->cache), first);
    assert_ok_err(sluice__forward(c->model, c->ws, &in, c->cache, NULL, SLUICE__LOGITS_ALL, c->logits, &err), &err);
    assert_int_equal(sluice__cache_length(c->cache), first + n);
    float worst = 0;
    for (int b = 0; b < c->whole->batch; b++)
        worst = fmaxf(worst, max_difference(all + ((int64_t)b * PROMPT + first) * VOCAB,
                                            c->logits + (int64_t)b * n * VOCAB, (int64_t)n * VOCAB));
    return worst;
}

static const char *const split_models[] = {
    "\"gate_position\": \"sdpa\"",
    ("\"gate_position\": \"sdpa\", \"gate_granularity\": \"headwise\", \"use_qk_norm\": false, "
     "\"tie_word_embeddings\": false"),
    "\"sandwich_norm\": true, \"num_key_value_heads\": 1",
    "\"gate_position\": \"key\", \"use_qk_norm\": false",
    "\"gate_position\": \"value\", \"gate_sharing\": \"shared\"",
    "\"gate_position\": \"query\", \"gate_input\": \"none\"",
    "\"num_experts\": 6, \"num_experts_per_tok\": 2, \"norm_topk_prob\": true, \"num_shared_experts\": 1, "
    "\"gate_position\": \"sdpa\"",
    "\"num_experts\": 4, \"num_experts_per_tok\": 3, \"num_shared_experts\": 2, \"shared_expert_gate\": true",
    "\"switch_head\": \"kv\", \"switch_experts\": 3, \"switch_topk\": 2, \"use_qk_norm\": false",
    "\"switch_head\": \"v\", \"switch_experts\": 4, \"switch_topk\": 4, \"gate_position\": \"value\"",
    "\"gate_position\": \"output\"",
    "\"gate_position\": \"sdpa\", \"sdpa_norm\": true, \"sdpa_silu\": true",
    "\"mlp_type\": \"gelu\"",
};

/* Every split point, one token at a time, and random splits, with two rows of different content. */
static void test_splits(void **state) {
    (void)state;
    int32_t ids[2 * PROMPT];
    test_random_ids(ids, 2 * PROMPT, VOCAB, 8);
    for (size_t m = 0; m < sizeof split_models / sizeof *split_models; m++) {
        sluice_model *model = test_small_model(split_models[m], 21);
        sluice__input whole = {2, PROMPT, ids, NULL, NULL, NULL};
        float *all = forward_all(model, &whole, NULL), worst = 0;
        cached c = cached_new(model, &whole);
        for (int at = 1; at < PROMPT; at += m == 0 ? 1 : 29) {
            worst = fmaxf(worst, feed(&c, 0, at, all));
            worst = fmaxf(worst, feed(&c, at, PROMPT - at, all));
            sluice__cache_truncate(c.cache, 0);
        }
        for (int t = 0; t < PROMPT; t++) worst = fmaxf(worst, feed(&c, t, 1, all));
        sluice__rng r = {.seed = m};
        for (int k = 0; k < 5; k++) {
            sluice__cache_truncate(c.cache, 0);
            for (int first = 0, n; first < PROMPT; first += n) {
                n = 1 + (int)sluice__rng_below(&r, (uint64_t)(PROMPT - first));
                worst = fmaxf(worst, feed(&c, first, n, all));
            }
        }
        if (!(worst < SPLIT_TOLERANCE)) fail_msg("model %zu: logits differ by %.2e", m, worst);
        cached_free(&c);
        free(all);
        sluice_model_free(model);
    }
}

/* Going back to any length and on again. */
static void test_truncate(void **state) {
    (void)state;
    int32_t ids[PROMPT], other[PROMPT];
    test_random_ids(ids, PROMPT, VOCAB, 8);
    test_random_ids(other, PROMPT, VOCAB, 9);
    sluice_model *model = test_small_model(split_models[0], 22);
    sluice__input whole = {1, PROMPT, ids, NULL, NULL, NULL}, wrong = {1, PROMPT, other, NULL, NULL, NULL};
    float *all = forward_all(model, &whole, NULL);
    cached c = cached_new(model, &whole);
    for (int keep = 0; keep < PROMPT; keep += 13) {
        if (keep) feed(&c, 0, keep, all);
        c.whole = &wrong;
        feed(&c, keep, PROMPT - keep, all);
        c.whole = &whole;
        sluice__cache_truncate(c.cache, keep);
        assert_true(feed(&c, keep, PROMPT - keep, all) < SPLIT_TOLERANCE);
        sluice__cache_truncate(c.cache, -1);
    }
    cached_free(&c);
    free(all);
    sluice_model_free(model);
}

/* Documents in one row, with positions that start over, against each document alone; also through the cache. */
static void test_documents(void **state) {
    (void)state;
    const int starts[] = {0, 31, 32, 90, PROMPT};
    int32_t ids[PROMPT], key_start[PROMPT], positions[PROMPT];
    test_random_ids(ids, PROMPT, VOCAB, 10);
    for (int d = 0; d < 4; d++)
        for (int t = starts[d]; t < starts[d + 1]; t++) {
            key_start[t] = starts[d];
            positions[t] = t - starts[d];
        }
    sluice_model *model = test_small_model(split_models[1], 23);
    sluice__input packed = {1, PROMPT, ids, NULL, positions, key_start};
    float *all = forward_all(model, &packed, NULL);
    for (int d = 0; d < 4; d++) {
        int n = starts[d + 1] - starts[d];
        sluice__input alone = {1, n, ids + starts[d], NULL, NULL, NULL};
        float *one = forward_all(model, &alone, NULL);
        assert_true(max_difference(all + (int64_t)starts[d] * VOCAB, one, (int64_t)n * VOCAB) < SPLIT_TOLERANCE);
        free(one);
    }
    free(all);
    packed.positions = NULL;
    all = forward_all(model, &packed, NULL);
    cached c = cached_new(model, &packed);
    float worst = feed(&c, 0, 50, all);
    worst = fmaxf(worst, feed(&c, 50, 41, all));
    assert_true(fmaxf(worst, feed(&c, 91, 39, all)) < SPLIT_TOLERANCE);
    cached_free(&c);
    free(all);
    sluice_model_free(model);
}

/* One workspace used for long, short and far-away passes gives the bits of fresh ones, whatever the rotary type:
 * tables grow, and those that depend on the length are made again. */
static void test_rotary_tables(void **state) {
    (void)state;
    static const char *const types[] = {"\"rope_type\": \"default\"", "\"rope_type\": \"linear\", \"factor\": 2.0",
                                        "\"rope_type\": \"dynamic\", \"factor\": 2.0",
                                        "\"rope_type\": \"yarn\", \"factor\": 4.0",
                                        ("\"rope_type\": \"longrope\", \"factor\": 2.0, \"long_factor\": [1.5, 2, "
                                         "3, 4], \"short_factor\": [1, 1, 1.1, 1.2]")};
    static const int first[] = {0, 0, 5000, 3, 0}, length[] = {40, 8, 40, 30, 64};
    int32_t ids[64], positions[64];
    test_random_ids(ids, 64, VOCAB, 17);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char overrides[400];
        snprintf(overrides, sizeof overrides,
                 "\"max_position_embeddings\": 16, \"rope_parameters\": {\"rope_theta\": 10000.0, "
                 "\"original_max_position_embeddings\": 16, %s}", types[i]);
        sluice_model *model = test_small_model(overrides, 33);
        sluice__workspace *ws;
        float logits[VOCAB];
        assert_ok(sluice__workspace_new(&ws, model, 1, 64, SLUICE__INFER, NULL));
        for (size_t k = 0; k < sizeof length / sizeof *length; k++) {
            for (int t = 0; t < length[k]; t++) positions[t] = first[k] + t;
            sluice__input in = {1, length[k], ids, NULL, positions, NULL};
            float *fresh = forward_all(model, &in, NULL);
            assert_ok(sluice__forward(model, ws, &in, NULL, NULL, SLUICE__LOGITS_LAST, logits, NULL));
            if (!(max_difference(fresh + (int64_t)(length[k] - 1) * VOCAB, logits, VOCAB) < 1e-5f))
                fail_msg("%s: pass %zu differs from a fresh workspace", types[i], k);
            free(fresh);
        }
        sluice__workspace_free(ws);
        sluice_model_free(model);
    }
}

/* The same bits again for the same number of threads; nearly the same for another number. */
static void test_deterministic(void **state) {
    (void)state;
    enum { B = 4, T = 96 };
    int32_t ids[B * T], labels[B * T];
    test_random_ids(ids, B * T, VOCAB, 18);
    test_random_ids(labels, B * T, VOCAB, 19);
    sluice_model *model =
        test_small_model("\"gate_position\": \"sdpa\", \"hidden_size\": 128, \"intermediate_size\": 256", 34);
    size_t size = (size_t)sluice__flat_size(model);
    float *grads[3];
    sluice__loss loss[3];
    sluice__input in = {B, T, ids, labels, NULL, NULL};
    for (int run = 0; run < 3; run++) {
        sluice__workspace *ws;
        sluice_set_num_threads(run < 2 ? 3 : 1);
        grads[run] = calloc(size, sizeof **grads);
        assert_ok(sluice__workspace_new(&ws, model, B, T, SLUICE__TRAIN, NULL));
        assert_ok(sluice__loss_and_grads(model, ws, &in, NULL, 1.0 / (B * T), grads[run], &loss[run], NULL));
        sluice__workspace_free(ws);
    }
    sluice_set_num_threads(0);
    assert_memory_equal(grads[0], grads[1], size * sizeof **grads);
    assert_true(loss[0].nll_sum == loss[1].nll_sum);
    assert_true(max_difference(grads[0], grads[2], (int64_t)size) < 1e-5f);
    for (int run = 0; run < 3; run++) free(grads[run]);
    sluice_model_free(model);
}

typedef struct seen {
    float *data[SLUICE__PROBE_POINTS][3]; /* by layer + 1 */
    int64_t count[SLUICE__PROBE_POINTS][3];
    int events;
} seen;

static sluice_status keep(void *user, const sluice__probe_event *e, sluice_error *err) {
    (void)err;
    seen *s = user;
    int64_t n = 1;
    for (int i = 0; i < e->ndim; i++) n *= e->shape[i];
    int64_t *count = &s->count[e->point][e->layer + 1]; /* rows of the map come batch row by batch row */
    float **data = &s->data[e->point][e->layer + 1];
    assert_true(!*data || e->point == SLUICE__PROBE_ATTN_ROWS);
    *data = realloc(*data, (size_t)(*count + n) * sizeof(float));
    memcpy(*data + *count, e->data, (size_t)n * sizeof(float));
    *count += n;
    s->events++;
    return SLUICE_OK;
}

static void seen_free(seen *s) {
    for (int p = 0; p < SLUICE__PROBE_POINTS; p++)
        for (int l = 0; l < 3; l++) free(s->data[p][l]);
}

static void check_layer(const seen *s, int layer, bool gated) {
    enum { T = 20, H = 4, D = 32, HD = 32 };
    const float *in = s->data[layer ? SLUICE__PROBE_RESID_FFN : SLUICE__PROBE_EMBEDDING][layer];
    float *const *at[SLUICE__PROBE_POINTS];
    for (int p = 0; p < SLUICE__PROBE_POINTS; p++) at[p] = &s->data[p][layer + 1];
    for (int i = 0; i < 2 * T * D; i++) {
        float mid = in[i] + (*at[SLUICE__PROBE_ATTN_OUT])[i];
        assert_true((*at[SLUICE__PROBE_RESID_ATTN])[i] == mid);
        assert_true((*at[SLUICE__PROBE_RESID_FFN])[i] == mid + (*at[SLUICE__PROBE_FFN_OUT])[i]);
    }
    for (int i = 0; i < 2 * T * HD; i++) {
        float y = (*at[SLUICE__PROBE_SDPA])[i], gate = gated ? (*at[SLUICE__PROBE_GATE])[i] : 1.0f;
        assert_true(fabsf((*at[SLUICE__PROBE_SDPA_GATED])[i] - y * gate) < 1e-6f);
    }
    const float *probs = *at[SLUICE__PROBE_ATTN_PROBS], *share = *at[SLUICE__PROBE_FIRST_SHARE];
    assert_int_equal(s->count[SLUICE__PROBE_ATTN_ROWS][layer + 1], 2 * H * T * T);
    for (int i = 0; i < 2 * H * T * T; i++)
        assert_true(fabsf((*at[SLUICE__PROBE_ATTN_ROWS])[i] - probs[i]) < 1e-6f);
    for (int row = 0; row < 2 * H * T; row++) {
        double sum = 0;
        for (int j = 0; j < T; j++) sum += probs[row * T + j];
        for (int j = row % T + 1; j < T; j++) assert_true(probs[row * T + j] == 0);
        assert_true(fabs(sum - 1) < 1e-5);
        assert_true(fabsf(share[row] - probs[row * T]) < 1e-6f);
    }
    assert_int_equal(s->count[SLUICE__PROBE_KEY_NORM][layer + 1], 2 * T * 2);
    assert_int_equal(s->count[SLUICE__PROBE_VALUE_NORM][layer + 1], 2 * T * 2);
}

/* Gate scores are what turns ungated outputs into gated ones, whichever path computes them. */
static void test_probes_of_unfused_gates(void **state) {
    (void)state;
    static const char *const gates[] = {"\"gate_position\": \"sdpa\", \"gate_sharing\": \"shared\"",
                                        "\"gate_position\": \"sdpa\", \"gate_input\": \"none\"",
                                        "\"gate_position\": \"sdpa\", \"sdpa_norm\": true",
                                        "\"gate_position\": \"sdpa\", \"gate_granularity\": \"headwise\""};
    enum { ROWS = 40, WIDTH = 32 };
    int32_t ids[ROWS];
    test_random_ids(ids, ROWS, VOCAB, 12);
    for (size_t i = 0; i < sizeof gates / sizeof *gates; i++) {
        sluice_model *model = test_small_model(gates[i], 31);
        sluice__input in = {2, ROWS / 2, ids, NULL, NULL, NULL};
        seen s = {0};
        sluice__probe probe = {
            &s, 1u << SLUICE__PROBE_SDPA | 1u << SLUICE__PROBE_SDPA_GATED | 1u << SLUICE__PROBE_GATE, keep};
        free(forward_all(model, &in, &probe));
        const float *y = s.data[SLUICE__PROBE_SDPA][2], *gated = s.data[SLUICE__PROBE_SDPA_GATED][2],
                    *g = s.data[SLUICE__PROBE_GATE][2];
        int width = (int)(s.count[SLUICE__PROBE_GATE][2] / ROWS); /* 32; 8 when shared; 4 for one score a head */
        for (int k = 0; k < ROWS * WIDTH; k++) {
            int at = k % WIDTH, score = width == 4 ? at / 8 : at % width;
            assert_true(fabsf(gated[k] - y[k] * g[k / WIDTH * width + score]) < 1e-6f);
        }
        seen_free(&s);
        sluice_model_free(model);
    }
}

/* All points at once; they fit together, and the logits are the same bits as without a probe, in either workspace. */
static void test_probes(void **state) {
    (void)state;
    int32_t ids[40];
    test_random_ids(ids, 40, VOCAB, 12);
    for (int gated = 0; gated < 2; gated++) {
        sluice_model *model = test_small_model(gated ? "\"gate_position\": \"sdpa\"" : "", 24);
        sluice__input in = {2, 20, ids, ids, NULL, NULL};
        seen s = {0}, train = {0};
        sluice__probe probe = {&s, (1u << SLUICE__PROBE_POINTS) - 1, keep}, in_training = {&train, probe.wants, keep};
        float *plain = forward_all(model, &in, NULL), *probed = forward_all(model, &in, &probe);
        assert_memory_equal(plain, probed, 40 * VOCAB * sizeof(float));
        assert_int_equal(s.events, 1 + 2 * (gated ? 16 : 15));
        for (int layer = 0; layer < 2; layer++) check_layer(&s, layer, gated);
        sluice__workspace *ws;
        sluice__loss loss;
        float *grads = calloc((size_t)sluice__flat_size(model), sizeof *grads);
        assert_ok(sluice__workspace_new(&ws, model, 2, 20, SLUICE__TRAIN, NULL));
        assert_ok(sluice__loss_and_grads(model, ws, &in, &in_training, 1.0, grads, &loss, NULL));
        for (int p = 0; p < SLUICE__PROBE_POINTS; p++)
            for (int l = 0; l < 3; l++) {
                assert_int_equal(s.count[p][l], train.count[p][l]);
                if (s.count[p][l]) assert_true(max_difference(s.data[p][l], train.data[p][l], s.count[p][l]) < 1e-6f);
            }
        sluice__workspace_free(ws);
        free(grads);
        free(plain);
        free(probed);
        seen_free(&s);
        seen_free(&train);
        sluice_model_free(model);
    }
}

/* The activation of an MLP whose rows are padded in memory arrives without the padding: times W_down it is the output. */
static void test_probe_of_rows_apart(void **state) {
    (void)state;
    enum { ROWS = 6, F = 1024, D = 32 };
    int32_t ids[ROWS];
    test_random_ids(ids, ROWS, VOCAB, 12);
    sluice_model *model = test_small_model("\"intermediate_size\": 1024", 31);
    sluice__input in = {2, ROWS / 2, ids, NULL, NULL, NULL};
    seen s = {0};
    sluice__probe probe = {&s, 1u << SLUICE__PROBE_FFN_ACT | 1u << SLUICE__PROBE_FFN_OUT, keep};
    free(forward_all(model, &in, &probe));
    for (int layer = 0; layer < 2; layer++) {
        const float *act = s.data[SLUICE__PROBE_FFN_ACT][layer + 1], *out = s.data[SLUICE__PROBE_FFN_OUT][layer + 1];
        const float *down = sluice__model_weights(model)->layers[layer].down;
        assert_int_equal(s.count[SLUICE__PROBE_FFN_ACT][layer + 1], ROWS * F);
        for (int i = 0; i < ROWS * D; i++) {
            double sum = 0;
            for (int f = 0; f < F; f++) sum += (double)act[i / D * F + f] * (double)down[i % D * F + f];
            assert_true(fabs(sum - (double)out[i]) < 1e-5 * (1 + fabs(sum)));
        }
    }
    seen_free(&s);
    sluice_model_free(model);
}

static sluice_status refuse(void *user, const sluice__probe_event *e, sluice_error *err) {
    (void)user;
    (void)err;
    return e->layer == 1 ? SLUICE_INTERRUPTED : SLUICE_OK;
}

/* A probe can end the pass; the cache is then as it was before. */
static void test_probe_stops(void **state) {
    (void)state;
    int32_t ids[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    sluice_model *model = test_small_model("", 25);
    sluice__input in = {1, 8, ids, NULL, NULL, NULL};
    cached c = cached_new(model, &in);
    sluice__probe probe = {NULL, 1u << SLUICE__PROBE_RESID_FFN, refuse};
    assert_int_equal(sluice__forward(model, c.ws, &in, c.cache, &probe, SLUICE__LOGITS_LAST, c.logits, NULL),
                     SLUICE_INTERRUPTED);
    assert_int_equal(sluice__cache_length(c.cache), 0);
    cached_free(&c);
    sluice_model_free(model);
}

/* evaluate, loss_and_grads and the logits tell the same story, in one block of the head or in many. */
static void test_losses(void **state) {
    (void)state;
    int32_t ids[2 * PROMPT], labels[2 * PROMPT];
    test_random_ids(ids, 2 * PROMPT, VOCAB, 13);
    test_random_ids(labels, 2 * PROMPT, VOCAB, 14);
    for (int i = 0; i < 2 * PROMPT; i += 7) labels[i] = -100;
    sluice_model *model = test_small_model(split_models[0], 26);
    sluice__input in = {2, PROMPT, ids, labels, NULL, NULL};
    float *logits = forward_all(model, &in, NULL), nll[2 * PROMPT];
    sluice__workspace *ws;
    sluice__loss loss;
    assert_ok(sluice__workspace_new(&ws, model, 2, PROMPT, SLUICE__INFER, NULL));
    assert_ok(sluice__evaluate(model, ws, &in, NULL, nll, &loss, NULL));
    double sum = 0;
    int scored = 0;
    for (int i = 0; i < 2 * PROMPT; i++) {
        double total = 0, expected = 0;
        for (int v = 0; v < VOCAB; v++) total += exp(logits[i * VOCAB + v]);
        if (labels[i] >= 0) expected = log(total) - logits[i * VOCAB + labels[i]];
        assert_true(fabs(nll[i] - expected) < 1e-5);
        sum += expected;
        scored += labels[i] >= 0;
    }
    assert_int_equal(loss.scored, scored);
    assert_true(fabs(loss.nll_sum - sum) < 1e-3);
    sluice__workspace_free(ws);
    free(logits);
    sluice_model_free(model);
}

static void test_last_logits(void **state) {
    (void)state;
    int32_t ids[2 * PROMPT];
    test_random_ids(ids, 2 * PROMPT, VOCAB, 15);
    sluice_model *model = test_small_model(split_models[1], 27);
    sluice__input in = {2, PROMPT, ids, NULL, NULL, NULL};
    float *all = forward_all(model, &in, NULL), last[2 * VOCAB];
    sluice__workspace *ws;
    assert_ok(sluice__workspace_new(&ws, model, 2, PROMPT, SLUICE__INFER, NULL));
    assert_ok(sluice__forward(model, ws, &in, NULL, NULL, SLUICE__LOGITS_LAST, last, NULL));
    for (int b = 0; b < 2; b++)
        assert_true(max_difference(all + ((int64_t)b * PROMPT + PROMPT - 1) * VOCAB, last + b * VOCAB, VOCAB) < 1e-5f);
    sluice__workspace_free(ws);
    free(all);
    sluice_model_free(model);
}

/* The memory plan is what is taken, and passes allocate nothing. */
static void test_sizes(void **state) {
    (void)state;
    int32_t ids[60];
    test_random_ids(ids, 60, VOCAB, 16);
    sluice_model *model =
        test_small_model("\"gate_position\": \"sdpa\", \"sandwich_norm\": true, \"residual_clip\": 5.0", 28);
    float *grads = calloc((size_t)sluice__flat_size(model), sizeof *grads);
    for (int mode = SLUICE__INFER; mode <= SLUICE__TRAIN; mode++) {
        sluice__workspace *ws;
        sluice__loss loss;
        int64_t before = sluice__mem_in_use(SLUICE__MEM_ACTIVATIONS);
        assert_ok(sluice__workspace_new(&ws, model, 3, 20, (sluice__mode)mode, NULL));
        int64_t taken = sluice__mem_in_use(SLUICE__MEM_ACTIVATIONS) - before;
        assert_int_equal(taken, sluice__workspace_bytes(sluice_model_config(model), 3, 20, (sluice__mode)mode));
        sluice__input in = {3, 20, ids, ids, NULL, NULL};
        if (mode == SLUICE__TRAIN) assert_ok(sluice__loss_and_grads(model, ws, &in, NULL, 1.0, grads, &loss, NULL));
        assert_ok(sluice__evaluate(model, ws, &in, NULL, NULL, &loss, NULL));
        assert_int_equal(sluice__mem_in_use(SLUICE__MEM_ACTIVATIONS) - before, taken);
        sluice__workspace_free(ws);
        assert_int_equal(sluice__mem_in_use(SLUICE__MEM_ACTIVATIONS), before);
    }
    sluice__cache *cache;
    int64_t before = sluice__mem_in_use(SLUICE__MEM_CACHE);
    assert_ok(sluice__cache_new(&cache, model, 2, 77, NULL));
    assert_int_equal(sluice__mem_in_use(SLUICE__MEM_CACHE) - before,
                     sluice__cache_bytes(sluice_model_config(model), 2, 77));
    sluice__cache_free(cache);
    free(grads);
    sluice_model_free(model);
}

static void expect_refused(const sluice_model *model, sluice__workspace *ws, sluice__cache *cache, sluice__input in,
                           const char *mention) {
    sluice_error err = {0};
    float logits[VOCAB];
    assert_int_equal(sluice__forward(model, ws, &in, cache, NULL, SLUICE__LOGITS_LAST, logits, &err),
                     SLUICE_ERR_ARGUMENT);
    if (!strstr(err.message, mention)) fail_msg("\"%s\" does not mention \"%s\"", err.message, mention);
}

static void test_refusals(void **state) {
    (void)state;
    sluice_model *model = test_small_model("", 29), *other = test_small_model("", 29);
    sluice__workspace *ws, *train;
    sluice__cache *cache, *foreign;
    sluice_error err = {0};
    assert_ok(sluice__workspace_new(&ws, model, 1, 8, SLUICE__INFER, NULL));
    assert_ok(sluice__workspace_new(&train, model, 1, 8, SLUICE__TRAIN, NULL));
    assert_ok(sluice__cache_new(&cache, model, 1, 10, NULL));
    assert_ok(sluice__cache_new(&foreign, other, 1, 10, NULL));
    int32_t good[9] = {0, 1, 2, 3, 4, 5, 6, 7, 8}, bad[8] = {0, 1, 2, 3, 96, 5, 6, 7}, negative[8] = {0, -1};
    expect_refused(model, ws, NULL, (sluice__input){1, 8, bad, NULL, NULL, NULL}, "token 4: found 96, expected 0..95");
    expect_refused(model, ws, NULL, (sluice__input){1, 8, negative, NULL, NULL, NULL}, "found -1");
    expect_refused(model, ws, NULL, (sluice__input){1, 8, good, bad, NULL, NULL}, "label");
    expect_refused(model, ws, NULL, (sluice__input){1, 8, good, NULL, negative, NULL}, "position");
    expect_refused(model, ws, NULL, (sluice__input){1, 8, good, NULL, NULL, bad}, "key_start");
    expect_refused(model, ws, NULL, (sluice__input){1, 9, good, NULL, NULL, NULL}, "workspace holds 1..8");
    expect_refused(model, ws, NULL, (sluice__input){0, 8, good, NULL, NULL, NULL}, "0 x 8");
    expect_refused(other, ws, NULL, (sluice__input){1, 8, good, NULL, NULL, NULL}, "another model");
    expect_refused(model, ws, foreign, (sluice__input){1, 8, good, NULL, NULL, NULL}, "another model");
    expect_refused(model, train, cache, (sluice__input){1, 8, good, NULL, NULL, NULL}, "inference workspace");
    float logits[VOCAB];
    sluice__input in = {1, 8, good, NULL, NULL, NULL};
    assert_ok(sluice__forward(model, ws, &in, cache, NULL, SLUICE__LOGITS_LAST, logits, NULL));
    expect_refused(model, ws, cache, in, "8 of 10 tokens held, 8 more");
    sluice__loss loss;
    assert_int_equal(sluice__evaluate(model, ws, &in, NULL, NULL, &loss, &err), SLUICE_ERR_ARGUMENT);
    in.labels = good;
    assert_int_equal(sluice__loss_and_grads(model, ws, &in, NULL, 1, logits, &loss, &err), SLUICE_ERR_ARGUMENT);
    sluice__workspace_free(ws);
    assert_int_equal(sluice__workspace_new(&ws, model, 0, 8, SLUICE__INFER, &err), SLUICE_ERR_ARGUMENT);
    assert_null(ws);
    assert_int_equal(sluice__workspace_new(&ws, model, INT32_MAX, INT32_MAX, SLUICE__TRAIN, &err), SLUICE_ERR_MEMORY);
    sluice__workspace_free(train);
    sluice__cache_free(foreign);
    assert_int_equal(sluice__cache_new(&foreign, model, INT32_MAX, INT32_MAX, &err), SLUICE_ERR_MEMORY);
    sluice__cache_free(cache);
    sluice_model_free(model);
    sluice_model_free(other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_splits),
        cmocka_unit_test(test_truncate),
        cmocka_unit_test(test_documents),
        cmocka_unit_test(test_rotary_tables),
        cmocka_unit_test(test_deterministic),
        cmocka_unit_test(test_probes),
        cmocka_unit_test(test_probe_of_rows_apart),
        cmocka_unit_test(test_probes_of_unfused_gates),
        cmocka_unit_test(test_probe_stops),
        cmocka_unit_test(test_losses),
        cmocka_unit_test(test_last_logits),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
