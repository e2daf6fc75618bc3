/* SPDX-License-Identifier: Apache-2.0 */
/* Profiles: the outermost span counts, of the thread that started the profile alone, and nothing without a profile. */
#include "support/test_support.h"
#include "kernels/ops.h"
#include "kernels/profile.h"
#include <omp.h>
#include <stdio.h>
#include <string.h>

static const sluice_bench_operator *find(const sluice_bench_profile *p, const char *name, int64_t m) {
    for (int i = 0; i < p->count; i++)
        if (!strcmp(p->operators[i].name, name) && p->operators[i].m == m) return &p->operators[i];
    return NULL;
}

static void inner(void) { SLUICE__SPAN(.name = "inner", .bytes = 1); }

static void outer(void) {
    SLUICE__SPAN(.name = "outer", .flops = 10, .bytes = 2);
    inner();
    inner();
}

static void open_through(void) {
    SLUICE__SPAN(.name = NULL);
    inner();
}

static void outermost_counts(void **state) {
    (void)state;
    sluice_bench_profile p = {0};
    outer(); /* no profile */
    sluice__profile_start(&p);
    outer();
    outer();
    inner();
    open_through();
    sluice__profile_stop();
    outer();
    assert_int_equal(p.count, 2);
    const sluice_bench_operator *o = find(&p, "outer", 0), *i = find(&p, "inner", 0);
    assert_true(o->calls == 2 && o->flops == 20 && o->bytes == 4 && o->seconds > 0);
    assert_true(i->calls == 2 && i->bytes == 2);
    sluice_bench_profile best = {0}, slower = {0};
    sluice__profile_best(&best, &p, 2, 4.0);
    sluice__profile_best(&best, &slower, 1, 2.5);
    o = find(&best, "outer", 0);
    assert_true(best.count == 2 && o->calls == 1 && o->flops == 10 && o->bytes == 2 && best.seconds == 2);
    sluice__profile_best(&best, &slower, 1, 1.5);
    assert_true(best.count == 0 && best.seconds == 1.5);
}

static void teams_count_once(void **state) {
    (void)state;
    sluice_bench_profile p = {0};
    sluice__profile_start(&p);
#pragma omp parallel num_threads(2)
    outer();
    sluice__profile_stop();
    assert_int_equal(p.count, 0);
}

/* Products by shape; those of operators by what the arguments say. */
static void products_of_operators(void **state) {
    (void)state;
    float a[6] = {1, 2, 3, 4, 5, 6}, w[12] = {0}, y[8], norm[6], weight[3] = {1, 1, 1}, rstd[2];
    sluice_bench_profile p = {0};
    sluice__profile_start(&p);
    sluice__linear_forward(y, 4, a, 3, w, NULL, 2, 4, 3);
    sluice__linear_backward_input(a, 3, y, 4, w, 2, 4, 3, false);
    sluice__linear_backward_weight(w, NULL, y, 4, a, 3, 2, 4, 3);
    sluice__rms_norm_forward(norm, rstd, a, weight, 2, 3, 1e-6f, 0);
    sluice__profile_stop();
    assert_int_equal(p.count, 4);
    const sluice_bench_operator *o = find(&p, "x W^T", 2);
    assert_true(o && o->n == 4 && o->k == 3 && o->flops == 48 && o->bytes == 4 * (6 + 12 + 8));
    o = find(&p, "dy W", 2);
    assert_true(o && o->n == 3 && o->k == 4);
    o = find(&p, "dy^T x", 4);
    assert_true(o && o->n == 3 && o->k == 2 && o->bytes == 4 * (8 + 6 + 2 * 12)); /* added to */
    o = find(&p, "norm forward", 0);
    assert_true(o && o->bytes == 4 * 12 && o->flops == 0);
}

/* More shapes than places: the rest of a product is one entry, and other operators still find a place. */
static void many_shapes(void **state) {
    (void)state;
    sluice_bench_profile p = {0};
    sluice__profile_start(&p);
    for (int i = 1; i <= 4 * SLUICE_BENCH_OPERATORS; i++) {
        SLUICE__SPAN(.name = "product", .flops = 1, .m = i, .n = 1, .k = 1);
    }
    outer();
    sluice__profile_stop();
    const sluice_bench_operator *rest = find(&p, "product", 0);
    double sum = 0;
    for (int i = 0; i < p.count; i++) sum += p.operators[i].flops;
    assert_true(p.count < SLUICE_BENCH_OPERATORS && rest && rest->calls > SLUICE_BENCH_OPERATORS);
    assert_true(sum == 4 * SLUICE_BENCH_OPERATORS + 10 && find(&p, "outer", 0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outermost_counts),
        cmocka_unit_test(teams_count_once),
        cmocka_unit_test(products_of_operators),
        cmocka_unit_test(many_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
