/* SPDX-License-Identifier: Apache-2.0 */
/* Replays the corpus of the fuzzers, tests/data/fuzz/<target>/: seeds, what fuzzing found interesting, and every input that
 * once broke something. Under ASan and UBSan this is where a regression shows.
 *
 *   test_fuzz_replay TARGET FILE...     runs single files */
#include "support/test_support.h"
#include "fuzz/targets.h"
#include "base/file.h"
#include "base/memory.h"
#include <dirent.h>
#include <stdio.h>
#include <string.h>

static void run_file(const fuzz_target *t, const char *path) {
    char *data;
    size_t size;
    assert_ok(sluice__read_file(&data, &size, path, 64 << 20, NULL));
    t->run((const uint8_t *)data, size);
    sluice__free(data);
}

static int run_directory(const fuzz_target *t) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", test_data("fuzz"), t->name);
    DIR *dir = opendir(path);
    int count = 0;
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        snprintf(path, sizeof path, "%s/%s/%s", test_data("fuzz"), t->name, e->d_name);
        if (e->d_name[0] != '.') run_file(t, path), count++;
    }
    closedir(dir);
    return count;
}

static void corpus_does_no_harm(void **state) {
    (void)state;
    for (const fuzz_target *t = fuzz_targets; t->name; t++) {
        int count = run_directory(t);
        print_message("%s: %d inputs\n", t->name, count);
        assert_true(count >= 5);
    }
}

int main(int argc, char **argv) {
    for (const fuzz_target *t = fuzz_targets; argc > 2 && t->name; t++)
        for (int i = 2; i < argc && !strcmp(t->name, argv[1]); i++) run_file(t, argv[i]);
    if (argc > 2) return 0;
    const struct CMUnitTest tests[] = {cmocka_unit_test(corpus_does_no_harm)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
