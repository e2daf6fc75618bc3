/* SPDX-License-Identifier: Apache-2.0 */
/* train: the same command in a loop (--resume in it) goes on with what it asked for at first, and options that a run cannot
 * follow, or that would do nothing, are refused by name. */
#include "support/test_support.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char dir[128]; /* of this test program */

static void put(const char *name, const char *text) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_ok(sluice__write_file(path, text, strlen(text), NULL));
}

static void drop(const char *name) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_ok(sluice__remove_tree(path, NULL));
}

/* Runs `sluice train` on the book with more options, %D in them the test's directory; returns the exit code. */
static int train(const char *base, const char *more, char **output) {
    char command[4096], *at = command + sprintf(command, "%s train --threads 1 ", SLUICE_PROGRAM);
    const char *parts[] = {base, " ", more};
    for (int i = 0; i < 3; i++)
        for (const char *c = parts[i]; *c; c++) {
            assert_true(at < command + sizeof command - 200);
            if (c[0] == '%' && c[1] == 'D') at += sprintf(at, "%s", dir), c++;
            else *at++ = *c;
        }
    *at = '\0';
    return test_run(command, output);
}

#define DATA "--text %D/book.txt --seq-len 16 --per-device-train-batch-size 2 --probe-steps 0 --max-eval-samples 4 "
#define ONE_LAYER DATA "--vocab-size 280 --num-hidden-layers 1 --num-attention-heads 2 "
#define SMALL ONE_LAYER "--hidden-size 16 "

static void expect(const char *base, const char *more, int code, const char *word) {
    char *output;
    int found = train(base, more, &output);
    if (found != code) fail_msg("%s: exit code %d: %s", more, found, output);
    if (word && !strstr(output, word)) fail_msg("%s: \"%s\" is not in: %s", more, word, output);
    free(output);
}

/* An integer of model_config in the config.json of a run. */
static int64_t of_run(const char *run, const char *key) {
    char path[256];
    json_t *root;
    snprintf(path, sizeof path, "%s/%s/config.json", dir, run);
    assert_ok(sluice__json_load(&root, path, NULL));
    int64_t value = json_integer_value(json_object_get(json_object_get(root, "model_config"), key));
    json_decref(root);
    return value;
}

/* The width is given or follows from hidden_size; the last checkpoint is lost, then all are. */
static void matching_goes_on_in_a_loop(void **state) {
    (void)state;
    static const char *const widths[] = {"--intermediate-size 96", ""};
    for (int i = 0; i < 2; i++) {
        char command[512];
        snprintf(command, sizeof command,
                 "--hidden-size 32 %s --gate-position sdpa --match-parameters true --max-steps 4 --save-steps 2 --resume "
                 "--output-dir %%D/loop",
                 widths[i]);
        expect(ONE_LAYER, command, 0, "intermediate_size 96 becomes 88");
        assert_int_equal(of_run("loop", "intermediate_size"), 88);
        drop("loop/checkpoints/step-4");
        expect(ONE_LAYER, command, 0, "step-2, step 2 of 4");
        assert_int_equal(of_run("loop", "intermediate_size"), 88);
        drop("loop/checkpoints");
        expect(ONE_LAYER, command, 0, "4 updates");
        assert_int_equal(of_run("loop", "intermediate_size"), 88);
        expect("", "--resume --output-dir %D/loop", 0, NULL);
        drop("loop");
    }
    expect(ONE_LAYER, "--hidden-size 32 --intermediate-size 96 --gate-position sdpa --max-steps 2 --output-dir %D/loop", 0, NULL);
    expect(ONE_LAYER, "--hidden-size 32 --intermediate-size 64 --match-parameters true --max-steps 4 --resume --output-dir %D/loop", 1,
           "intermediate_size"); /* matched, and another model than the run's */
    drop("loop");
}

