/* SPDX-License-Identifier: Apache-2.0 */
/* Text waits as long as its end could be the beginning of a stop string. */
#include "sluice/stream.h"
#include "base/memory.h"
#include "model/tokenizer_internal.h"
#include "model/utf8.h"
#include <string.h>

struct sluice_stream {
    sluice_decode_stream *decode;
    char **stops;
    int num_stops;
    sluice_text pending; /* decoded, not handed out */
    bool stopped;
};

void sluice_stream_free(sluice_stream *s) {
    if (!s) return;
    sluice_decode_stream_free(s->decode);
    for (int i = 0; i < s->num_stops && s->stops; i++) sluice__free(s->stops[i]);
    sluice__free(s->stops);
    sluice_text_free(&s->pending);
    sluice__free(s);
}

sluice_status sluice_stream_new(sluice_stream **out, const sluice_tokenizer *tok, const char *const *stops,
                                int num_stops, bool skip_special, sluice_error *err) {
    *out = NULL;
    for (int i = 0; i < num_stops; i++)
        if (!*stops[i] || sluice__utf8_valid_prefix(stops[i], strlen(stops[i])) != strlen(stops[i]))
            return sluice__fail(err, SLUICE_ERR_ARGUMENT, "stop string %d is %s", i, *stops[i] ? "not UTF-8" : "empty");
    sluice_stream *s = sluice__calloc(1, sizeof *s, SLUICE__MEM_OTHER);
    if (!s) return sluice__no_memory(err, sizeof *s, "a stream");
    s->stops = sluice__calloc((size_t)num_stops, sizeof *s->stops, SLUICE__MEM_OTHER);
    sluice_status st = s->stops ? sluice_decode_stream_new(&s->decode, tok, skip_special, err)
                                : sluice__no_memory(err, (size_t)num_stops * sizeof *s->stops, "a stream");
    for (int i = 0; i < num_stops && st == SLUICE_OK; i++) {
        s->stops[i] = sluice__strdup(stops[i]);
        if (!s->stops[i]) st = sluice__no_memory(err, strlen(stops[i]), "a stop string");
        s->num_stops = i + 1;
    }
    if (st != SLUICE_OK) {
        sluice_stream_free(s);
        return st;
    }
    *out = s;
    return SLUICE_OK;
}

/* Byte at which the earliest stop string begins, or -1. */
static ptrdiff_t find_stop(const sluice_stream *s) {
    ptrdiff_t first = -1;
    for (int i = 0; i < s->num_stops && s->pending.size; i++) {
        const char *hit = memmem(s->pending.data, s->pending.size, s->stops[i], strlen(s->stops[i]));
        if (hit && (first < 0 || hit - s->pending.data < first)) first = hit - s->pending.data;
    }
    return first;
}

/* Bytes at the end of the pending text that a stop string could begin with. */
static size_t held_back(const sluice_stream *s) {
    size_t most = 0;
    for (int i = 0; i < s->num_stops; i++) {
        size_t length = strlen(s->stops[i]) - 1, n = length < s->pending.size ? length : s->pending.size;
        while (n > most && memcmp(s->pending.data + s->pending.size - n, s->stops[i], n) != 0) n--;
        if (n > most) most = n;
    }
    return most;
}

/* Hands out all but the last `keep` bytes. */
static sluice_status release(sluice_stream *s, size_t keep, sluice_text *text, sluice_error *err) {
    size_t n = s->pending.size - keep;
    if (!n) return SLUICE_OK;
    SLUICE__TRY(sluice__text_add(text, s->pending.data, n, err));
    memmove(s->pending.data, s->pending.data + n, keep);
    s->pending.size = keep;
    return SLUICE_OK;
}

static sluice_status deliver(sluice_stream *s, sluice_text *text, bool all, sluice_error *err) {
    ptrdiff_t stop = find_stop(s);
    if (stop < 0) return release(s, all ? 0 : held_back(s), text, err);
    s->pending.size = (size_t)stop;
    s->stopped = true;
    return release(s, 0, text, err);
}

sluice_status sluice_stream_push(sluice_stream *s, int32_t id, sluice_text *text, bool *stopped, sluice_error *err) {
    sluice_status st = SLUICE_OK;
    if (!s->stopped) {
        st = sluice_decode_stream_push(s->decode, id, &s->pending, err);
        if (st == SLUICE_OK) st = deliver(s, text, false, err);
    }
    *stopped = s->stopped;
    return st;
}

sluice_status sluice_stream_finish(sluice_stream *s, sluice_text *text, sluice_error *err) {
    if (s->stopped) return SLUICE_OK;
    SLUICE__TRY(sluice_decode_stream_finish(s->decode, &s->pending, err));
    return deliver(s, text, true, err);
}
