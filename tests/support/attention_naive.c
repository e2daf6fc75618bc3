/* SPDX-License-Identifier: Apache-2.0 */
/* The formulas of sluice/attention.h, one loop a formula. Nothing here is taken from src/. */
#include "support/attention_naive.h"
#include "base/rng.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 67 };
static const float guard_value = -7777.125f;

naive_tensor naive_tensor_make(naive_layout layout, int64_t batch, int64_t tokens, int64_t heads,
                               int64_t width) {
    naive_tensor t = {.batch = batch, .tokens = tokens, .heads = heads, .width = width};
    int64_t gap = layout == NAIVE_DENSE ? 0 : 3;
    if (layout == NAIVE_HEAD_MAJOR) {
        t.at.stride_token = width + gap;
        t.at.stride_head = tokens * t.at.stride_token + gap;
        t.at.stride_batch = heads * t.at.stride_head + gap;
    } else {
        t.at.stride_head = width + gap;
        t.at.stride_token = heads * t.at.stride_head + gap;
        if (layout == NAIVE_FAR) t.at.stride_token = (t.at.stride_token + 1023) / 1024 * 1024;
        t.at.stride_batch = tokens * t.at.stride_token + gap;
    }
    t.floats = batch * t.at.stride_batch + 2 * GUARD;
    t.memory = malloc((size_t)t.floats * sizeof *t.memory);
    if (!t.memory) abort();
    for (int64_t i = 0; i < t.floats; i++) t.memory[i] = guard_value;
    t.at.data = t.memory + GUARD;
    t.view = t.at;
    if (layout == NAIVE_DENSE) t.view.stride_batch = t.view.stride_token = t.view.stride_head = 0;
    return t;
}

void naive_tensor_free(naive_tensor *t) {
    free(t->memory);
    memset(t, 0, sizeof *t);
}

float *naive_tensor_at(const naive_tensor *t, int64_t b, int64_t i, int64_t h) {
    return t->at.data + b * t->at.stride_batch + i * t->at.stride_token + h * t->at.stride_head;
}

int64_t naive_tensor_count(const naive_tensor *t) {
    return t->batch * t->tokens * t->heads * t->width;
}

/* Calls `body` with `x` = the address of dense element `n`. */
#define EACH_ELEMENT(t, body)                                                                      \
    do {                                                                                           \
        int64_t n = 0;                                                                             \
        for (int64_t b = 0; b < (t)->batch; b++)                                                   \
            for (int64_t i = 0; i < (t)->tokens; i++)                                              \
                for (int64_t h = 0; h < (t)->heads; h++)                                           \
                    for (int64_t w = 0; w < (t)->width; w++, n++) {                                \
                        float *x = naive_tensor_at(t, b, i, h) + w;                                \
                        body;                                                                      \
                    }                                                                              \
    } while (0)

void naive_tensor_fill(naive_tensor *t, uint64_t stream, float sd) {
    EACH_ELEMENT(t, sluice__rng_fill_normal(x, 1, 2505, stream, n, 0, sd));
}

bool naive_tensor_guarded(const naive_tensor *t) {
    bool *inside = calloc((size_t)t->floats, sizeof *inside), whole = true;
    if (!inside) abort();
    EACH_ELEMENT(t, ((void)n, inside[x - t->memory] = true));
    for (int64_t i = 0; i < t->floats; i++)
        whole = whole && (inside[i] || t->memory[i] == guard_value);
    free(inside);
    return whole;
}

void naive_tensor_read(const naive_tensor *t, double *dense) {
    EACH_ELEMENT(t, dense[n] = (double)*x);
}

double naive_tensor_error(const naive_tensor *t, const double *dense) {
    double worst = 0;
    EACH_ELEMENT(t, {
        double error = fabs((double)*x - dense[n]);
        if (!(error <= worst)) worst = isnan(error) ? INFINITY : error;
    });
    return worst;
}

double naive_tensor_rms_error(const naive_tensor *t, const double *dense) {
    double error = 0, size = 0;
    EACH_ELEMENT(t, {
        error += ((double)*x - dense[n]) * ((double)*x - dense[n]);
        size += dense[n] * dense[n];
    });
    return sqrt(error / size);
}

double naive_largest(const double *x, int64_t count) {
    double most = 0;
    for (int64_t i = 0; i < count; i++) most = fmax(most, fabs(x[i]));
    return most;
}

