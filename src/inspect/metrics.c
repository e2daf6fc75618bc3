/* SPDX-License-Identifier: Apache-2.0 */
/* Definitions of the measures, one function a probe point. Sources: attention share and sink rate,
 * Gu et al. 2024 and Qiu et al. 2025 section 4.3; massive activations, Sun et al. 2024; gate scores
 * and sparsity, Qiu et al. section 4.2.
 */
#include "inspect/metrics.h"
#include "base/memory.h"
#include <assert.h>
#include <math.h>
#include <string.h>

enum { VALUE_FIRST, VALUE_OTHERS, KEY_FIRST, KEY_OTHERS };

static int quarter_of(int seq_len) {
    return (seq_len + 3) / 4;
}

/* First query of each reading, in the order all, from_1, from_4, from_quarter. */
static int first_query(int reading, int seq_len) {
    static const int fixed[] = {0, 1, 4};
    return reading < 3 ? fixed[reading] : quarter_of(seq_len);
}

int sluice__query_bins(int seq_len) {
    return seq_len < SLUICE_QUERY_BINS ? seq_len : SLUICE_QUERY_BINS;
}

sluice_first_share sluice_uniform_share(int seq_len) {
    double mean[SLUICE__READINGS];
    for (int r = 0; r < SLUICE__READINGS; r++) {
        double sum = 0;
        int from = first_query(r, seq_len);
        for (int q = from; q < seq_len; q++) sum += 1.0 / (q + 1);
        mean[r] = from < seq_len ? sum / (seq_len - from) : NAN;
    }
    return (sluice_first_share){mean[0], mean[1], mean[2], mean[3]};
}

static bool wants(const sluice__measuring *ask, uint32_t measure) {
    return (ask->measures & measure) != 0;
}

static double *doubles(size_t count) {
    return sluice__calloc(count, sizeof(double), SLUICE__MEM_OTHER);
}

static bool new_arrays(sluice__layer_metrics *m) {
    m->share_sum = doubles((size_t)m->heads * SLUICE__READINGS);
    m->query_share = doubles((size_t)sluice__query_bins(m->ask.seq_len));
    m->load = doubles((size_t)m->experts);
    m->learned_sum = doubles((size_t)m->heads);
    for (int i = 0; i < 2; i++) m->delta_sum[i] = doubles((size_t)m->delta_heads);
    for (int i = 0; i < 4; i++) m->norm[i] = doubles((size_t)m->kv_heads);
    return m->learned_sum && m->delta_sum[0] && m->delta_sum[1] && m->share_sum && m->query_share &&
           m->load && m->norm[0] && m->norm[1] && m->norm[2] && m->norm[3];
}

sluice_status sluice__layer_metrics_new(sluice__layer_metrics *m, const sluice_layer_spec *spec,
                                        const sluice__measuring *ask, sluice_error *err) {
    bool linear = sluice_layer_is_linear(spec);
    *m = (sluice__layer_metrics){.ask = *ask,
                                 .heads = linear ? 0 : spec->num_attention_heads,
                                 .kv_heads = linear ? 0 : spec->num_key_value_heads,
                                 .delta_heads = spec->delta.num_value_heads,
                                 .delta_min = {INFINITY, INFINITY},
                                 .delta_max = {-INFINITY, -INFINITY},
                                 .experts = spec->moe.num_experts,
                                 .gate.once = spec->gate.input_none};
    sluice_status st = new_arrays(m)
                           ? SLUICE_OK
                           : sluice__no_memory(err, (size_t)m->heads * 64, "layer statistics");
    bool rows = wants(ask, SLUICE_MEASURE_ROWS) || ask->other_keys;
    if (st == SLUICE_OK && rows)
        st = sluice__rows_new(&m->rows, m->heads, ask->seq_len,
                              ask->other_keys ? quarter_of(ask->seq_len) : 0, err);
    for (int i = 0; st == SLUICE_OK && i < SLUICE_PLACES; i++)
        st = sluice__place_new(&m->places[i], wants(ask, SLUICE_MEASURE_MEDIANS), err);
    if (st != SLUICE_OK) sluice__layer_metrics_free(m);
    return st;
}

