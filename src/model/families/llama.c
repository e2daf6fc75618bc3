/* SPDX-License-Identifier: Apache-2.0 */
/* Llama 2 and 3, and what shares their class: no q/k norm, attention_bias for q, k, v and o. */
#include "model/family.h"

static sluice_status read(sluice__config_reader *r, sluice_error *err) {
    SLUICE__TRY(sluice__read_mlp_bias(r, err));
    SLUICE__TRY(sluice__read_attention_bias(r, err));
    return sluice__refuse_gate(r, err);
}

static const char *const types[] = {"llama", NULL};
const sluice__family sluice__family_llama = {
    .name = "Llama",
    .model_types = types,
    .defaults = {.max_position_embeddings = 2048,
                 .bos_token_id = 1,
                 .eos_token_id = 2,
                 .partial_rotary_factor = 1},
    .any_act = true,
    .read = read,
};
