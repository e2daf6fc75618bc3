/* SPDX-License-Identifier: Apache-2.0 */
/* The profile that runs, if any. Spans of other threads and of parallel regions are part of the operator that has the
 * region, so only the thread that started the profile writes here. */
#include "kernels/profile.h"
#include "base/progress.h"
#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

bool sluice__profiling;
static sluice_bench_profile *current;
static pthread_t owner;
static bool open_span;

void sluice__profile_start(sluice_bench_profile *p) {
    current = p;
    owner = pthread_self();
    open_span = false;
    sluice__profiling = true;
}

void sluice__profile_stop(void) {
    sluice__profiling = false;
    current = NULL;
}

static bool same(const sluice_bench_operator *o, const sluice__work *w) {
    return o->m == w->m && o->n == w->n && o->k == w->k && strcmp(o->name, w->name) == 0;
}

/* When all places but a few are taken, further shapes of a product share one. NULL: even those are. */
static sluice_bench_operator *find(sluice_bench_profile *p, const sluice__work *work) {
    enum { KEPT = 32 }; /* more than there are names */
    sluice__work w = *work;
    for (int pass = 0; pass < 2; pass++, w.m = w.n = w.k = 0) {
        for (int i = 0; i < p->count; i++)
            if (same(&p->operators[i], &w)) return &p->operators[i];
        if (p->count >= SLUICE_BENCH_OPERATORS - (w.m ? KEPT : 0)) continue;
        p->operators[p->count] = (sluice_bench_operator){.name = w.name, .m = w.m, .n = w.n, .k = w.k, .best = INFINITY};
        return &p->operators[p->count++];
    }
    return NULL;
}

sluice__span sluice__span_begin(sluice__work work) {
    if (!work.name || open_span || omp_in_parallel() || !pthread_equal(owner, pthread_self())) return (sluice__span){NULL, 0};
    sluice_bench_operator *at = find(current, &work);
    if (!at) return (sluice__span){NULL, 0};
    at->calls++;
    at->flops += work.flops;
    at->bytes += work.bytes;
    open_span = true;
    return (sluice__span){at, sluice__now()};
}

void sluice__span_close(sluice__span *span) {
    double seconds = sluice__now() - span->begin;
    span->at->seconds += seconds;
    if (seconds < span->at->best) span->at->best = seconds;
    open_span = false;
}

static int by_seconds(const void *a, const void *b) {
    const sluice_bench_operator *x = a, *y = b;
    return (x->seconds < y->seconds) - (x->seconds > y->seconds);
}

void sluice__profile_best(sluice_bench_profile *best, const sluice_bench_profile *p, int64_t parts, double seconds) {
    double n = (double)parts;
    if (best->seconds > 0 && best->seconds <= seconds / n) return;
    *best = *p;
    best->seconds = seconds / n;
    for (int i = 0; i < best->count; i++) {
        sluice_bench_operator *o = &best->operators[i];
        o->calls /= n;
        o->seconds /= n;
        o->flops /= n;
        o->bytes /= n;
    }
    qsort(best->operators, (size_t)best->count, sizeof *best->operators, by_seconds);
}
