/* SPDX-License-Identifier: Apache-2.0 */
/* train: the command: absurd options are refused before anything is written, signals leave a checkpoint, a full
 * disk leaves the last one, and a run continues from its directory alone. */
#include "support/test_support.h"
#include "base/file.h"
#include "base/memory.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[128]; /* of this test program */

static void put(const char *name, const char *text) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_ok(sluice__write_file(path, text, strlen(text), NULL));
}

static void put_book(void) {
    char path[256];
    snprintf(path, sizeof path, "%s/book.txt", dir);
    test_write_book(path);
}

static const char base[] =
    "--quiet --threads 1 --text %D/book.txt --vocab-size 280 --hidden-size 16 --num-hidden-layers 1 "
    "--num-attention-heads 2 --seq-len 16 --per-device-train-batch-size 2 --max-steps 3 --eval-steps 0 "
    "--max-eval-samples 4 --probe-steps 0 --output-dir %D/run";

/* Runs `sluice train` with base options (unless plain) and more; %D is the test's directory. */
static int train(bool plain, const char *more, char **output) {
    char command[4096] = SLUICE_PROGRAM " train ", *at = command + strlen(command);
    const char *parts[] = {plain ? "" : base, " ", more};
    for (int i = 0; i < 3; i++)
        for (const char *c = parts[i]; *c; c++) {
            if (c[0] == '%' && c[1] == 'D') at += sprintf(at, "%s", dir), c++;
            else *at++ = *c;
            assert_true(at < command + sizeof command - 200);
        }
    *at = '\0';
    return test_run(command, output);
}

static void remove_run(void) {
    char path[256];
    snprintf(path, sizeof path, "%s/run", dir);
    assert_ok(sluice__remove_tree(path, NULL));
}

static bool there(const char *name) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return sluice__is_dir(path) || sluice__is_file(path);
}

static void absurd_options_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *options, *word; /* word: in the message */
    } cases[] = {
        {"--learning-rate nan", "--learning-rate"},
        {"--learning-rate=-1", "--learning-rate"},
        {"--learning-rate inf", "--learning-rate"},
        {"--learning-rate ''", "--learning-rate"},
        {"--learning_rate x", "--learning-rate"},
        {"--min-lr 1", "min_lr"},
        {"--warmup-steps 10", "warmup_steps"},
        {"--lr-scheduler-type polynomial", "--lr-scheduler-type"},
        {"--lr-scheduler-type wsd --num-decay-steps 5", "num_decay_steps"},
        {"--adam-beta1 1.0", "--adam-beta1"},
        {"--max-steps 0", "max_steps"},
        {"--max-steps 99999999999999999999", "--max-steps"},
        {"--per-device-train-batch-size 0", "--per-device-train-batch-size"},
        {"--per-device-train-batch-size 1000000", "per_device_train_batch_size"},
        {"--gradient-accumulation-steps 1048576 --per-device-train-batch-size 1048576",
         "per_device_train_batch_size"},
        {"--seq-len 0", "--seq-len"},
        {"--seq-len 16777216", "seq_len"},
        {"--dtype float16", "--dtype"},
        {"--num-attention-heads 0", "num_attention_heads"},
        {"--num-attention-heads=-3", "num_attention_heads"},
        {"--num-attention-heads 3 --num-key-value-heads 2", "num_key_value_heads"},
        {"--head-dim 7", "head_dim"},
        {"--hidden-size 0", "hidden_size"},
        {"--hidden-size 65536 --num-attention-heads 64 --num-hidden-layers 1000", "training needs"},
        {"--num-hidden-layers 0", "num_hidden_layers"},
        {"--vocab-size 3", "vocab"},
        {"--train-tokenizer-vocab-size 300", "vocab_size"},
        {"--rope-theta nan", "--rope-theta"},
        {"--partial-rotary-factor 7", "partial_rotary_factor"},
        {"--gate-position G1", "--gate-position"},
        {"--gate-granularity headwise", "gate_granularity"},
        {"--gate-position output --gate-granularity headwise", "gate_granularity"},
        {"--bos-token '<none>' --bos window --tokenizer %D/no-bos.json", "bos_token"},
        {"--split parts --validation-split-percentage 99", "--validation-split-percentage"},
        {"--text %D/empty.txt", "no text"},
        {"--text %D/empty-dir", "empty-dir"},
        {"--text %D/absent.txt", "absent.txt"},
        {"--text %D/bad.jsonl", "bad.jsonl"},
        {"--text %D/short.txt", "seq_len"},
        {"--shards %D/absent", "absent"},
        {"--model %D/absent", "tokenizer"},
        {"--model %D/absent --tokenizer %D/bad.jsonl", "bad.jsonl"},
        {"--tokenizer %D/absent", "absent"},
        {"--tokenizer %D/bad.jsonl", "bad.jsonl"},
        {"--config-file %D/absent.json", "absent.json"},
        {"%D/unknown.json", "learning_speed"},
        {"%D/a.json %D/b.json", "b.json"},
        {"--no-such-option", "no-such-option"},
        {"--append-eos=maybe", "--append-eos"},
        {"--threads=-1", "threads"},
        {"--cpu z80", "cpu"},
        {"--output-dir %D/book.txt", "output_dir"},
        {"--output-dir %D/book.txt/run", "output_dir"},
        {"--output-dir /proc/nowhere/run", "/proc"},
        {"--resume-from-checkpoint %D/absent", "absent"},
    };
    put("empty.txt", "");
    put("short.txt", "the end");
    put("bad.jsonl", "{\"text\": \"fine\"}\n{\"text\": \n");
    put("unknown.json", "{\"learning_speed\": 1}");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *output;
        bool own_text = strstr(cases[i].options, "--text") != NULL;
        if (strstr(cases[i].options, "no-bos.json")) {
            assert_int_equal(train(false, "", NULL), 0); /* a tokenizer to take */
            char from[256], to[256], *json;
            size_t size;
            snprintf(from, sizeof from, "%s/run/model/tokenizer.json", dir);
            snprintf(to, sizeof to, "%s/no-bos.json", dir);
            assert_ok(sluice__read_file(&json, &size, from, 1 << 24, NULL));
            assert_ok(sluice__write_file(to, json, size, NULL));
            sluice__free(json);
            remove_run();
        }
        char options[1024];
        snprintf(options, sizeof options, "%s", cases[i].options);
        int code;
        if (own_text) { /* instead of the book */
            char all[2048];
            snprintf(all, sizeof all,
                     "--quiet --vocab-size 280 --hidden-size 16 --seq-len 16 --max-steps 3 --output-dir %%D/run %s",
                     options);
            code = train(true, all, &output);
        } else {
            code = train(false, options, &output);
        }
        if (code != 1 && code != 2) fail_msg("%s: exit code %d: %s", options, code, output);
        if (!strstr(output, cases[i].word)) fail_msg("%s: \"%s\" is not in: %s", options, cases[i].word, output);
        if (there("run")) fail_msg("%s: something was written", options);
        free(output);
    }
}

