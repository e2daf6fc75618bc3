/* SPDX-License-Identifier: Apache-2.0 */
/* A whole study in small: everything measured, a diverging arm recorded, interruption and continuation without a
 * difference, other settings refused, arms added. */
#include "study/study_case.h"
#include <math.h>
#include <stdatomic.h>
#include <unistd.h>

enum { UPDATES = 20 };

typedef struct setup {
    char dir[64], recipe[128], text[128], out[128];
    const char *texts[1];
    sluice_study_params params;
} setup;

static void make(setup *s, int updates, const char *arms) {
    snprintf(s->dir, sizeof s->dir, "%s", test_temp_dir());
    write_case(s->dir, updates, arms);
    snprintf(s->recipe, sizeof s->recipe, "%s/recipe.json", s->dir);
    snprintf(s->text, sizeof s->text, "%s/text.txt", s->dir);
    snprintf(s->out, sizeof s->out, "%s/out", s->dir);
    s->texts[0] = s->text;
    s->params = sluice_study_params_default();
    s->params.recipe = s->recipe;
    s->params.texts = s->texts;
    s->params.num_texts = 1;
    s->params.output_dir = s->out;
    s->params.parallel_arms = 2;
}

static sluice_study_summary run_ok(const setup *s) {
    sluice_study_summary summary;
    sluice_error err = {0};
    assert_ok_err(sluice_study_run(&summary, &s->params, &err), &err);
    return summary;
}

static void refused(const setup *s, const char *word) {
    sluice_study_summary summary;
    sluice_error err = {0};
    assert_int_not_equal(sluice_study_run(&summary, &s->params, &err), SLUICE_OK);
    if (!strstr(err.message, word)) fail_msg("\"%s\" lacks \"%s\"", err.message, word);
}

static bool exists(const setup *s, const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", s->out, name);
    return access(path, F_OK) == 0;
}

static void check_run(const json_t *run) {
    static const char *const keys[] = {"train", "eval", "inspect", "attention_map", "position", "length", "samples"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!json_object_get(run, keys[i])) fail_msg("a run has no %s", keys[i]);
    assert_int_equal(json_array_size(json_object_get(run, "length")), 5); /* 1x, 2x and 4x plain, two with YaRN */
    json_t *train = json_object_get(run, "train"), *map = json_object_get(run, "attention_map");
    assert_int_equal(json_array_size(json_object_get(train, "loss")), UPDATES);
    assert_true(json_array_size(json_object_get(train, "probe_step")) >= 2);
    assert_in_range(json_array_size(json_object_get(map, "tokens")), 2, 12);
    json_t *sample = json_array_get(json_object_get(run, "samples"), 0);
    assert_true(strlen(json_string_value(json_object_get(sample, "prompt"))) > 0);
    json_t *eval = json_object_get(run, "eval");
    double loss = json_number_value(json_object_get(eval, "loss"));
    assert_true(loss > 0 && loss < log(280.0));
    assert_true(json_integer_value(json_object_get(eval, "bytes")) >
                json_integer_value(json_object_get(eval, "tokens")));
    json_t *length = json_array_get(json_object_get(run, "length"), 0),
           *longest = json_array_get(json_object_get(run, "length"), 3);
    assert_int_equal(json_integer_value(json_object_get(length, "tokens")),
                     json_integer_value(json_object_get(longest, "tokens")));
    assert_int_equal(json_integer_value(json_object_get(longest, "length")), 64);
}

