/* SPDX-License-Identifier: Apache-2.0 */
/* Exact lower median of |x| and exact count of massive elements over any number of values, in fixed
 * memory and two passes.
 *
 * The bit patterns of non-negative floats rise with their value, so a histogram of the upper 16 of
 * the 31 bits says in which bin the median lies and which bins the bound 1000 * median may cut; a
 * second pass counts the lower 15 bits inside those few bins only (a radix selection). Nothing is
 * stored per element and nothing is approximated. */
#ifndef SLUICE_INSPECT_MAGNITUDES_H
#define SLUICE_INSPECT_MAGNITUDES_H
#include <stdbool.h>
#include <stdint.h>
#include "base/error.h"

enum { SLUICE__COARSE_BINS = 0x7f800000 >> 15, SLUICE__FINE_BINS = 1 << 15, SLUICE__FINE_SETS = 5 };

typedef struct sluice__magnitudes {
    int64_t count;
    uint64_t *coarse;               /* [COARSE_BINS] */
    uint64_t *fine;                 /* [sets, FINE_BINS], made by plan */
    int32_t bin[SLUICE__FINE_SETS]; /* the coarse bins that are resolved */
    int sets;
} sluice__magnitudes;

sluice_status sluice__magnitudes_new(sluice__magnitudes *m, sluice_error *err);
void sluice__magnitudes_free(sluice__magnitudes *m);

/* First pass, then plan, then the second pass over the same values. first: false at a value that is
 * not finite. */
bool sluice__magnitudes_first(sluice__magnitudes *m, const float *x, int64_t count);
sluice_status sluice__magnitudes_plan(sluice__magnitudes *m, sluice_error *err);
void sluice__magnitudes_second(sluice__magnitudes *m, const float *x, int64_t count);

/* The element of rank floor((count - 1) / 2); NaN when there are none. */
double sluice__magnitudes_median(const sluice__magnitudes *m);
/* Elements with |x| > 100 and |x| >= 1000 * median (Sun et al. 2024). */
int64_t sluice__magnitudes_massive(const sluice__magnitudes *m);
#endif
