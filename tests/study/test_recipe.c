/* SPDX-License-Identifier: Apache-2.0 */
/* Recipes: the built-in ones are whole, changes of the command line reach every arm, and every mistake is named. */
#include "support/test_support.h"
#include "base/asset.h"
#include "base/file.h"
#include "study/recipe.h"
#include <stdio.h>
#include <string.h>

static const sluice__recipe_changes none = {0};

/* Every scale that the recipe names can be trained: names of keys are checked by any load, values by this one. */
static void test_every_scale(const char *name) {
    size_t size;
    const char *text = sluice__recipe_text(name, &size), *scale;
    json_t *root = json_loadb(text, size, 0, NULL), *value;
    json_object_foreach(json_object_get(root, "scales"), scale, value) {
        sluice__recipe r;
        sluice_error err = {0};
        assert_ok_err(sluice__recipe_load(&r, name, &(sluice__recipe_changes){.scale = scale}, &err), &err);
        assert_string_equal(r.scale, scale);
        sluice__recipe_free(&r);
    }
    json_decref(root);
}

static void test_builtin(void **state) {
    (void)state;
    int assets = 0, names = 0;
    for (const sluice__asset_entry *a = sluice__assets; a->name; a++) assets += !strncmp(a->name, "recipes/", 8);
    for (const char *name; (name = sluice__recipe_builtin(names)); names++) {
        sluice__recipe r;
        sluice_error err = {0};
        assert_ok_err(sluice__recipe_load(&r, name, &none, &err), &err);
        assert_string_equal(r.name, name);
        assert_true(strlen(r.title) > 10 && r.num_arms >= 3);
        sluice__recipe_free(&r);
        test_every_scale(name);
    }
    assert_int_equal(names, assets);
}

static int64_t parameters(const sluice__recipe *r, int arm) {
    sluice_train_params p;
    sluice_config c;
    assert_ok(sluice__arm_params(&p, &r->arms[arm], 1, NULL));
    assert_ok(sluice__arm_config(&c, NULL, &r->arms[arm], &p, NULL, (int)sluice__arm_vocab_size(&r->arms[arm]), NULL));
    int64_t n = sluice_config_num_parameters(&c);
    sluice_config_free(&c);
    return n;
}

static void test_matched_arms(void **state) {
    (void)state;
    const struct {
        const char *name;
        int64_t least, most;
    } cases[] = {{"quick", 224000, 226000}, {"sink", 224000, 226000}, {"sink-deep", 317000, 322000}};
    for (int i = 0; i < 3; i++) {
        sluice__recipe r;
        assert_ok(sluice__recipe_load(&r, cases[i].name, &none, NULL));
        for (int a = 0; a < r.num_arms; a++) assert_in_range(parameters(&r, a), cases[i].least, cases[i].most);
        sluice__recipe_free(&r);
    }
}

static void test_options_of_a_run(void **state) {
    (void)state;
    sluice__recipe r;
    sluice_train_params p;
    assert_ok(sluice__recipe_load(&r, "sink-factors", &none, NULL));
    assert_ok(sluice__arm_params(&p, &r.arms[0], 7, NULL));
    assert_true(p.seed == 7 && p.data_seed == 7 && p.max_steps == 1600 && p.learning_rate == 0.003 && p.seq_len == 64);
    assert_true(p.bos == SLUICE_BOS_WINDOW && p.split == SLUICE_SPLIT_PARTS && !p.append_eos && p.logging_steps == 1);
    int changed = 0;
    for (int a = 1; a < r.num_arms; a++) {
        assert_ok(sluice__arm_params(&p, &r.arms[a], 7, NULL));
        changed += p.learning_rate != 0.003 || p.seq_len != 64 || p.bos != SLUICE_BOS_WINDOW;
    }
    assert_int_equal(changed, 4);
    sluice__recipe_free(&r);
}

