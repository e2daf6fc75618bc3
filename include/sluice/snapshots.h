/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots: prefixes kept in memory, from which any session of the same model goes on exactly, bit for bit, as if it
 * had just evaluated them: keys and values of every token, the states of linear attention behind the last one, and what layers
 * with a sliding window see there.
 *
 * What a session holds and what grew out of the same snapshot share their beginning: each snapshot stores only the
 * tokens behind the one that it grew from (and one set of states). When the budget is full, what was used longest ago
 * goes first: of a snapshot that others grew from the states alone, of the others all. A model whose layers
 * all see everything can be resumed at any token of a snapshot, one with linear attention or sliding windows at its end.
 *
 *   sluice_snapshots_resume(store, session, ids, n, &have, err);        the longest beginning of ids that is known
 *   sluice_session_eval(session, ids + have, n - have, logits, err);    the rest
 *   sluice_snapshots_keep(store, session, err);                         for the next time
 *
 * A store belongs to one thread at a time. */
#ifndef SLUICE_SNAPSHOTS_H
#define SLUICE_SNAPSHOTS_H
#include "sluice/session.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sluice_snapshots sluice_snapshots;
/* budget_bytes >= 1: the most that all snapshots together take. The model must outlive the store. */
sluice_status sluice_snapshots_new(sluice_snapshots **out, const sluice_model *model, int64_t budget_bytes,
                                   sluice_error *err);
void sluice_snapshots_free(sluice_snapshots *store);

/* Keeps what the session holds now (at least one token). A snapshot that would not fit into the whole budget is
 * SLUICE_ERR_MEMORY, and nothing is lost for it. */
sluice_status sluice_snapshots_keep(sluice_snapshots *store, sluice_session *session, sluice_error *err);

/* Brings the session to the longest known beginning of ids[0..n-1] that leaves a token to evaluate: what it holds
 * already, cut where that costs nothing, or a snapshot. *reused (may be NULL) is its length then, 0 when nothing is
 * known. On failure the session is empty. */
sluice_status sluice_snapshots_resume(sluice_snapshots *store, sluice_session *session, const int32_t *ids, int64_t n,
                                      int64_t *reused, sluice_error *err);

typedef struct sluice_snapshots_stats {
    int64_t budget_bytes, bytes;
    int64_t count;         /* snapshots that can be resumed at their end */
    int64_t evicted;       /* that could once */
    int64_t resumed;       /* resumptions from a snapshot */
    int64_t tokens_reused; /* by them */
} sluice_snapshots_stats;
sluice_snapshots_stats sluice_snapshots_get_stats(const sluice_snapshots *store);

#ifdef __cplusplus
}
#endif
#endif
