/* SPDX-License-Identifier: Apache-2.0 */
/* Text files to token shards. Documents come in pieces; a piece is encoded up to the last safe cut and the rest is
 * carried over to the next one, so that the ids are those of the whole document. Many short documents are encoded side
 * by side, a batch at a time. */
#include "base/json.h"
#include "base/memory.h"
#include "base/progress.h"
#include "base/strbuf.h"
#include "sluice/cpu.h"
#include "train/shards.h"
#include "train/text_join.h"
#include <string.h>

enum { BATCH_BYTES = 4 << 20, BATCH_DOCUMENTS = 4096, UINT16_VOCAB = 65500 };

typedef struct batch_item {
    size_t start, size; /* in the batch's text */
    bool starts, ends;
    sluice_ids ids;
} batch_item;

typedef struct pair {
    char *prefix;
    sluice__shard_writer *writer;
    int64_t bytes, unk_tokens;
} pair;

typedef struct packer {
    const sluice_tokenizer *tok;
    const sluice_pack_params *params;
    pair *pairs; /* the last one is being written */
    int num_pairs;
    sluice__strbuf text; /* of the batch */
    batch_item *items;
    int count;
    int64_t document_start; /* tokens in the present shard in front of it */
    sluice_pack_result *result;
    int32_t unk; /* -1 = none */
} packer;

sluice_pack_params sluice_pack_params_default(void) {
    return (sluice_pack_params){.text = sluice_text_params_default(), .eod_id = -1};
}

/* ---- shards ---- */
static sluice__shard_writer *writer(const packer *p) {
    return p->pairs[p->num_pairs - 1].writer;
}

static sluice_status open_pair(packer *p, sluice_error *err) {
    if (p->num_pairs) SLUICE__TRY(sluice__shard_writer_finish(writer(p), err));
    void *more = sluice__realloc(p->pairs, (size_t)p->num_pairs + 1, sizeof *p->pairs, SLUICE__MEM_DATA);
    if (!more) return sluice__no_memory(err, ((size_t)p->num_pairs + 1) * sizeof *p->pairs, "a list of shards");
    p->pairs = more;
    pair *next = &p->pairs[p->num_pairs];
    *next = (pair){.prefix = p->params->shard_tokens ? sluice__asprintf("%s-%05d", p->params->output, p->num_pairs)
                                                     : sluice__strdup(p->params->output)};
    if (!next->prefix) return sluice__no_memory(err, strlen(p->params->output), "a path");
    p->num_pairs++;
    return sluice__shard_writer_open(&next->writer, next->prefix, p->result->token_bytes, err);
}

static sluice_status add_ids(packer *p, const sluice_ids *ids, size_t bytes, sluice_error *err) {
    int64_t unk = 0;
    for (size_t i = 0; i < ids->count && p->unk >= 0; i++) unk += ids->data[i] == p->unk;
    p->pairs[p->num_pairs - 1].bytes += (int64_t)bytes;
    p->pairs[p->num_pairs - 1].unk_tokens += unk;
    p->result->unk_tokens += unk;
    p->result->tokens += (int64_t)ids->count;
    return sluice__shard_writer_add(writer(p), ids->data, ids->count, err);
}

/* A document without a token of its own leaves no trace. */
static sluice_status end_document(packer *p, sluice_error *err) {
    if (sluice__shard_writer_tokens(writer(p)) == p->document_start) return SLUICE_OK;
    if (p->params->eod_id >= 0) {
        SLUICE__TRY(sluice__shard_writer_add(writer(p), &p->params->eod_id, 1, err));
        p->result->tokens++;
    }
    SLUICE__TRY(sluice__shard_writer_end_document(writer(p), err));
    p->result->documents++;
    p->document_start = sluice__shard_writer_tokens(writer(p));
    return SLUICE_OK;
}

static sluice_status begin_document(packer *p, int64_t tokens, sluice_error *err) {
    int64_t most = p->params->shard_tokens, have = sluice__shard_writer_tokens(writer(p));
    if (most && have && have + tokens > most) SLUICE__TRY(open_pair(p, err));
    p->document_start = sluice__shard_writer_tokens(writer(p));
    return SLUICE_OK;
}

