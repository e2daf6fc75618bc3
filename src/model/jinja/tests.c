/* SPDX-License-Identifier: Apache-2.0 */
/* The tests behind "is", and finding filters by name. */
#include "model/jinja/eval.h"
#include <math.h>
#include <string.h>

static bool same_object(jinja_value a, jinja_value b) {
    if (a.type != b.type) return false;
    switch (a.type) {
    case JINJA_UNDEFINED: return false;
    case JINJA_NONE: return true;
    case JINJA_BOOL: return a.truth == b.truth;
    case JINJA_INT: return a.integer == b.integer;
    case JINJA_FLOAT: return a.real == b.real;
    case JINJA_STRING: return a.size == b.size && !memcmp(a.text, b.text, a.size);
    default: return a.dict == b.dict;
    }
}

static bool divisible(jinja_run *run, jinja_value v, jinja_value by) {
    jinja_value rest = sluice__jinja_binary(run, "%", v, by);
    return run->st == SLUICE_OK && sluice__jinja_equal(run, rest, sluice__jinja_int(0));
}

static bool odd(jinja_run *run, jinja_value v, int64_t rest) {
    jinja_value r = sluice__jinja_binary(run, "%", v, sluice__jinja_int(2));
    return run->st == SLUICE_OK && sluice__jinja_equal(run, r, sluice__jinja_int(rest));
}

static bool case_is(jinja_run *run, jinja_value v, const char *test) {
    bool known;
    jinja_value s = sluice__jinja_str(run, v);
    return run->st == SLUICE_OK && sluice__jinja_character_test(s, test, &known);
}

static bool is_sequence(jinja_value v) {
    return v.type == JINJA_STRING || v.type == JINJA_DICT || v.type == JINJA_UNDEFINED ||
           (v.type == JINJA_LIST && v.list->kind <= JINJA_KIND_RANGE);
}

static bool ordered(jinja_run *run, jinja_value a, jinja_value b, const char *which) {
    int order = sluice__jinja_compare(run, a, b);
    if (run->st != SLUICE_OK || order == 2) return false;
    return which[0] == 'l' ? (which[1] == 'e' ? order <= 0 : order < 0) : which[1] == 'e' ? order >= 0 : order > 0;
}

enum {
    DEFINED,
    UNDEF,
    NONE,
    BOOLEAN,
    IS_TRUE,
    IS_FALSE,
    INTEGER,
    REAL,
    NUMBER,
    STRING,
    MAPPING,
    SEQUENCE,
    ITERABLE,
    CALLABLE,
    EVEN,
    ODD,
    LOWER,
    UPPER,
    DIVISIBLE,
    EQUAL,
    NOT_EQUAL,
    LT,
    LE,
    GT,
    GE,
    IN,
    SAMEAS,
    FILTER,
    TEST
};

static const struct {
    const char *name;
    int what, arguments;
} tests[] = {
    {"defined", DEFINED, 0},
    {"undefined", UNDEF, 0},
    {"none", NONE, 0},
    {"boolean", BOOLEAN, 0},
    {"true", IS_TRUE, 0},
    {"false", IS_FALSE, 0},
    {"integer", INTEGER, 0},
    {"float", REAL, 0},
    {"number", NUMBER, 0},
    {"string", STRING, 0},
    {"mapping", MAPPING, 0},
    {"sequence", SEQUENCE, 0},
    {"iterable", ITERABLE, 0},
    {"callable", CALLABLE, 0},
    {"even", EVEN, 0},
    {"odd", ODD, 0},
    {"lower", LOWER, 0},
    {"upper", UPPER, 0},
    {"divisibleby", DIVISIBLE, 1},
    {"eq", EQUAL, 1},
    {"equalto", EQUAL, 1},
    {"==", EQUAL, 1},
    {"ne", NOT_EQUAL, 1},
    {"!=", NOT_EQUAL, 1},
    {"lt", LT, 1},
    {"lessthan", LT, 1},
    {"<", LT, 1},
    {"le", LE, 1},
    {"<=", LE, 1},
    {"gt", GT, 1},
    {"greaterthan", GT, 1},
    {">", GT, 1},
    {"ge", GE, 1},
    {">=", GE, 1},
    {"in", IN, 1},
    {"sameas", SAMEAS, 1},
    {"filter", FILTER, 0},
    {"test", TEST, 0},
};
enum { TESTS = sizeof tests / sizeof *tests };

