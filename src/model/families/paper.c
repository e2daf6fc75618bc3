/* SPDX-License-Identifier: Apache-2.0 */
/* The models released with the paper (1B_baseline, 1B_gate_headwise, 1B_gate_elementwise). Their class is a
 * modified Qwen3, their config.json says qwen2, so the gate flags tell them apart. Gate rows lie in q_proj
 * behind the query rows of their KV group; qkv_bias gives q, k, v and o a bias. */
#include "model/family.h"

static bool claims(const sluice__json *json) {
    static const char *const keys[] = {"headwise_attn_output_gate", "elementwise_attn_output_gate",
                                       "use_qk_norm", "qkv_bias", NULL};
    for (int i = 0; keys[i]; i++)
        if (sluice__json_has(json, keys[i])) return true;
    return false;
}

static sluice_status read(sluice__config_reader *r, sluice_error *err) {
    bool qk_norm, bias, found;
    sluice_gate_spec gate;
    SLUICE__TRY(sluice__read_flag(r, "use_qk_norm", true, &qk_norm, err));
    SLUICE__TRY(sluice__read_flag(r, "qkv_bias", false, &bias, err));
    SLUICE__TRY(sluice__read_gate_flags(r, &gate, &found, err));
    if (!found) SLUICE__TRY(sluice__refuse_gate(r, err));
    sluice__set_qk_norm(r, qk_norm);
    sluice__set_gate(r, &gate);
    for (int i = 0; i < r->config->num_hidden_layers; i++)
        r->config->layers[i].qkv_bias = r->config->layers[i].o_bias = bias;
    return SLUICE_OK;
}

static const char *const types[] = {"qwen2", "qwen3", NULL};
const sluice__family sluice__family_paper = {
    .name = "Gated Attention 1B",
    .model_types = types,
    .defaults = {.num_key_value_heads = 32,
                 .head_dim = 128,
                 .max_position_embeddings = 32768,
                 .bos_token_id = -1,
                 .eos_token_id = -1,
                 .partial_rotary_factor = 1},
    .gate_packing = SLUICE_GATE_Q_PER_GROUP,
    .sliding = true,
    .claims = claims,
    .read = read,
};
