/* SPDX-License-Identifier: Apache-2.0 */
/* A tokenizer's life: loading tokenizer.json and what stands beside it, saving, and the questions one can ask it. */
#include "model/tokenizer_internal.h"
#include "base/file.h"
#include "base/memory.h"
#include "model/gguf_model.h"
#include "model/gguf_tokenizer.h"
#include "base/rng.h"
#include "model/tokenizer_json.h"
#include "model/utf8.h"

enum { FILE_LIMIT = 1 << 30 };

/* ---- model ---- */
static sluice_status refuse_text(const sluice__json *model, const char *key, sluice_error *err) {
    const char *text = NULL;
    SLUICE__TRY(sluice__json_string(model, key, false, &text, err));
    if (!text || !*text) return SLUICE_OK;
    sluice__json_fail(model, key, err, "found \"%.40s\"; only an empty one is supported", text);
    if (err) err->code = SLUICE_ERR_UNSUPPORTED;
    return SLUICE_ERR_UNSUPPORTED;
}

/* Dropout makes the tokenizers package encode at random; the same text then has other ids each time. Refused rather
 * than ignored. */
static sluice_status model_options(sluice_tokenizer *tok, const sluice__json *model, const char **unk,
                                   sluice_error *err) {
    const char *type = "BPE";
    double dropout = 0;
    if (!json_is_object(model->value)) return sluice__json_fail(model, NULL, err, "expected an object");
    SLUICE__TRY(sluice__json_string(model, "type", false, &type, err));
    if (strcmp(type, "BPE")) return sluice__load_unsupported(model, "the model", type, err);
    SLUICE__TRY(sluice__json_real(model, "dropout", false, 0, 1, &dropout, err));
    if (dropout > 0) {
        sluice__json_fail(model, "dropout", err, "found %g: random encodings are not supported; set it to null",
                          dropout);
        if (err) err->code = SLUICE_ERR_UNSUPPORTED;
        return SLUICE_ERR_UNSUPPORTED;
    }
    SLUICE__TRY(refuse_text(model, "continuing_subword_prefix", err));
    SLUICE__TRY(refuse_text(model, "end_of_word_suffix", err));
    SLUICE__TRY(sluice__json_bool(model, "fuse_unk", false, &tok->fuse_unk, err));
    SLUICE__TRY(sluice__json_bool(model, "byte_fallback", false, &tok->byte_fallback, err));
    SLUICE__TRY(sluice__json_bool(model, "ignore_merges", false, &tok->ignore_merges, err));
    return sluice__json_string(model, "unk_token", false, unk, err);
}

static int32_t model_token(const sluice_tokenizer *tok, const char *text, size_t size) {
    int32_t id = sluice__vocab_find(&tok->vocab, text, size);
    return id >= 0 && tok->vocab.tokens[id].flags & SLUICE__TOKEN_MODEL ? id : -1;
}

/* The tokens of single bytes: GPT-2's characters, or <0xNN>. */
static sluice_status byte_tokens(sluice_tokenizer *tok, sluice_error *err) {
    for (unsigned b = 0; b < 256; b++) {
        char text[8];
        size_t n = tok->byte_level ? (size_t)sluice__utf8_put(text, sluice__byte_char(b))
                                   : (size_t)snprintf(text, sizeof text, "<0x%02X>", b);
        tok->symbol[b] = model_token(tok, text, n);
        if (tok->symbol[b] < 0 && tok->byte_level && tok->byte_fallback)
            return sluice__fail(
                err, SLUICE_ERR_UNSUPPORTED,
                "%s: model.byte_fallback with a ByteLevel pre-tokenizer and no token for byte %u is not supported",
                tok->name, b);
    }
    return SLUICE_OK;
}

/* The ranks of all pairs of bytes, so that a pre-token's first pairs cost no hashing. */
static sluice_status byte_pairs(sluice_tokenizer *tok, sluice_error *err) {
    for (int b = 0; b < 256; b++)
        if (!tok->byte_level || tok->symbol[b] < 0) return SLUICE_OK;
    tok->byte_pairs = sluice__calloc(256 * 256, sizeof *tok->byte_pairs, SLUICE__MEM_DATA);
    if (!tok->byte_pairs) return sluice__no_memory(err, 256 * 256 * sizeof *tok->byte_pairs, "pairs of bytes");
    for (int b = 0; b < 256 * 256; b++)
        tok->byte_pairs[b] =
            sluice__merge_rank(&tok->vocab.merges, (uint32_t)tok->symbol[b >> 8], (uint32_t)tok->symbol[b & 255]);
    return SLUICE_OK;
}

