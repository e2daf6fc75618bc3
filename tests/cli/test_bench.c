/* SPDX-License-Identifier: Apache-2.0 */
/* sluice bench: what it reports as JSON, and what it refuses. */
#include "support/test_support.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int bench(const char *options, char **output) {
    char command[512];
    snprintf(command, sizeof command, "%s bench %s", SLUICE_PROGRAM, options);
    return test_run(command, output);
}

static double positive(const json_t *object, const char *key) {
    double v = json_number_value(json_object_get(object, key));
    if (!(v > 0)) fail_msg("%s: found %g", key, v);
    return v;
}

static json_t *bench_json(const char *options) {
    char *output;
    assert_int_equal(bench(options, &output), 0);
    json_error_t e;
    json_t *root = json_loads(output, 0, &e);
    if (!root) fail_msg("%s\n%s", e.text, output);
    free(output);
    const json_t *machine = json_object_get(root, "machine");
    positive(machine, "gemm_gflops");
    positive(machine, "copy_gbs");
    return root;
}

static void kernels_in_every_version(void **state) {
    (void)state;
    json_t *root = bench_json("kernels --threads 1 --seconds 0.001 --json"), *row;
    size_t i;
    int adamw = 0;
    json_array_foreach(json_object_get(root, "kernels"), i, row) {
        positive(row, "rate");
        adamw += !strcmp(json_string_value(json_object_get(row, "name")), "adamw_f32");
    }
    assert_in_range(adamw, 1, 3); /* as many as this machine has levels */
    assert_true(json_array_size(json_object_get(root, "products")) >= 10);
    json_decref(root);
}

static void training_steps(void **state) {
    (void)state;
    json_t *root = bench_json("train --threads 1 --shape small:1x16 --steps 1 --warmup 0 --gates elementwise,none --json");
    const json_t *rows = json_object_get(root, "train"), *gated = json_array_get(rows, 0), *plain = json_array_get(rows, 1);
    assert_int_equal(json_array_size(rows), 2);
    assert_string_equal(json_string_value(json_object_get(gated, "gate")), "elementwise");
    /* 6 layers, D 256, F 704, V 4096, tied; the gate adds a square matrix a layer */
    assert_int_equal(json_integer_value(json_object_get(plain, "parameters")),
                     4096 * 256 + 256 + 6 * (4 * 256 * 256 + 3 * 256 * 704 + 2 * 256));
    assert_int_equal(json_integer_value(json_object_get(gated, "parameters")) -
                         json_integer_value(json_object_get(plain, "parameters")),
                     6 * 256 * 256);
    double rate = positive(plain, "tokens_per_second"), ms = positive(plain, "step_ms");
    assert_true(rate * ms / 1e3 > 15.99 && rate * ms / 1e3 < 16.01);
    positive(plain, "share_of_gemm_peak");
    assert_null(json_object_get(plain, "profile"));
    positive(plain, "adamw_over_floor");
    json_decref(root);
}

/* Operators and what is outside of them make up the time. */
static void check_profile(const json_t *profile, const char *const *wanted, double most_outside) {
    const json_t *operators = json_object_get(profile, "operators"), *row;
    double all = positive(profile, "ms"), sum = 0, outside = json_number_value(json_object_get(profile, "outside_ms"));
    size_t i;
    json_array_foreach(operators, i, row) {
        sum += json_number_value(json_object_get(row, "ms"));
        assert_true(positive(row, "calls") * positive(row, "best_call_ms") < 1.000001 * positive(row, "ms"));
    }
    assert_true(fabs(sum + outside - all) < 1e-3 * all);
    if (outside < -0.001 * all || outside > most_outside * all) fail_msg("outside of operators: %g of %g ms", outside, all);
    for (; *wanted; wanted++) {
        bool found = false;
        json_array_foreach(operators, i, row)
            found |= !strcmp(json_string_value(json_object_get(row, "operator")), *wanted);
        if (!found) fail_msg("no %s in the profile", *wanted);
    }
}

