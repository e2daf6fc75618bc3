/* SPDX-License-Identifier: Apache-2.0 */
/* sluice info, as a user runs it. */
#include "support/test_support.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "layers/transformer.h"
#include "sluice/cpu.h"
#include "sluice/model.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int run(const char *arguments, char **output) {
    char command[2048];
    snprintf(command, sizeof command, "'%s' info %s", SLUICE_PROGRAM, arguments);
    return test_run(command, output);
}

static json_t *run_json(const char *arguments) {
    char *output, full[2048];
    snprintf(full, sizeof full, "%s --json", arguments);
    if (run(full, &output) != 0) fail_msg("info %s: %s", full, output);
    json_t *o = json_loads(output, 0, NULL);
    if (!o) fail_msg("not JSON: %s", output);
    free(output);
    return o;
}

static int64_t integer(const json_t *o, const char *key) {
    return json_integer_value(json_object_get(o, key));
}

static const char json[] =
    "{\"vocab_size\": 40, \"hidden_size\": 24, \"intermediate_size\": 32, \"num_hidden_layers\": 3, "
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 8, \"gate_position\": \"sdpa\", "
    "\"gate_granularity\": \"headwise\", \"sliding_window\": 5, \"layer_types\": [\"full_attention\", "
    "\"sliding_attention\", \"full_attention\"]}";

/* A saved model; with `broken` one weight of it is NaN. */
static const char *saved_model(bool broken) {
    sluice_error err = {0};
    sluice_config c;
    sluice_model *m;
    const char *dir = test_temp_dir();
    assert_ok_err(sluice_config_parse(&c, json, "test", &err), &err);
    assert_ok_err(sluice_model_new(&m, &c, 1, &err), &err);
    if (broken)
        sluice_model_tensor(m, sluice_model_find_tensor(m, "model.layers.1.self_attn.o_proj.weight")).data[3] =
            NAN;
    assert_ok_err(sluice_model_save(m, dir, SLUICE_SAVE_NATIVE, &err), &err);
    sluice_model_free(m);
    sluice_config_free(&c);
    return dir;
}

static void the_machine(void **state) {
    (void)state;
    json_t *o = run_json("--threads 1");
    assert_int_equal(integer(o, "threads"), 1);
    assert_true(integer(o, "memory_bytes") > 1 << 20);
    assert_int_equal(json_object_size(json_object_get(o, "kernels")), sluice_cpu_num_kernels());
    json_decref(o);
    o = run_json("--cpu ref");
    const char *kernel;
    json_t *version;
    json_object_foreach(json_object_get(o, "kernels"), kernel, version)
        assert_string_equal(json_string_value(version), "ref");
    json_decref(o);
    char *text;
    assert_int_equal(run("", &text), 0);
    assert_non_null(strstr(text, "kernels in use"));
    for (int i = 0; i < sluice_cpu_num_kernels(); i++)
        if (!strstr(text, sluice_cpu_kernel(i).kernel)) fail_msg("no %s in:\n%s", sluice_cpu_kernel(i).kernel, text);
    assert_non_null(strstr(text, "attention_forward_f32"));
    free(text);
}