void sluice__layer_metrics_free(sluice__layer_metrics *m) {
    for (int i = 0; i < SLUICE_PLACES; i++) sluice__place_free(&m->places[i]);
    for (int i = 0; i < 4; i++) sluice__free(m->norm[i]);
    sluice__gate_free(&m->gate);
    sluice__rows_free(&m->rows);
    sluice__free(m->share_sum);
    sluice__free(m->query_share);
    sluice__free(m->load);
    sluice__free(m->learned_sum);
    sluice__free(m->delta_sum[0]);
    sluice__free(m->delta_sum[1]);
    *m = (sluice__layer_metrics){0};
}

#define BIT(point) (1u << SLUICE__PROBE_##point)

static const uint32_t place_bits = BIT(ATTN_OUT) | BIT(RESID_ATTN) | BIT(FFN_OUT) | BIT(RESID_FFN);
static const uint32_t input_bits = BIT(ATTN_IN) | BIT(SDPA_GATED) | BIT(FFN_IN) | BIT(FFN_ACT);

static uint32_t first_wants(const sluice__measuring *a) {
    uint32_t bits = 0;
    if (wants(a, SLUICE_MEASURE_SHARE)) bits |= BIT(FIRST_SHARE) | BIT(SINK_SHARE);
    if (wants(a, SLUICE_MEASURE_NORMS)) bits |= place_bits | BIT(VALUE_NORM) | BIT(KEY_NORM);
    if (wants(a, SLUICE_MEASURE_MEDIANS)) bits |= place_bits;
    if (wants(a, SLUICE_MEASURE_GATES | SLUICE_MEASURE_SPARSITY) || a->channels) bits |= BIT(GATE);
    if (wants(a, SLUICE_MEASURE_SPARSITY)) bits |= BIT(SDPA) | BIT(SDPA_GATED);
    if (wants(a, SLUICE_MEASURE_ROUTER))
        bits |= BIT(ROUTER) | BIT(EXPERTS) | BIT(DELTA_DECAY) | BIT(DELTA_BETA);
    if (wants(a, SLUICE_MEASURE_ROWS) || a->other_keys) bits |= BIT(ATTN_ROWS);
    if (wants(a, SLUICE_MEASURE_INT8)) bits |= input_bits;
    return bits;
}

static uint32_t second_wants(const sluice__measuring *a) {
    uint32_t bits = 0;
    if (wants(a, SLUICE_MEASURE_MEDIANS)) bits |= place_bits;
    if (wants(a, SLUICE_MEASURE_SPARSITY)) bits |= BIT(SDPA);
    if (wants(a, SLUICE_MEASURE_INT8)) bits |= input_bits;
    return bits;
}

uint32_t sluice__metrics_wants(const sluice__measuring *ask, bool second) {
    return second ? second_wants(ask) : first_wants(ask);
}

/* [B,H,T] */
static void add_share(sluice__layer_metrics *m, const sluice__probe_event *e) {
    int64_t batch = e->shape[0], heads = e->shape[1], len = e->shape[2];
    int bins = sluice__query_bins(m->ask.seq_len);
    assert(heads == m->heads && len == m->ask.seq_len);
    for (int64_t row = 0; row < batch * heads; row++) {
        const float *p = e->data + row * len;
        double *sum = m->share_sum + row % heads * SLUICE__READINGS, whole = 0, early = 0;
        for (int64_t q = 0; q < len; q++) {
            whole += p[q];
            if (q < SLUICE_SINK_TOKENS) early += p[q];
            m->query_share[q * bins / len] += p[q];
        }
        sum[0] += whole;
        for (int r = 1; r < SLUICE__READINGS; r++)
            for (int64_t q = first_query(r, m->ask.seq_len); q < len; q++) sum[r] += p[q];
        m->sink_pairs += whole / (double)len > SLUICE_SINK_THRESHOLD;
        m->sink_pairs_64 += early / SLUICE_SINK_TOKENS > SLUICE_SINK_THRESHOLD;
    }
    m->sequences += batch;
}

