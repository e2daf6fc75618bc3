/* SPDX-License-Identifier: Apache-2.0 */
/* Attention's backward pass against central differences of the forward formula in double: every
 * activation, granularity and operation of the gate, with sinks, softcap, window, documents and
 * grouped heads, at every CPU level. */
#include "support/attention_problem.h"
#include "sluice/cpu.h"
#include <math.h>
#include <string.h>

static const char *const levels[] = {"ref", "avx2", "avx512"};
#define STEP 1e-5
/* Differences of doubles leave 1e-9; what is left is the float arithmetic of the kernels, relative
 * to the largest gradient. */
#define TOLERANCE 4e-6

static double loss(naive_call *c) {
    double sum = 0;
    int64_t count = (int64_t)c->p.batch * c->p.q_len * c->p.num_heads * c->p.head_dim;
    naive_forward(c);
    for (int64_t i = 0; i < count; i++) sum += c->dy[i] * c->y[i];
    return sum;
}

/* want[i] = d loss / d x[i] */
static void differences(naive_call *c, double *x, double *want, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        double kept = x[i], up, down;
        x[i] = kept + STEP;
        up = loss(c);
        x[i] = kept - STEP;
        down = loss(c);
        x[i] = kept;
        want[i] = (up - down) / (2 * STEP);
    }
}

static void check(const char *name, const naive_tensor *found, const double *want, double scale,
                  const problem *x) {
    double error = naive_tensor_error(found, want);
    const sluice_attention_params *p = &x->p;
    if (!(error <= TOLERANCE * scale))
        fail_msg("%s is off by %g of %g: gated %d granularity %d act %d op %d softcap %g window %d "
                 "sinks %d documents %d",
                 name, error, scale, p->gated, p->gate_granularity, p->gate_act, p->gate_op,
                 (double)p->softcap, p->window, p->sinks != NULL, p->key_start != NULL);
    assert_true(naive_tensor_guarded(found));
}

/* Fills the gradients of x->want by differences. */
static void make_want(problem *x) {
    naive_call *w = &x->want;
    differences(w, w->q, w->dq, naive_tensor_count(&x->dq));
    differences(w, w->k, w->dk, naive_tensor_count(&x->dk));
    differences(w, w->v, w->dv, naive_tensor_count(&x->dv));
    if (x->p.gated) differences(w, w->gate, w->dgate, naive_tensor_count(&x->dgate));
    if (x->p.sinks) differences(w, w->sinks, w->dsinks, x->p.num_heads);
    for (int h = 0; h < x->p.num_heads; h++) w->dsinks[h] += 1; /* problem_backward starts from 1 */
}

static void try_case(const sluice_attention_params *p, const problem_options *o) {
    problem x = problem_make(p, o);
    naive_call *w = &x.want;
    make_want(&x);
    double scale = 1;
    scale = fmax(scale, naive_largest(w->dq, naive_tensor_count(&x.dq)));
    scale = fmax(scale, naive_largest(w->dk, naive_tensor_count(&x.dk)));
    scale = fmax(scale, naive_largest(w->dv, naive_tensor_count(&x.dv)));
    scale = fmax(scale, naive_largest(w->dgate, naive_tensor_count(&x.dgate)));
    for (int l = 0; l < 3; l++) {
        if (sluice_cpu_select(levels[l], NULL) != SLUICE_OK) continue;
        problem_forward(&x);
        problem_backward(&x);
        check("dq", &x.dq, w->dq, scale, &x);
        check("dk", &x.dk, w->dk, scale, &x);
        check("dv", &x.dv, w->dv, scale, &x);
        if (p->gated) check("dgate", &x.dgate, w->dgate, scale, &x);
        check("dsinks", &x.dsinks, w->dsinks, scale, &x);
    }
    problem_free(&x);
}

static sluice_attention_params small(int q_len, int kv_len, int heads, int kv_heads, int dim) {
    return (sluice_attention_params){.batch = 1,
                                     .q_len = q_len,
                                     .kv_len = kv_len,
                                     .num_heads = heads,
                                     .num_kv_heads = kv_heads,
                                     .head_dim = dim,
                                     .scale = 0.6f};
}

static void every_gate(void **state) {
    (void)state;
    for (int n = 0; n < 20; n++)
        for (int options = 0; options < 2; options++) {
            sluice_attention_params p = small(4, 5, 2, 1, 3);
            p.gated = 1;
            p.gate_act = (sluice_gate_act)(n % 5);
            p.gate_granularity = (sluice_gate_granularity)(n / 5 % 2);
            p.gate_op = (sluice_gate_op)(n / 10);
            if (options) p.softcap = 2;
            problem_options o = {
                .layout = NAIVE_ODD, .sinks = options, .sd = 1, .seed = (uint64_t)n};
            try_case(&p, &o);
        }
}

static void every_option(void **state) {
    (void)state;
    for (int n = 0; n < 32; n++) {
        sluice_attention_params p = small(n & 1 ? 6 : 3, 6, n & 2 ? 4 : 2, 2, 2);
        p.softcap = n & 4 ? 1.5f : 0;
        p.window = n & 8 ? 3 : 0;
        p.gated = n % 3 == 0;
        problem_options o = {.layout = (naive_layout)(n % NAIVE_LAYOUTS),
                             .documents = n & 16,
                             .sinks = n % 5 < 3,
                             .sd = 1,
                             .seed = (uint64_t)n + 100};
        try_case(&p, &o);
    }
}

/* Negative and large factors are as good as any. */
static void any_scale(void **state) {
    (void)state;
    static const float scales[] = {-0.5f, 3, 1e-3f};
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
        sluice_attention_params p = small(5, 5, 1, 1, 4);
        p.scale = scales[i];
        problem_options o = {.layout = NAIVE_DENSE, .sd = 1, .seed = i};
        try_case(&p, &o);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_gate),
        cmocka_unit_test(every_option),
        cmocka_unit_test(any_scale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
