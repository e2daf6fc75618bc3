/* SPDX-License-Identifier: Apache-2.0 */
/* Reference attention: one query at a time, all its scores in one row, every sum in double. It defines what the fast
 * kernels must give, and it is what runs where no vector kernel exists. Memory is O(T) per thread. */
#include "kernels/attention.h"
#include "base/error.h"
#include "base/memory.h"
#include "kernels/gate_act.h"
#include <math.h>
#include <omp.h>
#include <string.h>

static double dot(const float *a, const float *b, int n) {
    double sum = 0.0;
    for (int d = 0; d < n; d++) sum += (double)a[d] * (double)b[d];
    return sum;
}

/* Scores of query (b, h, i) against keys first..last into s[first..last]. */
static void score_row(const sluice__attention_call *c, int b, int h, int i, int first, int last, double *s) {
    const sluice_attention_params *p = &c->p;
    const float *q = sluice__strided_at(&c->q, b, i, h);
    int kv = h / (p->num_heads / p->num_kv_heads);
    for (int j = first; j <= last; j++) {
        s[j] = (double)p->scale * dot(q, sluice__strided_at(&c->k, b, j, kv), p->head_dim);
        if (p->softcap > 0.0f) s[j] = (double)p->softcap * tanh(s[j] / (double)p->softcap);
    }
}

/* s[first..last] becomes the shares; returns the log-sum-exp (sink included), -inf when nothing has weight. NaN stays. */
static double softmax_row(double *s, int first, int last, const float *sink) {
    double top = sink ? (double)*sink : -INFINITY, sum = 0.0;
    for (int j = first; j <= last; j++)
        if (s[j] > top) top = s[j];
    if (top == -INFINITY) top = 0.0;
    for (int j = first; j <= last; j++) sum += s[j] = exp(s[j] - top);
    if (sink) sum += exp((double)*sink - top);
    for (int j = first; j <= last; j++)
        if (sum != 0.0) s[j] /= sum;
    return sum == 0.0 ? -INFINITY : top + log(sum);
}

static double gate_value(const sluice__attention_call *c, const float *gate, int d) {
    float s = gate[c->p.gate_granularity == SLUICE_GATE_HEADWISE ? 0 : d];
    return sluice__gate_act_ref(c->p.gate_act, (double)s);
}

static void write_row(const sluice__attention_call *c, int b, int h, int i, const double *out) {
    const sluice_attention_params *p = &c->p;
    float *y = sluice__strided_at(&c->y, b, i, h);
    const float *gate = p->gated ? sluice__strided_at(&c->gate, b, i, h) : NULL;
    if (c->o.data)
        for (int d = 0; d < p->head_dim; d++) sluice__strided_at(&c->o, b, i, h)[d] = (float)out[d];
    for (int d = 0; d < p->head_dim; d++) {
        double g = gate ? gate_value(c, gate, d) : 1.0;
        y[d] = (float)(gate && p->gate_op == SLUICE_GATE_ADD ? out[d] + g : out[d] * g);
    }
}

static void forward_row(const sluice__attention_call *c, int b, int h, int i, double *s, double *out) {
    const sluice_attention_params *p = &c->p;
    int first, last, kv = h / (p->num_heads / p->num_kv_heads);
    sluice__attention_range(p, b, i, &first, &last);
    score_row(c, b, h, i, first, last, s);
    double lse = softmax_row(s, first, last, p->sinks ? &p->sinks[h] : NULL);
    memset(out, 0, (size_t)p->head_dim * sizeof *out);
    for (int j = first; j <= last; j++) {
        const float *v = sluice__strided_at(&c->v, b, j, kv);
        for (int d = 0; d < p->head_dim; d++) out[d] += s[j] * (double)v[d];
    }
    write_row(c, b, h, i, out);
    int64_t at = ((int64_t)b * p->num_heads + h) * p->q_len + i;
    if (c->lse) c->lse[at] = (float)lse;
    if (c->first_share) c->first_share[at] = first == 0 ? (float)s[0] : 0.0f;
}