static void profile_of_training(void **state) {
    (void)state;
    json_t *root = bench_json("train --threads 2 --shape small:2x64 --steps 2 --warmup 1 --gates none --dtype "
                              "float32,bf16 --profile --json"), *row;
    static const char *const parts[] = {"attention forward", "attention backward", "addition and norm forward",
        "norm backward", "SwiGLU forward", "SwiGLU backward", "embedding forward", "embedding backward",
        "softmax and loss", "gradient norm", "AdamW", NULL};
    static const char *const products[][4] = {{"x W^T", "dy W", "dy^T x", NULL}, {"x W^T bf16", "dy W bf16", "dy^T x bf16", NULL}};
    size_t i;
    json_array_foreach(json_object_get(root, "train"), i, row) {
        check_profile(json_object_get(row, "profile"), parts, 0.1);
        check_profile(json_object_get(row, "profile"), products[i], 0.1);
    }
    assert_int_equal(i, 2);
    json_decref(root);
    root = bench_json("train --threads 2 --shape moe:1x64 --steps 1 --warmup 1 --gates none --profile --json");
    static const char *const mixture[] = {"routing", "experts forward", "experts backward", NULL};
    check_profile(json_object_get(json_array_get(json_object_get(root, "train"), 0), "profile"), mixture, 0.1);
    json_decref(root);
}

static void profile_of_inference(void **state) {
    (void)state;
    char options[512];
    static const char *const parts[] = {"x W^T", "attention forward", NULL};
    snprintf(options, sizeof options, "infer --threads 1 --prefill 200 --decode 3 --repeat 2 --profile --json %s/models/llama",
             SLUICE_TEST_DATA);
    json_t *root = bench_json(options), *row = json_array_get(json_object_get(root, "infer"), 0);
    check_profile(json_object_get(row, "prefill_profile"), parts, 0.5); /* a tiny model */
    check_profile(json_object_get(row, "decode_profile"), parts, 1);
    json_decref(root);
}

/* Mixtures, any variant, Muon. */
static void variants_and_mixtures(void **state) {
    (void)state;
    json_t *root = bench_json("train --threads 1 --shape moe:1x16 --steps 1 --warmup 0 --gates none,g2-headwise,more-experts "
                              "--optim muon --json");
    const json_t *rows = json_object_get(root, "train");
    assert_int_equal(json_array_size(rows), 3);
    assert_string_equal(json_string_value(json_object_get(json_array_get(rows, 1), "gate")), "g2-headwise");
    positive(json_array_get(rows, 2), "tokens_per_second");
    json_decref(root);
}

/* Two models in turn, from an empty session and behind other tokens; and only what was asked for. */
static void inference(void **state) {
    (void)state;
    char options[512];
    snprintf(options, sizeof options, "infer --threads 1 --prefill 12 --decode 3 --depth 5 --repeat 2 --json %s/models/llama "
             "%s/models/export_tied", SLUICE_TEST_DATA, SLUICE_TEST_DATA);
    json_t *root = bench_json(options);
    const json_t *rows = json_object_get(root, "infer"), *row;
    size_t i;
    assert_int_equal(json_array_size(rows), 2);
    json_array_foreach(rows, i, row) {
        static const char *const keys[] = {"parameters", "weight_bytes", "load_seconds", "first_token_seconds",
                                           "prefill_tokens_per_second", "decode_tokens_per_second", "decode_weight_gbs"};
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) positive(row, keys[k]);
        assert_true(positive(row, "prefill_tokens_per_second") >= positive(row, "prefill_tokens_per_second_median"));
        assert_true(positive(row, "first_token_seconds") > positive(row, "load_seconds"));
    }
    json_decref(root);
    snprintf(options, sizeof options, "infer --threads 1 --prefill 0 --decode 3 --depth 4 --parallel 5 --repeat 1 --json %s/models/llama",
             SLUICE_TEST_DATA);
    json_t *several = bench_json(options);
    row = json_array_get(json_object_get(several, "infer"), 0);
    positive(row, "decode_tokens_per_second");
    assert_int_equal(json_integer_value(json_object_get(row, "decode_sequences")), 5);
    json_decref(several);
    snprintf(options, sizeof options, "infer --threads 1 --prefill 0 --decode 9 --repeat 2 --reader --json %s/models/llama", SLUICE_TEST_DATA);
    json_t *reader = bench_json(options);
    row = json_array_get(json_object_get(reader, "infer"), 0);
    assert_true(positive(row, "reader_gbs") > 0.01 && positive(row, "reader_gbs") < 1e4);
    json_decref(reader);
    snprintf(options, sizeof options, "infer --threads 1 --prefill 0 --decode 2 --repeat 1 --json %s/models/llama", SLUICE_TEST_DATA);
    root = bench_json(options);
    row = json_array_get(json_object_get(root, "infer"), 0);
    assert_null(json_object_get(row, "prefill_tokens_per_second"));
    positive(row, "decode_tokens_per_second");
    json_decref(root);
}

