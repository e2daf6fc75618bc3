/* SPDX-License-Identifier: Apache-2.0 */
/* RoPE frequencies, attention factors and tables against recordings of transformers
 * (tests/data/model/rope.json), and a few properties. The recordings were made in fp32: frequencies are
 * compared with a relative 1e-6, cosines and sines up to the rounding of the fp32 product position * frequency.
 */
#include "support/test_support.h"
#include "base/json.h"
#include "base/memory.h"
#include "model/config.h"
#include "model/safetensors.h"
#include "model/weights.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static const float *golden(const sluice__safetensors *file, const char *what, const char *name,
                           int64_t *count) {
    static float copy[4096];
    char key[128];
    snprintf(key, sizeof key, "%s.%s", what, name);
    const sluice__st_tensor *t = sluice__safetensors_find(file, key);
    if (!t || t->count > 4096) fail_msg("%s is not in the recording", key);
    sluice__to_f32(copy, t->dtype, t->data, 1, t->count);
    *count = t->count;
    return copy;
}

static void check_frequencies(const sluice__safetensors *file, const char *name, const sluice_rope_spec *r,
                              int64_t length) {
    double mine[128], factor;
    int64_t count;
    sluice__rope_inv_freq(r, length, mine, &factor);
    const float *want = golden(file, "inv_freq", name, &count);
    assert_int_equal(count, r->rotary_dim / 2);
    for (int64_t i = 0; i < count; i++)
        if (fabs(mine[i] - (double)want[i]) > 1e-6 * (double)want[i])
            fail_msg("%s: inv_freq[%d] is %g, expected %g", name, (int)i, mine[i], (double)want[i]);
    want = golden(file, "attention_scaling", name, &count);
    assert_true(fabs(factor - (double)want[0]) < 1e-6);
}

/* Only positions that a table of reasonable size reaches. */
static void check_tables(const sluice__safetensors *file, const char *name, const sluice_rope_spec *r,
                         int64_t length) {
    const sluice__st_tensor *positions = sluice__safetensors_find(file, "positions");
    enum { POSITIONS = 20000 };
    int32_t at[64];
    int64_t half = r->rotary_dim / 2, n;
    assert_true(positions && positions->count <= 64);
    assert_true(sluice__to_i32(at, positions->dtype, positions->data, positions->count));
    float *cos_table = sluice__calloc((size_t)(POSITIONS * half), sizeof(float), SLUICE__MEM_OTHER);
    float *sin_table = sluice__calloc((size_t)(POSITIONS * half), sizeof(float), SLUICE__MEM_OTHER);
    assert_ok(sluice__rope_tables(r, POSITIONS, length, cos_table, sin_table, NULL));
    int compared = 0;
    for (int part = 0; part < 2; part++) {
        const float *want = golden(file, part ? "sin" : "cos", name, &n);
        for (int64_t p = 0; p < positions->count; p++) {
            if (at[p] >= POSITIONS) continue;
            compared++;
            double tolerance = 2e-6 + 1.5e-7 * at[p]; /* half a unit of the fp32 angle, and the factor's */
            for (int64_t i = 0; i < half; i++) {
                float got = (part ? sin_table : cos_table)[at[p] * half + i];
                if (fabs((double)got - (double)want[p * half + i]) > tolerance)
                    fail_msg("%s: position %d, component %d", name, at[p], (int)i);
            }
        }
    }
    assert_true(compared >= 8);
    sluice__free(cos_table);
    sluice__free(sin_table);
}

static void check_file(const char *json_path, const char *tensor_path) {
    sluice_error err = {0};
    json_t *root, *entry;
    sluice__safetensors *file;
    assert_ok_err(sluice__json_load(&root, json_path, &err), &err);
    assert_ok_err(sluice__safetensors_open(&file, tensor_path, &err), &err);
    const char *name;
    json_object_foreach(json_object_get(root, "cases"), name, entry) {
        json_t *config = json_pack("{s:O}", "rope_parameters", json_object_get(entry, "rope"));
        sluice__json view = sluice__json_view(config, json_path);
        sluice_rope_spec r;
        int head_dim = (int)json_integer_value(json_object_get(entry, "head_dim"));
        int64_t most = json_integer_value(json_object_get(entry, "max_position_embeddings"));
        int64_t length = json_integer_value(json_object_get(entry, "seq_len"));
        assert_ok_err(sluice__rope_read(&r, &view, "full_attention", head_dim, most, 10000, 1, &err), &err);
        check_frequencies(file, name, &r, length);
        check_tables(file, name, &r, length);
        sluice__rope_free(&r);
        json_decref(config);
    }
    sluice__safetensors_close(file);
    json_decref(root);
}

