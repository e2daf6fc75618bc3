/* SPDX-License-Identifier: Apache-2.0 */
/* What sluice_model_save writes, read back by ourselves: which class it is for, the same weights or the same
 * logits.
 *
 *     test_model_export write DIR CONFIG_JSON auto|native      (for tests/model/test_transformers.py)
 *     test_model_export logits DIR
 *
 * The first makes a model with every weight random, saves it into DIR, and writes DIR/logits.safetensors: input_ids and
 * the logits that the loaded model gives for them. */
#include "support/test_support.h"
#include "kernels/half.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/rng.h"
#include "layers/transformer.h"
#include "model/safetensors.h"
#include <stdio.h>
#include <math.h>
#include <string.h>

enum { BATCH = 2, LENGTH = 24 };

/* Norms around 1, everything else around 0 and large enough to matter. */
static void randomise(sluice_model *m) {
    for (int i = 0; i < sluice_model_num_tensors(m); i++) {
        sluice_tensor_info t = sluice_model_tensor(m, i);
        bool norm = strstr(t.name, "norm") != NULL;
        float sd = norm ? 0.2F : t.weight_decay ? 1.5F / sqrtf((float)t.shape[1]) : 0.5F;
        sluice__rng_fill_normal(t.data, t.count, 11, sluice__hash_text(t.name), 0, norm ? 1.0F : 0.0F, sd);
    }
}

static sluice_status new_model(sluice_model **out, const char *json, sluice_error *err) {
    sluice_config config;
    SLUICE__TRY(sluice_config_parse(&config, json, "config", err));
    sluice_status st = sluice_model_new(out, &config, 3, err);
    sluice_config_free(&config);
    if (st == SLUICE_OK) randomise(*out);
    return st;
}

static void make_ids(int32_t *ids, int vocab_size) {
    sluice__rng rng = {.seed = 7, .stream = 1};
    for (int i = 0; i < BATCH * LENGTH; i++) ids[i] = (int32_t)sluice__rng_below(&rng, (uint64_t)vocab_size);
}

/* logits: [BATCH, LENGTH, vocab_size] */
static sluice_status compute(const sluice_model *m, const int32_t *ids, float *logits, sluice_error *err) {
    sluice__workspace *ws;
    SLUICE__TRY(sluice__workspace_new(&ws, m, BATCH, LENGTH, SLUICE__INFER, err));
    sluice__input in = {.batch = BATCH, .seq_len = LENGTH, .ids = ids};
    sluice_status st = sluice__forward(m, ws, &in, NULL, NULL, SLUICE__LOGITS_ALL, logits, err);
    sluice__workspace_free(ws);
    return st;
}

static sluice_status write_logits(const sluice_model *m, const char *dir, sluice_error *err) {
    int32_t ids[BATCH * LENGTH];
    int vocab = sluice_model_config(m)->vocab_size;
    make_ids(ids, vocab);
    float *logits = sluice__calloc((size_t)BATCH * LENGTH * (size_t)vocab, sizeof *logits, SLUICE__MEM_OTHER);
    char *path = sluice__path_join(dir, "logits.safetensors");
    sluice_status st = compute(m, ids, logits, err);
    sluice__st_tensor out[] = {sluice__st_i32("input_ids", ids, 2, (int64_t[]){BATCH, LENGTH}),
                               sluice__st_f32("logits", logits, 3, (int64_t[]){BATCH, LENGTH, vocab})};
    if (st == SLUICE_OK) st = sluice__safetensors_write(path, out, 2, NULL, err);
    sluice__free(path);
    sluice__free(logits);
    return st;
}

static int tool(const char *dir, const char *json, const char *layout) {
    sluice_error err = {0};
    sluice_model *m = NULL, *again = NULL;
    sluice_status st = new_model(&m, json, &err);
    if (st == SLUICE_OK)
        st = sluice_model_save(m, dir, strcmp(layout, "native") ? SLUICE_SAVE_AUTO : SLUICE_SAVE_NATIVE, &err);
    if (st == SLUICE_OK) st = sluice_model_load(&again, dir, NULL, &err);
    if (st == SLUICE_OK) st = write_logits(again, dir, &err);
    if (st != SLUICE_OK) fprintf(stderr, "%s\n", err.message);
    sluice_model_free(m);
    sluice_model_free(again);
    return st != SLUICE_OK;
}

static int logits_tool(const char *dir) {
    sluice_error err = {0};
    sluice_model *m = NULL;
    sluice_status st = sluice_model_load(&m, dir, NULL, &err);
    if (st == SLUICE_OK) st = write_logits(m, dir, &err);
    if (st != SLUICE_OK) fprintf(stderr, "%s\n", err.message);
    sluice_model_free(m);
    return st != SLUICE_OK;
}

/* ---- tests ---- */

#define SIZES                                                                                                  \
    "\"vocab_size\": 40, \"hidden_size\": 24, \"intermediate_size\": 32, \"num_attention_heads\": 4, "         \
    "\"num_key_value_heads\": 2, "                                                                             \
    "\"head_dim\": 8, "

