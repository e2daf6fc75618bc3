/* SPDX-License-Identifier: Apache-2.0 */
/* Generation: evaluate the prompts, then draw, deliver, evaluate, token by token; the texts of several sequences in step, so
 * that one pass serves all of them. */
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

/* One text on its way. */
typedef struct lane {
    const sluice_generate_request *r;
    sluice_sampler *sampler;
    int32_t *history; /* all tokens: held, prompt, generated */
    int64_t n, fed;   /* those in front of the generated ones; tokens of the prompt that are evaluated */
    float *logits;    /* of the last token */
    int32_t token;    /* drawn, to be evaluated next */
    int32_t *top_ids; /* [num_logprobs] */
    double *top_logprobs;
    sluice_generation *out;
    bool going;
} lane;

/* Texts that are generated together. */
typedef struct group {
    sluice_session *session;
    lane *lanes;              /* [count] */
    sluice_batch_item *items; /* [count] */
    float *logits;            /* [count, vocab_size] */
    int count;
} group;

static bool is_cancelled(const sluice_generate_params *p) { return p->cancelled && p->cancelled(p->user); }

static void stop(lane *l, sluice_stop_reason reason) {
    l->out->stop = reason;
    l->going = false;
}

/* True when a callback wants no more. */
static sluice_status deliver(const lane *l, int32_t token, double logprob, bool *enough, sluice_error *err) {
    const sluice_generate_params *p = &l->r->params;
    *enough = p->on_token && p->on_token(p->user, token, logprob);
    if (!p->on_step) return SLUICE_OK;
    if (p->num_logprobs)
        SLUICE__TRY(sluice_sampler_top(l->sampler, l->logits, p->num_logprobs, l->top_ids, l->top_logprobs, err));
    sluice_step step = {token, logprob, p->num_logprobs, l->top_ids, l->top_logprobs};
    *enough |= p->on_step(p->user, &step) != 0;
    return SLUICE_OK;
}

/* The next token of one text, and whether the text goes on. */
static sluice_status advance(lane *l, int capacity, sluice_error *err) {
    sluice_generation *out = l->out;
    const sluice_generate_params *p = &l->r->params;
    double logprob;
    bool enough;
    SLUICE__TRY(sluice_sampler_pick(l->sampler, l->logits, l->history, l->n + out->count, (uint64_t)out->count, &l->token,
                                    &logprob, err));
    if (is_end(p, l->token)) {
        stop(l, SLUICE_STOP_EOS);
        return SLUICE_OK;
    }
    l->history[l->n + out->count] = l->token;
    out->tokens[out->count++] = l->token;
    SLUICE__TRY(deliver(l, l->token, logprob, &enough, err));
    if (enough || is_cancelled(p)) stop(l, SLUICE_STOP_CALLER);
    else if (out->count == p->max_new_tokens) stop(l, SLUICE_STOP_LENGTH);
    else if (l->n + out->count > capacity) stop(l, SLUICE_STOP_CAPACITY);
    return SLUICE_OK;
}

/* Until the last text has ended. */
static sluice_status decode(const group *g, double start, sluice_error *err) {
    for (;;) {
        int going = 0;
        for (int i = 0; i < g->count; i++) {
            lane *l = &g->lanes[i];
            if (!l->going) continue;
            SLUICE__TRY(advance(l, g->session->capacity, err));
            l->out->decode_seconds = sluice__now() - start;
            if (l->going) g->items[going++] = (sluice_batch_item){l->r->sequence, &l->token, 1, l->logits};
        }
        if (!going) return SLUICE_OK;
        SLUICE__TRY(sluice_session_eval_batch(g->session, g->items, going, err));
    }
}

/* Up to `room` tokens more of the prompts, as long as nobody cancels. *items: how many prompts they are of. */
static sluice_status feed(const group *g, int64_t room, int *items, sluice_error *err) {
    *items = 0;
    for (int i = 0; i < g->count && room; i++) {
        lane *l = &g->lanes[i];
        int64_t left = l->r->n - l->fed, take = left < room ? left : room;
        if (left && l->fed && l->going && is_cancelled(&l->r->params)) stop(l, SLUICE_STOP_CALLER);
        if (!left || !l->going) continue;
        g->items[(*items)++] = (sluice_batch_item){l->r->sequence, l->r->prompt + l->fed, take, take == left ? l->logits : NULL};
        l->fed += take;
        room -= take;
    }
    return *items ? sluice_session_eval_batch(g->session, g->items, *items, err) : SLUICE_OK;
}

/* The prompts: all at once, or, when somebody may cancel, chunk by chunk. */
static sluice_status prefill(const group *g, sluice_error *err) {
    int64_t room = INT64_MAX;
    int items = 1;
    for (int i = 0; i < g->count; i++) {
        g->lanes[i].going = true;
        if (g->lanes[i].r->params.cancelled) room = g->session->chunk;
    }
    while (items) SLUICE__TRY(feed(g, room, &items, err));
    for (int i = 0; i < g->count; i++)
        if (g->lanes[i].going && !g->lanes[i].r->params.max_new_tokens) stop(&g->lanes[i], SLUICE_STOP_LENGTH);
    return SLUICE_OK;
}

