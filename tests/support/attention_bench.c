/* SPDX-License-Identifier: Apache-2.0 */
/* Speed of the attention operator beside the fp32 GEMM peak of the same machine in the same run.
 * Every figure is the best of several rounds, in which the things compared take turns; with one
 * thread the clock is that of the processor time of the thread, which other programs on the machine
 * disturb less.
 *
 *   --bench [threads [batch T heads head_dim]]      default: 1 thread, a table; with a shape: one
 * line, microseconds */
#include "support/attention_bench.h"
#include "kernels/ops.h"
#include "sluice/attention.h"
#include "sluice/cpu.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 7, GATES = 3 };

typedef struct shape {
    int batch, length, heads, dim;
} shape;

typedef struct buffers {
    float *in, *grad, *y, *o, *lse, *dy;
} buffers;

static int threads = 1;

static double now(void) {
    struct timespec t;
    clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static float *floats(int64_t count) {
    float *x =
        aligned_alloc(64, ((size_t)count * sizeof *x + 63) / 64 * 64); /* as the library does */
    if (!x) abort();
    for (int64_t i = 0; i < count; i++) x[i] = (float)((i * 7919 + 13) % 1009) / 504.5f - 1;
    return x;
}

static buffers make_buffers(const shape *s) {
    int64_t n = (int64_t)s->batch * s->length * s->heads * s->dim;
    return (buffers){floats(4 * n),
                     floats(4 * n),
                     floats(n),
                     floats(n),
                     floats((int64_t)s->batch * s->heads * s->length),
                     floats(n)};
}

static void free_buffers(buffers *b) {
    float *all[] = {b->in, b->grad, b->y, b->o, b->lse, b->dy};
    for (int i = 0; i < 6; i++) free(all[i]);
}

/* gate: 0 none, 1 headwise, 2 elementwise */
static void run(const shape *s, const buffers *b, int gate, bool backward) {
    int64_t width = (int64_t)s->heads * s->dim, row = 4 * width;
    sluice_attention_params p = {.batch = s->batch,
                                 .q_len = s->length,
                                 .kv_len = s->length,
                                 .num_heads = s->heads,
                                 .num_kv_heads = s->heads,
                                 .head_dim = s->dim,
                                 .scale = 1 / sqrtf((float)s->dim),
                                 .gated = gate > 0,
                                 .gate_granularity =
                                     gate == 1 ? SLUICE_GATE_HEADWISE : SLUICE_GATE_ELEMENTWISE};
    sluice_strided in[4], out[4], y = {.data = b->y}, o = {.data = b->o};
    for (int i = 0; i < 4; i++) {
        in[i] = (sluice_strided){b->in + i * width, s->length * row, row, s->dim};
        out[i] = (sluice_strided){b->grad + i * width, s->length * row, row, s->dim};
    }
    if (backward)
        sluice_attention_backward(&p, in[0], in[1], in[2], in[3], o, b->lse,
                                  (sluice_strided){.data = b->dy}, out[0], out[1], out[2], out[3],
                                  NULL, NULL);
    else
        sluice_attention_forward(&p, in[0], in[1], in[2], in[3], y, o, b->lse, NULL, NULL);
}

/* Seconds of one call, averaged over enough of them to be seen. */
static double time_run(const shape *s, const buffers *b, int gate, bool backward, int repeat) {
    run(s, b, gate, backward); /* after another call the caches hold something else */
    double start = now();
    for (int i = 0; i < repeat; i++) run(s, b, gate, backward);
    return (now() - start) / repeat;
}

static double gemm_flops(void) {
    enum { N = 768 };
    static float *a, *b, *c;
    if (!a) a = floats(N * N), b = floats(N * N), c = floats(N * N);
    double start = now();
    sluice__gemm_f32(false, true, N, N, N, 1, a, N, b, N, 0, c, N);
    return 2.0 * N * N * N / (now() - start);
}

typedef struct times {
    double forward[GATES], backward[GATES], peak;
} times;

static times measure(const shape *s) {
    buffers b = make_buffers(s);
    double pairs = 0.5 * s->batch * s->heads * (double)s->length * (s->length + 1);
    int repeat = 1 + (int)(2e8 / (pairs * s->dim * 10));
    times t = {.peak = 0};
    run(s, &b, 0, false);
    for (int g = 0; g < GATES; g++) t.forward[g] = t.backward[g] = INFINITY;
    for (int round = 0; round < ROUNDS; round++) {
        t.peak = fmax(t.peak, gemm_flops());
        for (int g = 0; g < GATES; g++) {
            t.forward[g] = fmin(t.forward[g], time_run(s, &b, g, false, repeat));
            t.backward[g] = fmin(t.backward[g], time_run(s, &b, g, true, repeat));
        }
    }
    free_buffers(&b);
    return t;
}

static void print_shape(const shape *s) {
    static const char *const names[] = {"none", "headwise", "elementwise"};
    times t = measure(s);
    double pairs = 0.5 * s->batch * s->heads * (double)s->length * (s->length + 1);
    for (int g = 0; g < GATES; g++) {
        double f = 4 * pairs * s->dim / t.forward[g], b = 10 * pairs * s->dim / t.backward[g];
        printf("%2d x %4d x %2d x %3d  %-11s forward %9.1f us %6.1f GF/s %3.0f %%   backward %9.1f "
               "us %6.1f GF/s %3.0f %%   gemm %.1f\n",
               s->batch, s->length, s->heads, s->dim, names[g], 1e6 * t.forward[g], f * 1e-9,
               100 * f / t.peak, 1e6 * t.backward[g], b * 1e-9, 100 * b / t.peak, t.peak * 1e-9);
    }
    fflush(stdout);
}

int attention_bench(int argc, char **argv) {
    static const shape table[] = {{8, 64, 2, 32},   {8, 64, 12, 64},   {2, 256, 4, 32},
                                  {2, 256, 4, 64},  {2, 256, 4, 128},  {1, 1024, 2, 32},
                                  {1, 1024, 2, 64}, {1, 1024, 2, 128}, {1, 4096, 1, 32},
                                  {1, 4096, 1, 64}, {1, 4096, 1, 128}};
    char cpu[256];
    if (argc > 1) threads = atoi(argv[1]);
    sluice_set_num_threads(threads);
    sluice_cpu_describe(cpu, sizeof cpu);
    printf("%s, %d threads; causal, batch x length x heads x head_dim\n", cpu, threads);
    if (argc > 5) {
        shape s = {atoi(argv[2]), atoi(argv[3]), atoi(argv[4]), atoi(argv[5])};
        print_shape(&s);
    } else {
        for (size_t i = 0; i < sizeof table / sizeof *table; i++) print_shape(&table[i]);
    }
    return 0;
}
