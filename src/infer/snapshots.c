/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots as a tree: a node holds the tokens behind its parent's, with their keys and values, and the states behind
 * its last token (with what layers with a sliding window need there). A session remembers from which nodes its beginning came, so that neither keeping nor resuming copies
 * what is there already. Few nodes are expected (tens, with thousands of tokens each), so they are searched one by one. */
#include "sluice/snapshots.h"
#include "base/memory.h"
#include "infer/session.h"
#include <string.h>

typedef struct node {
    uint64_t id, used; /* used: the clock at the last use */
    struct node *parent, *next;
    int first, end; /* its tokens are first..end-1 of the sequence */
    int children;
    int32_t *ids;    /* [end - first] */
    char *tokens;    /* keys and values of these */
    char *states;    /* NULL: none in this model, or dropped */
    size_t state_bytes;
    int64_t bytes;   /* of all that */
} node;

struct sluice_snapshots {
    const sluice_model *model;
    node *nodes; /* youngest first: a child stands before its parent */
    uint64_t last_id, clock;
    bool stateful; /* the model can go on at the end of a snapshot only */
    sluice_kv_dtype dtype; /* of all snapshots */
    sluice_snapshots_stats stats;
};

sluice_status sluice_snapshots_new(sluice_snapshots **out, const sluice_model *model, int64_t budget_bytes,
                                   sluice_error *err) {
    *out = NULL;
    if (budget_bytes < 1)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "budget_bytes: found %lld, expected at least 1",
                            (long long)budget_bytes);
    sluice_snapshots *s = sluice__calloc(1, sizeof *s, SLUICE__MEM_OTHER);
    if (!s) return sluice__no_memory(err, sizeof *s, "snapshots");
    *s = (sluice_snapshots){.model = model, .stats = {.budget_bytes = budget_bytes}};
    s->stateful = sluice__is_stateful(sluice_model_config(model));
    *out = s;
    return SLUICE_OK;
}

static void node_free(node *n) {
    if (!n) return;
    sluice__free(n->ids);
    sluice__free(n->tokens);
    sluice__free(n->states);
    sluice__free(n);
}

void sluice_snapshots_free(sluice_snapshots *s) {
    if (!s) return;
    for (node *n = s->nodes, *next; n; n = next) {
        next = n->next;
        node_free(n);
    }
    sluice__free(s);
}

/* Whether a session can go on at the end of the node. */
static bool is_resumable(const sluice_snapshots *s, const node *n) {
    return n->states || !s->stateful;
}

static node *find(const sluice_snapshots *s, uint64_t id) {
    for (node *n = s->nodes; n; n = n->next)
        if (n->id == id) return n;
    return NULL;
}

static bool is_ancestor(const node *of, const node *n) {
    while (of && of != n) of = of->parent;
    return of == n;
}

/* ---- eviction ---- */

static void drop_states(sluice_snapshots *s, node *n) {
    if (!n->states) return;
    sluice__free(n->states);
    n->states = NULL;
    n->bytes -= (int64_t)n->state_bytes;
    s->stats.bytes -= (int64_t)n->state_bytes;
    s->stats.count--;
    s->stats.evicted++;
}

/* A node without children goes, and with it ancestors that were kept for its sake alone; not those that `keep` needs. */
static void drop(sluice_snapshots *s, node *n, const node *keep) {
    while (n && !n->children && !is_ancestor(keep, n)) {
        node *parent = n->parent, **at = &s->nodes;
        while (*at != n) at = &(*at)->next;
        *at = n->next;
        if (is_resumable(s, n)) s->stats.count--, s->stats.evicted++;
        s->stats.bytes -= n->bytes;
        node_free(n);
        if (parent) parent->children--;
        n = parent && !is_resumable(s, parent) ? parent : NULL;
    }
}

/* Makes room; false when what is left belongs to `keep` and its ancestors. */
static bool evict(sluice_snapshots *s, int64_t need, const node *keep) {
    while (s->stats.bytes + need > s->stats.budget_bytes) {
        node *oldest = NULL;
        for (node *n = s->nodes; n; n = n->next) {
            bool whole = !n->children && !is_ancestor(keep, n);
            if ((whole || n->states) && (!oldest || n->used < oldest->used)) oldest = n;
        }
        if (!oldest) return false;
        if (oldest->children || is_ancestor(keep, oldest)) drop_states(s, oldest);
        else drop(s, oldest, keep);
    }
    return true;
}

/* ---- keeping ---- */

