/* SPDX-License-Identifier: Apache-2.0 */
/* The NaN guard: when a loss or a gradient is not finite, find the first tensor that is not, in the order in which
 * a step computes them: weights, activations layer by layer, gradients. */
#ifndef SLUICE_TRAIN_GUARD_H
#define SLUICE_TRAIN_GUARD_H
#include <stddef.h>
#include "layers/transformer.h"

/* Name of the first weight that is not finite with the index of its first bad element, "" when all are finite. */
void sluice__guard_weights(const sluice_model *model, char *out, size_t size);
/* The same for a flat gradient buffer. */
void sluice__guard_gradients(const sluice_model *model, const float *grads, char *out, size_t size);
/* Runs the forward pass again with a probe; "layers.1 attention output, row 3, token 7" or "" when all is finite. */
sluice_status sluice__guard_activations(const sluice_model *model, sluice__workspace *ws, const sluice__input *in,
                                        char *out, size_t size, sluice_error *err);
#endif
