/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of a step, and what they say. */
#include "layers/router.h"
#include "base/error.h"
#include "base/memory.h"
#include <math.h>
#include <string.h>

sluice_status sluice__router_new(sluice__router **out, const sluice_config *c, sluice_error *err) {
    *out = NULL;
    int experts = 0;
    for (int i = 0; i < c->num_hidden_layers; i++)
        if (c->layers[i].moe.num_experts > experts) experts = c->layers[i].moe.num_experts;
    if (!experts) return SLUICE_OK;
    size_t layers = (size_t)c->num_hidden_layers, cells = layers * (size_t)experts;
    sluice__router *r = sluice__calloc(1, sizeof *r, SLUICE__MEM_OTHER);
    if (!r) return sluice__no_memory(err, sizeof *r, "router statistics");
    *r = (sluice__router){.aux_coef = c->router_aux_loss_coef,
                          .z_coef = c->router_z_loss_coef,
                          .layers = c->num_hidden_layers,
                          .experts = experts,
                          .counts = sluice__calloc(cells, sizeof *r->counts, SLUICE__MEM_OTHER),
                          .share = sluice__calloc(cells, sizeof *r->share, SLUICE__MEM_OTHER),
                          .entropy = sluice__calloc(layers, sizeof *r->entropy, SLUICE__MEM_OTHER)};
    if (!r->counts || !r->share || !r->entropy) {
        sluice__router_free(r);
        return sluice__no_memory(err, 2 * cells * sizeof *r->counts, "router statistics");
    }
    *out = r;
    return SLUICE_OK;
}

void sluice__router_free(sluice__router *r) {
    if (!r) return;
    sluice__free(r->counts);
    sluice__free(r->share);
    sluice__free(r->entropy);
    sluice__free(r);
}

void sluice__router_reset(sluice__router *r, sluice__balance balance, int64_t tokens) {
    size_t cells = (size_t)r->layers * (size_t)r->experts;
    memset(r->counts, 0, cells * sizeof *r->counts);
    memset(r->share, 0, cells * sizeof *r->share);
    memset(r->entropy, 0, (size_t)r->layers * sizeof *r->entropy);
    r->balance = balance;
    r->tokens = tokens > 0 ? tokens : 1;
    r->counting = r->counted = false;
    r->balance_loss = r->z_loss = 0;
}

double sluice__router_objective(const sluice__router *r) {
    return r->aux_coef * r->balance_loss + r->z_coef * r->z_loss;
}

sluice__router_summary sluice__router_summarise_layer(const sluice__router *r, const sluice_config *c, int layer) {
    sluice__router_summary s = {.entropy = NAN};
    const sluice_moe_spec *m = &c->layers[layer].moe;
    const double *counts = r->counts + (size_t)layer * (size_t)r->experts;
    double sum = 0, most = 0;
    for (int e = 0; e < m->num_experts; e++) {
        sum += counts[e];
        most = fmax(most, counts[e]);
        s.dead_experts += counts[e] == 0;
    }
    if (sum <= 0) return s;
    s.max_load = most / sum * m->num_experts;
    s.entropy = m->num_experts > 1 ? r->entropy[layer] / (sum / m->num_experts_per_tok) / log(m->num_experts) : 0;
    return s;
}

sluice__router_summary sluice__router_summarise(const sluice__router *r, const sluice_config *c) {
    sluice__router_summary s = {0};
    int layers = 0;
    for (int l = 0; l < r->layers; l++) {
        if (!c->layers[l].moe.num_experts) continue;
        sluice__router_summary one = sluice__router_summarise_layer(r, c, l);
        layers++;
        s.dead_experts += one.dead_experts;
        s.max_load = fmax(s.max_load, one.max_load);
        if (isfinite(one.entropy)) s.entropy += one.entropy;
    }
    if (layers) s.entropy /= layers;
    return s;
}
