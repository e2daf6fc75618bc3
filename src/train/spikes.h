/* SPDX-License-Identifier: Apache-2.0 */
/* Loss spikes: points above the running average of the points before them. The watch sees one loss at a time, so
 * that a trainer can act at once; loss_spikes runs it over a whole curve. spike_score is the other public measure
 * (OLMo 2). */
#ifndef SLUICE_TRAIN_SPIKES_H
#define SLUICE_TRAIN_SPIKES_H
#include <stdbool.h>
#include <stdint.h>

typedef struct sluice__spike_options {
    double alpha;     /* weight of the past in the running average; default 0.9 */
    double threshold; /* nats above the average; default 0.1 */
    int64_t start;    /* first point that is judged, from 0; default 50 */
    int64_t min_gap;  /* a flagged point more than this behind the last flagged one begins a new event; default 10 */
} sluice__spike_options;
sluice__spike_options sluice__spike_options_default(void);

/* The whole state: plain data, saved in checkpoints. */
typedef struct sluice__spike_watch {
    sluice__spike_options options;
    int64_t index;        /* of the next point */
    int64_t last_flagged; /* -1 = none */
    bool has_average;
    double average;
} sluice__spike_watch;

typedef enum sluice__spike { SLUICE__SPIKE_NONE, SLUICE__SPIKE_FLAGGED, SLUICE__SPIKE_EVENT } sluice__spike;

void sluice__spike_watch_init(sluice__spike_watch *w, sluice__spike_options options);
/* What this point is: EVENT is a flagged point that begins an event. A value that is not finite is always flagged and
 * stays out of the average; every finite one, flagged or not, enters it afterwards. */
sluice__spike sluice__spike_watch_next(sluice__spike_watch *w, double loss);
/* The verdict on a point without taking it in. */
sluice__spike sluice__spike_watch_peek(const sluice__spike_watch *w, double loss);

/* flagged, events: room for n indices each (may be NULL); their numbers in *num_flagged, *num_events. */
void sluice__loss_spikes(const double *loss, int64_t n, sluice__spike_options options, int64_t *flagged,
                         int64_t *num_flagged, int64_t *events, int64_t *num_events);

/* Percent of points i >= least that lie at least z population standard deviations from the mean of the up to `window`
 * points before them. Usual: window 1000, z 7, least 100. */
double sluice__spike_score(const double *x, int64_t n, int64_t window, double z, int64_t least);
#endif
