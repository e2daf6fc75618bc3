/* SPDX-License-Identifier: Apache-2.0 */
/* cli: options out of range, and options that another one leaves without effect, are refused before anything is read, in the
 * name of the command; help fits on a terminal. */
#include "support/test_support.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void refused(const char *arguments, const char *words) {
    char command[600], *output;
    snprintf(command, sizeof command, "cd %s && %s %s", test_temp_dir(), SLUICE_PROGRAM, arguments);
    int code = test_run(command, &output);
    if (code != 2 && code != 1) fail_msg("%s: exit code %d", arguments, code);
    if (!strstr(output, words)) fail_msg("%s: \"%s\" lacks \"%s\"", arguments, output, words);
    free(output);
}

static void ranges_are_kept(void **state) {
    (void)state;
    refused("generate x --threads -1", "sluice generate: --threads: found -1");
    refused("chat x --cpu z80", "sluice chat: --cpu:");
    refused("train --text x --output-dir y --threads 5000", "sluice train: --threads: found 5000");
    refused("tokenize encode --tokenizer x --threads -3", "sluice tokenize encode: --threads: found -3");
    refused("generate x --json --logprobs -1", "--logprobs: found -1, expected 0..the size of the vocabulary");
    refused("generate x --context 0", "--context: found 0");
    refused("chat x -c -5", "--context: found -5");
    refused("generate x --max-new-tokens 0", "--max-new-tokens: found 0");
    refused("generate x --top-k -1", "--top-k: found -1");
    refused("generate x --num-return-sequences 0", "--num-return-sequences: found 0");
    refused("info --context 0", "--context: found 0, expected 1..");
    refused("info --context -1", "--context: found -1");
    refused("study --max-steps 0", "--max-steps: found 0");
    refused("inspect x --prompt a --windows 0", "--windows: found 0");
    refused("inspect x --prompt a --seq-len -1", "--seq-len: found -1");
    refused("bench train --steps 0", "steps");
    refused("bench infer x --repeat 0", "--repeat: found 0");
    refused("bench kernels --seconds 0", "--seconds: found 0");
    refused("tokenize train --output y --vocab-size 0 x", "vocab_size: found 0");
    refused("tokenize train --output y --min-frequency -1 x", "min_frequency: found -1");
    refused("tokenize pack --tokenizer x --output y --shard-tokens -1 x", "--shard-tokens: found -1");
    refused("convert x y --max-shard-size 0", "--max-shard-size");
}

static void options_without_effect_are_errors(void **state) {
    (void)state;
    refused("generate x --greedy --top-p 0.5", "--top-p has no effect with --greedy");
    refused("generate x --temperature 0 --top-k 5", "--top-k has no effect with --temperature 0");
    refused("chat x --load a --system b", "--system has no effect with --load");
    refused("bench kernels --shape 124M:4x64", "--shape has no effect on bench kernels");
    refused("bench train --prefill 5", "--prefill has no effect on bench train");
    refused("bench train --parallel 2", "--parallel has no effect on bench train");
    refused("bench kernels --parallel 2", "--parallel has no effect on bench kernels");
    refused("bench tokenize a b --parallel 2", "--parallel has no effect on bench tokenize");
    refused("train --text x --output-dir y --optim lion --adam-beta1 0.8", "adam_beta1: found 0.8, which has no effect with optim lion");
    refused("train --text x --output-dir y --muon-ns-steps 3", "muon_ns_steps: found 3, which has no effect with optim adamw");
    refused("train --text x --output-dir y --lr-scheduler-type constant --min-lr 1e-5",
            "min_lr: found 1e-05, which has no effect with lr_scheduler_type constant");
    refused("train --text x --output-dir y --num-decay-steps 3", "no effect with lr_scheduler_type cosine");
    refused("train --text x --output-dir y --gate-start open", "no effect with model_name_or_path not given");
    refused("train --text x --output-dir y --max-steps 5 --num-train-epochs 2", "no effect with max_steps 5");
}

/* Lines of help but usage and examples, which are to be copied. */
static void help_fits_80_columns(void **state) {
    static const char *const commands[] = {"", "study", "train", "generate", "chat", "inspect", "convert", "verify", "info",
                                           "bench", "tokenize", "tokenize train", "tokenize pack", "tokenize encode"};
    (void)state;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        char command[600], *output, *rest;
        snprintf(command, sizeof command, "%s %s --help", SLUICE_PROGRAM, commands[i]);
        assert_int_equal(test_run(command, &output), 0);
        rest = strstr(output, "\nExample:");
        if (rest) *rest = '\0';
        for (char *line = strtok(output, "\n"); line; line = strtok(NULL, "\n")) {
            int columns = 0;
            for (const char *c = line; *c; c++) columns += (*c & 0xc0) != 0x80;
            if (columns > 80 && strncmp(line, "Usage:", 6)) fail_msg("%s: %d columns: %s", commands[i], columns, line);
        }
        free(output);
    }
}

/* What is no model says what it is, or what is expected. */
static void other_files_get_a_hint(void **state) {
    (void)state;
    refused("info . && true; echo '{\"format\": \"sluice-run-1\"}' > config.json; " SLUICE_PROGRAM " info .", "belongs to a run");
    refused("info . && true; echo '{\"added_tokens\": []}' > t.json; " SLUICE_PROGRAM " info t.json", "`sluice tokenize info`");
    refused("info . && true; echo words > t.txt; " SLUICE_PROGRAM " info t.txt", "expected a model directory");
    refused("verify /dev/null", "neither a directory nor a GGUF file");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranges_are_kept), cmocka_unit_test(options_without_effect_are_errors),
                                       cmocka_unit_test(help_fits_80_columns), cmocka_unit_test(other_files_get_a_hint)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
