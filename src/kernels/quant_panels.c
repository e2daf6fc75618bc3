/* SPDX-License-Identifier: Apache-2.0 */
/* Interleaving rows of blocks into panels (layout: quant_linear.h), and taking a row out again. */
#include "kernels/half.h"
#include "kernels/quant_linear.h"
#include <assert.h>
#include <string.h>

enum { PANEL = SLUICE__PANEL, PART = SLUICE__PART, GROUP = 4, GROUP_BYTES = PANEL * GROUP };

static bool has_min(sluice__quant type) { return type == SLUICE__QUANT_Q4_1 || type == SLUICE__QUANT_Q5_1; }

/* Bytes of the codes of one part. */
static int code_bytes(sluice__quant type) {
    switch (type) {
    case SLUICE__QUANT_Q8_0: return 8 * GROUP_BYTES;
    case SLUICE__QUANT_Q5_0:
    case SLUICE__QUANT_Q5_1:
    case SLUICE__QUANT_Q5_K: return 5 * GROUP_BYTES;
    case SLUICE__QUANT_Q6_K: return 6 * GROUP_BYTES;
    default: return 4 * GROUP_BYTES;
    }
}

/* Bytes of the scales of one block. */
static int scale_bytes(sluice__quant type) {
    if (type == SLUICE__QUANT_Q6_K) return 2 * PANEL + 8 * 2 * PANEL;
    if (sluice__quant_is_k(type)) return 4 * PANEL + 8 * 2 * PANEL;
    return has_min(type) ? 4 * PANEL : 2 * PANEL;
}

int64_t sluice__quant_panel_bytes(sluice__quant type, int64_t columns) {
    int64_t bytes = columns / PART * code_bytes(type) + columns / sluice__quant_values(type) * scale_bytes(type);
    return (bytes + 63) / 64 * 64;
}

int64_t sluice__quant_matrix_bytes(sluice__quant type, int64_t rows, int64_t columns) {
    return (rows + PANEL - 1) / PANEL * sluice__quant_panel_bytes(type, columns);
}

/* Codes of one part of row `lane` of the panel. */
static void put_codes(unsigned char *at, sluice__quant type, int lane, const uint8_t *code) {
    if (type == SLUICE__QUANT_Q8_0) {
        for (int g = 0; g < 8; g++) memcpy(at + g * GROUP_BYTES + lane * GROUP, code + GROUP * g, GROUP);
        return;
    }
    for (int i = 0; i < PART / 2; i++)
        at[i / GROUP * GROUP_BYTES + lane * GROUP + i % GROUP] =
            (unsigned char)((code[i] & 15) | (code[i + 16] & 15) << 4);
    at += 4 * GROUP_BYTES;
    if (type == SLUICE__QUANT_Q6_K) {
        for (int i = 0; i < PART; i++)
            at[i / 16 * GROUP_BYTES + lane * GROUP + i % GROUP] |= (unsigned char)((code[i] >> 4) << i % 16 / GROUP * 2);
    } else if (code_bytes(type) > 4 * GROUP_BYTES) {
        for (int i = 0; i < PART; i++) { /* bit 4 * lane + i % 4 of the 64 of its group */
            int bit = lane * GROUP + i % GROUP;
            at[i / GROUP * 8 + bit / 8] |= (unsigned char)((code[i] >> 4) << bit % 8);
        }
    }
}

static void get_codes(uint8_t *code, const unsigned char *at, sluice__quant type, int lane) {
    if (type == SLUICE__QUANT_Q8_0) {
        for (int g = 0; g < 8; g++) memcpy(code + GROUP * g, at + g * GROUP_BYTES + lane * GROUP, GROUP);
        return;
    }
    for (int i = 0; i < PART / 2; i++) {
        unsigned char both = at[i / GROUP * GROUP_BYTES + lane * GROUP + i % GROUP];
        code[i] = both & 15;
        code[i + 16] = both >> 4;
    }
    at += 4 * GROUP_BYTES;
    for (int i = 0; i < PART; i++) {
        int bit = lane * GROUP + i % GROUP;
        if (type == SLUICE__QUANT_Q6_K)
            code[i] |= (uint8_t)((at[i / 16 * GROUP_BYTES + bit] >> i % 16 / GROUP * 2 & 3) << 4);
        else if (code_bytes(type) > 4 * GROUP_BYTES)
            code[i] |= (uint8_t)((at[i / GROUP * 8 + bit / 8] >> bit % 8 & 1) << 4);
    }
}

