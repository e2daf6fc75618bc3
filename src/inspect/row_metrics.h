/* SPDX-License-Identifier: Apache-2.0 */
/* Measures that need every attention weight, fed with blocks of rows: entropy, distances, what kind
 * of head it is, weight on marked keys and on single early keys. */
#ifndef SLUICE_INSPECT_ROW_METRICS_H
#define SLUICE_INSPECT_ROW_METRICS_H
#include "layers/probe.h"
#include "sluice/inspect.h"

/* The tokens of one pass, [batch, seq_len] each. */
typedef struct sluice__row_tokens {
    int seq_len;
    const int32_t
        *earlier;         /* last earlier position of the same window with the same token, or -1 */
    const uint8_t *marks; /* or NULL */
} sluice__row_tokens;
/* Fills earlier [batch, seq_len]. */
sluice_status sluice__find_earlier(int32_t *earlier, const int32_t *ids, int batch, int seq_len,
                                   sluice_error *err);

typedef struct sluice__row_head {
    double entropy, entropy_share, distance, self, previous, duplicate, induction, marked;
    double by_distance[SLUICE_DISTANCE_BINS];
} sluice__row_head;

typedef struct sluice__row_metrics {
    int heads, seq_len, keys; /* keys: early keys that are followed one by one; 0 = none */
    sluice__row_head *head;   /* [heads] sums over queries */
    double *key_sum; /* [heads, keys] attention on each early key by the queries behind them */
    int64_t queries, duplicate_queries, induction_queries, sequences;
    bool marked;
} sluice__row_metrics;

sluice_status sluice__rows_new(sluice__row_metrics *m, int heads, int seq_len, int keys,
                               sluice_error *err);
void sluice__rows_free(sluice__row_metrics *m);
/* e: an ATTN_ROWS event. */
void sluice__rows_add(sluice__row_metrics *m, const sluice__probe_event *e,
                      const sluice__row_tokens *tokens);
void sluice__rows_result(const sluice__row_metrics *m, sluice_inspect_layer *out);
#endif
