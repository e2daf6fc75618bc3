/* SPDX-License-Identifier: Apache-2.0 */
/* The two-pass median and massive count against sorting, on values that sit around every bound. */
#include "support/test_support.h"
#include "base/rng.h"
#include "inspect/magnitudes.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void check(const float *x, int n, int split) {
    double *sorted = malloc((size_t)n * sizeof *sorted);
    for (int i = 0; i < n; i++) sorted[i] = fabs((double)x[i]);
    qsort(sorted, (size_t)n, sizeof *sorted, ascending);
    double median = sorted[(n - 1) / 2];
    int64_t massive = 0;
    for (int i = 0; i < n; i++) massive += sorted[i] > 100 && sorted[i] >= 1000 * median;
    sluice__magnitudes m;
    assert_ok(sluice__magnitudes_new(&m, NULL));
    assert_true(sluice__magnitudes_first(&m, x, split));
    assert_true(sluice__magnitudes_first(&m, x + split, n - split));
    assert_ok(sluice__magnitudes_plan(&m, NULL));
    sluice__magnitudes_second(&m, x, split);
    sluice__magnitudes_second(&m, x + split, n - split);
    assert_true(sluice__magnitudes_median(&m) == median);
    assert_int_equal(sluice__magnitudes_massive(&m), massive);
    sluice__magnitudes_free(&m);
    free(sorted);
}

static void test_random(void **state) {
    (void)state;
    float x[257];
    for (int n = 1; n <= 257; n += n < 20 ? 1 : 37)
        for (int scale = 0; scale < 6; scale++) {
            sluice__rng r = {7, (uint64_t)n, 0};
            for (int i = 0; i < n; i++) {
                double u = sluice__rng_uniform(&r) - 0.5;
                x[i] = (float)(u * pow(10, scale * 8 - 20 + 6 * sluice__rng_uniform(&r)));
            }
            check(x, n, n / 3);
        }
}

static void test_bounds(void **state) {
    (void)state;
    float median = 0.3f, bound = 1000 * median, x[11];
    for (int i = 0; i < 6; i++) x[i] = median;
    x[6] = bound, x[7] = nextafterf(bound, 0), x[8] = nextafterf(bound, 1e9f), x[9] = -bound, x[10] = 1e30f;
    check(x, 11, 4);
    float small[7] = {0.01f, 0.01f, -0.01f, 0.01f, 100.0f, nextafterf(100, 200), -nextafterf(100, 200)};
    check(small, 7, 2);
    float zero[5] = {0, -0.0f, 0, 1e-45f, 101};
    check(zero, 5, 1);
}

static void test_not_finite(void **state) {
    (void)state;
    sluice__magnitudes m;
    float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        assert_ok(sluice__magnitudes_new(&m, NULL));
        assert_false(sluice__magnitudes_first(&m, &bad[i], 1));
        sluice__magnitudes_free(&m);
    }
}

static void test_empty(void **state) {
    (void)state;
    sluice__magnitudes m;
    assert_ok(sluice__magnitudes_new(&m, NULL));
    assert_ok(sluice__magnitudes_plan(&m, NULL));
    assert_true(isnan(sluice__magnitudes_median(&m)));
    assert_int_equal(sluice__magnitudes_massive(&m), 0);
    sluice__magnitudes_free(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random), cmocka_unit_test(test_bounds),
                                       cmocka_unit_test(test_not_finite), cmocka_unit_test(test_empty)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
