/* SPDX-License-Identifier: Apache-2.0 */
/* Reading config.json: what is accepted means what transformers means, and what is wrong is refused with file
 * and key. */
#include "support/test_support.h"
#include "model/config.h"
#include "model/family.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#define HF(type)                                                                                               \
    "\"model_type\": \"" type                                                                                  \
    "\", \"vocab_size\": 100, \"hidden_size\": 64, \"intermediate_size\": 96, \"num_hidden_layers\": 4, "      \
    "\"num_attention_heads\": 8"
#define QWEN(type) HF(type) ", \"num_key_value_heads\": 4, \"head_dim\": 8"
#define QWEN35                                                                                                 \
    QWEN("qwen3_5_text")                                                                                       \
    ", \"layer_types\": [\"full_attention\", \"full_attention\", \"full_attention\", \"attention\"]"

static sluice_config parse_ok(const char *json) {
    sluice_error err = {0};
    sluice_config c;
    if (sluice_config_parse(&c, json, "config.json", &err) != SLUICE_OK) fail_msg("%s\n%s", json, err.message);
    return c;
}

static sluice__file_layout layout_of(const char *json) {
    sluice_error err = {0};
    sluice_config c;
    sluice__file_layout layout;
    json_t *root;
    assert_ok_err(sluice__json_parse(&root, json, strlen(json), "config.json", &err), &err);
    sluice__json view = sluice__json_view(root, "config.json");
    assert_ok_err(sluice__config_read(&c, &layout, &view, &err), &err);
    sluice_config_free(&c);
    json_decref(root);
    return layout;
}

/* ---- refusals ---- */

