/* SPDX-License-Identifier: Apache-2.0 */
/* Expressions by recursive descent, in jinja2's order of precedence: condition, or, and, not, comparison, + and -, ~,
 * * / // %, **, sign, then attributes, calls, filters and tests. The depth of every expression is bounded. */
#include "model/jinja/syntax.h"
#include <string.h>

enum { MAX_EXPRESSION_DEPTH = 250, MAX_NESTING = 150 };

bool sluice__jinja_at_name(const jinja_parser *p, const char *name) {
    return p->token->type == JINJA_TOKEN_NAME && !strcmp(p->token->value.text, name);
}

bool sluice__jinja_at_operator(const jinja_parser *p, const char *op) {
    return p->token->type == JINJA_TOKEN_OPERATOR && !strcmp(p->token->value.text, op);
}

bool sluice__jinja_skip_name(jinja_parser *p, const char *name) {
    bool found = sluice__jinja_at_name(p, name);
    p->token += found;
    return found;
}

bool sluice__jinja_skip_operator(jinja_parser *p, const char *op) {
    bool found = sluice__jinja_at_operator(p, op);
    p->token += found;
    return found;
}

jinja_node *sluice__jinja_unexpected(jinja_parser *p, const char *wanted) {
    static const char *const names[] = {"end of template", "template data", "{{", "}}", "{%", "end of block", NULL,
                                        "a constant"};
    const jinja_token *t = p->token;
    bool spelt = t->type == JINJA_TOKEN_NAME || t->type == JINJA_TOKEN_OPERATOR;
    sluice__jinja_syntax_error(p->run, t->line, "found \"%.100s\", expected %s", spelt ? t->value.text : names[t->type],
                               wanted);
    return NULL;
}

bool sluice__jinja_expect_operator(jinja_parser *p, const char *op) {
    if (p->run->st != SLUICE_OK) return false;
    if (sluice__jinja_skip_operator(p, op)) return true;
    sluice__jinja_unexpected(p, op);
    return false;
}

const char *sluice__jinja_expect_name(jinja_parser *p) {
    if (p->run->st != SLUICE_OK) return NULL;
    if (p->token->type == JINJA_TOKEN_NAME) return p->token++->value.text;
    sluice__jinja_unexpected(p, "a name");
    return NULL;
}

bool sluice__jinja_enter(jinja_parser *p) {
    if (p->run->st != SLUICE_OK) return false;
    if (++p->depth <= MAX_NESTING) return true;
    p->depth--;
    p->run->line = p->token->line;
    sluice__jinja_unsupported(p->run, "more than %d nested expressions and statements", MAX_NESTING);
    return false;
}

jinja_node *sluice__jinja_node(jinja_parser *p, jinja_kind kind, int line) {
    jinja_node *n = sluice__jinja_take(p->run, 1, sizeof *n);
    if (!n) return NULL;
    n->kind = kind;
    n->line = line;
    return n;
}

void sluice__jinja_append(jinja_chain *chain, jinja_node *node) {
    if (!node) return;
    if (!chain->last) chain->last = &chain->first;
    *chain->last = node;
    chain->last = &node->next;
}

static int depth_of(const jinja_node *n) { return n ? n->depth : 0; }

/* a, b, c and name into a fresh node; NULL when a failed. */
static jinja_node *make(jinja_parser *p, jinja_kind kind, int line, const char *name, jinja_node *a, jinja_node *b) {
    jinja_node *n = p->run->st == SLUICE_OK ? sluice__jinja_node(p, kind, line) : NULL;
    if (!n) return NULL;
    n->name = name;
    n->a = a;
    n->b = b;
    n->depth = 1 + (depth_of(a) > depth_of(b) ? depth_of(a) : depth_of(b));
    if (n->depth <= MAX_EXPRESSION_DEPTH) return n;
    p->run->line = line;
    sluice__jinja_unsupported(p->run, "an expression of more than %d operators in a row", MAX_EXPRESSION_DEPTH);
    return NULL;
}

