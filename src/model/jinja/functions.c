/* SPDX-License-Identifier: Apache-2.0 */
/* Calls: arguments, the global functions, and whatever else can be called. */
#include "base/memory.h"
#include "model/jinja/eval.h"
#include <string.h>
#include <time.h>

/* The index of `name` among the words of `signature`, or -1; *count = the number of words. */
static int parameter_index(const char *signature, const char *name, int *count) {
    int found = -1, n = 0;
    size_t size = name ? strlen(name) : 0;
    while (*signature) {
        size_t word = strcspn(signature, " ");
        if (name && word == size && !memcmp(signature, name, size)) found = n;
        n++;
        signature += word;
        signature += *signature == ' ';
    }
    *count = n;
    return found;
}

bool sluice__jinja_bind(jinja_run *run, const char *what, const jinja_arguments *args, const char *signature,
                        int required, jinja_value out[JINJA_MAX_ARGUMENTS]) {
    int count;
    bool given[JINJA_MAX_ARGUMENTS] = {0};
    parameter_index(signature, NULL, &count);
    if (args->count > (size_t)count) {
        sluice__jinja_fail(run, "%s takes at most %d argument(s), %zu given", what, count, args->count);
        return false;
    }
    for (int i = 0; i < count; i++) {
        out[i] = (jinja_value){.type = JINJA_UNDEFINED};
        given[i] = (size_t)i < args->count;
        if (given[i]) out[i] = args->plain[i];
    }
    for (size_t i = 0; i < args->named_count; i++) {
        int at = parameter_index(signature, args->names[i], &count);
        if (at < 0 || given[at]) {
            sluice__jinja_fail(run, "%s: %s argument '%s'", what, at < 0 ? "unknown" : "two values for",
                               args->names[i]);
            return false;
        }
        out[at] = args->named[i];
        given[at] = true;
    }
    for (int i = 0; i < required; i++)
        if (!given[i]) {
            sluice__jinja_fail(run, "%s needs %d argument(s)", what, required);
            return false;
        }
    return run->st == SLUICE_OK;
}

int64_t sluice__jinja_int_argument(jinja_run *run, jinja_value v, int64_t when_absent, const char *what) {
    if (!sluice__jinja_given(v)) return when_absent;
    if (sluice__jinja_is_int(v)) return sluice__jinja_int_of(v);
    if (v.type == JINJA_UNDEFINED)
        sluice__jinja_no_undefined(run, v);
    else
        sluice__jinja_fail(run, "%s: expected an integer, found %s", what, sluice__jinja_type_name(v));
    return when_absent;
}

jinja_value sluice__jinja_text_argument(jinja_run *run, jinja_value v, const char *what) {
    if (v.type == JINJA_STRING) return v;
    if (v.type == JINJA_UNDEFINED && v.text) return sluice__jinja_no_undefined(run, v);
    return sluice__jinja_fail(run, "%s: expected a string, found %s", what, sluice__jinja_type_name(v));
}

/* ---- global functions ---- */

enum { MAX_RANGE = 100000 }; /* of jinja2's sandbox */

static jinja_value call_range(jinja_run *run, const jinja_arguments *args) {
    jinja_value a[JINJA_MAX_ARGUMENTS] = {0};
    if (!sluice__jinja_bind(run, "range", args, "start stop step", 1, a)) return a[0];
    int64_t start = 0, stop = sluice__jinja_int_argument(run, a[0], 0, "range"), step = 1;
    if (sluice__jinja_given(a[1])) {
        start = stop;
        stop = sluice__jinja_int_argument(run, a[1], 0, "range");
        step = sluice__jinja_int_argument(run, a[2], 1, "range");
    }
    if (step == 0) return sluice__jinja_fail(run, "range: step must not be zero");
    jinja_value out = sluice__jinja_list(run, JINJA_KIND_RANGE, 0);
    for (int64_t i = start; run->st == SLUICE_OK && (step > 0 ? i < stop : i > stop);) {
        if (out.list->count == MAX_RANGE) return sluice__jinja_fail(run, "range too big, maximum is %d", MAX_RANGE);
        sluice__jinja_push(run, out.list, sluice__jinja_int(i));
        if (__builtin_add_overflow(i, step, &i)) break;
    }
    return out;
}

