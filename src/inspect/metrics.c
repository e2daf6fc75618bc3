/* SPDX-License-Identifier: Apache-2.0 */
/* Definitions of the measures, one function a probe point. Sources: attention share and sink rate, Gu et al. 2024 and
 * Qiu et al. 2025 section 4.3; massive activations, Sun et al. 2024; gate scores and sparsity, Qiu et al. section 4.2.
 */
#include "inspect/metrics.h"
#include "base/memory.h"
#include <assert.h>
#include <math.h>
#include <string.h>

static const double thresholds[SLUICE__THRESHOLDS] = {1e-2, 1e-3};

static int quarter_of(int seq_len) { return (seq_len + 3) / 4; }

/* First query of each reading, in the order all, from_1, from_4, from_quarter. */
static int first_query(int reading, int seq_len) {
    static const int fixed[] = {0, 1, 4};
    return reading < 3 ? fixed[reading] : quarter_of(seq_len);
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

static double *doubles(size_t count) { return sluice__calloc(count, sizeof(double), SLUICE__MEM_OTHER); }

sluice_status sluice__layer_metrics_new(sluice__layer_metrics *m, const sluice_layer_spec *spec, int seq_len,
                                        bool other_keys, sluice_error *err) {
    *m = (sluice__layer_metrics){.heads = spec->num_attention_heads,
                                 .kv_heads = spec->num_key_value_heads,
                                 .seq_len = seq_len,
                                 .gate_once = spec->gate.input_none,
                                 .gate_min = INFINITY,
                                 .gate_max = -INFINITY};
    size_t keys = (size_t)quarter_of(seq_len);
    m->share_sum = doubles((size_t)m->heads * SLUICE__READINGS);
    m->value_first = doubles((size_t)m->kv_heads);
    m->value_others = doubles((size_t)m->kv_heads);
    m->gate_head_sum = doubles((size_t)m->heads); /* a gate has at most one score per query head */
    if (other_keys) m->key_sum = doubles(sluice__mul_size((size_t)m->heads, keys));
    bool ok = m->share_sum && m->value_first && m->value_others && m->gate_head_sum && (m->key_sum || !other_keys);
    sluice_status st = ok ? sluice__magnitudes_new(&m->residual, err)
                          : sluice__no_memory(err, (size_t)m->heads * keys * sizeof(double), "layer statistics");
    if (st != SLUICE_OK) sluice__layer_metrics_free(m);
    return st;
}

void sluice__layer_metrics_free(sluice__layer_metrics *m) {
    sluice__magnitudes_free(&m->residual);
    sluice__free(m->share_sum);
    sluice__free(m->key_sum);
    sluice__free(m->value_first);
    sluice__free(m->value_others);
    sluice__free(m->gate_head_sum);
    *m = (sluice__layer_metrics){0};
}

#define BIT(point) (1u << SLUICE__PROBE_##point)

uint32_t sluice__metrics_first_wants(void) { return BIT(RESID_FFN) | BIT(GATE); }

uint32_t sluice__metrics_second_wants(bool other_keys) {
    return BIT(ATTN_OUT) | BIT(RESID_ATTN) | BIT(FFN_OUT) | BIT(RESID_FFN) | BIT(SDPA) | BIT(SDPA_GATED) | BIT(GATE) |
           BIT(FIRST_SHARE) | BIT(VALUE_NORM) | (other_keys ? BIT(ATTN_PROBS) : 0);
}

static int64_t elements(const sluice__probe_event *e) {
    int64_t n = 1;
    for (int i = 0; i < e->ndim; i++) n *= e->shape[i];
    return n;
}

/* Scores of this event that count: all, or the first token's when every token has the same. */
static int64_t gate_scores(const sluice__layer_metrics *m, const sluice__probe_event *e, int64_t seen) {
    int64_t one_token = e->shape[2] * e->shape[3];
    if (!m->gate_once) return elements(e);
    return seen ? 0 : one_token;
}

sluice_status sluice__metrics_first(sluice__layer_metrics *m, const sluice__probe_event *e, sluice_error *err) {
    if (e->point == SLUICE__PROBE_GATE) {
        int64_t n = gate_scores(m, e, m->gate_count);
        for (int64_t i = 0; i < n; i++) m->gate_sum += e->data[i];
        m->gate_count += n;
    } else if (e->point == SLUICE__PROBE_RESID_FFN && !sluice__magnitudes_first(&m->residual, e->data, elements(e))) {
        return sluice__fail(err, SLUICE_ERR_NUMERIC, "layer %d: the residual stream is not finite", e->layer);
    }
    return SLUICE_OK;
}

void sluice__metrics_between(sluice__layer_metrics *m) { sluice__magnitudes_plan(&m->residual); }

static double gate_mean(const sluice__layer_metrics *m) {
    return m->gate_count ? m->gate_sum / (double)m->gate_count : 1.0;
}

/* [B,H,T] */
static void add_share(sluice__layer_metrics *m, const sluice__probe_event *e) {
    int64_t batch = e->shape[0], heads = e->shape[1], len = e->shape[2];
    assert(heads == m->heads && len == m->seq_len);
    for (int64_t row = 0; row < batch * heads; row++) {
        const float *p = e->data + row * len;
        double *sum = m->share_sum + row % heads * SLUICE__READINGS, whole = 0;
        for (int r = 0; r < SLUICE__READINGS; r++) {
            double s = 0;
            for (int64_t q = first_query(r, m->seq_len); q < len; q++) s += p[q];
            sum[r] += s;
            if (r == 0) whole = s;
        }
        m->sink_pairs += whole / (double)len > SLUICE_SINK_THRESHOLD;
    }
    m->sequences += batch;
}

/* [B,H,T,T] */
static void add_keys(sluice__layer_metrics *m, const sluice__probe_event *e) {
    int64_t heads = e->shape[1], len = e->shape[2], keys = quarter_of(m->seq_len);
    for (int64_t row = 0; row < e->shape[0] * heads; row++)
        for (int64_t q = keys; q < len; q++)
            for (int64_t k = 0; k < keys; k++) m->key_sum[row % heads * keys + k] += e->data[(row * len + q) * len + k];
}

static void add_max_abs(sluice__layer_metrics *m, const sluice__probe_event *e) {
    double most = m->max_abs[e->point];
    for (int64_t i = 0, n = elements(e); i < n; i++) most = fmax(most, fabs((double)e->data[i]));
    m->max_abs[e->point] = most;
}

static void keep_top3(double top[3], double v) {
    if (v <= top[2]) return;
    int at = v > top[0] ? 0 : v > top[1] ? 1 : 2;
    for (int i = 2; i > at; i--) top[i] = top[i - 1];
    top[at] = v;
}

/* [B,T,D] */
static void add_residual(sluice__layer_metrics *m, const sluice__probe_event *e) {
    int64_t len = e->shape[1], dim = e->shape[2];
    for (int64_t t = 0; t < e->shape[0] * len; t++) {
        double *peak = t % len == 0 ? &m->peak_first : &m->peak_others;
        for (int64_t d = 0; d < dim; d++) {
            double v = fabs((double)e->data[t * dim + d]);
            *peak = fmax(*peak, v);
            keep_top3(m->top3, v);
        }
    }
    sluice__magnitudes_second(&m->residual, e->data, elements(e));
}

/* [B,T,K] */
static void add_value_norm(sluice__layer_metrics *m, const sluice__probe_event *e) {
    int64_t len = e->shape[1], heads = e->shape[2];
    assert(heads == m->kv_heads);
    for (int64_t t = 0; t < e->shape[0] * len; t++) {
        bool first = t % len == 0;
        double *sum = first ? m->value_first : m->value_others;
        for (int64_t h = 0; h < heads; h++) sum[h] += e->data[t * heads + h];
        *(first ? &m->tokens_first : &m->tokens_others) += 1;
    }
}

/* [B,T,n,w] */
static void add_gate(sluice__layer_metrics *m, const sluice__probe_event *e) {
    int64_t n = gate_scores(m, e, m->gate_seen), heads = e->shape[2], width = e->shape[3];
    double mean = gate_mean(m);
    m->gate_heads = (int)heads;
    for (int64_t i = 0; i < n; i++) {
        double x = e->data[i];
        m->gate_head_sum[i / width % heads] += x;
        m->gate_deviation += (x - mean) * (x - mean);
        m->gate_min = fmin(m->gate_min, x);
        m->gate_max = fmax(m->gate_max, x);
        m->gate_below_01 += x < 0.1;
        m->gate_below_05 += x < 0.5;
        m->gate_below += x < 0;
        m->gate_above += x > 1;
        if (x >= 0 && x <= 1) m->gate_hist[(int)fmin(floor(x * SLUICE_GATE_BINS), SLUICE_GATE_BINS - 1)]++;
    }
    m->gate_seen += n;
}

static void add_output(sluice__layer_metrics *m, const sluice__probe_event *e, int after) {
    double mean = gate_mean(m);
    int64_t n = elements(e);
    for (int64_t i = 0; i < n; i++) {
        double v = fabs((double)e->data[i]);
        m->abs_sum[after] += v;
        for (int t = 0; t < SLUICE__THRESHOLDS; t++) {
            m->small[after][t] += v < thresholds[t];
            if (!after) m->small[2][t] += v * mean < thresholds[t];
        }
    }
    m->outputs[after] += n;
}

sluice_status sluice__metrics_second(sluice__layer_metrics *m, const sluice__probe_event *e, sluice_error *err) {
    (void)err;
    switch (e->point) {
    case SLUICE__PROBE_FIRST_SHARE:
        add_share(m, e);
        break;
    case SLUICE__PROBE_ATTN_PROBS:
        add_keys(m, e);
        break;
    case SLUICE__PROBE_VALUE_NORM:
        add_value_norm(m, e);
        break;
    case SLUICE__PROBE_GATE:
        add_gate(m, e);
        break;
    case SLUICE__PROBE_SDPA:
        add_output(m, e, 0);
        break;
    case SLUICE__PROBE_SDPA_GATED:
        add_output(m, e, 1);
        break;
    case SLUICE__PROBE_RESID_FFN:
        add_residual(m, e); /* fall through */
    default:
        add_max_abs(m, e);
    }
    return SLUICE_OK;
}

static double ratio(double a, int64_t b) { return b ? a / (double)b : NAN; }

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
    for (int h = 0; h < m->heads; h++) {
        const double *sum = m->share_sum + h * SLUICE__READINGS;
        out->share_heads[h] = share_of(sum, rows, m->seq_len);
        for (int r = 0; r < SLUICE__READINGS; r++) total[r] += sum[r];
    }
    out->share = share_of(total, rows * m->heads, m->seq_len);
    out->sink_rate = ratio((double)m->sink_pairs, m->sequences * m->heads);
    out->max_other_key_share = NAN;
    int keys = quarter_of(m->seq_len), queries = m->seq_len - keys;
    if (!m->key_sum || queries <= 0) return;
    for (int h = 0; h < m->heads; h++)
        for (int k = 1; k < keys; k++)
            out->max_other_key_share =
                fmax(out->max_other_key_share, m->key_sum[h * keys + k] / ((double)m->sequences * queries));
}

