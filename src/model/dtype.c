/* SPDX-License-Identifier: Apache-2.0 */
/* Element types. Conversions are plain scalar code: loading a model is bound by page faults and disk, not by
 * these loops. */
#include "model/dtype.h"
#include <assert.h>
#include <string.h>

static const struct {
    const char *name;
    int block, bytes; /* values of a block, bytes of it */
    int gguf;         /* number in GGUF files, or -1 */
} types[] = {
#define SLUICE_X(name, bits) {#name, 1, (bits) / 8, -1},
    SLUICE__DTYPE_LIST(SLUICE_X)
#undef SLUICE_X
#define SLUICE_X(name, number, values, bytes) {#name, values, bytes, number},
        SLUICE__BLOCK_DTYPE_LIST(SLUICE_X)
#undef SLUICE_X
};

static const struct {
    sluice__dtype dtype;
    int gguf;
} plain_in_gguf[] = {
    {SLUICE__F32, 0},  {SLUICE__F16, 1},  {SLUICE__I8, 24},  {SLUICE__I16, 25},
    {SLUICE__I32, 26}, {SLUICE__I64, 27}, {SLUICE__F64, 28}, {SLUICE__BF16, 30},
};

const char *sluice__dtype_name(sluice__dtype dtype) {
    assert(dtype < SLUICE__DTYPES);
    return types[dtype].name;
}

int sluice__dtype_size(sluice__dtype dtype) {
    assert(dtype < SLUICE__PLAIN_DTYPES);
    return types[dtype].bytes;
}

int sluice__dtype_block(sluice__dtype dtype) {
    return types[dtype].block;
}

int64_t sluice__dtype_bytes(sluice__dtype dtype, int64_t count) {
    assert(count % types[dtype].block == 0);
    return count / types[dtype].block * types[dtype].bytes;
}

bool sluice__dtype_from_name(sluice__dtype *out, const char *name) {
    for (int i = 0; i < SLUICE__PLAIN_DTYPES; i++) {
        if (strcmp(types[i].name, name)) continue;
        *out = (sluice__dtype)i;
        return true;
    }
    return false;
}

int sluice__dtype_to_gguf(sluice__dtype dtype) {
    for (size_t i = 0; i < sizeof plain_in_gguf / sizeof *plain_in_gguf; i++)
        if (plain_in_gguf[i].dtype == dtype) return plain_in_gguf[i].gguf;
    return types[dtype].gguf;
}

bool sluice__dtype_from_gguf(sluice__dtype *out, uint32_t number) {
    for (int i = 0; i < SLUICE__DTYPES; i++) {
        if (sluice__dtype_to_gguf((sluice__dtype)i) != (int64_t)number) continue;
        *out = (sluice__dtype)i;
        return true;
    }
    return false;
}

bool sluice__dtype_quant(sluice__dtype dtype, sluice__quant *out) {
    if (dtype < SLUICE__PLAIN_DTYPES) return false;
    for (int i = 0; i < SLUICE__QUANTS; i++) {
        if (strcmp(sluice__quant_name((sluice__quant)i), types[dtype].name)) continue;
        *out = (sluice__quant)i;
        return true;
    }
    return false;
}

bool sluice__dtype_is_weight(sluice__dtype dtype) {
    sluice__quant quant;
    return dtype == SLUICE__F32 || dtype == SLUICE__BF16 || dtype == SLUICE__F16 || dtype == SLUICE__F64 ||
           sluice__dtype_quant(dtype, &quant);
}

