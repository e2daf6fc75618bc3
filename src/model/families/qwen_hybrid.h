/* SPDX-License-Identifier: Apache-2.0 */
/* What Qwen3-Next and Qwen3.5 share. */
#ifndef SLUICE_MODEL_FAMILIES_QWEN_HYBRID_H
#define SLUICE_MODEL_FAMILIES_QWEN_HYBRID_H
#include "model/family.h"

/* Sizes of linear attention with the defaults of transformers' classes. */
sluice_status sluice__read_qwen_delta(const sluice__config_reader *r, sluice_delta_spec *out, sluice_error *err);
/* Gate, q/k norm and biases of the layers that are not linear attention. */
sluice_status sluice__read_qwen_hybrid_attention(sluice__config_reader *r, sluice_error *err);
/* Experts of these models: a softmax over all, weights that sum to 1, one shared expert behind a sigmoid. */
#define SLUICE__QWEN_HYBRID_EXPERTS(count, per_token)                                                          \
    {                                                                                                          \
        .num_experts = count, .num_experts_per_tok = per_token, .intermediate_size = 512,                      \
        .shared_intermediate_size = 512, .num_shared_experts = 1, .norm_topk_prob = true,                      \
        .shared_expert_gate = true                                                                             \
    }
/* The rows of the convolution and the tensors that have one name in all of them. */
#define SLUICE__QWEN_DELTA_NAMES                                                                               \
    {SLUICE__SLOT_DELTA_CONV_Q, "linear_attn.conv1d.weight", SLUICE__DELTA_ROWS},                              \
        {SLUICE__SLOT_DELTA_CONV_K, "linear_attn.conv1d.weight", SLUICE__DELTA_ROWS},                          \
        {SLUICE__SLOT_DELTA_CONV_V, "linear_attn.conv1d.weight", SLUICE__DELTA_ROWS}
#endif