/* The scales of a block as they stand in the file, spread to one place per lane. */
static void put_scales(unsigned char *at, sluice__quant type, int lane, const unsigned char *block) {
    if (type == SLUICE__QUANT_Q6_K) {
        memcpy(at + 2 * lane, block + 208, 2);
        for (int j = 0; j < 16; j++) at[2 * PANEL + j * PANEL + lane] = block[192 + j];
    } else if (sluice__quant_is_k(type)) {
        memcpy(at + 2 * lane, block, 2);
        memcpy(at + 2 * PANEL + 2 * lane, block + 2, 2);
        const unsigned char *s = block + 4;
        for (int j = 0; j < 8; j++) {
            unsigned char *to = at + 4 * PANEL + j * 2 * PANEL + lane;
            to[0] = (unsigned char)(j < 4 ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6) << 4);
            to[PANEL] = (unsigned char)(j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | (s[j] >> 6) << 4);
        }
    } else {
        memcpy(at + 2 * lane, block, 2);
        if (has_min(type)) memcpy(at + 2 * PANEL + 2 * lane, block + 2, 2);
    }
}

/* Codes of a block of 8 or 4 bits as they lie in the file: the first 16 codes of 4 bits are low halves there too, so bytes
 * move in fours. */
static void move_codes(unsigned char *at, int lane, const unsigned char *p, bool eight) {
    for (int g = 0; g < (eight ? 8 : 4); g++) {
        uint32_t four;
        memcpy(&four, p + GROUP * g, GROUP);
        if (eight) four ^= 0x80808080u;
        memcpy(at + g * GROUP_BYTES + lane * GROUP, &four, GROUP);
    }
}

void sluice__quant_put_row(unsigned char *panels, sluice__quant type, int64_t columns, int64_t r, const void *blocks) {
    bool eight = type == SLUICE__QUANT_Q8_0, four = type == SLUICE__QUANT_Q4_0 || type == SLUICE__QUANT_Q4_1;
    int lane = (int)(r % PANEL), values = sluice__quant_values(type), codes = code_bytes(type);
    unsigned char *codes_at = panels + r / PANEL * sluice__quant_panel_bytes(type, columns);
    unsigned char *scales_at = codes_at + columns / PART * codes;
    const unsigned char *block = blocks;
    sluice__quant_part parts[8];
    for (int64_t i = 0; i < columns; i += values, block += sluice__quant_bytes(type)) {
        if (eight || four) {
            move_codes(codes_at, lane, block + (has_min(type) ? 4 : 2), eight);
            codes_at += codes;
        } else {
            sluice__quant_open(parts, type, block);
            for (int j = 0; j < values / PART; j++, codes_at += codes) put_codes(codes_at, type, lane, parts[j].code);
        }
        put_scales(scales_at, type, lane, block);
        scales_at += scale_bytes(type);
    }
}

static float half_at(const unsigned char *p) { return sluice__half_to_float((uint16_t)(p[0] | p[1] << 8)); }

/* Scales and offset of part j of a block whose scales stand at `at`. */
static void get_scales(sluice__quant_part *part, const unsigned char *at, sluice__quant type, int lane, int j) {
    float d = half_at(at + 2 * lane);
    part->shift = 0;
    part->scale[0] = part->scale[1] = d;
    if (type == SLUICE__QUANT_Q6_K) {
        for (int h = 0; h < 2; h++) part->scale[h] = d * (float)(int8_t)at[(2 + 2 * j + h) * PANEL + lane];
        part->offset = 32;
    } else if (sluice__quant_is_k(type)) {
        const unsigned char *s = at + (4 + 2 * j) * PANEL + lane;
        part->scale[0] = part->scale[1] = d * (float)s[0];
        part->shift = -(half_at(at + 2 * PANEL + 2 * lane) * (float)s[PANEL]);
        part->offset = 0;
    } else if (has_min(type)) {
        part->shift = half_at(at + 2 * PANEL + 2 * lane);
        part->offset = 0;
    } else {
        part->offset = type == SLUICE__QUANT_Q8_0 ? 128 : type == SLUICE__QUANT_Q5_0 ? 16 : 8;
    }
}

void sluice__quant_panel_part(sluice__quant_part *part, const sluice__quant_matrix *m, int64_t r, int64_t index) {
    int lane = (int)(r % PANEL), per_block = sluice__quant_values(m->type) / PART, codes = code_bytes(m->type);
    const unsigned char *panel = m->panels + r / PANEL * sluice__quant_panel_bytes(m->type, m->columns);
    const unsigned char *scales = panel + m->columns / PART * codes + index / per_block * scale_bytes(m->type);
    get_codes(part->code, panel + index * codes, m->type, lane);
    get_scales(part, scales, m->type, lane, (int)(index % per_block));
}

void sluice__quant_get_row(float *out, const sluice__quant_matrix *m, int64_t r) {
    assert(r < m->rows);
    for (int64_t p = 0; p < m->columns / PART; p++) {
        sluice__quant_part part;
        sluice__quant_panel_part(&part, m, r, p);
        for (int i = 0; i < PART; i++)
            out[p * PART + i] = part.scale[i / 16] * (float)(part.code[i] - part.offset) + part.shift;
    }
}
