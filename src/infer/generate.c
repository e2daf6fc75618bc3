/* SPDX-License-Identifier: Apache-2.0 */
/* Generation: evaluate the prompt, then draw, deliver, evaluate, token by token. */
#include "infer/session.h"
#include "base/memory.h"
#include "base/progress.h"
#include <string.h>

sluice_generate_params sluice_generate_params_default(void) {
    return (sluice_generate_params){.sampling = sluice_sampling_params_default(), .max_new_tokens = 128};
}

void sluice_generation_free(sluice_generation *g) {
    sluice__free(g->tokens);
    *g = (sluice_generation){0};
}

static bool is_end(const sluice_generate_params *p, int32_t token) {
    for (int i = 0; i < p->num_eos; i++)
        if (p->eos_ids[i] == token) return true;
    return false;
}

typedef struct decoder {
    sluice_session *session;
    sluice_sampler *sampler;
    const sluice_generate_params *p;
    int32_t *history; /* all tokens: held, prompt, generated */
    int64_t n;        /* those in front of the generated ones */
    float *logits;    /* of the last token */
    int32_t *top_ids; /* [num_logprobs] */
    double *top_logprobs;
    sluice_generation *out;
} decoder;

static bool is_cancelled(const sluice_generate_params *p) { return p->cancelled && p->cancelled(p->user); }

/* True when a callback wants no more. */
static sluice_status deliver(const decoder *d, int32_t token, double logprob, bool *enough, sluice_error *err) {
    const sluice_generate_params *p = d->p;
    *enough = p->on_token && p->on_token(p->user, token, logprob);
    if (!p->on_step) return SLUICE_OK;
    if (p->num_logprobs)
        SLUICE__TRY(sluice_sampler_top(d->sampler, d->logits, p->num_logprobs, d->top_ids, d->top_logprobs, err));
    sluice_step step = {token, logprob, p->num_logprobs, d->top_ids, d->top_logprobs};
    *enough |= p->on_step(p->user, &step) != 0;
    return SLUICE_OK;
}

static sluice_status decode(const decoder *d, sluice_error *err) {
    sluice_generation *out = d->out;
    const sluice_generate_params *p = d->p;
    bool enough;
    out->stop = SLUICE_STOP_LENGTH;
    while (out->count < p->max_new_tokens) {
        int32_t token;
        double logprob;
        SLUICE__TRY(sluice_sampler_pick(d->sampler, d->logits, d->history, d->n + out->count, (uint64_t)out->count,
                                        &token, &logprob, err));
        if (is_end(p, token)) {
            out->stop = SLUICE_STOP_EOS;
            break;
        }
        d->history[d->n + out->count] = token;
        out->tokens[out->count++] = token;
        SLUICE__TRY(deliver(d, token, logprob, &enough, err));
        if (enough || is_cancelled(p)) {
            out->stop = SLUICE_STOP_CALLER;
            break;
        }
        if (out->count == p->max_new_tokens) break;
        if (sluice_session_length(d->session) == sluice_session_capacity(d->session)) {
            out->stop = SLUICE_STOP_CAPACITY;
            break;
        }
        SLUICE__TRY(sluice_session_eval(d->session, &token, 1, d->logits, err));
    }
    return SLUICE_OK;
}

/* The prompt, chunk by chunk, as long as nobody cancels. */
static sluice_status prefill(const decoder *d, const int32_t *prompt, int64_t n, bool *done, sluice_error *err) {
    int64_t chunk = d->p->cancelled ? d->session->chunk : n;
    *done = false;
    for (int64_t at = 0; at < n;) {
        int64_t take = n - at < chunk ? n - at : chunk;
        if (at && is_cancelled(d->p)) return SLUICE_OK;
        SLUICE__TRY(sluice_session_eval(d->session, prompt + at, take, at + take == n ? d->logits : NULL, err));
        at += take;
    }
    *done = true;
    return SLUICE_OK;
}

static sluice_status check(const sluice_session *s, const sluice_generate_params *p, int64_t n, int64_t *room,
                           sluice_error *err) {
    int vocab = sluice_model_config(s->model)->vocab_size;
    if (p->max_new_tokens < 0)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "max_new_tokens: found %lld, expected >= 0",
                            (long long)p->max_new_tokens);
    if (p->num_logprobs < 0 || p->num_logprobs > vocab)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "num_logprobs: found %d, expected 0..%d", p->num_logprobs, vocab);
    *room = (int64_t)s->capacity - sluice_session_length(s) - n + 1; /* the last one needs no place */
    if (n < 1 || *room < 1)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "the prompt: found %lld tokens, expected 1..%lld (the context has %d places, %d are taken)",
                            (long long)n, (long long)(*room + n - 1), s->capacity, sluice_session_length(s));
    return SLUICE_OK;
}

static sluice_status allocate(decoder *d, int64_t most, sluice_error *err) {
    int vocab = sluice_model_config(d->session->model)->vocab_size;
    size_t top = (size_t)d->p->num_logprobs;
    d->history = sluice__calloc((size_t)(d->n + most), sizeof *d->history, SLUICE__MEM_DATA);
    d->logits = sluice__calloc((size_t)vocab, sizeof *d->logits, SLUICE__MEM_OTHER);
    d->out->tokens = sluice__calloc((size_t)most, sizeof *d->out->tokens, SLUICE__MEM_DATA);
    d->top_ids = sluice__calloc(top, sizeof *d->top_ids, SLUICE__MEM_OTHER);
    d->top_logprobs = sluice__calloc(top, sizeof *d->top_logprobs, SLUICE__MEM_OTHER);
    if (d->history && d->logits && d->out->tokens && d->top_ids && d->top_logprobs)
        return sluice_sampler_new(&d->sampler, &d->p->sampling, vocab, err);
    return sluice__no_memory(err, (size_t)(d->n + most) * sizeof *d->history, "generation");
}

sluice_status sluice_generate(sluice_session *s, const int32_t *prompt, int64_t n, const sluice_generate_params *params,
                              sluice_generation *out, sluice_error *err) {
    *out = (sluice_generation){0};
    sluice_generate_params p = params ? *params : sluice_generate_params_default();
    int64_t room = 0, held = sluice_session_length(s);
    SLUICE__TRY(check(s, &p, n, &room, err));
    decoder d = {.session = s, .p = &p, .n = held + n, .out = out};
    sluice_status st = allocate(&d, p.max_new_tokens < room ? p.max_new_tokens : room, err);
    double start = sluice__now(), middle = start;
    bool done = false;
    if (st == SLUICE_OK) {
        memcpy(d.history, sluice_session_ids(s), (size_t)held * sizeof *d.history);
        memcpy(d.history + held, prompt, (size_t)n * sizeof *d.history);
        out->stop = SLUICE_STOP_CALLER;
        st = prefill(&d, prompt, n, &done, err);
        middle = sluice__now();
    }
    if (st == SLUICE_OK && done) st = decode(&d, err);
    out->prefill_seconds = middle - start;
    out->decode_seconds = sluice__now() - middle;
    if (st != SLUICE_OK) sluice_generation_free(out);
    sluice_sampler_free(d.sampler);
    sluice__free(d.history);
    sluice__free(d.logits);
    sluice__free(d.top_ids);
    sluice__free(d.top_logprobs);
    return st;
}
