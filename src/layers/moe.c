/* SPDX-License-Identifier: Apache-2.0 */
/* Dropless experts: the rows of all choices are copied next to each other in the order of experts, so that an
 * expert is two products over as many rows as it has tokens, and no row is padding. With many experts, threads take
 * whole experts; with few, they share each product. Either way every number is formed in one place and one order.
 * Backward forms the gradient of a token's weight without the expert's output: dout . (act Wd^T) =
 * act . (dout Wd). */
#include "layers/moe.h"
#include "kernels/kernels.h"
#include "kernels/parallel.h"
#include "kernels/profile.h"
#include "layers/dense.h"
#include "layers/glu.h"
#include "layers/routing.h"
#include <string.h>

typedef struct context {
    const sluice__pass *pass;
    const sluice_moe_spec *moe;
    const sluice__moe_state *s;
    const sluice__layer_weights *w;
    int64_t rows, width, inner, shared; /* inner, shared: F' of an expert, F" of the shared one */
    int top;
    sluice_mlp_act act;
} context;

static context context_of(const sluice__pass *pass, int layer, const sluice__moe_state *s) {
    const sluice_moe_spec *m = &pass->config->layers[layer].moe;
    return (context){.pass = pass,
                     .moe = m,
                     .s = s,
                     .w = &sluice__model_weights(pass->ws->model)->layers[layer],
                     .rows = pass->rows,
                     .width = pass->config->hidden_size,
                     .inner = m->intermediate_size,
                     .shared = m->shared_intermediate_size,
                     .top = m->num_experts_per_tok,
                     .act = pass->config->layers[layer].mlp_act};
}

/* Threads that take whole experts; 1 = they share each product. */
static int experts_team(const context *c) {
    int threads = omp_in_parallel() ? 1 : omp_get_max_threads();
    bool worth = c->rows * c->top * c->inner * c->width > 8 * SLUICE__PARALLEL_GRAIN;
    return threads > 1 && worth && c->moe->num_experts >= 4 * threads ? threads : 1;
}

/* y[i,:] = x[token[i],:] for all rows in the order of experts. */
static void gather(const context *c, float *y, const float *x) {
    SLUICE__SPAN_FLOATS("rows to experts and back", 2 * c->rows * c->top * c->width);
    int64_t slots = c->rows * c->top, width = c->width;
    SLUICE__SPLIT(sluice__team(slots * width), slots, 1, {
        for (int64_t i = range.begin; i < range.end; i++)
            memcpy(y + i * width, x + c->s->token[i] * width, (size_t)width * sizeof *y);
    });
}

/* out[r,:] = sum of x over the token's rows, in order of choice, times its weights if `weighted`. */
static void combine(const context *c, float *out, const float *x, bool weighted) {
    SLUICE__SPAN_FLOATS("rows to experts and back", c->rows * (c->top + 1) * c->width);
    const sluice__kernels *k = sluice__kernels_now();
    int64_t width = c->width;
    SLUICE__SPLIT(sluice__team(c->rows * c->top * width), c->rows, 1, {
        for (int64_t r = range.begin; r < range.end; r++) {
            float *to = out + r * width;
            memset(to, 0, (size_t)width * sizeof *to);
            for (int64_t j = r * c->top; j < (r + 1) * c->top; j++)
                k->axpy_f32(to, weighted ? c->s->weight[j] : 1.0f, x + c->s->place[j] * width, width);
        }
    });
}

static void expert_forward(const context *c, int e) {
    const sluice__moe_state *s = c->s;
    int64_t at = s->start[e], n = s->start[e + 1] - at, width = c->width, inner = c->inner;
    if (!n) return;
    float *gate_up = s->gate_up + at * 2 * inner, *act = s->act + at * inner;
    const sluice__layer_weights *w = c->w;
    sluice__dense_forward(c->pass, gate_up, 2 * inner, s->x + at * width, width, NULL,
                          sluice__of_expert(w->stacks.expert_gate_up, e),
                          w->expert_gate_up_bias ? w->expert_gate_up_bias + e * 2 * inner : NULL, n);
    sluice__glu_forward(act, inner, gate_up, 2 * inner, n, inner, c->act, c->moe->limit);
    sluice__dense_forward(c->pass, s->y + at * width, width, act, inner, NULL,
                          sluice__of_expert(w->stacks.expert_down, e),
                          w->expert_down_bias ? w->expert_down_bias + e * width : NULL, n);
}

