/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions in files. All numbers are little-endian:
 *   "SLUICE-S", u32 version, u32 type of keys and values, u64 hash of the model, u64 length, u64 bytes of the note,
 *   u64 bytes of keys and values of a token, u64 bytes of states,
 *   i32 ids [length], the note, keys and values (layer by layer, keys before values), states, u64 hash of all that.
 * A file is believed only when its size is exactly what its head says, its hashes are right and it was written for this
 * model: until then nothing is changed. */
#include "base/file.h"
#include "base/memory.h"
#include "base/rng.h"
#include "infer/session.h"
#include "model/config.h"
#include "model/tokenizer_internal.h"
#include "model/utf8.h"
#include <string.h>

static const char MAGIC[] = "SLUICE-S";
enum { VERSION = 1, MAX_NOTE = 256 << 20 };

typedef struct head {
    char magic[8];
    uint32_t version, dtype;
    uint64_t model, length, note, token_bytes, state_bytes;
} head;

uint64_t sluice__session_hash(uint64_t h, const void *data, size_t size) {
    const char *p = data;
    for (; size >= 8; p += 8, size -= 8) {
        uint64_t w;
        memcpy(&w, p, sizeof w);
        h = (h ^ w) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
    }
    return size ? sluice__hash_bytes(p, size, h | 1) : h;
}

/* ---- the model ---- */

/* The first and the middle row of the first matrix of a stack. */
static uint64_t hash_stack(uint64_t h, sluice__stack stack, float *row) {
    if (!stack.count || !stack.part->data) return h;
    const sluice__matrix *m = stack.part;
    const int64_t rows[2] = {0, m->rows / 2};
    for (int i = 0; i < 2; i++) {
        sluice__matrix_widen(row, m, rows[i], 1);
        h = sluice__session_hash(h, row, (size_t)m->columns * sizeof *row);
    }
    return h;
}

static int64_t widest(const sluice_model *model) {
    int64_t most = 1;
    for (int i = 0; i < sluice_model_num_tensors(model); i++) {
        sluice_tensor_info t = sluice_model_tensor(model, i);
        if (t.ndim && t.shape[t.ndim - 1] > most) most = t.shape[t.ndim - 1];
    }
    return most;
}

static uint64_t hash_weights(const sluice_model *model, uint64_t h, float *row) {
    const sluice__weights *w = sluice__model_weights(model);
    h = hash_stack(h, w->embedding, row);
    h = hash_stack(h, w->head, row);
    for (int i = 0; i < sluice_model_config(model)->num_hidden_layers; i++) {
        const sluice__layer_stacks *s = &w->layers[i].stacks;
        const sluice__stack stacks[] = {s->qkvg, s->o_proj, s->delta_in,       s->delta_out,  s->gate_up,
                                        s->down, s->router, s->expert_gate_up, s->expert_down};
        for (size_t j = 0; j < sizeof stacks / sizeof *stacks; j++) h = hash_stack(h, stacks[j], row);
    }
    return h;
}

/* What scaled positions come to, of which the parameters are many. */
static sluice_status hash_frequencies(const sluice_rope_spec *rope, int64_t length, uint64_t *h, sluice_error *err) {
    size_t half = (size_t)rope->rotary_dim / 2;
    double *inv_freq = sluice__calloc(half + 1, sizeof *inv_freq, SLUICE__MEM_OTHER);
    if (!inv_freq) return sluice__no_memory(err, (half + 1) * sizeof *inv_freq, "RoPE frequencies");
    sluice__rope_inv_freq(rope, length, inv_freq, &inv_freq[half]);
    *h = sluice__session_hash(*h, inv_freq, (half + 1) * sizeof *inv_freq);
    sluice__free(inv_freq);
    return SLUICE_OK;
}

