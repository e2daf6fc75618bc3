/* SPDX-License-Identifier: Apache-2.0 */
/* The gated delta rule over several chunks, against a recurrence in double: sizes off every tile, key heads shared by
 * many value heads, batches, states that go on or are not kept, strong and weak decay; the convolution in pieces.
 *
 *   test_kernels_delta --bench    times the parts of a layer of Qwen3.5-0.8B instead, on one thread */
#include "support/test_support.h"
#include "base/memory.h"
#include "base/rng.h"
#include "kernels/delta.h"
#include "kernels/gate.h"
#include "kernels/ops.h"
#include "sluice/cpu.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static sluice__rng rng = {.seed = 17};

static float *fresh(int64_t count, float sd) {
    float *x = sluice__calloc((size_t)(count ? count : 1), sizeof *x, SLUICE__MEM_OTHER);
    assert_non_null(x);
    for (int64_t i = 0; i < count; i++) x[i] = sd * (float)(sluice__rng_uniform(&rng) * 2 - 1);
    return x;
}

typedef struct problem {
    sluice__delta d;
    float *qkv, *log_decay, *beta, *state, *o;
    int64_t size; /* of one head's state */
} problem;

/* q, k: length 1; decay and write strength of all sizes. */
static problem make(int batch, int tokens, int key_heads, int share, int key_dim, int value_dim, float decay) {
    problem p = {0};
    int heads = key_heads * share;
    int64_t keys = (int64_t)key_heads * key_dim, stride = 2 * keys + (int64_t)heads * value_dim, rows = (int64_t)batch * tokens;
    p.size = (int64_t)key_dim * value_dim;
    p.qkv = fresh(rows * stride, 2);
    p.log_decay = fresh(rows * heads, 1);
    p.beta = fresh(rows * heads, 1);
    p.state = fresh(batch * heads * p.size, 1);
    p.o = fresh(rows * heads * value_dim, 0);
    sluice__l2_norm(p.qkv, stride, p.qkv, stride, rows, key_heads, key_dim, 1e-6f, 0.3f);
    sluice__l2_norm(p.qkv + keys, stride, p.qkv + keys, stride, rows, key_heads, key_dim, 1e-6f, 1);
    for (int64_t i = 0; i < rows * heads; i++) {
        p.log_decay[i] = -decay * fabsf(p.log_decay[i]);
        p.beta[i] = 2 * fabsf(p.beta[i]);
    }
    p.d = (sluice__delta){batch, tokens, key_heads, heads, key_dim, value_dim, p.qkv, p.qkv + keys, p.qkv + 2 * keys, stride,
                          p.log_decay, p.beta, p.state, p.o};
    return p;
}

static void release(problem *p) {
    sluice__free(p->qkv);
    sluice__free(p->log_decay);
    sluice__free(p->beta);
    sluice__free(p->state);
    sluice__free(p->o);
}

/* One token of one head; s in double. */
static void step(const problem *p, double *s, int64_t row, int head, double *o) {
    const sluice__delta *d = &p->d;
    int64_t key_head = head / (d->value_heads / d->key_heads);
    const float *q = d->q + row * d->qkv_stride + key_head * d->key_dim, *k = d->k + row * d->qkv_stride + key_head * d->key_dim;
    const float *v = d->v + row * d->qkv_stride + (int64_t)head * d->value_dim;
    double a = exp((double)d->log_decay[row * d->value_heads + head]), beta = (double)d->beta[row * d->value_heads + head];
    for (int j = 0; j < d->value_dim; j++) {
        double memory = 0;
        for (int i = 0; i < d->key_dim; i++) memory += (s[i * d->value_dim + j] *= a) * (double)k[i];
        o[j] = 0;
        for (int i = 0; i < d->key_dim; i++)
            o[j] += (s[i * d->value_dim + j] += (double)k[i] * beta * ((double)v[j] - memory)) * (double)q[i];
    }
}

