/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions: the cache grows with the sequence (doubling up to the capacity, so that a large max_position_embeddings costs
 * nothing until it is used); prompts run in chunks through the one forward pass, tokens of several sequences side by side.
 * States of linear attention cannot go back, nor layers with a window to where they dropped what it saw: a session that was cut
 * evaluates what it kept once more, when it goes on. */
#include "infer/session.h"
#include "base/log.h"
#include "base/memory.h"
#include "kernels/ops.h"
#include "model/config.h"
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
    int chunk = params->prefill_chunk > 0 ? params->prefill_chunk : sluice_session_params_default().prefill_chunk;
    return sluice__cache_bytes_typed(config, 1, capacity, params->cache_dtype, chunk);
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

static int first_capacity(const sluice_session *s) { return s->capacity < FIRST_CAPACITY ? s->capacity : FIRST_CAPACITY; }

/* Puts a fresh cache and an empty list of ids where there is none. */
static sluice_status begin(const sluice_session *s, sluice__sequence *q, sluice_error *err) {
    int capacity = first_capacity(s);
    if (q->cache) return SLUICE_OK;
    SLUICE__TRY(sluice__cache_new_typed(&q->cache, s->model, 1, capacity, s->dtype, s->chunk, err));
    q->ids = sluice__calloc((size_t)capacity, sizeof *q->ids, SLUICE__MEM_OTHER);
    if (q->ids) return SLUICE_OK;
    sluice__cache_free(q->cache);
    q->cache = NULL;
    return sluice__no_memory(err, (size_t)capacity * sizeof *q->ids, "a session");
}

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
    int64_t positions = sluice__config_positions(sluice_model_config(model));
    if (p.capacity == 0) p.capacity = sluice_model_config(model)->max_position_embeddings;
    if (p.capacity > positions)
        sluice__log(SLUICE_LOG_WARNING,
                    "a context of %d tokens: the model was made for %lld positions (max_position_embeddings and RoPE scaling), "
                    "what it says behind them may be nonsense",
                    p.capacity, (long long)positions);
    if (p.num_sequences == 0) p.num_sequences = 1;
    SLUICE__TRY(check_params(&p, err));
    sluice_session *s = sluice__calloc(1, sizeof *s, SLUICE__MEM_OTHER);
    if (!s) return sluice__no_memory(err, sizeof *s, "a session");
    *s = (sluice_session){.model = model, .capacity = p.capacity, .chunk = p.prefill_chunk, .dtype = p.cache_dtype,
                          .num_sequences = p.num_sequences};
    sluice_status st;
    size_t count = (size_t)p.num_sequences;
    s->sequences = sluice__calloc(count, sizeof *s->sequences, SLUICE__MEM_OTHER);
    s->pending = sluice__calloc(count, sizeof *s->pending, SLUICE__MEM_OTHER);
    s->segments = sluice__calloc(count, sizeof *s->segments, SLUICE__MEM_OTHER);
    if (!s->sequences || !s->pending || !s->segments)
        SLUICE__TRY_GOTO(sluice__no_memory(err, count * sizeof *s->segments, "a session"), fail);
    s->now = s->sequences;
    SLUICE__TRY_GOTO(begin(s, s->now, err), fail);
    SLUICE__TRY_GOTO(sluice__workspace_new(&s->one, model, 1, 1, SLUICE__INFER, err), fail);
    *out = s;
    return SLUICE_OK;
fail:
    sluice_session_free(s);
    return st;
}

void sluice_session_free(sluice_session *s) {
    if (!s) return;
    for (int i = 0; s->sequences && i < s->num_sequences; i++) {
        sluice__cache_free(s->sequences[i].cache);
        sluice__free(s->sequences[i].ids);
        sluice__free(s->sequences[i].origins);
    }
    sluice__free(s->sequences);
    sluice__free(s->pending);
    sluice__free(s->segments);
    sluice__workspace_free(s->one);
    sluice__workspace_free(s->many);
    sluice__free(s);
}

const sluice_model *sluice_session_model(const sluice_session *s) {
    return s->model;
}

int sluice_session_length(const sluice_session *s) { return sluice__cache_length(s->now->cache); }

int sluice_session_capacity(const sluice_session *s) {
    return s->capacity;
}

static void cut_origins(sluice__sequence *q, int length) {
    while (q->num_origins && q->origins[q->num_origins - 1].length > length) q->num_origins--;
}

void sluice__session_cut_origins(sluice_session *s, int length) { cut_origins(s->now, length); }

static void truncate(sluice__sequence *q, int length) {
    sluice__cache_truncate(q->cache, length);
    cut_origins(q, length);
}

sluice_status sluice_session_truncate(sluice_session *s, int length, sluice_error *err) {
    if (length < 0 || length > sluice_session_length(s))
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "length: found %d, expected 0..%d", length,
                            sluice_session_length(s));
    truncate(s->now, length);
    return SLUICE_OK;
}

