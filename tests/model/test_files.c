/* SPDX-License-Identifier: Apache-2.0 */
/* Weight files: element types, safetensors written and read, gate rows in q_proj, unused and missing tensors,
 * shards. */
#include "support/test_support.h"
#include "base/file.h"
#include "base/memory.h"
#include "model/safetensors.h"
#include "sluice/log.h"
#include "sluice/model.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- element types ---- */

static void half_precision(void **state) {
    (void)state;
    static const struct {
        uint16_t bits;
        float value;
    } cases[] = {{0x0000, 0.0F},     {0x8000, -0.0F},       {0x3c00, 1.0F},
                 {0xc000, -2.0F},    {0x7bff, 65504.0F},    {0x0400, 0x1p-14F},
                 {0x0001, 0x1p-24F}, {0x83ff, -0x3ffp-24F}, {0x3555, 0.333251953125F},
                 {0x7c00, INFINITY}, {0xfc00, -INFINITY}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float f = sluice__f16_to_f32(cases[i].bits);
        assert_memory_equal(&f, &cases[i].value, sizeof f);
    }
    assert_true(isnan(sluice__f16_to_f32(0x7e01)));
    assert_true(sluice__bf16_to_f32(0x3f80) == 1.0F && sluice__bf16_to_f32(0xc020) == -2.5F &&
                isnan(sluice__bf16_to_f32(0x7fc1)));
}

static void conversions_by_stride(void **state) {
    (void)state;
    double d[] = {1.5, 0, -2.25, 0, 1e300, 0};
    unsigned char shifted[sizeof d + 1]; /* data in files is not aligned */
    memcpy(shifted + 1, d, sizeof d);
    float out[3];
    sluice__to_f32(out, SLUICE__F64, shifted + 1, 2, 3);
    assert_true(out[0] == 1.5F && out[1] == -2.25F && isinf(out[2]));
    int32_t ints[2];
    static const int64_t small[] = {-3, 2147483647}, large[] = {1, 2147483648};
    static const uint8_t bytes[] = {200, 7};
    assert_true(sluice__to_i32(ints, SLUICE__I64, small, 2) && ints[0] == -3 && ints[1] == 2147483647);
    assert_false(sluice__to_i32(ints, SLUICE__I64, large, 2));
    assert_true(sluice__to_i32(ints, SLUICE__U8, bytes, 2) && ints[0] == 200);
    assert_false(sluice__to_i32(ints, SLUICE__F32, small, 1));
}

/* ---- safetensors ---- */

static void written_safetensors(void **state) {
    (void)state;
    char path[1024];
    snprintf(path, sizeof path, "%s/a.safetensors", test_temp_dir());
    static const float x[] = {1, 2, 3, 4, 5, 6};
    static const int32_t y[] = {-7};
    sluice__st_tensor out[] = {sluice__st_f32("zeta \"quoted\" \xc3\xa9", x, 2, (int64_t[]){2, 3}),
                               sluice__st_i32("alpha", y, 0, NULL),
                               sluice__st_f32("empty", x, 1, (int64_t[]){0})};
    const char *const metadata[] = {"step", "12", NULL};
    sluice_error err = {0};
    sluice__safetensors *f;
    assert_ok_err(sluice__safetensors_write(path, out, 3, metadata, &err), &err);
    assert_ok_err(sluice__safetensors_open(&f, path, &err), &err);
    assert_int_equal(sluice__safetensors_count(f), 3);
    assert_string_equal(sluice__safetensors_metadata(f, "format"), "pt");
    assert_string_equal(sluice__safetensors_metadata(f, "step"), "12");
    assert_null(sluice__safetensors_metadata(f, "other"));
    const sluice__st_tensor *t = sluice__safetensors_find(f, "zeta \"quoted\" \xc3\xa9");
    assert_true(t && t->ndim == 2 && t->shape[1] == 3 && t->dtype == SLUICE__F32);
    assert_memory_equal(t->data, x, sizeof x);
    t = sluice__safetensors_find(f, "alpha");
    assert_true(t && t->ndim == 0 && t->count == 1 && ((uintptr_t)t->data % 64) == 0);
    assert_null(sluice__safetensors_find(f, "beta"));
    sluice__safetensors_close(f);
}

