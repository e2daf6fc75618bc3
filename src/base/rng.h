/* SPDX-License-Identifier: Apache-2.0 */
/* Counter-based random numbers (Philox4x32-10, Salmon et al., SC 2011): the i-th draw of stream s under a seed is a
 * pure function of (seed, s, i), so the same numbers come out for any order, thread count or resume point, and the
 * whole state of a generator is its counter. */
#ifndef SLUICE_BASE_RNG_H
#define SLUICE_BASE_RNG_H
#include <stdint.h>

/* Four 32-bit words of block `counter`. */
void sluice__philox(uint64_t seed, uint64_t stream, uint64_t counter, uint32_t out[4]);

typedef struct sluice__rng {
    uint64_t seed, stream, counter; /* counter: number of 32-bit words drawn */
} sluice__rng;

uint32_t sluice__rng_u32(sluice__rng *r);
uint64_t sluice__rng_below(sluice__rng *r, uint64_t n); /* uniform in 0..n-1, n > 0, without modulo bias */
double sluice__rng_uniform(sluice__rng *r);             /* [0, 1), 53 bits */
/* x[i] = mean + sd * N(0,1) for element i of the stream; independent of how a caller splits the range: element
 * `first + i` of (seed, stream). */
void sluice__rng_fill_normal(float *x, int64_t count, uint64_t seed, uint64_t stream, int64_t first, float mean, float sd);
/* 64-bit FNV-1a of a text: a stable stream number for a tensor name. */
uint64_t sluice__hash_text(const char *text);
uint64_t sluice__hash_bytes(const void *data, uint64_t size, uint64_t start); /* start: 0 or an earlier result */
#endif
