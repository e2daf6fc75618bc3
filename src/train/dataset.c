/* SPDX-License-Identifier: Apache-2.0 */
/* Datasets: building from tokens, checks, hash, and the windows. */
#include "train/dataset.h"
#include "base/log.h"
#include "base/memory.h"
#include "train/order.h"
#include <assert.h>
#include <inttypes.h>
#include <string.h>

static const uint64_t EPOCH_KEY = 0x65706f6368u, START_KEY = 0x7374617274u;

static sluice_status fill_token_bytes(sluice_dataset *d, const sluice_tokenizer *tokenizer, sluice_error *err) {
    d->token_bytes = sluice__calloc((size_t)d->vocab_size, sizeof *d->token_bytes, SLUICE__MEM_DATA);
    if (!d->token_bytes) return sluice__no_memory(err, (size_t)d->vocab_size * 4, "the bytes of tokens");
    for (int32_t id = 0; id < d->vocab_size; id++) {
        size_t size = 0;
        if (!sluice_tokenizer_is_special(tokenizer, id) && sluice_tokenizer_bytes(tokenizer, id, &size))
            d->token_bytes[id] = (int32_t)size;
    }
    return SLUICE_OK;
}

sluice_status sluice__dataset_new(sluice_dataset **out, const sluice_train_params *p,
                                  const sluice_tokenizer *tokenizer, int vocab_size, int32_t bos, int32_t eos,
                                  sluice_error *err) {
    *out = NULL;
    if (p->bos != SLUICE_BOS_NONE && bos < 0)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "bos: the tokenizer has no beginning-of-sequence token; "
                            "bos_token names one, bos none does without");
    if (p->append_eos && eos < 0)
        sluice__log(SLUICE_LOG_WARNING,
                    "append_eos: the tokenizer has no end-of-sequence token; documents follow each other "
                    "without one");
    sluice_dataset *d = sluice__calloc(1, sizeof *d, SLUICE__MEM_DATA);
    if (!d) return sluice__no_memory(err, sizeof *d, "a dataset");
    d->bos = p->bos == SLUICE_BOS_WINDOW ? bos : -1;
    d->train.bos = d->heldout.bos = p->bos == SLUICE_BOS_DOCUMENT ? bos : -1;
    d->train.eos = d->heldout.eos = p->append_eos ? eos : -1;
    d->seq_len = (int)p->seq_len;
    d->order = p->window_order;
    d->document_mask = p->document_mask;
    d->seed = (uint64_t)(p->data_seed >= 0 ? p->data_seed : p->seed);
    d->vocab_size = vocab_size;
    sluice_status st = tokenizer ? fill_token_bytes(d, tokenizer, err) : SLUICE_OK;
    if (st != SLUICE_OK) sluice_dataset_free(d);
    else *out = d;
    return st;
}

static void free_content(sluice_dataset *d) {
    for (int i = 0; i < d->num_stores; i++) d->close_store[i](d->owners[i]);
    sluice__free(d->stores);
    sluice__free((void *)d->close_store);
    sluice__free(d->owners);
    sluice__stream_free(&d->train);
    sluice__stream_free(&d->heldout);
    sluice__free(d->token_bytes);
}

void sluice_dataset_free(sluice_dataset *d) {
    if (d && !d->borrows) free_content(d);
    sluice__free(d);
}

sluice_status sluice_dataset_reorder(sluice_dataset **out, const sluice_dataset *dataset, uint64_t data_seed,
                                     sluice_error *err) {
    sluice_dataset *d = sluice__calloc(1, sizeof *d, SLUICE__MEM_DATA);
    *out = d;
    if (!d) return sluice__no_memory(err, sizeof *d, "a dataset");
    *d = *dataset;
    d->seed = data_seed;
    d->borrows = true;
    return SLUICE_OK;
}