/* A text that is learnt by heart is no divergence: the run is measured, and says so. */
static void test_overfitting(void **state) {
    (void)state;
    setup s;
    make(&s, 400, "{\"name\": \"baseline\", \"training\": {\"learning_rate\": 0.02}}");
    char text[4001]; /* four parts, the end of each held out: letters that training never sees */
    for (int i = 0; i < 4000; i++) text[i] = i % 1000 < 890 ? "abcd "[i % 5] : "zyxw "[i % 5];
    assert_ok(sluice__write_file(s.text, text, 4000, NULL));
    s.params.seeds = "1";
    run_ok(&s);
    json_t *results = load_results(s.out), *run = run_of(results, "baseline", 0);
    assert_string_equal(status_of(results, "baseline", 0), "done");
    double heldout = json_number_value(json_object_get(json_object_get(run, "eval"), "loss"));
    const char *note = json_string_value(json_object_get(run, "note"));
    if (!(heldout > log(280.0)) || !note || !strstr(note, "overfitted")) fail_msg("%g: %s", heldout, note ? note : "no note");
    json_decref(results);
}

static void test_whole(void **state) {
    (void)state;
    setup s;
    make(&s, UPDATES, CASE_ARMS);
    sluice_study_summary summary = run_ok(&s);
    assert_true(summary.num_arms == 3 && summary.runs == 6 && summary.failed == 2);
    assert_true(isfinite(summary.arms[0].loss_sd) && isnan(summary.arms[0].gate_mean) && summary.arms[1].gate_mean > 0);
    assert_true(isnan(summary.arms[2].loss));
    json_t *r = load_results(s.out);
    for (size_t seed = 0; seed < 2; seed++) {
        check_run(run_of(r, "baseline", seed));
        check_run(run_of(r, "headwise", seed));
        assert_string_equal(status_of(r, "wild", seed), "diverged");
        assert_true(json_is_string(json_object_get(run_of(r, "wild", seed), "error")));
    }
    assert_int_equal(json_array_size(json_object_get(json_array_get(json_object_get(r, "comparisons"), 0), "seeds")),
                     2);
    assert_true(json_array_size(json_object_get(r, "findings")) >= 8);
    assert_true(exists(&s, "report.html") && exists(&s, "results.csv"));
    assert_true(exists(&s, "arms/headwise/seed-2/model/tokenizer.json") &&
                exists(&s, "arms/headwise/seed-2/model/config.json"));
    assert_false(exists(&s, "arms/headwise/seed-2/checkpoints"));
    json_decref(r);
}

/* Two arms of one seed see the same data, and tensors that both have start alike: without the gate's effect the first
 * loss is the same to the last bit when the gate changes nothing. Here: the arms' first losses at equal seed are closer
 * than at others. */
static void test_same_data_within_a_seed(void **state) {
    (void)state;
    setup s;
    make(&s, UPDATES, "{\"name\": \"a\"}, {\"name\": \"b\", \"label\": \"the same\"}");
    run_ok(&s);
    json_t *r = load_results(s.out);
    for (size_t seed = 0; seed < 2; seed++) {
        json_t *a = json_object_get(json_object_get(run_of(r, "a", seed), "train"), "loss");
        json_t *b = json_object_get(json_object_get(run_of(r, "b", seed), "train"), "loss");
        assert_true(json_equal(a, b));
    }
    json_t *one = json_object_get(json_object_get(run_of(r, "a", 0), "train"), "loss");
    json_t *two = json_object_get(json_object_get(run_of(r, "a", 1), "train"), "loss");
    assert_false(json_equal(one, two));
    json_decref(r);
}

static atomic_int calls_left;

static bool stop_soon(void *user) {
    (void)user;
    return atomic_fetch_sub(&calls_left, 1) <= 0;
}

static void test_interrupted(void **state) {
    (void)state;
    setup whole, parts;
    make(&whole, UPDATES, CASE_ARMS);
    make(&parts, UPDATES, CASE_ARMS);
    run_ok(&whole);
    sluice_study_summary summary;
    sluice_status st = SLUICE_INTERRUPTED;
    int interruptions = 0;
    parts.params.stop_requested = stop_soon;
    while (st == SLUICE_INTERRUPTED && interruptions < 50) {
        sluice_error err = {0};
        atomic_store(&calls_left, 21);
        st = sluice_study_run(&summary, &parts.params, &err);
        if (st == SLUICE_INTERRUPTED)
            interruptions++;
        else
            assert_ok_err(st, &err);
    }
    assert_in_range(interruptions, 3, 49);
    json_t *a = load_results(whole.out), *b = load_results(parts.out);
    drop_times(a);
    drop_times(b);
    assert_same_json(a, b, "results");
    json_decref(a);
    json_decref(b);
}

