/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of the whole model against differences of its loss. For each tensor the loss is followed along
 * directions that are half the gradient, half random: the first keeps the derivative well above the rounding of
 * fp32, the second sees every component. Four points give an error of fourth order in the step. */
#include "base/rng.h"
#include "layers/transformer.h"
#include "support/small_model.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { B = 2, T = 11, DIRECTIONS = 2 };
static const double STEP = 8e-3, TOLERANCE = 1.5e-3;
/* A step across the edge of the clip costs accuracy in proportion to its length. */
static const double CLIP_STEP = 2e-4, CLIP_TOLERANCE = 2e-2;

typedef struct variant {
    const char *name, *overrides;
    bool clips;
} variant;

static const variant variants[] = {
    {"baseline, groups of 2", "", false},
    {"groups of 1", "\"num_key_value_heads\": 4", false},
    {"groups of 4, untied", "\"num_key_value_heads\": 1, \"tie_word_embeddings\": false", false},
    {"no q/k norm", "\"use_qk_norm\": false", false},
    {"wide heads", "\"head_dim\": 16, \"gate_position\": \"sdpa\"", false},
    {"sandwich norm", "\"sandwich_norm\": true", false},
    {"clip", "\"residual_clip\": 0.9", true},
    {"sandwich norm and clip", "\"sandwich_norm\": true, \"residual_clip\": 1.7", true},
    {"elementwise gate", "\"gate_position\": \"sdpa\"", false},
    {"headwise gate", "\"gate_position\": \"sdpa\", \"gate_granularity\": \"headwise\"", false},
    {"biases", "\"qkv_bias\": true, \"o_bias\": true, \"use_qk_norm\": false, \"gate_position\": \"sdpa\"", false},
    {"partial rotary", "\"partial_rotary_factor\": 0.5", false},
    {"partial rotary, no q/k norm", "\"partial_rotary_factor\": 0.25, \"use_qk_norm\": false", false},
    {"value gate", "\"gate_position\": \"value\"", false},
    {"value gate, headwise, shared",
     "\"gate_position\": \"value\", \"gate_granularity\": \"headwise\", \"gate_sharing\": \"shared\"", false},
    {"key gate", "\"gate_position\": \"key\"", false},
    {"key gate, no q/k norm", "\"gate_position\": \"key\", \"use_qk_norm\": false", false},
    {"query gate", "\"gate_position\": \"query\"", false},
    {"query gate, headwise, no q/k norm",
     "\"gate_position\": \"query\", \"gate_granularity\": \"headwise\", \"use_qk_norm\": false", false},
    {"output gate, sandwich norm", "\"gate_position\": \"output\", \"sandwich_norm\": true", false},
    {"shared gate", "\"gate_position\": \"sdpa\", \"gate_sharing\": \"shared\"", false},
    {"shared gate, mean of logits, silu",
     "\"gate_position\": \"sdpa\", \"gate_sharing\": \"shared\", \"gate_share_mean\": \"logit\", \"gate_act\": "
     "\"silu\"",
     false},
    {"additive silu", "\"gate_position\": \"sdpa\", \"gate_op\": \"add\", \"gate_act\": \"silu\"", false},
    {"additive identity on keys", "\"gate_position\": \"key\", \"gate_op\": \"add\", \"gate_act\": \"identity\"",
     false},
    {"ns_sigmoid on values", "\"gate_position\": \"value\", \"gate_act\": \"ns_sigmoid\"", false},
    {"softplus", "\"gate_position\": \"sdpa\", \"gate_act\": \"softplus\"", false},
    {"softplus on values", "\"gate_position\": \"value\", \"gate_act\": \"softplus\"", false},
    {"input-independent gate", "\"gate_position\": \"sdpa\", \"gate_input\": \"none\"", false},
    {"input-independent gate on queries, shared",
     "\"gate_position\": \"query\", \"gate_input\": \"none\", \"gate_sharing\": \"shared\"", false},
    {"norm of the attention output", "\"sdpa_norm\": true", false},
    {"silu of the attention output", "\"sdpa_silu\": true", false},
    {"norm, silu and gate", "\"sdpa_norm\": true, \"sdpa_silu\": true, \"gate_position\": \"sdpa\"", false},
    {"norm and headwise gate",
     "\"sdpa_norm\": true, \"gate_position\": \"sdpa\", \"gate_granularity\": \"headwise\"", false},
    {"headwise gate, no q/k norm",
     "\"gate_position\": \"sdpa\", \"gate_granularity\": \"headwise\", \"use_qk_norm\": false", false},
};

