/* SPDX-License-Identifier: Apache-2.0 */
/* Ladders of learning rates: arms are multiplied out before they are read, and put together again for what is said of them.
 * The largest rate is the last one below the first that fails. */
#include "support/test_support.h"
#include "base/file.h"
#include "study/findings.h"
#include "study/ladder_results.h"
#include "study/recipe.h"
#include "study/results.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#define BASE "{\"name\": \"x\", \"data\": {\"seq_len\": 16, \"vocab_size\": 300}, \"training\": {\"dtype\": \"bf16\"}, "
#define TWO "\"arms\": [{\"name\": \"a\"}, {\"name\": \"b\", \"label\": \"B\", \"config\": {\"gate_position\": \"sdpa\"}}], "

static sluice_status load(sluice__recipe *r, const char *text, sluice__recipe_changes changes, sluice_error *err) {
    char path[512];
    snprintf(path, sizeof path, "%s/recipe.json", test_temp_dir());
    assert_ok(sluice__write_file(path, text, strlen(text), NULL));
    return sluice__recipe_load(r, path, &changes, err);
}

static void arms_are_multiplied_out(void **state) {
    (void)state;
    static const char *const names[] = {"a-4e-3", "a-1_25e-2", "a-2e0", "b-4e-3", "b-1_25e-2", "b-2e0"};
    static const char *const labels[] = {"a, 4e-3", "a, 1.25e-2", "a, 2e0", "B, 4e-3", "B, 1.25e-2", "B, 2e0"};
    static const double rates[] = {0.004, 0.0125, 2};
    sluice__recipe r;
    sluice_error err = {0};
    const char *text = BASE TWO "\"ladder\": {\"learning_rate\": [0.004, 0.0125, 2]}, "
                                "\"scales\": {\"less\": {\"ladder\": {\"learning_rate\": [1]}}}}";
    assert_ok_err(load(&r, text, (sluice__recipe_changes){0}, &err), &err);
    assert_int_equal(r.num_arms, 6);
    for (int i = 0; i < 6; i++) {
        sluice_train_params p;
        assert_ok(sluice__arm_params(&p, &r.arms[i], 1, NULL));
        assert_string_equal(r.arms[i].name, names[i]);
        assert_string_equal(r.arms[i].label, labels[i]);
        assert_float_equal(p.learning_rate, rates[i % 3], 0);
        assert_int_equal(p.dtype, SLUICE_DTYPE_BF16);
        assert_true(!json_object_get(r.arms[i].config, "gate_position") == (i < 3));
    }
    sluice__recipe_free(&r);
    assert_ok_err(load(&r, text, (sluice__recipe_changes){.scale = "less"}, &err), &err);
    assert_int_equal(r.num_arms, 2);
    sluice__recipe_free(&r);
    assert_ok_err(load(&r, text, (sluice__recipe_changes){.arms = "a-2e0,b"}, &err), &err);
    assert_int_equal(r.num_arms, 4);
    assert_string_equal(r.arms[0].name, "a-2e0");
    sluice__recipe_free(&r);
    assert_int_equal(load(&r, text, (sluice__recipe_changes){.arms = "b,b-2e0"}, &err), SLUICE_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "b-2e0"));
}

static void mistakes_are_named(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {BASE TWO "\"ladder\": 3}", "ladder"},
        {BASE TWO "\"ladder\": {\"rate\": [1]}}", "rate"},
        {BASE TWO "\"ladder\": {\"learning_rate\": []}}", "ladder.learning_rate"},
        {BASE TWO "\"ladder\": {\"learning_rate\": 0.1}}", "ladder.learning_rate"},
        {BASE TWO "\"ladder\": {\"learning_rate\": [0]}}", "ladder.learning_rate"},
        {BASE TWO "\"ladder\": {\"learning_rate\": [0.1, \"x\"]}}", "ladder.learning_rate"},
        {BASE TWO "\"ladder\": {\"learning_rate\": [0.2, 0.1]}}", "rising"},
        {BASE TWO "\"ladder\": {\"learning_rate\": [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}}", "1..16"},
        {BASE "\"arms\": [{\"name\": \"a23456789-123456789-123456789-123456\"}], \"ladder\": {\"learning_rate\": [0.0125]}}",
         "name"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sluice__recipe r;
        sluice_error err = {0};
        assert_int_not_equal(load(&r, cases[i][0], (sluice__recipe_changes){0}, &err), SLUICE_OK);
        if (!strstr(err.message, cases[i][1])) fail_msg("%s\ngives \"%s\"", cases[i][0], err.message);
    }
}