/* A failed write leaves the old file and no other. */
static void failed_write_changes_nothing(void **state) {
    (void)state;
    char path[1024];
    snprintf(path, sizeof path, "%s/no/such/dir.safetensors", test_temp_dir());
    static const float x[] = {1};
    sluice__st_tensor t = sluice__st_f32("a", x, 1, (int64_t[]){1});
    sluice_error err = {0};
    assert_int_equal(sluice__safetensors_write(path, &t, 1, NULL, &err), SLUICE_ERR_IO);
    assert_non_null(strstr(err.message, "dir.safetensors"));
}

/* A file made of a header text and data of a given size. */
static sluice_status open_text(const char *header, size_t data, sluice_error *err) {
    char path[1024];
    snprintf(path, sizeof path, "%s/b.safetensors", test_temp_dir());
    size_t n = strlen(header);
    unsigned char *bytes = calloc(1, 8 + n + data);
    for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)(n >> 8 * i);
    memcpy(bytes + 8, header, n);
    assert_ok(sluice__write_file(path, bytes, 8 + n + data, NULL));
    free(bytes);
    sluice__safetensors *f;
    sluice_status st = sluice__safetensors_open(&f, path, err);
    if (st == SLUICE_OK)
        sluice__safetensors_close(f);
    else
        assert_null(f);
    return st;
}

#define ENTRY(name, shape, from, to)                                                                           \
    "\"" name "\": {\"dtype\": \"F32\", \"shape\": " shape ", \"data_offsets\": [" from ", " to "]}"

static void wrong_headers_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *header;
        size_t data;
        const char *words; /* NULL: accepted */
    } cases[] = {
        {"{" ENTRY("a", "[2]", "0", "8") "}", 8, NULL},
        {"{" ENTRY("a", "[2]", "0", "8") ", " ENTRY("b", "[]", "8", "12") "}  ", 12, NULL},
        {"{}", 0, NULL},
        {"{}", 4, "behind the last tensor"},
        {"[]", 0, "not a JSON object"},
        {"{" ENTRY("a", "[2]", "0", "8") "}", 12, "behind the last tensor"},
        {"{" ENTRY("a", "[2]", "4", "12") "}", 12, "tensor a: begins at data byte 4, expected 0"},
        {"{" ENTRY("a", "[2]", "0", "8") ", " ENTRY("b", "[2]", "4", "12") "}", 12, "overlap"},
        {"{" ENTRY("a", "[1]", "0", "4") ", " ENTRY("b", "[1]", "8", "12") "}", 12, "hole"},
        {"{" ENTRY("a", "[3]", "0", "8") "}", 8, "tensor a: data_offsets span 8 bytes"},
        {"{" ENTRY("a", "[-2]", "0", "8") "}", 8, "tensor a: shape[0]"},
        {"{" ENTRY("a", "[2.0]", "0", "8") "}", 8, "tensor a: shape[0]"},
        {"{" ENTRY("a", "2", "0", "8") "}", 8, "tensor a: shape"},
        {"{" ENTRY("a", "[1,1,1,1,1,1,1,1,2]", "0", "8") "}", 8, "tensor a: shape"},
        {"{" ENTRY("a", "[4611686018427387904, 4]", "0", "8") "}", 8, "overflows"},
        {"{" ENTRY("a", "[4611686018427387904]", "0", "0") "}", 0, "tensor a: data_offsets"},
        {"{" ENTRY("a", "[2]", "8", "0") "}", 8, "tensor a: data_offsets"},
        {"{" ENTRY("a", "[2]", "-8", "0") "}", 8, "tensor a: data_offsets"},
        {"{" ENTRY("a", "[2]", "0", "9223372036854775807") "}", 8, "tensor a: data_offsets"},
        {"{\"a\": {\"dtype\": \"F33\", \"shape\": [2], \"data_offsets\": [0, 8]}}", 8,
         "tensor a: unknown dtype \"F33\""},
        {"{\"a\": {\"dtype\": 3, \"shape\": [2], \"data_offsets\": [0, 8]}}", 8,
         "tensor a: expected an object"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0]}}", 8,
         "tensor a: expected an object"},
        {"{\"a\": 1}", 0, "tensor a: expected an object"},
        {"{" ENTRY("a", "[1]", "0", "4") ", " ENTRY("a", "[1]", "4", "8") "}", 8, "\"a\" stands twice"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sluice_error err = {0};
        sluice_status st = open_text(cases[i].header, cases[i].data, &err);
        if (st != (cases[i].words ? SLUICE_ERR_FORMAT : SLUICE_OK))
            fail_msg("%s: %s", cases[i].header, err.message);
        if (cases[i].words && !strstr(err.message, cases[i].words))
            fail_msg("%s: \"%s\" lacks \"%s\"", cases[i].header, err.message, cases[i].words);
    }
}

