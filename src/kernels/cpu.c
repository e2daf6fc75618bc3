/* SPDX-License-Identifier: Apache-2.0 */
/* CPU features and threads. Detection uses the compiler's own cpuid helpers, which also check that the operating system
 * saves the wide registers. */
#include "sluice/cpu.h"
#include "base/error.h"
#include <omp.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AVX2_LEVEL = SLUICE_CPU_AVX2 };

static _Atomic unsigned selected; /* flags | CHOSEN once chosen */
#define CHOSEN 0x80000000u

unsigned sluice_cpu_detect(void) {
    unsigned flags = 0;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) flags |= SLUICE_CPU_AVX2;
    if (flags && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
        flags |= SLUICE_CPU_AVX512;
        if (__builtin_cpu_supports("avx512vnni")) flags |= SLUICE_CPU_AVX512_VNNI;
        if (__builtin_cpu_supports("avx512bf16")) flags |= SLUICE_CPU_AVX512_BF16;
    }
#endif
    return flags;
}

static sluice_status flags_of_level(const char *level, unsigned *flags, sluice_error *err) {
    unsigned have = sluice_cpu_detect();
    if (!level || !*level) *flags = have;
    else if (!strcmp(level, "ref")) *flags = 0;
    else if (!strcmp(level, "avx2")) *flags = AVX2_LEVEL;
    else if (!strcmp(level, "avx512")) *flags = have | SLUICE_CPU_AVX512 | AVX2_LEVEL;
    else return sluice__fail(err, SLUICE_ERR_ARGUMENT, "CPU level: found \"%s\", expected ref, avx2 or avx512", level);
    if (*flags & ~have)
        return sluice__fail(err, SLUICE_ERR_UNSUPPORTED, "CPU level: this machine has no %s", level);
    return SLUICE_OK;
}

sluice_status sluice_cpu_select(const char *level, sluice_error *err) {
    unsigned flags = 0, limit = 0;
    SLUICE__TRY(flags_of_level(level, &flags, err));
    SLUICE__TRY(flags_of_level(getenv("SLUICE_CPU"), &limit, err));
    if (!level || !*level) flags &= limit; /* an explicit level wins over the environment */
    atomic_store(&selected, flags | CHOSEN);
    return SLUICE_OK;
}

unsigned sluice_cpu_flags(void) {
    unsigned now = atomic_load(&selected);
    if (!(now & CHOSEN)) {
        if (sluice_cpu_select(NULL, NULL) != SLUICE_OK) atomic_store(&selected, CHOSEN); /* bad variable: reference */
        now = atomic_load(&selected);
    }
    return now & ~CHOSEN;
}

void sluice_cpu_describe(char *out, unsigned size) {
    char name[128] = "unknown CPU", line[256];
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "model name : %127[^\n]", name) == 1) break;
    if (f) fclose(f);
    unsigned flags = sluice_cpu_flags();
    snprintf(out, size, "%s (%s%s%s%s)", name, flags & SLUICE_CPU_AVX2 ? "avx2" : "no vector extensions used",
             flags & SLUICE_CPU_AVX512 ? " avx512" : "", flags & SLUICE_CPU_AVX512_VNNI ? " vnni" : "",
             flags & SLUICE_CPU_AVX512_BF16 ? " bf16" : "");
}

void sluice_set_num_threads(int threads) {
    cpu_set_t set;
    int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    omp_set_num_threads(threads > 0 ? threads : cores);
}

int sluice_get_num_threads(void) {
    return omp_get_max_threads();
}
