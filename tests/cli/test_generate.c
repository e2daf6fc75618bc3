/* SPDX-License-Identifier: Apache-2.0 */
/* The program around a tiny model: values that are refused, and results that cannot be written. */
#include "support/test_support.h"
#include "base/file.h"
#include "sluice/model.h"
#include "sluice/tokenizer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char model_dir[256];

static int write_model(void **state) {
    (void)state;
    static const char config_text[] = "{\"vocab_size\": 300, \"hidden_size\": 16, \"intermediate_size\": 16,"
                                      "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"num_key_value_heads\": 1,"
                                      "\"head_dim\": 8, \"max_position_embeddings\": 64}";
    sluice_error err = {0};
    sluice_config config;
    sluice_model *model;
    sluice_tokenizer *tok;
    snprintf(model_dir, sizeof model_dir, "%s", test_temp_dir());
    assert_ok_err(sluice_config_parse(&config, config_text, "config.json", &err), &err);
    assert_ok_err(sluice_model_new(&model, &config, 1, &err), &err);
    assert_ok_err(sluice_model_save(model, model_dir, SLUICE_SAVE_AUTO, &err), &err);
    sluice_tokenizer_params p = sluice_tokenizer_params_default();
    p.vocab_size = 300;
    const char *text = "the cat sat on the mat and the dog sat on the log";
    assert_ok_err(sluice_tokenizer_train_text(&tok, &p, text, strlen(text), &err), &err);
    assert_ok_err(sluice_tokenizer_save(tok, model_dir, &err), &err);
    sluice_tokenizer_free(tok);
    sluice_model_free(model);
    sluice_config_free(&config);
    return 0;
}

static void run(const char *arguments, const char *behind, int code, const char *mention) {
    char command[1024], *output;
    snprintf(command, sizeof command, "%s %s %s %s;", SLUICE_PROGRAM, arguments, model_dir, behind);
    int found = test_run(command, &output);
    if (found != code || (mention && !strstr(output, mention)))
        fail_msg("%s\nexit code %d, expected %d, and \"%s\" in: %s", command, found, code, mention ? mention : "", output);
    free(output);
}

static void values_out_of_range_are_refused(void **state) {
    (void)state;
    run("generate -q -p cat -n 0", "", 2, "--max-new-tokens");
    run("generate -q -p cat -n -1", "", 2, "--max-new-tokens");
    run("generate -q -p cat --context 0", "", 2, "--context");
    run("generate -q -p cat --top-k -1", "", 2, "--top-k");
    run("generate -q -p cat --seed -1", "", 2, "--seed");
    run("generate -q -p cat --greedy --temperature 1", "", 2, "exclude");
    run("generate -q -p cat --temperature nan", "", 1, "temperature");
    run("generate -q -p cat --top-p nan", "", 1, "top_p");
    run("generate -q -p cat --min-p nan", "", 1, "min_p");
    run("generate -q -p cat --repetition-penalty nan", "", 1, "repetition_penalty");
}

/* YaRN over the model's own positions; nonsense is refused by name. */
static void rope_scaling_is_taken_over(void **state) {
    (void)state;
    run("generate -q -p cat -n 4 --rope-scaling '{\"rope_type\": \"yarn\", \"factor\": 4.0, "
        "\"original_max_position_embeddings\": 64}'", "", 0, NULL);
    run("generate -q -p cat --rope-scaling yarn", "", 1, "RoPE override");
    run("generate -q -p cat --rope-scaling '{\"rope_type\": \"stretch\"}'", "", 1, "stretch");
}

static void text_is_generated_and_json_counts_it(void **state) {
    (void)state;
    run("generate -q -p cat -n 5 --ignore-eos --json", "", 0, "\"stop\": \"length\"");
    run("generate -q -p cat -n 5", "", 0, "cat");
}

/* What is generated with weights of this type. */
static char *text_of(const char *dtype) {
    char command[1024], *text;
    snprintf(command, sizeof command, "%s generate -q -p cat -n 8 --dtype %s %s;", SLUICE_PROGRAM, dtype, model_dir);
    assert_int_equal(test_run(command, &text), 0);
    return text;
}

/* The weights as the file has them, or widened; the text of an fp32 file is the same. */
static void weights_can_be_widened(void **state) {
    (void)state;
    run("generate -q -p cat --dtype float16", "", 2, "--dtype: found \"float16\", expected auto or float32");
    char *plain = text_of("auto"), *widened = text_of("float32");
    assert_string_equal(plain, widened);
    free(plain);
    free(widened);
}

