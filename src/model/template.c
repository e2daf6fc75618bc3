/* SPDX-License-Identifier: Apache-2.0 */
/* The public face of the template language (model/jinja): parsing once, rendering often, within budgets. */
#include "sluice/template.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "model/gguf_model.h"
#include "model/gguf_tokenizer.h"
#include "model/jinja/eval.h"
#include "model/tokenizer_internal.h"
#include <string.h>
#include <time.h>

struct sluice_template {
    jinja_arena arena; /* of the tree */
    char *name;
    const jinja_node *root;
};

enum { MAX_TEMPLATE = 1 << 20, PARSE_STEPS = 1 << 24, PARSE_MEMORY = 512 << 20 };

sluice_template_limits sluice_template_limits_default(void) {
    return (sluice_template_limits){.max_steps = 20000000, .max_memory = (int64_t)256 << 20};
}

sluice_status sluice_template_parse(sluice_template **out, const char *text, size_t size, const char *name,
                                    sluice_error *err) {
    *out = NULL;
    if (size > MAX_TEMPLATE)
        return sluice__fail(err, SLUICE_ERR_UNSUPPORTED, "%s: a template of %zu bytes, expected at most %d", name, size,
                            MAX_TEMPLATE);
    sluice_template *t = sluice__calloc(1, sizeof *t, SLUICE__MEM_OTHER);
    if (!t) return sluice__no_memory(err, sizeof *t, "a template");
    t->name = sluice__strdup(name);
    jinja_run run = {
        .arena = &t->arena, .bytes_left = PARSE_MEMORY, .steps_left = PARSE_STEPS, .name = name, .line = 1, .err = err};
    t->root = t->name ? sluice__jinja_parse(&run, text, size) : NULL;
    if (t->root) {
        *out = t;
        return SLUICE_OK;
    }
    sluice_template_free(t);
    return run.st != SLUICE_OK ? run.st : sluice__no_memory(err, 0, "a template");
}

void sluice_template_free(sluice_template *t) {
    if (!t) return;
    sluice__jinja_arena_free(&t->arena);
    sluice__free(t->name);
    sluice__free(t);
}

/* variables: a JSON object or NULL. */
static sluice_status render(const sluice_template *t, json_t *variables, const sluice_template_limits *limits,
                            sluice_text *out, sluice_error *err) {
    sluice_template_limits l = limits ? *limits : sluice_template_limits_default();
    if (l.max_steps < 1 || l.max_memory < 1)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "max_steps and max_memory of a template: expected at least 1");
    jinja_arena arena = {0};
    sluice__strbuf text = {0};
    jinja_run run = {.arena = &arena,
                     .bytes_left = (size_t)l.max_memory,
                     .steps_left = l.max_steps,
                     .name = t->name,
                     .line = 1,
                     .now = l.now ? l.now : (int64_t)time(NULL),
                     .out = &text,
                     .variables = variables,
                     .err = err};
    run.root = sluice__jinja_scope(&run, NULL);
    if (run.root) sluice__jinja_execute(&run, run.root, t->root->list);
    sluice_status st = run.st;
    if (st == SLUICE_OK && text.failed) st = sluice__no_memory(err, text.size, "rendered text");
    if (st == SLUICE_OK) st = sluice__text_add(out, text.data ? text.data : "", text.size, err);
    sluice__strbuf_free(&text);
    sluice__jinja_arena_free(&arena);
    return st;
}

sluice_status sluice_template_render(const sluice_template *t, const char *variables,
                                     const sluice_template_limits *limits, sluice_text *out, sluice_error *err) {
    json_t *root = NULL;
    if (variables) SLUICE__TRY(sluice__json_parse(&root, variables, strlen(variables), "variables of a template", err));
    sluice_status st = SLUICE_OK;
    if (root && !json_is_object(root))
        st = sluice__fail(err, SLUICE_ERR_ARGUMENT, "variables of a template: expected a JSON object");
    else
        st = render(t, root, limits, out, err);
    json_decref(root);
    return st;
}

/* ---- the template of a model ---- */

struct sluice_chat_template {
    sluice_template *plain, *with_tools; /* the second may be NULL: then the first serves both */
    char *text;                          /* of both, for questions about words */
    json_t *tokens;
};

void sluice_chat_template_free(sluice_chat_template *t) {
    if (!t) return;
    sluice_template_free(t->plain);
    sluice_template_free(t->with_tools);
    sluice__free(t->text);
    json_decref(t->tokens);
    sluice__free(t);
}

bool sluice_chat_template_mentions(const sluice_chat_template *t, const char *word) {
    return strstr(t->text, word) != NULL;
}

typedef struct sources {
    const char *plain, *with_tools;
    size_t plain_size, with_tools_size;
} sources;

