/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of the whole model against differences of its loss (support/gradient_check.h), one variant after the other;
 * micro-batches; router losses. test_gates.c has every gate. */
#include "kernels/ops.h"
#include "support/gradient_check.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { B = 2, T = 11, DIRECTIONS = 2 };
static const double STEP = 8e-3, TOLERANCE = 1.5e-3;
/* A step across the edge of the clip costs accuracy in proportion to its length; one across a change of experts or
 * maps would cost everything, so those steps are short enough that none changes. */
static const double CLIP_STEP = 2e-4, CLIP_TOLERANCE = 2e-2, CHOICE_STEP = 2e-4, CHOICE_TOLERANCE = 1e-2;

typedef struct variant {
    const char *name, *overrides;
    bool clips, chooses;
} variant;

#define EXPERTS                                                                                                    \
    "\"num_experts\": 4, \"moe_intermediate_size\": 12, \"router_aux_loss_coef\": 0.7, \"router_z_loss_coef\": "   \
    "0.05"

static const variant variants[] = {
    {"baseline, groups of 2", "", false, false},
    {"groups of 1", "\"num_key_value_heads\": 4", false, false},
    {"groups of 4, untied", "\"num_key_value_heads\": 1, \"tie_word_embeddings\": false", false, false},
    {"no q/k norm", "\"use_qk_norm\": false", false, false},
    {"wide heads", "\"head_dim\": 16, \"gate_position\": \"sdpa\"", false, false},
    {"sandwich norm", "\"sandwich_norm\": true", false, false},
    {"clip", "\"residual_clip\": 0.9", true, false},
    {"sandwich norm and clip", "\"sandwich_norm\": true, \"residual_clip\": 1.7", true, false},
    {"elementwise gate", "\"gate_position\": \"sdpa\"", false, false},
    {"headwise gate", "\"gate_position\": \"sdpa\", \"gate_granularity\": \"headwise\"", false, false},
    {"biases", "\"qkv_bias\": true, \"o_bias\": true, \"use_qk_norm\": false, \"gate_position\": \"sdpa\"", false,
     false},
    {"partial rotary", "\"partial_rotary_factor\": 0.5", false, false},
    {"partial rotary, no q/k norm", "\"partial_rotary_factor\": 0.25, \"use_qk_norm\": false", false, false},
    {"value gate", "\"gate_position\": \"value\"", false, false},
    {"value gate, headwise, shared",
     "\"gate_position\": \"value\", \"gate_granularity\": \"headwise\", \"gate_sharing\": \"shared\"", false,
     false},
    {"key gate", "\"gate_position\": \"key\"", false, false},
    {"key gate, no q/k norm", "\"gate_position\": \"key\", \"use_qk_norm\": false", false, false},
    {"query gate", "\"gate_position\": \"query\"", false, false},
    {"query gate, headwise, no q/k norm",
     "\"gate_position\": \"query\", \"gate_granularity\": \"headwise\", \"use_qk_norm\": false", false, false},
    {"output gate, sandwich norm", "\"gate_position\": \"output\", \"sandwich_norm\": true", false, false},
    {"shared gate", "\"gate_position\": \"sdpa\", \"gate_sharing\": \"shared\"", false, false},
    {"shared gate, mean of logits, silu",
     "\"gate_position\": \"sdpa\", \"gate_sharing\": \"shared\", \"gate_share_mean\": \"logit\", \"gate_act\": "
     "\"silu\"",
     false, false},
    {"additive silu", "\"gate_position\": \"sdpa\", \"gate_op\": \"add\", \"gate_act\": \"silu\"", false, false},
    {"additive identity on keys", "\"gate_position\": \"key\", \"gate_op\": \"add\", \"gate_act\": \"identity\"",
     false, false},
    {"ns_sigmoid on values", "\"gate_position\": \"value\", \"gate_act\": \"ns_sigmoid\"", false, false},
    {"softplus", "\"gate_position\": \"sdpa\", \"gate_act\": \"softplus\"", false, false},
    {"softplus on values", "\"gate_position\": \"value\", \"gate_act\": \"softplus\"", false, false},
    {"input-independent gate", "\"gate_position\": \"sdpa\", \"gate_input\": \"none\"", false, false},
    {"input-independent gate on queries, shared",
     "\"gate_position\": \"query\", \"gate_input\": \"none\", \"gate_sharing\": \"shared\"", false, false},
    {"norm of the attention output", "\"sdpa_norm\": true", false, false},
    {"silu of the attention output", "\"sdpa_silu\": true", false, false},
    {"norm, silu and gate", "\"sdpa_norm\": true, \"sdpa_silu\": true, \"gate_position\": \"sdpa\"", false, false},
    {"norm and headwise gate",
     "\"sdpa_norm\": true, \"gate_position\": \"sdpa\", \"gate_granularity\": \"headwise\"", false, false},
    {"rows of gate and up apart", "\"intermediate_size\": 512", false, false},
    {"rows of the activation apart", "\"intermediate_size\": 1024, \"num_hidden_layers\": 1", false, false},
    {"GELU without a gate matrix", "\"mlp_type\": \"gelu\", \"gate_position\": \"sdpa\"", false, false},
    {"headwise gate, no q/k norm",
     "\"gate_position\": \"sdpa\", \"gate_granularity\": \"headwise\", \"use_qk_norm\": false", false, false},
    {"experts, all chosen", EXPERTS ", \"num_experts_per_tok\": 4", false, false},
    {"experts, all chosen, weights to sum 1, shared",
     EXPERTS ", \"num_experts_per_tok\": 4, \"norm_topk_prob\": true, "
             "\"num_shared_experts\": 2",
     false, false},
    {"experts, 2 chosen", EXPERTS ", \"num_experts_per_tok\": 2", false, true},
    {"experts, 1 chosen, sandwich norm", EXPERTS ", \"num_experts_per_tok\": 1, \"sandwich_norm\": true", false,
     true},
    {"experts, 3 chosen, weights to sum 1, gated shared expert, gate",
     EXPERTS ", \"num_experts_per_tok\": 3, \"norm_topk_prob\": true, \"num_shared_experts\": 1, "
             "\"shared_expert_gate\": true, "
             "\"gate_position\": \"sdpa\"",
     false, true},
    {"switch values, one map", "\"switch_head\": \"v\"", false, false},
    {"switch values, all of 3",
     "\"switch_head\": \"v\", \"switch_experts\": 3, \"switch_topk\": 3, \"gate_position\": \"sdpa\"", false,
     false},
    {"switch values, 2 of 4, no q/k norm",
     "\"switch_head\": \"v\", \"switch_experts\": 4, \"switch_topk\": 2, \"use_qk_norm\": false", false, true},
    {"switch keys and values, all of 2", "\"switch_head\": \"kv\", \"switch_experts\": 2, \"switch_topk\": 2",
     false, false},
    {"switch keys and values, 1 of 3, key gate, groups of 4",
     "\"switch_head\": \"kv\", \"switch_experts\": 3, \"gate_position\": \"key\", \"num_key_value_heads\": 1",
     false, true},
    {"switch keys and values, 2 of 3, no q/k norm, value gate",
     "\"switch_head\": \"kv\", \"switch_experts\": 3, \"switch_topk\": 2, \"use_qk_norm\": false, "
     "\"gate_position\": \"value\"",
     false, true},
};

