/* SPDX-License-Identifier: Apache-2.0 */
/* Documents with tags, and questions about them. Every draw is a pure function of seed, document and purpose, so that
 * arms, seeds and continued studies see the same tags. Places are drawn as a random subset of the slots between text
 * tokens: every arrangement of tags in the text is equally likely. */
#include "study/needle.h"
#include "base/memory.h"
#include "train/dataset.h"
#include "train/order.h"
#include <inttypes.h>
#include <string.h>

/* Streams of draws; a document's own number is mixed in. */
enum { MOST_TAGS = SLUICE__NEEDLE_MENTIONS * SLUICE__NEEDLE_KEYS };
enum { PLACES = 1, KEYS, VALUES, TEXT, TAGGED, ORDER, ASKED, STREAMS = 16 };

static uint64_t stream_of(int64_t document, int purpose) {
    return (uint64_t)document * STREAMS + (uint64_t)purpose;
}

/* ---- tags ---- */

static sluice_status one_id(int32_t *out, const sluice_tokenizer *tokenizer, char c, sluice_error *err) {
    sluice_ids ids = {0};
    sluice_status st = sluice_tokenizer_encode(tokenizer, &c, 1, 0, &ids, err);
    if (st == SLUICE_OK && ids.count != 1)
        st = sluice__fail(err, SLUICE_ERR_CONFIG,
                          "data.kind needle: the tokenizer has %zu tokens for \"%c\", expected 1",
                          ids.count, c);
    if (st == SLUICE_OK) *out = ids.data[0];
    sluice_ids_free(&ids);
    return st;
}

sluice_status sluice__tags_of(sluice__tags *out, const sluice_tokenizer *tokenizer, sluice_error *err) {
    SLUICE__TRY(one_id(&out->open, tokenizer, '[', err));
    SLUICE__TRY(one_id(&out->close, tokenizer, ']', err));
    for (int i = 0; i < SLUICE__NEEDLE_KEYS; i++)
        SLUICE__TRY(one_id(&out->keys[i], tokenizer, (char)('A' + i), err));
    for (int i = 0; i < SLUICE__NEEDLE_VALUES; i++)
        SLUICE__TRY(one_id(&out->values[i], tokenizer, (char)('0' + i), err));
    return SLUICE_OK;
}

static void shuffle(int *items, int count, uint64_t seed, uint64_t stream) {
    for (int i = count - 1; i > 0; i--) {
        int j = (int)sluice__draw_below(i, i + 1, seed, stream), keep = items[i];
        items[i] = items[j];
        items[j] = keep;
    }
}

/* `needles` different keys with a value each: key[i], value[i]. */
static void draw_pairs(int *key, int *value, const sluice__needle_params *p, int64_t document) {
    int all[SLUICE__NEEDLE_KEYS];
    for (int i = 0; i < SLUICE__NEEDLE_KEYS; i++) all[i] = i;
    shuffle(all, SLUICE__NEEDLE_KEYS, p->seed, stream_of(document, KEYS));
    for (int i = 0; i < p->needles; i++) {
        key[i] = all[i];
        value[i] = (int)sluice__draw_below(i, SLUICE__NEEDLE_VALUES, p->seed, stream_of(document, VALUES));
    }
}

static int32_t *put_tag(int32_t *at, const sluice__tags *t, int key, int value) {
    at[0] = t->open;
    at[1] = t->keys[key];
    at[2] = t->values[value];
    at[3] = t->close;
    return at + SLUICE__TAG_TOKENS;
}

/* Spreads `count` tags over `text_count` text tokens: walks over text and tags together and takes a tag with the
 * probability of the tags that are left among all that is left (selection sampling, Knuth 3.4.2). place (may be
 * NULL): index in `out` of every tag. */