static void test_changes(void **state) {
    (void)state;
    sluice__recipe r;
    sluice__recipe_changes c = {.arms = "elementwise,baseline", .seeds = "5,0,12", .max_steps = 9};
    assert_ok(sluice__recipe_load(&r, "quick", &c, NULL));
    assert_int_equal(r.num_arms, 2);
    assert_string_equal(r.arms[0].name, "elementwise");
    assert_int_equal(r.num_seeds, 3);
    assert_int_equal(r.seeds[2], 12);
    sluice_train_params p;
    assert_ok(sluice__arm_params(&p, &r.arms[1], 0, NULL));
    assert_int_equal(p.max_steps, 9);
    assert_int_equal(json_array_size(json_object_get(r.root, "arms")), 2);
    sluice__recipe_free(&r);
}

static void refused_change(sluice__recipe_changes c, const char *word) {
    sluice__recipe r;
    sluice_error err = {0};
    assert_int_not_equal(sluice__recipe_load(&r, "quick", &c, &err), SLUICE_OK);
    if (!strstr(err.message, word)) fail_msg("\"%s\" does not name %s", err.message, word);
}

static void test_refused_changes(void **state) {
    (void)state;
    refused_change((sluice__recipe_changes){.arms = "baseline,headwis"}, "headwis");
    refused_change((sluice__recipe_changes){.arms = "baseline,baseline"}, "baseline");
    refused_change((sluice__recipe_changes){.seeds = "1,x"}, "seeds");
    refused_change((sluice__recipe_changes){.seeds = "1,1"}, "twice");
    refused_change((sluice__recipe_changes){.seeds = ""}, "seeds");
    refused_change((sluice__recipe_changes){.seeds = "-1"}, "seeds");
    refused_change((sluice__recipe_changes){.seeds = "1,2,3,4,5,6,7,8,9,10,11"}, "1..10");
}

static void test_unknown_recipe(void **state) {
    (void)state;
    sluice__recipe r;
    sluice_error err = {0};
    assert_int_equal(sluice__recipe_load(&r, "quik", &none, &err), SLUICE_ERR_ARGUMENT);
    for (int i = 0; sluice__recipe_builtin(i); i++) assert_non_null(strstr(err.message, sluice__recipe_builtin(i)));
}

#define ARM "{\"name\": \"a\"}"
#define DATA "\"data\": {\"seq_len\": 16, \"vocab_size\": 300}"

