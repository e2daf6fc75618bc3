/* SPDX-License-Identifier: Apache-2.0 */
/* Token streams: a sorted table of span starts, searched by halving, then read on. */
#include "train/stream.h"
#include "base/memory.h"
#include <assert.h>

static bool grow(sluice__stream *s) {
    int64_t capacity = s->capacity ? s->capacity * 2 : 64;
    void *spans = sluice__realloc(s->spans, (size_t)capacity, sizeof *s->spans, SLUICE__MEM_DATA);
    if (!spans) return false;
    s->spans = spans;
    void *starts = sluice__realloc(s->starts, (size_t)capacity + 1, sizeof *s->starts, SLUICE__MEM_DATA);
    if (!starts) return false;
    s->starts = starts;
    s->capacity = capacity;
    return true;
}

static int64_t span_tokens(const sluice__stream *s, const sluice__span *p) {
    return p->length + (p->begins && s->bos >= 0) + (p->ends && s->eos >= 0);
}

sluice_status sluice__stream_add(sluice__stream *s, sluice__span span, sluice_error *err) {
    int64_t tokens = span_tokens(s, &span);
    if (!tokens) return SLUICE_OK;
    if (s->num_spans == s->capacity && !grow(s))
        return sluice__no_memory(err, (size_t)s->num_spans * 2 * sizeof span, "the table of documents");
    s->spans[s->num_spans] = span;
    s->starts[s->num_spans + 1] = s->starts[s->num_spans] + tokens;
    s->num_spans++;
    return SLUICE_OK;
}

void sluice__stream_free(sluice__stream *s) {
    sluice__free(s->spans);
    sluice__free(s->starts);
    *s = (sluice__stream){.bos = s->bos, .eos = s->eos};
}

int64_t sluice__stream_length(const sluice__stream *s) {
    return s->num_spans ? s->starts[s->num_spans] : 0;
}

static int64_t find_span(const sluice__stream *s, int64_t position) {
    int64_t low = 0, high = s->num_spans - 1;
    while (low < high) {
        int64_t middle = low + (high - low + 1) / 2;
        if (s->starts[middle] <= position) low = middle;
        else high = middle - 1;
    }
    return low;
}

bool sluice__stream_span_begins(const sluice__stream *s, int64_t position) {
    return s->starts[find_span(s, position)] == position;
}

/* Token `at` of a span, BOS and EOS included. */
static int32_t token(const sluice__stream *s, const sluice__store *stores, const sluice__span *p, int64_t at) {
    if (p->begins && s->bos >= 0 && at-- == 0) return s->bos;
    if (at == p->length) return s->eos;
    const sluice__store *store = &stores[p->store];
    int64_t i = p->offset + at;
    return store->width == 2 ? ((const uint16_t *)store->data)[i] : ((const int32_t *)store->data)[i];
}

void sluice__stream_read(const sluice__stream *s, const sluice__store *stores, int64_t position, int64_t count,
                         int32_t *ids, int32_t *first) {
    assert(position >= 0 && count >= 0 && position + count <= sluice__stream_length(s));
    int64_t k = count ? find_span(s, position) : 0;
    for (int64_t i = 0; i < count; k++) {
        int64_t begin = s->starts[k], end = s->starts[k + 1];
        int32_t lead = begin > position ? (int32_t)(begin - position) : 0;
        for (; i < count && position + i < end; i++) {
            ids[i] = token(s, stores, &s->spans[k], position + i - begin);
            if (first) first[i] = lead;
        }
    }
}
