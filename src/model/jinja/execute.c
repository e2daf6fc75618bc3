/* SPDX-License-Identifier: Apache-2.0 */
/* Statements, and the macros that they define. A loop body, a macro, {% with %} and every block that captures have a
 * scope of their own, so that {% set %} inside of them does not reach outside; {% if %} has none. */
#include "model/jinja/eval.h"
#include <string.h>

static void assign(jinja_run *run, jinja_scope *scope, const jinja_node *target, jinja_value value);

static void unpack(jinja_run *run, jinja_scope *scope, const jinja_node *target, jinja_value value) {
    if (value.type == JINJA_UNDEFINED) { /* iterates as nothing, and nothing does not unpack */
        sluice__jinja_no_undefined(run, value);
        return;
    }
    const jinja_list *items = sluice__jinja_items(run, value);
    size_t want = 0;
    for (const jinja_node *t = target->list; t; t = t->next) want++;
    if (!items) return;
    if (items->count != want) {
        sluice__jinja_fail(run, "cannot unpack %zu values into %zu names", items->count, want);
        return;
    }
    size_t i = 0;
    for (const jinja_node *t = target->list; t; t = t->next) assign(run, scope, t, items->items[i++]);
}

static void assign(jinja_run *run, jinja_scope *scope, const jinja_node *target, jinja_value value) {
    if (run->st != SLUICE_OK) return;
    if (target->kind == JINJA_NAME) {
        sluice__jinja_set(run, scope, target->name, value);
    } else if (target->kind == JINJA_TUPLE) {
        unpack(run, scope, target, value);
    } else {
        jinja_value space = sluice__jinja_lookup(run, scope, target->name);
        if (space.type == JINJA_NAMESPACE)
            sluice__jinja_put(run, space.dict, target->value, value);
        else
            sluice__jinja_fail(run, "cannot assign attribute on non-namespace object");
    }
}

/* What the body prints, in a scope of its own; *flow tells of a break on the way. */
static jinja_value capture(jinja_run *run, jinja_scope *scope, const jinja_node *body, jinja_flow *flow) {
    sluice__strbuf b = {0}, *before = run->out;
    run->out = &b;
    *flow = sluice__jinja_execute(run, scope, body);
    run->out = before;
    return sluice__jinja_take_text(run, &b);
}

/* The filter chain of a block, its innermost one reading `v`. */
static jinja_value filter_chain(jinja_run *run, jinja_scope *scope, const jinja_node *n, jinja_value v) {
    if (n->a) v = filter_chain(run, scope, n->a, v);
    if (run->st != SLUICE_OK) return v;
    jinja_node last = *n;
    last.a = NULL;
    last.value = v;
    return sluice__jinja_eval(run, scope, &last);
}

/* ---- macros ---- */

static bool is_parameter(const jinja_node *parameters, const char *name) {
    for (; parameters; parameters = parameters->next)
        if (!strcmp(parameters->name, name)) return true;
    return false;
}

static const jinja_value *named_argument(const jinja_arguments *args, const char *name) {
    for (size_t i = 0; i < args->named_count; i++)
        if (!strcmp(args->names[i], name)) return &args->named[i];
    return NULL;
}

static const char *name_of(const jinja_macro *macro) { return macro->node->name ? macro->node->name : "caller"; }

/* Parameters in order: positional, named, default, or undefined. */
static void bind_parameters(jinja_run *run, const jinja_macro *macro, jinja_scope *scope, const jinja_arguments *args) {
    size_t at = 0;
    for (const jinja_node *p = macro->node->more; p && run->st == SLUICE_OK; p = p->next, at++) {
        const jinja_value *named = named_argument(args, p->name);
        jinja_value v = sluice__jinja_undefined(p->name);
        if (at < args->count && named) {
            sluice__jinja_fail(run, "macro '%s' got two values for '%s'", name_of(macro), p->name);
        } else if (at < args->count) {
            v = args->plain[at];
        } else if (named) {
            v = *named;
        } else if (p->a) {
            v = sluice__jinja_eval(run, scope, p->a);
        }
        sluice__jinja_set(run, scope, p->name, v);
    }
}

