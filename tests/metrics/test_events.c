/* SPDX-License-Identifier: Apache-2.0 */
/* The accumulators fed by hand: readings of the first-token share, sink rate, other keys, peaks, value norms, the
 * control of sparsity, and gates that are the same for every token. */
#include "support/test_support.h"
#include "inspect/metrics.h"
#include <math.h>
#include <string.h>

enum { B = 2, H = 2, K = 1, T = 8, D = 3 };

static sluice__probe_event event(sluice__probe_point point, const float *data, int64_t b, int64_t c, int64_t d,
                                 int64_t e) {
    sluice__probe_event ev = {.point = point, .layer = 0, .data = data, .ndim = e ? 4 : 3, .shape = {b, c, d, e}};
    return ev;
}

typedef struct result {
    sluice_inspect_layer layer;
    sluice_first_share heads[H];
    double gate_heads[H], first[K], others[K];
} result;

static void finish(sluice__layer_metrics *m, result *r) {
    *r = (result){0};
    r->layer.share_heads = r->heads;
    r->layer.gate.heads_mean = r->gate_heads;
    r->layer.value_norm_first = r->first;
    r->layer.value_norm_others = r->others;
    sluice__metrics_result(m, &r->layer);
    sluice__layer_metrics_free(m);
}

static void start(sluice__layer_metrics *m, bool input_none, bool other_keys) {
    sluice_layer_spec spec = {.num_attention_heads = H, .num_key_value_heads = K, .head_dim = 2};
    spec.gate.input_none = input_none;
    assert_ok(sluice__layer_metrics_new(m, &spec, T, other_keys, NULL));
}

static void test_share(void **state) {
    (void)state;
    float p[B][H][T];
    for (int b = 0; b < B; b++)
        for (int h = 0; h < H; h++)
            for (int t = 0; t < T; t++) p[b][h][t] = t == 0 ? 1 : h == 0 ? 0.5f : 0.125f * (float)b;
    sluice__layer_metrics m;
    start(&m, false, false);
    sluice__probe_event e = event(SLUICE__PROBE_FIRST_SHARE, &p[0][0][0], B, H, T, 0);
    assert_ok(sluice__metrics_second(&m, &e, NULL));
    result r;
    finish(&m, &r);
    assert_true(fabs(r.layer.share.from_1 - (0.5 + 0.0625) / 2) < 1e-12);
    assert_true(fabs(r.layer.share.from_4 - r.layer.share.from_1) < 1e-12);
    assert_true(fabs(r.heads[0].all - (1 + 7 * 0.5) / 8) < 1e-12);
    assert_true(fabs(r.heads[1].from_quarter - 0.0625) < 1e-12);
    assert_true(fabs(r.layer.sink_rate - 0.5) < 1e-12); /* head 0 of both windows */
    assert_true(isnan(r.layer.max_other_key_share));
}

static void test_short_windows_have_no_late_reading(void **state) {
    (void)state;
    sluice_first_share u = sluice_uniform_share(64), one = sluice_uniform_share(1);
    assert_true(fabs(u.all - 0.0741) < 1e-4 && fabs(u.from_quarter - 0.0284) < 1e-4);
    assert_true(one.all == 1 && isnan(one.from_1) && isnan(one.from_quarter));
    sluice_layer_spec spec = {.num_attention_heads = 1, .num_key_value_heads = 1};
    sluice__layer_metrics m;
    assert_ok(sluice__layer_metrics_new(&m, &spec, 1, true, NULL));
    float p = 1;
    sluice__probe_event e = event(SLUICE__PROBE_FIRST_SHARE, &p, 1, 1, 1, 0);
    assert_ok(sluice__metrics_second(&m, &e, NULL));
    result r;
    finish(&m, &r);
    assert_true(r.layer.share.all == 1 && isnan(r.layer.share.from_1) && isnan(r.layer.peak_others));
}

static void test_other_keys(void **state) {
    (void)state;
    float p[1][H][T][T] = {0};
    for (int q = 2; q < T; q++) p[0][0][q][0] = 0.6f, p[0][0][q][1] = 0.2f, p[0][1][q][1] = 0.3f, p[0][0][q][2] = 0.9f;
    sluice__layer_metrics m;
    start(&m, false, true);
    float share[H][T] = {{0}};
    sluice__probe_event s = event(SLUICE__PROBE_FIRST_SHARE, &share[0][0], 1, H, T, 0);
    sluice__probe_event e = event(SLUICE__PROBE_ATTN_PROBS, &p[0][0][0][0], 1, H, T, T);
    assert_ok(sluice__metrics_second(&m, &s, NULL));
    assert_ok(sluice__metrics_second(&m, &e, NULL));
    result r;
    finish(&m, &r);
    assert_true(fabs(r.layer.max_other_key_share - 0.3) < 1e-7); /* key 2 is not before all counted queries */
}

