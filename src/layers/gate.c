/* SPDX-License-Identifier: Apache-2.0 */
/* Row by row: the scores of a token, then every head times (or plus) its score. Backward collects the gradient of the
 * scores of one token on the way and turns it into that of the logits. The sums over tokens of an input-independent gate are
 * taken per thread and added in thread order, so that they are the same bits for the same number of threads. */
#include "layers/gate.h"
#include "base/memory.h"
#include "kernels/kernels.h"
#include "kernels/parallel.h"
#include "kernels/scratch.h"
#include <math.h>
#include <string.h>

enum { CHUNK = 256 }; /* elements whose sigmoid is taken at a time, on the stack */

/* y = act(s), or its derivative when `slope`.   y may alias s. */
static void activate(sluice_gate_act act, bool slope, float *y, const float *s, int64_t count) {
    float g[CHUNK];
    for (int64_t at = 0; at < count; at += CHUNK) {
        int64_t n = count - at < CHUNK ? count - at : CHUNK;
        sluice__kernels_now()->sigmoid_f32(g, s + at, n);
        for (int64_t i = 0; i < n; i++) {
            float x = s[at + i], sigmoid = g[i], value = 0;
            switch (act) {
            case SLUICE_GATE_SIGMOID: value = slope ? sigmoid * (1 - sigmoid) : sigmoid; break;
            case SLUICE_GATE_SILU: value = slope ? sigmoid * (1 + x * (1 - sigmoid)) : x * sigmoid; break;
            case SLUICE_GATE_IDENTITY: value = slope ? 1 : x; break;
            case SLUICE_GATE_NS_SIGMOID: value = slope ? 0.5f * sigmoid * (1 - sigmoid) : 0.5f + 0.5f * sigmoid; break;
            case SLUICE_GATE_SOFTPLUS: value = slope ? sigmoid : fmaxf(x, 0) + log1pf(expf(-fabsf(x))); break;
            }
            y[at + i] = value;
        }
    }
}

int64_t sluice__gate_score_width(const sluice__gate *g) {
    return (g->spec->shared ? 1 : g->heads) * (int64_t)g->width;
}

static int64_t logit_width(const sluice__gate *g) { return (int64_t)g->heads * g->width; }

/* mean [width] of x [heads, width] */
static void mean_of_heads(float *mean, const float *x, int heads, int64_t width) {
    for (int64_t i = 0; i < width; i++) {
        float sum = 0;
        for (int h = 0; h < heads; h++) sum += x[h * width + i];
        mean[i] = sum / (float)heads;
    }
}

/* Number of this thread in a team of `threads`; a team of one may stand inside somebody else's. */
static int thread_of(int threads) { return threads > 1 ? omp_get_thread_num() : 0; }

static sluice_status no_scratch(int64_t count, sluice_error *err) {
    return sluice__no_memory(err, (size_t)count * sizeof(float), "the gradient of a gate");
}

/* The scores of one token. scratch: [n*w] */
static void score_row(const sluice__gate *g, float *score, const float *logits, float *scratch) {
    if (!g->spec->shared) {
        activate(g->spec->act, false, score, logits, logit_width(g));
    } else if (g->spec->share_mean_logit) {
        mean_of_heads(score, logits, g->heads, g->width);
        activate(g->spec->act, false, score, score, g->width);
    } else {
        activate(g->spec->act, false, scratch, logits, logit_width(g));
        mean_of_heads(score, scratch, g->heads, g->width);
    }
}

sluice_status sluice__gate_scores(const sluice__gate *g, float *score, sluice_error *err) {
    int64_t rows = g->spec->input_none ? 1 : g->rows, width = sluice__gate_score_width(g), logits = logit_width(g);
    int threads = sluice__team(rows * logits);
    float *scratch = sluice__scratch((size_t)(threads * logits));
    if (!scratch) return no_scratch(threads * logits, err);
    SLUICE__SPLIT(threads, rows, 1, {
        float *mine = scratch + thread_of(threads) * logits;
        for (int64_t r = range.begin; r < range.end; r++) score_row(g, score + r * width, g->logits + r * g->logits_stride, mine);
    });
    return SLUICE_OK;
}

/* Scores of row r, and of head h in them. */
static const float *score_at(const sluice__gate *g, const float *score, int64_t r) {
    return g->spec->input_none ? score : score + r * sluice__gate_score_width(g);
}

static void apply_row(const sluice__gate *g, float *y, const float *x, const float *score) {
    bool add = g->spec->op == SLUICE_GATE_ADD;
    for (int h = 0; h < g->heads; h++, x += g->dim, y += g->dim) {
        const float *s = g->spec->shared ? score : score + (int64_t)h * g->width;
        if (g->width == 1)
            for (int i = 0; i < g->dim; i++) y[i] = add ? x[i] + s[0] : x[i] * s[0];
        else
            for (int i = 0; i < g->dim; i++) y[i] = add ? x[i] + s[i] : x[i] * s[i];
    }
}

void sluice__gate_forward(const sluice__gate *g, const float *score, float *y, int64_t y_stride, const float *x, int64_t x_stride) {
    SLUICE__SPLIT(sluice__team(g->rows * g->heads * g->dim), g->rows, 1, {
        for (int64_t r = range.begin; r < range.end; r++) apply_row(g, y + r * y_stride, x + r * x_stride, score_at(g, score, r));
    });
}

