/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions: the cache grows with the sequence (doubling up to the capacity, so that a large max_position_embeddings costs
 * nothing until it is used); prompts run in chunks through the one forward pass. States of linear attention cannot go
 * back: a session that was cut evaluates what it kept once more, when it goes on. */
#include "infer/session.h"
#include "base/log.h"
#include "base/memory.h"
#include "kernels/ops.h"
#include "model/model.h"
#include <limits.h>
#include <string.h>

enum { FIRST_CAPACITY = 256, MAX_CHUNK = 65536, MAX_SEQUENCES = 1024 };

sluice_session_params sluice_session_params_default(void) {
    return (sluice_session_params){.capacity = 0, .prefill_chunk = 512, .num_sequences = 1};
}

static const char *const dtype_names[] = {"f32", "f16", "bf16", "q8_0"};

bool sluice_kv_dtype_parse(sluice_kv_dtype *out, const char *name) {
    for (int i = 0; i < 4; i++)
        if (!strcmp(dtype_names[i], name)) return *out = (sluice_kv_dtype)i, true;
    return false;
}

const char *sluice_kv_dtype_name(sluice_kv_dtype dtype) { return dtype_names[dtype]; }

int64_t sluice_session_cache_bytes(const sluice_config *config, const sluice_session_params *params) {
    int capacity = params->capacity > 0 ? params->capacity : config->max_position_embeddings;
    return sluice__cache_bytes_typed(config, 1, capacity, params->cache_dtype);
}

static sluice_status check_params(const sluice_session_params *p, sluice_error *err) {
    const struct {
        const char *name;
        int found, low, high;
    } checks[] = {{"capacity", p->capacity, 1, INT_MAX},
                  {"prefill_chunk", p->prefill_chunk, 1, MAX_CHUNK},
                  {"num_sequences", p->num_sequences, 1, MAX_SEQUENCES},
                  {"cache_dtype", (int)p->cache_dtype, SLUICE_KV_F32, SLUICE_KV_Q8_0}};
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
        if (checks[i].found < checks[i].low || checks[i].found > checks[i].high)
            return sluice__fail(err, SLUICE_ERR_ARGUMENT, "%s: found %d, expected %d..%d", checks[i].name, checks[i].found,
                                checks[i].low, checks[i].high);
    return SLUICE_OK;
}

sluice_status sluice__session_begin(sluice_session *s, int capacity, sluice_error *err) {
    if (s->cache) return SLUICE_OK;
    SLUICE__TRY(sluice__cache_new_typed(&s->cache, s->model, 1, capacity, s->dtype, err));
    s->ids = sluice__calloc((size_t)capacity, sizeof *s->ids, SLUICE__MEM_OTHER);
    if (s->ids) return SLUICE_OK;
    sluice__cache_free(s->cache);
    s->cache = NULL;
    return sluice__no_memory(err, (size_t)capacity * sizeof *s->ids, "a session");
}

static int first_capacity(const sluice_session *s) { return s->capacity < FIRST_CAPACITY ? s->capacity : FIRST_CAPACITY; }

void sluice_check_tokenizer(const sluice_model *model, const sluice_tokenizer *tokenizer) {
    int rows = sluice_model_config(model)->vocab_size, ids = sluice_tokenizer_vocab_size(tokenizer);
    if (ids > rows)
        sluice__log(SLUICE_LOG_WARNING,
                    "the tokenizer has ids up to %d, the model only %d embeddings: text with tokens behind them is refused",
                    ids - 1, rows);
}

