/* SPDX-License-Identifier: Apache-2.0 */
/* Timing of the machine, of kernels and of matrix products. Kernel calls come from cases.c, so every kernel that
 * the checker knows is timed too. */
#include "sluice/bench.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/progress.h"
#include "base/rng.h"
#include "kernels/cases.h"
#include "kernels/read.h"
#include "kernels/parallel.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PEAK_SIZE = 2048, COPY_FLOATS = 64 << 20, ROUNDS = 5, RANDOM_BLOCK = 65521 };

/* A block of normal numbers, over and over: drawing each would take longer than the measurement. */
static void fill_random(float *x, int64_t count, uint64_t stream) {
    int64_t drawn = count < RANDOM_BLOCK ? count : RANDOM_BLOCK;
    sluice__rng_fill_normal(x, drawn, 1, stream, 0, 0, 1);
    for (int64_t i = drawn; i < count; i += drawn)
        memcpy(x + i, x, (size_t)(count - i < drawn ? count - i : drawn) * sizeof *x);
}

static float *random_floats(int64_t count, uint64_t stream) {
    float *x = sluice__calloc((size_t)count, sizeof *x, SLUICE__MEM_OTHER);
    if (x) fill_random(x, count, stream);
    return x;
}

static double peak_seconds(const float *a, const float *b, float *c) {
    double best = INFINITY;
    for (int i = 0; i < ROUNDS; i++) {
        double start = sluice__now();
        sluice__gemm_f32(false, false, PEAK_SIZE, PEAK_SIZE, PEAK_SIZE, 1, a, PEAK_SIZE, b, PEAK_SIZE, 0, c,
                         PEAK_SIZE);
        best = fmin(best, sluice__now() - start);
    }
    return best;
}

static double copy_seconds(float *to, const float *from) {
    double best = INFINITY;
    for (int i = 0; i < ROUNDS; i++) {
        double start = sluice__now();
        SLUICE__SPLIT(sluice__team(COPY_FLOATS), COPY_FLOATS, 1024,
                      memcpy(to + range.begin, from + range.begin, (size_t)(range.end - range.begin) * sizeof *to));
        best = fmin(best, sluice__now() - start);
    }
    return best;
}

/* Sums, in a volatile, so that they are taken. */
double sluice__read_seconds(const float *x, int64_t count) {
    enum { PIECE = 16 << 10 };
    volatile float keep = 0;
    double start = sluice__now();
    SLUICE__SPLIT(sluice__team(count), count / PIECE, 1, {
        float sum = 0;
        for (int64_t p = range.begin; p < range.end; p++) sum += (float)sluice__kernels_now()->sum_squares_f32(x + p * PIECE, PIECE);
        if (sum < 0) keep = sum;
    });
    return keep < 0 ? INFINITY : sluice__now() - start;
}

static double read_seconds(const float *a, const float *b) {
    double best = INFINITY;
    for (int i = 0; i < ROUNDS; i++)
        best = fmin(best, sluice__read_seconds(a, COPY_FLOATS) + sluice__read_seconds(b, COPY_FLOATS));
    return best;
}

sluice_status sluice_bench_machine_run(sluice_bench_machine *out, sluice_error *err) {
    size_t floats = COPY_FLOATS;
    float *a = sluice__calloc(floats, sizeof *a, SLUICE__MEM_OTHER),
          *b = sluice__calloc(floats, sizeof *b, SLUICE__MEM_OTHER);
    float *c = sluice__calloc(PEAK_SIZE * PEAK_SIZE, sizeof *c, SLUICE__MEM_OTHER);
    sluice_status st = SLUICE_OK;
    if (a && b && c) {
        fill_random(a, COPY_FLOATS, 1); /* all of it: pages that nobody has written are one page of zeros */
        fill_random(b, PEAK_SIZE * PEAK_SIZE, 2);
        double flops = 2.0 * PEAK_SIZE * PEAK_SIZE * PEAK_SIZE, bytes = 2.0 * (double)sizeof *a * COPY_FLOATS;
        out->threads = sluice_get_num_threads();
        out->gemm_gflops = flops / peak_seconds(a, b, c) / 1e9;
        out->copy_gbs = bytes / copy_seconds(b, a) / 1e9;
        out->read_gbs = bytes / read_seconds(a, b) / 1e9;
    } else {
        st = sluice__no_memory(err, 2 * floats * sizeof *a, "the measurement of bandwidth");
    }
    sluice__free(a);
    sluice__free(b);
    sluice__free(c);
    return st;
}