sluice_status sluice__attention_forward_ref(const sluice__attention_call *c) {
    const sluice_attention_params *p = &c->p;
    size_t per_thread = (size_t)p->kv_len + (size_t)p->head_dim;
    double *scratch = sluice__calloc(sluice__mul_size((size_t)omp_get_max_threads(), per_thread), sizeof *scratch, SLUICE__MEM_OTHER);
    if (!scratch) return SLUICE_ERR_MEMORY;
    int64_t rows = (int64_t)p->batch * p->num_heads * p->q_len;
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        double *s = scratch + (size_t)omp_get_thread_num() * per_thread;
        int i = (int)(r % p->q_len), h = (int)(r / p->q_len % p->num_heads), b = (int)(r / p->q_len / p->num_heads);
        forward_row(c, b, h, i, s, s + p->kv_len);
    }
    sluice__free(scratch);
    return SLUICE_OK;
}

sluice_status sluice__attention_probs_ref(const sluice__attention_call *c, int batch_row, float *probs) {
    const sluice_attention_params *p = &c->p;
    double *scratch = sluice__calloc(sluice__mul_size((size_t)omp_get_max_threads(), (size_t)p->kv_len), sizeof *scratch,
                                     SLUICE__MEM_OTHER);
    if (!scratch) return SLUICE_ERR_MEMORY;
    int64_t rows = (int64_t)p->num_heads * p->q_len;
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        double *s = scratch + (size_t)omp_get_thread_num() * (size_t)p->kv_len;
        int i = (int)(r % p->q_len), h = (int)(r / p->q_len), first, last;
        sluice__attention_range(p, batch_row, i, &first, &last);
        score_row(c, batch_row, h, i, first, last, s);
        softmax_row(s, first, last, p->sinks ? &p->sinks[h] : NULL);
        for (int j = 0; j < p->kv_len; j++) probs[r * p->kv_len + j] = j < first || j > last ? 0.0f : (float)s[j];
    }
    sluice__free(scratch);
    return SLUICE_OK;
}

/* Scratch of one thread of the backward pass. */
typedef struct backward_scratch {
    double *s;      /* [kv_len] scores, then shares */
    double *dk, *dv; /* [kv_len, head_dim] of one key/value head */
    double *dq, *dout; /* [head_dim] */
} backward_scratch;

static size_t backward_scratch_size(const sluice_attention_params *p) {
    size_t d = (size_t)p->head_dim, t = (size_t)p->kv_len;
    return t + 2 * t * d + 2 * d;
}

static backward_scratch place_backward_scratch(const sluice_attention_params *p, double *at) {
    size_t d = (size_t)p->head_dim, t = (size_t)p->kv_len;
    return (backward_scratch){at, at + t, at + t + t * d, at + t + 2 * t * d, at + t + 2 * t * d + d};
}

/* From dy to the gradient of the ungated output (dout) and of the logits. */
static void gate_row_backward(const sluice__attention_call *c, int b, int h, int i, double *dout) {
    const sluice_attention_params *p = &c->p;
    const float *dy = sluice__strided_at(&c->dy, b, i, h), *o = sluice__strided_at(&c->o, b, i, h);
    for (int d = 0; d < p->head_dim; d++) dout[d] = (double)dy[d];
    if (!p->gated) return;
    const float *gate = sluice__strided_at(&c->gate, b, i, h);
    float *dgate = sluice__strided_at(&c->dgate, b, i, h);
    bool headwise = p->gate_granularity == SLUICE_GATE_HEADWISE, multiply = p->gate_op == SLUICE_GATE_MULTIPLY;
    double total = 0.0;
    for (int d = 0; d < p->head_dim; d++) {
        double logit = (double)gate[headwise ? 0 : d];
        double dact = (double)dy[d] * (multiply ? (double)o[d] : 1.0);
        double dlogit = dact * sluice__gate_slope_ref(p->gate_act, logit);
        if (multiply) dout[d] *= sluice__gate_act_ref(p->gate_act, logit);
        if (headwise) total += dlogit;
        else dgate[d] = (float)dlogit;
    }
    if (headwise) dgate[0] = (float)total;
}

