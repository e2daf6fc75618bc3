/* SPDX-License-Identifier: Apache-2.0 */
/* Operators as Python has them, on integers of 64 bits: a result beyond them is refused rather than wrong. */
#include "base/memory.h"
#include "model/jinja/eval.h"
#include <math.h>
#include <string.h>

static jinja_value operands(jinja_run *run, const char *op, jinja_value a, jinja_value b) {
    return sluice__jinja_fail(run, "unsupported operand type(s) for %s: '%s' and '%s'", op, sluice__jinja_type_name(a),
                              sluice__jinja_type_name(b));
}

static jinja_value too_large(jinja_run *run) {
    return sluice__jinja_unsupported(run, "an integer of more than 64 bits");
}

static bool is_sequence(jinja_value v) { return v.type == JINJA_LIST && v.list->kind <= JINJA_KIND_TUPLE; }

static jinja_value add_sequences(jinja_run *run, const jinja_list *a, const jinja_list *b) {
    jinja_value out = sluice__jinja_list(run, a->kind, a->count + b->count);
    for (size_t i = 0; i < a->count + b->count && run->st == SLUICE_OK; i++)
        sluice__jinja_push(run, out.list, i < a->count ? a->items[i] : b->items[i - a->count]);
    return out;
}

static jinja_value add_texts(jinja_run *run, jinja_value a, jinja_value b) {
    if (!sluice__jinja_spend(run, a.size + b.size)) return a;
    char *text = sluice__jinja_take(run, a.size + b.size, 1);
    if (!text) return sluice__jinja_undefined("");
    if (a.size) memcpy(text, a.text, a.size);
    if (b.size) memcpy(text + a.size, b.text, b.size);
    return sluice__jinja_text(text, a.size + b.size);
}

/* text or sequence, so many times */
static jinja_value repeat(jinja_run *run, jinja_value v, int64_t times) {
    if (times < 0) times = 0;
    if (v.type == JINJA_STRING) {
        size_t size = sluice__mul_size(v.size, (size_t)times);
        char *text = sluice__jinja_take(run, size, 1);
        for (int64_t i = 0; text && v.size && i < times && sluice__jinja_spend(run, v.size); i++)
            memcpy(text + (size_t)i * v.size, v.text, v.size);
        return text ? sluice__jinja_text(text, size) : sluice__jinja_undefined("");
    }
    jinja_value out = sluice__jinja_list(run, v.list->kind, 0);
    for (int64_t i = 0; v.list->count && i < times && run->st == SLUICE_OK; i++)
        for (size_t j = 0; j < v.list->count && run->st == SLUICE_OK; j++)
            sluice__jinja_push(run, out.list, v.list->items[j]);
    return out;
}

static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

static jinja_value int_power(jinja_run *run, int64_t a, int64_t b) {
    if (b < 0)
        return a ? sluice__jinja_real(pow((double)a, (double)b)) : sluice__jinja_fail(run, "zero to a negative power");
    int64_t out = 1;
    if (a == 0 || a == 1) return sluice__jinja_int(b ? a : 1);
    if (a == -1) return sluice__jinja_int(b % 2 ? -1 : 1);
    for (int64_t i = 0; i < b; i++)
        if (__builtin_mul_overflow(out, a, &out)) return too_large(run);
    return sluice__jinja_int(out);
}

static jinja_value integers(jinja_run *run, const char *op, int64_t a, int64_t b) {
    int64_t out;
    if (!strcmp(op, "**")) return int_power(run, a, b);
    if (strchr("/%", op[0]) && b == 0) return sluice__jinja_fail(run, "division by zero");
    if (!strcmp(op, "/")) return sluice__jinja_real((double)a / (double)b);
    if (op[0] == '/' || op[0] == '%') {
        if (b == -1)
            return op[0] == '%' ? sluice__jinja_int(0) : a == INT64_MIN ? too_large(run) : sluice__jinja_int(-a);
        int64_t quotient = floor_div(a, b);
        return sluice__jinja_int(op[0] == '/' ? quotient : a - quotient * b);
    }
    bool over = op[0] == '+'   ? __builtin_add_overflow(a, b, &out)
                : op[0] == '-' ? __builtin_sub_overflow(a, b, &out)
                               : __builtin_mul_overflow(a, b, &out);
    return over ? too_large(run) : sluice__jinja_int(out);
}

