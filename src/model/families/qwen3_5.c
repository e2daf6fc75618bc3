/* SPDX-License-Identifier: Apache-2.0 */
/* Qwen3.5 text models as far as their layers are full attention: every head of q_proj holds its query rows,
 * then its gate rows; all norms are stored as w - 1; a quarter of each head rotates unless the file says
 * otherwise. What we train with a sigmoid gate and q/k norm is exported to this class, with gate_granularity
 * beside it when the gate was headwise. */
#include "model/family.h"

static sluice_status read(sluice__config_reader *r, sluice_error *err) {
    sluice_gate_spec gate, flags;
    bool found;
    SLUICE__TRY(sluice__read_gate_flags(r, &flags, &found, err));
    if (found && flags.position == SLUICE_GATE_NONE)
        return sluice__json_fail(&r->json, "attn_output_gate", err,
                                 "found false, but model_type %s always has the gate", r->config->model_type);
    SLUICE__TRY(sluice__read_own_gate(r, &gate, err));
    bool own = sluice__json_has(&r->json, "gate_position");
    if (own && (gate.position != SLUICE_GATE_SDPA || gate.act != SLUICE_GATE_SIGMOID || gate.op != SLUICE_GATE_MULTIPLY ||
                gate.shared || gate.input_none))
        return sluice__json_fail(&r->json, "gate_position", err,
                                 "the gate_* keys contradict model_type %s, whose gate is a sigmoid multiplied on the "
                                 "attention output (sdpa)",
                                 r->config->model_type);
    r->layout->gate_repeated = gate.position == SLUICE_GATE_SDPA && gate.granularity == SLUICE_GATE_HEADWISE;
    gate = (sluice_gate_spec){.position = SLUICE_GATE_SDPA,
                              .granularity =
                                  r->layout->gate_repeated ? SLUICE_GATE_HEADWISE : SLUICE_GATE_ELEMENTWISE};
    sluice__set_gate(r, &gate);
    sluice__set_qk_norm(r, true);
    return sluice__read_attention_bias(r, err);
}

#define DEFAULTS                                                                                               \
    {                                                                                                          \
        .num_key_value_heads = 4, .head_dim = 256, .max_position_embeddings = 32768, .bos_token_id = -1,       \
        .eos_token_id = -1, .partial_rotary_factor = 0.25                                                      \
    }

static const char *const types[] = {"qwen3_5_text", NULL};
const sluice__family sluice__family_qwen3_5 = {
    .name = "Qwen3.5",
    .model_types = types,
    .defaults = DEFAULTS,
    .norm = SLUICE_NORM_ONE_PLUS,
    .gate_packing = SLUICE_GATE_Q_PER_HEAD,
    .full_attention_interval = 4,
    .read = read,
};

/* The same language model inside the vision wrapper. */
static const char *const wrapped_types[] = {"qwen3_5", NULL};
const sluice__family sluice__family_qwen3_5_wrapped = {
    .name = "Qwen3.5 (text part)",
    .model_types = wrapped_types,
    .nested = "text_config",
    .prefix = "model.language_model.",
    .defaults = DEFAULTS,
    .norm = SLUICE_NORM_ONE_PLUS,
    .gate_packing = SLUICE_GATE_Q_PER_HEAD,
    .full_attention_interval = 4,
    .read = read,
};
