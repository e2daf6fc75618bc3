/* SPDX-License-Identifier: Apache-2.0 */
/* What reading memory costs, to compare with. */
#ifndef SLUICE_KERNELS_READ_H
#define SLUICE_KERNELS_READ_H
#include <stdint.h>

/* Seconds that the calling thread's team needs to read x [count] once, in order; count a multiple of 16384. */
double sluice__read_seconds(const float *x, int64_t count);
#endif