static void it_works_and_continues_from_its_directory(void **state) {
    (void)state;
    char *output;
    assert_int_equal(train(false, "--dry-run", NULL), 0);
    assert_false(there("run"));
    put("options.json",
        "{\"max_steps\": 6, \"lr_scheduler_type\": \"constant\", \"gate_position\": \"sdpa\", \"save_steps\": 2}");
    assert_int_equal(train(false, "--json --warmup-ratio 0 --bos document --no-tensorboard %D/options.json", &output),
                     0);
    assert_non_null(strstr(output, "\"steps\": 3")); /* the command line wins over the file */
    free(output);
    assert_int_equal(train(false, "", &output), 1);
    assert_non_null(strstr(output, "holds a run already"));
    free(output);
    assert_int_equal(train(true, "--quiet --threads 1 --output-dir %D/run --resume --max-steps 7", &output), 0);
    free(output);
    assert_true(there("run/checkpoints/step-7"));
    assert_true(there("run/checkpoints/step-6"));
    assert_false(there("run/checkpoints/step-2")); /* three are kept: 7, 6, 4 */
    assert_int_equal(train(true, "--quiet --output-dir %D/run --resume --hidden-size 32", &output), 1);
    assert_non_null(strstr(output, "hidden_size"));
    free(output);
    assert_int_equal(train(true, "--quiet --output-dir %D/run --resume --weight-decay 0.5", &output), 1);
    assert_non_null(strstr(output, "weight_decay"));
    free(output);
    assert_int_equal(train(true,
                           "--quiet --threads 1 --model %D/run/model --text %D/book.txt --seq-len 16 --max-steps 2 "
                           "--output-dir %D/more --gate-position sdpa",
                           &output),
                     0);
    free(output);
    assert_int_equal(train(true,
                           "--quiet --threads 1 --model %D/run/model --text %D/book.txt --seq-len 16 --max-steps 2 "
                           "--output-dir %D/other --gate-position value",
                           &output),
                     1);
    assert_non_null(strstr(output, "gate_position"));
    free(output);
    remove_run();
}

/* In bf16: the format is said and recorded, another one is refused on resuming, and the model runs. */
static void bf16_from_the_command_line(void **state) {
    (void)state;
    char command[1024], *output;
    snprintf(command, sizeof command,
             "%s train --text %s/book.txt --vocab-size 280 --hidden-size 16 --num-hidden-layers 2 --num-attention-heads 2 "
             "--seq-len 16 --max-steps 4 --save-steps 2 --dtype bf16 --save-dtype bfloat16 --gate-position sdpa "
             "--output-dir %s/run",
             SLUICE_PROGRAM, dir, dir);
    assert_int_equal(test_run(command, &output), 0);
    assert_non_null(strstr(output, "dtype: bf16"));
    free(output);
    assert_int_equal(train(true, "--quiet --output-dir %D/run --resume --dtype float32", &output), 1);
    assert_non_null(strstr(output, "dtype"));
    free(output);
    snprintf(command, sizeof command, "grep -q '\"dtype\": \"bf16\"' %s/run/config.json", dir);
    assert_int_equal(test_run(command, NULL), 0);
    snprintf(command, sizeof command, "%s generate %s/run/model --prompt the --max-new-tokens 3", SLUICE_PROGRAM, dir);
    assert_int_equal(test_run(command, &output), 0);
    free(output);
    snprintf(command, sizeof command, "%s info %s/run/model", SLUICE_PROGRAM, dir);
    assert_int_equal(test_run(command, &output), 0);
    assert_non_null(strstr(output, "BF16"));
    free(output);
    remove_run();
}

