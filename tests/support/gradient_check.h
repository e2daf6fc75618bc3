/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of a whole model against differences of its loss. */
#ifndef SLUICE_TEST_GRADIENT_CHECK_H
#define SLUICE_TEST_GRADIENT_CHECK_H
#include "layers/transformer.h"
#include "support/small_model.h"

/* Mean loss, and grads += its gradient unless NULL. Router losses belong to it; router: may be NULL. */
double test_objective(const sluice_model *model, sluice__workspace *ws, const sluice__input *in, sluice__router *router,
                      int scored, float *grads);
/* The same without gradients, with a router of its own. */
double test_loss_of(const sluice_model *model, sluice__workspace *ws, const sluice__input *in);
int test_count_scored(const sluice__input *in);
double test_norm_of(const float *x, int64_t n);
/* Relative difference between `grad` (of tensor t) and the slope of the loss along one direction. */
double test_gradient_error(sluice_model *model, sluice__workspace *ws, const sluice__input *in, sluice_tensor_info t,
                           const float *grad, double step, uint64_t seed);
#endif
