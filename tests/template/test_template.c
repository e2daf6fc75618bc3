/* SPDX-License-Identifier: Apache-2.0 */
/* Chat templates: what jinja2 makes of them (recorded by record.py), what is refused and how, budgets, and damaged
 * templates, which may fail but nothing worse. */
#include "support/test_support.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/rng.h"
#include "base/strbuf.h"
#include "sluice/template.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOW = 1764547200 };

static sluice_status render_limited(const char *text, size_t size, const char *variables,
                                    const sluice_template_limits *limits, sluice_text *out, sluice_error *err) {
    sluice_template *t;
    out->size = 0;
    sluice_status st = sluice_template_parse(&t, text, size, "test", err);
    if (st == SLUICE_OK) st = sluice_template_render(t, variables, limits, out, err);
    sluice_template_free(t);
    return st;
}

static sluice_status render(const char *text, const char *variables, sluice_text *out, sluice_error *err) {
    sluice_template_limits limits = sluice_template_limits_default();
    limits.now = NOW;
    return render_limited(text, strlen(text), variables, &limits, out, err);
}

static char *template_file(const char *name) {
    sluice_error err = {0};
    char path[256], *text;
    size_t size;
    snprintf(path, sizeof path, "templates/%s", name);
    assert_ok_err(sluice__read_file(&text, &size, test_data(path), 1 << 20, &err), &err);
    return text;
}

static char *variables_of(json_t *all, json_t *one) {
    json_t *v = json_deep_copy(json_object_get(one, "variables"));
    if (!v) return json_dumps(json_object_get(all, "variables"), 0);
    json_t *list = json_object_get(all, "conversations");
    json_object_set(v, "messages",
                    json_array_get(list, (size_t)json_integer_value(json_object_get(one, "conversation"))));
    json_t *tools = json_is_true(json_object_get(one, "tools")) ? json_object_get(all, "tools") : json_null();
    json_object_set(v, "tools", tools);
    char *text = json_dumps(v, 0);
    json_decref(v);
    return text;
}

static void recorded_texts_come_out(void **state) {
    (void)state;
    sluice_error err = {0};
    sluice_text out = {0};
    json_t *all, *one;
    size_t i, refused = 0;
    setenv("TZ", "UTC", 1);
    assert_ok_err(sluice__json_load(&all, test_data("templates/cases.json"), &err), &err);
    json_t *cases = json_object_get(all, "cases");
    assert_true(json_array_size(cases) > 100);
    json_array_foreach(cases, i, one) {
        const char *file = json_string_value(json_object_get(one, "file"));
        char *text = file ? template_file(file) : NULL, *variables = variables_of(all, one);
        json_t *want = json_object_get(one, "text");
        sluice_status st =
            render(text ? text : json_string_value(json_object_get(one, "template")), variables, &out, &err);
        if (json_is_null(want)) {
            assert_int_equal(st, SLUICE_ERR_ARGUMENT);
            refused++;
        } else {
            assert_ok_err(st, &err);
            assert_int_equal(out.size, json_string_length(want));
            assert_memory_equal(out.data, json_string_value(want), out.size);
        }
        sluice__free(text);
        free(variables);
    }
    assert_true(refused > 0 && refused < i / 2);
    sluice_text_free(&out);
    json_decref(all);
}

static void refused(const char *text, sluice_status st, const char *mention) {
    sluice_error err = {0};
    sluice_text out = {0};
    sluice_status found = render(text, "{\"n\": 7, \"l\": [1, 2]}", &out, &err);
    if (found != st || !strstr(err.message, mention))
        fail_msg("%s: status %d, expected %d, and \"%s\" in: %s", text, found, st, mention, err.message);
    sluice_text_free(&out);
}

