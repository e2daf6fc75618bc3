/* SPDX-License-Identifier: Apache-2.0 */
/* The program sluice inspect on tiny models: files and tables, several models, checkpoints,
 * interventions, and inputs that leave little to measure. */
#include "support/test_support.h"
#include "sluice/model.h"
#include "sluice/tokenizer.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char root_dir[200], text_file[256];

/* A model directory root/name with a tokenizer; nan: the first element of a matrix is not a number.
 */
static void write_model(const char *name, const char *more, bool nan) {
    char config_text[1024], dir[256];
    sluice_error err = {0};
    sluice_config config;
    sluice_model *model;
    sluice_tokenizer *tok;
    snprintf(dir, sizeof dir, "%s/%s", root_dir, name);
    char *command = NULL;
    assert_true(asprintf(&command, "mkdir -p '%s';", dir) > 0);
    assert_int_equal(test_run(command, NULL), 0);
    free(command);
    snprintf(
        config_text, sizeof config_text,
        "{\"vocab_size\": 300, \"hidden_size\": 16, \"intermediate_size\": 16, \"head_dim\": 8,"
        "\"max_position_embeddings\": 64, %s}",
        more);
    assert_ok_err(sluice_config_parse(&config, config_text, "config.json", &err), &err);
    assert_ok_err(sluice_model_new(&model, &config, 1, &err), &err);
    if (nan)
        sluice_model_tensor(model,
                            sluice_model_find_tensor(model, "model.layers.0.mlp.up_proj.weight"))
            .data[3] = NAN;
    assert_ok_err(sluice_model_save(model, dir, SLUICE_SAVE_NATIVE, &err), &err);
    sluice_tokenizer_params p = sluice_tokenizer_params_default();
    p.vocab_size = 300;
    const char *text = "the cat sat on the mat, and the dog sat on the log.";
    assert_ok_err(sluice_tokenizer_train_text(&tok, &p, text, strlen(text), &err), &err);
    assert_ok_err(sluice_tokenizer_save(tok, dir, &err), &err);
    sluice_tokenizer_free(tok);
    sluice_model_free(model);
    sluice_config_free(&config);
}

#define PLAIN "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2"
#define GATED PLAIN ", \"gate_position\": \"sdpa\""

static int write_all(void **state) {
    (void)state;
    snprintf(root_dir, sizeof root_dir, "%s", test_temp_dir());
    write_model("plain", PLAIN, false);
    write_model("gated", GATED, false);
    write_model("single",
                "\"num_hidden_layers\": 1, \"num_attention_heads\": 1, \"num_key_value_heads\": 1",
                false);
    write_model("broken", PLAIN, true);
    write_model("run/checkpoints/step-10", GATED, false);
    write_model("run/checkpoints/step-200", GATED, false);
    snprintf(text_file, sizeof text_file, "%s/text.txt", root_dir);
    FILE *f = fopen(text_file, "w");
    for (int i = 0; f && i < 60; i++)
        fprintf(f, "the dog %d sat on the mat, the cat on the log.\n", i);
    return !f || fclose(f);
}

/* Runs it in the directory of the models; output is checked for `mention` (NULL = for nothing). */
static void run(const char *arguments, int code, const char *mention) {
    char command[1500], *output;
    snprintf(command, sizeof command, "cd '%s' && %s inspect %s;", root_dir, SLUICE_PROGRAM,
             arguments);
    int found = test_run(command, &output);
    if (found != code || (mention && !strstr(output, mention)))
        fail_msg("%s\nexit code %d, expected %d, and \"%s\" in: %s", command, found, code,
                 mention ? mention : "", output);
    free(output);
}

static json_t *result(const char *dir) {
    char path[300];
    snprintf(path, sizeof path, "%s/%s/inspect.json", root_dir, dir);
    json_t *root = json_load_file(path, JSON_ALLOW_NUL, NULL);
    assert_non_null(root);
    return root;
}

static json_t *model_of(json_t *root, size_t i) {
    return json_array_get(json_object_get(root, "models"), i);
}

