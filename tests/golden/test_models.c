/* SPDX-License-Identifier: Apache-2.0 */
/* Models of the references: all recorded activations, the cache in several splits, greedy tokens. */
#include "support/reference.h"
#include "support/test_support.h"

/* name, number of comparisons: tensors of the golden, two splits of our own, decode.json, greedy.json */
static const struct {
    const char *name;
    int comparisons;
} cases[] = {
    {"models/llama", 12},
    {"models/export_tied", 18},
    {"models/export_untied", 11},
    {"models/qwen2", 7},
    {"models/qwen3", 9},
    {"models/qwen3_yarn", 7},
    {"models/qwen3_moe", 9},
    {"models/afmoe", 19},
    {"models/gpt_oss", 12},
    {"models/laguna_head", 19},
    {"models/laguna_element", 11},
    {"models/step3p5", 19},
    {"models/muse_glimmer", 19},
    {"models/paper_baseline", 15},
    {"models/paper_elementwise_g2", 15},
    {"models/paper_elementwise_g4", 15},
    {"models/paper_headwise_bias", 11},
    {"models/paper_headwise_g2", 15},
    {"models/paper_headwise_g4", 11},
    {"models/paper_baseline_bin", 9},
    {"models/paper_elementwise_g2_bin", 15},
    {"models/paper_elementwise_g2_legacy", 15},
    {"models/paper_elementwise_g4_views", 11},
    {"models/paper_headwise_g2_bin", 15},
    {"models/paper_headwise_shards", 11},
    {"models/qwen3_next", 41},
    {"models/qwen3_5", 31},
    {"models/qwen3_5_moe", 10},
    {"models/qwen3_5_vlm", 10},
    {"models/qwen3_5_yarn", 12},
    {"models/olmo_hybrid", 8},
};

static void test_cases(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (test_reference(cases[i].name)) test_verify_case(cases[i].name, SLUICE_VERIFY_MODEL, cases[i].comparisons);
}

/* The copies that travel with the tests are there. */
static void test_own_copies(void **state) {
    (void)state;
    assert_non_null(test_reference("models/llama"));
    assert_non_null(test_reference("models/export_tied"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_own_copies), cmocka_unit_test(test_cases)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
