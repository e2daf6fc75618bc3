/* SPDX-License-Identifier: Apache-2.0 */
/* Which version of every kernel is in use, found by comparing the table with those of lower levels. */
#include "kernels/kernels.h"
#include <assert.h>
#include <stddef.h>
#include <string.h>

typedef void (*any_kernel)(void);

static const struct {
    const char *name;
    size_t at;
} entries[] = {
#define KERNEL(name, versions, result, parameters) {#name, offsetof(sluice__kernels, name)},
#include "kernels/kernels.def"
#undef KERNEL
};

int sluice_cpu_num_kernels(void) {
    return (int)(sizeof entries / sizeof *entries);
}

static bool same(const sluice__kernels *a, const sluice__kernels *b, size_t at) {
    return !memcmp((const char *)a + at, (const char *)b + at, sizeof(any_kernel));
}

sluice_kernel_choice sluice_cpu_kernel(int index) {
    assert(index >= 0 && index < sluice_cpu_num_kernels());
    const sluice__kernels *now = sluice__kernels_now();
    sluice__kernels ref, avx2;
    sluice__kernels_choose(&ref, 0);
    sluice__kernels_choose(&avx2, SLUICE_CPU_AVX2);
    const char *version = same(now, &ref, entries[index].at)    ? "ref"
                          : same(now, &avx2, entries[index].at) ? "avx2"
                                                                : "avx512";
    /* Without kernels of their own products are of rounded floats (gemm_bf16.c, matrix.c). */
    bool many = entries[index].at == offsetof(sluice__kernels, gemm_bf16);
    if (many || entries[index].at == offsetof(sluice__kernels, linear_pairs_bf16))
        version = sluice_cpu_flags() & SLUICE_CPU_AVX512_BF16 ? "avx512bf16"
                  : !sluice_cpu_flags()                       ? "ref"
                  : many                                      ? "oneDNN, rounded"
                                                              : "linear_thin_bf16, rounded";
    /* Products go to oneDNN; the table's own stands in where the reference is asked for (gemm.c). */
    if (entries[index].at == offsetof(sluice__kernels, gemm_f32) && sluice_cpu_flags()) version = "oneDNN";
    return (sluice_kernel_choice){entries[index].name, version};
}
