/* SPDX-License-Identifier: Apache-2.0 */
/* See small_model.h. Overrides replace whole keys: the base is merged with them as JSON objects. */
#include "support/small_model.h"
#include "base/rng.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char base_config[] =
    "{\"vocab_size\": 96, \"hidden_size\": 32, \"intermediate_size\": 48, \"num_hidden_layers\": 2, "
    "\"num_attention_heads\": 4,"
    " \"num_key_value_heads\": 2, \"head_dim\": 8, \"rms_norm_eps\": 1e-6, \"rope_theta\": 10000.0,"
    " \"tie_word_embeddings\": true, \"use_qk_norm\": true, \"gate_position\": \"none\"}";

static char *merged(const char *overrides) {
    char *text = malloc(strlen(overrides) + 3);
    if (!text) fail_msg("out of memory");
    sprintf(text, "{%s}", overrides);
    json_error_t where;
    json_t *base = json_loads(base_config, 0, &where), *top = json_loads(text, 0, &where);
    if (!base || !top) fail_msg("%s: %s", text, where.text);
    json_object_update(base, top);
    free(text);
    text = json_dumps(base, 0);
    json_decref(base);
    json_decref(top);
    return text;
}

static void randomise(sluice_model *model, uint64_t seed) {
    for (int i = 0; i < sluice_model_num_tensors(model); i++) {
        sluice_tensor_info t = sluice_model_tensor(model, i);
        bool table = strstr(t.name, "embed_tokens") || strstr(t.name, "lm_head");
        bool norm = strstr(t.name, "norm"), matrix = t.ndim == 2 && t.weight_decay;
        double sd = norm ? 0.15 : table ? 0.2 : matrix ? 0.9 / sqrt((double)t.shape[1]) : 0.5;
        sluice__rng_fill_normal(t.data, t.count, seed, (uint64_t)i + 1, 0, norm ? 1.0f : 0.0f, (float)sd);
    }
}

sluice_model *test_small_model(const char *overrides, uint64_t seed) {
    char *text = merged(overrides);
    sluice_config config;
    sluice_model *model;
    sluice_error err = {0};
    assert_ok_err(sluice_config_parse(&config, text, "config", &err), &err);
    assert_ok_err(sluice_model_new(&model, &config, seed, &err), &err);
    sluice_config_free(&config);
    free(text);
    randomise(model, seed);
    return model;
}

void test_random_ids(int32_t *ids, int count, int vocab, uint64_t seed) {
    sluice__rng r = {.seed = seed, .stream = 77};
    for (int i = 0; i < count; i++) ids[i] = (int32_t)sluice__rng_below(&r, (uint64_t)vocab);
}

const char test_hybrid_config[] =
    "{\"model_type\": \"qwen3_5_text\", \"vocab_size\": 64, \"hidden_size\": 32, \"intermediate_size\": 48, "
    "\"num_hidden_layers\": 4,"
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 32, \"max_position_embeddings\": 512,"
    "\"layer_types\": [\"linear_attention\", \"full_attention\", \"linear_attention\", \"full_attention\"],"
    "\"linear_num_key_heads\": 2, \"linear_num_value_heads\": 4, \"linear_key_head_dim\": 8, "
    "\"linear_value_head_dim\": 8,"
    "\"linear_conv_kernel_dim\": 4, \"initializer_range\": 0.3, \"rms_norm_eps\": 1e-6, \"attn_output_gate\": true,"
    "\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 10000, \"partial_rotary_factor\": 0.25}}";

sluice_model *test_model_of(const char *text, uint64_t seed) {
    sluice_error err = {0};
    sluice_config config;
    sluice_model *model;
    assert_ok_err(sluice_config_parse(&config, text, "config.json", &err), &err);
    assert_ok_err(sluice_model_new(&model, &config, seed, &err), &err);
    sluice_config_free(&config);
    return model;
}