/* Killed between the end of training and the result: only the measuring is done again. */
static void test_lost_result(void **state) {
    (void)state;
    setup s;
    make(&s, UPDATES, CASE_ARMS);
    s.params.arms = "baseline";
    run_ok(&s);
    json_t *a = load_results(s.out);
    char path[512];
    snprintf(path, sizeof path, "%s/arms/baseline/seed-1/run.json", s.out);
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof path, "%s/arms/baseline/seed-2/run.json", s.out);
    assert_ok(sluice__write_file(path, "{\"status\": ", 11, NULL)); /* damaged */
    run_ok(&s);
    json_t *b = load_results(s.out);
    drop_times(a);
    drop_times(b);
    assert_same_json(a, b, "results");
    json_decref(a);
    json_decref(b);
}

static void test_continued_with_other_settings(void **state) {
    (void)state;
    setup s;
    make(&s, UPDATES, CASE_ARMS);
    s.params.arms = "baseline";
    s.params.seeds = "1";
    run_ok(&s);
    s.params.max_steps = UPDATES + 1;
    refused(&s, "training.max_steps was 20 and is 21");
    s.params.max_steps = 0;
    FILE *f = fopen(s.text, "a");
    fputs("One more sentence at the end of the text.\n", f);
    fclose(f);
    refused(&s, "tokens_hash");
    s.params.overwrite = true;
    run_ok(&s);
    s.params.overwrite = false;
    s.params.arms = "baseline,headwise"; /* adding arms and seeds is fine */
    s.params.seeds = "1,3";
    sluice_study_summary summary = run_ok(&s);
    assert_true(summary.runs == 4 && summary.failed == 0);
}

static void test_nothing_measured(void **state) {
    (void)state;
    setup s;
    make(&s, UPDATES, CASE_ARMS);
    s.params.arms = "wild";
    refused(&s, "no run could be measured");
    json_t *r = load_results(s.out);
    assert_string_equal(status_of(r, "wild", 1), "diverged");
    json_decref(r);
}

static void test_refused(void **state) {
    (void)state;
    setup s;
    make(&s, UPDATES, CASE_ARMS);
    s.params.recipe = "sinc";
    refused(&s, "known ones are quick");
    s.params.recipe = s.recipe;
    s.params.max_steps = 1;
    refused(&s, "warmup_steps");
    s.params.max_steps = 0;
    s.params.output_dir = "/proc/no";
    refused(&s, "/proc/no");
    s.params.output_dir = s.out;
    s.texts[0] = "/nonexistent/text.txt";
    refused(&s, "/nonexistent/text.txt");
    s.texts[0] = s.text;
    assert_ok(sluice__write_file(s.text, "too short", 9, NULL));
    refused(&s, "text");
    s.params.parallel_arms = -1;
    refused(&s, "parallel_arms");
    assert_false(exists(&s, "arms/baseline/seed-1"));
}

static void test_missing_corpus(void **state) {
    (void)state;
    setup s;
    make(&s, UPDATES, CASE_ARMS);
    char *old = strdup(getenv("PATH"));
    setenv("PATH", s.dir, 1);
    s.params.num_texts = 0;
    refused(&s, "apt install bible-kjv");
    setenv("PATH", old, 1);
    free(old);
}

int main(void) {
    sluice_set_num_threads(2);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_whole),
        cmocka_unit_test(test_overfitting),
                                       cmocka_unit_test(test_same_data_within_a_seed),
                                       cmocka_unit_test(test_interrupted),
                                       cmocka_unit_test(test_lost_result),
                                       cmocka_unit_test(test_continued_with_other_settings),
                                       cmocka_unit_test(test_nothing_measured),
                                       cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_missing_corpus)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
