/* SPDX-License-Identifier: Apache-2.0 */
/* Tokenizers of GGUF files: the two files of a Hugging Face directory made of the metadata, and the way back. */
#ifndef SLUICE_MODEL_GGUF_TOKENIZER_H
#define SLUICE_MODEL_GGUF_TOKENIZER_H
#include "model/gguf.h"

/* A key of ours, because GGUF has none: "none", "NFC", "NFD", "NFKC" or "NFKD". */
#define SLUICE__GGUF_NORMALIZER_KEY "sluice.tokenizer.normalizer"

/* Texts of a tokenizer.json and a tokenizer_config.json; freed with sluice__free. */
sluice_status sluice__gguf_tokenizer_json(char **out, size_t *size, const sluice__gguf *g, sluice_error *err);
sluice_status sluice__gguf_tokenizer_config(char **out, size_t *size, const sluice__gguf *g, sluice_error *err);
/* The names in GGUF of a pre-tokenizer that cuts by these patterns, best first, separated by blanks; NULL when it has
 * none. */
const char *sluice__gguf_pre_name(const char *const *patterns, int count, bool ignore_merges);
#endif