static const struct {
    const char *json;
    sluice_status status;
    const char *words[3]; /* all must be in the message, with config.json */
} refused[] = {
    {"", SLUICE_ERR_FORMAT, {"not valid JSON"}},
    {"[1]", SLUICE_ERR_CONFIG, {"object"}},
    {"{\"hidden_size\": 64, \"hidden_size\": 32}", SLUICE_ERR_FORMAT, {"hidden_size", "twice"}},
    {"{\"model_type\": \"frobnicator\"}", SLUICE_ERR_CONFIG, {"frobnicator", "qwen3", "llama"}},
    {"{\"model_type\": \"lama\"}", SLUICE_ERR_CONFIG, {"did you mean llama?"}},
    {"{\"model_type\": \"afmoe\", \"vocab_size\": 8, \"hidden_size\": 16, \"num_hidden_layers\": 2, "
     "\"num_attention_heads\": 2, \"sliding_window\": null}",
     SLUICE_ERR_CONFIG,
     {"sliding_window", "layer 0"}},
    {"{\"model_type\": \"laguna\", \"vocab_size\": 8, \"hidden_size\": 16, \"num_hidden_layers\": 2, "
     "\"num_attention_heads\": 8, \"num_attention_heads_per_layer\": [8, 12]}",
     SLUICE_ERR_CONFIG,
     {"num_attention_heads_per_layer", "layer 1", "12"}},
    {"{\"model_type\": \"laguna\", \"vocab_size\": 8, \"hidden_size\": 16, \"num_hidden_layers\": 2, "
     "\"num_attention_heads\": 8, \"gating\": \"none\"}",
     SLUICE_ERR_CONFIG,
     {"gating", "per-element"}},
    {"{\"model_type\": \"step3p5\", \"vocab_size\": 8, \"hidden_size\": 16, \"num_hidden_layers\": 2, "
     "\"num_attention_heads\": 8, \"num_attention_groups\": 2, \"num_key_value_heads\": 4}",
     SLUICE_ERR_CONFIG,
     {"num_attention_groups", "num_key_value_heads"}},
    {"{\"model_type\": \"qwen3_moe\", \"vocab_size\": 8, \"hidden_size\": 16, \"num_hidden_layers\": 2, "
     "\"num_attention_heads\": 4, \"num_experts\": 4, \"num_local_experts\": 8}",
     SLUICE_ERR_CONFIG,
     {"num_local_experts", "num_experts"}},
    {"{\"model_type\": \"qwen3_moe\", \"vocab_size\": 8, \"hidden_size\": 16, \"num_hidden_layers\": 2, "
     "\"num_attention_heads\": 4, \"num_experts\": 4, \"num_experts_per_tok\": 5}",
     SLUICE_ERR_CONFIG,
     {"num_experts_per_tok", "4 experts"}},
    {"{\"model_type\": \"zamba9\", \"hidden_size\": 16, \"mamba_d_state\": 16, \"num_experts\": 4}",
     SLUICE_ERR_CONFIG,
     {"zamba9", "nearest is qwen3_moe", "mamba_d_state (state-space layers)"}},
    {"{\"model_type\": 7}", SLUICE_ERR_CONFIG, {"model_type", "string"}},
    {"{\"architectures\": [\"X\"]}", SLUICE_ERR_CONFIG, {"model_type", "missing"}},
    {"{\"model_type\": \"qwen4_exp\"}", SLUICE_ERR_UNSUPPORTED, {"qwen4_exp", "hyper-connections"}},
    {"{\"model_type\": \"llama\", \"vocab_size\": 8}", SLUICE_ERR_CONFIG, {"hidden_size", "missing"}},
    {"{\"hidden_size\": 0}", SLUICE_ERR_CONFIG, {"hidden_size", "found 0"}},
    {"{\"hidden_size\": \"64\"}", SLUICE_ERR_CONFIG, {"hidden_size", "string", "integer"}},
    {"{\"hidden_size\": 64.5}", SLUICE_ERR_CONFIG, {"hidden_size", "integer"}},
    {"{\"vocab_size\": 4294967296}", SLUICE_ERR_CONFIG, {"vocab_size"}},
    {"{\"vocab_size\": 99999999999999999999}", SLUICE_ERR_FORMAT, {"integer"}},
    {"{\"num_hidden_layers\": 1000000}", SLUICE_ERR_CONFIG, {"num_hidden_layers"}},
    {"{\"num_attention_heads\": 5}", SLUICE_ERR_CONFIG, {"num_key_value_heads", "divisor", "5"}},
    {"{\"num_key_value_heads\": 0}", SLUICE_ERR_CONFIG, {"num_key_value_heads"}},
    {"{\"head_dim\": 7}", SLUICE_ERR_CONFIG, {"head_dim", "even"}},
    {"{\"rms_norm_eps\": -1}", SLUICE_ERR_CONFIG, {"rms_norm_eps"}},
    {"{\"rope_theta\": 1}", SLUICE_ERR_CONFIG, {"rope_theta"}},
    {"{\"partial_rotary_factor\": 1.5}", SLUICE_ERR_CONFIG, {"partial_rotary_factor"}},
    {"{\"partial_rotary_factor\": 0.2}", SLUICE_ERR_CONFIG, {"partial_rotary_factor", "3 of 16", "even"}},
    {"{\"hidden_act\": \"gelu\"}", SLUICE_ERR_CONFIG, {"hidden_act", "gelu"}},
    {"{\"eos_token_id\": \"x\"}", SLUICE_ERR_CONFIG, {"eos_token_id"}},
    {"{\"residual_clip\": -1}", SLUICE_ERR_CONFIG, {"residual_clip"}},
    {"{\"use_qk_norm\": 1}", SLUICE_ERR_CONFIG, {"use_qk_norm", "true or false"}},
    /* RoPE */
    {"{\"rope_scaling\": {\"rope_type\": \"warp\"}}", SLUICE_ERR_CONFIG, {"rope_scaling.rope_type", "warp"}},
    {"{\"rope_scaling\": {\"type\": \"warp\"}}", SLUICE_ERR_CONFIG, {"rope_scaling.type", "warp"}},
    {"{\"rope_scaling\": 4}", SLUICE_ERR_CONFIG, {"rope_scaling", "object"}},
    {"{\"rope_scaling\": {\"type\": \"linear\"}}", SLUICE_ERR_CONFIG, {"rope_scaling.factor", "missing"}},
    {"{\"rope_scaling\": {\"type\": \"llama3\", \"factor\": 8}}",
     SLUICE_ERR_CONFIG,
     {"low_freq_factor", "missing"}},
    {"{\"rope_scaling\": {\"type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4, \"high_freq_factor\": "
     "4}}",
     SLUICE_ERR_CONFIG,
     {"high_freq_factor"}},
    {"{\"rope_parameters\": {\"rope_type\": \"longrope\", \"long_factor\": [1], \"short_factor\": [1]}}",
     SLUICE_ERR_CONFIG,
     {"long_factor", "8"}},
    {"{\"rope_parameters\": {\"sliding_attention\": {\"rope_theta\": 100}}}",
     SLUICE_ERR_CONFIG,
     {"full_attention", "missing"}},
    /* layers */
    {"{\"layer_types\": [\"full_attention\"]}", SLUICE_ERR_CONFIG, {"layer_types", "1 entries", "2 layers"}},
    {"{\"layer_types\": [\"full_attention\", \"banana\"]}",
     SLUICE_ERR_CONFIG,
     {"layer_types", "layer 1", "banana"}},
    {"{\"layer_types\": [\"full_attention\", 3]}", SLUICE_ERR_CONFIG, {"layer_types", "entry 1"}},
    {"{\"layer_types\": [\"full_attention\", \"linear_attention\"]}",
     SLUICE_ERR_UNSUPPORTED,
     {"layer_types", "layer 1", "linear_attention"}},
    {"{\"layer_types\": [\"full_attention\", \"sliding_attention\"]}", SLUICE_ERR_CONFIG, {"sliding_window"}},
    {"{" QWEN("qwen3_5_text") ", \"linear_num_value_heads\": 24}",
     SLUICE_ERR_CONFIG,
     {"linear_num_value_heads", "24", "linear_num_key_heads"}},
    {"{" QWEN("qwen3_5_text") ", \"linear_key_head_dim\": 0}", SLUICE_ERR_CONFIG, {"linear_key_head_dim"}},
    {"{" QWEN("qwen3_5_text") ", \"linear_conv_kernel_dim\": 100000}", SLUICE_ERR_CONFIG, {"linear_conv_kernel_dim"}},
    {"{" QWEN("qwen3_5_text") ", \"output_gate_type\": \"sigmoid\"}",
     SLUICE_ERR_CONFIG,
     {"output_gate_type", "sigmoid"}},
    {"{" QWEN("qwen3_5_text") ", \"full_attention_interval\": 0}", SLUICE_ERR_CONFIG, {"full_attention_interval"}},
    {"{\"model_type\": \"qwen3_5\"}", SLUICE_ERR_CONFIG, {"text_config"}},
    {"{" HF("llama") ", \"num_attention_heads\": 7}", SLUICE_ERR_FORMAT, {"num_attention_heads", "twice"}},
    {"{\"model_type\": \"llama\", \"vocab_size\": 8, \"hidden_size\": 64, \"intermediate_size\": 96, "
     "\"num_hidden_layers\": 1, "
     "\"num_attention_heads\": 7}",
     SLUICE_ERR_CONFIG,
     {"hidden_size", "num_attention_heads", "head_dim"}},
    {"{" HF("llama") ", \"quantization_config\": {\"quant_method\": \"awq\"}}",
     SLUICE_ERR_UNSUPPORTED,
     {"quantization_config", "awq"}},
    /* gates */
    {"{\"gate_position\": \"sdap\"}", SLUICE_ERR_CONFIG, {"gate_position", "sdap", "sdpa"}},
    {"{\"gate_postion\": \"sdpa\"}", SLUICE_ERR_CONFIG, {"gate_postion", "gate_position"}},
    {"{\"gate_position\": \"output\", \"gate_granularity\": \"headwise\"}",
     SLUICE_ERR_CONFIG,
     {"gate_granularity", "head axis"}},
    {"{\"gate_position\": \"output\", \"gate_sharing\": \"shared\"}",
     SLUICE_ERR_CONFIG,
     {"gate_sharing", "head axis"}},
    {"{\"gate_position\": \"none\", \"headwise_attn_output_gate\": true}",
     SLUICE_ERR_CONFIG,
     {"headwise_attn_output_gate", "gate_position none"}},
    {"{\"gate_position\": \"sdpa\", \"elementwise_attn_output_gate\": false}",
     SLUICE_ERR_CONFIG,
     {"elementwise_attn_output_gate", "gate_position sdpa"}},
    {"{\"gate_position\": \"sdpa\", \"headwise_attn_output_gate\": true}",
     SLUICE_ERR_CONFIG,
     {"headwise_attn_output_gate", "gate_granularity elementwise"}},
    {"{\"gate_position\": \"sdpa\", \"gate_act\": \"silu\", \"attn_output_gate\": true}",
     SLUICE_ERR_CONFIG,
     {"attn_output_gate", "gate_act silu"}},
    {"{" QWEN("qwen2") ", \"headwise_attn_output_gate\": true, \"attn_output_gate\": false}",
     SLUICE_ERR_CONFIG,
     {"headwise_attn_output_gate", "attn_output_gate"}},
    {"{\"attn_output_gate\": true, \"gate_act\": \"silu\"}", SLUICE_ERR_CONFIG, {"attn_output_gate", "gate_act silu"}},
    {"{\"attn_output_gate\": true, \"gate_op\": \"add\"}", SLUICE_ERR_CONFIG, {"attn_output_gate", "gate_op add"}},
    {"{\"attn_output_gate\": true, \"gate_granularity\": \"headwise\"}",
     SLUICE_ERR_CONFIG,
     {"attn_output_gate", "gate_granularity headwise"}},
    {"{\"headwise_attn_output_gate\": true, \"gate_granularity\": \"elementwise\"}",
     SLUICE_ERR_CONFIG,
     {"headwise_attn_output_gate", "gate_granularity elementwise"}},
    {"{\"elementwise_attn_output_gate\": true, \"gate_position\": \"sdpa\", \"gate_sharing\": \"shared\"}",
     SLUICE_ERR_CONFIG,
     {"elementwise_attn_output_gate", "gate_sharing shared"}},
    {"{\"attn_output_gate\": true, \"gate_position\": \"sdpa\", \"gate_input\": \"none\"}",
     SLUICE_ERR_CONFIG,
     {"attn_output_gate", "gate_input none"}},
    {"{\"attn_output_gate\": true, \"gate_position\": \"value\"}",
     SLUICE_ERR_CONFIG,
     {"attn_output_gate", "gate_position value"}},
    {"{\"attn_output_gate\": true, \"elementwise_attn_output_gate\": false}",
     SLUICE_ERR_CONFIG,
     {"attn_output_gate", "elementwise_attn_output_gate"}},
    {"{" QWEN35 ", \"gate_position\": \"value\"}", SLUICE_ERR_CONFIG, {"gate_position", "qwen3_5_text"}},
    {"{" QWEN35 ", \"gate_position\": \"sdpa\", \"gate_act\": \"silu\"}",
     SLUICE_ERR_CONFIG,
     {"gate_position", "qwen3_5_text"}},
    {"{" QWEN("qwen2") ", \"elementwise_attn_output_gate\": true, \"gate_position\": \"key\"}",
     SLUICE_ERR_CONFIG,
     {"elementwise_attn_output_gate", "gate_position key"}},
    /* keys that would say nothing */
    {"{\"gate_granularity\": \"headwise\"}", SLUICE_ERR_CONFIG, {"gate_granularity", "no gate"}},
    {"{\"gate_sharing\": \"shared\"}", SLUICE_ERR_CONFIG, {"gate_sharing", "no gate"}},
    {"{\"gate_act\": \"silu\"}", SLUICE_ERR_CONFIG, {"gate_act", "silu", "no gate"}},
    {"{\"gate_op\": \"add\"}", SLUICE_ERR_CONFIG, {"gate_op", "no gate"}},
    {"{\"gate_position\": \"none\", \"gate_input\": \"none\"}", SLUICE_ERR_CONFIG, {"gate_input", "no gate"}},
    {"{\"gate_position\": \"sdpa\", \"gate_share_mean\": \"logit\"}",
     SLUICE_ERR_CONFIG,
     {"gate_share_mean", "gate_sharing"}},
    {"{" QWEN("qwen3") ", \"attn_output_gate\": true}", SLUICE_ERR_CONFIG, {"qwen3", "gate"}},
    {"{" HF("llama") ", \"gate_position\": \"sdpa\"}", SLUICE_ERR_CONFIG, {"llama", "gate_position"}},
    {"{" QWEN35 ", \"attn_output_gate\": false}", SLUICE_ERR_CONFIG, {"attn_output_gate", "qwen3_5_text"}},
    /* experts and switch heads */
    {"{\"num_experts\": 4096, \"moe_intermediate_size\": 1000000}",
     SLUICE_ERR_CONFIG,
     {"moe_intermediate_size", "4096 experts"}},
    {"{\"num_experts\": 8, \"shared_expert_gate\": true}",
     SLUICE_ERR_CONFIG,
     {"shared_expert_gate", "num_shared_experts"}},
    {"{\"num_experts\": 2, \"num_experts_per_tok\": 4}", SLUICE_ERR_CONFIG, {"num_experts_per_tok"}},
    {"{\"switch_head\": \"v\", \"qkv_bias\": true}", SLUICE_ERR_CONFIG, {"qkv_bias", "switch_head"}},
    {"{\"switch_head\": \"k\"}", SLUICE_ERR_CONFIG, {"switch_head"}},
    {"{\"mlp_type\": \"relu\"}", SLUICE_ERR_CONFIG, {"mlp_type", "gelu"}},
    {"{\"mlp_type\": \"gelu\", \"num_experts\": 4}", SLUICE_ERR_CONFIG, {"mlp_type", "experts"}},
    {"{\"hidden_act\": \"gelu\"}", SLUICE_ERR_CONFIG, {"hidden_act", "silu"}},
    {"{" HF("llama") ", \"hidden_act\": \"relu\", \"mlp_type\": \"gelu\"}", SLUICE_ERR_CONFIG, {"hidden_act"}},
    {"{\"switch_topk\": 2}", SLUICE_ERR_CONFIG, {"switch_topk"}},
    {"{\"switch_experts\": 2}", SLUICE_ERR_CONFIG, {"switch_experts"}},
};

