/* SPDX-License-Identifier: Apache-2.0 */
/* Expressions. Names are looked up from the innermost scope outwards, then among the caller's variables, then among the
 * global functions, as late as they are used: what jinja2's compiler arranges ahead of time comes out the same. */
#include "model/jinja/eval.h"
#include <string.h>

jinja_scope *sluice__jinja_scope(jinja_run *run, jinja_scope *parent) {
    jinja_scope *s = sluice__jinja_take(run, 1, sizeof *s);
    if (s) s->parent = parent;
    return s;
}

static jinja_binding *find_binding(jinja_run *run, const jinja_scope *scope, const char *name) {
    for (jinja_binding *b = scope->first; b; b = b->next) {
        if (!sluice__jinja_spend(run, 0)) return NULL;
        if (!strcmp(b->name, name)) return b;
    }
    return NULL;
}

void sluice__jinja_set(jinja_run *run, jinja_scope *scope, const char *name, jinja_value value) {
    if (!scope || run->st != SLUICE_OK) return;
    jinja_binding *b = find_binding(run, scope, name);
    if (!b) {
        b = sluice__jinja_take(run, 1, sizeof *b);
        if (!b) return;
        b->name = name;
        b->next = scope->first;
        scope->first = b;
    }
    b->value = value;
}

static jinja_value lookup_outside(jinja_run *run, const char *name) {
    const json_t *json = json_object_get(run->variables, name);
    if (json) {
        jinja_value v = sluice__jinja_from_json(run, json);
        jinja_binding *b = sluice__jinja_take(run, 1, sizeof *b);
        if (!b) return v;
        *b = (jinja_binding){name, v, run->root->first};
        run->root->first = b;
        return v;
    }
    if (sluice__jinja_has_function(name)) return (jinja_value){.type = JINJA_FUNCTION, .text = name};
    static const char *const others[] = {"cycler", "joiner", "lipsum", "self", NULL};
    for (int i = 0; others[i]; i++)
        if (!strcmp(others[i], name)) return sluice__jinja_unsupported(run, "\"%s\"", name);
    return sluice__jinja_undefined(name);
}

jinja_value sluice__jinja_lookup(jinja_run *run, jinja_scope *scope, const char *name) {
    for (; scope; scope = scope->parent) {
        const jinja_binding *b = find_binding(run, scope, name);
        if (b) return b->value;
    }
    return run->st == SLUICE_OK ? lookup_outside(run, name) : sluice__jinja_undefined(name);
}

static jinja_value eval_sequence(jinja_run *run, jinja_scope *scope, const jinja_node *n) {
    jinja_list_kind kind = n->kind == JINJA_TUPLE ? JINJA_KIND_TUPLE : JINJA_KIND_LIST;
    jinja_value out = sluice__jinja_list(run, kind, 0);
    for (const jinja_node *i = n->list; i && run->st == SLUICE_OK; i = i->next)
        sluice__jinja_push(run, out.list, sluice__jinja_eval(run, scope, i));
    return out;
}

static jinja_value eval_dict(jinja_run *run, jinja_scope *scope, const jinja_node *n) {
    jinja_value out = sluice__jinja_dict(run);
    for (const jinja_node *i = n->list; i && run->st == SLUICE_OK; i = i->next) {
        jinja_value key = sluice__jinja_eval(run, scope, i->a), value = sluice__jinja_eval(run, scope, i->b);
        if (run->st == SLUICE_OK) sluice__jinja_put(run, out.dict, key, value);
    }
    return out;
}

static jinja_value eval_concat(jinja_run *run, jinja_scope *scope, const jinja_node *n) {
    sluice__strbuf b = {0};
    for (const jinja_node *i = n->list; i && run->st == SLUICE_OK; i = i->next)
        sluice__jinja_write(run, &b, sluice__jinja_eval(run, scope, i));
    return sluice__jinja_take_text(run, &b);
}

