/* SPDX-License-Identifier: Apache-2.0 */
/* Accumulators behind sluice_inspect: one per layer, fed with probe events window by window, so
 * that they can be tested without a model. Sums are kept in double in the order of arrival. A
 * second pass over the same data resolves medians, the control of sparsity and the rounding errors,
 * which need totals of the first. */
#ifndef SLUICE_INSPECT_METRICS_H
#define SLUICE_INSPECT_METRICS_H
#include "inspect/gate_metrics.h"
#include "inspect/peaks.h"
#include "inspect/row_metrics.h"
#include "layers/probe.h"
#include "sluice/inspect.h"

enum { SLUICE__READINGS = 4, SLUICE__THRESHOLDS = 2 };

/* What is asked for. */
typedef struct sluice__measuring {
    int seq_len;
    uint32_t measures;
    bool other_keys, channels; /* channels: sums of every gate score, for interventions */
} sluice__measuring;

typedef struct sluice__layer_metrics {
    sluice__measuring ask;
    int heads, kv_heads, experts;
    int64_t window;                   /* first window of the pass that is going on */
    const sluice__row_tokens *tokens; /* of it */
    /* attention on key 0 */
    double *share_sum;   /* [heads, READINGS] */
    double *query_share; /* [query bins] */
    int64_t sequences, sink_pairs, sink_pairs_64;
    sluice__row_metrics rows;
    sluice__place places[SLUICE_PLACES];
    double *norm[4]; /* [kv_heads] sums: values at position 0, at others; keys the same */
    int64_t tokens_first, tokens_others;
    sluice__gate_metrics gate;
    double abs_sum[2]; /* attention output before the gate, after it */
    int64_t outputs[2], small[3][SLUICE__THRESHOLDS]; /* before, after, control; 1e-2, 1e-3 */
    double *load, router_entropy;                     /* [experts] */
    int64_t routed;
    double *learned_sum; /* [heads] */
    int64_t learned_queries;
    int delta_heads;
    double *delta_sum[2]; /* decay, beta: [delta_heads] */
    double delta_min[2], delta_max[2];
    int64_t delta_tokens[2], delta_hist[2][SLUICE_GATE_BINS];
    float input_max[SLUICE_INPUTS];
    double input_squares[SLUICE_INPUTS], input_error[SLUICE_INPUTS][2]; /* per tensor, per token */
} sluice__layer_metrics;

int sluice__query_bins(int seq_len);
sluice_status sluice__layer_metrics_new(sluice__layer_metrics *m, const sluice_layer_spec *spec,
                                        const sluice__measuring *ask, sluice_error *err);
void sluice__layer_metrics_free(sluice__layer_metrics *m);

/* What each pass wants to hear; 0 = there is no need for that pass. */
uint32_t sluice__metrics_wants(const sluice__measuring *ask, bool second);
sluice_status sluice__metrics_first(sluice__layer_metrics *m, const sluice__probe_event *e,
                                    sluice_error *err);
sluice_status sluice__metrics_between(sluice__layer_metrics *m, sluice_error *err);
void sluice__metrics_second(sluice__layer_metrics *m, const sluice__probe_event *e);

/* Fills a layer whose arrays have been allocated. */
void sluice__metrics_result(const sluice__layer_metrics *m, sluice_inspect_layer *out);
/* Those of inputs and outputs, in output_metrics.c. */
void sluice__output_add(sluice__layer_metrics *m, const sluice__probe_event *e, bool after);
void sluice__output_control(sluice__layer_metrics *m, const sluice__probe_event *e);
sluice_output_sparsity sluice__output_result(const sluice__layer_metrics *m);
void sluice__router_add(sluice__layer_metrics *m, const sluice__probe_event *e);
void sluice__router_result(const sluice__layer_metrics *m, sluice_router_stats *out);
void sluice__delta_add(sluice__layer_metrics *m, const sluice__probe_event *e);
void sluice__delta_result(const sluice__layer_metrics *m, sluice_delta_stats *out);
/* second: with the scales of the whole tensor. */
void sluice__input_add(sluice__layer_metrics *m, const sluice__probe_event *e,
                       sluice_product_input which, bool second);
sluice_int8_error sluice__input_result(const sluice__layer_metrics *m, sluice_product_input which);
#endif