static void what_is_refused_is_named_with_its_line(void **state) {
    (void)state;
    refused("a\n\n{% include 'x' %}", SLUICE_ERR_UNSUPPORTED, "line 3: the statement {% include %}");
    refused("{% extends 'x' %}", SLUICE_ERR_UNSUPPORTED, "extends");
    refused("\n{{ n|urlize }}", SLUICE_ERR_UNSUPPORTED, "line 2: the filter \"urlize\"");
    refused("{{ n is escaped }}", SLUICE_ERR_UNSUPPORTED, "the test \"escaped\"");
    refused("{{ cycler(1) }}", SLUICE_ERR_UNSUPPORTED, "cycler");
    refused("{{ ('a'|safe) ~ 'b' }}", SLUICE_ERR_UNSUPPORTED, "safe");
    refused("{{ f(*l) }}", SLUICE_ERR_UNSUPPORTED, "* in a call");
    refused("{% for x in l recursive %}{% endfor %}", SLUICE_ERR_UNSUPPORTED, "recursive");
    refused("{{ 'x'.encode() }}", SLUICE_ERR_UNSUPPORTED, "encode");
    refused("{{ 9999999999 * 9999999999 }}", SLUICE_ERR_UNSUPPORTED, "64 bits");
    refused("{{ 99999999999999999999 }}", SLUICE_ERR_UNSUPPORTED, "64 bits");
    refused("{{ n ** 99 }}", SLUICE_ERR_UNSUPPORTED, "64 bits");
    refused("{% if n %}", SLUICE_ERR_FORMAT, "endif");
    refused("x\n{% nonsense %}", SLUICE_ERR_FORMAT, "line 2: unknown tag \"nonsense\"");
    refused("{{ n", SLUICE_ERR_FORMAT, "line 1");
    refused("{{ 'abc }}", SLUICE_ERR_FORMAT, "string");
    refused("{{ \xff }}", SLUICE_ERR_FORMAT, "UTF-8");
    refused("\n\n{{ raise_exception('no ' ~ n) }}", SLUICE_ERR_ARGUMENT, "line 3: no 7");
    refused("{{ nobody.x }}", SLUICE_ERR_ARGUMENT, "nobody");
}

static void budgets_hold(void **state) {
    (void)state;
    refused("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", SLUICE_ERR_UNSUPPORTED,
            "too m");
    refused("{% for a in range(99999) if a is divisibleby 7 and a is divisibleby 11 and (a ~ a ~ a ~ a)|length > 10 "
            "%}{% endfor %}"
            "{% for a in range(9999) %}{{ l == l and n ~ n == n|string * 2 and ([1] + l)|sort == [1, 1, 2] and "
            "l|map('string')|join == '12' }}{% endfor %}{{ 1/0 }}",
            SLUICE_ERR_ARGUMENT, "division");
    refused("{{ 'x' * 99999999999 }}", SLUICE_ERR_UNSUPPORTED, "memory");
    refused("{{ [0] * 99999999999 }}", SLUICE_ERR_UNSUPPORTED, "too m");
    refused("{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}", SLUICE_ERR_UNSUPPORTED, "deep");
    refused("{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
            SLUICE_ERR_UNSUPPORTED, "memory");
    refused("{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}", SLUICE_ERR_UNSUPPORTED, "deep");
    refused("{% set ns = namespace(l=[]) %}{% for i in range(3000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l == "
            "[ns.l] }}{{ ns.l|tojson }}",
            SLUICE_ERR_UNSUPPORTED, "deep");
    refused("{% for i in range(99999) %}{{ 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' * 1000 "
            "}}{% endfor %}",
            SLUICE_ERR_UNSUPPORTED, "too m");
    refused("{{ '%9999999s' % 1 }}", SLUICE_ERR_UNSUPPORTED, "wider");
}

static void nesting(const char *open, const char *middle, const char *close, int levels) {
    size_t size = (strlen(open) + strlen(close)) * (size_t)levels + strlen(middle) + 1;
    char *text = calloc(1, size);
    sluice_error err = {0};
    sluice_text out = {0};
    assert_non_null(text);
    char *p = text;
    for (int i = 0; i < levels; i++) p = stpcpy(p, open);
    p = stpcpy(p, middle);
    for (int i = 0; i < levels; i++) p = stpcpy(p, close);
    assert_int_not_equal(render(text, "{}", &out, &err), SLUICE_OK);
    sluice_text_free(&out);
    free(text);
}

static void depth_is_bounded(void **state) {
    (void)state;
    nesting("{{ ((((((((((", "1", "", 20000);
    nesting("{% if 1 %}", "", "{% endif %}", 20000);
    nesting("{% if 1 %}{% elif 1 %}", "", "", 20000);
    for (int kind = 0; kind < 5; kind++) {
        static const char *const more[] = {"- ", "not ", "1 + ", "1 if ", "a."};
        sluice__strbuf b = {0};
        sluice_error err = {0};
        sluice_text out = {0};
        sluice__strbuf_puts(&b, "{{ ");
        for (int i = 0; i < 50000; i++) sluice__strbuf_puts(&b, more[kind]);
        sluice__strbuf_puts(&b, "a }}");
        assert_int_not_equal(render(b.data, "{\"a\": 1}", &out, &err), SLUICE_OK);
        sluice__strbuf_free(&b);
        sluice_text_free(&out);
    }
}

