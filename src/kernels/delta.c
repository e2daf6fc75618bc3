/* SPDX-License-Identifier: Apache-2.0 */
/* Linear attention: reference, token by token, and the operators that deal channels, rows and heads out to the team. */
#include "kernels/delta.h"
#include "kernels/kernels.h"
#include "kernels/parallel.h"
#include "kernels/profile.h"
#include "kernels/scratch.h"
#include <math.h>
#include <string.h>

/* ---- reference ---- */

static double silu(double x) {
    return x < -1e4 ? 0 : x / (1 + exp(-x));
}

/* Input of channel c, `row` counted from the first of this call. */
static double conv_input(const sluice__conv *p, int64_t row, int64_t c) {
    if (row >= 0) return p->x[row * p->x_stride + c];
    return p->history ? p->history[(p->taps - 1 + row) * p->channels + c] : 0;
}

void sluice_causal_conv_f32_ref(const sluice__conv *p, int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; c++)
        for (int64_t t = 0; t < p->rows; t++) {
            double sum = 0;
            for (int j = 0; j < p->taps; j++)
                sum += (double)p->w[c * p->taps + j] * conv_input(p, t - p->taps + 1 + j, c);
            p->y[t * p->y_stride + c] = (float)silu(sum);
        }
}

void sluice_l2_norm_f32_ref(float *y, int64_t y_stride, const float *x, int64_t x_stride, int64_t rows, int heads,
                            int dim, float eps, float scale) {
    for (int64_t r = 0; r < rows; r++)
        for (int h = 0; h < heads; h++) {
            const float *from = x + r * x_stride + (int64_t)h * dim;
            float *to = y + r * y_stride + (int64_t)h * dim;
            double sum = 0;
            for (int i = 0; i < dim; i++) sum += (double)from[i] * (double)from[i];
            double s = (double)scale / sqrt(sum + (double)eps);
            for (int i = 0; i < dim; i++) to[i] = (float)(from[i] * s);
        }
}

/* One token of one head, column by column of the state. */
static void step(const sluice__delta_head *h, int64_t t) {
    const float *q = h->q + t * h->qk_stride, *k = h->k + t * h->qk_stride;
    double decay = exp((double)h->log_decay[t * h->gate_stride]), beta = (double)h->beta[t * h->gate_stride];
    for (int j = 0; j < h->value_dim; j++) {
        float *s = h->state + j;
        double memory = 0, out = 0;
        for (int i = 0; i < h->key_dim; i++) memory += decay * (double)s[(int64_t)i * h->value_dim] * (double)k[i];
        double write = beta * ((double)h->v[t * h->v_stride + j] - memory);
        for (int i = 0; i < h->key_dim; i++) {
            double updated = decay * (double)s[(int64_t)i * h->value_dim] + (double)k[i] * write;
            out += updated * (double)q[i];
            s[(int64_t)i * h->value_dim] = (float)updated;
        }
        h->o[t * h->o_stride + j] = (float)out;
    }
}

void sluice_delta_rule_f32_ref(const sluice__delta_head *h) {
    for (int64_t t = 0; t < h->rows; t++) step(h, t);
}

/* ---- operators ---- */

enum { LINE = 16 }; /* channels of a cache line */

/* The last taps-1 inputs, of channels begin..end-1. */
static void keep_history(const sluice__conv *c, int64_t begin, int64_t end) {
    int64_t kept = c->taps - 1;
    size_t bytes = (size_t)(end - begin) * sizeof(float);
    for (int64_t j = 0; j < kept; j++) {
        int64_t row = c->rows - kept + j;
        const float *from = row >= 0 ? c->x + row * c->x_stride : c->history + (kept + row) * c->channels;
        memcpy(c->history + j * c->channels + begin, from + begin, bytes);
    }
}

void sluice__causal_conv_silu(const sluice__conv *sequences, int count) {
    const sluice__kernels *k = sluice__kernels_now();
    int64_t rows = 0, channels = sequences->channels;
    for (int i = 0; i < count; i++) rows += sequences[i].rows;
    SLUICE__SPAN_FLOATS("causal convolution", 2 * rows * channels);
    SLUICE__SPLIT(sluice__team(2 * rows * channels), channels, LINE, {
        for (int i = 0; i < count; i++) {
            k->causal_conv_f32(&sequences[i], range.begin, range.end);
            if (sequences[i].history) keep_history(&sequences[i], range.begin, range.end);
        }
    });
}

void sluice__l2_norm(float *y, int64_t y_stride, const float *x, int64_t x_stride, int64_t rows, int heads, int dim,
                     float eps, float scale) {
    SLUICE__SPAN_FLOATS("delta norms and gates", 2 * rows * heads * dim);
    const sluice__kernels *k = sluice__kernels_now();
    SLUICE__SPLIT(sluice__team(rows * heads * dim), rows, 1,
                  k->l2_norm_f32(y + range.begin * y_stride, y_stride, x + range.begin * x_stride, x_stride,
                                 range.end - range.begin, heads, dim, eps, scale));
}

/* log(1 + exp(x)); above 20 that is x in fp32, and PyTorch's softplus says so too. */
static float softplus(float x) {
    return x > 20 ? x : log1pf(expf(x));
}

