/* SPDX-License-Identifier: Apache-2.0 */
/* Decoding: the tokens' spellings go through the decoder steps of the file. A byte-level decoder alone, by far the
 * usual case, is a concatenation of bytes; other decoders work on a list of pieces as the tokenizers package does. */
#include "model/tokenizer_internal.h"
#include "base/memory.h"
#include "model/utf8.h"

sluice_status sluice__text_add(sluice_text *text, const void *data, size_t size, sluice_error *err) {
    size_t need = text->size + size + 1;
    if (need > text->capacity) {
        size_t n = text->capacity ? text->capacity : 64;
        while (n < need) n *= 2;
        void *fresh = sluice__realloc(text->data, n, 1, SLUICE__MEM_DATA);
        if (!fresh) return sluice__no_memory(err, n, "decoded text");
        text->data = fresh;
        text->capacity = n;
    }
    if (size) memcpy(text->data + text->size, data, size);
    text->size += size;
    text->data[text->size] = '\0';
    return SLUICE_OK;
}

void sluice_text_free(sluice_text *text) {
    sluice__free(text->data);
    *text = (sluice_text){0};
}

/* Appends bytes with U+FFFD for each maximal ill-formed part. With `keep`, a part that only lacks bytes at the end is
 * left out; *used says how many bytes were taken. */
static sluice_status add_lossy(sluice_text *text, const char *data, size_t size, bool keep, size_t *used,
                               sluice_error *err) {
    size_t at = 0;
    while (at < size) {
        size_t good = sluice__utf8_valid_prefix(data + at, size - at);
        SLUICE__TRY(sluice__text_add(text, data + at, good, err));
        at += good;
        if (at == size) break;
        bool cut;
        const unsigned char *p = (const unsigned char *)data + at;
        int bad = sluice__utf8_bad_length(p, (const unsigned char *)data + size, &cut);
        if (cut && keep) break;
        SLUICE__TRY(sluice__text_add(text, "\xEF\xBF\xBD", 3, err));
        at += (size_t)bad;
    }
    if (used) *used = at;
    return sluice__text_add(text, "", 0, err);
}

/* Ids without a token give nothing, as in the tokenizers package: a model may have more rows than its tokenizer tokens.
 */
static bool skipped(const sluice_tokenizer *tok, int32_t id, bool skip_special) {
    if (id < 0 || id >= tok->vocab.size || !tok->vocab.tokens[id].flags) return true;
    return skip_special && tok->vocab.tokens[id].flags & SLUICE__TOKEN_SPECIAL;
}

static bool bytes_only(const sluice_tokenizer *tok) {
    return tok->num_dec == 1 && tok->dec[0].kind == SLUICE__DEC_BYTE_LEVEL;
}

/* ---- lists of pieces: texts behind each other in one buffer, cut at ends[] ---- */
typedef struct pieces {
    sluice__strbuf text;
    size_t *ends;
    size_t count, capacity;
} pieces;

static void pieces_free(pieces *p) {
    sluice__strbuf_free(&p->text);
    sluice__free(p->ends);
    *p = (pieces){0};
}

static sluice_status end_piece(pieces *p, sluice_error *err) {
    if (p->count == p->capacity) {
        size_t n = p->capacity ? p->capacity * 2 : 64;
        void *fresh = sluice__realloc(p->ends, n, sizeof *p->ends, SLUICE__MEM_DATA);
        if (!fresh) return sluice__no_memory(err, n * sizeof *p->ends, "decoded text");
        p->ends = fresh;
        p->capacity = n;
    }
    p->ends[p->count++] = p->text.size;
    return SLUICE_OK;
}

static sluice__span piece_at(const pieces *p, size_t i) {
    size_t start = i ? p->ends[i - 1] : 0;
    return (sluice__span){(p->text.data ? p->text.data : "") + start, p->ends[i] - start};
}

