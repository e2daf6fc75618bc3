/* SPDX-License-Identifier: Apache-2.0 */
/* A conversation. Its prompt is rendered anew for every turn, because templates may drop thoughts of earlier turns; the
 * tokens are compared with what the session holds, and only what differs is evaluated. */
#include "sluice/chat.h"
#include "base/json.h"
#include "base/memory.h"
#include "infer/session.h"
#include "model/tokenizer_internal.h"
#include "sluice/snapshots.h"
#include "sluice/stream.h"
#include <stdlib.h>
#include <string.h>

struct sluice_chat {
    const sluice_tokenizer *tokenizer;
    const sluice_chat_template *chat_template;
    sluice_session *session;
    sluice_snapshots *snapshots; /* NULL without */
    char *system, *tools, *variables;
    json_t *messages;
};

sluice_chat_params sluice_chat_params_default(void) {
    return (sluice_chat_params){.session = sluice_session_params_default(), .snapshot_bytes = (int64_t)256 << 20};
}

sluice_answer_params sluice_answer_params_default(void) {
    return (sluice_answer_params){.generate = sluice_generate_params_default()};
}

void sluice_answer_free(sluice_answer *a) {
    sluice_text_free(&a->text);
    *a = (sluice_answer){0};
}

void sluice_chat_free(sluice_chat *c) {
    if (!c) return;
    sluice_snapshots_free(c->snapshots);
    sluice_session_free(c->session);
    sluice__free(c->system);
    sluice__free(c->tools);
    sluice__free(c->variables);
    json_decref(c->messages);
    sluice__free(c);
}

static sluice_status copy_text(char **to, const char *from, sluice_error *err) {
    if (!from) return SLUICE_OK;
    *to = sluice__strdup(from);
    return *to ? SLUICE_OK : sluice__no_memory(err, strlen(from), "a chat");
}

/* Puts the system message, if any, into an empty list. */
static sluice_status begin(sluice_chat *c, sluice_error *err) {
    json_decref(c->messages);
    c->messages = json_array();
    if (!c->messages) return sluice__no_memory(err, 0, "a chat");
    return c->system ? sluice_chat_add(c, "system", c->system, err) : SLUICE_OK;
}

sluice_status sluice_chat_new(sluice_chat **out, const sluice_model *model, const sluice_tokenizer *tokenizer,
                              const sluice_chat_template *chat_template, const sluice_chat_params *params,
                              sluice_error *err) {
    *out = NULL;
    sluice_chat_params p = params ? *params : sluice_chat_params_default();
    sluice_chat *c = sluice__calloc(1, sizeof *c, SLUICE__MEM_OTHER);
    if (!c) return sluice__no_memory(err, sizeof *c, "a chat");
    c->tokenizer = tokenizer;
    c->chat_template = chat_template;
    sluice_status st = copy_text(&c->system, p.system, err);
    if (st == SLUICE_OK) st = copy_text(&c->tools, p.tools, err);
    if (st == SLUICE_OK) st = copy_text(&c->variables, p.variables, err);
    if (st == SLUICE_OK) st = begin(c, err);
    if (st == SLUICE_OK) st = sluice_session_new(&c->session, model, &p.session, err);
    bool stateful = st == SLUICE_OK && sluice__is_stateful(sluice_model_config(model));
    if (stateful && p.snapshot_bytes > 0) st = sluice_snapshots_new(&c->snapshots, model, p.snapshot_bytes, err);
    if (st == SLUICE_OK)
        *out = c;
    else
        sluice_chat_free(c);
    return st;
}

/* ---- messages ---- */

static sluice_status append(sluice_chat *c, json_t *message, sluice_error *err) {
    return json_array_append_new(c->messages, message) == 0 ? SLUICE_OK : sluice__no_memory(err, 0, "a message");
}

sluice_status sluice_chat_add(sluice_chat *c, const char *role, const char *content, sluice_error *err) {
    json_t *message = json_pack("{s:s, s:s}", "role", role, "content", content);
    if (!message) return sluice__fail(err, SLUICE_ERR_ARGUMENT, "a message: role and content have to be UTF-8");
    return append(c, message, err);
}

sluice_status sluice_chat_add_json(sluice_chat *c, const char *message, sluice_error *err) {
    json_t *root;
    SLUICE__TRY(sluice__json_parse(&root, message, strlen(message), "message", err));
    if (json_is_string(json_object_get(root, "role"))) return append(c, root, err);
    json_decref(root);
    return sluice__fail(err, SLUICE_ERR_ARGUMENT, "message: expected a JSON object with a \"role\"");
}

