/* SPDX-License-Identifier: Apache-2.0 */
/* |h| at one place of one layer: maxima, mean square, the largest elements with their places, and,
 * in two passes, the exact median and the number of massive elements. */
#ifndef SLUICE_INSPECT_PEAKS_H
#define SLUICE_INSPECT_PEAKS_H
#include "inspect/magnitudes.h"
#include "sluice/inspect.h"

typedef struct sluice__place {
    bool medians;
    sluice__magnitudes sizes; /* only with medians */
    sluice_place_stats stats; /* median and massive are filled by the result */
    double sum_squares;
    int64_t count;
} sluice__place;

sluice_status sluice__place_new(sluice__place *p, bool medians, sluice_error *err);
void sluice__place_free(sluice__place *p);
/* x [rows, dim], rows being tokens of windows of seq_len from window `window` on. False at a value
 * that is not finite. */
bool sluice__place_add(sluice__place *p, const float *x, int64_t rows, int64_t dim, int seq_len,
                       int64_t window);
sluice_place_stats sluice__place_result(const sluice__place *p);
#endif
