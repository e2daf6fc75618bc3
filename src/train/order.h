/* SPDX-License-Identifier: Apache-2.0 */
/* The order of training windows: a keyed permutation of 0..n-1 that can be evaluated at any index without state, so
 * that a resumed run, another split into micro-batches or another arm of a study sees the same windows. */
#ifndef SLUICE_TRAIN_ORDER_H
#define SLUICE_TRAIN_ORDER_H
#include <stdint.h>

/* Image of i under the permutation of 0..n-1 that (seed, key) names; 0 <= i < n. */
int64_t sluice__permute(int64_t i, int64_t n, uint64_t seed, uint64_t key);
/* Draw number i of a uniform distribution on 0..n-1, n > 0. */
int64_t sluice__draw_below(int64_t i, int64_t n, uint64_t seed, uint64_t key);
/* Draw number i of a uniform distribution on [0, 1). */
double sluice__draw_uniform(int64_t i, uint64_t seed, uint64_t key);
#endif