/* [B,H,T] weight of the learned sink */
static void add_learned(sluice__layer_metrics *m, const sluice__probe_event *e) {
    int64_t heads = e->shape[1], len = e->shape[2];
    for (int64_t row = 0; row < e->shape[0] * heads; row++)
        for (int64_t q = 1; q < len; q++) m->learned_sum[row % heads] += e->data[row * len + q];
    m->learned_queries += e->shape[0] * (len - 1);
}

static sluice_status add_place(sluice__layer_metrics *m, const sluice__probe_event *e,
                               sluice_place place, sluice_error *err) {
    int64_t len = e->shape[1];
    if (sluice__place_add(&m->places[place], e->data, e->shape[0] * len, e->shape[2], (int)len,
                          m->window))
        return SLUICE_OK;
    return sluice__fail(err, SLUICE_ERR_NUMERIC, "layer %d: the residual stream is not finite",
                        e->layer);
}

/* [B,T,K] */
static void add_norm(sluice__layer_metrics *m, const sluice__probe_event *e, double *first,
                     double *others) {
    int64_t len = e->shape[1], heads = e->shape[2];
    bool values = e->point == SLUICE__PROBE_VALUE_NORM;
    assert(heads == m->kv_heads);
    for (int64_t t = 0; t < e->shape[0] * len; t++) {
        double *sum = t % len == 0 ? first : others;
        for (int64_t h = 0; h < heads; h++) sum[h] += e->data[t * heads + h];
        if (values) *(t % len == 0 ? &m->tokens_first : &m->tokens_others) += 1;
    }
}

static void add_gated_output(sluice__layer_metrics *m, const sluice__probe_event *e) {
    if (wants(&m->ask, SLUICE_MEASURE_SPARSITY)) sluice__output_add(m, e, true);
    if (wants(&m->ask, SLUICE_MEASURE_INT8)) sluice__input_add(m, e, SLUICE_INPUT_O, false);
}

static sluice_status add_stream(sluice__layer_metrics *m, const sluice__probe_event *e,
                                sluice_error *err) {
    switch (e->point) {
    case SLUICE__PROBE_ATTN_OUT:
        return add_place(m, e, SLUICE_PLACE_ATTN_OUT, err);
    case SLUICE__PROBE_RESID_ATTN:
        return add_place(m, e, SLUICE_PLACE_RESID_ATTN, err);
    case SLUICE__PROBE_FFN_OUT:
        return add_place(m, e, SLUICE_PLACE_FFN_OUT, err);
    case SLUICE__PROBE_RESID_FFN:
        return add_place(m, e, SLUICE_PLACE_RESID_FFN, err);
    default:
        return SLUICE_OK;
    }
}

