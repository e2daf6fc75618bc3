/* SPDX-License-Identifier: Apache-2.0 */
/* Gates outside attention: body for one tile_<isa>.h. A row goes one of four ways, after whether
 * heads share a score and whether a score covers one component or the head; in each the scores live
 * in registers. */
#include "kernels/kernels.h"
#include "kernels/simd/tile_math.h"

VEC_INLINE vec apply(const sluice__gating *g, vec x, vec score) {
    return g->op == SLUICE_GATE_MULTIPLY ? vec_mul(x, score) : vec_add(x, score);
}

VEC_INLINE int piece(int64_t left) {
    return left < VEC ? (int)left : VEC;
}

/* n elements under one score. */
VEC_INLINE void apply_scalar(const sluice__gating *g, float *y, const float *x, float score,
                             int64_t n) {
    for (int64_t i = 0; i < n; i += VEC)
        vec_store_n(y + i, apply(g, vec_load_n(x + i, piece(n - i)), vec_set(score)), piece(n - i));
}

/* Mean score of components w.. of all heads. */
static vec shared_scores(const sluice__gating *g, const float *logits, int64_t w, int n) {
    vec sum = vec_zero(), mean = vec_set(1.0f / (float)g->heads);
    for (int h = 0; h < g->heads; h++) {
        vec s = vec_load_n(logits + (int64_t)h * g->width + w, n);
        sum = vec_add(sum, g->share_mean_logit ? s : gate_act(g->act, s));
    }
    sum = vec_mul(sum, mean);
    return g->share_mean_logit ? gate_act(g->act, sum) : sum;
}

static float mean_logit(const sluice__gating *g, const float *logits) {
    vec sum = vec_zero();
    for (int h = 0; h < g->heads; h += VEC)
        sum = vec_add(sum, vec_load_n(logits + h, piece(g->heads - h)));
    return vec_sum(sum) / (float)g->heads;
}

/* The one score of a row when heads share it and it covers the head. */
static float shared_score(const sluice__gating *g, const float *logits) {
    float first[VEC], sum = 0.0f;
    if (g->share_mean_logit) {
        vec_store(first, gate_act(g->act, vec_set(mean_logit(g, logits))));
        return first[0];
    }
    for (int h = 0; h < g->heads; h += VEC) {
        int n = piece(g->heads - h);
        vec_store(first, gate_act(g->act, vec_load_n(logits + h, n)));
        for (int i = 0; i < n; i++) sum += first[i];
    }
    return sum / (float)g->heads;
}

static void flat_row(const sluice__gating *g, float *y, const float *x, const float *logits) {
    int64_t count = (int64_t)g->heads * g->head_dim;
    for (int64_t i = 0; i < count; i += VEC) {
        int n = piece(count - i);
        vec_store_n(y + i,
                    apply(g, vec_load_n(x + i, n), gate_act(g->act, vec_load_n(logits + i, n))), n);
    }
}

static void head_row(const sluice__gating *g, float *y, const float *x, const float *logits) {
    for (int first = 0; first < g->heads; first += VEC) {
        int n = piece(g->heads - first);
        float score[VEC];
        vec_store(score, gate_act(g->act, vec_load_n(logits + first, n)));
        for (int i = 0; i < n; i++) {
            int64_t at = (int64_t)(first + i) * g->head_dim;
            apply_scalar(g, y + at, x + at, score[i], g->head_dim);
        }
    }
}

static void shared_row(const sluice__gating *g, float *y, const float *x, const float *logits) {
    for (int64_t w = 0; w < g->width; w += VEC) {
        int n = piece(g->width - w);
        vec score = shared_scores(g, logits, w, n);
        for (int h = 0; h < g->heads; h++) {
            int64_t at = (int64_t)h * g->head_dim + w;
            vec_store_n(y + at, apply(g, vec_load_n(x + at, n), score), n);
        }
    }
}

void VEC_KERNEL(gate_f32)(const sluice__gating *g, float *y, int64_t y_stride, const float *x,
                          int64_t x_stride, const float *logits, int64_t logits_stride,
                          int64_t begin, int64_t end) {
    bool whole = g->width == 1 && g->head_dim > 1;
    if (g->input_none) logits_stride = 0;
    for (int64_t r = begin; r < end; r++) {
        float *to = y + r * y_stride;
        const float *from = x + r * x_stride, *s = logits + r * logits_stride;
        if (g->shared && whole)
            apply_scalar(g, to, from, shared_score(g, s), (int64_t)g->heads * g->head_dim);
        else if (g->shared)
            shared_row(g, to, from, s);
        else if (whole)
            head_row(g, to, from, s);
        else
            flat_row(g, to, from, s);
    }
}

/* One row of the backward pass. */
typedef struct gate_row {
    float *dx, *dlogits;
    const float *dy, *x, *logits;
} gate_row;

/* n logits' gradients from `at` on: written, or added when the logits are a weight. */
VEC_INLINE void put_logits(const sluice__gating *g, float *at, vec grad, int n) {
    vec_store_n(at, g->input_none ? vec_add(vec_load_n(at, n), grad) : grad, n);
}

