/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions: round trips between a directory and GGUF keep the logits exactly where the types do, and as nearly as types
 * allow otherwise; gates of any packing arrive; overrides, shards and refusals. */
#include "support/reference.h"
#include "support/test_support.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/rng.h"
#include "layers/transformer.h"
#include "model/config.h"
#include "model/gguf.h"
#include "model/save.h"
#include "model/store.h"
#include "sluice/convert.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH = 20, MOST = LENGTH * 1024 };

static void logits_of(const char *path, sluice_load_weights weights, float *out, int *vocab) {
    sluice_load_params load = sluice_load_params_default();
    sluice_model *m;
    sluice__workspace *ws;
    sluice_error err = {0};
    int32_t ids[LENGTH];
    load.weights = weights;
    assert_ok_err(sluice_model_load(&m, path, &load, &err), &err);
    *vocab = sluice_model_config(m)->vocab_size;
    assert_true(LENGTH * *vocab <= MOST);
    for (int i = 0; i < LENGTH; i++) ids[i] = (i * 37 + 5) % *vocab;
    assert_ok(sluice__workspace_new(&ws, m, 1, LENGTH, SLUICE__INFER, NULL));
    sluice__input in = {.batch = 1, .seq_len = LENGTH, .ids = ids};
    assert_ok(sluice__forward(m, ws, &in, NULL, NULL, SLUICE__LOGITS_ALL, out, NULL));
    sluice__workspace_free(ws);
    sluice_model_free(m);
}

/* Root mean square difference of the logits of two models over that of the first. */
static double distance(const char *a, const char *b) {
    static float x[MOST], y[MOST];
    int n, m;
    logits_of(a, SLUICE_LOAD_F32, x, &n);
    logits_of(b, SLUICE_LOAD_F32, y, &m);
    assert_int_equal(n, m);
    double error = 0, all = 0;
    for (int i = 0; i < LENGTH * n; i++) {
        error += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
        all += (double)x[i] * x[i];
    }
    return sqrt(error / all);
}

static void convert(const char *from, const char *to, const char *dtype, sluice_convert_result *result) {
    sluice_convert_params p = sluice_convert_params_default();
    sluice_error err = {0};
    p.dtype = dtype;
    p.gguf = strstr(to, ".gguf") != NULL;
    assert_ok_err(sluice_convert(from, to, &p, result, &err), &err);
}

static const char *in(const char *dir, const char *name) {
    static char path[4][512];
    static int next;
    char *out = path[next++ % 4];
    snprintf(out, sizeof path[0], "%s/%s", dir, name);
    return out;
}

static const char *const cases[] = {"models/llama",   "models/qwen2",          "models/qwen3",
                                    "models/qwen3_yarn", "models/export_tied", "models/export_untied",
                                    "models/paper_elementwise_g2", "models/paper_headwise_g4", "models/paper_headwise_g2_bin",
                                    "models/qwen3_5", "models/qwen3_5_moe", "models/qwen3_5_vlm", "models/qwen3_5_yarn",
                                    "models/qwen3_next", "models/gpt_oss"};

/* Directory -> GGUF -> directory in F32: not a bit changes. */
static void fp32_round_trips_are_exact(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *from = test_reference(cases[i]), *dir = test_temp_dir();
        if (!from) continue;
        convert(from, in(dir, "a.gguf"), "F32", NULL);
        convert(in(dir, "a.gguf"), in(dir, "b.gguf"), NULL, NULL);
        convert(in(dir, "a.gguf"), in(dir, "hf"), NULL, NULL);
        double there = distance(from, in(dir, "a.gguf")), back = distance(from, in(dir, "hf"));
        print_message("%s: %g %g\n", cases[i], there, back);
        /* norms stored as w - 1 are rounded on the way back, decay rates pass through exp and log */
        assert_true(there < 1e-6 && back < 1e-6);
        assert_true(distance(in(dir, "a.gguf"), in(dir, "b.gguf")) == 0);
    }
}

