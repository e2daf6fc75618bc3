/* SPDX-License-Identifier: Apache-2.0 */
/* A trained model with a configuration that is changed where that can be done without losing its weights: gates that
 * it did not have, another RoPE base, more positions. */
#ifndef SLUICE_TRAIN_ADAPT_H
#define SLUICE_TRAIN_ADAPT_H
#include "sluice/train.h"

/* *out: a copy of `config` with the model options of the JSON text `options` (NULL = none) laid over it. What weights
 * depend on (sizes, norms, experts, ...) must be as it is; a gate may only be added. Refused by name otherwise.
 * positions: max_position_embeddings is raised to this where nothing else follows from it (no scaled RoPE). */
sluice_status sluice__config_adapt(sluice_config *out, const sluice_config *config, const char *options,
                                   int64_t positions, sluice_error *err);
/* Whether training knows how to differentiate and save every part of it; refused with the family's name. */
sluice_status sluice__config_trainable(const sluice_config *config, sluice_error *err);

/* *out: a model with `config`, a result of config_adapt, and the weights of `from`, which is freed in any case. Tensors
 * that `from` lacks (gates) start as gate_start says (SLUICE_GATE_START_*): from fresh random numbers of `seed`, or open:
 * zero, with the matrix that the gated values meet next scaled so that the model computes what it did before. */
sluice_status sluice__model_adapt(sluice_model **out, sluice_model *from, const sluice_config *config, uint64_t seed,
                                  int gate_start, sluice_error *err);
#endif