static void wrong_configurations_are_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        sluice_error err = {0};
        sluice_config c;
        sluice_status st = sluice_config_parse(&c, refused[i].json, "config.json", &err);
        if (st != refused[i].status)
            fail_msg("%s: %s (%s)", refused[i].json, sluice_status_text(st), err.message);
        assert_null(c.layers);
        assert_non_null(strstr(err.message, "config.json"));
        for (int k = 0; k < 3 && refused[i].words[k]; k++)
            if (!strstr(err.message, refused[i].words[k]))
                fail_msg("\"%s\" lacks \"%s\"", err.message, refused[i].words[k]);
    }
}

/* ---- defaults ---- */

static void own_defaults(void **state) {
    (void)state;
    sluice_config c = parse_ok("{}");
    const sluice_layer_spec *l = &c.layers[1];
    assert_string_equal(c.model_type, "sluice");
    assert_true(c.vocab_size == 256 && c.hidden_size == 64 && c.num_hidden_layers == 2 &&
                c.tie_word_embeddings);
    assert_true(l->num_attention_heads == 4 && l->num_key_value_heads == 2 && l->head_dim == 16 &&
                l->intermediate_size == 176);
    assert_true(l->qk_norm && !l->qkv_bias && !l->o_bias && !l->sandwich_norm && l->residual_clip == 0 &&
                !l->sdpa_norm && !l->sdpa_silu && !l->mlp_gelu);
    assert_true(l->gate.position == SLUICE_GATE_NONE && l->sliding_window == 0 && l->attention_scale == 0.25F);
    assert_true(l->rope.enabled && l->rope.theta == 10000 && l->rope.rotary_dim == 16 &&
                l->rope.type == SLUICE_ROPE_DEFAULT);
    assert_true(c.bos_token_id == -1 && c.eos_token_id == -1 && c.pad_token_id == -1 && c.rms_norm_eps == 1e-6);
    sluice_config_free(&c);
}

