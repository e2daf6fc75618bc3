/* SPDX-License-Identifier: Apache-2.0 */
/* Muse Glimmer, the language model of the vision wrapper or alone: an element-wise sigmoid gate in gate_proj, q/k norm
 * without weights and a factor on q, RoPE in all layers but every fourth from the last, which are also the full ones;
 * 1+w norms before and after each branch (the latter with an epsilon of their own), a plain last norm; normed
 * embeddings; logits times output_multiplier, then soft-capped. */
#include "model/family.h"

static sluice_status prepare(sluice__config_reader *r, sluice_error *err) {
    return sluice__rename_key(r, "hidden_activation", "hidden_act", err);
}

static bool is_fourth_from_last(const sluice__config_reader *r, int i) {
    return (r->config->num_hidden_layers - 1 - i) % 4 == 0;
}

static sluice_status kinds(sluice__config_reader *r, int window, sluice_error *err) {
    (void)err;
    for (int i = 0; i < r->config->num_hidden_layers; i++)
        r->config->layers[i].sliding_window = is_fourth_from_last(r, i) ? 0 : window;
    return SLUICE_OK;
}

/* An entry of layer_rope_theta only says whether there is RoPE; the base is that of rope_parameters. */
static sluice_status read_rope(sluice__config_reader *r, sluice_error *err) {
    sluice__json list;
    SLUICE__TRY(sluice__layer_list(&list, r, "layer_rope_theta", false, err));
    for (int i = 0; i < r->config->num_hidden_layers; i++) {
        const json_t *theta = list.value ? json_array_get(list.value, (size_t)i) : NULL;
        if (theta && !json_is_number(theta))
            return sluice__json_fail(&list, NULL, err, "entry %d: expected a number", i);
        if (theta ? json_number_value(theta) == 0 : is_fourth_from_last(r, i))
            sluice__drop_rope(&r->config->layers[i]);
    }
    return SLUICE_OK;
}

static sluice_status read(sluice__config_reader *r, sluice_error *err) {
    static const sluice_gate_spec gate = {.position = SLUICE_GATE_SDPA};
    sluice_config *c = r->config;
    double q_scale = 3.87, multiplier = 0.19611613513818404, cap = 20;
    c->post_norm_eps = 1e-8;
    SLUICE__TRY(read_rope(r, err));
    SLUICE__TRY(sluice__json_real(&r->json, "qk_scale_factor", false, 1e-6, 1e6, &q_scale, err));
    SLUICE__TRY(sluice__json_real(&r->json, "post_norm_eps", false, 0, 1, &c->post_norm_eps, err));
    SLUICE__TRY(sluice__json_real(&r->json, "output_multiplier", false, 1e-9, 1e9, &multiplier, err));
    SLUICE__TRY(sluice__json_real(&r->json, "final_logit_softcapping", false, 1e-6, 1e9, &cap, err));
    c->logit_scale = (float)multiplier;
    c->logit_softcap = (float)cap;
    c->embedding_norm = true;
    sluice__set_qk_norm(r, true);
    sluice__set_gate(r, &gate);
    for (int i = 0; i < c->num_hidden_layers; i++) {
        c->layers[i].qk_norm_weightless = true;
        c->layers[i].attention_scale *= (float)q_scale;
        c->layers[i].sandwich_norm = true;
    }
    return sluice__read_attention_bias(r, err);
}

static const sluice__tensor_name names[] = {
    {SLUICE__SLOT_POST_SELF_ATTN_NORM, "post_attention_layernorm.weight", SLUICE__ALONE},
    {SLUICE__SLOT_POST_ATTENTION_NORM, "pre_feedforward_layernorm.weight", SLUICE__ALONE},
    {SLUICE__SLOT_POST_MLP_NORM, "post_feedforward_layernorm.weight", SLUICE__ALONE},
    {0}};

#define COMMON                                                                                                 \
    .defaults = {.num_key_value_heads = 2,                                                                     \
                 .head_dim = 128,                                                                              \
                 .max_position_embeddings = 131072,                                                            \
                 .bos_token_id = 200000,                                                                       \
                 .eos_token_id = 200001,                                                                       \
                 .partial_rotary_factor = 1,                                                                   \
                 .rms_norm_eps = 1e-5,                                                                         \
                 .sliding_window = 2048},                                                                      \
    .norm = SLUICE_NORM_ONE_PLUS, .plain_final_norm = true, .any_act = true, .gate_without_bias = true,        \
    .prepare = prepare, .kinds = kinds, .tensor_names = names, .read = read

static const char *const wrapped[] = {"muse_glimmer", NULL};
const sluice__family sluice__family_muse_glimmer = {.name = "Muse Glimmer (text part)",
                                                    .model_types = wrapped,
                                                    .nested = "text_config",
                                                    .prefix = "model.language_model.",
                                                    COMMON};
static const char *const types[] = {"muse_glimmer_text", NULL};
const sluice__family sluice__family_muse_glimmer_text = {.name = "Muse Glimmer", .model_types = types, COMMON};