sluice_status sluice__metrics_first(sluice__layer_metrics *m, const sluice__probe_event *e,
                                    sluice_error *err) {
    switch (e->point) {
    case SLUICE__PROBE_FIRST_SHARE:
        add_share(m, e);
        break;
    case SLUICE__PROBE_SINK_SHARE:
        add_learned(m, e);
        break;
    case SLUICE__PROBE_DELTA_DECAY:
    case SLUICE__PROBE_DELTA_BETA:
        sluice__delta_add(m, e);
        break;
    case SLUICE__PROBE_ATTN_ROWS:
        sluice__rows_add(&m->rows, e, m->tokens);
        break;
    case SLUICE__PROBE_VALUE_NORM:
        add_norm(m, e, m->norm[VALUE_FIRST], m->norm[VALUE_OTHERS]);
        break;
    case SLUICE__PROBE_KEY_NORM:
        add_norm(m, e, m->norm[KEY_FIRST], m->norm[KEY_OTHERS]);
        break;
    case SLUICE__PROBE_GATE:
        return sluice__gate_add(&m->gate, e, m->ask.channels, err);
    case SLUICE__PROBE_SDPA:
        sluice__output_add(m, e, false);
        break;
    case SLUICE__PROBE_SDPA_GATED:
        add_gated_output(m, e);
        break;
    case SLUICE__PROBE_ROUTER:
    case SLUICE__PROBE_EXPERTS:
        sluice__router_add(m, e);
        break;
    case SLUICE__PROBE_ATTN_IN:
        sluice__input_add(m, e, SLUICE_INPUT_QKV, false);
        break;
    case SLUICE__PROBE_FFN_IN:
        sluice__input_add(m, e, SLUICE_INPUT_UP, false);
        break;
    case SLUICE__PROBE_FFN_ACT:
        sluice__input_add(m, e, SLUICE_INPUT_DOWN, false);
        break;
    default:
        return add_stream(m, e, err);
    }
    return SLUICE_OK;
}

sluice_status sluice__metrics_between(sluice__layer_metrics *m, sluice_error *err) {
    for (int i = 0; i < SLUICE_PLACES; i++)
        if (m->places[i].medians) SLUICE__TRY(sluice__magnitudes_plan(&m->places[i].sizes, err));
    return SLUICE_OK;
}

static void second_place(sluice__layer_metrics *m, const sluice__probe_event *e,
                         sluice_place place) {
    sluice__magnitudes_second(&m->places[place].sizes, e->data,
                              e->shape[0] * e->shape[1] * e->shape[2]);
}

void sluice__metrics_second(sluice__layer_metrics *m, const sluice__probe_event *e) {
    switch (e->point) {
    case SLUICE__PROBE_ATTN_OUT:
        second_place(m, e, SLUICE_PLACE_ATTN_OUT);
        break;
    case SLUICE__PROBE_RESID_ATTN:
        second_place(m, e, SLUICE_PLACE_RESID_ATTN);
        break;
    case SLUICE__PROBE_FFN_OUT:
        second_place(m, e, SLUICE_PLACE_FFN_OUT);
        break;
    case SLUICE__PROBE_RESID_FFN:
        second_place(m, e, SLUICE_PLACE_RESID_FFN);
        break;
    case SLUICE__PROBE_SDPA:
        sluice__output_control(m, e);
        break;
    case SLUICE__PROBE_ATTN_IN:
        sluice__input_add(m, e, SLUICE_INPUT_QKV, true);
        break;
    case SLUICE__PROBE_SDPA_GATED:
        sluice__input_add(m, e, SLUICE_INPUT_O, true);
        break;
    case SLUICE__PROBE_FFN_IN:
        sluice__input_add(m, e, SLUICE_INPUT_UP, true);
        break;
    case SLUICE__PROBE_FFN_ACT:
        sluice__input_add(m, e, SLUICE_INPUT_DOWN, true);
        break;
    default:
        break;
    }
}

static double ratio(double a, int64_t b) {
    return b ? a / (double)b : NAN;
}

static sluice_first_share share_of(const double *sum, double rows, int seq_len) {
    double mean[SLUICE__READINGS];
    for (int r = 0; r < SLUICE__READINGS; r++) {
        int queries = seq_len - first_query(r, seq_len);
        mean[r] = queries > 0 && rows > 0 ? sum[r] / (rows * queries) : NAN;
    }
    return (sluice_first_share){mean[0], mean[1], mean[2], mean[3]};
}

