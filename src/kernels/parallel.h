/* SPDX-License-Identifier: Apache-2.0 */
/* How operators deal rows out to the OpenMP team of the calling thread. Parts depend on the number of rows and
 * threads only, so results are the same bits for the same thread count. */
#ifndef SLUICE_KERNELS_PARALLEL_H
#define SLUICE_KERNELS_PARALLEL_H
#include <omp.h>
#include <stdint.h>

/* Floats below which waking a thread costs more than the work it takes over. */
enum { SLUICE__PARALLEL_GRAIN = 16384 };

typedef struct sluice__range {
    int64_t begin, end;
} sluice__range;

/* Threads for `floats` of memory-bound work: 1 inside a parallel region or when there is too little of it. */
static inline int sluice__team(int64_t floats) {
    if (floats < 2 * SLUICE__PARALLEL_GRAIN || omp_in_parallel()) return 1;
    int64_t most = floats / SLUICE__PARALLEL_GRAIN, threads = omp_get_max_threads();
    return (int)(threads < most ? threads : most);
}

/* Part `part` of `parts` of 0..count-1; borders are multiples of `unit`. */
static inline sluice__range sluice__part(int64_t count, int64_t unit, int part, int parts) {
    int64_t units = (count + unit - 1) / unit;
    int64_t begin = units * part / parts * unit, end = units * (part + 1) / parts * unit;
    return (sluice__range){begin < count ? begin : count, end < count ? end : count};
}

/* Runs `body` on each thread of a team of `threads` with `range` = its part of `count`. */
#define SLUICE__SPLIT(threads, count, unit, body)                                                  \
    do {                                                                                           \
        int sluice_team = (threads);                                                               \
        if (sluice_team <= 1) {                                                                    \
            sluice__range range = {0, (count)};                                                    \
            body;                                                                                  \
        } else {                                                                                   \
            _Pragma("omp parallel num_threads(sluice_team)") {                                     \
                sluice__range range = sluice__part((count), (unit), omp_get_thread_num(), omp_get_num_threads()); \
                if (range.begin < range.end) body;                                                 \
            }                                                                                      \
        }                                                                                          \
    } while (0)
#endif
