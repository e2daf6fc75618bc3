/* SPDX-License-Identifier: Apache-2.0 */
/* OLMo Hybrid: linear attention with separate projections and convolutions, whose write strength goes up to 2 unless
 * switched off, and ungated attention with one q/k norm over all heads. Linear layers have norms in front of their
 * branches, attention layers behind them. The released models do not rotate (an explicit rope_theta of null). */
#include "model/family.h"

enum { DENSE_EVERY = 4 };

static sluice_status read_delta(const sluice__config_reader *r, sluice_delta_spec *out, sluice_error *err) {
    const sluice_layer_spec *first = &r->config->layers[0];
    bool negative = true;
    sluice_delta_spec d = {.num_value_heads = first->num_attention_heads,
                           .num_key_heads = first->num_attention_heads,
                           .conv_kernel = 4,
                           .norm_eps = 1e-5};
    int64_t heads = d.num_key_heads, dim = 0;
    SLUICE__TRY(sluice__json_int(&r->json, "linear_num_key_heads", false, 1, INT32_MAX, &heads, err));
    d.key_head_dim = (int)(0.75 * r->config->hidden_size / (double)heads);
    SLUICE__TRY(sluice__json_int(&r->json, "linear_key_head_dim", false, 1, INT32_MAX / 2, &dim, err));
    d.value_head_dim = 2 * (dim ? (int)dim : d.key_head_dim);
    SLUICE__TRY(sluice__read_flag(r, "linear_allow_neg_eigval", true, &negative, err));
    d.double_beta = negative;
    return sluice__read_delta(r, &d, out, err);
}

/* Without a base there is no rotation; rope_parameters absent or null means the default base. */
static bool rotates(const sluice__config_reader *r) {
    sluice__json p = sluice__json_get(&r->json, "rope_parameters");
    return !json_is_null(json_object_get(p.value ? p.value : r->json.value, "rope_theta"));
}

/* By the rule of layer_types' absence a model of fewer layers than the interval still has attention in its last one. */
static sluice_status keep_attention(sluice__config_reader *r, sluice_error *err) {
    sluice_config *c = r->config;
    sluice_layer_spec *last = &c->layers[c->num_hidden_layers - 1];
    if (sluice__json_has(&r->json, "layer_types") || c->num_hidden_layers >= DENSE_EVERY) return SLUICE_OK;
    last->delta = (sluice_delta_spec){0};
    return sluice__rope_read(&last->rope, &r->json, "full_attention", last->head_dim, c->max_position_embeddings, 10000.0,
                             1.0, err);
}

static sluice_status read(sluice__config_reader *r, sluice_error *err) {
    bool rope = rotates(r);
    SLUICE__TRY(keep_attention(r, err));
    SLUICE__TRY(sluice__read_attention_bias(r, err));
    SLUICE__TRY(sluice__refuse_gate(r, err));
    for (int i = 0; i < r->config->num_hidden_layers; i++) {
        sluice_layer_spec *l = &r->config->layers[i];
        if (sluice_layer_is_linear(l)) continue;
        l->qk_norm = l->qk_norm_whole = true;
        l->no_input_norm = l->sandwich_norm = true;
        l->rope.enabled &= rope;
    }
    return SLUICE_OK;
}

/* Norms as the released files have them, or as transformers calls them since it has converted on loading; saving, it
 * converts back, also the norm behind attention, which it did not convert. */
static const sluice__tensor_name names[] = {
    {SLUICE__SLOT_INPUT_NORM, "attention_layer_norm.weight", SLUICE__ALONE},
    {SLUICE__SLOT_INPUT_NORM, "input_layernorm.weight", SLUICE__ALONE},
    {SLUICE__SLOT_POST_ATTENTION_NORM, "feedforward_layer_norm.weight", SLUICE__ALONE},
    {SLUICE__SLOT_POST_ATTENTION_NORM, "post_attention_layernorm.weight", SLUICE__ALONE},
    {SLUICE__SLOT_POST_SELF_ATTN_NORM, "post_attention_layernorm.weight", SLUICE__ALONE},
    {SLUICE__SLOT_POST_SELF_ATTN_NORM, "feedforward_layer_norm.weight", SLUICE__ALONE},
    {SLUICE__SLOT_POST_MLP_NORM, "post_feedforward_layernorm.weight", SLUICE__ALONE},
    {SLUICE__SLOT_DELTA_Z, "linear_attn.g_proj.weight", SLUICE__ALONE},
    {SLUICE__SLOT_DELTA_CONV_Q, "linear_attn.conv1d.weight", SLUICE__DELTA_ROWS},
    {SLUICE__SLOT_DELTA_CONV_K, "linear_attn.conv1d.weight", SLUICE__DELTA_ROWS},
    {SLUICE__SLOT_DELTA_CONV_V, "linear_attn.conv1d.weight", SLUICE__DELTA_ROWS},
    {SLUICE__SLOT_DELTA_NORM, "linear_attn.o_norm.weight", SLUICE__ALONE},
    {SLUICE__SLOT_DELTA_OUT, "linear_attn.o_proj.weight", SLUICE__ALONE},
    {0}};

static const char *const types[] = {"olmo_hybrid", NULL};
const sluice__family sluice__family_olmo_hybrid = {
    .name = "OLMo Hybrid",
    .model_types = types,
    .defaults = {.max_position_embeddings = 65536,
                 .bos_token_id = -1,
                 .eos_token_id = 100257,
                 .partial_rotary_factor = 1},
    .tensor_names = names,
    .full_attention_interval = DENSE_EVERY,
    .read_delta = read_delta,
    .read = read,
};
