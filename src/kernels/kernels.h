/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel table: for every numeric operator the fastest version for a set of CPU flags. Names read as a grammar,
 * sluice_<op>_<dtype>_<isa>; the plain C reference ends in _ref. The list is kernels.def. */
#ifndef SLUICE_KERNELS_KERNELS_H
#define SLUICE_KERNELS_KERNELS_H
#include "kernels/bf16.h"
#include "kernels/delta.h"
#include "kernels/gate.h"
#include "kernels/ops.h"
#include "kernels/quant_linear.h"
#include "sluice/cpu.h"

/* What AdamW multiplies by, worked out once per step in double. */
typedef struct sluice__adamw_factors {
    float grad_scale, decay;          /* decay = 1 - lr * weight_decay */
    float beta1, one_minus_beta1, beta2, one_minus_beta2;
    float step_size;                  /* lr / (1 - beta1^step) */
    float inv_sqrt_correction2, eps;  /* 1 / sqrt(1 - beta2^step) */
    bool zero_grad;
} sluice__adamw_factors;

/* The same for Lion. */
typedef struct sluice__lion_factors {
    float grad_scale, decay, lr;
    float beta1, one_minus_beta1, beta2, one_minus_beta2;
    bool zero_grad;
} sluice__lion_factors;

/* C (+)= op(A) op(B).   op(A): [m,k], op(B): [k,n], C: [m,n]; k > 0. */
typedef struct sluice__product {
    bool trans_a, trans_b, accumulate;
    int64_t m, n, k;
    const float *a;
    int64_t lda;
    const float *b;
    int64_t ldb;
    float *c;
    int64_t ldc;
} sluice__product;

/* Floats that gemm_wide may want: blocks of 1024 rows and of 64 columns, 768 deep, and room for a last store. */
enum { SLUICE__WIDE_SCRATCH = (1024 + 64) * 768 + 64 };

typedef struct sluice__kernels {
#define KERNEL(name, versions, result, parameters) result(*name) parameters;
#include "kernels/kernels.def"
#undef KERNEL
} sluice__kernels;

/* Prototypes of every version. */
#if defined(__x86_64__)
#define SLUICE__PROTO_BOTH(name, result, parameters)                                               \
    result sluice_##name##_avx2 parameters;                                                        \
    result sluice_##name##_avx512 parameters;
#define SLUICE__PROTO_VNNI(name, result, parameters)                                               \
    result sluice_##name##_avx2 parameters;                                                        \
    result sluice_##name##_vnni parameters;
#define SLUICE__PROTO_BF16(name, result, parameters) result sluice_##name##_avx512bf16 parameters;
#else
#define SLUICE__PROTO_BOTH(name, result, parameters)
#define SLUICE__PROTO_VNNI(name, result, parameters)
#define SLUICE__PROTO_BF16(name, result, parameters)
#endif
#define SLUICE__PROTO_NONE(name, result, parameters)
#define KERNEL(name, versions, result, parameters)                                                 \
    result sluice_##name##_ref parameters;                                                         \
    SLUICE__PROTO_##versions(name, result, parameters)
#include "kernels/kernels.def"
#undef KERNEL

/* Fills *k in rising order: reference, then every version that `cpu` (SLUICE_CPU_* flags) allows. */
void sluice__kernels_choose(sluice__kernels *k, unsigned cpu);
/* The table for sluice_cpu_flags(). Valid for ever; never changes once returned. */
const sluice__kernels *sluice__kernels_now(void);
#endif
