/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the vocabulary and the merges of a tokenizer.json without a JSON tree. */
#ifndef SLUICE_MODEL_TOKENIZER_JSON_H
#define SLUICE_MODEL_TOKENIZER_JSON_H
#include "model/tokenizer_internal.h"

/* Where the values of model.vocab and model.merges lie (data NULL = absent). Checks no more syntax than it needs. */
sluice_status sluice__json_find_model(const char *json, size_t size, const char *file, sluice__span *vocab, sluice__span *merges,
                                      sluice_error *err);
/* {"token": id, ...} */
sluice_status sluice__json_read_vocab(sluice__vocab *v, sluice__span in, const char *file, sluice_error *err);
/* ["a b", ...] or [["a", "b"], ...] */
sluice_status sluice__json_read_merges(sluice__vocab *v, sluice__span in, const char *file, sluice_error *err);
#endif
