/* SPDX-License-Identifier: Apache-2.0 */
/* SmolLM3: the block of Llama 3, but every fourth layer (or those with 0 in no_rope_layers) has no RoPE; a sliding
 * window, if used, holds in just these layers. */
#include "model/family.h"

static sluice_status no_rope(const sluice__config_reader *r, int layer, bool *out, sluice_error *err) {
    sluice__json list;
    int64_t interval = 4, entry = 0;
    SLUICE__TRY(sluice__layer_list(&list, r, "no_rope_layers", false, err));
    SLUICE__TRY(sluice__json_int(&r->json, "no_rope_layer_interval", false, 1, INT32_MAX, &interval, err));
    *out = (layer + 1) % interval == 0;
    if (!list.value) return SLUICE_OK;
    const json_t *value = json_array_get(list.value, (size_t)layer);
    if (!json_is_integer(value)) return sluice__json_fail(&list, NULL, err, "entry %d is not an integer", layer);
    entry = json_integer_value(value);
    *out = entry == 0;
    return SLUICE_OK;
}

static sluice_status kinds(sluice__config_reader *r, int window, sluice_error *err) {
    bool use;
    SLUICE__TRY(sluice__read_flag(r, "use_sliding_window", false, &use, err));
    use = use && sluice__json_has(&r->json, "sliding_window");
    for (int i = 0; use && i < r->config->num_hidden_layers; i++) {
        bool without;
        SLUICE__TRY(no_rope(r, i, &without, err));
        r->config->layers[i].sliding_window = without ? window : 0;
    }
    return SLUICE_OK;
}

static sluice_status read(sluice__config_reader *r, sluice_error *err) {
    for (int i = 0; i < r->config->num_hidden_layers; i++) {
        bool without;
        SLUICE__TRY(no_rope(r, i, &without, err));
        if (without) sluice__drop_rope(&r->config->layers[i]);
    }
    SLUICE__TRY(sluice__read_mlp_bias(r, err));
    SLUICE__TRY(sluice__read_attention_bias(r, err));
    return sluice__refuse_gate(r, err);
}

static const char *const types[] = {"smollm3", NULL};
const sluice__family sluice__family_smollm3 = {
    .name = "SmolLM3",
    .model_types = types,
    .defaults = {.num_key_value_heads = 4,
                 .max_position_embeddings = 32768,
                 .bos_token_id = 128000,
                 .eos_token_id = 128001,
                 .partial_rotary_factor = 1,
                 .tie_word_embeddings = true,
                 .rope_theta = 2e6},
    .any_act = true,
    .kinds = kinds,
    .read = read,
};