static const struct {
    const char *json, *target; /* target NULL: only our own class */
} cases[] = {
    {"{" SIZES "\"use_qk_norm\": false}", "LlamaForCausalLM"},
    {"{" SIZES "\"use_qk_norm\": false, \"tie_word_embeddings\": false, \"qkv_bias\": true, \"o_bias\": true}",
     "LlamaForCausalLM"},
    {"{" SIZES "\"use_qk_norm\": false, \"qkv_bias\": true}", "Qwen2ForCausalLM"},
    {"{" SIZES "\"use_qk_norm\": true}", "Qwen3ForCausalLM"},
    {"{" SIZES "\"sliding_window\": 5, \"layer_types\": [\"sliding_attention\", \"full_attention\"]}",
     "Qwen3ForCausalLM"},
    {"{" SIZES "\"gate_position\": \"sdpa\"}", "Qwen3_5ForCausalLM"},
    {"{" SIZES "\"gate_position\": \"sdpa\", \"gate_granularity\": \"headwise\", \"partial_rotary_factor\": 0.5}",
     "Qwen3_5ForCausalLM"},
    {"{" SIZES
     "\"gate_position\": \"sdpa\", \"gate_granularity\": \"headwise\", \"qkv_bias\": true, \"o_bias\": true, "
     "\"tie_word_embeddings\": false}",
     "Qwen3_5ForCausalLM"},
    {"{" SIZES "\"partial_rotary_factor\": 0.5}", NULL},
    {"{" SIZES "\"partial_rotary_factor\": 0}", NULL},
    {"{" SIZES "\"use_qk_norm\": false, \"gate_position\": \"sdpa\"}", NULL},
    {"{" SIZES "\"gate_position\": \"sdpa\", \"gate_act\": \"silu\"}", NULL},
    {"{" SIZES "\"gate_position\": \"sdpa\", \"gate_op\": \"add\", \"gate_act\": \"identity\"}", NULL},
    {"{" SIZES "\"sandwich_norm\": true}", NULL},
    {"{" SIZES "\"sliding_window\": 5, \"layer_types\": [\"sliding_attention\", \"full_attention\"], "
     "\"rope_parameters\": "
     "{\"full_attention\": {\"rope_theta\": 100}, \"sliding_attention\": {\"rope_theta\": 200}}}",
     NULL},
    {"{" SIZES "\"residual_clip\": 0.5}", NULL},
    {"{" SIZES "\"num_experts\": 5, \"num_experts_per_tok\": 3, \"moe_intermediate_size\": 12}", NULL},
    {"{" SIZES
     "\"num_experts\": 4, \"norm_topk_prob\": true, \"num_shared_experts\": 2, \"shared_expert_gate\": true, "
     "\"gate_position\": \"sdpa\", \"sandwich_norm\": true}",
     NULL},
    {"{" SIZES "\"switch_head\": \"v\", \"switch_experts\": 4, \"switch_topk\": 2}", NULL},
    {"{" SIZES "\"switch_head\": \"kv\", \"switch_experts\": 3, \"switch_topk\": 3, \"gate_position\": \"value\"}",
     NULL},
};

static void compare_models(const sluice_model *a, const sluice_model *b, double tolerance) {
    assert_int_equal(sluice_model_num_tensors(a), sluice_model_num_tensors(b));
    for (int i = 0; i < sluice_model_num_tensors(a); i++) {
        sluice_tensor_info x = sluice_model_tensor(a, i), y = sluice_model_tensor(b, i);
        assert_string_equal(x.name, y.name);
        assert_int_equal(x.count, y.count);
        if (tolerance == 0) assert_memory_equal(x.data, y.data, (size_t)x.count * sizeof(float));
        for (int64_t j = 0; j < x.count; j++)
            assert_true(fabs((double)x.data[j] - (double)y.data[j]) <= tolerance);
    }
}

/* Norms stored as w - 1 may come back one rounding off; all other weights come back bit for bit. */
static void saved_models_come_back(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int layout = 0; layout < 2; layout++) {
            sluice_error err = {0};
            sluice_model *a, *b;
            assert_ok_err(new_model(&a, cases[i].json, &err), &err);
            const char *class = sluice_config_transformers_class(sluice_model_config(a)),
                       *dir = test_temp_dir();
            if (!cases[i].target)
                assert_null(class);
            else
                assert_string_equal(class, cases[i].target);
            assert_ok_err(sluice_model_save(a, dir, layout ? SLUICE_SAVE_NATIVE : SLUICE_SAVE_AUTO, &err),
                          &err);
            assert_ok_err(sluice_model_load(&b, dir, NULL, &err), &err);
            bool one_plus = !layout && class && !strcmp(class, "Qwen3_5ForCausalLM");
            compare_models(a, b, one_plus ? 1e-7 : 0);
            char *python = sluice__path_join(dir, "modeling_sluice.py");
            assert_int_equal(sluice__is_file(python), layout || !class);
            sluice__free(python);
            sluice_model_free(a);
            sluice_model_free(b);
        }
    }
}

