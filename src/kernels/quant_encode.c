/* SPDX-License-Identifier: Apache-2.0 */
/* Encoding into blocks of 32. The rules are those of the format's own tools, so that the same floats give the same bytes:
 * scales are worked out in float and divided through before they are rounded to 16 bits; the symmetric types put the value
 * of largest magnitude on the end of the range that has one step more. */
#include "kernels/half.h"
#include "kernels/quant.h"
#include <assert.h>
#include <math.h>

enum { BLOCK = 32 };

static void put_half(uint8_t *p, float f) {
    uint16_t h = sluice__float_to_half(f);
    p[0] = (uint8_t)h;
    p[1] = (uint8_t)(h >> 8);
}

static uint8_t *encode_q8(uint8_t *p, const float *x) {
    float most = 0;
    for (int i = 0; i < BLOCK; i++) most = fmaxf(most, fabsf(x[i]));
    float d = most / 127, inverse = d > 0 ? 1 / d : 0;
    put_half(p, d);
    for (int i = 0; i < BLOCK; i++) p[2 + i] = (uint8_t)(int8_t)roundf(x[i] * inverse);
    return p + 34;
}

/* Codes 0..2*half-1 around half: the first of the values of largest magnitude becomes code 0. */
static float signed_codes(int *code, const float *x, int half) {
    float most = 0;
    for (int i = 0; i < BLOCK; i++)
        if (fabsf(x[i]) > fabsf(most)) most = x[i];
    float d = most / (float)-half, inverse = d != 0 ? 1 / d : 0;
    for (int i = 0; i < BLOCK; i++) {
        float scaled = x[i] * inverse;
        int q = (int)(scaled + ((float)half + 0.5f));
        code[i] = q < 0 ? 0 : q > 2 * half - 1 ? 2 * half - 1 : q;
    }
    return d;
}

/* Codes 0..steps between the smallest and the largest value. */
static float ranged_codes(int *code, const float *x, int steps, float *least) {
    float low = x[0], high = x[0];
    for (int i = 1; i < BLOCK; i++) {
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
    }
    float d = (high - low) / (float)steps, inverse = d != 0 ? 1 / d : 0;
    for (int i = 0; i < BLOCK; i++) {
        float scaled = (x[i] - low) * inverse;
        int q = (int)(scaled + 0.5f);
        code[i] = q < 0 ? 0 : q > steps ? steps : q;
    }
    *least = low;
    return d;
}

static uint8_t *put_codes(uint8_t *p, const int *code, bool fifth) {
    if (fifth) {
        for (int i = 0; i < 4; i++) p[i] = 0;
        for (int i = 0; i < BLOCK; i++) p[i / 8] |= (uint8_t)((code[i] >> 4 & 1) << i % 8);
        p += 4;
    }
    for (int i = 0; i < 16; i++) p[i] = (uint8_t)((code[i] & 15) | (code[i + 16] & 15) << 4);
    return p + 16;
}

static uint8_t *encode_32(uint8_t *p, sluice__quant type, const float *x) {
    bool has_min = type == SLUICE__QUANT_Q4_1 || type == SLUICE__QUANT_Q5_1;
    bool fifth = type == SLUICE__QUANT_Q5_0 || type == SLUICE__QUANT_Q5_1;
    int code[BLOCK];
    float least = 0;
    float d = has_min ? ranged_codes(code, x, fifth ? 31 : 15, &least) : signed_codes(code, x, fifth ? 16 : 8);
    put_half(p, d);
    p += 2;
    if (has_min) {
        put_half(p, least);
        p += 2;
    }
    return put_codes(p, code, fifth);
}

void sluice__quantize(void *blocks, sluice__quant type, const float *x, int64_t count) {
    uint8_t *p = blocks;
    assert(count % sluice__quant_values(type) == 0);
    if (sluice__quant_values(type) == 256) {
        sluice__quantize_k(blocks, type, x, count);
        return;
    }
    for (int64_t i = 0; i < count; i += BLOCK)
        p = type == SLUICE__QUANT_Q8_0 ? encode_q8(p, x + i) : encode_32(p, type, x + i);
}