static int gate_width(const sluice_attention_params *p) {
    return p->gate_granularity == SLUICE_GATE_HEADWISE ? 1 : p->head_dim;
}

static double *doubles(int64_t count) {
    double *x = calloc((size_t)count, sizeof *x);
    if (!x) abort();
    return x;
}

naive_call naive_call_make(const sluice_attention_params *p) {
    int64_t rows = (int64_t)p->batch * p->q_len * p->num_heads, queries = rows * p->head_dim;
    int64_t keys = (int64_t)p->batch * p->kv_len * p->num_kv_heads * p->head_dim,
            gates = rows * gate_width(p);
    return (naive_call){.p = *p,
                        .scale = (double)p->scale,
                        .q = doubles(queries),
                        .k = doubles(keys),
                        .v = doubles(keys),
                        .gate = doubles(gates),
                        .sinks = doubles(p->num_heads),
                        .y = doubles(queries),
                        .o = doubles(queries),
                        .lse = doubles(rows),
                        .share = doubles(rows),
                        .probs = doubles(rows * p->kv_len),
                        .dy = doubles(queries),
                        .dq = doubles(queries),
                        .dk = doubles(keys),
                        .dv = doubles(keys),
                        .dgate = doubles(gates),
                        .dsinks = doubles(p->num_heads)};
}

void naive_call_free(naive_call *c) {
    double *all[] = {c->q,     c->k,     c->v,  c->gate, c->sinks, c->y,  c->o,     c->lse,
                     c->share, c->probs, c->dy, c->dq,   c->dk,    c->dv, c->dgate, c->dsinks};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    memset(c, 0, sizeof *c);
}

/* Indices of vectors: of a query head, of a key head, of a row of lse and probs. */
static int64_t query_at(const naive_call *c, int b, int h, int i) {
    return ((int64_t)(b * c->p.q_len + i) * c->p.num_heads + h) * c->p.head_dim;
}
static int64_t key_at(const naive_call *c, int b, int h, int j) {
    int kv = h / (c->p.num_heads / c->p.num_kv_heads);
    return ((int64_t)(b * c->p.kv_len + j) * c->p.num_kv_heads + kv) * c->p.head_dim;
}
static int64_t row_at(const naive_call *c, int b, int h, int i) {
    return (int64_t)(b * c->p.num_heads + h) * c->p.q_len + i;
}
static double *gate_at(const naive_call *c, double *gate, int b, int h, int i, int d) {
    int width = gate_width(&c->p);
    return gate + ((int64_t)(b * c->p.q_len + i) * c->p.num_heads + h) * width +
           (width == 1 ? 0 : d);
}

static bool visible(const sluice_attention_params *p, int b, int i, int j) {
    int at = p->kv_len - p->q_len + i;
    if (j > at || (p->window && j <= at - p->window)) return false;
    return !p->key_start || j >= p->key_start[b * p->q_len + i];
}

/* Score before softcap. */
static double raw_score(const naive_call *c, int b, int h, int i, int j) {
    const double *q = c->q + query_at(c, b, h, i), *k = c->k + key_at(c, b, h, j);
    double s = 0;
    for (int d = 0; d < c->p.head_dim; d++) s += q[d] * k[d];
    return c->scale * s;
}

static double capped(const naive_call *c, double s) {
    return c->p.softcap > 0 ? (double)c->p.softcap * tanh(s / (double)c->p.softcap) : s;
}

double naive_act(sluice_gate_act act, double s) {
    double sigmoid = s < -700 ? 0 : 1 / (1 + exp(-s));
    switch (act) {
    case SLUICE_GATE_SIGMOID:
        return sigmoid;
    case SLUICE_GATE_SILU:
        return s * sigmoid;
    case SLUICE_GATE_IDENTITY:
        return s;
    case SLUICE_GATE_NS_SIGMOID:
        return 0.5 + 0.5 * sigmoid;
    case SLUICE_GATE_SOFTPLUS:
        return s > 30 ? s : log1p(exp(s));
    }
    return NAN;
}

static double slope(sluice_gate_act act, double s) {
    double g = s < -700 ? 0 : 1 / (1 + exp(-s));
    switch (act) {
    case SLUICE_GATE_SIGMOID:
        return g * (1 - g);
    case SLUICE_GATE_SILU:
        return g + s * g * (1 - g);
    case SLUICE_GATE_IDENTITY:
        return 1;
    case SLUICE_GATE_NS_SIGMOID:
        return 0.5 * g * (1 - g);
    case SLUICE_GATE_SOFTPLUS:
        return g;
    }
    return NAN;
}

