/* SPDX-License-Identifier: Apache-2.0 */
/* Normalisers, each from one text buffer into another. */
#include "model/tokenizer_internal.h"
#include "base/memory.h"
#include "model/utf8.h"
#include <utf8proc.h>

typedef const unsigned char *at;

/* Rust's char::to_lowercase: utf8proc's mapping, and the one character whose lower case is two. */
static void lowercase(sluice__span in, sluice__strbuf *out) {
    at p = (at)in.data, end = p + in.size;
    for (int n; p < end; p += n) {
        uint32_t c = sluice__utf8_get(p, &n);
        char buffer[4];
        if (c == 0x130)
            sluice__strbuf_add(out, "i\xCC\x87", 3);
        else
            sluice__strbuf_add(out, buffer,
                               (size_t)sluice__utf8_put(buffer, (uint32_t)utf8proc_tolower((utf8proc_int32_t)c)));
    }
}

static sluice__span strip(sluice__span in, bool left, bool right) {
    at p = (at)in.data, end = p + in.size;
    int n;
    while (left && p < end && sluice__char_is_space(sluice__utf8_get(p, &n))) p += n;
    while (right && p < end) {
        at q = sluice__utf8_back(end);
        if (!sluice__char_is_space(sluice__utf8_get(q, &n))) break;
        end = q;
    }
    return (sluice__span){(const char *)p, (size_t)(end - p)};
}

static sluice_status replace(sluice__encoder *e, const sluice__norm_step *step, sluice__span in, sluice__strbuf *out,
                             sluice_error *err) {
    size_t done = 0, start, end;
    sluice__matches m = sluice__matches_of(&step->pattern, &e->matcher, in);
    for (;;) {
        bool found;
        SLUICE__TRY(sluice__match_next(&m, &found, &start, &end, err));
        if (!found) break;
        sluice__strbuf_add(out, in.data + done, start - done);
        sluice__strbuf_add(out, step->content, step->content_size);
        done = end;
    }
    sluice__strbuf_add(out, in.data + done, in.size - done);
    return SLUICE_OK;
}

static sluice_status step_once(sluice__encoder *e, const sluice__norm_step *step, sluice__span *text,
                               sluice__strbuf *out, sluice_error *err) {
    out->size = 0;
    sluice_status st = SLUICE_OK;
    switch (step->kind) {
    case SLUICE__NORM_NFC:
    case SLUICE__NORM_NFD:
    case SLUICE__NORM_NFKC:
    case SLUICE__NORM_NFKD:
        return sluice__normal_form(step->inert, step->kind, text, out, err);
    case SLUICE__NORM_LOWERCASE:
        lowercase(*text, out);
        break;
    case SLUICE__NORM_STRIP:
        *text = strip(*text, step->left, step->right);
        return SLUICE_OK;
    case SLUICE__NORM_REPLACE:
        st = replace(e, step, *text, out, err);
        break;
    case SLUICE__NORM_PREPEND:
        if (!text->size) return SLUICE_OK;
        sluice__strbuf_add(out, step->content, step->content_size);
        sluice__strbuf_add(out, text->data, text->size);
        break;
    }
    if (st == SLUICE_OK && out->failed) st = sluice__no_memory(err, text->size, "normalised text");
    *text = (sluice__span){out->data ? out->data : "", out->size};
    return st;
}

sluice_status sluice__normalize(sluice__encoder *e, const char *text, size_t size, sluice__span *out,
                                sluice_error *err) {
    *out = (sluice__span){text, size};
    int side = 0;
    for (int i = 0; i < e->tok->num_norm; i++) {
        const char *before = out->data;
        SLUICE__TRY(step_once(e, &e->tok->norm[i], out, &e->norm[side], err));
        if (out->data != before && out->data == e->norm[side].data) side = !side;
    }
    return SLUICE_OK;
}
