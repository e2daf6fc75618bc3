/* SPDX-License-Identifier: Apache-2.0 */
/* The arena, lists, dicts, and what Python says about truth, equality and order. Dicts keep the order of insertion;
 * from nine entries on an open-addressing table finds keys, so that a hostile template cannot make lookups slow. */
#include "model/jinja/value.h"
#include "base/memory.h"
#include "base/rng.h"
#include "model/utf8.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct jinja_block {
    struct jinja_block *next;
    size_t pad; /* what follows stays aligned to 16 */
} jinja_block;

enum { BLOCK = 1 << 16, SMALL_DICT = 8, STEP_WORK = 64 };

void *sluice__jinja_take(jinja_run *run, size_t count, size_t size) {
    size_t bytes = sluice__mul_size(count ? count : 1, size);
    if (run->st != SLUICE_OK) return NULL;
    if (bytes > run->bytes_left) {
        run->st = sluice__fail(run->err, SLUICE_ERR_UNSUPPORTED, "%s: line %d: rendering takes too much memory",
                               run->name, run->line);
        return NULL;
    }
    bytes = (bytes + 15) / 16 * 16;
    run->bytes_left -= bytes < run->bytes_left ? bytes : run->bytes_left;
    jinja_arena *a = run->arena;
    if (!a->blocks || bytes > a->size - a->at) {
        size_t payload = bytes > BLOCK ? bytes : BLOCK;
        jinja_block *b = sluice__calloc(1, sizeof *b + payload, SLUICE__MEM_OTHER);
        if (!b) {
            run->st = sluice__no_memory(run->err, payload, "a chat template");
            return NULL;
        }
        b->next = a->blocks;
        a->blocks = b;
        a->at = 0;
        a->size = payload;
    }
    void *p = (char *)(a->blocks + 1) + a->at;
    a->at += bytes;
    return p;
}

void sluice__jinja_arena_free(jinja_arena *arena) {
    for (jinja_block *b = arena->blocks, *next; b; b = next) {
        next = b->next;
        sluice__free(b);
    }
    *arena = (jinja_arena){0};
}

bool sluice__jinja_spend(jinja_run *run, size_t work) {
    if (run->st != SLUICE_OK) return false;
    run->steps_left -= 1 + (int64_t)(work / STEP_WORK);
    if (run->steps_left >= 0) return true;
    run->st = sluice__fail(run->err, SLUICE_ERR_UNSUPPORTED, "%s: line %d: rendering takes too many steps", run->name,
                           run->line);
    return false;
}

static jinja_value fail_with(jinja_run *run, sluice_status st, const char *fmt, va_list ap) {
    if (run->st == SLUICE_OK) {
        char text[700];
        vsnprintf(text, sizeof text, fmt, ap);
        run->st = sluice__fail(run->err, st, "%s: line %d: %s", run->name, run->line, text);
    }
    return sluice__jinja_undefined("");
}

jinja_value sluice__jinja_fail(jinja_run *run, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    jinja_value v = fail_with(run, SLUICE_ERR_ARGUMENT, fmt, ap);
    va_end(ap);
    return v;
}

jinja_value sluice__jinja_unsupported(jinja_run *run, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    jinja_value v = fail_with(run, SLUICE_ERR_UNSUPPORTED, fmt, ap);
    va_end(ap);
    return v;
}

jinja_value sluice__jinja_no_undefined(jinja_run *run, jinja_value v) {
    return sluice__jinja_fail(run, "%s is undefined", v.text && *v.text ? v.text : "a value");
}

jinja_value sluice__jinja_copy_text(jinja_run *run, const char *text, size_t size) {
    char *copy = sluice__jinja_take(run, size, 1);
    if (!copy) return sluice__jinja_undefined("");
    if (size) memcpy(copy, text, size);
    return sluice__jinja_text(copy, size);
}

jinja_value sluice__jinja_take_text(jinja_run *run, sluice__strbuf *b) {
    jinja_value v = sluice__jinja_undefined("");
    if (b->failed && run->st == SLUICE_OK) run->st = sluice__no_memory(run->err, b->size, "text of a template");
    if (run->st == SLUICE_OK) v = sluice__jinja_copy_text(run, b->data, b->size);
    sluice__strbuf_free(b);
    return v;
}

