/* SPDX-License-Identifier: Apache-2.0 */
/* Text to token ids and back: BPE from a Hugging Face tokenizer.json, and its training. A tokenizer is immutable once
 * it exists, so any number of threads may use one at the same time.
 *
 * Encoding follows the `tokenizers` package: added tokens are cut out, the rest is normalised, cut into pre-tokens and
 * merged. Bytes that are not UTF-8 lose nothing: every maximal ill-formed run is one pre-token of its own and BPE sees
 * its bytes. The `truncation` and `padding` entries of a file are not applied (transformers resets them as well). */
#ifndef SLUICE_TOKENIZER_H
#define SLUICE_TOKENIZER_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "sluice/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sluice_tokenizer sluice_tokenizer;

/* Growing results; start them as {0}. Functions append; clear by count = 0 or size = 0. data is NUL-terminated in a
 * text. */
typedef struct sluice_ids {
    int32_t *data;
    size_t count, capacity;
} sluice_ids;
typedef struct sluice_text {
    char *data;
    size_t size, capacity;
} sluice_text;
void sluice_ids_free(sluice_ids *ids);    /* leaves it empty and usable */
void sluice_text_free(sluice_text *text); /* the same */

/* path: a tokenizer.json, or a directory that holds one; a tokenizer_config.json beside it names bos, eos, pad and unk.
 * On failure *out is NULL. */
sluice_status sluice_tokenizer_load(sluice_tokenizer **out, const char *path, sluice_error *err);
/* The same from memory; `name` stands for the file in messages. */
sluice_status sluice_tokenizer_parse(sluice_tokenizer **out, const char *json, size_t size, const char *name,
                                     sluice_error *err);
/* Writes what was loaded (the same bytes) or trained. path: a directory (tokenizer.json and tokenizer_config.json are
 * written into it) or a file name. Atomic for each file. */
sluice_status sluice_tokenizer_save(const sluice_tokenizer *tok, const char *path, sluice_error *err);
void sluice_tokenizer_free(sluice_tokenizer *tok);

/* ---- training ---- */
typedef struct sluice_tokenizer_params {
    int vocab_size;      /* with special tokens and the 256 bytes; default 32000 */
    const char *pattern; /* "gpt2", "qwen2", "qwen3.5", "llama3", or a regular expression (Oniguruma's syntax); default
                            "qwen2" */
    const char *const *special_tokens; /* get ids 0, 1, ...; default "<|endoftext|>" */
    int num_special_tokens;
    int64_t min_frequency;  /* a pair that occurs less often is not merged; default 0 as in the tokenizers package */
    const char *normalizer; /* NULL or "none" (default), "NFC", "NFD", "NFKC", "NFKD" */
} sluice_tokenizer_params;
sluice_tokenizer_params sluice_tokenizer_params_default(void);

/* Delivers the next document; *text NULL at the end. The bytes have to stay until the next call. */
typedef sluice_status (*sluice_text_fn)(void *user, const char **text, size_t *size, sluice_error *err);
/* Byte-level BPE. The most frequent pair is merged; among equals the one with the smallest (left id, right id). Holds
 * the distinct pre-tokens in memory, not the text. Fewer merges than asked for are made when the text has no more
 * pairs. */
sluice_status sluice_tokenizer_train(sluice_tokenizer **out, const sluice_tokenizer_params *params, sluice_text_fn next,
                                     void *user, sluice_error *err);
sluice_status sluice_tokenizer_train_text(sluice_tokenizer **out, const sluice_tokenizer_params *params,
                                          const char *text, size_t size, sluice_error *err);

/* ---- encoding ---- */
enum {
    SLUICE_ENCODE_ADD_SPECIAL = 1,  /* what the post-processor puts around a text (bos, eos) */
    SLUICE_ENCODE_PARSE_SPECIAL = 2 /* special tokens written in the text become their ids; without it they are text.
                                       (Added tokens that are not special are recognised either way.) */
};
/* Appends the ids of text to *ids. Long texts are cut at places that do not change the result and encoded by
 * sluice_get_num_threads() threads. */