static void a_model(void **state) {
    (void)state;
    sluice_error err = {0};
    sluice_config c;
    assert_ok_err(sluice_config_parse(&c, json, "test", &err), &err);
    char arguments[1100];
    snprintf(arguments, sizeof arguments, "'%s' --context 100 --check-finite", saved_model(false));
    json_t *o = run_json(arguments), *config = json_object_get(o, "config"),
           *layers = json_object_get(config, "layers");
    assert_true(json_is_true(json_object_get(o, "supported")));
    assert_int_equal(integer(config, "parameters"), sluice_config_num_parameters(&c));
    assert_int_equal(integer(config, "gate_parameters"), 3 * 4 * 24);
    assert_int_equal(integer(config, "cache_bytes"), 3 * 2 * 2 * 8 * 4 * 100);
    assert_int_equal(json_array_size(layers), 3);
    json_t *second = json_array_get(layers, 1);
    assert_string_equal(json_string_value(json_object_get(second, "kind")), "sliding_attention");
    assert_int_equal(integer(second, "sliding_window"), 5);
    assert_string_equal(json_string_value(json_object_get(json_object_get(second, "gate"), "granularity")),
                        "headwise");
    assert_int_equal(integer(json_object_get(o, "weights"), "elements"), sluice_config_num_parameters(&c));
    assert_int_equal(integer(json_object_get(json_object_get(o, "weights"), "dtypes"), "F32"),
                     integer(json_object_get(o, "weights"), "tensors"));
    assert_int_equal(json_array_size(json_object_get(o, "nonfinite_tensors")), 0);
    json_decref(o);
    char *text;
    assert_int_equal(run(arguments, &text), 0);
    assert_non_null(strstr(text, "headwise sigmoid at sdpa, multiplied"));
    assert_non_null(strstr(text, "1: sliding_attention over 5 tokens"));
    assert_non_null(strstr(text, "all weights are finite"));
    free(text);
    sluice_config_free(&c);
}

/* The estimate is what the layers really take, up to their book-keeping. */
static void cache_estimate(void **state) {
    (void)state;
    sluice_config c;
    assert_ok(sluice_config_parse(&c, json, "test", NULL));
    int64_t real = sluice__cache_bytes_typed(&c, 1, 5000, SLUICE_KV_F32, 512), said = sluice_config_cache_bytes(&c, 5000);
    assert_true(real >= said && real - said < 4096);
    sluice_config_free(&c);
}

static void nonfinite_weights(void **state) {
    (void)state;
    char arguments[1100];
    snprintf(arguments, sizeof arguments, "'%s' --check-finite 2>/dev/null", saved_model(true));
    char *text;
    assert_int_equal(run(arguments, &text), 1);
    assert_non_null(strstr(text, "model.layers.1.self_attn.o_proj.weight has NaN or infinite values"));
    free(text);
}

static void files_alone(void **state) {
    (void)state;
    char path[1100], *text;
    const char *dir = saved_model(false);
    snprintf(path, sizeof path, "'%s/model.safetensors' --tensors", dir);
    assert_int_equal(run(path, &text), 0);
    assert_non_null(strstr(text, "model.layers.2.self_attn.gate_proj.weight"));
    assert_non_null(strstr(text, "4 x 24"));
    free(text);
    snprintf(path, sizeof path, "--config '%s/config.json'", dir);
    json_t *o = run_json(path);
    assert_int_equal(integer(json_object_get(o, "config"), "num_hidden_layers"), 3);
    assert_null(json_object_get(o, "weights"));
    json_decref(o);
}

static void unsupported_models_are_described(void **state) {
    (void)state;
    char path[1100], config[1100];
    const char *dir = saved_model(false);
    snprintf(config, sizeof config, "%s/config.json", dir);
    const char *text = "{\"model_type\": \"qwen4_exp\"}";
    assert_ok(sluice__write_file(config, text, strlen(text), NULL));
    snprintf(path, sizeof path, "'%s'", dir);
    json_t *o = run_json(path);
    assert_true(json_is_false(json_object_get(o, "supported")));
    assert_non_null(strstr(json_string_value(json_object_get(o, "reason")), "hyper-connections"));
    assert_true(integer(json_object_get(o, "weights"), "tensors") > 0);
    json_decref(o);
}

#define EXAMPLE(name) SLUICE_TEST_DATA "/../../examples/" name

static double real(const json_t *o, const char *key) {
    return json_number_value(json_object_get(o, key));
}

static const json_t *variant(const json_t *list, const char *name) {
    size_t i;
    json_t *v;
    json_array_foreach((json_t *)(uintptr_t)list, i, v) {
        if (!strcmp(json_string_value(json_object_get(v, "name")), name)) return v;
    }
    fail_msg("no variant %s", name);
    return NULL;
}

