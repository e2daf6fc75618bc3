/* SPDX-License-Identifier: Apache-2.0 */
/* sluice_inspect and sluice_attention_map against the reference, at the tolerances that its README states; results must
 * not depend on the batch size. */
#include "metrics/golden.h"
#include "inspect/inspection_json.h"
#include "support/small_model.h"
#include <math.h>
#include <string.h>

static void check_share(const sluice_first_share *s, json_t *expected) {
    assert_close(s->all, golden_number(expected, "all"), 1e-6, "f_attn all");
    assert_close(s->from_1, golden_number(expected, "from_1"), 1e-6, "f_attn from_1");
    assert_close(s->from_4, golden_number(expected, "from_4"), 1e-6, "f_attn from_4");
    assert_close(s->from_quarter, golden_number(expected, "from_quarter"), 1e-6, "f_attn from_quarter");
}

static void relative(double found, json_t *object, const char *key) {
    double e = golden_number(object, key);
    assert_close(found, e, 1e-5 * fabs(e), key);
}

static void check_gate(const sluice_gate_stats *g, json_t *expected) {
    int64_t total = g->below + g->above, moved = 0;
    json_t *hist = json_object_get(expected, "hist");
    for (int i = 0; i < SLUICE_GATE_BINS; i++) {
        total += g->hist[i];
        moved += llabs(g->hist[i] - json_integer_value(json_array_get(hist, (size_t)i)));
    }
    assert_true(moved <= 2); /* one score in the neighbouring bin */
    assert_int_equal(g->below, json_integer_value(json_object_get(expected, "below")));
    assert_int_equal(g->above, json_integer_value(json_object_get(expected, "above")));
    relative(g->mean, expected, "mean");
    relative(g->std, expected, "std");
    relative(g->max, expected, "max");
    assert_close(g->min, golden_number(expected, "min"), 1e-6, "gate min");
    assert_close(g->below_01, golden_number(expected, "below_0.1"), 1.01 / (double)total, "below 0.1");
    assert_close(g->below_05, golden_number(expected, "below_0.5"), 1.01 / (double)total, "below 0.5");
    double mean = 0;
    for (int h = 0; h < g->heads; h++) mean += g->heads_mean[h] / g->heads;
    assert_close(mean, g->mean, 1e-9, "mean of the heads' gate means");
}

static void check_sparsity(const sluice_output_sparsity *s, json_t *expected, double one) {
    relative(s->mean_abs_before, expected, "mean_abs_before");
    relative(s->mean_abs_after, expected, "mean_abs_after");
    assert_close(s->before_2, golden_number(expected, "before_0.01"), one, "before 0.01");
    assert_close(s->after_2, golden_number(expected, "after_0.01"), one, "after 0.01");
    assert_close(s->control_2, golden_number(expected, "control_0.01"), one, "control 0.01");
    assert_close(s->before_3, golden_number(expected, "before_0.001"), one, "before 0.001");
    assert_close(s->after_3, golden_number(expected, "after_0.001"), one, "after 0.001");
    assert_close(s->control_3, golden_number(expected, "control_0.001"), one, "control 0.001");
}

static void check_layer(const sluice_inspect_layer *l, json_t *e, int64_t tokens, int head_dim) {
    check_share(&l->share, json_object_get(e, "f_attn"));
    assert_close(l->sink_rate, golden_number(e, "sink_rate_0.3"), 1e-9, "sink rate");
    json_t *residual = json_object_get(e, "residual"), *max_abs = json_object_get(e, "max_abs");
    relative(l->residual_max, residual, "max");
    relative(l->residual_median, residual, "median");
    assert_int_equal(l->residual_massive, json_integer_value(json_object_get(residual, "massive")));
    relative(l->max_attn_out, max_abs, "attn_out");
    relative(l->max_resid_attn, max_abs, "resid_attn");
    relative(l->max_ffn_out, max_abs, "ffn_out");
    relative(l->max_resid_ffn, max_abs, "resid_ffn");
    assert_close(fmax(l->peak_first, l->peak_others), l->residual_max, 0, "peaks");
    json_t *gate = json_object_get(e, "gate");
    assert_int_equal(l->gate.heads > 0, gate != NULL);
    if (gate) check_gate(&l->gate, gate);
    check_sparsity(&l->sparsity, json_object_get(e, "sparsity"), 1.01 / (double)(tokens * l->heads * head_dim));
}

static void check_golden(golden *g) {
    json_t *expected = json_object_get(g->root, "inspect"), *layers = json_object_get(expected, "layers");
    for (int batch = 1; batch <= 2; batch++) {
        sluice_inspection *r;
        sluice_inspect_params params = {.batch = batch, .other_keys = batch == 2};
        sluice_error err = {0};
        assert_ok_err(sluice_inspect(&r, g->model, g->ids, g->windows, g->seq_len, &params, &err), &err);
        assert_int_equal(r->num_layers, json_array_size(layers));
        for (int i = 0; i < r->num_layers; i++)
            check_layer(&r->layers[i], json_array_get(layers, (size_t)i), g->windows * g->seq_len,
                        sluice_model_config(g->model)->layers[i].head_dim);
        check_share(&r->share, json_object_get(expected, "f_attn_mean"));
        assert_close(r->sink_rate, golden_number(expected, "sink_rate_0.3_mean"), 1e-9, "mean sink rate");
        relative(r->m_act, expected, "m_act_mean");
        assert_int_equal(r->massive_total, json_integer_value(json_object_get(expected, "massive_total")));
        if (json_object_get(expected, "gate_mean"))
            relative(r->gate_mean, expected, "gate_mean");
        else
            assert_true(isnan(r->gate_mean));
        for (int i = 0; i < r->num_layers; i++) assert_int_equal(isnan(r->layers[i].max_other_key_share), batch == 1);
        sluice_inspection_free(r);
    }
}