static jinja_node *parse_unary(jinja_parser *p, bool with_filter);
static jinja_node *parse_postfix(jinja_parser *p, jinja_node *node);
static jinja_node *parse_primary(jinja_parser *p, bool with_namespace);

static const char *operator_of(const jinja_parser *p, const char *const *list) {
    for (; *list; list++)
        if (sluice__jinja_at_operator(p, *list)) return *list;
    return NULL;
}

static jinja_node *parse_power(jinja_parser *p) {
    int line = p->token->line;
    jinja_node *left = parse_unary(p, true);
    while (left && sluice__jinja_skip_operator(p, "**")) {
        jinja_node *right = parse_unary(p, true);
        left = right ? make(p, JINJA_BINARY, line, "**", left, right) : NULL;
    }
    return left;
}

static jinja_node *parse_product(jinja_parser *p) {
    static const char *const ops[] = {"*", "/", "//", "%", NULL};
    int line = p->token->line;
    jinja_node *left = parse_power(p);
    for (const char *op; left && (op = operator_of(p, ops));) {
        p->token++;
        jinja_node *right = parse_power(p);
        left = right ? make(p, JINJA_BINARY, line, op, left, right) : NULL;
    }
    return left;
}

static jinja_node *parse_concat(jinja_parser *p) {
    int line = p->token->line;
    jinja_node *first = parse_product(p);
    if (!first || !sluice__jinja_at_operator(p, "~")) return first;
    jinja_chain chain = {0};
    int depth = first->depth;
    sluice__jinja_append(&chain, first);
    while (p->run->st == SLUICE_OK && sluice__jinja_skip_operator(p, "~")) {
        jinja_node *item = parse_product(p);
        if (depth_of(item) > depth) depth = item->depth;
        sluice__jinja_append(&chain, item);
    }
    jinja_node *n = make(p, JINJA_CONCAT, line, NULL, NULL, NULL);
    if (n) n->list = chain.first;
    if (n) n->depth = depth + 1;
    return n;
}

static jinja_node *parse_sum(jinja_parser *p) {
    static const char *const ops[] = {"+", "-", NULL};
    int line = p->token->line;
    jinja_node *left = parse_concat(p);
    for (const char *op; left && (op = operator_of(p, ops));) {
        p->token++;
        jinja_node *right = parse_concat(p);
        left = right ? make(p, JINJA_BINARY, line, op, left, right) : NULL;
    }
    return left;
}

/* The comparison at the current token, which is skipped, or NULL. */
static const char *skip_comparison(jinja_parser *p) {
    static const char *const ops[] = {"==", "!=", "<", "<=", ">", ">=", NULL};
    const char *op = operator_of(p, ops);
    if (op) {
        p->token++;
        return op;
    }
    if (sluice__jinja_skip_name(p, "in")) return "in";
    if (!sluice__jinja_at_name(p, "not")) return NULL;
    p->token++;
    if (sluice__jinja_skip_name(p, "in")) return "not in";
    p->token--;
    return NULL;
}

static jinja_node *parse_compare(jinja_parser *p) {
    int line = p->token->line;
    jinja_node *first = parse_sum(p), *n = NULL;
    jinja_chain chain = {0};
    for (const char *op; first && p->run->st == SLUICE_OK && (op = skip_comparison(p));) {
        if (!n) n = make(p, JINJA_COMPARE, line, NULL, first, NULL);
        jinja_node *operand = make(p, JINJA_OPERAND, p->token->line, op, parse_sum(p), NULL);
        if (n && operand && operand->depth > n->depth) n->depth = operand->depth;
        sluice__jinja_append(&chain, operand);
    }
    if (!n) return p->run->st == SLUICE_OK ? first : NULL;
    n->list = chain.first;
    return n;
}

static jinja_node *parse_not(jinja_parser *p) {
    int line = p->token->line;
    if (!sluice__jinja_skip_name(p, "not")) return parse_compare(p);
    if (!sluice__jinja_enter(p)) return NULL;
    jinja_node *n = make(p, JINJA_NOT, line, NULL, parse_not(p), NULL);
    p->depth--;
    return n;
}

