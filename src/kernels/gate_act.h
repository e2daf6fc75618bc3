/* SPDX-License-Identifier: Apache-2.0 */
/* The five gate activations and their derivatives in double, safe for every logit: no overflow
 * inside, and the limits at +-inf instead of inf * 0. */
#ifndef SLUICE_KERNELS_GATE_ACT_H
#define SLUICE_KERNELS_GATE_ACT_H
#include <math.h>
#include "sluice/attention.h"

/* exp only ever sees -|s|. */
static inline double sluice__sigmoid_ref(double s) {
    double e = exp(-fabs(s));
    return s >= 0 ? 1.0 / (1.0 + e) : e / (1.0 + e);
}

static inline double sluice__gate_act_ref(sluice_gate_act act, double s) {
    switch (act) {
    case SLUICE_GATE_SIGMOID:
        return sluice__sigmoid_ref(s);
    case SLUICE_GATE_SILU:
        return s == -INFINITY ? 0.0 : s * sluice__sigmoid_ref(s);
    case SLUICE_GATE_IDENTITY:
        return s;
    case SLUICE_GATE_NS_SIGMOID:
        return 0.5 + 0.5 * sluice__sigmoid_ref(s);
    case SLUICE_GATE_SOFTPLUS:
        return (s > 0 ? s : 0.0) + log1p(exp(-fabs(s)));
    }
    return NAN;
}

/* d act / d s */
static inline double sluice__gate_slope_ref(sluice_gate_act act, double s) {
    double g = sluice__sigmoid_ref(s), h = sluice__sigmoid_ref(-s);
    switch (act) {
    case SLUICE_GATE_SIGMOID:
        return g * h;
    case SLUICE_GATE_SILU:
        return isinf(s) ? (double)(s > 0) : g + s * g * h;
    case SLUICE_GATE_IDENTITY:
        return 1.0;
    case SLUICE_GATE_NS_SIGMOID:
        return 0.5 * g * h;
    case SLUICE_GATE_SOFTPLUS:
        return g;
    }
    return NAN;
}
#endif