/* Each text with a word that the message has to hold. */
static const char *const mistakes[][2] = {
    {"", "JSON"},
    {"[]", "object"},
    {"{}", "name"},
    {"{\"name\": \"x\"}", "arms"},
    {"{\"name\": \"../x\", \"arms\": [" ARM "]}", "name"},
    {"{\"name\": \"x\", \"arms\": []}", "arms"},
    {"{\"name\": \"x\", \"arms\": [3]}", "arms[0]"},
    {"{\"name\": \"x\", \"arms\": [{}]}", "arms[0].name"},
    {"{\"name\": \"x\", \"arms\": [" ARM ", " ARM "]}", "twice"},
    {"{\"name\": \"x\", \"arms\": [{\"name\": \"a/b\"}]}", "a/b"},
    {"{\"name\": \"x\", \"arm\": []}", "arm"},
    {"{\"name\": \"x\", \"arms\": [{\"name\": \"a\", \"confg\": {}}]}", "confg"},
    {"{\"name\": \"x\", \"arms\": [{\"name\": \"a\", \"config\": {\"gate_positon\": \"sdpa\"}}]}",
     "arms[0].config.gate_positon"},
    {"{\"name\": \"x\", \"arms\": [{\"name\": \"a\", \"config\": {\"gate_position\": \"sdp\"}}]}", "gate_position"},
    {"{\"name\": \"x\", \"arms\": [{\"name\": \"a\", \"config\": {\"num_hidden_layers\": 0}}]}", "num_hidden_layers"},
    {"{\"name\": \"x\", \"arms\": [{\"name\": \"a\", \"config\": {\"num_attention_heads\": 3}}]}", "arm \"a\""},
    {"{\"name\": \"x\", \"model\": {\"vocab_size\": 9}, \"arms\": [" ARM "]}", "model.vocab_size"},
    {"{\"name\": \"x\", \"training\": {\"learning_rat\": 1}, \"arms\": [" ARM "]}", "training.learning_rat"},
    {"{\"name\": \"x\", \"training\": {\"learning_rate\": -1}, \"arms\": [" ARM "]}", "learning_rate"},
    {"{\"name\": \"x\", \"training\": {\"learning_rate\": \"fast\"}, \"arms\": [" ARM "]}", "training.learning_rate"},
    {"{\"name\": \"x\", \"training\": {\"learning_rate\": [1]}, \"arms\": [" ARM "]}", "training.learning_rate"},
    {"{\"name\": \"x\", \"training\": {\"seq_len\": 8}, \"arms\": [" ARM "]}", "training.seq_len"},
    {"{\"name\": \"x\", \"training\": {\"seed\": 8}, \"arms\": [" ARM "]}", "a study sets this option itself"},
    {"{\"name\": \"x\", \"training\": {\"output_dir\": \"/\"}, \"arms\": [" ARM "]}", "output_dir"},
    {"{\"name\": \"x\", \"data\": {\"kind\": \"image\"}, \"arms\": [" ARM "]}", "data.kind"},
    {"{\"name\": \"x\", \"data\": {\"vocab_size\": 257}, \"arms\": [" ARM "]}", "data.vocab_size"},
    {"{\"name\": \"x\", \"data\": {\"kind\": \"backcopy\"}, \"arms\": [" ARM "]}", "data.symbols"},
    {"{\"name\": \"x\", \"data\": 4, \"arms\": [" ARM "]}", "data"},
    {"{\"name\": \"x\", \"seeds\": [], \"arms\": [" ARM "]}", "seeds"},
    {"{\"name\": \"x\", \"seeds\": [1, -1], \"arms\": [" ARM "]}", "seeds[1]"},
    {"{\"name\": \"x\", \"seeds\": \"1\", \"arms\": [" ARM "]}", "seeds"},
    {"{\"name\": \"x\", \"evaluation\": {\"lengths\": [2, 3]}, \"arms\": [" ARM "]}", "evaluation.lengths"},
    {"{\"name\": \"x\", \"evaluation\": {\"lengths\": 2}, \"arms\": [" ARM "]}", "evaluation.lengths"},
    {"{\"name\": \"x\", \"evaluation\": {\"prompts\": [\"\"]}, \"arms\": [" ARM "]}", "evaluation.prompts"},
    {"{\"name\": \"x\", \"evaluation\": {\"map_tokens\": 1}, \"arms\": [" ARM "]}", "evaluation.map_tokens"},
    {"{\"name\": \"x\", \"evaluation\": {\"sentences\": \"a\"}, \"arms\": [" ARM "]}", "evaluation.sentences"},
    {"{\"name\": \"x\", \"evaluation\": {\"temperature\": -1}, \"arms\": [" ARM "]}", "evaluation.temperature"},
};

static void test_mistakes(void **state) {
    (void)state;
    char path[512];
    snprintf(path, sizeof path, "%s/recipe.json", test_temp_dir());
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        sluice__recipe r;
        sluice_error err = {0};
        assert_ok(sluice__write_file(path, mistakes[i][0], strlen(mistakes[i][0]), NULL));
        assert_int_not_equal(sluice__recipe_load(&r, path, &none, &err), SLUICE_OK);
        if (!strstr(err.message, mistakes[i][1]) || !strstr(err.message, "recipe.json"))
            fail_msg("%s\ngives \"%s\", which lacks \"%s\"", mistakes[i][0], err.message, mistakes[i][1]);
    }
}

#define SCALED                                                                                                         \
    "{\"name\": \"x\", \"seeds\": [1, 2], \"training\": {\"max_steps\": 50, \"learning_rate\": 0.01}, "                  \
    "\"data\": {\"seq_len\": 16, \"vocab_size\": 300}, "                                                              \
    "\"scales\": {\"smallest\": {\"seeds\": [7], \"training\": {\"max_steps\": 5, \"learning_rate\": null}, "          \
    "\"arms\": {\"b\": null, \"c\": {\"config\": {\"num_attention_heads\": 2}}}}, \"large\": {%s}}, "                \
    "\"arms\": [" ARM ", {\"name\": \"b\"}, "                                                                        \
    "{\"name\": \"c\", \"config\": {\"hidden_size\": 64, \"num_attention_heads\": 8}}]}"