/* The bytes behind the spellings, in the arena behind them. */
static sluice_status spell_bytes(sluice_tokenizer *tok, sluice_error *err) {
    bool needed = tok->byte_level;
    for (int i = 0; i < tok->num_dec; i++) needed |= tok->dec[i].kind == SLUICE__DEC_BYTE_LEVEL;
    bool fallback = !needed && tok->byte_fallback;
    if (!needed && !fallback) return SLUICE_OK;
    sluice__vocab *v = &tok->vocab;
    size_t room = v->arena_size * 2 + 1;
    for (int i = 0; i < tok->num_added; i++) room += tok->added[i].normal_size + 1;
    SLUICE__TRY(sluice__vocab_reserve(v, (size_t)v->size, room, err));
    for (unsigned b = 0; b < 256 && fallback; b++)
        if (tok->symbol[b] >= 0) sluice__vocab_set_bytes(v, tok->symbol[b], &(char){(char)b}, 1);
    sluice__strbuf bytes = {0};
    for (int32_t id = 0; id < v->size && needed; id++) {
        if (!v->tokens[id].flags) continue;
        sluice__span text = sluice__decoded_text(tok, id);
        bytes.size = 0;
        if (sluice__add_byte_chars(&bytes, text)) text = (sluice__span){bytes.data ? bytes.data : "", bytes.size};
        sluice__vocab_set_bytes(v, id, text.data, text.size);
    }
    sluice_status st = bytes.failed ? sluice__no_memory(err, v->arena_size, "a vocabulary") : SLUICE_OK;
    sluice__strbuf_free(&bytes);
    return st;
}

/* ---- the file ---- */
/* The file with vocabulary and merges emptied, for the JSON parser. */
static sluice_status small_json(json_t **root, const sluice_tokenizer *tok, sluice__span vocab, sluice__span merges,
                                sluice_error *err) {
    sluice__span a = vocab, b = merges;
    if (a.data > b.data) a = merges, b = vocab;
    const char *at = tok->json, *end = tok->json + tok->json_size;
    sluice__strbuf small = {0};
    for (int i = 0; i < 2; i++) {
        sluice__span cut = i ? b : a;
        if (!cut.data) continue;
        sluice__strbuf_add(&small, at, (size_t)(cut.data - at));
        sluice__strbuf_puts(&small, cut.data == vocab.data ? "{}" : "[]");
        at = cut.data + cut.size;
    }
    sluice__strbuf_add(&small, at, (size_t)(end - at));
    sluice_status st = small.failed
                           ? sluice__no_memory(err, small.size, "tokenizer.json")
                           : sluice__json_parse(root, small.data ? small.data : "", small.size, tok->name, err);
    sluice__strbuf_free(&small);
    return st;
}

static sluice_status optional(sluice_tokenizer *tok, const sluice__json *root, const char *key,
                              sluice_status (*load)(sluice_tokenizer *, const sluice__json *, sluice_error *),
                              sluice_error *err) {
    sluice__json part = sluice__json_get(root, key);
    return part.value ? load(tok, &part, err) : SLUICE_OK;
}