static double number(json_t *at, const char *a, const char *b) {
    json_t *v = json_object_get(json_object_get(at, a), b);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

static void a_text_gives_tables_and_files(void **state) {
    (void)state;
    char path[300];
    run("plain --text text.txt -o a", 0, "sink heads");
    json_t *root = result("a"), *m = model_of(root, 0);
    assert_string_equal(json_string_value(json_object_get(m, "name")), "plain");
    assert_int_equal(json_array_size(json_object_get(json_object_get(m, "inspect"), "layers")), 2);
    assert_int_equal(number(m, "inspect", "seq_len"), 64); /* what the model was made for */
    assert_true(number(m, "uniform_share", "from_1") < 0.1);
    assert_int_equal(json_array_size(json_object_get(json_object_get(m, "map"), "tokens")), 64);
    json_decref(root);
    snprintf(path, sizeof path, "%s/a/inspect.html", root_dir);
    assert_int_equal(access(path, R_OK), 0);
    run("--report a", 0, "a/inspect.html");
    run("plain -q --text text.txt -o a --json", 0, "\"sink_rate_0.3_mean\"");
    run("plain --text - -o a < text.txt", 0, "report: a/inspect.html");
    run("plain --prompt 'the cat' --windows 1 -o a --light --map-tokens 0", 0, "uniform attention");
}

static void several_models_and_interventions(void **state) {
    (void)state;
    run("plain gated --text text.txt -o b --set gate=1 --set gate=0.15 --set gate=mean --set "
        "gate=channel-mean "
        "--zero-massive --mean-massive --window 8,16 --sinks 0,4 --clip-residual 0.5 --no-bos",
        0, "intervention on the gate: the model has none");
    json_t *root = result("b"), *rows = json_object_get(model_of(root, 1), "interventions");
    assert_int_equal(json_array_size(rows), 4 + 2 + 4 + 1 + 1);
    double gate = number(json_object_get(json_array_get(rows, 1), "inspect"), "f_attn_mean", "all");
    assert_true(gate > 0);
    json_t *forced = json_object_get(json_array_get(rows, 1), "inspect");
    assert_true(fabs(json_number_value(json_object_get(forced, "gate_mean")) - 0.15) < 1e-6);
    assert_string_equal(json_string_value(json_object_get(json_array_get(rows, 7), "name")),
                        "window 8, 4 first keys");
    json_decref(root);
}

static void checkpoints_are_named_by_their_step(void **state) {
    (void)state;
    run("run/checkpoints/step-200 run/checkpoints/step-10 --text text.txt -o c", 0, "step-200");
    json_t *root = result("c");
    assert_int_equal(json_integer_value(json_object_get(model_of(root, 0), "step")), 10);
    assert_int_equal(json_integer_value(json_object_get(model_of(root, 1), "step")), 200);
    json_decref(root);
}

/* Trains a run of two updates whose windows begin as `bos` says. */
static void train(const char *bos) {
    char *command = NULL, *output = NULL;
    assert_true(asprintf(&command,
                         "cd '%s' && %s train -q --text text.txt --output-dir trained "
                         "--overwrite-output-dir true --train-tokenizer-vocab-size 300 "
                         "--hidden-size 16 --num-hidden-layers 1 --num-attention-heads 1 "
                         "--seq-len 16 --max-steps 2 --per-device-train-batch-size 1 --bos %s;",
                         root_dir, SLUICE_PROGRAM, bos) > 0);
    if (test_run(command, &output)) fail_msg("%s\n%s", command, output);
    free(command);
    free(output);
}

/* A model that was trained with a token in front of every window is read with it, unless told
 * otherwise: the sink stands on that token. */
static void windows_begin_as_in_training(void **state) {
    (void)state;
    static const struct {
        const char *bos, *options;
        json_int_t id; /* -1 = nothing in front; 1 is the token that training adds */
    } cases[] = {{"window", "", 1},
                 {"window", "--bos none", -1},
                 {"window", "--bos 40", 40},
                 {"document", "", -1},
                 {"none", "", -1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char arguments[200];
        if (i == 0 || strcmp(cases[i].bos, cases[i - 1].bos) != 0) train(cases[i].bos);
        snprintf(arguments, sizeof arguments,
                 "trained/checkpoints/step-2 trained/model --text text.txt --light -o k %s",
                 cases[i].options);
        run(arguments, 0, NULL);
        json_t *root = result("k");
        for (size_t k = 0; k < 2; k++) {
            json_t *first = json_object_get(model_of(root, k), "first_token");
            json_t *id = json_object_get(first, "id");
            assert_int_equal(id ? json_integer_value(id) : -1, cases[i].id);
        }
        json_decref(root);
    }
}

static void little_input_gives_a_clear_result(void **state) {
    (void)state;
    run("single --text text.txt -o d", 0, "M-Act");
    run("plain --prompt a -o d", 0, "1 window of 1 token");
    json_t *root = result("d"), *m = model_of(root, 0);
    assert_true(isnan(number(json_object_get(m, "inspect"), "f_attn_mean", "from_1")));
    assert_true(number(json_object_get(m, "inspect"), "f_attn_mean", "all") == 1);
    assert_true(json_is_null(json_object_get(json_object_get(m, "inspect"), "loss")));
    json_decref(root);
    run("plain --prompt '      ' -o d", 0, "uniform attention");
    run("plain --prompt '' -o d", 1, "the text is empty");
    run("plain --text /dev/null -o d", 1, "the text is empty");
    run("plain --prompt a --bos 5 -o d", 0, "1 window of 2 tokens");
    run("plain --prompt a --bos 300 -o d", 1, "expected 0..299");
}

/* The same text in every wrapping gives the same numbers. Content decides, so that a machine without
 * zstd has gzip under the other name. */
static void compressed_text_and_json_lines(void **state) {
    (void)state;
    char *output = NULL, *command = NULL;
    assert_true(asprintf(&command,
                         "cd '%s' && gzip -c text.txt >t.gz && "
                         "{ zstd -qf text.txt -o t.zst 2>/dev/null || cp t.gz t.zst; } && "
                         "printf '{\"text\": \"the cat\"}\\n{\"text\": \"the dog\"}\\n' >two.jsonl && "
                         "printf 'the cat\\n\\nthe dog' >two.txt && gzip -kf two.jsonl && "
                         "mkdir -p dir && cp two.jsonl dir/ && head -c 60 t.gz >cut.gz && "
                         "printf '{\"body\": \"the cat\"}\\n' >body.jsonl;",
                         root_dir) > 0);
    assert_int_equal(test_run(command, &output), 0);
    free(output);
    free(command);
    static const char *const same[][2] = {{"text.txt", "t.gz"},       {"text.txt", "t.zst"},
                                          {"two.txt", "two.jsonl"},   {"two.txt", "two.jsonl.gz"},
                                          {"two.txt", "dir"},         {"text.txt", "- < t.gz"}};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        json_t *found[2];
        for (int k = 0; k < 2; k++) {
            char arguments[200];
            snprintf(arguments, sizeof arguments, "plain -q --light -o i --text %s", same[i][k]);
            run(arguments, 0, NULL);
            found[k] = result("i");
        }
        assert_true(json_equal(json_object_get(model_of(found[0], 0), "inspect"),
                               json_object_get(model_of(found[1], 0), "inspect")));
        json_decref(found[0]);
        json_decref(found[1]);
    }
    run("plain --light -o i --text cut.gz", 1, "cut.gz");
    run("plain --light -o i --text body.jsonl", 1, "text");
    run("plain --light -o i --text body.jsonl --text-column body", 0, "M-Act");
    run("plain --light -o i --prompt a --text-column body", 2, "--text-column belongs to --text");
}

static void odd_texts(void **state) {
    (void)state;
    static const struct {
        const char *make, *arguments, *said;
        int code;
    } cases[] = {
        {"printf 'a\\nb \\200 c' >bad.txt;", "plain -o j --text bad.txt",
         "bad.txt: line 2: byte 0x80 (byte 4 of the text, from 0) is not UTF-8", 1},
        {"true;", "plain -o j --prompt $(printf 'a\\377')", "--prompt: line 1: byte 0xFF", 1},
        {"true;", "plain -o j --demo $(printf 'a\\377')", "is not UTF-8", 1},
        {"true;", "plain -o j --text text.txt --tokens $(printf '\\377')", "the marked tokens", 1},
        {"printf ' \\n\\t \\n' >blank.txt;", "plain -o j --text blank.txt", "M-Act", 0},
        {": >empty.txt;", "plain -o j --text empty.txt", "the text is empty", 1},
        {": | gzip >empty.gz;", "plain -o j --text empty.gz", "the text is empty", 1},
        {": >empty.jsonl;", "plain -o j --text empty.jsonl", "the text is empty", 1},
        {"mkdir -p none;", "plain -o j --text none", "no text in this directory", 1},
        {"true;", "plain -o j --text absent.txt", "absent.txt: cannot open", 1},
        {"true;", "single -o j --prompt a", "1 window of 1 token", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char command[400];
        snprintf(command, sizeof command, "cd '%s' && %s", root_dir, cases[i].make);
        assert_int_equal(test_run(command, NULL), 0);
        run(cases[i].arguments, cases[i].code, cases[i].said);
    }
}

static void damaged_models_are_named(void **state) {
    (void)state;
    run("broken --text text.txt -o e", 1,
        "model.layers.0.mlp.up_proj.weight holds NaN or infinite values");
    run("nowhere --text text.txt -o e", 1, "nowhere");
    run("plain broken --text text.txt -o e", 0, "up_proj.weight");
    json_t *root = result("e");
    assert_non_null(json_object_get(model_of(root, 1), "error"));
    json_decref(root);
}

/* Attention on chosen positions and tokens: position 0 alone is the first-token share. */
static void marked_keys(void **state) {
    (void)state;
    run("plain --text text.txt -o f --positions 0", 0, NULL);
    json_t *root = result("f"),
           *layer = json_array_get(
               json_object_get(json_object_get(model_of(root, 0), "inspect"), "layers"), 1);
    json_t *marked = json_object_get(json_object_get(layer, "heads"), "marked");
    json_t *share = json_object_get(json_object_get(layer, "f_attn_heads"), "from_1");
    for (size_t h = 0; h < 4; h++)
        assert_true(fabs(json_number_value(json_array_get(marked, h)) -
                         json_number_value(json_array_get(share, h))) < 1e-6);
    json_decref(root);
    run("plain --text text.txt -o f --tokens ,.", 0, NULL);
}

static void a_long_text_in_one_window(void **state) {
    (void)state;
    run("single --text text.txt --seq-len 50 --windows 1 --positions 0,50 --light --map-tokens 0 -o g", 0,
        "position 50 is beyond the windows, whose last one is 49");
    run("single --text text.txt --seq-len 1000 --windows 1 --light --map-tokens 0 -o g", 0,
        "longer than the 64 positions that it was made for");
}

static void wrong_usage(void **state) {
    (void)state;
    static const struct {
        const char *arguments, *said;
    } cases[] = {{"", "at least one model"},
                 {"plain", "no text"},
                 {"plain --text text.txt --prompt a", "exclude each other"},
                 {"plain --prompt a --set gate=x", "--set: gate: found \"x\""},
                 {"plain --prompt a --set heads=1", "--set"},
                 {"plain --prompt a --sinks 4", "--sinks needs --window"},
                 {"plain --prompt a --window 0", "--window"},
                 {"plain --prompt a --window 4 --sinks -1", "--sinks"},
                 {"plain --prompt a --clip-residual -2", "--clip-residual"},
                 {"plain --prompt a --seq-len 0", "--seq-len"},
                 {"plain --prompt a --windows 0", "--windows"},
                 {"plain --prompt a --map-tokens 5000", "--map-tokens"},
                 {"plain --prompt a --bos x", "--bos"},
                 {"plain --prompt a --positions 1,x", "--positions"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        run(cases[i].arguments, 2, cases[i].said);
    run("plain --ids text.txt -o h", 1, "text.txt: line 1");
    run("--report nowhere", 1, "nowhere/inspect.json");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_text_gives_tables_and_files),
                                       cmocka_unit_test(several_models_and_interventions),
                                       cmocka_unit_test(checkpoints_are_named_by_their_step),
                                       cmocka_unit_test(windows_begin_as_in_training),
                                       cmocka_unit_test(little_input_gives_a_clear_result),
                                       cmocka_unit_test(compressed_text_and_json_lines),
                                       cmocka_unit_test(odd_texts),
                                       cmocka_unit_test(damaged_models_are_named),
                                       cmocka_unit_test(marked_keys),
                                       cmocka_unit_test(a_long_text_in_one_window),
                                       cmocka_unit_test(wrong_usage)};
    return cmocka_run_group_tests(tests, write_all, NULL);
}
