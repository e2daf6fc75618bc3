/* SPDX-License-Identifier: Apache-2.0 */
/* A stream of tokens made of spans: pieces of documents that lie in one or more stores (arrays in memory or mapped
 * shards). BOS and EOS of documents exist only in the stream, so mapped shards need not be copied or changed. */
#ifndef SLUICE_TRAIN_STREAM_H
#define SLUICE_TRAIN_STREAM_H
#include <stdbool.h>
#include <stdint.h>
#include "base/error.h"

typedef struct sluice__store {
    const void *data;
    int width; /* bytes of a token: 2 (uint16) or 4 (int32) */
    int64_t count;
} sluice__store;

typedef struct sluice__span {
    int64_t offset, length; /* in its store, tokens */
    int32_t store;
    bool begins, ends; /* the span begins / ends a document: BOS in front, EOS behind */
} sluice__span;

typedef struct sluice__stream {
    sluice__span *spans;
    int64_t *starts; /* [num_spans + 1] position of each span in the stream; the last is the stream's length */
    int64_t num_spans, capacity;
    int32_t bos, eos; /* of documents; -1 = none */
} sluice__stream;

/* Appends a span; empty ones without BOS and EOS are dropped. */
sluice_status sluice__stream_add(sluice__stream *s, sluice__span span, sluice_error *err);
void sluice__stream_free(sluice__stream *s);
int64_t sluice__stream_length(const sluice__stream *s);
/* Whether a span begins at this position. */
bool sluice__stream_span_begins(const sluice__stream *s, int64_t position);
/* `count` tokens from `position` on (inside the stream). first (may be NULL): for each token the index, in what is
 * read, of the first token of its span, 0 when that lies before `position`. */
void sluice__stream_read(const sluice__stream *s, const sluice__store *stores, int64_t position, int64_t count,
                         int32_t *ids, int32_t *first);
#endif