static sluice_status parts(sluice_tokenizer *tok, const sluice__json *root, sluice__span vocab, sluice__span merges,
                           sluice_error *err) {
    sluice__json model = sluice__json_get(root, "model");
    const char *unk = NULL;
    if (!json_is_object(root->value)) return sluice__fail(err, SLUICE_ERR_CONFIG, "%s: expected an object", tok->name);
    SLUICE__TRY(model_options(tok, &model, &unk, err));
    if (!vocab.data || !merges.data)
        return sluice__fail(err, SLUICE_ERR_CONFIG, "%s: model.%s: missing, or not an %s", tok->name,
                            vocab.data ? "merges" : "vocab", vocab.data ? "array" : "object");
    SLUICE__TRY(optional(tok, root, "added_tokens", sluice__load_added, err));
    SLUICE__TRY(optional(tok, root, "normalizer", sluice__load_normalizer, err));
    SLUICE__TRY(optional(tok, root, "pre_tokenizer", sluice__load_pre_tokenizer, err));
    SLUICE__TRY(optional(tok, root, "post_processor", sluice__load_post_processor, err));
    SLUICE__TRY(optional(tok, root, "decoder", sluice__load_decoder, err));
    if (tok->vocab.size == 0) return sluice__fail(err, SLUICE_ERR_CONFIG, "%s: model.vocab: empty", tok->name);
    if (unk && (tok->unk_id = model_token(tok, unk, strlen(unk))) < 0)
        return sluice__fail(err, SLUICE_ERR_CONFIG, "%s: model.unk_token: \"%.60s\" is not in model.vocab", tok->name,
                            unk);
    SLUICE__TRY(byte_tokens(tok, err));
    SLUICE__TRY(byte_pairs(tok, err));
    SLUICE__TRY(sluice__build_tries(tok, err));
    SLUICE__TRY(spell_bytes(tok, err));
    return tok->ignore_merges && tok->byte_level ? sluice__vocab_index_bytes(&tok->vocab, err) : SLUICE_OK;
}

/* What the steps together allow. */
static void conclude(sluice_tokenizer *tok) {
    static const char *const eos[] = {"<|endoftext|>", "<|end_of_text|>", "</s>"}, *const bos[] = {"<|begin_of_text|>",
                                                                                                   "<s>"};
    if (tok->num_pre == 1 && tok->pre[0].kind == SLUICE__PRE_KNOWN) tok->sole = tok->pre[0].pattern.known;
    tok->can_cut = tok->sole != NULL;
    for (int i = 0; i < tok->num_norm; i++) tok->can_cut &= tok->norm[i].kind <= SLUICE__NORM_LOWERCASE;
    if (!*tok->pre_text) strcpy(tok->pre_text, "none");
    for (int i = 0; i < 3 && tok->eos_id < 0; i++) {
        int32_t id = sluice__vocab_find(&tok->vocab, eos[i], strlen(eos[i]));
        if (id >= 0 && tok->vocab.tokens[id].flags & SLUICE__TOKEN_SPECIAL) tok->eos_id = id;
    }
    for (int i = 0; i < 2 && tok->bos_id < 0; i++) {
        int32_t id = sluice__vocab_find(&tok->vocab, bos[i], strlen(bos[i]));
        if (id >= 0 && tok->vocab.tokens[id].flags & SLUICE__TOKEN_SPECIAL) tok->bos_id = id;
    }
}

/* Takes over json. */
static sluice_status build(sluice_tokenizer **out, char *json, size_t size, const char *name, sluice_error *err) {
    sluice_tokenizer *tok = sluice__calloc(1, sizeof *tok, SLUICE__MEM_DATA);
    json_t *root = NULL;
    sluice__span vocab, merges;
    if (!tok) {
        sluice__free(json);
        return sluice__no_memory(err, sizeof *tok, "a tokenizer");
    }
    pthread_mutex_init(&tok->pool_lock, NULL);
    tok->json = json;
    tok->json_size = size;
    tok->name = sluice__strdup(name);
    tok->unk_id = tok->bos_id = tok->eos_id = tok->pad_id = tok->config_unk_id = -1;
    tok->pre_fast = true;
    sluice_status st = tok->name ? SLUICE_OK : sluice__no_memory(err, strlen(name), "a name");
    if (st == SLUICE_OK) st = sluice__json_read_model(&tok->vocab, json, size, name, &vocab, &merges, err);
    if (st == SLUICE_OK) st = small_json(&root, tok, vocab, merges, err);
    if (st == SLUICE_OK) {
        sluice__json view = sluice__json_view(root, tok->name);
        st = parts(tok, &view, vocab, merges, err);
    }
    json_decref(root);
    if (st == SLUICE_OK) {
        conclude(tok);
        *out = tok;
    } else {
        sluice_tokenizer_free(tok);
    }
    return st;
}

sluice_status sluice_tokenizer_parse(sluice_tokenizer **out, const char *json, size_t size, const char *name,
                                     sluice_error *err) {
    *out = NULL;
    char *copy = sluice__strndup(json, size);
    if (!copy) return sluice__no_memory(err, size, name);
    return build(out, copy, size, name, err);
}