static void gate_result(const sluice__layer_metrics *m, sluice_gate_stats *out) {
    out->heads = m->gate_heads;
    if (!m->gate_heads) {
        out->mean = out->std = out->min = out->max = out->below_01 = out->below_05 = NAN;
        return;
    }
    for (int h = 0; h < m->gate_heads; h++)
        out->heads_mean[h] = m->gate_head_sum[h] / ((double)m->gate_seen / m->gate_heads);
    out->mean = gate_mean(m);
    out->std = sqrt(m->gate_deviation / (double)m->gate_seen);
    out->min = m->gate_min;
    out->max = m->gate_max;
    out->below_01 = ratio((double)m->gate_below_01, m->gate_seen);
    out->below_05 = ratio((double)m->gate_below_05, m->gate_seen);
    memcpy(out->hist, m->gate_hist, sizeof out->hist);
    out->below = m->gate_below;
    out->above = m->gate_above;
}

static sluice_output_sparsity sparsity_result(const sluice__layer_metrics *m) {
    double share[3][SLUICE__THRESHOLDS];
    for (int kind = 0; kind < 3; kind++)
        for (int t = 0; t < SLUICE__THRESHOLDS; t++)
            share[kind][t] = ratio((double)m->small[kind][t], m->outputs[kind == 1]);
    return (sluice_output_sparsity){ratio(m->abs_sum[0], m->outputs[0]),
                                    ratio(m->abs_sum[1], m->outputs[1]),
                                    share[0][0],
                                    share[1][0],
                                    share[2][0],
                                    share[0][1],
                                    share[1][1],
                                    share[2][1]};
}

