/* SPDX-License-Identifier: Apache-2.0 */
/* Reference attention: one query at a time, all its scores in one row, every sum in double. It
 * defines what the fast kernels must give, and it is what runs where no vector kernel exists.
 * Memory is O(T) per thread. */
#include "kernels/attention.h"
#include "base/error.h"
#include "base/memory.h"
#include "kernels/bf16.h"
#include "kernels/gate_act.h"
#include <math.h>
#include <omp.h>
#include <string.h>

static double rounded(float x) { return (double)sluice__bf16_widen(sluice__bf16_round(x)); }

static double dot(const float *a, const float *b, int n) {
    double sum = 0.0;
    for (int d = 0; d < n; d++) sum += (double)a[d] * (double)b[d];
    return sum;
}

/* Scores of query (b, h, i) against keys first..last into s[first..last]. */
static void score_row(const sluice__attention_call *c, int b, int h, int i, int first, int last,
                      double *s) {
    const sluice_attention_params *p = &c->p;
    const float *q = sluice__strided_at(&c->q, b, i, h);
    int kv = h / (p->num_heads / p->num_kv_heads);
    for (int j = first; j <= last; j++) {
        s[j] = (double)p->scale * dot(q, sluice__strided_at(&c->k, b, j, kv), p->head_dim);
        if (p->softcap > 0.0f) s[j] = (double)p->softcap * tanh(s[j] / (double)p->softcap);
    }
}

/* s[first..last] becomes the shares; returns the log-sum-exp (sink included), -inf when nothing has
 * weight. NaN stays. */
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

