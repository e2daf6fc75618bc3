/* SPDX-License-Identifier: Apache-2.0 */
/* sluice study from the command line: recipes listed and shown, wrong usage, the table, signals, JSON. */
#include "study/study_case.h"
#include "study/recipe.h"
#include <math.h>

static char dir[128];

/* Runs `sluice study <arguments>` ("DIR" stands for the case's directory) and checks exit code and a word of the
 * output. */
static void expect(const char *arguments, int code, const char *word) {
    char command[4096], *output;
    int n = snprintf(command, sizeof command, "%s study ", SLUICE_PROGRAM);
    for (const char *c = arguments; *c && n < (int)sizeof command - 200; c++) {
        bool here = !strncmp(c, "DIR", 3);
        n += snprintf(command + n, sizeof command - (size_t)n, "%.*s", here ? (int)strlen(dir) : 1, here ? dir : c);
        if (here) c += 2;
    }
    int found = test_run(command, &output);
    if (found != code || !strstr(output, word))
        fail_msg("sluice study %s\nexit code %d, expected %d with \"%s\":\n%s", arguments, found, code, word, output);
    free(output);
}

static void test_recipes(void **state) {
    (void)state;
    for (int i = 0; sluice__recipe_builtin(i); i++) expect("--list-recipes", 0, sluice__recipe_builtin(i));
    expect("--list-recipes", 0, "(default)");
    char command[256], *output;
    snprintf(command, sizeof command, "%s study --list-recipes --json", SLUICE_PROGRAM);
    assert_int_equal(test_run(command, &output), 0);
    json_t *list = json_loads(output, 0, NULL), *recipe;
    size_t k;
    json_array_foreach(list, k, recipe) {
        assert_string_equal(json_string_value(json_object_get(recipe, "name")), sluice__recipe_builtin((int)k));
        assert_true(json_array_size(json_object_get(recipe, "scales")) >= 1);
    }
    assert_null(sluice__recipe_builtin((int)k));
    json_decref(list);
    free(output);
    expect("--show-recipe sink", 0, "\"partial_rotary_factor\": 0.25");
    expect("--show-recipe sinks", 2, "sinks");
    expect("--show-recipe sink > DIR/mine.json && true", 0, "");
    expect("--recipe DIR/mine.json --text /nonexistent", 1, "/nonexistent");
}

static void test_usage(void **state) {
    (void)state;
    expect("--help", 0, "--parallel-arms");
    expect("--recipes quick", 2, "--recipes");
    expect("text.txt", 2, "unexpected argument");
    expect("--parallel-arms 0", 2, "--parallel-arms");
    expect("--parallel-arms two", 2, "--parallel-arms");
    expect("--max-steps -4", 2, "--max-steps");
    expect("--recipe qick", 1, "known ones are quick, sink");
    expect("--recipe DIR/recipe.json --text DIR/text.txt --arms none --output DIR/o", 1, "no arm \"none\"");
    expect("-r DIR/recipe.json --scale huge --text DIR/text.txt --output DIR/o", 1, "no scale \"huge\"");
    expect("--report DIR/no", 1, "results.json");
}

static void test_run_and_redraw(void **state) {
    (void)state;
    expect("-r DIR/recipe.json -t DIR/text.txt DIR/more.txt -o DIR/o --threads 2 --seeds 4 --quiet", 0,
           "first-token share");
    expect("-r DIR/recipe.json -t DIR/text.txt DIR/more.txt -o DIR/o --threads 2 --seeds 4 --quiet", 0,
           "o/report.html");
    expect("--report DIR/o", 0, "o/report.html");
    char command[1024], *output;
    snprintf(command, sizeof command,
             "%s study -r %s/recipe.json -t %s/text.txt %s/more.txt -o %s/o --seeds 4 --json 2>/dev/null",
             SLUICE_PROGRAM, dir, dir, dir, dir);
    assert_int_equal(test_run(command, &output), 0);
    json_t *root = json_loads(output, 0, NULL);
    assert_int_equal(json_array_size(json_object_get(root, "arms")), 3);
    assert_true(json_integer_value(json_object_get(root, "failed")) == 1);
    json_decref(root);
    free(output);
}

