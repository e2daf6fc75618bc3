/* SPDX-License-Identifier: Apache-2.0 */
/* Our own models: flat keys, every row of the paper's tables: gates, mixture of experts, switch heads. A file
 * without model_type is one of these too. */
#include "model/family.h"
#include <string.h>

/* Limits keep every product of sizes far below 2^63 (see config.c). */
enum { MAX_EXPERTS = 1 << 12, MAX_EXPERT_WIDTH = 1 << 20, MAX_ALL_EXPERTS = 1 << 24, MAX_MAPS = 64 };

static sluice_status read_experts(const sluice__config_reader *r, sluice_moe_spec *m, sluice_error *err) {
    int64_t experts = 0, per_token = 2, width = 32, shared = 0;
    SLUICE__TRY(sluice__json_int(&r->json, "num_experts", false, 0, MAX_EXPERTS, &experts, err));
    SLUICE__TRY(sluice__json_int(&r->json, "num_experts_per_tok", false, 1, MAX_EXPERTS, &per_token, err));
    SLUICE__TRY(sluice__json_int(&r->json, "moe_intermediate_size", false, 1, MAX_EXPERT_WIDTH, &width, err));
    SLUICE__TRY(sluice__json_int(&r->json, "num_shared_experts", false, 0, MAX_EXPERTS, &shared, err));
    *m = (sluice_moe_spec){0};
    SLUICE__TRY(sluice__read_flag(r, "norm_topk_prob", false, &m->norm_topk_prob, err));
    SLUICE__TRY(sluice__read_flag(r, "shared_expert_gate", false, &m->shared_expert_gate, err));
    if (!experts) return *m = (sluice_moe_spec){0}, SLUICE_OK;
    if (per_token > experts)
        return sluice__json_fail(&r->json, "num_experts_per_tok", err,
                                 "found %lld, expected at most num_experts (%lld)", (long long)per_token,
                                 (long long)experts);
    if (experts * width > MAX_ALL_EXPERTS || shared * width > MAX_EXPERT_WIDTH)
        return sluice__json_fail(&r->json, "moe_intermediate_size", err,
                                 "found %lld, too wide for %lld experts and %lld shared ones", (long long)width,
                                 (long long)experts, (long long)shared);
    if (m->shared_expert_gate && !shared)
        return sluice__json_fail(&r->json, "shared_expert_gate", err, "found true, but num_shared_experts is 0");
    m->num_experts = (int)experts;
    m->num_experts_per_tok = (int)per_token;
    m->intermediate_size = (int)width;
    m->num_shared_experts = (int)shared;
    m->shared_intermediate_size = (int)(shared * width);
    return SLUICE_OK;
}

static sluice_status read_switch(const sluice__config_reader *r, sluice_switch_spec *s, sluice_error *err) {
    static const char *const heads[] = {"none", "v", "kv", NULL};
    int head = 0;
    int64_t experts = 1, top = 1;
    SLUICE__TRY(sluice__json_choice(&r->json, "switch_head", false, heads, &head, err));
    SLUICE__TRY(sluice__json_int(&r->json, "switch_experts", false, 1, MAX_MAPS, &experts, err));
    SLUICE__TRY(sluice__json_int(&r->json, "switch_topk", false, 1, MAX_MAPS, &top, err));
    if (top > experts)
        return sluice__json_fail(&r->json, "switch_topk", err,
                                 "found %lld, expected at most switch_experts (%lld)", (long long)top,
                                 (long long)experts);
    if (!head && experts > 1)
        return sluice__json_fail(&r->json, "switch_experts", err, "found %lld, but switch_head is none",
                                 (long long)experts);
    const sluice_layer_spec *l = &r->config->layers[0];
    if (experts * l->num_key_value_heads * l->head_dim > MAX_ALL_EXPERTS)
        return sluice__json_fail(&r->json, "switch_experts", err, "found %lld, too many for %d key/value heads of %d",
                                 (long long)experts, l->num_key_value_heads, l->head_dim);
    *s = (sluice_switch_spec){(sluice_switch_head)head, (int)experts, (int)top};
    return SLUICE_OK;
}

