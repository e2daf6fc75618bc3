/* SPDX-License-Identifier: Apache-2.0 */
/* train: loss spikes and spike score against the recorded indices of an outside implementation. */
#include "support/test_support.h"
#include "base/json.h"
#include "train/spikes.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1000 };

static json_t *load(void) {
    json_t *root;
    sluice_error err = {0};
    assert_ok_err(sluice__json_load(&root, test_data("train/loss_curves.json"), &err), &err);
    return root;
}

static int64_t curve(json_t *root, const char *name, double out[MOST]) {
    json_t *values = json_object_get(json_object_get(root, "curves"), name), *v;
    size_t i;
    assert_true(json_array_size(values) > 0 && json_array_size(values) <= MOST);
    json_array_foreach(values, i, v) {
        out[i] = json_is_string(v) ? strtod(json_string_value(v), NULL) : json_number_value(v);
    }
    return (int64_t)json_array_size(values);
}

static void assert_indices(const json_t *want, const int64_t *got, int64_t n) {
    assert_int_equal(json_array_size(want), n);
    for (int64_t i = 0; i < n; i++) assert_int_equal(json_integer_value(json_array_get(want, (size_t)i)), got[i]);
}

static void spikes_are_the_recorded_ones(void **state) {
    (void)state;
    json_t *root = load(), *c;
    size_t i;
    json_array_foreach(json_object_get(root, "spikes"), i, c) {
        double loss[MOST];
        int64_t n = curve(root, json_string_value(json_object_get(c, "curve")), loss);
        const json_t *o = json_object_get(c, "options");
        sluice__spike_options options = {
            json_number_value(json_object_get(o, "alpha")), json_number_value(json_object_get(o, "threshold")),
            json_integer_value(json_object_get(o, "start")), json_integer_value(json_object_get(o, "min_gap"))};
        int64_t flagged[MOST], events[MOST], num_flagged, num_events;
        sluice__loss_spikes(loss, n, options, flagged, &num_flagged, events, &num_events);
        assert_indices(json_object_get(c, "flagged"), flagged, num_flagged);
        assert_indices(json_object_get(c, "events"), events, num_events);
    }
    assert_true(i >= 30);
    json_decref(root);
}

static void score_is_the_recorded_one(void **state) {
    (void)state;
    json_t *root = load(), *score = json_object_get(root, "spike_score"), *want;
    const json_t *o = json_object_get(score, "options");
    const char *name;
    json_object_foreach(json_object_get(score, "percent"), name, want) {
        double x[MOST];
        int64_t n = curve(root, name, x);
        double got = sluice__spike_score(x, n, json_integer_value(json_object_get(o, "window")),
                                         json_number_value(json_object_get(o, "z")),
                                         json_integer_value(json_object_get(o, "least")));
        assert_float_equal(got, json_number_value(want), 1e-12);
    }
    json_decref(root);
}

static void peek_changes_nothing(void **state) {
    (void)state;
    sluice__spike_watch w, before;
    sluice__spike_options options = sluice__spike_options_default();
    options.start = 1;
    sluice__spike_watch_init(&w, options);
    assert_int_equal(sluice__spike_watch_next(&w, 3.0), SLUICE__SPIKE_NONE);
    before = w;
    assert_int_equal(sluice__spike_watch_peek(&w, 3.2), SLUICE__SPIKE_EVENT);
    assert_int_equal(sluice__spike_watch_peek(&w, NAN), SLUICE__SPIKE_EVENT);
    assert_memory_equal(&w, &before, sizeof w);
    assert_int_equal(sluice__spike_watch_next(&w, 3.2), SLUICE__SPIKE_EVENT);
    assert_int_equal(sluice__spike_watch_next(&w, 3.2), SLUICE__SPIKE_FLAGGED);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spikes_are_the_recorded_ones),
        cmocka_unit_test(score_is_the_recorded_one),
        cmocka_unit_test(peek_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