sluice_status sluice__dataset_add_store(sluice_dataset *d, sluice__store store, void (*close)(void *), void *owner,
                                        sluice_error *err) {
    size_t n = (size_t)d->num_stores + 1;
    void *stores = sluice__realloc(d->stores, n, sizeof *d->stores, SLUICE__MEM_DATA);
    if (stores) d->stores = stores;
    void *closers = sluice__realloc((void *)d->close_store, n, sizeof *d->close_store, SLUICE__MEM_DATA);
    if (closers) d->close_store = closers;
    void *owners = sluice__realloc(d->owners, n, sizeof *d->owners, SLUICE__MEM_DATA);
    if (owners) d->owners = owners;
    if (!stores || !closers || !owners) {
        close(owner);
        return sluice__no_memory(err, n * sizeof store, "the table of token stores");
    }
    d->stores[d->num_stores] = store;
    d->close_store[d->num_stores] = close;
    d->owners[d->num_stores++] = owner;
    return SLUICE_OK;
}

sluice_status sluice__dataset_add_piece(sluice_dataset *d, int store, int64_t offset, const sluice__piece *piece,
                                        sluice_error *err) {
    sluice__span span = {offset + piece->begin, piece->end - piece->begin, store, piece->begins, piece->ends};
    *(piece->held ? &d->heldout_documents : &d->train_documents) += piece->begins;
    return sluice__stream_add(piece->held ? &d->heldout : &d->train, span, err);
}

sluice_status sluice__dataset_add_documents(sluice_dataset *d, int store, const sluice_train_params *p,
                                            const int64_t *sizes, int64_t num_documents, bool force_held,
                                            sluice_error *err) {
    sluice__split_rule rule = sluice__split_rule_of(p);
    if (force_held) rule.split = SLUICE_SPLIT_NONE;
    sluice__piece *pieces;
    int64_t n, document = 0, offset = 0;
    SLUICE__TRY(sluice__split(&pieces, &n, &rule, sizes, num_documents, NULL, NULL, err));
    sluice_status st = SLUICE_OK;
    for (int64_t i = 0; i < n && st == SLUICE_OK; i++) {
        while (document < pieces[i].document) offset += sizes[document++];
        pieces[i].held |= force_held;
        st = sluice__dataset_add_piece(d, store, offset, &pieces[i], err);
    }
    sluice__free(pieces);
    return st;
}

/* ---- the last step of building ---- */

static sluice_status check_ids(const sluice_dataset *d, const sluice__store *s, sluice_error *err) {
    for (int64_t i = 0; i < s->count; i++) {
        int64_t id = s->width == 2 ? ((const uint16_t *)s->data)[i] : ((const int32_t *)s->data)[i];
        if (id < 0 || id >= d->vocab_size)
            return sluice__fail(err, SLUICE_ERR_FORMAT,
                                "token %" PRId64 " of the data is id %" PRId64
                                ", expected 0..%d: another tokenizer made these tokens, or vocab_size is too small",
                                i, id, d->vocab_size - 1);
    }
    return SLUICE_OK;
}

/* Multiply and rotate on 64-bit words: a content hash against mistaken files, at memory speed; not against forgery. */
static uint64_t mix(uint64_t h, uint64_t word) {
    h = (h ^ word) * 0x9E3779B97F4A7C15u;
    return h << 29 | h >> 35;
}

static uint64_t hash_store(uint64_t h, const sluice__store *s) {
    size_t bytes = (size_t)s->count * (size_t)s->width, i = 0;
    const unsigned char *p = s->data;
    for (; i + 8 <= bytes; i += 8) {
        uint64_t word;
        memcpy(&word, p + i, 8);
        h = mix(h, word);
    }
    for (; i < bytes; i++) h = mix(h, p[i]);
    return mix(h, (uint64_t)s->count);
}

static uint64_t hash_stream(uint64_t h, const sluice__stream *s) {
    for (int64_t i = 0; i < s->num_spans; i++) {
        const sluice__span *p = &s->spans[i];
        h = mix(mix(h, (uint64_t)p->offset), (uint64_t)p->length << 2 | (uint64_t)p->begins << 1 | p->ends);
    }
    return mix(h, (uint64_t)s->bos << 32 ^ (uint64_t)s->eos);
}

/* Tokens of the stream that one window uses up, and those it has to read. */
static int64_t window_need(const sluice_dataset *d) {
    return d->bos >= 0 ? d->seq_len : d->seq_len + 1;
}

