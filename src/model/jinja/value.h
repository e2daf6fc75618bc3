/* SPDX-License-Identifier: Apache-2.0 */
/* Values of the template language and the run that they live in. A value is 24 bytes and is passed by value; what it
 * points at comes from the run's arena and is never changed once it is made (templates cannot change lists), so that
 * nothing has to be counted or freed one by one. Only namespaces, loops and generators have state.
 *
 * Errors are sticky: whoever fails sets run->st and gives back an undefined value; everybody looks at run->st before
 * going on in a loop. Text is UTF-8, always well-formed; positions and lengths that a template sees count characters.
 */
#ifndef SLUICE_MODEL_JINJA_VALUE_H
#define SLUICE_MODEL_JINJA_VALUE_H
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/error.h"
#include "base/strbuf.h"

typedef struct jinja_node jinja_node;
typedef struct jinja_scope jinja_scope;

typedef enum jinja_type {
    JINJA_UNDEFINED, /* text: the name that was looked for, for messages */
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INT,
    JINJA_FLOAT,
    JINJA_STRING,
    JINJA_LIST, /* every kind of sequence: jinja_list.kind */
    JINJA_DICT,
    JINJA_NAMESPACE, /* a dict that {% set ns.x %} changes */
    JINJA_LOOP,
    JINJA_MACRO,
    JINJA_FUNCTION, /* a global function; text: its name */
    JINJA_METHOD    /* bound to a receiver */
} jinja_type;

typedef struct jinja_list jinja_list;
typedef struct jinja_dict jinja_dict;
typedef struct jinja_loop jinja_loop;
typedef struct jinja_macro jinja_macro;
typedef struct jinja_method jinja_method;

typedef struct jinja_value {
    jinja_type type;
    union {
        bool truth;
        int64_t integer;
        double real;
        const char *text;
        jinja_list *list;
        jinja_dict *dict;
        jinja_loop *loop;
        const jinja_macro *macro;
        const jinja_method *method;
    };
    size_t size; /* bytes of text */
} jinja_value;

typedef enum jinja_list_kind {
    JINJA_KIND_LIST,
    JINJA_KIND_TUPLE,
    JINJA_KIND_RANGE,
    JINJA_KIND_KEYS, /* views of a dict */
    JINJA_KIND_VALUES,
    JINJA_KIND_ITEMS,
    JINJA_KIND_GENERATOR /* what select, map and the like give: can be gone through once, has no length */
} jinja_list_kind;

struct jinja_list {
    jinja_list_kind kind;
    bool used_up; /* a generator that somebody has gone through */
    size_t count, capacity;
    jinja_value *items;
};

typedef struct jinja_pair {
    jinja_value key, value;
    uint64_t hash;
} jinja_pair;

struct jinja_dict {
    size_t count, capacity;
    jinja_pair *pairs; /* in order of insertion */
    uint32_t *table;   /* [slots] index + 1, 0 = free; NULL while there are few */
    size_t slots;
};

struct jinja_method {
    jinja_value receiver;
    const char *name;
};

struct jinja_macro {
    const jinja_node *node; /* MACRO or CALL_BLOCK */
    jinja_scope *scope;     /* where it was defined */
};

struct jinja_loop {
    const jinja_list *items;
    size_t at; /* 0-based */
    int depth;
    bool has_last;
    jinja_value last; /* for loop.changed */
};

typedef struct jinja_arena {
    struct jinja_block *blocks;
    size_t at, size; /* in the first block */
} jinja_arena;

typedef struct jinja_run {
    jinja_arena *arena;
    size_t bytes_left; /* memory and output that may still be taken */
    int64_t steps_left;
    int depth;           /* nested evaluations */
    const char *name;    /* of the template, for messages */
    int line;            /* of what is being evaluated */
    int64_t now;         /* seconds since 1970 for strftime_now */
    sluice__strbuf *out; /* where output goes: the result, or what a block captures */
    json_t *variables;   /* the caller's, converted when first looked up */
    jinja_scope *root;
    sluice_status st;
    sluice_error *err;
} jinja_run;

enum { JINJA_MAX_DEPTH = 600 };

/* ---- memory ---- */
void *sluice__jinja_take(jinja_run *run, size_t count, size_t size); /* zeroed; NULL = failed */
void sluice__jinja_arena_free(jinja_arena *arena);
/* False when the run has failed or has just spent its last step. Work that is longer than a step says how much. */
bool sluice__jinja_spend(jinja_run *run, size_t work);

/* ---- errors: all give an undefined value ---- */
/* What the template does wrong, at run->line. */
jinja_value sluice__jinja_fail(jinja_run *run, const char *fmt, ...) SLUICE__PRINTF(2, 3);
/* What this version does not know. */
jinja_value sluice__jinja_unsupported(jinja_run *run, const char *fmt, ...) SLUICE__PRINTF(2, 3);
jinja_value sluice__jinja_no_undefined(jinja_run *run, jinja_value v); /* "'x' is undefined" */