static jinja_node *parse_and(jinja_parser *p) {
    int line = p->token->line;
    jinja_node *left = parse_not(p);
    while (left && sluice__jinja_skip_name(p, "and")) left = make(p, JINJA_AND, line, NULL, left, parse_not(p));
    return left;
}

static jinja_node *parse_or(jinja_parser *p) {
    int line = p->token->line;
    jinja_node *left = parse_and(p);
    while (left && sluice__jinja_skip_name(p, "or")) left = make(p, JINJA_OR, line, NULL, left, parse_and(p));
    return left;
}

static jinja_node *parse_conditional(jinja_parser *p) {
    int line = p->token->line;
    jinja_node *value = parse_or(p);
    while (value && sluice__jinja_skip_name(p, "if")) {
        jinja_node *test = parse_or(p), *other = NULL;
        if (test && sluice__jinja_skip_name(p, "else")) other = sluice__jinja_parse_expression(p, true);
        jinja_node *n = test ? make(p, JINJA_CONDITIONAL, line, NULL, test, value) : NULL;
        if (n) n->c = other;
        if (n && depth_of(other) >= n->depth) n->depth = other->depth + 1;
        value = p->run->st == SLUICE_OK ? n : NULL;
    }
    return value;
}

jinja_node *sluice__jinja_parse_expression(jinja_parser *p, bool with_conditional) {
    if (!sluice__jinja_enter(p)) return NULL;
    jinja_node *n = with_conditional ? parse_conditional(p) : parse_or(p);
    p->depth--;
    return p->run->st == SLUICE_OK ? n : NULL;
}

/* ---- primaries ---- */

/* Items up to the closing bracket; pairs of a dict when `dict`. */
static jinja_node *parse_items(jinja_parser *p, jinja_kind kind, const char *close, bool dict) {
    int line = p->token++->line;
    jinja_chain chain = {0};
    int depth = 0;
    while (p->run->st == SLUICE_OK && !sluice__jinja_at_operator(p, close)) {
        if (chain.first && !sluice__jinja_expect_operator(p, ",")) return NULL;
        if (sluice__jinja_at_operator(p, close)) break;
        jinja_node *item = sluice__jinja_parse_expression(p, true);
        if (dict && item && sluice__jinja_expect_operator(p, ":"))
            item = make(p, JINJA_PAIR, item->line, NULL, item, sluice__jinja_parse_expression(p, true));
        if (depth_of(item) > depth) depth = item->depth;
        sluice__jinja_append(&chain, item);
    }
    if (!sluice__jinja_expect_operator(p, close)) return NULL;
    jinja_node *n = make(p, kind, line, NULL, NULL, NULL);
    if (n) n->list = chain.first;
    if (n) n->depth = depth + 1;
    return n;
}

static jinja_node *constant(jinja_parser *p, int line, jinja_value value) {
    jinja_node *n = make(p, JINJA_CONSTANT, line, NULL, NULL, NULL);
    if (n) n->value = value;
    return n;
}

static jinja_node *parse_name(jinja_parser *p, bool with_namespace) {
    int line = p->token->line;
    const char *name = p->token++->value.text;
    if (!strcmp(name, "true") || !strcmp(name, "True")) return constant(p, line, sluice__jinja_bool(true));
    if (!strcmp(name, "false") || !strcmp(name, "False")) return constant(p, line, sluice__jinja_bool(false));
    if (!strcmp(name, "none") || !strcmp(name, "None")) return constant(p, line, sluice__jinja_none());
    if (!with_namespace || !sluice__jinja_skip_operator(p, ".")) return make(p, JINJA_NAME, line, name, NULL, NULL);
    const char *attribute = sluice__jinja_expect_name(p);
    jinja_node *n = attribute ? make(p, JINJA_ATTRIBUTE_TARGET, line, name, NULL, NULL) : NULL;
    if (n) n->value = sluice__jinja_text(attribute, strlen(attribute));
    return n;
}

