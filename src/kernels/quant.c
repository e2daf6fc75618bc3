/* SPDX-License-Identifier: Apache-2.0 */
/* The block types and their decoding. Every block is opened into parts of 32 plain codes with float scales; values,
 * the reference of products and the tests all go through that one description of the formats. */
#include "kernels/quant.h"
#include "kernels/half.h"
#include <assert.h>
#include <string.h>

static const struct {
    const char *name;
    int values, bytes;
} types[] = {
#define SLUICE_X(name, values, bytes) {#name, values, bytes},
    SLUICE__QUANT_LIST(SLUICE_X)
#undef SLUICE_X
};

int sluice__quant_values(sluice__quant type) { return types[type].values; }

int sluice__quant_bytes(sluice__quant type) { return types[type].bytes; }

const char *sluice__quant_name(sluice__quant type) { return types[type].name; }

static float half_at(const uint8_t *p) { return sluice__half_to_float((uint16_t)(p[0] | p[1] << 8)); }

/* Low halves of 16 bytes are the first 16 codes, high halves the others. */
static void open_nibbles(uint8_t *code, const uint8_t *p) {
    for (int i = 0; i < 16; i++) {
        code[i] = p[i] & 15;
        code[i + 16] = p[i] >> 4;
    }
}

/* Bit i of four bytes is the fifth bit of code i. */
static void add_fifth_bits(uint8_t *code, const uint8_t *p) {
    for (int i = 0; i < 32; i++) code[i] |= (uint8_t)((p[i / 8] >> i % 8 & 1) << 4);
}

static void open_32(sluice__quant_part *part, sluice__quant type, const uint8_t *p) {
    bool has_min = type == SLUICE__QUANT_Q4_1 || type == SLUICE__QUANT_Q5_1;
    bool fifth = type == SLUICE__QUANT_Q5_0 || type == SLUICE__QUANT_Q5_1;
    part->scale[0] = part->scale[1] = half_at(p);
    p += 2;
    part->shift = has_min ? half_at(p) : 0;
    if (has_min) p += 2;
    part->offset = type == SLUICE__QUANT_Q8_0 ? 128 : has_min ? 0 : fifth ? 16 : 8;
    if (type == SLUICE__QUANT_Q8_0) {
        for (int i = 0; i < 32; i++) part->code[i] = p[i] ^ 0x80;
        return;
    }
    open_nibbles(part->code, p + (fifth ? 4 : 0));
    if (fifth) add_fifth_bits(part->code, p);
}

/* The 6-bit scale and minimum of part j out of the 12 bytes of Q4_K and Q5_K. */
static void k_scales(const uint8_t *s, int j, int *scale, int *min) {
    if (j < 4) {
        *scale = s[j] & 63;
        *min = s[j + 4] & 63;
    } else {
        *scale = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
        *min = s[j + 4] >> 4 | (s[j] >> 6) << 4;
    }
}

static void open_q45_k(sluice__quant_part *parts, const uint8_t *p, bool fifth) {
    float d = half_at(p), dmin = half_at(p + 2);
    const uint8_t *high = p + 16, *low = fifth ? high + 32 : high;
    for (int j = 0; j < 8; j++) {
        sluice__quant_part *part = &parts[j];
        int scale, min;
        k_scales(p + 4, j, &scale, &min);
        part->scale[0] = part->scale[1] = d * (float)scale;
        part->shift = -(dmin * (float)min);
        part->offset = 0;
        for (int i = 0; i < 32; i++) {
            int code = j % 2 ? low[j / 2 * 32 + i] >> 4 : low[j / 2 * 32 + i] & 15;
            part->code[i] = (uint8_t)(fifth ? code | (high[i] >> j & 1) << 4 : code);
        }
    }
}

/* Two halves of 128 values; in each, four parts share 64 bytes of low and 32 bytes of high bits. */
static void open_q6_k(sluice__quant_part *parts, const uint8_t *p) {
    const uint8_t *scales = p + 192;
    float d = half_at(p + 208);
    for (int j = 0; j < 8; j++) {
        sluice__quant_part *part = &parts[j];
        const uint8_t *low = p + j / 4 * 64 + j % 2 * 32, *high = p + 128 + j / 4 * 32;
        part->shift = 0;
        part->offset = 32;
        for (int h = 0; h < 2; h++) part->scale[h] = d * (float)(int8_t)scales[2 * j + h];
        for (int i = 0; i < 32; i++) {
            int four = j % 4 < 2 ? low[i] & 15 : low[i] >> 4;
            part->code[i] = (uint8_t)(four | (high[i] >> 2 * (j % 4) & 3) << 4);
        }
    }
}

void sluice__quant_open(sluice__quant_part *parts, sluice__quant type, const void *block) {
    if (type == SLUICE__QUANT_Q6_K) open_q6_k(parts, block);
    else if (type == SLUICE__QUANT_Q4_K) open_q45_k(parts, block, false);
    else if (type == SLUICE__QUANT_Q5_K) open_q45_k(parts, block, true);
    else open_32(parts, type, block);
}

static bool finite_half(const uint8_t *p) { return (p[1] & 0x7c) != 0x7c; }

bool sluice__quant_finite(sluice__quant type, const void *blocks, int64_t count) {
    const uint8_t *p = blocks;
    int at = type == SLUICE__QUANT_Q6_K ? 208 : 0;
    bool two = type == SLUICE__QUANT_Q4_1 || type == SLUICE__QUANT_Q5_1 || type == SLUICE__QUANT_Q4_K ||
               type == SLUICE__QUANT_Q5_K;
    for (int64_t i = 0; i < count; i += types[type].values, p += types[type].bytes)
        if (!finite_half(p + at) || (two && !finite_half(p + 2))) return false;
    return true;
}

static void part_values(float *out, const sluice__quant_part *part) {
    for (int i = 0; i < 32; i++)
        out[i] = part->scale[i / 16] * (float)(part->code[i] - part->offset) + part->shift;
}

void sluice__dequantize(float *out, sluice__quant type, const void *blocks, int64_t count) {
    sluice__quant_part parts[8];
    const uint8_t *p = blocks;
    int values = types[type].values;
    assert(count % values == 0);
    for (int64_t i = 0; i < count; i += values, p += types[type].bytes) {
        sluice__quant_open(parts, type, p);
        for (int j = 0; j < values / 32; j++) part_values(out + i + 32 * j, &parts[j]);
    }
}
