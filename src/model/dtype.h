/* SPDX-License-Identifier: Apache-2.0 */
/* Element types of weight files and their conversion to fp32. */
#ifndef SLUICE_MODEL_DTYPE_H
#define SLUICE_MODEL_DTYPE_H
#include <stdbool.h>
#include <stdint.h>

/* name in safetensors, bits per element */
#define SLUICE__DTYPE_LIST(X)                                                                                  \
    X(F64, 64)                                                                                                 \
    X(F32, 32) X(F16, 16) X(BF16, 16) X(I64, 64) X(I32, 32) X(I16, 16) X(I8, 8) X(U64, 64) X(U32, 32)          \
        X(U16, 16) X(U8, 8) X(BOOL, 8) X(F8_E4M3, 8) X(F8_E5M2, 8) X(F8_E8M0, 8) X(C64, 64)

typedef enum sluice__dtype {
#define SLUICE_X(name, bits) SLUICE__##name,
    SLUICE__DTYPE_LIST(SLUICE_X)
#undef SLUICE_X
        SLUICE__DTYPES
} sluice__dtype;

const char *sluice__dtype_name(sluice__dtype dtype);
int sluice__dtype_size(sluice__dtype dtype); /* bytes */
bool sluice__dtype_from_name(sluice__dtype *out, const char *name);

/* Whether values of this type can be weights: F64, F32, F16, BF16. */
bool sluice__dtype_is_weight(sluice__dtype dtype);
/* out[i] = data[i * stride] as fp32 (F64 is rounded), i < count; data need not be aligned; stride in elements.
 * The type is one of the weight types. */
void sluice__to_f32(float *out, sluice__dtype dtype, const void *data, int64_t stride, int64_t count);
/* The same for I64, I32, I16, I8, U8, U16, U32, BOOL; false when a value does not fit or the type is another.
 */
bool sluice__to_i32(int32_t *out, sluice__dtype dtype, const void *data, int64_t count);

float sluice__bf16_to_f32(uint16_t bits);
float sluice__f16_to_f32(uint16_t bits);
#endif
