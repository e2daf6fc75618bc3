/* SPDX-License-Identifier: Apache-2.0 */
/* Choice of kernels. One table per combination of CPU flags is made at its first use and then never changes, so
 * readers need no lock and sluice_cpu_select only switches which table is handed out. */
#include "kernels/kernels.h"
#include <pthread.h>
#include <stdatomic.h>

#if defined(__x86_64__)
#define CHOOSE_BOTH(name)                                                                          \
    if (cpu & SLUICE_CPU_AVX2) k->name = sluice_##name##_avx2;                                     \
    if (cpu & SLUICE_CPU_AVX512) k->name = sluice_##name##_avx512;
#define CHOOSE_VNNI(name)                                                                          \
    if (cpu & SLUICE_CPU_AVX2) k->name = sluice_##name##_avx2;                                     \
    if (cpu & SLUICE_CPU_AVX512 && cpu & SLUICE_CPU_AVX512_VNNI) k->name = sluice_##name##_vnni;
#define CHOOSE_BF16(name)                                                                          \
    if (cpu & SLUICE_CPU_AVX512_BF16) k->name = sluice_##name##_avx512bf16;
#else
#define CHOOSE_BOTH(name)
#define CHOOSE_VNNI(name)
#define CHOOSE_BF16(name)
#endif
#define CHOOSE_NONE(name)

void sluice__kernels_choose(sluice__kernels *k, unsigned cpu) {
    (void)cpu;
#define KERNEL(name, versions, result, parameters)                                                 \
    k->name = sluice_##name##_ref;                                                                 \
    CHOOSE_##versions(name)
#include "kernels/kernels.def"
#undef KERNEL
}

const sluice__kernels *sluice__kernels_now(void) {
    static sluice__kernels tables[SLUICE_CPU_ALL + 1];
    static _Atomic bool ready[SLUICE_CPU_ALL + 1];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    unsigned cpu = sluice_cpu_flags() & SLUICE_CPU_ALL;
    if (!atomic_load_explicit(&ready[cpu], memory_order_acquire)) {
        pthread_mutex_lock(&lock);
        if (!ready[cpu]) sluice__kernels_choose(&tables[cpu], cpu);
        atomic_store_explicit(&ready[cpu], true, memory_order_release);
        pthread_mutex_unlock(&lock);
    }
    return &tables[cpu];
}
