/* SPDX-License-Identifier: Apache-2.0 */
/* Forward passes over windows of tokens with the accumulators of every layer listening. */
#ifndef SLUICE_INSPECT_WALK_H
#define SLUICE_INSPECT_WALK_H
#include <stdbool.h>
#include "inspect/metrics.h"
#include "layers/transformer.h"

typedef struct sluice__walk {
    const sluice_model *model;
    const int32_t *ids;   /* [windows, seq_len] */
    const uint8_t *marks; /* the same, or NULL */
    int64_t windows;
    int seq_len, batch;
    bool (*stop_requested)(void *user); /* asked behind every layer; NULL = never */
    void *user;
    sluice__workspace *ws;
    int32_t *labels, *earlier; /* [batch, seq_len] */
    float *nll;                /* the same */
} sluice__walk;

/* Loss of every token but the first of each window; half: of those behind the middle. */
typedef struct sluice__walk_loss {
    double nll, nll_half;
    int64_t scored, scored_half;
} sluice__walk_loss;

sluice_status sluice__walk_new(sluice__walk *w, const sluice_model *model, const int32_t *ids,
                               int64_t windows, int seq_len, int batch, sluice_error *err);
void sluice__walk_free(sluice__walk *w);

/* Accumulators for all layers; NULL on failure. Freed by _free. */
sluice_status sluice__walk_metrics_new(sluice__layer_metrics **out, const sluice__walk *w,
                                       const sluice__measuring *ask, sluice_error *err);
void sluice__walk_metrics_free(sluice__layer_metrics *layers, const sluice__walk *w);
/* First pass, what stands between, second pass; each only as far as it is needed. loss NULL = not
 * wanted. */
sluice_status sluice__walk_measure(const sluice__walk *w, sluice__layer_metrics *layers,
                                   const sluice__measuring *ask, sluice__walk_loss *loss,
                                   sluice_error *err);
/* Any listener over all windows. */
sluice_status sluice__walk_listen(const sluice__walk *w, const sluice__probe *probe,
                                  sluice_error *err);
#endif