static double loss_of(const sluice_model *model, sluice__workspace *ws, const sluice__input *in) {
    sluice__loss loss;
    sluice_error err = {0};
    assert_ok_err(sluice__evaluate(model, ws, in, NULL, NULL, &loss, &err), &err);
    return loss.nll_sum / (double)loss.scored;
}

static double norm_of(const float *x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * x[i];
    return sqrt(sum);
}

/* Loss with the tensor moved by h * direction. */
static double moved(sluice_model *model, sluice__workspace *ws, const sluice__input *in, sluice_tensor_info t,
                    const float *start, const float *direction, double h) {
    for (int64_t i = 0; i < t.count; i++) t.data[i] = (float)(start[i] + h * direction[i]);
    return loss_of(model, ws, in);
}

/* Relative difference of the derivative along one direction. */
static double check_direction(sluice_model *model, sluice__workspace *ws, const sluice__input *in, sluice_tensor_info t,
                              const float *grad, double step, uint64_t seed) {
    float *start = malloc((size_t)t.count * sizeof *start), *direction = malloc((size_t)t.count * sizeof *direction);
    memcpy(start, t.data, (size_t)t.count * sizeof *start);
    sluice__rng_fill_normal(direction, t.count, seed, 5, 0, 0.0f, 1.0f);
    double g = norm_of(grad, t.count), r = norm_of(direction, t.count), expected = 0;
    for (int64_t i = 0; i < t.count; i++) {
        direction[i] = (float)(grad[i] / g + direction[i] / r);
        expected += (double)grad[i] * direction[i];
    }
    double d1 = moved(model, ws, in, t, start, direction, step) - moved(model, ws, in, t, start, direction, -step);
    double d2 =
        moved(model, ws, in, t, start, direction, 2 * step) - moved(model, ws, in, t, start, direction, -2 * step);
    double found = (8 * d1 - d2) / (12 * step);
    memcpy(t.data, start, (size_t)t.count * sizeof *start);
    free(start);
    free(direction);
    return fabs(found - expected) / g;
}

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
    sluice__loss loss;
    int scored = 0;
    for (int i = 0; i < B * T; i++) scored += labels[i] >= 0;
    assert_ok_err(sluice__loss_and_grads(model, ws, &in, NULL, 1.0 / scored, grads, &loss, &err), &err);
    assert_int_equal(loss.scored, scored);
    assert_true(fabs(loss.nll_sum / scored - loss_of(model, ws, &in)) < 1e-6);
    double limit = v->clips ? CLIP_TOLERANCE : TOLERANCE, step = v->clips ? CLIP_STEP : STEP;
    for (int i = 0; i < sluice_model_num_tensors(model); i++)
        for (int k = 0; k < DIRECTIONS; k++) {
            sluice_tensor_info t = sluice_model_tensor(model, i);
            double error = check_direction(model, ws, &in, t, grads + sluice__grad_offset(model, i), step,
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
        assert_true(norm_of(parts, (int64_t)size) < 1e-6 * norm_of(whole, (int64_t)size) + 1e-12);
    }
    free(whole);
    free(parts);
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
    assert_true(norm_of(twice, (int64_t)size) < 1e-6 * norm_of(once, (int64_t)size));
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