/* Shares as bf16 products take them: exp(score - largest score) rounded. */
static void round_shares(double *s, int first, int last) {
    double top = 0.0;
    for (int j = first; j <= last; j++)
        if (s[j] > top) top = s[j];
    for (int j = first; j <= last && top > 0.0; j++) s[j] = top * rounded((float)(s[j] / top));
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

static void forward_row(const sluice__attention_call *c, int b, int h, int i, double *s,
                        double *out) {
    const sluice_attention_params *p = &c->p;
    int first, last, kv = h / (p->num_heads / p->num_kv_heads);
    sluice__attention_range(p, b, i, &first, &last);
    score_row(c, b, h, i, first, last, s);
    double lse = softmax_row(s, first, last, p->sinks ? &p->sinks[h] : NULL);
    int64_t at = ((int64_t)b * p->num_heads + h) * p->q_len + i;
    if (c->lse) c->lse[at] = (float)lse;
    if (c->first_share) c->first_share[at] = first == 0 ? (float)s[0] : 0.0f;
    if (p->bf16) round_shares(s, first, last);
    memset(out, 0, (size_t)p->head_dim * sizeof *out);
    for (int j = first; j <= last; j++) {
        const float *v = sluice__strided_at(&c->v, b, j, kv);
        for (int d = 0; d < p->head_dim; d++) out[d] += s[j] * (double)v[d];
    }
    write_row(c, b, h, i, out);
}

void sluice_attention_forward_f32_ref(const sluice__attention_call *c, int b, int h, int begin,
                                      int end, float *scratch) {
    double *s = (double *)(void *)scratch;
    for (int i = begin; i < end; i++) forward_row(c, b, h, i, s, s + c->p.kv_len);
}

/* s: scratch [kv_len], then [head_dim]. */
static void partial_row(const sluice__attention_call *c, int b, int h, int i, int begin, int end,
                        const sluice__attention_part *w, int64_t row, double *s) {
    const sluice_attention_params *p = &c->p;
    int first, last, kv = h / (p->num_heads / p->num_kv_heads);
    double *out = s + p->kv_len, sum = 0.0, top = -INFINITY;
    sluice__attention_range(p, b, i, &first, &last);
    if (first < begin) first = begin;
    if (last >= end) last = end - 1;
    score_row(c, b, h, i, first, last, s);
    for (int j = first; j <= last; j++) top = s[j] <= top ? top : s[j]; /* NaN goes on */
    w->top[row] = (float)top;
    w->score0[row] = first == 0 && last >= 0 ? (float)s[0] : -INFINITY;
    memset(out, 0, (size_t)p->head_dim * sizeof *out);
    for (int j = first; j <= last && top != -INFINITY; j++) {
        const float *v = sluice__strided_at(&c->v, b, j, kv);
        double share = exp(s[j] - (double)w->top[row]);
        sum += share;
        for (int d = 0; d < p->head_dim; d++) out[d] += share * (double)v[d];
    }
    w->sum[row] = (float)sum;
    for (int d = 0; d < p->head_dim; d++) w->out[row * w->stride + d] = (float)out[d];
}

void sluice_attention_partial_f32_ref(const sluice__attention_call *c, int b, int kv, int begin,
                                      int end, const sluice__attention_part *w, float *scratch) {
    int group = c->p.num_heads / c->p.num_kv_heads, count = c->p.q_len;
    for (int r = 0; r < group * count; r++)
        partial_row(c, b, kv * group + r / count, r % count, begin, end, w, r,
                    (double *)(void *)scratch);
}

static void merge_row(const sluice__attention_call *c, int b, int h, int i,
                      const sluice__attention_part *w, int parts, int64_t part_size, int64_t row,
                      double *out) {
    const sluice_attention_params *p = &c->p;
    double top = p->sinks ? (double)p->sinks[h] : -INFINITY, sum = 0.0, score0 = -INFINITY;
    for (int k = 0; k < parts; k++) {
        if (!((double)w->top[row + k * part_size] <= top))
            top = (double)w->top[row + k * part_size];
        if (w->score0[row + k * part_size] != -INFINITY)
            score0 = (double)w->score0[row + k * part_size];
    }
    memset(out, 0, (size_t)p->head_dim * sizeof *out);
    if (top != -INFINITY && p->sinks) sum = exp((double)p->sinks[h] - top);
    for (int k = 0; k < parts && top != -INFINITY; k++) {
        const float *from = w->out + k * part_size + row * w->stride;
        double weight = exp((double)w->top[row + k * part_size] - top);
        sum += weight * (double)w->sum[row + k * part_size];
        for (int d = 0; d < p->head_dim; d++) out[d] += weight * (double)from[d];
    }
    for (int d = 0; d < p->head_dim && sum != 0.0; d++) out[d] /= sum;
    write_row(c, b, h, i, out);
    int64_t at = sluice__attention_row(p, b, h, i);
    if (c->lse) c->lse[at] = (float)(top + log(sum));
    if (c->first_share)
        c->first_share[at] = score0 == -INFINITY ? 0.0f : (float)(exp(score0 - top) / sum);
}

void sluice_attention_merge_f32_ref(const sluice__attention_call *c, int b, int kv,
                                    const sluice__attention_part *w, int parts, int64_t part_size,
                                    float *scratch) {
    int group = c->p.num_heads / c->p.num_kv_heads, count = c->p.q_len;
    for (int r = 0; r < group * count; r++)
        merge_row(c, b, kv * group + r / count, r % count, w, parts, part_size, r,
                  (double *)(void *)scratch);
}

sluice_status sluice__attention_probs(const sluice__attention_call *c, int batch_row,
                                      float *probs) {
    const sluice_attention_params *p = &c->p;
    double *scratch =
        sluice__calloc(sluice__mul_size((size_t)omp_get_max_threads(), (size_t)p->kv_len),
                       sizeof *scratch, SLUICE__MEM_OTHER);
    if (!scratch) return SLUICE_ERR_MEMORY;
    int64_t rows = (int64_t)p->num_heads * p->q_len;
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        double *s = scratch + (size_t)omp_get_thread_num() * (size_t)p->kv_len;
        int i = (int)(r % p->q_len), h = (int)(r / p->q_len), first, last;
        sluice__attention_range(p, batch_row, i, &first, &last);
        score_row(c, batch_row, h, i, first, last, s);
        softmax_row(s, first, last, p->sinks ? &p->sinks[h] : NULL);
        for (int j = 0; j < p->kv_len; j++)
            probs[r * p->kv_len + j] = j < first || j > last ? 0.0f : (float)s[j];
    }
    sluice__free(scratch);
    return SLUICE_OK;
}

/* Writes dgate of one row and the row of dout; returns the sum over d of dout * o. */
static double prepare_row(const sluice__attention_call *c, int b, int h, int i, float *dout) {
    const sluice_attention_params *p = &c->p;
    const float *dy = sluice__strided_at(&c->dy, b, i, h), *o = sluice__strided_at(&c->o, b, i, h);
    const float *gate = p->gated ? sluice__strided_at(&c->gate, b, i, h) : NULL;
    float *dgate = p->gated ? sluice__strided_at(&c->dgate, b, i, h) : NULL;
    bool headwise = p->gate_granularity == SLUICE_GATE_HEADWISE,
         multiply = p->gate_op == SLUICE_GATE_MULTIPLY;
    double row_sum = 0.0, head_sum = 0.0;
    for (int d = 0; d < p->head_dim; d++) {
        double grad = (double)dy[d];
        if (gate) {
            double logit = (double)gate[headwise ? 0 : d];
            double dlogit =
                grad * (multiply ? (double)o[d] : 1.0) * sluice__gate_slope_ref(p->gate_act, logit);
            if (multiply) grad *= sluice__gate_act_ref(p->gate_act, logit);
            if (headwise)
                head_sum += dlogit;
            else
                dgate[d] = (float)dlogit;
        }
        if (p->bf16) grad = rounded((float)grad);
        dout[d] = (float)grad;
        row_sum += grad * (double)o[d];
    }
    if (gate && headwise) dgate[0] = (float)head_sum;
    return row_sum;
}

