/* SPDX-License-Identifier: Apache-2.0 */
/* v.name and v[key]. Like jinja2's sandbox, v.name looks for a method first and for an item then, v[key] the other way
 * round; what is not there is undefined, and so are methods that would change a list or dict. */
#include "model/jinja/eval.h"
#include "model/utf8.h"
#include <string.h>

static jinja_value method_of(jinja_run *run, jinja_value receiver, const char *name) {
    jinja_method *m = sluice__jinja_take(run, 1, sizeof *m);
    if (!m) return sluice__jinja_undefined("");
    *m = (jinja_method){receiver, name};
    return (jinja_value){.type = JINJA_METHOD, .method = m};
}

static bool is_one_of(const char *name, const char *const *list) {
    for (; *list; list++)
        if (!strcmp(*list, name)) return true;
    return false;
}

static bool has_method(jinja_value v, const char *name) {
    static const char *const of_dict[] = {"get", "items", "keys", "values", "copy", NULL};
    static const char *const of_list[] = {"index", "count", "copy", NULL};
    if (v.type == JINJA_STRING) return sluice__jinja_has_text_method(name);
    if (v.type == JINJA_DICT) return is_one_of(name, of_dict);
    return v.type == JINJA_LIST && v.list->kind <= JINJA_KIND_TUPLE && is_one_of(name, of_list) &&
           (v.list->kind == JINJA_KIND_LIST || strcmp(name, "copy"));
}

/* Methods that a dict has in Python and a template may not call: an item of that name is hidden by them. */
static bool is_forbidden(jinja_value v, const char *name) {
    static const char *const of_dict[] = {"clear", "fromkeys", "pop", "popitem", "setdefault", "update", NULL};
    return v.type == JINJA_DICT && is_one_of(name, of_dict);
}

static jinja_value loop_attribute(jinja_run *run, jinja_value v, const char *name) {
    const jinja_loop *l = v.loop;
    int64_t n = (int64_t)l->items->count, at = (int64_t)l->at;
    if (!strcmp(name, "index")) return sluice__jinja_int(at + 1);
    if (!strcmp(name, "index0")) return sluice__jinja_int(at);
    if (!strcmp(name, "revindex")) return sluice__jinja_int(n - at);
    if (!strcmp(name, "revindex0")) return sluice__jinja_int(n - at - 1);
    if (!strcmp(name, "first")) return sluice__jinja_bool(at == 0);
    if (!strcmp(name, "last")) return sluice__jinja_bool(at == n - 1);
    if (!strcmp(name, "length")) return sluice__jinja_int(n);
    if (!strcmp(name, "depth")) return sluice__jinja_int(1);
    if (!strcmp(name, "depth0")) return sluice__jinja_int(0);
    if (!strcmp(name, "previtem"))
        return at > 0 ? l->items->items[at - 1] : sluice__jinja_undefined("there is no previous item");
    if (!strcmp(name, "nextitem"))
        return at + 1 < n ? l->items->items[at + 1] : sluice__jinja_undefined("there is no next item");
    if (!strcmp(name, "cycle") || !strcmp(name, "changed")) return method_of(run, v, name);
    return sluice__jinja_undefined(name);
}

jinja_value sluice__jinja_attribute(jinja_run *run, jinja_value v, const char *name) {
    if (v.type == JINJA_UNDEFINED) return sluice__jinja_no_undefined(run, v);
    if (v.type == JINJA_LOOP) return loop_attribute(run, v, name);
    if (v.type == JINJA_MACRO && !strcmp(name, "name")) {
        const char *own = v.macro->node->name;
        return own ? sluice__jinja_text(own, strlen(own)) : sluice__jinja_none();
    }
    if (has_method(v, name)) return method_of(run, v, name);
    bool keyed = (v.type == JINJA_DICT || v.type == JINJA_NAMESPACE) && !is_forbidden(v, name);
    const jinja_value *item = keyed ? sluice__jinja_find_text(run, v.dict, name) : NULL;
    return item ? *item : sluice__jinja_undefined(name);
}