/* Of the names and shapes of all tensors, of what decides about positions, and of samples of the weights. */
static sluice_status hash_model(const sluice_model *model, uint64_t *out, sluice_error *err) {
    const sluice_config *c = sluice_model_config(model);
    float *row = sluice__calloc((size_t)widest(model), sizeof *row, SLUICE__MEM_OTHER);
    if (!row) return sluice__no_memory(err, (size_t)widest(model) * sizeof *row, "a row of weights");
    sluice_status st = SLUICE_OK;
    uint64_t h = 1;
    for (int i = 0; i < sluice_model_num_tensors(model); i++) {
        sluice_tensor_info t = sluice_model_tensor(model, i);
        h = sluice__session_hash(sluice__hash_bytes(t.name, strlen(t.name), h | 1), t.shape, sizeof t.shape);
    }
    h = sluice__session_hash(h, &c->rms_norm_eps, sizeof c->rms_norm_eps);
    for (int i = 0; i < c->num_hidden_layers; i++) {
        const sluice_layer_spec *s = &c->layers[i];
        const double numbers[] = {s->rope.enabled ? s->rope.theta : 0,
                                  s->rope.rotary_dim,
                                  s->rope.type,
                                  s->rope.factor,
                                  s->sliding_window,
                                  s->num_attention_heads,
                                  s->num_key_value_heads,
                                  (double)s->attention_scale};
        h = sluice__session_hash(h, numbers, sizeof numbers);
        if (st == SLUICE_OK && s->rope.enabled && s->rope.type != SLUICE_ROPE_DEFAULT)
            st = hash_frequencies(&s->rope, c->max_position_embeddings, &h, err);
    }
    *out = hash_weights(model, h, row);
    sluice__free(row);
    return st;
}

/* ---- writing ---- */

typedef struct writer {
    sluice__atomic_file file;
    uint64_t hash;
    bool failed;
} writer;

static void put(writer *w, const void *data, size_t size) {
    w->hash = sluice__session_hash(w->hash, data, size);
    w->failed |= size && fwrite(data, 1, size, w->file.stream) != size;
}

static sluice_status open_target(sluice__atomic_file *file, const char *path, sluice_error *err) {
    SLUICE__TRY(sluice__check_replaceable(path, MAGIC, "a session file", err));
    return sluice__atomic_open(file, path, err);
}

sluice_status sluice_session_check_target(const char *path, sluice_error *err) {
    sluice__atomic_file file;
    SLUICE__TRY(open_target(&file, path, err));
    sluice__atomic_abort(&file);
    return SLUICE_OK;
}

sluice_status sluice_session_save(const sluice_session *s, const char *path, const char *note, sluice_error *err) {
    if (!sluice__cache_is_whole(s->now->cache))
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "%s: the session was cut and has evaluated nothing since", path);
    size_t length = (size_t)sluice_session_length(s);
    head h = {.version = VERSION,
              .dtype = (uint32_t)s->dtype,
              .length = length,
              .note = note ? strlen(note) : 0,
              .token_bytes = sluice__cache_token_bytes(s->now->cache),
              .state_bytes = sluice__cache_state_bytes(s->now->cache, (int)length)};
    memcpy(h.magic, MAGIC, sizeof h.magic);
    if (h.note > MAX_NOTE)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "%s: a note of %llu bytes", path, (unsigned long long)h.note);
    SLUICE__TRY(hash_model(s->model, &h.model, err));
    size_t tokens = length * h.token_bytes, states = h.state_bytes;
    char *bytes = sluice__calloc(tokens + states + 1, 1, SLUICE__MEM_CACHE);
    if (!bytes) return sluice__no_memory(err, tokens + states, "the session's file");
    if (length) sluice__cache_get_tokens(s->now->cache, 0, (int)length, bytes);
    if (states) sluice__cache_get_states(s->now->cache, bytes + tokens);
    writer w = {.hash = 1};
    sluice_status st = open_target(&w.file, path, err);
    if (st == SLUICE_OK) {
        put(&w, &h, sizeof h);
        put(&w, s->now->ids, length * sizeof *s->now->ids);
        put(&w, note ? note : "", h.note);
        put(&w, bytes, tokens);
        put(&w, bytes + tokens, states);
        uint64_t hash = w.hash;
        put(&w, &hash, sizeof hash);
        if (w.failed) {
            sluice__atomic_abort(&w.file);
            st = sluice__fail(err, SLUICE_ERR_IO, "%s: cannot write", path);
        } else {
            st = sluice__atomic_commit(&w.file, err);
        }
    }
    sluice__free(bytes);
    return st;
}

/* ---- reading ---- */

typedef struct parts {
    head h;
    const char *ids, *note, *tokens, *states, *hash; /* places in the file; ids may be unaligned */
} parts;