static void tokenizing(void **state) {
    (void)state;
    char options[512], *output;
    snprintf(options, sizeof options, "tokenize --threads 1 --repeat 1 --json %s/tokenizer/small.json %s/tokenizer/small_cases.json",
             SLUICE_TEST_DATA, SLUICE_TEST_DATA);
    assert_int_equal(bench(options, &output), 0);
    json_t *root = json_loads(output, 0, NULL);
    assert_non_null(root);
    positive(root, "load_seconds");
    positive(root, "encode_mbs");
    assert_true(positive(root, "tokens") <= positive(root, "bytes"));
    json_decref(root);
    free(output);
}

static void wrong_usage(void **state) {
    (void)state;
    static const struct {
        const char *options, *text;
        int status;
    } tries[] = {
        {"", "expected kernels, train, infer or tokenize", 2},
        {"everything", "expected kernels, train, infer or tokenize", 2},
        {"kernels train", "takes no further words", 2},
        {"infer", "which models", 2},
        {"infer no-such-model", "no-such-model", 1},
        {"infer no-such-model --repeat 0", "--repeat", 2},
        {"infer no-such-model --prefill 0 --decode 0", "nothing to measure", 2},
        {"infer no-such-model --decode -1", "decode -1", 2},
        {"tokenize a.json", "a tokenizer and a text file", 2},
        {"tokenize a.json b.txt", "b.txt", 1},
        {"kernels --profile", "train or infer", 2},
        {"kernels --seconds 0", "--seconds", 2},
        {"kernels --seconds nan", "--seconds", 2},
        {"train --shape small", "MODEL:BATCHxTOKENS", 2},
        {"train --shape small:0x8", "MODEL:BATCHxTOKENS", 2},
        {"train --shape big:1x8", "MODEL:BATCHxTOKENS", 2},
        {"train --gates none,sideways", "none, headwise, elementwise", 2},
        {"train --optim sgd", "adamw or muon", 2},
        {"train --steps 0", "steps: found 0, expected 1 to 100000", 2},
        {"train --warmup -1", "warmup: found -1, expected at least 0", 2},
        {"train --threads -3", "--threads", 2},
        {"train --quiet --shape 124M:9999x999999 --gates none", "available", 1},
    };
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        char *output;
        int status = bench(tries[i].options, &output);
        if (status != tries[i].status || !strstr(output, tries[i].text))
            fail_msg("bench %s: status %d\n%s", tries[i].options, status, output);
        free(output);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_in_every_version),
        cmocka_unit_test(training_steps),
        cmocka_unit_test(profile_of_training),
        cmocka_unit_test(profile_of_inference),
        cmocka_unit_test(variants_and_mixtures),
        cmocka_unit_test(inference),
        cmocka_unit_test(tokenizing),
        cmocka_unit_test(wrong_usage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
