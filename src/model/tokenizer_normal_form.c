/* SPDX-License-Identifier: Apache-2.0 */
/* Unicode normal forms. utf8proc normalises, but only where it has to: a character is inert in a form when it is its
 * own normal form, has combining class 0 and is never the second part of a composition. Text between inert characters
 * is normalised together with the inert one in front of it; runs of inert characters, which is nearly all text, are
 * copied or not touched at all (the idea of the quick check of UAX 15, section 9, without its MAYBE). */
#include "model/tokenizer_internal.h"
#include "base/memory.h"
#include "model/utf8.h"
#include <stdlib.h>
#include <utf8proc.h>

enum { BMP = 0x10000 };

static int options_of(sluice__norm_kind kind) {
    int options = UTF8PROC_STABLE;
    options |= kind == SLUICE__NORM_NFC || kind == SLUICE__NORM_NFKC ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
    return kind == SLUICE__NORM_NFKC || kind == SLUICE__NORM_NFKD ? options | UTF8PROC_COMPAT : options;
}

static void set(unsigned char *bits, uint32_t from, uint32_t to, bool on) {
    for (uint32_t c = from; c <= to; c++) {
        if (on)
            bits[c >> 3] |= (unsigned char)(1u << (c & 7));
        else
            bits[c >> 3] &= (unsigned char)~(1u << (c & 7));
    }
}

/* Ideographs, Hangul syllables and private use are known; the few thousand other characters are asked for. */
static bool listed(uint32_t c) {
    return c < 0x3400 || (c >= 0xA000 && c < 0xAC00) || c >= 0xF900;
}

sluice_status sluice__inert_new(unsigned char **out, sluice__norm_kind kind, sluice_error *err) {
    unsigned char *bits = sluice__calloc(BMP / 8, 1, SLUICE__MEM_DATA);
    bool compose = kind == SLUICE__NORM_NFC || kind == SLUICE__NORM_NFKC;
    *out = bits;
    if (!bits) return sluice__no_memory(err, BMP / 8, "normalisation");
    set(bits, 0, BMP - 1, true);
    set(bits, 0xD800, 0xDFFF, false);
    if (!compose) set(bits, 0xAC00, 0xD7A3, false); /* syllables decompose */
    int options = UTF8PROC_DECOMPOSE | (kind >= SLUICE__NORM_NFKC ? UTF8PROC_COMPAT : 0);
    for (uint32_t c = 0x80; c < BMP; c++) {
        if (!listed(c)) continue;
        utf8proc_int32_t parts[32];
        int last = 0;
        utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)c, parts, 32, (utf8proc_option_t)options, &last);
        bool itself = n == 1 && parts[0] == (utf8proc_int32_t)c;
        if (utf8proc_get_property((utf8proc_int32_t)c)->combining_class || (!itself && !compose) || n < 1)
            set(bits, c, c, false);
        if (itself || !compose) continue;
        /* With composition: é is inert, as it comes back whole; what follows the first part never is. Anything that
         * does not come back is not. */
        utf8proc_uint8_t text[4], *composed = NULL;
        utf8proc_ssize_t size = utf8proc_encode_char((utf8proc_int32_t)c, text);
        utf8proc_ssize_t m = utf8proc_map(text, size, &composed, (utf8proc_option_t)options_of(kind));
        if (m != size || memcmp(composed, text, (size_t)size)) set(bits, c, c, false);
        free(composed);
        for (utf8proc_ssize_t i = 1; i < n && i < 32; i++)
            if (parts[i] < BMP) set(bits, (uint32_t)parts[i], (uint32_t)parts[i], false);
    }
    if (compose) { /* second and third parts of Hangul syllables */
        set(bits, 0x1161, 0x1175, false);
        set(bits, 0x11A8, 0x11C2, false);
    }
    return SLUICE_OK;
}

/* Pictographs and the ideographs of planes 2 and 3; other characters beyond the BMP take the slow way. */
static bool inert(const unsigned char *bits, uint32_t c) {
    if (c < BMP) return bits[c >> 3] >> (c & 7) & 1;
    return (c >= 0x1F300 && c < 0x1FA70) || (c >= 0x20000 && c < 0x2F800) || (c >= 0x30000 && c < 0x323B0);
}

static const unsigned char *skip_ascii(const unsigned char *p, const unsigned char *end) {
    uint64_t eight;
    while (end - p >= 8 && (memcpy(&eight, p, 8), !(eight & 0x8080808080808080ULL))) p += 8;
    while (p < end && *p < 0x80) p++;
    return p;
}

/* The end of the run of inert characters at p; *last = where its last character begins. */
static const unsigned char *inert_run(const unsigned char *bits, const unsigned char *p, const unsigned char *end,
                                      const unsigned char **last) {
    *last = p;
    while (p < end) {
        const unsigned char *q = skip_ascii(p, end);
        if (q > p) *last = q - 1;
        p = q;
        for (int n; p < end && *p >= 0x80; p += n) {
            if (!inert(bits, sluice__utf8_get(p, &n))) return p;
            *last = p;
        }
    }
    return p;
}

static const unsigned char *other_run(const unsigned char *bits, const unsigned char *p, const unsigned char *end) {
    for (int n; p < end && *p >= 0x80 && !inert(bits, sluice__utf8_get(p, &n)); p += n) {
    }
    return p;
}

sluice_status sluice__normal_form(const unsigned char *bits, sluice__norm_kind kind, sluice__span *text,
                                  sluice__strbuf *out, sluice_error *err) {
    const unsigned char *p = (const unsigned char *)text->data, *end = p + text->size, *done = p, *last;
    out->size = 0;
    for (p = inert_run(bits, p, end, &last); p < end; p = inert_run(bits, p, end, &last)) {
        const unsigned char *stop = other_run(bits, p, end);
        utf8proc_uint8_t *normal = NULL;
        utf8proc_ssize_t n = utf8proc_map(last, stop - last, &normal, (utf8proc_option_t)options_of(kind));
        if (n < 0) return sluice__fail(err, SLUICE_ERR_FORMAT, "normalising text: %s", utf8proc_errmsg(n));
        if (n != stop - last || memcmp(normal, last, (size_t)n)) {
            sluice__strbuf_add(out, done, (size_t)(last - done));
            sluice__strbuf_add(out, normal, (size_t)n);
            done = stop;
        }
        free(normal);
        p = stop;
    }
    if (done == (const unsigned char *)text->data) return SLUICE_OK; /* it is in the form */
    sluice__strbuf_add(out, done, (size_t)(end - done));
    if (out->failed) return sluice__no_memory(err, text->size, "normalised text");
    *text = (sluice__span){out->data, out->size};
    return SLUICE_OK;
}