/* Bounds on what each type may change: about twice what these small models showed (docs/gguf.md has large ones). */
static void types_lose_what_they_must(void **state) {
    static const struct {
        const char *name;
        double bound;
    } types[] = {{"F16", 2e-3}, {"BF16", 2e-2}, {"Q8_0", 0.05}, {"Q5_1", 0.35}, {"Q4_0", 0.7}};
    (void)state;
    const char *from = test_reference("models/llama"), *dir = test_temp_dir();
    double before = 0;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        sluice_convert_result r;
        convert(from, in(dir, "x.gguf"), types[i].name, &r);
        double d = distance(from, in(dir, "x.gguf"));
        print_message("%s: %.2e, %s\n", types[i].name, d, r.types);
        assert_true(d > before / 4 && d < types[i].bound);
        before = d;
    }
}

static void directories_change_type_and_shards(void **state) {
    (void)state;
    const char *from = test_reference("models/llama"), *dir = test_temp_dir();
    sluice_convert_params p = sluice_convert_params_default();
    sluice_convert_result r;
    p.dtype = "BF16";
    p.max_shard_size = 20000;
    assert_ok(sluice_convert(from, in(dir, "bf"), &p, &r, NULL));
    assert_true(sluice__is_file(in(dir, "bf/model.safetensors.index.json")));
    assert_false(sluice__is_file(in(dir, "bf/model.safetensors")));
    assert_true(distance(from, in(dir, "bf")) < 2e-2);
    json_t *config;
    assert_ok(sluice__json_load(&config, in(dir, "bf/config.json"), NULL));
    json_t *dtype = json_object_get(config, "torch_dtype");
    assert_string_equal(json_string_value(dtype ? dtype : json_object_get(config, "dtype")), "bfloat16");
    json_decref(config);
    sluice_error err = {0};
    p.max_shard_size = 1000; /* the embedding alone has 16384 */
    assert_int_equal(sluice_convert(from, in(dir, "tiny"), &p, NULL, &err), SLUICE_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "alone has"));
    assert_false(sluice__is_dir(in(dir, "tiny")));
    const char *bin = test_reference("models/paper_headwise_g2_bin");
    if (!bin) return;
    convert(bin, in(dir, "safe"), NULL, NULL);
    assert_true(sluice__is_file(in(dir, "safe/model.safetensors")));
    assert_true(distance(bin, in(dir, "safe")) == 0);
}

static void overrides_choose_types(void **state) {
    (void)state;
    static const char *const overrides[] = {"attn_v=F16", "blk\\.0\\.ffn=F32"};
    const char *from = test_reference("models/llama"), *dir = test_temp_dir();
    sluice_convert_params p = sluice_convert_params_default();
    p.dtype = "Q8_0";
    p.gguf = true;
    p.overrides = overrides;
    p.num_overrides = 2;
    assert_ok(sluice_convert(from, in(dir, "x.gguf"), &p, NULL, NULL));
    sluice__gguf *g;
    assert_ok(sluice__gguf_open(&g, in(dir, "x.gguf"), NULL));
    assert_int_equal(sluice__gguf_find_tensor(g, "blk.1.attn_v.weight")->dtype, SLUICE__F16);
    assert_int_equal(sluice__gguf_find_tensor(g, "blk.0.ffn_up.weight")->dtype, SLUICE__F32);
    assert_int_equal(sluice__gguf_find_tensor(g, "blk.1.attn_q.weight")->dtype, SLUICE__Q8_0);
    assert_int_equal(sluice__gguf_find_tensor(g, "blk.1.attn_norm.weight")->dtype, SLUICE__F32);
    sluice__gguf_close(g);
}

static void refused(const char *from, const char *to, const char *dtype, const char *override, const char *word) {
    sluice_convert_params p = sluice_convert_params_default();
    sluice_error err = {0};
    p.dtype = dtype;
    p.gguf = strstr(to, ".gguf") != NULL;
    p.overrides = &override;
    p.num_overrides = override ? 1 : 0;
    assert_int_not_equal(sluice_convert(from, to, &p, NULL, &err), SLUICE_OK);
    if (!strstr(err.message, word)) fail_msg("%s: %s", word, err.message);
    assert_false(sluice__is_file(to) || sluice__is_dir(to));
}

