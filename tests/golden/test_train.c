/* SPDX-License-Identifier: Apache-2.0 */
/* Every training case of the references: loss, logits, all gradients, twenty optimiser steps, final tensors. */
#include "support/reference.h"
#include "support/test_support.h"

/* The fewest comparisons of a case: 20 gradients of 2 layers and what surrounds them. */
enum { LEAST = 33 };

static const char *const cases[] = {
    "train/baseline",
    "train/g1_headwise",
    "train/g1_elementwise",
    "train/baseline_llama",
    "train/baseline_more_kv",
    "train/baseline_more_q",
    "train/g2_elementwise",
    "train/g2_headwise",
    "train/g3_elementwise",
    "train/g3_headwise_no_qk_norm",
    "train/g4_elementwise",
    "train/g4_headwise_no_qk_norm",
    "train/g5_elementwise",
    "train/g1_shared",
    "train/g1_shared_logit",
    "train/g2_shared",
    "train/g1_add_silu",
    "train/g1_multiply_silu",
    "train/g1_add_identity",
    "train/g1_headwise_add_silu",
    "train/g1_ns_sigmoid",
    "train/g1_input_independent",
    "train/g1_input_independent_moved",
    "train/sdpa_norm",
    "train/sdpa_silu",
    "train/sandwich",
    "train/residual_clip",
    "train/wide_heads_g1",
    "train/documents_masked",
    "train/loss_mask",
    "train/accumulation",
    "train/wsd_schedule",
    "train/muon_original",
    "train/muon_match_rms",
    "train/moe",
    "train/moe_more_experts",
    "train/moe_renormalised_shared",
    "train/moe_g1_balance",
    "train/switch_v_1top1",
    "train/switch_v_4top2",
    "train/switch_kv_4top4",
};

static void test_cases(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (test_reference(cases[i])) test_verify_case(cases[i], SLUICE_VERIFY_TRAINING, LEAST);
}

static void test_own_copies(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) assert_non_null(test_reference(cases[i]));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_own_copies), cmocka_unit_test(test_cases)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
