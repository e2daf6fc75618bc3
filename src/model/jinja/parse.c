/* SPDX-License-Identifier: Apache-2.0 */
/* Statements. What jinja2 has and chat templates have no use for (inheritance, includes, imports, escaping) is refused
 * by name, as is a |safe whose result is used for more than being printed: without escaping it means nothing there. */
#include "model/jinja/syntax.h"
#include <string.h>

enum { MAX_BRANCHES = 500 };

static jinja_node *parse_body(jinja_parser *p, const char *const *ends);

static jinja_node *refuse(jinja_parser *p, int line, const char *what) {
    p->run->line = line;
    sluice__jinja_unsupported(p->run, "%s", what);
    return NULL;
}

static bool expect_block_end(jinja_parser *p) {
    if (p->run->st != SLUICE_OK) return false;
    if (p->token->type == JINJA_TOKEN_BLOCK_END) {
        p->token++;
        return true;
    }
    sluice__jinja_unexpected(p, "end of block");
    return false;
}

/* ": %}" or "%}", then statements up to {% end %}, whose name stays the current token. */
static jinja_node *statements(jinja_parser *p, const char *const *ends) {
    sluice__jinja_skip_operator(p, ":");
    if (!expect_block_end(p)) return NULL;
    int line = p->token->line;
    jinja_node *body = parse_body(p, ends);
    if (p->run->st == SLUICE_OK && p->token->type == JINJA_TOKEN_EOF)
        sluice__jinja_syntax_error(p->run, line, "end of template inside of a block, expected {%% %s %%}", ends[0]);
    return body;
}

/* The same with one possible end, which is skipped. */
static jinja_node *block(jinja_parser *p, const char *end) {
    const char *const ends[] = {end, NULL};
    jinja_node *body = statements(p, ends);
    if (p->run->st == SLUICE_OK) p->token++;
    return body;
}

static jinja_node *parse_for(jinja_parser *p, jinja_node *n) {
    static const char *const ends[] = {"endfor", "else", NULL};
    n->a = sluice__jinja_parse_target(p, false, "in");
    if (p->run->st == SLUICE_OK && !sluice__jinja_skip_name(p, "in")) return sluice__jinja_unexpected(p, "\"in\"");
    n->b = sluice__jinja_parse_tuple(p, false, false);
    if (p->run->st == SLUICE_OK && sluice__jinja_skip_name(p, "if")) n->c = sluice__jinja_parse_expression(p, true);
    if (p->run->st == SLUICE_OK && sluice__jinja_at_name(p, "recursive"))
        return refuse(p, n->line, "a recursive for loop");
    p->loops++;
    n->list = statements(p, ends);
    p->loops--;
    if (p->run->st == SLUICE_OK && !sluice__jinja_skip_name(p, "endfor")) {
        p->token++;
        n->more = block(p, "endfor");
    }
    return n;
}

/* elif is an if in the else of the one before. */
static jinja_node *parse_if(jinja_parser *p, jinja_node *n) {
    static const char *const ends[] = {"endif", "elif", "else", NULL};
    int branches = 0;
    for (jinja_node *at = n; p->run->st == SLUICE_OK;) {
        if (++branches > MAX_BRANCHES) return refuse(p, n->line, "an if of more than 500 branches");
        at->a = sluice__jinja_parse_tuple(p, false, false);
        at->list = statements(p, ends);
        int line = p->token->line;
        if (p->run->st != SLUICE_OK || sluice__jinja_skip_name(p, "endif")) break;
        if (sluice__jinja_skip_name(p, "else")) {
            at->more = block(p, "endif");
            break;
        }
        p->token++;
        at->more = sluice__jinja_node(p, JINJA_IF, line);
        at = at->more;
    }
    return n;
}

static jinja_node *parse_set(jinja_parser *p, jinja_node *n) {
    n->a = sluice__jinja_parse_target(p, true, NULL);
    if (p->run->st != SLUICE_OK) return NULL;
    if (sluice__jinja_skip_operator(p, "=")) {
        n->kind = JINJA_SET;
        n->b = sluice__jinja_parse_tuple(p, true, false);
        return n;
    }
    n->kind = JINJA_SET_BLOCK;
    if (sluice__jinja_at_operator(p, "|")) n->b = sluice__jinja_parse_filter(p, NULL, false);
    n->list = block(p, "endset");
    return n;
}