static bool compare(jinja_run *run, const char *op, jinja_value a, jinja_value b) {
    if (!strcmp(op, "==")) return sluice__jinja_equal(run, a, b);
    if (!strcmp(op, "!=")) return !sluice__jinja_equal(run, a, b);
    if (!strcmp(op, "in")) return sluice__jinja_contains(run, a, b);
    if (!strcmp(op, "not in")) return !sluice__jinja_contains(run, a, b);
    int order = sluice__jinja_compare(run, a, b);
    if (order == 2) return false;
    if (op[0] == '<') return op[1] ? order <= 0 : order < 0;
    return op[1] ? order >= 0 : order > 0;
}

static jinja_value eval_compare(jinja_run *run, jinja_scope *scope, const jinja_node *n) {
    jinja_value left = sluice__jinja_eval(run, scope, n->a);
    for (const jinja_node *o = n->list; o && run->st == SLUICE_OK; o = o->next) {
        jinja_value right = sluice__jinja_eval(run, scope, o->a);
        if (run->st != SLUICE_OK || !compare(run, o->name, left, right)) return sluice__jinja_bool(false);
        left = right;
    }
    return sluice__jinja_bool(true);
}

static jinja_value eval_sign(jinja_run *run, jinja_value v, bool negative) {
    if (v.type == JINJA_UNDEFINED) return sluice__jinja_no_undefined(run, v);
    if (!sluice__jinja_is_number(v))
        return sluice__jinja_fail(run, "bad operand type for a sign: '%s'", sluice__jinja_type_name(v));
    if (v.type == JINJA_FLOAT) return sluice__jinja_real(negative ? -v.real : v.real);
    int64_t i = sluice__jinja_int_of(v);
    if (negative && i == INT64_MIN) return sluice__jinja_unsupported(run, "an integer of more than 64 bits");
    return sluice__jinja_int(negative ? -i : i);
}

static jinja_value eval_item(jinja_run *run, jinja_scope *scope, const jinja_node *n) {
    jinja_value v = sluice__jinja_eval(run, scope, n->a);
    if (n->b->kind != JINJA_SLICE) {
        jinja_value key = sluice__jinja_eval(run, scope, n->b);
        return run->st == SLUICE_OK ? sluice__jinja_item(run, v, key) : v;
    }
    const jinja_node *parts[3] = {n->b->a, n->b->b, n->b->c};
    jinja_value at[3];
    for (int i = 0; i < 3; i++) at[i] = parts[i] ? sluice__jinja_eval(run, scope, parts[i]) : sluice__jinja_none();
    return run->st == SLUICE_OK ? sluice__jinja_slice(run, v, at[0], at[1], at[2]) : v;
}

static bool eval_arguments(jinja_run *run, jinja_scope *scope, const jinja_node *n, jinja_arguments *out) {
    *out = (jinja_arguments){0};
    size_t plain = 0, named = 0;
    for (const jinja_node *i = n->list; i; i = i->next) plain++;
    for (const jinja_node *i = n->more; i; i = i->next) named++;
    out->plain = sluice__jinja_take(run, plain, sizeof *out->plain);
    out->names = sluice__jinja_take(run, named + 1, sizeof *out->names); /* room for a caller */
    out->named = sluice__jinja_take(run, named + 1, sizeof *out->named);
    for (const jinja_node *i = n->list; i && run->st == SLUICE_OK; i = i->next)
        out->plain[out->count++] = sluice__jinja_eval(run, scope, i);
    for (const jinja_node *i = n->more; i && run->st == SLUICE_OK; i = i->next) {
        out->names[out->named_count] = i->name;
        out->named[out->named_count++] = sluice__jinja_eval(run, scope, i->a);
    }
    return run->st == SLUICE_OK;
}

static jinja_value eval_call(jinja_run *run, jinja_scope *scope, const jinja_node *n) {
    jinja_arguments args;
    jinja_value callee = sluice__jinja_eval(run, scope, n->a);
    if (run->st != SLUICE_OK || !eval_arguments(run, scope, n, &args)) return sluice__jinja_undefined("");
    if (n->value.type == JINJA_MACRO) { /* the body of a call block */
        args.names[args.named_count] = "caller";
        args.named[args.named_count++] = n->value;
    }
    run->line = n->line;
    return sluice__jinja_call(run, callee, &args);
}

