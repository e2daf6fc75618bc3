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

/* cache NULL: was never selected nor evaluated. */
typedef struct sluice__sequence {
    sluice__cache *cache;
    int32_t *ids;           /* [capacity of the cache] of the tokens it holds */
    sluice__origin *origins; /* [num_origins] in order of length */
    int num_origins, origins_room;
} sluice__sequence;

/* What one sequence has still to evaluate. */
typedef struct sluice__pending {
    sluice__sequence *sequence;
    const int32_t *ids;
    int64_t n;
    float *logits;
    int before; /* its length at first */
} sluice__pending;

struct sluice_session {
    const sluice_model *model;
    int capacity, chunk;
    sluice_kv_dtype dtype;
    sluice__workspace *one, *many; /* for a single token; for a chunk, made when first needed */
    sluice__sequence *sequences;   /* [num_sequences] */
    int num_sequences;
    sluice__sequence *now;         /* the selected one */
    sluice__pending *pending;      /* [num_sequences], for the call at hand */
    sluice__segment *segments;     /* [num_sequences] */
    bool blamed;                   /* it was said that logits are not numbers */
};

/* Of a session file: the hash `h` of what stands in front, continued; eight bytes at a time, because files are large. */
uint64_t sluice__session_hash(uint64_t h, const void *data, size_t size);
/* Sequence number `sequence`, or an error that says which there are. */
sluice_status sluice__session_find(const sluice_session *s, int sequence, sluice__sequence **out, sluice_error *err);
/* Tokens that it holds. */
int sluice__sequence_length(const sluice__sequence *q);
/* Room for `need` tokens. */
sluice_status sluice__session_reserve(sluice_session *s, int need, sluice_error *err);
/* Notes that the session's first `length` tokens are those of a snapshot; false when out of memory. */
bool sluice__session_add_origin(sluice_session *s, uint64_t snapshot, int length);
/* Forgets origins longer than `length`. */
void sluice__session_cut_origins(sluice_session *s, int length);
#endif