static void family_defaults(void **state) {
    (void)state;
    sluice_config c = parse_ok("{" HF("llama") ", \"eos_token_id\": [7, 8], \"rope_scaling\": null}");
    assert_true(c.layers[0].num_key_value_heads == 8 && c.layers[0].head_dim == 8 && !c.tie_word_embeddings);
    assert_true(c.num_other_eos == 1 && c.other_eos[0] == 8); /* generation stops at either */
    assert_true(c.bos_token_id == 1 && c.eos_token_id == 7 && c.max_position_embeddings == 2048 &&
                !c.layers[0].qk_norm);
    sluice_config_free(&c);
    c = parse_ok("{" HF("llama") ", \"bos_token_id\": null, \"attention_bias\": true, \"head_dim\": 32, "
                                 "\"num_key_value_heads\": null}");
    assert_true(c.bos_token_id == -1 && c.layers[3].qkv_bias && c.layers[3].o_bias &&
                c.layers[0].head_dim == 32);
    assert_int_equal(c.layers[0].num_key_value_heads, 8);
    sluice_config_free(&c);
    c = parse_ok("{" QWEN("qwen2") "}");
    assert_true(c.layers[0].qkv_bias && !c.layers[0].o_bias && !c.layers[0].qk_norm && c.bos_token_id == -1);
    sluice_config_free(&c);
    c = parse_ok("{" HF("qwen3") ", \"num_key_value_heads\": null}");
    assert_int_equal(c.layers[0].num_key_value_heads, 8);
    sluice_config_free(&c);
    c = parse_ok("{" HF("qwen3") ", \"num_key_value_heads\": 2}");
    assert_true(c.layers[0].head_dim == 128 && c.layers[0].qk_norm && !c.layers[0].qkv_bias &&
                c.norm == SLUICE_NORM_PLAIN);
    sluice_config_free(&c);
    c = parse_ok("{" QWEN35 "}");
    assert_true(c.norm == SLUICE_NORM_ONE_PLUS && c.layers[0].rope.rotary_dim == 2 &&
                c.layers[0].gate.position == SLUICE_GATE_SDPA);
    assert_true(c.layers[0].gate.granularity == SLUICE_GATE_ELEMENTWISE && !c.tie_word_embeddings);
    sluice_config_free(&c);
    c = parse_ok("{" QWEN("qwen3_5_text") ", \"full_attention_interval\": 1, \"partial_rotary_factor\": 1.0}");
    assert_int_equal(c.layers[0].rope.rotary_dim, 8);
    sluice_config_free(&c);
}