static jinja_value eval_filter(jinja_run *run, jinja_scope *scope, const jinja_node *n) {
    jinja_arguments args;
    jinja_value v = n->a ? sluice__jinja_eval(run, scope, n->a) : n->value;
    if (run->st != SLUICE_OK || !eval_arguments(run, scope, n, &args)) return sluice__jinja_undefined("");
    run->line = n->line;
    return sluice__jinja_apply_filter(run, n->name, v, &args);
}

static jinja_value eval_test(jinja_run *run, jinja_scope *scope, const jinja_node *n) {
    jinja_arguments args;
    jinja_value v = sluice__jinja_eval(run, scope, n->a);
    if (run->st != SLUICE_OK || !eval_arguments(run, scope, n, &args)) return sluice__jinja_undefined("");
    run->line = n->line;
    return sluice__jinja_bool(sluice__jinja_apply_test(run, n->name, v, &args));
}

static jinja_value eval_logic(jinja_run *run, jinja_scope *scope, const jinja_node *n) {
    jinja_value a = sluice__jinja_eval(run, scope, n->a);
    if (n->kind == JINJA_NOT) return sluice__jinja_bool(!sluice__jinja_truth(a));
    if (n->kind == JINJA_CONDITIONAL) {
        const jinja_node *branch = sluice__jinja_truth(a) ? n->b : n->c;
        return branch && run->st == SLUICE_OK ? sluice__jinja_eval(run, scope, branch)
                                              : sluice__jinja_undefined("an if without else");
    }
    bool done = sluice__jinja_truth(a) == (n->kind == JINJA_OR);
    return done || run->st != SLUICE_OK ? a : sluice__jinja_eval(run, scope, n->b);
}

static jinja_value eval_operator(jinja_run *run, jinja_scope *scope, const jinja_node *n) {
    jinja_value a = sluice__jinja_eval(run, scope, n->a);
    if (run->st != SLUICE_OK) return a;
    if (n->kind == JINJA_GET_ATTRIBUTE) return sluice__jinja_attribute(run, a, n->name);
    if (n->kind != JINJA_BINARY) return eval_sign(run, a, n->kind == JINJA_NEGATE);
    jinja_value b = sluice__jinja_eval(run, scope, n->b);
    run->line = n->line;
    return run->st == SLUICE_OK ? sluice__jinja_binary(run, n->name, a, b) : b;
}

static jinja_value eval_node(jinja_run *run, jinja_scope *scope, const jinja_node *n) {
    switch (n->kind) {
    case JINJA_CONSTANT: return n->value;
    case JINJA_NAME: return sluice__jinja_lookup(run, scope, n->name);
    case JINJA_TUPLE:
    case JINJA_LIST_OF: return eval_sequence(run, scope, n);
    case JINJA_DICT_OF: return eval_dict(run, scope, n);
    case JINJA_AND:
    case JINJA_OR:
    case JINJA_NOT:
    case JINJA_CONDITIONAL: return eval_logic(run, scope, n);
    case JINJA_BINARY:
    case JINJA_NEGATE:
    case JINJA_POSITIVE:
    case JINJA_GET_ATTRIBUTE: return eval_operator(run, scope, n);
    case JINJA_CONCAT: return eval_concat(run, scope, n);
    case JINJA_COMPARE: return eval_compare(run, scope, n);
    case JINJA_GET_ITEM: return eval_item(run, scope, n);
    case JINJA_CALL: return eval_call(run, scope, n);
    case JINJA_FILTER: return eval_filter(run, scope, n);
    case JINJA_TEST: return eval_test(run, scope, n);
    default: return sluice__jinja_unsupported(run, "this kind of expression");
    }
}

jinja_value sluice__jinja_eval(jinja_run *run, jinja_scope *scope, const jinja_node *n) {
    if (!sluice__jinja_spend(run, 0)) return sluice__jinja_undefined("");
    run->line = n->line;
    if (++run->depth > JINJA_MAX_DEPTH) {
        run->depth--;
        return sluice__jinja_unsupported(run, "evaluation is nested too deeply");
    }
    jinja_value v = eval_node(run, scope, n);
    run->depth--;
    return v;
}
