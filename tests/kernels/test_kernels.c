/* SPDX-License-Identifier: Apache-2.0 */
/* The checker: every kernel in every version that this machine can run against the plain C reference. Sizes go from 1 past
 * two tiles with their tails; operands are unaligned and stand between guard words; inputs are ordinary, zero, large, tiny,
 * and sprinkled with infinities and NaN where the kernel promises to handle them.
 *
 *   test_kernels_kernels               one line per kernel and version: largest residual (1 = tolerance), verdict
 *   test_kernels_kernels --bench       times every version instead
 *   SLUICE_TEST_SEED=n                 another draw
 * PASS: within tolerance. MARGINAL: up to four times over it; told, not failed. FAIL: beyond, or a guard was touched. */
#include "support/test_support.h"
#include "kernels/cases.h"
#include "base/progress.h"
#include "base/rng.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 32, MISALIGN = 16, OPERAND_MAX = 1 << 18, MARGIN = 4 };
enum { VARIANTS = 16 }; /* tried at each size; where there are more they take turns */
static const float guard_value = -12345.675f;

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
enum { CASES = sizeof cases / sizeof *cases };

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

static sluice__rng rng;

/* One set of operands, each between guards at an odd address. */
typedef struct operands {
    float memory[SLUICE__CASE_OPERANDS][OPERAND_MAX];
    void *op[SLUICE__CASE_OPERANDS];
} operands;
static operands want, got;

static float draw(unsigned input) {
    static const float special[] = {INFINITY, -INFINITY, NAN, -0.0f, 77, -77, 0, 3};
    if (input == SLUICE__CASE_NONFINITE && sluice__rng_below(&rng, 12) == 0) return special[sluice__rng_below(&rng, 8)];
    uint32_t r = sluice__rng_u32(&rng); /* the sum of three uniform numbers looks normal enough */
    float x = (float)((r & 1023) + (r >> 10 & 1023) + (r >> 20 & 1023)) / 341 - 4.5f;
    return input == SLUICE__CASE_LARGE ? x * 100 : input == SLUICE__CASE_TINY ? x * 1e-12f : x;
}

/* Drawing is slow: each kind of input is drawn once, and operands are read from it at random places. */
static const unsigned inputs[] = {0, SLUICE__CASE_LARGE, SLUICE__CASE_TINY, SLUICE__CASE_NONFINITE};
enum { INPUTS = 4, POOL = 40009 };
static float pool[INPUTS][POOL];

static void start(uint64_t seed) {
    rng = (sluice__rng){.seed = seed, .stream = 7};
    for (int i = 0; i < INPUTS; i++)
        for (int j = 0; j < POOL; j++) pool[i][j] = draw(inputs[i]);
}

static void fill_floats(float *x, int64_t count, unsigned input) {
    int kind = 0;
    while (inputs[kind] != input) kind++;
    uint64_t at = sluice__rng_below(&rng, POOL);
    for (int64_t j = 0; j < count; j++, at = at + 1 == POOL ? 0 : at + 1) x[j] = pool[kind][at];
}

static void place(operands *o, int i, int64_t count, int shift) {
    float *base = o->memory[i];
    for (int64_t j = 0; j < count + 2 * GUARD + MISALIGN; j++) base[j] = guard_value;
    o->op[i] = base + GUARD + shift;
}

static bool guards_whole(const operands *o, int i, int64_t count, int shift) {
    const float *base = o->memory[i];
    for (int64_t j = 0; j < count + 2 * GUARD + MISALIGN; j++)
        if ((j < GUARD + shift || j >= GUARD + shift + count) && base[j] != guard_value) return false;
    return true;
}