static float from_bits(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

float sluice__bf16_to_f32(uint16_t bits) {
    return from_bits((uint32_t)bits << 16);
}

/* IEEE binary16: 5 exponent bits with bias 15, 10 fraction bits. Subnormals are fraction * 2^-24. */
float sluice__f16_to_f32(uint16_t bits) {
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16, exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
    if (exponent == 31) return from_bits(sign | 0x7f800000 | fraction << 13);
    if (exponent) return from_bits(sign | (exponent + 112) << 23 | fraction << 13);
    float f = (float)fraction * 0x1p-24f;
    return sign ? -f : f;
}

static void widen_16(float *out, const unsigned char *p, int64_t step, int64_t count, bool bf16) {
    for (int64_t i = 0; i < count; i++, p += step) {
        uint16_t bits;
        memcpy(&bits, p, sizeof bits);
        out[i] = bf16 ? sluice__bf16_to_f32(bits) : sluice__f16_to_f32(bits);
    }
}

void sluice__to_f32(float *out, sluice__dtype dtype, const void *data, int64_t stride, int64_t count) {
    const unsigned char *p = data;
    sluice__quant quant;
    assert(sluice__dtype_is_weight(dtype));
    if (sluice__dtype_quant(dtype, &quant)) {
        sluice__dequantize(out, quant, data, count);
        return;
    }
    int64_t step = stride * sluice__dtype_size(dtype);
    if (dtype == SLUICE__F32 && stride == 1) {
        memcpy(out, p, (size_t)count * sizeof *out);
    } else if (dtype == SLUICE__F32) {
        for (int64_t i = 0; i < count; i++, p += step) memcpy(&out[i], p, sizeof *out);
    } else if (dtype == SLUICE__F64) {
        for (int64_t i = 0; i < count; i++, p += step) {
            double d;
            memcpy(&d, p, sizeof d);
            out[i] = (float)d;
        }
    } else {
        widen_16(out, p, step, count, dtype == SLUICE__BF16);
    }
}

/* One integer of `size` bytes, sign-extended unless is_unsigned. U64 does not come here. */
static int64_t read_integer(const unsigned char *p, int size, bool is_unsigned) {
    uint64_t v = 0;
    for (int i = size - 1; i >= 0; i--) v = v << 8 | p[i];
    int unused = 64 - 8 * size;
    return is_unsigned ? (int64_t)v : (int64_t)(v << unused) >> unused;
}

bool sluice__to_i32(int32_t *out, sluice__dtype dtype, const void *data, int64_t count) {
    bool is_signed =
        dtype == SLUICE__I64 || dtype == SLUICE__I32 || dtype == SLUICE__I16 || dtype == SLUICE__I8;
    bool is_unsigned =
        dtype == SLUICE__U32 || dtype == SLUICE__U16 || dtype == SLUICE__U8 || dtype == SLUICE__BOOL;
    if (!is_signed && !is_unsigned) return false;
    int size = sluice__dtype_size(dtype);
    for (int64_t i = 0; i < count; i++) {
        int64_t v = read_integer((const unsigned char *)data + i * size, size, is_unsigned);
        if (v < INT32_MIN || v > INT32_MAX) return false;
        out[i] = (int32_t)v;
    }
    return true;
}

bool sluice__any_nonfinite(sluice__dtype dtype, const void *data, int64_t count) {
    uint64_t mask = dtype == SLUICE__F64    ? 0x7ff0000000000000u
                    : dtype == SLUICE__F32  ? 0x7f800000u
                    : dtype == SLUICE__BF16 ? 0x7f80u
                                            : 0x7c00u;
    const unsigned char *p = data;
    uint32_t bad = 0;
    if (dtype == SLUICE__F64) {
        for (int64_t i = 0; i < count; i++) {
            uint64_t bits;
            memcpy(&bits, p + 8 * i, sizeof bits);
            bad |= (bits & mask) == mask;
        }
    } else if (dtype == SLUICE__F32) {
        for (int64_t i = 0; i < count; i++) {
            uint32_t bits;
            memcpy(&bits, p + 4 * i, sizeof bits);
            bad |= (bits & (uint32_t)mask) == (uint32_t)mask;
        }
    } else {
        for (int64_t i = 0; i < count; i++) {
            uint16_t bits;
            memcpy(&bits, p + 2 * i, sizeof bits);
            bad |= (bits & (uint16_t)mask) == (uint16_t)mask;
        }
    }
    return bad;
}