static void what_cannot_be_written_is_refused(void **state) {
    (void)state;
    const char *from = test_reference("models/llama"), *dir = test_temp_dir();
    refused(from, in(dir, "x.gguf"), "Q3_K", NULL, "Q3_K");
    refused(from, in(dir, "x"), "Q8_0", NULL, "GGUF files only");
    refused(from, in(dir, "x.gguf"), NULL, "attn_q", "REGEX=TYPE");
    refused(from, in(dir, "x.gguf"), NULL, "(=F16", "override");
    refused(in(dir, "nothing"), in(dir, "x.gguf"), NULL, NULL, "nothing");
    sluice_config config;
    sluice_model *m;
    assert_ok(sluice_config_parse(&config, "{\"sandwich_norm\": true, \"gate_position\": \"value\"}", "config", NULL));
    assert_ok(sluice_model_new(&m, &config, 1, NULL));
    assert_ok(sluice__make_dirs(in(dir, "own"), NULL));
    assert_ok(sluice_model_save(m, in(dir, "own"), SLUICE_SAVE_NATIVE, NULL));
    refused(in(dir, "own"), in(dir, "x.gguf"), NULL, NULL, "GGUF");
    sluice_model_free(m);
    sluice_config_free(&config);
}

/* GGUF -> GGUF with another type keeps all metadata but those that speak of types. */
static void metadata_survive(void **state) {
    (void)state;
    const char *from = test_shared("reference/quant/tiny-llama.gguf"), *dir = test_temp_dir();
    if (!from) skip();
    convert(from, in(dir, "x.gguf"), "Q8_0", NULL);
    sluice__gguf *a, *b;
    assert_ok(sluice__gguf_open(&a, from, NULL));
    assert_ok(sluice__gguf_open(&b, in(dir, "x.gguf"), NULL));
    int compared = 0;
    for (int i = 0; i < sluice__gguf_num_entries(a); i++) {
        sluice__gguf_text key = sluice__gguf_key_at(a, i);
        const sluice__gguf_value *v = sluice__gguf_value_at(a, i), *w;
        char name[128];
        snprintf(name, sizeof name, "%.*s", (int)key.size, key.data);
        if (!strcmp(name, "general.file_type")) continue;
        assert_non_null(w = sluice__gguf_find(b, name));
        assert_true(v->type == w->type && v->count == w->count && sluice__gguf_value_bytes(v) == sluice__gguf_value_bytes(w));
        assert_memory_equal(v->data, w->data, sluice__gguf_value_bytes(v));
        compared++;
    }
    assert_true(compared > 25);
    assert_int_equal(sluice__gguf_find_tensor(b, "blk.0.attn_k.weight")->dtype, SLUICE__Q8_0);
    sluice__gguf_close(a);
    sluice__gguf_close(b);
}

/* ---- the neutral layer ---- */

/* A gated model of ours as a directory that transformers opens. */
static void make_gated(const char *dir, const char *granularity) {
    char text[500];
    sluice_config config;
    sluice_model *m;
    snprintf(text, sizeof text,
             "{\"vocab_size\": 61, \"hidden_size\": 32, \"intermediate_size\": 64, \"num_hidden_layers\": 2, "
             "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 8, \"use_qk_norm\": true, "
             "\"gate_position\": \"sdpa\", \"gate_granularity\": \"%s\", \"initializer_range\": 0.3}",
             granularity);
    assert_ok(sluice_config_parse(&config, text, "config", NULL));
    assert_ok(sluice_model_new(&m, &config, 7, NULL));
    assert_ok(sluice__make_dirs(dir, NULL));
    assert_ok(sluice_model_save(m, dir, SLUICE_SAVE_AUTO, NULL));
    sluice_model_free(m);
    sluice_config_free(&config);
}

