/* SPDX-License-Identifier: Apache-2.0 */
/* Finite differences of every gate: position x granularity x sharing x op x act x input, with 1, 2 and 4 query heads to
 * a key/value head in turn; and the router losses of a mixture under each reading of the balance loss. */
#include "sluice/cpu.h"
#include "support/gradient_check.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { B = 2, T = 7, DIRECTIONS = 2 };
static const double STEP = 8e-3, TOLERANCE = 1.5e-3;
/* A key or query that a score near 0 has made small bends the loss sharply in the norm behind it: shorter steps, more
 * rounding. */
static const double BENT_STEP = 1e-3, BENT_TOLERANCE = 2e-2;

static const double ROUNDING = 4e-5; /* of differences of a loss of about 5 in fp32 */

static const char *const positions[] = {"sdpa", "value", "key", "query", "output"};
static const char *const granularities[] = {"elementwise", "headwise"};
static const char *const sharings[] = {"\"specific\"", "\"shared\"", "\"shared\", \"gate_share_mean\": \"logit\""};
static const char *const ops[] = {"multiply", "add"};
static const char *const acts[] = {"sigmoid", "silu", "identity", "ns_sigmoid", "softplus"};
static const char *const inputs[] = {"hidden", "none"};

static void check_gate(const char *name, bool bent) {
    sluice_model *model = test_small_model(name, 11);
    sluice__workspace *ws;
    int32_t ids[B * T], labels[B * T];
    sluice_error err = {0};
    test_random_ids(ids, B * T, 96, 1);
    test_random_ids(labels, B * T, 96, 2);
    labels[3] = -100;
    sluice__input in = {B, T, ids, labels, NULL, NULL};
    float *grads = calloc((size_t)sluice__flat_size(model), sizeof *grads);
    assert_ok_err(sluice__workspace_new(&ws, model, B, T, SLUICE__TRAIN, &err), &err);
    test_objective(model, ws, &in, NULL, test_count_scored(&in), grads);
    for (int i = 0; i < sluice_model_num_tensors(model); i++) {
        sluice_tensor_info t = sluice_model_tensor(model, i);
        if (!strstr(t.name, "self_attn") && !strstr(t.name, "layers.0.input_layernorm")) continue; /* what gates touch */
        for (int k = 0; k < DIRECTIONS; k++) {
            double error = test_gradient_error(model, ws, &in, t, grads + sluice__grad_offset(model, i),
                                               bent ? BENT_STEP : STEP, (uint64_t)(100 * i + k));
            double g = test_norm_of(grads + sluice__grad_offset(model, i), t.count);
            if (!(error < (bent ? BENT_TOLERANCE : TOLERANCE) || error * g < ROUNDING))
                fail_msg("{%s}: %s: direction %d: relative error %.2e", name, t.name, k, error);
        }
    }
    free(grads);
    sluice__workspace_free(ws);
    sluice_model_free(model);
}

static int one_gate(int seen, int p, int g, int s, int o, int a, int i, int groups) {
    char name[400];
    if (!strcmp(positions[p], "output") && (g || s)) return 0; /* refused: test_variants.c */
    /* A positive score for the whole head is cancelled by the norm behind it: there is no gradient to compare. */
    bool cancelled = (p == 2 || p == 3) && g && !o;
    bool inner = p == 2 || p == 3, crossing = !o && (a == 1 || a == 2); /* silu and identity pass through 0 */
    snprintf(name, sizeof name,
             "\"gate_position\": \"%s\", \"gate_granularity\": \"%s\", \"gate_sharing\": %s, \"gate_op\": \"%s\", "
             "\"gate_act\": \"%s\", \"gate_input\": \"%s\", \"num_key_value_heads\": %d, \"use_qk_norm\": %s, "
             "\"num_hidden_layers\": 1",
             positions[p], granularities[g], sharings[s], ops[o], acts[a], inputs[i], 4 / groups,
             seen % 2 && !cancelled ? "true" : "false");
    check_gate(name, inner && crossing);
    return 1;
}

