/* SPDX-License-Identifier: Apache-2.0 */
/* Block quantisation as GGUF files hold it: the block types, their decoding and encoding, and products with weights
 * that stay quantised (quant_linear.c). A block of 32 values has one scale (and a minimum in the _1 types); a K block of
 * 256 has eight parts of 32 (Q6_K: sixteen of 16) whose scales are themselves quantised. */
#ifndef SLUICE_KERNELS_QUANT_H
#define SLUICE_KERNELS_QUANT_H
#include <stdbool.h>
#include <stdint.h>

/* name, values in a block, bytes of a block */
#define SLUICE__QUANT_LIST(X)                                                                                          \
    X(Q4_0, 32, 18) X(Q4_1, 32, 20) X(Q5_0, 32, 22) X(Q5_1, 32, 24) X(Q8_0, 32, 34) X(Q4_K, 256, 144)              \
        X(Q5_K, 256, 176) X(Q6_K, 256, 210)

typedef enum sluice__quant {
#define SLUICE_X(name, values, bytes) SLUICE__QUANT_##name,
    SLUICE__QUANT_LIST(SLUICE_X)
#undef SLUICE_X
        SLUICE__QUANTS
} sluice__quant;

int sluice__quant_values(sluice__quant type); /* in a block: 32 or 256 */
int sluice__quant_bytes(sluice__quant type);  /* of a block */
const char *sluice__quant_name(sluice__quant type);
static inline bool sluice__quant_is_k(sluice__quant type) { return type >= SLUICE__QUANT_Q4_K; }

/* One part of 32 values of a block:  value[i] = scale[i / 16] * (code[i] - offset) + shift. */
typedef struct sluice__quant_part {
    uint8_t code[32];
    float scale[2], shift;
    int offset;
} sluice__quant_part;
/* parts: [values / 32] */
void sluice__quant_open(sluice__quant_part *parts, sluice__quant type, const void *block);

/* Whether all scales of `count` values are finite. */
bool sluice__quant_finite(sluice__quant type, const void *blocks, int64_t count);

/* count: a multiple of the block's values. Blocks need not be aligned. */
void sluice__dequantize(float *out, sluice__quant type, const void *blocks, int64_t count);
/* The types of 32 give the bytes that the gguf package gives (round to nearest; docs/formats.md). K types search for
 * the scales that lose least, large values weighing more. Values must be finite. */
void sluice__quantize(void *blocks, sluice__quant type, const float *x, int64_t count);

/* ---- for quant_encode_k.c ---- */
void sluice__quantize_k(void *blocks, sluice__quant type, const float *x, int64_t count);
#endif