static sluice_status check(const sluice_session *s, const sluice_generate_request *r, int64_t *room, sluice_error *err) {
    const sluice_generate_params *p = &r->params;
    int vocab = sluice_model_config(s->model)->vocab_size;
    sluice__sequence *q;
    SLUICE__TRY(sluice__session_find(s, r->sequence, &q, err));
    int held = sluice__sequence_length(q);
    if (p->max_new_tokens < 0)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "max_new_tokens: found %lld, expected >= 0",
                            (long long)p->max_new_tokens);
    if (p->num_logprobs < 0 || p->num_logprobs > vocab)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "num_logprobs: found %d, expected 0..%d", p->num_logprobs, vocab);
    *room = (int64_t)s->capacity - held - r->n + 1; /* the last one needs no place */
    if (r->n < 1 || *room < 1)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "the prompt: found %lld tokens, expected 1..%lld (the context has %d places, %d are taken)",
                            (long long)r->n, (long long)(*room + r->n - 1), s->capacity, held);
    return SLUICE_OK;
}

static sluice_status check_all(const group *g, const sluice_generate_request *requests, sluice_error *err) {
    int64_t room;
    for (int i = 0; i < g->count; i++) {
        SLUICE__TRY(check(g->session, &requests[i], &room, err));
        for (int k = 0; k < i; k++)
            if (requests[k].sequence == requests[i].sequence)
                return sluice__fail(err, SLUICE_ERR_ARGUMENT, "requests %d and %d are both for sequence %d", k, i,
                                    requests[i].sequence);
    }
    return SLUICE_OK;
}

static sluice_status open_lane(const group *g, lane *l, sluice_error *err) {
    const sluice_generate_request *r = l->r;
    const sluice__sequence *q = &g->session->sequences[r->sequence];
    size_t top = (size_t)r->params.num_logprobs;
    int64_t most, held = sluice__sequence_length(q);
    SLUICE__TRY(check(g->session, r, &most, err));
    if (r->params.max_new_tokens < most) most = r->params.max_new_tokens;
    l->n = held + r->n;
    l->history = sluice__calloc((size_t)(l->n + most), sizeof *l->history, SLUICE__MEM_DATA);
    l->out->tokens = sluice__calloc((size_t)most, sizeof *l->out->tokens, SLUICE__MEM_DATA);
    l->top_ids = sluice__calloc(top, sizeof *l->top_ids, SLUICE__MEM_OTHER);
    l->top_logprobs = sluice__calloc(top, sizeof *l->top_logprobs, SLUICE__MEM_OTHER);
    if (!l->history || !l->out->tokens || !l->top_ids || !l->top_logprobs)
        return sluice__no_memory(err, (size_t)(l->n + most) * sizeof *l->history, "generation");
    if (held) memcpy(l->history, q->ids, (size_t)held * sizeof *l->history);
    memcpy(l->history + held, r->prompt, (size_t)r->n * sizeof *l->history);
    return sluice_sampler_new(&l->sampler, &r->params.sampling, sluice_model_config(g->session->model)->vocab_size, err);
}

static sluice_status open_group(group *g, const sluice_generate_request *requests, sluice_generation *out,
                                sluice_error *err) {
    size_t count = (size_t)g->count, vocab = (size_t)sluice_model_config(g->session->model)->vocab_size;
    SLUICE__TRY(check_all(g, requests, err));
    g->lanes = sluice__calloc(count, sizeof *g->lanes, SLUICE__MEM_OTHER);
    g->items = sluice__calloc(count, sizeof *g->items, SLUICE__MEM_OTHER);
    g->logits = sluice__calloc(count, vocab * sizeof *g->logits, SLUICE__MEM_OTHER);
    if (!g->lanes || !g->items || !g->logits) return sluice__no_memory(err, count * vocab * sizeof *g->logits, "generation");
    for (int i = 0; i < g->count; i++) {
        g->lanes[i] = (lane){.r = &requests[i], .out = &out[i], .logits = g->logits + (size_t)i * vocab};
        SLUICE__TRY(open_lane(g, &g->lanes[i], err));
    }
    return SLUICE_OK;
}

static void close_group(group *g) {
    for (int i = 0; g->lanes && i < g->count; i++) {
        sluice_sampler_free(g->lanes[i].sampler);
        sluice__free(g->lanes[i].history);
        sluice__free(g->lanes[i].top_ids);
        sluice__free(g->lanes[i].top_logprobs);
    }
    sluice__free(g->lanes);
    sluice__free(g->items);
    sluice__free(g->logits);
}

sluice_status sluice_generate_batch(sluice_session *s, const sluice_generate_request *requests, int count,
                                    sluice_generation *out, sluice_error *err) {
    group g = {.session = s, .count = count};
    if (count < 1 || count > s->num_sequences)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "requests: found %d, expected 1..%d", count, s->num_sequences);
    memset(out, 0, (size_t)count * sizeof *out);
    sluice_status st = open_group(&g, requests, out, err);
    double start = sluice__now();
    if (st == SLUICE_OK) st = prefill(&g, err);
    double middle = sluice__now();
    for (int i = 0; i < count; i++) out[i].prefill_seconds = middle - start;
    if (st == SLUICE_OK) st = decode(&g, middle, err);
    for (int i = 0; i < count && st != SLUICE_OK; i++) sluice_generation_free(&out[i]);
    close_group(&g);
    return st;
}

sluice_status sluice_generate(sluice_session *s, const int32_t *prompt, int64_t n, const sluice_generate_params *params,
                              sluice_generation *out, sluice_error *err) {
    const sluice_generate_request only = {(int)(s->now - s->sequences), prompt, n,
                                          params ? *params : sluice_generate_params_default()};
    return sluice_generate_batch(s, &only, 1, out, err);
}
