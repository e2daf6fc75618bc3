/* SPDX-License-Identifier: Apache-2.0 */
/* Arms of equal size: the option that is fitted, how near the count comes, and what is refused. */
#include "support/test_support.h"
#include "base/file.h"
#include "study/recipe.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FRAME                                                                                                        \
    "{\"name\": \"x\", \"data\": {\"seq_len\": 16, \"vocab_size\": 300}, %s \"model\": {\"hidden_size\": 64, "       \
    "\"intermediate_size\": 160, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 32, "         \
    "\"num_hidden_layers\": 2}, \"arms\": [{\"name\": \"base\"}, {\"name\": \"g1\", \"config\": "                    \
    "{\"gate_position\": "                                                                                           \
    "\"sdpa\"}%s}, {\"name\": \"other\"%s}]}"

static sluice_status load(sluice__recipe *r, const char *root, const char *gated, const char *other, const char *arms,
                          sluice_error *err) {
    char path[512], text[4096];
    snprintf(path, sizeof path, "%s/match.json", test_temp_dir());
    snprintf(text, sizeof text, FRAME, root, gated, other);
    assert_ok(sluice__write_file(path, text, strlen(text), NULL));
    return sluice__recipe_load(r, path, &(sluice__recipe_changes){.arms = arms}, err);
}

static int64_t parameters(const sluice__recipe *r, int arm) {
    sluice_train_params p;
    sluice_config c;
    sluice_error err = {0};
    assert_ok_err(sluice__arm_params(&p, &r->arms[arm], 1, &err), &err);
    assert_ok_err(sluice__arm_config(&c, NULL, &r->arms[arm], &p, NULL, 300, &err), &err);
    int64_t n = sluice_config_num_parameters(&c);
    sluice_config_free(&c);
    return n;
}

static int64_t option(const sluice__recipe *r, int arm, const char *name) {
    return json_integer_value(json_object_get(r->arms[arm].config, name));
}

/* "match_parameters": true: all arms get the MLP that brings them to the first one's size. */
static void test_width(void **state) {
    (void)state;
    sluice__recipe r;
    sluice_error err = {0};
    assert_ok_err(
        load(&r, "\"match_parameters\": true, ", "", ", \"config\": {\"num_attention_heads\": 6}", NULL, &err), &err);
    /* 64 x 128 gate rows against 3 x 64 elements of a unit of width: 42.7 fewer, to the nearest 8 */
    assert_int_equal(option(&r, 1, "intermediate_size"), 120);
    assert_int_equal(option(&r, 2, "intermediate_size"), 120);
    assert_true(llabs(parameters(&r, 1) - parameters(&r, 0)) <= 2 * 3 * 64 * 4);
    sluice__recipe_free(&r);
    assert_ok_err(load(&r, "\"match_parameters\": true, \"match_multiple\": 1, ", "", "", NULL, &err), &err);
    assert_int_equal(option(&r, 1, "intermediate_size"), 117);
    assert_int_equal(option(&r, 2, "intermediate_size"), 160);
    assert_true(llabs(parameters(&r, 1) - parameters(&r, 0)) <= 2 * 3 * 64 / 2);
    sluice__recipe_free(&r);
    assert_ok_err(load(&r, "\"match_parameters\": true, ", ", \"match_parameters\": false", "", NULL, &err), &err);
    assert_true(parameters(&r, 1) == parameters(&r, 0) + 2 * 64 * 128);
    sluice__recipe_free(&r);
}

/* A baseline that spends as much as the gate otherwise. */
static void test_other_options(void **state) {
    (void)state;
    static const struct {
        const char *with, *config;
        int64_t value, residual;
    } cases[] = {
        {"num_attention_heads", "{}", 6, 0},
        {"num_key_value_heads", "{}", 4, 0},
        {"intermediate_size", "{}", 200, 0},
        {"num_experts", "{\"num_experts\": 4, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 32}", 6, 0},
        {"moe_intermediate_size", "{\"num_experts\": 4, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 32}",
         48, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sluice__recipe r;
        sluice_error err = {0};
        char other[512];
        snprintf(other, sizeof other, ", \"config\": %s, \"match_parameters\": {\"with\": \"%s\", \"to\": \"g1\"}",
                 cases[i].config, cases[i].with);
        assert_ok_err(load(&r, "", "", other, NULL, &err), &err);
        if (option(&r, 2, cases[i].with) != cases[i].value)
            fail_msg("%s: %lld, expected %lld", cases[i].with, (long long)option(&r, 2, cases[i].with),
                     (long long)cases[i].value);
        int64_t residual = llabs(parameters(&r, 2) - parameters(&r, 1));
        for (int64_t v = cases[i].value - 1; v <= cases[i].value + 1; v++) { /* no neighbour is nearer */
            bool heads = strstr(cases[i].with, "_heads") != NULL;
            if (heads && v != cases[i].value) continue;
            if (!strstr(cases[i].with, "experts") && v != cases[i].value) continue;
            json_object_set_new(r.arms[2].config, cases[i].with, json_integer(v));
            assert_true(llabs(parameters(&r, 2) - parameters(&r, 1)) >= residual);
        }
        const json_t *match = json_object_get(json_array_get(json_object_get(r.root, "arms"), 2), "match");
        assert_string_equal(json_string_value(json_object_get(match, "to")), "g1");
        assert_string_equal(json_string_value(json_object_get(match, "with")), cases[i].with);
        assert_int_equal(json_integer_value(json_object_get(match, "value")), cases[i].value);
        sluice__recipe_free(&r);
    }
}

/* Choosing arms does not change them. */
static void test_left_out(void **state) {
    (void)state;
    sluice__recipe r;
    sluice_error err = {0};
    assert_ok_err(load(&r, "\"match_parameters\": true, ", "", "", "g1", &err), &err);
    assert_int_equal(r.num_arms, 1);
    assert_int_equal(option(&r, 0, "intermediate_size"), 120);
    sluice__recipe_free(&r);
}

static void test_refused(void **state) {
    (void)state;
    static const struct {
        const char *root, *gated, *word;
    } cases[] = {
        {"\"match_parameters\": 3, ", "", "true or false"},
        {"\"match_parameters\": {\"to\": \"base\"}, ", "", "true or false"},
        {"\"match_multiple\": 0, ", "", "match_multiple"},
        {"", ", \"match_parameters\": \"base\"", "arms[1].match_parameters"},
        {"", ", \"match_parameters\": {\"too\": \"base\"}", "arms[1].match_parameters.too"},
        {"", ", \"match_parameters\": {\"with\": \"head_dim\"}", "num_key_value_heads"},
        {"", ", \"match_parameters\": {\"with\": \"num_experts\"}", "has no experts"},
        {"", ", \"match_parameters\": {\"to\": \"nobody\"}", "no arm \"nobody\""},
        {"", ", \"match_parameters\": {\"to\": \"g1\"}", "itself"},
        {"\"match_parameters\": true, ", ", \"match_parameters\": {\"to\": \"other\"}", "another arm itself"},
        {"\"match_parameters\": true, \"match_multiple\": 4000, ", "", "even with intermediate_size"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sluice__recipe r;
        sluice_error err = {0};
        assert_int_not_equal(load(&r, cases[i].root, cases[i].gated, "", NULL, &err), SLUICE_OK);
        if (!strstr(err.message, cases[i].word)) fail_msg("\"%s\" lacks \"%s\"", err.message, cases[i].word);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_width), cmocka_unit_test(test_other_options),
                                       cmocka_unit_test(test_left_out), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