/* The longest living snapshot that the session begins with; those that are gone are forgotten. */
static node *base_of(const sluice_snapshots *s, sluice_session *session) {
    while (session->now->num_origins) {
        node *n = find(s, session->now->origins[session->now->num_origins - 1].snapshot);
        if (n) return n;
        session->now->num_origins--;
    }
    return NULL;
}

static sluice_status new_states(sluice_snapshots *s, const sluice_session *session, node *n, sluice_error *err) {
    if (!s->stateful) return SLUICE_OK;
    n->state_bytes = sluice__cache_state_bytes(session->now->cache, n->end);
    n->states = sluice__calloc(n->state_bytes ? n->state_bytes : 1, 1, SLUICE__MEM_CACHE);
    if (!n->states) return sluice__no_memory(err, n->state_bytes, "a snapshot");
    sluice__cache_get_states(session->now->cache, n->states);
    n->bytes += (int64_t)n->state_bytes;
    return SLUICE_OK;
}

static sluice_status new_node(node **out, sluice_snapshots *s, const sluice_session *session, node *parent,
                              sluice_error *err) {
    int first = parent ? parent->end : 0, end = sluice_session_length(session);
    size_t count = (size_t)(end - first), bytes = count * sluice__cache_token_bytes(session->now->cache);
    node *n = *out = sluice__calloc(1, sizeof *n, SLUICE__MEM_OTHER);
    if (!n) return sluice__no_memory(err, sizeof *n, "a snapshot");
    *n = (node){.parent = parent, .first = first, .end = end};
    n->bytes = (int64_t)(sizeof *n + count * sizeof *n->ids + bytes);
    n->ids = sluice__calloc(count, sizeof *n->ids, SLUICE__MEM_OTHER);
    n->tokens = sluice__calloc(bytes ? bytes : 1, 1, SLUICE__MEM_CACHE);
    if (!n->ids || !n->tokens) return sluice__no_memory(err, (size_t)n->bytes, "a snapshot");
    memcpy(n->ids, session->now->ids + first, count * sizeof *n->ids);
    sluice__cache_get_tokens(session->now->cache, first, (int)count, n->tokens);
    return new_states(s, session, n, err);
}

static void add(sluice_snapshots *s, node *n) {
    n->id = ++s->last_id;
    n->used = ++s->clock;
    n->next = s->nodes;
    s->nodes = n;
    if (n->parent) n->parent->children++;
    s->stats.bytes += n->bytes;
    s->stats.count++;
}

static sluice_status no_room(const sluice_snapshots *s, int64_t need, sluice_error *err) {
    return sluice__fail(err, SLUICE_ERR_MEMORY, "a snapshot of %lld bytes more does not fit into the budget of %lld",
                        (long long)need, (long long)s->stats.budget_bytes);
}

/* The session holds just what snapshot n does. */
static sluice_status keep_again(sluice_snapshots *s, const sluice_session *session, node *n, sluice_error *err) {
    n->used = ++s->clock;
    if (is_resumable(s, n)) return SLUICE_OK;
    int64_t need = (int64_t)sluice__cache_state_bytes(session->now->cache, n->end);
    if (!evict(s, need, n)) return no_room(s, need, err);
    SLUICE__TRY(new_states(s, session, n, err));
    s->stats.bytes += need;
    s->stats.count++;
    return SLUICE_OK;
}

static sluice_status check_session(const sluice_snapshots *s, const sluice_session *session, sluice_error *err) {
    if (session->model == s->model && (!s->nodes || session->dtype == s->dtype)) return SLUICE_OK;
    if (session->model == s->model)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "the session's cache is of type %s, the snapshots are of %s",
                            sluice_kv_dtype_name(session->dtype), sluice_kv_dtype_name(s->dtype));
    return sluice__fail(err, SLUICE_ERR_ARGUMENT, "the session runs another model than the snapshots are of");
}

sluice_status sluice_snapshots_keep(sluice_snapshots *s, sluice_session *session, sluice_error *err) {
    SLUICE__TRY(check_session(s, session, err));
    int length = sluice_session_length(session);
    if (!length || !sluice__cache_is_whole(session->now->cache))
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, length ? "the session was cut and has evaluated nothing since"
                                                             : "the session holds no tokens");
    node *base = base_of(s, session), *n = NULL;
    if (base && base->end == length) return keep_again(s, session, base, err);
    sluice_status st = new_node(&n, s, session, base, err);
    int64_t alone = st == SLUICE_OK ? n->bytes : 0;
    for (const node *a = base; a; a = a->parent) alone += a->bytes - (a->states ? (int64_t)a->state_bytes : 0);
    if (st == SLUICE_OK && (alone > s->stats.budget_bytes || !evict(s, n->bytes, base))) st = no_room(s, alone, err);
    if (st == SLUICE_OK && !sluice__session_add_origin(session, s->last_id + 1, length))
        st = sluice__no_memory(err, sizeof(sluice__origin), "a snapshot");
    s->dtype = session->dtype;
    if (st == SLUICE_OK) add(s, n);
    else node_free(n);
    return st;
}

