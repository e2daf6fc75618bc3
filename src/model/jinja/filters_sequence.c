/* SPDX-License-Identifier: Apache-2.0 */
/* Filters on sequences. What is a generator in jinja2 is one here: it has no length and can be gone through once. */
#include "base/memory.h"
#include "model/jinja/eval.h"
#include "model/utf8.h"
#include <stdlib.h>
#include <string.h>

#define FILTER(name)                                                                                                   \
    static jinja_value name(jinja_run *run, jinja_value v, const jinja_value *a, const jinja_arguments *args)
#define UNUSED(x) (void)(x)

/* "a.b.0" of an item; an undefined step becomes `otherwise` where one is given. */
static jinja_value path_of(jinja_run *run, jinja_value item, jinja_value path, jinja_value otherwise) {
    if (sluice__jinja_is_int(path)) item = sluice__jinja_item(run, item, path);
    if (path.type != JINJA_STRING) return item;
    const char *p = path.text, *end = p + path.size;
    while (run->st == SLUICE_OK) {
        const char *dot = p < end ? memchr(p, '.', (size_t)(end - p)) : NULL, *stop = dot ? dot : end;
        jinja_value key = sluice__jinja_text(p, (size_t)(stop - p));
        bool number = key.size > 0 && key.size < 18;
        int64_t index = 0;
        for (size_t i = 0; i < key.size && number; i++) {
            number = key.text[i] >= '0' && key.text[i] <= '9';
            index = index * 10 + (key.text[i] - '0');
        }
        item = sluice__jinja_item(run, item, number ? sluice__jinja_int(index) : key);
        if (item.type == JINJA_UNDEFINED && sluice__jinja_given(otherwise) && otherwise.type != JINJA_NONE)
            item = otherwise;
        if (!dot) break;
        p = dot + 1;
    }
    return item;
}

static jinja_value no_default(void) { return (jinja_value){.type = JINJA_UNDEFINED}; }

/* What an item is sorted and compared by. */
static jinja_value sort_key(jinja_run *run, jinja_value item, jinja_value attribute, bool case_sensitive) {
    bool has = sluice__jinja_given(attribute) && attribute.type != JINJA_NONE;
    if (has) item = path_of(run, item, attribute, no_default());
    return !case_sensitive && item.type == JINJA_STRING && run->st == SLUICE_OK
               ? sluice__jinja_recase(run, item, JINJA_LOWER)
               : item;
}

static bool flag(jinja_value v) { return sluice__jinja_given(v) && sluice__jinja_truth(v); }

/* jinja2 sorts lists of keys: what is equal is not asked for an order that it may not have. */
static bool comes_before(jinja_run *run, jinja_value a, jinja_value b) {
    return !sluice__jinja_equal(run, a, b) && run->st == SLUICE_OK && sluice__jinja_compare(run, a, b) == -1;
}

/* Merge sort, so that equal keys keep their order; reversed order keeps it as well. keys and items move together. */
static void merge_sort(jinja_run *run, jinja_value *keys, jinja_value *items, jinja_value *spare, size_t n,
                       bool reverse) {
    if (n < 2 || run->st != SLUICE_OK) return;
    size_t half = n / 2, i = 0, j = half, out = 0;
    merge_sort(run, keys, items, spare, half, reverse);
    merge_sort(run, keys + half, items + half, spare, n - half, reverse);
    while (i < half && j < n && run->st == SLUICE_OK) {
        bool second = reverse ? comes_before(run, keys[i], keys[j]) : comes_before(run, keys[j], keys[i]);
        size_t take = second ? j++ : i++;
        spare[2 * out] = keys[take];
        spare[2 * out++ + 1] = items[take];
    }
    for (; i < half; i++, out++) spare[2 * out] = keys[i], spare[2 * out + 1] = items[i];
    for (; j < n; j++, out++) spare[2 * out] = keys[j], spare[2 * out + 1] = items[j];
    if (out != n) return; /* failed */
    for (i = 0; i < n; i++) keys[i] = spare[2 * i], items[i] = spare[2 * i + 1];
}

