/* SPDX-License-Identifier: Apache-2.0 */
/* Radix selection over float bit patterns; see the header. */
#include "inspect/magnitudes.h"
#include "base/memory.h"
#include <assert.h>
#include <math.h>
#include <string.h>

enum { FINE_BITS = 15 };

/* |x| as bits; infinity is 0x7f800000, NaNs are above it. */
static uint32_t magnitude_bits(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u & 0x7fffffffu;
}

static double value_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static double lowest_of(int32_t bin) {
    return value_of((uint32_t)bin << FINE_BITS);
}

static double highest_of(int32_t bin) {
    return value_of(((uint32_t)bin << FINE_BITS) | (SLUICE__FINE_BINS - 1));
}

sluice_status sluice__magnitudes_new(sluice__magnitudes *m, sluice_error *err) {
    *m = (sluice__magnitudes){0};
    m->coarse = sluice__calloc(SLUICE__COARSE_BINS, sizeof *m->coarse, SLUICE__MEM_OTHER);
    if (m->coarse) return SLUICE_OK;
    return sluice__no_memory(err, SLUICE__COARSE_BINS * sizeof *m->coarse, "magnitude histograms");
}

void sluice__magnitudes_free(sluice__magnitudes *m) {
    sluice__free(m->coarse);
    sluice__free(m->fine);
    *m = (sluice__magnitudes){0};
}

bool sluice__magnitudes_first(sluice__magnitudes *m, const float *x, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits = magnitude_bits(x[i]);
        if (bits >= 0x7f800000u) return false;
        m->coarse[bits >> FINE_BITS]++;
    }
    m->count += count;
    return true;
}

/* The coarse bin that holds the median, and the number of elements in the bins below it. */
static int32_t median_bin(const sluice__magnitudes *m, uint64_t *below) {
    uint64_t rank = (uint64_t)(m->count - 1) / 2;
    int32_t bin = 0;
    *below = 0;
    while (*below + m->coarse[bin] <= rank) *below += m->coarse[bin++];
    return bin;
}

static void resolve(sluice__magnitudes *m, int32_t bin) {
    for (int i = 0; i < m->sets; i++)
        if (m->bin[i] == bin) return;
    assert(m->sets < SLUICE__FINE_SETS);
    m->bin[m->sets++] = bin;
}

/* Bins that contain values on both sides of the bound for some median inside its bin. One bin is
 * 2^-8 of its value wide, so the bound moves over at most three of them; 100 itself cuts one. */
sluice_status sluice__magnitudes_plan(sluice__magnitudes *m, sluice_error *err) {
    if (m->count == 0) return SLUICE_OK;
    uint64_t below;
    int32_t middle = median_bin(m, &below);
    resolve(m, middle);
    double low = fmax(100.0, 1000.0 * lowest_of(middle)),
           high = fmax(100.0, 1000.0 * highest_of(middle));
    for (int32_t bin = 0; bin < SLUICE__COARSE_BINS; bin++)
        if (m->coarse[bin] && highest_of(bin) >= low && lowest_of(bin) <= high) resolve(m, bin);
    size_t fine = (size_t)m->sets * SLUICE__FINE_BINS;
    m->fine = sluice__calloc(fine, sizeof *m->fine, SLUICE__MEM_OTHER);
    return m->fine ? SLUICE_OK
                   : sluice__no_memory(err, fine * sizeof *m->fine, "magnitude histograms");
}

void sluice__magnitudes_second(sluice__magnitudes *m, const float *x, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits = magnitude_bits(x[i]);
        int32_t bin = (int32_t)(bits >> FINE_BITS);
        for (int s = 0; s < m->sets; s++)
            if (m->bin[s] == bin)
                m->fine[(size_t)s * SLUICE__FINE_BINS + (bits & (SLUICE__FINE_BINS - 1))]++;
    }
}

static const uint64_t *fine_of(const sluice__magnitudes *m, int32_t bin) {
    for (int s = 0; s < m->sets; s++)
        if (m->bin[s] == bin) return m->fine + (size_t)s * SLUICE__FINE_BINS;
    return NULL;
}

double sluice__magnitudes_median(const sluice__magnitudes *m) {
    if (m->count == 0) return NAN;
    uint64_t seen, rank = (uint64_t)(m->count - 1) / 2;
    int32_t bin = median_bin(m, &seen);
    const uint64_t *fine = fine_of(m, bin);
    uint32_t low = 0;
    while (seen + fine[low] <= rank) seen += fine[low++];
    return value_of(((uint32_t)bin << FINE_BITS) | low);
}

int64_t sluice__magnitudes_massive(const sluice__magnitudes *m) {
    if (m->count == 0) return 0;
    double bound = 1000.0 * sluice__magnitudes_median(m);
    uint64_t massive = 0;
    for (int32_t bin = 0; bin < SLUICE__COARSE_BINS; bin++) {
        const uint64_t *fine = fine_of(m, bin);
        if (!fine) {
            if (lowest_of(bin) > 100 && lowest_of(bin) >= bound) massive += m->coarse[bin];
            continue;
        }
        for (uint32_t low = 0; low < SLUICE__FINE_BINS; low++) {
            if (!fine[low]) continue;
            double v = value_of(((uint32_t)bin << FINE_BITS) | low);
            if (v > 100 && v >= bound) massive += fine[low];
        }
    }
    return (int64_t)massive;
}