/* Starts an endless training with default signal dispositions, its output in D/log; waits until it trains. */
static pid_t start_endless_training(void) {
    char path[256], metrics[256];
    snprintf(path, sizeof path, "%s/log", dir);
    snprintf(metrics, sizeof metrics, "%s/run/metrics.jsonl", dir);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        if (chdir(dir) != 0 || !freopen("log", "w", stderr)) _exit(99);
        signal(SIGINT, SIG_DFL);
        signal(SIGTERM, SIG_DFL);
        signal(SIGHUP, SIG_DFL);
        execl(SLUICE_PROGRAM, "sluice", "train", "--quiet", "--threads=1", "--text=book.txt", "--vocab-size=280",
              "--hidden-size=16", "--num-hidden-layers=1", "--num-attention-heads=2", "--seq-len=16",
              "--max-steps=100000000", "--eval-steps=0", "--save-steps=0", "--lr-scheduler-type=constant",
              "--warmup-ratio=0", "--output-dir=run", (char *)NULL);
        _exit(99);
    }
    struct stat st;
    while (stat(metrics, &st) != 0 || st.st_size == 0) {
        assert_int_equal(waitpid(child, NULL, WNOHANG), 0);
        usleep(20000);
    }
    return child;
}

static int exit_code_of(pid_t child) {
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void a_signal_leaves_a_checkpoint(void **state) {
    (void)state;
    char path[256], command[512], *text, *output;
    for (int i = 0; i < 6; i++) {
        pid_t child = start_endless_training();
        static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};
        int number = numbers[i % 3];
        kill(child, number);
        assert_int_equal(exit_code_of(child), 128 + number);
        snprintf(path, sizeof path, "%s/log", dir);
        assert_ok(sluice__read_file(&text, NULL, path, 1 << 20, NULL));
        assert_non_null(strstr(text, "continues here"));
        sluice__free(text);
        snprintf(command, sizeof command, "ls %s/run/checkpoints | grep -c '^step-[0-9]*$'", dir);
        assert_int_equal(test_run(command, &output), 0);
        assert_string_equal(output, "1\n");
        free(output);
        remove_run();
    }
    pid_t child = start_endless_training(); /* twice: no time for a checkpoint is promised, only the end */
    kill(child, SIGTERM);
    kill(child, SIGTERM);
    assert_int_equal(exit_code_of(child), 143);
    remove_run();
}

/* RLIMIT_FSIZE stands for a full disk: a write fails in the middle of a file. */
static void a_full_disk_leaves_the_last_checkpoint(void **state) {
    (void)state;
    char command[1024], *output;
    assert_int_equal(train(false, "--lr-scheduler-type constant --warmup-ratio 0 --no-tensorboard", NULL), 0);
    snprintf(command, sizeof command,
             "ulimit -f 20; %s train --quiet --threads 1 --output-dir %s/run --resume --max-steps 5", SLUICE_PROGRAM,
             dir);
    assert_int_equal(test_run(command, &output), 1);
    assert_non_null(strstr(output, "cannot write"));
    free(output);
    assert_false(there("run/checkpoints/step-5"));
    snprintf(command, sizeof command, "ls %s/run/checkpoints", dir);
    assert_int_equal(test_run(command, &output), 0);
    assert_string_equal(output, "step-3\n"); /* and no half of another */
    free(output);
    assert_int_equal(train(true, "--quiet --threads 1 --output-dir %D/run --resume --max-steps 5", NULL), 0);
    assert_true(there("run/checkpoints/step-5"));
    remove_run();
}

static void help_names_every_option(void **state) {
    (void)state;
    char *output;
    assert_int_equal(train(true, "--help", &output), 0);
    static const char *const words[] = {
        "--learning-rate", "--num-hidden-layers", "--gate-position", "--resume", "0.95", "sluice train --text",
        "[tokens]"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strstr(output, words[i])) fail_msg("%s is not in the help", words[i]);
    free(output);
}

static int set_up(void **state) {
    (void)state;
    char path[256];
    snprintf(dir, sizeof dir, "%s", test_temp_dir());
    put_book();
    snprintf(path, sizeof path, "%s/empty-dir", dir);
    assert_ok(sluice__make_dirs(path, NULL));
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(absurd_options_are_refused),   cmocka_unit_test(it_works_and_continues_from_its_directory),
        cmocka_unit_test(a_signal_leaves_a_checkpoint), cmocka_unit_test(a_full_disk_leaves_the_last_checkpoint),
        cmocka_unit_test(bf16_from_the_command_line),   cmocka_unit_test(help_names_every_option),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
