/* SPDX-License-Identifier: Apache-2.0 */
/* The vocabulary of a Hugging Face directory as metadata: tokens by their ids, their kinds, merges, the name of the
 * pre-tokenizer, special tokens, and the chat template. */
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "model/gguf_export.h"
#include "model/gguf_tokenizer.h"
#include <stdio.h>
#include <string.h>

enum { NORMAL = 1, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5, MAX_PATTERNS = 4 };

typedef struct token {
    const char *text;
    size_t size;
    int kind; /* 0 = no token has this id */
} token;

static sluice_status set_token(token *tokens, int64_t count, json_t *id, const char *text, size_t size, int kind,
                               const char *file, sluice_error *err) {
    if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= count)
        return sluice__fail(err, SLUICE_ERR_CONFIG, "%s: token \"%.60s\": its id is not below the vocabulary size %lld", file,
                            text, (long long)count);
    tokens[json_integer_value(id)] = (token){text, size, kind};
    return SLUICE_OK;
}

static sluice_status collect(token *tokens, int64_t count, json_t *root, const char *file, sluice_error *err) {
    json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab"), *id, *added;
    const char *text;
    size_t i;
    json_object_foreach(vocab, text, id)
        SLUICE__TRY(set_token(tokens, count, id, text, strlen(text), NORMAL, file, err));
    json_array_foreach(json_object_get(root, "added_tokens"), i, added) {
        json_t *content = json_object_get(added, "content");
        if (!json_is_string(content)) return sluice__fail(err, SLUICE_ERR_CONFIG, "%s: added_tokens: no content", file);
        SLUICE__TRY(set_token(tokens, count, json_object_get(added, "id"), json_string_value(content),
                              json_string_length(content),
                              json_is_true(json_object_get(added, "special")) ? CONTROL : USER_DEFINED, file, err));
    }
    return SLUICE_OK;
}

static void put_tokens(sluice__gguf_writer *w, const token *tokens, int64_t count) {
    sluice__gguf_put_array(w, "tokenizer.ggml.tokens", SLUICE__GGUF_STRING, (uint64_t)count);
    for (int64_t i = 0; i < count; i++) {
        char unused[32];
        int n = snprintf(unused, sizeof unused, "[PAD%lld]", (long long)i);
        if (tokens[i].kind) sluice__gguf_put_text(w, tokens[i].text, tokens[i].size);
        else sluice__gguf_put_text(w, unused, (size_t)n);
    }
    sluice__gguf_put_array(w, "tokenizer.ggml.token_type", SLUICE__GGUF_I32, (uint64_t)count);
    for (int64_t i = 0; i < count; i++)
        sluice__gguf_put_element(w, (uint32_t)(tokens[i].kind ? tokens[i].kind : UNUSED), 4);
}

/* "a b" or ["a", "b"] */
static sluice_status put_merges(sluice__gguf_writer *w, json_t *merges, const char *file, sluice_error *err) {
    size_t i;
    json_t *m;
    sluice__gguf_put_array(w, "tokenizer.ggml.merges", SLUICE__GGUF_STRING, json_array_size(merges));
    json_array_foreach(merges, i, m) {
        json_t *a = json_array_get(m, 0), *b = json_array_get(m, 1);
        if (json_is_string(m)) {
            sluice__gguf_put_text(w, json_string_value(m), json_string_length(m));
            continue;
        }
        if (!json_is_string(a) || !json_is_string(b))
            return sluice__fail(err, SLUICE_ERR_CONFIG, "%s: model.merges[%zu]: expected two texts", file, i);
        char *both = sluice__asprintf("%s %s", json_string_value(a), json_string_value(b));
        if (!both) return sluice__no_memory(err, 64, "a merge");
        sluice__gguf_put_text(w, both, strlen(both));
        sluice__free(both);
    }
    return SLUICE_OK;
}