double sluice_attention_prepare_f32_ref(const sluice__attention_call *c, int b, int h, int begin,
                                        int end, const sluice__attention_work *w) {
    const sluice_attention_params *p = &c->p;
    double dsink = 0.0;
    for (int i = begin; i < end; i++) {
        float *q = w->q + i * w->stride, *dout = w->dout + i * w->stride;
        memset(q, 0, (size_t)w->stride * sizeof *q);
        memset(dout, 0, (size_t)w->stride * sizeof *dout);
        for (int d = 0; d < p->head_dim; d++)
            q[d] = p->scale * sluice__strided_at(&c->q, b, i, h)[d];
        double row_sum = prepare_row(c, b, h, i, dout);
        float lse = c->lse_saved[sluice__attention_row(p, b, h, i)];
        w->row_sum[i] = (float)row_sum;
        w->shift[i] = lse == -INFINITY ? INFINITY : lse;
        if (p->sinks) dsink -= exp((double)p->sinks[h] - (double)w->shift[i]) * row_sum;
    }
    return dsink;
}

/* Adds what key j gets from, and gives to, query (b, h, i): dk, dv [head_dim], and dq. */
static void backward_pair(const sluice__attention_call *c, int b, int h, int i, int j,
                          const sluice__attention_work *w, double *dk, double *dv, float *dq) {
    const sluice_attention_params *p = &c->p;
    int dim = p->head_dim, kv = h / (p->num_heads / p->num_kv_heads);
    const float *k = sluice__strided_at(&c->k, b, j, kv), *v = sluice__strided_at(&c->v, b, j, kv);
    const float *q = w->q + i * w->stride, *dout = w->dout + i * w->stride;
    double s = dot(q, k, dim), slope = 1.0;
    if (p->softcap > 0.0f) {
        double t = tanh(s / (double)p->softcap);
        s = (double)p->softcap * t;
        slope = 1.0 - t * t;
    }
    double share = exp(s - (double)w->shift[i]),
           ds = share * (dot(dout, v, dim) - (double)w->row_sum[i]) * slope;
    if (p->bf16) {
        share = rounded((float)share);
        ds = rounded((float)ds);
    }
    for (int d = 0; d < dim; d++) {
        dq[d] = (float)((double)dq[d] + ds * (double)k[d]);
        dk[d] += ds * (double)q[d];
        dv[d] += share * (double)dout[d];
    }
}

void sluice_attention_backward_f32_ref(const sluice__attention_call *c, int b, int h, int begin,
                                       int end, const sluice__attention_work *w, float *dq,
                                       float *scratch) {
    const sluice_attention_params *p = &c->p;
    int dim = p->head_dim, group = p->num_heads / p->num_kv_heads;
    double *dk = (double *)(void *)scratch, *dv = dk + dim;
    for (int j = begin; j < end; j++) {
        memset(dk, 0, 2 * (size_t)dim * sizeof *dk);
        for (int i = 0; i < p->q_len; i++) {
            int first, last;
            sluice__attention_range(p, b, i, &first, &last);
            if (first <= j && j <= last)
                backward_pair(c, b, h, i, j, w, dk, dv, dq + i * w->stride);
        }
        float *to_k = sluice__strided_at(&c->dk, b, j, h / group),
              *to_v = sluice__strided_at(&c->dv, b, j, h / group);
        for (int d = 0; d < dim; d++) {
            to_k[d] = (float)(dk[d] + (h % group ? (double)to_k[d] : 0.0));
            to_v[d] = (float)(dv[d] + (h % group ? (double)to_v[d] : 0.0));
        }
    }
}

void sluice_attention_finish_f32_ref(const sluice__attention_call *c, int b, int h, int begin,
                                     int end, const float *dq, int parts, int64_t part_size,
                                     int64_t stride) {
    for (int i = begin; i < end; i++)
        for (int d = 0; d < c->p.head_dim; d++) {
            double sum = 0.0;
            for (int part = 0; part < parts; part++)
                sum += (double)dq[part * part_size + i * stride + d];
            sluice__strided_at(&c->dq, b, i, h)[d] = (float)((double)c->p.scale * sum);
        }
}