static void check_variant(const variant *v) {
    sluice_model *model = test_small_model(v->overrides, 11);
    sluice__workspace *ws;
    sluice_error err = {0};
    assert_ok_err(sluice__workspace_new(&ws, model, B, T, SLUICE__TRAIN, &err), &err);
    int32_t ids[B * T], labels[B * T], key_start[B * T];
    test_random_ids(ids, B * T, 96, 1);
    test_random_ids(labels, B * T, 96, 2);
    for (int i = 0; i < B * T; i++) {
        if (i % 5 == 3) labels[i] = -100;
        key_start[i] = i / T == 1 && i % T >= 6 ? 6 : 0; /* the second row holds two documents */
    }
    sluice__input in = {B, T, ids, labels, NULL, key_start};
    float *grads = calloc((size_t)sluice__flat_size(model), sizeof *grads);
    sluice__router *router;
    assert_ok(sluice__router_new(&router, sluice_model_config(model), NULL));
    assert_true(fabs(test_objective(model, ws, &in, router, test_count_scored(&in), grads) - test_loss_of(model, ws, &in)) < 1e-6);
    sluice__router_free(router);
    double limit = v->clips ? CLIP_TOLERANCE : v->chooses ? CHOICE_TOLERANCE : TOLERANCE;
    double step = v->clips ? CLIP_STEP : v->chooses ? CHOICE_STEP : STEP;
    for (int i = 0; i < sluice_model_num_tensors(model); i++)
        for (int k = 0; k < DIRECTIONS; k++) {
            sluice_tensor_info t = sluice_model_tensor(model, i);
            double error = test_gradient_error(model, ws, &in, t, grads + sluice__grad_offset(model, i), step,
                                           (uint64_t)(100 * i + k));
            if (!(error < limit))
                fail_msg("%s: %s: direction %d: relative error %.2e, limit %.0e", v->name, t.name, k, error, limit);
        }
    free(grads);
    sluice__workspace_free(ws);
    sluice_model_free(model);
}

static void test_gradients(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) check_variant(&variants[i]);
}