/* Item of a sequence or character of a text, or NULL-like undefined when there is none. */
static jinja_value at_index(jinja_run *run, jinja_value v, int64_t i) {
    int64_t n = v.type == JINJA_LIST ? (int64_t)v.list->count : (int64_t)sluice__jinja_length(v);
    if (!sluice__jinja_spend(run, v.type == JINJA_STRING ? v.size : 0)) return sluice__jinja_undefined("");
    if (i < 0) i += n;
    if (i < 0 || i >= n) return sluice__jinja_undefined("an item");
    if (v.type == JINJA_LIST) return v.list->items[i];
    size_t begin = sluice__jinja_offset(v, (size_t)i);
    int length;
    sluice__utf8_get((const unsigned char *)v.text + begin, &length);
    return sluice__jinja_text(v.text + begin, (size_t)length);
}

jinja_value sluice__jinja_item(jinja_run *run, jinja_value v, jinja_value key) {
    if (v.type == JINJA_UNDEFINED) return sluice__jinja_no_undefined(run, v);
    bool sequence = v.type == JINJA_STRING || (v.type == JINJA_LIST && v.list->kind <= JINJA_KIND_RANGE);
    if (sequence && sluice__jinja_is_int(key)) return at_index(run, v, sluice__jinja_int_of(key));
    if (v.type == JINJA_DICT && sluice__jinja_hashable(key)) {
        const jinja_value *item = sluice__jinja_find(run, v.dict, key);
        if (item) return *item;
    }
    if (key.type != JINJA_STRING) return sluice__jinja_undefined("an item");
    char *name = sluice__jinja_take(run, key.size + 1, 1);
    if (!name) return sluice__jinja_undefined("");
    memcpy(name, key.text, key.size);
    return v.type == JINJA_DICT && !has_method(v, name) ? sluice__jinja_undefined(name)
                                                        : sluice__jinja_attribute(run, v, name);
}

/* One end of a slice, as Python's slice.indices does it. */
static int64_t clamp(jinja_value v, int64_t n, int64_t step, int64_t when_none) {
    if (v.type == JINJA_NONE) return when_none;
    int64_t i = sluice__jinja_int_of(v), low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n;
    if (i < 0) i += n;
    return i < low ? low : i > high ? high : i;
}

static bool is_slice_part(jinja_value v) { return v.type == JINJA_NONE || sluice__jinja_is_int(v); }

static jinja_value slice_text(jinja_run *run, jinja_value v, int64_t first, int64_t last, int64_t step) {
    if (!sluice__jinja_spend(run, v.size)) return v;
    if (step == 1) {
        if (first >= last) return sluice__jinja_text("", 0);
        size_t begin = sluice__jinja_offset(v, (size_t)first), end = sluice__jinja_offset(v, (size_t)last);
        return sluice__jinja_text(v.text + begin, end - begin);
    }
    const jinja_list *all = sluice__jinja_items(run, v);
    sluice__strbuf b = {0};
    for (int64_t i = first; all && (step > 0 ? i < last : i > last); i += step)
        sluice__strbuf_add(&b, all->items[i].text, all->items[i].size);
    return sluice__jinja_take_text(run, &b);
}

jinja_value sluice__jinja_slice(jinja_run *run, jinja_value v, jinja_value a, jinja_value b, jinja_value c) {
    if (v.type == JINJA_UNDEFINED) return sluice__jinja_no_undefined(run, v);
    bool sequence = v.type == JINJA_STRING || (v.type == JINJA_LIST && v.list->kind <= JINJA_KIND_RANGE);
    if (!sequence)
        return sluice__jinja_fail(run, "'%s' object is not subscriptable by a slice", sluice__jinja_type_name(v));
    if (!is_slice_part(a) || !is_slice_part(b) || !is_slice_part(c))
        return sluice__jinja_fail(run, "slice indices must be integers or None");
    int64_t n = v.type == JINJA_LIST ? (int64_t)v.list->count : (int64_t)sluice__jinja_length(v);
    int64_t step = c.type == JINJA_NONE ? 1 : sluice__jinja_int_of(c);
    if (step == 0) return sluice__jinja_fail(run, "slice step cannot be zero");
    if (step > n + 1) step = n + 1; /* the same items, and no overflow */
    if (step < -(n + 1)) step = -(n + 1);
    int64_t first = clamp(a, n, step, step < 0 ? n - 1 : 0), last = clamp(b, n, step, step < 0 ? -1 : n);
    if (v.type == JINJA_STRING) return slice_text(run, v, first, last, step);
    jinja_value out = sluice__jinja_list(run, v.list->kind, 0);
    for (int64_t i = first; run->st == SLUICE_OK && (step > 0 ? i < last : i > last); i += step)
        sluice__jinja_push(run, out.list, v.list->items[i]);
    return out;
}
