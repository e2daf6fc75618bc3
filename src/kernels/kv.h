/* SPDX-License-Identifier: Apache-2.0 */
/* Keys and values as a session holds them, one head of one token at a time. */
#ifndef SLUICE_KERNELS_KV_H
#define SLUICE_KERNELS_KV_H
#include <stddef.h>
#include "sluice/attention.h"

/* [B, T, heads, head_dim] in any type; strides in bytes. */
typedef struct sluice__kv {
    const void *data;
    int64_t stride_batch, stride_token, stride_head;
    sluice_kv_dtype dtype;
} sluice__kv;

/* Values of a head must be a multiple of this. */
static inline int sluice__kv_multiple(sluice_kv_dtype dtype) { return dtype == SLUICE_KV_Q8_0 ? 32 : 1; }
/* Bytes of `count` values. */
static inline size_t sluice__kv_bytes(sluice_kv_dtype dtype, int64_t count) {
    if (dtype == SLUICE_KV_Q8_0) return (size_t)(count / 32) * 34;
    return (size_t)count * (dtype == SLUICE_KV_F32 ? 4 : 2);
}
/* y = x as floats, exact.   y: [count] */
void sluice__kv_load(float *y, const void *x, sluice_kv_dtype dtype, int64_t count);
/* y = x in that type: nearest, ties to even; f16 saturates nothing (large values become infinite). Q8_0 as GGUF has it.
 */
void sluice__kv_store(void *y, const float *x, sluice_kv_dtype dtype, int64_t count);

void sluice_kv_load_ref(float *y, const void *x, sluice_kv_dtype dtype, int64_t count);
#if defined(__x86_64__)
void sluice_kv_load_avx2(float *y, const void *x, sluice_kv_dtype dtype, int64_t count);
void sluice_kv_load_avx512(float *y, const void *x, sluice_kv_dtype dtype, int64_t count);
#endif
#endif
