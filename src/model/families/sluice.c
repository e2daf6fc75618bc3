/* SPDX-License-Identifier: Apache-2.0 */
/* Our own models: flat keys, every gate of the paper. A file without model_type is one of these too. Parts of
 * the paper's table that this version cannot compute (mixture of experts, switch heads) are read, checked and
 * refused by name. */
#include "model/family.h"
#include <string.h>

static sluice_status unsupported(const sluice__config_reader *r, const char *key, const char *what,
                                 sluice_error *err) {
    return sluice__fail(err, SLUICE_ERR_UNSUPPORTED, "%s: %s: %s is not supported by this version",
                        r->json.file, key, what);
}

static sluice_status check_experts(const sluice__config_reader *r, sluice_error *err) {
    int64_t experts = 0, per_token = 2;
    SLUICE__TRY(sluice__json_int(&r->json, "num_experts", false, 0, 1 << 16, &experts, err));
    SLUICE__TRY(sluice__json_int(&r->json, "num_experts_per_tok", false, 1, 1 << 16, &per_token, err));
    if (!experts) return SLUICE_OK;
    if (per_token > experts)
        return sluice__json_fail(&r->json, "num_experts_per_tok", err,
                                 "found %lld, expected at most num_experts (%lld)", (long long)per_token,
                                 (long long)experts);
    return unsupported(r, "num_experts", "a mixture of experts", err);
}

static sluice_status check_switch(const sluice__config_reader *r, sluice_error *err) {
    static const char *const heads[] = {"none", "v", "kv", NULL};
    int head = 0;
    int64_t experts = 1, top = 1;
    SLUICE__TRY(sluice__json_choice(&r->json, "switch_head", false, heads, &head, err));
    SLUICE__TRY(sluice__json_int(&r->json, "switch_experts", false, 1, 1 << 12, &experts, err));
    SLUICE__TRY(sluice__json_int(&r->json, "switch_topk", false, 1, 1 << 12, &top, err));
    if (top > experts)
        return sluice__json_fail(&r->json, "switch_topk", err,
                                 "found %lld, expected at most switch_experts (%lld)", (long long)top,
                                 (long long)experts);
    if (!head && experts > 1)
        return sluice__json_fail(&r->json, "switch_experts", err, "found %lld, but switch_head is none",
                                 (long long)experts);
    return head ? unsupported(r, "switch_head", "a switch head", err) : SLUICE_OK;
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
    SLUICE__TRY(sluice__read_gate_flags(r, &flags, &found, err));
    SLUICE__TRY(sluice__read_own_gate(r, &gate, err));
    sluice__set_gate(r, found && !sluice__json_has(&r->json, "gate_position") ? &flags : &gate);
    return SLUICE_OK;
}

static sluice_status read(sluice__config_reader *r, sluice_error *err) {
    bool qk_norm, sandwich, norm, silu, qkv_bias, o_bias;
    double clip = 0;
    SLUICE__TRY(check_spelling(r, err));
    SLUICE__TRY(check_experts(r, err));
    SLUICE__TRY(check_switch(r, err));
    SLUICE__TRY(sluice__read_flag(r, "use_qk_norm", true, &qk_norm, err));
    SLUICE__TRY(sluice__read_flag(r, "sandwich_norm", false, &sandwich, err));
    SLUICE__TRY(sluice__read_flag(r, "sdpa_norm", false, &norm, err));
    SLUICE__TRY(sluice__read_flag(r, "sdpa_silu", false, &silu, err));
    SLUICE__TRY(sluice__read_flag(r, "qkv_bias", false, &qkv_bias, err));
    SLUICE__TRY(sluice__read_flag(r, "o_bias", false, &o_bias, err));
    SLUICE__TRY(sluice__json_real(&r->json, "residual_clip", false, 0, 1e30, &clip, err));
    for (int i = 0; i < r->config->num_hidden_layers; i++) {
        sluice_layer_spec *l = &r->config->layers[i];
        l->qk_norm = qk_norm;
        l->sandwich_norm = sandwich;
        l->sdpa_norm = norm;
        l->sdpa_silu = silu;
        l->qkv_bias = qkv_bias;
        l->o_bias = o_bias;
        l->residual_clip = (float)clip;
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