/* Rows in any grouping give the gradient of the whole batch. */
static void test_micro_batches(void **state) {
    (void)state;
    sluice_model *model = test_small_model("\"gate_position\": \"sdpa\"", 3);
    size_t size = (size_t)sluice__flat_size(model);
    int32_t ids[4 * T], labels[4 * T];
    test_random_ids(ids, 4 * T, 96, 5);
    test_random_ids(labels, 4 * T, 96, 6);
    for (int i = 0; i < T; i++) labels[i] = i < 9 ? -1 : labels[i]; /* rows with different numbers of scored tokens */
    sluice__workspace *ws;
    assert_ok(sluice__workspace_new(&ws, model, 4, T, SLUICE__TRAIN, NULL));
    float *whole = calloc(size, sizeof *whole), *parts = calloc(size, sizeof *parts);
    const int splits[][4] = {{1, 3, 0}, {2, 2, 0}, {1, 1, 1, 1}};
    sluice__input in = {4, T, ids, labels, NULL, NULL};
    sluice__loss all, part;
    assert_ok(sluice__loss_and_grads(model, ws, &in, NULL, 1.0 / (4 * T - 9), whole, &all, NULL));
    for (size_t s = 0; s < 3; s++) {
        memset(parts, 0, size * sizeof *parts);
        double sum = 0;
        for (int m = 0, row = 0; m < 4 && splits[s][m]; row += splits[s][m++]) {
            sluice__input piece = {splits[s][m], T, ids + row * T, labels + row * T, NULL, NULL};
            assert_ok(sluice__loss_and_grads(model, ws, &piece, NULL, 1.0 / (4 * T - 9), parts, &part, NULL));
            sum += part.nll_sum;
        }
        assert_true(fabs(sum - all.nll_sum) < 1e-4);
        for (size_t i = 0; i < size; i++) parts[i] -= whole[i];
        assert_true(test_norm_of(parts, (int64_t)size) < 1e-6 * test_norm_of(whole, (int64_t)size) + 1e-12);
    }
    free(whole);
    free(parts);
    sluice__workspace_free(ws);
    sluice_model_free(model);
}

/* One step over rows in pieces: objective and gradients. */
static double routed_step(const sluice_model *model, sluice__workspace *ws, sluice__router *router,
                          sluice__balance balance, const sluice__input *in, const int *split, float *grads) {
    int scored = test_count_scored(in);
    double sum = 0;
    sluice__router_reset(router, balance, (int64_t)in->batch * in->seq_len);
    for (int count = balance == SLUICE__BALANCE_GLOBAL ? 1 : 0; count >= 0; count--)
        for (int m = 0, row = 0; m < 4 && split[m]; row += split[m++]) {
            sluice__input piece = {split[m], T, in->ids + row * T, in->labels + row * T, NULL, NULL};
            sluice__loss part;
            if (count) {
                assert_ok(sluice__count_routing(model, ws, &piece, router, NULL));
                continue;
            }
            assert_ok(
                sluice__loss_and_grads_routed(model, ws, &piece, NULL, 1.0 / scored, router, grads, &part, NULL));
            sum += part.nll_sum;
        }
    return sum / scored + sluice__router_objective(router);
}

/* The global balance loss, its gradient and the counts are those of one batch, whatever the micro-batches; the
 * local readings of the same loss are not. */
static void test_router_losses_of_micro_batches(void **state) {
    (void)state;
    sluice_model *model = test_small_model(EXPERTS ", \"num_experts_per_tok\": 2, \"norm_topk_prob\": true", 7);
    size_t size = (size_t)sluice__flat_size(model);
    int32_t ids[4 * T], labels[4 * T];
    test_random_ids(ids, 4 * T, 96, 5);
    test_random_ids(labels, 4 * T, 96, 6);
    for (int i = 0; i < T; i++) labels[i] = i < 9 ? -1 : labels[i];
    sluice__workspace *ws;
    sluice__router *router;
    assert_ok(sluice__workspace_new(&ws, model, 4, T, SLUICE__TRAIN, NULL));
    assert_ok(sluice__router_new(&router, sluice_model_config(model), NULL));
    float *whole = calloc(size, sizeof *whole), *parts = calloc(size, sizeof *parts);
    sluice__input in = {4, T, ids, labels, NULL, NULL};
    const int one[4] = {4}, splits[][4] = {{1, 3}, {2, 2}, {1, 1, 1, 1}};
    double all = routed_step(model, ws, router, SLUICE__BALANCE_GLOBAL, &in, one, whole),
           balance = router->balance_loss;
    double counts[2 * 4], sum = 0;
    memcpy(counts, router->counts, sizeof counts);
    for (int e = 0; e < 8; e++) sum += counts[e];
    assert_true(sum == 2.0 * 4 * T * 2);
    assert_true(balance > 2 && router->z_loss > 0); /* 1 per layer when even */
    for (int s = 0; s < 3; s++)
        for (int kind = SLUICE__BALANCE_GLOBAL; kind <= SLUICE__BALANCE_MICRO; kind++) {
            memset(parts, 0, size * sizeof *parts);
            double found = routed_step(model, ws, router, (sluice__balance)kind, &in, splits[s], parts);
            for (size_t i = 0; i < size; i++) parts[i] -= whole[i];
            double difference = test_norm_of(parts, (int64_t)size) / test_norm_of(whole, (int64_t)size);
            bool same = fabs(found - all) < 1e-6 && fabs(router->balance_loss - balance) < 1e-6 && difference < 2e-6;
            assert_memory_equal(counts, router->counts, sizeof counts);
            if (same != (kind == SLUICE__BALANCE_GLOBAL))
                fail_msg("split %d, kind %d: objective off by %.1e, gradient by %.1e", s, kind, found - all,
                         difference);
        }
    free(whole);
    free(parts);
    sluice__router_free(router);
    sluice__workspace_free(ws);
    sluice_model_free(model);
}

