/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax, top-k and a counting sort of the choices by expert. Everything is decided in fp32 and in the order of
 * tokens, so the same input goes the same way whatever the number of threads. */
#include "layers/routing.h"
#include "kernels/kernels.h"
#include "kernels/parallel.h"
#include "kernels/profile.h"
#include "layers/glu.h"
#include "layers/topk.h"
#include <assert.h>
#include <math.h>
#include <string.h>

/* p [experts] = softmax(p) in place; returns logsumexp. */
static float softmax(const sluice__kernels *k, float *p, int experts) {
    float max = p[0];
    double sum = 0;
    for (int e = 1; e < experts; e++) max = p[e] > max ? p[e] : max;
    for (int e = 0; e < experts; e++) p[e] -= max;
    k->exp_f32(p, p, experts);
    for (int e = 0; e < experts; e++) sum += p[e];
    float scale = (float)(1 / sum);
    for (int e = 0; e < experts; e++) p[e] *= scale;
    return max + (float)log(sum);
}

/* The best of prob + bias; bias [E] or NULL. */
static void select_best(const sluice_moe_spec *m, int32_t *choice, const float *p, const float *bias) {
    enum { MOST = 4096 }; /* experts, by the limits of config_moe.c */
    float biased[MOST];
    assert(m->num_experts <= MOST);
    for (int e = 0; bias && e < m->num_experts; e++) biased[e] = p[e] + bias[e];
    sluice__topk(choice, bias ? biased : p, m->num_experts, m->num_experts_per_tok);
}

static void choose(const sluice_moe_spec *m, const sluice__moe_state *s, const float *bias, int64_t r) {
    int top = m->num_experts_per_tok;
    const float *p = s->prob + r * m->num_experts;
    int32_t *choice = s->choice + r * top;
    float *weight = s->weight + r * top, sum = 0;
    select_best(m, choice, p, bias);
    for (int j = 0; j < top; j++) sum += weight[j] = p[choice[j]];
    sum += m->score == SLUICE_ROUTER_SIGMOID ? 1e-20f : 0; /* all scores may be 0 */
    for (int j = 0; m->norm_topk_prob && j < top; j++) weight[j] /= sum;
    for (int j = 0; m->route_scale != 0 && j < top; j++) weight[j] *= m->route_scale;
}

/* Scores of row r from its logits. */
static void score(const sluice__kernels *k, const sluice_moe_spec *m, const sluice__moe_state *s, int64_t r) {
    float *p = s->prob + r * m->num_experts;
    if (m->logit_softcap > 0) sluice__softcap(p, m->logit_softcap, m->num_experts);
    if (m->score == SLUICE_ROUTER_SOFTMAX) s->lse[r] = softmax(k, p, m->num_experts);
    else k->sigmoid_f32(p, p, m->num_experts);
}

/* Tokens of one expert keep their order. */
static void sort_by_expert(const sluice_moe_spec *m, const sluice__moe_state *s, int64_t rows) {
    int64_t slots = rows * m->num_experts_per_tok;
    memset(s->start, 0, ((size_t)m->num_experts + 1) * sizeof *s->start);
    for (int64_t i = 0; i < slots; i++) s->start[s->choice[i] + 1]++;
    for (int e = 0; e < m->num_experts; e++) s->start[e + 1] += s->start[e];
    for (int64_t i = 0; i < slots; i++) {
        int64_t at = s->start[s->choice[i]]++; /* afterwards start[e] is where e + 1 begins */
        s->place[i] = (int32_t)at;
        s->token[at] = (int32_t)(i / m->num_experts_per_tok);
    }
    memmove(s->start + 1, s->start, (size_t)m->num_experts * sizeof *s->start);
    s->start[0] = 0;
}

/* Shares f of the balance loss, from the counts that the kind of balance asks for. */
static void count(sluice__router *router, int layer, const sluice_moe_spec *m, const sluice__moe_state *s) {
    double *counts = router->counts + (int64_t)layer * router->experts,
           *share = router->share + (int64_t)layer * router->experts;
    bool own = router->balance == SLUICE__BALANCE_MICRO;
    double sum = 0;
    for (int e = 0; e < m->num_experts; e++) {
        double here = (double)(s->start[e + 1] - s->start[e]);
        if (!router->counted) counts[e] += here;
        share[e] = own ? here : counts[e];
        sum += share[e];
    }
    for (int e = 0; e < m->num_experts; e++) share[e] /= sum;
}

