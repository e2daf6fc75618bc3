/* SPDX-License-Identifier: Apache-2.0 */
/* Conversations: messages, rendered by the model's own template, answered by the model. From turn to turn only what is
 * new is computed: the tokens that the session still holds, or a snapshot of them, are reused. One thread at a time. */
#ifndef SLUICE_CHAT_H
#define SLUICE_CHAT_H
#include "sluice/session.h"
#include "sluice/template.h"
#include "sluice/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sluice_chat_params {
    const char *system;    /* first message of every conversation; NULL = none */
    const char *tools;     /* JSON list; NULL = none */
    const char *variables; /* JSON object of template variables, e.g. {"enable_thinking": false}; NULL = none */
    sluice_session_params session;
    int64_t snapshot_bytes; /* of earlier turns, for models with linear attention; 0 = none. Default 256 MiB */
} sluice_chat_params;
sluice_chat_params sluice_chat_params_default(void);

typedef struct sluice_chat sluice_chat;
/* Model, tokenizer and template are borrowed and must outlive the chat; the strings of params are copied. */
sluice_status sluice_chat_new(sluice_chat **out, const sluice_model *model, const sluice_tokenizer *tokenizer,
                              const sluice_chat_template *chat_template, const sluice_chat_params *params,
                              sluice_error *err);
void sluice_chat_free(sluice_chat *chat);

/* Appends a message. message: JSON object with at least "role". */
sluice_status sluice_chat_add(sluice_chat *chat, const char *role, const char *content, sluice_error *err);
sluice_status sluice_chat_add_json(sluice_chat *chat, const char *message, sluice_error *err);
/* Forgets everything but the system message. */
void sluice_chat_reset(sluice_chat *chat);
/* Takes back the last message (not the system's); false when there is none. */
bool sluice_chat_undo(sluice_chat *chat);
int sluice_chat_num_messages(const sluice_chat *chat);
/* The conversation as a JSON list, appended to *out; and the prompt that would be evaluated, as text. */
sluice_status sluice_chat_messages(const sluice_chat *chat, sluice_text *out, sluice_error *err);
sluice_status sluice_chat_prompt(const sluice_chat *chat, sluice_text *out, sluice_error *err);
sluice_session *sluice_chat_session(sluice_chat *chat);

typedef struct sluice_answer_params {
    sluice_generate_params generate; /* its eos_ids as given; on_token, on_step, cancelled and user stay yours */
    const char *const *stops;        /* texts that end the answer; not part of it */
    int num_stops;
    /* Called with text as it becomes certain: whole characters, NUL-terminated. A value other than 0 stops. May be
     * NULL. */
    int (*on_text)(void *user, const char *text, size_t size);
    void *text_user;
} sluice_answer_params;
sluice_answer_params sluice_answer_params_default(void);

typedef struct sluice_answer {
    sluice_text text; /* owned: sluice_answer_free */
    sluice_stop_reason stop;
    bool stopped_by_text;  /* by one of `stops`; then stop is SLUICE_STOP_CALLER */
    int64_t prompt_tokens; /* of the whole conversation */
    int64_t reused_tokens; /* of them, not computed again */
    int64_t new_tokens;    /* generated */
    double prefill_seconds, decode_seconds;
} sluice_answer;

/* The model's turn: renders the conversation, evaluates what is new, generates, and appends the answer (what there is
 * of it, when it was stopped) as a message of the assistant. On failure the conversation stays as it was. */
sluice_status sluice_chat_answer(sluice_chat *chat, const sluice_answer_params *params, sluice_answer *out,
                                 sluice_error *err);
void sluice_answer_free(sluice_answer *answer);

/* Conversation and session in one file (sluice_session_save), and back. */
sluice_status sluice_chat_save(const sluice_chat *chat, const char *path, sluice_error *err);
sluice_status sluice_chat_load(sluice_chat *chat, const char *path, sluice_error *err);

#ifdef __cplusplus
}
#endif
#endif
