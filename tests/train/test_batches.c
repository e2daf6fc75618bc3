/* SPDX-License-Identifier: Apache-2.0 */
/* The batch-size warm-up: which windows every update sees, how many updates an epoch takes, what is refused. */
#include "support/test_support.h"
#include "train/batches.h"
#include "train/options.h"
#include <stdio.h>
#include <string.h>

static sluice_train_params params(const char *warmup) {
    sluice_train_params p = sluice_train_params_default();
    p.per_device_train_batch_size = 3;
    p.gradient_accumulation_steps = 4;
    assert_ok(sluice_train_params_set(&p, "batch_size_warmup", warmup, NULL));
    return p;
}

/* Batches follow each other without gap or overlap. */
static void windows_are_exact(void **state) {
    (void)state;
    sluice_train_params p = params("1:5,2:3,3:1");
    sluice__batches b;
    assert_ok(sluice__batches_of(&b, &p, NULL));
    static const int passes[] = {1, 1, 1, 1, 1, 2, 2, 2, 3, 4, 4, 4};
    int64_t windows = 0;
    for (int i = 0; i < 12; i++) {
        assert_int_equal(sluice__batches_passes(&b, i), passes[i]);
        assert_int_equal(sluice__batches_before(&b, i), windows);
        windows += 3 * passes[i];
        assert_int_equal(sluice__batches_covering(&b, (double)windows), i + 1);
        assert_int_equal(sluice__batches_covering(&b, (double)windows - 2.5), i + 1);
    }
    assert_int_equal(sluice__batches_covering(&b, 1e30), -1);
    assert_int_equal(sluice__batches_covering(&b, 0), 0);
}

static void without_warmup_all_are_alike(void **state) {
    (void)state;
    sluice_train_params p = params("");
    sluice__batches b;
    assert_ok(sluice__batches_of(&b, &p, NULL));
    assert_int_equal(sluice__batches_passes(&b, 0), 4);
    assert_int_equal(sluice__batches_before(&b, 7), 84);
    p.max_steps = -1;
    p.num_train_epochs = 2;
    sluice__schedule s;
    assert_ok(sluice__train_schedule(&s, &p, 100, NULL)); /* 200 windows, 12 an update */
    assert_int_equal(s.total, 17);
    assert_ok(sluice_train_params_set(&p, "batch_size_warmup", "1:10", NULL));
    assert_ok(sluice__train_schedule(&s, &p, 100, NULL)); /* 30 windows in 10 updates, then 170 */
    assert_int_equal(s.total, 25);
}

static void nonsense_is_refused(void **state) {
    (void)state;
    static const char *const bad[] = {"1",     "1:",   ":3",      "1:0",  "0:1", "1:2,",  "1:2,3", "5:1", "1:2;3:4",
                                      "-1:3",  "1:-3", "x:y",     "1 :2", "1:2x", "99999999999999999999:1",
                                      "1:1,1:1,1:1,1:1,1:1,1:1,1:1,1:1,1:1,1:1,1:1,1:1,1:1,1:1,1:1,1:1,1:1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        sluice_train_params p = params(bad[i]);
        sluice_error err = {0};
        if (sluice_train_params_check(&p, &err) == SLUICE_OK) fail_msg("%s was accepted", bad[i]);
        assert_non_null(strstr(err.message, "batch_size_warmup"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(windows_are_exact),
                                       cmocka_unit_test(without_warmup_all_are_alike),
                                       cmocka_unit_test(nonsense_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
