/* SPDX-License-Identifier: Apache-2.0 */
/* Scores are what a gate adds to zeros. SiLU goes through the sigmoid kernel in pieces that stay in the first cache. */
#include "layers/gate.h"
#include "kernels/kernels.h"
#include "kernels/parallel.h"
#include "kernels/profile.h"
#include <string.h>

enum { CHUNK = 256 };

int64_t sluice__gate_score_width(const sluice__gating *g) { return (g->shared ? 1 : g->heads) * (int64_t)g->width; }

void sluice__gate_scores(const sluice__gating *g, float *score, float *scratch, const float *logits,
                         int64_t logits_stride) {
    sluice__gating add = *g;
    int64_t width = (int64_t)g->heads * g->width, shared = g->shared ? g->width : width;
    add.op = SLUICE_GATE_ADD;
    add.head_dim = g->width;
    float *all = g->shared ? scratch : score;
    memset(all, 0, (size_t)(g->rows * width) * sizeof *all);
    sluice__gating_forward(&add, all, width, all, width, logits, logits_stride);
    for (int64_t r = 0; g->shared && r < g->rows; r++)
        memcpy(score + r * shared, all + r * width, (size_t)shared * sizeof *score);
}

void sluice__silu_forward(float *y, const float *x, int64_t count) {
    SLUICE__SPAN_FLOATS("activation forward", 2 * count);
    const sluice__kernels *k = sluice__kernels_now();
    SLUICE__SPLIT(sluice__team(count), count, CHUNK, {
        float sigmoid[CHUNK];
        for (int64_t at = range.begin; at < range.end; at += CHUNK) {
            int64_t n = range.end - at < CHUNK ? range.end - at : CHUNK;
            k->sigmoid_f32(sigmoid, x + at, n);
            for (int64_t i = 0; i < n; i++) y[at + i] = x[at + i] * sigmoid[i];
        }
    });
}

void sluice__silu_backward(float *dx, const float *dy, const float *x, int64_t count) {
    SLUICE__SPAN_FLOATS("activation backward", 3 * count);
    const sluice__kernels *k = sluice__kernels_now();
    SLUICE__SPLIT(sluice__team(count), count, CHUNK, {
        float sigmoid[CHUNK];
        for (int64_t at = range.begin; at < range.end; at += CHUNK) {
            int64_t n = range.end - at < CHUNK ? range.end - at : CHUNK;
            k->sigmoid_f32(sigmoid, x + at, n);
            for (int64_t i = 0; i < n; i++) dx[at + i] = dy[at + i] * sigmoid[i] * (1 + x[at + i] * (1 - sigmoid[i]));
        }
    });
}