/* The language model inside a vision wrapper; tie_word_embeddings of the wrapper counts. */
static void nested_configuration(void **state) {
    (void)state;
    const char *json = "{\"model_type\": \"qwen3_5\", \"tie_word_embeddings\": true, \"text_config\": {" QWEN35
                       ", \"tie_word_embeddings\": false}}";
    sluice_config c = parse_ok(json);
    assert_true(c.tie_word_embeddings && c.hidden_size == 64);
    assert_string_equal(layout_of(json).prefix, "model.language_model.");
    sluice_config_free(&c);
}

/* ---- gates ---- */

static void gate_spellings(void **state) {
    (void)state;
    static const struct {
        const char *json;
        sluice_gate_position position;
        sluice_gate_granularity granularity;
        sluice_gate_packing packing;
    } cases[] = {
        {"{\"gate_position\": \"value\", \"gate_granularity\": \"headwise\"}", SLUICE_GATE_VALUE,
         SLUICE_GATE_HEADWISE, SLUICE_GATE_OWN_TENSOR},
        {"{\"headwise_attn_output_gate\": true}", SLUICE_GATE_SDPA, SLUICE_GATE_HEADWISE,
         SLUICE_GATE_OWN_TENSOR},
        {"{\"attn_output_gate\": true, \"gate_position\": \"sdpa\", \"gate_granularity\": \"headwise\"}",
         SLUICE_GATE_SDPA, SLUICE_GATE_HEADWISE, SLUICE_GATE_OWN_TENSOR},
        {"{\"headwise_attn_output_gate\": true, \"gate_granularity\": \"headwise\"}", SLUICE_GATE_SDPA,
         SLUICE_GATE_HEADWISE, SLUICE_GATE_OWN_TENSOR},
        {"{" QWEN("qwen2") ", \"headwise_attn_output_gate\": true}", SLUICE_GATE_SDPA, SLUICE_GATE_HEADWISE,
         SLUICE_GATE_Q_PER_GROUP},
        {"{" QWEN("qwen3") ", \"elementwise_attn_output_gate\": true}", SLUICE_GATE_SDPA,
         SLUICE_GATE_ELEMENTWISE, SLUICE_GATE_Q_PER_GROUP},
        {"{" QWEN("qwen2") ", \"headwise_attn_output_gate\": true, \"elementwise_attn_output_gate\": true}",
         SLUICE_GATE_SDPA, SLUICE_GATE_HEADWISE, SLUICE_GATE_Q_PER_GROUP},
        {"{" QWEN("qwen2") ", \"headwise_attn_output_gate\": false}", SLUICE_GATE_NONE, SLUICE_GATE_ELEMENTWISE,
         SLUICE_GATE_Q_PER_GROUP},
        {"{" QWEN35 ", \"attn_output_gate\": true}", SLUICE_GATE_SDPA, SLUICE_GATE_ELEMENTWISE,
         SLUICE_GATE_Q_PER_HEAD},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sluice_config c = parse_ok(cases[i].json);
        assert_int_equal(c.layers[1].gate.position, cases[i].position);
        assert_int_equal(c.layers[1].gate.granularity, cases[i].granularity);
        assert_int_equal(layout_of(cases[i].json).gate_packing, cases[i].packing);
        sluice_config_free(&c);
    }
}