/* Whether the head's sizes add up to the file's. */
static sluice_status find_parts(parts *p, const sluice_session *s, const sluice__map *map, const char *path,
                                sluice_error *err) {
    if (map->size < sizeof p->h + 8 || memcmp(map->data, MAGIC, sizeof p->h.magic) != 0)
        return sluice__fail(err, SLUICE_ERR_FORMAT, "%s: not a session file", path);
    memcpy(&p->h, map->data, sizeof p->h);
    const head *h = &p->h;
    if (h->version != VERSION)
        return sluice__fail(err, SLUICE_ERR_UNSUPPORTED, "%s: version %u, expected %d", path, h->version, VERSION);
    if (h->dtype != (uint32_t)s->dtype)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "%s: keys and values of type %s, the session has %s", path,
                            h->dtype <= SLUICE_KV_Q8_0 ? sluice_kv_dtype_name((sluice_kv_dtype)h->dtype) : "unknown",
                            sluice_kv_dtype_name(s->dtype));
    if (h->length > (uint64_t)s->capacity)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "%s: %llu tokens do not fit the context of %d", path,
                            (unsigned long long)h->length, s->capacity);
    if (h->token_bytes != sluice__cache_token_bytes(s->now->cache) || h->state_bytes != sluice__cache_state_bytes(s->now->cache, (int)h->length))
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "%s: written for another model (bytes of a token and of states differ)", path);
    size_t tokens = sluice__mul_size((size_t)h->length, (size_t)h->token_bytes);
    size_t rest = map->size - sizeof *h - 8, ids = (size_t)h->length * sizeof(int32_t);
    if (h->note > MAX_NOTE || tokens > rest || ids > rest - tokens || h->note > rest - tokens - ids ||
        h->state_bytes != rest - tokens - ids - h->note)
        return sluice__fail(err, SLUICE_ERR_FORMAT, "%s: %zu bytes are not what its head says", path, map->size);
    p->ids = (const char *)map->data + sizeof *h;
    p->note = p->ids + ids;
    p->tokens = p->note + h->note;
    p->states = p->tokens + tokens;
    p->hash = p->states + h->state_bytes;
    return SLUICE_OK;
}

static sluice_status check_content(const parts *p, const sluice_session *s, const char *path, sluice_error *err) {
    uint64_t model, stored, h = sluice__session_hash(1, &p->h, sizeof p->h);
    SLUICE__TRY(hash_model(s->model, &model, err));
    if (p->h.model != model)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "%s: written for another model (its hash differs)", path);
    h = sluice__session_hash(h, p->ids, (size_t)(p->note - p->ids));
    h = sluice__session_hash(h, p->note, (size_t)p->h.note);
    h = sluice__session_hash(h, p->tokens, (size_t)(p->states - p->tokens));
    h = sluice__session_hash(h, p->states, (size_t)p->h.state_bytes);
    memcpy(&stored, p->hash, sizeof stored);
    if (stored != h) return sluice__fail(err, SLUICE_ERR_FORMAT, "%s: damaged (the hash of its content differs)", path);
    if (sluice__utf8_valid_prefix(p->note, (size_t)p->h.note) != p->h.note)
        return sluice__fail(err, SLUICE_ERR_FORMAT, "%s: the note is not UTF-8", path);
    for (uint64_t i = 0; i < p->h.length; i++) {
        int32_t id;
        memcpy(&id, p->ids + i * sizeof id, sizeof id);
        if (id < 0 || id >= sluice_model_config(s->model)->vocab_size)
            return sluice__fail(err, SLUICE_ERR_FORMAT, "%s: token %llu: found id %d", path, (unsigned long long)i, id);
    }
    return SLUICE_OK;
}

static sluice_status take(sluice_session *s, const parts *p, sluice_text *note, sluice_error *err) {
    int length = (int)p->h.length;
    SLUICE__TRY(sluice__session_reserve(s, length, err));
    if (note) SLUICE__TRY(sluice__text_add(note, p->note, (size_t)p->h.note, err));
    sluice__session_cut_origins(s, 0);
    sluice__cache_truncate(s->now->cache, 0);
    if (length) memcpy(s->now->ids, p->ids, (size_t)length * sizeof *s->now->ids);
    if (length) sluice__cache_put_tokens(s->now->cache, 0, length, p->tokens, 0, length);
    sluice__cache_put_states(s->now->cache, length, p->h.state_bytes ? p->states : NULL);
    return SLUICE_OK;
}

sluice_status sluice_session_load(sluice_session *s, const char *path, sluice_text *note, sluice_error *err) {
    sluice__map map;
    parts p;
    SLUICE__TRY(sluice__map_open(&map, path, err));
    sluice_status st = find_parts(&p, s, &map, path, err);
    if (st == SLUICE_OK) st = check_content(&p, s, path, err);
    if (st == SLUICE_OK) st = take(s, &p, note, err);
    sluice__map_close(&map);
    return st;
}
