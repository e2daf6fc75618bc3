/* SPDX-License-Identifier: Apache-2.0 */
/* Gates outside attention: reference. One element at a time, everything in double. */
#include "kernels/kernels.h"
#include "kernels/gate_act.h"

/* Score of head h (0 when shared) at component w of one row of logits. */
static double score_at(const sluice__gating *g, const float *logits, int h, int w) {
    if (!g->shared) return sluice__gate_act_ref(g->act, (double)logits[(int64_t)h * g->width + w]);
    double sum = 0.0;
    for (int i = 0; i < g->heads; i++) {
        double s = (double)logits[(int64_t)i * g->width + w];
        sum += g->share_mean_logit ? s : sluice__gate_act_ref(g->act, s);
    }
    return g->share_mean_logit ? sluice__gate_act_ref(g->act, sum / g->heads) : sum / g->heads;
}

void sluice_gate_f32_ref(const sluice__gating *g, float *y, int64_t y_stride, const float *x,
                         int64_t x_stride, const float *logits, int64_t logits_stride,
                         int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++)
        for (int64_t i = 0; i < (int64_t)g->heads * g->head_dim; i++) {
            int h = (int)(i / g->head_dim), w = g->width == 1 ? 0 : (int)(i % g->head_dim);
            double s = score_at(g, g->input_none ? logits : logits + r * logits_stride, h, w),
                   in = x[r * x_stride + i];
            y[r * y_stride + i] = (float)(g->op == SLUICE_GATE_MULTIPLY ? in * s : in + s);
        }
}

/* d loss / d score of head h (of all heads when shared) at component w. */
static double score_gradient(const sluice__gating *g, const float *dy, const float *x, int h,
                             int w) {
    double sum = 0.0;
    for (int i = g->shared ? 0 : h; i < (g->shared ? g->heads : h + 1); i++)
        for (int d = g->width == 1 ? 0 : w; d < (g->width == 1 ? g->head_dim : w + 1); d++) {
            int64_t at = (int64_t)i * g->head_dim + d;
            sum += (double)dy[at] * (g->op == SLUICE_GATE_MULTIPLY ? (double)x[at] : 1.0);
        }
    return sum;
}

/* d score / d logit of head h at component w. */
static double score_slope(const sluice__gating *g, const float *logits, int h, int w) {
    double s = (double)logits[(int64_t)h * g->width + w];
    if (g->shared && g->share_mean_logit) {
        s = 0.0;
        for (int i = 0; i < g->heads; i++)
            s += (double)logits[(int64_t)i * g->width + w] / g->heads;
    }
    return sluice__gate_slope_ref(g->act, s) / (g->shared ? g->heads : 1);
}

static void backward_row(const sluice__gating *g, float *dx, float *dlogits, const float *dy,
                         const float *x, const float *logits) {
    for (int h = 0; h < g->heads; h++)
        for (int w = 0; w < g->width; w++) {
            double grad = score_gradient(g, dy, x, h, w) * score_slope(g, logits, h, w);
            float *to = &dlogits[(int64_t)h * g->width + w];
            *to = (float)(g->input_none ? (double)*to + grad : grad);
        }
    for (int64_t i = 0; i < (int64_t)g->heads * g->head_dim; i++) {
        int h = (int)(i / g->head_dim), w = g->width == 1 ? 0 : (int)(i % g->head_dim);
        dx[i] = (float)(g->op == SLUICE_GATE_MULTIPLY ? (double)dy[i] * score_at(g, logits, h, w)
                                                      : (double)dy[i]);
    }
}

void sluice_gate_backward_f32_ref(const sluice__gating *g, float *dx, int64_t dx_stride,
                                  float *dlogits, int64_t dlogits_stride, const float *dy,
                                  int64_t dy_stride, const float *x, int64_t x_stride,
                                  const float *logits, int64_t logits_stride, int64_t begin,
                                  int64_t end) {
    if (g->input_none) dlogits_stride = logits_stride = 0;
    for (int64_t r = begin; r < end; r++)
        backward_row(g, dx + r * dx_stride, dlogits + r * dlogits_stride, dy + r * dy_stride,
                     x + r * x_stride, logits + r * logits_stride);
}