static void assert_same_model(const char *a, const char *b) {
    sluice_model *x, *y;
    sluice_load_params load = sluice_load_params_default();
    assert_ok(sluice_model_load(&x, a, &load, NULL));
    assert_ok(sluice_model_load(&y, b, &load, NULL));
    json_t *is = sluice__config_to_json(sluice_model_config(x), &sluice__target_native),
           *was = sluice__config_to_json(sluice_model_config(y), &sluice__target_native);
    static const char *const unknown_to_gguf[] = {"initializer_range", "bos_token_id", "eos_token_id", "pad_token_id"};
    for (int i = 0; i < 4; i++) json_object_del(is, unknown_to_gguf[i]), json_object_del(was, unknown_to_gguf[i]);
    char *as_text = json_dumps(is, 0), *was_text = json_dumps(was, 0);
    assert_string_equal(as_text, was_text);
    assert_int_equal(sluice_model_num_tensors(x), sluice_model_num_tensors(y));
    for (int i = 0; i < sluice_model_num_tensors(x); i++) {
        sluice_tensor_info t = sluice_model_tensor(x, i), u = sluice_model_tensor(y, i);
        assert_string_equal(t.name, u.name);
        assert_memory_equal(t.data, u.data, (size_t)t.count * sizeof *t.data);
    }
    free(as_text);
    free(was_text);
    json_decref(is);
    json_decref(was);
    sluice_model_free(x);
    sluice_model_free(y);
}

/* llama.cpp wants a recurrent layer: the file has one that adds nothing, and reading gives the model without it. */
static void gated_models_get_a_neutral_layer(void **state) {
    (void)state;
    static const char *const kinds[] = {"headwise", "elementwise"};
    for (int i = 0; i < 2; i++) {
        const char *dir = test_temp_dir();
        sluice__gguf *g;
        int64_t blocks, block;
        make_gated(in(dir, "m"), kinds[i]);
        convert(in(dir, "m"), in(dir, "m.gguf"), NULL, NULL);
        assert_ok(sluice__gguf_open(&g, in(dir, "m.gguf"), NULL));
        assert_true(sluice__gguf_integer(sluice__gguf_find(g, "qwen35.block_count"), &blocks) && blocks == 3);
        assert_true(sluice__gguf_integer(sluice__gguf_find(g, "sluice.neutral_layer"), &block) && block == 2);
        assert_non_null(sluice__gguf_find_tensor(g, "blk.2.ssm_out.weight"));
        sluice__gguf_close(g);
        assert_same_model(in(dir, "m"), in(dir, "m.gguf"));
        convert(in(dir, "m.gguf"), in(dir, "hf"), NULL, NULL);
        assert_same_model(in(dir, "m"), in(dir, "hf"));
        convert(in(dir, "m.gguf"), in(dir, "q.gguf"), "Q4_0", NULL); /* zeros stay zeros */
        assert_true(distance(in(dir, "m"), in(dir, "q.gguf")) < 0.7);
    }
}

static sluice__dtype type_in(const sluice__gguf *g, const char *name) {
    const sluice__gguf_tensor *t = sluice__gguf_find_tensor(g, name);
    if (!t) fail_msg("%s is missing", name);
    return t->dtype;
}

/* From a directory, and from the GGUF file of the same values: the same tensors with the same types and bytes. */
static void both_ways_choose_alike(const char *model, const char *dtype, const char *const *exact) {
    const char *dir = test_temp_dir();
    sluice__gguf *a, *b;
    convert(model, in(dir, "f32.gguf"), "F32", NULL);
    convert(model, in(dir, "a.gguf"), dtype, NULL);
    convert(in(dir, "f32.gguf"), in(dir, "b.gguf"), dtype, NULL);
    assert_ok(sluice__gguf_open(&a, in(dir, "a.gguf"), NULL));
    assert_ok(sluice__gguf_open(&b, in(dir, "b.gguf"), NULL));
    assert_int_equal(sluice__gguf_num_tensors(a), sluice__gguf_num_tensors(b));
    for (int i = 0; i < sluice__gguf_num_tensors(a); i++) {
        const sluice__gguf_tensor *t = sluice__gguf_tensor_at(a, i), *u = sluice__gguf_find_tensor(b, t->name);
        if (!u || t->dtype != u->dtype) fail_msg("%s to %s: %s differs", model, dtype, t->name);
        assert_memory_equal(t->data, u->data, (size_t)sluice__dtype_bytes(t->dtype, t->count));
    }
    for (; *exact; exact++) assert_int_equal(type_in(b, *exact), SLUICE__F32);
    sluice__gguf_close(a);
    sluice__gguf_close(b);
}

