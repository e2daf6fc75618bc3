/* SPDX-License-Identifier: Apache-2.0 */
/* Step-3.5-Flash, flat (step3p5) and inside the vision wrapper (step3p7): 1+w norms, q/k norm, a sigmoid gate per head in
 * g_proj, more heads in sliding layers, theta and rotary part as lists over the layers, of which the first of each
 * layer type counts, frequency scaling for full layers only; experts by sigmoid scores, chosen with router_bias,
 * renormalised and scaled, beside a shared expert; activations clamped in the layers that swiglu_limits name. Lists may
 * go on for the layers of the multi-token head, which is not needed. */
#include "base/memory.h"
#include "model/family.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- keys of its own to the common ones ---- */

/* First layer of a type; -1 when there is none. Without a list all are full. */
static int first_of(const json_t *types, const char *kind, json_int_t layers) {
    if (!types) return strcmp(kind, "full_attention") ? -1 : 0;
    for (size_t i = 0; i < json_array_size(types) && (json_int_t)i < layers; i++) {
        const char *name = json_string_value(json_array_get(types, i));
        if (name && !strcmp(name, kind)) return (int)i;
    }
    return -1;
}

/* A list or one number; NULL when absent. */
static json_t *entry(json_t *value, int i) {
    return json_is_array(value) ? json_array_get(value, (size_t)i) : value;
}

/* rope_theta and partial_rotary_factors as lists, rope_scaling: to rope_parameters by layer type. */
static int rope_by_type(json_t *o, json_int_t layers) {
    static const char *const kinds[] = {"full_attention", "sliding_attention"};
    json_t *theta = json_object_get(o, "rope_theta"), *partial = json_object_get(o, "partial_rotary_factors"),
           *scaling = json_object_get(o, "rope_scaling"), *by_type = json_object();
    int bad = !by_type;
    for (int k = 0; k < 2; k++) {
        int i = first_of(json_object_get(o, "layer_types"), kinds[k], layers);
        json_t *p = json_object();
        json_t *t = i < 0 ? NULL : entry(theta, i), *f = i < 0 ? NULL : entry(partial, i);
        if (json_is_number(t)) bad |= json_object_set(p, "rope_theta", t);
        if (json_is_number(f)) bad |= json_object_set(p, "partial_rotary_factor", f);
        if (k == 0 && json_is_object(scaling)) bad |= json_object_update(p, scaling);
        bad |= json_object_set_new(by_type, kinds[k], p);
    }
    json_object_del(o, "rope_theta");
    json_object_del(o, "rope_scaling");
    return bad | json_object_set_new(o, "rope_parameters", by_type);
}

/* layer_types without what follows the last layer. */
static int trim_types(json_t *o, json_int_t layers) {
    json_t *types = json_object_get(o, "layer_types");
    if (!json_is_array(types) || layers < 1) return 0;
    while ((json_int_t)json_array_size(types) > layers)
        if (json_array_remove(types, json_array_size(types) - 1)) return -1;
    return 0;
}

static sluice_status prepare(sluice__config_reader *r, sluice_error *err) {
    static const char *const renamed[][2] = {{"num_attention_groups", "num_key_value_heads"},
                                             {"moe_num_experts", "num_experts"},
                                             {"moe_top_k", "num_experts_per_tok"},
                                             {"share_expert_dim", "shared_expert_intermediate_size"},
                                             {"share_expert_dims", "shared_expert_intermediate_size"}};
    for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++)
        SLUICE__TRY(sluice__rename_key(r, renamed[i][0], renamed[i][1], err));
    json_t *o = r->json.value, *given = json_object_get(o, "rope_parameters");
    json_int_t layers = json_integer_value(json_object_get(o, "num_hidden_layers"));
    int bad = trim_types(o, layers);
    if (!json_is_object(json_object_get(given, "full_attention")) &&
        !json_is_object(json_object_get(given, "sliding_attention")))
        bad |= rope_by_type(o, layers);
    json_object_set_new(o, "hidden_act", json_string("silu")); /* the class takes no other */
    return bad ? sluice__no_memory(err, 256, "rope_parameters") : SLUICE_OK;
}

/* ---- layers ---- */

