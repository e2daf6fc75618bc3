/* SPDX-License-Identifier: Apache-2.0 */
/* Qwen2 and Qwen2.5, dense: biases on q, k, v always and on o never, no q/k norm, sliding windows in the upper
 * layers. */
#include "model/family.h"

static sluice_status read(sluice__config_reader *r, sluice_error *err) {
    for (int i = 0; i < r->config->num_hidden_layers; i++) r->config->layers[i].qkv_bias = true;
    return sluice__refuse_gate(r, err);
}

static const char *const types[] = {"qwen2", NULL};
const sluice__family sluice__family_qwen2 = {
    .name = "Qwen2",
    .model_types = types,
    .defaults = {.num_key_value_heads = 32,
                 .max_position_embeddings = 32768,
                 .bos_token_id = -1,
                 .eos_token_id = -1,
                 .partial_rotary_factor = 1},
    .sliding = true,
    .any_act = true,
    .read = read,
};