jinja_value sluice__jinja_list(jinja_run *run, jinja_list_kind kind, size_t expected) {
    jinja_list *list = sluice__jinja_take(run, 1, sizeof *list);
    if (!list) return sluice__jinja_undefined("");
    list->kind = kind;
    list->items = expected ? sluice__jinja_take(run, expected, sizeof *list->items) : NULL;
    list->capacity = list->items ? expected : 0;
    return (jinja_value){.type = JINJA_LIST, .list = list};
}

void sluice__jinja_push(jinja_run *run, jinja_list *list, jinja_value item) {
    if (!sluice__jinja_spend(run, 0)) return;
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 8;
        jinja_value *items = sluice__jinja_take(run, capacity, sizeof *items);
        if (!items) return;
        if (list->count) memcpy(items, list->items, list->count * sizeof *items);
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = item;
}

jinja_value sluice__jinja_pair_of(jinja_run *run, jinja_value a, jinja_value b) {
    jinja_value v = sluice__jinja_list(run, JINJA_KIND_TUPLE, 2);
    if (run->st != SLUICE_OK) return v;
    v.list->items[0] = a;
    v.list->items[1] = b;
    v.list->count = 2;
    return v;
}

/* ---- dicts ---- */

jinja_value sluice__jinja_dict(jinja_run *run) {
    jinja_dict *dict = sluice__jinja_take(run, 1, sizeof *dict);
    return dict ? (jinja_value){.type = JINJA_DICT, .dict = dict} : sluice__jinja_undefined("");
}

bool sluice__jinja_hashable(jinja_value v) {
    if (v.type == JINJA_DICT) return false;
    if (v.type != JINJA_LIST) return true;
    if (v.list->kind != JINJA_KIND_TUPLE) return false;
    for (size_t i = 0; i < v.list->count; i++)
        if (!sluice__jinja_hashable(v.list->items[i])) return false;
    return true;
}

/* Equal values have equal hashes: 1, 1.0 and true are one key. */
static uint64_t hash_of(jinja_value v) {
    if (v.type == JINJA_STRING) return sluice__hash_bytes(v.text, v.size, 0);
    if (sluice__jinja_is_number(v)) {
        double x = sluice__jinja_real_of(v);
        return sluice__hash_bytes(&x, sizeof x, 0x9e3779b97f4a7c15u);
    }
    uint64_t h = (uint64_t)v.type + 1;
    for (size_t i = 0; v.type == JINJA_LIST && i < v.list->count; i++)
        h = h * 0x100000001b3u ^ hash_of(v.list->items[i]);
    return h;
}

static const jinja_value *find_hashed(jinja_run *run, const jinja_dict *dict, jinja_value key, uint64_t hash) {
    if (!dict->table) {
        for (size_t i = 0; i < dict->count; i++)
            if (dict->pairs[i].hash == hash && sluice__jinja_equal(run, dict->pairs[i].key, key))
                return &dict->pairs[i].value;
        return NULL;
    }
    for (size_t s = hash & (dict->slots - 1); dict->table[s]; s = (s + 1) & (dict->slots - 1)) {
        const jinja_pair *p = &dict->pairs[dict->table[s] - 1];
        if (!sluice__jinja_spend(run, 0)) return NULL;
        if (p->hash == hash && sluice__jinja_equal(run, p->key, key)) return &p->value;
    }
    return NULL;
}

const jinja_value *sluice__jinja_find(jinja_run *run, const jinja_dict *dict, jinja_value key) {
    if (!sluice__jinja_spend(run, key.type == JINJA_STRING ? key.size : 0)) return NULL;
    return dict->count ? find_hashed(run, dict, key, hash_of(key)) : NULL;
}

const jinja_value *sluice__jinja_find_text(jinja_run *run, const jinja_dict *dict, const char *key) {
    return sluice__jinja_find(run, dict, sluice__jinja_text(key, strlen(key)));
}

