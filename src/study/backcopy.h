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

/* Settings; see docs/study.md. */
typedef struct sluice__backcopy_params {
    int symbols;             /* 2..255: the most frequent bytes of the text (all of them when it has fewer) */
    const char *triggers;    /* bytes of the text, 1..16 */
    int64_t count;           /* tokens in all */
    int64_t document_tokens; /* the chain begins anew behind so many; 0 = never */
    uint64_t seed;
} sluice__backcopy_params;

/* The chain is a pure function of text and settings. */
sluice_status sluice__backcopy_new(sluice__backcopy *out, const char *text, size_t size,
                                   const sluice__backcopy_params *params, sluice_error *err);
void sluice__backcopy_free(sluice__backcopy *b);
#endif
