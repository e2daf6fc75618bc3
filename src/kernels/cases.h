/* SPDX-License-Identifier: Apache-2.0 */
/* How to call each kernel on synthetic operands: what the checker (tests/kernels/test_kernels.c) and the benchmark
 * share. kernels.def asks for one case per kernel, so a kernel without one does not compile. */
#ifndef SLUICE_KERNELS_CASES_H
#define SLUICE_KERNELS_CASES_H
#include "kernels/kernels.h"

enum { SLUICE__CASE_OPERANDS = 8 };

typedef struct sluice__case_shape {
    int64_t rows, dim, depth; /* depth: the summed dimension of a product */
    int variant;              /* which flags and NULLs the call has */
} sluice__case_shape;

/* Kinds of input beyond ordinary numbers that a kernel promises to handle. */
enum {
    SLUICE__CASE_LARGE = 1 << 0,    /* ordinary numbers times 100 */
    SLUICE__CASE_TINY = 1 << 1,     /* times 1e-12 */
    SLUICE__CASE_NONFINITE = 1 << 2 /* infinities, NaN, -0, +-77 sprinkled in */
};

typedef struct sluice__kernel_case {
    /* One letter an operand, in the order of the call, all of 4-byte elements:
     *   n rows*dim   w 2*rows*dim   r rows   R 2*rows   d dim   t 4*dim   a rows*depth   b dim*depth   1 one element
     *   h rows*(2*dim+3), two heads with padding behind them
     *   p floats to make rows of blocks of, dim times depth rounded up to 256
     *   q as many for inputs: rows times that depth */
    const char *operands;
    int variants;
    unsigned inputs; /* SLUICE__CASE_* */
    /* |got - want| <= tolerance * (|want| + floor * largest |want| of all operands) + absolute */
    double tolerance, floor, absolute;
    double bytes; /* read and written per rows*dim element, for the benchmark; 0: it counts flops, 2*rows*dim*depth */
    sluice__case_shape bench;
    void (*prepare)(const sluice__case_shape *s, void **op); /* makes random operands valid; may be NULL */
    void (*run)(const sluice__kernels *k, const sluice__case_shape *s, void **op);
} sluice__kernel_case;

#define KERNEL(name, versions, result, parameters) extern const sluice__kernel_case sluice__case_##name;
#include "kernels/kernels.def"
#undef KERNEL

/* Elements of operand `letter`. */
int64_t sluice__case_count(const sluice__case_shape *s, char letter);
#endif
