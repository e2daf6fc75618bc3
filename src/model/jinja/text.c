/* SPDX-License-Identifier: Apache-2.0 */
/* Values as text: str() and repr() of Python, and json.dumps as the tojson filter of transformers calls it. */
#include "model/jinja/value.h"
#include "base/memory.h"
#include "model/utf8.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The shortest digits that read back as x, with an exponent where Python writes one: below 1e-4 and from 1e16 on. */
void sluice__jinja_write_real(sluice__strbuf *out, double x) {
    char text[40];
    if (isnan(x) || isinf(x)) {
        sluice__strbuf_puts(out, isnan(x) ? "nan" : x < 0 ? "-inf" : "inf");
        return;
    }
    int digits = 1;
    do snprintf(text, sizeof text, "%.*e", digits - 1, x);
    while (strtod(text, NULL) != x && ++digits <= 17);
    int exponent = atoi(strchr(text, 'e') + 1);
    if (exponent >= -4 && exponent < 16) {
        int behind = digits - 1 - exponent;
        sluice__strbuf_printf(out, "%.*f", behind < 1 ? 1 : behind, x);
        return;
    }
    char *e = strchr(text, 'e');
    sluice__strbuf_add(out, text, (size_t)(e - text));
    sluice__strbuf_printf(out, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
}

static void repr_character(sluice__strbuf *out, const char *at, int length, uint32_t c, char quote) {
    if (c == (uint32_t)quote || c == '\\')
        sluice__strbuf_printf(out, "\\%c", (char)c);
    else if (c == '\n')
        sluice__strbuf_puts(out, "\\n");
    else if (c == '\r')
        sluice__strbuf_puts(out, "\\r");
    else if (c == '\t')
        sluice__strbuf_puts(out, "\\t");
    else if (sluice__jinja_is_printable(c))
        sluice__strbuf_add(out, at, (size_t)length);
    else if (c < 0x100)
        sluice__strbuf_printf(out, "\\x%02x", c);
    else if (c < 0x10000)
        sluice__strbuf_printf(out, "\\u%04x", c);
    else
        sluice__strbuf_printf(out, "\\U%08x", c);
}

static void repr_text(sluice__strbuf *out, jinja_value v) {
    bool single = v.size && memchr(v.text, '\'', v.size), twice = v.size && memchr(v.text, '"', v.size);
    char quote = single && !twice ? '"' : '\'';
    sluice__strbuf_add(out, &quote, 1);
    for (size_t at = 0; at < v.size;) {
        int n;
        uint32_t c = sluice__utf8_get((const unsigned char *)v.text + at, &n);
        repr_character(out, v.text + at, n, c, quote);
        at += (size_t)n;
    }
    sluice__strbuf_add(out, &quote, 1);
}

static void repr_items(jinja_run *run, sluice__strbuf *out, const jinja_list *list) {
    for (size_t i = 0; i < list->count && run->st == SLUICE_OK; i++) {
        if (i) sluice__strbuf_puts(out, ", ");
        sluice__jinja_repr(run, out, list->items[i]);
    }
}

static void repr_list(jinja_run *run, sluice__strbuf *out, const jinja_list *list) {
    static const char *const open[] = {"[", "(", NULL, "dict_keys([", "dict_values([", "dict_items(["};
    static const char *const close[] = {"]", ")", NULL, "])", "])", "])"};
    if (list->kind == JINJA_KIND_RANGE || list->kind == JINJA_KIND_GENERATOR) {
        sluice__jinja_unsupported(run, "the text of a %s",
                                  list->kind == JINJA_KIND_RANGE ? "range" : "generator (put |list behind it)");
        return;
    }
    sluice__strbuf_puts(out, open[list->kind]);
    repr_items(run, out, list);
    if (list->kind == JINJA_KIND_TUPLE && list->count == 1) sluice__strbuf_puts(out, ",");
    sluice__strbuf_puts(out, close[list->kind]);
}

static void repr_dict(jinja_run *run, sluice__strbuf *out, const jinja_dict *dict) {
    sluice__strbuf_puts(out, "{");
    for (size_t i = 0; i < dict->count && run->st == SLUICE_OK; i++) {
        if (i) sluice__strbuf_puts(out, ", ");
        sluice__jinja_repr(run, out, dict->pairs[i].key);
        sluice__strbuf_puts(out, ": ");
        sluice__jinja_repr(run, out, dict->pairs[i].value);
    }
    sluice__strbuf_puts(out, "}");
}

static void repr_nested(jinja_run *run, sluice__strbuf *out, jinja_value v) {
    if (++run->depth > JINJA_MAX_DEPTH)
        sluice__jinja_unsupported(run, "values are nested too deeply");
    else if (v.type == JINJA_LIST)
        repr_list(run, out, v.list);
    else if (v.type == JINJA_DICT)
        repr_dict(run, out, v.dict);
    else {
        sluice__strbuf_puts(out, "<Namespace ");
        repr_dict(run, out, v.dict);
        sluice__strbuf_puts(out, ">");
    }
    run->depth--;
}

void sluice__jinja_repr(jinja_run *run, sluice__strbuf *out, jinja_value v) {
    if (!sluice__jinja_spend(run, v.type == JINJA_STRING ? v.size : 0)) return;
    if (out->size > run->bytes_left) {
        sluice__jinja_unsupported(run, "rendering takes too much memory");
        return;
    }
    switch (v.type) {
    case JINJA_UNDEFINED: sluice__strbuf_puts(out, "Undefined"); break;
    case JINJA_NONE: sluice__strbuf_puts(out, "None"); break;
    case JINJA_BOOL: sluice__strbuf_puts(out, v.truth ? "True" : "False"); break;
    case JINJA_INT: sluice__strbuf_printf(out, "%lld", (long long)v.integer); break;
    case JINJA_FLOAT: sluice__jinja_write_real(out, v.real); break;
    case JINJA_STRING: repr_text(out, v); break;
    case JINJA_LIST:
    case JINJA_DICT:
    case JINJA_NAMESPACE: repr_nested(run, out, v); break;
    default: sluice__jinja_unsupported(run, "the text of a %s", sluice__jinja_type_name(v));
    }
}

void sluice__jinja_write(jinja_run *run, sluice__strbuf *out, jinja_value v) {
    if (v.type == JINJA_UNDEFINED) return;
    if (v.type != JINJA_STRING) {
        sluice__jinja_repr(run, out, v);
        return;
    }
    if (!sluice__jinja_spend(run, v.size)) return;
    if (out->size + v.size > run->bytes_left)
        sluice__jinja_unsupported(run, "rendering takes too much memory");
    else
        sluice__strbuf_add(out, v.text, v.size);
}

jinja_value sluice__jinja_str(jinja_run *run, jinja_value v) {
    if (v.type == JINJA_STRING) return v;
    sluice__strbuf b = {0};
    sluice__jinja_write(run, &b, v);
    return sluice__jinja_take_text(run, &b);
}

/* ---- JSON ---- */

typedef struct json_writer {
    jinja_run *run;
    sluice__strbuf *out;
    const jinja_json_style *style;
} json_writer;

static void json_text(const json_writer *w, jinja_value v) {
    static const char names[] = "btn.fr"; /* of 8..13; 11 has none */
    sluice__strbuf_puts(w->out, "\"");
    for (size_t at = 0; at < v.size;) {
        int n;
        uint32_t c = sluice__utf8_get((const unsigned char *)v.text + at, &n);
        if (c == '"' || c == '\\')
            sluice__strbuf_printf(w->out, "\\%c", (char)c);
        else if (c >= 8 && c <= 13 && c != 11)
            sluice__strbuf_printf(w->out, "\\%c", names[c - 8]);
        else if (c < 0x20)
            sluice__strbuf_printf(w->out, "\\u%04x", c);
        else if (c < 0x80 || !w->style->ensure_ascii)
            sluice__strbuf_add(w->out, v.text + at, (size_t)n);
        else if (c < 0x10000)
            sluice__strbuf_printf(w->out, "\\u%04x", c);
        else
            sluice__strbuf_printf(w->out, "\\u%04x\\u%04x", 0xD7C0 + (c >> 10), 0xDC00 + (c & 0x3FF));
        at += (size_t)n;
    }
    sluice__strbuf_puts(w->out, "\"");
}

static void json_break(const json_writer *w, int level) {
    if (w->style->indent < 0) return;
    sluice__strbuf_puts(w->out, "\n");
    for (int i = 0; i < level; i++) {
        if (w->style->indent_text)
            sluice__strbuf_puts(w->out, w->style->indent_text);
        else
            sluice__strbuf_printf(w->out, "%*s", w->style->indent, "");
    }
}

static void json_value(const json_writer *w, jinja_value v, int level);

static void json_list(const json_writer *w, const jinja_list *list, int level) {
    sluice__strbuf_puts(w->out, "[");
    for (size_t i = 0; i < list->count && w->run->st == SLUICE_OK; i++) {
        if (i) sluice__strbuf_add(w->out, w->style->item.text, w->style->item.size);
        json_break(w, level + 1);
        json_value(w, list->items[i], level + 1);
    }
    if (list->count) json_break(w, level);
    sluice__strbuf_puts(w->out, "]");
}

static void json_scalar(const json_writer *w, jinja_value v) {
    if (v.type == JINJA_NONE)
        sluice__strbuf_puts(w->out, "null");
    else if (v.type == JINJA_BOOL)
        sluice__strbuf_puts(w->out, v.truth ? "true" : "false");
    else if (v.type == JINJA_FLOAT && isnan(v.real))
        sluice__strbuf_puts(w->out, "NaN");
    else if (v.type == JINJA_FLOAT && isinf(v.real))
        sluice__strbuf_puts(w->out, v.real < 0 ? "-Infinity" : "Infinity");
    else
        sluice__jinja_repr(w->run, w->out, v);
}

/* Python writes numbers, booleans and None as they are written as values. */
static void json_key(const json_writer *w, jinja_value key) {
    if (key.type == JINJA_STRING) {
        json_text(w, key);
    } else if (sluice__jinja_is_number(key) || key.type == JINJA_NONE) {
        sluice__strbuf_puts(w->out, "\"");
        json_scalar(w, key);
        sluice__strbuf_puts(w->out, "\"");
    } else {
        sluice__jinja_fail(w->run, "keys must be str, int, float, bool or None, not %s", sluice__jinja_type_name(key));
    }
}

/* Indexes of the pairs in the order of their keys; insertion sort is what a step budget can count. */
static size_t *sorted_pairs(const json_writer *w, const jinja_dict *dict) {
    size_t *order = sluice__jinja_take(w->run, dict->count, sizeof *order);
    for (size_t i = 0; order && i < dict->count && w->run->st == SLUICE_OK; i++) {
        size_t j = i;
        for (; j > 0 && sluice__jinja_compare(w->run, dict->pairs[order[j - 1]].key, dict->pairs[i].key) > 0; j--)
            order[j] = order[j - 1];
        order[j] = i;
    }
    return order;
}

static void json_dict(const json_writer *w, const jinja_dict *dict, int level) {
    size_t *order = w->style->sort_keys ? sorted_pairs(w, dict) : NULL;
    sluice__strbuf_puts(w->out, "{");
    for (size_t i = 0; i < dict->count && w->run->st == SLUICE_OK; i++) {
        const jinja_pair *p = &dict->pairs[order ? order[i] : i];
        if (i) sluice__strbuf_add(w->out, w->style->item.text, w->style->item.size);
        json_break(w, level + 1);
        json_key(w, p->key);
        sluice__strbuf_add(w->out, w->style->key.text, w->style->key.size);
        json_value(w, p->value, level + 1);
    }
    if (dict->count) json_break(w, level);
    sluice__strbuf_puts(w->out, "}");
}

static void json_value(const json_writer *w, jinja_value v, int level) {
    if (!sluice__jinja_spend(w->run, v.type == JINJA_STRING ? v.size : 0)) return;
    if (w->out->size > w->run->bytes_left || ++w->run->depth > JINJA_MAX_DEPTH) {
        w->run->depth -= w->out->size <= w->run->bytes_left;
        sluice__jinja_unsupported(w->run, "tojson of a value this large or this deep");
        return;
    }
    bool sequence = v.type == JINJA_LIST && v.list->kind <= JINJA_KIND_TUPLE;
    if (v.type == JINJA_STRING)
        json_text(w, v);
    else if (v.type == JINJA_DICT)
        json_dict(w, v.dict, level);
    else if (sequence)
        json_list(w, v.list, level);
    else if (sluice__jinja_is_number(v) || v.type == JINJA_NONE)
        json_scalar(w, v);
    else
        sluice__jinja_fail(w->run, "Object of type %s is not JSON serializable", sluice__jinja_type_name(v));
    w->run->depth--;
}

void sluice__jinja_json(jinja_run *run, sluice__strbuf *out, jinja_value v, const jinja_json_style *style) {
    json_writer w = {run, out, style};
    json_value(&w, v, 0);
}
