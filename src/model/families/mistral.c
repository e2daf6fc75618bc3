/* SPDX-License-Identifier: Apache-2.0 */
/* Mistral and Mixtral: the block of Llama without biases, with a sliding window in every layer if the file has one.
 * Mixtral has experts of intermediate_size in every layer, the best two of a softmax, renormalised. */
#include "model/family.h"

static sluice_status read(sluice__config_reader *r, sluice_error *err) {
    return sluice__refuse_gate(r, err);
}

static const char *const types[] = {"mistral", NULL};
const sluice__family sluice__family_mistral = {
    .name = "Mistral",
    .model_types = types,
    .defaults = {.num_key_value_heads = 8,
                 .max_position_embeddings = 131072,
                 .bos_token_id = 1,
                 .eos_token_id = 2,
                 .partial_rotary_factor = 1,
                 .sliding_window = 4096},
    .any_act = true,
    .window_everywhere = true,
    .read = read,
};

static sluice_status read_mixtral(sluice__config_reader *r, sluice_error *err) {
    sluice_moe_spec moe, defaults = {.num_experts = 8,
                                     .num_experts_per_tok = 2,
                                     .intermediate_size = r->config->layers[0].intermediate_size,
                                     .norm_topk_prob = true};
    SLUICE__TRY(sluice__read_experts(r, &defaults, &moe, err));
    moe.intermediate_size = defaults.intermediate_size;
    moe.norm_topk_prob = true;
    for (int i = 0; i < r->config->num_hidden_layers; i++) r->config->layers[i].moe = moe;
    return sluice__refuse_gate(r, err);
}

static const sluice__tensor_name mixtral_names[] = {
    {SLUICE__SLOT_ROUTER, "block_sparse_moe.gate.weight", SLUICE__ALONE},
    {SLUICE__SLOT_ROUTER, "mlp.gate.weight", SLUICE__ALONE},
    {SLUICE__SLOT_EXPERT_GATE, "w1.weight", SLUICE__ALONE},
    {SLUICE__SLOT_EXPERT_UP, "w3.weight", SLUICE__ALONE},
    {SLUICE__SLOT_EXPERT_DOWN, "w2.weight", SLUICE__ALONE},
    SLUICE__FUSED_EXPERTS,
    {0}};
static const char *const mixtral_types[] = {"mixtral", NULL};
const sluice__family sluice__family_mixtral = {
    .name = "Mixtral",
    .model_types = mixtral_types,
    .experts = "block_sparse_moe.experts.",
    .defaults = {.num_key_value_heads = 8,
                 .max_position_embeddings = 131072,
                 .bos_token_id = 1,
                 .eos_token_id = 2,
                 .partial_rotary_factor = 1,
                 .rms_norm_eps = 1e-5},
    .any_act = true,
    .window_everywhere = true,
    .tensor_names = mixtral_names,
    .read = read_mixtral,
};
