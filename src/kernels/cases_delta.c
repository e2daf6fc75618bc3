/* SPDX-License-Identifier: Apache-2.0 */
/* Cases of the kernels of linear attention. tests/kernels/test_delta.c adds sequences of several chunks. */
#include "kernels/cases.h"
#include "kernels/scratch.h"
#include <math.h>

#define FINITE_INPUTS (SLUICE__CASE_LARGE | SLUICE__CASE_TINY)
/* Every token multiplies the state, so rounding of a token meets all later ones; sums of up to a hundred terms. */
#define TOLERANCE_DELTA 4e-6
/* A sum of a few taps, then sigmoid and product; exp gives 0 below the smallest normal float. */
#define TOLERANCE_CONV 2e-6
#define ABSOLUTE_FLUSH 1e-34

typedef const sluice__case_shape shape;
typedef const sluice__kernels table;

/* variant: without history; depth: taps */
static void run_conv(table *k, shape *s, void **op) {
    sluice__conv c = {.rows = s->rows,
                      .channels = s->dim,
                      .y_stride = s->dim,
                      .x_stride = s->dim,
                      .taps = (int)s->depth,
                      .y = op[0],
                      .history = s->variant ? NULL : op[1],
                      .x = op[2],
                      .w = op[3]};
    k->causal_conv_f32(&c, 0, s->dim);
}
const sluice__kernel_case sluice__case_causal_conv_f32 = {
    "nbnb", 2, FINITE_INPUTS, TOLERANCE_CONV, 1, ABSOLUTE_FLUSH, 8, {64, 512, 4, 0}, NULL, run_conv};

static void run_l2(table *k, shape *s, void **op) {
    int64_t stride = 2 * s->dim + 3;
    k->l2_norm_f32(op[0], stride, op[1], stride, s->rows, 2, (int)s->dim, 1e-6f, 0.3f);
}
const sluice__kernel_case sluice__case_l2_norm_f32 = {
    "hh", 1, FINITE_INPUTS, 1e-6, 0, ABSOLUTE_FLUSH, 8, {64, 128, 0, 0}, NULL, run_l2};

/* Keys and queries of length 1 (or 0), decays from 1 to almost nothing, write strengths up to 2. */
static void prepare_delta(shape *s, void **op) {
    float *q = op[2], *k = op[3], *decay = op[5], *beta = op[6];
    sluice_l2_norm_f32_ref(q, s->depth, q, s->depth, s->rows, 1, (int)s->depth, 1e-6f, 1);
    sluice_l2_norm_f32_ref(k, s->depth, k, s->depth, s->rows, 1, (int)s->depth, 1e-6f, 1);
    for (int64_t r = 0; r < s->rows; r++) {
        decay[r] = -fabsf(fmodf(decay[r], 8.0f)) * (r % 3 ? 0.02f : 1.0f);
        beta[r] = fabsf(fmodf(beta[r], 2.0f));
    }
}
static void run_delta(table *k, shape *s, void **op) {
    sluice__delta_head h = {.rows = s->rows,
                            .qk_stride = s->depth,
                            .v_stride = s->dim,
                            .gate_stride = 1,
                            .o_stride = s->dim,
                            .key_dim = (int)s->depth,
                            .value_dim = (int)s->dim,
                            .state = op[1],
                            .o = op[0],
                            .q = op[2],
                            .k = op[3],
                            .v = op[4],
                            .log_decay = op[5],
                            .beta = op[6]};
    h.scratch = sluice__scratch((size_t)sluice__delta_scratch(h.key_dim, h.value_dim));
    if (h.scratch) k->delta_rule_f32(&h);
}
const sluice__kernel_case sluice__case_delta_rule_f32 = {
    "nbaanrr", 1, FINITE_INPUTS, TOLERANCE_DELTA, 1, 0, 0, {512, 128, 128, 0}, prepare_delta, run_delta};