/* The patterns by which the pre-tokenizer cuts; -1 when it does something that has no name in GGUF. */
static int patterns_of(json_t *pre, const char **patterns, int count, bool *bytes) {
    static const char gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
    const char *type = json_string_value(json_object_get(pre, "type"));
    if (!type || count == MAX_PATTERNS) return -1;
    if (!strcmp(type, "Sequence")) {
        size_t i;
        json_t *part;
        json_array_foreach(json_object_get(pre, "pretokenizers"), i, part)
            if ((count = patterns_of(part, patterns, count, bytes)) < 0) return -1;
        return count;
    }
    if (!strcmp(type, "ByteLevel")) {
        if (json_is_true(json_object_get(pre, "add_prefix_space"))) return -1;
        *bytes = true;
        if (!json_is_false(json_object_get(pre, "use_regex"))) patterns[count++] = gpt2;
        return count;
    }
    if (!strcmp(type, "Digits") && json_is_true(json_object_get(pre, "individual_digits"))) {
        patterns[count++] = "\\p{N}";
        return count;
    }
    const char *regex = json_string_value(json_object_get(json_object_get(pre, "pattern"), "Regex"));
    const char *behavior = json_string_value(json_object_get(pre, "behavior"));
    if (strcmp(type, "Split") || !regex || !behavior || json_is_true(json_object_get(pre, "invert"))) return -1;
    if (strcmp(behavior, "Isolated") && strcmp(behavior, "Removed")) return -1;
    patterns[count++] = regex;
    return count;
}

static sluice_status put_pre(sluice__gguf_writer *w, json_t *root, const char *file, sluice_error *err) {
    const char *patterns[MAX_PATTERNS], *names = NULL;
    bool bytes = false, whole = json_is_true(json_object_get(json_object_get(root, "model"), "ignore_merges"));
    int count = patterns_of(json_object_get(root, "pre_tokenizer"), patterns, 0, &bytes);
    if (count > 0 && bytes) names = sluice__gguf_pre_name(patterns, count, whole);
    if (!names)
        return sluice__fail(err, SLUICE_ERR_UNSUPPORTED,
                            "%s: pre_tokenizer: its patterns have no name in GGUF that we know (gpt-2, smollm, llama-bpe, "
                            "qwen2, qwen35, gpt-4o, deepseek-v3)",
                            file);
    sluice__gguf_put_string(w, "tokenizer.ggml.pre", names, strcspn(names, " "));
    return SLUICE_OK;
}

/* "none", or the form that the normalizer puts text into; NULL when it does something else. */
static const char *normalizer_of(json_t *normalizer) {
    static const char *const forms[] = {"NFC", "NFD", "NFKC", "NFKD"};
    const char *type = json_string_value(json_object_get(normalizer, "type"));
    json_t *parts = json_object_get(normalizer, "normalizers");
    if (!normalizer || json_is_null(normalizer)) return "none";
    if (type && !strcmp(type, "Sequence") && json_array_size(parts) < 2) return normalizer_of(json_array_get(parts, 0));
    for (int i = 0; type && i < 4; i++)
        if (!strcmp(type, forms[i])) return forms[i];
    return NULL;
}

/* GGUF has no place for it: readers take what the pre-tokenizer's model does. The key of ours says what this one does. */
static sluice_status put_normalizer(sluice__gguf_writer *w, json_t *root, const char *file, sluice_error *err) {
    const char *name = normalizer_of(json_object_get(root, "normalizer"));
    if (!name)
        return sluice__fail(err, SLUICE_ERR_UNSUPPORTED,
                            "%s: normalizer: GGUF has no place for it, only none, NFC, NFD, NFKC and NFKD can be written", file);
    sluice__gguf_put_string(w, SLUICE__GGUF_NORMALIZER_KEY, name, strlen(name));
    return SLUICE_OK;
}

static bool puts_in_front(json_t *root) {
    json_t *post = json_object_get(root, "post_processor"), *part;
    size_t i;
    json_t *parts = json_object_get(post, "processors");
    if (json_object_get(json_array_get(json_object_get(post, "single"), 0), "SpecialToken")) return true;
    json_array_foreach(parts, i, part)
        if (json_object_get(json_array_get(json_object_get(part, "single"), 0), "SpecialToken")) return true;
    return false;
}