void sluice_chat_reset(sluice_chat *c) {
    while (json_array_size(c->messages) > (c->system ? 1 : 0))
        json_array_remove(c->messages, json_array_size(c->messages) - 1);
}

bool sluice_chat_undo(sluice_chat *c) {
    size_t n = json_array_size(c->messages);
    return n > (c->system ? 1 : 0) && json_array_remove(c->messages, n - 1) == 0;
}

int sluice_chat_num_messages(const sluice_chat *c) { return (int)json_array_size(c->messages); }

sluice_session *sluice_chat_session(sluice_chat *c) { return c->session; }

sluice_status sluice_chat_messages(const sluice_chat *c, sluice_text *out, sluice_error *err) {
    char *text = json_dumps(c->messages, JSON_COMPACT);
    if (!text) return sluice__no_memory(err, 0, "a conversation");
    sluice_status st = sluice__text_add(out, text, strlen(text), err);
    free(text);
    return st;
}

static sluice_status render(const sluice_chat *c, bool add_generation_prompt, sluice_text *out, sluice_error *err) {
    sluice_text messages = {0};
    sluice_chat_render_params p = sluice_chat_render_params_default();
    p.tools = c->tools;
    p.variables = c->variables;
    p.add_generation_prompt = add_generation_prompt;
    sluice_status st = sluice_chat_messages(c, &messages, err);
    if (st == SLUICE_OK) st = sluice_chat_render(c->chat_template, messages.data, &p, out, err);
    sluice_text_free(&messages);
    return st;
}

sluice_status sluice_chat_prompt(const sluice_chat *c, sluice_text *out, sluice_error *err) {
    return render(c, true, out, err);
}

/* ---- answers ---- */

typedef struct listener {
    const sluice_answer_params *p;
    sluice_stream *stream;
    sluice_answer *out;
    sluice_status st;
    sluice_error *err;
} listener;

static int show(listener *l, size_t from) {
    size_t size = l->out->text.size - from;
    return size && l->p->on_text ? l->p->on_text(l->p->text_user, l->out->text.data + from, size) : 0;
}

static int on_step(void *user, const sluice_step *step) {
    listener *l = user;
    const sluice_generate_params *g = &l->p->generate;
    size_t before = l->out->text.size;
    bool enough =
        (g->on_token && g->on_token(g->user, step->token, step->logprob)) || (g->on_step && g->on_step(g->user, step));
    l->st = sluice_stream_push(l->stream, step->token, &l->out->text, &l->out->stopped_by_text, l->err);
    return l->st != SLUICE_OK || show(l, before) || l->out->stopped_by_text || enough;
}

static int on_cancel(void *user) {
    const listener *l = user;
    return l->p->generate.cancelled && l->p->generate.cancelled(l->p->generate.user);
}

/* Where a model cannot go back, the next turn resumes behind the last message of this one: what follows there, the
 * invitation to answer and thoughts, may be rendered differently then. */
static sluice_status keep_messages(sluice_chat *c, const sluice_ids *prompt, int64_t *reused, sluice_error *err) {
    sluice_text text = {0};
    sluice_ids ids = {0};
    sluice_error full = {0};
    int64_t same = 0, n = (int64_t)prompt->count - 1;
    sluice_status st = render(c, false, &text, err);
    if (st == SLUICE_OK)
        st = sluice_tokenizer_encode(c->tokenizer, text.data, text.size, SLUICE_ENCODE_PARSE_SPECIAL, &ids, err);
    while (same < n && same < (int64_t)ids.count && ids.data[same] == prompt->data[same]) same++;
    sluice_ids_free(&ids);
    sluice_text_free(&text);
    if (st == SLUICE_OK) st = sluice_snapshots_resume(c->snapshots, c->session, prompt->data, n + 1, reused, err);
    if (st != SLUICE_OK || same <= *reused) return st;
    SLUICE__TRY(sluice_session_eval(c->session, prompt->data + *reused, same - *reused, NULL, err));
    st = sluice_snapshots_keep(c->snapshots, c->session, &full);
    if (st == SLUICE_OK || st == SLUICE_ERR_MEMORY) return SLUICE_OK; /* no room: the next turn computes more */
    if (err) *err = full;
    return st;
}