/* Takes over a reference of tokens. */
static sluice_status make(sluice_chat_template **out, const sources *from, json_t *tokens, const char *name,
                          sluice_error *err) {
    *out = NULL;
    sluice_chat_template *t = sluice__calloc(1, sizeof *t, SLUICE__MEM_OTHER);
    if (!t) {
        json_decref(tokens);
        return sluice__no_memory(err, sizeof *t, "a chat template");
    }
    t->tokens = tokens;
    t->text = sluice__asprintf("%s\n%s", from->plain, from->with_tools ? from->with_tools : "");
    sluice_status st = t->text ? SLUICE_OK : sluice__no_memory(err, from->plain_size, "a chat template");
    if (st == SLUICE_OK) st = sluice_template_parse(&t->plain, from->plain, from->plain_size, name, err);
    if (st == SLUICE_OK && from->with_tools)
        st = sluice_template_parse(&t->with_tools, from->with_tools, from->with_tools_size, name, err);
    if (st != SLUICE_OK) {
        sluice_chat_template_free(t);
        return st;
    }
    *out = t;
    return SLUICE_OK;
}

sluice_status sluice_chat_template_new(sluice_chat_template **out, const char *text, size_t size, const char *tokens,
                                       const char *name, sluice_error *err) {
    json_t *root = NULL;
    *out = NULL;
    if (tokens) SLUICE__TRY(sluice__json_parse(&root, tokens, strlen(tokens), name, err));
    if (root && !json_is_object(root)) {
        json_decref(root);
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "%s: special tokens: expected a JSON object", name);
    }
    char *copy = sluice__strndup(text, size);
    if (!copy) {
        json_decref(root);
        return sluice__no_memory(err, size, "a chat template");
    }
    sources from = {.plain = copy, .plain_size = size};
    sluice_status st = make(out, &from, root, name, err);
    sluice__free(copy);
    return st;
}

/* Tokens by the names that templates use; an entry is a string or an object with "content". */
static json_t *special_tokens(const json_t *config) {
    static const char *const names[] = {"bos_token", "eos_token", "unk_token",  "sep_token",
                                        "pad_token", "cls_token", "mask_token", NULL};
    json_t *out = json_object();
    for (int i = 0; names[i]; i++) {
        json_t *token = json_object_get(config, names[i]);
        if (json_is_object(token)) token = json_object_get(token, "content");
        if (json_is_string(token)) json_object_set(out, names[i], token);
    }
    return out;
}

/* chat_template of tokenizer_config.json: a string, or a list of {"name", "template"}. */
static sluice_status from_config(const json_t *config, const char *path, sources *out, sluice_error *err) {
    const json_t *entry = json_object_get(config, "chat_template");
    if (json_is_string(entry)) {
        out->plain = json_string_value(entry);
        out->plain_size = json_string_length(entry);
        return SLUICE_OK;
    }
    for (size_t i = 0; i < json_array_size(entry); i++) {
        const json_t *item = json_array_get(entry, i), *text = json_object_get(item, "template");
        const char *name = json_string_value(json_object_get(item, "name"));
        if (!name || !json_is_string(text))
            return sluice__fail(err, SLUICE_ERR_FORMAT,
                                "%s: chat_template: entry %zu: expected {\"name\", \"template\"}", path, i);
        if (!strcmp(name, "default")) out->plain = json_string_value(text), out->plain_size = json_string_length(text);
        if (!strcmp(name, "tool_use"))
            out->with_tools = json_string_value(text), out->with_tools_size = json_string_length(text);
    }
    if (entry && !json_is_null(entry) && !json_is_array(entry))
        return sluice__fail(err, SLUICE_ERR_FORMAT, "%s: chat_template: expected a string or a list", path);
    return SLUICE_OK;
}

static sluice_status read_text(const char *dir, const char *name, char **text, size_t *size, sluice_error *err) {
    char *path = sluice__path_join(dir, name);
    sluice_status st = path ? SLUICE_OK : sluice__no_memory(err, 0, "a path");
    if (st == SLUICE_OK && sluice__is_file(path)) st = sluice__read_file(text, size, path, MAX_TEMPLATE, err);
    sluice__free(path);
    return st;
}

/* A GGUF file carries what a tokenizer_config.json would hold. */
static sluice_status load_gguf(sluice_chat_template **out, const char *path, sluice_error *err) {
    sluice__gguf *g;
    char *text = NULL;
    size_t size = 0;
    json_t *config = NULL;
    sources from = {0};
    SLUICE__TRY(sluice__gguf_open(&g, path, err));
    sluice_status st = sluice__gguf_tokenizer_config(&text, &size, g, err);
    if (st == SLUICE_OK) st = sluice__json_parse(&config, text, size, path, err);
    if (st == SLUICE_OK) st = from_config(config, path, &from, err);
    if (st == SLUICE_OK && !from.plain)
        st = sluice__fail(err, SLUICE_ERR_UNSUPPORTED, "%s: no chat template: found no tokenizer.chat_template", path);
    if (st == SLUICE_OK) st = make(out, &from, special_tokens(config), "tokenizer.chat_template", err);
    json_decref(config);
    sluice__free(text);
    sluice__gguf_close(g);
    return st;
}