void sluice__delta_gates(float *log_decay, float *beta, const float *a, const float *b, int64_t stride,
                         const float *a_log, const float *dt_bias, int64_t rows, int heads, float scale) {
    SLUICE__SPAN_FLOATS("delta norms and gates", 4 * rows * heads);
    SLUICE__SPLIT(sluice__team(8 * rows * heads), rows, 1, {
        for (int64_t r = range.begin; r < range.end; r++)
            for (int h = 0; h < heads; h++) {
                log_decay[r * heads + h] = -expf(a_log[h]) * softplus(a[r * stride + h] + dt_bias[h]);
                beta[r * heads + h] = scale / (1 + expf(-b[r * stride + h]));
            }
    });
}

static int64_t up(int64_t n) {
    return (n + LINE - 1) / LINE * LINE;
}

/* For the largest vectors: K^T and the padded state by rows of keys; queries and keys; two tables of pairs; rows of
 * values twice and a row of factors; four numbers a token. */
int64_t sluice__delta_scratch(int key_dim, int value_dim) {
    int64_t chunk = SLUICE__DELTA_CHUNK, keys = up(key_dim), values = up(value_dim);
    return keys * (3 * chunk + values) + 2 * chunk * chunk + (2 * chunk + 1) * values + 4 * chunk;
}

/* Tokens first..first+count-1 of sequence and head `item`. */
static void one_head(const sluice__delta *d, float *states, int64_t item, int first, int count, float *scratch) {
    int64_t b = item / d->value_heads, h = item % d->value_heads, row = b * d->seq_len + first;
    int64_t key_head = h / (d->value_heads / d->key_heads), o_stride = (int64_t)d->value_heads * d->value_dim;
    sluice__delta_head head = {.rows = count,
                               .qk_stride = d->qkv_stride,
                               .v_stride = d->qkv_stride,
                               .gate_stride = d->value_heads,
                               .o_stride = o_stride,
                               .key_dim = d->key_dim,
                               .value_dim = d->value_dim,
                               .q = d->q + row * d->qkv_stride + key_head * d->key_dim,
                               .k = d->k + row * d->qkv_stride + key_head * d->key_dim,
                               .v = d->v + row * d->qkv_stride + h * d->value_dim,
                               .log_decay = d->log_decay + row * d->value_heads + h,
                               .beta = d->beta + row * d->value_heads + h,
                               .state = states + item * d->key_dim * d->value_dim,
                               .o = d->o + row * o_stride + h * d->value_dim,
                               .scratch = scratch};
    sluice__kernels_now()->delta_rule_f32(&head);
}

/* Heads of a chunk lie side by side in its rows, those of the next chunk far away: so all heads take one chunk before
 * any takes the next. */
static void heads(const sluice__delta *d, float *states, sluice__range range, float *scratch) {
    for (int first = 0; first < d->seq_len; first += SLUICE__DELTA_CHUNK) {
        int left = d->seq_len - first, count = left < SLUICE__DELTA_CHUNK ? left : SLUICE__DELTA_CHUNK;
        for (int64_t i = range.begin; i < range.end; i++) one_head(d, states, i, first, count, scratch);
    }
}

/* The heads of every call that fall to one thread. Calls without states get theirs from `zeros`, one after the other. */
static void all_heads(const sluice__delta *calls, int count, int part, int parts, float *zeros, float *scratch) {
    for (int i = 0; i < count; i++) {
        const sluice__delta *d = &calls[i];
        int64_t items = (int64_t)d->batch * d->value_heads;
        heads(d, d->state ? d->state : zeros, sluice__part(items, 1, part, parts), scratch);
        if (!d->state) zeros += items * d->key_dim * d->value_dim;
    }
}

/* States and tokens of all calls, once each. */
static double rule_bytes(const sluice__delta *calls, int count) {
    double bytes = 0;
    for (int i = 0; i < count; i++) {
        const sluice__delta *d = &calls[i];
        bytes += 8.0 * (double)d->batch * d->value_heads * d->key_dim * d->value_dim +
                 4.0 * (double)d->batch * d->seq_len * d->value_heads * (2.0 * d->key_dim + 2.0 * d->value_dim);
    }
    return bytes;
}

sluice_status sluice__delta_rule(const sluice__delta *calls, int count) {
    SLUICE__SPAN(.name = "delta rule", .bytes = rule_bytes(calls, count));
    int64_t size = (int64_t)calls->key_dim * calls->value_dim, work = 0, most = 0, own = 0;
    for (int i = 0; i < count; i++) {
        int64_t items = (int64_t)calls[i].batch * calls[i].value_heads;
        work += items * size * (1 + calls[i].seq_len / 8);
        if (items > most) most = items;
        if (!calls[i].state) own += items * size;
    }
    int team = sluice__team(work);
    if (team > most) team = (int)most;
    int64_t each = up(sluice__delta_scratch(calls->key_dim, calls->value_dim));
    float *scratch = sluice__scratch((size_t)(each * team + own)), *zeros = scratch + each * team;
    if (!scratch) return SLUICE_ERR_MEMORY;
    memset(zeros, 0, (size_t)own * sizeof *zeros);
    SLUICE__SPLIT(team, team, 1, {
        for (int64_t t = range.begin; t < range.end; t++) all_heads(calls, count, (int)t, team, zeros, scratch + t * each);
    });
    return SLUICE_OK;
}