/* ---- tokenizer_config.json ---- */
/* "bos_token": "<s>" or {"content": "<s>", ...}; a token that the vocabulary lacks counts as none. */
static sluice_status config_token(const sluice_tokenizer *tok, const sluice__json *config, const char *key, int32_t *id,
                                  sluice_error *err) {
    json_t *v = json_object_get(config->value, key);
    if (!v) return SLUICE_OK;
    *id = -1;
    if (json_is_object(v)) v = json_object_get(v, "content");
    if (json_is_null(v)) return SLUICE_OK;
    if (!json_is_string(v)) return sluice__json_fail(config, key, err, "expected a token");
    *id = sluice__vocab_find(&tok->vocab, json_string_value(v), json_string_length(v));
    return SLUICE_OK;
}

/* Of the text in config_json. */
static sluice_status read_config(sluice_tokenizer *tok, const char *path, sluice_error *err) {
    json_t *root;
    SLUICE__TRY(sluice__json_parse(&root, tok->config_json, tok->config_size, path, err));
    sluice__json view = sluice__json_view(root, path);
    sluice_status st = json_is_object(root) ? SLUICE_OK : sluice__json_fail(&view, NULL, err, "expected an object");
    if (st == SLUICE_OK) st = config_token(tok, &view, "bos_token", &tok->bos_id, err);
    if (st == SLUICE_OK) st = config_token(tok, &view, "eos_token", &tok->eos_id, err);
    if (st == SLUICE_OK) st = config_token(tok, &view, "pad_token", &tok->pad_id, err);
    if (st == SLUICE_OK) st = config_token(tok, &view, "unk_token", &tok->config_unk_id, err);
    json_decref(root);
    return st;
}

static char *beside(const char *path, const char *name) {
    const char *slash = strrchr(path, '/');
    return slash ? sluice__asprintf("%.*s/%s", (int)(slash - path), path, name) : sluice__strdup(name);
}

static sluice_status load_gguf(sluice_tokenizer **out, const char *path, sluice_error *err) {
    sluice__gguf *g;
    char *json = NULL;
    size_t size;
    SLUICE__TRY(sluice__gguf_open(&g, path, err));
    sluice_status st = sluice__gguf_tokenizer_json(&json, &size, g, err);
    if (st == SLUICE_OK) st = build(out, json, size, path, err);
    if (st == SLUICE_OK)
        st = sluice__gguf_tokenizer_config(&(*out)->config_json, &(*out)->config_size, g, err);
    if (st == SLUICE_OK) st = read_config(*out, path, err);
    if (st != SLUICE_OK) {
        sluice_tokenizer_free(*out);
        *out = NULL;
    }
    sluice__gguf_close(g);
    return st;
}

sluice_status sluice_tokenizer_load(sluice_tokenizer **out, const char *path, sluice_error *err) {
    *out = NULL;
    if (!sluice__is_dir(path) && sluice__is_gguf(path)) return load_gguf(out, path, err);
    char *file = sluice__is_dir(path) ? sluice__path_join(path, "tokenizer.json") : sluice__strdup(path);
    char *config = file ? beside(file, "tokenizer_config.json") : NULL, *json = NULL;
    size_t size;
    sluice_status st = config ? SLUICE_OK : sluice__no_memory(err, strlen(path), "a path");
    if (st == SLUICE_OK) st = sluice__read_file(&json, &size, file, FILE_LIMIT, err);
    if (st == SLUICE_OK) st = build(out, json, size, file, err);
    if (st == SLUICE_OK && sluice__is_file(config)) {
        st = sluice__read_file(&(*out)->config_json, &(*out)->config_size, config, FILE_LIMIT, err);
        if (st == SLUICE_OK) st = read_config(*out, config, err);
    }
    if (st != SLUICE_OK) {
        sluice_tokenizer_free(*out);
        *out = NULL;
    }
    sluice__free(file);
    sluice__free(config);
    return st;
}

sluice_status sluice_tokenizer_save(const sluice_tokenizer *tok, const char *path, sluice_error *err) {
    if (!sluice__is_dir(path)) return sluice__write_file(path, tok->json, tok->json_size, err);
    char *file = sluice__path_join(path, "tokenizer.json"), *config = sluice__path_join(path, "tokenizer_config.json");
    sluice_status st = file && config ? SLUICE_OK : sluice__no_memory(err, strlen(path), "a path");
    if (st == SLUICE_OK) st = sluice__write_file(file, tok->json, tok->json_size, err);
    if (st == SLUICE_OK) st = sluice__save_config(tok, config, err);
    sluice__free(file);
    sluice__free(config);
    return st;
}