static jinja_value sorted(jinja_run *run, const jinja_list *list, jinja_value *keys, bool reverse) {
    jinja_value out = sluice__jinja_list(run, JINJA_KIND_LIST, list->count);
    jinja_value *spare = sluice__jinja_take(run, 2 * list->count, sizeof *spare);
    for (size_t i = 0; i < list->count && run->st == SLUICE_OK; i++) sluice__jinja_push(run, out.list, list->items[i]);
    if (run->st == SLUICE_OK) merge_sort(run, keys, out.list->items, spare, list->count, reverse);
    return out;
}

FILTER(filter_sort) {
    UNUSED(args);
    const jinja_list *list = sluice__jinja_items(run, v);
    if (a[2].type == JINJA_STRING && memchr(a[2].text, ',', a[2].size))
        return sluice__jinja_unsupported(run, "sort by several attributes");
    jinja_value *keys = list ? sluice__jinja_take(run, list->count, sizeof *keys) : NULL;
    if (!keys) return v;
    for (size_t i = 0; i < list->count && run->st == SLUICE_OK; i++)
        keys[i] = sort_key(run, list->items[i], a[2], flag(a[1]));
    return run->st == SLUICE_OK ? sorted(run, list, keys, flag(a[0])) : v;
}

FILTER(filter_dictsort) {
    UNUSED(args);
    bool by_value = sluice__jinja_is(a[1], "value");
    if (v.type != JINJA_DICT)
        return sluice__jinja_fail(run, "dictsort: expected a dict, found %s", sluice__jinja_type_name(v));
    if (!by_value && sluice__jinja_given(a[1]) && !sluice__jinja_is(a[1], "key"))
        return sluice__jinja_fail(run, "dictsort: you can only sort by either \"key\" or \"value\"");
    jinja_value pairs = sluice__jinja_list(run, JINJA_KIND_LIST, v.dict->count);
    jinja_value *keys = sluice__jinja_take(run, v.dict->count, sizeof *keys);
    for (size_t i = 0; keys && i < v.dict->count && run->st == SLUICE_OK; i++) {
        const jinja_pair *p = &v.dict->pairs[i];
        sluice__jinja_push(run, pairs.list, sluice__jinja_pair_of(run, p->key, p->value));
        keys[i] = sort_key(run, by_value ? p->value : p->key, no_default(), flag(a[0]));
    }
    return run->st == SLUICE_OK ? sorted(run, pairs.list, keys, flag(a[2])) : v;
}

static jinja_value extreme(jinja_run *run, jinja_value v, const jinja_value *a, int sign) {
    const jinja_list *list = sluice__jinja_items(run, v);
    jinja_value best = sluice__jinja_undefined("the extreme of an empty sequence"), best_key = best;
    for (size_t i = 0; list && i < list->count && run->st == SLUICE_OK; i++) {
        jinja_value key = sort_key(run, list->items[i], a[1], flag(a[0]));
        if (i && sluice__jinja_compare(run, key, best_key) * sign <= 0) continue;
        best = list->items[i];
        best_key = key;
    }
    return best;
}
FILTER(filter_min) {
    UNUSED(args);
    return extreme(run, v, a, -1);
}
FILTER(filter_max) {
    UNUSED(args);
    return extreme(run, v, a, 1);
}

FILTER(filter_unique) {
    UNUSED(args);
    const jinja_list *list = sluice__jinja_items(run, v);
    jinja_value seen = sluice__jinja_dict(run), out = sluice__jinja_list(run, JINJA_KIND_GENERATOR, 0);
    for (size_t i = 0; list && i < list->count && run->st == SLUICE_OK; i++) {
        jinja_value key = sort_key(run, list->items[i], a[1], flag(a[0]));
        if (run->st != SLUICE_OK || !sluice__jinja_hashable(key)) {
            sluice__jinja_fail(run, "unhashable type: '%s'", sluice__jinja_type_name(key));
            break;
        }
        if (sluice__jinja_find(run, seen.dict, key)) continue;
        sluice__jinja_put(run, seen.dict, key, sluice__jinja_none());
        sluice__jinja_push(run, out.list, list->items[i]);
    }
    return out;
}

