/* SPDX-License-Identifier: Apache-2.0 */
/* A session is one growing sequence on a model, or several that go on together: it owns the KV caches and all scratch. The model
 * is shared and must outlive it. Any split of a prompt over several calls gives the same logits (docs/numerics.md states the
 * tolerance). */
#ifndef SLUICE_SESSION_H
#define SLUICE_SESSION_H
#include "sluice/model.h"
#include "sluice/sampler.h"
#include "sluice/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sluice_session_params {
    int capacity;      /* tokens that fit; 0 = max_position_embeddings of the model. Default 0 */
    int prefill_chunk; /* tokens per forward pass of a long prompt, 1..65536. Default 512 */
    int num_sequences; /* 1..1024; 0 = 1. Default 1 */
    sluice_kv_dtype cache_dtype; /* of keys and values; states of linear attention are fp32. Default SLUICE_KV_F32 */
} sluice_session_params;
sluice_session_params sluice_session_params_default(void);
/* "f32", "f16", "bf16", "q8_0"; false = no such name, *out stays. */
bool sluice_kv_dtype_parse(sluice_kv_dtype *out, const char *name);
const char *sluice_kv_dtype_name(sluice_kv_dtype dtype);

/* Warns when the tokenizer has ids that the model has no embedding for. Text that contains such a token is refused by
 * sluice_session_eval; a vocabulary that is larger than the tokenizer's is usual (padding). */
void sluice_check_tokenizer(const sluice_model *model, const sluice_tokenizer *tokenizer);

typedef struct sluice_session sluice_session;
/* params NULL = default. A capacity that memory cannot hold is SLUICE_ERR_MEMORY with the number of bytes. */
sluice_status sluice_session_new(sluice_session **out, const sluice_model *model, const sluice_session_params *params,
                                 sluice_error *err);
void sluice_session_free(sluice_session *session);

/* Appends n >= 1 tokens; logits [vocab_size] of the last one, or NULL. When the tokens do not fit or an id is outside the
 * vocabulary nothing is appended. */
sluice_status sluice_session_eval(sluice_session *session, const int32_t *ids, int64_t n, float *logits,
                                  sluice_error *err);
const sluice_model *sluice_session_model(const sluice_session *session);
int sluice_session_length(const sluice_session *session);
int sluice_session_capacity(const sluice_session *session);
/* Forgets everything behind the first `length` tokens (0 <= length <= current). */
sluice_status sluice_session_truncate(sluice_session *session, int length, sluice_error *err);
/* The tokens that the session holds, [length]; valid until it changes. */
const int32_t *sluice_session_ids(const sluice_session *session);
/* Keeps of what is held the longest beginning of ids[0..n-1] that leaves at least one token to evaluate, and forgets the
 * rest. *kept: its length; evaluate ids + *kept next. A model with linear attention can keep all that it holds or nothing, and
 * layers with a sliding window forget what is some hundred tokens behind it: for more there are snapshots
 * (sluice/snapshots.h). */
sluice_status sluice_session_reuse(sluice_session *session, const int32_t *ids, int64_t n, int64_t *kept, sluice_error *err);
/* Bytes that keys, values and states of one full sequence take; layers with a sliding window keep little more than that. */
int64_t sluice_session_cache_bytes(const sluice_config *config, const sluice_session_params *params);

/* ---- several sequences ---- */
/* Tokens for one of them. */
typedef struct sluice_batch_item {
    int sequence;
    const int32_t *ids; /* [n], n >= 1 */
    int64_t n;
    float *logits;      /* [vocab_size] of the last one, or NULL */
} sluice_batch_item;
/* sluice_session_eval for several sequences, no two items for the same one: the tokens of all go through the model together
 * (up to prefill_chunk, or one each if that is more, in a pass), so that weights are read once for all; a prompt may go
 * beside single tokens of others. What a sequence gets is what it would get alone, within the tolerance of
 * docs/numerics.md. On failure nothing is appended to any. */
sluice_status sluice_session_eval_batch(sluice_session *session, const sluice_batch_item *items, int count,
                                        sluice_error *err);
/* Every other function is about the selected sequence; number 0 is at first. */
sluice_status sluice_session_select(sluice_session *session, int sequence, sluice_error *err);
/* The selected sequence becomes a copy of number `from`, states of linear attention included. */
sluice_status sluice_session_copy(sluice_session *session, int from, sluice_error *err);

