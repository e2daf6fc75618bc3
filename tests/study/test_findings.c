/* SPDX-License-Identifier: Apache-2.0 */
/* Findings on made-up numbers: every verdict can come out every way, sentences hold the numbers and the spread, and
 * nothing is said that the numbers do not carry. Numbers like those of study-recipes: sotu (loss lower), King James
 * (not lower). */
#include "support/test_support.h"
#include "study/findings.h"
#include "study/results.h"
#include <math.h>
#include <string.h>

static sluice__digest_run run(int64_t seed, double loss, double share, double sink_heads) {
    return (sluice__digest_run){.seed = seed,
                                .measured = true,
                                .status = "done",
                                .loss = loss,
                                .share = share,
                                .sink_heads = sink_heads,
                                .heads = 4,
                                .other_key = 0.111,
                                .peak = 3.5,
                                .peak_others = 2.5,
                                .peak_ratio = 27,
                                .massive = 0,
                                .gate_mean = NAN,
                                .gate_below = NAN,
                                .small_before = 0.2,
                                .small_after = 0.2,
                                .small_control = 0.2,
                                .spike_events = 0,
                                .spike_score = 0,
                                .rise_plain = 0.4,
                                .rise_yarn = 0.1,
                                .seconds = 100};
}

static sluice__digest_run gated_run(int64_t seed, double loss, double share) {
    sluice__digest_run r = run(seed, loss, share, 0);
    r.gate_mean = 0.11;
    r.gate_below = 0.6;
    r.small_after = 0.7;
    r.small_control = 0.5;
    r.peak = 1.2;
    r.peak_others = 2.6;
    r.peak_ratio = 11;
    r.rise_plain = 0.2;
    r.rise_yarn = 0.05;
    r.seconds = 102;
    return r;
}

static sluice__digest two_arms(void) {
    sluice__digest d = {.num_arms = 2, .reference = 0, .longest = 4};
    d.arms[0] = (sluice__digest_arm){
        .name = "baseline", .label = "no gate", .parameters = 1000, .uniform = 0.028, .num_runs = 2};
    d.arms[1] = (sluice__digest_arm){
        .name = "gated", .label = "a gate", .gated = true, .parameters = 1010, .uniform = 0.028, .num_runs = 2};
    d.arms[0].runs[0] = run(1, 3.520, 0.423, 4);
    d.arms[0].runs[1] = run(2, 3.527, 0.211, 1);
    d.arms[1].runs[0] = gated_run(1, 3.498, 0.014);
    d.arms[1].runs[1] = gated_run(2, 3.501, 0.008);
    return d;
}

static const char *verdict, *text;
static json_t *findings;

/* Finds by id into verdict and text; false when there is none. */
static bool find(const sluice__digest *d, const char *id) {
    size_t i;
    json_t *f;
    json_decref(findings);
    findings = sluice__findings(d);
    verdict = text = NULL;
    json_array_foreach(findings, i, f) {
        if (strcmp(json_string_value(json_object_get(f, "id")), id) != 0) continue;
        assert_null(verdict); /* an id stands once */
        verdict = json_string_value(json_object_get(f, "verdict"));
        text = json_string_value(json_object_get(f, "text"));
        assert_null(strstr(text, "nan"));
    }
    return verdict != NULL;
}

static void expect(const sluice__digest *d, const char *id, const char *expected, const char *const *words) {
    assert_true(find(d, id));
    if (strcmp(verdict, expected) != 0) fail_msg("%s: found \"%s\", expected \"%s\": %s", id, verdict, expected, text);
    for (; *words; words++)
        if (!strstr(text, *words)) fail_msg("%s: \"%s\" lacks \"%s\"", id, text, *words);
}
#define EXPECT(d, id, expected, ...) expect(d, id, expected, (const char *const[]){__VA_ARGS__, NULL})

