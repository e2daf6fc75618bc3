/* SPDX-License-Identifier: Apache-2.0 */
/* The largest magnitude of a token is found with integer comparisons of the bit patterns, which
 * compilers turn into vector code and which shows values that are not finite at the same time;
 * single elements are looked at only in tokens that reach into the list of the largest. */
#include "inspect/peaks.h"
#include "kernels/ops.h"
#include <math.h>
#include <string.h>

enum { INFINITE_BITS = 0x7f800000 };

sluice_status sluice__place_new(sluice__place *p, bool medians, sluice_error *err) {
    *p = (sluice__place){.medians = medians};
    return medians ? sluice__magnitudes_new(&p->sizes, err) : SLUICE_OK;
}

void sluice__place_free(sluice__place *p) {
    sluice__magnitudes_free(&p->sizes);
}

static int32_t largest_bits(const float *x, int64_t n) {
    int32_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        int32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    return most;
}

/* Equal magnitudes keep the earlier place. */
static void keep(sluice_peak *top, sluice_peak peak) {
    double size = fabs(peak.value);
    if (!(size > fabs(top[SLUICE_TOP_PEAKS - 1].value))) return;
    int at = SLUICE_TOP_PEAKS - 1;
    for (; at > 0 && size > fabs(top[at - 1].value); at--) top[at] = top[at - 1];
    top[at] = peak;
}

bool sluice__place_add(sluice__place *p, const float *x, int64_t rows, int64_t dim, int seq_len,
                       int64_t window) {
    sluice_peak *top = p->stats.top;
    for (int64_t r = 0; r < rows; r++) {
        const float *token = x + r * dim;
        int32_t bits = largest_bits(token, dim);
        float most;
        memcpy(&most, &bits, sizeof most);
        if (bits >= INFINITE_BITS) return false;
        double *peak = r % seq_len == 0 ? &p->stats.max_first : &p->stats.max_others;
        if ((double)most > *peak) *peak = most;
        if (!((double)most > fabs(top[SLUICE_TOP_PEAKS - 1].value))) continue;
        for (int64_t d = 0; d < dim; d++)
            if (fabs((double)token[d]) > fabs(top[SLUICE_TOP_PEAKS - 1].value))
                keep(top,
                     (sluice_peak){token[d], window + r / seq_len, (int)(r % seq_len), (int)d});
    }
    p->sum_squares += sluice__sum_squares(x, rows * dim);
    p->count += rows * dim;
    return !p->medians || sluice__magnitudes_first(&p->sizes, x, rows * dim);
}

sluice_place_stats sluice__place_result(const sluice__place *p) {
    sluice_place_stats s = p->stats;
    s.max = fmax(s.max_first, s.max_others);
    s.mean_square = p->count ? p->sum_squares / (double)p->count : NAN;
    s.median = p->medians ? sluice__magnitudes_median(&p->sizes) : NAN;
    s.massive = p->medians ? sluice__magnitudes_massive(&p->sizes) : 0;
    return s;
}
