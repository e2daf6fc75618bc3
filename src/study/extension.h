/* SPDX-License-Identifier: Apache-2.0 */
/* The section "extension" of a recipe, and the stage of a run that it asks for. */
#ifndef SLUICE_STUDY_EXTENSION_H
#define SLUICE_STUDY_EXTENSION_H
#include "base/json.h"
#include "study/recipe.h"

/* Refuses unknown keys; those of `training` are judged by `is_training_key`. */
sluice_status sluice__extension_check(const sluice__json *root, bool (*is_training_key)(const char *),
                                      sluice_error *err);
/* Puts the section with its defaults into a complete recipe; `given` NULL or null: no such section. */
void sluice__extension_complete(json_t *recipe, const json_t *given);
sluice_status sluice__extension_read(sluice__extension *out, const sluice__json *root, sluice_error *err);

/* `lengths` of an object: rising multiples, each of the one before (recipe.c). */
sluice_status sluice__read_lengths(int64_t *lengths, int *num_lengths, const sluice__json *at, sluice_error *err);
#endif