/* ---- model directories ---- */

static void write_text(const char *dir, const char *name, const char *text) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_ok(sluice__write_file(path, text, strlen(text), NULL));
}

#define TINY                                                                                                   \
    "\"vocab_size\": 3, \"hidden_size\": 8, \"intermediate_size\": 8, \"num_hidden_layers\": 1, "              \
    "\"num_attention_heads\": 4, "                                                                             \
    "\"num_key_value_heads\": 2, \"head_dim\": 2"

/* Files of a one-layer model: row r of tensor t holds 100 t + r in all columns. */
typedef struct tiny {
    sluice__st_tensor tensors[16];
    float *data[16];
    int count;
} tiny;

static void add(tiny *t, const char *name, int ndim, int64_t rows, int64_t columns) {
    float *x = calloc((size_t)(rows * columns), sizeof *x);
    for (int64_t i = 0; i < rows * columns; i++) x[i] = (float)(100 * t->count + i / columns);
    t->data[t->count] = x;
    t->tensors[t->count++] = sluice__st_f32(name, x, ndim, (int64_t[]){rows, columns});
}

#define LAYER "model.layers.0."

static tiny tiny_files(int q_rows) {
    tiny t = {0};
    add(&t, LAYER "self_attn.q_proj.weight", 2, q_rows, 8);
    add(&t, LAYER "self_attn.k_proj.weight", 2, 4, 8);
    add(&t, LAYER "self_attn.v_proj.weight", 2, 4, 8);
    add(&t, LAYER "self_attn.o_proj.weight", 2, 8, 8);
    add(&t, LAYER "self_attn.q_norm.weight", 1, 2, 1);
    add(&t, LAYER "self_attn.k_norm.weight", 1, 2, 1);
    add(&t, LAYER "mlp.gate_proj.weight", 2, 8, 8);
    add(&t, LAYER "mlp.up_proj.weight", 2, 8, 8);
    add(&t, LAYER "mlp.down_proj.weight", 2, 8, 8);
    add(&t, LAYER "input_layernorm.weight", 1, 8, 1);
    add(&t, LAYER "post_attention_layernorm.weight", 1, 8, 1);
    add(&t, "model.embed_tokens.weight", 2, 3, 8);
    add(&t, "model.norm.weight", 1, 8, 1);
    return t;
}

static void tiny_free(tiny *t) {
    for (int i = 0; i < t->count; i++) free(t->data[i]);
}

static void save_tiny(tiny *t, int count, const char *dir, const char *name) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_ok(sluice__safetensors_write(path, t->tensors, count, NULL, NULL));
}

static float first_of_row(const sluice_model *m, const char *name, int row) {
    int i = sluice_model_find_tensor(m, name);
    assert_true(i >= 0);
    sluice_tensor_info t = sluice_model_tensor(m, i);
    return t.data[row * (t.ndim == 2 ? t.shape[1] : 1)];
}

