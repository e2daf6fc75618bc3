/* SPDX-License-Identifier: Apache-2.0 */
/* Every backward operator against central differences of its forward formula, evaluated in double: the loss is a
 * random weighting of the forward output. The formulas here are written down once more, independently of the
 * kernels. */
#include "support/test_support.h"
#include "kernels/ops.h"
#include "sluice/cpu.h"
#include <math.h>
#include <string.h>

enum { MAX = 4096 };
/* Central differences in double with this step leave about 1e-9; the kernels compute in float. */
#define STEP 1e-5
#define TOLERANCE 2e-5

static uint64_t state_;
static double uniform(void) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return (double)(state_ >> 11) / (double)(1ull << 53);
}
static float normal(void) {
    return (float)(sqrt(-2 * log(uniform() + 1e-300)) * cos(6.283185307179586 * uniform()));
}
static void fill(float *x, int n, double scale) {
    for (int i = 0; i < n; i++) x[i] = (float)scale * normal();
}

/* The loss as a function of all inputs, in double; `user` says which operator. */
typedef double (*loss_fn)(const double *in, void *user);

static void check_gradient(const char *what, loss_fn loss, void *user, const float *in, int n, const float *grad,
                           const float *grad_before) {
    static double at[MAX];
    double scale = 1e-3;
    for (int i = 0; i < n; i++) at[i] = in[i];
    for (int i = 0; i < n; i++) scale = fmax(scale, fabs(grad[i] - (grad_before ? grad_before[i] : 0)));
    for (int i = 0; i < n; i++) {
        at[i] = in[i] + STEP;
        double up = loss(at, user);
        at[i] = in[i] - STEP;
        double down = loss(at, user);
        at[i] = in[i];
        double want = (up - down) / (2 * STEP), got = (double)grad[i] - (grad_before ? (double)grad_before[i] : 0);
        if (!(fabs(want - got) <= TOLERANCE * scale))
            fail_msg("%s: element %d: found %.9g, expected %.9g", what, i, got, want);
    }
}

typedef struct norm_case {
    int rows, dim;
    double offset;
    bool weightless;
    const float *dy;
} norm_case;

/* in = x [rows,dim], weight [dim] */
static double norm_loss(const double *in, void *user) {
    const norm_case *c = user;
    const double *w = in + c->rows * c->dim;
    double sum = 0;
    for (int r = 0; r < c->rows; r++) {
        double ss = 0;
        const double *x = in + r * c->dim;
        for (int i = 0; i < c->dim; i++) ss += x[i] * x[i];
        for (int i = 0; i < c->dim; i++)
            sum += c->dy[r * c->dim + i] * x[i] / sqrt(ss / c->dim + 1e-5) * (c->weightless ? 1 : w[i] + c->offset);
    }
    return sum;
}

static void rms_norm(void **state) {
    (void)state;
    static float in[MAX], dy[MAX], y[MAX], rstd[64], grad[MAX], before[MAX];
    for (int variant = 0; variant < 8; variant++) {
        norm_case c = {3 + variant, 5 + 7 * variant, variant & 1, (variant & 2) != 0, dy};
        int n = c.rows * c.dim;
        bool accumulate = variant & 4;
        fill(in, n + c.dim, 1.5);
        fill(dy, n, 1);
        fill(before, n + c.dim, 1);
        memcpy(grad, before, sizeof grad);
        const float *w = c.weightless ? NULL : in + n;
        sluice__rms_norm_forward(y, rstd, in, w, c.rows, c.dim, 1e-5f, (float)c.offset);
        double direct = 0;
        static double in64[MAX];
        for (int i = 0; i < n + c.dim; i++) in64[i] = in[i];
        for (int i = 0; i < n; i++) direct += (double)y[i] * dy[i];
        assert_true(fabs(direct - norm_loss(in64, &c)) < 1e-4);
        if (!accumulate) memset(before, 0, (size_t)n * sizeof *before);
        sluice__rms_norm_backward(grad, w ? grad + n : NULL, dy, in, w, rstd, c.rows, c.dim, (float)c.offset,
                                  accumulate);
        check_gradient("rms_norm", norm_loss, &c, in, w ? n + c.dim : n, grad, before);
    }
}

typedef struct rope_case {
    sluice__norm_rope p;
    int stride;
    const float *dy;
} rope_case;