FILTER(filter_sum) {
    UNUSED(args);
    const jinja_list *list = sluice__jinja_items(run, v);
    jinja_value sum = sluice__jinja_given(a[1]) ? a[1] : sluice__jinja_int(0);
    bool has = sluice__jinja_given(a[0]) && a[0].type != JINJA_NONE;
    if (sum.type == JINJA_STRING) return sluice__jinja_fail(run, "sum() can't sum strings");
    for (size_t i = 0; list && i < list->count && run->st == SLUICE_OK; i++) {
        jinja_value item = has ? path_of(run, list->items[i], a[0], no_default()) : list->items[i];
        if (run->st == SLUICE_OK) sum = sluice__jinja_binary(run, "+", sum, item);
    }
    return sum;
}

FILTER(filter_join) {
    UNUSED(args);
    jinja_value between = sluice__jinja_given(a[0]) ? sluice__jinja_str(run, a[0]) : sluice__jinja_text("", 0);
    bool has = sluice__jinja_given(a[1]) && a[1].type != JINJA_NONE;
    const jinja_list *list = sluice__jinja_items(run, v);
    sluice__strbuf b = {0};
    for (size_t i = 0; list && i < list->count && run->st == SLUICE_OK; i++) {
        if (i) sluice__jinja_write(run, &b, between);
        jinja_value item = has ? path_of(run, list->items[i], a[1], no_default()) : list->items[i];
        if (run->st == SLUICE_OK) sluice__jinja_write(run, &b, item);
    }
    return sluice__jinja_take_text(run, &b);
}

static jinja_value new_list(jinja_run *run, const jinja_list *list, jinja_list_kind kind, bool backwards) {
    jinja_value out = sluice__jinja_list(run, kind, 0);
    for (size_t i = 0; list && i < list->count && run->st == SLUICE_OK; i++)
        sluice__jinja_push(run, out.list, list->items[backwards ? list->count - 1 - i : i]);
    return out;
}

FILTER(filter_list) {
    UNUSED(a);
    UNUSED(args);
    return new_list(run, sluice__jinja_items(run, v), JINJA_KIND_LIST, false);
}

FILTER(filter_reverse) {
    UNUSED(a);
    UNUSED(args);
    bool generator = v.type == JINJA_LIST && v.list->kind == JINJA_KIND_GENERATOR;
    if (v.type == JINJA_STRING)
        return sluice__jinja_slice(run, v, sluice__jinja_none(), sluice__jinja_none(), sluice__jinja_int(-1));
    return new_list(run, sluice__jinja_items(run, v), generator ? JINJA_KIND_LIST : JINJA_KIND_GENERATOR, true);
}

FILTER(filter_first) {
    UNUSED(a);
    UNUSED(args);
    if (v.type == JINJA_STRING && v.size) return sluice__jinja_item(run, v, sluice__jinja_int(0));
    const jinja_list *list = sluice__jinja_items(run, v);
    return list && list->count ? list->items[0] : sluice__jinja_undefined("the first item of an empty sequence");
}

FILTER(filter_last) {
    UNUSED(a);
    UNUSED(args);
    if (v.type == JINJA_STRING && v.size) return sluice__jinja_item(run, v, sluice__jinja_int(-1));
    if (v.type == JINJA_LIST && v.list->kind == JINJA_KIND_GENERATOR)
        return sluice__jinja_fail(run, "'generator' object is not reversible");
    const jinja_list *list = sluice__jinja_items(run, v);
    return list && list->count ? list->items[list->count - 1]
                               : sluice__jinja_undefined("the last item of an empty sequence");
}

