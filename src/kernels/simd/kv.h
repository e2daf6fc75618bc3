/* SPDX-License-Identifier: Apache-2.0 */
/* Widening of cached keys and values: body for one vec_<isa>.h. Blocks of Q8_0 are left to the compiler, which turns
 * the loop of 32 bytes into vectors. */
#include "kernels/half.h"
#include "kernels/kv.h"
#include <string.h>

static void load_q8(float *y, const unsigned char *block, int64_t count) {
    for (int64_t i = 0; i < count; i += 32, block += 34) {
        uint16_t bits;
        signed char code[32];
        memcpy(&bits, block, sizeof bits);
        memcpy(code, block + 2, sizeof code);
        float scale = sluice__half_to_float(bits);
        for (int j = 0; j < 32; j++) y[i + j] = scale * (float)code[j];
    }
}

void VEC_KERNEL(kv_load)(float *y, const void *x, sluice_kv_dtype dtype, int64_t count) {
    const uint16_t *half = x;
    if (dtype == SLUICE_KV_F32) {
        memcpy(y, x, (size_t)count * sizeof *y);
    } else if (dtype == SLUICE_KV_Q8_0) {
        load_q8(y, x, count);
    } else {
        for (int64_t i = 0; i < count; i += VEC) {
            int n = count - i < VEC ? (int)(count - i) : VEC;
            vec_store_n(y + i, dtype == SLUICE_KV_F16 ? vec_load_f16_n(half + i, n) : vec_load_bf16_n(half + i, n), n);
        }
    }
}
