/* SPDX-License-Identifier: Apache-2.0 */
/* Loss spikes, online and over a curve. */
#include "train/spikes.h"
#include <math.h>
#include <stddef.h>

sluice__spike_options sluice__spike_options_default(void) {
    return (sluice__spike_options){.alpha = 0.9, .threshold = 0.1, .start = 50, .min_gap = 10};
}

void sluice__spike_watch_init(sluice__spike_watch *w, sluice__spike_options options) {
    *w = (sluice__spike_watch){.options = options, .last_flagged = -1};
}

sluice__spike sluice__spike_watch_peek(const sluice__spike_watch *w, double loss) {
    bool high = w->has_average && w->index >= w->options.start && loss > w->average + w->options.threshold;
    if (isfinite(loss) && !high) return SLUICE__SPIKE_NONE;
    bool begins = w->last_flagged < 0 || w->index - w->last_flagged > w->options.min_gap;
    return begins ? SLUICE__SPIKE_EVENT : SLUICE__SPIKE_FLAGGED;
}

sluice__spike sluice__spike_watch_next(sluice__spike_watch *w, double loss) {
    sluice__spike found = sluice__spike_watch_peek(w, loss);
    if (found != SLUICE__SPIKE_NONE) w->last_flagged = w->index;
    if (isfinite(loss)) {
        double alpha = w->options.alpha;
        w->average = w->has_average ? alpha * w->average + (1.0 - alpha) * loss : loss;
        w->has_average = true;
    }
    w->index++;
    return found;
}

void sluice__loss_spikes(const double *loss, int64_t n, sluice__spike_options options, int64_t *flagged,
                         int64_t *num_flagged, int64_t *events, int64_t *num_events) {
    sluice__spike_watch w;
    sluice__spike_watch_init(&w, options);
    *num_flagged = *num_events = 0;
    for (int64_t i = 0; i < n; i++) {
        sluice__spike found = sluice__spike_watch_next(&w, loss[i]);
        if (found == SLUICE__SPIKE_NONE) continue;
        if (flagged) flagged[*num_flagged] = i;
        ++*num_flagged;
        if (found != SLUICE__SPIKE_EVENT) continue;
        if (events) events[*num_events] = i;
        ++*num_events;
    }
}

/* Two passes over the window for each point: running sums would lose the digits that a comparison at z sigma needs. */
static bool stands_out(const double *before, int64_t n, double x, double z) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) sum += before[i];
    double mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++) squares += (before[i] - mean) * (before[i] - mean);
    return fabs(x - mean) >= z * sqrt(squares / (double)n);
}

double sluice__spike_score(const double *x, int64_t n, int64_t window, double z, int64_t least) {
    int64_t hits = 0, judged = 0;
    for (int64_t i = least > 1 ? least : 1; i < n; i++, judged++) {
        int64_t first = i > window ? i - window : 0;
        hits += stands_out(x + first, i - first, x[i], z);
    }
    return 100.0 * (double)hits / (double)(judged > 0 ? judged : 1);
}