/* in = x [rows, stride], weight [head_dim] */
static double rope_loss(const double *in, void *user) {
    const rope_case *c = user;
    const sluice__norm_rope *p = &c->p;
    const double *w = in + p->rows * c->stride;
    double sum = 0, z[64];
    for (int r = 0; r < p->rows; r++) {
        for (int h = 0; h < p->heads; h++) {
            const double *x = in + r * c->stride + h * p->head_dim;
            const float *dy = c->dy + r * c->stride + h * p->head_dim;
            double ss = 0;
            for (int i = 0; i < p->head_dim; i++) ss += x[i] * x[i];
            for (int i = 0; i < p->head_dim; i++) {
                z[i] = x[i];
                if (p->norm) z[i] *= (p->weight ? w[i] + p->offset : 1) / sqrt(ss / p->head_dim + p->eps);
            }
            int half = p->cos ? p->rotary_dim / 2 : 0;
            for (int i = 0; i < p->head_dim; i++) {
                double out = z[i];
                int j = i < half ? i : i - half;
                if (i < 2 * half) {
                    double co = p->cos[p->position[r] * half + j], si = p->sin[p->position[r] * half + j];
                    out = i < half ? z[i] * co - z[i + half] * si : z[i] * co + z[i - half] * si;
                }
                sum += dy[i] * out;
            }
        }
    }
    return sum;
}

static void norm_rope(void **state) {
    (void)state;
    static float in[MAX], dy[MAX], y[MAX], rstd[64], grad[MAX], co[256], si[256], dw0[64];
    for (int i = 0; i < 256; i++) co[i] = (float)cos(0.37 * i), si[i] = (float)sin(0.37 * i);
    const int32_t position[5] = {3, 0, 7, 7, 1};
    for (int variant = 0; variant < 16; variant++) {
        int head_dim = 6 + 2 * variant, rotary = variant & 4 ? head_dim / 4 * 2 : head_dim;
        rope_case c = {{.rows = 5,
                        .heads = 2,
                        .head_dim = head_dim,
                        .rotary_dim = rotary,
                        .norm = variant & 1,
                        .eps = 1e-5f,
                        .offset = (variant & 2) ? 1 : 0,
                        .position = position},
                       2 * head_dim + 3,
                       dy};
        int n = 5 * c.stride;
        fill(in, n + head_dim, 1.2);
        fill(dy, n, 1);
        if (!(variant & 8)) c.p.cos = co, c.p.sin = si;
        if (c.p.norm && variant != 15) c.p.weight = in + n;
        sluice__norm_rope_forward(&c.p, y, c.stride, rstd, in, c.stride);
        memset(grad, 0, sizeof grad);
        memset(dw0, 0, sizeof dw0);
        sluice__norm_rope_backward(&c.p, grad, c.stride, c.p.weight ? grad + n : NULL, dy, c.stride, in, c.stride,
                                   rstd);
        for (int r = 0; r < 5; r++) /* padding is not touched and has no gradient */
            for (int i = 2 * head_dim; i < c.stride; i++) assert_true(grad[r * c.stride + i] == 0);
        check_gradient("norm_rope", rope_loss, &c, in, c.p.weight ? n + head_dim : n, grad, NULL);
        sluice__norm_rope_backward(&c.p, dy, c.stride, NULL, dy, c.stride, in, c.stride, rstd); /* in place */
        for (int r = 0; r < 5; r++)
            assert_memory_equal(dy + r * c.stride, grad + r * c.stride, (size_t)head_dim * 8);
    }
}

typedef struct pointwise_case {
    int rows, width;
    int kind; /* 0 swiglu, 1 gelu, 2 gelu tanh, 3 clip */
    const float *dy;
} pointwise_case;

static double pointwise_loss(const double *in, void *user) {
    const pointwise_case *c = user;
    double sum = 0;
    for (int r = 0; r < c->rows; r++) {
        for (int i = 0; i < c->width; i++) {
            double dy = c->dy[r * c->width + i];
            if (c->kind == 0) {
                double g = in[2 * r * c->width + i], u = in[2 * r * c->width + c->width + i];
                sum += dy * g / (1 + exp(-g)) * u;
                continue;
            }
            double x = in[r * c->width + i];
            if (c->kind == 1) sum += dy * 0.5 * x * (1 + erf(x / sqrt(2)));
            else if (c->kind == 2) sum += dy * 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
            else sum += dy * fmin(fmax(x, -1), 1);
        }
    }
    return sum;
}

static void pointwise(void **state) {
    (void)state;
    static float in[MAX], dy[MAX], grad[MAX];
    for (int kind = 0; kind < 4; kind++) {
        pointwise_case c = {3, 37, kind, dy};
        int n = c.rows * c.width;
        fill(in, 2 * n, 2);
        fill(dy, n, 1);
        if (kind == 0) sluice__swiglu_backward(grad, dy, c.width, in, 2 * c.width, c.rows, c.width);
        else if (kind == 3) sluice__clip_backward(grad, dy, in, 1, n);
        else sluice__gelu_backward(grad, dy, in, n, kind == 2);
        check_gradient("pointwise", pointwise_loss, &c, in, kind ? n : 2 * n, grad, NULL);
    }
}

