/* SPDX-License-Identifier: Apache-2.0 */
/* The gate in its three spellings: our own flat keys (gate_position, gate_granularity, ...), the flags of the
 * paper's code (headwise_attn_output_gate, elementwise_attn_output_gate; if both are set its code takes the
 * headwise branch), and Qwen's attn_output_gate. Two spellings in one file must agree. */
#include "model/family.h"
#include <string.h>

static const char headwise_key[] = "headwise_attn_output_gate",
                  elementwise_key[] = "elementwise_attn_output_gate", qwen_key[] = "attn_output_gate";

static const char *const positions[] = {"none", "sdpa", "value", "key", "query", "output", NULL};
static const char *const granularities[] = {"elementwise", "headwise", NULL};
static const char *const acts[] = {"sigmoid", "silu", "identity", "ns_sigmoid", "softplus", NULL};
static const char *const ops[] = {"multiply", "add", NULL};
static const char *const sharings[] = {"specific", "shared", NULL};
static const char *const means[] = {"score", "logit", NULL};
static const char *const inputs[] = {"hidden", "none", NULL};

/* One of a key's words; the number of the word is the value of the enumeration. */
static sluice_status word(const sluice__config_reader *r, const char *key, const char *const *words, int *out,
                          sluice_error *err) {
    return sluice__json_choice(&r->json, key, false, words, out, err);
}

static sluice_status refuse(const sluice__config_reader *r, const char *key, const char *value, const char *why,
                            sluice_error *err) {
    return sluice__json_fail(&r->json, key, err, "found \"%s\", but %s", value, why);
}

/* Keys that would say nothing: a person who writes them expects a gate that is not there. */
static sluice_status check_meaning(const sluice__config_reader *r, const sluice_gate_spec *g, sluice_error *err) {
    static const char no_gate[] = "there is no gate (gate_position is none or absent)";
    static const char no_heads[] = "a gate at the output has no head axis: only elementwise, specific";
    bool none = g->position == SLUICE_GATE_NONE, output = g->position == SLUICE_GATE_OUTPUT;
    bool headwise = g->granularity == SLUICE_GATE_HEADWISE;
    if (headwise && (none || output)) return refuse(r, "gate_granularity", "headwise", none ? no_gate : no_heads, err);
    if (g->shared && (none || output)) return refuse(r, "gate_sharing", "shared", none ? no_gate : no_heads, err);
    if (g->share_mean_logit && !g->shared)
        return refuse(r, "gate_share_mean", "logit", "gate_sharing is specific: there is no mean", err);
    if (none && g->act != SLUICE_GATE_SIGMOID) return refuse(r, "gate_act", acts[g->act], no_gate, err);
    if (none && g->op != SLUICE_GATE_MULTIPLY) return refuse(r, "gate_op", ops[g->op], no_gate, err);
    if (none && g->input_none) return refuse(r, "gate_input", "none", no_gate, err);
    return SLUICE_OK;
}

/* What the keys say, with or without a position. */
static sluice_status read_words(const sluice__config_reader *r, sluice_gate_spec *gate, sluice_error *err) {
    int position = 0, granularity = 0, act = 0, op = 0, sharing = 0, mean = 0, input = 0;
    SLUICE__TRY(word(r, "gate_position", positions, &position, err));
    SLUICE__TRY(word(r, "gate_granularity", granularities, &granularity, err));
    SLUICE__TRY(word(r, "gate_act", acts, &act, err));
    SLUICE__TRY(word(r, "gate_op", ops, &op, err));
    SLUICE__TRY(word(r, "gate_sharing", sharings, &sharing, err));
    SLUICE__TRY(word(r, "gate_share_mean", means, &mean, err));
    SLUICE__TRY(word(r, "gate_input", inputs, &input, err));
    *gate = (sluice_gate_spec){.position = (sluice_gate_position)position,
                               .granularity = (sluice_gate_granularity)granularity,
                               .act = (sluice_gate_act)act,
                               .op = (sluice_gate_op)op,
                               .shared = sharing == 1,
                               .share_mean_logit = mean == 1,
                               .input_none = input == 1};
    return SLUICE_OK;
}

sluice_status sluice__read_own_gate(const sluice__config_reader *r, sluice_gate_spec *gate, sluice_error *err) {
    SLUICE__TRY(read_words(r, gate, err));
    return check_meaning(r, gate, err);
}