/* varargs, kwargs and caller, where the body mentions them; what is left over elsewhere is an error. */
static void bind_rest(jinja_run *run, const jinja_macro *macro, jinja_scope *scope, const jinja_arguments *args) {
    const jinja_node *n = macro->node;
    jinja_value rest = sluice__jinja_list(run, JINJA_KIND_TUPLE, 0), named = sluice__jinja_dict(run);
    const jinja_value *caller = named_argument(args, "caller");
    size_t parameters = 0;
    for (const jinja_node *p = n->more; p; p = p->next) parameters++;
    for (size_t i = parameters; i < args->count && run->st == SLUICE_OK; i++)
        sluice__jinja_push(run, rest.list, args->plain[i]);
    for (size_t i = 0; i < args->named_count && run->st == SLUICE_OK; i++)
        if (!is_parameter(n->more, args->names[i]) && strcmp(args->names[i], "caller"))
            sluice__jinja_put(run, named.dict, sluice__jinja_text(args->names[i], strlen(args->names[i])),
                              args->named[i]);
    if (run->st != SLUICE_OK) return;
    if (rest.list->count && !(n->flags & JINJA_USES_VARARGS))
        sluice__jinja_fail(run, "macro '%s' takes not more than %zu argument(s)", name_of(macro), parameters);
    else if (named.dict->count && !(n->flags & JINJA_USES_KWARGS))
        sluice__jinja_fail(run, "macro '%s' takes no keyword argument '%.*s'", name_of(macro),
                           (int)named.dict->pairs[0].key.size, named.dict->pairs[0].key.text);
    else if (caller && !(n->flags & JINJA_USES_CALLER) && !is_parameter(n->more, "caller"))
        sluice__jinja_fail(run, "macro '%s' was invoked with a caller that it does not call", name_of(macro));
    if (n->flags & JINJA_USES_VARARGS) sluice__jinja_set(run, scope, "varargs", rest);
    if (n->flags & JINJA_USES_KWARGS) sluice__jinja_set(run, scope, "kwargs", named);
    if (n->flags & JINJA_USES_CALLER && !is_parameter(n->more, "caller"))
        sluice__jinja_set(run, scope, "caller", caller ? *caller : sluice__jinja_undefined("caller"));
}

jinja_value sluice__jinja_call_macro(jinja_run *run, const jinja_macro *macro, const jinja_arguments *args) {
    jinja_scope *scope = sluice__jinja_scope(run, macro->scope);
    jinja_flow flow;
    if (!scope) return sluice__jinja_undefined("");
    bind_parameters(run, macro, scope, args);
    bind_rest(run, macro, scope, args);
    return run->st == SLUICE_OK ? capture(run, scope, macro->node->list, &flow) : sluice__jinja_undefined("");
}

static jinja_value macro_of(jinja_run *run, jinja_scope *scope, const jinja_node *n) {
    jinja_macro *m = sluice__jinja_take(run, 1, sizeof *m);
    if (!m) return sluice__jinja_undefined("");
    *m = (jinja_macro){n, scope};
    return (jinja_value){.type = JINJA_MACRO, .macro = m};
}

/* ---- loops ---- */

static const jinja_list *loop_items(jinja_run *run, jinja_scope *scope, const jinja_node *n) {
    jinja_value v = sluice__jinja_eval(run, scope, n->b);
    const jinja_list *all = run->st == SLUICE_OK ? sluice__jinja_items(run, v) : NULL;
    if (!all || !n->c) return all;
    jinja_value kept = sluice__jinja_list(run, JINJA_KIND_LIST, 0);
    for (size_t i = 0; i < all->count && run->st == SLUICE_OK; i++) {
        jinja_scope *inner = sluice__jinja_scope(run, scope);
        if (!inner) return NULL;
        assign(run, inner, n->a, all->items[i]);
        if (sluice__jinja_truth(sluice__jinja_eval(run, inner, n->c)))
            sluice__jinja_push(run, kept.list, all->items[i]);
    }
    return run->st == SLUICE_OK ? kept.list : NULL;
}

static jinja_flow execute_for(jinja_run *run, jinja_scope *scope, const jinja_node *n) {
    const jinja_list *items = loop_items(run, scope, n);
    jinja_loop *loop = sluice__jinja_take(run, 1, sizeof *loop);
    if (!items || !loop) return JINJA_NORMAL;
    *loop = (jinja_loop){.items = items};
    for (size_t i = 0; i < items->count && run->st == SLUICE_OK; i++) {
        jinja_scope *inner = sluice__jinja_scope(run, scope);
        loop->at = i;
        sluice__jinja_set(run, inner, "loop", (jinja_value){.type = JINJA_LOOP, .loop = loop});
        if (inner) assign(run, inner, n->a, items->items[i]);
        if (run->st == SLUICE_OK && sluice__jinja_execute(run, inner, n->list) == JINJA_BROKEN) break;
    }
    if (items->count || !n->more || run->st != SLUICE_OK) return JINJA_NORMAL;
    jinja_scope *inner = sluice__jinja_scope(run, scope);
    return inner ? sluice__jinja_execute(run, inner, n->more) : JINJA_NORMAL;
}