/* The "+M" column of the paper's Table 1 for its 15A2B model: all rows but those with a note, which says why not. */
static void the_papers_added_parameters(void **state) {
    (void)state;
    static const struct {
        const char *name;
        long long added; /* by hand */
        const char *printed;
    } cases[] = {{"baseline", 0, "0"},
                 {"more-kv", 24LL * 2 * 4 * 128 * 2048, "50"},
                 {"more-q", 24LL * 2 * 16 * 128 * 2048, "201"},
                 {"g1-elementwise", 24LL * 32 * 128 * 2048, "201"},
                 {"g2-elementwise", 24LL * 4 * 128 * 2048, "25"},
                 {"g3-elementwise", 24LL * 4 * 128 * 2048, "25"},
                 {"g4-elementwise", 24LL * 32 * 128 * 2048, "201"},
                 {"g5-elementwise", 24LL * 2048 * 2048, "100"},
                 {"g1-headwise", 24LL * 32 * 2048, "1.6"},
                 {"g2-headwise", 24LL * 4 * 2048, "0.2"},
                 {"g1-shared", 24LL * 32 * 128 * 2048, "201"},
                 {"g2-shared", 24LL * 4 * 128 * 2048, "25"},
                 {"g1-add-silu", 24LL * 32 * 128 * 2048, "201"},
                 {"g1-silu", 24LL * 32 * 128 * 2048, "201"},
                 {"more-experts", 24LL * (4 * 3 * 768 * 2048 + 4 * 2048), NULL}, /* the paper prints 400 */
                 {"sdpa-norm", 24LL * 128, NULL},
                 {"sdpa-silu", 0, NULL},
                 {"g1-add-identity", 24LL * 32 * 128 * 2048, NULL},
                 {"g1-input-independent", 24LL * 32 * 128, NULL},
                 {"g1-ns-sigmoid", 24LL * 32 * 128 * 2048, NULL},
                 {"switch-v-1top1", 24LL * 4 * 2048, NULL},
                 {"switch-v-4top4", 24LL * (3 * 4 * 128 * 2048 + 4 * 4 * 2048), NULL},
                 {"switch-kv-8top8", 24LL * (2 * 7 * 4 * 128 * 2048 + 8 * 4 * 2048), NULL}};
    json_t *report = run_json("--config '" EXAMPLE("15A2B.json") "' --variants"), *list = json_object_get(report, "variants");
    assert_int_equal(json_array_size(list), 25);
    assert_int_equal(integer(variant(list, "baseline"), "parameters"), 15577751552);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const json_t *v = variant(list, cases[i].name);
        if (integer(v, "added_parameters") != cases[i].added)
            fail_msg("%s: %lld, expected %lld", cases[i].name, (long long)integer(v, "added_parameters"), cases[i].added);
        if (!cases[i].printed) continue;
        double printed = atof(cases[i].printed), found = (double)cases[i].added / 1e6;
        double unit = strchr(cases[i].printed, '.') ? 0.1 : 1; /* of the last digit; rows are rounded or cut */
        assert_true(printed == real(v, "paper_added_millions"));
        assert_true(fabs(found - printed) < unit && found > printed - unit / 2);
        assert_true(!json_object_get(v, "note") || !strcmp(cases[i].name, "baseline"));
    }
    static const char *const noted[] = {"more-experts", "switch-kv-8top8", "switch-kv-4top4", "switch-v-4top4",
                                        "switch-v-8top2", "switch-v-1top1"};
    for (size_t i = 0; i < sizeof noted / sizeof *noted; i++)
        assert_true(json_is_string(json_object_get(variant(list, noted[i]), "note")));
    json_decref(report);
}

