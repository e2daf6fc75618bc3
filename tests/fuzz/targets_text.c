/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzing what reads text: chat templates, training text in its wrappings, and the JSON files beside models and runs. */
#include "fuzz/targets.h"
#include "sluice/inspect_report.h"
#include "sluice/session.h"
#include "sluice/shards.h"
#include "sluice/study.h"
#include "sluice/template.h"
#include "model/store.h"
#include "study/curves.h"
#include "study/recipe.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char messages[] =
    "[{\"role\": \"system\", \"content\": \"Be brief. \"}, {\"role\": \"user\", \"content\": \"Wie spät \\ud83d\\udc4b?\"},"
    "{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"type\": \"function\", \"function\":"
    "{\"name\": \"clock\", \"arguments\": {\"zone\": [1, -2.5e3, true, null]}}}]},"
    "{\"role\": \"tool\", \"name\": \"clock\", \"content\": \"12:30\"}]";
static const char tools[] = "[{\"type\": \"function\", \"function\": {\"name\": \"clock\", \"parameters\": {}}}]";

/* A template for a conversation with tools; behind a NUL byte its variables as JSON. Small budgets: time is not the point. */
void fuzz_template(const uint8_t *data, size_t size) {
    const uint8_t *nul = memchr(data, 0, size);
    size_t length = nul ? (size_t)(nul - data) : size, rest = nul ? size - length - 1 : 0;
    char *variables = calloc(rest + 1, 1);
    sluice_chat_template *t;
    sluice_chat_render_params p = sluice_chat_render_params_default();
    sluice_text out = {0};
    p.limits = (sluice_template_limits){.max_steps = 20000, .max_memory = 4 << 20, .now = 1700000000};
    p.tools = tools;
    if (!variables) return;
    if (rest) memcpy(variables, nul + 1, rest);
    p.variables = rest ? variables : NULL;
    if (sluice_chat_template_new(&t, (const char *)data, length, "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}", "fuzz", NULL) ==
        SLUICE_OK) {
        sluice_chat_render(t, messages, &p, &out, NULL);
        sluice_chat_template_free(t);
    }
    sluice_text_free(&out);
    free(variables);
}

/* Plain text or JSON lines (by the first byte, even or odd), as they are or in gzip or zstd. */
void fuzz_text(const uint8_t *data, size_t size) {
    char path[64];
    sluice_text_params p = sluice_text_params_default();
    sluice_text out = {0};
    if (size < 1) return;
    int fd = fuzz_file(path, data + 1, size - 1);
    if (fd < 0) return;
    p.format = data[0] & 1 ? SLUICE_TEXT_JSONL : SLUICE_TEXT_PLAIN;
    p.separator = data[0] & 2 ? "" : data[0] & 4 ? "--" : NULL;
    p.allow_invalid = data[0] & 8;
    p.max_document_bytes = 1 << 16;
    sluice_text_read(&out, path, &p, 1 << 20, NULL);
    sluice_text_free(&out);
    close(fd);
}

static void read_recipe(const char *path) {
    const sluice__recipe_changes none = {0};
    sluice__recipe recipe;
    if (sluice__recipe_load(&recipe, path, &none, NULL) == SLUICE_OK) sluice__recipe_free(&recipe);
}

static void read_options(const char *path) {
    sluice_train_params p = sluice_train_params_default();
    char *model = NULL;
    sluice_config config;
    if (sluice_train_read_options(&p, &model, path, NULL) == SLUICE_OK && !*p.config_name && !*p.model_name_or_path &&
        sluice_train_model_config(&config, NULL, &p, model, 300, NULL) == SLUICE_OK)
        sluice_config_free(&config);
    sluice_train_free_text(model);
}

static void read_generation(const char *path) {
    sluice_config config;
    sluice_generation_config out;
    (void)path;
    if (sluice_config_parse(&config, "{\"vocab_size\": 64, \"hidden_size\": 8, \"intermediate_size\": 8, \"num_hidden_layers\": 1, "
                                     "\"num_attention_heads\": 2}", "config", NULL) != SLUICE_OK)
        abort();
    sluice_generation_config_load(&out, fuzz_path(""), &config, NULL);
    sluice_config_free(&config);
}

static void read_chat_template(const char *path) {
    sluice_chat_template *t;
    (void)path;
    if (sluice_chat_template_load(&t, fuzz_path(""), NULL) == SLUICE_OK) sluice_chat_template_free(t);
}

static void read_results(const char *path) {
    (void)path;
    sluice_study_report(fuzz_path(""), NULL);
}

static void read_inspection(const char *path) {
    char *text = calloc(1 << 20, 1);
    FILE *f = fopen(path, "rb");
    size_t n = f && text ? fread(text, 1, (1 << 20) - 1, f) : 0;
    if (f) fclose(f);
    sluice_inspect_page(text ? text : "", n, fuzz_path("inspect.html"), NULL);
    free(text);
}

static void read_metrics(const char *path) {
    sluice_train_params p = sluice_train_params_default();
    json_t *curves;
    if (sluice__curves_read(&curves, path, &p, NULL) == SLUICE_OK) json_decref(curves);
}

static void read_index(const char *path) {
    sluice__store *s;
    (void)path;
    if (sluice__store_open(&s, fuzz_path(""), NULL) == SLUICE_OK) sluice__store_close(s);
}

/* Files of settings and results, mostly JSON: the first byte says which. */
void fuzz_settings(const uint8_t *data, size_t size) {
    static const struct {
        char key;
        const char *name;
        void (*read)(const char *path);
    } kinds[] = {{'r', "recipe.json", read_recipe},
                 {'o', "options.json", read_options},
                 {'g', "generation_config.json", read_generation},
                 {'c', "tokenizer_config.json", read_chat_template},
                 {'s', "results.json", read_results},
                 {'i', "inspect.json", read_inspection},
                 {'m', "metrics.jsonl", read_metrics},
                 {'x', "model.safetensors.index.json", read_index}};
    for (size_t i = 0; size && i < sizeof kinds / sizeof *kinds; i++) {
        if (kinds[i].key != data[0] || !fuzz_put(kinds[i].name, data + 1, size - 1)) continue;
        kinds[i].read(fuzz_path(kinds[i].name));
        unlink(fuzz_path(kinds[i].name));
    }
}
