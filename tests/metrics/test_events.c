/* SPDX-License-Identifier: Apache-2.0 */
/* The accumulators fed by hand: readings of the first-token share, sink rate, other keys, peaks,
 * value norms, the control of sparsity, and gates that are the same for every token. */
#include "support/test_support.h"
#include "inspect/metrics.h"
#include <math.h>
#include <string.h>

enum { B = 2, H = 2, K = 1, T = 8, D = 3 };

static sluice__probe_event event(sluice__probe_point point, const float *data, int64_t b, int64_t c,
                                 int64_t d, int64_t e) {
    sluice__probe_event ev = {
        .point = point, .layer = 0, .data = data, .ndim = e ? 4 : 3, .shape = {b, c, d, e}};
    return ev;
}

typedef struct result {
    sluice_inspect_layer layer;
    sluice_first_share heads[H];
    sluice_head_stats stats[H];
    double gate_heads[H], gate_std[H], gate_min[H], gate_max[H], gate_below[H], queries[T];
    int64_t gate_hist[H * SLUICE_GATE_BINS];
    double learned[H];
    double first[K], others[K], key_first[K], key_others[K];
} result;

static void finish(sluice__layer_metrics *m, result *r) {
    *r = (result){0};
    r->layer.share_heads = r->heads;
    r->layer.head_stats = r->stats;
    r->layer.share_queries = r->queries;
    r->layer.learned_sink = r->learned;
    r->layer.gate.heads_mean = r->gate_heads;
    r->layer.gate.heads_std = r->gate_std;
    r->layer.gate.heads_min = r->gate_min;
    r->layer.gate.heads_max = r->gate_max;
    r->layer.gate.heads_below_01 = r->gate_below;
    r->layer.gate.heads_hist = r->gate_hist;
    r->layer.key_norm_first = r->key_first;
    r->layer.key_norm_others = r->key_others;
    r->layer.value_norm_first = r->first;
    r->layer.value_norm_others = r->others;
    sluice__metrics_result(m, &r->layer);
    sluice__layer_metrics_free(m);
}

static void start(sluice__layer_metrics *m, bool input_none, bool other_keys) {
    sluice_layer_spec spec = {.num_attention_heads = H, .num_key_value_heads = K, .head_dim = 2};
    sluice__measuring ask = {
        .seq_len = T, .measures = SLUICE_MEASURE_DEFAULT, .other_keys = other_keys};
    spec.gate.input_none = input_none;
    assert_ok(sluice__layer_metrics_new(m, &spec, &ask, NULL));
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
    assert_ok(sluice__metrics_first(&m, &e, NULL));
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
    sluice__measuring ask = {.seq_len = 1, .measures = SLUICE_MEASURE_ALL, .other_keys = true};
    assert_ok(sluice__layer_metrics_new(&m, &spec, &ask, NULL));
    float p = 1;
    sluice__probe_event e = event(SLUICE__PROBE_FIRST_SHARE, &p, 1, 1, 1, 0);
    assert_ok(sluice__metrics_first(&m, &e, NULL));
    result r;
    finish(&m, &r);
    assert_true(r.layer.share.all == 1 && isnan(r.layer.share.from_1) &&
                isnan(r.layer.peak_others));
}

/* Feeds a map in two blocks of rows. */
static void feed_rows(sluice__layer_metrics *m, const float *map, const float *entropy,
                      const int32_t *ids, const uint8_t *marks) {
    static int32_t earlier[T];
    static sluice__row_tokens tokens;
    float block[H][T][T], nats[H][T];
    assert_ok(sluice__find_earlier(earlier, ids, 1, T, NULL));
    tokens = (sluice__row_tokens){T, earlier, marks};
    m->tokens = &tokens;
    for (int first = 0; first < T; first += 5) {
        int rows = T - first < 5 ? T - first : 5, keys = first + rows;
        float *to = &block[0][0][0];
        for (int h = 0; h < H; h++)
            for (int r = 0; r < rows; r++) {
                (&nats[0][0])[h * rows + r] = entropy[h * T + first + r];
                for (int k = 0; k < keys; k++) *to++ = map[(h * T + first + r) * T + k];
            }
        sluice__probe_event e = event(SLUICE__PROBE_ATTN_ROWS, &block[0][0][0], H, rows, keys, 0);
        e.first_query = first;
        e.entropy = &nats[0][0];
        assert_ok(sluice__metrics_first(m, &e, NULL));
    }
}

static void test_other_keys(void **state) {
    (void)state;
    float p[H][T][T] = {0}, entropy[H][T] = {{0}};
    int32_t ids[T] = {0, 1, 2, 3, 4, 5, 6, 7};
    for (int q = 2; q < T; q++)
        p[0][q][0] = 0.6f, p[0][q][1] = 0.2f, p[1][q][1] = 0.3f, p[0][q][2] = 0.9f;
    sluice__layer_metrics m;
    start(&m, false, true);
    feed_rows(&m, &p[0][0][0], &entropy[0][0], ids, NULL);
    result r;
    finish(&m, &r);
    assert_true(fabs(r.layer.max_other_key_share - 0.3) <
                1e-7); /* key 2 is not before all counted queries */
}