/* ---- resuming ---- */

static int common(const int32_t *a, const int32_t *b, int64_t n) {
    int64_t i = 0;
    while (i < n && a[i] == b[i]) i++;
    return (int)i;
}

/* Tokens of ids[0..n-1] that the node's sequence begins with. */
static int match(const node *m, const int32_t *ids, int64_t n) {
    if (m->parent && match(m->parent, ids, n) < m->first) return 0;
    if (n <= m->first) return 0;
    int64_t most = n < m->end ? n : m->end;
    return m->first + common(m->ids, ids + m->first, most - m->first);
}

/* The snapshot from which most of ids[0..most-1] can be had, and how many tokens. */
static node *best(const sluice_snapshots *s, const int32_t *ids, int64_t most, int *length) {
    node *found = NULL;
    *length = 0;
    for (node *n = s->nodes; n; n = n->next) {
        if (!is_resumable(s, n)) continue;
        int here = match(n, ids, most);
        if (s->stateful && here < n->end) continue;
        if (here > *length) found = n, *length = here;
    }
    return found;
}

/* Tokens at the beginning of the session that are those of n or of an ancestor, bit for bit; other origins go. */
static int shared(const sluice_snapshots *s, sluice_session *session, const node *n) {
    while (session->now->num_origins) {
        sluice__origin *o = &session->now->origins[session->now->num_origins - 1];
        const node *origin = find(s, o->snapshot);
        if (origin && is_ancestor(n, origin)) return o->length;
        session->now->num_origins--;
    }
    return 0;
}

/* Puts tokens from..to-1 of n's sequence into the session, and notes the snapshots that end there. */
static void put(sluice_session *session, const node *n, int from, int to) {
    if (n->parent && n->first > from) put(session, n->parent, from, n->first < to ? n->first : to);
    int begin = n->first > from ? n->first : from, end = n->end < to ? n->end : to;
    if (begin >= end) return;
    sluice__cache_put_tokens(session->now->cache, begin, end - begin, n->tokens, begin - n->first, n->end - n->first);
    memcpy(session->now->ids + begin, n->ids + (begin - n->first), (size_t)(end - begin) * sizeof *n->ids);
    if (end == n->end) sluice__session_add_origin(session, n->id, end); /* without memory: copied once more some day */
}

static sluice_status restore(sluice_snapshots *s, sluice_session *session, node *n, int length, sluice_error *err) {
    SLUICE__TRY(sluice__session_reserve(session, length, err));
    int have = shared(s, session, n);
    if (have > length) have = length;
    sluice__session_cut_origins(session, length);
    put(session, n, have, length);
    sluice__cache_put_states(session->now->cache, length, n->states);
    n->used = ++s->clock;
    s->stats.resumed++;
    s->stats.tokens_reused += length;
    return SLUICE_OK;
}

/* Tokens of ids that the session can keep as it is. */
static int own_beginning(const sluice_session *session, const int32_t *ids, int64_t most) {
    int held = sluice_session_length(session), same = common(session->now->ids, ids, held < most ? held : most);
    return sluice__cache_keeps(session->now->cache, same) ? same : 0;
}

sluice_status sluice_snapshots_resume(sluice_snapshots *s, sluice_session *session, const int32_t *ids, int64_t n,
                                      int64_t *reused, sluice_error *err) {
    int length;
    if (reused) *reused = 0;
    SLUICE__TRY(check_session(s, session, err));
    if (n < 1) return sluice__fail(err, SLUICE_ERR_ARGUMENT, "tokens: found %lld, expected at least 1", (long long)n);
    int64_t most = n - 1 < session->capacity ? n - 1 : session->capacity;
    int own = own_beginning(session, ids, most);
    node *from = best(s, ids, most, &length);
    sluice_status st = SLUICE_OK;
    if (from && length > own) st = restore(s, session, from, length, err);
    else length = own;
    if (st != SLUICE_OK) length = 0;
    if (length < sluice_session_length(session)) sluice_session_truncate(session, length, NULL);
    if (reused) *reused = length;
    return st;
}

sluice_snapshots_stats sluice_snapshots_get_stats(const sluice_snapshots *s) {
    return s->stats;
}
