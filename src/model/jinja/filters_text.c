/* SPDX-License-Identifier: Apache-2.0 */
/* Filters on single values: text, numbers, defaults, JSON. */
#include "base/memory.h"
#include "model/jinja/eval.h"
#include "model/utf8.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILTER(name)                                                                                                   \
    static jinja_value name(jinja_run *run, jinja_value v, const jinja_value *a, const jinja_arguments *args)
#define UNUSED(x) (void)(x)

static jinja_value recased(jinja_run *run, jinja_value v, jinja_case how) {
    jinja_value s = sluice__jinja_str(run, v);
    return run->st == SLUICE_OK ? sluice__jinja_recase(run, s, how) : s;
}

FILTER(filter_upper) {
    UNUSED(a);
    UNUSED(args);
    return recased(run, v, JINJA_UPPER);
}
FILTER(filter_lower) {
    UNUSED(a);
    UNUSED(args);
    return recased(run, v, JINJA_LOWER);
}
FILTER(filter_capitalize) {
    UNUSED(a);
    UNUSED(args);
    return recased(run, v, JINJA_CAPITALIZE);
}
FILTER(filter_string) {
    UNUSED(a);
    UNUSED(args);
    return sluice__jinja_str(run, v);
}
FILTER(filter_safe) {
    UNUSED(a);
    UNUSED(args);
    return sluice__jinja_str(run, v);
}

/* Words begin behind -, white space and opening brackets, unlike those of str.title. */
FILTER(filter_title) {
    UNUSED(a);
    UNUSED(args);
    jinja_value s = sluice__jinja_str(run, v);
    sluice__strbuf b = {0};
    for (size_t at = 0; run->st == SLUICE_OK && at < s.size;) {
        int first;
        uint32_t c = sluice__utf8_get((const unsigned char *)s.text + at, &first);
        size_t end = at + (size_t)first;
        bool apart = sluice__jinja_is_space(c) || (c < 0x80 && c && strchr("-({[<", (int)c));
        for (int n; end < s.size; end += (size_t)n) {
            uint32_t d = sluice__utf8_get((const unsigned char *)s.text + end, &n);
            if ((sluice__jinja_is_space(d) || (d < 0x80 && d && strchr("-({[<", (int)d))) != apart) break;
        }
        size_t tail = at + (size_t)first;
        jinja_value head = sluice__jinja_recase(run, sluice__jinja_text(s.text + at, (size_t)first), JINJA_UPPER);
        jinja_value rest = sluice__jinja_recase(run, sluice__jinja_text(s.text + tail, end - tail), JINJA_LOWER);
        if (run->st != SLUICE_OK) break;
        sluice__strbuf_add(&b, head.text, head.size);
        sluice__strbuf_add(&b, rest.text, rest.size);
        at = end;
    }
    return sluice__jinja_take_text(run, &b);
}

FILTER(filter_trim) {
    UNUSED(args);
    jinja_value s = sluice__jinja_str(run, v), chars = sluice__jinja_none();
    if (sluice__jinja_given(a[0]) && a[0].type != JINJA_NONE) chars = sluice__jinja_text_argument(run, a[0], "chars");
    return run->st == SLUICE_OK ? sluice__jinja_strip(run, s, chars, true, true) : s;
}

FILTER(filter_replace) {
    UNUSED(args);
    bool limited = sluice__jinja_given(a[2]) && a[2].type != JINJA_NONE;
    jinja_value s = sluice__jinja_str(run, v), from = sluice__jinja_str(run, a[0]), to = sluice__jinja_str(run, a[1]);
    int64_t most = limited ? sluice__jinja_int_argument(run, a[2], -1, "count") : -1;
    return run->st == SLUICE_OK ? sluice__jinja_replace(run, s, from, to, most) : s;
}

FILTER(filter_center) {
    UNUSED(args);
    jinja_value s = sluice__jinja_str(run, v);
    int64_t width = sluice__jinja_int_argument(run, a[0], 80, "width");
    return run->st == SLUICE_OK ? sluice__jinja_justify(run, s, width, sluice__jinja_text(" ", 1), 'c') : s;
}

