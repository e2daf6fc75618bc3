/* SPDX-License-Identifier: Apache-2.0 */
/* 16-bit floats of block scales and weights: conversions in plain C, exact, ties to even. */
#ifndef SLUICE_KERNELS_HALF_H
#define SLUICE_KERNELS_HALF_H
#include <stdint.h>
#include <string.h>

static inline float sluice__float_of_bits(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t sluice__bits_of_float(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* IEEE binary16: 5 exponent bits with bias 15, 10 fraction bits. Subnormals are fraction * 2^-24. */
static inline float sluice__half_to_float(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 0x3ff;
    if (exponent == 31) return sluice__float_of_bits(sign | 0x7f800000 | fraction << 13);
    if (exponent) return sluice__float_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
    float f = (float)fraction * 0x1p-24f;
    return sign ? -f : f;
}

static inline uint16_t sluice__float_to_half(float f) {
    uint32_t bits = sluice__bits_of_float(f), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    if (rest > 0x7f800000) return (uint16_t)(sign | 0x7e00);            /* NaN */
    if (rest >= 0x477ff000) return (uint16_t)(sign | 0x7c00);           /* rounds past 65504 */
    if (rest < 0x38800000) {                                            /* below 2^-14: adding 0.5 leaves ulps of 2^-24 */
        float shifted = sluice__float_of_bits(rest) + 0.5f;
        return (uint16_t)(sign | (sluice__bits_of_float(shifted) - 0x3f000000));
    }
    uint32_t odd = rest >> 13 & 1;
    return (uint16_t)(sign | ((rest + 0xfff + odd - 0x38000000) >> 13));
}

static inline float sluice__brain_to_float(uint16_t b) { return sluice__float_of_bits((uint32_t)b << 16); }

static inline uint16_t sluice__float_to_brain(float f) {
    uint32_t bits = sluice__bits_of_float(f);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 64); /* a quiet NaN */
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
#endif
