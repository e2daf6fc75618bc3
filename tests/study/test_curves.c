/* SPDX-License-Identifier: Apache-2.0 */
/* Curves out of metrics.jsonl: thinning keeps ends and spikes, times add up, odd lines do no harm. */
#include "support/test_support.h"
#include "base/file.h"
#include "study/curves.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static json_t *read_curves(const char *path) {
    json_t *out = NULL;
    sluice_train_params p = sluice_train_params_default();
    sluice_error err = {0};
    p.loss_spike_threshold = 0.5;
    assert_ok_err(sluice__curves_read(&out, path, &p, &err), &err);
    return out;
}

static int64_t at(const json_t *o, const char *key, size_t i) {
    return (int64_t)json_number_value(json_array_get(json_object_get(o, key), i));
}

static void test_long_run(void **state) {
    (void)state;
    char path[512];
    enum { STEPS = 9000, SPIKE = 7123 };
    snprintf(path, sizeof path, "%s/metrics.jsonl", test_temp_dir());
    FILE *f = fopen(path, "w");
    for (int i = 1; i <= STEPS; i++) {
        fprintf(f,
                "{\"type\": \"train\", \"step\": %d, \"loss\": %g, \"grad_norm\": 1, \"learning_rate\": 0.1, "
                "\"tokens_per_second\": %s, \"tokens\": %d}\n",
                i, i == SPIKE ? 9.0 : 3.0, i == 1 ? "null" : "100", 10 * i);
        if (i % 3000 == 0)
            fprintf(f,
                    "{\"type\": \"probe\", \"step\": %d, \"first_token_share\": [0.9, 0.9], "
                    "\"first_token_share_from_quarter\": [0.1, 0.2], \"max_abs_residual\": [1, 2], \"gate_mean\": "
                    "[null, 0.5]}\n",
                    i);
    }
    fputs("not json\n{\"type\": \"train\", \"step\": 1", f);
    fclose(f);
    json_t *c = read_curves(path);
    size_t n = json_array_size(json_object_get(c, "step"));
    assert_in_range(n, 1000, SLUICE__CURVE_POINTS);
    assert_int_equal(at(c, "step", 0), 1);
    assert_int_equal(at(c, "step", n - 1), STEPS);
    bool kept = false;
    for (size_t i = 0; i < n; i++) kept |= at(c, "step", i) == SPIKE && at(c, "loss", i) == 9;
    assert_true(kept);
    json_t *spikes = json_object_get(c, "spikes");
    assert_int_equal(at(spikes, "events", 0), SPIKE);
    assert_int_equal(json_array_size(json_object_get(spikes, "events")), 1);
    assert_true(fabs(json_number_value(json_object_get(c, "seconds")) - STEPS * 10 / 100.0) < 1e-6);
    assert_true(fabs(json_number_value(json_object_get(c, "tokens_per_s")) - 100) < 1e-6);
    assert_int_equal(json_array_size(json_object_get(c, "probe_step")), 3);
    json_t *share = json_array_get(json_object_get(c, "first_token_share"), 0);
    assert_true(json_number_value(json_array_get(share, 1)) == 0.2);
    assert_true(json_is_array(json_object_get(c, "gate_mean")));
    json_decref(c);
}

static void test_diverged_run(void **state) {
    (void)state;
    char path[512];
    snprintf(path, sizeof path, "%s/metrics.jsonl", test_temp_dir());
    const char *lines = "{\"type\": \"train\", \"step\": 1, \"loss\": 3, \"tokens\": 5}\n"
                        "{\"type\": \"train\", \"step\": 2, \"loss\": null, \"grad_norm\": null, \"tokens\": 10}\n";
    assert_ok(sluice__write_file(path, lines, strlen(lines), NULL));
    json_t *c = read_curves(path);
    assert_true(json_is_null(json_array_get(json_object_get(c, "loss"), 1)));
    assert_int_equal(at(json_object_get(c, "spikes"), "flagged", 0), 2);
    assert_true(json_is_null(json_object_get(c, "gate_mean")) && json_is_null(json_object_get(c, "seconds")));
    json_decref(c);
}

static void test_no_file(void **state) {
    (void)state;
    json_t *c = read_curves("/nonexistent/metrics.jsonl");
    assert_int_equal(json_array_size(json_object_get(c, "step")), 0);
    assert_true(json_is_null(json_object_get(c, "final_loss")));
    json_decref(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_long_run), cmocka_unit_test(test_diverged_run),
                                       cmocka_unit_test(test_no_file)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
