/* SPDX-License-Identifier: Apache-2.0 */
/* Chat templates: the part of the Jinja language that models' templates are written in, rendered to the same bytes as
 * transformers does (jinja2, sandboxed, trim_blocks, lstrip_blocks, loop controls, its tojson). docs/generation.md
 * lists the part. A template outside of it is refused with SLUICE_ERR_UNSUPPORTED naming the construct and its line,
 * when it is parsed where possible. Templates come with models and are not trusted: steps, memory and depth of a
 * rendering are bounded, and a template reaches nothing but its variables and the clock. */
#ifndef SLUICE_TEMPLATE_H
#define SLUICE_TEMPLATE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "sluice/status.h"
#include "sluice/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Immutable once parsed: threads may share it. */
typedef struct sluice_template sluice_template;

/* text: UTF-8, copied; `name` stands for it in messages. On failure *out is NULL. */
sluice_status sluice_template_parse(sluice_template **out, const char *text, size_t size, const char *name,
                                    sluice_error *err);
void sluice_template_free(sluice_template *t);

typedef struct sluice_template_limits {
    int64_t max_steps;  /* evaluated nodes and the like. Default 20,000,000 (about a second) */
    int64_t max_memory; /* bytes for values; output is limited to the same. Default 256 MiB */
    int64_t now;        /* seconds since 1970 that strftime_now tells; 0 (default) = the clock */
} sluice_template_limits;
sluice_template_limits sluice_template_limits_default(void);

/* Appends the text to *out. variables: a JSON object, NUL-terminated; NULL = none. limits NULL = default. What the
 * template itself refuses (raise_exception, a wrong type) is SLUICE_ERR_ARGUMENT with its message and line. */
sluice_status sluice_template_render(const sluice_template *t, const char *variables,
                                     const sluice_template_limits *limits, sluice_text *out, sluice_error *err);

/* ---- the template of a model ---- */
/* dir: a model directory, or a GGUF file with a template in its metadata. Reads chat_template.jinja, or chat_template
 * of tokenizer_config.json (a string, or a list of which "default" is taken, and "tool_use" when tools are given), and
 * the special tokens that templates refer to (bos_token, eos_token, ...). SLUICE_ERR_UNSUPPORTED when the model has no
 * template. */
typedef struct sluice_chat_template sluice_chat_template;
sluice_status sluice_chat_template_load(sluice_chat_template **out, const char *dir, sluice_error *err);
/* The same from a text, for files that carry it elsewhere. tokens: a JSON object of special tokens; NULL = none. */
sluice_status sluice_chat_template_new(sluice_chat_template **out, const char *text, size_t size, const char *tokens,
                                       const char *name, sluice_error *err);
void sluice_chat_template_free(sluice_chat_template *t);
/* Whether the template mentions a variable (for example enable_thinking). */
bool sluice_chat_template_mentions(const sluice_chat_template *t, const char *word);

typedef struct sluice_chat_render_params {
    const char *tools;          /* JSON list of tools; NULL = none */
    const char *variables;      /* JSON object of further variables, e.g. {"enable_thinking": false}; NULL = none */
    bool add_generation_prompt; /* end with what makes the model answer. Default true */
    sluice_template_limits limits;
} sluice_chat_render_params;
sluice_chat_render_params sluice_chat_render_params_default(void);

/* Appends the prompt for a conversation to *out. messages: JSON list of {"role", "content", ...}. Special tokens stand
 * in the text as they are spelt: encode it with SLUICE_ENCODE_PARSE_SPECIAL and without SLUICE_ENCODE_ADD_SPECIAL. */
sluice_status sluice_chat_render(const sluice_chat_template *t, const char *messages,
                                 const sluice_chat_render_params *params, sluice_text *out, sluice_error *err);

#ifdef __cplusplus
}
#endif
#endif