/* out += [score] * shared(x); s->y is free by now. */
static void shared_forward(const context *c, const float *x, float *out) {
    const sluice__moe_state *s = c->s;
    int64_t rows = c->rows, width = c->width, inner = c->shared;
    sluice__dense_forward(c->pass, s->shared_gate_up, 2 * inner, x, width, NULL, c->w->stacks.shared_gate_up,
                          c->w->shared_gate_up_bias, rows);
    sluice__glu_forward(s->shared_act, inner, s->shared_gate_up, 2 * inner, rows, inner, c->act, c->moe->shared_limit);
    sluice__dense_forward(c->pass, s->y, width, s->shared_act, inner, NULL, c->w->stacks.shared_down,
                          c->w->shared_down_bias, rows);
    if (!s->shared_score) {
        sluice__add(out, s->y, rows * width);
        return;
    }
    const sluice__kernels *k = sluice__kernels_now();
    sluice__dense_forward(c->pass, s->shared_score, 1, x, width, NULL, c->w->stacks.shared_gate, NULL, rows);
    k->sigmoid_f32(s->shared_score, s->shared_score, rows);
    SLUICE__SPLIT(sluice__team(rows * width), rows, 1, {
        for (int64_t r = range.begin; r < range.end; r++)
            k->axpy_f32(out + r * width, s->shared_score[r], s->y + r * width, width);
    });
}

/* Multiplications and additions of the experts' products of one direction. */
static double experts_flops(const context *c) {
    return 6.0 * (double)c->rows * c->top * (double)c->inner * (double)c->width;
}

static void experts_forward(const context *c) {
    int experts = c->moe->num_experts, team = experts_team(c);
    SLUICE__SPAN(.name = team > 1 ? "experts forward" : NULL, .flops = experts_flops(c));
#pragma omp parallel for schedule(dynamic) num_threads(team) if (team > 1)
    for (int e = 0; e < experts; e++) expert_forward(c, e);
}

void sluice__moe_forward(const sluice__pass *pass, int layer, const float *x, float *out,
                         const sluice__moe_state *state) {
    context c = context_of(pass, layer, state);
    sluice__route(pass, layer, x, state);
    gather(&c, state->x, x);
    experts_forward(&c);
    combine(&c, out, state->y, true);
    if (c.shared) shared_forward(&c, x, out);
}

/* ---- backward ---- */

/* Of n rows:  dweight = act . dact;  dact and d are scaled by the weights. */
static void scale_rows(float *dweight, const float *weight, const float *act, float *dact, float *d, int64_t n,
                       int64_t inner, int64_t width) {
    SLUICE__SPAN_FLOATS("weights of experts", n * (3 * inner + 2 * width));
    const sluice__kernels *k = sluice__kernels_now();
    SLUICE__SPLIT(sluice__team(n * (inner + width)), n, 1, {
        for (int64_t i = range.begin; i < range.end; i++) {
            float w = weight[i];
            dweight[i] = k->dot_f32(act + i * inner, dact + i * inner, inner);
            k->scale_f32(dact + i * inner, w, inner);
            k->scale_f32(d + i * width, w, width);
        }
    });
}

/* Weights of the rows in the order of experts, where scale_rows will put their gradients. */
static void weights_to_rows(const context *c, float *dweight) {
    for (int64_t j = 0; j < c->rows * c->top; j++) dweight[c->s->place[j]] = c->s->weight[j];
}