/* Largest errors of outputs and states, over the largest value. */
static void compare(const problem *p, const float *start, bool kept, double *out_error, double *state_error) {
    const sluice__delta *d = &p->d;
    double *s = sluice__calloc((size_t)p->size, sizeof *s, SLUICE__MEM_OTHER), o[1024], most = 1e-30;
    *out_error = *state_error = 0;
    for (int b = 0; b < d->batch; b++)
        for (int h = 0; h < d->value_heads; h++) {
            int64_t item = ((int64_t)b * d->value_heads + h) * p->size;
            for (int64_t i = 0; i < p->size; i++) s[i] = start ? (double)start[item + i] : 0;
            for (int t = 0; t < d->seq_len; t++) {
                int64_t row = (int64_t)b * d->seq_len + t;
                step(p, s, row, h, o);
                for (int j = 0; j < d->value_dim; j++) {
                    double got = (double)d->o[(row * d->value_heads + h) * d->value_dim + j];
                    most = fmax(most, fabs(o[j]));
                    *out_error = fmax(*out_error, fabs(got - o[j]));
                }
            }
            for (int64_t i = 0; i < p->size && kept; i++) *state_error = fmax(*state_error, fabs((double)p->state[item + i] - s[i]));
        }
    *out_error /= most;
    *state_error /= most;
    sluice__free(s);
}

static void check(problem p, bool kept) {
    int64_t states = (int64_t)p.d.batch * p.d.value_heads * p.size;
    float *start = fresh(states, 0);
    memcpy(start, p.state, (size_t)states * sizeof *start);
    double out, state;
    if (!kept) p.d.state = NULL;
    assert_ok(sluice__delta_rule(&p.d, 1));
    compare(&p, kept ? start : NULL, kept, &out, &state);
    if (out > 3e-5 || state > 3e-5)
        fail_msg("%d x %d tokens, heads %d/%d, dims %d x %d: errors %g, %g", p.d.batch, p.d.seq_len, p.d.value_heads,
                 p.d.key_heads, p.d.key_dim, p.d.value_dim, out, state);
    sluice__free(start);
    release(&p);
}

static void test_against_recurrence(void **state) {
    (void)state;
    static const int lengths[] = {1, 2, 3, 4, 5, 8, 15, 16, 17, 31, 63, 64, 65, 66, 67, 100, 127, 128, 129, 192, 200};
    static const int dims[][2] = {{1, 1}, {3, 5}, {8, 12}, {16, 16}, {17, 31}, {32, 64}, {40, 33}, {128, 128}, {64, 130}};
    static const float decays[] = {0, 0.01f, 1, 30};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (size_t k = 0; k < sizeof dims / sizeof *dims; k++) {
            int shared = 1 + (int)((i + k) % 5), batch = 1 + (int)((i + 2 * k) % 2);
            check(make(batch, lengths[i], 1 + (int)(k % 2), shared, dims[k][0], dims[k][1], decays[(i + k) % 4]), (i + k) % 3);
        }
}

/* Any cut gives the same; whole: one call. */
static void test_pieces(void **state) {
    (void)state;
    problem whole = make(1, 200, 2, 3, 20, 24, 0.3f), pieces = whole;
    int64_t states = 6 * whole.size, width = 6 * 24;
    pieces.state = fresh(states, 0);
    memcpy(pieces.state, whole.state, (size_t)states * sizeof(float));
    pieces.o = fresh(200 * width, 0);
    assert_ok(sluice__delta_rule(&whole.d, 1));
    static const int cuts[] = {1, 1, 2, 3, 4, 60, 64, 65};
    for (int i = 0, at = 0; i < 8; at += cuts[i++]) {
        sluice__delta d = whole.d;
        d.seq_len = cuts[i];
        d.q += at * d.qkv_stride;
        d.k += at * d.qkv_stride;
        d.v += at * d.qkv_stride;
        d.log_decay += at * 6;
        d.beta += at * 6;
        d.state = pieces.state;
        d.o = pieces.o + at * width;
        assert_ok(sluice__delta_rule(&d, 1));
    }
    for (int64_t i = 0; i < 200 * width; i++) assert_true(fabsf(pieces.o[i] - whole.o[i]) < 2e-5f);
    for (int64_t i = 0; i < states; i++) assert_true(fabsf(pieces.state[i] - whole.state[i]) < 2e-5f);
    sluice__free(pieces.o);
    sluice__free(pieces.state);
    release(&whole);
}

