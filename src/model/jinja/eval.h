/* SPDX-License-Identifier: Apache-2.0 */
/* Rendering a tree: scopes, expressions (eval.c), statements and macros (execute.c), attributes and items
 * (attributes.c), operators (arithmetic.c), methods of strings (methods.c), filters and tests. */
#ifndef SLUICE_MODEL_JINJA_EVAL_H
#define SLUICE_MODEL_JINJA_EVAL_H
#include "model/jinja/syntax.h"

typedef struct jinja_binding {
    const char *name;
    jinja_value value;
    struct jinja_binding *next;
} jinja_binding;
struct jinja_scope {
    jinja_scope *parent;
    jinja_binding *first;
};
jinja_scope *sluice__jinja_scope(jinja_run *run, jinja_scope *parent);
void sluice__jinja_set(jinja_run *run, jinja_scope *scope, const char *name, jinja_value value);
jinja_value sluice__jinja_lookup(jinja_run *run, jinja_scope *scope, const char *name);

typedef struct jinja_arguments {
    jinja_value *plain;
    size_t count;
    const char **names;
    jinja_value *named;
    size_t named_count;
} jinja_arguments;
enum { JINJA_MAX_ARGUMENTS = 8 };

/* Deals arguments out to the parameters of `signature` ("old new count"), of which the first `required` have to be
 * given; out[i].text is NULL and its type undefined where one is not. False = failed, naming `what`. */
bool sluice__jinja_bind(jinja_run *run, const char *what, const jinja_arguments *args, const char *signature,
                        int required, jinja_value out[JINJA_MAX_ARGUMENTS]);
static inline bool sluice__jinja_given(jinja_value v) { return v.type != JINJA_UNDEFINED || v.text; }
/* Arguments of a type; `what` is named where they are not. Not given = the default. */
int64_t sluice__jinja_int_argument(jinja_run *run, jinja_value v, int64_t when_absent, const char *what);
jinja_value sluice__jinja_text_argument(jinja_run *run, jinja_value v, const char *what);

jinja_value sluice__jinja_eval(jinja_run *run, jinja_scope *scope, const jinja_node *node);
/* Filter or test `name` on v; fails for one that is not known (map("no such")). */
jinja_value sluice__jinja_apply_filter(jinja_run *run, const char *name, jinja_value v, const jinja_arguments *args);
bool sluice__jinja_apply_test(jinja_run *run, const char *name, jinja_value v, const jinja_arguments *args);
jinja_value sluice__jinja_call(jinja_run *run, jinja_value callee, const jinja_arguments *args);
jinja_value sluice__jinja_call_macro(jinja_run *run, const jinja_macro *macro, const jinja_arguments *args);
jinja_value sluice__jinja_call_method(jinja_run *run, const jinja_method *method, const jinja_arguments *args);
jinja_value sluice__jinja_call_function(jinja_run *run, const char *name, const jinja_arguments *args);
bool sluice__jinja_has_function(const char *name);
bool sluice__jinja_has_text_method(const char *name);

typedef enum jinja_flow { JINJA_NORMAL, JINJA_BROKEN, JINJA_CONTINUED } jinja_flow;
jinja_flow sluice__jinja_execute(jinja_run *run, jinja_scope *scope, const jinja_node *list);

jinja_value sluice__jinja_attribute(jinja_run *run, jinja_value v, const char *name); /* v.name */
jinja_value sluice__jinja_item(jinja_run *run, jinja_value v, jinja_value key);       /* v[key] */
/* v[a:b:c], each an int or none. */
jinja_value sluice__jinja_slice(jinja_run *run, jinja_value v, jinja_value a, jinja_value b, jinja_value c);
jinja_value sluice__jinja_binary(jinja_run *run, const char *op, jinja_value a, jinja_value b);
bool sluice__jinja_contains(jinja_run *run, jinja_value item, jinja_value container);
jinja_value sluice__jinja_percent(jinja_run *run, jinja_value format, jinja_value args);           /* format % args */
jinja_value sluice__jinja_braces(jinja_run *run, jinja_value format, const jinja_arguments *args); /* str.format */

/* Parts of filters that are methods as well. */
jinja_value sluice__jinja_replace(jinja_run *run, jinja_value s, jinja_value from, jinja_value to, int64_t most);
jinja_value sluice__jinja_strip(jinja_run *run, jinja_value s, jinja_value chars, bool left, bool right);
jinja_value sluice__jinja_splitlines(jinja_run *run, jinja_value s, bool keep);
jinja_value sluice__jinja_justify(jinja_run *run, jinja_value s, int64_t width, jinja_value fill, char side);

/* One table per file of filters; ends with name NULL. signature NULL: the filter takes `args` as they are. */
typedef struct jinja_filter {
    const char *name, *signature;
    int required;
    jinja_value (*apply)(jinja_run *run, jinja_value v, const jinja_value *a, const jinja_arguments *args);
} jinja_filter;
extern const jinja_filter sluice__jinja_text_filters[], sluice__jinja_sequence_filters[];
#endif