static bool rebuild_table(jinja_run *run, jinja_dict *dict, size_t slots) {
    uint32_t *table = sluice__jinja_take(run, slots, sizeof *table);
    if (!table) return false;
    for (size_t i = 0; i < dict->count; i++) {
        size_t s = dict->pairs[i].hash & (slots - 1);
        while (table[s]) s = (s + 1) & (slots - 1);
        table[s] = (uint32_t)i + 1;
    }
    dict->table = table;
    dict->slots = slots;
    return true;
}

static bool grow_dict(jinja_run *run, jinja_dict *dict) {
    size_t capacity = dict->capacity ? 2 * dict->capacity : SMALL_DICT;
    jinja_pair *pairs = capacity < UINT32_MAX / 4 ? sluice__jinja_take(run, capacity, sizeof *pairs) : NULL;
    if (!pairs) return false;
    if (dict->count) memcpy(pairs, dict->pairs, dict->count * sizeof *pairs);
    dict->pairs = pairs;
    dict->capacity = capacity;
    return capacity == SMALL_DICT || rebuild_table(run, dict, 2 * capacity);
}

void sluice__jinja_put(jinja_run *run, jinja_dict *dict, jinja_value key, jinja_value value) {
    if (key.type == JINJA_LIST && (key.list->kind == JINJA_KIND_RANGE || key.list->kind == JINJA_KIND_GENERATOR)) {
        sluice__jinja_unsupported(run, "a %s as a key", sluice__jinja_type_name(key));
        return;
    }
    if (!sluice__jinja_hashable(key)) {
        sluice__jinja_fail(run, "unhashable type: '%s'", sluice__jinja_type_name(key));
        return;
    }
    uint64_t hash = hash_of(key);
    const jinja_value *old = find_hashed(run, dict, key, hash);
    if (run->st != SLUICE_OK) return;
    if (old) {
        for (size_t i = 0; i < dict->count; i++)
            if (&dict->pairs[i].value == old) {
                dict->pairs[i].value = value;
                sluice__jinja_spend(run, i);
                return;
            }
    }
    if (dict->count == dict->capacity && !grow_dict(run, dict)) return;
    dict->pairs[dict->count++] = (jinja_pair){key, value, hash};
    if (!dict->table) return;
    size_t s = hash & (dict->slots - 1);
    while (dict->table[s]) s = (s + 1) & (dict->slots - 1);
    dict->table[s] = (uint32_t)dict->count;
}

static jinja_value object_from_json(jinja_run *run, const json_t *json) {
    jinja_value out = sluice__jinja_dict(run);
    const char *key;
    json_t *item, *object = (json_t *)(uintptr_t)json; /* jansson iterates without const */
    json_object_foreach(object, key, item) {
        size_t size = json_object_iter_key_len(json_object_key_to_iter(key));
        jinja_value name = sluice__jinja_copy_text(run, key, size);
        jinja_value value = sluice__jinja_from_json(run, item);
        if (run->st != SLUICE_OK) break;
        sluice__jinja_put(run, out.dict, name, value);
    }
    return out;
}

jinja_value sluice__jinja_from_json(jinja_run *run, const json_t *json) {
    if (!sluice__jinja_spend(run, 0)) return sluice__jinja_undefined("");
    switch (json_typeof(json)) {
    case JSON_OBJECT: return object_from_json(run, json);
    case JSON_STRING: return sluice__jinja_copy_text(run, json_string_value(json), json_string_length(json));
    case JSON_INTEGER: return sluice__jinja_int(json_integer_value(json));
    case JSON_REAL: return sluice__jinja_real(json_real_value(json));
    case JSON_TRUE: return sluice__jinja_bool(true);
    case JSON_FALSE: return sluice__jinja_bool(false);
    case JSON_NULL: return sluice__jinja_none();
    case JSON_ARRAY: break;
    }
    size_t n = json_array_size(json);
    jinja_value out = sluice__jinja_list(run, JINJA_KIND_LIST, n);
    for (size_t i = 0; i < n && run->st == SLUICE_OK; i++)
        sluice__jinja_push(run, out.list, sluice__jinja_from_json(run, json_array_get(json, i)));
    return out;
}

/* ---- asking ---- */

