/* SPDX-License-Identifier: Apache-2.0 */
/* bf16: rounding gives the same bits at every CPU level, those of the definition; products agree with sums in double on every
 * path (native, emulated, reference), for shapes around all tiles and blocks, fp32 and bf16 operands, any strides. */
#include "base/rng.h"
#include "kernels/kernels.h"
#include "support/test_support.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static float of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void rounding_by_hand(void **state) {
    (void)state;
    static const struct {
        uint32_t from;
        uint16_t to;
    } cases[] = {
        {0x3f800000, 0x3f80}, {0x3f807fff, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f808001, 0x3f81}, /* ties to even */
        {0x3f818000, 0x3f82}, {0xbf818000, 0xbf82}, {0x7f7fffff, 0x7f80}, {0xff7f8000, 0xff80}, /* beyond the largest */
        {0x7f800000, 0x7f80}, {0xff800000, 0xff80}, {0x7f800001, 0x7fc0}, {0xffc12345, 0xffc1}, /* NaN stays NaN */
        {0x00000000, 0x0000}, {0x80000000, 0x8000}, {0x007fffff, 0x0000}, {0x80000001, 0x8000}, /* denormals are 0 */
        {0x00800000, 0x0080},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(sluice__bf16_round(of_bits(cases[i].from)), cases[i].to);
    assert_float_equal(sluice__bf16_widen(0x4049), 3.140625, 0);
}

/* Every 4099th float, so all exponents and both signs, in runs of odd lengths. */
static void rounding_is_the_same_everywhere(void **state) {
    (void)state;
    enum { RUN = 531 };
    static const unsigned levels[] = {0, SLUICE_CPU_AVX2, SLUICE_CPU_AVX2 | SLUICE_CPU_AVX512};
    for (size_t l = 0; l < 3; l++) {
        sluice__kernels k;
        if (levels[l] & ~sluice_cpu_detect()) continue;
        sluice__kernels_choose(&k, levels[l]);
        for (uint64_t bits = 0; bits < UINT32_MAX; bits += 4099 * (uint64_t)RUN) {
            float x[RUN], y[RUN], wide[RUN];
            sluice__bf16 half[RUN];
            for (uint64_t i = 0; i < RUN; i++) x[i] = of_bits((uint32_t)(bits + 4099 * i));
            k.bf16_from_f32(half, x, RUN);
            k.bf16_round_f32(y, x, RUN);
            k.widen_bf16(wide, half, RUN);
            for (int i = 0; i < RUN; i++) {
                uint32_t got, expected = (uint32_t)sluice__bf16_round(x[i]) << 16;
                assert_int_equal(half[i], expected >> 16);
                memcpy(&got, &y[i], sizeof got);
                assert_int_equal(got, expected);
                memcpy(&got, &wide[i], sizeof got);
                assert_int_equal(got, expected);
            }
        }
    }
}

typedef struct matrix {
    float *x;
    sluice__bf16 *half;
    sluice__rounded as;
    int64_t rows, columns, stride;
} matrix;

static matrix make(int64_t rows, int64_t columns, bool half, uint64_t seed) {
    matrix m = {.rows = rows, .columns = columns, .stride = columns + 3};
    size_t count = (size_t)(rows * m.stride) + 1;
    m.x = malloc(count * sizeof *m.x);
    m.half = malloc(count * sizeof *m.half);
    assert_true(m.x && m.half);
    sluice__rng_fill_normal(m.x, (int64_t)count, seed, 1, 0, 0, 1);
    for (size_t i = 0; i < count; i++) m.half[i] = sluice__bf16_round(m.x[i]);
    m.as = half ? sluice__rounded_bf16(m.half, m.stride) : sluice__rounded_f32(m.x, m.stride);
    return m;
}

static void unmake(matrix *m) {
    free(m->x);
    free(m->half);
}

static double at(const matrix *m, bool turned, int64_t i, int64_t j) {
    return sluice__bf16_widen(m->half[turned ? j * m->stride + i : i * m->stride + j]);
}

