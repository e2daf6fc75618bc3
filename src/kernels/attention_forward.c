/* SPDX-License-Identifier: Apache-2.0 */
/* Deals the forward pass out to the team: blocks of queries of one head each, independent of each other. */
#include "kernels/attention.h"
#include "kernels/scratch.h"
#include <omp.h>

void sluice__attention_choose(sluice__attention_kernels *k, unsigned cpu) {
    (void)cpu;
#define KERNEL(name, result, parameters) k->name = sluice_##name##_ref;
#include "kernels/attention.def"
#undef KERNEL
#if defined(__x86_64__)
#define KERNEL(name, result, parameters)                                                           \
    if (cpu & SLUICE_CPU_AVX2) k->name = sluice_##name##_avx2;                                     \
    if (cpu & SLUICE_CPU_AVX512) k->name = sluice_##name##_avx512;
#include "kernels/attention.def"
#undef KERNEL
#endif
}

/* Floats that one thread's forward kernel needs. */
static size_t forward_scratch(const sluice_attention_params *p) {
    size_t tiles = (size_t)SLUICE__ATTENTION_KEYS * 2 * SLUICE__ATTENTION_VEC +
                   2 * (size_t)SLUICE__ATTENTION_QUERIES * sluice__attention_padded(p->head_dim);
    size_t reference = 2 * ((size_t)p->kv_len + (size_t)p->head_dim); /* doubles */
    return sluice_cpu_flags() & SLUICE_CPU_AVX2 ? tiles : reference;
}

sluice_status sluice__attention_forward(const sluice__attention_call *c) {
    const sluice_attention_params *p = &c->p;
    sluice__attention_kernels k;
    sluice__attention_choose(&k, sluice_cpu_flags());
    int blocks = (p->q_len + SLUICE__ATTENTION_QUERIES - 1) / SLUICE__ATTENTION_QUERIES;
    int64_t items = (int64_t)p->batch * p->num_heads * blocks;
    int team = omp_in_parallel() ? 1 : omp_get_max_threads();
    size_t each = sluice__attention_padded((int)forward_scratch(p));
    float *scratch = sluice__scratch(each * (size_t)team);
    if (!scratch) return SLUICE_ERR_MEMORY;
#pragma omp parallel for schedule(dynamic) num_threads(team) if (team > 1)
    for (int64_t item = 0; item < items; item++) {
        int block = blocks - 1 - (int)(item / ((int64_t)p->batch * p->num_heads)); /* later queries see more: longest first */
        int h = (int)(item % p->num_heads), b = (int)(item / p->num_heads % p->batch);
        int begin = block * SLUICE__ATTENTION_QUERIES, end = begin + SLUICE__ATTENTION_QUERIES;
        k.attention_forward_f32(c, b, h, begin, end < p->q_len ? end : p->q_len, scratch + (size_t)omp_get_thread_num() * each);
    }
    return SLUICE_OK;
}