/* A gate is taken off whatever its spelling: 16 x 16 parameters elementwise, 2 x 16 headwise. */
static void gated_configurations_are_matched(void **state) {
    (void)state;
    static const struct {
        const char *gate, *said;
    } cases[] = {{"\"gate_position\": \"sdpa\"", "(which has 256)"},
                 {"\"gate_position\": \"sdpa\", \"gate_granularity\": \"headwise\"", "(which has 32)"},
                 {"\"gate_position\": \"value\", \"gate_act\": \"silu\"", "(which has 256)"},
                 {"\"gate_position\": \"query\", \"gate_op\": \"add\"", "(which has 256)"},
                 {"\"gate_position\": \"sdpa\", \"gate_sharing\": \"shared\", \"gate_share_mean\": \"logit\"", "(which has"},
                 {"\"gate_position\": \"sdpa\", \"gate_input\": \"none\"", "(which has 16)"},
                 {"\"attn_output_gate\": true", "(which has 256)"},
                 {"\"headwise_attn_output_gate\": true", "(which has 32)"},
                 {"\"elementwise_attn_output_gate\": true", "(which has 256)"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char config[512];
        snprintf(config, sizeof config,
                 "{\"model_type\": \"sluice\", \"vocab_size\": 280, \"hidden_size\": 16, \"intermediate_size\": 48, "
                 "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"num_key_value_heads\": 2, \"head_dim\": 8, "
                 "\"max_position_embeddings\": 16, %s}",
                 cases[i].gate);
        put("gated.json", config);
        expect(DATA, "--config-name %D/gated.json --match-parameters true --dry-run --output-dir %D/run", 0, cases[i].said);
    }
    expect(SMALL, "--match-parameters true --dry-run --output-dir %D/run", 1, "gate_position none");
}

/* Where eight columns of all experts are too coarse a step, fewer are taken; where nothing is left to take, it says so. */
static void small_steps_and_small_models(void **state) {
    (void)state;
#define EXPERTS "--num-experts 8 --num-shared-experts 1 --gate-position sdpa --match-parameters true --dry-run --output-dir %D/run "
    expect(SMALL, EXPERTS "--moe-intermediate-size 16", 0, "moe_intermediate_size 16 becomes 15"); /* 9 x 3 x 16 a column */
    expect(SMALL, EXPERTS "--gate-granularity headwise", 0, "32 parameters more than without the gate, of the 32");
    expect(ONE_LAYER, EXPERTS "--moe-intermediate-size 1 --hidden-size 64", 1, "even with moe_intermediate_size 1");
    expect(SMALL, "--intermediate-size 2 --gate-position sdpa --match-parameters true --dry-run --output-dir %D/run", 1,
           "even with intermediate_size 1 it has");
}

/* By content: the file itself, a copy and the run's own pass, a file that the run named may go, all else is refused. */
static void another_tokenizer_is_refused(void **state) {
    (void)state;
    char path[256];
    expect(SMALL, "--max-steps 1 --output-dir %D/first", 0, NULL);
    expect(DATA, "--vocab-size 270 --hidden-size 16 --max-steps 1 --output-dir %D/other", 0, NULL);
    static const char *const from[] = {"first", "other"};
    for (int i = 0; i < 2; i++) {
        char to[256], *json;
        size_t size;
        snprintf(path, sizeof path, "%s/%s/model/tokenizer.json", dir, from[i]);
        snprintf(to, sizeof to, "%s/%s.json", dir, from[i]);
        assert_ok(sluice__read_file(&json, &size, path, 1 << 24, NULL));
        assert_ok(sluice__write_file(to, json, size, NULL));
        sluice__free(json);
    }
    expect(SMALL, "--tokenizer %D/first.json --max-steps 2 --lr-scheduler-type constant --warmup-ratio 0 --output-dir %D/run", 0, NULL);
    expect("", "--output-dir %D/run --resume --max-steps 3 --tokenizer %D/other.json", 1, "another tokenizer than that of the run");
    expect("", "--output-dir %D/run --resume --max-steps 3 --tokenizer %D/absent", 1, "tokenizer_name");
    snprintf(path, sizeof path, "grep -q first.json %s/run/config.json", dir);
    assert_int_equal(test_run(path, NULL), 0);
    expect("", "--output-dir %D/run --resume --max-steps 3 --tokenizer %D/first/model", 0, "step 2 of 3");
    expect("", "--output-dir %D/run --resume --max-steps 4 --tokenizer %D/first.json", 0, "step 3 of 4");
    drop("first.json");
    expect("", "--output-dir %D/run --resume --max-steps 5", 0, "step 4 of 5");
    expect("", "--output-dir %D/run --resume --max-steps 6 --tokenizer %D/other.json", 1, "another tokenizer than that of the run");
    drop("run");
}

/* Each with what it has no effect with, or contradicts, in the message; and what is legal beside it. */
static void options_without_effect_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *options, *word; /* NULL: fine */
    } cases[] = {
        {"--router-aux-loss-coef 0.5", "router_aux_loss_coef: found 0.5, which has no effect with num_experts 0"},
        {"--router-z-loss-coef 0", "num_experts 0"},
        {"--router-balance micro", "router_balance: found micro, which has no effect with num_experts 0"},
        {"--router-aux-loss-coef 0.01", NULL}, /* the default */
        {"--num-experts 4 --router-aux-loss-coef 0.5 --router-z-loss-coef 0 --router-balance micro", NULL},
        {"--num-experts-per-tok 1", "num_experts_per_tok: found 1, which has no effect with num_experts 0"},
        {"--moe-intermediate-size 64", "num_experts 0"},
        {"--norm-topk-prob true", "num_experts 0"},
        {"--num-shared-experts 1", "num_experts 0"},
        {"--num-experts 4 --intermediate-size 64", "intermediate_size: found 64, which has no effect with experts in every layer"},
        {"--num-experts 4 --moe-intermediate-size 64", NULL},
        {"--batch-size-warmup 1:2", "batch_size_warmup: found 1:2, which has no effect with gradient_accumulation_steps 1"},
        {"--batch-size-warmup 2:2,2:3 --gradient-accumulation-steps 2", "gradient_accumulation_steps 2"},
        {"--batch-size-warmup 1:2 --gradient-accumulation-steps 2", NULL},
        {"--text-column body", "text_column: found body, which has no effect with text"},
        {"--text-column body --validation-text %D/lines.jsonl", NULL},
        {"--text-column body --text %D/texts", NULL}, /* a directory in which both are */
        {"--text-separator blank", NULL},
        {"--resume --overwrite-output-dir true", "overwrite_output_dir: found true, which contradicts resume_from_checkpoint"},
        {"--resume --adam-beta1 0.5 --optim lion", "adam_beta1"}, /* nothing is there yet to take options from */
    };
    char path[256];
    put("lines.jsonl", "{\"body\": \"the light was upon the waters and the evening came and the light was upon the waters\"}\n");
    snprintf(path, sizeof path, "%s/texts", dir);
    assert_ok(sluice__make_dirs(path, NULL));
    snprintf(path, sizeof path, "cp %s/book.txt %s/lines.jsonl %s/texts", dir, dir, dir);
    assert_int_equal(test_run(path, NULL), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char more[512];
        snprintf(more, sizeof more, "%s --max-steps 2 --dry-run --output-dir %%D/run", cases[i].options);
        expect(SMALL, more, cases[i].word ? 1 : 0, cases[i].word);
    }
    expect("--seq-len 16 --vocab-size 280 --hidden-size 16 --max-steps 2 --dry-run --output-dir %D/run",
           "--text %D/lines.jsonl --text-column body --text-separator blank", 1, "text_separator: found blank, which has no effect");
}