/* Strings that stand side by side are one. */
static jinja_node *parse_constant(jinja_parser *p) {
    int line = p->token->line;
    jinja_value v = p->token++->value;
    if (v.type != JINJA_STRING || p->token->type != JINJA_TOKEN_CONSTANT || p->token->value.type != JINJA_STRING)
        return constant(p, line, v);
    sluice__strbuf b = {0};
    sluice__strbuf_add(&b, v.text, v.size);
    for (; p->token->type == JINJA_TOKEN_CONSTANT && p->token->value.type == JINJA_STRING; p->token++)
        sluice__strbuf_add(&b, p->token->value.text, p->token->value.size);
    return constant(p, line, sluice__jinja_take_text(p->run, &b));
}

static jinja_node *parse_primary(jinja_parser *p, bool with_namespace) {
    if (p->run->st != SLUICE_OK) return NULL;
    if (p->token->type == JINJA_TOKEN_NAME) return parse_name(p, with_namespace);
    if (p->token->type == JINJA_TOKEN_CONSTANT) return parse_constant(p);
    if (sluice__jinja_at_operator(p, "[")) return parse_items(p, JINJA_LIST_OF, "]", false);
    if (sluice__jinja_at_operator(p, "{")) return parse_items(p, JINJA_DICT_OF, "}", true);
    if (!sluice__jinja_skip_operator(p, "(")) return sluice__jinja_unexpected(p, "an expression");
    jinja_node *n = sluice__jinja_parse_tuple(p, true, true);
    return sluice__jinja_expect_operator(p, ")") ? n : NULL;
}

static bool is_tuple_end(const jinja_parser *p, const char *until) {
    return p->token->type == JINJA_TOKEN_OUTPUT_END || p->token->type == JINJA_TOKEN_BLOCK_END ||
           sluice__jinja_at_operator(p, ")") || (until && sluice__jinja_at_name(p, until));
}

typedef enum tuple_of { EXPRESSIONS, CONDITIONALS, TARGETS, NAMESPACE_TARGETS } tuple_of;

static jinja_node *parse_tuple_of(jinja_parser *p, tuple_of what, const char *until, bool in_parentheses) {
    int line = p->token->line, depth = 0;
    jinja_chain chain = {0};
    bool tuple = false;
    while (p->run->st == SLUICE_OK && !is_tuple_end(p, until)) {
        jinja_node *item = what >= TARGETS ? parse_primary(p, what == NAMESPACE_TARGETS)
                                           : sluice__jinja_parse_expression(p, what == CONDITIONALS);
        if (depth_of(item) > depth) depth = item->depth;
        sluice__jinja_append(&chain, item);
        if (!sluice__jinja_skip_operator(p, ",")) break;
        tuple = true;
    }
    if (p->run->st != SLUICE_OK) return NULL;
    if (!tuple && chain.first) return chain.first;
    if (!tuple && !in_parentheses) return sluice__jinja_unexpected(p, "an expression");
    jinja_node *n = make(p, JINJA_TUPLE, line, NULL, NULL, NULL);
    if (n) n->list = chain.first;
    if (n) n->depth = depth + 1;
    return n;
}

jinja_node *sluice__jinja_parse_tuple(jinja_parser *p, bool with_conditional, bool in_parentheses) {
    return parse_tuple_of(p, with_conditional ? CONDITIONALS : EXPRESSIONS, NULL, in_parentheses);
}

static bool can_assign(const jinja_node *n) {
    if (n->kind == JINJA_NAME || n->kind == JINJA_ATTRIBUTE_TARGET) return true;
    if (n->kind != JINJA_TUPLE) return false;
    for (const jinja_node *i = n->list; i; i = i->next)
        if (!can_assign(i)) return false;
    return true;
}

jinja_node *sluice__jinja_parse_target(jinja_parser *p, bool with_namespace, const char *until) {
    int line = p->token->line;
    jinja_node *n = parse_tuple_of(p, with_namespace ? NAMESPACE_TARGETS : TARGETS, until, false);
    if (!n || can_assign(n)) return n;
    sluice__jinja_syntax_error(p->run, line, "cannot assign to this expression");
    return NULL;
}