/* Four heads of two, two KV groups. Where does each row of q_proj belong? */
static void gate_rows_in_q_proj(void **state) {
    (void)state;
    static const struct {
        const char *config;
        int q_rows, queries[8], gates[8], num_gates;
    } cases[] = {
        {"{\"model_type\": \"qwen2\", \"headwise_attn_output_gate\": true, \"tie_word_embeddings\": true, " TINY
         "}",
         12,
         {0, 1, 2, 3, 6, 7, 8, 9},
         {4, 5, 10, 11},
         4},
        {"{\"model_type\": \"qwen3\", \"elementwise_attn_output_gate\": true, \"tie_word_embeddings\": "
         "true, " TINY "}",
         16,
         {0, 1, 2, 3, 8, 9, 10, 11},
         {4, 5, 6, 7, 12, 13, 14, 15},
         8},
        {"{\"model_type\": \"qwen3_5_text\", \"layer_types\": [\"full_attention\"], \"partial_rotary_factor\": "
         "1, \"tie_word_embeddings\": true, " TINY "}",
         16,
         {0, 1, 4, 5, 8, 9, 12, 13},
         {2, 3, 6, 7, 10, 11, 14, 15},
         8},
    };
    for (int c = 0; c < 3; c++) {
        const char *dir = test_temp_dir();
        tiny t = tiny_files(cases[c].q_rows);
        write_text(dir, "config.json", cases[c].config);
        save_tiny(&t, t.count, dir, "model.safetensors");
        sluice_error err = {0};
        sluice_model *m;
        assert_ok_err(sluice_model_load(&m, dir, NULL, &err), &err);
        for (int r = 0; r < 8; r++)
            assert_int_equal((int)first_of_row(m, LAYER "self_attn.q_proj.weight", r), cases[c].queries[r]);
        for (int r = 0; r < cases[c].num_gates; r++)
            assert_int_equal((int)first_of_row(m, LAYER "self_attn.gate_proj.weight", r), cases[c].gates[r]);
        assert_int_equal((int)first_of_row(m, "model.norm.weight", 3), c == 2 ? 1204 : 1203); /* 1 + w */
        assert_int_equal(sluice_model_config(m)->norm, SLUICE_NORM_PLAIN);
        sluice_model_free(m);
        tiny_free(&t);
    }
}

/* ---- messages and shards ---- */

static char heard[4096];
static void hear(void *user, sluice_log_level level, const char *line) {
    (void)user, (void)level;
    size_t n = strlen(heard);
    snprintf(heard + n, sizeof heard - n, "%s\n", line);
}

#define QWEN3_TINY "{\"model_type\": \"qwen3\", \"tie_word_embeddings\": true, " TINY "}"

static sluice_status load_tiny(tiny *t, const char *config, sluice_error *err) {
    const char *dir = test_temp_dir();
    sluice_model *m;
    write_text(dir, "config.json", config);
    save_tiny(t, t->count, dir, "model.safetensors");
    heard[0] = '\0';
    sluice_log_set(hear, NULL);
    sluice_status st = sluice_model_load(&m, dir, NULL, err);
    sluice_log_set(NULL, NULL);
    sluice_model_free(m);
    return st;
}

static void extra_tensors(void **state) {
    (void)state;
    sluice_error err = {0};
    tiny t = tiny_files(8);
    add(&t, LAYER "self_attn.rotary_emb.inv_freq", 1, 1, 1);
    add(&t, "lm_head.weight", 2, 3, 8); /* tied: the embedding serves */
    assert_ok_err(load_tiny(&t, QWEN3_TINY, &err), &err);
    assert_string_equal(heard, "");
    add(&t, LAYER "self_attn.q_proj.bias", 1, 8, 1);
    assert_ok_err(load_tiny(&t, QWEN3_TINY, &err), &err);
    assert_non_null(
        strstr(heard, "1 tensor of the file is not used, for example " LAYER "self_attn.q_proj.bias"));
    tiny_free(&t);
}

static void nonfinite_weights_are_named(void **state) {
    (void)state;
    sluice_error err = {0};
    tiny t = tiny_files(8);
    t.data[1][5] = NAN;
    t.data[12][0] = -INFINITY;
    assert_ok_err(load_tiny(&t, QWEN3_TINY, &err), &err);
    assert_non_null(strstr(heard, LAYER "self_attn.k_proj.weight"));
    assert_non_null(strstr(heard, "model.norm.weight"));
    assert_non_null(strstr(heard, "2 tensors have NaN"));
    tiny_free(&t);
}