static sluice_status read_heads(sluice__config_reader *r, sluice_error *err) {
    sluice__json other = sluice__json_get(&r->json, "attention_other_setting");
    const sluice_layer_spec *first = &r->config->layers[0];
    int64_t heads = first->num_attention_heads, groups = first->num_key_value_heads, dim = first->head_dim;
    if (json_is_object(other.value)) {
        SLUICE__TRY(sluice__json_int(&other, "num_attention_heads", false, 1, 4096, &heads, err));
        SLUICE__TRY(sluice__json_int(&other, "num_attention_groups", false, 1, 4096, &groups, err));
        SLUICE__TRY(sluice__json_int(&other, "head_dim", false, 1, 4096, &dim, err));
    }
    SLUICE__TRY(sluice__json_int(&r->json, "num_sliding_attention_heads", false, 1, 4096, &heads, err));
    if (groups != first->num_key_value_heads || dim != first->head_dim || heads % groups)
        return sluice__json_fail(&r->json, "attention_other_setting", err,
                                 "sliding layers may differ in num_attention_heads only, a multiple of %d",
                                 first->num_key_value_heads);
    for (int i = 0; i < r->config->num_hidden_layers; i++)
        if (r->config->layers[i].sliding_window) r->config->layers[i].num_attention_heads = (int)heads;
    return SLUICE_OK;
}

/* Entry i of a list of limits; null and 0 mean none. */
static sluice_status limit_at(const sluice__config_reader *r, const char *key, int i, float *out, sluice_error *err) {
    sluice__json list;
    SLUICE__TRY(sluice__layer_list(&list, r, key, true, err));
    const json_t *value = list.value ? json_array_get(list.value, (size_t)i) : NULL;
    *out = 0;
    if (!value || json_is_null(value)) return SLUICE_OK;
    double limit = json_number_value(value);
    if (!json_is_number(value) || !(limit >= 0 && limit <= 1e9))
        return sluice__json_fail(&list, NULL, err, "entry %d: expected a limit of 0 or more, or null", i);
    *out = (float)limit;
    return SLUICE_OK;
}

/* Whether layer i has experts: mlp_layer_types, moe_layers_enum ("3,4,5" or a list), or from layer 3 on. */
static bool is_sparse(const sluice__config_reader *r, int i) {
    json_t *types = json_object_get(r->json.value, "mlp_layer_types"),
           *layers = json_object_get(r->json.value, "moe_layers_enum");
    if (json_is_array(types)) {
        const char *type = json_string_value(json_array_get(types, (size_t)i));
        return type && !strcmp(type, "sparse");
    }
    if (json_is_array(layers)) {
        for (size_t k = 0; k < json_array_size(layers); k++)
            if (json_integer_value(json_array_get(layers, k)) == i) return true;
        return false;
    }
    const char *text = json_string_value(layers);
    if (!text) return i >= 3;
    while (*text) {
        char *end;
        long layer = strtol(text, &end, 10);
        if (end != text && layer == i) return true;
        text = *end ? end + 1 : end;
    }
    return false;
}

static sluice_status read_moe(const sluice__config_reader *r, sluice_moe_spec *moe, sluice_error *err) {
    sluice_moe_spec defaults = {.num_experts = 288,
                                .num_experts_per_tok = 8,
                                .intermediate_size = 1280,
                                .num_shared_experts = 1,
                                .shared_intermediate_size = 1280,
                                .score = SLUICE_ROUTER_SIGMOID};
    double scale = 1;
    SLUICE__TRY(sluice__read_flag(r, "use_moe_router_bias", true, &defaults.selection_bias, err));
    SLUICE__TRY(sluice__read_experts(r, &defaults, moe, err));
    SLUICE__TRY(sluice__json_real(&r->json, "moe_router_scaling_factor", false, -1e6, 1e6, &scale, err));
    moe->norm_topk_prob = true;
    moe->route_scale = (float)scale;
    const char *score = json_string_value(json_object_get(r->json.value, "moe_router_activation"));
    if (score && strcmp(score, "sigmoid")) sluice__warn_unread(r, "moe_router_activation", "scores are sigmoids");
    if (json_is_false(json_object_get(r->json.value, "norm_expert_weight")))
        sluice__warn_unread(r, "norm_expert_weight", "weights are normalised");
    return SLUICE_OK;
}

static sluice_status read_mlps(sluice__config_reader *r, sluice_error *err) {
    sluice_moe_spec moe;
    SLUICE__TRY(read_moe(r, &moe, err));
    SLUICE__TRY(sluice__read_mlp_bias(r, err));
    for (int i = 0; i < r->config->num_hidden_layers; i++) {
        sluice_layer_spec *l = &r->config->layers[i];
        float limit;
        SLUICE__TRY(limit_at(r, "swiglu_limits", i, &limit, err));
        SLUICE__TRY(limit_at(r, "swiglu_limits_shared", i, &l->mlp_limit, err));
        if (!is_sparse(r, i)) continue;
        l->moe = moe;
        l->moe.limit = limit;
        l->moe.shared_limit = l->mlp_limit;
    }
    return SLUICE_OK;
}

