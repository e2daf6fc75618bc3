/* SPDX-License-Identifier: Apache-2.0 */
/* Small models with weights on which every term of forward and backward matters, and tokens for them. */
#ifndef SLUICE_TEST_SMALL_MODEL_H
#define SLUICE_TEST_SMALL_MODEL_H
#include "sluice/model.h"
#include "support/test_support.h"

/* A model of our own flat keys: `overrides` is the inside of a JSON object ("\"gate_position\": \"sdpa\"") put on
 * top of a small base: vocabulary 96, D 32, F 48, 2 layers, 4 heads over 2, head_dim 8. Matrices are N(0, 0.9 /
 * sqrt(columns)), the embedding N(0, 0.2), norms 1 + N(0, 0.15), biases and gate parameters N(0, 0.5). */
sluice_model *test_small_model(const char *overrides, uint64_t seed);
/* Of the text of a config.json, with the initialisation of training. */
sluice_model *test_model_of(const char *config, uint64_t seed);
/* Two gated softmax layers behind one layer of linear attention each; vocabulary 64, heads of 32. */
extern const char test_hybrid_config[];
/* ids[i] uniform in 0..vocab-1 */
void test_random_ids(int32_t *ids, int count, int vocab, uint64_t seed);
#endif