/* "<0x0A>" -> 10, otherwise -1. */
static int byte_token(sluice__span t) {
    if (t.size != 6 || memcmp(t.data, "<0x", 3) || t.data[5] != '>') return -1;
    int value = 0;
    for (int i = 3; i < 5; i++) {
        char c = t.data[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                           : -1;
        if (digit < 0) return -1;
        value = value * 16 + digit;
    }
    return value;
}

/* A run of byte tokens becomes its text, or one U+FFFD for each byte when it is not UTF-8. */
static sluice_status byte_fallback(const pieces *in, pieces *out, sluice_error *err) {
    for (size_t i = 0; i < in->count;) {
        size_t first = i, start = out->text.size;
        int b;
        for (; i < in->count && (b = byte_token(piece_at(in, i))) >= 0; i++) {
            char c = (char)b;
            sluice__strbuf_add(&out->text, &c, 1);
        }
        size_t n = i - first;
        if (n && out->text.size - start == n && sluice__utf8_valid_prefix(out->text.data + start, n) == n) {
            SLUICE__TRY(end_piece(out, err));
        } else if (n) {
            out->text.size = start;
            for (size_t k = 0; k < n; k++) {
                sluice__strbuf_puts(&out->text, "\xEF\xBF\xBD");
                SLUICE__TRY(end_piece(out, err));
            }
        }
        if (i == in->count) break;
        sluice__span t = piece_at(in, i++);
        sluice__strbuf_add(&out->text, t.data, t.size);
        SLUICE__TRY(end_piece(out, err));
    }
    return SLUICE_OK;
}

static sluice_status replace(const sluice__dec_step *d, sluice__matcher *matcher, sluice__span t, pieces *out,
                             sluice_error *err) {
    sluice__matches m = sluice__matches_of(&d->pattern, matcher, t);
    size_t done = 0, start, end;
    for (;;) {
        bool found;
        SLUICE__TRY(sluice__match_next(&m, &found, &start, &end, err));
        if (!found) break;
        sluice__strbuf_add(&out->text, t.data + done, start - done);
        sluice__strbuf_add(&out->text, d->content, d->content_size);
        done = end;
    }
    sluice__strbuf_add(&out->text, t.data + done, t.size - done);
    return SLUICE_OK;
}

static void strip(const sluice__dec_step *d, sluice__span t, pieces *out) {
    size_t n = d->content_size;
    for (int64_t i = 0; i < d->start && t.size >= n && !memcmp(t.data, d->content, n); i++) {
        t.data += n;
        t.size -= n;
    }
    for (int64_t i = 0; i < d->stop && t.size >= n && !memcmp(t.data + t.size - n, d->content, n); i++) t.size -= n;
    sluice__strbuf_add(&out->text, t.data, t.size);
}

static void metaspace(const sluice__dec_step *d, sluice__span t, bool first, pieces *out) {
    size_t n = d->content_size;
    while (t.size) {
        const char *q = memmem(t.data, t.size, d->content, n);
        size_t plain = q ? (size_t)(q - t.data) : t.size;
        sluice__strbuf_add(&out->text, t.data, plain);
        if (q && !(first && d->prepend != SLUICE__PREPEND_NEVER)) sluice__strbuf_puts(&out->text, " ");
        t.data += plain + (q ? n : 0);
        t.size -= plain + (q ? n : 0);
    }
}

static sluice_status byte_level(const pieces *in, pieces *out, sluice_error *err) {
    sluice_text text = {0};
    sluice__strbuf bytes = {0};
    for (size_t i = 0; i < in->count; i++) {
        sluice__span t = piece_at(in, i);
        size_t start = bytes.size;
        if (!sluice__add_byte_chars(&bytes, t)) {
            bytes.size = start;
            sluice__strbuf_add(&bytes, t.data, t.size);
        }
    }
    sluice_status st = add_lossy(&text, bytes.data, bytes.size, false, NULL, err);
    if (st == SLUICE_OK) {
        sluice__strbuf_add(&out->text, text.data, text.size);
        st = end_piece(out, err);
    }
    sluice__strbuf_free(&bytes);
    sluice_text_free(&text);
    return st;
}

static sluice_status decode_step(const sluice__dec_step *d, sluice__matcher *matcher, const pieces *in, pieces *out,
                                 sluice_error *err) {
    if (d->kind == SLUICE__DEC_BYTE_LEVEL) return byte_level(in, out, err);
    if (d->kind == SLUICE__DEC_BYTE_FALLBACK) return byte_fallback(in, out, err);
    if (d->kind == SLUICE__DEC_FUSE) {
        sluice__strbuf_add(&out->text, in->text.data, in->count ? in->ends[in->count - 1] : 0);
        return end_piece(out, err);
    }
    for (size_t i = 0; i < in->count; i++) {
        sluice__span t = piece_at(in, i);
        if (d->kind == SLUICE__DEC_REPLACE)
            SLUICE__TRY(replace(d, matcher, t, out, err));
        else if (d->kind == SLUICE__DEC_STRIP)
            strip(d, t, out);
        else
            metaspace(d, t, i == 0, out);
        SLUICE__TRY(end_piece(out, err));
    }
    return SLUICE_OK;
}

static sluice_status decode_list(const sluice_tokenizer *tok, const int32_t *ids, size_t count, bool skip_special,
                                 sluice_text *text, sluice_error *err) {
    pieces a = {0}, b = {0};
    sluice__matcher matcher = {0};
    sluice_status st = sluice__matcher_new(&matcher, err);
    for (size_t i = 0; i < count && st == SLUICE_OK; i++) {
        if (skipped(tok, ids[i], skip_special)) continue;
        if (!tok->num_dec && a.count) sluice__strbuf_puts(&a.text, " "); /* without a decoder: words */
        sluice__span t = sluice__decoded_text(tok, ids[i]);
        sluice__strbuf_add(&a.text, t.data, t.size);
        st = end_piece(&a, err);
    }
    for (int i = 0; i < tok->num_dec && st == SLUICE_OK; i++) {
        st = decode_step(&tok->dec[i], &matcher, &a, &b, err);
        pieces swap = a;
        a = b;
        b = swap;
        b.text.size = b.count = 0;
    }
    if (st == SLUICE_OK && (a.text.failed || b.text.failed)) st = sluice__no_memory(err, a.text.size, "decoded text");
    if (st == SLUICE_OK) st = sluice__text_add(text, a.text.data, a.text.size, err);
    sluice__matcher_free(&matcher);
    pieces_free(&a);
    pieces_free(&b);
    return st;
}

sluice_status sluice_tokenizer_decode(const sluice_tokenizer *tok, const int32_t *ids, size_t count, bool skip_special,
                                      sluice_text *text, sluice_error *err) {
    if (!bytes_only(tok)) return decode_list(tok, ids, count, skip_special, text, err);
    sluice__strbuf bytes = {0};
    for (size_t i = 0; i < count; i++) {
        if (skipped(tok, ids[i], skip_special)) continue;
        const sluice__token *t = &tok->vocab.tokens[ids[i]];
        sluice__strbuf_add(&bytes, tok->vocab.arena + t->bytes, t->bytes_size);
    }
    sluice_status st = bytes.failed ? sluice__no_memory(err, bytes.size, "decoded text")
                                    : add_lossy(text, bytes.data, bytes.size, false, NULL, err);
    sluice__strbuf_free(&bytes);
    return st;
}

/* ---- streams ---- */
/* Over bytes the state is the unfinished character. Other decoders look at neighbours, so the ids since the last
 * finished piece are decoded with and without the new one, and what was added is given out unless it ends in an
 * unfinished character. */
struct sluice_decode_stream {
    const sluice_tokenizer *tok;
    bool skip_special;
    char tail[8];
    size_t tail_size;
    sluice_ids ids;   /* other decoders: the window */
    size_t given_ids; /* of them, those whose text was given out */
};

sluice_status sluice_decode_stream_new(sluice_decode_stream **out, const sluice_tokenizer *tok, bool skip_special,
                                       sluice_error *err) {
    *out = sluice__calloc(1, sizeof **out, SLUICE__MEM_OTHER);
    if (!*out) return sluice__no_memory(err, sizeof **out, "a decoding stream");
    (*out)->tok = tok;
    (*out)->skip_special = skip_special;
    return SLUICE_OK;
}

void sluice_decode_stream_free(sluice_decode_stream *s) {
    if (!s) return;
    sluice_ids_free(&s->ids);
    sluice__free(s);
}

static sluice_status push_bytes(sluice_decode_stream *s, const sluice__token *t, sluice_text *text, sluice_error *err) {
    sluice__strbuf bytes = {0};
    sluice__strbuf_add(&bytes, s->tail, s->tail_size);
    sluice__strbuf_add(&bytes, s->tok->vocab.arena + t->bytes, t->bytes_size);
    size_t used = 0;
    sluice_status st = bytes.failed ? sluice__no_memory(err, bytes.size, "decoded text")
                                    : add_lossy(text, bytes.data, bytes.size, true, &used, err);
    if (st == SLUICE_OK) {
        s->tail_size = bytes.size - used;
        memcpy(s->tail, bytes.data + used, s->tail_size);
    }
    sluice__strbuf_free(&bytes);
    return st;
}

static sluice_status push_list(sluice_decode_stream *s, bool last, sluice_text *text, sluice_error *err) {
    sluice_text before = {0}, now = {0};
    sluice_status st = decode_list(s->tok, s->ids.data, s->given_ids, s->skip_special, &before, err);
    if (st == SLUICE_OK) st = decode_list(s->tok, s->ids.data, s->ids.count, s->skip_special, &now, err);
    bool whole = now.size < 3 || memcmp(now.data + now.size - 3, "\xEF\xBF\xBD", 3);
    if (st == SLUICE_OK && now.size > before.size && (whole || last)) {
        st = sluice__text_add(text, now.data + before.size, now.size - before.size, err);
        size_t drop = s->given_ids;
        memmove(s->ids.data, s->ids.data + drop, (s->ids.count - drop) * sizeof *s->ids.data);
        s->ids.count -= drop;
        s->given_ids = s->ids.count;
    }
    sluice_text_free(&before);
    sluice_text_free(&now);
    return st;
}

sluice_status sluice_decode_stream_push(sluice_decode_stream *s, int32_t id, sluice_text *text, sluice_error *err) {
    SLUICE__TRY(sluice__text_add(text, "", 0, err));
    if (skipped(s->tok, id, s->skip_special)) return SLUICE_OK;
    if (bytes_only(s->tok)) return push_bytes(s, &s->tok->vocab.tokens[id], text, err);
    SLUICE__TRY(sluice__ids_push(&s->ids, id, err));
    return push_list(s, false, text, err);
}

sluice_status sluice_decode_stream_finish(sluice_decode_stream *s, sluice_text *text, sluice_error *err) {
    sluice_status st =
        bytes_only(s->tok) ? add_lossy(text, s->tail, s->tail_size, false, NULL, err) : push_list(s, true, text, err);
    s->tail_size = s->ids.count = s->given_ids = 0;
    return st;
}
