/* SPDX-License-Identifier: Apache-2.0 */
/* What `sluice study` does to a directory that already holds something. */
#include "support/test_support.h"
#include "base/file.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char dir[256], book[300];

static void put(const char *name, const char *text) {
    char path[600];
    sluice_error err = {0};
    snprintf(path, sizeof path, "%s/out/%s", dir, name);
    assert_ok_err(sluice__write_file(path, text, strlen(text), &err), &err);
}

static bool there(const char *name) {
    char path[600];
    snprintf(path, sizeof path, "%s/out/%s", dir, name);
    return sluice__is_file(path);
}

static int set_up(void **state) {
    (void)state;
    sluice_error err = {0};
    char path[600];
    snprintf(dir, sizeof dir, "%s", test_temp_dir());
    snprintf(path, sizeof path, "%s/out/arms/baseline", dir);
    assert_ok_err(sluice__make_dirs(path, &err), &err);
    snprintf(book, sizeof book, "%s/book.txt", dir);
    FILE *f = fopen(book, "w");
    assert_non_null(f);
    for (int i = 0; i < 6000; i++) fprintf(f, "word%d and %d more, ", i * 7919 % 997, i % 31);
    fclose(f);
    return 0;
}

static void run(const char *options, int code, const char *mention) {
    char command[1200], *output;
    snprintf(command, sizeof command, "%s study -q --text %s --output %s/out --seeds 1 %s;", SLUICE_PROGRAM, book, dir, options);
    int found = test_run(command, &output);
    if (found != code || !strstr(output, mention))
        fail_msg("%s\nexit code %d, expected %d, and \"%s\" in: %s", command, found, code, mention, output);
    free(output);
}

static void files_of_somebody_else_are_not_replaced(void **state) {
    (void)state;
    put("results.json", "{\"mine\": 1}");
    run("--max-steps 60", 1, "was not written by a study");
    run("--max-steps 60 --overwrite", 1, "arms/baseline: was not written by a study");
    assert_true(there("results.json"));
}

static void a_refused_study_leaves_the_old_one(void **state) {
    (void)state;
    put("results.json", "{\"format\": \"sluice-study-1\"}");
    put("arms/baseline/plan.json", "{}");
    run("--max-steps 5 --overwrite", 1, "warmup_steps");
    assert_true(there("results.json") && there("arms/baseline/plan.json"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_of_somebody_else_are_not_replaced),
        cmocka_unit_test(a_refused_study_leaves_the_old_one),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