/* ---- what follows a primary ---- */

/* Arguments in parentheses into node->list and node->more. */
static bool parse_arguments(jinja_parser *p, jinja_node *node) {
    jinja_chain plain = {0}, named = {0};
    int line = p->token->line, depth = node->depth;
    if (!sluice__jinja_expect_operator(p, "(")) return false;
    while (p->run->st == SLUICE_OK && !sluice__jinja_at_operator(p, ")")) {
        if ((plain.first || named.first) && !sluice__jinja_expect_operator(p, ",")) return false;
        if (sluice__jinja_at_operator(p, ")")) break;
        if (sluice__jinja_at_operator(p, "*") || sluice__jinja_at_operator(p, "**")) {
            p->run->line = line;
            sluice__jinja_unsupported(p->run, "%s in a call", p->token->value.text);
            return false;
        }
        const char *name = p->token->type == JINJA_TOKEN_NAME ? p->token->value.text : NULL;
        p->token++;
        bool is_named = name && sluice__jinja_skip_operator(p, "=");
        if (!is_named) p->token--;
        if (!is_named && named.first) {
            sluice__jinja_syntax_error(p->run, line, "a positional argument behind a named one");
            return false;
        }
        jinja_node *value = sluice__jinja_parse_expression(p, true);
        if (depth_of(value) > depth) depth = value->depth;
        if (is_named)
            sluice__jinja_append(&named, make(p, JINJA_NAMED, line, name, value, NULL));
        else
            sluice__jinja_append(&plain, value);
    }
    node->list = plain.first;
    node->more = named.first;
    node->depth = depth + 1;
    return sluice__jinja_expect_operator(p, ")");
}

static jinja_node *parse_call(jinja_parser *p, jinja_node *callee) {
    jinja_node *n = make(p, JINJA_CALL, p->token->line, NULL, callee, NULL);
    return n && parse_arguments(p, n) ? n : NULL;
}

static jinja_node *parse_subscribed(jinja_parser *p) {
    int line = p->token->line;
    jinja_node *part[3] = {0};
    int at = 0;
    bool slice = false;
    while (p->run->st == SLUICE_OK && !sluice__jinja_at_operator(p, "]")) {
        if (sluice__jinja_skip_operator(p, ":")) {
            slice = true;
            if (++at > 2) return sluice__jinja_unexpected(p, "]");
            continue;
        }
        if (part[at]) break;
        part[at] = sluice__jinja_parse_expression(p, true);
    }
    if (!slice) return p->run->st == SLUICE_OK && !part[0] ? sluice__jinja_unexpected(p, "an expression") : part[0];
    jinja_node *n = make(p, JINJA_SLICE, line, NULL, part[0], part[1]);
    if (n) n->c = part[2];
    if (n && depth_of(part[2]) >= n->depth) n->depth = part[2]->depth + 1;
    return n;
}

static jinja_node *parse_subscript(jinja_parser *p, jinja_node *node) {
    int line = p->token->line;
    if (sluice__jinja_skip_operator(p, ".")) {
        if (p->token->type == JINJA_TOKEN_NAME)
            return make(p, JINJA_GET_ATTRIBUTE, line, p->token++->value.text, node, NULL);
        if (p->token->type != JINJA_TOKEN_CONSTANT || p->token->value.type != JINJA_INT)
            return sluice__jinja_unexpected(p, "a name or a number");
        jinja_value index = p->token++->value;
        return make(p, JINJA_GET_ITEM, line, NULL, node, constant(p, line, index));
    }
    p->token++;
    jinja_node *index = parse_subscribed(p);
    if (index && sluice__jinja_at_operator(p, ",")) {
        p->run->line = line;
        sluice__jinja_unsupported(p->run, "a subscript with a comma");
    }
    if (!sluice__jinja_expect_operator(p, "]")) return NULL;
    return make(p, JINJA_GET_ITEM, line, NULL, node, index);
}

