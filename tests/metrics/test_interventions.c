/* SPDX-License-Identifier: Apache-2.0 */
/* Interventions against a transcription into PyTorch (record_interventions.py, float64): loss,
 * attention on the first token, entropy and the residual stream under every one of them; what a
 * model cannot have done to it is refused. */
#include "metrics/golden.h"
#include "sluice/inspect.h"
#include <math.h>
#include <string.h>

static sluice_intervention change_of(const json_t *o) {
    const json_t *gate = json_object_get(o, "gate");
    const char *massive = json_string_value(json_object_get(o, "massive"));
    sluice_intervention x = {.window = (int)json_integer_value(json_object_get(o, "window")),
                             .sinks = (int)json_integer_value(json_object_get(o, "sinks")),
                             .residual_clip = json_number_value(json_object_get(o, "clip"))};
    if (json_is_number(gate)) {
        x.gate = SLUICE_GATE_VALUE_OF;
        x.gate_value = json_number_value(gate);
    } else if (gate) {
        x.gate = !strcmp(json_string_value(gate), "layer") ? SLUICE_GATE_LAYER_MEAN
                                                           : SLUICE_GATE_CHANNEL_MEAN;
    }
    if (massive) x.massive = !strcmp(massive, "zero") ? SLUICE_MASSIVE_ZERO : SLUICE_MASSIVE_MEAN;
    return x;
}

static double at(const json_t *row, const char *key, int layer) {
    return json_number_value(json_array_get(json_object_get(row, key), (size_t)layer));
}

static double of_head(const json_t *row, const char *key, int layer, int head) {
    return json_number_value(
        json_array_get(json_array_get(json_object_get(row, key), (size_t)layer), (size_t)head));
}

static void check_layer(const sluice_inspect_layer *l, const json_t *row, int i) {
    assert_close(l->share.from_1, at(row, "f_attn", i), 1e-6, "first-token share");
    assert_close(l->residual_max, at(row, "max", i), 1e-5 * at(row, "max", i), "max |h|");
    double square = at(row, "mean_square", i);
    assert_close(l->places[SLUICE_PLACE_RESID_FFN].mean_square, square, 1e-5 * square,
                 "mean square");
    for (int h = 0; h < l->heads; h++) {
        assert_close(l->share_heads[h].from_1, of_head(row, "f_attn_heads", i, h), 2e-6,
                     "share of a head");
        assert_close(l->head_stats[h].entropy, of_head(row, "entropy", i, h), 1e-5,
                     "entropy of a head");
    }
}

static void check_row(golden *g, const json_t *row, const char *name) {
    sluice_intervention x = change_of(json_object_get(row, "change"));
    sluice_error err = {0};
    for (int batch = 1; batch <= 2; batch++) {
        sluice_inspect_params p = {.batch = batch, .measures = SLUICE_MEASURE_ALL, .change = &x};
        sluice_inspection *r;
        if (sluice_inspect(&r, g->model, g->ids, g->windows, g->seq_len, &p, &err) != SLUICE_OK)
            fail_msg("%s: %s", name, err.message);
        assert_close(r->loss, golden_number((json_t *)(uintptr_t)row, "loss"), 2e-5, name);
        double half = golden_number((json_t *)(uintptr_t)row, "perplexity_half");
        assert_close(r->perplexity_half, half, 3e-5 * half, name);
        for (int i = 0; i < r->num_layers; i++) check_layer(&r->layers[i], row, i);
        sluice_inspection_free(r);
    }
}

static json_t *recorded;

static void check_model(golden *g) {
    const char *name;
    json_t *row, *rows = json_object_get(recorded, g->name);
    assert_true(json_object_size(rows) > 8);
    json_object_foreach(rows, name, row) check_row(g, row, name);
}

static void test_recorded(void **state) {
    (void)state;
    sluice_error err = {0};
    assert_ok_err(sluice__json_load(&recorded, test_data("metrics/interventions.json"), &err),
                  &err);
    golden_each(check_model);
    json_decref(recorded);
}

/* A gate at its layer's mean is reported as such; the model itself has not changed afterwards. */
static void check_gate(golden *g) {
    sluice_intervention x = {.gate = SLUICE_GATE_VALUE_OF, .gate_value = 0.25};
    sluice_inspect_params p = {.measures = SLUICE_MEASURE_LIGHT | SLUICE_MEASURE_LOSS,
                               .change = &x};
    sluice_inspection *before, *forced, *after;
    sluice_error err = {0};
    bool gated = sluice_model_config(g->model)->layers[0].gate.position != SLUICE_GATE_NONE;
    sluice_status st = sluice_inspect(&forced, g->model, g->ids, g->windows, g->seq_len, &p, &err);
    if (!gated) {
        assert_int_equal(st, SLUICE_ERR_ARGUMENT);
        assert_non_null(strstr(err.message, "the model has none"));
        return;
    }
    assert_ok_err(st, &err);
    for (int i = 0; i < forced->num_layers; i++)
        assert_true(forced->layers[i].gate.min == 0.25 && forced->layers[i].gate.max == 0.25);
    sluice_inspection_free(forced);
    p.change = NULL;
    assert_ok(sluice_inspect(&before, g->model, g->ids, g->windows, g->seq_len, &p, NULL));
    assert_ok(sluice_inspect(&after, g->model, g->ids, g->windows, g->seq_len, &p, NULL));
    assert_true(before->loss == after->loss && before->gate_mean != 0.25);
    sluice_inspection_free(before);
    sluice_inspection_free(after);
}

static void test_gate(void **state) {
    (void)state;
    golden_each(check_gate);
}

static void check_refused(golden *g) {
    static const struct {
        sluice_intervention change;
        const char *said;
    } cases[] = {{{.window = -1}, "window -1"},
                 {{.sinks = 4}, "sinks need a window"},
                 {{.residual_clip = -3}, "residual_clip"},
                 {{.residual_clip = NAN}, "residual_clip"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sluice_inspect_params p = {.change = &cases[i].change};
        sluice_inspection *r;
        sluice_error err = {0};
        assert_int_equal(sluice_inspect(&r, g->model, g->ids, g->windows, g->seq_len, &p, &err),
                         SLUICE_ERR_ARGUMENT);
        assert_null(r);
        if (!strstr(err.message, cases[i].said))
            fail_msg("\"%s\" does not say \"%s\"", err.message, cases[i].said);
    }
}

static void test_refused(void **state) {
    (void)state;
    golden_each(check_refused);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_recorded), cmocka_unit_test(test_gate),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
