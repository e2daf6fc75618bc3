/* SPDX-License-Identifier: Apache-2.0 */
/* Plain SwiGLU has a kernel; the other kinds go through the elementary kernels in pieces that stay in the first cache. */
#include "layers/glu.h"
#include "kernels/kernels.h"
#include "kernels/parallel.h"
#include "kernels/profile.h"
#include <math.h>
#include <string.h>

enum { CHUNK = 256 };

static void clamp_below(float *x, float most, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] = x[i] > most ? most : x[i]; /* NaN stays */
}

static void clamp(float *y, const float *x, float limit, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = x[i] > limit ? limit : x[i] < -limit ? -limit : x[i];
}

/* y = x sigmoid(factor x) */
static void silu(const sluice__kernels *k, float *y, const float *x, float factor, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = factor * x[i];
    k->sigmoid_f32(y, y, n);
    for (int64_t i = 0; i < n; i++) y[i] *= x[i];
}

/* A piece of a row: y [n] from gate and up [n]. */
static void piece(const sluice__kernels *k, float *y, const float *gate, const float *up, int64_t n,
                  sluice_mlp_act act, float limit) {
    float g[CHUNK], u[CHUNK];
    memcpy(g, gate, (size_t)n * sizeof *g);
    if (limit > 0) clamp(u, up, limit, n);
    else memcpy(u, up, (size_t)n * sizeof *u);
    if (act == SLUICE_MLP_GPT_OSS) {
        if (limit > 0) clamp_below(g, limit, n);
        for (int64_t i = 0; i < n; i++) u[i] += 1;
        silu(k, y, g, 1.702f, n);
    } else {
        if (act == SLUICE_MLP_SILU) silu(k, y, g, 1, n);
        else k->gelu_f32(y, g, n, act == SLUICE_MLP_GELU_TANH);
        if (limit > 0) clamp_below(y, limit, n);
    }
    for (int64_t i = 0; i < n; i++) y[i] *= u[i];
}

void sluice__glu_forward(float *y, int64_t y_stride, const float *gate_up, int64_t gate_up_stride, int64_t rows,
                         int64_t width, sluice_mlp_act act, float limit) {
    if (act == SLUICE_MLP_SILU && limit == 0) {
        sluice__swiglu_forward(y, y_stride, gate_up, gate_up_stride, rows, width);
        return;
    }
    const sluice__kernels *k = sluice__kernels_now();
    SLUICE__SPAN_FLOATS("activation forward", 3 * rows * width);
    SLUICE__SPLIT(sluice__team(4 * rows * width), rows, 1, {
        for (int64_t r = range.begin; r < range.end; r++)
            for (int64_t at = 0; at < width; at += CHUNK) {
                const float *gate = gate_up + r * gate_up_stride + at;
                piece(k, y + r * y_stride + at, gate, gate + width, width - at < CHUNK ? width - at : CHUNK, act, limit);
            }
    });
}

void sluice__softcap(float *x, float c, int64_t count) {
    SLUICE__SPAN_FLOATS("softcap", 2 * count);
    const sluice__kernels *k = sluice__kernels_now();
    SLUICE__SPLIT(sluice__team(4 * count), count, 16, {
        float *p = x + range.begin;
        int64_t n = range.end - range.begin;
        for (int64_t i = 0; i < n; i++) p[i] /= c;
        k->tanh_f32(p, p, n);
        for (int64_t i = 0; i < n; i++) p[i] *= c;
    });
}