static void forward_row(naive_call *c, int b, int h, int i) {
    const sluice_attention_params *p = &c->p;
    int64_t row = row_at(c, b, h, i), query = query_at(c, b, h, i);
    double *s = c->probs + row * p->kv_len, top = p->sinks ? c->sinks[h] : -INFINITY, sum = 0;
    for (int j = 0; j < p->kv_len; j++) {
        s[j] = visible(p, b, i, j) ? capped(c, raw_score(c, b, h, i, j)) : -INFINITY;
        top = fmax(top, s[j]);
        if (isfinite(s[j])) c->most_score = fmax(c->most_score, fabs(s[j]));
    }
    for (int j = 0; j < p->kv_len; j++) sum += exp(s[j] - top);
    if (p->sinks) sum += exp(c->sinks[h] - top);
    c->lse[row] = top + log(sum);
    for (int j = 0; j < p->kv_len; j++) s[j] = exp(s[j] - c->lse[row]);
    c->share[row] = s[0];
    for (int d = 0; d < p->head_dim; d++) {
        double o = 0;
        for (int j = 0; j < p->kv_len; j++)
            o += s[j] == 0 ? 0 : s[j] * c->v[key_at(c, b, h, j) + d];
        double g = p->gated ? naive_act(p->gate_act, *gate_at(c, c->gate, b, h, i, d)) : 1;
        c->o[query + d] = o;
        c->y[query + d] = p->gated && p->gate_op == SLUICE_GATE_ADD ? o + g : o * g;
    }
}

#define EACH_ROW(c, body)                                                                          \
    for (int b = 0; b < (c)->p.batch; b++)                                                         \
        for (int h = 0; h < (c)->p.num_heads; h++)                                                 \
            for (int i = 0; i < (c)->p.q_len; i++) body

void naive_forward(naive_call *c) {
    c->most_score = 0;
    EACH_ROW(c, forward_row(c, b, h, i));
}

/* From dy to the gradient of o (into dout) and of the gate. */
static void gate_backward(naive_call *c, int b, int h, int i, double *dout) {
    const sluice_attention_params *p = &c->p;
    int64_t query = query_at(c, b, h, i);
    for (int d = 0; d < p->head_dim; d++) {
        double dy = c->dy[query + d];
        dout[d] = dy;
        if (!p->gated) continue;
        double s = *gate_at(c, c->gate, b, h, i, d), *grad = gate_at(c, c->dgate, b, h, i, d);
        bool add = p->gate_op == SLUICE_GATE_ADD;
        if (!add) dout[d] = dy * naive_act(p->gate_act, s);
        *grad += dy * (add ? 1 : c->o[query + d]) * slope(p->gate_act, s);
    }
}

static void backward_row(naive_call *c, int b, int h, int i, double *dout) {
    const sluice_attention_params *p = &c->p;
    int64_t row = row_at(c, b, h, i), query = query_at(c, b, h, i);
    const double *share = c->probs + row * p->kv_len;
    double total = 0;
    gate_backward(c, b, h, i, dout);
    for (int d = 0; d < p->head_dim; d++) total += dout[d] * c->o[query + d];
    if (p->sinks) c->dsinks[h] -= exp(c->sinks[h] - c->lse[row]) * total;
    for (int j = 0; j < p->kv_len; j++) {
        if (!visible(p, b, i, j)) continue;
        int64_t key = key_at(c, b, h, j);
        double dshare = 0,
               t = p->softcap > 0 ? tanh(raw_score(c, b, h, i, j) / (double)p->softcap) : 0;
        for (int d = 0; d < p->head_dim; d++) dshare += dout[d] * c->v[key + d];
        double ds = c->scale * share[j] * (dshare - total) * (1 - t * t);
        for (int d = 0; d < p->head_dim; d++) {
            c->dq[query + d] += ds * c->k[key + d];
            c->dk[key + d] += ds * c->q[query + d];
            c->dv[key + d] += share[j] * dout[d];
        }
    }
}

void naive_backward(naive_call *c) {
    double *dout = doubles(c->p.head_dim);
    EACH_ROW(c, backward_row(c, b, h, i, dout));
    free(dout);
}