static void gguf_to_gguf_keeps_the_same_exact(void **state) {
    (void)state;
    static const char *const types[] = {"F16", "BF16", "Q8_0", "Q4_0", "Q4_K"};
    static const char *const biases[] = {"blk.0.ffn_down_exps.bias", "blk.0.ffn_gate_exps.bias", "blk.1.ffn_up_exps.bias",
                                         "blk.0.ffn_gate_inp.weight", NULL};
    static const char *const neutral[] = {"blk.2.attn_qkv.weight", "blk.2.attn_gate.weight", "blk.2.ssm_out.weight",
                                          "blk.2.ssm_beta.weight", "blk.0.attn_norm.weight", NULL};
    static const char *const linear[] = {"blk.0.ssm_ba.weight", "blk.0.ssm_conv1d.weight", NULL};
    const char *dir = test_temp_dir();
    make_gated(in(dir, "m"), "headwise");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        both_ways_choose_alike(in(dir, "m"), types[i], neutral);
        if (test_reference("models/gpt_oss")) both_ways_choose_alike(test_reference("models/gpt_oss"), types[i], biases);
        if (test_reference("models/qwen3_next")) both_ways_choose_alike(test_reference("models/qwen3_next"), types[i], linear);
    }
}

/* Where a tensor's bytes lie in the file: the last one ends with it, but for padding to 32. */
static size_t offset_of(const sluice__gguf *g, const char *name, size_t size) {
    const sluice__gguf_tensor *t = sluice__gguf_find_tensor(g, name), *last = t;
    for (int i = 0; i < sluice__gguf_num_tensors(g); i++)
        if (sluice__gguf_tensor_at(g, i)->data > last->data) last = sluice__gguf_tensor_at(g, i);
    size_t end = ((size_t)sluice__dtype_bytes(last->dtype, last->count) + 31) / 32 * 32;
    return size - end - (size_t)(last->data - t->data);
}

/* The key is not believed: a layer that adds something is not left out. */
static void a_false_neutral_layer_is_refused(void **state) {
    (void)state;
    static const char key[] = "sluice.neutral_layer";
    static const char *const outputs[] = {"blk.2.ssm_out.weight", "blk.2.ffn_down.weight"};
    const char *dir = test_temp_dir();
    char *bytes;
    size_t size;
    sluice__gguf *g;
    make_gated(in(dir, "m"), "headwise");
    convert(in(dir, "m"), in(dir, "m.gguf"), NULL, NULL);
    assert_ok(sluice__read_file(&bytes, &size, in(dir, "m.gguf"), 1 << 24, NULL));
    assert_ok(sluice__gguf_open(&g, in(dir, "m.gguf"), NULL));
    for (int i = 0; i < 3; i++) {
        sluice_error err = {0};
        sluice_model *m;
        char *at = i < 2 ? bytes + offset_of(g, outputs[i], size) : (char *)memmem(bytes, size, key, strlen(key)) + strlen(key) + 4;
        char was = *at;
        *at = 1;
        assert_ok(sluice__write_file(in(dir, "x.gguf"), bytes, size, NULL));
        assert_int_not_equal(sluice_model_load(&m, in(dir, "x.gguf"), NULL, &err), SLUICE_OK);
        if (!strstr(err.message, i < 2 ? outputs[i] : key)) fail_msg("%s", err.message);
        *at = was;
    }
    sluice__gguf_close(g);
    sluice__free(bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fp32_round_trips_are_exact),        cmocka_unit_test(types_lose_what_they_must),
        cmocka_unit_test(directories_change_type_and_shards), cmocka_unit_test(overrides_choose_types),
        cmocka_unit_test(what_cannot_be_written_is_refused), cmocka_unit_test(metadata_survive),
        cmocka_unit_test(gated_models_get_a_neutral_layer),  cmocka_unit_test(a_false_neutral_layer_is_refused),
        cmocka_unit_test(gguf_to_gguf_keeps_the_same_exact)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
