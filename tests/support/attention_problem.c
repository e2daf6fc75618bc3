/* SPDX-License-Identifier: Apache-2.0 */
/* Making, running and judging one attention call. */
#include "support/attention_problem.h"
#include "base/rng.h"
#include "kernels/bf16.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Unit roundoff of float. Errors below count roundings of this size. */
#define EPS 6e-8
/* A product of two vectors of up to 256 elements is off by a few roundings of the score, and an
 * error e of a score changes its share by the factor 1 + e: 2 roundings of the largest score. The
 * sums over keys add some 8 more, relative to the largest value. Peaked scores of +-20 thus may
 * give 3e-6, ordinary ones of +-4 give 1e-6. */
#define FORWARD_TOLERANCE(score) (EPS * (8 + 2 * (score)))
/* A gradient of a score is share * (dshare - sum): the difference of two sums over the head, each
 * off by several roundings. The share is made anew from a score and a saved log-sum-exp, whose own
 * errors and rounding come to 6 roundings of a score. */
#define BACKWARD_TOLERANCE(score) (EPS * (60 + 6 * (score)))
#define LSE_TOLERANCE 1e-6

static int32_t *make_documents(const sluice_attention_params *p, uint64_t seed) {
    int32_t *start = malloc((size_t)p->batch * (size_t)p->q_len * sizeof *start);
    sluice__rng rng = {.seed = seed, .stream = 99};
    if (!start) abort();
    for (int b = 0; b < p->batch; b++) {
        int32_t begin = 0;
        for (int j = 0; j < p->kv_len; j++) {
            if (sluice__rng_below(&rng, 12) == 0) begin = j;
            int i = j - (p->kv_len - p->q_len);
            if (i >= 0) start[b * p->q_len + i] = begin;
        }
    }
    return start;
}

static naive_tensor filled(naive_layout layout, int64_t batch, int64_t tokens, int64_t heads,
                           int64_t width, uint64_t stream, float sd) {
    naive_tensor t = naive_tensor_make(layout, batch, tokens, heads, width);
    naive_tensor_fill(&t, stream, sd);
    return t;
}

static void round_to_bf16(naive_tensor *t) {
    for (int64_t b = 0; b < t->batch; b++)
        for (int64_t i = 0; i < t->tokens; i++)
            for (int64_t h = 0; h < t->heads; h++) {
                float *x = naive_tensor_at(t, b, i, h);
                for (int64_t d = 0; d < t->width; d++) x[d] = sluice__bf16_widen(sluice__bf16_round(x[d]));
            }
}

static void make_operands(problem *x, const problem_options *options) {
    const sluice_attention_params *p = &x->p;
    naive_layout l = options->layout, other = l == NAIVE_FAR ? l : (naive_layout)((l + 1) % NAIVE_LAYOUTS);
    uint64_t stream = options->seed * 16;
    int width = p->gate_granularity == SLUICE_GATE_HEADWISE ? 1 : p->head_dim;
    x->q = filled(l, p->batch, p->q_len, p->num_heads, p->head_dim, stream, options->sd);
    x->k = filled(l, p->batch, p->kv_len, p->num_kv_heads, p->head_dim, stream + 1, 1);
    x->v = filled(other, p->batch, p->kv_len, p->num_kv_heads, p->head_dim, stream + 2, 1);
    x->gate = filled(l, p->batch, p->q_len, p->num_heads, width, stream + 3, 2);
    x->dy = filled(other, p->batch, p->q_len, p->num_heads, p->head_dim, stream + 4, 1);
    x->sinks = filled(NAIVE_DENSE, 1, 1, 1, p->num_heads, stream + 5, 1);
    naive_tensor *factors[] = {&x->q, &x->k, &x->v, &x->dy};
    for (int i = 0; i < 4 && p->bf16; i++) round_to_bf16(factors[i]);
    x->y = naive_tensor_make(l, p->batch, p->q_len, p->num_heads, p->head_dim);
    x->o = naive_tensor_make(other, p->batch, p->q_len, p->num_heads, p->head_dim);
    x->dq = naive_tensor_make(other, p->batch, p->q_len, p->num_heads, p->head_dim);
    x->dk = naive_tensor_make(l, p->batch, p->kv_len, p->num_kv_heads, p->head_dim);
    x->dv = naive_tensor_make(other, p->batch, p->kv_len, p->num_kv_heads, p->head_dim);
    x->dgate = naive_tensor_make(l, p->batch, p->q_len, p->num_heads, width);
    x->lse = naive_tensor_make(NAIVE_DENSE, p->batch, p->num_heads, 1, p->q_len);
    x->share = naive_tensor_make(NAIVE_DENSE, p->batch, p->num_heads, 1, p->q_len);
    x->dsinks = naive_tensor_make(NAIVE_DENSE, 1, 1, 1, p->num_heads);
}

problem problem_make(const sluice_attention_params *p, const problem_options *options) {
    problem x = {.p = *p, .layout = options->layout, .sd = options->sd};
    make_operands(&x, options);
    if (options->documents) x.p.key_start = x.key_start = make_documents(p, options->seed);
    if (options->sinks) x.p.sinks = x.sinks.at.data;
    x.want = naive_call_make(&x.p);
    naive_tensor_read(&x.q, x.want.q);
    naive_tensor_read(&x.k, x.want.k);
    naive_tensor_read(&x.v, x.want.v);
    naive_tensor_read(&x.gate, x.want.gate);
    naive_tensor_read(&x.dy, x.want.dy);
    naive_tensor_read(&x.sinks, x.want.sinks);
    return x;
}