typedef struct nll_case {
    int rows, vocab;
    const int32_t *labels;
    double scale;
} nll_case;

static double nll_loss(const double *in, void *user) {
    const nll_case *c = user;
    double total = 0;
    for (int r = 0; r < c->rows; r++, in += c->vocab) {
        if (c->labels[r] < 0) continue;
        double sum = 0;
        for (int i = 0; i < c->vocab; i++) sum += exp(in[i]);
        total += c->scale * (log(sum) - in[c->labels[r]]);
    }
    return total;
}

static void softmax_nll(void **state) {
    (void)state;
    static float in[MAX], grad[MAX], nll[8];
    uint8_t correct[8];
    const int32_t labels[4] = {2, -1, 0, 40};
    nll_case c = {4, 41, labels, 0.37};
    int n = c.rows * c.vocab;
    fill(in, n, 2);
    in[2] = 9;
    memcpy(grad, in, sizeof grad);
    sluice__softmax_nll(grad, labels, nll, correct, c.rows, c.vocab, 0);
    assert_memory_equal(grad, in, (size_t)n * sizeof *in);
    sluice__softmax_nll(grad, labels, nll, correct, c.rows, c.vocab, (float)c.scale);
    static double in64[MAX];
    for (int i = 0; i < n; i++) in64[i] = in[i];
    assert_true(fabs((double)(nll[0] + nll[1] + nll[2] + nll[3]) * c.scale - nll_loss(in64, &c)) < 1e-5);
    assert_true(correct[0] == 1 && correct[1] == 0 && nll[1] == 0 && grad[c.vocab] == 0);
    check_gradient("softmax_nll", nll_loss, &c, in, n, grad, NULL);
}

/* y = x W^T + b: gradients of a linear layer against the definition. */
static void linear(void **state) {
    (void)state;
    enum { R = 7, OUT = 13, IN = 11, XS = 12, YS = 15 };
    static float x[R * XS], w[OUT * IN], b[OUT], y[R * YS], dy[R * YS], dx[R * XS], dw[OUT * IN], db[OUT];
    fill(x, R * XS, 1), fill(w, OUT * IN, 1), fill(b, OUT, 1), fill(dy, R * YS, 1);
    memset(dw, 0, sizeof dw), memset(db, 0, sizeof db);
    sluice__linear_forward(y, YS, x, XS, w, b, R, OUT, IN);
    for (int twice = 0; twice < 2; twice++) {
        sluice__linear_backward_input(dx, XS, dy, YS, w, R, OUT, IN, twice);
        sluice__linear_backward_weight(dw, db, dy, YS, x, XS, R, OUT, IN);
    }
    for (int r = 0; r < R; r++) {
        for (int o = 0; o < OUT; o++) {
            double want = b[o];
            for (int i = 0; i < IN; i++) want += (double)x[r * XS + i] * w[o * IN + i];
            assert_true(fabs(want - y[r * YS + o]) < 1e-4);
        }
        for (int i = 0; i < IN; i++) {
            double want = 0;
            for (int o = 0; o < OUT; o++) want += 2.0 * dy[r * YS + o] * w[o * IN + i];
            assert_true(fabs(want - dx[r * XS + i]) < 1e-4);
        }
    }
    for (int o = 0; o < OUT; o++) {
        double bias = 0;
        for (int r = 0; r < R; r++) bias += 2.0 * dy[r * YS + o];
        assert_true(fabs(bias - db[o]) < 1e-4);
        for (int i = 0; i < IN; i++) {
            double want = 0;
            for (int r = 0; r < R; r++) want += 2.0 * dy[r * YS + o] * x[r * XS + i];
            assert_true(fabs(want - dw[o * IN + i]) < 1e-4);
        }
    }
}

/* All of them in every CPU level that this machine has. */
int main(void) {
    static const char *const levels[] = {"ref", "avx2", "avx512"};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rms_norm),    cmocka_unit_test(norm_rope), cmocka_unit_test(pointwise),
        cmocka_unit_test(softmax_nll), cmocka_unit_test(linear),
    };
    int failed = 0;
    for (int i = 0; i < 3; i++)
        if (sluice_cpu_select(levels[i], NULL) == SLUICE_OK)
            failed += cmocka_run_group_tests_name(levels[i], tests, NULL, NULL);
    return failed;
}
