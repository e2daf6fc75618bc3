/* SPDX-License-Identifier: Apache-2.0 */
/* The report writer: one page out of results, hostile text kept as text, malformed results refused
 * by field name. Called with `--write IN OUT` the program only writes a page, which is how
 * test_page.py makes what it looks at. */
#include "support/test_support.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/strbuf.h"
#include "study/report.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char MINIMAL[] =
    "{\"format\": \"sluice-study-1\", \"title\": \"T\", \"arms\": [{\"name\": \"a\", \"runs\": "
    "[{\"seed\": 1, \"status\": \"failed\", \"error\": \"x\"}]}]}";

static char *written(const char *json) {
    sluice_error err = {0};
    char path[256], *text;
    snprintf(path, sizeof path, "%s/report.html", test_temp_dir());
    assert_ok_err(sluice__report_write(json, strlen(json), path, &err), &err);
    assert_ok_err(sluice__read_file(&text, NULL, path, 8 << 20, &err), &err);
    return text;
}

static size_t count(const char *text, const char *what) {
    size_t n = 0;
    for (; (text = strstr(text, what)); text += strlen(what)) n++;
    return n;
}

static void page_is_one_complete_file(void **state) {
    (void)state;
    char *html = written(MINIMAL);
    assert_non_null(strstr(html, "<title>T</title>"));
    assert_non_null(strstr(html, "Chart.js v3"));
    assert_null(strstr(html, "{{"));
    assert_int_equal(count(html, "<script"), count(html, "</script>"));
    assert_int_equal(count(html, "<script"), 3);
    assert_int_equal(count(html, "src=\"") + count(html, "@import"), 0);
    assert_int_equal(count(html, "url("), count(html, "url(#")); /* of a figure's own parts only */
    assert_non_null(strstr(html, "\"arms\":[{\"name\":\"a\""));
    sluice__free(html);
}

static void hostile_text_stays_inside_its_element(void **state) {
    (void)state;
    char *html =
        written("{\"format\": \"sluice-study-1\", \"title\": "
                "\"</title><script>x</script>\\u2028\", \"arms\": ["
                "{\"name\": \"</script><img src=1 onerror=alert(1)><!--\", \"runs\": []}]}");
    assert_int_equal(count(html, "</script>"), 3);
    assert_int_equal(count(html, "</title>"), 1);
    assert_null(strstr(html, "<img"));
    assert_null(strstr(html, "<!--"));
    assert_null(strstr(strstr(html, "id=\"data\""), "\xe2\x80\xa8"));
    assert_non_null(strstr(html, "\\u003c/script>\\u003cimg"));
    assert_non_null(strstr(html, "\\u2028"));
    sluice__free(html);
}

static void malformed_results_are_refused_by_name(void **state) {
    (void)state;
    static const struct {
        const char *json, *said;
    } cases[] = {
        {"", "not valid JSON"},
        {"{\"format\": ", "not valid JSON"},
        {"[]", "expected an object"},
        {"{\"arms\": []}", "format: missing"},
        {"{\"format\": \"sluice-study-9\"}", "format: found \"sluice-study-9\""},
        {"{\"format\": \"sluice-study-1\"}", "arms: missing"},
        {"{\"format\": \"sluice-study-1\", \"arms\": []}", "arms: no arm"},
        {"{\"format\": \"sluice-study-1\", \"arms\": {}}", "arms: expected an array of objects"},
        {"{\"format\": \"sluice-study-1\", \"arms\": [3]}",
         "arms: element 0: expected an array of objects"},
        {"{\"format\": \"sluice-study-1\", \"arms\": [{\"runs\": []}]}", "arms[0].name: missing"},
        {"{\"format\": \"sluice-study-1\", \"arms\": [{\"name\": \"a\"}]}",
         "arms[0].runs: missing"},
        {"{\"format\": \"sluice-study-1\", \"arms\": [{\"name\": \"a\", \"runs\": [{\"seed\": "
         "1}]}]}",
         "arms[0].runs[0].status: missing"},
        {"{\"format\": \"sluice-study-1\", \"arms\": [{\"name\": \"a\", \"runs\": [{\"seed\": 1, "
         "\"status\": \"done\", "
         "\"train\": {\"loss\": [1, \"two\"]}}]}]}",
         "arms[0].runs[0].train.loss: element 1: expected an array of numbers"},
        {"{\"format\": \"sluice-study-1\", \"arms\": [{\"name\": \"a\", \"runs\": [{\"seed\": 1, "
         "\"status\": \"done\", "
         "\"inspect\": {\"layers\": [{\"gate\": {\"mean\": \"high\"}}]}}]}]}",
         "arms[0].runs[0].inspect.layers[0].gate.mean: expected a number"},
        {"{\"format\": \"sluice-study-1\", \"title\": 7, \"arms\": []}",
         "title: expected a string"},
    };
    char path[256];
    snprintf(path, sizeof path, "%s/report.html", test_temp_dir());
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sluice_error err = {0};
        assert_int_not_equal(sluice__report_write(cases[i].json, strlen(cases[i].json), path, &err),
                             SLUICE_OK);
        if (!strstr(err.message, cases[i].said))
            fail_msg("expected \"%s\" in \"%s\"", cases[i].said, err.message);
        assert_non_null(strstr(err.message, "results.json"));
        assert_int_equal(access(path, F_OK), -1);
    }
}