/* The rows of expert e in moe_d: from the gradient of out to that of x; dweight: from weights to their gradients. */
static void expert_backward(const context *c, const sluice__layer_weights *g, int e) {
    const sluice__moe_state *s = c->s;
    const sluice__backward_state *b = &c->pass->ws->back;
    int64_t at = s->start[e], n = s->start[e + 1] - at, width = c->width, inner = c->inner;
    if (!n) return;
    float *d = b->moe_d + at * width, *dact = b->dact + at * inner, *dgate_up = b->dgate_up + at * 2 * inner;
    const float *act = s->act + at * inner, *gate_up = s->gate_up + at * 2 * inner;
    int64_t down = e * inner * width, up = 2 * down;
    sluice__dense_backward_input(c->pass, dact, inner, d, width, c->w->expert_down + down, n, width, inner, false);
    scale_rows(b->dweight + at, b->dweight + at, act, dact, d, n, inner, width);
    sluice__dense_backward_weight(c->pass, g->expert_down + down, NULL, d, width, act, inner, NULL, n, width, inner);
    sluice__swiglu_backward(dgate_up, dact, inner, gate_up, 2 * inner, n, inner);
    sluice__dense_backward_weight(c->pass, g->expert_gate_up + up, NULL, dgate_up, 2 * inner, b->moe_x + at * width,
                                  width, NULL, n, 2 * inner, width);
    sluice__dense_backward_input(c->pass, d, width, dgate_up, 2 * inner, c->w->expert_gate_up + up, n, 2 * inner, width,
                                 false);
}

/* dx += gradient by way of the shared expert; moe_d and dprob are free by now. */
static void shared_backward(const context *c, const sluice__layer_weights *g, const float *dout, const float *x,
                            float *dx) {
    const sluice__moe_state *s = c->s;
    const sluice__backward_state *b = &c->pass->ws->back;
    int64_t rows = c->rows, width = c->width, inner = c->shared;
    sluice__dense_backward_input(c->pass, b->dact, inner, dout, width, c->w->shared_down, rows, width, inner, false);
    if (s->shared_score) {
        float *dscore = b->dprob, *scaled = b->moe_d;
        memcpy(scaled, dout, (size_t)(rows * width) * sizeof *scaled);
        scale_rows(dscore, s->shared_score, s->shared_act, b->dact, scaled, rows, inner, width);
        for (int64_t r = 0; r < rows; r++) dscore[r] *= s->shared_score[r] * (1 - s->shared_score[r]);
        sluice__dense_backward_weight(c->pass, g->shared_gate, NULL, dscore, 1, x, width, NULL, rows, 1, width);
        sluice__dense_backward_input(c->pass, dx, width, dscore, 1, c->w->shared_gate, rows, 1, width, true);
        dout = scaled;
    }
    sluice__dense_backward_weight(c->pass, g->shared_down, NULL, dout, width, s->shared_act, inner, NULL, rows, width,
                                  inner);
    sluice__swiglu_backward(b->dgate_up, b->dact, inner, s->shared_gate_up, 2 * inner, rows, inner);
    sluice__dense_backward_weight(c->pass, g->shared_gate_up, NULL, b->dgate_up, 2 * inner, x, width, NULL, rows,
                                  2 * inner, width);
    sluice__dense_backward_input(c->pass, dx, width, b->dgate_up, 2 * inner, c->w->shared_gate_up, rows, 2 * inner, width,
                                 true);
}

static void experts_backward(const context *c, const sluice__layer_weights *g) {
    int experts = c->moe->num_experts, team = experts_team(c);
    SLUICE__SPAN(.name = team > 1 ? "experts backward" : NULL, .flops = 2 * experts_flops(c));
#pragma omp parallel for schedule(dynamic) num_threads(team) if (team > 1)
    for (int e = 0; e < experts; e++) expert_backward(c, g, e);
}

void sluice__moe_backward(const sluice__pass *pass, int layer, const float *dout, const float *x, float *dx,
                          const sluice__moe_state *state) {
    context c = context_of(pass, layer, state);
    const sluice__layer_weights *g = &pass->ws->grads.layers[layer];
    const sluice__backward_state *b = &pass->ws->back;
    int experts = c.moe->num_experts;
    gather(&c, b->moe_x, x);
    gather(&c, b->moe_d, dout);
    weights_to_rows(&c, b->dweight);
    experts_backward(&c, g);
    combine(&c, dx, b->moe_d, false);
    sluice__route_backward(pass, layer, state);
    sluice__linear_backward_weight(g->router, NULL, b->dprob, experts, x, c.width, c.rows, experts, c.width);
    sluice__linear_backward_input(dx, c.width, b->dprob, experts, c.w->router, c.rows, experts, c.width, true);
    if (c.shared) shared_backward(&c, g, dout, x, dx);
}
