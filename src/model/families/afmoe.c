/* SPDX-License-Identifier: Apache-2.0 */
/* Arcee Trinity (AFMoE): sliding layers with RoPE, every fourth layer full without it; an element-wise sigmoid gate in
 * a tensor of its own; q/k norm; norms before and after each branch; after num_dense_layers layers experts by sigmoid
 * scores, chosen with expert_bias added, renormalised and scaled, beside shared experts without a gate; embeddings
 * times sqrt(hidden_size) with mup_enabled. */
#include "model/family.h"
#include <math.h>
#include <string.h>

static sluice_status kinds(sluice__config_reader *r, int window, sluice_error *err) {
    int64_t every = 4;
    SLUICE__TRY(sluice__json_int(&r->json, "global_attn_every_n_layers", false, 1, INT32_MAX, &every, err));
    for (int i = 0; i < r->config->num_hidden_layers; i++)
        r->config->layers[i].sliding_window = (i + 1) % every ? window : 0;
    return SLUICE_OK;
}

static sluice_status read_moe(const sluice__config_reader *r, sluice_moe_spec *moe, sluice_error *err) {
    static const sluice_moe_spec defaults = {.num_experts = 64,
                                             .num_experts_per_tok = 6,
                                             .intermediate_size = 1408,
                                             .norm_topk_prob = true,
                                             .score = SLUICE_ROUTER_SIGMOID,
                                             .selection_bias = true};
    int64_t shared = 2;
    double scale = 1;
    SLUICE__TRY(sluice__read_experts(r, &defaults, moe, err));
    SLUICE__TRY(sluice__json_int(&r->json, "num_shared_experts", false, 1, 64, &shared, err));
    SLUICE__TRY(sluice__json_real(&r->json, "route_scale", false, -1e6, 1e6, &scale, err));
    moe->norm_topk_prob = true;
    moe->num_shared_experts = (int)shared;
    moe->shared_intermediate_size = (int)shared * moe->intermediate_size;
    moe->route_scale = (float)scale;
    return SLUICE_OK;
}

/* What the configuration has keys for and the class does in one way only. */
static void warn(const sluice__config_reader *r) {
    const char *score = json_string_value(json_object_get(r->json.value, "score_func"));
    if (score && strcmp(score, "sigmoid")) sluice__warn_unread(r, "score_func", "scores are sigmoids");
    if (json_is_false(json_object_get(r->json.value, "route_norm")))
        sluice__warn_unread(r, "route_norm", "weights are normalised");
    if (json_integer_value(json_object_get(r->json.value, "n_group")) > 1)
        sluice__warn_unread(r, "n_group", "experts have no groups");
}

static sluice_status read(sluice__config_reader *r, sluice_error *err) {
    static const sluice_gate_spec gate = {.position = SLUICE_GATE_SDPA};
    sluice_moe_spec moe;
    int64_t dense = 1;
    bool mup;
    SLUICE__TRY(read_moe(r, &moe, err));
    SLUICE__TRY(sluice__json_int(&r->json, "num_dense_layers", false, 0, INT32_MAX, &dense, err));
    SLUICE__TRY(sluice__read_flag(r, "mup_enabled", false, &mup, err));
    SLUICE__TRY(sluice__read_attention_bias(r, err));
    if (mup) r->config->embedding_scale = (float)sqrt(r->config->hidden_size);
    sluice__set_qk_norm(r, true);
    sluice__set_gate(r, &gate);
    for (int i = 0; i < r->config->num_hidden_layers; i++) {
        sluice_layer_spec *l = &r->config->layers[i];
        l->sandwich_norm = true;
        if (i >= dense) l->moe = moe;
        if (!l->sliding_window) sluice__drop_rope(l);
    }
    warn(r);
    return SLUICE_OK;
}

static const sluice__tensor_name names[] = {
    {SLUICE__SLOT_POST_SELF_ATTN_NORM, "post_attention_layernorm.weight", SLUICE__ALONE},
    {SLUICE__SLOT_POST_ATTENTION_NORM, "pre_mlp_layernorm.weight", SLUICE__ALONE},
    {SLUICE__SLOT_ROUTER, "mlp.router.gate.weight", SLUICE__ALONE},
    {SLUICE__SLOT_SELECTION_BIAS, "mlp.expert_bias", SLUICE__ALONE},
    {SLUICE__SLOT_SHARED_GATE, "mlp.shared_experts.gate_proj.weight", SLUICE__ALONE},
    {SLUICE__SLOT_SHARED_UP, "mlp.shared_experts.up_proj.weight", SLUICE__ALONE},
    {SLUICE__SLOT_SHARED_DOWN, "mlp.shared_experts.down_proj.weight", SLUICE__ALONE},
    SLUICE__FUSED_EXPERTS,
    {0}};
static const char *const types[] = {"afmoe", NULL};
const sluice__family sluice__family_afmoe = {
    .name = "Trinity (AFMoE)",
    .model_types = types,
    .defaults = {.intermediate_size = 6144,
                 .head_dim = 128,
                 .max_position_embeddings = 16384,
                 .bos_token_id = -1,
                 .eos_token_id = -1,
                 .partial_rotary_factor = 1,
                 .rms_norm_eps = 1e-5,
                 .sliding_window = 1024},
    .any_act = true,
    .gate_without_bias = true,
    .kinds = kinds,
    .tensor_names = names,
    .read = read,
};
