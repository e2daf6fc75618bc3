/* SPDX-License-Identifier: Apache-2.0 */
/* Qwen3, dense: plain q/k norm, head_dim of its own, attention_bias for q, k, v and o. */
#include "model/family.h"

static sluice_status read(sluice__config_reader *r, sluice_error *err) {
    sluice__set_qk_norm(r, true);
    SLUICE__TRY(sluice__read_attention_bias(r, err));
    return sluice__refuse_gate(r, err);
}

static const char *const types[] = {"qwen3", NULL};
const sluice__family sluice__family_qwen3 = {
    .name = "Qwen3",
    .model_types = types,
    .defaults = {.num_key_value_heads = 32,
                 .head_dim = 128,
                 .max_position_embeddings = 32768,
                 .bos_token_id = -1,
                 .eos_token_id = -1,
                 .partial_rotary_factor = 1},
    .sliding = true,
    .any_act = true,
    .read = read,
};
