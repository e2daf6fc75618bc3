/* SPDX-License-Identifier: Apache-2.0 */
/* What released models have and models of our own do not: parts that run, but that training has no backward pass for
 * and our config.json no key. */
#include "model/config.h"
#include <math.h>

static const char *of_experts(const sluice_moe_spec *m) {
    if (m->score != SLUICE_ROUTER_SOFTMAX) return "a router with sigmoid scores";
    if (m->router_bias || m->selection_bias) return "a router with a bias";
    if (m->route_scale != 0 && m->route_scale != 1) return "a scaled router";
    if (m->logit_softcap > 0) return "a router with soft-capped logits";
    if (m->expert_bias) return "experts with biases";
    if (m->limit > 0 || m->shared_limit > 0) return "a clamped activation";
    if (m->shared_intermediate_size != m->num_shared_experts * m->intermediate_size)
        return "a shared expert whose width is no multiple of that of the others";
    return NULL;
}

static const char *of_layer(const sluice_layer_spec *l) {
    if (sluice_layer_is_linear(l)) return "linear attention (gated delta rule)";
    if (l->no_input_norm) return "a layer whose norms stand behind its branches";
    if (l->qk_norm && l->qk_norm_whole) return "a q/k norm over all heads";
    if (fabs((double)l->attention_scale * sqrt(l->head_dim) - 1) > 1e-6)
        return "an attention scale other than 1/sqrt(head_dim)";
    if (l->sinks) return "a learned sink in the softmax";
    if (l->qk_norm_weightless) return "a q/k norm without weights";
    if (l->mlp_act != SLUICE_MLP_SILU) return "an MLP gated by another function than SiLU";
    if (l->mlp_limit > 0) return "a clamped activation";
    if (l->mlp_bias) return "an MLP with biases";
    return l->moe.num_experts ? of_experts(&l->moe) : NULL;
}

const char *sluice_config_foreign_part(const sluice_config *c) {
    if (c->embedding_norm || c->embedding_scale != 0) return "embeddings with a norm or a scale";
    if (c->logit_scale != 0 || c->logit_softcap > 0) return "logits with a scale or a soft-cap";
    if (c->post_norm_eps > 0 && c->post_norm_eps != c->rms_norm_eps) return "norms with different epsilons";
    for (int i = 0; i < c->num_hidden_layers; i++) {
        const char *part = of_layer(&c->layers[i]);
        if (part) return part;
    }
    return NULL;
}
