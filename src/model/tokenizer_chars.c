/* SPDX-License-Identifier: Apache-2.0 */
/* Classes of characters: ASCII from a table, the rest from utf8proc's. */
#include "model/tokenizer_internal.h"
#include <utf8proc.h>

#define L SLUICE__CHAR_LETTER
#define N SLUICE__CHAR_NUMBER
#define S SLUICE__CHAR_SPACE
#define R SLUICE__CHAR_NEWLINE
#define P SLUICE__CHAR_PUNCTUATION
const unsigned char sluice__ascii_class[128] = {
    0, 0, 0, 0, 0, 0, 0, 0, 0, S, R, S, S, R, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, /* controls */
    S, P, P, P, 0, P, P, P, P, P, P, 0, P, P, P, P, N, N, N, N, N, N, N, N, N, N, P, P, 0, 0, 0, P, /* ' '..'?' */
    P, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, P, P, P, 0, P, /* '@'..'_' */
    0, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, P, 0, P, 0, 0, /* '`'..DEL */
};

bool sluice__char_is_space(uint32_t c) {
    if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13);
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

sluice__char_class sluice__char_class_of(uint32_t c) {
    if (c < 0x80) return sluice__ascii_class[c];
    if (sluice__char_is_space(c)) return S;
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
        return L;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
        return SLUICE__CHAR_MARK;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        return N;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
        return P;
    default:
        return SLUICE__CHAR_OTHER;
    }
}

/* Alphabetic, marks, decimal digits, connector punctuation, join controls. utf8proc has no property Alphabetic; what
 * it adds to the letters and marks are the letter numbers and the circled and squared Latin letters. */
bool sluice__char_is_word(uint32_t c) {
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    switch (sluice__char_class_of(c)) {
    case SLUICE__CHAR_LETTER:
    case SLUICE__CHAR_MARK:
        return true;
    case SLUICE__CHAR_NUMBER:
        return k != UTF8PROC_CATEGORY_NO;
    case SLUICE__CHAR_PUNCTUATION:
        return k == UTF8PROC_CATEGORY_PC;
    default:
        return c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
               (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
    }
}