static int64_t count_bytes(const sluice_dataset *d) {
    int64_t length = sluice__stream_length(&d->heldout), bytes = 0;
    enum { CHUNK = 4096 };
    int32_t ids[CHUNK];
    for (int64_t at = d->bos < 0; at < length; at += CHUNK) { /* without BOS the first token is not predicted */
        int64_t n = length - at < CHUNK ? length - at : CHUNK;
        sluice__stream_read(&d->heldout, d->stores, at, n, ids, NULL);
        for (int64_t i = 0; i < n; i++) bytes += d->token_bytes[ids[i]];
    }
    return bytes;
}

sluice_status sluice__dataset_finish(sluice_dataset *d, sluice_error *err) {
    int64_t train = sluice__stream_length(&d->train), held = sluice__stream_length(&d->heldout), T = d->seq_len;
    int64_t shared = d->bos < 0; /* neighbouring windows share a token: the label of one is the input of the next */
    if (train < window_need(d))
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "the training text has %" PRId64 " tokens, but one window of seq_len %d "
                            "needs %" PRId64 ": give more text or a smaller seq_len",
                            train, d->seq_len, window_need(d));
    for (int i = 0; i < d->num_stores; i++) {
        SLUICE__TRY(check_ids(d, &d->stores[i], err));
        d->hash = hash_store(d->hash, &d->stores[i]);
    }
    d->hash = hash_stream(hash_stream(d->hash, &d->train), &d->heldout);
    d->train_windows = (train - shared) / T;
    d->heldout_windows = held > shared ? (held - shared + T - 1) / T : 0;
    if (d->token_bytes) d->heldout_bytes = count_bytes(d);
    return SLUICE_OK;
}

/* ---- from tokens ---- */

static sluice_status copy_tokens(sluice_dataset *d, const int32_t *ids, int64_t count, sluice_error *err) {
    int32_t *copy = sluice__calloc((size_t)count, sizeof *copy, SLUICE__MEM_DATA);
    if (!copy) return sluice__no_memory(err, (size_t)count * sizeof *copy, "tokens");
    if (count) memcpy(copy, ids, (size_t)count * sizeof *copy);
    return sluice__dataset_add_store(d, (sluice__store){copy, 4, count}, sluice__free, copy, err);
}

sluice_status sluice_dataset_from_tokens(sluice_dataset **out, const sluice_train_params *p, const int32_t *ids,
                                         const int64_t *doc_lengths, int64_t num_documents, int vocab_size, int bos,
                                         int eos, sluice_error *err) {
    int64_t count = 0;
    *out = NULL;
    for (int64_t i = 0; i < num_documents; i++)
        if (doc_lengths[i] < 0 || __builtin_add_overflow(count, doc_lengths[i], &count))
            return sluice__fail(err, SLUICE_ERR_ARGUMENT, "document %" PRId64 ": length %" PRId64, i, doc_lengths[i]);
    if (bos >= vocab_size || eos >= vocab_size)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "bos %d or eos %d: expected ids below %d", bos, eos,
                            vocab_size);
    sluice_dataset *d;
    SLUICE__TRY(sluice__dataset_new(&d, p, NULL, vocab_size, bos, eos, err));
    sluice_status st = copy_tokens(d, ids, count, err);
    if (st == SLUICE_OK) st = sluice__dataset_add_documents(d, 0, p, doc_lengths, num_documents, false, err);
    if (st == SLUICE_OK) st = sluice__dataset_finish(d, err);
    if (st != SLUICE_OK) sluice_dataset_free(d);
    else *out = d;
    return st;
}

/* ---- windows ---- */

/* Document starts among what was read become the mask: token i sees nothing before first[i], its position counts from
 * there, and a label that opens another document is not scored. With BOS in front everything moves up by one, and BOS
 * belongs to the first document. */
