/* SPDX-License-Identifier: Apache-2.0 */
/* Where the time goes, operator by operator. An operator opens a span with one line at its head; while a profile runs, the
 * span adds time, calls and work to it when the operator returns. The outermost span counts: what an operator calls is
 * part of it, and so is what its threads do. Without a profile a span is one branch on a bool. */
#ifndef SLUICE_KERNELS_PROFILE_H
#define SLUICE_KERNELS_PROFILE_H
#include <stdbool.h>
#include <stdint.h>
#include "sluice/bench.h"

/* What one call does. Products say m, n, k, and are told apart by them; for others they are 0. */
typedef struct sluice__work {
    const char *name; /* a literal; NULL: this call is not counted, those inside it are */
    double flops;     /* multiplications and additions; 0 where memory is what counts */
    double bytes;     /* read and written, each operand once */
    int64_t m, n, k;
} sluice__work;

typedef struct sluice__span {
    sluice_bench_operator *at; /* NULL: not counted */
    double begin;
} sluice__span;

/* Whether a profile runs. Read by every operator; written by the two functions below alone. */
extern bool sluice__profiling;

/* From here on the operators that this thread calls count in *p. One profile at a time, and none starts or stops while other
 * threads compute. */
void sluice__profile_start(sluice_bench_profile *p);
void sluice__profile_stop(void);
/* *best = *p, which took `seconds` for `parts` equal parts, if it is the first or faster for one part. Operators of one part,
 * those that took most time first. */
void sluice__profile_best(sluice_bench_profile *best, const sluice_bench_profile *p, int64_t parts, double seconds);

sluice__span sluice__span_begin(sluice__work work);
void sluice__span_close(sluice__span *span);
static inline void sluice__span_end(sluice__span *span) {
    if (span->at) sluice__span_close(span);
}

/* SLUICE__SPAN(.name = "rms norm", .bytes = ...): until the end of the block that it stands in. The work is worked out
 * only while a profile runs. */
#define SLUICE__SPAN(...) SLUICE__SPAN_OF(((sluice__work){__VA_ARGS__}))
#define SLUICE__SPAN_OF(work)                                                                                      \
    __attribute__((cleanup(sluice__span_end), unused)) sluice__span sluice_span =                                          \
        sluice__profiling ? sluice__span_begin(work) : (sluice__span){NULL, 0}
/* The same for passes over `floats` floats. */
#define SLUICE__SPAN_FLOATS(what, floats) SLUICE__SPAN(.name = (what), .bytes = 4.0 * (double)(floats))
/* The same for C [m,n] = A [m,k] B [k,n] of fp32 with elements of B of `bytes_b` bytes; C counts twice when it is added to. */
#define SLUICE__SPAN_PRODUCT(what, rows, columns, depth, bytes_b, added)                                           \
    SLUICE__SPAN(.name = (what), .flops = 2.0 * (double)(rows) * (double)(columns) * (double)(depth),              \
                 .bytes = 4.0 * (double)(rows) * ((double)(depth) + ((added) ? 2.0 : 1.0) * (double)(columns)) +   \
                          (double)(bytes_b) * (double)(columns) * (double)(depth),                                 \
                 .m = (rows), .n = (columns), .k = (depth))
#endif