static sluice_status generate(sluice_chat *c, const sluice_ids *prompt, listener *l, sluice_error *err) {
    sluice_generate_params g = l->p->generate;
    sluice_generation found;
    int64_t kept = 0, reused = INT64_MAX, n = (int64_t)prompt->count;
    g.on_token = NULL;
    g.on_step = on_step;
    g.cancelled = on_cancel;
    g.user = l;
    if (n > sluice_session_capacity(c->session))
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "the conversation has %lld tokens, the context %d: begin anew or make it larger",
                            (long long)n, sluice_session_capacity(c->session));
    if (c->snapshots) SLUICE__TRY(keep_messages(c, prompt, &reused, err));
    SLUICE__TRY(sluice_session_reuse(c->session, prompt->data, n, &kept, err));
    SLUICE__TRY(sluice_generate(c->session, prompt->data + kept, n - kept, &g, &found, err));
    l->out->stop = found.stop;
    l->out->prompt_tokens = n;
    l->out->reused_tokens = kept < reused ? kept : reused;
    l->out->new_tokens = found.count;
    l->out->prefill_seconds = found.prefill_seconds;
    l->out->decode_seconds = found.decode_seconds;
    sluice_generation_free(&found);
    return l->st;
}

sluice_status sluice_chat_answer(sluice_chat *c, const sluice_answer_params *params, sluice_answer *out,
                                 sluice_error *err) {
    sluice_answer_params p = params ? *params : sluice_answer_params_default();
    sluice_text prompt = {0};
    sluice_ids ids = {0};
    *out = (sluice_answer){0};
    listener l = {.p = &p, .out = out, .err = err};
    sluice_status st = sluice_chat_prompt(c, &prompt, err);
    if (st == SLUICE_OK)
        st = sluice_tokenizer_encode(c->tokenizer, prompt.data, prompt.size, SLUICE_ENCODE_PARSE_SPECIAL, &ids, err);
    if (st == SLUICE_OK && !ids.count)
        st = sluice__fail(err, SLUICE_ERR_ARGUMENT, "the conversation renders to an empty prompt");
    if (st == SLUICE_OK) st = sluice_stream_new(&l.stream, c->tokenizer, p.stops, p.num_stops, true, err);
    if (st == SLUICE_OK) st = generate(c, &ids, &l, err);
    size_t before = out->text.size;
    if (st == SLUICE_OK) st = sluice_stream_finish(l.stream, &out->text, err);
    if (st == SLUICE_OK) st = sluice__text_add(&out->text, "", 0, err);
    if (st == SLUICE_OK) show(&l, before);
    if (st == SLUICE_OK) {
        json_t *message = json_pack("{s:s, s:s%}", "role", "assistant", "content", out->text.data, out->text.size);
        st = message ? append(c, message, err) : sluice__no_memory(err, out->text.size, "an answer");
    }
    if (st != SLUICE_OK) sluice_answer_free(out);
    sluice_stream_free(l.stream);
    sluice_ids_free(&ids);
    sluice_text_free(&prompt);
    return st;
}

/* ---- files ---- */

sluice_status sluice_chat_save(const sluice_chat *c, const char *path, sluice_error *err) {
    sluice_text note = {0};
    sluice_status st = sluice_chat_messages(c, &note, err);
    if (st == SLUICE_OK) st = sluice_session_save(c->session, path, note.data, err);
    sluice_text_free(&note);
    return st;
}

sluice_status sluice_chat_load(sluice_chat *c, const char *path, sluice_error *err) {
    sluice_text note = {0};
    json_t *messages = NULL;
    sluice_status st = sluice_session_load(c->session, path, &note, err);
    if (st == SLUICE_OK) st = sluice__json_parse(&messages, note.data ? note.data : "", note.size, path, err);
    bool good = st == SLUICE_OK && json_is_array(messages);
    for (size_t i = 0; good && i < json_array_size(messages); i++)
        good = json_is_string(json_object_get(json_array_get(messages, i), "role"));
    if (st == SLUICE_OK && !good) st = sluice__fail(err, SLUICE_ERR_FORMAT, "%s: its note is not a conversation", path);
    if (st == SLUICE_OK) {
        json_decref(c->messages);
        c->messages = messages;
    } else {
        json_decref(messages);
    }
    sluice_text_free(&note);
    return st;
}