/* Lines but the first get the indentation, unless they are empty; first and blank change that. */
FILTER(filter_indent) {
    UNUSED(args);
    jinja_value s = sluice__jinja_text_argument(run, v, "indent"), by = a[0];
    bool first = sluice__jinja_given(a[1]) && sluice__jinja_truth(a[1]),
         blank = sluice__jinja_given(a[2]) && sluice__jinja_truth(a[2]);
    if (by.type != JINJA_STRING) {
        int64_t width = sluice__jinja_int_argument(run, by, 4, "width");
        by = sluice__jinja_justify(run, sluice__jinja_text("", 0), width, sluice__jinja_text(" ", 1), 'l');
    }
    jinja_value more = run->st == SLUICE_OK ? sluice__jinja_binary(run, "+", s, sluice__jinja_text("\n", 1)) : s;
    jinja_value lines = run->st == SLUICE_OK ? sluice__jinja_splitlines(run, more, false) : s;
    sluice__strbuf b = {0};
    for (size_t i = 0; run->st == SLUICE_OK && i < lines.list->count; i++) {
        jinja_value line = lines.list->items[i];
        if (i) sluice__strbuf_puts(&b, "\n");
        if (i ? blank || line.size : first) sluice__jinja_write(run, &b, by);
        sluice__jinja_write(run, &b, line);
    }
    return sluice__jinja_take_text(run, &b);
}

FILTER(filter_truncate) {
    UNUSED(args);
    jinja_value s = sluice__jinja_str(run, v), end = sluice__jinja_given(a[2]) ? a[2] : sluice__jinja_text("...", 3);
    int64_t length = sluice__jinja_int_argument(run, a[0], 255, "length");
    bool kill = sluice__jinja_given(a[1]) && sluice__jinja_truth(a[1]);
    int64_t leeway = a[3].type == JINJA_NONE ? 5 : sluice__jinja_int_argument(run, a[3], 5, "leeway");
    end = run->st == SLUICE_OK ? sluice__jinja_text_argument(run, end, "end") : end;
    if (run->st != SLUICE_OK) return s;
    int64_t tail = (int64_t)sluice__jinja_length(end);
    if (length < tail || leeway < 0) return sluice__jinja_fail(run, "truncate: length or leeway too small");
    if ((int64_t)sluice__jinja_length(s) - leeway <= length) return s;
    size_t keep = sluice__jinja_offset(s, (size_t)(length - tail)), cut = keep;
    while (!kill && cut > 0 && s.text[cut - 1] != ' ') cut--;
    if (!kill && cut > 0) keep = cut - 1;
    return sluice__jinja_binary(run, "+", sluice__jinja_text(s.text, keep), end);
}

FILTER(filter_wordcount) {
    UNUSED(a);
    UNUSED(args);
    jinja_value s = sluice__jinja_str(run, v);
    int64_t count = 0;
    bool inside = false, known;
    for (size_t at = 0; run->st == SLUICE_OK && at < s.size;) {
        int n;
        sluice__utf8_get((const unsigned char *)s.text + at, &n);
        bool word = s.text[at] == '_' ||
                    sluice__jinja_character_test(sluice__jinja_text(s.text + at, (size_t)n), "isalnum", &known);
        count += word && !inside;
        inside = word;
        at += (size_t)n;
        sluice__jinja_spend(run, 0);
    }
    return sluice__jinja_int(count);
}

FILTER(filter_format) {
    UNUSED(a);
    jinja_value s = sluice__jinja_str(run, v), with = sluice__jinja_list(run, JINJA_KIND_TUPLE, 0);
    if (args->count && args->named_count)
        return sluice__jinja_fail(run, "format: positional and named arguments together");
    if (args->named_count) {
        with = sluice__jinja_dict(run);
        for (size_t i = 0; i < args->named_count && run->st == SLUICE_OK; i++)
            sluice__jinja_put(run, with.dict, sluice__jinja_text(args->names[i], strlen(args->names[i])),
                              args->named[i]);
    }
    for (size_t i = 0; i < args->count && run->st == SLUICE_OK; i++) sluice__jinja_push(run, with.list, args->plain[i]);
    return run->st == SLUICE_OK ? sluice__jinja_percent(run, s, with) : s;
}

FILTER(filter_default) {
    UNUSED(run);
    UNUSED(args);
    bool boolean = sluice__jinja_given(a[1]) && sluice__jinja_truth(a[1]);
    if (v.type != JINJA_UNDEFINED && (!boolean || sluice__jinja_truth(v))) return v;
    return sluice__jinja_given(a[0]) ? a[0] : sluice__jinja_text("", 0);
}

/* ---- numbers ---- */