bool sluice__session_add_origin(sluice_session *s, uint64_t snapshot, int length) {
    sluice__sequence *q = s->now;
    if (q->num_origins == q->origins_room) {
        int room = q->origins_room ? 2 * q->origins_room : 8;
        sluice__origin *more = sluice__realloc(q->origins, (size_t)room, sizeof *more, SLUICE__MEM_OTHER);
        if (!more) return false;
        q->origins = more;
        q->origins_room = room;
    }
    q->origins[q->num_origins++] = (sluice__origin){snapshot, length};
    return true;
}

static sluice_status reserve(const sluice_session *s, sluice__sequence *q, int need, sluice_error *err) {
    int now = sluice__cache_capacity(q->cache);
    if (need <= now) return SLUICE_OK;
    int64_t wanted = (int64_t)now * 2 > need ? (int64_t)now * 2 : need;
    int room = (int)(wanted < s->capacity ? wanted : s->capacity);
    int32_t *ids = sluice__realloc(q->ids, (size_t)room, sizeof *ids, SLUICE__MEM_OTHER);
    if (!ids) return sluice__no_memory(err, (size_t)room * sizeof *ids, "a session");
    q->ids = ids;
    return sluice__cache_grow(&q->cache, room, err);
}

sluice_status sluice__session_reserve(sluice_session *s, int need, sluice_error *err) {
    return reserve(s, s->now, need, err);
}

/* ---- evaluation ---- */

sluice_status sluice__session_find(const sluice_session *s, int sequence, sluice__sequence **out, sluice_error *err) {
    *out = NULL;
    if (sequence < 0 || sequence >= s->num_sequences)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "sequence: found %d, expected 0..%d", sequence, s->num_sequences - 1);
    *out = &s->sequences[sequence];
    return SLUICE_OK;
}

int sluice__sequence_length(const sluice__sequence *q) { return q->cache ? sluice__cache_length(q->cache) : 0; }

static sluice_status check_item(const sluice_session *s, const sluice_batch_item *item, sluice_error *err) {
    sluice__sequence *q;
    SLUICE__TRY(sluice__session_find(s, item->sequence, &q, err));
    int vocab = sluice_model_config(s->model)->vocab_size, length = sluice__sequence_length(q);
    if (item->n < 1)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "tokens: found %lld, expected at least 1", (long long)item->n);
    if (item->n > s->capacity - length)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "%lld tokens behind %d do not fit the context of %d",
                            (long long)item->n, length, s->capacity);
    for (int64_t i = 0; i < item->n; i++)
        if (item->ids[i] < 0 || item->ids[i] >= vocab)
            return sluice__fail(err, SLUICE_ERR_ARGUMENT, "token %lld: found id %d, expected 0..%d", (long long)i,
                                item->ids[i], vocab - 1);
    return SLUICE_OK;
}

/* Two items for one sequence are found by way of the pending list, which is free yet. */
static sluice_status check_items(const sluice_session *s, const sluice_batch_item *items, int count, sluice_error *err) {
    if (count < 1 || count > s->num_sequences)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "items: found %d, expected 1..%d", count, s->num_sequences);
    memset(s->pending, 0, (size_t)s->num_sequences * sizeof *s->pending);
    for (int i = 0; i < count; i++) {
        SLUICE__TRY(check_item(s, &items[i], err));
        if (s->pending[items[i].sequence].n++)
            return sluice__fail(err, SLUICE_ERR_ARGUMENT, "item %d: sequence %d is there already; put its tokens together", i,
                                items[i].sequence);
    }
    return SLUICE_OK;
}

/* Tokens of one pass, all sequences together. */
static int pass_rows(const sluice_session *s) { return s->chunk > s->num_sequences ? s->chunk : s->num_sequences; }

static sluice_status workspace_for(sluice_session *s, int64_t rows, sluice__workspace **out, sluice_error *err) {
    if (rows > 1 && !s->many)
        SLUICE__TRY(sluice__workspace_new(&s->many, s->model, 1, pass_rows(s), SLUICE__INFER, err));
    *out = rows > 1 ? s->many : s->one;
    return SLUICE_OK;
}

/* One pass over as much as fits of what is pending. *left: tokens that remain. */
static sluice_status feed_once(sluice_session *s, int count, int64_t *left, sluice_error *err) {
    int64_t room = pass_rows(s), rows = 0;
    int segments = 0;
    for (int i = 0; i < count && rows < room; i++) {
        sluice__pending *p = &s->pending[i];
        int64_t take = p->n < s->chunk ? p->n : s->chunk;
        if (take > room - rows) take = room - rows;
        if (!take) continue;
        s->segments[segments++] = (sluice__segment){.in = {.batch = 1, .seq_len = (int)take, .ids = p->ids},
                                                    .cache = p->sequence->cache,
                                                    .logits = take == p->n ? p->logits : NULL};
        rows += take;
        p->ids += take;
        p->n -= take;
    }
    sluice__workspace *ws;
    *left -= rows;
    SLUICE__TRY(workspace_for(s, rows, &ws, err));
    return sluice__forward_segments(s->model, ws, s->segments, segments, NULL, SLUICE__LOGITS_LAST, err);
}