static void test_residual_and_values(void **state) {
    (void)state;
    float h[B][T][D], v[B][T][K];
    for (int b = 0; b < B; b++)
        for (int t = 0; t < T; t++) {
            for (int d = 0; d < D; d++) h[b][t][d] = 0.1f;
            v[b][t][0] = t ? 2.0f : 0.5f * (float)b;
        }
    h[0][0][1] = -500;
    h[1][0][2] = 50;
    h[1][5][0] = 7;
    sluice__layer_metrics m;
    start(&m, false, false);
    sluice__probe_event e = event(SLUICE__PROBE_RESID_FFN, &h[0][0][0], B, T, D, 0);
    sluice__probe_event n = event(SLUICE__PROBE_VALUE_NORM, &v[0][0][0], B, T, K, 0);
    assert_ok(sluice__metrics_first(&m, &e, NULL));
    sluice__metrics_between(&m);
    assert_ok(sluice__metrics_second(&m, &e, NULL));
    assert_ok(sluice__metrics_second(&m, &n, NULL));
    result r;
    finish(&m, &r);
    assert_true(r.layer.residual_max == 500 && r.layer.residual_top3[1] == 50 && r.layer.residual_top3[2] == 7);
    assert_true(r.layer.residual_median == 0.1f && r.layer.residual_massive == 1);
    assert_true(r.layer.peak_first == 500 && r.layer.peak_others == 7);
    assert_true(fabs(r.first[0] - 0.25) < 1e-12 && fabs(r.others[0] - 2) < 1e-12);
}

static void test_bad_residual_names_the_layer(void **state) {
    (void)state;
    float h[D] = {1, NAN, 1};
    sluice__layer_metrics m;
    start(&m, false, false);
    sluice__probe_event e = event(SLUICE__PROBE_RESID_FFN, h, 1, 1, D, 0);
    e.layer = 4;
    sluice_error err = {0};
    assert_int_equal(sluice__metrics_first(&m, &e, &err), SLUICE_ERR_NUMERIC);
    assert_non_null(strstr(err.message, "layer 4"));
    sluice__layer_metrics_free(&m);
}

static void feed_gate(sluice__layer_metrics *m, const float *g, int64_t t, int64_t n, int64_t w, const float *y,
                      const float *after) {
    sluice__probe_event gate = event(SLUICE__PROBE_GATE, g, 1, t, n, w);
    sluice__probe_event before = event(SLUICE__PROBE_SDPA, y, 1, t, H, 2);
    sluice__probe_event gated = event(SLUICE__PROBE_SDPA_GATED, after, 1, t, H, 2);
    assert_ok(sluice__metrics_first(m, &gate, NULL));
    sluice__metrics_between(m);
    assert_ok(sluice__metrics_second(m, &before, NULL));
    assert_ok(sluice__metrics_second(m, &gate, NULL));
    assert_ok(sluice__metrics_second(m, &gated, NULL));
}

static void test_gate(void **state) {
    (void)state;
    float g[2][H][1] = {{{0.0f}, {1.0f}}, {{0.05f}, {0.35f}}};
    float y[2][H][2] = {{{1, 0.02f}, {0.02f, 0.005f}}, {{-1, 1}, {1, 1}}}, after[2][H][2] = {{{0}}};
    sluice__layer_metrics m;
    start(&m, false, false);
    feed_gate(&m, &g[0][0][0], 2, H, 1, &y[0][0][0], &after[0][0][0]);
    result r;
    finish(&m, &r);
    double mean = ((double)0.05f + (double)0.35f + 1) / 4;
    assert_true(fabs(r.layer.gate.mean - mean) < 1e-12 && r.layer.gate.heads == H);
    assert_true(fabs(r.gate_heads[0] - (double)0.05f / 2) < 1e-12);
    assert_true(r.layer.gate.min == 0 && r.layer.gate.max == 1 && r.layer.gate.below_01 == 0.5);
    assert_int_equal(r.layer.gate.hist[0], 1);
    assert_int_equal(r.layer.gate.hist[1], 1);
    assert_int_equal(r.layer.gate.hist[19], 1);
    assert_true(r.layer.sparsity.before_2 == 1.0 / 8 && r.layer.sparsity.after_2 == 1);
    assert_true(r.layer.sparsity.control_2 == 3.0 / 8); /* 0.02 * 0.35 and 0.005 * 0.35 */
}

static void test_gate_without_input_counts_once(void **state) {
    (void)state;
    float g[3][H][1] = {{{0.2f}, {0.6f}}, {{0.2f}, {0.6f}}, {{0.2f}, {0.6f}}}, y[3][H][2] = {{{0}}};
    sluice__layer_metrics m;
    start(&m, true, false);
    feed_gate(&m, &g[0][0][0], 3, H, 1, &y[0][0][0], &y[0][0][0]);
    feed_gate(&m, &g[0][0][0], 3, H, 1, &y[0][0][0], &y[0][0][0]);
    result r;
    finish(&m, &r);
    assert_int_equal(r.layer.gate.hist[4] + r.layer.gate.hist[3], 1);
    assert_int_equal(r.layer.gate.hist[12] + r.layer.gate.hist[11], 1);
    assert_true(fabs(r.layer.gate.mean - 0.4) < 1e-7);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_share),
                                       cmocka_unit_test(test_short_windows_have_no_late_reading),
                                       cmocka_unit_test(test_other_keys),
                                       cmocka_unit_test(test_residual_and_values),
                                       cmocka_unit_test(test_bad_residual_names_the_layer),
                                       cmocka_unit_test(test_gate),
                                       cmocka_unit_test(test_gate_without_input_counts_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