/* Text without the white space around it and the underscores between digits; false when it cannot be a number. */
static bool clean_number(jinja_run *run, jinja_value s, char out[512]) {
    jinja_value t = sluice__jinja_strip(run, s, sluice__jinja_none(), true, true);
    size_t n = 0;
    if (run->st != SLUICE_OK || t.size == 0 || t.size > 500) return false;
    for (size_t i = 0; i < t.size; i++) {
        bool between =
            i > 0 && i + 1 < t.size && strchr("0123456789abcdefABCDEF", t.text[i - 1]) && t.text[i + 1] != '_';
        if ((unsigned char)t.text[i] >= 0x80 || !t.text[i]) return false;
        if (t.text[i] != '_')
            out[n++] = t.text[i];
        else if (!between)
            return false;
    }
    out[n] = 0;
    return n > 0;
}

static bool text_to_real(jinja_run *run, jinja_value s, double *x) {
    char text[512], *end;
    if (!clean_number(run, s, text) || strpbrk(text, "xXpP(")) return false;
    *x = strtod(text, &end);
    return *end == 0 && end > text;
}

/* 1 = read, 0 = no integer, -1 = one of more than 64 bits */
static int text_to_int(jinja_run *run, jinja_value s, int base, int64_t *x) {
    char text[512], *end;
    if (!clean_number(run, s, text)) return 0;
    errno = 0;
    *x = strtoll(text, &end, base);
    if (*end || end == text) return 0;
    return errno == ERANGE ? -1 : 1;
}

static jinja_value truncated(jinja_run *run, double x, jinja_value otherwise) {
    if (isnan(x) || isinf(x)) return otherwise;
    if (!(fabs(x) < 9.2e18)) return sluice__jinja_unsupported(run, "an integer of more than 64 bits");
    return sluice__jinja_int((int64_t)x);
}

FILTER(filter_int) {
    UNUSED(args);
    jinja_value otherwise = sluice__jinja_given(a[0]) ? a[0] : sluice__jinja_int(0);
    int64_t base = sluice__jinja_int_argument(run, a[1], 10, "base"), x = 0;
    double real;
    if (v.type == JINJA_UNDEFINED) return sluice__jinja_no_undefined(run, v);
    if (run->st != SLUICE_OK) return v;
    if (sluice__jinja_is_int(v)) return sluice__jinja_int(sluice__jinja_int_of(v));
    if (v.type == JINJA_FLOAT && isinf(v.real))
        return sluice__jinja_fail(run, "cannot convert float infinity to integer");
    if (v.type == JINJA_FLOAT) return truncated(run, v.real, otherwise);
    if (v.type != JINJA_STRING) return otherwise;
    if (base != 10 && base != 16 && base != 8 && base != 2)
        return sluice__jinja_unsupported(run, "int in base %lld", (long long)base);
    int read = text_to_int(run, v, (int)base, &x);
    if (read < 0) return sluice__jinja_unsupported(run, "an integer of more than 64 bits");
    if (read) return sluice__jinja_int(x);
    return text_to_real(run, v, &real) ? truncated(run, real, otherwise) : otherwise;
}

FILTER(filter_float) {
    UNUSED(args);
    double x;
    if (v.type == JINJA_UNDEFINED) return sluice__jinja_no_undefined(run, v);
    if (sluice__jinja_is_number(v)) return sluice__jinja_real(sluice__jinja_real_of(v));
    if (v.type == JINJA_STRING && text_to_real(run, v, &x)) return sluice__jinja_real(x);
    return sluice__jinja_given(a[0]) ? a[0] : sluice__jinja_real(0);
}

/* Python rounds what the double exactly is, half to even; printf does the same. */
static double round_to(double x, int digits) {
    char text[400];
    if (isnan(x) || isinf(x)) return x;
    snprintf(text, sizeof text, "%.*f", digits, x);
    return strtod(text, NULL);
}

FILTER(filter_round) {
    UNUSED(args);
    int64_t digits = sluice__jinja_int_argument(run, a[0], 0, "precision");
    jinja_value how = sluice__jinja_given(a[1]) ? a[1] : sluice__jinja_text("common", 6);
    bool up = sluice__jinja_is(how, "ceil"), down = sluice__jinja_is(how, "floor");
    if (run->st != SLUICE_OK) return v;
    if (!up && !down && !sluice__jinja_is(how, "common"))
        return sluice__jinja_fail(run, "round: method must be common, ceil or floor");
    if (v.type == JINJA_UNDEFINED) return sluice__jinja_no_undefined(run, v);
    if (!sluice__jinja_is_number(v))
        return sluice__jinja_fail(run, "round: expected a number, found %s", sluice__jinja_type_name(v));
    if (digits < 0 || digits > 40) return sluice__jinja_unsupported(run, "round to %lld digits", (long long)digits);
    if (!up && !down)
        return v.type == JINJA_FLOAT ? sluice__jinja_real(round_to(v.real, (int)digits))
                                     : sluice__jinja_int(sluice__jinja_int_of(v));
    double scale = pow(10, (double)digits), x = sluice__jinja_real_of(v) * scale;
    return sluice__jinja_real((up ? ceil(x) : floor(x)) / scale);
}

