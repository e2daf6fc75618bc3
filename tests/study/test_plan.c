/* SPDX-License-Identifier: Apache-2.0 */
/* Differences between two plans are named; the lock keeps a second study out. */
#include "support/test_support.h"
#include "study/plan.h"
#include <string.h>

static void differs(const char *a, const char *b, const char *path, const char *a_text, const char *b_text) {
    json_t *x = json_loads(a, 0, NULL), *y = json_loads(b, 0, NULL);
    char where[256] = "", found_a[64], found_b[64];
    bool is = sluice__json_difference(x, y, where, found_a, found_b);
    assert_int_equal(is, path != NULL);
    if (is) {
        assert_string_equal(where, path);
        assert_string_equal(found_a, a_text);
        assert_string_equal(found_b, b_text);
    }
    json_decref(x);
    json_decref(y);
}

static void test_differences(void **state) {
    (void)state;
    differs("{\"a\": {\"b\": 1, \"c\": [1, 2]}}", "{\"a\": {\"c\": [1, 2], \"b\": 1.0}}", NULL, NULL, NULL);
    differs("{\"a\": {\"b\": 1}}", "{\"a\": {\"b\": 2}}", "a.b", "1", "2");
    differs("{\"a\": {\"b\": 0.003}}", "{\"a\": {\"b\": 0.003, \"c\": \"x\"}}", "a.c", "absent", "\"x\"");
    differs("{\"a\": {\"b\": 0.003, \"c\": null}}", "{\"a\": {\"b\": 0.003}}", "a.c", "null", "absent");
    differs("{\"a\": [1, 2]}", "{\"a\": [1, 3]}", "a", "[1, 2]", "[1, 3]");
    differs("{\"a\": {}}", "{\"a\": 1}", "a", "{}", "1");
}

static void test_lock(void **state) {
    (void)state;
    const char *dir = test_temp_dir();
    sluice__study_lock one, two;
    sluice_error err = {0};
    assert_ok(sluice__study_lock_take(&one, dir, NULL));
    assert_int_equal(sluice__study_lock_take(&two, dir, &err), SLUICE_ERR_IO);
    assert_non_null(strstr(err.message, "another study"));
    sluice__study_lock_release(&one);
    assert_ok(sluice__study_lock_take(&two, dir, NULL));
    sluice__study_lock_release(&two);
    assert_int_not_equal(sluice__study_lock_take(&one, "/proc/no", &err), SLUICE_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_differences), cmocka_unit_test(test_lock)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