void sluice__metrics_result(const sluice__layer_metrics *m, sluice_inspect_layer *out) {
    out->heads = m->heads;
    out->kv_heads = m->kv_heads;
    share_result(m, out);
    out->residual_max = m->max_abs[SLUICE__PROBE_RESID_FFN];
    memcpy(out->residual_top3, m->top3, sizeof out->residual_top3);
    out->residual_median = sluice__magnitudes_median(&m->residual);
    out->residual_massive = sluice__magnitudes_massive(&m->residual);
    out->peak_first = m->peak_first;
    out->peak_others = m->seq_len > 1 ? m->peak_others : NAN;
    out->max_attn_out = m->max_abs[SLUICE__PROBE_ATTN_OUT];
    out->max_resid_attn = m->max_abs[SLUICE__PROBE_RESID_ATTN];
    out->max_ffn_out = m->max_abs[SLUICE__PROBE_FFN_OUT];
    out->max_resid_ffn = m->max_abs[SLUICE__PROBE_RESID_FFN];
    for (int h = 0; h < m->kv_heads; h++) {
        out->value_norm_first[h] = ratio(m->value_first[h], m->tokens_first);
        out->value_norm_others[h] = ratio(m->value_others[h], m->tokens_others);
    }
    gate_result(m, &out->gate);
    out->sparsity = sparsity_result(m);
}