static void share_result(const sluice__layer_metrics *m, sluice_inspect_layer *out) {
    double total[SLUICE__READINGS] = {0}, rows = (double)m->sequences;
    int len = m->ask.seq_len, bins = sluice__query_bins(len);
    for (int h = 0; h < m->heads; h++) {
        const double *sum = m->share_sum + h * SLUICE__READINGS;
        out->share_heads[h] = share_of(sum, rows, len);
        for (int r = 0; r < SLUICE__READINGS; r++) total[r] += sum[r];
    }
    out->share = share_of(total, rows * m->heads, len);
    out->sink_rate = ratio((double)m->sink_pairs, m->sequences * m->heads);
    out->sink_rate_64 =
        len < SLUICE_SINK_TOKENS ? NAN : ratio((double)m->sink_pairs_64, m->sequences * m->heads);
    for (int i = 0; i < bins; i++) {
        /* queries q with q * bins / len == i */
        int64_t begin = ((int64_t)i * len + bins - 1) / bins,
                end = ((int64_t)(i + 1) * len + bins - 1) / bins;
        out->share_queries[i] = ratio(m->query_share[i], (end - begin) * m->sequences * m->heads);
    }
}

static void place_result(const sluice__layer_metrics *m, sluice_inspect_layer *out) {
    for (int i = 0; i < SLUICE_PLACES; i++) out->places[i] = sluice__place_result(&m->places[i]);
    const sluice_place_stats *residual = &out->places[SLUICE_PLACE_RESID_FFN];
    out->residual_max = residual->max;
    for (int i = 0; i < 3; i++) out->residual_top3[i] = fabs(residual->top[i].value);
    out->residual_median = residual->median;
    out->residual_massive = residual->massive;
    out->peak_first = residual->max_first;
    out->peak_others = m->ask.seq_len > 1 ? residual->max_others : NAN;
    out->max_attn_out = out->places[SLUICE_PLACE_ATTN_OUT].max;
    out->max_resid_attn = out->places[SLUICE_PLACE_RESID_ATTN].max;
    out->max_ffn_out = out->places[SLUICE_PLACE_FFN_OUT].max;
    out->max_resid_ffn = residual->max;
}

static void row_result(const sluice__layer_metrics *m, sluice_inspect_layer *out) {
    double none[SLUICE_DISTANCE_BINS] = {0};
    memcpy(out->distance, none, sizeof none);
    out->max_other_key_share = out->duplicate_queries = out->induction_queries = NAN;
    if (m->rows.head && m->heads) {
        sluice__rows_result(&m->rows, out);
        return;
    }
    for (int h = 0; h < m->heads; h++)
        out->head_stats[h] = (sluice_head_stats){NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN};
    for (int i = 0; i < SLUICE_DISTANCE_BINS; i++) out->distance[i] = NAN;
}

void sluice__metrics_result(const sluice__layer_metrics *m, sluice_inspect_layer *out) {
    out->heads = m->heads;
    out->kv_heads = m->kv_heads;
    share_result(m, out);
    place_result(m, out);
    row_result(m, out);
    for (int h = 0; h < m->kv_heads; h++) {
        out->value_norm_first[h] = ratio(m->norm[VALUE_FIRST][h], m->tokens_first);
        out->value_norm_others[h] = ratio(m->norm[VALUE_OTHERS][h], m->tokens_others);
        out->key_norm_first[h] = ratio(m->norm[KEY_FIRST][h], m->tokens_first);
        out->key_norm_others[h] = ratio(m->norm[KEY_OTHERS][h], m->tokens_others);
    }
    sluice__gate_result(&m->gate, &out->gate);
    out->sparsity = sluice__output_result(m);
    sluice__router_result(m, &out->router);
    sluice__delta_result(m, &out->delta);
    for (int h = 0; h < m->heads; h++)
        out->learned_sink[h] = ratio(m->learned_sum[h], m->learned_queries);
    for (int i = 0; i < SLUICE_INPUTS; i++) out->input_error[i] = sluice__input_result(m, i);
}