static void damaged_templates_do_no_harm(void **state) {
    (void)state;
    static const char *const files[] = {"chatml_think.jinja", "xml_tools.jinja", "headers.jinja", "alternating.jinja",
                                        "bot_tokens.jinja"};
    static const char pieces[] = "{}%#-+|.[]()'\"\\ \n0a,:~*/=<>_";
    sluice__rng rng = {3, 0, 0};
    sluice_template_limits limits = {.max_steps = 100000, .max_memory = 4 << 20, .now = NOW};
    sluice_text out = {0};
    int rendered = 0;
    for (int round = 0; round < 3000; round++) {
        sluice_error err = {0};
        char *text = template_file(files[round % 5]);
        size_t size = strlen(text);
        for (uint64_t n = sluice__rng_below(&rng, 4); n > 0; n--) {
            size_t at = sluice__rng_below(&rng, size), from = sluice__rng_below(&rng, size);
            if (n & 1) {
                text[at] = pieces[sluice__rng_below(&rng, sizeof pieces - 1)];
            } else {
                size_t span = sluice__rng_below(&rng, 40);
                if (span > size - at) span = size - at;
                if (span > size - from) span = size - from;
                memmove(text + at, text + from, span);
            }
        }
        if (round % 7 == 0) size = sluice__rng_below(&rng, size);
        rendered +=
            render_limited(
                text, size,
                "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}, {\"role\": \"assistant\", \"content\": "
                "\"<think>a</think>b\", \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": {\"x\": "
                "[1]}}}]},"
                "{\"role\": \"tool\", \"content\": \"r\"}], \"tools\": [{\"function\": {\"name\": \"f\"}}],"
                "\"add_generation_prompt\": true, \"bos_token\": \"<s>\"}",
                &limits, &out, &err) == SLUICE_OK;
        sluice__free(text);
    }
    assert_true(rendered > 100 && rendered < 2900);
    sluice_text_free(&out);
}

static void a_model_has_a_template(void **state) {
    (void)state;
    sluice_error err = {0};
    sluice_chat_template *t;
    sluice_text out = {0};
    const char *dir = test_temp_dir(), *messages = "[{\"role\": \"user\", \"content\": \"hi\"}]";
    char path[600];
    assert_int_equal(sluice_chat_template_load(&t, dir, &err), SLUICE_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "chat_template"));
    snprintf(path, sizeof path, "%s/tokenizer_config.json", dir);
    static const char config[] =
        "{\"bos_token\": {\"content\": \"<b>\"}, \"chat_template\": [{\"name\": \"default\", \"template\": \"D{{ "
        "bos_token }}"
        "{{ tools is none }}{{ x }}\"}, {\"name\": \"tool_use\", \"template\": \"T{{ tools|length }}\"}]}";
    assert_ok_err(sluice__write_file(path, config, strlen(config), &err), &err);
    assert_ok_err(sluice_chat_template_load(&t, dir, &err), &err);
    sluice_chat_render_params p = sluice_chat_render_params_default();
    p.variables = "{\"x\": 3}";
    assert_ok_err(sluice_chat_render(t, messages, &p, &out, &err), &err);
    assert_string_equal(out.data, "D<b>True3");
    p.tools = "[1, 2]";
    out.size = 0;
    assert_ok_err(sluice_chat_render(t, messages, &p, &out, &err), &err);
    assert_string_equal(out.data, "T2");
    assert_true(sluice_chat_template_mentions(t, "bos_token") && !sluice_chat_template_mentions(t, "enable_thinking"));
    assert_int_equal(sluice_chat_render(t, "{}", &p, &out, &err), SLUICE_ERR_ARGUMENT);
    assert_int_equal(sluice_chat_render(t, "[", &p, &out, &err), SLUICE_ERR_FORMAT);
    p.variables = "{\"messages\": []}"; /* would be lost without a word */
    assert_int_equal(sluice_chat_render(t, messages, &p, &out, &err), SLUICE_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "\"messages\""));
    p.variables = NULL;
    sluice_chat_template_free(t);
    snprintf(path, sizeof path, "%s/chat_template.jinja", dir);
    assert_ok_err(sluice__write_file(path, "file", 4, &err), &err);
    assert_ok_err(sluice_chat_template_load(&t, dir, &err), &err);
    p.tools = NULL;
    out.size = 0;
    assert_ok_err(sluice_chat_render(t, messages, &p, &out, &err), &err);
    assert_string_equal(out.data, "file");
    sluice_chat_template_free(t);
    sluice_text_free(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded_texts_come_out),
        cmocka_unit_test(what_is_refused_is_named_with_its_line),
        cmocka_unit_test(budgets_hold),
        cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(damaged_templates_do_no_harm),
        cmocka_unit_test(a_model_has_a_template),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
