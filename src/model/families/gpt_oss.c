/* SPDX-License-Identifier: Apache-2.0 */
/* gpt-oss: no gate, but a learned logit per head that joins the softmax and has no value, the rival of the gate; biases
 * everywhere; a sliding window in every second layer; YaRN; experts with biases, transposed and with the columns of gate
 * and up in turn, and a clamped activation of their own; the best of the router's logits, then softmax over these, which
 * is softmax over all of them, renormalised. The released files are packed in MXFP4, which is refused. */
#include "base/memory.h"
#include "model/family.h"

static sluice_status prepare(sluice__config_reader *r, sluice_error *err) {
    if (sluice__json_has(&r->json, "rope_parameters") || sluice__json_has(&r->json, "rope_scaling")) return SLUICE_OK;
    json_t *rope = json_pack("{s:s, s:f, s:f, s:f, s:b, s:i}", "rope_type", "yarn", "factor", 32.0, "beta_fast", 32.0,
                             "beta_slow", 1.0, "truncate", 0, "original_max_position_embeddings", 4096);
    if (!rope || json_object_set_new(r->json.value, "rope_parameters", rope))
        return sluice__no_memory(err, 256, "rope_parameters");
    return SLUICE_OK;
}

static sluice_status kinds(sluice__config_reader *r, int window, sluice_error *err) {
    (void)err;
    for (int i = 0; i < r->config->num_hidden_layers; i += 2) r->config->layers[i].sliding_window = window;
    return SLUICE_OK;
}

static sluice_status read(sluice__config_reader *r, sluice_error *err) {
    sluice_moe_spec moe, defaults = {.num_experts = 128,
                                     .num_experts_per_tok = 4,
                                     .intermediate_size = r->config->layers[0].intermediate_size,
                                     .router_bias = true,
                                     .expert_bias = true,
                                     .limit = 7};
    bool bias;
    double limit = 7;
    SLUICE__TRY(sluice__read_experts(r, &defaults, &moe, err));
    moe.intermediate_size = defaults.intermediate_size;
    moe.norm_topk_prob = true;
    SLUICE__TRY(sluice__read_flag(r, "attention_bias", true, &bias, err));
    SLUICE__TRY(sluice__json_real(&r->json, "swiglu_limit", false, 0, 1e9, &limit, err));
    if (limit != 7) sluice__warn_unread(r, "swiglu_limit", "the limit is 7");
    for (int i = 0; i < r->config->num_hidden_layers; i++) {
        sluice_layer_spec *l = &r->config->layers[i];
        l->moe = moe;
        l->mlp_act = SLUICE_MLP_GPT_OSS;
        l->sinks = true;
        l->qkv_bias = l->o_bias = bias;
    }
    return sluice__refuse_gate(r, err);
}

static const sluice__tensor_name names[] = {
    {SLUICE__SLOT_ROUTER, "mlp.router.weight", SLUICE__ALONE},
    {SLUICE__SLOT_ROUTER_BIAS, "mlp.router.bias", SLUICE__ALONE},
    {SLUICE__SLOT_EXPERT_GATE, "mlp.experts.gate_up_proj", SLUICE__INTERLEAVED},
    {SLUICE__SLOT_EXPERT_UP, "mlp.experts.gate_up_proj", SLUICE__INTERLEAVED},
    {SLUICE__SLOT_EXPERT_DOWN, "mlp.experts.down_proj", SLUICE__TRANSPOSED},
    {SLUICE__SLOT_EXPERT_GATE_BIAS, "mlp.experts.gate_up_proj_bias", SLUICE__INTERLEAVED},
    {SLUICE__SLOT_EXPERT_UP_BIAS, "mlp.experts.gate_up_proj_bias", SLUICE__INTERLEAVED},
    {SLUICE__SLOT_EXPERT_DOWN_BIAS, "mlp.experts.down_proj_bias", SLUICE__OF_EXPERTS},
    {0}};
static const char *const types[] = {"gpt_oss", NULL};
const sluice__family sluice__family_gpt_oss = {
    .name = "gpt-oss",
    .model_types = types,
    .defaults = {.intermediate_size = 2880,
                 .num_key_value_heads = 8,
                 .head_dim = 64,
                 .max_position_embeddings = 131072,
                 .bos_token_id = -1,
                 .eos_token_id = -1,
                 .partial_rotary_factor = 1,
                 .rope_theta = 150000,
                 .rms_norm_eps = 1e-5,
                 .sliding_window = 128},
    .any_act = true,
    .prepare = prepare,
    .kinds = kinds,
    .tensor_names = names,
    .read = read,
};