static void test_convolution_in_pieces(void **state) {
    (void)state;
    enum { ROWS = 40, CHANNELS = 37 };
    for (int taps = 1; taps <= 12; taps++) {
        float *x = fresh(ROWS * (CHANNELS + 5), 1), *w = fresh(CHANNELS * taps, 1), *y = fresh(ROWS * CHANNELS, 0),
              *z = fresh(ROWS * CHANNELS, 0), *history = fresh((taps - 1) * CHANNELS, 0);
        sluice__conv c = {.rows = ROWS, .channels = CHANNELS, .y_stride = CHANNELS, .x_stride = CHANNELS + 5, .taps = taps,
                          .y = y, .x = x, .w = w};
        sluice__causal_conv_silu(&c, 1);
        for (int at = 0, n = 1; at < ROWS; at += n, n = 1 + (n * 5) % 7) {
            if (n > ROWS - at) n = ROWS - at;
            sluice__conv part = c;
            part.rows = n;
            part.x = x + at * (CHANNELS + 5);
            part.y = z + at * CHANNELS;
            part.history = taps > 1 ? history : NULL;
            sluice__causal_conv_silu(&part, 1);
        }
        assert_memory_equal(y, z, ROWS * CHANNELS * sizeof *y);
        sluice__free(x);
        sluice__free(w);
        sluice__free(y);
        sluice__free(z);
        sluice__free(history);
    }
}

/* PyTorch 2.13: -exp(A_log) * softplus(a + dt_bias), sigmoid(b); softplus is the identity above 20. */
static void test_gates(void **state) {
    (void)state;
    const float a[] = {0, 1.5f, -40, 30, 100}, b[] = {0, -3, 20, 100, -200}, a_log[] = {0, 1, -2, 0.5f, 2.7f},
                bias[] = {1, -1, 0.5f, 0, 1};
    const double want[] = {-1.31326169, -2.64779, 0, -49.4616381, -1502.847, 0.5, 0.0474258732, 1, 1, 0};
    float decay[5], beta[5];
    sluice__delta_gates(decay, beta, a, b, 5, a_log, bias, 1, 5, 1);
    for (int i = 0; i < 5; i++) {
        assert_true(fabs((double)decay[i] - want[i]) <= 1e-5 * fabs(want[i]) + 1e-12);
        assert_true(fabs((double)beta[i] - want[5 + i]) <= 1e-6);
    }
    sluice__delta_gates(decay, beta, a, b, 5, a_log, bias, 1, 5, 2);
    assert_true(beta[0] == 1 && beta[2] > 1.9999f);
}

/* ---- benchmark ---- */

enum { KEY_HEADS = 16, VALUE_HEADS = 16, DIM = 128, WIDTH = 1024, TAPS = 4 };