/* Numbers of a type that no weights are stored in: the message has the plain types and all block types that are read. */
static void other_types_are_refused(void **state) {
    (void)state;
    sluice_error err = {0};
    tiny t = tiny_files(8);
    t.tensors[6].dtype = SLUICE__I32; /* of the same size */
    assert_int_equal(load_tiny(&t, QWEN3_TINY, &err), SLUICE_ERR_UNSUPPORTED);
    static const char *const words[] = {"mlp.gate_proj.weight: dtype I32", "F32", "F16", "BF16", "F64",
                                        "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strstr(err.message, words[i])) fail_msg("\"%s\" is not in: %s", words[i], err.message);
    assert_null(strstr(err.message, "MXFP4"));
    tiny_free(&t);
}

static void untied_head_must_be_there(void **state) {
    (void)state;
    sluice_error err = {0};
    tiny t = tiny_files(8);
    assert_int_equal(load_tiny(&t, "{\"model_type\": \"qwen3\", " TINY "}", &err), SLUICE_ERR_FORMAT);
    assert_non_null(strstr(err.message, "lm_head.weight is missing (tie_word_embeddings is false"));
    tiny_free(&t);
}

/* A file saved from the bare decoder names its tensors without "model.". */
static void bare_decoder(void **state) {
    (void)state;
    sluice_error err = {0};
    tiny t = tiny_files(8);
    for (int i = 0; i < t.count; i++) t.tensors[i].name += strlen("model.");
    assert_ok_err(load_tiny(&t, QWEN3_TINY, &err), &err);
    tiny_free(&t);
}

static sluice_status load_index(const char *index, sluice_error *err) {
    const char *dir = test_temp_dir();
    tiny t = tiny_files(8), rest = {0};
    write_text(dir, "config.json", QWEN3_TINY);
    rest.count = t.count - 6;
    memcpy(rest.tensors, t.tensors + 6, (size_t)rest.count * sizeof *t.tensors);
    save_tiny(&t, 6, dir, "one.safetensors");
    save_tiny(&rest, rest.count, dir, "two.safetensors");
    write_text(dir, "model.safetensors.index.json", index);
    sluice_model *m;
    sluice_status st = sluice_model_load(&m, dir, NULL, err);
    sluice_model_free(m);
    tiny_free(&t);
    return st;
}

static void shards(void **state) {
    (void)state;
    static const struct {
        const char *index, *words;
    } cases[] = {
        {"{\"weight_map\": {\"model.norm.weight\": \"two.safetensors\", \"" LAYER
         "self_attn.q_proj.weight\": \"one.safetensors\"}}",
         NULL},
        {"{\"weight_map\": {\"model.norm.weight\": \"one.safetensors\", \"model.embed_tokens.weight\": "
         "\"two.safetensors\"}}",
         "model.norm.weight is not in one.safetensors"},
        {"{\"weight_map\": {\"other\": \"two.safetensors\"}}", "tensor other is not in two.safetensors"},
        {"{\"weight_map\": {\"model.norm.weight\": \"three.safetensors\"}}", "three.safetensors"},
        {"{\"weight_map\": {\"model.norm.weight\": \"../one.safetensors\"}}", "beside the index"},
        {"{\"weight_map\": {\"model.norm.weight\": \"/etc/passwd\"}}", "beside the index"},
        {"{\"weight_map\": {\"model.norm.weight\": 3}}", "beside the index"},
        {"{\"weight_map\": []}", "weight_map"},
        {"{}", "weight_map"},
        {"[", "index.json"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sluice_error err = {0};
        sluice_status st = load_index(cases[i].index, &err);
        if ((st == SLUICE_OK) != !cases[i].words) fail_msg("%s: %s", cases[i].index, err.message);
        if (cases[i].words && !strstr(err.message, cases[i].words))
            fail_msg("\"%s\" lacks \"%s\"", err.message, cases[i].words);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(half_precision),
                                       cmocka_unit_test(conversions_by_stride),
                                       cmocka_unit_test(written_safetensors),
                                       cmocka_unit_test(failed_write_changes_nothing),
                                       cmocka_unit_test(wrong_headers_are_refused),
                                       cmocka_unit_test(gate_rows_in_q_proj),
                                       cmocka_unit_test(extra_tensors),
                                       cmocka_unit_test(nonfinite_weights_are_named),
                                       cmocka_unit_test(other_types_are_refused),
                                       cmocka_unit_test(untied_head_must_be_there),
                                       cmocka_unit_test(bare_decoder),
                                       cmocka_unit_test(shards)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
