/* SPDX-License-Identifier: Apache-2.0 */
/* Types of the key/value cache: reference, and the choice of the fastest version. */
#include "kernels/kv.h"
#include "kernels/half.h"
#include "kernels/quant.h"
#include "sluice/cpu.h"
#include <string.h>

void sluice_kv_load_ref(float *y, const void *x, sluice_kv_dtype dtype, int64_t count) {
    const uint16_t *half = x;
    const unsigned char *block = x;
    switch (dtype) {
    case SLUICE_KV_F32: memcpy(y, x, (size_t)count * sizeof *y); break;
    case SLUICE_KV_F16:
        for (int64_t i = 0; i < count; i++) y[i] = sluice__half_to_float(half[i]);
        break;
    case SLUICE_KV_BF16:
        for (int64_t i = 0; i < count; i++) y[i] = sluice__brain_to_float(half[i]);
        break;
    case SLUICE_KV_Q8_0:
        for (int64_t i = 0; i < count; i += 32, block += 34) {
            uint16_t bits;
            memcpy(&bits, block, sizeof bits);
            float scale = sluice__half_to_float(bits);
            for (int j = 0; j < 32; j++) y[i + j] = scale * (float)(signed char)block[2 + j];
        }
    }
}

void sluice__kv_load(float *y, const void *x, sluice_kv_dtype dtype, int64_t count) {
#if defined(__x86_64__)
    unsigned cpu = sluice_cpu_flags();
    if (cpu & SLUICE_CPU_AVX512)
        sluice_kv_load_avx512(y, x, dtype, count);
    else if (cpu & SLUICE_CPU_AVX2)
        sluice_kv_load_avx2(y, x, dtype, count);
    else
        sluice_kv_load_ref(y, x, dtype, count);
#else
    sluice_kv_load_ref(y, x, dtype, count);
#endif
}

void sluice__kv_store(void *y, const float *x, sluice_kv_dtype dtype, int64_t count) {
    uint16_t *half = y;
    switch (dtype) {
    case SLUICE_KV_F32: memcpy(y, x, (size_t)count * sizeof *x); break;
    case SLUICE_KV_F16:
        for (int64_t i = 0; i < count; i++) half[i] = sluice__float_to_half(x[i]);
        break;
    case SLUICE_KV_BF16:
        for (int64_t i = 0; i < count; i++) half[i] = sluice__float_to_brain(x[i]);
        break;
    case SLUICE_KV_Q8_0: sluice__quantize(y, SLUICE__QUANT_Q8_0, x, count);
    }
}