/* The released class reads use_qk_norm and qkv_bias; the flags tell it from a plain Qwen2. */
static void paper_family(void **state) {
    (void)state;
    sluice_config c = parse_ok(
        "{" QWEN("qwen2") ", \"headwise_attn_output_gate\": true, \"use_qk_norm\": false, \"qkv_bias\": true}");
    assert_true(!c.layers[0].qk_norm && c.layers[0].qkv_bias && c.layers[0].o_bias && !c.tie_word_embeddings);
    sluice_config_free(&c);
    c = parse_ok(
        "{" QWEN("qwen2") ", \"elementwise_attn_output_gate\": false, \"headwise_attn_output_gate\": false}");
    assert_true(c.layers[0].qk_norm && !c.layers[0].qkv_bias);
    sluice_config_free(&c);
}

/* ---- RoPE and windows ---- */

static void rope_spellings(void **state) {
    (void)state;
    sluice_config c = parse_ok("{\"rope_theta\": 5, \"rope_parameters\": {\"rope_theta\": 7, "
                               "\"partial_rotary_factor\": 0.5}, \"partial_rotary_factor\": 1}");
    assert_true(c.layers[0].rope.theta == 7 && c.layers[0].rope.rotary_dim == 8);
    sluice_config_free(&c);
    c = parse_ok("{\"rope_scaling\": {}, \"rope_theta\": 6, \"rope_parameters\": null}");
    assert_true(c.layers[0].rope.theta == 6);
    sluice_config_free(&c);
    c = parse_ok("{\"max_position_embeddings\": 1000, \"rope_scaling\": {\"type\": \"dynamic\", \"rope_type\": "
                 "\"yarn\", \"factor\": 4, "
                 "\"original_max_position_embeddings\": 250}}");
    assert_true(c.layers[0].rope.type == SLUICE_ROPE_YARN &&
                c.layers[0].rope.original_max_position_embeddings == 250);
    sluice_config_free(&c);
    c = parse_ok(
        "{\"max_position_embeddings\": 1000, \"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 4}}");
    assert_int_equal(c.layers[0].rope.original_max_position_embeddings, 1000);
    sluice_config_free(&c);
    c = parse_ok("{\"partial_rotary_factor\": 0}");
    assert_false(c.layers[0].rope.enabled);
    sluice_config_free(&c);
    c = parse_ok("{\"sliding_window\": 4, \"layer_types\": [\"sliding_attention\", \"full_attention\"], "
                 "\"rope_parameters\": "
                 "{\"full_attention\": {\"rope_theta\": 100}, \"sliding_attention\": {\"rope_theta\": 200, "
                 "\"partial_rotary_factor\": 0.5}}}");
    assert_true(c.layers[0].rope.theta == 200 && c.layers[0].rope.rotary_dim == 8 &&
                c.layers[1].rope.theta == 100);
    sluice_config_free(&c);
}

