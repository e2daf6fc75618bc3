/* SPDX-License-Identifier: Apache-2.0 */
/* A session is one growing sequence on a model: it owns the KV cache and all scratch. The model is shared and must outlive
 * it. Any split of a prompt over several calls gives the same logits (docs/numerics.md states the tolerance). */
#ifndef SLUICE_SESSION_H
#define SLUICE_SESSION_H
#include "sluice/model.h"
#include "sluice/sampler.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sluice_session_params {
    int capacity;      /* tokens that fit; 0 = max_position_embeddings of the model. Default 0 */
    int prefill_chunk; /* tokens per forward pass of a long prompt, 1..65536. Default 512 */
} sluice_session_params;
sluice_session_params sluice_session_params_default(void);

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

typedef enum sluice_stop_reason {
    SLUICE_STOP_LENGTH,   /* max_new_tokens */
    SLUICE_STOP_EOS,      /* an end token; it is not delivered */
    SLUICE_STOP_CALLER,   /* the callback said so */
    SLUICE_STOP_CAPACITY, /* the session is full */
} sluice_stop_reason;

typedef struct sluice_generate_params {
    sluice_sampling_params sampling;
    int64_t max_new_tokens;   /* >= 0. Default 128 */
    const int32_t *eos_ids;   /* ids that end the text; NULL with num_eos 0 = none */
    int num_eos;
    /* Called with each new token before the next is computed; a value other than 0 stops. May be NULL. */
    int (*on_token)(void *user, int32_t token, double logprob);
    void *user;
} sluice_generate_params;
sluice_generate_params sluice_generate_params_default(void);

/* What a model directory says about generation: generation_config.json where it exists, else config.json. */
enum { SLUICE_MAX_EOS = 32 };
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

/* Evaluates the prompt (n >= 1 tokens) behind what the session holds, then generates. The last generated token is part of
 * the result but not of the session. On failure *out is empty. */
sluice_status sluice_generate(sluice_session *session, const int32_t *prompt, int64_t n,
                              const sluice_generate_params *params, sluice_generation *out, sluice_error *err);
void sluice_generation_free(sluice_generation *generation);

#ifdef __cplusplus
}
#endif
#endif