static void test_every_gate(void **state) {
    (void)state;
    int seen = 0;
    for (int p = 0; p < 5; p++)
        for (int g = 0; g < 2; g++)
            for (int s = 0; s < 3; s++)
                for (int o = 0; o < 2; o++)
                    for (int a = 0; a < 5; a++)
                        for (int i = 0; i < 2; i++) seen += one_gate(seen, p, g, s, o, a, i, 1 << seen % 3);
    assert_int_equal(seen, 500);
}

/* The default activation with each number of query heads to a key/value head. */
static void test_every_group(void **state) {
    (void)state;
    int seen = 0;
    for (int p = 0; p < 5; p++)
        for (int g = 0; g < 2; g++)
            for (int s = 0; s < 3; s++)
                for (int groups = 1; groups <= 4; groups *= 2) seen += one_gate(seen, p, g, s, 0, 0, 0, groups);
    assert_int_equal(seen, 3 * (4 * 6 + 1));
}

/* The router's own gradient, losses alone: coefficients so large that cross entropy does not hide them. f is a constant of
 * the balance loss, so that steps must not change a choice. */
static void test_router_losses(void **state) {
    (void)state;
    static const char *const models[] = {
        "\"num_experts\": 4, \"moe_intermediate_size\": 12, \"num_experts_per_tok\": 2, \"router_aux_loss_coef\": 5.0, "
        "\"router_z_loss_coef\": 0.0",
        "\"num_experts\": 4, \"moe_intermediate_size\": 12, \"num_experts_per_tok\": 2, \"router_aux_loss_coef\": 0.0, "
        "\"router_z_loss_coef\": 1.0",
        "\"num_experts\": 5, \"moe_intermediate_size\": 12, \"num_experts_per_tok\": 1, \"router_aux_loss_coef\": 2.0, "
        "\"router_z_loss_coef\": 0.5, \"norm_topk_prob\": true"};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        for (int kind = SLUICE__BALANCE_GLOBAL; kind <= SLUICE__BALANCE_MICRO; kind++) {
            sluice_model *model = test_small_model(models[m], 17);
            sluice__workspace *ws;
            sluice__router *router;
            sluice__loss loss;
            int32_t ids[B * T], labels[B * T];
            test_random_ids(ids, B * T, 96, 1);
            for (int i = 0; i < B * T; i++) labels[i] = i ? -1 : 5; /* one scored token: the losses count all */
            sluice__input in = {B, T, ids, labels, NULL, NULL};
            size_t size = (size_t)sluice__flat_size(model);
            float *grads = calloc(size, sizeof *grads);
            assert_ok(sluice__workspace_new(&ws, model, B, T, SLUICE__TRAIN, NULL));
            assert_ok(sluice__router_new(&router, sluice_model_config(model), NULL));
            sluice__router_reset(router, (sluice__balance)kind, B * T);
            assert_ok(sluice__loss_and_grads_routed(model, ws, &in, NULL, 1.0, router, grads, &loss, NULL));
            for (int i = 0; i < sluice_model_num_tensors(model); i++) {
                sluice_tensor_info t = sluice_model_tensor(model, i);
                if (!strstr(t.name, "mlp.gate.weight") && !strstr(t.name, "post_attention_layernorm")) continue;
                double error = test_gradient_error(model, ws, &in, t, grads + sluice__grad_offset(model, i), 2e-4,
                                                   (uint64_t)i);
                if (!(error < 1e-2)) fail_msg("model %zu, kind %d: %s: relative error %.2e", m, kind, t.name, error);
            }
            free(grads);
            sluice__router_free(router);
            sluice__workspace_free(ws);
            sluice_model_free(model);
        }
}

int main(void) {
    sluice_set_num_threads(1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_gate), cmocka_unit_test(test_every_group),
                                       cmocka_unit_test(test_router_losses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