static jinja_node *parse_parameters(jinja_parser *p) {
    jinja_chain chain = {0};
    bool defaults = false;
    if (!sluice__jinja_expect_operator(p, "(")) return NULL;
    while (p->run->st == SLUICE_OK && !sluice__jinja_at_operator(p, ")")) {
        if (chain.first && !sluice__jinja_expect_operator(p, ",")) return NULL;
        int line = p->token->line;
        const char *name = sluice__jinja_expect_name(p);
        jinja_node *n = name ? sluice__jinja_node(p, JINJA_PARAMETER, line) : NULL;
        if (!n) return NULL;
        n->name = name;
        if (sluice__jinja_skip_operator(p, "=")) {
            n->a = sluice__jinja_parse_expression(p, true);
            defaults = true;
        } else if (defaults) {
            sluice__jinja_syntax_error(p->run, line, "a parameter without a default behind one with a default");
            return NULL;
        }
        sluice__jinja_append(&chain, n);
    }
    sluice__jinja_expect_operator(p, ")");
    return chain.first;
}

/* Which of the names that a macro gets without asking its body mentions. */
static unsigned uses_of(const jinja_node *n) {
    unsigned found = 0;
    for (; n; n = n->next) {
        if (n->kind == JINJA_NAME) {
            if (!strcmp(n->name, "varargs")) found |= JINJA_USES_VARARGS;
            if (!strcmp(n->name, "kwargs")) found |= JINJA_USES_KWARGS;
            if (!strcmp(n->name, "caller")) found |= JINJA_USES_CALLER;
        }
        found |= uses_of(n->a) | uses_of(n->b) | uses_of(n->c) | uses_of(n->list) | uses_of(n->more);
    }
    return found;
}

static jinja_node *parse_macro(jinja_parser *p, jinja_node *n) {
    int loops = p->loops;
    n->name = sluice__jinja_expect_name(p);
    n->more = parse_parameters(p);
    p->loops = 0;
    n->list = block(p, "endmacro");
    p->loops = loops;
    if (p->run->st == SLUICE_OK) n->flags = uses_of(n->list);
    return n;
}

static jinja_node *parse_call_block(jinja_parser *p, jinja_node *n) {
    int loops = p->loops;
    if (sluice__jinja_at_operator(p, "(")) n->more = parse_parameters(p);
    n->a = sluice__jinja_parse_expression(p, true);
    if (n->a && n->a->kind != JINJA_CALL) {
        sluice__jinja_syntax_error(p->run, n->line, "expected a call behind {%% call");
        return NULL;
    }
    p->loops = 0;
    n->list = block(p, "endcall");
    p->loops = loops;
    if (p->run->st == SLUICE_OK) n->flags = uses_of(n->list);
    return n;
}

static jinja_node *parse_with(jinja_parser *p, jinja_node *n) {
    jinja_chain chain = {0};
    while (p->run->st == SLUICE_OK && p->token->type != JINJA_TOKEN_BLOCK_END) {
        if (chain.first && !sluice__jinja_expect_operator(p, ",")) return NULL;
        jinja_node *pair = sluice__jinja_node(p, JINJA_PAIR, p->token->line);
        if (!pair) return NULL;
        pair->a = sluice__jinja_parse_target(p, false, NULL);
        if (sluice__jinja_expect_operator(p, "=")) pair->b = sluice__jinja_parse_expression(p, true);
        sluice__jinja_append(&chain, pair);
    }
    n->more = chain.first;
    n->list = block(p, "endwith");
    return n;
}

static jinja_node *parse_filter_block(jinja_parser *p, jinja_node *n) {
    n->b = sluice__jinja_parse_filter(p, NULL, true);
    n->list = block(p, "endfilter");
    return n;
}

static jinja_node *parse_generation(jinja_parser *p, jinja_node *n) {
    int loops = p->loops;
    p->loops = 0;
    n->list = block(p, "endgeneration");
    p->loops = loops;
    return n;
}

static jinja_node *parse_jump(jinja_parser *p, jinja_node *n) {
    if (p->loops == 0)
        sluice__jinja_syntax_error(p->run, n->line, "%s outside of a loop",
                                   n->kind == JINJA_BREAK ? "break" : "continue");
    return n;
}

static const struct {
    const char *name;
    jinja_kind kind;
    jinja_node *(*parse)(jinja_parser *p, jinja_node *n);
} known[] = {{"for", JINJA_FOR, parse_for},
             {"if", JINJA_IF, parse_if},
             {"set", JINJA_SET, parse_set},
             {"macro", JINJA_DEFINE_MACRO, parse_macro},
             {"call", JINJA_CALL_BLOCK, parse_call_block},
             {"filter", JINJA_FILTER_BLOCK, parse_filter_block},
             {"with", JINJA_WITH, parse_with},
             {"generation", JINJA_GENERATION, parse_generation},
             {"break", JINJA_BREAK, parse_jump},
             {"continue", JINJA_CONTINUE, parse_jump}};