static void test_clear_case(void **state) {
    (void)state;
    sluice__digest d = two_arms();
    EXPECT(&d, "sink", "observed", "1 to 4 of 4 heads", "0.317 ± 0.150", "0.028", "7.5 to 15.1 times");
    EXPECT(&d, "gate_removes_sink", "observed", "0.011 ± 0.004", "0 of 4 heads", "0.12", "0.317");
    EXPECT(&d, "loss", "observed", "3.524 ± 0.005", "(-0.024 ± 0.003 at equal seed, lower in 2 of 2)", ": lower.");
    EXPECT(&d, "first_token_peak", "observed", "3.50 (27 times the median, largest of the others 2.50)",
           "1.20 (11 times");
    EXPECT(&d, "massive_activations", "not observed", "No run has a massive activation");
    EXPECT(&d, "gate_sparsity", "observed", "0.110", "60 %", "20 %", "70 %", "50 %");
    EXPECT(&d, "spikes", "not observed", "No loss spike in any run");
    EXPECT(&d, "length", "observed", "4 times", "+0.400 (YaRN +0.100)", "+0.200 (YaRN +0.050)");
    EXPECT(&d, "cost", "observed", "+10 parameters", "1.02 times");
    EXPECT(&d, "seeds", "observed", "2 seeds");
    assert_false(find(&d, "failures"));
    assert_false(find(&d, "factors"));
}

static void test_loss_is_not_lower(void **state) {
    (void)state;
    sluice__digest d = two_arms();
    d.arms[1].runs[0].loss = 3.5255;
    d.arms[1].runs[1].loss = 3.5262; /* 0.0008 lower: equal */
    EXPECT(&d, "loss", "not observed", "lower in 0 of 2", ": not lower.");
    d.arms[1].runs[1].loss = 3.50;
    EXPECT(&d, "loss", "mixed", "lower in 1 of 2", " runs.");
}

static void test_no_sink(void **state) {
    (void)state;
    sluice__digest d = two_arms();
    for (int i = 0; i < 2; i++) d.arms[0].runs[i].sink_heads = 0, d.arms[0].runs[i].share = 0.05;
    EXPECT(&d, "sink", "not observed", "0 of 4 heads", "1.8 to 1.8 times");
    EXPECT(&d, "gate_removes_sink", "not observed", "none to remove");
    d.arms[0].runs[1].sink_heads = 1;
    EXPECT(&d, "sink", "mixed", "0 to 1 of 4 heads");
    d.arms[0].runs[0].share = 0.09; /* spread over the heads, more than three times uniform */
    EXPECT(&d, "sink", "observed", "1.8 to 3.2 times");
}

static void test_gate_keeps_sink(void **state) {
    (void)state;
    sluice__digest d = two_arms();
    for (int i = 0; i < 2; i++) d.arms[1].runs[i].sink_heads = 2, d.arms[1].runs[i].share = 0.3;
    EXPECT(&d, "gate_removes_sink", "not observed", "0.300 ± 0.000", "2 of 4 heads");
    d.arms[1].runs[0] = gated_run(1, 3.5, 0.01);
    EXPECT(&d, "gate_removes_sink", "mixed", "0 to 2 of 4 heads");
}

static void test_one_seed(void **state) {
    (void)state;
    sluice__digest d = two_arms();
    d.arms[0].num_runs = d.arms[1].num_runs = 1;
    EXPECT(&d, "seeds", "not observed", "One seed only", "unknown");
    EXPECT(&d, "loss", "observed", ", one seed)");
    assert_null(strstr(text, "±"));
    assert_true(find(&d, "sink"));
    assert_null(strstr(text, "±"));
}

static void test_seeds_that_do_not_match(void **state) {
    (void)state;
    sluice__digest d = two_arms();
    d.arms[1].runs[0].seed = 8;
    d.arms[1].runs[1].seed = 9;
    assert_false(find(&d, "loss"));
    assert_false(find(&d, "gate_removes_sink"));
    assert_false(find(&d, "cost"));
    d.arms[1].runs[1].seed = 2;
    EXPECT(&d, "loss", "observed", "(-0.026, one seed)");
}

static void test_failed_runs_are_left_out(void **state) {
    (void)state;
    sluice__digest d = two_arms();
    d.arms[0].runs[1].measured = false;
    d.arms[0].runs[1].status = "diverged";
    d.arms[0].runs[1].error = "loss is not finite at step 7";
    d.arms[0].runs[1].loss = d.arms[0].runs[1].share = NAN;
    EXPECT(&d, "failures", "observed", "\"no gate\" seed 2 diverged (loss is not finite at step 7)", "left out");
    EXPECT(&d, "sink", "observed", "4 of 4 heads", "takes 0.423 of");
    EXPECT(&d, "loss", "observed", ", one seed)");
    for (int a = 0; a < 2; a++)
        for (int i = 0; i < 2; i++) d.arms[a].runs[i].measured = false;
    EXPECT(&d, "failures", "observed", "seed 1", "seed 2");
    assert_int_equal(json_array_size(findings), 1);
}