/* The same bits every time, ties to the lower index, and statistics that make sense. */
static void test_experts_repeat(void **state) {
    (void)state;
    sluice_model *model =
        test_small_model("\"num_experts\": 24, \"num_experts_per_tok\": 3, \"moe_intermediate_size\": 40, "
                         "\"num_shared_experts\": 1, \"shared_expert_gate\": true",
                         8);
    int at = sluice_model_find_tensor(
        model, "model.layers.0.mlp.gate.weight"); /* expert 5 like expert 4, so never before it */
    float *router_weight = sluice_model_tensor(model, at).data;
    memcpy(router_weight + 5 * 32, router_weight + 4 * 32, 32 * sizeof(float));
    size_t size = (size_t)sluice__flat_size(model);
    int32_t ids[4 * T], labels[4 * T];
    test_random_ids(ids, 4 * T, 96, 5);
    test_random_ids(labels, 4 * T, 96, 6);
    sluice__input in = {4, T, ids, labels, NULL, NULL};
    sluice__workspace *ws;
    sluice__router *router;
    assert_ok(sluice__workspace_new(&ws, model, 4, T, SLUICE__TRAIN, NULL));
    assert_ok(sluice__router_new(&router, sluice_model_config(model), NULL));
    float *first = calloc(size, sizeof *first), *second = calloc(size, sizeof *second);
    double a = test_objective(model, ws, &in, router, 4 * T, first), b = test_objective(model, ws, &in, router, 4 * T, second);
    assert_true(a == b);
    assert_memory_equal(first, second, size * sizeof *first);
    assert_true(router->counts[4] >= router->counts[5]); /* a tie goes to the lower index */
    assert_true(sluice__first_nonfinite(first, (int64_t)size) < 0);
    sluice__router_summary summary = sluice__router_summarise(router, sluice_model_config(model));
    assert_true(summary.entropy > 0 && summary.entropy < 1 && summary.max_load > 1);
    free(first);
    free(second);
    sluice__router_free(router);
    sluice__workspace_free(ws);
    sluice_model_free(model);
}

/* Gradients are added to what is there. */
static void test_gradients_accumulate(void **state) {
    (void)state;
    sluice_model *model = test_small_model("\"gate_position\": \"sdpa\", \"sandwich_norm\": true", 4);
    size_t size = (size_t)sluice__flat_size(model);
    int32_t ids[2 * T], labels[2 * T];
    test_random_ids(ids, 2 * T, 96, 5);
    test_random_ids(labels, 2 * T, 96, 6);
    sluice__workspace *ws;
    assert_ok(sluice__workspace_new(&ws, model, 2, T, SLUICE__TRAIN, NULL));
    float *once = calloc(size, sizeof *once), *twice = calloc(size, sizeof *twice);
    sluice__input in = {2, T, ids, labels, NULL, NULL};
    sluice__loss loss;
    assert_ok(sluice__loss_and_grads(model, ws, &in, NULL, 0.5, once, &loss, NULL));
    for (int i = 0; i < 2; i++) assert_ok(sluice__loss_and_grads(model, ws, &in, NULL, 0.5, twice, &loss, NULL));
    for (size_t i = 0; i < size; i++) twice[i] -= 2 * once[i];
    assert_true(test_norm_of(twice, (int64_t)size) < 1e-6 * test_norm_of(once, (int64_t)size));
    free(once);
    free(twice);
    sluice__workspace_free(ws);
    sluice_model_free(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_micro_batches),
        cmocka_unit_test(test_gradients_accumulate),
        cmocka_unit_test(test_router_losses_of_micro_batches),
        cmocka_unit_test(test_experts_repeat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
