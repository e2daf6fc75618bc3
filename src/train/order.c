/* SPDX-License-Identifier: Apache-2.0 */
/* A balanced Feistel network over the smallest even number of bits that holds n, walked until the result falls
 * below n (Black & Rogaway 2002, "cycle walking"; fewer than four walks on average). The round function is Philox,
 * which makes six rounds far better mixed than the order of windows needs. */
#include "train/order.h"
#include "base/rng.h"
#include <assert.h>

enum { ROUNDS = 6 };

/* Streams of the generator, so that permutations, draws and the initialiser of weights never share numbers. */
static const uint64_t ROUND_STREAM = 0x6f72646572u, DRAW_STREAM = 0x64726177u;

static uint64_t word(uint64_t seed, uint64_t stream, uint64_t key, uint64_t counter) {
    uint32_t w[4];
    sluice__philox(seed, stream ^ key * 0x9E3779B97F4A7C15u, counter, w);
    return (uint64_t)w[1] << 32 | w[0];
}

int64_t sluice__permute(int64_t i, int64_t n, uint64_t seed, uint64_t key) {
    assert(i >= 0 && i < n);
    unsigned half = 1;
    while (half < 31 && (int64_t)1 << 2 * half < n) half++;
    uint64_t mask = ((uint64_t)1 << half) - 1, x = (uint64_t)i;
    do {
        uint64_t left = x >> half, right = x & mask;
        for (uint64_t round = 0; round < ROUNDS; round++) {
            uint64_t mixed = left ^ (word(seed, ROUND_STREAM, key, round << 56 | right) & mask);
            left = right;
            right = mixed;
        }
        x = left << half | right;
    } while (x >= (uint64_t)n);
    return (int64_t)x;
}

/* The high half of a 64 x 64 bit product: the bias is below n / 2^64. */
int64_t sluice__draw_below(int64_t i, int64_t n, uint64_t seed, uint64_t key) {
    assert(n > 0);
    return (int64_t)(((unsigned __int128)word(seed, DRAW_STREAM, key, (uint64_t)i) * (uint64_t)n) >> 64);
}

double sluice__draw_uniform(int64_t i, uint64_t seed, uint64_t key) {
    return (double)(word(seed, DRAW_STREAM, key, (uint64_t)i) >> 11) * 0x1p-53;
}
