/* SPDX-License-Identifier: Apache-2.0 */
/* "..." % values and "...".format(...). */
#include "base/memory.h"
#include "model/jinja/eval.h"
#include "model/utf8.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_WIDTH = 4096 };

typedef struct percent {
    jinja_run *run;
    const char *at, *end;
    jinja_value args; /* a tuple, a dict, or one value */
    size_t used;
    sluice__strbuf out;
} percent;

typedef struct conversion {
    bool left, zero, plus, space, alternative;
    int width, precision; /* -1 = not given */
    char type;
} conversion;

static jinja_value next_value(percent *f) {
    bool tuple = f->args.type == JINJA_LIST && f->args.list->kind == JINJA_KIND_TUPLE;
    size_t most = tuple ? f->args.list->count : 1;
    if (f->used >= most) return sluice__jinja_fail(f->run, "not enough arguments for format string");
    return tuple ? f->args.list->items[f->used++] : (f->used++, f->args);
}

static int number_at(percent *f) {
    int n = 0;
    if (f->at < f->end && *f->at == '*') {
        sluice__jinja_unsupported(f->run, "* in a format");
        return 0;
    }
    for (; f->at < f->end && *f->at >= '0' && *f->at <= '9'; f->at++) n = n > MAX_WIDTH ? n : n * 10 + (*f->at - '0');
    if (n > MAX_WIDTH) sluice__jinja_unsupported(f->run, "a format wider than %d", MAX_WIDTH);
    return n;
}

/* "(key)" at the current place: the value of args under it. */
static jinja_value keyed_value(percent *f) {
    const char *begin = ++f->at;
    while (f->at < f->end && *f->at != ')') f->at++;
    if (f->at >= f->end) return sluice__jinja_fail(f->run, "incomplete format key");
    jinja_value key = sluice__jinja_text(begin, (size_t)(f->at++ - begin));
    if (f->args.type != JINJA_DICT) return sluice__jinja_fail(f->run, "format requires a mapping");
    const jinja_value *v = sluice__jinja_find(f->run, f->args.dict, key);
    f->used = 1;
    return v ? *v : sluice__jinja_fail(f->run, "no value for the format key '%.*s'", (int)key.size, key.text);
}

static void put_padded(percent *f, const conversion *c, jinja_value text) {
    size_t length = sluice__jinja_length(text), width = (size_t)c->width;
    if (!c->left && length < width) sluice__strbuf_printf(&f->out, "%*s", (int)(width - length), "");
    sluice__strbuf_add(&f->out, text.text, text.size);
    if (c->left && length < width) sluice__strbuf_printf(&f->out, "%*s", (int)(width - length), "");
}

static void put_text(percent *f, const conversion *c, jinja_value v) {
    sluice__strbuf b = {0};
    if (c->type == 's')
        sluice__jinja_write(f->run, &b, v);
    else
        sluice__jinja_repr(f->run, &b, v);
    jinja_value text = sluice__jinja_take_text(f->run, &b);
    if (f->run->st != SLUICE_OK) return;
    if (c->precision >= 0) text.size = sluice__jinja_offset(text, (size_t)c->precision);
    put_padded(f, c, text);
}

static void put_number(percent *f, const conversion *c, jinja_value v) {
    char spec[64];
    bool whole = strchr("diuoxX", c->type) != NULL;
    if (!sluice__jinja_is_number(v) || (strchr("oxX", c->type) && v.type == JINJA_FLOAT)) {
        sluice__jinja_fail(f->run, "%%%c format: a number is required, not %s", c->type, sluice__jinja_type_name(v));
        return;
    }
    if (strchr("oxX", c->type) && (sluice__jinja_int_of(v) < 0 || c->alternative)) {
        sluice__jinja_unsupported(f->run, "this use of %%%c", c->type);
        return;
    }
    int n = snprintf(spec, sizeof spec, "%%%s%s%s%s%s%d", c->left ? "-" : "", c->plus ? "+" : "", c->space ? " " : "",
                     c->zero ? "0" : "", c->alternative ? "#" : "", c->width);
    if (c->width == 0) n--; /* "%0" would be a flag */
    if (c->precision >= 0) n += snprintf(spec + n, sizeof spec - (size_t)n, ".%d", c->precision);
    char type = c->type == 'u' || c->type == 'i' ? 'd' : c->type;
    snprintf(spec + n, sizeof spec - (size_t)n, whole ? "ll%c" : "%c", type);
    int64_t integer = 0;
    if (whole && v.type == JINJA_FLOAT) {
        if (!(v.real > -9.2e18 && v.real < 9.2e18)) {
            sluice__jinja_unsupported(f->run, "an integer of more than 64 bits");
            return;
        }
        integer = (int64_t)v.real;
    } else if (whole) {
        integer = sluice__jinja_int_of(v);
    }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    if (whole)
        sluice__strbuf_printf(&f->out, spec, (long long)integer);
    else
        sluice__strbuf_printf(&f->out, spec, sluice__jinja_real_of(v));
#pragma GCC diagnostic pop
}