static void fill(const sluice__kernel_case *c, const sluice__case_shape *s, unsigned input, bool zero) {
    for (int i = 0; c->operands[i]; i++) {
        int64_t count = sluice__case_count(s, c->operands[i]);
        int shift = (int)sluice__rng_below(&rng, MISALIGN);
        assert_true(count + 2 * GUARD + MISALIGN <= OPERAND_MAX);
        place(&want, i, count, shift);
        if (zero) memset(want.op[i], 0, (size_t)count * sizeof(float));
        else fill_floats(want.op[i], count, input);
    }
    if (c->prepare) c->prepare(s, want.op);
    for (int i = 0; c->operands[i]; i++) {
        int64_t whole = sluice__case_count(s, c->operands[i]) + 2 * GUARD + MISALIGN;
        memcpy(got.memory[i], want.memory[i], (size_t)whole * sizeof(float));
        got.op[i] = got.memory[i] + ((float *)want.op[i] - want.memory[i]);
    }
}

static double error_of(float found, float expected, double floor) {
    if (found == expected || (isnan(found) && isnan(expected))) return 0;
    if (!isfinite(found) || !isfinite(expected)) return INFINITY;
    return fabs((double)found - expected) / (fabs(expected) + floor + 1e-300);
}

static double largest_of(const sluice__kernel_case *c, const sluice__case_shape *s) {
    double largest = 0;
    for (int i = 0; c->operands[i]; i++) {
        const float *w = want.op[i];
        if (strchr("pq", c->operands[i])) continue; /* bytes by now */
        for (int64_t j = 0, n = sluice__case_count(s, c->operands[i]); j < n; j++)
            if (isfinite(w[j]) && fabs(w[j]) > largest) largest = fabs(w[j]);
    }
    return largest;
}

/* Largest residual over all operands, 1 = tolerance; infinity when a guard was touched. */
static double residual(const sluice__kernel_case *c, const sluice__case_shape *s) {
    double worst = 0, floor = c->floor * largest_of(c, s);
    for (int i = 0; c->operands[i]; i++) {
        int64_t count = sluice__case_count(s, c->operands[i]);
        int shift = (int)((float *)want.op[i] - want.memory[i]) - GUARD;
        if (!guards_whole(&got, i, count, shift) || !guards_whole(&want, i, count, shift)) return INFINITY;
        const float *w = want.op[i], *g = got.op[i];
        for (int64_t j = 0; j < count; j++) {
            if (fabs((double)g[j] - w[j]) <= c->absolute) continue;
            worst = fmax(worst, error_of(g[j], w[j], floor) / fmax(c->tolerance, 1e-12));
        }
    }
    return worst;
}

typedef struct verdict {
    double worst;
    sluice__case_shape shape;
    unsigned input;
    long runs;
} verdict;

static void try_shape(verdict *v, const sluice__kernels *k, const sluice__kernels *ref,
                      const sluice__kernel_case *c, sluice__case_shape s, unsigned input, bool zero) {
    fill(c, &s, input, zero);
    c->run(ref, &s, want.op);
    c->run(k, &s, got.op);
    double r = residual(c, &s);
    v->runs++;
    if (r > v->worst) v->worst = r, v->shape = s, v->input = input;
}

/* All sizes 1..2*tile+1 (a tile: four vectors of 16), then some larger ones; inputs and variants rotate. */
static verdict check(const sluice__kernels *k, const sluice__kernels *ref, const sluice__kernel_case *c) {
    static const int64_t dims[] = {191, 192, 256, 257, 500, 1024, 4097, 9000};
    verdict v = {0};
    bool product = c->bench.depth > 0;
    int at_once = c->variants < VARIANTS ? c->variants : VARIANTS;
    for (int64_t dim = 1; dim <= 129; dim++) {
        for (int i = 0; i < at_once; i++) {
            int variant = (int)((dim * at_once + i) % c->variants);
            sluice__case_shape s = {1 + (dim + i) % 5, dim, 1 + dim * 7 % 41, variant};
            try_shape(&v, k, ref, c, s, inputs[(size_t)(dim + i) % 4] & c->inputs, false);
        }
    }
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        sluice__case_shape s = {product ? 1 + (int64_t)i * 5 : 3, product ? dims[i] / 16 + 1 : dims[i],
                                100 + (int64_t)i, 0};
        for (s.variant = 0; s.variant < c->variants; s.variant++) {
            try_shape(&v, k, ref, c, s, inputs[i % 4] & c->inputs, false);
            if (i == 0) try_shape(&v, k, ref, c, s, 0, true);
        }
    }
    return v;
}

