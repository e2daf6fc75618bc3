/* SPDX-License-Identifier: Apache-2.0 */
/* Accumulators behind sluice_inspect: one per layer, fed with probe events window by window, so that they can be tested
 * without a model. Sums are kept in double in the order of arrival. */
#ifndef SLUICE_INSPECT_METRICS_H
#define SLUICE_INSPECT_METRICS_H
#include "inspect/magnitudes.h"
#include "layers/probe.h"
#include "sluice/inspect.h"

enum { SLUICE__READINGS = 4, SLUICE__THRESHOLDS = 2 };

typedef struct sluice__layer_metrics {
    int heads, kv_heads, gate_heads, seq_len;
    bool gate_once; /* an input-independent gate: one value for all tokens, counted once */
    /* first pass */
    sluice__magnitudes residual;
    double gate_sum;
    int64_t gate_count;
    /* second pass */
    double *share_sum; /* [heads, READINGS] */
    int64_t sequences, sink_pairs;
    double *key_sum; /* [heads, ceil(T/4)] attention on each early key by the queries behind them; NULL unless asked */
    double top3[3], peak_first, peak_others, max_abs[SLUICE__PROBE_POINTS];
    double *value_first, *value_others; /* [kv_heads] sums of norms */
    int64_t tokens_first, tokens_others;
    double gate_deviation, gate_min, gate_max, *gate_head_sum; /* [gate_heads] */
    int64_t gate_seen, gate_below_01, gate_below_05, gate_hist[SLUICE_GATE_BINS], gate_below, gate_above;
    double abs_sum[2];                                /* before, after */
    int64_t outputs[2], small[3][SLUICE__THRESHOLDS]; /* before, after, control; 1e-2, 1e-3 */
} sluice__layer_metrics;

sluice_status sluice__layer_metrics_new(sluice__layer_metrics *m, const sluice_layer_spec *spec, int seq_len,
                                        bool other_keys, sluice_error *err);
void sluice__layer_metrics_free(sluice__layer_metrics *m);

/* What each pass wants to hear. */
uint32_t sluice__metrics_first_wants(void);
uint32_t sluice__metrics_second_wants(bool other_keys);
sluice_status sluice__metrics_first(sluice__layer_metrics *m, const sluice__probe_event *e, sluice_error *err);
void sluice__metrics_between(sluice__layer_metrics *m);
sluice_status sluice__metrics_second(sluice__layer_metrics *m, const sluice__probe_event *e, sluice_error *err);

/* Fills a layer whose arrays have been allocated. */
void sluice__metrics_result(const sluice__layer_metrics *m, sluice_inspect_layer *out);
#endif