/* Losses at five rates and two seeds; NaN diverged. */
enum { RATES = 5, SEEDS = 2 };
static void put_ladder(sluice__digest *d, const char *of, bool gated, const double loss[RATES][SEEDS]) {
    static const double rates[RATES] = {0.004, 0.002, 0.008, 0.016, 0.032}; /* not in order */
    static char names[64][16];
    for (int i = 0; i < RATES; i++) {
        sluice__digest_arm *a = &d->arms[d->num_arms];
        snprintf(names[d->num_arms], sizeof names[0], "%s-%d", of, i);
        *a = (sluice__digest_arm){.name = names[d->num_arms], .label = names[d->num_arms], .gated = gated, .rung_of = of,
                                  .rung_label = of, .rate = rates[i], .parameters = 10, .uniform = 0.05, .num_runs = SEEDS};
        for (int s = 0; s < SEEDS; s++)
            a->runs[s] = (sluice__digest_run){.seed = s + 1, .measured = !isnan(loss[i][s]), .loss = loss[i][s],
                                              .status = isnan(loss[i][s]) ? "diverged" : "done", .spike_score = 0.1 * i,
                                              .m_act = 10 + i, .massive = 0, .share = 0.1, .seconds = 1};
        d->num_arms++;
    }
}

static void the_largest_rate_is_below_the_first_that_fails(void **state) {
    (void)state;
    static const double base[RATES][SEEDS] = {{3.5, 3.6}, {3.7, 3.65}, {3.9, 3.62}, {3.55, 3.55}, {NAN, 5}};
    static const double gate[RATES][SEEDS] = {{3.5, 3.5}, {3.6, 3.6}, {3.4, 3.4}, {3.59, 3.5}, {NAN, NAN}};
    static const double never[RATES][SEEDS] = {{4, 4}, {5, 5}, {NAN, 4}, {6, 6}, {NAN, NAN}};
    static sluice__digest d;
    static sluice__ladder_result l[SLUICE__MAX_ARMS];
    d = (sluice__digest){.longest = NAN};
    put_ladder(&d, "base", false, base);
    put_ladder(&d, "gate", true, gate);
    put_ladder(&d, "never", true, never);
    assert_int_equal(sluice__ladder_results(l, &d), 3);
    assert_true(l[0].num_rungs == RATES && l[0].rungs[0].rate == 0.002 && l[0].rungs[4].rate == 0.032);
    assert_float_equal(l[0].best_loss, 3.55, 1e-12);
    assert_true(l[0].best_rate == 0.004 || l[0].best_rate == 0.016);
    assert_true(l[0].largest == 0.004); /* 0.008 has a run of 3.9; 0.016 does not count any more */
    assert_true(l[0].rungs[4].finished == 1 && l[0].rungs[4].converged == 0 && l[0].rungs[4].runs == 2);
    assert_true(l[1].largest == 0.016 && l[1].best_rate == 0.008);
    assert_true(isnan(l[2].largest) && l[2].best_rate == 0.004);
    json_t *found = sluice__findings(&d), *first = json_array_get(found, 0), *ladders = sluice__ladders(&d);
    assert_string_equal(json_string_value(json_object_get(first, "id")), "learning_rate");
    assert_string_equal(json_string_value(json_object_get(first, "verdict")), "mixed"); /* one gate of two */
    assert_non_null(strstr(json_string_value(json_object_get(first, "text")), "\"gate\" 0.016"));
    assert_non_null(strstr(json_string_value(json_object_get(first, "text")), "none of those tried"));
    assert_int_equal(json_array_size(ladders), 3);
    assert_true(json_is_null(json_object_get(json_array_get(ladders, 2), "largest")));
    json_decref(found);
    json_decref(ladders);
}

/* Arms are held against the ungated one at their own rate. */
static void comparisons_keep_to_one_rate(void **state) {
    (void)state;
    static const double loss[RATES][SEEDS] = {{1, 1}, {2, 2}, {3, 3}, {4, 4}, {5, 5}};
    static sluice__digest d;
    d = (sluice__digest){.longest = NAN};
    put_ladder(&d, "base", false, loss);
    put_ladder(&d, "gate", true, loss);
    json_t *c = sluice__comparisons(&d);
    assert_int_equal(json_array_size(c), RATES);
    for (size_t i = 0; i < RATES; i++) {
        char name[16];
        snprintf(name, sizeof name, "base-%zu", i);
        assert_string_equal(json_string_value(json_object_get(json_array_get(c, i), "against")), name);
    }
    json_decref(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arms_are_multiplied_out), cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(the_largest_rate_is_below_the_first_that_fails),
        cmocka_unit_test(comparisons_keep_to_one_rate)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
