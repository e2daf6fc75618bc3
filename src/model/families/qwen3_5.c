/* SPDX-License-Identifier: Apache-2.0 */
/* Qwen3.5 and its successors of the same model_type, text only or inside the vision wrapper, dense or with experts.
 * Linear attention has projections of its own for q|k|v, z, b and a; in full attention every head of q_proj holds its
 * query rows, then its gate rows; all norms but the one inside linear attention are stored as w - 1; a quarter of each
 * head rotates unless the file says otherwise. With text alone the three position streams of mRoPE are equal, so that
 * its sections mean nothing here. What we train with a sigmoid gate and q/k norm is exported to this class, with
 * gate_granularity beside it when the gate was headwise. */
#include "model/families/qwen_hybrid.h"

static sluice_status read_dense(sluice__config_reader *r, sluice_error *err) {
    return sluice__read_qwen_hybrid_attention(r, err);
}

/* Every layer has experts, and their weights always sum to 1: there is no key for either. */
static sluice_status read_moe(sluice__config_reader *r, sluice_error *err) {
    static const sluice_moe_spec defaults = SLUICE__QWEN_HYBRID_EXPERTS(256, 8);
    sluice_moe_spec moe;
    SLUICE__TRY(sluice__read_qwen_hybrid_attention(r, err));
    SLUICE__TRY(sluice__read_experts(r, &defaults, &moe, err));
    if (!moe.num_experts) return sluice__json_fail(&r->json, "num_experts", err, "found 0, expected at least 1");
    moe.norm_topk_prob = true;
    for (int i = 0; i < r->config->num_hidden_layers; i++) r->config->layers[i].moe = moe;
    return SLUICE_OK;
}

static const sluice__tensor_name names[] = {
    {SLUICE__SLOT_DELTA_Q, "linear_attn.in_proj_qkv.weight", SLUICE__DELTA_ROWS},
    {SLUICE__SLOT_DELTA_K, "linear_attn.in_proj_qkv.weight", SLUICE__DELTA_ROWS},
    {SLUICE__SLOT_DELTA_V, "linear_attn.in_proj_qkv.weight", SLUICE__DELTA_ROWS},
    {SLUICE__SLOT_DELTA_Z, "linear_attn.in_proj_z.weight", SLUICE__ALONE},
    {SLUICE__SLOT_DELTA_B, "linear_attn.in_proj_b.weight", SLUICE__ALONE},
    {SLUICE__SLOT_DELTA_A, "linear_attn.in_proj_a.weight", SLUICE__ALONE},
    SLUICE__QWEN_DELTA_NAMES,
    SLUICE__FUSED_EXPERTS,
    {0}};

#define DEFAULTS(inner, kv)                                                                                    \
    {                                                                                                          \
        .intermediate_size = inner, .num_key_value_heads = kv, .head_dim = 256,                                \
        .max_position_embeddings = 32768, .bos_token_id = -1, .eos_token_id = -1, .partial_rotary_factor = 0.25 \
    }
#define DENSE DEFAULTS(0, 4)
#define SPARSE DEFAULTS(512, 2) /* the width of a dense MLP is never used */

#define FAMILY(variable, text, types, object, tensors, sizes, reader)                                          \
    const sluice__family variable = {.name = text,                                                             \
                                     .model_types = types,                                                     \
                                     .nested = object,                                                         \
                                     .prefix = tensors,                                                        \
                                     .defaults = sizes,                                                        \
                                     .norm = SLUICE_NORM_ONE_PLUS,                                             \
                                     .gate_packing = SLUICE_GATE_Q_PER_HEAD,                                   \
                                     .full_attention_interval = 4,                                             \
                                     .tensor_names = names,                                                    \
                                     .read_delta = sluice__read_qwen_delta,                                    \
                                     .read = reader}

static const char *const dense_types[] = {"qwen3_5_text", NULL}, *const wrapped_types[] = {"qwen3_5", NULL},
                         *const moe_types[] = {"qwen3_5_moe_text", NULL},
                         *const wrapped_moe_types[] = {"qwen3_5_moe", NULL};
static const char wrapped_prefix[] = "model.language_model.";

FAMILY(sluice__family_qwen3_5, "Qwen3.5", dense_types, NULL, NULL, DENSE, read_dense);
FAMILY(sluice__family_qwen3_5_wrapped, "Qwen3.5 (text part)", wrapped_types, "text_config", wrapped_prefix, DENSE,
       read_dense);
FAMILY(sluice__family_qwen3_5_moe, "Qwen3.5 MoE", moe_types, NULL, NULL, SPARSE, read_moe);
FAMILY(sluice__family_qwen3_5_moe_wrapped, "Qwen3.5 MoE (text part)", wrapped_moe_types, "text_config", wrapped_prefix,
       SPARSE, read_moe);
