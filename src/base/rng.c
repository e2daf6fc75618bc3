/* SPDX-License-Identifier: Apache-2.0 */
/* Philox4x32-10 and distributions on it. Normal numbers by Box-Muller, two per pair of words, in double. */
#include "base/rng.h"
#include <assert.h>
#include <math.h>
#include <string.h>

void sluice__philox(uint64_t seed, uint64_t stream, uint64_t counter, uint32_t out[4]) {
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32), c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

uint32_t sluice__rng_u32(sluice__rng *r) {
    uint32_t w[4];
    sluice__philox(r->seed, r->stream, r->counter / 4, w);
    return w[r->counter++ % 4];
}

static uint64_t u64(sluice__rng *r) {
    uint64_t low = sluice__rng_u32(r);
    return (uint64_t)sluice__rng_u32(r) << 32 | low;
}

uint64_t sluice__rng_below(sluice__rng *r, uint64_t n) {
    assert(n > 0);
    uint64_t limit = UINT64_MAX - UINT64_MAX % n, x;
    do x = u64(r);
    while (x >= limit);
    return x % n;
}

double sluice__rng_uniform(sluice__rng *r) {
    return (double)(u64(r) >> 11) * 0x1p-53;
}

void sluice__rng_fill_normal(float *x, int64_t count, uint64_t seed, uint64_t stream, int64_t first, float mean,
                             float sd) {
    const double two_pi = 6.283185307179586476925286766559;
    for (int64_t i = 0; i < count;) {
        uint64_t at = (uint64_t)(first + i), block = at / 4;
        uint32_t w[4];
        double z[4];
        sluice__philox(seed, stream, block, w);
        for (int p = 0; p < 4; p += 2) {
            double u = ((double)w[p] + 0.5) * 0x1p-32, v = (double)w[p + 1] * 0x1p-32;
            double radius = sqrt(-2.0 * log(u));
            z[p] = radius * cos(two_pi * v);
            z[p + 1] = radius * sin(two_pi * v);
        }
        for (unsigned j = (unsigned)(at % 4); j < 4 && i < count; j++, i++) x[i] = mean + sd * (float)z[j];
    }
}

uint64_t sluice__hash_bytes(const void *data, uint64_t size, uint64_t start) {
    const unsigned char *p = data;
    uint64_t h = start ? start : 0xcbf29ce484222325u;
    for (uint64_t i = 0; i < size; i++) h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

uint64_t sluice__hash_text(const char *text) {
    return sluice__hash_bytes(text, strlen(text), 0);
}