static void failed_write_leaves_the_old_page(void **state) {
    (void)state;
    sluice_error err = {0};
    char path[256], *text;
    snprintf(path, sizeof path, "%s/report.html", test_temp_dir());
    assert_ok_err(sluice__write_file(path, "old", 3, &err), &err);
    assert_int_not_equal(sluice__report_write("{}", 2, path, &err), SLUICE_OK);
    assert_ok_err(sluice__read_file(&text, NULL, path, 10, &err), &err);
    assert_string_equal(text, "old");
    sluice__free(text);
    assert_int_equal(
        sluice__report_write(MINIMAL, strlen(MINIMAL), "/proc/nowhere/report.html", &err),
        SLUICE_ERR_IO);
    assert_non_null(strstr(err.message, "/proc/nowhere/report.html"));
}

/* Two arms, two seeds, four layers with one head each, `bytes` of map per head. */
static void add_arms_with_maps(sluice__strbuf *b, size_t bytes) {
    for (int arm = 0; arm < 2; arm++) {
        sluice__strbuf_printf(b, "%s{\"name\": \"a%d\", \"runs\": [", arm ? "," : "", arm);
        for (int seed = 0; seed < 2; seed++) {
            sluice__strbuf_printf(b,
                                  "%s{\"seed\": %d, \"status\": \"%s\", \"attention_map\": "
                                  "{\"tokens\": [\"t\"], \"layers\": [",
                                  seed ? "," : "", seed,
                                  arm == 1 && seed == 0 ? "diverged" : "done");
            for (int layer = 0; layer < 4; layer++) {
                sluice__strbuf_printf(b, "%s[\"map-%d-%d-%d:", layer ? "," : "", arm, seed, layer);
                for (size_t i = 0; i < bytes; i++) sluice__strbuf_add(b, "A", 1);
                sluice__strbuf_puts(b, "\"]");
            }
            sluice__strbuf_puts(b, "]}}");
        }
        sluice__strbuf_puts(b, "]}");
    }
}

static void big_maps_stay_for_one_seed_and_some_layers(void **state) {
    (void)state;
    static const struct {
        size_t bytes;
        const char *kept, *dropped, *note;
    } cases[] = {{1000, "map-0-1-0", "map-9", ""},
                 {200000, "map-0-0-0", "map-0-1-0", "first finished seed"},
                 {400000, "map-1-1-3", "map-1-0-3", "evenly spread layers"}};
    for (size_t i = 0; i < 3; i++) {
        sluice__strbuf b = {0};
        sluice__strbuf_puts(&b, "{\"format\": \"sluice-study-1\", \"arms\": [");
        add_arms_with_maps(&b, cases[i].bytes);
        sluice__strbuf_puts(&b, "]}");
        assert_false(b.failed);
        char *html = written(b.data);
        assert_non_null(strstr(html, cases[i].kept));
        assert_null(strstr(html, cases[i].dropped));
        assert_non_null(strstr(html, cases[i].note));
        assert_int_equal(count(html, "map-"), i == 0 ? 16 : i == 1 ? 8 : 4);
        sluice__free(html);
        sluice__strbuf_free(&b);
    }
}

static void long_curves_are_thinned_but_keep_spikes(void **state) {
    (void)state;
    enum { POINTS = 150000, SPIKE = 77777 };
    sluice__strbuf b = {0};
    sluice__strbuf_puts(&b, "{\"format\": \"sluice-study-1\", \"arms\": [{\"name\": \"a\", "
                            "\"runs\": [{\"seed\": 1, \"status\": \"done\", "
                            "\"train\": {\"spikes\": {\"events\": [77777]}, \"step\": [0");
    for (int i = 1; i < POINTS; i++) sluice__strbuf_printf(&b, ",%d", i);
    sluice__strbuf_puts(&b, "], \"loss\": [0.5");
    for (int i = 1; i < POINTS; i++) sluice__strbuf_puts(&b, i == SPIKE ? ",9.25" : ",1.5");
    sluice__strbuf_puts(&b, "]}}]}]}");
    assert_false(b.failed);
    char *html = written(b.data), *data = strstr(html, "id=\"data\"");
    assert_int_equal(count(data, ",1.5"),
                     POINTS /
                         3); /* every third of the 149999 and the last one, without the first */
    assert_int_equal(count(data, ",9.25"), 1);
    assert_non_null(strstr(data, "77775,77777,77778,"));
    assert_non_null(strstr(data, "149997,149999]"));
    assert_non_null(strstr(data, "curves are thinned"));
    sluice__free(html);
    sluice__strbuf_free(&b);
}

static int write_page(const char *in, const char *out) {
    sluice_error err = {0};
    char *text;
    size_t size;
    sluice_status st = sluice__read_file(&text, &size, in, (size_t)256 << 20, &err);
    if (st == SLUICE_OK) {
        st = sluice__report_write(text, size, out, &err);
        sluice__free(text);
    }
    if (st != SLUICE_OK) fprintf(stderr, "%s\n", err.message);
    return st == SLUICE_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[1], "--write") == 0) return write_page(argv[2], argv[3]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(page_is_one_complete_file),
        cmocka_unit_test(hostile_text_stays_inside_its_element),
        cmocka_unit_test(malformed_results_are_refused_by_name),
        cmocka_unit_test(failed_write_leaves_the_old_page),
        cmocka_unit_test(big_maps_stay_for_one_seed_and_some_layers),
        cmocka_unit_test(long_curves_are_thinned_but_keep_spikes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
