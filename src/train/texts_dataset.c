/* SPDX-License-Identifier: Apache-2.0 */
/* Text to datasets: the split is made on text, before anything is encoded, so that neither a tokenizer trained here
 * nor a token across a cut carries held-out text into training. */
#include "base/log.h"
#include "base/memory.h"
#include "train/dataset.h"
#include "train/shards.h"
#include "train/texts.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { SEARCH = 256, CHUNK = 64 << 20 };

/* ---- cutting ---- */

/* In front of the next line end or space, so that words stay whole; where a script has neither, between characters. */
static int64_t cut_text(const void *user, int64_t document, int64_t at) {
    const sluice_document *d = (const sluice_document *)user + document;
    int64_t size = (int64_t)d->size, end = size - at < SEARCH ? size : at + SEARCH;
    for (int64_t i = at; i < end; i++)
        if (d->data[i] == '\n' || d->data[i] == ' ') return i;
    while (at < size && (d->data[at] & 0xC0) == 0x80) at++;
    return at;
}

typedef struct cut_texts {
    const sluice_document *documents;
    sluice__piece *pieces;
    int64_t num_pieces, next;
} cut_texts;

static sluice_status cut(cut_texts *out, const sluice_train_params *p, const sluice_document *documents,
                         int64_t count, bool held, sluice_error *err) {
    *out = (cut_texts){.documents = documents};
    int64_t *sizes = sluice__calloc((size_t)count, sizeof *sizes, SLUICE__MEM_DATA);
    if (!sizes) return sluice__no_memory(err, (size_t)count * sizeof *sizes, "the sizes of documents");
    for (int64_t i = 0; i < count; i++) sizes[i] = (int64_t)documents[i].size;
    sluice__split_rule rule = sluice__split_rule_of(p);
    if (held) rule.split = SLUICE_SPLIT_NONE;
    sluice_status st = sluice__split(&out->pieces, &out->num_pieces, &rule, sizes, count, cut_text, documents, err);
    for (int64_t i = 0; i < out->num_pieces; i++) out->pieces[i].held |= held;
    sluice__free(sizes);
    return st;
}

/* ---- training a tokenizer ---- */

static sluice_status next_training_text(void *user, const char **text, size_t *size, sluice_error *err) {
    (void)err;
    cut_texts *c = user;
    while (c->next < c->num_pieces && c->pieces[c->next].held) c->next++;
    *text = NULL;
    *size = 0;
    if (c->next == c->num_pieces) return SLUICE_OK;
    const sluice__piece *piece = &c->pieces[c->next++];
    *text = c->documents[piece->document].data + piece->begin;
    *size = (size_t)(piece->end - piece->begin);
    return SLUICE_OK;
}

sluice_status sluice_train_tokenizer_on_text(sluice_tokenizer **out, const sluice_train_params *p, int vocab_size,
                                             const sluice_document *documents, int64_t count, sluice_error *err) {
    *out = NULL;
    sluice_tokenizer_params t = sluice_tokenizer_params_default();
    const char *special[2] = {"<|endoftext|>", *p->bos_token ? p->bos_token : "<|begin_of_text|>"};
    t.vocab_size = vocab_size;
    t.special_tokens = special;
    t.num_special_tokens = p->bos == SLUICE_BOS_NONE || !strcmp(special[0], special[1]) ? 1 : 2;
    cut_texts c;
    SLUICE__TRY(cut(&c, p, documents, count, false, err));
    sluice_status st = sluice_tokenizer_train(out, &t, next_training_text, &c, err);
    sluice__free(c.pieces);
    if (st != SLUICE_OK) return sluice__fail_in(err, st, "training a tokenizer of %d tokens", vocab_size);
    int made = sluice_tokenizer_vocab_size(*out);
    if (made < vocab_size)
        sluice__log(SLUICE_LOG_WARNING, "the text has pairs for %d tokens only; %d were asked for", made, vocab_size);
    return SLUICE_OK;
}

sluice_status sluice_train_tokenizer(sluice_tokenizer **out, const sluice_train_params *p, int vocab_size,
                                     sluice_error *err) {
    sluice__texts texts;
    *out = NULL;
    SLUICE__TRY(sluice__texts_read(&texts, p->text, "text", p, err));
    sluice_status st = sluice_train_tokenizer_on_text(out, p, vocab_size, texts.documents, texts.count, err);
    sluice__texts_free(&texts);
    return st;
}

/* ---- encoding ---- */

/* Tokens as they accumulate: uint16 while the vocabulary allows it. */
typedef struct token_buffer {
    void *data;
    int width;
    int64_t count, capacity;
} token_buffer;