const char *sluice__jinja_type_name(jinja_value v) {
    static const char *const kinds[] = {"list",        "tuple",      "range",    "dict_keys",
                                        "dict_values", "dict_items", "generator"};
    switch (v.type) {
    case JINJA_UNDEFINED: return "Undefined";
    case JINJA_NONE: return "NoneType";
    case JINJA_BOOL: return "bool";
    case JINJA_INT: return "int";
    case JINJA_FLOAT: return "float";
    case JINJA_STRING: return "str";
    case JINJA_LIST: return kinds[v.list->kind];
    case JINJA_DICT: return "dict";
    case JINJA_NAMESPACE: return "Namespace";
    case JINJA_LOOP: return "LoopContext";
    case JINJA_MACRO: return "Macro";
    case JINJA_FUNCTION: return "function";
    case JINJA_METHOD: return "builtin_function_or_method";
    }
    return "object";
}

bool sluice__jinja_truth(jinja_value v) {
    switch (v.type) {
    case JINJA_UNDEFINED:
    case JINJA_NONE: return false;
    case JINJA_BOOL: return v.truth;
    case JINJA_INT: return v.integer != 0;
    case JINJA_FLOAT: return v.real != 0;
    case JINJA_STRING: return v.size > 0;
    case JINJA_LIST: return v.list->kind == JINJA_KIND_GENERATOR || v.list->count > 0;
    case JINJA_DICT: return v.dict->count > 0;
    default: return true;
    }
}

int64_t sluice__jinja_int_of(jinja_value v) { return v.type == JINJA_BOOL ? v.truth : v.integer; }

double sluice__jinja_real_of(jinja_value v) { return v.type == JINJA_FLOAT ? v.real : (double)sluice__jinja_int_of(v); }

bool sluice__jinja_is(jinja_value v, const char *text) {
    return v.type == JINJA_STRING && strlen(text) == v.size && !memcmp(v.text, text, v.size);
}

static bool equal_lists(jinja_run *run, const jinja_list *a, const jinja_list *b) {
    if (a == b) return true;
    bool sequence = a->kind <= JINJA_KIND_RANGE;
    if (a->kind != b->kind || a->count != b->count || !sequence) return false;
    for (size_t i = 0; i < a->count; i++)
        if (!sluice__jinja_equal(run, a->items[i], b->items[i])) return false;
    return true;
}

static bool equal_dicts(jinja_run *run, const jinja_dict *a, const jinja_dict *b) {
    if (a == b) return true;
    if (a->count != b->count) return false;
    for (size_t i = 0; i < a->count; i++) {
        const jinja_value *other = sluice__jinja_find(run, b, a->pairs[i].key);
        if (!other || !sluice__jinja_equal(run, a->pairs[i].value, *other)) return false;
    }
    return true;
}

static bool equal_objects(jinja_run *run, jinja_value a, jinja_value b) {
    switch (a.type) {
    case JINJA_UNDEFINED:
    case JINJA_NONE: return true;
    case JINJA_STRING: return a.size == b.size && !memcmp(a.text, b.text, a.size);
    case JINJA_LIST: return equal_lists(run, a.list, b.list);
    case JINJA_DICT: return equal_dicts(run, a.dict, b.dict);
    case JINJA_FUNCTION: return !strcmp(a.text, b.text);
    default: return a.dict == b.dict; /* the same object */
    }
}

bool sluice__jinja_equal(jinja_run *run, jinja_value a, jinja_value b) {
    if (!sluice__jinja_spend(run, a.type == JINJA_STRING ? a.size : 0)) return false;
    if (sluice__jinja_is_number(a) && sluice__jinja_is_number(b)) {
        if (a.type == JINJA_FLOAT || b.type == JINJA_FLOAT) return sluice__jinja_real_of(a) == sluice__jinja_real_of(b);
        return sluice__jinja_int_of(a) == sluice__jinja_int_of(b);
    }
    if (a.type != b.type) return false;
    if (++run->depth > JINJA_MAX_DEPTH) {
        sluice__jinja_unsupported(run, "values are nested too deeply");
        run->depth--;
        return false;
    }
    bool same = equal_objects(run, a, b);
    run->depth--;
    return same;
}

