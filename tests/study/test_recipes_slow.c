/* SPDX-License-Identifier: Apache-2.0 */
/* Every built-in recipe that has a smallest scale, run by the program to its end: each arm and seed measured, results
 * complete, a page drawn. */
#include "study/study_case.h"
#include "base/memory.h"
#include "study/recipe.h"
#include <math.h>

static char dir[128];

/* Text of 900 made-up words, common ones first (Zipf), in sentences and paragraphs. */
static void write_text(void) {
    enum { WORDS = 900, COUNT = 90000 };
    static char words[WORDS][12];
    static const char *const syllables[] = {"ka", "lo", "mi", "ren", "tu", "sa", "vel", "dor", "pi", "nas", "e", "os"};
    sluice__strbuf text = {0};
    char path[256];
    unsigned x = 7;
    for (int w = 0; w < WORDS; w++)
        for (int s = 0, left = w; s < 3 && (left || !s); s++, left /= 12)
            snprintf(words[w] + strlen(words[w]), sizeof words[w] - strlen(words[w]), "%s", syllables[left % 12]);
    for (int i = 0; i < COUNT; i++) {
        x = x * 1664525u + 1013904223u;
        double u = ((x >> 8) + 0.5) / (1 << 24);
        const char *word = words[(int)(pow(WORDS, u) - 1)];
        bool end = x >> 28 == 3;
        sluice__strbuf_printf(&text, "%s%s", word, end ? i % 7 ? ". " : ".\n" : " ");
    }
    snprintf(path, sizeof path, "%s/text.txt", dir);
    assert_ok(sluice__write_file(path, text.data, text.size, NULL));
    sluice__strbuf_free(&text);
}

static void check_run(const char *recipe, const json_t *arm, const json_t *run) {
    static const char *const sections[] = {"train", "eval", "inspect", "attention_map", "position", "length", "samples"};
    const char *name = json_string_value(json_object_get(arm, "name"));
    const char *status = json_string_value(json_object_get(run, "status"));
    if (json_object_get(arm, "rung") && status && !strcmp(status, "diverged")) return; /* what a ladder looks for */
    if (!status || strcmp(status, "done"))
        fail_msg("%s: arm %s: %s: %s", recipe, name, status ? status : "no status",
                 json_string_value(json_object_get(run, "error")));
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        if (!json_object_get(run, sections[i]) || json_is_null(json_object_get(run, sections[i])))
            fail_msg("%s: arm %s has no %s", recipe, name, sections[i]);
    assert_true(json_is_number(json_object_get(json_object_get(run, "eval"), "loss")));
    json_int_t experts = json_integer_value(json_object_get(json_object_get(arm, "config"), "num_experts"));
    const json_t *layers = json_object_get(json_object_get(run, "router"), "layers");
    assert_true((experts > 0) == (json_array_size(layers) > 0));
    if (experts)
        assert_int_equal(json_array_size(json_object_get(json_array_get(layers, 0), "load")), experts);
}

static void check_results(const char *recipe, const char *out) {
    json_t *results = load_results(out), *arm, *run;
    json_t *asked = json_object_get(results, "recipe");
    size_t i, k, seeds = json_array_size(json_object_get(asked, "seeds"));
    assert_string_equal(json_string_value(json_object_get(asked, "scale")), "smallest");
    assert_int_equal(json_array_size(json_object_get(results, "arms")), json_array_size(json_object_get(asked, "arms")));
    json_array_foreach(json_object_get(results, "arms"), i, arm) {
        assert_int_equal(json_array_size(json_object_get(arm, "runs")), seeds);
        json_array_foreach(json_object_get(arm, "runs"), k, run) check_run(recipe, arm, run);
    }
    assert_true(json_array_size(json_object_get(results, "findings")) > 1);
    assert_true(!json_object_get(asked, "ladder") == !json_array_size(json_object_get(results, "ladders")));
    json_decref(results);
}

static void run_recipe(const char *recipe) {
    char command[1024], path[256], *output, *page;
    size_t size;
    snprintf(path, sizeof path, "%s/%s", dir, recipe);
    snprintf(command, sizeof command, "%s study --recipe %s --scale smallest -t %s/text.txt -o %s --threads 2 --quiet",
             SLUICE_PROGRAM, recipe, dir, path);
    if (test_run(command, &output) != 0) fail_msg("%s\n%s", command, output);
    free(output);
    check_results(recipe, path);
    snprintf(path, sizeof path, "%s/%s/report.html", dir, recipe);
    assert_ok(sluice__read_file(&page, &size, path, 64 << 20, NULL));
    assert_true(size > 100000 && strstr(page, "</html>"));
    sluice__free(page);
}

static void test_smallest_scales(void **state) {
    (void)state;
    int found = 0;
    for (int i = 0; sluice__recipe_builtin(i); i++) {
        size_t size;
        const char *name = sluice__recipe_builtin(i), *text = sluice__recipe_text(name, &size);
        json_t *root = json_loadb(text, size, 0, NULL);
        if (json_object_get(json_object_get(root, "scales"), "smallest")) {
            run_recipe(name);
            found++;
        }
        json_decref(root);
    }
    assert_true(found >= 2);
}

int main(void) {
    snprintf(dir, sizeof dir, "%s", test_temp_dir());
    write_text();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_smallest_scales)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