static void test_golden(void **state) {
    (void)state;
    golden_each(check_golden);
}

/* The map's first column is the first-token share, its rows are distributions, other keys agree with the measure. */
static void check_map(golden *g) {
    sluice_inspection *r;
    sluice_attention_map *map;
    sluice_inspect_params params = {.other_keys = true};
    assert_ok(sluice_inspect(&r, g->model, g->ids, 1, g->seq_len, &params, NULL));
    assert_ok(sluice_attention_map_new(&map, g->model, g->ids, g->seq_len, NULL));
    int T = g->seq_len, quarter = (T + 3) / 4;
    for (int i = 0; i < r->num_layers; i++) {
        double most = 0;
        assert_int_equal(map->heads[i], r->layers[i].heads);
        for (int h = 0; h < map->heads[i]; h++) {
            const float *p = map->probs[i] + (size_t)h * T * T;
            for (int k = 0; k < quarter; k++) {
                double sum = 0;
                for (int q = quarter; q < T; q++) sum += p[q * T + k];
                if (k == 0)
                    assert_close(r->layers[i].share_heads[h].from_quarter, sum / (T - quarter), 1e-6, "share");
                else
                    most = fmax(most, sum / (T - quarter));
            }
            for (int q = 0; q < T; q++) {
                double row = 0;
                for (int k = 0; k < T; k++) row += p[q * T + k];
                assert_close(row, 1, 1e-5, "a row of the map");
                if (q + 1 < T) assert_true(p[q * T + q + 1] == 0);
            }
        }
        assert_close(r->layers[i].max_other_key_share, most, 1e-6, "other keys");
        assert_int_equal(map->gate_heads[i], r->layers[i].gate.heads);
    }
    sluice_inspection_free(r);
    sluice_attention_map_free(map);
}

static void test_map(void **state) {
    (void)state;
    golden_each(check_map);
}

static void check_json(golden *g) {
    sluice_inspection *r;
    assert_ok(sluice_inspect(&r, g->model, g->ids, g->windows, g->seq_len, NULL, NULL));
    char *text = sluice_inspection_json(r);
    json_t *found = json_loads(text, 0, NULL);
    assert_non_null(found);
    assert_int_equal(json_array_size(json_object_get(found, "layers")), r->num_layers);
    assert_true(json_number_value(json_object_get(found, "m_act_mean")) == r->m_act);
    json_t *gate = json_object_get(json_array_get(json_object_get(found, "layers"), 0), "gate");
    assert_int_equal(json_is_object(gate), r->layers[0].gate.heads > 0);
    json_decref(found);
    free(text);
    sluice_inspection_free(r);
}

static void test_json(void **state) {
    (void)state;
    golden_each(check_json);
}

static void check_refused(golden *g) {
    sluice_inspection *r;
    sluice_attention_map *map;
    sluice_error err = {0};
    assert_int_equal(sluice_inspect(&r, g->model, g->ids, 0, g->seq_len, NULL, &err), SLUICE_ERR_ARGUMENT);
    assert_null(r);
    assert_int_equal(sluice_inspect(&r, g->model, g->ids, 1, 0, NULL, &err), SLUICE_ERR_ARGUMENT);
    assert_int_equal(sluice_attention_map_new(&map, g->model, g->ids, SLUICE_MAP_MAX_TOKENS + 1, &err),
                     SLUICE_ERR_ARGUMENT);
    assert_null(map);
}

static bool stop_at_zero(void *user) { return --*(int *)user <= 0; }

/* Within one window: behind the layer after which it was asked for. */
static void test_stopped_between_layers(void **state) {
    (void)state;
    sluice_model *m = test_small_model("\"num_hidden_layers\": 4", 3);
    int32_t ids[32];
    test_random_ids(ids, 32, 96, 5);
    for (int layers = 1; layers < 8; layers += 3) {
        int left = layers;
        sluice_inspect_params p = {.measures = SLUICE_MEASURE_DEFAULT, .stop_requested = stop_at_zero, .user = &left};
        sluice_inspection *r;
        sluice_error err = {0};
        assert_int_equal(sluice_inspect(&r, m, ids, 1, 32, &p, &err), SLUICE_INTERRUPTED);
        assert_null(r);
        assert_int_equal(left, 0);
    }
    sluice_model_free(m);
}

static void test_refused(void **state) {
    (void)state;
    golden_each(check_refused);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden), cmocka_unit_test(test_map),
                                       cmocka_unit_test(test_json), cmocka_unit_test(test_refused), cmocka_unit_test(test_stopped_between_layers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