static int compare_lists(jinja_run *run, const jinja_list *a, const jinja_list *b) {
    for (size_t i = 0; i < a->count && i < b->count; i++)
        if (!sluice__jinja_equal(run, a->items[i], b->items[i]))
            return sluice__jinja_compare(run, a->items[i], b->items[i]);
    return (a->count > b->count) - (a->count < b->count);
}

static bool ordered_lists(jinja_value a, jinja_value b) {
    return a.type == JINJA_LIST && b.type == JINJA_LIST && a.list->kind == b.list->kind &&
           a.list->kind <= JINJA_KIND_TUPLE;
}

int sluice__jinja_compare(jinja_run *run, jinja_value a, jinja_value b) {
    if (!sluice__jinja_spend(run, a.type == JINJA_STRING ? a.size : 0)) return 0;
    if (sluice__jinja_is_number(a) && sluice__jinja_is_number(b)) {
        if (a.type == JINJA_FLOAT || b.type == JINJA_FLOAT) {
            double x = sluice__jinja_real_of(a), y = sluice__jinja_real_of(b);
            return isnan(x) || isnan(y) ? 2 : (x > y) - (x < y); /* 2: neither less, nor equal, nor greater */
        }
        int64_t x = sluice__jinja_int_of(a), y = sluice__jinja_int_of(b);
        return (x > y) - (x < y);
    }
    if (a.type == JINJA_STRING && b.type == JINJA_STRING) {
        size_t n = a.size < b.size ? a.size : b.size;
        int order = n ? memcmp(a.text, b.text, n) : 0; /* UTF-8 sorts like code points */
        return order ? (order > 0) - (order < 0) : (a.size > b.size) - (a.size < b.size);
    }
    if (ordered_lists(a, b)) {
        int order = 0;
        if (++run->depth > JINJA_MAX_DEPTH)
            sluice__jinja_unsupported(run, "values are nested too deeply");
        else
            order = compare_lists(run, a.list, b.list);
        run->depth--;
        return order;
    }
    if (a.type == JINJA_UNDEFINED)
        sluice__jinja_no_undefined(run, a);
    else if (b.type == JINJA_UNDEFINED)
        sluice__jinja_no_undefined(run, b);
    else
        sluice__jinja_fail(run, "'%s' and '%s' have no order", sluice__jinja_type_name(a), sluice__jinja_type_name(b));
    return 0;
}

bool sluice__jinja_iterable(jinja_value v) {
    return v.type == JINJA_LIST || v.type == JINJA_DICT || v.type == JINJA_STRING || v.type == JINJA_UNDEFINED;
}

static jinja_value characters_of(jinja_run *run, jinja_value v) {
    jinja_value out = sluice__jinja_list(run, JINJA_KIND_LIST, sluice__jinja_length(v));
    for (size_t at = 0; at < v.size && run->st == SLUICE_OK;) {
        int n;
        sluice__utf8_get((const unsigned char *)v.text + at, &n);
        sluice__jinja_push(run, out.list, sluice__jinja_text(v.text + at, (size_t)n));
        at += (size_t)n;
    }
    return out;
}

const jinja_list *sluice__jinja_items(jinja_run *run, jinja_value v) {
    static const jinja_list empty = {.kind = JINJA_KIND_LIST};
    if (v.type == JINJA_UNDEFINED) return &empty;
    if (v.type == JINJA_LIST) {
        if (v.list->kind != JINJA_KIND_GENERATOR) return v.list;
        if (v.list->used_up) return &empty;
        v.list->used_up = true;
        return v.list;
    }
    jinja_value out = sluice__jinja_undefined("");
    if (v.type == JINJA_STRING) {
        out = characters_of(run, v);
    } else if (v.type == JINJA_DICT) {
        out = sluice__jinja_list(run, JINJA_KIND_LIST, v.dict->count);
        for (size_t i = 0; i < v.dict->count && run->st == SLUICE_OK; i++)
            sluice__jinja_push(run, out.list, v.dict->pairs[i].key);
    } else {
        sluice__jinja_fail(run, "'%s' object is not iterable", sluice__jinja_type_name(v));
    }
    return run->st == SLUICE_OK ? out.list : NULL;
}
