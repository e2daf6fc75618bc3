/* SPDX-License-Identifier: Apache-2.0 */
/* Laguna: a softplus gate per head or per element in g_proj, a head count per layer, RoPE by layer type, q/k norm; experts
 * by sigmoid scores (their logits soft-capped where the file says so), chosen with a correction bias, renormalised and
 * scaled, beside a shared expert without a gate. */
#include "base/memory.h"
#include "model/family.h"
#include <string.h>

static sluice_status prepare(sluice__config_reader *r, sluice_error *err) {
    if (sluice__json_has(&r->json, "rope_parameters")) return SLUICE_OK;
    json_t *rope = json_pack("{s:{s:f, s:f}, s:{s:f, s:f}}", "full_attention", "rope_theta", 500000.0,
                             "partial_rotary_factor", 0.5, "sliding_attention", "rope_theta", 10000.0,
                             "partial_rotary_factor", 1.0);
    if (!rope || json_object_set_new(r->json.value, "rope_parameters", rope))
        return sluice__no_memory(err, 256, "rope_parameters");
    return SLUICE_OK;
}

static sluice_status read_heads(const sluice__config_reader *r, sluice_error *err) {
    sluice__json list;
    SLUICE__TRY(sluice__layer_list(&list, r, "num_attention_heads_per_layer", false, err));
    for (int i = 0; list.value && i < r->config->num_hidden_layers; i++) {
        sluice_layer_spec *l = &r->config->layers[i];
        json_int_t heads = json_integer_value(json_array_get(list.value, (size_t)i));
        if (heads < 1 || heads > 4096 || heads % l->num_key_value_heads)
            return sluice__json_fail(&list, NULL, err,
                                     "layer %d: found %lld, expected a multiple of num_key_value_heads (%d) up to 4096",
                                     i, (long long)heads, l->num_key_value_heads);
        l->num_attention_heads = (int)heads;
    }
    return SLUICE_OK;
}

static sluice_status read_gate(sluice__config_reader *r, sluice_error *err) {
    sluice_gate_spec gate = {
        .position = SLUICE_GATE_SDPA, .granularity = SLUICE_GATE_HEADWISE, .act = SLUICE_GATE_SOFTPLUS};
    sluice__json gating = sluice__json_get(&r->json, "gating");
    const char *word = json_string_value(gating.value);
    bool known = !gating.value || json_is_boolean(gating.value) ||
                 (word && (!strcmp(word, "per-head") || !strcmp(word, "per-element")));
    if (!known)
        return sluice__json_fail(&r->json, "gating", err, "expected true, \"per-head\" or \"per-element\"");
    /* the class takes anything but true and "per-head" for the other kind */
    if (json_is_false(gating.value) || (word && !strcmp(word, "per-element")))
        gate.granularity = SLUICE_GATE_ELEMENTWISE;
    sluice__set_gate(r, &gate);
    return SLUICE_OK;
}

static sluice_status read_moe(const sluice__config_reader *r, sluice_moe_spec *moe, sluice_error *err) {
    static const sluice_moe_spec defaults = {.num_experts = 256,
                                             .num_experts_per_tok = 8,
                                             .intermediate_size = 512,
                                             .num_shared_experts = 1,
                                             .shared_intermediate_size = 512,
                                             .score = SLUICE_ROUTER_SIGMOID,
                                             .selection_bias = true};
    double scale = 1, cap = 0;
    bool on_input;
    SLUICE__TRY(sluice__read_experts(r, &defaults, moe, err));
    moe->norm_topk_prob = true;
    SLUICE__TRY(sluice__json_real(&r->json, "moe_routed_scaling_factor", false, -1e6, 1e6, &scale, err));
    SLUICE__TRY(sluice__json_real(&r->json, "moe_router_logit_softcapping", false, 0, 1e9, &cap, err));
    SLUICE__TRY(sluice__read_flag(r, "moe_apply_router_weight_on_input", false, &on_input, err));
    if (on_input)
        return sluice__fail(err, SLUICE_ERR_UNSUPPORTED,
                            "%s: moe_apply_router_weight_on_input: weights on the input of experts are not supported",
                            r->json.file);
    moe->route_scale = (float)scale;
    moe->logit_softcap = (float)cap;
    return SLUICE_OK;
}

static sluice_status place_moe(sluice__config_reader *r, const sluice_moe_spec *moe, sluice_error *err) {
    sluice__json list;
    SLUICE__TRY(sluice__layer_list(&list, r, "mlp_layer_types", false, err));
    for (int i = 0; i < r->config->num_hidden_layers; i++) {
        const char *type = list.value ? json_string_value(json_array_get(list.value, (size_t)i)) : i ? "sparse" : "dense";
        if (!type || (strcmp(type, "sparse") && strcmp(type, "dense")))
            return sluice__json_fail(&list, NULL, err, "layer %d: expected \"sparse\" or \"dense\"", i);
        if (!strcmp(type, "sparse")) r->config->layers[i].moe = *moe;
    }
    return SLUICE_OK;
}

static sluice_status read(sluice__config_reader *r, sluice_error *err) {
    sluice_moe_spec moe;
    SLUICE__TRY(read_heads(r, err));
    SLUICE__TRY(read_gate(r, err));
    SLUICE__TRY(read_moe(r, &moe, err));
    SLUICE__TRY(place_moe(r, &moe, err));
    sluice__set_qk_norm(r, true);
    return sluice__read_attention_bias(r, err);
}

/* All layers full. */
static sluice_status kinds(sluice__config_reader *r, int window, sluice_error *err) {
    (void)r, (void)window, (void)err;
    return SLUICE_OK;
}

static const sluice__tensor_name names[] = {
    {SLUICE__SLOT_GATE, "self_attn.g_proj.weight", SLUICE__ALONE},
    {SLUICE__SLOT_SELECTION_BIAS, "mlp.experts.e_score_correction_bias", SLUICE__ALONE},
    {SLUICE__SLOT_SELECTION_BIAS, "mlp.gate.e_score_correction_bias", SLUICE__ALONE},
    {SLUICE__SLOT_SHARED_GATE, "mlp.shared_expert.gate_proj.weight", SLUICE__ALONE},
    {SLUICE__SLOT_SHARED_GATE, "mlp.shared_experts.gate_proj.weight", SLUICE__ALONE},
    {SLUICE__SLOT_SHARED_UP, "mlp.shared_expert.up_proj.weight", SLUICE__ALONE},
    {SLUICE__SLOT_SHARED_UP, "mlp.shared_experts.up_proj.weight", SLUICE__ALONE},
    {SLUICE__SLOT_SHARED_DOWN, "mlp.shared_expert.down_proj.weight", SLUICE__ALONE},
    {SLUICE__SLOT_SHARED_DOWN, "mlp.shared_experts.down_proj.weight", SLUICE__ALONE},
    SLUICE__FUSED_EXPERTS,
    {0}};
static const char *const types[] = {"laguna", NULL};
const sluice__family sluice__family_laguna = {
    .name = "Laguna",
    .model_types = types,
    .defaults = {.intermediate_size = 8192,
                 .num_key_value_heads = 8,
                 .head_dim = 128,
                 .max_position_embeddings = 131072,
                 .bos_token_id = -1,
                 .eos_token_id = -1,
                 .partial_rotary_factor = 1,
                 .sliding_window = 512},
    .any_act = true,
    .gate_without_bias = true,
    .prepare = prepare,
    .kinds = kinds,
    .tensor_names = names,
    .read = read,
};