static jinja_node *parse_postfix(jinja_parser *p, jinja_node *node) {
    while (node && p->run->st == SLUICE_OK) {
        if (sluice__jinja_at_operator(p, ".") || sluice__jinja_at_operator(p, "["))
            node = parse_subscript(p, node);
        else if (sluice__jinja_at_operator(p, "("))
            node = parse_call(p, node);
        else
            break;
    }
    return p->run->st == SLUICE_OK ? node : NULL;
}

static bool known(jinja_parser *p, int line, const char *name, bool filter) {
    if (sluice__jinja_at_operator(p, ".") ||
        !(filter ? sluice__jinja_has_filter(name) : sluice__jinja_has_test(name))) {
        p->run->line = line;
        sluice__jinja_unsupported(p->run, "the %s \"%s\"", filter ? "filter" : "test", name);
        return false;
    }
    return true;
}

jinja_node *sluice__jinja_parse_filter(jinja_parser *p, jinja_node *node, bool inline_start) {
    while (p->run->st == SLUICE_OK && (inline_start || sluice__jinja_at_operator(p, "|"))) {
        if (!inline_start) p->token++;
        inline_start = false;
        int line = p->token->line;
        const char *name = sluice__jinja_expect_name(p);
        if (!name || !known(p, line, name, true)) return NULL;
        node = make(p, JINJA_FILTER, line, name, node, NULL);
        if (node && sluice__jinja_at_operator(p, "(") && !parse_arguments(p, node)) return NULL;
    }
    return p->run->st == SLUICE_OK ? node : NULL;
}

/* A test may take one argument without parentheses: "x is divisibleby 3". */
static bool starts_argument(const jinja_parser *p) {
    if (p->token->type == JINJA_TOKEN_CONSTANT) return true;
    if (p->token->type == JINJA_TOKEN_NAME)
        return !sluice__jinja_at_name(p, "else") && !sluice__jinja_at_name(p, "or") && !sluice__jinja_at_name(p, "and");
    return sluice__jinja_at_operator(p, "[") || sluice__jinja_at_operator(p, "{");
}

static jinja_node *parse_test(jinja_parser *p, jinja_node *node) {
    int line = p->token++->line;
    bool negated = sluice__jinja_skip_name(p, "not");
    const char *name = sluice__jinja_expect_name(p);
    if (!name || !known(p, line, name, false)) return NULL;
    jinja_node *n = make(p, JINJA_TEST, line, name, node, NULL);
    if (n && sluice__jinja_at_operator(p, "(")) {
        if (!parse_arguments(p, n)) return NULL;
    } else if (n && starts_argument(p)) {
        if (sluice__jinja_at_name(p, "is")) {
            sluice__jinja_syntax_error(p->run, line, "tests cannot be chained with \"is\"");
            return NULL;
        }
        n->list = parse_postfix(p, parse_primary(p, false));
        if (n->list && n->list->depth >= n->depth) n->depth = n->list->depth + 1;
    }
    return negated ? make(p, JINJA_NOT, line, NULL, n, NULL) : p->run->st == SLUICE_OK ? n : NULL;
}

static jinja_node *parse_unary(jinja_parser *p, bool with_filter) {
    int line = p->token->line;
    jinja_node *node;
    if (!sluice__jinja_enter(p)) return NULL;
    if (sluice__jinja_skip_operator(p, "-"))
        node = make(p, JINJA_NEGATE, line, NULL, parse_unary(p, false), NULL);
    else if (sluice__jinja_skip_operator(p, "+"))
        node = make(p, JINJA_POSITIVE, line, NULL, parse_unary(p, false), NULL);
    else
        node = parse_primary(p, false);
    node = parse_postfix(p, node);
    while (with_filter && node && p->run->st == SLUICE_OK) {
        if (sluice__jinja_at_operator(p, "|"))
            node = sluice__jinja_parse_filter(p, node, false);
        else if (sluice__jinja_at_name(p, "is"))
            node = parse_test(p, node);
        else if (sluice__jinja_at_operator(p, "("))
            node = parse_call(p, node);
        else
            break;
    }
    p->depth--;
    return p->run->st == SLUICE_OK ? node : NULL;
}