/* Every weight at one key: which of the head's scores it counts for. */
static void test_head_stats(void **state) {
    (void)state;
    float p[H][T][T] = {0}, entropy[H][T];
    int32_t ids[T] = {5, 6, 5, 7, 6, 5, 8, 8}; /* repeats at 2, 4, 5, 7 */
    uint8_t marks[T] = {0, 1, 0, 0, 0, 0, 0, 0};
    for (int q = 0; q < T; q++) {
        p[0][q][q ? q - 1 : 0] = 1; /* previous token */
        for (int k = 0; k <= q; k++) p[1][q][k] = 1.0f / (float)(q + 1);
        entropy[0][q] = 0;
        entropy[1][q] = logf((float)(q + 1));
    }
    sluice__layer_metrics m;
    start(&m, false, true);
    feed_rows(&m, &p[0][0][0], &entropy[0][0], ids, marks);
    result r;
    finish(&m, &r);
    const sluice_head_stats *a = &r.stats[0], *b = &r.stats[1];
    assert_true(a->previous == 1 && a->self == 0 && a->distance == 1 && a->entropy == 0);
    assert_true(fabs(a->marked - 1.0 / 7) < 1e-6); /* query 2 alone looks at key 1 */
    assert_true(fabs(a->duplicate - 1.0 / 4) < 1e-6 &&
                fabs(a->induction - 1.0 / 4) <
                    1e-6); /* 7 sees the 8 before, 2 what came behind the 5 */
    assert_true(fabs(b->entropy_share - 1) < 1e-6 && fabs(b->distance - 2) < 1e-6);
    /* queries 2, 4, 5, 7 have 1, 1, 2, 1 earlier occurrences */
    double matched = (1.0 / 3 + 1.0 / 5 + 2.0 / 6 + 1.0 / 8) / 4;
    assert_true(fabs(b->duplicate - matched) < 1e-6 && fabs(b->induction - matched) < 1e-6);
    assert_true(fabs(r.layer.duplicate_queries - 4.0 / 7) < 1e-12);
    double sum = 0;
    for (int i = 0; i < SLUICE_DISTANCE_BINS; i++) sum += r.layer.distance[i];
    assert_true(fabs(sum - 1) < 1e-6);
    /* distance 2-3: nothing of head 0, of head 1 one key of query 2 and two of later ones */
    double far = (1.0 / 3 + 2.0 / 4 + 2.0 / 5 + 2.0 / 6 + 2.0 / 7 + 2.0 / 8) / 7 / 2;
    assert_true(fabs(r.layer.distance[2] - far) < 1e-6);
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
    m.window = 10;
    assert_ok(sluice__metrics_first(&m, &e, NULL));
    assert_ok(sluice__metrics_first(&m, &n, NULL));
    assert_ok(sluice__metrics_between(&m, NULL));
    sluice__metrics_second(&m, &e);
    result r;
    finish(&m, &r);
    assert_true(r.layer.residual_max == 500 && r.layer.residual_top3[1] == 50 &&
                r.layer.residual_top3[2] == 7);
    assert_true(r.layer.residual_median == 0.1f && r.layer.residual_massive == 1);
    assert_true(r.layer.peak_first == 500 && r.layer.peak_others == 7);
    const sluice_peak *top = r.layer.places[SLUICE_PLACE_RESID_FFN].top;
    assert_true(top[0].value == -500 && top[0].window == 10 && top[0].position == 0 &&
                top[0].channel == 1);
    assert_true(top[2].value == 7 && top[2].window == 11 && top[2].position == 5 &&
                top[2].channel == 0);
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

static void feed_gate(sluice__layer_metrics *m, const float *g, int64_t t, int64_t n, int64_t w,
                      const float *y, const float *after) {
    sluice__probe_event gate = event(SLUICE__PROBE_GATE, g, 1, t, n, w);
    sluice__probe_event before = event(SLUICE__PROBE_SDPA, y, 1, t, H, 2);
    sluice__probe_event gated = event(SLUICE__PROBE_SDPA_GATED, after, 1, t, H, 2);
    assert_ok(sluice__metrics_first(m, &before, NULL));
    assert_ok(sluice__metrics_first(m, &gated, NULL));
    assert_ok(sluice__metrics_first(m, &gate, NULL));
    assert_ok(sluice__metrics_between(m, NULL));
    sluice__metrics_second(m, &before);
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
    assert_int_equal(r.gate_hist[0] + r.gate_hist[1], 2);
    assert_true(r.gate_min[1] == 0.35f && r.gate_max[1] == 1 && r.gate_below[0] == 1 &&
                r.gate_below[1] == 0);
    assert_true(fabs(r.gate_std[1] - (1 - (double)0.35f) / 2) < 1e-7);
    assert_true(r.layer.gate.quantiles[3] > 0.049 &&
                r.layer.gate.quantiles[3] < 0.051); /* the second of four */
    assert_true(r.layer.gate.quantiles[6] <= 1 && r.layer.gate.quantiles[6] > 0.99);
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
                                       cmocka_unit_test(test_head_stats),
                                       cmocka_unit_test(test_residual_and_values),
                                       cmocka_unit_test(test_bad_residual_names_the_layer),
                                       cmocka_unit_test(test_gate),
                                       cmocka_unit_test(test_gate_without_input_counts_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
