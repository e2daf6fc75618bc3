/* SPDX-License-Identifier: Apache-2.0 */
/* Gates outside attention: the formulas of gate.h written down once more in double, central
 * differences of them against the backward operator for every activation, operation, sharing, width
 * and kind of logits, at every CPU level; aliasing, padding between rows, and the same bits at any
 * second run. */
#include "support/test_support.h"
#include "kernels/gate.h"
#include "base/rng.h"
#include "sluice/cpu.h"
#include <math.h>
#include <string.h>

enum { ROWS = 5, PAD = 3, MAX = 4096 };
/* Central differences in double leave about 1e-9; one float product and a sum of up to 40 of them
 * leave some 1e-6. */
#define STEP 1e-5
#define TOLERANCE 5e-6

static const char *const levels[] = {"ref", "avx2", "avx512"};

static double act(sluice_gate_act a, double s) {
    double sigmoid = 1 / (1 + exp(-s));
    switch (a) {
    case SLUICE_GATE_SIGMOID:
        return sigmoid;
    case SLUICE_GATE_SILU:
        return s * sigmoid;
    case SLUICE_GATE_IDENTITY:
        return s;
    case SLUICE_GATE_NS_SIGMOID:
        return 0.5 + 0.5 * sigmoid;
    case SLUICE_GATE_SOFTPLUS:
        return log(1 + exp(s));
    }
    return NAN;
}

/* y of element (h, d) of one row. */
static double formula(const sluice__gating *g, const double *x, const double *logits, int h,
                      int d) {
    int w = g->width == 1 ? 0 : d;
    double score = 0;
    if (!g->shared) score = act(g->act, logits[h * g->width + w]);
    for (int i = 0; g->shared && i < g->heads; i++) {
        double s = logits[i * g->width + w];
        score += (g->share_mean_logit ? s : act(g->act, s)) / g->heads;
    }
    if (g->shared && g->share_mean_logit) score = act(g->act, score);
    double in = x[h * g->head_dim + d];
    return g->op == SLUICE_GATE_ADD ? in + score : in * score;
}

/* sum of dy * y over rows first..last. x: [ROWS, heads*head_dim], logits: [ROWS or 1, heads*width]
 */
static double loss(const sluice__gating *g, int first, int last, const double *x,
                   const double *logits, const double *dy) {
    int n = g->heads * g->head_dim, m = g->heads * g->width;
    double sum = 0;
    for (int r = first; r <= last; r++)
        for (int i = 0; i < n; i++)
            sum += dy[r * n + i] * formula(g, x + r * n, logits + (g->input_none ? 0 : r * m),
                                           i / g->head_dim, i % g->head_dim);
    return sum;
}

typedef struct buffers {
    float x[MAX], y[MAX], logits[MAX], dy[MAX], dx[MAX], dlogits[MAX];
    double xd[MAX], logits_d[MAX], dy_d[MAX];
} buffers;
static buffers b;

/* Rows of `width` with PAD floats between them; the dense copy in double. */
static void fill(float *to, double *dense, int width, int stream) {
    sluice__rng_fill_normal(to, MAX, 11, (uint64_t)stream, 0, 0, 1.5f);
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < width; i++) dense[r * width + i] = (double)to[r * (width + PAD) + i];
}

static void check(const char *what, double found, double expected, double scale,
                  const sluice__gating *g, int i) {
    if (fabs(found - expected) <= TOLERANCE * scale) return;
    fail_msg("%s[%d]: found %.9g, expected %.9g (heads %d dim %d width %d shared %d logit %d none "
             "%d act %d op %d)",
             what, i, found, expected, g->heads, g->head_dim, g->width, g->shared,
             g->share_mean_logit, g->input_none, g->act, g->op);
}

static void check_forward(const sluice__gating *g, int n, int m) {
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < n + PAD; i++) {
            double want = i < n ? formula(g, b.xd + r * n, b.logits_d + (g->input_none ? 0 : r * m),
                                          i / g->head_dim, i % g->head_dim)
                                : -7;
            check("y", (double)b.y[r * (n + PAD) + i], want, 1 + fabs(want), g, i);
        }
}

/* By the value at `at`, on which only rows first..last depend. */
static double difference(const sluice__gating *g, int first, int last, double *at) {
    double kept = *at, up, down;
    *at = kept + STEP;
    up = loss(g, first, last, b.xd, b.logits_d, b.dy_d);
    *at = kept - STEP;
    down = loss(g, first, last, b.xd, b.logits_d, b.dy_d);
    *at = kept;
    return (up - down) / (2 * STEP);
}

static void check_backward(const sluice__gating *g, int n, int m) {
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < n + PAD; i++) {
            double want = i < n ? difference(g, r, r, &b.xd[r * n + i]) : -7;
            check("dx", (double)b.dx[r * (n + PAD) + i], want, 1 + fabs(want), g, i);
        }
    int rows = g->input_none ? 1 : ROWS, stride = g->input_none ? m : m + PAD;
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < stride; i++) {
            double want = i < m ? difference(g, r, r + ROWS - rows, &b.logits_d[r * m + i]) +
                                      (g->input_none ? -7 : 0)
                                : -7;
            check("dlogits", (double)b.dlogits[r * stride + i], want, 10 + fabs(want), g, i);
        }
}

