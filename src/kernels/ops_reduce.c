/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions of whole arrays. Each thread reduces its part; parts are combined in thread order. */
#include "kernels/kernels.h"
#include "kernels/parallel.h"
#include "kernels/profile.h"
#include <math.h>

enum { LINE = 16, PARTS = 256 }; /* more threads than PARTS do not help a pass over memory */

static int team(int64_t count) {
    int threads = sluice__team(count);
    return threads < PARTS ? threads : PARTS;
}

double sluice__sum_squares(const float *x, int64_t count) {
    SLUICE__SPAN_FLOATS("gradient norm", count);
    const sluice__kernels *k = sluice__kernels_now();
    double part[PARTS] = {0}, sum = 0;
    SLUICE__SPLIT(team(count), count, LINE,
                  part[omp_get_thread_num()] = k->sum_squares_f32(x + range.begin, range.end - range.begin));
    for (int i = 0; i < PARTS; i++) sum += part[i];
    return sum;
}

float sluice__max_abs(const float *x, int64_t count) {
    SLUICE__SPAN_FLOATS("search of an array", count);
    const sluice__kernels *k = sluice__kernels_now();
    float part[PARTS] = {0}, most = 0;
    SLUICE__SPLIT(team(count), count, LINE,
                  part[omp_get_thread_num()] = k->max_abs_f32(x + range.begin, range.end - range.begin));
    for (int i = 0; i < PARTS; i++)
        if (part[i] > most || isnan(part[i])) most = part[i];
    return most;
}

int64_t sluice__first_nonfinite(const float *x, int64_t count) {
    SLUICE__SPAN_FLOATS("search of an array", count);
    const sluice__kernels *k = sluice__kernels_now();
    int64_t part[PARTS];
    for (int i = 0; i < PARTS; i++) part[i] = -1;
    SLUICE__SPLIT(team(count), count, LINE, {
        int64_t at = k->first_nonfinite_f32(x + range.begin, range.end - range.begin);
        part[omp_get_thread_num()] = at < 0 ? -1 : range.begin + at;
    });
    for (int i = 0; i < PARTS; i++)
        if (part[i] >= 0) return part[i];
    return -1;
}