/* A misspelt gate key would silently train another model. */
static sluice_status check_spelling(const sluice__config_reader *r, sluice_error *err) {
    static const char *const known[] = {"gate_position",
                                        "gate_granularity",
                                        "gate_sharing",
                                        "gate_share_mean",
                                        "gate_op",
                                        "gate_act",
                                        "gate_input",
                                        "sdpa_norm",
                                        "sdpa_silu",
                                        "switch_head",
                                        "switch_experts",
                                        "switch_topk",
                                        NULL};
    const char *key;
    json_t *value;
    json_object_foreach(r->json.value, key, value) {
        if (strncmp(key, "gate_", 5) && strncmp(key, "sdpa_", 5) && strncmp(key, "switch_", 7)) continue;
        int i = 0;
        while (known[i] && strcmp(known[i], key)) i++;
        if (!known[i])
            return sluice__json_fail(
                &r->json, NULL, err,
                "unknown key \"%.60s\"; known are gate_position, gate_granularity, gate_sharing, "
                "gate_share_mean, gate_op, gate_act, gate_input, sdpa_norm, sdpa_silu, switch_*",
                key);
    }
    return SLUICE_OK;
}

static sluice_status read_gate(sluice__config_reader *r, sluice_error *err) {
    sluice_gate_spec gate, flags;
    bool found;
    SLUICE__TRY(sluice__read_gate_flags(r, &flags, &found, err)); /* agrees with own keys, or fails */
    bool by_flag = found && !sluice__json_has(&r->json, "gate_position");
    if (!by_flag) SLUICE__TRY(sluice__read_own_gate(r, &gate, err));
    sluice__set_gate(r, by_flag ? &flags : &gate);
    return SLUICE_OK;
}

static sluice_status read_router_losses(sluice__config_reader *r, sluice_error *err) {
    r->config->router_aux_loss_coef = 0.01;
    r->config->router_z_loss_coef = 0.001;
    SLUICE__TRY(
        sluice__json_real(&r->json, "router_aux_loss_coef", false, 0, 1e6, &r->config->router_aux_loss_coef, err));
    return sluice__json_real(&r->json, "router_z_loss_coef", false, 0, 1e6, &r->config->router_z_loss_coef, err);
}

static sluice_status read(sluice__config_reader *r, sluice_error *err) {
    static const char *const mlp_types[] = {"swiglu", "gelu", NULL};
    bool qk_norm, sandwich, norm, silu, qkv_bias, o_bias;
    sluice_moe_spec moe;
    sluice_switch_spec switched;
    double clip = 0;
    int mlp = 0;
    SLUICE__TRY(check_spelling(r, err));
    SLUICE__TRY(read_experts(r, &moe, err));
    SLUICE__TRY(read_switch(r, &switched, err));
    SLUICE__TRY(read_router_losses(r, err));
    SLUICE__TRY(sluice__read_flag(r, "use_qk_norm", true, &qk_norm, err));
    SLUICE__TRY(sluice__read_flag(r, "sandwich_norm", false, &sandwich, err));
    SLUICE__TRY(sluice__read_flag(r, "sdpa_norm", false, &norm, err));
    SLUICE__TRY(sluice__read_flag(r, "sdpa_silu", false, &silu, err));
    SLUICE__TRY(sluice__read_flag(r, "qkv_bias", false, &qkv_bias, err));
    SLUICE__TRY(sluice__read_flag(r, "o_bias", false, &o_bias, err));
    SLUICE__TRY(sluice__json_real(&r->json, "residual_clip", false, 0, 1e30, &clip, err));
    SLUICE__TRY(sluice__json_choice(&r->json, "mlp_type", false, mlp_types, &mlp, err));
    if (mlp && moe.num_experts)
        return sluice__json_fail(&r->json, "mlp_type", err, "found gelu, but experts are SwiGLU");
    if (qkv_bias && switched.head != SLUICE_SWITCH_NONE)
        return sluice__json_fail(&r->json, "qkv_bias", err, "found true, but the maps of a switch_head have no bias");
    for (int i = 0; i < r->config->num_hidden_layers; i++) {
        sluice_layer_spec *l = &r->config->layers[i];
        l->qk_norm = qk_norm;
        l->sandwich_norm = sandwich;
        l->sdpa_norm = norm;
        l->sdpa_silu = silu;
        l->qkv_bias = qkv_bias;
        l->o_bias = o_bias;
        l->residual_clip = (float)clip;
        l->moe = moe;
        l->switch_head = switched;
        l->mlp_gelu = mlp == 1;
    }
    return read_gate(r, err);
}

static const char *const types[] = {"sluice", NULL};
const sluice__family sluice__family_sluice = {
    .name = "Sluice",
    .model_types = types,
    .defaults = {.vocab_size = 256,
                 .hidden_size = 64,
                 .intermediate_size = 176,
                 .num_hidden_layers = 2,
                 .num_attention_heads = 4,
                 .num_key_value_heads = 2,
                 .head_dim = 16,
                 .max_position_embeddings = 32768,
                 .bos_token_id = -1,
                 .eos_token_id = -1,
                 .partial_rotary_factor = 1,
                 .tie_word_embeddings = true},
    .window_everywhere = true,
    .read = read,
};