static sluice_status read(sluice__config_reader *r, sluice_error *err) {
    static const sluice_gate_spec gate = {.position = SLUICE_GATE_SDPA, .granularity = SLUICE_GATE_HEADWISE};
    double scalar = r->config->layers[0].head_dim;
    SLUICE__TRY(read_heads(r, err));
    SLUICE__TRY(read_mlps(r, err));
    SLUICE__TRY(sluice__json_real(&r->json, "query_pre_attn_scalar", false, 1e-6, 1e9, &scalar, err));
    for (int i = 0; i < r->config->num_hidden_layers; i++)
        r->config->layers[i].attention_scale = (float)(1 / sqrt(scalar));
    if (json_is_false(json_object_get(r->json.value, "use_head_wise_attn_gate")))
        return sluice__json_fail(&r->json, "use_head_wise_attn_gate", err, "found false, but this class has the gate");
    sluice__set_qk_norm(r, true);
    sluice__set_gate(r, &gate);
    return sluice__read_attention_bias(r, err);
}

static sluice_status kinds(sluice__config_reader *r, int window, sluice_error *err) {
    (void)r, (void)window, (void)err;
    return SLUICE_OK;
}

#define BOTH(slot, before, after)                                                                              \
    {slot, before, SLUICE__ALONE}, { slot, after, SLUICE__ALONE }
static const sluice__tensor_name names[] = {
    {SLUICE__SLOT_GATE, "self_attn.g_proj.weight", SLUICE__ALONE},
    BOTH(SLUICE__SLOT_ROUTER, "moe.gate.weight", "mlp.gate.weight"),
    BOTH(SLUICE__SLOT_SELECTION_BIAS, "moe.router_bias", "mlp.gate.e_score_correction_bias"),
    BOTH(SLUICE__SLOT_SHARED_GATE, "share_expert.gate_proj.weight", "mlp.shared_experts.gate_proj.weight"),
    BOTH(SLUICE__SLOT_SHARED_UP, "share_expert.up_proj.weight", "mlp.shared_experts.up_proj.weight"),
    BOTH(SLUICE__SLOT_SHARED_DOWN, "share_expert.down_proj.weight", "mlp.shared_experts.down_proj.weight"),
    BOTH(SLUICE__SLOT_SHARED_GATE_BIAS, "share_expert.gate_proj.bias", "mlp.shared_experts.gate_proj.bias"),
    BOTH(SLUICE__SLOT_SHARED_UP_BIAS, "share_expert.up_proj.bias", "mlp.shared_experts.up_proj.bias"),
    BOTH(SLUICE__SLOT_SHARED_DOWN_BIAS, "share_expert.down_proj.bias", "mlp.shared_experts.down_proj.bias"),
    {SLUICE__SLOT_EXPERT_GATE, "moe.gate_proj.weight", SLUICE__OF_EXPERTS},
    {SLUICE__SLOT_EXPERT_UP, "moe.up_proj.weight", SLUICE__OF_EXPERTS},
    {SLUICE__SLOT_EXPERT_DOWN, "moe.down_proj.weight", SLUICE__OF_EXPERTS},
    SLUICE__FUSED_EXPERTS,
    {0}};
#undef BOTH

#define COMMON                                                                                                 \
    .defaults = {.intermediate_size = 11264,                                                                   \
                 .num_key_value_heads = 8,                                                                     \
                 .head_dim = 128,                                                                              \
                 .max_position_embeddings = 128000,                                                            \
                 .bos_token_id = -1,                                                                           \
                 .eos_token_id = -1,                                                                           \
                 .partial_rotary_factor = 1,                                                                   \
                 .rms_norm_eps = 1e-5},                                                                        \
    .norm = SLUICE_NORM_ONE_PLUS, .gate_without_bias = true, .prepare = prepare, .kinds = kinds,               \
    .tensor_names = names, .read = read

static const char *const types[] = {"step3p5", NULL};
const sluice__family sluice__family_step3p5 = {.name = "Step-3.5", .model_types = types, COMMON};
static const char *const wrapped[] = {"step3p7", NULL};
const sluice__family sluice__family_step3p7 = {
    .name = "Step-3.7 (text part)", .model_types = wrapped, .nested = "text_config", COMMON};