/* dict(...) and namespace(...): what a dict in front holds, then the named arguments. */
static jinja_value call_dict(jinja_run *run, const char *name, const jinja_arguments *args) {
    jinja_value out = sluice__jinja_dict(run);
    if (args->count > 1) return sluice__jinja_fail(run, "%s takes at most one positional argument", name);
    if (args->count == 1 && args->plain[0].type != JINJA_DICT)
        return sluice__jinja_unsupported(run, "%s of a %s", name, sluice__jinja_type_name(args->plain[0]));
    for (size_t i = 0; args->count && i < args->plain[0].dict->count && run->st == SLUICE_OK; i++)
        sluice__jinja_put(run, out.dict, args->plain[0].dict->pairs[i].key, args->plain[0].dict->pairs[i].value);
    for (size_t i = 0; i < args->named_count && run->st == SLUICE_OK; i++)
        sluice__jinja_put(run, out.dict, sluice__jinja_text(args->names[i], strlen(args->names[i])), args->named[i]);
    if (run->st == SLUICE_OK && !strcmp(name, "namespace")) out.type = JINJA_NAMESPACE;
    return out;
}

static jinja_value call_raise(jinja_run *run, const jinja_arguments *args) {
    jinja_value a[JINJA_MAX_ARGUMENTS] = {0};
    if (!sluice__jinja_bind(run, "raise_exception", args, "message", 1, a)) return a[0];
    jinja_value text = sluice__jinja_str(run, a[0]);
    return run->st == SLUICE_OK ? sluice__jinja_fail(run, "%.*s", (int)(text.size < 500 ? text.size : 500), text.text)
                                : text;
}

static jinja_value call_strftime(jinja_run *run, const jinja_arguments *args) {
    jinja_value a[JINJA_MAX_ARGUMENTS] = {0};
    if (!sluice__jinja_bind(run, "strftime_now", args, "format", 1, a)) return a[0];
    jinja_value format = sluice__jinja_text_argument(run, a[0], "format");
    if (run->st != SLUICE_OK) return format;
    char text[1024], copy[256];
    if (format.size >= sizeof copy - 1 || memchr(format.text, 0, format.size))
        return sluice__jinja_unsupported(run, "a time format this long");
    memcpy(copy, format.text, format.size);
    memcpy(copy + format.size, "|", 2); /* so that an empty result can be told from an overflow */
    time_t now = (time_t)run->now;
    struct tm local;
    if (!localtime_r(&now, &local)) return sluice__jinja_fail(run, "strftime_now: the time is out of range");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    size_t n = strftime(text, sizeof text, copy, &local);
#pragma GCC diagnostic pop
    if (n == 0) return sluice__jinja_unsupported(run, "a time format this long");
    return sluice__jinja_copy_text(run, text, n - 1);
}

bool sluice__jinja_has_function(const char *name) {
    static const char *const names[] = {"range", "dict", "namespace", "raise_exception", "strftime_now", NULL};
    for (int i = 0; names[i]; i++)
        if (!strcmp(names[i], name)) return true;
    return false;
}

jinja_value sluice__jinja_call_function(jinja_run *run, const char *name, const jinja_arguments *args) {
    if (!strcmp(name, "range")) return call_range(run, args);
    if (!strcmp(name, "raise_exception")) return call_raise(run, args);
    if (!strcmp(name, "strftime_now")) return call_strftime(run, args);
    return call_dict(run, name, args);
}

jinja_value sluice__jinja_call(jinja_run *run, jinja_value callee, const jinja_arguments *args) {
    switch (callee.type) {
    case JINJA_FUNCTION: return sluice__jinja_call_function(run, callee.text, args);
    case JINJA_METHOD: return sluice__jinja_call_method(run, callee.method, args);
    case JINJA_MACRO: return sluice__jinja_call_macro(run, callee.macro, args);
    case JINJA_UNDEFINED: return sluice__jinja_no_undefined(run, callee);
    default: return sluice__jinja_fail(run, "'%s' object is not callable", sluice__jinja_type_name(callee));
    }
}