static double floor_mod(double a, double b) {
    double m = fmod(a, b);
    if (m == 0) return copysign(0.0, b);
    return (b < 0) != (m < 0) ? m + b : m;
}

/* Python's float floor division: exact where the quotient is. */
static double real_floor_div(double a, double b) {
    double quotient = (a - floor_mod(a, b)) / b;
    if (quotient == 0) return copysign(0.0, a / b);
    double below = floor(quotient);
    return quotient - below > 0.5 ? below + 1 : below;
}

static jinja_value reals(jinja_run *run, const char *op, double a, double b) {
    if (strchr("/%", op[0]) && b == 0) return sluice__jinja_fail(run, "float division by zero");
    if (!strcmp(op, "**")) {
        if (a < 0 && b != floor(b)) return sluice__jinja_unsupported(run, "a complex number");
        if (a == 0 && b < 0) return sluice__jinja_fail(run, "zero to a negative power");
        return sluice__jinja_real(pow(a, b));
    }
    if (!strcmp(op, "//")) return sluice__jinja_real(real_floor_div(a, b));
    switch (op[0]) {
    case '+': return sluice__jinja_real(a + b);
    case '-': return sluice__jinja_real(a - b);
    case '*': return sluice__jinja_real(a * b);
    case '/': return sluice__jinja_real(a / b);
    default: return sluice__jinja_real(floor_mod(a, b));
    }
}

jinja_value sluice__jinja_binary(jinja_run *run, const char *op, jinja_value a, jinja_value b) {
    if (!strcmp(op, "%") && a.type == JINJA_STRING) return sluice__jinja_percent(run, a, b);
    if (a.type == JINJA_UNDEFINED) return sluice__jinja_no_undefined(run, a);
    if (b.type == JINJA_UNDEFINED) return sluice__jinja_no_undefined(run, b);
    if (sluice__jinja_is_number(a) && sluice__jinja_is_number(b)) {
        if (a.type == JINJA_FLOAT || b.type == JINJA_FLOAT)
            return reals(run, op, sluice__jinja_real_of(a), sluice__jinja_real_of(b));
        return integers(run, op, sluice__jinja_int_of(a), sluice__jinja_int_of(b));
    }
    if (!strcmp(op, "+")) {
        if (a.type == JINJA_STRING && b.type == JINJA_STRING) return add_texts(run, a, b);
        if (is_sequence(a) && is_sequence(b) && a.list->kind == b.list->kind) return add_sequences(run, a.list, b.list);
    }
    if (!strcmp(op, "*")) {
        bool a_repeats = a.type == JINJA_STRING || is_sequence(a), b_repeats = b.type == JINJA_STRING || is_sequence(b);
        if (a_repeats && sluice__jinja_is_int(b)) return repeat(run, a, sluice__jinja_int_of(b));
        if (b_repeats && sluice__jinja_is_int(a)) return repeat(run, b, sluice__jinja_int_of(a));
    }
    return operands(run, op, a, b);
}

bool sluice__jinja_contains(jinja_run *run, jinja_value item, jinja_value container) {
    if (container.type == JINJA_STRING) {
        if (item.type == JINJA_UNDEFINED) return sluice__jinja_no_undefined(run, item), false;
        if (item.type != JINJA_STRING) {
            sluice__jinja_fail(run, "'in <string>' requires string as left operand, not %s",
                               sluice__jinja_type_name(item));
            return false;
        }
        if (!sluice__jinja_spend(run, container.size)) return false;
        return item.size == 0 || (container.size && memmem(container.text, container.size, item.text, item.size));
    }
    if (container.type == JINJA_DICT) {
        if (sluice__jinja_hashable(item)) return sluice__jinja_find(run, container.dict, item) != NULL;
        sluice__jinja_fail(run, "unhashable type: '%s'", sluice__jinja_type_name(item));
        return false;
    }
    if (container.type != JINJA_LIST && container.type != JINJA_UNDEFINED) {
        sluice__jinja_fail(run, "argument of type '%s' is not iterable", sluice__jinja_type_name(container));
        return false;
    }
    const jinja_list *list = sluice__jinja_items(run, container);
    for (size_t i = 0; list && i < list->count && run->st == SLUICE_OK; i++)
        if (sluice__jinja_equal(run, list->items[i], item)) return true;
    return false;
}
