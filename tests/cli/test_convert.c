/* SPDX-License-Identifier: Apache-2.0 */
/* sluice convert: overrides, and what it does with a target that exists already. */
#include "support/test_support.h"
#include "base/file.h"
#include "base/memory.h"
#include "sluice/model.h"
#include <math.h>
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
    expect(2, "\"attn_x=F16\": matches no tensor", "model b.gguf --override attn_v=F16 --override attn_x=F16");
    expect(2, "matches no tensor", "a.gguf b.gguf --override attn_x=F16");
    expect(2, "matches no tensor", "model b --override attn_x=F16");
    expect(2, "matches no tensor", "a.gguf b --override attn_x=F16");
    assert_false(sluice__is_dir(in_dir("b")));
    expect(0, "F16 x6", "a.gguf v.gguf --override 'attn_norm=F16'"); /* 3 of attn_v, 3 vectors, and without --dtype */
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

static void endings_in_capitals(void **state) {
    (void)state;
    expect(0, "written", "model C.GGUF");
    assert_true(sluice__is_file(in_dir("C.GGUF")));
    expect(0, "written", "C.GGUF c2.Gguf --dtype F16");
    expect(2, "--max-shard-size", "model D.GGUF --max-shard-size 1MB");
}

/* Nobody writes to the pipe: no command may wait for it. */
static void pipes_are_refused(void **state) {
    (void)state;
    static const char *const commands[] = {"info", "generate -p a", "verify", "tokenize info", "convert p.gguf"};
    assert_int_equal(mkfifo(in_dir("p.gguf"), 0666), 0);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        char command[1024], *output;
        snprintf(command, sizeof command, "cd %s && timeout 10 %s %s p.gguf < /dev/null", dir, SLUICE_PROGRAM, commands[i]);
        int code = test_run(command, &output);
        if (code != 1 && code != 2) fail_msg("%s: status %d\n%s", commands[i], code, output);
        assert_non_null(strstr(output, "p.gguf"));
        free(output);
    }
}

/* The model with one value replaced. */
static void save_with(const char *to, const char *tensor, float value) {
    sluice_model *m;
    sluice_load_params load = sluice_load_params_default();
    assert_ok(sluice_model_load(&m, in_dir("model"), &load, NULL));
    for (int i = 0; i < sluice_model_num_tensors(m); i++) {
        sluice_tensor_info t = sluice_model_tensor(m, i);
        if (strstr(t.name, tensor)) ((float *)(uintptr_t)t.data)[3] = value;
    }
    assert_int_equal(mkdir(in_dir(to), 0777), 0);
    assert_ok(sluice_model_save(m, in_dir(to), SLUICE_SAVE_AUTO, NULL));
    sluice_model_free(m);
}

/* Each way says which tensors hold no numbers; values as such are kept. */
static void values_that_are_no_numbers_are_named(void **state) {
    (void)state;
    static const char name[] = "layers.1.mlp.up_proj.weight";
    save_with("bad", name, NAN);
    expect(0, "1 tensor has NaN or infinite values: blk.1.ffn_up.weight", "bad bad32.gguf");
    expect(0, "1 tensor has NaN or infinite values: blk.1.ffn_up.weight", "bad32.gguf copy.gguf");
    expect(0, "1 tensor has NaN or infinite values: blk.1.ffn_up.weight", "bad32.gguf bad16.gguf --dtype F16");
    expect(0, name, "bad32.gguf bad32");
    expect(0, name, "bad bad16 --dtype BF16");
    expect(0, name, "bad badcopy");
}

/* A GGUF file replaces a GGUF file and nothing else, through links too; directories above it are made. */
static void targets_of_others_are_kept(void **state) {
    (void)state;
    char command[1024];
    snprintf(command, sizeof command, "cd %s && cp -r model victim && echo diary > diary.gguf && ln -s victim/model.safetensors by-link.gguf", dir);
    assert_int_equal(test_run(command, NULL), 0);
    expect(1, "diary.gguf: exists and is not a GGUF file", "model diary.gguf");
    expect(1, "by-link.gguf: exists and is not a GGUF file", "model by-link.gguf");
    expect(0, "", "victim deep/er/model.gguf");
    expect(0, "", "victim deep/er/model.gguf");
    snprintf(command, sizeof command, "cd %s && cmp model/model.safetensors victim/model.safetensors && grep -q diary diary.gguf", dir);
    assert_int_equal(test_run(command, NULL), 0);
}

/* F16 ends at 65504. */
static void values_too_large_for_the_type_are_named(void **state) {
    (void)state;
    static const char name[] = "layers.1.mlp.up_proj.weight", gguf[] = "1 tensor has NaN or infinite values: blk.1.ffn_up.weight";
    save_with("large", name, 1e5f);
    expect(0, gguf, "large large16.gguf --dtype F16");
    expect(0, "", "large large32.gguf");
    expect(0, gguf, "large32.gguf again16.gguf --dtype F16");
    expect(0, name, "large large16 --dtype F16");
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
        cmocka_unit_test(endings_in_capitals),
        cmocka_unit_test(pipes_are_refused),
        cmocka_unit_test(values_that_are_no_numbers_are_named),
        cmocka_unit_test(values_too_large_for_the_type_are_named),
        cmocka_unit_test(targets_of_others_are_kept),
    };
    return cmocka_run_group_tests(tests, copy_model, NULL);
}
