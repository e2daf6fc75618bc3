/* SPDX-License-Identifier: Apache-2.0 */
/* From the text of a template to its tree: tokens (lexer.c), expressions (parse_expression.c), statements (parse.c).
 * Everything is checked here that can be checked without data: a template that parses uses known statements, filters
 * and tests only. */
#ifndef SLUICE_MODEL_JINJA_SYNTAX_H
#define SLUICE_MODEL_JINJA_SYNTAX_H
#include "model/jinja/value.h"

typedef enum jinja_token_type {
    JINJA_TOKEN_EOF,
    JINJA_TOKEN_DATA,
    JINJA_TOKEN_OUTPUT_BEGIN, /* {{ */
    JINJA_TOKEN_OUTPUT_END,
    JINJA_TOKEN_BLOCK_BEGIN, /* {% */
    JINJA_TOKEN_BLOCK_END,
    JINJA_TOKEN_NAME,
    JINJA_TOKEN_CONSTANT, /* string or number: value */
    JINJA_TOKEN_OPERATOR
} jinja_token_type;

typedef struct jinja_token {
    jinja_token_type type;
    int line;
    jinja_value value; /* data, constant; name and operator as NUL-terminated text */
} jinja_token;

typedef struct jinja_tokens {
    jinja_token *data;
    size_t count, capacity;
} jinja_tokens;

/* Cuts the text up; the tokens end with EOF. Fails into run->st. */
void sluice__jinja_tokenize(jinja_run *run, const char *text, size_t size, jinja_tokens *out);
jinja_value sluice__jinja_syntax_error(jinja_run *run, int line, const char *fmt, ...) SLUICE__PRINTF(3, 4);

/* What a node's fields mean is said beside its kind; a field that is not named is empty. */
typedef enum jinja_kind {
    JINJA_DATA,         /* value */
    JINJA_OUTPUT,       /* a */
    JINJA_FOR,          /* a target, b what is iterated, c condition or NULL; list body, more else */
    JINJA_IF,           /* a condition; list body, more else (a single ELIF there is JINJA_IF as well) */
    JINJA_SET,          /* a target, b value */
    JINJA_SET_BLOCK,    /* a target, b filter or NULL; list body */
    JINJA_DEFINE_MACRO, /* name; more parameters, list body; flags: what it uses */
    JINJA_CALL_BLOCK,   /* a call; more parameters, list body */
    JINJA_FILTER_BLOCK, /* b filter; list body */
    JINJA_WITH,         /* more: pairs of target and value; list body */
    JINJA_GENERATION,   /* list body */
    JINJA_BREAK,
    JINJA_CONTINUE,
    JINJA_PARAMETER,        /* name; a default or NULL */
    JINJA_PAIR,             /* a, b */
    JINJA_CONSTANT,         /* value */
    JINJA_NAME,             /* name */
    JINJA_ATTRIBUTE_TARGET, /* name, value = attribute: the ns.x of {% set ns.x = ... %} */
    JINJA_TUPLE,            /* list */
    JINJA_LIST_OF,          /* list */
    JINJA_DICT_OF,          /* list of pairs */
    JINJA_CONDITIONAL,      /* a condition, b, c or NULL */
    JINJA_AND,              /* a, b */
    JINJA_OR,               /* a, b */
    JINJA_NOT,              /* a */
    JINJA_NEGATE,           /* a */
    JINJA_POSITIVE,         /* a */
    JINJA_BINARY,           /* name operator, a, b */
    JINJA_CONCAT,           /* list */
    JINJA_COMPARE,          /* a; list of OPERAND */
    JINJA_OPERAND,          /* name operator, a */
    JINJA_GET_ATTRIBUTE,    /* a, name */
    JINJA_GET_ITEM,         /* a, b (may be a SLICE) */
    JINJA_SLICE,            /* a, b, c; each may be NULL */
    JINJA_CALL,             /* a; list arguments, more named arguments */
    JINJA_NAMED,            /* name, a */
    JINJA_FILTER,           /* name, a (NULL: what the block captured); list, more */
    JINJA_TEST              /* name, a; list, more */
} jinja_kind;

enum { JINJA_USES_VARARGS = 1, JINJA_USES_KWARGS = 2, JINJA_USES_CALLER = 4 };

struct jinja_node {
    jinja_kind kind;
    int line, depth; /* depth: of the expression below */
    unsigned flags;
    const char *name;
    jinja_value value;
    jinja_node *a, *b, *c;
    jinja_node *list, *more, *next;
};

/* NULL: failed. */
jinja_node *sluice__jinja_parse(jinja_run *run, const char *text, size_t size);

/* ---- between the two halves of the parser ---- */
typedef struct jinja_parser {
    jinja_run *run;
    jinja_token *token; /* the current one */
    int depth;          /* nested statements and expressions */
    int loops;          /* we are in the body of so many */
} jinja_parser;

typedef struct jinja_chain { /* a list that grows at its end */
    jinja_node *first, **last;
} jinja_chain;
void sluice__jinja_append(jinja_chain *chain, jinja_node *node);

jinja_node *sluice__jinja_node(jinja_parser *p, jinja_kind kind, int line);
bool sluice__jinja_at_name(const jinja_parser *p, const char *name);
bool sluice__jinja_at_operator(const jinja_parser *p, const char *op);
bool sluice__jinja_skip_name(jinja_parser *p, const char *name);
bool sluice__jinja_skip_operator(jinja_parser *p, const char *op);
bool sluice__jinja_expect_operator(jinja_parser *p, const char *op);
const char *sluice__jinja_expect_name(jinja_parser *p);
jinja_node *sluice__jinja_unexpected(jinja_parser *p, const char *wanted); /* fails; NULL */
bool sluice__jinja_enter(jinja_parser *p); /* one level deeper; false = failed. Pair with p->depth-- */

jinja_node *sluice__jinja_parse_expression(jinja_parser *p, bool with_conditional);
/* until: a name that ends the tuple, beside the usual ends, or NULL. */
jinja_node *sluice__jinja_parse_tuple(jinja_parser *p, bool with_conditional, bool in_parentheses);
jinja_node *sluice__jinja_parse_target(jinja_parser *p, bool with_namespace, const char *until);
jinja_node *sluice__jinja_parse_filter(jinja_parser *p, jinja_node *node, bool inline_start);

/* Whether this version knows the name; how many arguments the filter or test takes at most (filters.c, tests.c). */
bool sluice__jinja_has_filter(const char *name);
bool sluice__jinja_has_test(const char *name);
#endif