/* ---- making ---- */
static inline jinja_value sluice__jinja_undefined(const char *name) {
    return (jinja_value){.type = JINJA_UNDEFINED, .text = name};
}
static inline jinja_value sluice__jinja_none(void) { return (jinja_value){.type = JINJA_NONE}; }
static inline jinja_value sluice__jinja_bool(bool b) { return (jinja_value){.type = JINJA_BOOL, .truth = b}; }
static inline jinja_value sluice__jinja_int(int64_t i) { return (jinja_value){.type = JINJA_INT, .integer = i}; }
static inline jinja_value sluice__jinja_real(double x) { return (jinja_value){.type = JINJA_FLOAT, .real = x}; }
/* text is borrowed: of the template, of the arena, or a literal. */
static inline jinja_value sluice__jinja_text(const char *text, size_t size) {
    return (jinja_value){.type = JINJA_STRING, .text = text, .size = size};
}
jinja_value sluice__jinja_copy_text(jinja_run *run, const char *text, size_t size);
jinja_value sluice__jinja_take_text(jinja_run *run, sluice__strbuf *b); /* frees b */
jinja_value sluice__jinja_list(jinja_run *run, jinja_list_kind kind, size_t expected);
void sluice__jinja_push(jinja_run *run, jinja_list *list, jinja_value item);
jinja_value sluice__jinja_pair_of(jinja_run *run, jinja_value a, jinja_value b); /* a tuple */
jinja_value sluice__jinja_dict(jinja_run *run);
void sluice__jinja_put(jinja_run *run, jinja_dict *dict, jinja_value key, jinja_value value);
jinja_value sluice__jinja_from_json(jinja_run *run, const json_t *json);

/* ---- asking ---- */
const char *sluice__jinja_type_name(jinja_value v); /* as Python names it */
bool sluice__jinja_truth(jinja_value v);
bool sluice__jinja_equal(jinja_run *run, jinja_value a, jinja_value b);
int sluice__jinja_compare(jinja_run *run, jinja_value a, jinja_value b); /* fails where Python does */
const jinja_value *sluice__jinja_find(jinja_run *run, const jinja_dict *dict, jinja_value key); /* or NULL */
const jinja_value *sluice__jinja_find_text(jinja_run *run, const jinja_dict *dict, const char *key);
bool sluice__jinja_hashable(jinja_value v);
/* The items that iterating gives; uses a generator up. NULL (failed) for what cannot be iterated. */
const jinja_list *sluice__jinja_items(jinja_run *run, jinja_value v);
bool sluice__jinja_iterable(jinja_value v);
static inline bool sluice__jinja_is_number(jinja_value v) {
    return v.type == JINJA_INT || v.type == JINJA_FLOAT || v.type == JINJA_BOOL;
}
static inline bool sluice__jinja_is_int(jinja_value v) { return v.type == JINJA_INT || v.type == JINJA_BOOL; }
int64_t sluice__jinja_int_of(jinja_value v);            /* of an int or bool */
double sluice__jinja_real_of(jinja_value v);            /* of a number */
bool sluice__jinja_is(jinja_value v, const char *text); /* a string of this text */

/* ---- as text (text.c) ---- */
jinja_value sluice__jinja_str(jinja_run *run, jinja_value v);                 /* str(v) */
void sluice__jinja_write(jinja_run *run, sluice__strbuf *out, jinja_value v); /* str(v) behind out */
void sluice__jinja_repr(jinja_run *run, sluice__strbuf *out, jinja_value v);
void sluice__jinja_write_real(sluice__strbuf *out, double x); /* repr(x) */

typedef struct jinja_json_style {
    bool ensure_ascii, sort_keys;
    int indent;              /* -1 = one line */
    const char *indent_text; /* or this */
    jinja_value item, key;   /* separators */
} jinja_json_style;
void sluice__jinja_json(jinja_run *run, sluice__strbuf *out, jinja_value v, const jinja_json_style *style);

/* ---- characters (unicode.c) ---- */
bool sluice__jinja_is_space(uint32_t c);
bool sluice__jinja_is_printable(uint32_t c);
size_t sluice__jinja_length(jinja_value text);                   /* characters */
size_t sluice__jinja_offset(jinja_value text, size_t character); /* its byte; size when behind the end */
typedef enum jinja_case { JINJA_LOWER, JINJA_UPPER, JINJA_TITLE, JINJA_CAPITALIZE, JINJA_SWAPCASE } jinja_case;
jinja_value sluice__jinja_recase(jinja_run *run, jinja_value text, jinja_case how);
bool sluice__jinja_character_test(jinja_value text, const char *name, bool *known); /* "isdigit" and the like */
#endif