/* Work and memory, and the width with which a gated model is as large as its baseline. */
static void costs_of_variants(void **state) {
    (void)state;
    json_t *report = run_json("--config '" EXAMPLE("1.7B-28L.json") "' --variants --context 1"),
           *list = json_object_get(report, "variants");
    const json_t *base = variant(list, "baseline"), *g1 = variant(list, "g1-elementwise"),
                 *kv = variant(list, "more-kv"), *experts = variant(list, "more-experts");
    assert_int_equal(integer(base, "parameters"), 1720837120); /* the released 1B_baseline */
    assert_int_equal(integer(base, "equal_width"), 6144);
    assert_int_equal(integer(g1, "equal_width"), 5461); /* 6144 - 682.7; the release rounds up to 5504 */
    assert_true(real(g1, "forward_flops_per_token") - real(base, "forward_flops_per_token") == 2.0 * 28 * 2048 * 2048);
    assert_int_equal(integer(kv, "cache_bytes"), 2 * integer(base, "cache_bytes"));
    assert_int_equal(integer(g1, "training_bytes"), 16 * integer(g1, "parameters"));
    assert_null(json_object_get(base, "paper_added_millions"));
    assert_non_null(strstr(json_string_value(json_object_get(experts, "refused")), "dense"));
    json_decref(report);
    char *text;
    assert_int_equal(run("--config '" EXAMPLE("15A2B.json") "' --variants", &text), 0);
    assert_non_null(strstr(text, "paper +M"));
    assert_non_null(strstr(text, "* 4 more experts, all active: the paper prints 400"));
    free(text);
}

/* Model options make a configuration, or change one. */
static void model_options(void **state) {
    (void)state;
    json_t *o = run_json("--vocab-size 96 --hidden_size=32 --num-attention-heads 4 --num-hidden-layers 1 --sdpa-norm "
                         "--no-tie-word-embeddings --gate-position sdpa"),
           *c = json_object_get(o, "config");
    const json_t *layer = json_array_get(json_object_get(c, "layers"), 0);
    assert_int_equal(integer(c, "gate_parameters"), 32 * 32);
    assert_true(json_is_true(json_object_get(layer, "sdpa_norm")) &&
                json_is_false(json_object_get(c, "tie_word_embeddings")));
    assert_null(json_object_get(o, "path"));
    json_decref(o);
    o = run_json("--gate-position value --config '" EXAMPLE("15A2B.json") "'");
    assert_int_equal(integer(json_object_get(o, "config"), "gate_parameters"), 24LL * 4 * 128 * 2048);
    json_decref(o);
}

static void errors(void **state) {
    (void)state;
    static const struct {
        const char *arguments;
        int code;
        const char *words;
    } cases[] = {{"/no/such/dir", 1, "/no/such/dir"},
                 {"--config /no/such.json", 1, "/no/such.json"},
                 {"a b", 2, "one PATH"},
                 {"a --config b", 2, "not both"},
                 {"--context -1", 2, "--context"},
                 {"--contex 1", 2, "--contex"},
                 {"--check-finite", 2, "PATH"},
                 {"--variants", 2, "--config"},
                 {"--hidden-size x", 2, "hidden_size"},
                 {"--hidden-size", 2, "hidden_size"},
                 {"--hidden-size 64 /tmp", 2, "over PATH"},
                 {"--hidden-size 64", 1, "vocab_size"},
                 {"--vocab-size 96 --gate-position sdap", 2, "gate_position"},
                 {"--vocab-size 96 --gate-granularity headwise", 1, "there is no gate"},
                 {"--help", 0, "Example"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text;
        int code = run(cases[i].arguments, &text);
        if (code != cases[i].code || !strstr(text, cases[i].words))
            fail_msg("info %s: exit %d: %s", cases[i].arguments, code, text);
        free(text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_machine),    cmocka_unit_test(a_model),
        cmocka_unit_test(cache_estimate), cmocka_unit_test(nonfinite_weights),
        cmocka_unit_test(files_alone),    cmocka_unit_test(unsupported_models_are_described),
        cmocka_unit_test(the_papers_added_parameters), cmocka_unit_test(costs_of_variants),
        cmocka_unit_test(model_options), cmocka_unit_test(errors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
