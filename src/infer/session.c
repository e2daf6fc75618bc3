/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions: the cache grows with the sequence (doubling up to the capacity, so that a large max_position_embeddings costs
 * nothing until it is used); prompts run in chunks through the one forward pass. States of linear attention cannot go
 * back: a session that was cut evaluates what it kept once more, when it goes on. */
#include "infer/session.h"
#include "base/memory.h"
#include <string.h>

enum { FIRST_CAPACITY = 256, MAX_CHUNK = 65536 };

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
    s->ids = sluice__calloc((size_t)first, sizeof *s->ids, SLUICE__MEM_OTHER);
    if (!s->ids) SLUICE__TRY_GOTO(sluice__no_memory(err, (size_t)first * sizeof *s->ids, "a session"), fail);
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
    sluice__free(s->ids);
    sluice__free(s->origins);
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
    sluice__session_cut_origins(s, length);
    return SLUICE_OK;
}

bool sluice__session_add_origin(sluice_session *s, uint64_t snapshot, int length) {
    if (s->num_origins == s->origins_room) {
        int room = s->origins_room ? 2 * s->origins_room : 8;
        sluice__origin *more = sluice__realloc(s->origins, (size_t)room, sizeof *more, SLUICE__MEM_OTHER);
        if (!more) return false;
        s->origins = more;
        s->origins_room = room;
    }
    s->origins[s->num_origins++] = (sluice__origin){snapshot, length};
    return true;
}

void sluice__session_cut_origins(sluice_session *s, int length) {
    while (s->num_origins && s->origins[s->num_origins - 1].length > length) s->num_origins--;
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

sluice_status sluice__session_reserve(sluice_session *s, int need, sluice_error *err) {
    int now = sluice__cache_capacity(s->cache);
    if (need <= now) return SLUICE_OK;
    int64_t wanted = (int64_t)now * 2 > need ? (int64_t)now * 2 : need;
    int room = (int)(wanted < s->capacity ? wanted : s->capacity);
    int32_t *ids = sluice__realloc(s->ids, (size_t)room, sizeof *ids, SLUICE__MEM_OTHER);
    if (!ids) return sluice__no_memory(err, (size_t)room * sizeof *ids, "a session");
    s->ids = ids;
    return sluice__cache_grow(&s->cache, room, err);
}

/* Appends tokens for which there is room. */
static sluice_status feed(sluice_session *s, const int32_t *ids, int64_t n, float *logits, sluice_error *err) {
    if (n > 1 && !s->many)
        SLUICE__TRY(sluice__workspace_new(&s->many, s->model, 1, s->chunk, SLUICE__INFER, err));
    for (int64_t at = 0; at < n;) {
        int64_t left = n - at, take = left < s->chunk ? left : s->chunk;
        sluice__input in = {.batch = 1, .seq_len = (int)take, .ids = ids + at};
        bool wanted = at + take == n && logits;
        SLUICE__TRY(sluice__forward(s->model, take == 1 ? s->one : s->many, &in, s->cache, NULL,
                                    wanted ? SLUICE__LOGITS_LAST : SLUICE__LOGITS_NONE, logits, err));
        at += take;
    }
    return SLUICE_OK;
}

/* Brings states that stand elsewhere to the end of what is held. On failure the session is empty. */
static sluice_status make_whole(sluice_session *s, sluice_error *err) {
    int length = sluice_session_length(s);
    if (sluice__cache_is_whole(s->cache)) return SLUICE_OK;
    sluice__cache_truncate(s->cache, 0);
    sluice__session_cut_origins(s, 0);
    sluice_status st = feed(s, s->ids, length, NULL, err);
    if (st != SLUICE_OK) sluice__cache_truncate(s->cache, 0);
    return st;
}

sluice_status sluice_session_eval(sluice_session *s, const int32_t *ids, int64_t n, float *logits,
                                  sluice_error *err) {
    SLUICE__TRY(check_ids(s, ids, n, err));
    int before = sluice_session_length(s);
    SLUICE__TRY(sluice__session_reserve(s, before + (int)n, err));
    SLUICE__TRY(make_whole(s, err));
    sluice_status st = feed(s, ids, n, logits, err);
    if (st == SLUICE_OK) memcpy(s->ids + before, ids, (size_t)n * sizeof *ids);
    else sluice__cache_truncate(s->cache, before);
    return st;
}