/* chat_template.jinja, or the text in tokenizer_config.json. */
static sluice_status put_template(sluice__gguf_writer *w, const char *dir, sluice_error *err) {
    char *jinja = sluice__path_join(dir, "chat_template.jinja"), *text = NULL;
    char *config = sluice__path_join(dir, "tokenizer_config.json");
    size_t size = 0;
    json_t *root = NULL;
    sluice_status st = jinja && config ? SLUICE_OK : sluice__no_memory(err, 64, "a path");
    if (st == SLUICE_OK && sluice__is_file(jinja)) {
        st = sluice__read_file(&text, &size, jinja, 16 << 20, err);
        if (st == SLUICE_OK) sluice__gguf_put_string(w, "tokenizer.chat_template", text, size);
    } else if (st == SLUICE_OK && sluice__is_file(config)) {
        st = sluice__json_load(&root, config, err);
        json_t *value = json_object_get(root, "chat_template");
        if (json_is_string(value))
            sluice__gguf_put_string(w, "tokenizer.chat_template", json_string_value(value), json_string_length(value));
    }
    json_decref(root);
    sluice__free(text);
    sluice__free(jinja);
    sluice__free(config);
    return st;
}

static sluice_status put_vocabulary(sluice__gguf_writer *w, json_t *root, const char *file, const sluice_config *c,
                                    sluice_error *err) {
    token *tokens = sluice__calloc((size_t)c->vocab_size, sizeof *tokens, SLUICE__MEM_OTHER);
    if (!tokens) return sluice__no_memory(err, (size_t)c->vocab_size * sizeof *tokens, "the vocabulary");
    sluice_status st = collect(tokens, c->vocab_size, root, file, err);
    if (st == SLUICE_OK) put_tokens(w, tokens, c->vocab_size);
    sluice__free(tokens);
    if (st == SLUICE_OK) st = put_merges(w, json_object_get(json_object_get(root, "model"), "merges"), file, err);
    if (st == SLUICE_OK) st = put_pre(w, root, file, err);
    if (st == SLUICE_OK) st = put_normalizer(w, root, file, err);
    return st;
}

static void put_specials(sluice__gguf_writer *w, json_t *root, const sluice_config *c) {
    static const char *const keys[] = {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
                                       "tokenizer.ggml.padding_token_id"};
    const int ids[] = {c->bos_token_id, c->eos_token_id, c->pad_token_id};
    for (int i = 0; i < 3; i++)
        if (ids[i] >= 0) sluice__gguf_put_u32(w, keys[i], (uint32_t)ids[i]);
    sluice__gguf_put_bool(w, "tokenizer.ggml.add_bos_token", c->bos_token_id >= 0 && puts_in_front(root));
}

sluice_status sluice__gguf_export_tokenizer(sluice__gguf_writer *w, const char *dir, const sluice_config *config,
                                            sluice_error *err) {
    char *file = sluice__path_join(dir, "tokenizer.json");
    json_t *root = NULL;
    if (!file) return sluice__no_memory(err, strlen(dir), "a path");
    sluice_status st = SLUICE_OK;
    if (!sluice__is_file(file)) {
        sluice__gguf_put_string(w, "tokenizer.ggml.model", "none", 4);
    } else {
        st = sluice__json_load(&root, file, err);
        const char *type = json_string_value(json_object_get(json_object_get(root, "model"), "type"));
        if (st == SLUICE_OK && type && strcmp(type, "BPE"))
            st = sluice__fail(err, SLUICE_ERR_UNSUPPORTED, "%s: model.type: only BPE can be written", file);
        if (st == SLUICE_OK) sluice__gguf_put_string(w, "tokenizer.ggml.model", "gpt2", 4);
        if (st == SLUICE_OK) st = put_vocabulary(w, root, file, config, err);
        if (st == SLUICE_OK) put_specials(w, root, config);
        if (st == SLUICE_OK) st = put_template(w, dir, err);
    }
    json_decref(root);
    sluice__free(file);
    return st;
}
