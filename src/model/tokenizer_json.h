/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the vocabulary and the merges of a tokenizer.json without a JSON tree. */
#ifndef SLUICE_MODEL_TOKENIZER_JSON_H
#define SLUICE_MODEL_TOKENIZER_JSON_H
#include "model/tokenizer_internal.h"

/* Reads the vocabulary and the merges of a tokenizer.json and says where the two values lie (data NULL = absent, or of
 * another type). Checks no more of the other syntax than it needs. */
sluice_status sluice__json_read_model(sluice__vocab *v, const char *json, size_t size, const char *file,
                                      sluice__span *vocab_at, sluice__span *merges_at, sluice_error *err);
#endif