static jinja_node *parse_statement(jinja_parser *p) {
    static const char *const refused[] = {"include", "import", "from", "extends", "block", "autoescape",
                                          "print",   "trans",  "do",   "debug",   NULL};
    int line = p->token->line;
    const char *name = sluice__jinja_expect_name(p);
    if (!name) return NULL;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i].name, name)) continue;
        jinja_node *n = sluice__jinja_node(p, known[i].kind, line);
        n = n ? known[i].parse(p, n) : NULL;
        return p->run->st == SLUICE_OK ? n : NULL;
    }
    for (size_t i = 0; refused[i]; i++) {
        if (strcmp(refused[i], name)) continue;
        p->run->line = line;
        sluice__jinja_unsupported(p->run, "the statement {%% %s %%}", name);
        return NULL;
    }
    sluice__jinja_syntax_error(p->run, line, "unknown tag \"%.100s\"", name);
    return NULL;
}

static jinja_node *parse_output(jinja_parser *p) {
    jinja_node *n = sluice__jinja_node(p, JINJA_OUTPUT, p->token->line);
    p->token++;
    if (!n) return NULL;
    n->a = sluice__jinja_parse_tuple(p, true, false);
    if (p->run->st != SLUICE_OK) return NULL;
    if (p->token->type != JINJA_TOKEN_OUTPUT_END) return sluice__jinja_unexpected(p, "end of print statement");
    p->token++;
    return n;
}

static bool at_end(const jinja_parser *p, const char *const *ends) {
    for (; ends && *ends; ends++)
        if (sluice__jinja_at_name(p, *ends)) return true;
    return false;
}

static jinja_node *parse_one(jinja_parser *p) {
    if (p->token->type == JINJA_TOKEN_DATA) {
        jinja_node *n = sluice__jinja_node(p, JINJA_DATA, p->token->line);
        if (n) n->value = p->token->value;
        p->token++;
        return n;
    }
    return parse_output(p);
}

static jinja_node *parse_body(jinja_parser *p, const char *const *ends) {
    jinja_chain chain = {0};
    if (!sluice__jinja_enter(p)) return NULL;
    while (p->run->st == SLUICE_OK && p->token->type != JINJA_TOKEN_EOF) {
        if (p->token->type != JINJA_TOKEN_BLOCK_BEGIN) {
            sluice__jinja_append(&chain, parse_one(p));
            continue;
        }
        p->token++;
        if (at_end(p, ends)) break;
        sluice__jinja_append(&chain, parse_statement(p));
        expect_block_end(p);
    }
    p->depth--;
    return chain.first;
}

/* ---- |safe ---- */

static void check_safe(jinja_run *run, const jinja_node *n, bool printed);

static void check_safe_in(jinja_run *run, const jinja_node *n) {
    for (; n && run->st == SLUICE_OK; n = n->next) check_safe(run, n, false);
}

/* printed: the value of n goes straight to the output. */
static void check_safe(jinja_run *run, const jinja_node *n, bool printed) {
    if (!n || run->st != SLUICE_OK) return;
    if (n->kind == JINJA_FILTER && !strcmp(n->name, "safe") && !printed) {
        run->line = n->line;
        sluice__jinja_unsupported(run, "the filter \"safe\" inside of an expression");
        return;
    }
    bool through = printed && n->kind == JINJA_CONDITIONAL;
    check_safe(run, n->a, n->kind == JINJA_OUTPUT);
    check_safe(run, n->b, through);
    check_safe(run, n->c, through);
    check_safe_in(run, n->list);
    check_safe_in(run, n->more);
}

jinja_node *sluice__jinja_parse(jinja_run *run, const char *text, size_t size) {
    jinja_tokens tokens = {0};
    sluice__jinja_tokenize(run, text, size, &tokens);
    if (run->st != SLUICE_OK) return NULL;
    jinja_parser p = {.run = run, .token = tokens.data};
    jinja_node *root = sluice__jinja_node(&p, JINJA_GENERATION, 1);
    jinja_node *body = parse_body(&p, NULL);
    check_safe_in(run, body);
    if (!root || run->st != SLUICE_OK) return NULL;
    root->list = body;
    return root;
}
