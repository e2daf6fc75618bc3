/* SPDX-License-Identifier: Apache-2.0 */
/* Qwen1.5 and Qwen2 with experts: attention of Qwen2 (qkv_bias), a softmax router, and a shared expert of its own
 * width behind a sigmoid. A sliding window, if used, holds in every second of the lower layers. */
#include "model/family.h"

static sluice_status read(sluice__config_reader *r, sluice_error *err) {
    static const sluice_moe_spec defaults = {.num_experts = 60,
                                             .num_experts_per_tok = 4,
                                             .intermediate_size = 1408,
                                             .shared_intermediate_size = 5632,
                                             .num_shared_experts = 1,
                                             .shared_expert_gate = true};
    sluice_moe_spec moe;
    bool bias;
    SLUICE__TRY(sluice__read_flag(r, "qkv_bias", true, &bias, err));
    for (int i = 0; i < r->config->num_hidden_layers; i++) r->config->layers[i].qkv_bias = bias;
    SLUICE__TRY(sluice__read_experts(r, &defaults, &moe, err));
    SLUICE__TRY(sluice__set_sparse_layers(r, &moe, err));
    return sluice__refuse_gate(r, err);
}

static sluice_status kinds(sluice__config_reader *r, int window, sluice_error *err) {
    int64_t below = 28;
    bool use;
    SLUICE__TRY(sluice__read_flag(r, "use_sliding_window", false, &use, err));
    if (!use) return SLUICE_OK;
    SLUICE__TRY(sluice__json_int(&r->json, "max_window_layers", false, 0, INT32_MAX, &below, err));
    for (int i = 0; i < r->config->num_hidden_layers; i += 2)
        if (i < below) r->config->layers[i].sliding_window = window;
    return SLUICE_OK;
}

static const sluice__tensor_name names[] = {SLUICE__FUSED_EXPERTS, {0}};
static const char *const types[] = {"qwen2_moe", NULL};
const sluice__family sluice__family_qwen2_moe = {
    .name = "Qwen2 MoE",
    .model_types = types,
    .defaults = {.intermediate_size = 5632,
                 .num_key_value_heads = 16,
                 .max_position_embeddings = 32768,
                 .bos_token_id = -1,
                 .eos_token_id = -1,
                 .partial_rotary_factor = 1},
    .sliding = true,
    .any_act = true,
    .kinds = kinds,
    .tensor_names = names,
    .read = read,
};