/* Appends what is pending, for which there is room, to the caches. */
static sluice_status feed(sluice_session *s, int count, sluice_error *err) {
    int64_t left = 0;
    for (int i = 0; i < count; i++) left += s->pending[i].n;
    while (left) SLUICE__TRY(feed_once(s, count, &left, err));
    return SLUICE_OK;
}

/* Evaluates the first `length` ids of an empty sequence. On failure it stays empty. */
static sluice_status refill(sluice_session *s, sluice__sequence *q, int length, sluice_error *err) {
    s->pending[0] = (sluice__pending){.sequence = q, .ids = q->ids, .n = length};
    sluice_status st = feed(s, 1, err);
    if (st != SLUICE_OK) truncate(q, 0);
    return st;
}

/* Brings states that stand elsewhere to the end of what is held. On failure the sequence is empty. */
static sluice_status make_whole(sluice_session *s, sluice__sequence *q, sluice_error *err) {
    int length = sluice__cache_length(q->cache);
    if (sluice__cache_is_whole(q->cache)) return SLUICE_OK;
    truncate(q, 0);
    return refill(s, q, length, err);
}

/* Room and states for what an item appends. */
static sluice_status prepare(sluice_session *s, const sluice_batch_item *item, sluice_error *err) {
    sluice__sequence *q = &s->sequences[item->sequence];
    SLUICE__TRY(begin(s, q, err));
    SLUICE__TRY(reserve(s, q, sluice__cache_length(q->cache) + (int)item->n, err));
    return make_whole(s, q, err);
}

/* Says once which weights spoil the results, if they do. */
static void check_logits(sluice_session *s, const float *logits) {
    if (s->blamed || sluice__first_nonfinite(logits, sluice_model_config(s->model)->vocab_size) < 0) return;
    s->blamed = true;
    sluice__model_blame(s->model, "logits");
}

sluice_status sluice_session_eval_batch(sluice_session *s, const sluice_batch_item *items, int count, sluice_error *err) {
    SLUICE__TRY(check_items(s, items, count, err));
    for (int i = 0; i < count; i++) SLUICE__TRY(prepare(s, &items[i], err));
    for (int i = 0; i < count; i++) {
        sluice__sequence *q = &s->sequences[items[i].sequence];
        s->pending[i] = (sluice__pending){q, items[i].ids, items[i].n, items[i].logits, sluice__cache_length(q->cache)};
    }
    sluice_status st = feed(s, count, err);
    for (int i = 0; i < count; i++) {
        const sluice__pending *p = &s->pending[i];
        if (st == SLUICE_OK) memcpy(p->sequence->ids + p->before, items[i].ids, (size_t)items[i].n * sizeof *items[i].ids);
        else truncate(p->sequence, p->before);
        if (st == SLUICE_OK && items[i].logits) check_logits(s, items[i].logits);
    }
    return st;
}

sluice_status sluice_session_eval(sluice_session *s, const int32_t *ids, int64_t n, float *logits,
                                  sluice_error *err) {
    const sluice_batch_item item = {(int)(s->now - s->sequences), ids, n, logits};
    return sluice_session_eval_batch(s, &item, 1, err);
}

const int32_t *sluice_session_ids(const sluice_session *s) { return s->now->ids; }

sluice_status sluice_session_reuse(sluice_session *s, const int32_t *ids, int64_t n, int64_t *kept, sluice_error *err) {
    const sluice__sequence *q = s->now;
    int64_t held = sluice_session_length(s), same = 0;
    if (n < 1) return sluice__fail(err, SLUICE_ERR_ARGUMENT, "tokens: found %lld, expected at least 1", (long long)n);
    while (same < held && same < n - 1 && ids[same] == q->ids[same]) same++;
    if (!sluice__cache_keeps(q->cache, (int)same)) same = 0;
    *kept = same;
    return sluice_session_truncate(s, (int)same, err);
}

/* ---- several sequences ---- */

sluice_status sluice_session_select(sluice_session *s, int sequence, sluice_error *err) {
    sluice__sequence *q;
    SLUICE__TRY(sluice__session_find(s, sequence, &q, err));
    SLUICE__TRY(begin(s, q, err));
    s->now = q;
    return SLUICE_OK;
}

sluice_status sluice_session_copy(sluice_session *s, int from, sluice_error *err) {
    sluice__sequence *source, *to = s->now;
    SLUICE__TRY(sluice__session_find(s, from, &source, err));
    if (source == to) return SLUICE_OK;
    int length = sluice__sequence_length(source);
    truncate(to, 0);
    if (!length) return SLUICE_OK;
    SLUICE__TRY(reserve(s, to, length, err));
    memcpy(to->ids, source->ids, (size_t)length * sizeof *to->ids);
    if (!sluice__cache_is_whole(source->cache)) return refill(s, to, length, err);
    sluice__cache_copy(to->cache, source->cache);
    return SLUICE_OK;
}
