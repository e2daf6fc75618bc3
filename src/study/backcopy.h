/* SPDX-License-Identifier: Apache-2.0 */
/* Synthetic data in which dormant heads can be seen forming: a chain of symbols with the bigram statistics of a text,
 * in which the symbol after a trigger repeats the one before it (Guo et al. 2024, the bigram-backcopy task). */
#ifndef SLUICE_STUDY_BACKCOPY_H
#define SLUICE_STUDY_BACKCOPY_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/error.h"

typedef struct sluice__backcopy {
    int32_t *ids; /* [count]; owned */
    int64_t count;
    int symbols;              /* ids 0..symbols-1; BOS is id `symbols` */
    unsigned char bytes[256]; /* [symbols] the byte of the text behind each id, by falling frequency */
    int triggers[16], num_triggers;
} sluice__backcopy;

/* symbols: 2..255, the most frequent bytes of text (all of them when it has fewer). triggers: bytes of the text, at
 * most 16. The chain is a pure function of text, arguments and seed. */
sluice_status sluice__backcopy_new(sluice__backcopy *out, const char *text, size_t size, int symbols,
                                   const char *triggers, int64_t count, uint64_t seed, sluice_error *err);
void sluice__backcopy_free(sluice__backcopy *b);
#endif