/* Of this process on one thread: what else the machine does counts less. */
static double processor_time(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double best_of(void (*run)(void *), void *what) {
    double best = 1e9, start = processor_time();
    for (int i = 0; i < 3 || processor_time() - start < 0.4; i++) {
        double t = processor_time();
        run(what);
        t = processor_time() - t;
        if (t < best) best = t;
    }
    return best;
}

typedef struct layer {
    problem p;
    sluice__conv conv;
    float *x, *w_in, *w_out, *in, *out, *history, *norm, *a_log;
    int64_t rows, projected;
} layer;

static void run_in(void *l_) {
    layer *l = l_;
    sluice__linear_forward(l->in, l->projected, l->x, WIDTH, l->w_in, NULL, l->rows, l->projected, WIDTH);
}
static void run_conv(void *l_) { sluice__causal_conv_silu(&((layer *)l_)->conv, 1); }
static void run_prepare(void *l_) {
    layer *l = l_;
    int64_t s = l->p.d.qkv_stride;
    sluice__l2_norm(l->p.qkv, s, l->p.qkv, s, l->rows, KEY_HEADS, DIM, 1e-6f, 0.1f);
    sluice__l2_norm(l->p.qkv + 2048, s, l->p.qkv + 2048, s, l->rows, KEY_HEADS, DIM, 1e-6f, 1);
    sluice__delta_gates(l->p.log_decay, l->p.beta, l->in, l->in + 16, l->projected, l->a_log, l->a_log, l->rows, VALUE_HEADS, 1);
}
static void run_rule(void *l_) { assert_ok(sluice__delta_rule(&((layer *)l_)->p.d, 1)); }
static void run_norm(void *l_) {
    layer *l = l_;
    sluice__rms_norm_forward(l->p.o, NULL, l->p.o, l->norm, l->rows * VALUE_HEADS, DIM, 1e-6f, 0);
    sluice__gating g = {.rows = l->rows, .heads = VALUE_HEADS, .head_dim = DIM, .width = DIM, .act = SLUICE_GATE_SILU};
    sluice__gating_forward(&g, l->p.o, 2048, l->p.o, 2048, l->in + 6144, l->projected);
}
static void run_out(void *l_) {
    layer *l = l_;
    sluice__linear_forward(l->out, WIDTH, l->p.o, 2048, l->w_out, NULL, l->rows, WIDTH, 2048);
}

static void bench(int tokens) {
    static const struct {
        const char *name;
        void (*run)(void *);
    } parts[] = {{"projection in", run_in},    {"convolution", run_conv}, {"norms, gates", run_prepare},
                 {"delta rule", run_rule},     {"gated norm", run_norm},  {"projection out", run_out}};
    layer l = {.p = make(1, tokens, KEY_HEADS, VALUE_HEADS / KEY_HEADS, DIM, DIM, 0.05f), .rows = tokens};
    l.projected = l.p.d.qkv_stride + 2048 + 32;
    l.x = fresh(tokens * WIDTH, 1);
    l.w_in = fresh(l.projected * WIDTH, 0.05f);
    l.w_out = fresh(2048 * WIDTH, 0.05f);
    l.in = fresh(tokens * l.projected, 1);
    l.out = fresh(tokens * WIDTH, 0);
    l.norm = fresh(DIM, 1);
    l.a_log = fresh(VALUE_HEADS, 1);
    l.history = fresh((TAPS - 1) * 6144, 1);
    l.conv = (sluice__conv){.rows = tokens, .channels = 6144, .y_stride = 6144, .x_stride = l.projected, .taps = TAPS,
                            .y = l.p.qkv, .history = l.history, .x = l.in, .w = l.w_in};
    double sum = 0;
    printf("%d tokens:", tokens);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        double t = best_of(parts[i].run, &l);
        sum += t;
        printf("  %s %.3f ms", parts[i].name, 1e3 * t);
    }
    printf("  sum %.3f ms, %.1f us a token\n", 1e3 * sum, 1e6 * sum / tokens);
    sluice__free(l.x);
    sluice__free(l.w_in);
    sluice__free(l.w_out);
    sluice__free(l.in);
    sluice__free(l.out);
    sluice__free(l.norm);
    sluice__free(l.a_log);
    sluice__free(l.history);
    release(&l.p);
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "--bench")) {
        sluice_set_num_threads(1);
        static const int tokens[] = {1, 2, 4, 8, 64, 512};
        for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) bench(tokens[i]);
        return 0;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_recurrence), cmocka_unit_test(test_pieces),
                                       cmocka_unit_test(test_convolution_in_pieces), cmocka_unit_test(test_gates)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
