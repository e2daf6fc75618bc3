/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions: the cache grows with the sequence (doubling up to the capacity, so that a large max_position_embeddings costs
 * nothing until it is used); prompts run in chunks through the one forward pass. */
#include "sluice/session.h"
#include "base/memory.h"
#include "layers/transformer.h"
#include <stdbool.h>

enum { FIRST_CAPACITY = 256, MAX_CHUNK = 65536 };

struct sluice_session {
    const sluice_model *model;
    int capacity, chunk;
    sluice__cache *cache;
    sluice__workspace *one, *many; /* for a single token; for a chunk, made when first needed */
};

sluice_session_params sluice_session_params_default(void) {
    return (sluice_session_params){.capacity = 0, .prefill_chunk = 512};
}

sluice_status sluice_session_new(sluice_session **out, const sluice_model *model,
                                 const sluice_session_params *params, sluice_error *err) {
    *out = NULL;
    sluice_session_params p = params ? *params : sluice_session_params_default();
    if (p.capacity == 0) p.capacity = sluice_model_config(model)->max_position_embeddings;
    if (p.capacity < 1)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "capacity: found %d, expected >= 1", p.capacity);
    if (p.prefill_chunk < 1 || p.prefill_chunk > MAX_CHUNK)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "prefill_chunk: found %d, expected 1..%d",
                            p.prefill_chunk, MAX_CHUNK);
    sluice_session *s = sluice__calloc(1, sizeof *s, SLUICE__MEM_OTHER);
    if (!s) return sluice__no_memory(err, sizeof *s, "a session");
    *s = (sluice_session){.model = model, .capacity = p.capacity, .chunk = p.prefill_chunk};
    int first = p.capacity < FIRST_CAPACITY ? p.capacity : FIRST_CAPACITY;
    sluice_status st;
    SLUICE__TRY_GOTO(sluice__cache_new(&s->cache, model, 1, first, err), fail);
    SLUICE__TRY_GOTO(sluice__workspace_new(&s->one, model, 1, 1, SLUICE__INFER, err), fail);
    *out = s;
    return SLUICE_OK;
fail:
    sluice_session_free(s);
    return st;
}

void sluice_session_free(sluice_session *s) {
    if (!s) return;
    sluice__cache_free(s->cache);
    sluice__workspace_free(s->one);
    sluice__workspace_free(s->many);
    sluice__free(s);
}

const sluice_model *sluice_session_model(const sluice_session *s) {
    return s->model;
}

int sluice_session_length(const sluice_session *s) {
    return sluice__cache_length(s->cache);
}

int sluice_session_capacity(const sluice_session *s) {
    return s->capacity;
}

sluice_status sluice_session_truncate(sluice_session *s, int length, sluice_error *err) {
    if (length < 0 || length > sluice_session_length(s))
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "length: found %d, expected 0..%d", length,
                            sluice_session_length(s));
    sluice__cache_truncate(s->cache, length);
    return SLUICE_OK;
}

static sluice_status check_ids(const sluice_session *s, const int32_t *ids, int64_t n, sluice_error *err) {
    int vocab = sluice_model_config(s->model)->vocab_size, length = sluice_session_length(s);
    if (n < 1) return sluice__fail(err, SLUICE_ERR_ARGUMENT, "tokens: found %lld, expected at least 1", (long long)n);
    if (n > s->capacity - length)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "%lld tokens behind %d do not fit the context of %d",
                            (long long)n, length, s->capacity);
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= vocab)
            return sluice__fail(err, SLUICE_ERR_ARGUMENT, "token %lld: found id %d, expected 0..%d", (long long)i,
                                ids[i], vocab - 1);
    return SLUICE_OK;
}

static sluice_status reserve(sluice_session *s, int need, sluice_error *err) {
    int now = sluice__cache_capacity(s->cache);
    if (need <= now) return SLUICE_OK;
    int64_t wanted = (int64_t)now * 2 > need ? (int64_t)now * 2 : need;
    return sluice__cache_grow(&s->cache, (int)(wanted < s->capacity ? wanted : s->capacity), err);
}

sluice_status sluice_session_eval(sluice_session *s, const int32_t *ids, int64_t n, float *logits,
                                  sluice_error *err) {
    SLUICE__TRY(check_ids(s, ids, n, err));
    int before = sluice_session_length(s);
    SLUICE__TRY(reserve(s, before + (int)n, err));
    if (n > 1 && !s->many)
        SLUICE__TRY(sluice__workspace_new(&s->many, s->model, 1, s->chunk, SLUICE__INFER, err));
    for (int64_t at = 0; at < n;) {
        int64_t left = n - at, take = left < s->chunk ? left : s->chunk;
        sluice__input in = {.batch = 1, .seq_len = (int)take, .ids = ids + at};
        bool wanted = at + take == n && logits;
        sluice_status st = sluice__forward(s->model, take == 1 ? s->one : s->many, &in, s->cache, NULL,
                                           wanted ? SLUICE__LOGITS_LAST : SLUICE__LOGITS_NONE, logits, err);
        if (st != SLUICE_OK) {
            sluice__cache_truncate(s->cache, before);
            return st;
        }
        at += take;
    }
    return SLUICE_OK;
}