/* ---- files ---- */
/* Writes the selected sequence (its tokens, keys, values, states) and a text of the caller's (NULL = none), atomically.
 * The file belongs to the model: a hash of its configuration and weights is part of it. docs/formats.md describes it. A
 * file that is there and is neither empty nor such a file is not replaced: SLUICE_ERR_IO. */
sluice_status sluice_session_save(const sluice_session *session, const char *path, const char *note, sluice_error *err);
/* Fails as sluice_session_save would for what is at path, or if nothing can be written there; changes nothing. */
sluice_status sluice_session_check_target(const char *path, sluice_error *err);
/* Puts what a file holds into the selected sequence; what is generated then is, bit for bit, what would have been. *note
 * (may be NULL) receives the text, appended. On failure the sequence stays as it was. */
sluice_status sluice_session_load(sluice_session *session, const char *path, sluice_text *note, sluice_error *err);

typedef enum sluice_stop_reason {
    SLUICE_STOP_LENGTH,   /* max_new_tokens */
    SLUICE_STOP_EOS,      /* an end token; it is not delivered */
    SLUICE_STOP_CALLER,   /* the callback said so */
    SLUICE_STOP_CAPACITY, /* the session is full */
} sluice_stop_reason;

/* One generated token. */
typedef struct sluice_step {
    int32_t token;
    double logprob; /* natural log of the unfiltered softmax at temperature 1 */
    int num_top;    /* num_logprobs of the parameters */
    const int32_t *top_ids;     /* [num_top] the likeliest tokens, valid during the call */
    const double *top_logprobs; /* [num_top] */
} sluice_step;

typedef struct sluice_generate_params {
    sluice_sampling_params sampling;
    int64_t max_new_tokens;   /* >= 0. Default 128 */
    const int32_t *eos_ids;   /* ids that end the text; NULL with num_eos 0 = none */
    int num_eos;
    /* Called with each new token before the next is computed; a value other than 0 stops. May be NULL. */
    int (*on_token)(void *user, int32_t token, double logprob);
    int (*on_step)(void *user, const sluice_step *step); /* the same, saying more. May be NULL */
    int num_logprobs;         /* alternatives that on_step gets, 0..vocabulary. Default 0 */
    /* Asked between the chunks of the prompt and between tokens: a value other than 0 stops. May be NULL. */
    int (*cancelled)(void *user);
    void *user;
} sluice_generate_params;
sluice_generate_params sluice_generate_params_default(void);

/* What a model directory says about generation: generation_config.json where it exists, else config.json. */
typedef struct sluice_generation_config {
    sluice_sampling_params sampling; /* as transformers would use them: temperature 0 unless do_sample is true */
    int32_t eos_ids[SLUICE_MAX_EOS];
    int num_eos;
    int64_t max_new_tokens; /* 0 = not said */
} sluice_generation_config;
sluice_status sluice_generation_config_load(sluice_generation_config *out, const char *dir, const sluice_config *config,
                                            sluice_error *err);

typedef struct sluice_generation {
    int32_t *tokens; /* [count]; owned: sluice_generation_free */
    int64_t count;
    sluice_stop_reason stop;
    double prefill_seconds, decode_seconds;
} sluice_generation;

/* Evaluates the prompt (n >= 1 tokens) behind what the session holds, then generates; penalties look at all of it. The last
 * generated token is part of the result but not of the session. Cancelled within the prompt, the session holds the chunks
 * that were done and *out no token. On failure *out is empty. */
sluice_status sluice_generate(sluice_session *session, const int32_t *prompt, int64_t n,
                              const sluice_generate_params *params, sluice_generation *out, sluice_error *err);
void sluice_generation_free(sluice_generation *generation);

/* One text of several. */
typedef struct sluice_generate_request {
    int sequence;          /* of the session; no two requests have the same */
    const int32_t *prompt; /* [n], n >= 1, behind what the sequence holds */
    int64_t n;
    sluice_generate_params params;
} sluice_generate_request;
/* sluice_generate for `count` sequences, which go through the model together: first the prompts, then a token of every text
 * that has not ended. Callbacks come from the calling thread, text after text. out: [count]; on failure all are empty.
 * Texts drawn in company differ from those drawn alone where two choices are closer than rounding (docs/numerics.md). */
sluice_status sluice_generate_batch(sluice_session *session, const sluice_generate_request *requests, int count,
                                    sluice_generation *out, sluice_error *err);

#ifdef __cplusplus
}
#endif
#endif
