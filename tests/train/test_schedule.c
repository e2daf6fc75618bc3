/* SPDX-License-Identifier: Apache-2.0 */
/* train: learning-rate schedules against the recorded values of an outside implementation. */
#include "support/test_support.h"
#include "base/json.h"
#include "train/schedule.h"
#include <math.h>
#include <string.h>

static const double REL_TOL = 1e-12; /* closed formulas in double: a few ulp */

static double number(const json_t *o, const char *key) {
    return json_number_value(json_object_get(o, key));
}

static sluice__schedule schedule_of(const json_t *c) {
    sluice__schedule s = {.max_lr = number(c, "max_lr"), .min_lr = number(c, "min_lr")};
    s.warmup = json_integer_value(json_object_get(c, "warmup"));
    s.total = json_integer_value(json_object_get(c, "total"));
    s.decay = json_integer_value(json_object_get(c, "decay"));
    assert_true(sluice__schedule_kind_of(json_string_value(json_object_get(c, "kind")), &s.kind));
    const char *shape = json_string_value(json_object_get(c, "decay_shape"));
    if (shape) assert_true(sluice__decay_shape_of(shape, &s.decay_shape));
    return s;
}

static void goldens(void **state) {
    (void)state;
    json_t *root, *c;
    sluice_error err = {0};
    assert_ok_err(sluice__json_load(&root, test_data("train/schedule.json"), &err), &err);
    json_t *cases = json_object_get(root, "cases");
    size_t i, checked = 0;
    json_array_foreach(cases, i, c) {
        sluice__schedule s = schedule_of(c);
        json_t *steps = json_object_get(c, "steps"), *lr = json_object_get(c, "lr");
        for (size_t k = 0; k < json_array_size(steps); k++, checked++) {
            int64_t step = json_integer_value(json_array_get(steps, k));
            double want = json_number_value(json_array_get(lr, k)), got = sluice__lr_at(&s, step);
            if (fabs(got - want) > REL_TOL * fabs(want))
                fail_msg("%s step %lld: %.17g, expected %.17g", json_string_value(json_object_get(c, "name")),
                         (long long)step, got, want);
        }
    }
    assert_true(checked > 300);
    json_decref(root);
}

static void linear_has_the_shape_of_transformers(void **state) {
    (void)state;
    sluice__schedule s = {SLUICE__SCHEDULE_LINEAR, 0, 1e-3, 1e-4, 10, 110, 0};
    assert_float_equal(sluice__lr_at(&s, 1), 1e-4, 1e-18);
    assert_float_equal(sluice__lr_at(&s, 10), 1e-3, 1e-18);
    assert_float_equal(sluice__lr_at(&s, 60), 5.5e-4, 1e-18);
    assert_float_equal(sluice__lr_at(&s, 110), 1e-4, 1e-18);
    assert_float_equal(sluice__lr_at(&s, 1000), 1e-4, 1e-18);
    s.warmup = 110; /* nothing is left to decay in */
    assert_float_equal(sluice__lr_at(&s, 110), 1e-3, 1e-18);
}

static void names(void **state) {
    (void)state;
    sluice__schedule_kind kind;
    sluice__decay_shape shape;
    assert_true(sluice__schedule_kind_of("constant_with_warmup", &kind));
    assert_int_equal(kind, SLUICE__SCHEDULE_CONSTANT);
    assert_true(sluice__schedule_kind_of("warmup_stable_decay", &kind));
    assert_int_equal(kind, SLUICE__SCHEDULE_WSD);
    assert_false(sluice__schedule_kind_of("Cosine", &kind));
    assert_false(sluice__schedule_kind_of("", &kind));
    assert_true(sluice__decay_shape_of("1-sqrt", &shape));
    assert_int_equal(shape, SLUICE__DECAY_SQRT);
    assert_false(sluice__decay_shape_of("exponential", &shape));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goldens),
        cmocka_unit_test(linear_has_the_shape_of_transformers),
        cmocka_unit_test(names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