/* A run's own config.json, which holds every key, is no set of wishes: as options of a new run it goes. */
static void options_of_a_run_make_another(void **state) {
    (void)state;
    expect(SMALL, "--num-experts 4 --max-steps 1 --output-dir %D/run", 0, NULL);
    expect("", "%D/run/config.json --output-dir %D/again", 0, "1 updates");
    expect("", "--output-dir %D/again --resume", 0, NULL);
    drop("run");
    drop("again");
}

/* A branch plans the rest itself; the same command in a loop goes on. */
static void branches_refuse_another_course(void **state) {
    (void)state;
    expect(SMALL, "--lr-scheduler-type wsd --warmup-steps 2 --max-steps 12 --num-decay-steps 2 --save-steps 6 --output-dir %D/short", 0,
           NULL);
#define LEAVE "--decay-from %D/short/checkpoints/step-6 --num-decay-steps 4 --output-dir %D/branch --save-steps 2 "
    static const char *const bad[][2] = {
        {"--max-steps 99", "max_steps: found 99, which has no effect with decay_from"},
        {"--num-train-epochs 3", "num_train_epochs"},
        {"--warmup-steps 1", "warmup_steps"},
        {"--warmup-ratio 0.5", "warmup_ratio"},
        {"--lr-scheduler-type cosine", "lr_scheduler_type: found cosine, which has no effect with decay_from"},
        {"--match-parameters true", "match_parameters: found true, which has no effect with decay_from"},
        {"--learning-rate 1", "learning_rate: the run was started with"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) expect(LEAVE, bad[i][0], 1, bad[i][1]);
    static const char *const good[] = {"", "--max-steps 10", "--max-steps 12", "--warmup-steps 2 --lr-scheduler-type warmup_stable_decay"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        char more[512];
        snprintf(more, sizeof more, "%s --dry-run", good[i]);
        expect(LEAVE, more, 0, NULL);
    }
    expect(LEAVE, "--resume", 0, "step 6 of 10");
    drop("branch/checkpoints/step-10");
    drop("branch/model");
    expect(LEAVE, "--resume", 0, "step 8 of 10");
    drop("branch/checkpoints"); /* its config.json is there still */
    expect(LEAVE, "--resume", 0, "10 updates");
    expect("", "--output-dir %D/branch --resume", 0, NULL);
}

static int set_up(void **state) {
    (void)state;
    snprintf(dir, sizeof dir, "%s", test_temp_dir());
    char book[256];
    snprintf(book, sizeof book, "%s/book.txt", dir);
    test_write_book(book);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matching_goes_on_in_a_loop),
        cmocka_unit_test(gated_configurations_are_matched),
        cmocka_unit_test(small_steps_and_small_models),
        cmocka_unit_test(another_tokenizer_is_refused),
        cmocka_unit_test(options_without_effect_are_refused),
        cmocka_unit_test(options_of_a_run_make_another),
        cmocka_unit_test(branches_refuse_another_course),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
