/* SPDX-License-Identifier: Apache-2.0 */
/* bfloat16: the upper half of a float, 8 bits of precision. Rounding is that of the instruction VCVTNEPS2BF16, at every CPU
 * level: to nearest, ties to even; NaN stays NaN (made quiet, sign and upper payload kept); what is below the smallest
 * normal float (1.2e-38) becomes zero of the same sign. Products of bf16 matrices add up in float. */
#ifndef SLUICE_KERNELS_BF16_H
#define SLUICE_KERNELS_BF16_H
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef uint16_t sluice__bf16;

static inline sluice__bf16 sluice__bf16_round(float x) {
    uint32_t bits, magnitude;
    memcpy(&bits, &x, sizeof bits);
    magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (sluice__bf16)(bits >> 16 | 0x40u);
    if (magnitude < 0x00800000u) return (sluice__bf16)(bits >> 16 & 0x8000u);
    return (sluice__bf16)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

static inline float sluice__bf16_widen(sluice__bf16 h) {
    uint32_t bits = (uint32_t)h << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* A matrix whose elements count as bf16: floats, rounded when they are read, or stored so (`half`). */
typedef struct sluice__rounded {
    const void *data; /* float or sluice__bf16 */
    int64_t stride;   /* elements from one row to the next */
    bool half;
} sluice__rounded;

static inline sluice__rounded sluice__rounded_f32(const float *data, int64_t stride) {
    return (sluice__rounded){data, stride, false};
}
static inline sluice__rounded sluice__rounded_bf16(const sluice__bf16 *data, int64_t stride) {
    return (sluice__rounded){data, stride, true};
}

/* C (+)= op(A) op(B).   op(A): [m,k], op(B): [k,n], C: [m,n] fp32. */
typedef struct sluice__bf16_product {
    bool trans_a, trans_b, accumulate;
    int64_t m, n, k;
    sluice__rounded a, b;
    float *c;
    int64_t ldc;
} sluice__bf16_product;

/* Floats of scratch that a version of the kernel may want for a product on one thread: 512 columns and 1024 rows of pairs
 * along k, 256 pairs deep. */
enum { SLUICE__BF16_SCRATCH = (512 + 1024) * 256 };
#endif
