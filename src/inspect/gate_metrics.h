/* SPDX-License-Identifier: Apache-2.0 */
/* Gate scores of one layer: moments, extremes and histograms for every head, quantiles for the
 * layer. */
#ifndef SLUICE_INSPECT_GATE_METRICS_H
#define SLUICE_INSPECT_GATE_METRICS_H
#include "layers/probe.h"
#include "sluice/inspect.h"

typedef struct sluice__gate_head {
    double sum, sum_squares, min, max;
    int64_t below_01, below_05, below, above, hist[SLUICE_GATE_BINS];
} sluice__gate_head;

typedef struct sluice__gate_metrics {
    bool once; /* an input-independent gate: one value for all tokens, counted once */
    int heads, width;
    int64_t tokens;
    sluice__gate_head *head; /* [heads] */
    uint64_t *fine;          /* by the upper bits of the scores in rising order, for quantiles */
    double *channel;         /* [heads, width] sums over tokens; NULL unless asked for */
} sluice__gate_metrics;

/* e: [B,T,n,w]. channels: also keep sums of every score over tokens. */
sluice_status sluice__gate_add(sluice__gate_metrics *g, const sluice__probe_event *e, bool channels,
                               sluice_error *err);
void sluice__gate_free(sluice__gate_metrics *g);
double sluice__gate_mean(const sluice__gate_metrics *g); /* 1 without a gate */
/* The arrays of *out have room for the query heads of the layer. */
void sluice__gate_result(const sluice__gate_metrics *g, sluice_gate_stats *out);
#endif