/* Writes dx of n elements and returns d loss / d score of each. */
VEC_INLINE vec score_step(const sluice__gating *g, const gate_row *r, int64_t at, int n,
                          vec score) {
    vec dy = vec_load_n(r->dy + at, n);
    bool multiply = g->op == SLUICE_GATE_MULTIPLY;
    vec grad = multiply ? vec_mul(dy, vec_load_n(r->x + at, n)) : dy;
    vec_store_n(r->dx + at, multiply ? vec_mul(dy, score) : dy, n);
    return grad;
}

static float score_sum(const sluice__gating *g, const gate_row *r, int64_t at, int64_t count,
                       float score) {
    vec sum[2] = {vec_zero(), vec_zero()}, s = vec_set(score);
    int64_t i = 0;
    for (; i + 2 * VEC <= count; i += 2 * VEC) {
        sum[0] = vec_add(sum[0], score_step(g, r, at + i, VEC, s));
        sum[1] = vec_add(sum[1], score_step(g, r, at + i + VEC, VEC, s));
    }
    for (; i < count; i += VEC)
        sum[0] = vec_add(sum[0], score_step(g, r, at + i, piece(count - i), s));
    return vec_sum(vec_add(sum[0], sum[1]));
}

static void flat_row_backward(const sluice__gating *g, const gate_row *r) {
    int64_t count = (int64_t)g->heads * g->head_dim;
    for (int64_t i = 0; i < count; i += VEC) {
        int n = piece(count - i);
        vec slope, score = gate_act_slope(g->act, vec_load_n(r->logits + i, n), &slope);
        vec grad = score_step(g, r, i, n, score);
        put_logits(g, r->dlogits + i, vec_mul(grad, slope), n);
    }
}

static void head_row_backward(const sluice__gating *g, const gate_row *r) {
    for (int first = 0; first < g->heads; first += VEC) {
        int n = piece(g->heads - first);
        float score[VEC], sum[VEC] = {0};
        vec slope, s = gate_act_slope(g->act, vec_load_n(r->logits + first, n), &slope);
        vec_store(score, s);
        for (int i = 0; i < n; i++)
            sum[i] = score_sum(g, r, (int64_t)(first + i) * g->head_dim, g->head_dim, score[i]);
        put_logits(g, r->dlogits + first, vec_mul(vec_load(sum), slope), n);
    }
}

/* Gradients of logits of heads that share a score whose gradient is `grad`: n of them at `at`.
 * `mean`: the mean logit. */
VEC_INLINE void shared_logits(const sluice__gating *g, const gate_row *r, int64_t at, int n,
                              vec grad, vec mean) {
    vec slope;
    gate_act_slope(g->act, g->share_mean_logit ? mean : vec_load_n(r->logits + at, n), &slope);
    put_logits(g, r->dlogits + at, vec_mul(vec_mul(grad, slope), vec_set(1.0f / (float)g->heads)),
               n);
}

static void shared_row_backward(const sluice__gating *g, const gate_row *r) {
    for (int64_t w = 0; w < g->width; w += VEC) {
        int n = piece(g->width - w);
        vec score = shared_scores(g, r->logits, w, n), grad = vec_zero(), mean = vec_zero();
        for (int h = 0; h < g->heads; h++) {
            grad = vec_add(grad, score_step(g, r, (int64_t)h * g->head_dim + w, n, score));
            mean = vec_add(mean, vec_load_n(r->logits + (int64_t)h * g->width + w, n));
        }
        mean = vec_mul(mean, vec_set(1.0f / (float)g->heads));
        for (int h = 0; h < g->heads; h++)
            shared_logits(g, r, (int64_t)h * g->width + w, n, grad, mean);
    }
}

static void shared_head_row_backward(const sluice__gating *g, const gate_row *r) {
    float grad = score_sum(g, r, 0, (int64_t)g->heads * g->head_dim, shared_score(g, r->logits));
    float mean = mean_logit(g, r->logits);
    for (int h = 0; h < g->heads; h += VEC)
        shared_logits(g, r, h, piece(g->heads - h), vec_set(grad), vec_set(mean));
}

void VEC_KERNEL(gate_backward_f32)(const sluice__gating *g, float *dx, int64_t dx_stride,
                                   float *dlogits, int64_t dlogits_stride, const float *dy,
                                   int64_t dy_stride, const float *x, int64_t x_stride,
                                   const float *logits, int64_t logits_stride, int64_t begin,
                                   int64_t end) {
    bool whole = g->width == 1 && g->head_dim > 1;
    if (g->input_none) dlogits_stride = logits_stride = 0;
    for (int64_t i = begin; i < end; i++) {
        gate_row r = {dx + i * dx_stride, dlogits + i * dlogits_stride, dy + i * dy_stride,
                      x + i * x_stride, logits + i * logits_stride};
        if (g->shared && whole)
            shared_head_row_backward(g, &r);
        else if (g->shared)
            shared_row_backward(g, &r);
        else if (whole)
            head_row_backward(g, &r);
        else
            flat_row_backward(g, &r);
    }
}
