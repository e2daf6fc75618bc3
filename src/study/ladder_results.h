/* SPDX-License-Identifier: Apache-2.0 */
/* What a ladder of learning rates came to. */
#ifndef SLUICE_STUDY_LADDER_RESULTS_H
#define SLUICE_STUDY_LADDER_RESULTS_H
#include <jansson.h>
#include "study/digest.h"

enum { SLUICE__MAX_RUNGS = SLUICE__MAX_ARMS };

typedef struct sluice__rung_result {
    double rate, loss; /* mean held-out loss of the runs that finished; NaN when none did */
    double spike_score, m_act;
    int runs, finished, converged; /* runs that are there, that were measured, that came near the arm's best loss */
} sluice__rung_result;

/* One arm at all its rates, rising. */
typedef struct sluice__ladder_result {
    const char *of, *label;
    bool gated;
    sluice__rung_result rungs[SLUICE__MAX_RUNGS];
    int num_rungs;
    double best_rate, best_loss;
    double largest; /* rate up to which every run of every rung converged; NaN when the lowest did not */
} sluice__ladder_result;

/* Fills out (room for SLUICE__MAX_ARMS), returns the number of arms; 0 without a ladder. */
int sluice__ladder_results(sluice__ladder_result *out, const sluice__digest *d);
/* The same as an array for results.json; an empty one without a ladder. */
json_t *sluice__ladders(const sluice__digest *d);
/* Adds the finding "learning_rate"; nothing without a ladder. */
void sluice__find_ladder(json_t *out, const sluice__digest *d);
#endif
