/* SPDX-License-Identifier: Apache-2.0 */
/* sluice convert: overrides, and what it does with a target that exists already. */
#include "support/test_support.h"
#include "base/file.h"
#include "base/memory.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[128];

static void expect(int status, const char *text, const char *arguments) {
    char command[1024], *output;
    snprintf(command, sizeof command, "cd %s && %s convert --threads 1 %s", dir, SLUICE_PROGRAM, arguments);
    int found = test_run(command, &output);
    if (found != status || !strstr(output, text)) fail_msg("%s: status %d\n%s", arguments, found, output);
    free(output);
}

static const char *in_dir(const char *name) {
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void overrides_by_name(void **state) {
    (void)state;
    expect(0, "written", "model a.gguf --dtype Q8_0 --override attn_v=F16 --override 'ffn_.*=F32'");
    expect(2, "REGEX=TYPE", "model b.gguf --override nothing");
    expect(2, "Q9_9", "model b.gguf --override attn_v=Q9_9");
    assert_false(sluice__is_file(in_dir("b.gguf")));
}

static void directories_with_content_stay(void **state) {
    (void)state;
    assert_int_equal(mkdir(in_dir("notes"), 0777), 0);
    assert_ok(sluice__write_file(in_dir("notes/mine.txt"), "hi", 2, NULL));
    expect(1, "not empty", "model notes");
    expect(1, "not empty", "model notes/");
    expect(1, "not empty", "model .");
    expect(1, "not empty", "model model");
    assert_true(sluice__is_file(in_dir("notes/mine.txt")));
    assert_true(sluice__is_file(in_dir("model/config.json")));
    assert_int_equal(mkdir(in_dir("empty"), 0777), 0);
    expect(0, "written", "model empty/");
    assert_true(sluice__is_file(in_dir("empty/model.safetensors")));
    expect(1, "is a file", "model a.gguf/config");
}

static void other_targets(void **state) {
    (void)state;
    assert_int_equal(mkdir(in_dir("d.gguf"), 0777), 0);
    expect(1, "is a directory", "model d.gguf");
    expect(2, "no name", "model ''");
    assert_int_equal(mkfifo(in_dir("pipe.gguf"), 0666), 0);
    expect(1, "not a regular file", "model pipe.gguf");
    struct stat st;
    assert_true(stat(in_dir("pipe.gguf"), &st) == 0 && S_ISFIFO(st.st_mode));
    expect(2, "is the source itself", "a.gguf a.gguf --dtype Q8_0");
    /* what a link points at is replaced, the link stays */
    assert_int_equal(symlink("a.gguf", in_dir("link.gguf")), 0);
    expect(0, "written", "model link.gguf --dtype F32");
    assert_true(lstat(in_dir("link.gguf"), &st) == 0 && S_ISLNK(st.st_mode));
}

static int copy_model(void **state) {
    (void)state;
    char command[512], *output;
    snprintf(dir, sizeof dir, "%s", test_temp_dir());
    snprintf(command, sizeof command, "cp -r %s/models/llama %s/model && chmod -R u+w %s/model", SLUICE_TEST_DATA, dir, dir);
    int failed = test_run(command, &output);
    free(output);
    return failed;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(overrides_by_name),
        cmocka_unit_test(directories_with_content_stay),
        cmocka_unit_test(other_targets),
    };
    return cmocka_run_group_tests(tests, copy_model, NULL);
}
