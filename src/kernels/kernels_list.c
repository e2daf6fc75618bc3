/* SPDX-License-Identifier: Apache-2.0 */
/* Which version of every kernel is in use, found by comparing the tables with those of lower levels. */
#include "kernels/attention.h"
#include "kernels/kernels.h"
#include <assert.h>
#include <stddef.h>
#include <string.h>

typedef void (*any_kernel)(void);

static const struct entry {
    const char *name;
    size_t at;
    enum { GENERAL, ATTENTION, ATTENTION_BF16 } table;
} entries[] = {
#define KERNEL(name, versions, result, parameters) {#name, offsetof(sluice__kernels, name), GENERAL},
#include "kernels/kernels.def"
#undef KERNEL
#define KERNEL(name, result, parameters) {#name, offsetof(sluice__attention_kernels, name), ATTENTION},
#include "kernels/attention.def"
#undef KERNEL
#define KERNEL(name, result, parameters)
#define KERNEL_BF16(name, result, parameters) {#name " with bf16 factors", offsetof(sluice__attention_kernels, name), ATTENTION_BF16},
#include "kernels/attention.def"
#undef KERNEL
};

int sluice_cpu_num_kernels(void) {
    return (int)(sizeof entries / sizeof *entries);
}

/* The kernel of an entry that a CPU with these flags would run, as bytes. */
static void choose(const struct entry *e, unsigned flags, char out[sizeof(any_kernel)]) {
    sluice__kernels general;
    sluice__attention_kernels attention;
    if (e->table == GENERAL) sluice__kernels_choose(&general, flags);
    else sluice__attention_choose(&attention, flags, e->table == ATTENTION_BF16);
    memcpy(out, (e->table == GENERAL ? (const char *)&general : (const char *)&attention) + e->at, sizeof(any_kernel));
}

static const char *version_of(const struct entry *e, unsigned flags) {
    char now[sizeof(any_kernel)], other[sizeof(any_kernel)];
    choose(e, flags, now);
    choose(e, 0, other);
    if (!memcmp(now, other, sizeof now)) return "ref";
    choose(e, flags & SLUICE_CPU_AVX2, other);
    if (!memcmp(now, other, sizeof now)) return "avx2";
    choose(e, flags & ~(unsigned)SLUICE_CPU_AVX512_BF16, other);
    return !memcmp(now, other, sizeof now) ? "avx512" : "avx512bf16";
}

sluice_kernel_choice sluice_cpu_kernel(int index) {
    assert(index >= 0 && index < sluice_cpu_num_kernels());
    const struct entry *e = &entries[index];
    unsigned flags = sluice_cpu_flags();
    const char *version = version_of(e, flags);
    if (e->table != GENERAL) return (sluice_kernel_choice){e->name, version};
    /* Without kernels of their own products are of rounded floats (gemm_bf16.c, matrix.c). */
    bool many = e->at == offsetof(sluice__kernels, gemm_bf16);
    if ((many || e->at == offsetof(sluice__kernels, linear_pairs_bf16)) && flags && !(flags & SLUICE_CPU_AVX512_BF16))
        version = many ? "oneDNN, rounded" : "thin, rounded";
    /* Products go to oneDNN; the table's own stands in where the reference is asked for (gemm.c). */
    if (e->at == offsetof(sluice__kernels, gemm_f32) && flags) version = "oneDNN";
    return (sluice_kernel_choice){e->name, version};
}