/* One query's part: writes its dq and dgate, adds to dk, dv of its key/value head; returns its part of dsinks[h]. */
static double backward_row(const sluice__attention_call *c, int b, int h, int i, backward_scratch w) {
    const sluice_attention_params *p = &c->p;
    int first, last, dim = p->head_dim, kv = h / (p->num_heads / p->num_kv_heads);
    sluice__attention_range(p, b, i, &first, &last);
    score_row(c, b, h, i, first, last, w.s);
    gate_row_backward(c, b, h, i, w.dout);
    const float *q = sluice__strided_at(&c->q, b, i, h), *o = sluice__strided_at(&c->o, b, i, h);
    double lse = (double)c->lse_saved[((int64_t)b * p->num_heads + h) * p->q_len + i], row_sum = 0.0;
    for (int d = 0; d < dim; d++) row_sum += w.dout[d] * (double)o[d];
    memset(w.dq, 0, (size_t)dim * sizeof *w.dq);
    for (int j = first; j <= last && lse != -INFINITY; j++) {
        const float *k = sluice__strided_at(&c->k, b, j, kv), *v = sluice__strided_at(&c->v, b, j, kv);
        double share = exp(w.s[j] - lse), dshare = 0.0, t = p->softcap > 0.0f ? w.s[j] / (double)p->softcap : 0.0;
        double *dk = w.dk + (int64_t)j * dim, *dv = w.dv + (int64_t)j * dim;
        for (int d = 0; d < dim; d++) dshare += w.dout[d] * (double)v[d];
        double ds = share * (dshare - row_sum) * (1.0 - t * t) * (double)p->scale;
        for (int d = 0; d < dim; d++) {
            w.dq[d] += ds * (double)k[d];
            dk[d] += ds * (double)q[d];
            dv[d] += share * w.dout[d];
        }
    }
    for (int d = 0; d < dim; d++) sluice__strided_at(&c->dq, b, i, h)[d] = (float)w.dq[d];
    return p->sinks && lse != -INFINITY ? -exp((double)p->sinks[h] - lse) * row_sum : 0.0;
}

static void backward_kv_head(const sluice__attention_call *c, int b, int kv, backward_scratch w, double *dsinks) {
    const sluice_attention_params *p = &c->p;
    int group = p->num_heads / p->num_kv_heads, dim = p->head_dim;
    memset(w.dk, 0, (size_t)p->kv_len * (size_t)dim * sizeof *w.dk);
    memset(w.dv, 0, (size_t)p->kv_len * (size_t)dim * sizeof *w.dv);
    for (int h = kv * group; h < (kv + 1) * group; h++)
        for (int i = 0; i < p->q_len; i++) dsinks[(int64_t)b * p->num_heads + h] += backward_row(c, b, h, i, w);
    for (int j = 0; j < p->kv_len; j++)
        for (int d = 0; d < dim; d++) {
            sluice__strided_at(&c->dk, b, j, kv)[d] = (float)w.dk[(int64_t)j * dim + d];
            sluice__strided_at(&c->dv, b, j, kv)[d] = (float)w.dv[(int64_t)j * dim + d];
        }
}

sluice_status sluice__attention_backward_ref(const sluice__attention_call *c) {
    const sluice_attention_params *p = &c->p;
    size_t threads = (size_t)omp_get_max_threads(), per_thread = backward_scratch_size(p);
    size_t sinks = (size_t)p->batch * (size_t)p->num_heads;
    size_t needed = sluice__mul_size(threads, per_thread);
    double *scratch = needed < SIZE_MAX - sinks ? sluice__calloc(needed + sinks, sizeof *scratch, SLUICE__MEM_OTHER) : NULL;
    if (!scratch) return SLUICE_ERR_MEMORY;
    double *dsinks = scratch + needed;
    int64_t units = (int64_t)p->batch * p->num_kv_heads;
#pragma omp parallel for schedule(static)
    for (int64_t u = 0; u < units; u++) {
        double *mine = scratch + (size_t)omp_get_thread_num() * per_thread;
        backward_kv_head(c, (int)(u / p->num_kv_heads), (int)(u % p->num_kv_heads), place_backward_scratch(p, mine), dsinks);
    }
    for (int h = 0; c->dsinks && h < p->num_heads; h++) {
        double sum = 0.0;
        for (int b = 0; b < p->batch; b++) sum += dsinks[(int64_t)b * p->num_heads + h];
        c->dsinks[h] += (float)sum;
    }
    sluice__free(scratch);
    return SLUICE_OK;
}