static void mask_documents(const sluice_dataset *d, const sluice__stream *s, int64_t position, int64_t scored,
                           sluice_window *w) {
    int32_t *first = w->key_start;
    bool lead = d->bos >= 0;
    for (int64_t i = 0; i < scored; i++) {
        int64_t label = lead ? i : i + 1; /* index of the label's token in what was read */
        bool opens = label < scored ? first[label] == label : sluice__stream_span_begins(s, position + label);
        if (label > 0 && opens) w->labels[i] = -1;
    }
    if (lead) {
        for (int64_t i = scored - 1; i > 0; i--) first[i] = first[i - 1] ? first[i - 1] + 1 : 0;
        first[0] = 0;
    }
    for (int64_t i = 0; i < scored; i++) w->positions[i] = (int32_t)i - first[i];
}

/* The window whose tokens start at `position`: inputs ids[0..] (BOS in front when the dataset has it there) and the
 * tokens that follow them as labels. At the end of the held-out part there may be less; the rest is padding, not
 * scored. */
static void fill_window(const sluice_dataset *d, const sluice__stream *s, int64_t position, sluice_window *w) {
    int64_t T = d->seq_len, left = sluice__stream_length(s) - position;
    bool lead = d->bos >= 0;
    int64_t scored = lead ? left : left - 1;
    if (scored > T) scored = T;
    assert(scored > 0);
    sluice__stream_read(s, d->stores, position, scored, w->ids, d->document_mask ? w->key_start : NULL);
    if (lead) {
        memcpy(w->labels, w->ids, (size_t)scored * sizeof *w->ids);
        memmove(w->ids + 1, w->ids, (size_t)(scored - 1) * sizeof *w->ids);
        w->ids[0] = d->bos;
    } else {
        memcpy(w->labels, w->ids + 1, (size_t)(scored - 1) * sizeof *w->ids);
        sluice__stream_read(s, d->stores, position + scored, 1, w->labels + scored - 1, NULL);
    }
    if (d->document_mask) mask_documents(d, s, position, scored, w);
    else
        for (int64_t i = 0; i < T && w->positions; i++) w->positions[i] = (int32_t)i;
    if (!d->document_mask && w->key_start) memset(w->key_start, 0, (size_t)T * sizeof *w->key_start);
    for (int64_t i = scored; i < T; i++) {
        w->ids[i] = 0;
        w->labels[i] = -1;
        if (d->document_mask) w->key_start[i] = w->positions[i] = 0;
    }
}

static int64_t train_position(const sluice_dataset *d, int64_t sample) {
    int64_t n = d->train_windows, epoch = sample / n, i = sample % n;
    if (d->order == SLUICE_WINDOWS_RANDOM) {
        int64_t starts = sluice__stream_length(&d->train) - window_need(d) + 1;
        return sluice__draw_below(sample, starts, d->seed, START_KEY);
    }
    if (d->order == SLUICE_WINDOWS_SHUFFLE) i = sluice__permute(i, n, d->seed, EPOCH_KEY + (uint64_t)epoch);
    return i * d->seq_len;
}

void sluice_dataset_train_window(const sluice_dataset *d, int64_t sample, sluice_window *out) {
    assert(sample >= 0);
    fill_window(d, &d->train, train_position(d, sample), out);
}

void sluice_dataset_heldout_window(const sluice_dataset *d, int64_t index, sluice_window *out) {
    assert(index >= 0 && index < d->heldout_windows);
    fill_window(d, &d->heldout, index * d->seq_len, out);
}

void sluice_dataset_heldout_tokens(const sluice_dataset *d, int64_t start, int64_t count, int32_t *out) {
    sluice__stream_read(&d->heldout, d->stores, start, count, out, NULL);
}

int sluice_dataset_token_bytes(const sluice_dataset *d, int32_t id) {
    return d->token_bytes && id >= 0 && id < d->vocab_size ? d->token_bytes[id] : 0;
}

sluice_dataset_info sluice_dataset_get_info(const sluice_dataset *d) {
    return (sluice_dataset_info){
        .train_documents = d->train_documents,
        .train_tokens = sluice__stream_length(&d->train),
        .train_windows = d->train_windows,
        .heldout_documents = d->heldout_documents,
        .heldout_tokens = sluice__stream_length(&d->heldout),
        .heldout_windows = d->heldout_windows,
        .heldout_bytes = d->heldout_bytes,
        .seq_len = d->seq_len,
        .vocab_size = d->vocab_size,
        .hash = d->hash,
    };
}
