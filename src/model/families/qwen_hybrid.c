/* SPDX-License-Identifier: Apache-2.0 */
/* Attention and linear attention of Qwen3-Next and Qwen3.5: the same mathematics, stored differently. */
#include "model/families/qwen_hybrid.h"
#include <string.h>

sluice_status sluice__read_qwen_delta(const sluice__config_reader *r, sluice_delta_spec *out, sluice_error *err) {
    const sluice_delta_spec defaults = {.num_value_heads = 32,
                                        .num_key_heads = 16,
                                        .key_head_dim = 128,
                                        .value_head_dim = 128,
                                        .conv_kernel = 4,
                                        .norm_eps = r->config->rms_norm_eps};
    const char *gate = "swish";
    SLUICE__TRY(sluice__json_string(&r->json, "output_gate_type", false, &gate, err));
    if (strcmp(gate, "swish") && strcmp(gate, "silu"))
        return sluice__json_fail(&r->json, "output_gate_type", err,
                                 "\"%.40s\" is not supported by this version, only swish", gate);
    return sluice__read_delta(r, &defaults, out, err);
}

sluice_status sluice__read_qwen_hybrid_attention(sluice__config_reader *r, sluice_error *err) {
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