static void recorded_cases(void **state) {
    (void)state;
    check_file(test_data("model/rope.json"), test_data("model/rope.safetensors"));
    const char *json = test_shared("reference/rope.json"), *tensors = test_shared("reference/rope.safetensors");
    if (json && tensors) check_file(json, tensors);
}

static sluice_rope_spec parse(const char *text, int head_dim, int64_t positions) {
    sluice_error err = {0};
    json_t *root;
    assert_ok_err(sluice__json_parse(&root, text, strlen(text), "test", &err), &err);
    sluice__json view = sluice__json_view(root, "test");
    sluice_rope_spec r;
    assert_ok_err(sluice__rope_read(&r, &view, "full_attention", head_dim, positions, 10000, 1, &err), &err);
    json_decref(root);
    return r;
}

/* What is written is read back as the same specification. */
static void written_and_read(void **state) {
    (void)state;
    static const char *const texts[] = {
        "{\"rope_theta\": 500000, \"partial_rotary_factor\": 0.25}",
        "{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.5}}",
        "{\"rope_scaling\": {\"rope_type\": \"dynamic\", \"factor\": 3}}",
        "{\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4, \"mscale\": 0.7, \"mscale_all_dim\": 1, "
        "\"truncate\": false, "
        "\"beta_fast\": 20, \"beta_slow\": 2, \"original_max_position_embeddings\": 64}}",
        "{\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4, \"attention_factor\": 1.25}}",
        ("{\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, "
         "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 64}}"),
        ("{\"rope_parameters\": {\"rope_type\": \"longrope\", \"factor\": 2, \"short_factor\": [1, 2, 3, 4], "
         "\"long_factor\": [2, 3, 4, 5]}}"),
        "{\"partial_rotary_factor\": 0}",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        sluice_rope_spec a = parse(texts[i], 8, 256);
        json_t *object = json_pack("{s:o}", "rope_parameters", sluice__rope_to_json(&a, 8));
        char *text = json_dumps(object, 0);
        sluice_rope_spec b = parse(text, 8, 256);
        double x[4] = {0}, y[4] = {0}, fx, fy;
        for (int64_t length = 100; length < 1000; length += 300) {
            sluice__rope_inv_freq(&a, length, x, &fx);
            sluice__rope_inv_freq(&b, length, y, &fy);
            assert_memory_equal(x, y, sizeof x);
            assert_true(fx == fy && a.enabled == b.enabled && a.rotary_dim == b.rotary_dim && a.type == b.type);
        }
        free(text);
        json_decref(object);
        sluice__rope_free(&a);
        sluice__rope_free(&b);
    }
}

/* A rotation keeps lengths: cos^2 + sin^2 is the attention factor squared, far out as well. */
static void tables_are_rotations(void **state) {
    (void)state;
    sluice_rope_spec r = parse("{\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4}}", 64, 4096);
    enum { COUNT = 5000 };
    static float c[COUNT * 32], s[COUNT * 32];
    double inv[32], factor;
    sluice__rope_inv_freq(&r, COUNT, inv, &factor);
    assert_ok(sluice__rope_tables(&r, COUNT, COUNT, c, s, NULL));
    for (int i = 0; i < COUNT * 32; i++) {
        double square = (double)c[i] * (double)c[i] + (double)s[i] * (double)s[i];
        assert_true(fabs(square - factor * factor) < 5e-7);
    }
    for (int i = 0; i < 32; i++) assert_true(c[i] == (float)factor && s[i] == 0);
}

/* How far a model is meant to reach, which warnings speak of. */
static void scaling_extends_the_positions(void **state) {
    static const struct {
        const char *rope;
        int64_t positions;
    } cases[] = {{"{\"rope_type\": \"default\"}", 64},
                 {"{\"rope_type\": \"yarn\", \"factor\": 4.0, \"original_max_position_embeddings\": 64}", 256},
                 {"{\"rope_type\": \"yarn\", \"factor\": 4.0, \"original_max_position_embeddings\": 16}", 64},
                 {"{\"rope_type\": \"linear\", \"factor\": 2.0}", 128}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sluice_config c;
        assert_ok(sluice_config_parse(&c, "{\"max_position_embeddings\": 64}", "config", NULL));
        assert_ok(sluice__config_override_rope(&c, cases[i].rope, NULL));
        assert_int_equal(sluice__config_positions(&c), cases[i].positions);
        sluice_config_free(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(recorded_cases), cmocka_unit_test(written_and_read),
                                       cmocka_unit_test(tables_are_rotations), cmocka_unit_test(scaling_extends_the_positions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
