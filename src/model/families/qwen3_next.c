/* SPDX-License-Identifier: Apache-2.0 */
/* Qwen3-Next: three layers in four are linear attention with fused projections, whose rows lie per key head
 * ([q | k | v | z] and [b | a]); the others are the gated attention of Qwen3.5. Most layers are mixtures of experts. */
#include "model/families/qwen_hybrid.h"

static sluice_status read(sluice__config_reader *r, sluice_error *err) {
    static const sluice_moe_spec defaults = SLUICE__QWEN_HYBRID_EXPERTS(512, 10);
    sluice_moe_spec moe;
    SLUICE__TRY(sluice__read_qwen_hybrid_attention(r, err));
    SLUICE__TRY(sluice__read_experts(r, &defaults, &moe, err));
    return sluice__set_sparse_layers(r, &moe, err);
}

static const sluice__tensor_name names[] = {
    {SLUICE__SLOT_DELTA_Q, "linear_attn.in_proj_qkvz.weight", SLUICE__DELTA_GROUPS},
    {SLUICE__SLOT_DELTA_K, "linear_attn.in_proj_qkvz.weight", SLUICE__DELTA_GROUPS},
    {SLUICE__SLOT_DELTA_V, "linear_attn.in_proj_qkvz.weight", SLUICE__DELTA_GROUPS},
    {SLUICE__SLOT_DELTA_Z, "linear_attn.in_proj_qkvz.weight", SLUICE__DELTA_GROUPS},
    {SLUICE__SLOT_DELTA_B, "linear_attn.in_proj_ba.weight", SLUICE__DELTA_GROUPS},
    {SLUICE__SLOT_DELTA_A, "linear_attn.in_proj_ba.weight", SLUICE__DELTA_GROUPS},
    SLUICE__QWEN_DELTA_NAMES,
    SLUICE__FUSED_EXPERTS,
    {0}};
static const char *const types[] = {"qwen3_next", NULL};
const sluice__family sluice__family_qwen3_next = {
    .name = "Qwen3-Next",
    .model_types = types,
    .defaults = {.intermediate_size = 5632,
                 .num_key_value_heads = 2,
                 .head_dim = 256,
                 .max_position_embeddings = 32768,
                 .bos_token_id = -1,
                 .eos_token_id = -1,
                 .partial_rotary_factor = 0.25},
    .norm = SLUICE_NORM_ONE_PLUS,
    .gate_packing = SLUICE_GATE_Q_PER_HEAD,
    .full_attention_interval = 4,
    .tensor_names = names,
    .read_delta = sluice__read_qwen_delta,
    .read = read,
};
