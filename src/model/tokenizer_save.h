/* SPDX-License-Identifier: Apache-2.0 */
/* Writing the JSON of a byte-level BPE tokenizer. */
#ifndef SLUICE_MODEL_TOKENIZER_SAVE_H
#define SLUICE_MODEL_TOKENIZER_SAVE_H
#include "model/tokenizer_internal.h"

typedef struct sluice__pair {
    uint32_t left, right;
} sluice__pair;

void sluice__json_quote(sluice__strbuf *out, const char *text, size_t size);
/* The first `special` tokens of v are special added tokens. normalizer NULL = none. gpt2: ByteLevel's own pattern,
 * otherwise a Split by `pattern` in front of it. */
void sluice__tokenizer_json(sluice__strbuf *out, const sluice__vocab *v, int special, const char *normalizer,
                            const char *pattern, bool gpt2, const sluice__pair *merges, size_t num_merges);
#endif