sluice_status sluice_tokenizer_encode(const sluice_tokenizer *tok, const char *text, size_t size, unsigned flags,
                                      sluice_ids *ids, sluice_error *err);
/* The largest p <= size such that encoding text[0, p) and then what follows text[p) gives the same ids as encoding it
 * in one go, whatever follows text[size); 0 when there is none to be sure of. For reading endless documents in pieces.
 */
size_t sluice_tokenizer_cut(const sluice_tokenizer *tok, const char *text, size_t size);

/* ---- decoding ---- */
/* Appends the text of ids to *text: valid UTF-8, U+FFFD for every maximal ill-formed part. Ids without
 * a token give nothing (models often have more rows than their tokenizer has tokens). */
sluice_status sluice_tokenizer_decode(const sluice_tokenizer *tok, const int32_t *ids, size_t count, bool skip_special,
                                      sluice_text *text, sluice_error *err);

/* Decoding one id at a time: what is appended to *text is complete characters only; an unfinished one waits for the
 * next ids, or for _finish, which gives U+FFFD for it. All pieces together are what sluice_tokenizer_decode gives. */
typedef struct sluice_decode_stream sluice_decode_stream;
sluice_status sluice_decode_stream_new(sluice_decode_stream **out, const sluice_tokenizer *tok, bool skip_special,
                                       sluice_error *err);
sluice_status sluice_decode_stream_push(sluice_decode_stream *s, int32_t id, sluice_text *text, sluice_error *err);
sluice_status sluice_decode_stream_finish(sluice_decode_stream *s, sluice_text *text, sluice_error *err);
void sluice_decode_stream_free(sluice_decode_stream *s);

/* ---- facts ---- */
int sluice_tokenizer_vocab_size(const sluice_tokenizer *tok); /* highest id + 1: rows that an embedding needs */
int sluice_tokenizer_num_tokens(const sluice_tokenizer *tok); /* ids in use */
int sluice_tokenizer_num_merges(const sluice_tokenizer *tok);
int32_t sluice_tokenizer_id(const sluice_tokenizer *tok, const char *token, size_t size); /* -1 = no such token */
/* The token as the file spells it (NUL-terminated), or NULL for an id without a token. size may be NULL. */
const char *sluice_tokenizer_token(const sluice_tokenizer *tok, int32_t id, size_t *size);
/* The bytes of text that the token stands for (its spelling where the decoder knows no bytes), or NULL. */
const char *sluice_tokenizer_bytes(const sluice_tokenizer *tok, int32_t id, size_t *size);
bool sluice_tokenizer_is_special(const sluice_tokenizer *tok, int32_t id);
bool sluice_tokenizer_is_added(const sluice_tokenizer *tok, int32_t id);
/* -1 = none. Without a tokenizer_config.json eos is <|endoftext|>, <|end_of_text|> or </s>, and bos is
 * <|begin_of_text|> or <s>, where such a special token exists; unk is the model's unk_token. */
int32_t sluice_tokenizer_bos_id(const sluice_tokenizer *tok);
int32_t sluice_tokenizer_eos_id(const sluice_tokenizer *tok);
int32_t sluice_tokenizer_pad_id(const sluice_tokenizer *tok);
int32_t sluice_tokenizer_unk_id(const sluice_tokenizer *tok);
/* "Split(qwen2) ByteLevel": the pre-tokenizer in words; and whether all of its patterns have a hand-written matcher. */
const char *sluice_tokenizer_pretokenizer(const sluice_tokenizer *tok, bool *fast);
/* 64-bit FNV-1a of the bytes of tokenizer.json: to hold shards and checkpoints against the tokenizer they were made
 * with. */
uint64_t sluice_tokenizer_hash(const sluice_tokenizer *tok);

#ifdef __cplusplus
}
#endif
#endif
