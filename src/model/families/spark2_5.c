/* SPDX-License-Identifier: Apache-2.0 */
/* Spark-X2.5, from published descriptions of its configuration and tensors (docs/models.md): a sigmoid gate per head in
 * g_proj, q, k and v in one tensor, no q/k norm, three sliding layers and a full one in turn; RoPE over a quarter of the
 * head with theta 5e6 in full layers, over all of it with theta 1e4 in sliding ones; an MLP gated by the exact GELU. */
#include "base/memory.h"
#include "model/family.h"

/* rope_theta and partial_rotary_factor beside each other are those of full layers. */
static sluice_status prepare(sluice__config_reader *r, sluice_error *err) {
    json_t *o = r->json.value, *given = json_object_get(o, "rope_parameters");
    if (json_is_object(json_object_get(given, "full_attention"))) return SLUICE_OK;
    json_t *full = json_pack("{s:f, s:f}", "rope_theta", 5e6, "partial_rotary_factor", 0.25),
           *by_type = json_pack("{s:o, s:{s:f, s:f}}", "full_attention", full, "sliding_attention", "rope_theta", 1e4,
                                "partial_rotary_factor", 1.0);
    json_t *theta = json_object_get(o, "rope_theta"), *partial = json_object_get(o, "partial_rotary_factor");
    int bad = !by_type;
    if (json_is_number(theta)) bad |= json_object_set(full, "rope_theta", theta);
    if (json_is_number(partial)) bad |= json_object_set(full, "partial_rotary_factor", partial);
    if (json_is_object(given)) bad |= json_object_update(full, given);
    bad |= json_object_set_new(o, "rope_parameters", by_type);
    json_object_del(o, "rope_theta");
    json_object_del(o, "partial_rotary_factor");
    return bad ? sluice__no_memory(err, 256, "rope_parameters") : SLUICE_OK;
}

static sluice_status kinds(sluice__config_reader *r, int window, sluice_error *err) {
    (void)err;
    for (int i = 0; i < r->config->num_hidden_layers; i++)
        r->config->layers[i].sliding_window = (i + 1) % 4 ? window : 0;
    return SLUICE_OK;
}

static sluice_status read(sluice__config_reader *r, sluice_error *err) {
    static const char *const acts[] = {"sigmoid", "softplus", NULL};
    static const sluice_gate_act values[] = {SLUICE_GATE_SIGMOID, SLUICE_GATE_SOFTPLUS};
    sluice_gate_spec gate;
    bool found;
    int act = 0;
    SLUICE__TRY(sluice__read_gate_flags(r, &gate, &found, err));
    if (!found) gate = (sluice_gate_spec){.position = SLUICE_GATE_SDPA, .granularity = SLUICE_GATE_HEADWISE};
    SLUICE__TRY(sluice__json_choice(&r->json, "gate_attn_act_mode", false, acts, &act, err));
    if (gate.position != SLUICE_GATE_NONE) gate.act = values[act];
    sluice__set_gate(r, &gate);
    return sluice__read_attention_bias(r, err);
}

static const sluice__tensor_name names[] = {
    {SLUICE__SLOT_Q, "self_attn.q_k_v_proj.weight", SLUICE__QKV_ROWS},
    {SLUICE__SLOT_K, "self_attn.q_k_v_proj.weight", SLUICE__QKV_ROWS},
    {SLUICE__SLOT_V, "self_attn.q_k_v_proj.weight", SLUICE__QKV_ROWS},
    {SLUICE__SLOT_GATE, "self_attn.g_proj.weight", SLUICE__ALONE},
    {0}};
static const char *const types[] = {"spark2_5", NULL};
const sluice__family sluice__family_spark2_5 = {
    .name = "Spark-X2.5",
    .model_types = types,
    .defaults = {.head_dim = 256,
                 .max_position_embeddings = 1048576,
                 .bos_token_id = 0,
                 .eos_token_id = 1,
                 .partial_rotary_factor = 1,
                 .tie_word_embeddings = true,
                 .sliding_window = 512},
    .any_act = true,
    .act = "gelu",
    .gate_without_bias = true,
    .prepare = prepare,
    .kinds = kinds,
    .tensor_names = names,
    .read = read,
};
