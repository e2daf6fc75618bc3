/* SPDX-License-Identifier: Apache-2.0 */
/* Qwen3 with experts: attention of Qwen3, a softmax router over all experts, no shared expert; layers that
 * decoder_sparse_step and mlp_only_layers leave out have a dense MLP. A sliding window, if used, holds in every
 * layer. Experts are one tensor each on disk; some exports keep them fused. */
#include "model/family.h"

static sluice_status read(sluice__config_reader *r, sluice_error *err) {
    static const sluice_moe_spec defaults = {
        .num_experts = 128, .num_experts_per_tok = 8, .intermediate_size = 768};
    sluice_moe_spec moe;
    sluice__set_qk_norm(r, true);
    SLUICE__TRY(sluice__read_experts(r, &defaults, &moe, err));
    SLUICE__TRY(sluice__set_sparse_layers(r, &moe, err));
    SLUICE__TRY(sluice__read_attention_bias(r, err));
    return sluice__refuse_gate(r, err);
}

static const sluice__tensor_name names[] = {SLUICE__FUSED_EXPERTS, {0}};
static const char *const types[] = {"qwen3_moe", NULL};
const sluice__family sluice__family_qwen3_moe = {
    .name = "Qwen3 MoE",
    .model_types = types,
    .defaults = {.intermediate_size = 6144,
                 .num_key_value_heads = 4,
                 .max_position_embeddings = 32768,
                 .bos_token_id = -1,
                 .eos_token_id = -1,
                 .partial_rotary_factor = 1},
    .sliding = true,
    .any_act = true,
    .window_everywhere = true,
    .tensor_names = names,
    .read = read,
};