/* As bfloat16 every weight comes back rounded to the nearest, in half the bytes; packed gates included. */
static void bfloat16_is_the_nearest(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sluice_error err = {0};
        sluice_model *a, *b;
        const char *dir = test_temp_dir();
        assert_ok_err(new_model(&a, cases[i].json, &err), &err);
        assert_ok_err(sluice_model_save_as(a, dir, SLUICE_SAVE_NATIVE, SLUICE_SAVE_BFLOAT16, &err), &err);
        assert_ok_err(sluice_model_load(&b, dir, NULL, &err), &err);
        for (int t = 0; t < sluice_model_num_tensors(a); t++) {
            sluice_tensor_info x = sluice_model_tensor(a, t), y = sluice_model_tensor(b, t);
            for (int64_t k = 0; k < x.count; k++)
                if (y.data[k] != sluice__brain_to_float(sluice__float_to_brain(x.data[k])))
                    fail_msg("%s[%lld]: %g became %g", x.name, (long long)k, (double)x.data[k], (double)y.data[k]);
        }
        sluice_model_free(b);
        assert_ok_err(sluice_model_save_as(a, dir, SLUICE_SAVE_AUTO, SLUICE_SAVE_BFLOAT16, &err), &err);
        assert_ok_err(sluice_model_load(&b, dir, NULL, &err), &err);
        compare_models(a, b, 0.008); /* half a unit in the last place of numbers up to 2 */
        sluice_weight_files *files;
        assert_ok_err(sluice_weight_files_open(&files, dir, &err), &err);
        assert_string_equal(sluice_weight_files_at(files, 0).dtype, "BF16");
        sluice_weight_files_close(files);
        char *path = sluice__path_join(dir, "config.json"), *text;
        assert_ok(sluice__read_file(&text, NULL, path, 1 << 20, NULL));
        assert_non_null(strstr(text, "\"bfloat16\""));
        sluice__free(text);
        sluice__free(path);
        sluice_model_free(a);
        sluice_model_free(b);
    }
}

/* Layers that differ where config.json cannot say so are refused before anything is written. */
static void layers_must_be_alike(void **state) {
    (void)state;
    sluice_error err = {0};
    sluice_config config;
    sluice_model *m;
    const char *dir = test_temp_dir();
    assert_ok_err(sluice_config_parse(&config, "{" SIZES "\"use_qk_norm\": true}", "config", &err), &err);
    config.layers[1].qk_norm = false;
    assert_ok_err(sluice_model_new(&m, &config, 1, &err), &err);
    assert_int_equal(sluice_model_save(m, dir, SLUICE_SAVE_NATIVE, &err), SLUICE_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "layer 1"));
    char *path = sluice__path_join(dir, "config.json");
    assert_false(sluice__is_file(path));
    sluice__free(path);
    sluice_model_free(m);
    config.layers[1].head_dim = 0;
    assert_int_equal(sluice_model_new(&m, &config, 1, &err), SLUICE_ERR_ARGUMENT);
    config.layers[1].head_dim = 8;
    config.layers[0].num_key_value_heads = 3;
    assert_int_equal(sluice_model_new(&m, &config, 1, &err), SLUICE_ERR_ARGUMENT);
    assert_null(m);
    sluice_config_free(&config);
}

/* A damaged export whose repeated gate rows differ is refused, not averaged. */
static void repeated_rows_are_checked(void **state) {
    (void)state;
    sluice_error err = {0};
    sluice_model *a, *b;
    const char *dir = test_temp_dir();
    assert_ok_err(new_model(&a, "{" SIZES "\"gate_position\": \"sdpa\"}", &err), &err);
    assert_ok_err(sluice_model_save(a, dir, SLUICE_SAVE_AUTO, &err), &err);
    sluice_model_free(a);
    char *path = sluice__path_join(dir, "config.json"), *text;
    assert_ok(sluice__read_file(&text, NULL, path, 1 << 20, NULL));
    char *at = strstr(text, "\"elementwise\"");
    assert_non_null(at);
    memcpy(at, "\"headwise\"   ", strlen("\"elementwise\""));
    assert_ok(sluice__write_file(path, text, strlen(text), NULL));
    assert_int_equal(sluice_model_load(&b, dir, NULL, &err), SLUICE_ERR_FORMAT);
    assert_non_null(strstr(err.message, "self_attn.q_proj.weight"));
    sluice__free(text);
    sluice__free(path);
}

int main(int argc, char **argv) {
    if (argc == 5 && !strcmp(argv[1], "write")) return tool(argv[2], argv[3], argv[4]);
    if (argc == 3 && !strcmp(argv[1], "logits")) return logits_tool(argv[2]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(saved_models_come_back),
                                       cmocka_unit_test(bfloat16_is_the_nearest),
                                       cmocka_unit_test(repeated_rows_are_checked),
                                       cmocka_unit_test(layers_must_be_alike)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
