/* SPDX-License-Identifier: Apache-2.0 */
/* For each tensor the loss is followed along directions that are half the gradient, half random: the first keeps the
 * derivative well above the rounding of fp32, the second sees every component. Four points give an error of fourth order in
 * the step. */
#include "support/gradient_check.h"
#include "base/rng.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

double test_objective(const sluice_model *model, sluice__workspace *ws, const sluice__input *in,
                        sluice__router *router, int scored, float *grads) {
    sluice__loss loss;
    sluice_error err = {0};
    if (router) sluice__router_reset(router, SLUICE__BALANCE_GLOBAL, (int64_t)in->batch * in->seq_len);
    assert_ok_err(
        sluice__loss_and_grads_routed(model, ws, in, NULL, grads ? 1.0 / scored : 0, router, grads, &loss, &err),
        &err);
    assert_int_equal(loss.scored, scored);
    return loss.nll_sum / scored + (router ? sluice__router_objective(router) : 0);
}

int test_count_scored(const sluice__input *in) {
    int scored = 0;
    for (int i = 0; i < in->batch * in->seq_len; i++) scored += in->labels[i] >= 0;
    return scored;
}

double test_loss_of(const sluice_model *model, sluice__workspace *ws, const sluice__input *in) {
    sluice__router *router;
    assert_ok(sluice__router_new(&router, sluice_model_config(model), NULL));
    double loss = test_objective(model, ws, in, router, test_count_scored(in), NULL);
    sluice__router_free(router);
    return loss;
}

double test_norm_of(const float *x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * x[i];
    return sqrt(sum);
}

/* Loss with the tensor moved by h * direction. */
static double moved(sluice_model *model, sluice__workspace *ws, const sluice__input *in, sluice_tensor_info t,
                    const float *start, const float *direction, double h) {
    for (int64_t i = 0; i < t.count; i++) t.data[i] = (float)(start[i] + h * direction[i]);
    return test_loss_of(model, ws, in);
}

double test_gradient_error(sluice_model *model, sluice__workspace *ws, const sluice__input *in, sluice_tensor_info t,
                              const float *grad, double step, uint64_t seed) {
    float *start = malloc((size_t)t.count * sizeof *start), *direction = malloc((size_t)t.count * sizeof *direction);
    memcpy(start, t.data, (size_t)t.count * sizeof *start);
    sluice__rng_fill_normal(direction, t.count, seed, 5, 0, 0.0f, 1.0f);
    double g = test_norm_of(grad, t.count), r = test_norm_of(direction, t.count), expected = 0;
    for (int64_t i = 0; i < t.count; i++) {
        direction[i] = (float)(grad[i] / g + direction[i] / r);
        expected += (double)grad[i] * direction[i];
    }
    double d1 = moved(model, ws, in, t, start, direction, step) - moved(model, ws, in, t, start, direction, -step);
    double d2 =
        moved(model, ws, in, t, start, direction, 2 * step) - moved(model, ws, in, t, start, direction, -2 * step);
    double found = (8 * d1 - d2) / (12 * step);
    memcpy(t.data, start, (size_t)t.count * sizeof *start);
    free(start);
    free(direction);
    return fabs(found - expected) / g;
}