void problem_free(problem *x) {
    naive_tensor *all[] = {&x->q,     &x->k,   &x->v,     &x->gate,   &x->y,
                           &x->o,     &x->dy,  &x->dq,    &x->dk,     &x->dv,
                           &x->dgate, &x->lse, &x->share, &x->dsinks, &x->sinks};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) naive_tensor_free(all[i]);
    free(x->key_start);
    naive_call_free(&x->want);
}

void problem_forward(problem *x) {
    sluice_error err = {0};
    sluice_strided none = {0};
    assert_ok_err(sluice_attention_forward(&x->p, x->q.view, x->k.view, x->v.view,
                                           x->p.gated ? x->gate.view : none, x->y.view, x->o.view,
                                           x->lse.at.data, x->share.at.data, &err),
                  &err);
}

void problem_backward(problem *x) {
    sluice_error err = {0};
    sluice_strided none = {0};
    for (int h = 0; h < x->p.num_heads; h++) x->dsinks.at.data[h] = 1; /* it is added to */
    assert_ok_err(sluice_attention_backward(
                      &x->p, x->q.view, x->k.view, x->v.view, x->p.gated ? x->gate.view : none,
                      x->o.view, x->lse.at.data, x->dy.view, x->dq.view, x->dk.view, x->dv.view,
                      x->p.gated ? x->dgate.view : none, x->dsinks.at.data, &err),
                  &err);
}

void problem_want(problem *x, bool backward) {
    naive_forward(&x->want);
    if (!backward) return;
    naive_backward(&x->want);
    for (int h = 0; h < x->p.num_heads; h++) x->want.dsinks[h] += 1;
}

static void describe(const problem *x, char text[256]) {
    const sluice_attention_params *p = &x->p;
    snprintf(text, 256,
             "batch %d q_len %d kv_len %d heads %d/%d dim %d softcap %g window %d documents %d "
             "sinks %d gated %d (granularity %d act "
             "%d op %d) layout %d",
             p->batch, p->q_len, p->kv_len, p->num_heads, p->num_kv_heads, p->head_dim,
             (double)p->softcap, p->window, p->key_start != NULL, p->sinks != NULL, p->gated,
             p->gate_granularity, p->gate_act, p->gate_op, x->layout);
}

static void check(const problem *x, const char *what, const char *name, const naive_tensor *found,
                  const double *want, double tolerance) {
    char text[256];
    double error = naive_tensor_error(found, want);
    describe(x, text);
    if (!(error <= tolerance))
        fail_msg("%s: %s is off by %g, allowed %g: %s", what, name, error, tolerance, text);
    if (!naive_tensor_guarded(found))
        fail_msg("%s: memory beside %s was written: %s", what, name, text);
}

void problem_check_forward(const problem *x, const char *what) {
    const naive_call *w = &x->want;
    int64_t n = naive_tensor_count(&x->o), rows = naive_tensor_count(&x->lse);
    double tolerance = FORWARD_TOLERANCE(w->most_score);
    check(x, what, "o", &x->o, w->o,
          tolerance * (naive_largest(w->v, naive_tensor_count(&x->v)) + 1e-30));
    check(x, what, "y", &x->y, w->y,
          tolerance * (naive_largest(w->y, n) + naive_largest(w->o, n) + 1e-30));
    check(x, what, "lse", &x->lse, w->lse, LSE_TOLERANCE * (1 + naive_largest(w->lse, rows)));
    check(x, what, "first_share", &x->share, w->share, tolerance);
}

void problem_check_backward(const problem *x, const char *what) {
    const naive_call *w = &x->want;
    int64_t queries = naive_tensor_count(&x->dq), keys = naive_tensor_count(&x->dk);
    double tolerance = BACKWARD_TOLERANCE(w->most_score), most = naive_largest(w->dq, queries);
    most = fmax(fmax(most, naive_largest(w->dk, keys)), naive_largest(w->dv, keys));
    check(x, what, "dq", &x->dq, w->dq, tolerance * most);
    check(x, what, "dk", &x->dk, w->dk, tolerance * most);
    check(x, what, "dv", &x->dv, w->dv, tolerance * most);
    if (x->p.gated)
        check(x, what, "dgate", &x->dgate, w->dgate,
              tolerance * (1 + naive_largest(w->dgate, naive_tensor_count(&x->dgate))));
    check(x, what, "dsinks", &x->dsinks, w->dsinks,
          tolerance * (1 + naive_largest(w->dsinks, x->p.num_heads)));
}

float *problem_results(const problem *x, size_t *bytes) {
    const naive_tensor *all[] = {&x->y,  &x->o,  &x->lse,   &x->share, &x->dq,
                                 &x->dk, &x->dv, &x->dgate, &x->dsinks};
    size_t total = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) total += (size_t)all[i]->floats;
    float *copy = malloc(total * sizeof *copy), *to = copy;
    if (!copy) abort();
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        memcpy(to, all[i]->memory, (size_t)all[i]->floats * sizeof *to);
        to += all[i]->floats;
    }
    *bytes = total * sizeof *copy;
    return copy;
}
