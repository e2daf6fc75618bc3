/* SPDX-License-Identifier: Apache-2.0 */
/* train: what happens to a run directory when a command is given again, or wrongly: a finished run stays as it is, a
 * directory without a run and a damaged checkpoint are refused with the way out, nothing of somebody else is removed. */
#include "support/test_support.h"
#include "base/file.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char dir[128];

/* Runs a shell command in which D stands for the test's directory and T for the program's `train`. */
static char *shell(const char *script, int code) {
    char command[4096], *output;
    int n = 0;
    for (const char *c = script; *c; c++) {
        bool alone = (c == script || !strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", c[-1])) &&
                     (c[1] == '/' || c[1] == ' ' || !c[1]);
        const char *text = alone && *c == 'D' ? dir : alone && *c == 'T' ? SLUICE_PROGRAM " train --threads 1" : NULL;
        n += text ? snprintf(command + n, sizeof command - (size_t)n, "%s", text)
                  : snprintf(command + n, sizeof command - (size_t)n, "%c", *c);
        assert_true(n < (int)sizeof command - 200);
    }
    int found = test_run(command, &output);
    if (found != code) fail_msg("%s\nexit code %d, expected %d: %s", command, found, code, output);
    return output;
}

static void says(const char *script, int code, const char *word) {
    char *output = shell(script, code);
    if (!strstr(output, word)) fail_msg("%s\n\"%s\" is not in: %s", script, word, output);
    free(output);
}

static void same(const char *script, const char *expected) {
    char *output = shell(script, 0);
    assert_string_equal(output, expected);
    free(output);
}

#define BASE                                                                                                          \
    "T --quiet --text D/book.txt --vocab-size 280 --hidden-size 16 --num-hidden-layers 1 --num-attention-heads 2 "     \
    "--seq-len 16 --per-device-train-batch-size 2 --max-steps 6 --eval-steps 0 --max-eval-samples 4 --probe-steps 0 "

static void a_finished_run_is_left_alone(void **state) {
    (void)state;
    free(shell(BASE "--output-dir D/done --save-steps 3", 0));
    char *before = shell("cd D/done && find . -type f | sort | xargs md5sum", 0);
    says("T --output-dir D/done --resume", 0, "all 6 updates of the run are done already");
    says("T --output-dir D/done --resume", 0, "held-out loss"); /* of the run, worked out again */
    same("cd D/done && find . -type f | sort | xargs md5sum", before);
    free(before);
    same("grep -c eval D/done/metrics.jsonl", "1\n");
    /* A model that a kill kept from being written is written now. */
    free(shell("rm -r D/done/model && T --quiet --output-dir D/done --resume && test -f D/done/model/config.json", 0));
}

static void no_run_to_resume(void **state) {
    (void)state;
    free(shell("mkdir -p D/empty", 0));
    says("T --output-dir D/empty --resume", 1, "holds no checkpoint to continue from");
    says("T --output-dir D/absent --resume", 1, "holds no checkpoint to continue from");
    same("ls -A D/empty", "");
    free(shell(BASE "--output-dir D/fresh --resume", 0)); /* with a text the same command line begins */
}

static void a_damaged_checkpoint_names_the_older_one(void **state) {
    (void)state;
    free(shell(BASE "--output-dir D/hurt --save-steps 2", 0));
    free(shell("printf junk > D/hurt/checkpoints/step-6/optimizer.safetensors", 0));
    says("T --quiet --output-dir D/hurt --resume --max-steps 6", 1, "step-4 is the newest one that is whole: remove ");
    free(shell("rm D/hurt/checkpoints/step-4/trainer_state.json", 0));
    says("T --quiet --output-dir D/hurt --resume", 1, "step-2 is the newest one that is whole");
    free(shell("rm D/hurt/checkpoints/step-2/model.safetensors", 0));
    says("T --quiet --output-dir D/hurt --resume", 1, "holds no older one that is whole");
    free(shell("cd D/hurt/checkpoints && rm -r step-*", 0));
    free(shell(BASE "--output-dir D/hurt --overwrite-output-dir --save-steps 2", 0));
    free(shell("printf junk > D/hurt/checkpoints/step-6/optimizer.safetensors && rm -r D/hurt/checkpoints/step-6", 0));
    free(shell("T --quiet --output-dir D/hurt --resume", 0)); /* the way out that was named */
}

static void nothing_of_somebody_else_is_removed(void **state) {
    (void)state;
    free(shell("mkdir -p D/mine/model && echo precious > D/mine/model/weights", 0));
    says(BASE "--output-dir D/mine --overwrite-output-dir", 1, "model does not belong to a run");
    same("cat D/mine/model/weights", "precious\n");
    free(shell("mkdir -p D/hf && echo '{\"model_type\": \"llama\"}' > D/hf/config.json", 0));
    says(BASE "--output-dir D/hf --overwrite-output-dir", 1, "config.json does not belong to a run");
    same("ls D/hf", "config.json\n");
    free(shell("mkdir -p D/logs && echo '{}' > D/logs/metrics.jsonl", 0)); /* a run killed as it began */
    free(shell(BASE "--output-dir D/logs --overwrite-output-dir", 0));
    free(shell(BASE "--output-dir D/logs --overwrite-output-dir", 0)); /* and a run of ours */
}

static int set_up(void **state) {
    (void)state;
    char path[160];
    snprintf(dir, sizeof dir, "%s", test_temp_dir());
    snprintf(path, sizeof path, "%s/book.txt", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (unsigned i = 0, r = 1; i < 9000; i++) fprintf(f, "word%u ", (r = r * 1103515245u + 12345u) >> 16 & 31);
    fclose(f);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_finished_run_is_left_alone),
                                       cmocka_unit_test(no_run_to_resume),
                                       cmocka_unit_test(a_damaged_checkpoint_names_the_older_one),
                                       cmocka_unit_test(nothing_of_somebody_else_is_removed)};
    return cmocka_run_group_tests(tests, set_up, NULL);
}