/* ---- the others ---- */

static jinja_flow execute_if(jinja_run *run, jinja_scope *scope, const jinja_node *n) {
    for (;;) {
        bool yes = sluice__jinja_truth(sluice__jinja_eval(run, scope, n->a));
        if (run->st != SLUICE_OK) return JINJA_NORMAL;
        if (yes) return sluice__jinja_execute(run, scope, n->list);
        bool chained = n->more && n->more->kind == JINJA_IF && !n->more->next;
        if (!chained) return sluice__jinja_execute(run, scope, n->more);
        n = n->more;
    }
}

static jinja_flow execute_capture(jinja_run *run, jinja_scope *scope, const jinja_node *n) {
    jinja_flow flow;
    jinja_value v = capture(run, sluice__jinja_scope(run, scope), n->list, &flow);
    if (flow != JINJA_NORMAL || run->st != SLUICE_OK) return flow;
    if (n->b) v = filter_chain(run, scope, n->b, v);
    if (run->st != SLUICE_OK) return flow;
    if (n->kind == JINJA_SET_BLOCK)
        assign(run, scope, n->a, v);
    else
        sluice__jinja_write(run, run->out, v);
    return flow;
}

static jinja_flow execute_with(jinja_run *run, jinja_scope *scope, const jinja_node *n) {
    jinja_scope *inner = sluice__jinja_scope(run, scope);
    for (const jinja_node *pair = n->more; pair && run->st == SLUICE_OK; pair = pair->next)
        assign(run, inner, pair->a, sluice__jinja_eval(run, scope, pair->b)); /* values see the outside only */
    return run->st == SLUICE_OK ? sluice__jinja_execute(run, inner, n->list) : JINJA_NORMAL;
}

static void execute_call(jinja_run *run, jinja_scope *scope, const jinja_node *n) {
    jinja_node call = *n->a; /* the call with one more argument */
    call.value = macro_of(run, scope, n);
    if (run->st == SLUICE_OK) sluice__jinja_write(run, run->out, sluice__jinja_eval(run, scope, &call));
}

static jinja_flow execute_one(jinja_run *run, jinja_scope *scope, const jinja_node *n) {
    switch (n->kind) {
    case JINJA_DATA: sluice__jinja_write(run, run->out, n->value); return JINJA_NORMAL;
    case JINJA_OUTPUT: {
        jinja_value v = sluice__jinja_eval(run, scope, n->a);
        if (run->st == SLUICE_OK) sluice__jinja_write(run, run->out, v);
        return JINJA_NORMAL;
    }
    case JINJA_FOR: return execute_for(run, scope, n);
    case JINJA_IF: return execute_if(run, scope, n);
    case JINJA_SET: assign(run, scope, n->a, sluice__jinja_eval(run, scope, n->b)); return JINJA_NORMAL;
    case JINJA_SET_BLOCK:
    case JINJA_FILTER_BLOCK: return execute_capture(run, scope, n);
    case JINJA_DEFINE_MACRO: sluice__jinja_set(run, scope, n->name, macro_of(run, scope, n)); return JINJA_NORMAL;
    case JINJA_CALL_BLOCK: execute_call(run, scope, n); return JINJA_NORMAL;
    case JINJA_WITH: return execute_with(run, scope, n);
    case JINJA_GENERATION: return sluice__jinja_execute(run, sluice__jinja_scope(run, scope), n->list);
    case JINJA_BREAK: return JINJA_BROKEN;
    case JINJA_CONTINUE: return JINJA_CONTINUED;
    default: sluice__jinja_unsupported(run, "this kind of statement"); return JINJA_NORMAL;
    }
}

jinja_flow sluice__jinja_execute(jinja_run *run, jinja_scope *scope, const jinja_node *list) {
    jinja_flow flow = JINJA_NORMAL;
    if (++run->depth > JINJA_MAX_DEPTH) sluice__jinja_unsupported(run, "statements are nested too deeply");
    for (const jinja_node *n = list; n && flow == JINJA_NORMAL; n = n->next) {
        run->line = n->line;
        if (!sluice__jinja_spend(run, 0)) break;
        flow = execute_one(run, scope, n);
    }
    run->depth--;
    return flow;
}