void sluice_tokenizer_free(sluice_tokenizer *tok) {
    if (!tok) return;
    for (sluice__encoder *e = tok->pool, *next; e; e = next) {
        next = e->next;
        sluice__encoder_free(e);
    }
    for (int i = 0; i < SLUICE__MAX_STEPS; i++) {
        sluice__pattern_free(&tok->norm[i].pattern);
        sluice__free(tok->norm[i].content);
        sluice__free(tok->norm[i].inert);
        sluice__pattern_free(&tok->pre[i].pattern);
        sluice__pattern_free(&tok->dec[i].pattern);
        sluice__free(tok->dec[i].content);
    }
    sluice__vocab_free(&tok->vocab);
    for (int i = 0; i < tok->num_added; i++) sluice__free(tok->added[i].normal);
    sluice__free(tok->byte_pairs);
    sluice__free(tok->added);
    sluice__free(tok->raw_trie.nodes);
    sluice__free(tok->normalized_trie.nodes);
    sluice__free(tok->prefix);
    sluice__free(tok->suffix);
    sluice__free(tok->json);
    sluice__free(tok->config_json);
    sluice__free(tok->name);
    pthread_mutex_destroy(&tok->pool_lock);
    sluice__free(tok);
}

/* ---- facts ---- */
static const sluice__token *token_of(const sluice_tokenizer *tok, int32_t id) {
    return id >= 0 && id < tok->vocab.size && tok->vocab.tokens[id].flags ? &tok->vocab.tokens[id] : NULL;
}

int sluice_tokenizer_vocab_size(const sluice_tokenizer *tok) {
    return tok->vocab.size;
}
int sluice_tokenizer_num_tokens(const sluice_tokenizer *tok) {
    return tok->vocab.used;
}
int sluice_tokenizer_num_merges(const sluice_tokenizer *tok) {
    return tok->vocab.merges.count;
}
int32_t sluice_tokenizer_id(const sluice_tokenizer *tok, const char *token, size_t size) {
    return sluice__vocab_find(&tok->vocab, token, size);
}
const char *sluice_tokenizer_token(const sluice_tokenizer *tok, int32_t id, size_t *size) {
    const sluice__token *t = token_of(tok, id);
    if (t && size) *size = t->text_size;
    return t ? tok->vocab.arena + t->text : NULL;
}
const char *sluice_tokenizer_bytes(const sluice_tokenizer *tok, int32_t id, size_t *size) {
    const sluice__token *t = token_of(tok, id);
    if (t && size) *size = t->bytes_size;
    return t ? tok->vocab.arena + t->bytes : NULL;
}
bool sluice_tokenizer_is_special(const sluice_tokenizer *tok, int32_t id) {
    const sluice__token *t = token_of(tok, id);
    return t && t->flags & SLUICE__TOKEN_SPECIAL;
}
bool sluice_tokenizer_is_added(const sluice_tokenizer *tok, int32_t id) {
    const sluice__token *t = token_of(tok, id);
    return t && t->flags & SLUICE__TOKEN_ADDED;
}
int32_t sluice_tokenizer_bos_id(const sluice_tokenizer *tok) {
    return tok->bos_id;
}
int32_t sluice_tokenizer_eos_id(const sluice_tokenizer *tok) {
    return tok->eos_id;
}
int32_t sluice_tokenizer_pad_id(const sluice_tokenizer *tok) {
    return tok->pad_id;
}
int32_t sluice_tokenizer_unk_id(const sluice_tokenizer *tok) {
    return tok->unk_id >= 0 ? tok->unk_id : tok->config_unk_id;
}
const char *sluice_tokenizer_pretokenizer(const sluice_tokenizer *tok, bool *fast) {
    if (fast) *fast = tok->pre_fast;
    return tok->pre_text;
}
uint64_t sluice_tokenizer_hash(const sluice_tokenizer *tok) {
    return sluice__hash_bytes(tok->json, tok->json_size, 0);
}
