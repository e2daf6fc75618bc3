/* SPDX-License-Identifier: Apache-2.0 */
/* The table of `--profile`: operators by the time they take, then each kind of product over all its shapes, beside the roof that is nearer, the product or the copy of the
 * same run. Few rows of a product read W and little else, so memory is their roof. */
#include "cli/bench.h"
#include <stdio.h>
#include <string.h>

/* What an operator reaches: GFLOP/s and GB/s, and the larger of its shares of product and copy. */
typedef struct rate {
    double gflops, gbs, share;
    bool by_flops; /* which of them */
} rate;

static rate rate_of(const sluice_bench_operator *o, const sluice_bench_machine *m) {
    rate r = {0};
    if (!(o->seconds > 0)) return r;
    r.gflops = o->flops / o->seconds / 1e9;
    r.gbs = o->bytes / o->seconds / 1e9;
    double flops_share = r.gflops / m->gemm_gflops, bytes_share = r.gbs / m->copy_gbs;
    r.by_flops = r.gflops > 0 && flops_share >= bytes_share;
    r.share = r.by_flops ? flops_share : bytes_share;
    return r;
}

static double outside_of(const sluice_bench_profile *p) {
    double seconds = p->seconds;
    for (int i = 0; i < p->count; i++) seconds -= p->operators[i].seconds;
    return seconds;
}

static void print_operator(const sluice_bench_operator *o, double all, const sluice_bench_machine *m) {
    char shape[64] = "", reached[64] = "", best[32] = "";
    rate r = rate_of(o, m);
    if (o->m) snprintf(shape, sizeof shape, "%lld x %lld x %lld", (long long)o->m, (long long)o->n, (long long)o->k);
    if (r.share > 0)
        snprintf(reached, sizeof reached, "%8.1f %-7s %4.0f %%", r.by_flops ? r.gflops : r.gbs,
                 r.by_flops ? "GFLOP/s" : "GB/s", 100 * r.share);
    if (o->best > 0 && r.by_flops)
        snprintf(best, sizeof best, "%4.0f %%", 100 * r.share * o->seconds / (o->calls * o->best));
    printf("    %-28s %-22s %7.1f %10.3f ms %5.1f %%  %-23s %s\n", o->name, shape, o->calls, 1e3 * o->seconds,
           100 * o->seconds / all, reached, best);
}

/* All shapes of a product as one line, where it has several. `first`: the place of the first of them. */
static void print_sum(const sluice_bench_profile *p, int first, const sluice_bench_machine *m) {
    sluice_bench_operator sum = {.name = p->operators[first].name};
    int shapes = 0;
    for (int i = 0; i < p->count; i++) {
        const sluice_bench_operator *o = &p->operators[i];
        if (strcmp(o->name, sum.name) != 0) continue;
        if (i < first) return;
        shapes++;
        sum.calls += o->calls;
        sum.seconds += o->seconds;
        sum.best += o->calls * o->best;
        sum.flops += o->flops;
        sum.bytes += o->bytes;
    }
    sum.best /= sum.calls;
    if (shapes > 1) print_operator(&sum, p->seconds, m);
}

void bench_print_profile(const char *of, const sluice_bench_profile *p, const sluice_bench_machine *m) {
    double outside = outside_of(p);
    printf("    %-28s %-22s %7s %13s %7s  %-23s %s\n", of, "m x n x k", "calls", "time", "share", "of product or copy",
           "best call");
    for (int i = 0; i < p->count; i++) print_operator(&p->operators[i], p->seconds, m);
    printf("    %-28s %-22s %7s %10.3f ms %5.1f %%\n", "outside of operators", "", "", 1e3 * outside,
           100 * outside / p->seconds);
    for (int i = 0; i < p->count; i++) print_sum(p, i, m);
}

static json_t *operator_json(const sluice_bench_operator *o, double all, const sluice_bench_machine *m) {
    rate r = rate_of(o, m);
    json_t *row = json_pack("{s:s, s:f, s:f, s:f}", "operator", o->name, "calls", o->calls, "ms", 1e3 * o->seconds, "share",
                            o->seconds / all);
    if (o->m)
        json_object_set_new(row, "shape", json_pack("[I, I, I]", (json_int_t)o->m, (json_int_t)o->n, (json_int_t)o->k));
    if (o->best > 0) json_object_set_new(row, "best_call_ms", json_real(1e3 * o->best));
    if (r.gflops > 0) json_object_set_new(row, "gflops", json_real(r.gflops));
    if (r.gbs > 0) json_object_set_new(row, "gbs", json_real(r.gbs));
    if (r.share > 0) json_object_set_new(row, "share_of_peak", json_real(r.share));
    return row;
}

json_t *bench_profile_json(const sluice_bench_profile *p, const sluice_bench_machine *m) {
    json_t *rows = json_array();
    for (int i = 0; i < p->count; i++) json_array_append_new(rows, operator_json(&p->operators[i], p->seconds, m));
    return json_pack("{s:f, s:f, s:o}", "ms", 1e3 * p->seconds, "outside_ms", 1e3 * outside_of(p), "operators", rows);
}
