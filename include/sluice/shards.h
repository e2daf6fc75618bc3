/* SPDX-License-Identifier: Apache-2.0 */
/* Text in, token shards out. A shard is Megatron's pair of files PREFIX.bin (tokens of all documents behind each other,
 * uint16 or int32) and PREFIX.idx (where each document lies); docs/tokenizer.md has the bytes. PREFIX.json beside them
 * names the tokenizer. */
#ifndef SLUICE_SHARDS_H
#define SLUICE_SHARDS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "sluice/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How text files become documents. Paths are files, directories (every .txt .text .md .jsonl .ndjson file below them,
 * each also .gz or .zst, sorted by name) or "-" for standard input. Compression is recognised by content. */
typedef enum sluice_text_format {
    SLUICE_TEXT_AUTO, /* .jsonl and .ndjson by name, everything else is plain text */
    SLUICE_TEXT_PLAIN,
    SLUICE_TEXT_JSONL
} sluice_text_format;
typedef struct sluice_text_params {
    sluice_text_format format;
    const char *text_key;  /* of a line's JSON object; default "text" */
    const char *separator; /* plain text: NULL (default) = a file is one document; "" = blank lines part documents;
                              otherwise lines that equal it do. Parting lines and the line end before them belong to no
                              document. */
    bool allow_invalid; /* bytes that are not UTF-8 pass; default false: they are an error that names file and line */
    int64_t max_document_bytes; /* a longer document is an error; default 1 GiB. Only matters where documents are held
                                   whole. */
} sluice_text_params;
sluice_text_params sluice_text_params_default(void);

/* All documents of a path as one text, a blank line between two of them; at most `most` bytes. params NULL = default.
 * *out is freed with sluice_text_free; without a document its data is NULL. */
sluice_status sluice_text_read(sluice_text *out, const char *path, const sluice_text_params *params, size_t most,
                               sluice_error *err);

/* Trains on the documents of files. text NULL = default. */
sluice_status sluice_tokenizer_train_files(sluice_tokenizer **out, const sluice_tokenizer_params *params,
                                           const char *const *paths, int num_paths, const sluice_text_params *text,
                                           sluice_error *err);

/* ---- writing ---- */
typedef struct sluice_pack_params {
    sluice_text_params text;
    const char *output;   /* prefix of the files */
    int32_t eod_id;       /* token behind every document; -1 (default) = none */
    bool add_special;     /* what the tokenizer's post-processor puts around a text (BOS ...); default false */
    bool parse_special;   /* special tokens in the text become their ids; default false: they are plain text */
    int64_t shard_tokens; /* a new pair PREFIX-00000, PREFIX-00001 ... is begun at the document that would exceed it; 0
                             (default) = one pair PREFIX */
} sluice_pack_params;
sluice_pack_params sluice_pack_params_default(void);

typedef struct sluice_pack_result {
    int64_t documents, tokens, bytes; /* bytes of text */
    int64_t unk_tokens;
    int shards, token_bytes; /* 2 or 4 */
} sluice_pack_result;
/* Files appear under their names only when all of them are complete. Memory does not grow with the text as long as the
 * tokenizer finds safe cuts (sluice_tokenizer_cut); without them a document is held whole. Documents without a token
 * are left out. */
sluice_status sluice_pack(const sluice_tokenizer *tok, const sluice_pack_params *params, const char *const *paths,
                          int num_paths, sluice_pack_result *result, sluice_error *err);

/* ---- reading ---- */
typedef struct sluice_shard sluice_shard; /* immutable; threads may share it */
/* path: the prefix, or the .bin or .idx file. Everything in the .idx is checked against the .bin first. */
sluice_status sluice_shard_open(sluice_shard **out, const char *path, sluice_error *err);
void sluice_shard_close(sluice_shard *shard);
int64_t sluice_shard_num_documents(const sluice_shard *shard);
int64_t sluice_shard_num_tokens(const sluice_shard *shard);
int sluice_shard_token_bytes(const sluice_shard *shard);
/* Tokens [*start, *start + *count) of the shard are document d. */
void sluice_shard_document(const sluice_shard *shard, int64_t d, int64_t *start, int64_t *count);
/* Copies `count` tokens from `start`; both must lie inside. */
void sluice_shard_read(const sluice_shard *shard, int64_t start, int64_t count, int32_t *out);
/* The hash of the tokenizer that PREFIX.json names (sluice_tokenizer_hash); false when there is no such file. */
bool sluice_shard_tokenizer_hash(const sluice_shard *shard, uint64_t *hash);

typedef struct sluice_shard_stats {
    int64_t documents, tokens, distinct, shortest, longest; /* documents in tokens */
    int32_t min_id, max_id;
    double entropy;     /* bits per token of the unigram distribution */
    int64_t unk_tokens; /* of unk_id; 0 when unk_id is -1 */
} sluice_shard_stats;
sluice_status sluice_shard_statistics(const sluice_shard *shard, int32_t unk_id, sluice_shard_stats *out,
                                      sluice_error *err);

#ifdef __cplusplus
}
#endif
#endif