static int find_test(const char *name) {
    for (int i = 0; i < TESTS; i++)
        if (!strcmp(tests[i].name, name)) return i;
    return -1;
}

bool sluice__jinja_has_test(const char *name) { return find_test(name) >= 0; }

static const jinja_filter *find_filter(const char *name) {
    for (const jinja_filter *f = sluice__jinja_text_filters; f->name; f++)
        if (!strcmp(f->name, name)) return f;
    for (const jinja_filter *f = sluice__jinja_sequence_filters; f->name; f++)
        if (!strcmp(f->name, name)) return f;
    return NULL;
}

bool sluice__jinja_has_filter(const char *name) { return find_filter(name) != NULL; }

static bool names_something(jinja_value v, bool filter) {
    char name[64];
    if (v.type != JINJA_STRING || v.size >= sizeof name) return false;
    memcpy(name, v.text, v.size);
    name[v.size] = 0;
    return filter ? sluice__jinja_has_filter(name) : sluice__jinja_has_test(name);
}

static bool type_test(int what, jinja_value v) {
    switch (what) {
    case DEFINED: return v.type != JINJA_UNDEFINED;
    case UNDEF: return v.type == JINJA_UNDEFINED;
    case NONE: return v.type == JINJA_NONE;
    case BOOLEAN: return v.type == JINJA_BOOL;
    case IS_TRUE: return v.type == JINJA_BOOL && v.truth;
    case IS_FALSE: return v.type == JINJA_BOOL && !v.truth;
    case INTEGER: return v.type == JINJA_INT;
    case REAL: return v.type == JINJA_FLOAT;
    case NUMBER: return sluice__jinja_is_number(v);
    case STRING: return v.type == JINJA_STRING;
    case MAPPING: return v.type == JINJA_DICT;
    case SEQUENCE: return is_sequence(v);
    case ITERABLE: return sluice__jinja_iterable(v) || v.type == JINJA_LOOP;
    case CALLABLE:
        return v.type == JINJA_FUNCTION || v.type == JINJA_METHOD || v.type == JINJA_MACRO || v.type == JINJA_UNDEFINED;
    default: return false;
    }
}

bool sluice__jinja_apply_test(jinja_run *run, const char *name, jinja_value v, const jinja_arguments *args) {
    jinja_value a[JINJA_MAX_ARGUMENTS] = {0};
    int at = find_test(name);
    if (at < 0) return sluice__jinja_unsupported(run, "the test \"%s\"", name), false;
    if (!sluice__jinja_bind(run, name, args, tests[at].arguments ? "other" : "", tests[at].arguments, a)) return false;
    switch (tests[at].what) {
    case EVEN: return odd(run, v, 0);
    case ODD: return odd(run, v, 1);
    case LOWER: return case_is(run, v, "islower");
    case UPPER: return case_is(run, v, "isupper");
    case DIVISIBLE: return divisible(run, v, a[0]);
    case EQUAL: return sluice__jinja_equal(run, v, a[0]);
    case NOT_EQUAL: return !sluice__jinja_equal(run, v, a[0]);
    case LT: return ordered(run, v, a[0], "lt");
    case LE: return ordered(run, v, a[0], "le");
    case GT: return ordered(run, v, a[0], "gt");
    case GE: return ordered(run, v, a[0], "ge");
    case IN: return sluice__jinja_contains(run, v, a[0]);
    case SAMEAS: return same_object(v, a[0]);
    case FILTER: return names_something(v, true);
    case TEST: return names_something(v, false);
    default: return type_test(tests[at].what, v);
    }
}

jinja_value sluice__jinja_apply_filter(jinja_run *run, const char *name, jinja_value v, const jinja_arguments *args) {
    jinja_value a[JINJA_MAX_ARGUMENTS] = {0};
    const jinja_filter *f = find_filter(name);
    if (!f) return sluice__jinja_unsupported(run, "the filter \"%s\"", name);
    if (f->signature && !sluice__jinja_bind(run, name, args, f->signature, f->required, a))
        return sluice__jinja_undefined("");
    if (!sluice__jinja_spend(run, 0)) return v;
    return f->apply(run, v, a, args);
}