static void add_losses(sluice__router *router, int layer, const sluice_moe_spec *m, const sluice__moe_state *s,
                       int64_t rows) {
    const double *share = router->share + (int64_t)layer * router->experts;
    double balance = 0, z = 0, entropy = 0;
    for (int64_t r = 0; r < rows; r++) {
        const float *p = s->prob + r * m->num_experts;
        for (int e = 0; e < m->num_experts; e++) {
            balance += share[e] * (double)p[e];
            if (p[e] > 0) entropy -= (double)(p[e] * logf(p[e]));
        }
        z += (double)s->lse[r] * (double)s->lse[r];
    }
    router->balance_loss += m->num_experts * balance / (double)router->tokens;
    router->z_loss += z / (double)router->tokens;
    router->entropy[layer] += entropy;
}

void sluice__route(const sluice__pass *pass, int layer, const float *x, const sluice__moe_state *s) {
    const sluice_moe_spec *m = &pass->config->layers[layer].moe;
    const sluice__kernels *k = sluice__kernels_now();
    int experts = m->num_experts;
    int64_t width = pass->config->hidden_size;
    const sluice__layer_weights *w = &sluice__model_weights(pass->ws->model)->layers[layer];
    sluice__stack_forward_exact(s->prob, experts, x, width, w->stacks.router, w->router_bias, pass->rows);
    SLUICE__SPAN(.name = "routing");
    SLUICE__SPLIT(sluice__team(pass->rows * experts), pass->rows, 1, {
        for (int64_t r = range.begin; r < range.end; r++) {
            score(k, m, s, r);
            choose(m, s, w->selection_bias, r);
        }
    });
    sort_by_expert(m, s, pass->rows);
    if (!pass->router) return;
    count(pass->router, layer, m, s);
    if (!pass->router->counting) add_losses(pass->router, layer, m, s, pass->rows);
}

/* d [experts] += gradient of the probabilities by way of the weights of token r. */
static void weights_back(const sluice_moe_spec *m, const sluice__moe_state *s, const float *dweight, float *d,
                         int64_t r) {
    int top = m->num_experts_per_tok;
    const int32_t *choice = s->choice + r * top, *place = s->place + r * top;
    const float *weight = s->weight + r * top, *p = s->prob + r * m->num_experts;
    float sum = 0, mean = 0;
    for (int j = 0; j < top; j++) {
        sum += p[choice[j]];
        mean += weight[j] * dweight[place[j]];
    }
    for (int j = 0; j < top; j++)
        d[choice[j]] += m->norm_topk_prob ? (dweight[place[j]] - mean) / sum : dweight[place[j]];
}

/* d [experts] from the gradient of probabilities p to that of logits. */
static void softmax_back(const float *p, float *d, int experts) {
    double mean = 0;
    for (int e = 0; e < experts; e++) mean += (double)p[e] * (double)d[e];
    for (int e = 0; e < experts; e++) d[e] = p[e] * (d[e] - (float)mean);
}

void sluice__route_backward(const sluice__pass *pass, int layer, const sluice__moe_state *s) {
    SLUICE__SPAN(.name = "routing");
    const sluice_moe_spec *m = &pass->config->layers[layer].moe;
    const sluice__backward_state *b = &pass->ws->back;
    const sluice__router *router = pass->router;
    const double *share = router ? router->share + (int64_t)layer * router->experts : NULL;
    double balance = router ? router->aux_coef * m->num_experts / (double)router->tokens : 0;
    double z = router ? 2 * router->z_coef / (double)router->tokens : 0;
    int experts = m->num_experts;
    SLUICE__SPLIT(sluice__team(pass->rows * experts), pass->rows, 1, {
        for (int64_t r = range.begin; r < range.end; r++) {
            const float *p = s->prob + r * experts;
            float *d = b->dprob + r * experts;
            for (int e = 0; e < experts; e++) d[e] = share ? (float)(balance * share[e]) : 0.0f;
            weights_back(m, s, b->dweight, d, r);
            softmax_back(p, d, experts);
            for (int e = 0; e < experts; e++) d[e] += (float)(z * (double)s->lse[r]) * p[e];
        }
    });
}