static void interleave(int32_t *out, const int32_t *text, int64_t text_count, const sluice__tags *t, const int *key,
                       const int *value, int count, uint64_t seed, int64_t document, int64_t *place) {
    int32_t *at = out;
    int64_t used = 0;
    int done = 0;
    for (int64_t i = 0; i < text_count + count; i++) {
        int64_t left = text_count + count - i;
        if (sluice__draw_below(i, left, seed, stream_of(document, PLACES)) >= count - done) {
            *at++ = text[used++];
            continue;
        }
        if (place) place[done] = at - out;
        at = put_tag(at, t, key[done], value[done]);
        done++;
    }
}

int64_t sluice__needle_least(const sluice__needle_params *p) {
    return (int64_t)p->mentions * p->needles * SLUICE__TAG_TOKENS;
}

/* ---- documents ---- */

typedef struct writer {
    const sluice_dataset *text;
    sluice__tags tags;
    const sluice__needle_params *p;
    int64_t length; /* of a document */
} writer;

/* Every key `mentions` times, in random order: the first one sets, the others repeat. */
static void tagged_document(int32_t *out, const int32_t *text, const writer *w, int64_t document) {
    int pair_key[SLUICE__NEEDLE_KEYS], pair_value[SLUICE__NEEDLE_KEYS], order[MOST_TAGS];
    int key[MOST_TAGS], value[MOST_TAGS], count = w->p->mentions * w->p->needles;
    draw_pairs(pair_key, pair_value, w->p, document);
    for (int i = 0; i < count; i++) order[i] = i / w->p->mentions;
    shuffle(order, count, w->p->seed, stream_of(document, ORDER));
    for (int i = 0; i < count; i++) {
        key[i] = pair_key[order[i]];
        value[i] = pair_value[order[i]];
    }
    interleave(out, text, w->length - sluice__needle_least(w->p), &w->tags, key, value, count, w->p->seed, document,
               NULL);
}

static void training_document(int32_t *out, int32_t *scratch, const writer *w, int64_t document) {
    const sluice_dataset *d = w->text;
    bool tagged = sluice__draw_uniform(0, w->p->seed, stream_of(document, TAGGED)) < w->p->share;
    int64_t need = tagged ? w->length - sluice__needle_least(w->p) : w->length;
    int64_t starts = sluice__stream_length(&d->train) - need + 1;
    int64_t from = sluice__draw_below(0, starts, w->p->seed, stream_of(document, TEXT));
    sluice__stream_read(&d->train, d->stores, from, need, tagged ? scratch : out, NULL);
    if (tagged) tagged_document(out, scratch, w, document);
}

static sluice_status add_part(sluice_dataset *d, const sluice_train_params *p, int32_t *ids, int64_t count,
                              int64_t length, bool held, int store, sluice_error *err) {
    int64_t *sizes = sluice__calloc((size_t)count, sizeof *sizes, SLUICE__MEM_DATA);
    if (!sizes) {
        sluice__free(ids);
        return sluice__no_memory(err, (size_t)count * sizeof *sizes, "documents");
    }
    for (int64_t i = 0; i < count; i++) sizes[i] = length;
    sluice_train_params whole = *p;
    whole.split = SLUICE_SPLIT_NONE;
    sluice__store s = {ids, 4, count * length};
    sluice_status st = sluice__dataset_add_store(d, s, sluice__free, ids, err);
    if (st == SLUICE_OK) st = sluice__dataset_add_documents(d, store, &whole, sizes, count, held, err);
    sluice__free(sizes);
    return st;
}

static sluice_status add_training(sluice_dataset *d, const sluice_train_params *p, const writer *w, int64_t count,
                                  sluice_error *err) {
    int32_t *ids = sluice__calloc((size_t)count * (size_t)w->length, sizeof *ids, SLUICE__MEM_DATA);
    int32_t *scratch = sluice__calloc((size_t)w->length, sizeof *scratch, SLUICE__MEM_DATA);
    if (!ids || !scratch) {
        sluice__free(ids);
        sluice__free(scratch);
        return sluice__no_memory(err, (size_t)count * (size_t)w->length * sizeof *ids, "documents with tags");
    }
    for (int64_t i = 0; i < count; i++) training_document(ids + i * w->length, scratch, w, i);
    sluice__free(scratch);
    return add_part(d, p, ids, count, w->length, false, 0, err);
}