static sluice_status append(token_buffer *b, const int32_t *ids, size_t count, sluice_error *err) {
    int64_t needed = b->count + (int64_t)count;
    if (needed > b->capacity) {
        int64_t capacity = needed > 2 * b->capacity ? needed : 2 * b->capacity;
        void *grown = sluice__realloc(b->data, (size_t)capacity, (size_t)b->width, SLUICE__MEM_DATA);
        if (!grown) return sluice__no_memory(err, (size_t)capacity * (size_t)b->width, "tokens");
        b->data = grown;
        b->capacity = capacity;
    }
    for (size_t i = 0; i < count; i++) {
        if (b->width == 2) ((uint16_t *)b->data)[b->count++] = (uint16_t)ids[i];
        else ((int32_t *)b->data)[b->count++] = ids[i];
    }
    return SLUICE_OK;
}

/* Long texts go through the tokenizer in chunks that it says make no difference. */
static sluice_status encode(token_buffer *b, const sluice_tokenizer *tok, const char *text, size_t size,
                            sluice_ids *scratch, sluice_error *err) {
    while (size) {
        size_t take = size > CHUNK ? sluice_tokenizer_cut(tok, text, CHUNK) : size;
        if (!take) take = size;
        scratch->count = 0;
        SLUICE__TRY(sluice_tokenizer_encode(tok, text, take, 0, scratch, err));
        SLUICE__TRY(append(b, scratch->data, scratch->count, err));
        text += take;
        size -= take;
    }
    return SLUICE_OK;
}

/* Encodes every piece and turns it from bytes into tokens: pieces keep their document, but begin and end in the
 * buffer. */
static sluice_status encode_pieces(token_buffer *b, cut_texts *c, const sluice_tokenizer *tok, sluice_error *err) {
    sluice_ids scratch = {0};
    sluice_status st = SLUICE_OK;
    for (int64_t i = 0; i < c->num_pieces && st == SLUICE_OK; i++) {
        sluice__piece *piece = &c->pieces[i];
        int64_t from = b->count;
        st = encode(b, tok, c->documents[piece->document].data + piece->begin, (size_t)(piece->end - piece->begin),
                    &scratch, err);
        piece->begin = from;
        piece->end = b->count;
    }
    sluice_ids_free(&scratch);
    return st;
}

static sluice_status add_texts(sluice_dataset *d, const sluice_train_params *p, const sluice_tokenizer *tok,
                               const sluice_document *documents, int64_t count, bool held, sluice_error *err) {
    cut_texts c;
    token_buffer b = {.width = d->vocab_size <= 65536 ? 2 : 4};
    SLUICE__TRY(cut(&c, p, documents, count, held, err));
    sluice_status st = encode_pieces(&b, &c, tok, err);
    if (st != SLUICE_OK) sluice__free(b.data);
    else st = sluice__dataset_add_store(d, (sluice__store){b.data, b.width, b.count}, sluice__free, b.data, err);
    for (int64_t i = 0; i < c.num_pieces && st == SLUICE_OK; i++)
        st = sluice__dataset_add_piece(d, d->num_stores - 1, 0, &c.pieces[i], err);
    sluice__free(c.pieces);
    return st;
}

/* ---- shards ---- */

static void close_shard(void *shard) {
    sluice_shard_close(shard);
}

static sluice_status check_shard(const sluice_shard *s, const char *path, const sluice_tokenizer *tok,
                                 sluice_error *err) {
    uint64_t made_with;
    if (!tok || !sluice_shard_tokenizer_hash(s, &made_with) || made_with == sluice_tokenizer_hash(tok))
        return SLUICE_OK;
    return sluice__fail(err, SLUICE_ERR_MISMATCH,
                        "shards: %s was made with another tokenizer (%016" PRIx64 ", this one is %016" PRIx64 ")",
                        path, made_with, sluice_tokenizer_hash(tok));
}

static sluice_status add_shard(sluice_dataset *d, const sluice_train_params *p, const sluice_tokenizer *tok,
                               const char *path, sluice_error *err) {
    sluice_shard *s;
    SLUICE__TRY(sluice_shard_open(&s, path, err));
    sluice_status st = check_shard(s, path, tok, err);
    int64_t n = sluice_shard_num_documents(s), start;
    int64_t *sizes = sluice__calloc((size_t)n, sizeof *sizes, SLUICE__MEM_DATA);
    if (st == SLUICE_OK && !sizes) st = sluice__no_memory(err, (size_t)n * sizeof *sizes, "the sizes of documents");
    if (st != SLUICE_OK) {
        sluice_shard_close(s);
        sluice__free(sizes);
        return st;
    }
    for (int64_t i = 0; i < n; i++) sluice_shard_document(s, i, &start, &sizes[i]);
    sluice__store store = {sluice__shard_data(s), sluice_shard_token_bytes(s), sluice_shard_num_tokens(s)};
    st = sluice__dataset_add_store(d, store, close_shard, s, err);
    if (st == SLUICE_OK) st = sluice__dataset_add_documents(d, d->num_stores - 1, p, sizes, n, false, err);
    sluice__free(sizes);
    return st;
}

