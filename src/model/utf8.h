/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8 as Unicode's table 3-7 defines it: no surrogates, no overlong forms, nothing above U+10FFFF. */
#ifndef SLUICE_MODEL_UTF8_H
#define SLUICE_MODEL_UTF8_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length of the well-formed character at p (1..4), or 0. end > p. */
int sluice__utf8_length(const unsigned char *p, const unsigned char *end);
/* Length of the maximal ill-formed part at p, where no well-formed character begins: the longest prefix of a
 * well-formed sequence, at least 1 (Unicode 3.9, "U+FFFD substitution of maximal subparts"). *cut is set when it only
 * lacks the bytes behind `end`. */
int sluice__utf8_bad_length(const unsigned char *p, const unsigned char *end, bool *cut);
/* Number of leading bytes that are well-formed. */
size_t sluice__utf8_valid_prefix(const char *text, size_t size);
/* Number of leading bytes at which no well-formed character begins. */
size_t sluice__utf8_invalid_prefix(const char *text, size_t size);
int sluice__utf8_put(char out[4], uint32_t c); /* bytes written */

/* The character at p in well-formed text; *length its bytes. */
static inline uint32_t sluice__utf8_get(const unsigned char *p, int *length) {
    if (p[0] < 0x80) {
        *length = 1;
        return p[0];
    }
    if (p[0] < 0xE0) {
        *length = 2;
        return (uint32_t)(p[0] & 0x1F) << 6 | (p[1] & 0x3F);
    }
    if (p[0] < 0xF0) {
        *length = 3;
        return (uint32_t)(p[0] & 0x0F) << 12 | (uint32_t)(p[1] & 0x3F) << 6 | (p[2] & 0x3F);
    }
    *length = 4;
    return (uint32_t)(p[0] & 0x07) << 18 | (uint32_t)(p[1] & 0x3F) << 12 | (uint32_t)(p[2] & 0x3F) << 6 | (p[3] & 0x3F);
}

/* Start of the character that ends before p in well-formed text. */
static inline const unsigned char *sluice__utf8_back(const unsigned char *p) {
    do p--;
    while ((*p & 0xC0) == 0x80);
    return p;
}
#endif