FILTER(filter_length) {
    UNUSED(a);
    UNUSED(args);
    if (v.type == JINJA_STRING)
        return sluice__jinja_spend(run, v.size) ? sluice__jinja_int((int64_t)sluice__jinja_length(v)) : v;
    if (v.type == JINJA_DICT) return sluice__jinja_int((int64_t)v.dict->count);
    if (v.type == JINJA_LIST && v.list->kind != JINJA_KIND_GENERATOR) return sluice__jinja_int((int64_t)v.list->count);
    if (v.type == JINJA_UNDEFINED) return sluice__jinja_int(0);
    if (v.type == JINJA_LOOP) return sluice__jinja_int((int64_t)v.loop->items->count);
    return sluice__jinja_fail(run, "object of type '%s' has no len()", sluice__jinja_type_name(v));
}

FILTER(filter_items) {
    UNUSED(a);
    UNUSED(args);
    jinja_value out = sluice__jinja_list(run, JINJA_KIND_GENERATOR, 0);
    if (v.type == JINJA_UNDEFINED) return out;
    if (v.type != JINJA_DICT) return sluice__jinja_fail(run, "Can only get item pairs from a mapping.");
    for (size_t i = 0; i < v.dict->count && run->st == SLUICE_OK; i++)
        sluice__jinja_push(run, out.list, sluice__jinja_pair_of(run, v.dict->pairs[i].key, v.dict->pairs[i].value));
    return out;
}

FILTER(filter_batch) {
    UNUSED(args);
    const jinja_list *list = sluice__jinja_items(run, v);
    int64_t size = sluice__jinja_int_argument(run, a[0], 0, "linecount");
    bool fill = sluice__jinja_given(a[1]) && a[1].type != JINJA_NONE;
    jinja_value out = sluice__jinja_list(run, JINJA_KIND_GENERATOR, 0), row = out;
    if (run->st == SLUICE_OK && size < 1) return sluice__jinja_unsupported(run, "batches of %lld", (long long)size);
    for (size_t i = 0; list && i < list->count && run->st == SLUICE_OK; i++) {
        if ((int64_t)i % size == 0) {
            row = sluice__jinja_list(run, JINJA_KIND_LIST, 0);
            if (run->st == SLUICE_OK) sluice__jinja_push(run, out.list, row);
        }
        if (run->st == SLUICE_OK) sluice__jinja_push(run, row.list, list->items[i]);
    }
    while (fill && run->st == SLUICE_OK && list->count && (int64_t)row.list->count < size)
        sluice__jinja_push(run, row.list, a[1]);
    return out;
}

FILTER(filter_attr) {
    UNUSED(args);
    jinja_value name = sluice__jinja_text_argument(run, a[0], "name");
    if (run->st != SLUICE_OK) return name;
    char *text = sluice__jinja_take(run, name.size + 1, 1);
    if (!text) return name;
    memcpy(text, name.text, name.size);
    jinja_value found = sluice__jinja_attribute(run, v, text);
    bool item = v.type == JINJA_DICT && found.type != JINJA_METHOD; /* attributes only, no items */
    return item ? sluice__jinja_undefined(text) : found;
}

/* ---- map, select and their like ---- */

static jinja_arguments rest_of(const jinja_arguments *args, size_t skip) {
    jinja_arguments rest = *args;
    rest.plain += skip;
    rest.count -= skip;
    return rest;
}

/* A name given as an argument, as text that ends with NUL. */
static const char *name_argument(jinja_run *run, jinja_value v, const char *what) {
    jinja_value text = sluice__jinja_text_argument(run, v, what);
    char *name = run->st == SLUICE_OK ? sluice__jinja_take(run, text.size + 1, 1) : NULL;
    if (name) memcpy(name, text.text, text.size);
    return name;
}