static void every_version_agrees_with_the_reference(void **state) {
    (void)state;
    const char *seed = getenv("SLUICE_TEST_SEED");
    start(seed ? strtoull(seed, NULL, 10) : 1);
    sluice__kernels ref, k;
    sluice__kernels_choose(&ref, 0);
    int failed = 0;
    for (size_t l = 1; l < sizeof levels / sizeof *levels; l++) {
        if (levels[l].flags & ~sluice_cpu_detect()) continue;
        sluice__kernels_choose(&k, levels[l].flags);
        for (int i = 0; i < CASES; i++) {
            if (!has_version(cases[i].versions, &levels[l])) continue;
            verdict v = check(&k, &ref, cases[i].c);
            const char *word = v.worst <= 1 ? "PASS" : v.worst <= MARGIN ? "MARGINAL" : "FAIL";
            printf("%-24s %-10s seed %-4llu runs %-5ld residual %-9.3g %s", cases[i].name, levels[l].name,
                   (unsigned long long)rng.seed, v.runs, v.worst, word);
            if (v.worst > 1)
                printf("  (rows %lld dim %lld depth %lld variant %d input %u)", (long long)v.shape.rows,
                       (long long)v.shape.dim, (long long)v.shape.depth, v.shape.variant, v.input);
            printf("\n");
            failed += v.worst > MARGIN;
        }
    }
    assert_int_equal(failed, 0);
}

/* The checker itself must be able to fail: a wrong element, a NaN and a touched guard are seen. */
static void checker_sees_errors(void **state) {
    (void)state;
    const sluice__kernel_case *c = &sluice__case_add_f32;
    sluice__case_shape s = {2, 5, 0, 0};
    sluice__kernels ref;
    sluice__kernels_choose(&ref, 0);
    start(1);
    for (int fault = 0; fault < 4; fault++) {
        fill(c, &s, 0, false);
        c->run(&ref, &s, want.op);
        c->run(&ref, &s, got.op);
        float *y = got.op[0];
        if (fault == 1) y[9] *= 1.001f;
        if (fault == 2) y[0] = NAN;
        if (fault == 3) y[10] = 1;
        assert_int_equal(residual(c, &s) > MARGIN, fault > 0);
    }
}

static double seconds_per_call(const sluice__kernel_case *c, const sluice__kernels *k, void **op) {
    double best = 1e9, start = sluice__now();
    while (sluice__now() - start < 0.1) {
        double t = sluice__now();
        c->run(k, &c->bench, op);
        t = sluice__now() - t;
        if (t < best) best = t;
    }
    return best;
}

static void bench_case(const named_case *n) {
    void *op[SLUICE__CASE_OPERANDS] = {0};
    const sluice__kernel_case *c = n->c;
    start(1);
    for (int i = 0; c->operands[i]; i++) {
        int64_t count = sluice__case_count(&c->bench, c->operands[i]);
        float *x = op[i] = malloc((size_t)count * sizeof *x);
        assert_non_null(x);
        fill_floats(x, count, 0);
    }
    if (c->prepare) c->prepare(&c->bench, op);
    double work = (double)(c->bench.rows * c->bench.dim) * (c->bytes > 0 ? c->bytes : 2 * (double)c->bench.depth);
    printf("%-24s", n->name);
    for (size_t l = 0; l < sizeof levels / sizeof *levels; l++) {
        if (levels[l].flags & ~sluice_cpu_detect() || !has_version(n->versions, &levels[l])) continue;
        sluice__kernels k;
        sluice__kernels_choose(&k, levels[l].flags);
        printf("  %s %8.2f", levels[l].name, work / seconds_per_call(c, &k, op) / 1e9);
    }
    printf("  %s\n", c->bytes > 0 ? "GB/s" : "GFLOP/s");
    for (int i = 0; c->operands[i]; i++) free(op[i]);
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "--bench")) {
        for (int i = 0; i < CASES; i++) bench_case(&cases[i]);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checker_sees_errors),
        cmocka_unit_test(every_version_agrees_with_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