/* dx, and dscore += the gradient of the scores, of one token. */
static void apply_row_back(const sluice__gate *g, float *dx, float *dscore, const float *dy, const float *x, const float *score) {
    bool add = g->spec->op == SLUICE_GATE_ADD;
    for (int h = 0; h < g->heads; h++, x += g->dim, dx += g->dim, dy += g->dim) {
        int64_t at = g->spec->shared ? 0 : (int64_t)h * g->width;
        int step = g->width == 1 ? 0 : 1;
        for (int i = 0; i < g->dim; i++) {
            float d = dy[i];
            dscore[at + i * step] += add ? d : d * x[i];
            dx[i] = add ? d : d * score[at + i * step];
        }
    }
}

/* dlogits [n*w] of one token from dscore. scratch: [n*w] */
static void logits_row_back(const sluice__gate *g, float *dlogits, const float *dscore, const float *logits, float *scratch) {
    int64_t width = g->width;
    float share = 1 / (float)g->heads;
    if (!g->spec->shared) {
        activate(g->spec->act, true, scratch, logits, logit_width(g));
        for (int64_t i = 0; i < logit_width(g); i++) dlogits[i] = dscore[i] * scratch[i];
    } else if (g->spec->share_mean_logit) {
        mean_of_heads(scratch, logits, g->heads, width);
        activate(g->spec->act, true, scratch, scratch, width);
        for (int h = 0; h < g->heads; h++)
            for (int64_t i = 0; i < width; i++) dlogits[h * width + i] = share * dscore[i] * scratch[i];
    } else {
        activate(g->spec->act, true, scratch, logits, logit_width(g));
        for (int h = 0; h < g->heads; h++)
            for (int64_t i = 0; i < width; i++) dlogits[h * width + i] = share * dscore[i] * scratch[h * width + i];
    }
}

typedef struct backward_args {
    const float *score, *dy, *x;
    float *dx, *dlogits;
    int64_t dx_stride, dlogits_stride, dy_stride, x_stride;
} backward_args;

/* Rows of one thread. scratch: [2 * n*w], its first part zeroed; an input-independent gate leaves its dscore there. */
static void rows_back(const sluice__gate *g, const backward_args *a, sluice__range range, float *scratch) {
    int64_t width = sluice__gate_score_width(g), logits = logit_width(g);
    for (int64_t r = range.begin; r < range.end; r++) {
        apply_row_back(g, a->dx + r * a->dx_stride, scratch, a->dy + r * a->dy_stride, a->x + r * a->x_stride,
                       score_at(g, a->score, r));
        if (g->spec->input_none) continue;
        logits_row_back(g, a->dlogits + r * a->dlogits_stride, scratch, g->logits + r * g->logits_stride, scratch + logits);
        memset(scratch, 0, (size_t)width * sizeof *scratch);
    }
}

sluice_status sluice__gate_backward(const sluice__gate *g, const float *score, float *dx, int64_t dx_stride, float *dlogits,
                                    int64_t dlogits_stride, const float *dy, int64_t dy_stride, const float *x,
                                    int64_t x_stride, sluice_error *err) {
    backward_args a = {score, dy, x, dx, dlogits, dx_stride, dlogits_stride, dy_stride, x_stride};
    int64_t width = sluice__gate_score_width(g), logits = logit_width(g);
    int threads = sluice__team(g->rows * g->heads * g->dim);
    float *scratch = sluice__scratch((size_t)(threads * 2 * logits + logits));
    if (!scratch) return no_scratch(threads * 2 * logits + logits, err);
    memset(scratch, 0, (size_t)(threads * 2 * logits) * sizeof *scratch);
    SLUICE__SPLIT(threads, g->rows, 1, { rows_back(g, &a, range, scratch + thread_of(threads) * 2 * logits); });
    if (!g->spec->input_none) return SLUICE_OK;
    float *last = scratch + threads * 2 * logits;
    for (int t = 1; t < threads; t++)
        for (int64_t i = 0; i < width; i++) scratch[i] += scratch[t * 2 * logits + i];
    logits_row_back(g, last, scratch, g->logits, scratch + logits);
    for (int64_t i = 0; i < logits; i++) dlogits[i] += last[i];
    return SLUICE_OK;
}

void sluice__silu_forward(float *y, const float *x, int64_t count) {
    SLUICE__SPLIT(sluice__team(count), count, 16,
                  activate(SLUICE_GATE_SILU, false, y + range.begin, x + range.begin, range.end - range.begin));
}

void sluice__silu_backward(float *dx, const float *dy, const float *x, int64_t count) {
    SLUICE__SPLIT(sluice__team(count), count, CHUNK, {
        float slope[CHUNK];
        for (int64_t at = range.begin; at < range.end; at += CHUNK) {
            int64_t n = range.end - at < CHUNK ? range.end - at : CHUNK;
            activate(SLUICE_GATE_SILU, true, slope, x + at, n);
            for (int64_t i = 0; i < n; i++) dx[at + i] = dy[at + i] * slope[i];
        }
    });
}