sluice_status sluice_chat_template_load(sluice_chat_template **out, const char *dir, sluice_error *err) {
    *out = NULL;
    if (!sluice__is_dir(dir) && sluice__is_gguf(dir)) return load_gguf(out, dir, err);
    if (!sluice__is_dir(dir)) return sluice__fail(err, SLUICE_ERR_IO, "%s: neither a directory nor a GGUF file that holds a model", dir);
    char *path = sluice__path_join(dir, "tokenizer_config.json"), *plain = NULL, *with_tools = NULL;
    json_t *config = NULL;
    sources from = {0};
    sluice_status st = path ? SLUICE_OK : sluice__no_memory(err, 0, "a path");
    if (st == SLUICE_OK && sluice__is_file(path)) st = sluice__json_load(&config, path, err);
    if (st == SLUICE_OK) st = from_config(config, path, &from, err);
    if (st == SLUICE_OK) st = read_text(dir, "chat_template.jinja", &plain, &from.plain_size, err);
    if (st == SLUICE_OK)
        st = read_text(dir, "additional_chat_templates/tool_use.jinja", &with_tools, &from.with_tools_size, err);
    if (plain) from.plain = plain;
    if (with_tools) from.with_tools = with_tools;
    if (st == SLUICE_OK && !from.plain)
        st = sluice__fail(err, SLUICE_ERR_UNSUPPORTED,
                          "%s: no chat template: found neither chat_template.jinja nor chat_template in "
                          "tokenizer_config.json; `sluice generate` continues plain text",
                          dir);
    if (st == SLUICE_OK)
        st = make(out, &from, special_tokens(config), plain ? "chat_template.jinja" : "chat_template", err);
    sluice__free(plain);
    sluice__free(with_tools);
    json_decref(config);
    sluice__free(path);
    return st;
}

sluice_chat_render_params sluice_chat_render_params_default(void) {
    return (sluice_chat_render_params){.add_generation_prompt = true, .limits = sluice_template_limits_default()};
}

/* Parses text, which has to be of the given kind, into object[key]; NULL becomes null. */
static sluice_status put_json(json_t *object, const char *key, const char *text, sluice_error *err) {
    json_t *value = NULL;
    if (!text) return json_object_set_new(object, key, json_null()) == 0 ? SLUICE_OK : sluice__no_memory(err, 0, key);
    SLUICE__TRY(sluice__json_parse(&value, text, strlen(text), key, err));
    if (!json_is_array(value)) {
        json_decref(value);
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "%s: expected a JSON list", key);
    }
    return json_object_set_new(object, key, value) == 0 ? SLUICE_OK : sluice__no_memory(err, 0, key);
}

/* Further variables do not stand for what has a place of its own: they would be replaced without a word. */
static sluice_status check_variables(const json_t *more, sluice_error *err) {
    static const char *const taken[] = {"messages", "tools", "add_generation_prompt"};
    if (!json_is_object(more)) return sluice__fail(err, SLUICE_ERR_ARGUMENT, "template variables: expected a JSON object");
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (json_object_get(more, taken[i]))
            return sluice__fail(err, SLUICE_ERR_ARGUMENT, "template variables: \"%s\" is not one: it is given apart from them",
                                taken[i]);
    return SLUICE_OK;
}

/* What transformers hands to a template. */
static sluice_status variables_of(const sluice_chat_template *t, const char *messages,
                                  const sluice_chat_render_params *p, json_t *all, sluice_error *err) {
    if (t->tokens) json_object_update(all, t->tokens);
    if (p->variables) {
        json_t *more = NULL;
        SLUICE__TRY(sluice__json_parse(&more, p->variables, strlen(p->variables), "template variables", err));
        sluice_status st = check_variables(more, err);
        if (st == SLUICE_OK) json_object_update(all, more);
        json_decref(more);
        SLUICE__TRY(st);
    }
    SLUICE__TRY(put_json(all, "messages", messages, err));
    SLUICE__TRY(put_json(all, "tools", p->tools, err));
    if (!json_object_get(all, "documents")) SLUICE__TRY(put_json(all, "documents", NULL, err));
    json_object_set_new(all, "add_generation_prompt", json_boolean(p->add_generation_prompt));
    return SLUICE_OK;
}

sluice_status sluice_chat_render(const sluice_chat_template *t, const char *messages,
                                 const sluice_chat_render_params *params, sluice_text *out, sluice_error *err) {
    sluice_chat_render_params p = params ? *params : sluice_chat_render_params_default();
    if (!messages) return sluice__fail(err, SLUICE_ERR_ARGUMENT, "messages: found NULL, expected a JSON list");
    json_t *all = json_object();
    if (!all) return sluice__no_memory(err, 0, "template variables");
    sluice_status st = variables_of(t, messages, &p, all, err);
    if (st == SLUICE_OK) st = render(p.tools && t->with_tools ? t->with_tools : t->plain, all, &p.limits, out, err);
    json_decref(all);
    return st;
}