static sluice_status load_scaled(sluice__recipe *r, const char *large, const char *scale, sluice_error *err) {
    char path[512], text[2048];
    snprintf(path, sizeof path, "%s/scaled.json", test_temp_dir());
    snprintf(text, sizeof text, SCALED, large);
    assert_ok(sluice__write_file(path, text, strlen(text), NULL));
    return sluice__recipe_load(r, path, &(sluice__recipe_changes){.scale = scale}, err);
}

static void test_scales(void **state) {
    (void)state;
    sluice__recipe r;
    sluice_error err = {0};
    assert_ok_err(load_scaled(&r, "", NULL, &err), &err);
    assert_string_equal(r.scale, "normal");
    assert_true(r.num_seeds == 2 && r.num_arms == 3);
    assert_int_equal(json_integer_value(json_object_get(r.arms[0].training, "max_steps")), 50);
    assert_null(json_object_get(r.root, "scales"));
    sluice__recipe_free(&r);
    assert_ok_err(load_scaled(&r, "", "smallest", &err), &err);
    assert_string_equal(r.scale, "smallest");
    assert_true(r.num_seeds == 1 && r.seeds[0] == 7 && r.num_arms == 2);
    assert_string_equal(r.arms[1].name, "c");
    assert_int_equal(json_integer_value(json_object_get(r.arms[1].config, "num_attention_heads")), 2);
    assert_int_equal(json_integer_value(json_object_get(r.arms[1].config, "hidden_size")), 64);
    assert_int_equal(json_integer_value(json_object_get(r.arms[0].training, "max_steps")), 5);
    assert_null(json_object_get(r.arms[0].training, "learning_rate"));
    sluice__recipe_free(&r);
}

static void test_refused_scales(void **state) {
    (void)state;
    static const struct {
        const char *large, *scale, *word;
    } cases[] = {{"", "huge", "smallest, large"},
                 {"\"modl\": {}", NULL, "scales.large.modl"},
                 {"\"name\": \"y\"", NULL, "scales.large.name"},
                 {"\"model\": {\"hidden_siz\": 8}", NULL, "(scale large): model.hidden_siz"},
                 {"\"model\": {\"hidden_size\": 0}", "large", "hidden_size"},
                 {"\"arms\": []", NULL, "scales.large.arms"},
                 {"\"arms\": {\"d\": null}", NULL, "scales.large.arms.d"},
                 {"\"arms\": {\"a\": 3}", NULL, "scales.large.arms.a"},
                 {"\"arms\": {\"a\": {\"name\": \"z\"}}", NULL, "keeps its name"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sluice__recipe r;
        sluice_error err = {0};
        assert_int_not_equal(load_scaled(&r, cases[i].large, cases[i].scale, &err), SLUICE_OK);
        if (!strstr(err.message, cases[i].word)) fail_msg("\"%s\" lacks \"%s\"", err.message, cases[i].word);
    }
}

static void test_smallest(void **state) {
    (void)state;
    char path[512];
    snprintf(path, sizeof path, "%s/small.json", test_temp_dir());
    const char *text = "{\"name\": \"x\", " DATA ", \"arms\": [" ARM "]}";
    assert_ok(sluice__write_file(path, text, strlen(text), NULL));
    sluice__recipe r;
    sluice_error err = {0};
    assert_ok_err(sluice__recipe_load(&r, path, &none, &err), &err);
    assert_string_equal(r.title, "x");
    assert_string_equal(r.arms[0].label, "a");
    assert_true(r.num_seeds == 1 && r.evaluation.num_lengths == 3 && r.evaluation.inspect_windows == 64);
    sluice__recipe_free(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_builtin),          cmocka_unit_test(test_matched_arms),
                                       cmocka_unit_test(test_options_of_a_run), cmocka_unit_test(test_changes),
                                       cmocka_unit_test(test_refused_changes),  cmocka_unit_test(test_unknown_recipe),
                                       cmocka_unit_test(test_mistakes),         cmocka_unit_test(test_smallest),
                                       cmocka_unit_test(test_scales),           cmocka_unit_test(test_refused_scales)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