FILTER(filter_abs) {
    UNUSED(a);
    UNUSED(args);
    if (v.type == JINJA_UNDEFINED) return sluice__jinja_no_undefined(run, v);
    if (v.type == JINJA_FLOAT) return sluice__jinja_real(fabs(v.real));
    if (!sluice__jinja_is_int(v))
        return sluice__jinja_fail(run, "bad operand type for abs(): '%s'", sluice__jinja_type_name(v));
    int64_t i = sluice__jinja_int_of(v);
    return i < 0 ? sluice__jinja_binary(run, "*", v, sluice__jinja_int(-1)) : sluice__jinja_int(i);
}

/* ---- JSON ---- */

/* separators=(item, key) as json.dumps takes it. */
static void json_separators(jinja_run *run, jinja_value v, jinja_json_style *style) {
    style->item = style->indent < 0 ? sluice__jinja_text(", ", 2) : sluice__jinja_text(",", 1);
    style->key = sluice__jinja_text(": ", 2);
    if (!sluice__jinja_given(v) || v.type == JINJA_NONE) return;
    bool pair = v.type == JINJA_LIST && v.list->count == 2 && v.list->items[0].type == JINJA_STRING &&
                v.list->items[1].type == JINJA_STRING;
    if (!pair) {
        sluice__jinja_fail(run, "tojson: separators: expected two strings");
        return;
    }
    style->item = v.list->items[0];
    style->key = v.list->items[1];
}

FILTER(filter_tojson) {
    UNUSED(args);
    enum { MAX_INDENT = 64 };
    sluice__strbuf b = {0};
    jinja_json_style style = {.indent = -1};
    style.ensure_ascii = sluice__jinja_given(a[0]) && sluice__jinja_truth(a[0]);
    style.sort_keys = sluice__jinja_given(a[3]) && sluice__jinja_truth(a[3]);
    if (a[1].type == JINJA_STRING) {
        char *text = sluice__jinja_take(run, a[1].size + 1, 1);
        if (text) memcpy(text, a[1].text, a[1].size);
        style.indent_text = text;
        style.indent = 0;
    } else if (sluice__jinja_given(a[1]) && a[1].type != JINJA_NONE) {
        int64_t indent = sluice__jinja_int_argument(run, a[1], 0, "indent");
        if (indent > MAX_INDENT) return sluice__jinja_unsupported(run, "tojson with an indent above %d", MAX_INDENT);
        style.indent = indent < 0 ? 0 : (int)indent;
    }
    json_separators(run, a[2], &style);
    if (run->st == SLUICE_OK) sluice__jinja_json(run, &b, v, &style);
    return sluice__jinja_take_text(run, &b);
}

const jinja_filter sluice__jinja_text_filters[] = {
    {"abs", "", 0, filter_abs},
    {"capitalize", "", 0, filter_capitalize},
    {"center", "width", 0, filter_center},
    {"d", "default_value boolean", 0, filter_default},
    {"default", "default_value boolean", 0, filter_default},
    {"float", "default", 0, filter_float},
    {"format", NULL, 0, filter_format},
    {"indent", "width first blank", 0, filter_indent},
    {"int", "default base", 0, filter_int},
    {"lower", "", 0, filter_lower},
    {"replace", "old new count", 2, filter_replace},
    {"round", "precision method", 0, filter_round},
    {"safe", "", 0, filter_safe},
    {"string", "", 0, filter_string},
    {"title", "", 0, filter_title},
    {"tojson", "ensure_ascii indent separators sort_keys", 0, filter_tojson},
    {"trim", "chars", 0, filter_trim},
    {"truncate", "length killwords end leeway", 0, filter_truncate},
    {"upper", "", 0, filter_upper},
    {"wordcount", "", 0, filter_wordcount},
    {NULL, NULL, 0, NULL},
};
