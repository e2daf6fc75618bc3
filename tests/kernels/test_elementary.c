/* SPDX-License-Identifier: Apache-2.0 */
/* exp, sigmoid, tanh and erf against the C library in double, over the whole range of float: every STRIDE-th bit
 * pattern of either sign, then the corners. Errors are counted in units in the last place (ulp) of the right
 * result. */
#include "support/test_support.h"
#include "kernels/kernels.h"
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STRIDE = 4001, BATCH = 1000 };

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

typedef struct function {
    const char *name;
    double (*exact)(double);
    double most_ulp; /* measured over every 17th float: 1.02, 2.34, 1.33, 1.12; rounded up (docs/numerics.md) */
} function;
static const function functions[] = {
    {"exp", exp, 1.1}, {"sigmoid", sigmoid, 2.5}, {"tanh", tanh, 1.5}, {"erf", erf, 1.25}};

typedef void (*kernel)(float *y, const float *x, int64_t count);

static kernel kernel_of(const sluice__kernels *k, int f) {
    const kernel all[] = {k->exp_f32, k->sigmoid_f32, k->tanh_f32, k->erf_f32};
    return all[f];
}

/* Results below the smallest normal number may be 0 instead. */
static double ulps(float got, double want) {
    if (fabs(want) < FLT_MIN) return fabs(got) <= FLT_MIN ? 0 : INFINITY;
    if (fabs(want) > FLT_MAX)
        return isinf(got) && (got > 0) == (want > 0) ? 0 : fabs((double)got) >= FLT_MAX ? 0 : INFINITY;
    int exponent;
    frexp(want, &exponent);
    return fabs(got - want) / ldexp(1, exponent - 24);
}

static void whole_range(void **state) {
    (void)state;
    for (unsigned flags = 0; flags <= (SLUICE_CPU_AVX2 | SLUICE_CPU_AVX512); flags = flags * 2 + 1) {
        if (flags & ~sluice_cpu_detect()) continue;
        sluice__kernels k;
        sluice__kernels_choose(&k, flags);
        for (int f = 0; f < 4; f++) {
            double worst = 0;
            for (uint64_t bits = 0; bits < 0x7f800000;) {
                float x[BATCH], y[BATCH];
                int n = 0;
                for (; n < BATCH && bits < 0x7f800000; n++, bits += STRIDE) {
                    uint32_t b = (uint32_t)bits | (n & 1 ? 0x80000000u : 0);
                    memcpy(&x[n], &b, 4);
                }
                kernel_of(&k, f)(y, x, n);
                for (int i = 0; i < n; i++)
                    worst = fmax(worst, isnan(y[i]) ? INFINITY : ulps(y[i], functions[f].exact(x[i])));
            }
            printf("%-8s flags %u: %.3f ulp\n", functions[f].name, flags, worst);
            assert_true(worst <= functions[f].most_ulp);
        }
    }
}

static void corners(void **state) {
    (void)state;
    const float x[8] = {0, -0.0f, INFINITY, -INFINITY, NAN, -77, 88.7f, 89};
    for (unsigned flags = 0; flags <= (SLUICE_CPU_AVX2 | SLUICE_CPU_AVX512); flags = flags * 2 + 1) {
        if (flags & ~sluice_cpu_detect()) continue;
        sluice__kernels k;
        sluice__kernels_choose(&k, flags);
        float y[4][8];
        for (int f = 0; f < 4; f++) kernel_of(&k, f)(y[f], x, 8);
        for (int f = 0; f < 4; f++) assert_true(isnan(y[f][4]));
        assert_true(y[0][0] == 1 && y[0][2] == INFINITY && y[0][3] == 0 && isfinite(y[0][6]) &&
                    y[0][7] == INFINITY);
        assert_true(y[1][0] == 0.5f && y[1][2] == 1 && y[1][3] == 0 && y[1][5] > 3e-34f && y[1][5] < 4e-34f);
        for (int f = 2; f < 4; f++) assert_true(y[f][2] == 1 && y[f][3] == -1 && y[f][0] == 0 && y[f][5] == -1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(whole_range), cmocka_unit_test(corners)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