static void a_failed_prompt_prints_nothing(void **state) {
    (void)state;
    char command[600], *output;
    snprintf(command, sizeof command, "%s generate -q -p 'the cat sat' --context 1 %s 2>/dev/null;", SLUICE_PROGRAM, model_dir);
    assert_int_equal(test_run(command, &output), 1);
    assert_string_equal(output, "");
    free(output);
}

/* Alone or with others, a prompt that is too long is told the same way. */
static void the_prompt_has_to_fit(void **state) {
    (void)state;
    run("generate -q -p 'zqxzqxzqxzqx' --context 9", "", 1, "the prompt: found 12 tokens, expected 1..9 (the context has 9 places");
    run("generate -q -p 'zqxzqxzqxzqx' --context 9 --temperature 1 --num-return-sequences 3", "", 1,
        "the prompt: found 12 tokens, expected 1..9 (the context has 9 places");
    run("generate -q -p 'zqxzqxzqx' --context 9 --temperature 1 --num-return-sequences 2", "", 0, "zqx");
}

static void logprobs_reach_the_vocabulary(void **state) {
    (void)state;
    run("generate -q -p cat -n 1 --json --logprobs 300", "", 0, "\"logprobs\"");
    run("generate -q -p cat -n 1 --json --logprobs 301", "", 1, "--logprobs: found 301, expected 0..300");
    run("generate -q -p cat -n 1 --json --logprobs -1", "", 2, "--logprobs: found -1");
}

static void write_text(const char *name, const char *text, size_t size) {
    char path[400];
    snprintf(path, sizeof path, "%s/%s", model_dir, name);
    assert_ok(sluice__write_file(path, text, size, NULL));
}

/* The character NUL is one like others: shown, rendered, passed on; a byte 0 in a JSON file is refused. */
static void nul_is_kept_in_conversations(void **state) {
    (void)state;
    static const char messages[] = "[{\"role\": \"user\", \"content\": \"left\\u0000right\"}]";
    write_text("chat_template.jinja", "{% for m in messages %}<{{ m.content }}>{% endfor %}", 52);
    write_text("m.json", messages, strlen(messages));
    write_text("zero.json", "[]\0[]", 5);
    write_text("text.txt", "left\0right\n", 11);
    char behind[600];
    snprintf(behind, sizeof behind, "--print-prompt --messages %s/m.json | tr '\\000' '@'", model_dir);
    run("chat -q", behind, 0, "<left@right>");
    snprintf(behind, sizeof behind, "--json -n 2 --messages %s/m.json", model_dir);
    run("chat -q", behind, 0, "\"content\": \"left\\u0000right\"");
    snprintf(behind, sizeof behind, "--json -n 2 < %s/text.txt", model_dir);
    run("chat -q", behind, 0, "\"content\": \"left\\u0000right\"");
    snprintf(behind, sizeof behind, "--print-prompt --messages %s/zero.json", model_dir);
    run("chat -q", behind, 1, "zero.json: a byte 0");
    snprintf(behind, sizeof behind, "--print-prompt --messages %s/text.txt", model_dir);
    run("chat -q", behind, 1, "text.txt");
    snprintf(behind, sizeof behind, "--print-prompt --messages %s/config.json", model_dir);
    run("chat -q", behind, 1, "config.json: expected a JSON list of messages");
    run("chat -q", "--print-prompt -p a --variables '{\"x\": \"\\u0000\"}'", 0, "<a>");
}

static void results_that_cannot_be_written_are_failures(void **state) {
    (void)state;
    run("generate -q -p cat -n 5", ">/dev/full", 1, NULL);
    run("info", ">/dev/full", 1, "cannot write to standard output");
    run("info --json", ">/dev/full", 1, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_out_of_range_are_refused),
        cmocka_unit_test(rope_scaling_is_taken_over),
        cmocka_unit_test(text_is_generated_and_json_counts_it),
        cmocka_unit_test(weights_can_be_widened),
        cmocka_unit_test(a_failed_prompt_prints_nothing),
        cmocka_unit_test(the_prompt_has_to_fit),
        cmocka_unit_test(logprobs_reach_the_vocabulary),
        cmocka_unit_test(nul_is_kept_in_conversations),
        cmocka_unit_test(results_that_cannot_be_written_are_failures),
    };
    return cmocka_run_group_tests(tests, write_model, NULL);
}