static void rope_override(void **state) {
    (void)state;
    sluice_error err = {0};
    sluice_config c =
        parse_ok("{\"rope_theta\": 500, \"partial_rotary_factor\": 0.5, \"max_position_embeddings\": 64}");
    assert_ok_err(
        sluice__config_override_rope(
            &c, "{\"rope_type\": \"yarn\", \"factor\": 4, \"original_max_position_embeddings\": 64}", &err),
        &err);
    const sluice_rope_spec *r = &c.layers[1].rope;
    assert_true(r->type == SLUICE_ROPE_YARN && r->theta == 500 && r->rotary_dim == 8 && r->factor == 4);
    assert_int_equal(sluice__config_override_rope(&c, "{\"rope_type\": \"warp\"}", &err), SLUICE_ERR_CONFIG);
    assert_non_null(strstr(err.message, "warp"));
    assert_int_equal(sluice__config_override_rope(&c, "{", &err), SLUICE_ERR_FORMAT);
    sluice_config_free(&c);
}

static void windows(void **state) {
    (void)state;
    static const struct {
        const char *json;
        int window[4];
    } cases[] = {
        {"{" QWEN("qwen2") ", \"sliding_window\": 9, \"use_sliding_window\": false, \"max_window_layers\": 1}",
         {0, 0, 0, 0}},
        {"{" QWEN("qwen2") ", \"sliding_window\": 9, \"use_sliding_window\": true, \"max_window_layers\": 1}",
         {0, 9, 9, 9}},
        {"{" QWEN(
             "qwen2") ", \"sliding_window\": null, \"use_sliding_window\": true, \"max_window_layers\": 1}",
         {0, 0, 0, 0}},
        {"{" QWEN("qwen3") ", \"use_sliding_window\": true, \"max_window_layers\": 3}", {0, 0, 0, 4096}},
        {"{" QWEN(
             "qwen3") ", \"sliding_window\": 5, \"use_sliding_window\": true, \"max_window_layers\": 0, "
                      "\"layer_types\": "
                      "[\"full_attention\", \"sliding_attention\", \"full_attention\", \"full_attention\"]}",
         {0, 5, 0, 0}},
        {"{\"num_hidden_layers\": 4, \"sliding_window\": 3}", {3, 3, 3, 3}},
        {"{" HF("llama") ", \"sliding_window\": 3}", {0, 0, 0, 0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sluice_config c = parse_ok(cases[i].json);
        for (int k = 0; k < 4; k++) assert_int_equal(c.layers[k].sliding_window, cases[i].window[k]);
        sluice_config_free(&c);
    }
}

/* ---- counts ---- */

/* The released checkpoints have exactly these parameter counts. */
static void counts_of_released_models(void **state) {
    (void)state;
    static const struct {
        const char *flag;
        int width;
        long long parameters, gate;
    } cases[] = {{"\"headwise_attn_output_gate\": false", 6144, 1720837120, 0},
                 {"\"headwise_attn_output_gate\": true", 6144, 1721754624, 28LL * 2048 * 16},
                 {"\"elementwise_attn_output_gate\": true", 5504, 1728177152, 28LL * 2048 * 2048}};
    for (int i = 0; i < 3; i++) {
        char json[1024];
        snprintf(json, sizeof json,
                 "{\"model_type\": \"qwen2\", \"vocab_size\": 152064, \"hidden_size\": 2048, "
                 "\"intermediate_size\": %d, "
                 "\"num_hidden_layers\": 28, \"num_attention_heads\": 16, \"num_key_value_heads\": 8, "
                 "\"tie_word_embeddings\": true, %s}",
                 cases[i].width, cases[i].flag);
        sluice_config c = parse_ok(json);
        assert_int_equal(sluice_config_num_parameters(&c), cases[i].parameters);
        assert_int_equal(sluice_config_num_gate_parameters(&c), cases[i].gate);
        sluice_config_free(&c);
    }
}

/* The shape of Qwen3-30B-A3B: its published count, and what a token meets, by hand. */
static void counts_of_experts(void **state) {
    (void)state;
    sluice_config c = parse_ok(
        "{\"num_experts\": 128, \"num_experts_per_tok\": 8, \"moe_intermediate_size\": 768, \"hidden_size\": 2048, "
        "\"num_hidden_layers\": 48, \"num_attention_heads\": 32, \"num_key_value_heads\": 4, \"head_dim\": 128, "
        "\"vocab_size\": 151936, \"tie_word_embeddings\": false, \"norm_topk_prob\": true}");
    int64_t expert = 3LL * 768 * 2048;
    assert_int_equal(sluice_config_num_parameters(&c), 30532122624);
    assert_int_equal(sluice_config_num_active_parameters(&c), 30532122624 - 48 * 120 * expert);
    double matrices = 48 * (2.0 * 4096 * 2048 + 2 * 512 * 2048 + 128 * 2048 + 8.0 * (double)expert) + 151936.0 * 2048;
    double attention = 48 * 2.0 * 32 * 128 * 5;
    assert_true(fabs(sluice_config_forward_flops(&c, 9) / (2 * (matrices + attention)) - 1) < 1e-12);
    const sluice_moe_spec *m = &c.layers[47].moe;
    assert_true(m->num_experts == 128 && m->num_experts_per_tok == 8 && m->intermediate_size == 768 && m->norm_topk_prob);
    assert_true(c.router_aux_loss_coef == 0.01 && c.router_z_loss_coef == 0.001);
    sluice_config_free(&c);
    c = parse_ok("{\"switch_head\": \"kv\", \"switch_experts\": 4, \"switch_topk\": 2}");
    sluice_config plain = parse_ok("{}"); /* 3 more maps of 2 heads of 16 for k and v, and the router, in 2 layers of width 64 */
    assert_int_equal(sluice_config_num_parameters(&c) - sluice_config_num_parameters(&plain),
                     2 * 64 * (2 * 3 * 2 * 16 + 2 * 4));
    assert_true(c.layers[1].switch_head.head == SLUICE_SWITCH_KV && c.layers[1].switch_head.topk == 2);
    sluice_config_free(&c);
    sluice_config_free(&plain);
}

static void flops_by_hand(void **state) {
    (void)state;
    sluice_config c = parse_ok("{}");
    /* per layer q 64x64, k and v 32x64, o 64x64, three matrices 176x64; head 256x64; scores and values 2 x 64 x
     * mean keys */
    double matrices = 2 * (64 * 64 + 2 * 32 * 64 + 64 * 64 + 3 * 176 * 64) + 256 * 64;
    assert_true(fabs(sluice_config_forward_flops(&c, 9) - 2 * (matrices + 2 * 2 * 64 * 5)) < 1e-6);
    sluice_config_free(&c);
    c = parse_ok("{\"sliding_window\": 3, \"layer_types\": [\"sliding_attention\", \"sliding_attention\"]}");
    /* keys seen: 1, 2, then 3 seven times */
    assert_true(fabs(sluice_config_forward_flops(&c, 9) - 2 * (matrices + 2 * 2 * 64 * (24.0 / 9))) < 1e-6);
    sluice_config_free(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(wrong_configurations_are_refused),
                                       cmocka_unit_test(own_defaults),
                                       cmocka_unit_test(family_defaults),
                                       cmocka_unit_test(nested_configuration),
                                       cmocka_unit_test(gate_spellings),
                                       cmocka_unit_test(paper_family),
                                       cmocka_unit_test(rope_spellings),
                                       cmocka_unit_test(rope_override),
                                       cmocka_unit_test(windows),
                                       cmocka_unit_test(counts_of_released_models),
                                       cmocka_unit_test(counts_of_experts), cmocka_unit_test(flops_by_hand)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