static sluice_status add_shards(sluice_dataset *d, const sluice_train_params *p, const sluice_tokenizer *tok,
                                sluice_error *err) {
    char path[SLUICE_TRAIN_LIST];
    for (const char *at = p->shards; *at; at += *at == '\n') {
        size_t n = strcspn(at, "\n");
        snprintf(path, sizeof path, "%.*s", (int)n, at);
        if (n) SLUICE__TRY(add_shard(d, p, tok, path, err));
        at += n;
    }
    return SLUICE_OK;
}

/* ---- datasets ---- */

static sluice_status special_ids(int32_t *bos, int32_t *eos, const sluice_train_params *p,
                                 const sluice_tokenizer *tok, sluice_error *err) {
    *bos = tok ? sluice_tokenizer_bos_id(tok) : -1;
    *eos = tok ? sluice_tokenizer_eos_id(tok) : -1;
    if (!*p->bos_token || p->bos == SLUICE_BOS_NONE) return SLUICE_OK;
    *bos = tok ? sluice_tokenizer_id(tok, p->bos_token, strlen(p->bos_token)) : -1;
    if (*bos >= 0) return SLUICE_OK;
    return sluice__fail(err, SLUICE_ERR_ARGUMENT, "bos_token: the tokenizer has no token \"%.60s\"", p->bos_token);
}

sluice_status sluice__texts_dataset(sluice_dataset **out, const sluice_train_params *p,
                                    const sluice_tokenizer *tokenizer, int vocab_size,
                                    const sluice_document *documents, int64_t count, const sluice_document *held,
                                    int64_t num_held, sluice_error *err) {
    int32_t bos, eos;
    sluice_dataset *d;
    *out = NULL;
    if ((count || num_held) && !tokenizer)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "tokenizer_name: text needs a tokenizer");
    SLUICE__TRY(special_ids(&bos, &eos, p, tokenizer, err));
    SLUICE__TRY(sluice__dataset_new(&d, p, tokenizer, vocab_size, bos, eos, err));
    sluice_status st = count ? add_texts(d, p, tokenizer, documents, count, false, err) : SLUICE_OK;
    if (st == SLUICE_OK && num_held) st = add_texts(d, p, tokenizer, held, num_held, true, err);
    if (st == SLUICE_OK) st = add_shards(d, p, tokenizer, err);
    if (st == SLUICE_OK) st = sluice__dataset_finish(d, err);
    if (st != SLUICE_OK) sluice_dataset_free(d);
    else *out = d;
    return st;
}

sluice_status sluice_dataset_from_text(sluice_dataset **out, const sluice_train_params *p,
                                       const sluice_tokenizer *tokenizer, const sluice_document *documents,
                                       int64_t count, sluice_error *err) {
    sluice_train_params here = *p;
    *here.shards = '\0'; /* the documents given are all there is */
    return sluice__texts_dataset(out, &here, tokenizer, sluice_tokenizer_vocab_size(tokenizer), documents, count,
                                 NULL, 0, err);
}

sluice_status sluice_dataset_load(sluice_dataset **out, const sluice_train_params *p,
                                  const sluice_tokenizer *tokenizer, int vocab_size, sluice_error *err) {
    sluice__texts texts = {0}, held = {0};
    *out = NULL;
    sluice_status st = SLUICE_OK;
    if (!*p->text && !*p->shards) st = sluice__fail(err, SLUICE_ERR_ARGUMENT, "text, shards: nothing to train on");
    if (st == SLUICE_OK && *p->text) st = sluice__texts_read(&texts, p->text, "text", p, err);
    if (st == SLUICE_OK && *p->validation_text)
        st = sluice__texts_read(&held, p->validation_text, "validation_text", p, err);
    if (st == SLUICE_OK)
        st = sluice__texts_dataset(out, p, tokenizer, vocab_size, texts.documents, texts.count, held.documents,
                                   held.count, err);
    sluice__texts_free(&texts);
    sluice__texts_free(&held);
    return st;
}
