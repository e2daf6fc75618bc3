/* SPDX-License-Identifier: Apache-2.0 */
/* Generation: evaluate the prompt, then draw, deliver, evaluate, token by token. */
#include "base/memory.h"
#include "base/progress.h"
#include "sluice/session.h"
#include <stdbool.h>
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

/* history [n + most]: prompt, then what is generated; logits: of the last prompt token. */
static sluice_status decode(sluice_session *s, sluice_sampler *sampler, const sluice_generate_params *p,
                            int32_t *history, int64_t n, float *logits, sluice_generation *out, sluice_error *err) {
    out->stop = SLUICE_STOP_LENGTH;
    while (out->count < p->max_new_tokens) {
        int32_t token;
        double logprob;
        SLUICE__TRY(sluice_sampler_pick(sampler, logits, history, n + out->count, (uint64_t)out->count, &token,
                                        &logprob, err));
        if (is_end(p, token)) {
            out->stop = SLUICE_STOP_EOS;
            break;
        }
        history[n + out->count] = token;
        out->tokens[out->count++] = token;
        if (p->on_token && p->on_token(p->user, token, logprob)) {
            out->stop = SLUICE_STOP_CALLER;
            break;
        }
        if (out->count == p->max_new_tokens) break;
        if (sluice_session_length(s) == sluice_session_capacity(s)) {
            out->stop = SLUICE_STOP_CAPACITY;
            break;
        }
        SLUICE__TRY(sluice_session_eval(s, &token, 1, logits, err));
    }
    return SLUICE_OK;
}

sluice_status sluice_generate(sluice_session *s, const int32_t *prompt, int64_t n,
                              const sluice_generate_params *params, sluice_generation *out, sluice_error *err) {
    *out = (sluice_generation){0};
    sluice_generate_params p = params ? *params : sluice_generate_params_default();
    if (p.max_new_tokens < 0)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "max_new_tokens: found %lld, expected >= 0",
                            (long long)p.max_new_tokens);
    int64_t room = (int64_t)sluice_session_capacity(s) - sluice_session_length(s) - n + 1; /* the last one needs no place */
    if (n < 1 || room < 1)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "the prompt: found %lld tokens, expected 1..%lld (the context has %d places, %d are taken)",
                            (long long)n, (long long)(room + n - 1), sluice_session_capacity(s), sluice_session_length(s));
    int64_t most = p.max_new_tokens < room ? p.max_new_tokens : room;
    int vocab = sluice_model_config(sluice_session_model(s))->vocab_size;
    sluice_sampler *sampler = NULL;
    SLUICE__TRY(sluice_sampler_new(&sampler, &p.sampling, vocab, err));
    int32_t *history = sluice__calloc((size_t)(n + most), sizeof *history, SLUICE__MEM_DATA);
    float *logits = sluice__calloc((size_t)vocab, sizeof *logits, SLUICE__MEM_OTHER);
    out->tokens = sluice__calloc((size_t)most, sizeof *out->tokens, SLUICE__MEM_DATA);
    sluice_status st = SLUICE_OK;
    double start = sluice__now(), middle;
    if (!history || !logits || !out->tokens) {
        st = sluice__no_memory(err, (size_t)(n + most) * sizeof *history, "generation");
        goto out;
    }
    memcpy(history, prompt, (size_t)n * sizeof *history);
    SLUICE__TRY_GOTO(sluice_session_eval(s, prompt, n, logits, err), out);
    middle = sluice__now();
    st = decode(s, sampler, &p, history, n, logits, out, err);
    out->prefill_seconds = middle - start;
    out->decode_seconds = sluice__now() - middle;
out:
    if (st != SLUICE_OK) sluice_generation_free(out);
    sluice_sampler_free(sampler);
    sluice__free(history);
    sluice__free(logits);
    return st;
}
