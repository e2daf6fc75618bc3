/* SPDX-License-Identifier: Apache-2.0 */
/* Windows that perplexity scores. */
#ifndef SLUICE_EVAL_PERPLEXITY_H
#define SLUICE_EVAL_PERPLEXITY_H
#include <stdbool.h>
#include "base/error.h"
#include "sluice/eval.h"

/* Inputs are ids[begin .. begin + length); tokens from score_from to score_to - 1 (indices of the text) are scored,
 * each predicted from ids[begin .. t). */
typedef struct sluice__window {
    int64_t begin, length, score_from, score_to;
} sluice__window;

/* Moves *w to the window behind it, or to the first one; false when the text is done. */
bool sluice__next_window(sluice__window *w, bool first, int64_t count, int64_t context, int64_t stride);

/* ce, ppl and bits per byte from the sums already in *p. */
void sluice__perplexity_finish(sluice_perplexity *p);
#endif
