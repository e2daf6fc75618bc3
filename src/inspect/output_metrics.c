/* SPDX-License-Identifier: Apache-2.0 */
/* Sparsity of the attention output (Qiu et al. section 4.2 and appendix), load of experts, and what
 * int8 would do to the inputs of the matrix products: symmetric rounding to -127..127, scale =
 * largest magnitude / 127. */
#include "inspect/int8.h"
#include "inspect/metrics.h"
#include <math.h>

static const double thresholds[SLUICE__THRESHOLDS] = {1e-2, 1e-3};

static int64_t elements(const sluice__probe_event *e) {
    int64_t n = 1;
    for (int i = 0; i < e->ndim; i++) n *= e->shape[i];
    return n;
}

static double ratio(double a, int64_t b) {
    return b ? a / (double)b : NAN;
}

void sluice__output_add(sluice__layer_metrics *m, const sluice__probe_event *e, bool after) {
    int64_t n = elements(e), below[SLUICE__THRESHOLDS] = {0};
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double v = fabs((double)e->data[i]);
        sum += v;
        below[0] += v < thresholds[0];
        below[1] += v < thresholds[1];
    }
    m->abs_sum[after] += sum;
    m->outputs[after] += n;
    for (int t = 0; t < SLUICE__THRESHOLDS; t++) m->small[after][t] += below[t];
}

void sluice__output_control(sluice__layer_metrics *m, const sluice__probe_event *e) {
    double mean = sluice__gate_mean(&m->gate);
    int64_t n = elements(e);
    for (int64_t i = 0; i < n; i++) {
        double v = fabs((double)e->data[i]) * mean;
        m->small[2][0] += v < thresholds[0];
        m->small[2][1] += v < thresholds[1];
    }
}

sluice_output_sparsity sluice__output_result(const sluice__layer_metrics *m) {
    double share[3][SLUICE__THRESHOLDS];
    for (int kind = 0; kind < 3; kind++)
        for (int t = 0; t < SLUICE__THRESHOLDS; t++)
            share[kind][t] = ratio((double)m->small[kind][t], m->outputs[kind == 1]);
    return (sluice_output_sparsity){ratio(m->abs_sum[0], m->outputs[0]),
                                    ratio(m->abs_sum[1], m->outputs[1]),
                                    share[0][0],
                                    share[1][0],
                                    share[2][0],
                                    share[0][1],
                                    share[1][1],
                                    share[2][1]};
}

/* ---- experts ---- */

void sluice__router_add(sluice__layer_metrics *m, const sluice__probe_event *e) {
    int64_t rows = e->shape[0] * e->shape[1], experts = e->shape[2];
    if (e->point == SLUICE__PROBE_EXPERTS) {
        for (int64_t i = 0; i < experts; i++) m->load[i] += e->data[i];
        return;
    }
    for (int64_t r = 0; r < rows; r++) {
        const float *score = e->data + r * experts;
        double sum = 0; /* 1, but with sigmoid routers */
        for (int64_t i = 0; i < experts; i++) sum += score[i];
        for (int64_t i = 0; i < experts; i++)
            if (score[i] > 0) m->router_entropy -= score[i] / sum * log(score[i] / sum);
    }
    m->routed += rows;
}

void sluice__router_result(const sluice__layer_metrics *m, sluice_router_stats *out) {
    double total = 0;
    out->experts = m->routed ? m->experts : 0;
    out->entropy = out->max_load = NAN;
    if (!out->experts) return;
    for (int e = 0; e < m->experts; e++) total += m->load[e];
    out->max_load = 0;
    for (int e = 0; e < m->experts; e++) {
        out->load[e] = m->load[e] / total;
        out->max_load = fmax(out->max_load, out->load[e] * m->experts);
        out->dead += m->load[e] == 0;
    }
    out->entropy = m->experts > 1 ? m->router_entropy / (double)m->routed / log(m->experts) : 0;
}

/* ---- linear attention ---- */

void sluice__delta_add(sluice__layer_metrics *m, const sluice__probe_event *e) {
    int which = e->point == SLUICE__PROBE_DELTA_BETA;
    int64_t rows = e->shape[0] * e->shape[1], heads = e->shape[2];
    for (int64_t i = 0; i < rows * heads; i++) {
        double v = which ? e->data[i] : exp((double)e->data[i]);
        int bin = (int)fmin(fmax(v / (which ? 2 : 1), 0) * SLUICE_GATE_BINS, SLUICE_GATE_BINS - 1);
        m->delta_sum[which][i % heads] += v;
        m->delta_min[which] = fmin(m->delta_min[which], v);
        m->delta_max[which] = fmax(m->delta_max[which], v);
        m->delta_hist[which][bin]++;
    }
    m->delta_tokens[which] += rows;
}

void sluice__delta_result(const sluice__layer_metrics *m, sluice_delta_stats *out) {
    double sum[2] = {0, 0};
    out->heads = m->delta_tokens[0] ? m->delta_heads : 0;
    for (int h = 0; h < out->heads; h++) {
        out->decay_heads[h] = ratio(m->delta_sum[0][h], m->delta_tokens[0]);
        out->beta_heads[h] = ratio(m->delta_sum[1][h], m->delta_tokens[1]);
        sum[0] += out->decay_heads[h];
        sum[1] += out->beta_heads[h];
    }
    out->decay = ratio(sum[0], out->heads);
    out->beta = ratio(sum[1], out->heads);
    out->decay_min = m->delta_min[0];
    out->decay_max = m->delta_max[0];
    out->beta_min = m->delta_min[1];
    out->beta_max = m->delta_max[1];
    for (int i = 0; i < SLUICE_GATE_BINS; i++) {
        out->decay_hist[i] = m->delta_hist[0][i];
        out->beta_hist[i] = m->delta_hist[1][i];
    }
}

/* ---- inputs of products ---- */

void sluice__input_add(sluice__layer_metrics *m, const sluice__probe_event *e,
                       sluice_product_input which, bool second) {
    int64_t rows = e->shape[0] * e->shape[1], n = elements(e), width = n / rows;
    if (second) {
        m->input_error[which][0] += sluice__int8_error(e->data, n, m->input_max[which]);
        return;
    }
    for (int64_t r = 0; r < rows; r++) {
        const float *x = e->data + r * width;
        float most = sluice__largest_magnitude(x, width);
        m->input_error[which][1] += sluice__int8_error(x, width, most);
        m->input_max[which] = fmaxf(m->input_max[which], most);
        for (int64_t i = 0; i < width; i++) m->input_squares[which] += (double)x[i] * x[i];
    }
}

sluice_int8_error sluice__input_result(const sluice__layer_metrics *m, sluice_product_input which) {
    double whole = m->input_squares[which];
    if (!(whole > 0)) return (sluice_int8_error){NAN, NAN};
    return (sluice_int8_error){sqrt(m->input_error[which][0] / whole),
                               sqrt(m->input_error[which][1] / whole)};
}