static void convert(percent *f) {
    conversion c = {.precision = -1};
    jinja_value v = sluice__jinja_none();
    bool keyed = f->at < f->end && *f->at == '(';
    if (keyed) v = keyed_value(f);
    for (; f->at < f->end && *f->at && strchr("-+ 0#", *f->at); f->at++) {
        c.left |= *f->at == '-';
        c.plus |= *f->at == '+';
        c.space |= *f->at == ' ';
        c.zero |= *f->at == '0';
        c.alternative |= *f->at == '#';
    }
    c.width = number_at(f);
    if (f->at < f->end && *f->at == '.') {
        f->at++;
        c.precision = number_at(f);
    }
    if (f->run->st != SLUICE_OK) return;
    if (f->at >= f->end) {
        sluice__jinja_fail(f->run, "incomplete format");
        return;
    }
    c.type = *f->at++;
    if (c.type == '%') {
        sluice__strbuf_puts(&f->out, "%");
        return;
    }
    if (!c.type || !strchr("srdiuoxXeEfFgG", c.type)) {
        sluice__jinja_unsupported(f->run, "the format %%%c", c.type >= 32 && c.type < 127 ? c.type : '?');
        return;
    }
    if (!keyed) v = next_value(f);
    if (f->run->st != SLUICE_OK) return;
    if (c.type == 's' || c.type == 'r')
        put_text(f, &c, v);
    else
        put_number(f, &c, v);
}

jinja_value sluice__jinja_percent(jinja_run *run, jinja_value format, jinja_value args) {
    percent f = {.run = run, .at = format.text, .end = format.text + format.size, .args = args};
    while (f.at < f.end && sluice__jinja_spend(run, 0)) {
        const char *sign = memchr(f.at, '%', (size_t)(f.end - f.at));
        const char *stop = sign ? sign : f.end;
        sluice__strbuf_add(&f.out, f.at, (size_t)(stop - f.at));
        f.at = sign ? sign + 1 : f.end;
        if (sign) convert(&f);
        if (f.out.size > run->bytes_left) sluice__jinja_unsupported(run, "rendering takes too much memory");
    }
    bool tuple = args.type == JINJA_LIST && args.list->kind == JINJA_KIND_TUPLE;
    /* Python lets unused arguments pass when they could have been asked by a key. */
    bool keyed = args.type == JINJA_DICT || args.type == JINJA_UNDEFINED ||
                 (args.type == JINJA_LIST && args.list->kind <= JINJA_KIND_RANGE);
    bool left = tuple ? f.used < args.list->count : f.used == 0 && !keyed;
    if (left && run->st == SLUICE_OK) sluice__jinja_fail(run, "not all arguments converted during string formatting");
    return sluice__jinja_take_text(run, &f.out);
}

/* The value of a replacement field: "", "0" or "name". */
static jinja_value field_value(jinja_run *run, const char *field, size_t size, const jinja_arguments *args,
                               size_t *next) {
    size_t at = 0;
    bool number = size > 0 && size < 8;
    for (size_t i = 0; i < size && number; i++) {
        number = field[i] >= '0' && field[i] <= '9';
        at = at * 10 + (size_t)(field[i] - '0');
    }
    if (size == 0) at = (*next)++;
    if (size == 0 || number)
        return at < args->count ? args->plain[at] : sluice__jinja_fail(run, "format: there is no argument %zu", at);
    for (size_t i = 0; i < args->named_count; i++)
        if (strlen(args->names[i]) == size && !memcmp(args->names[i], field, size)) return args->named[i];
    for (size_t i = 0; i < size; i++)
        if (strchr(".[!:", field[i]))
            return sluice__jinja_unsupported(run, "\"%c\" in a field of str.format", field[i]);
    return sluice__jinja_fail(run, "format: there is no argument '%.*s'", (int)size, field);
}

jinja_value sluice__jinja_braces(jinja_run *run, jinja_value format, const jinja_arguments *args) {
    sluice__strbuf out = {0};
    size_t next = 0;
    const char *p = format.text, *end = p + format.size;
    while (p < end && sluice__jinja_spend(run, 0)) {
        if (*p != '{' && *p != '}') {
            sluice__strbuf_add(&out, p++, 1);
            continue;
        }
        if (p + 1 < end && p[1] == *p) {
            sluice__strbuf_add(&out, p, 1);
            p += 2;
            continue;
        }
        const char *close = *p == '{' ? memchr(p, '}', (size_t)(end - p)) : NULL;
        if (!close) {
            sluice__jinja_fail(run, "a single '%c' in a format string", *p);
            break;
        }
        jinja_value v = field_value(run, p + 1, (size_t)(close - p - 1), args, &next);
        if (run->st == SLUICE_OK) sluice__jinja_write(run, &out, v);
        p = close + 1;
    }
    return sluice__jinja_take_text(run, &out);
}