FILTER(filter_map) {
    UNUSED(a);
    jinja_value attribute = no_default(), otherwise = no_default(),
                out = sluice__jinja_list(run, JINJA_KIND_GENERATOR, 0);
    const jinja_list *list = sluice__jinja_truth(v) ? sluice__jinja_items(run, v) : NULL;
    bool by_attribute = false;
    for (size_t i = 0; i < args->named_count; i++) {
        if (args->count) break;
        if (!strcmp(args->names[i], "attribute"))
            attribute = args->named[i], by_attribute = true;
        else if (!strcmp(args->names[i], "default"))
            otherwise = args->named[i];
        else
            return sluice__jinja_fail(run, "map: unexpected keyword argument '%s'", args->names[i]);
    }
    if (run->st != SLUICE_OK || !list) return out;
    if (!by_attribute && !args->count) return sluice__jinja_fail(run, "map requires a filter argument");
    const char *name = by_attribute ? NULL : name_argument(run, args->plain[0], "map");
    jinja_arguments rest = by_attribute ? *args : rest_of(args, 1);
    for (size_t i = 0; i < list->count && run->st == SLUICE_OK; i++) {
        jinja_value item = by_attribute ? path_of(run, list->items[i], attribute, otherwise)
                                        : sluice__jinja_apply_filter(run, name, list->items[i], &rest);
        if (run->st == SLUICE_OK) sluice__jinja_push(run, out.list, item);
    }
    return out;
}

static jinja_value choose(jinja_run *run, jinja_value v, const jinja_arguments *args, bool want, bool by_attribute) {
    jinja_value out = sluice__jinja_list(run, JINJA_KIND_GENERATOR, 0);
    const jinja_list *list = sluice__jinja_truth(v) ? sluice__jinja_items(run, v) : NULL;
    size_t at = by_attribute;
    if (run->st != SLUICE_OK || !list) return out;
    if (args->count < at) return sluice__jinja_fail(run, "missing parameter for attribute name");
    const char *test = args->count > at ? name_argument(run, args->plain[at], "the name of a test") : NULL;
    jinja_arguments rest = test ? rest_of(args, at + 1) : *args;
    for (size_t i = 0; i < list->count && run->st == SLUICE_OK; i++) {
        jinja_value item = by_attribute ? path_of(run, list->items[i], args->plain[0], no_default()) : list->items[i];
        if (run->st != SLUICE_OK) break;
        bool yes = test ? sluice__jinja_apply_test(run, test, item, &rest) : sluice__jinja_truth(item);
        if (yes == want && run->st == SLUICE_OK) sluice__jinja_push(run, out.list, list->items[i]);
    }
    return out;
}
FILTER(filter_select) {
    UNUSED(a);
    return choose(run, v, args, true, false);
}
FILTER(filter_reject) {
    UNUSED(a);
    return choose(run, v, args, false, false);
}
FILTER(filter_selectattr) {
    UNUSED(a);
    return choose(run, v, args, true, true);
}
FILTER(filter_rejectattr) {
    UNUSED(a);
    return choose(run, v, args, false, true);
}

const jinja_filter sluice__jinja_sequence_filters[] = {
    {"attr", "name", 1, filter_attr},
    {"batch", "linecount fill_with", 1, filter_batch},
    {"count", "", 0, filter_length},
    {"dictsort", "case_sensitive by reverse", 0, filter_dictsort},
    {"first", "", 0, filter_first},
    {"items", "", 0, filter_items},
    {"join", "d attribute", 0, filter_join},
    {"last", "", 0, filter_last},
    {"length", "", 0, filter_length},
    {"list", "", 0, filter_list},
    {"map", NULL, 0, filter_map},
    {"max", "case_sensitive attribute", 0, filter_max},
    {"min", "case_sensitive attribute", 0, filter_min},
    {"reject", NULL, 0, filter_reject},
    {"rejectattr", NULL, 0, filter_rejectattr},
    {"reverse", "", 0, filter_reverse},
    {"select", NULL, 0, filter_select},
    {"selectattr", NULL, 0, filter_selectattr},
    {"sort", "reverse case_sensitive attribute", 0, filter_sort},
    {"sum", "attribute start", 0, filter_sum},
    {"unique", "case_sensitive attribute", 0, filter_unique},
    {NULL, NULL, 0, NULL},
};