/* Elements of C at corners, edges and random places. */
static void check_product(int64_t m, int64_t n, int64_t k, int variant, const char *level) {
    bool ta = variant & 1, tb = variant & 2, add = variant & 4;
    matrix a = make(ta ? k : m, ta ? m : k, variant & 8, 1), b = make(tb ? n : k, tb ? k : n, variant & 16, 2),
           c = make(m, n, false, 3), before = make(m, n, false, 3);
    sluice__gemm_bf16(&(sluice__bf16_product){ta, tb, add, m, n, k, a.as, b.as, c.x, c.stride});
    sluice__rng r = {.seed = 9};
    for (int t = 0; t < 400; t++) {
        int64_t i = t < 40 ? m - 1 - t % m : (int64_t)sluice__rng_below(&r, (uint64_t)m),
                j = t % 3 == 0 ? n - 1 - t % n : (int64_t)sluice__rng_below(&r, (uint64_t)n);
        double want = add ? (double)before.x[i * c.stride + j] : 0, size = fabs(want);
        for (int64_t p = 0; p < k; p++) {
            double term = at(&a, ta, i, p) * at(&b, tb, p, j);
            want += term;
            size += fabs(term);
        }
        if (!(fabs((double)c.x[i * c.stride + j] - want) <= 1e-6 * size + 1e-30))
            fail_msg("%s: %lld x %lld x %lld variant %d: C[%lld,%lld] = %g, expected %g", level, (long long)m, (long long)n,
                     (long long)k, variant, (long long)i, (long long)j, (double)c.x[i * c.stride + j], want);
    }
    for (int64_t i = 0; i + 1 < m; i++) /* between the rows */
        assert_memory_equal(c.x + i * c.stride + n, before.x + i * c.stride + n, 3 * sizeof(float));
    unmake(&a), unmake(&b), unmake(&c), unmake(&before);
}

static void products_on_every_path(void **state) {
    (void)state;
    static const int64_t shapes[][3] = {{1, 1, 1},   {1, 33, 2},     {14, 32, 31},    {15, 33, 32},  {29, 65, 33},
                                        {13, 47, 5}, {100, 70, 513}, {1030, 40, 100}, {40, 550, 70}, {1100, 530, 65}};
    static const char *const levels[] = {NULL, "avx2"};
    for (size_t l = 0; l < 2; l++) {
        if (sluice_cpu_select(levels[l], NULL) != SLUICE_OK) continue;
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (int v = 0; v < 32; v++)
                if (s < 7 || v % 5 == 0)
                    check_product(shapes[s][0], shapes[s][1], shapes[s][2], v, levels[l] ? levels[l] : "best");
    }
    assert_ok(sluice_cpu_select(NULL, NULL));
}

static void nothing_to_sum(void **state) {
    (void)state;
    float c[2] = {3, 4}, x = 1;
    sluice__bf16_product p = {.m = 1, .n = 2, .a = {&x, 1, false}, .b = {&x, 1, false}, .c = c, .ldc = 2};
    p.accumulate = true;
    sluice__gemm_bf16(&p);
    assert_true(c[0] == 3 && c[1] == 4);
    p.accumulate = false;
    sluice__gemm_bf16(&p);
    assert_true(c[0] == 0 && c[1] == 0);
}

static void nan_and_infinity_pass(void **state) {
    (void)state;
    static const char *const levels[] = {NULL, "avx2"};
    for (size_t l = 0; l < 2; l++) {
        if (sluice_cpu_select(levels[l], NULL) != SLUICE_OK) continue;
        float a[4] = {1, NAN, INFINITY, 1}, b[4] = {1, 2, 3, 4}, c[4] = {0};
        sluice__gemm_bf16(&(sluice__bf16_product){.m = 2, .n = 2, .k = 2, .a = sluice__rounded_f32(a, 2),
                                                  .b = sluice__rounded_f32(b, 2), .c = c, .ldc = 2});
        assert_true(isnan(c[0]) && isnan(c[1]) && isinf(c[2]) && isinf(c[3]));
    }
    assert_ok(sluice_cpu_select(NULL, NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounding_by_hand),       cmocka_unit_test(rounding_is_the_same_everywhere),
        cmocka_unit_test(products_on_every_path), cmocka_unit_test(nothing_to_sum),
        cmocka_unit_test(nan_and_infinity_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
