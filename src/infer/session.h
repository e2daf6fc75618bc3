/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of a session, for the files of this part. */
#ifndef SLUICE_INFER_SESSION_H
#define SLUICE_INFER_SESSION_H
#include "layers/transformer.h"
#include "sluice/session.h"

/* A snapshot whose tokens are, bit for bit, the first `length` of the session. */
typedef struct sluice__origin {
    uint64_t snapshot;
    int length;
} sluice__origin;

/* A sequence that is not selected. cache NULL: never was. */
typedef struct sluice__sequence {
    sluice__cache *cache;
    int32_t *ids;
    sluice__origin *origins;
    int num_origins, origins_room;
} sluice__sequence;

struct sluice_session {
    const sluice_model *model;
    int capacity, chunk;
    sluice_kv_dtype dtype;
    sluice__workspace *one, *many; /* for a single token; for a chunk, made when first needed */
    sluice__sequence *others;      /* [num_sequences]; the entry of the selected one is empty */
    int num_sequences, selected;
    bool blamed;                   /* it was said that logits are not numbers */
    /* of the selected sequence */
    sluice__cache *cache;
    int32_t *ids;                  /* [capacity of the cache] of the tokens it holds */
    sluice__origin *origins;       /* [num_origins] in order of length */
    int num_origins, origins_room;
};

/* Puts a fresh cache of `capacity` and an empty list of ids where there is none. */
sluice_status sluice__session_begin(sluice_session *s, int capacity, sluice_error *err);

/* Room for `need` tokens. */
sluice_status sluice__session_reserve(sluice_session *s, int need, sluice_error *err);
/* Notes that the session's first `length` tokens are those of a snapshot; false when out of memory. */
bool sluice__session_add_origin(sluice_session *s, uint64_t snapshot, int length);
/* Forgets origins longer than `length`. */
void sluice__session_cut_origins(sluice_session *s, int length);
#endif
