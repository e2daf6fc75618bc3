/* SPDX-License-Identifier: Apache-2.0 */
/* Checking UTF-8. Text is nearly all ASCII or nearly all valid, so eight ASCII bytes are passed at a time and the rest
 * takes one branch per lead byte. */
#include "model/utf8.h"
#include <string.h>

/* Range of the second byte for a lead byte, and the length; length 0 = no lead byte. */
static int lead(unsigned char c, unsigned char *lo, unsigned char *hi) {
    *lo = 0x80;
    *hi = 0xBF;
    if (c < 0x80) return 1;
    if (c < 0xC2 || c > 0xF4) return 0;
    if (c < 0xE0) return 2;
    if (c == 0xE0) *lo = 0xA0;
    if (c == 0xED) *hi = 0x9F;
    if (c < 0xF0) return 3;
    if (c == 0xF0) *lo = 0x90;
    if (c == 0xF4) *hi = 0x8F;
    return 4;
}

int sluice__utf8_length(const unsigned char *p, const unsigned char *end) {
    unsigned char lo, hi;
    int n = lead(p[0], &lo, &hi);
    if (n <= 1) return n;
    if (end - p < n || p[1] < lo || p[1] > hi) return 0;
    for (int i = 2; i < n; i++)
        if ((p[i] & 0xC0) != 0x80) return 0;
    return n;
}

int sluice__utf8_bad_length(const unsigned char *p, const unsigned char *end, bool *cut) {
    unsigned char lo, hi;
    int n = lead(p[0], &lo, &hi);
    *cut = false;
    if (n == 0) return 1;
    for (int i = 1; i < n; i++) {
        if (p + i == end) {
            *cut = true;
            return i;
        }
        if (p[i] < (i == 1 ? lo : 0x80) || p[i] > (i == 1 ? hi : 0xBF)) return i;
    }
    return n;
}

size_t sluice__utf8_valid_prefix(const char *text, size_t size) {
    const unsigned char *start = (const unsigned char *)text, *p = start, *end = start + size;
    while (p < end) {
        uint64_t eight;
        while (end - p >= 8 && (memcpy(&eight, p, 8), !(eight & 0x8080808080808080ULL))) p += 8;
        if (p == end) break;
        int n = sluice__utf8_length(p, end);
        if (n == 0) break;
        p += n;
    }
    return (size_t)(p - start);
}

size_t sluice__utf8_invalid_prefix(const char *text, size_t size) {
    const unsigned char *start = (const unsigned char *)text, *p = start, *end = start + size;
    while (p < end && sluice__utf8_length(p, end) == 0) p++;
    return (size_t)(p - start);
}

int sluice__utf8_put(char out[4], uint32_t c) {
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    int n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (int i = n - 1; i > 0; i--, c >>= 6) out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)((0xF00 >> n & 0xF0) | c);
    return n;
}
