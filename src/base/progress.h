/* SPDX-License-Identifier: Apache-2.0 */
/* A progress line on standard error: on a terminal one line is redrawn a few times a second, elsewhere a plain line is
 * printed at most every ten seconds and at the end. Silent until sluice_progress_enable(true). */
#ifndef SLUICE_BASE_PROGRESS_H
#define SLUICE_BASE_PROGRESS_H
#include <stdint.h>
#include "sluice/progress.h"
#include "base/error.h"

typedef struct sluice__progress {
    char label[48], unit[16]; /* "baseline seed 1", "tok" */
    int64_t total;            /* in steps; 0 = unknown */
    double per_step;          /* units per step, for the rate */
    double start, last_shown; /* seconds on the monotonic clock */
    int64_t first, done;
    int slot; /* lines of parallel jobs stand below each other */
} sluice__progress;

/* per_step units (for example tokens) happen in each of `total` steps; `first` steps were done in an earlier run. */
void sluice__progress_begin(sluice__progress *p, const char *label, const char *unit, int64_t total, int64_t first,
                            double per_step);
/* note: free text behind rate and ETA, for example "loss 3.52". */
void sluice__progress_update(sluice__progress *p, int64_t done, const char *note_fmt, ...) SLUICE__PRINTF(3, 4);
void sluice__progress_end(sluice__progress *p, const char *note_fmt, ...) SLUICE__PRINTF(2, 3);

double sluice__now(void); /* monotonic seconds */
/* "1.2 GB", "12.3 M", "1 h 02 min", into a buffer of at least 32 bytes; returns it. */
char *sluice__format_bytes(char *out, double bytes);
char *sluice__format_count(char *out, double n);
char *sluice__format_seconds(char *out, double s);
/* Sorts what several runs took, count >= 1; of an even number the median is between the two in the middle. */
void sluice__best_and_median(double *seconds, int count, double *best, double *median);
#endif