static void test_massive(void **state) {
    (void)state;
    sluice__digest d = two_arms();
    d.arms[0].runs[0].massive = 12;
    d.arms[0].runs[1].massive = 3;
    EXPECT(&d, "massive_activations", "mixed", "\"no gate\" 12");
    assert_null(strstr(text, "a gate"));
}

static void test_spikes(void **state) {
    (void)state;
    sluice__digest d = two_arms();
    d.arms[0].runs[0].spike_events = 4;
    d.arms[0].runs[1].spike_events = 2;
    d.arms[1].runs[0].spike_events = 1;
    EXPECT(&d, "spikes", "observed", "3.0 ± 1.4", "0.5 ± 0.7");
    d.arms[1].runs[1].spike_events = 2;
    EXPECT(&d, "spikes", "mixed", "1.5 ± 0.7");
}

static void test_other_data_is_not_compared(void **state) {
    (void)state;
    sluice__digest d = two_arms();
    d.arms[1].data_set = 1;
    assert_false(find(&d, "loss"));
    EXPECT(&d, "gate_removes_sink", "observed", "0.011");
    json_t *list = sluice__comparisons(&d), *c = json_array_get(list, 0);
    assert_true(json_is_null(json_object_get(c, "loss_difference")) && json_is_false(json_object_get(c, "same_data")));
    json_decref(list);
}

static void test_factors(void **state) {
    (void)state;
    sluice__digest d = two_arms();
    d.arms[1].gated = false;
    EXPECT(&d, "factors", "observed", "\"a gate\" 0.011 ± 0.004", "\"no gate\" 0.317");
    assert_false(find(&d, "gate_removes_sink"));
    assert_false(find(&d, "loss"));
    assert_false(find(&d, "gate_sparsity"));
    for (int i = 0; i < 2; i++) d.arms[1].runs[i].share = d.arms[0].runs[i].share;
    EXPECT(&d, "factors", "not observed", "0.317");
}

static void test_comparisons(void **state) {
    (void)state;
    sluice__digest d = two_arms();
    json_t *list = sluice__comparisons(&d), *c = json_array_get(list, 0), *loss = json_object_get(c, "loss_difference");
    assert_int_equal(json_array_size(list), 1);
    assert_string_equal(json_string_value(json_object_get(c, "arm")), "gated");
    assert_string_equal(json_string_value(json_object_get(c, "against")), "baseline");
    assert_true(fabs(json_real_value(json_object_get(loss, "mean")) + 0.024) < 1e-9);
    assert_true(fabs(json_real_value(json_object_get(loss, "sd")) - 0.0028284) < 1e-6);
    assert_int_equal(json_array_size(json_object_get(loss, "per_seed")), 2);
    assert_true(fabs(json_real_value(json_object_get(c, "seconds_ratio")) - 1.02) < 1e-9);
    assert_true(json_real_value(json_object_get(c, "parameters_difference")) == 10);
    json_decref(list);
}

static void test_spread(void **state) {
    (void)state;
    const double v[] = {1, NAN, 3, INFINITY};
    sluice__spread s = sluice__spread_of(v, 4), one = sluice__spread_of(v, 1), none = sluice__spread_of(v + 1, 1);
    assert_true(s.mean == 2 && fabs(s.sd - sqrt(2)) < 1e-12 && s.count == 2);
    assert_true(one.mean == 1 && isnan(one.sd) && isnan(none.mean));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_clear_case),
                                       cmocka_unit_test(test_loss_is_not_lower),
                                       cmocka_unit_test(test_no_sink),
                                       cmocka_unit_test(test_gate_keeps_sink),
                                       cmocka_unit_test(test_one_seed),
                                       cmocka_unit_test(test_seeds_that_do_not_match),
                                       cmocka_unit_test(test_failed_runs_are_left_out),
                                       cmocka_unit_test(test_massive),
                                       cmocka_unit_test(test_spikes),
                                       cmocka_unit_test(test_other_data_is_not_compared),
                                       cmocka_unit_test(test_factors),
                                       cmocka_unit_test(test_comparisons),
                                       cmocka_unit_test(test_spread)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    json_decref(findings);
    return failed;
}