static void try_gate(const sluice__gating *g) {
    int n = g->heads * g->head_dim, m = g->heads * g->width;
    fill(b.x, b.xd, n, 1);
    fill(b.logits, b.logits_d, m, 2);
    fill(b.dy, b.dy_d, n, 3);
    for (int i = 0; i < MAX; i++) b.y[i] = b.dx[i] = b.dlogits[i] = -7;
    sluice__gating_forward(g, b.y, n + PAD, b.x, n + PAD, b.logits, m + PAD);
    check_forward(g, n, m);
    sluice__gating_backward(g, b.dx, n + PAD, b.dlogits, m + PAD, b.dy, n + PAD, b.x, n + PAD,
                            b.logits, m + PAD);
    check_backward(g, n, m);
}

static void every_gate_at_every_level(void **state) {
    (void)state;
    static const int shapes[][2] = {{1, 1}, {3, 5}, {2, 16}, {18, 3}, {1, 37}};
    for (size_t l = 0; l < 3; l++) {
        if (sluice_cpu_select(levels[l], NULL) != SLUICE_OK) continue;
        for (int v = 0; v < 5 * 2 * 3 * 2 * 2; v++)
            for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
                int sharing = v / 10 % 3;
                sluice__gating g = {.rows = ROWS,
                                    .heads = shapes[s][0],
                                    .head_dim = shapes[s][1],
                                    .width = v / 30 % 2 ? 1 : shapes[s][1],
                                    .shared = sharing > 0,
                                    .share_mean_logit = sharing == 2,
                                    .input_none = v / 60,
                                    .act = (sluice_gate_act)(v % 5),
                                    .op = (sluice_gate_op)(v / 5 % 2)};
                try_gate(&g);
            }
    }
    assert_ok(sluice_cpu_select(NULL, NULL));
}

static void limits_are_not_nan(void **state) {
    (void)state;
    static const float s[6] = {-INFINITY, -100, -77, 77, 100, INFINITY};
    static const float want[5][6] = {{0, 0, 0, 1, 1, 1},
                                     {0, 0, 0, 77, 100, INFINITY},
                                     {-INFINITY, -100, -77, 77, 100, INFINITY},
                                     {0.5f, 0.5f, 0.5f, 1, 1, 1},
                                     {0, 0, 0, 77, 100, INFINITY}};
    float x[6] = {1, 1, 1, 1, 1, 1}, y[6], dx[6], ds[6];
    for (size_t l = 0; l < 3; l++) {
        if (sluice_cpu_select(levels[l], NULL) != SLUICE_OK) continue;
        for (int a = 0; a < 5; a++) {
            sluice__gating g = {
                .rows = 1, .heads = 6, .head_dim = 1, .width = 1, .act = (sluice_gate_act)a};
            sluice__gating_forward(&g, y, 6, x, 6, s, 6);
            sluice__gating_backward(&g, dx, 6, ds, 6, x, 6, x, 6, s, 6);
            for (int i = 0; i < 6; i++) {
                if (isinf(want[a][i]))
                    assert_true(y[i] == want[a][i]);
                else
                    assert_float_equal(y[i], want[a][i], 1e-30);
                bool flat = a == SLUICE_GATE_SIGMOID || a == SLUICE_GATE_NS_SIGMOID ||
                            (a != SLUICE_GATE_IDENTITY && i < 3);
                assert_float_equal(ds[i], flat ? 0 : 1, 1e-30);
            }
        }
    }
    assert_ok(sluice_cpu_select(NULL, NULL));
}

static void in_place_and_same_bits(void **state) {
    (void)state;
    static float big[2][1 << 17], grad[2][1 << 10], x[1 << 17], logits[1 << 10];
    sluice__rng_fill_normal(x, 1 << 17, 3, 1, 0, 0, 1);
    sluice__rng_fill_normal(logits, 1 << 10, 3, 2, 0, 0, 1);
    sluice__gating g = {.rows = 128, .heads = 16, .head_dim = 64, .width = 64, .input_none = true};
    for (int threads = 1; threads <= 3; threads++) {
        sluice_set_num_threads(threads);
        for (int run = 0; run < 2; run++) {
            memcpy(big[run], x, sizeof x);
            memset(grad[run], 0, sizeof grad[run]);
            sluice__gating_backward(&g, big[run], 1024, grad[run], 0, big[run], 1024, x, 1024,
                                    logits, 0);
            sluice__gating_forward(&g, big[run], 1024, big[run], 1024, logits, 0);
        }
        assert_memory_equal(big[0], big[1], sizeof x);
        assert_memory_equal(grad[0], grad[1], sizeof grad[0]);
        for (int i = 0; i < 1 << 17; i++) {
            double s = 1 / (1 + exp(-(double)logits[i % 1024]));
            assert_float_equal(big[0][i], (float)((double)x[i] * s * s), 2e-6);
        }
    }
    sluice_set_num_threads(0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_gate_at_every_level),
        cmocka_unit_test(limits_are_not_nan),
        cmocka_unit_test(in_place_and_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