/* ---- batches ---- */
static sluice_status encode_items(packer *p, sluice_error *err) {
    int threads = p->count > 1 ? sluice_get_num_threads() : 1, failed = p->count;
    sluice_status st = SLUICE_OK;
#pragma omp parallel for schedule(dynamic, 4) num_threads(threads) if (threads > 1)
    for (int i = 0; i < p->count; i++) {
        batch_item *b = &p->items[i];
        sluice_error mine = {0};
        unsigned flags = (p->params->parse_special ? SLUICE_ENCODE_PARSE_SPECIAL : 0u) |
                         (p->params->add_special && b->starts && b->ends ? SLUICE_ENCODE_ADD_SPECIAL : 0u);
        b->ids.count = 0;
        sluice_status s = sluice_tokenizer_encode(p->tok, p->text.data + b->start, b->size, flags, &b->ids, &mine);
        if (s == SLUICE_OK) continue;
#pragma omp critical(sluice_pack_error)
        if (i < failed) {
            failed = i;
            st = s;
            if (err) *err = mine;
        }
    }
    return st;
}

static sluice_status flush_batch(packer *p, sluice_error *err) {
    if (!p->count) return SLUICE_OK;
    if (p->text.failed) return sluice__no_memory(err, p->text.size, "text");
    SLUICE__TRY(encode_items(p, err));
    for (int i = 0; i < p->count; i++) {
        batch_item *b = &p->items[i];
        if (b->starts) SLUICE__TRY(begin_document(p, (int64_t)b->ids.count, err));
        SLUICE__TRY(add_ids(p, &b->ids, b->size, err));
        if (b->ends) SLUICE__TRY(end_document(p, err));
    }
    p->count = 0;
    p->text.size = 0;
    return SLUICE_OK;
}

static sluice_status add_piece(packer *p, const sluice__text_piece *t, sluice_error *err) {
    if (p->count == BATCH_DOCUMENTS || (p->count && p->text.size + t->size > BATCH_BYTES))
        SLUICE__TRY(flush_batch(p, err));
    batch_item *b = &p->items[p->count++];
    b->start = p->text.size;
    b->size = t->size;
    b->starts = t->starts;
    b->ends = t->ends;
    sluice__strbuf_add(&p->text, t->data, t->size);
    p->result->bytes += (int64_t)t->size;
    return SLUICE_OK;
}

/* ---- the whole ---- */
static sluice_status read_all(packer *p, sluice__text_join *join, sluice_error *err) {
    sluice__progress progress;
    sluice__text_piece piece = {0};
    int64_t done, total;
    sluice__text_source_progress(join->source, &done, &total);
    sluice__progress_begin(&progress, "packing", "MB", total, 0, 1e-6);
    sluice_status st;
    do {
        st = sluice__text_join_next(join, &piece, err);
        if (st == SLUICE_OK) st = piece.data ? add_piece(p, &piece, err) : flush_batch(p, err);
        sluice__text_source_progress(join->source, &done, &total);
        sluice__progress_update(&progress, done, "%lld documents, %lld tokens", (long long)p->result->documents,
                                (long long)p->result->tokens);
    } while (st == SLUICE_OK && piece.data);
    sluice__progress_end(&progress, "%lld documents, %lld tokens", (long long)p->result->documents,
                         (long long)p->result->tokens);
    return st;
}