sluice_status sluice_session_new(sluice_session **out, const sluice_model *model,
                                 const sluice_session_params *params, sluice_error *err) {
    *out = NULL;
    sluice_session_params p = params ? *params : sluice_session_params_default();
    int positions = sluice_model_config(model)->max_position_embeddings;
    if (p.capacity == 0) p.capacity = positions;
    if (p.capacity > positions)
        sluice__log(SLUICE_LOG_WARNING,
                    "a context of %d tokens: the model was made for %d positions (max_position_embeddings), what it says "
                    "behind them may be nonsense",
                    p.capacity, positions);
    if (p.num_sequences == 0) p.num_sequences = 1;
    SLUICE__TRY(check_params(&p, err));
    sluice_session *s = sluice__calloc(1, sizeof *s, SLUICE__MEM_OTHER);
    if (!s) return sluice__no_memory(err, sizeof *s, "a session");
    *s = (sluice_session){.model = model, .capacity = p.capacity, .chunk = p.prefill_chunk, .dtype = p.cache_dtype,
                          .num_sequences = p.num_sequences};
    sluice_status st;
    s->others = sluice__calloc((size_t)p.num_sequences, sizeof *s->others, SLUICE__MEM_OTHER);
    if (!s->others) SLUICE__TRY_GOTO(sluice__no_memory(err, (size_t)p.num_sequences * sizeof *s->others, "a session"), fail);
    SLUICE__TRY_GOTO(sluice__session_begin(s, first_capacity(s), err), fail);
    SLUICE__TRY_GOTO(sluice__workspace_new(&s->one, model, 1, 1, SLUICE__INFER, err), fail);
    *out = s;
    return SLUICE_OK;
fail:
    sluice_session_free(s);
    return st;
}

void sluice_session_free(sluice_session *s) {
    if (!s) return;
    for (int i = 0; s->others && i < s->num_sequences; i++) {
        sluice__cache_free(s->others[i].cache);
        sluice__free(s->others[i].ids);
        sluice__free(s->others[i].origins);
    }
    sluice__free(s->others);
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

/* Says once which weights spoil the results, if they do. */
static void check_logits(sluice_session *s, const float *logits) {
    if (s->blamed || sluice__first_nonfinite(logits, sluice_model_config(s->model)->vocab_size) < 0) return;
    s->blamed = true;
    sluice__model_blame(s->model, "logits");
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
    if (st == SLUICE_OK && logits) check_logits(s, logits);
    return st;
}

const int32_t *sluice_session_ids(const sluice_session *s) { return s->ids; }

sluice_status sluice_session_reuse(sluice_session *s, const int32_t *ids, int64_t n, int64_t *kept, sluice_error *err) {
    int64_t held = sluice_session_length(s), same = 0;
    if (n < 1) return sluice__fail(err, SLUICE_ERR_ARGUMENT, "tokens: found %lld, expected at least 1", (long long)n);
    while (same < held && same < n - 1 && ids[same] == s->ids[same]) same++;
    bool stateful = sluice__cache_state_bytes(s->cache) > 0;
    if (stateful && (same < held || !sluice__cache_is_whole(s->cache))) same = 0; /* states cannot go back */
    *kept = same;
    return sluice_session_truncate(s, (int)same, err);
}

/* ---- several sequences ---- */

sluice_status sluice_session_select(sluice_session *s, int sequence, sluice_error *err) {
    if (sequence < 0 || sequence >= s->num_sequences)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "sequence: found %d, expected 0..%d", sequence, s->num_sequences - 1);
    if (sequence == s->selected) return SLUICE_OK;
    sluice__sequence before = {s->cache, s->ids, s->origins, s->num_origins, s->origins_room}, *now = &s->others[sequence];
    s->cache = now->cache;
    s->ids = now->ids;
    sluice_status st = sluice__session_begin(s, first_capacity(s), err);
    if (st != SLUICE_OK) {
        s->cache = before.cache;
        s->ids = before.ids;
        return st;
    }
    s->origins = now->origins;
    s->num_origins = now->num_origins;
    s->origins_room = now->origins_room;
    *now = (sluice__sequence){0};
    s->others[s->selected] = before;
    s->selected = sequence;
    return SLUICE_OK;
}

sluice_status sluice_session_copy(sluice_session *s, int from, sluice_error *err) {
    if (from < 0 || from >= s->num_sequences)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "sequence: found %d, expected 0..%d", from, s->num_sequences - 1);
    const sluice__sequence *source = &s->others[from];
    if (from == s->selected) return SLUICE_OK;
    int length = source->cache ? sluice__cache_length(source->cache) : 0;
    bool whole = !source->cache || sluice__cache_is_whole(source->cache);
    sluice__cache_truncate(s->cache, 0);
    sluice__session_cut_origins(s, 0);
    if (!length) return SLUICE_OK;
    SLUICE__TRY(sluice__session_reserve(s, length, err));
    memcpy(s->ids, source->ids, (size_t)length * sizeof *s->ids);
    if (!whole) return feed(s, s->ids, length, NULL, err);
    sluice__cache_copy(s->cache, source->cache);
    return SLUICE_OK;
}