/* A study that is refused leaves no directory; one that leaves arms out says which; the ungated arm has no form of a
 * gate. */
static void test_what_is_left(void **state) {
    (void)state;
    char command[512];
    expect("-r DIR/recipe.json -t DIR/text.txt -o DIR/new/refused --max-steps 1", 1, "warmup_steps");
    snprintf(command, sizeof command, "test -e %s/new/refused", dir);
    assert_int_equal(test_run(command, NULL), 1);
    expect("-r DIR/recipe.json -t DIR/text.txt DIR/more.txt -o DIR/o --seeds 4 --arms headwise --quiet", 0,
           "left out, their runs stay: baseline, wild");
    expect("-r DIR/recipe.json -t DIR/text.txt DIR/more.txt -o DIR/o --seeds 4 --quiet", 0, "report:");
    char path[256];
    snprintf(path, sizeof path, "%s/o", dir);
    json_t *results = load_results(path);
    assert_int_equal(json_object_size(json_object_get(arm_of(results, "baseline"), "gate")), 1);
    assert_string_equal(json_string_value(json_object_get(json_object_get(arm_of(results, "headwise"), "gate"),
                                                          "granularity")), "headwise");
    json_decref(results);
}

/* Standard input gives what the same text in a file gives. */
static void test_standard_input(void **state) {
    (void)state;
    expect("-r DIR/recipe.json -t DIR/text.txt -o DIR/f --arms baseline --seeds 1 --threads 1 --quiet", 0, "report:");
    expect("-r DIR/recipe.json -t - -o DIR/i --arms baseline --seeds 1 --threads 1 --quiet < DIR/text.txt", 0,
           "report:");
    char a[256], b[256];
    snprintf(a, sizeof a, "%s/f", dir);
    snprintf(b, sizeof b, "%s/i", dir);
    json_t *file = load_results(a), *input = load_results(b);
    assert_string_equal(json_string_value(json_object_get(json_object_get(input, "data"), "source")), "standard input");
    assert_true(json_equal(json_object_get(run_of(file, "baseline", 0), "eval"),
                           json_object_get(run_of(input, "baseline", 0), "eval")));
    json_decref(file);
    json_decref(input);
    expect("-r DIR/recipe.json -t - -o DIR/e < /dev/null", 1, "no text");
}

/* A signal leaves checkpoints and says how to go on; the same command ends with what an undisturbed one gives. */
static void test_signals(void **state) {
    (void)state;
    char script[2048], *output;
    write_case(dir, 4000,
               "{\"name\": \"baseline\"}, {\"name\": \"headwise\", \"config\": {\"gate_position\": \"sdpa\"}}");
    snprintf(
        script, sizeof script,
        "%s study -r %s/recipe.json -t %s/text.txt -o %s/s --threads 2 --seeds 1 & p=$!\n"
        "n=0; while [ ! -s %s/s/arms/baseline/seed-1/config.json ] && [ $n -lt 600 ]; do sleep 0.05; n=$((n+1)); done\n"
        "kill -TERM $p; wait $p; echo code $?",
        SLUICE_PROGRAM, dir, dir, dir, dir);
    assert_int_equal(test_run(script, &output), 0);
    if (!strstr(output, "code 1") || !strstr(output, "the same command continues")) fail_msg("%s", output);
    free(output);
    snprintf(script, sizeof script, "ls %s/s/arms/baseline/seed-1/checkpoints", dir);
    assert_int_equal(test_run(script, &output), 0);
    assert_non_null(strstr(output, "step-"));
    free(output);
    expect("-r DIR/recipe.json -t DIR/text.txt -o DIR/s --threads 2 --seeds 1 --quiet", 0, "report:");
}

int main(void) {
    snprintf(dir, sizeof dir, "%s", test_temp_dir());
    write_case(dir, 20, CASE_ARMS);
    char path[256];
    snprintf(path, sizeof path, "%s/more.txt", dir);
    assert_ok(sluice__write_file(path, "A second file.\n", 15, NULL));
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_recipes), cmocka_unit_test(test_usage),
                                       cmocka_unit_test(test_run_and_redraw), cmocka_unit_test(test_what_is_left),
                                       cmocka_unit_test(test_standard_input),
                                       cmocka_unit_test(test_signals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