static sluice_status write_sidecar(const packer *p, const pair *one, sluice_error *err) {
    char *path = sluice__asprintf("%s.json", one->prefix), hash[24];
    if (!path) return sluice__no_memory(err, strlen(one->prefix), "a path");
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)sluice_tokenizer_hash(p->tok));
    json_t *eod = p->params->eod_id < 0 ? json_null() : json_integer(p->params->eod_id);
    json_t *root = json_pack("{s:s, s:s, s:s, s:i, s:o, s:I, s:I, s:I, s:I}", "format", "megatron", "token_type",
                             p->result->token_bytes == 2 ? "uint16" : "int32", "tokenizer_hash", hash, "vocab_size",
                             sluice_tokenizer_vocab_size(p->tok), "eod_id", eod, "documents",
                             (json_int_t)sluice__shard_writer_documents(one->writer), "tokens",
                             (json_int_t)sluice__shard_writer_tokens(one->writer), "bytes", (json_int_t)one->bytes,
                             "unk_tokens", (json_int_t)one->unk_tokens);
    sluice_status st = root ? sluice__json_save(root, path, err) : sluice__no_memory(err, 1024, path);
    json_decref(root);
    sluice__free(path);
    return st;
}

/* Nothing has its name before everything is written. The note with the hash comes before the pair that it belongs to.
 */
static sluice_status publish(packer *p, sluice_error *err) {
    SLUICE__TRY(sluice__shard_writer_finish(writer(p), err));
    for (int i = 0; i < p->num_pairs; i++) {
        SLUICE__TRY(write_sidecar(p, &p->pairs[i], err));
        SLUICE__TRY(sluice__shard_writer_publish(p->pairs[i].writer, err));
    }
    p->result->shards = p->num_pairs;
    return SLUICE_OK;
}

static sluice_status check_params(const sluice_tokenizer *tok, const sluice_pack_params *p, sluice_error *err) {
    if (!p->output || !*p->output)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "output: expected the prefix of the files to write");
    if (p->eod_id >= 0 && !sluice_tokenizer_token(tok, p->eod_id, NULL))
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "eod_id: found %d, expected a token of the tokenizer", p->eod_id);
    if (p->shard_tokens < 0)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "shard_tokens: found %lld, expected 0 or more",
                            (long long)p->shard_tokens);
    return SLUICE_OK;
}

static void packer_free(packer *p) {
    for (int i = 0; i < p->num_pairs; i++) {
        sluice__shard_writer_close(p->pairs[i].writer);
        sluice__free(p->pairs[i].prefix);
    }
    for (int i = 0; i < BATCH_DOCUMENTS && p->items; i++) sluice_ids_free(&p->items[i].ids);
    sluice__free(p->pairs);
    sluice__free(p->items);
    sluice__strbuf_free(&p->text);
}

sluice_status sluice_pack(const sluice_tokenizer *tok, const sluice_pack_params *params, const char *const *paths,
                          int num_paths, sluice_pack_result *result, sluice_error *err) {
    packer p = {.tok = tok, .params = params, .result = result, .unk = sluice_tokenizer_unk_id(tok)};
    /* The post-processor's template surrounds a text, not its pieces, so with it documents stay whole. */
    sluice__text_join join = {.tok = params->add_special ? NULL : tok, .limit = params->text.max_document_bytes};
    *result = (sluice_pack_result){.token_bytes = sluice_tokenizer_vocab_size(tok) < UINT16_VOCAB ? 2 : 4};
    SLUICE__TRY(check_params(tok, params, err));
    p.items = sluice__calloc(BATCH_DOCUMENTS, sizeof *p.items, SLUICE__MEM_DATA);
    sluice_status st =
        p.items ? SLUICE_OK : sluice__no_memory(err, BATCH_DOCUMENTS * sizeof *p.items, "a batch of documents");
    if (st == SLUICE_OK)
        st = sluice__text_source_open(&join.source, paths, num_paths, &params->text, SLUICE__TEXT_PIECE, err);
    if (st == SLUICE_OK) st = open_pair(&p, err);
    if (st == SLUICE_OK) st = read_all(&p, &join, err);
    if (st == SLUICE_OK && !result->tokens) st = sluice__fail(err, SLUICE_ERR_ARGUMENT, "%s: no text in it", paths[0]);
    if (st == SLUICE_OK) st = publish(&p, err);
    sluice__text_source_close(join.source);
    sluice__text_join_free(&join);
    packer_free(&p);
    return st;
}