typedef struct named_case {
    const char *name;
    const sluice__kernel_case *c;
    int versions; /* beside the reference */
} named_case;
enum { VERSIONS_NONE, VERSIONS_BOTH, VERSIONS_AVX512, VERSIONS_VNNI, VERSIONS_BF16 };
static const named_case cases[] = {
#define KERNEL(name, versions, result, parameters)                                                                 \
    {#name, &sluice__case_##name, VERSIONS_##versions},
#include "kernels/kernels.def"
#undef KERNEL
};

typedef struct level {
    const char *name;
    unsigned flags;
} level;
static const level levels[] = {
    {"ref", 0},
    {"avx2", SLUICE_CPU_AVX2},
    {"avx512", SLUICE_CPU_AVX2 | SLUICE_CPU_AVX512},
    {"vnni", SLUICE_CPU_AVX2 | SLUICE_CPU_AVX512 | SLUICE_CPU_AVX512_VNNI},
    {"bf16", SLUICE_CPU_AVX2 | SLUICE_CPU_AVX512 | SLUICE_CPU_AVX512_BF16}};

/* Whether a kernel with these versions has one of its own at this level. */
static bool has_version(int versions, const level *l) {
    if (!l->flags) return true;
    if (l->flags & SLUICE_CPU_AVX512_BF16) return versions == VERSIONS_BF16;
    if (l->flags & SLUICE_CPU_AVX512_VNNI) return versions == VERSIONS_VNNI;
    if (l->flags & SLUICE_CPU_AVX512) return versions == VERSIONS_BOTH || versions == VERSIONS_AVX512;
    return versions == VERSIONS_BOTH || versions == VERSIONS_VNNI;
}

static void free_operands(void **op) {
    for (int i = 0; i < SLUICE__CASE_OPERANDS; i++) sluice__free(op[i]);
}

static sluice_status make_operands(void **op, const sluice__kernel_case *c, sluice_error *err) {
    for (int i = 0; c->operands[i]; i++) {
        int64_t count = sluice__case_count(&c->bench, c->operands[i]);
        op[i] = random_floats(count, (uint64_t)i);
        if (!op[i]) return sluice__no_memory(err, (size_t)count * sizeof(float), "operands to time");
    }
    if (c->prepare) c->prepare(&c->bench, op);
    return SLUICE_OK;
}

static double case_seconds(const sluice__kernel_case *c, const sluice__kernels *k, void **op, double seconds) {
    double best = INFINITY, start = sluice__now(), now;
    do {
        double before = sluice__now();
        c->run(k, &c->bench, op);
        now = sluice__now();
        best = fmin(best, now - before);
    } while (now - start < seconds);
    return best;
}

sluice_status sluice_bench_kernels(double seconds, sluice_bench_fn fn, void *user, sluice_error *err) {
    sluice_status st = SLUICE_OK;
    for (size_t i = 0; st == SLUICE_OK && i < sizeof cases / sizeof *cases; i++) {
        const sluice__kernel_case *c = cases[i].c;
        void *op[SLUICE__CASE_OPERANDS] = {0};
        double elements = (double)c->bench.rows * (double)c->bench.dim;
        double work = elements * (c->bytes > 0 ? c->bytes : 2 * (double)c->bench.depth);
        st = make_operands(op, c, err);
        for (size_t l = 0; st == SLUICE_OK && l < sizeof levels / sizeof *levels; l++) {
            if (levels[l].flags & ~sluice_cpu_flags() || !has_version(cases[i].versions, &levels[l])) continue;
            sluice__kernels k;
            sluice__kernels_choose(&k, levels[l].flags);
            double best = case_seconds(c, &k, op, seconds);
            fn(user, &(sluice_bench_row){cases[i].name, levels[l].name, c->bytes > 0 ? "GB/s" : "GFLOP/s",
                                         work / best / 1e9, best});
        }
        free_operands(op);
    }
    return st;
}

typedef struct product {
    const char *what;
    bool trans_a, trans_b;
    int m, n, k;
} product;
/* Forward y = x W^T, gradient of the input dy W, gradient of the weight dy^T x; then one and several rows of decoding. */
static const product products[] = {
    {"124M 4x64 qkv forward", false, true, 256, 2304, 768},
    {"124M 4x64 qkv input gradient", false, false, 256, 768, 2304},
    {"124M 4x64 qkv weight gradient", true, false, 2304, 768, 256},
    {"124M 1x1024 gate_up forward", false, true, 1024, 4096, 768},
    {"124M 1x1024 gate_up input gradient", false, false, 1024, 768, 4096},
    {"124M 1x1024 gate_up weight gradient", true, false, 4096, 768, 1024},
    {"124M 4x64 head forward", false, true, 256, 50304, 768},
    {"124M 4x64 head input gradient", false, false, 256, 768, 50304},
    {"124M 4x64 head weight gradient", true, false, 50304, 768, 256},
    {"small 16x256 gate_up forward", false, true, 4096, 1408, 256},
    {"small 16x256 gate_up input gradient", false, false, 4096, 256, 1408},
    {"small 16x256 gate_up weight gradient", true, false, 1408, 256, 4096},
    {"study qkv forward", false, true, 512, 192, 64},
    {"study qkv input gradient", false, false, 512, 64, 192},
    {"study qkv weight gradient", true, false, 192, 64, 512},
    {"study head forward", false, true, 512, 1024, 64},
    {"decode 1 row gate_up", false, true, 1, 4096, 768},
    {"decode 1 row head", false, true, 1, 50304, 768},
    {"decode 8 rows gate_up", false, true, 8, 4096, 768},
    {"decode 32 rows gate_up", false, true, 32, 4096, 768},
};

static double product_seconds(const product *p, const float *a, const float *b, float *c, double seconds) {
    double best = INFINITY, start = sluice__now(), now;
    do {
        double before = sluice__now();
        sluice__gemm_f32(p->trans_a, p->trans_b, p->m, p->n, p->k, 1, a, p->trans_a ? p->m : p->k, b,
                         p->trans_b ? p->k : p->n, p->trans_a ? 1 : 0, c, p->n);
        now = sluice__now();
        best = fmin(best, now - before);
    } while (now - start < seconds);
    return best;
}

sluice_status sluice_bench_products(double seconds, sluice_bench_fn fn, void *user, sluice_error *err) {
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        const product *p = &products[i];
        int64_t a_count = (int64_t)p->m * p->k, b_count = (int64_t)p->k * p->n, c_count = (int64_t)p->m * p->n;
        float *a = random_floats(a_count, 1), *b = random_floats(b_count, 2), *c = random_floats(c_count, 3);
        char name[64];
        snprintf(name, sizeof name, "%d x %d x %d", p->m, p->n, p->k);
        double best = a && b && c ? product_seconds(p, a, b, c, seconds) : 0;
        sluice__free(a);
        sluice__free(b);
        sluice__free(c);
        if (best == 0)
            return sluice__no_memory(err, (size_t)(a_count + b_count + c_count) * sizeof(float),
                                     "a product to time");
        fn(user, &(sluice_bench_row){name, p->what, "GFLOP/s", 2.0 * p->m * p->n * p->k / best / 1e9, best});
    }
    return SLUICE_OK;
}