int sluice__gate_to_json(json_t *o, const sluice_gate_spec *g) {
    return json_object_set_new(o, "gate_position", json_string(positions[g->position])) |
           json_object_set_new(o, "gate_granularity", json_string(granularities[g->granularity])) |
           json_object_set_new(o, "gate_sharing", json_string(sharings[g->shared])) |
           json_object_set_new(o, "gate_share_mean", json_string(means[g->share_mean_logit])) |
           json_object_set_new(o, "gate_op", json_string(ops[g->op])) |
           json_object_set_new(o, "gate_act", json_string(acts[g->act])) |
           json_object_set_new(o, "gate_input", json_string(inputs[g->input_none]));
}

static sluice_status contradiction(const sluice__config_reader *r, const char *key, bool on, const char *other,
                                   const char *value, sluice_error *err) {
    return sluice__json_fail(&r->json, key, err, "%s contradicts %s %s", on ? "true" : "false", other, value);
}

/* Our own keys, where they stand beside a flag: all of them that are there must say what the flag says. */
static sluice_status compare_with_own(const sluice__config_reader *r, const char *flag,
                                      const sluice_gate_spec *gate, bool granularity_known, sluice_error *err) {
    sluice_gate_spec own;
    bool on = gate->position != SLUICE_GATE_NONE, granular = sluice__json_has(&r->json, "gate_granularity");
    SLUICE__TRY(read_words(r, &own, err));
    bool placed = sluice__json_has(&r->json, "gate_position");
    if (placed && own.position != gate->position)
        return contradiction(r, flag, on, "gate_position", positions[own.position], err);
    if (!on) return SLUICE_OK;
    bool compare = granularity_known ? placed || granular : !placed; /* Qwen's flag says less than gate_position beside it */
    if (compare && own.granularity != gate->granularity)
        return contradiction(r, flag, true, "gate_granularity", granularities[own.granularity], err);
    if (own.act != SLUICE_GATE_SIGMOID) return contradiction(r, flag, true, "gate_act", acts[own.act], err);
    if (own.op != SLUICE_GATE_MULTIPLY) return contradiction(r, flag, true, "gate_op", ops[own.op], err);
    if (own.shared) return contradiction(r, flag, true, "gate_sharing", "shared", err);
    if (own.input_none) return contradiction(r, flag, true, "gate_input", "none", err);
    return SLUICE_OK;
}

sluice_status sluice__read_gate_flags(const sluice__config_reader *r, sluice_gate_spec *gate, bool *found,
                                      sluice_error *err) {
    bool headwise, elementwise, qwen;
    *gate = (sluice_gate_spec){0};
    SLUICE__TRY(sluice__read_flag(r, headwise_key, false, &headwise, err));
    SLUICE__TRY(sluice__read_flag(r, elementwise_key, false, &elementwise, err));
    SLUICE__TRY(sluice__read_flag(r, qwen_key, false, &qwen, err));
    bool paper = sluice__json_has(&r->json, headwise_key) || sluice__json_has(&r->json, elementwise_key);
    bool has_qwen = sluice__json_has(&r->json, qwen_key), on = paper ? headwise || elementwise : qwen;
    *found = paper || has_qwen;
    if (!*found) return SLUICE_OK;
    const char *paper_key =
        headwise || !sluice__json_has(&r->json, elementwise_key) ? headwise_key : elementwise_key;
    if (paper && has_qwen && on != qwen)
        return contradiction(r, qwen_key, qwen, paper_key, on ? "true" : "false", err);
    if (on) {
        gate->position = SLUICE_GATE_SDPA;
        gate->granularity = headwise ? SLUICE_GATE_HEADWISE : SLUICE_GATE_ELEMENTWISE;
    }
    return compare_with_own(r, paper ? paper_key : qwen_key, gate, paper && on, err);
}

sluice_status sluice__refuse_gate(const sluice__config_reader *r, sluice_error *err) {
    sluice_gate_spec flags, own;
    bool found;
    SLUICE__TRY(sluice__read_gate_flags(r, &flags, &found, err));
    SLUICE__TRY(sluice__read_own_gate(r, &own, err));
    if (flags.position == SLUICE_GATE_NONE && own.position == SLUICE_GATE_NONE) return SLUICE_OK;
    return sluice__json_fail(
        &r->json, "model_type", err, "%s has no gate, but the file asks for one (%s); model_type sluice has",
        r->config->model_type, flags.position ? "an attn_output_gate flag" : "gate_position");
}
