/* SPDX-License-Identifier: Apache-2.0 */
/* What the program runs on: instruction sets, threads. Kernels are chosen once, at the first use of the library or by
 * sluice_cpu_select, whichever comes first. */
#ifndef SLUICE_CPU_H
#define SLUICE_CPU_H
#include "sluice/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    SLUICE_CPU_AVX2 = 1 << 0,   /* with FMA and F16C */
    SLUICE_CPU_AVX512 = 1 << 1, /* F, BW, DQ, VL */
    SLUICE_CPU_AVX512_VNNI = 1 << 2,
    SLUICE_CPU_AVX512_BF16 = 1 << 3,
    SLUICE_CPU_ALL = (1 << 4) - 1
};

/* Flags that this machine has (CPU and operating system). */
unsigned sluice_cpu_detect(void);
/* Flags in use: detected ones, masked by the environment variable SLUICE_CPU=ref|avx2|avx512 and sluice_cpu_select. */
unsigned sluice_cpu_flags(void);
/* level: "ref", "avx2", "avx512" (everything of AVX-512 that is there) or NULL = all detected. Asking for more than the
 * machine has is SLUICE_ERR_UNSUPPORTED; an unknown word is SLUICE_ERR_ARGUMENT. Not while other threads compute. */
sluice_status sluice_cpu_select(const char *level, sluice_error *err);
/* "AMD EPYC ... (avx2 avx512 bf16)" into out. */
void sluice_cpu_describe(char *out, unsigned size);

/* The kernel table: every operator, and the version of it in use ("ref", "avx2", "avx512", "oneDNN"). */
typedef struct sluice_kernel_choice {
    const char *kernel, *version;
} sluice_kernel_choice;
int sluice_cpu_num_kernels(void);
sluice_kernel_choice sluice_cpu_kernel(int index); /* 0 <= index < sluice_cpu_num_kernels() */

/* Threads that the calling thread's work may use. 0 = as many as there are cores this process may run on. */
void sluice_set_num_threads(int threads);
int sluice_get_num_threads(void);

#ifdef __cplusplus
}
#endif
#endif
