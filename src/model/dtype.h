/* SPDX-License-Identifier: Apache-2.0 */
/* Element types of weight files and their conversion to fp32. */
#ifndef SLUICE_MODEL_DTYPE_H
#define SLUICE_MODEL_DTYPE_H
#include <stdbool.h>
#include <stdint.h>
#include "kernels/quant.h"

/* name in safetensors, bits per element */
#define SLUICE__DTYPE_LIST(X)                                                                                  \
    X(F64, 64)                                                                                                 \
    X(F32, 32) X(F16, 16) X(BF16, 16) X(I64, 64) X(I32, 32) X(I16, 16) X(I8, 8) X(U64, 64) X(U32, 32)          \
        X(U16, 16) X(U8, 8) X(BOOL, 8) X(F8_E4M3, 8) X(F8_E5M2, 8) X(F8_E8M0, 8) X(C64, 64)

/* Types of GGUF files whose values share scales: name, number in the format, values in a block, bytes of a block. Those
 * of kernels/quant.h can be weights, the others are known by name and size. */
#define SLUICE__BLOCK_DTYPE_LIST(X)                                                                            \
    X(Q4_0, 2, 32, 18) X(Q4_1, 3, 32, 20) X(Q5_0, 6, 32, 22) X(Q5_1, 7, 32, 24) X(Q8_0, 8, 32, 34)             \
        X(Q4_K, 12, 256, 144) X(Q5_K, 13, 256, 176) X(Q6_K, 14, 256, 210) X(Q8_1, 9, 32, 36)                   \
        X(Q2_K, 10, 256, 84) X(Q3_K, 11, 256, 110) X(Q8_K, 15, 256, 292) X(IQ2_XXS, 16, 256, 66)               \
        X(IQ2_XS, 17, 256, 74) X(IQ3_XXS, 18, 256, 98) X(IQ1_S, 19, 256, 50) X(IQ4_NL, 20, 32, 18)             \
        X(IQ3_S, 21, 256, 110) X(IQ2_S, 22, 256, 82) X(IQ4_XS, 23, 256, 136) X(IQ1_M, 29, 256, 56)             \
        X(TQ1_0, 34, 256, 54) X(TQ2_0, 35, 256, 66) X(MXFP4, 39, 32, 17) X(NVFP4, 40, 64, 36)

typedef enum sluice__dtype {
#define SLUICE_X(name, bits) SLUICE__##name,
    SLUICE__DTYPE_LIST(SLUICE_X)
#undef SLUICE_X
        SLUICE__PLAIN_DTYPES,
    SLUICE__BEFORE_BLOCKS = SLUICE__PLAIN_DTYPES - 1, /* so that the first block type follows the last plain one */
#define SLUICE_X(name, number, values, bytes) SLUICE__##name,
    SLUICE__BLOCK_DTYPE_LIST(SLUICE_X)
#undef SLUICE_X
        SLUICE__DTYPES
} sluice__dtype;

const char *sluice__dtype_name(sluice__dtype dtype);
int sluice__dtype_size(sluice__dtype dtype); /* bytes of an element; not of block types */
/* Of a plain type, as safetensors spells it. */
bool sluice__dtype_from_name(sluice__dtype *out, const char *name);
/* Values that are stored together: 1 for plain types; and the bytes of `count` values, a multiple of that. */
int sluice__dtype_block(sluice__dtype dtype);
int64_t sluice__dtype_bytes(sluice__dtype dtype, int64_t count);
/* From and to the number of a type in GGUF files; -1 for types that they do not have. */
bool sluice__dtype_from_gguf(sluice__dtype *out, uint32_t number);
int sluice__dtype_to_gguf(sluice__dtype dtype);
/* Whether it is one of kernels/quant.h, and which. */
bool sluice__dtype_quant(sluice__dtype dtype, sluice__quant *out);

/* Whether values of this type can be weights: F64, F32, F16, BF16 and the types of kernels/quant.h. */
bool sluice__dtype_is_weight(sluice__dtype dtype);
/* out[i] = data[i * stride] as fp32 (F64 is rounded), i < count; data need not be aligned; stride in elements.
 * The type is one of the weight types; for those in blocks stride is 1, and count a multiple of
 * the block. */
void sluice__to_f32(float *out, sluice__dtype dtype, const void *data, int64_t stride, int64_t count);
/* The same for I64, I32, I16, I8, U8, U16, U32, BOOL; false when a value does not fit or the type is another.
 */
bool sluice__to_i32(int32_t *out, sluice__dtype dtype, const void *data, int64_t count);

/* Whether any of `count` values of a weight type is NaN or infinite. data need not be aligned. */
bool sluice__any_nonfinite(sluice__dtype dtype, const void *data, int64_t count);

float sluice__bf16_to_f32(uint16_t bits);
float sluice__f16_to_f32(uint16_t bits);
#endif