static sluice_status add_heldout(sluice_dataset *d, const sluice_train_params *p, const writer *w, sluice_error *err) {
    int64_t count = sluice__stream_length(&w->text->heldout) / w->length;
    int32_t *ids = sluice__calloc((size_t)(count * w->length), sizeof *ids, SLUICE__MEM_DATA);
    if (!ids) return sluice__no_memory(err, (size_t)(count * w->length) * sizeof *ids, "held-out documents");
    sluice__stream_read(&w->text->heldout, w->text->stores, 0, count * w->length, ids, NULL);
    return add_part(d, p, ids, count, w->length, true, 1, err);
}

static sluice_status check_room(const sluice_dataset *text, const writer *w, sluice_error *err) {
    int64_t train = sluice__stream_length(&text->train), held = sluice__stream_length(&text->heldout);
    if (w->length <= sluice__needle_least(w->p))
        return sluice__fail(err, SLUICE_ERR_CONFIG,
                            "data.needles: %d keys take %" PRId64 " of the %" PRId64
                            " tokens of a document; give fewer, or a longer seq_len",
                            w->p->needles, sluice__needle_least(w->p), w->length);
    if (train >= w->length && held >= w->length) return SLUICE_OK;
    return sluice__fail(err, SLUICE_ERR_CONFIG,
                        "text: %" PRId64 " tokens to train on and %" PRId64 " held out, expected at least %" PRId64
                        " each",
                        train, held, w->length);
}

sluice_status sluice__needle_dataset(sluice_dataset **out, const sluice_train_params *p, const sluice_dataset *text,
                                     const sluice_tokenizer *tokenizer, const sluice__needle_params *needle,
                                     int64_t count, sluice_error *err) {
    writer w = {.text = text, .p = needle, .length = p->seq_len - 1};
    sluice_dataset *d;
    *out = NULL;
    SLUICE__TRY(sluice__tags_of(&w.tags, tokenizer, err));
    SLUICE__TRY(check_room(text, &w, err));
    SLUICE__TRY(sluice__dataset_new(&d, p, tokenizer, sluice_tokenizer_vocab_size(tokenizer),
                                    sluice_tokenizer_bos_id(tokenizer), -1, err));
    sluice_status st = add_training(d, p, &w, count, err);
    if (st == SLUICE_OK) st = add_heldout(d, p, &w, err);
    if (st == SLUICE_OK) st = sluice__dataset_finish(d, err);
    if (st != SLUICE_OK) sluice_dataset_free(d);
    else *out = d;
    return st;
}

/* ---- questions ---- */

sluice__question sluice__needle_question(int32_t *ids, int length, const sluice_dataset *text, int32_t bos,
                                         const sluice__tags *tags, const sluice__needle_params *p, int64_t index) {
    int key[SLUICE__NEEDLE_KEYS], value[SLUICE__NEEDLE_KEYS];
    int64_t place[SLUICE__NEEDLE_KEYS], document = -1 - index; /* numbers that no training document has */
    int lead = bos >= 0, body = length - lead - 2;
    int64_t need = body - (int64_t)p->needles * SLUICE__TAG_TOKENS;
    int64_t starts = sluice__stream_length(&text->heldout) - need + 1;
    int64_t from = sluice__draw_below(0, starts, p->seed, stream_of(document, TEXT));
    int32_t *plain = ids + length - need; /* read to the end, then spread from the front: never overtaken */
    sluice__stream_read(&text->heldout, text->stores, from, need, plain, NULL);
    draw_pairs(key, value, p, document);
    if (lead) ids[0] = bos;
    interleave(ids + lead, plain, need, tags, key, value, p->needles, p->seed, document, place);
    int asked = (int)sluice__draw_below(0, p->needles, p->seed, stream_of(document, ASKED));
    ids[length - 2] = tags->open;
    ids[length - 1] = tags->keys[key[asked]];
    return (sluice__question){tags->values[value[asked]], asked, (double)(place[asked] + lead) / length};
}
