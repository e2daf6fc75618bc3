/* SPDX-License-Identifier: Apache-2.0 */
/* From the vocabulary in the metadata to the tokenizer.json of the same tokenizer: byte-level BPE ("gpt2"), whose
 * pre-tokenizer the file only names. One table says which patterns a name stands for; names that it lacks are refused,
 * because a wrong pattern gives wrong ids without any other sign. */
#include "base/memory.h"
#include "base/strbuf.h"
#include "model/gguf_tokenizer.h"
#include "model/tokenizer_save.h"
#include "model/utf8.h"
#include <string.h>

enum { NORMAL = 1, CONTROL = 3, USER_DEFINED = 4, MAX_PATTERNS = 3 };

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define CL100K(letter, mark, digits)                                                                                    \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?" letter "+|" digits "| ?[^\\s\\p{L}" mark                      \
    "\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define QWEN2 CL100K("\\p{L}", "", "\\p{N}")
#define QWEN35 CL100K("[\\p{L}\\p{M}]", "\\p{M}", "\\p{N}")
#define LLAMA3 CL100K("\\p{L}", "", "\\p{N}{1,3}")
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define ENDING "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
#define O200K                                                                                                           \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" ENDING "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" ENDING            \
    "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define DEEPSEEK3                                                                                                       \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"                 \
    "| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

typedef struct pre_tokenizer {
    const char *names;                  /* separated by blanks */
    const char *patterns[MAX_PATTERNS]; /* one after the other */
    bool nfc;                           /* the model's own tokenizer normalises */
    bool ignore_merges;                 /* a pre-token that is a token is taken whole */
    bool bos;                           /* unless add_bos_token says otherwise */
} pre_tokenizer;

static const pre_tokenizer known[] = {
    {.names = "gpt-2 gpt2 phi-2 olmo mpt jina-es jina-de jina-v2-es jina-v2-de roberta-bpe gigachat jais trillion",
     .patterns = {GPT2}},
    {.names = "smollm starcoder refact command-r codeshell exaone minerva-7b", .patterns = {"\\p{N}", GPT2}},
    {.names = "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 dbrx smaug-bpe",
     .patterns = {LLAMA3},
     .ignore_merges = true,
     .bos = true},
    {.names = "qwen2 deepseek-r1-qwen stablelm2 megrez hunyuan-dense", .patterns = {QWEN2}, .nfc = true},
    {.names = "qwen35 qwen3.5", .patterns = {QWEN35}, .nfc = true},
    {.names = "gpt-4o llama4 o200k", .patterns = {O200K}},
    {.names = "deepseek-v3",
     .patterns = {"\\p{N}{1,3}", "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+", DEEPSEEK3}},
};
enum { KNOWN = sizeof known / sizeof *known };

static bool listed(const char *names, sluice__gguf_text name) {
    for (const char *p = names; *p;) {
        size_t n = strcspn(p, " ");
        if (n == name.size && !memcmp(p, name.data, n)) return true;
        p += n + (p[n] == ' ');
    }
    return false;
}

static sluice_status find_pre_tokenizer(const pre_tokenizer **out, const sluice__gguf *g, sluice_error *err) {
    sluice__gguf_text name;
    const sluice__gguf_value *v = sluice__gguf_find(g, "tokenizer.ggml.pre");
    if (!sluice__gguf_string(v, &name))
        return sluice__fail(err, SLUICE_ERR_CONFIG,
                            "%s: tokenizer.ggml.pre: %s; without it nobody knows how text is cut (convert the file again)",
                            sluice__gguf_path(g), v ? "expected a text" : "missing");
    for (int i = 0; i < KNOWN; i++)
        if (listed(known[i].names, name)) return *out = &known[i], SLUICE_OK;
    return sluice__fail(err, SLUICE_ERR_UNSUPPORTED,
                        "%s: tokenizer.ggml.pre: \"%.*s\" is not supported; known are the families of gpt-2, smollm, "
                        "llama-bpe, qwen2, qwen35, gpt-4o and deepseek-v3",
                        sluice__gguf_path(g), (int)(name.size < 60 ? name.size : 60), name.data);
}

/* What the file says, else what the pre-tokenizer's model does. */
static sluice_status find_form(const char **out, const sluice__gguf *g, const pre_tokenizer *pre, sluice_error *err) {
    static const char *const forms[] = {"none", "NFC", "NFD", "NFKC", "NFKD"};
    const sluice__gguf_value *v = sluice__gguf_find(g, SLUICE__GGUF_NORMALIZER_KEY);
    sluice__gguf_text name;
    *out = pre->nfc ? "NFC" : NULL;
    if (!v) return SLUICE_OK;
    for (int i = 0; sluice__gguf_string(v, &name) && i < 5; i++)
        if (name.size == strlen(forms[i]) && !memcmp(name.data, forms[i], name.size))
            return *out = i ? forms[i] : NULL, SLUICE_OK;
    return sluice__fail(err, SLUICE_ERR_FORMAT, "%s: " SLUICE__GGUF_NORMALIZER_KEY ": expected none, NFC, NFD, NFKC or NFKD",
                        sluice__gguf_path(g));
}

/* ---- JSON ---- */

static void put_text(sluice__strbuf *b, sluice__gguf_text t) { sluice__json_quote(b, t.data, t.size); }

/* ---- the parts of the file ---- */

typedef struct vocabulary {
    const sluice__gguf *g;
    const sluice__gguf_value *tokens, *types, *merges;
    const pre_tokenizer *pre;
    const char *form; /* that text is put into; NULL = it stays as it is */
    sluice_error *err;
} vocabulary;

/* One pass over tokens and their types. */
typedef struct walk {
    uint64_t at, type_at;
    const unsigned char *cursor, *type_cursor;
    sluice__gguf_text text;
    int64_t type;
} walk;

static bool next_token(const vocabulary *v, walk *w) {
    sluice__gguf_value value;
    if (!sluice__gguf_next(v->tokens, &w->at, &w->cursor, &value)) return false;
    sluice__gguf_string(&value, &w->text);
    w->type = NORMAL;
    if (v->types && sluice__gguf_next(v->types, &w->type_at, &w->type_cursor, &value))
        sluice__gguf_integer(&value, &w->type);
    return true;
}

static bool is_added(const walk *w) { return w->type == CONTROL || w->type == USER_DEFINED; }

static sluice_status check_token(const vocabulary *v, const walk *w) {
    if (sluice__utf8_valid_prefix(w->text.data, w->text.size) == w->text.size) return SLUICE_OK;
    return sluice__fail(v->err, SLUICE_ERR_FORMAT, "%s: tokenizer.ggml.tokens: token %llu is not UTF-8",
                        sluice__gguf_path(v->g), (unsigned long long)(w->at - 1));
}

static sluice_status put_added(sluice__strbuf *b, const vocabulary *v) {
    bool first = true;
    sluice__strbuf_puts(b, "\"added_tokens\":[");
    for (walk w = {0}; next_token(v, &w); first &= !is_added(&w)) {
        SLUICE__TRY(check_token(v, &w));
        if (!is_added(&w)) continue;
        sluice__strbuf_printf(b, "%s{\"id\":%llu,\"content\":", first ? "" : ",", (unsigned long long)(w.at - 1));
        put_text(b, w.text);
        sluice__strbuf_printf(b, ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":%s}",
                              w.type == CONTROL ? "true" : "false");
    }
    sluice__strbuf_puts(b, "],");
    return SLUICE_OK;
}

static void put_normalizer(sluice__strbuf *b, const char *form) {
    if (form) sluice__strbuf_printf(b, "\"normalizer\":{\"type\":\"%s\"},", form);
    else sluice__strbuf_puts(b, "\"normalizer\":null,");
}

static void put_pre_tokenizer(sluice__strbuf *b, const pre_tokenizer *pre) {
    sluice__strbuf_puts(b, "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[");
    for (int i = 0; i < MAX_PATTERNS && pre->patterns[i]; i++) {
        sluice__strbuf_puts(b, "{\"type\":\"Split\",\"pattern\":{\"Regex\":");
        sluice__json_quote(b, pre->patterns[i], strlen(pre->patterns[i]));
        sluice__strbuf_puts(b, "},\"behavior\":\"Isolated\",\"invert\":false},");
    }
    sluice__strbuf_puts(b, "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":false,\"use_regex\":false}]},"
                           "\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true},");
}

/* The token that a key names by its id. */
static bool token_of_key(const vocabulary *v, const char *key, int64_t *id, sluice__gguf_text *text) {
    if (!sluice__gguf_integer(sluice__gguf_find(v->g, key), id) || *id < 0) return false;
    walk w = {0};
    while (next_token(v, &w))
        if ((int64_t)w.at - 1 == *id) {
            *text = w.text;
            return true;
        }
    return false;
}

/* What stands around every text; the special token must be written as one of added_tokens. */
static void put_post_processor(sluice__strbuf *b, const vocabulary *v) {
    static const char *const keys[2][2] = {{"tokenizer.ggml.add_bos_token", "tokenizer.ggml.bos_token_id"},
                                           {"tokenizer.ggml.add_eos_token", "tokenizer.ggml.eos_token_id"}};
    bool add[2] = {v->pre->bos, false};
    int64_t id[2];
    sluice__gguf_text text[2];
    for (int i = 0; i < 2; i++) {
        sluice__gguf_bool(sluice__gguf_find(v->g, keys[i][0]), &add[i]);
        add[i] = add[i] && token_of_key(v, keys[i][1], &id[i], &text[i]);
    }
    if (!add[0] && !add[1]) {
        sluice__strbuf_puts(b, "\"post_processor\":null,");
        return;
    }
    sluice__strbuf_puts(b, "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[");
    for (int i = 0; i < 2; i++) {
        if (i) sluice__strbuf_printf(b, "%s{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}", add[0] ? "," : "");
        if (!add[i]) continue;
        sluice__strbuf_printf(b, "%s{\"SpecialToken\":{\"id\":", i ? "," : "");
        put_text(b, text[i]);
        sluice__strbuf_puts(b, ",\"type_id\":0}}");
    }
    sluice__strbuf_puts(b, "],\"pair\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{\"Sequence\":{\"id\":\"B\",\"type_id\":1}}],"
                           "\"special_tokens\":{");
    for (int i = 0; i < 2; i++) {
        bool same = i && add[0] && id[0] == id[1];
        if (!add[i] || same) continue;
        if (i && add[0]) sluice__strbuf_puts(b, ",");
        put_text(b, text[i]);
        sluice__strbuf_puts(b, ":{\"id\":");
        put_text(b, text[i]);
        sluice__strbuf_printf(b, ",\"ids\":[%lld],\"tokens\":[", (long long)id[i]);
        put_text(b, text[i]);
        sluice__strbuf_puts(b, "]}");
    }
    sluice__strbuf_puts(b, "}},");
}

/* Behind the last token that is not an added one. Added tokens in front of it stand in the vocabulary too, because
 * `tokenizers` numbers those that are not in it from its end on, whatever id they have. */
static uint64_t vocabulary_end(const vocabulary *v) {
    uint64_t end = 0;
    for (walk w = {0}; next_token(v, &w);)
        if (!is_added(&w)) end = w.at;
    return end;
}

static void put_model(sluice__strbuf *b, const vocabulary *v) {
    bool first = true;
    uint64_t end = vocabulary_end(v);
    sluice__strbuf_printf(b,
                          "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":null,"
                          "\"end_of_word_suffix\":null,\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":%s,"
                          "\"vocab\":{",
                          v->pre->ignore_merges ? "true" : "false");
    for (walk w = {0}; next_token(v, &w) && w.at <= end;) {
        if (!first) sluice__strbuf_puts(b, ",");
        first = false;
        put_text(b, w.text);
        sluice__strbuf_printf(b, ":%llu", (unsigned long long)(w.at - 1));
    }
    sluice__strbuf_puts(b, "},\"merges\":[");
    sluice__gguf_value value;
    sluice__gguf_text text;
    uint64_t at = 0;
    for (const unsigned char *cursor = NULL; sluice__gguf_next(v->merges, &at, &cursor, &value);) {
        sluice__gguf_string(&value, &text);
        if (at > 1) sluice__strbuf_puts(b, ",");
        put_text(b, text);
    }
    sluice__strbuf_puts(b, "]}}");
}

static bool is_list(const sluice__gguf_value *v, sluice__gguf_type of) {
    return v && v->type == SLUICE__GGUF_ARRAY && v->of == of;
}

static sluice_status open_vocabulary(vocabulary *v, const sluice__gguf *g, sluice_error *err) {
    *v = (vocabulary){.g = g, .err = err};
    sluice__gguf_text model;
    const char *path = sluice__gguf_path(g);
    if (!sluice__gguf_string(sluice__gguf_find(g, "tokenizer.ggml.model"), &model))
        return sluice__fail(err, SLUICE_ERR_CONFIG, "%s: the file holds no tokenizer (tokenizer.ggml.model)", path);
    if (model.size != 4 || memcmp(model.data, "gpt2", 4))
        return sluice__fail(err, SLUICE_ERR_UNSUPPORTED,
                            "%s: tokenizer.ggml.model: \"%.*s\"%s is not supported, only gpt2 (byte-level BPE)", path,
                            (int)(model.size < 40 ? model.size : 40), model.data,
                            model.size == 5 && !memcmp(model.data, "llama", 5) ? " (SentencePiece)" : "");
    v->tokens = sluice__gguf_find(g, "tokenizer.ggml.tokens");
    v->types = sluice__gguf_find(g, "tokenizer.ggml.token_type");
    v->merges = sluice__gguf_find(g, "tokenizer.ggml.merges");
    if (!is_list(v->tokens, SLUICE__GGUF_STRING) || !is_list(v->merges, SLUICE__GGUF_STRING))
        return sluice__fail(err, SLUICE_ERR_CONFIG, "%s: tokenizer.ggml.tokens and .merges: expected lists of texts", path);
    if (v->types && (v->types->type != SLUICE__GGUF_ARRAY || v->types->count != v->tokens->count))
        return sluice__fail(err, SLUICE_ERR_CONFIG, "%s: tokenizer.ggml.token_type: expected one number for each token",
                            path);
    if (v->tokens->count > INT32_MAX) return sluice__fail(err, SLUICE_ERR_FORMAT, "%s: too many tokens", path);
    SLUICE__TRY(find_pre_tokenizer(&v->pre, g, err));
    return find_form(&v->form, g, v->pre, err);
}

sluice_status sluice__gguf_tokenizer_json(char **out, size_t *size, const sluice__gguf *g, sluice_error *err) {
    vocabulary v;
    *out = NULL;
    SLUICE__TRY(open_vocabulary(&v, g, err));
    sluice__strbuf b = {0};
    sluice__strbuf_puts(&b, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,");
    sluice_status st = put_added(&b, &v);
    put_normalizer(&b, v.form);
    put_pre_tokenizer(&b, v.pre);
    put_post_processor(&b, &v);
    put_model(&b, &v);
    if (st == SLUICE_OK && b.failed) st = sluice__no_memory(err, b.size, "the tokenizer");
    if (st != SLUICE_OK) {
        sluice__strbuf_free(&b);
        return st;
    }
    *out = b.data;
    *size = b.size;
    return SLUICE_OK;
}

/* bos_token and the like by their names, and the chat template as it stands in the file. */
sluice_status sluice__gguf_tokenizer_config(char **out, size_t *size, const sluice__gguf *g, sluice_error *err) {
    static const char *const keys[][2] = {{"tokenizer.ggml.bos_token_id", "bos_token"},
                                          {"tokenizer.ggml.eos_token_id", "eos_token"},
                                          {"tokenizer.ggml.padding_token_id", "pad_token"},
                                          {"tokenizer.ggml.unknown_token_id", "unk_token"}};
    vocabulary v;
    *out = NULL;
    SLUICE__TRY(open_vocabulary(&v, g, err));
    sluice__strbuf b = {0};
    sluice__strbuf_puts(&b, "{\"tokenizer_class\":\"PreTrainedTokenizerFast\"");
    for (int i = 0; i < 4; i++) {
        int64_t id;
        sluice__gguf_text text;
        sluice__strbuf_printf(&b, ",\"%s\":", keys[i][1]);
        if (token_of_key(&v, keys[i][0], &id, &text)) put_text(&b, text);
        else sluice__strbuf_puts(&b, "null");
    }
    sluice__gguf_text template;
    if (sluice__gguf_string(sluice__gguf_find(g, "tokenizer.chat_template"), &template)) {
        sluice__strbuf_puts(&b, ",\"chat_template\":");
        put_text(&b, template);
    }
    sluice__strbuf_puts(&b, "}");
    if (b.failed) {
        sluice__strbuf_free(&b);
        return sluice__no_memory(err, b.size, "the tokenizer's configuration");
    }
    *out = b.data;
    *size = b.size;
    return SLUICE_OK;
}

const char *sluice__gguf_pre_name(const char *const *patterns, int count, bool ignore_merges) {
    for (int i = 0; i < KNOWN; i++) {
        int same = 0;
        while (same < count && same < MAX_PATTERNS && known[i].patterns[same] && !strcmp(known[i].patterns[same], patterns[same]))
            same++;
        bool whole = same == count && (same == MAX_PATTERNS || !known[i].patterns[same]);
        if (whole && (count > 1 || known[i].ignore_merges == ignore_merges || !ignore_merges)) return known[i].names;
    }
    return NULL;
}
