/* SPDX-License-Identifier: Apache-2.0 */
/* Products with weights of every type, alone and stacked, against sums in double over the widened weights; beside BF16
 * weights the inputs count as bf16 as well. */
#include "kernels/matrix.h"
#include "base/memory.h"
#include "base/rng.h"
#include "kernels/bf16.h"
#include "kernels/half.h"
#include "sluice/cpu.h"
#include "support/test_support.h"
#include <math.h>
#include <string.h>

static float *random_floats(int64_t count, uint64_t seed) {
    float *x = sluice__calloc((size_t)count, sizeof *x, SLUICE__MEM_OTHER);
    assert_non_null(x);
    sluice__rng_fill_normal(x, count, seed, 1, 0, 0, 1);
    return x;
}

/* Random weights of a type; *wide gets what they stand for. */
static sluice__matrix new_matrix(sluice__weight_type type, int64_t rows, int64_t columns, uint64_t seed, float **wide) {
    sluice__matrix m = {NULL, rows, columns, type, SLUICE__QUANT_Q8_0};
    float *x = random_floats(rows * columns, seed);
    char *data = sluice__calloc(1, (size_t)sluice__matrix_bytes(&m, rows), SLUICE__MEM_OTHER);
    assert_non_null(data);
    m.data = data;
    if (type == SLUICE__WEIGHT_F32) memcpy(data, x, (size_t)(rows * columns) * sizeof *x);
    for (int64_t i = 0; i < rows * columns && type != SLUICE__WEIGHT_F32 && type != SLUICE__WEIGHT_QUANT; i++) {
        uint16_t half = type == SLUICE__WEIGHT_BF16 ? sluice__float_to_brain(x[i]) : sluice__float_to_half(x[i]);
        memcpy(data + 2 * i, &half, 2);
        x[i] = type == SLUICE__WEIGHT_BF16 ? sluice__brain_to_float(half) : sluice__half_to_float(half);
    }
    if (type == SLUICE__WEIGHT_QUANT) {
        sluice__quantize(data, m.quant, x, rows * columns);
        sluice__matrix_widen(x, &m, 0, rows);
    }
    *wide = x;
    return m;
}

typedef void product(float *, int64_t, const float *, int64_t, sluice__stack, const float *, int64_t);

static void check(product *forward, int64_t rows, int64_t columns, const sluice__weight_type *types, int count,
                  double tolerance) {
    static const int64_t heights[] = {19, 8, 33};
    sluice__matrix parts[3];
    float *wide[3], *x = random_floats(rows * (columns + 3), 7);
    int64_t out = 0, at = 0;
    for (int i = 0; i < count; i++) {
        parts[i] = new_matrix(types[i], heights[i], columns, 10 + (uint64_t)i, &wide[i]);
        out += heights[i];
    }
    float *bias = random_floats(out, 3), *y = random_floats(rows * (out + 5), 4);
    sluice__stack stack = {parts, count};
    assert_int_equal(sluice__stack_rows(stack), out);
    forward(y, out + 5, x, columns + 3, stack, bias, rows);
    for (int i = 0; i < count; at += heights[i++])
        for (int64_t r = 0; r < rows; r++)
            for (int64_t o = 0; o < heights[i]; o++) {
                double want = bias[at + o], size = 0;
                bool rounded = types[i] == SLUICE__WEIGHT_BF16 && forward == sluice__stack_forward;
                for (int64_t c = 0; c < columns; c++) {
                    float in = x[r * (columns + 3) + c];
                    double term = (double)(rounded ? sluice__bf16_widen(sluice__bf16_round(in)) : in) *
                                  (double)wide[i][o * columns + c];
                    want += term;
                    size += fabs(term);
                }
                double got = (double)y[r * (out + 5) + at + o];
                if (!(fabs(got - want) <= tolerance * (size + 1)))
                    fail_msg("rows %d, part %d: found %.9g, expected %.9g", (int)rows, i, got, want);
            }
    for (int i = 0; i < count; i++) {
        sluice__free(wide[i]);
        sluice__free((void *)(uintptr_t)parts[i].data);
    }
    sluice__free(x);
    sluice__free(bias);
    sluice__free(y);
}

/* Every type but blocks: sums differ from the exact ones by their order alone, whatever the level and the number of rows. */
static void floats(void **state) {
    (void)state;
    static const char *const levels[] = {"ref", "avx2", NULL};
    static const int64_t rows[] = {1, 2, 5, 15, 24, 25, 70}, columns[] = {1, 31, 64, 203};
    static const sluice__weight_type stacks[][3] = {
        {SLUICE__WEIGHT_BF16, SLUICE__WEIGHT_BF16, SLUICE__WEIGHT_BF16},
        {SLUICE__WEIGHT_F16, SLUICE__WEIGHT_F32, SLUICE__WEIGHT_BF16},
        {SLUICE__WEIGHT_F32, SLUICE__WEIGHT_F32, SLUICE__WEIGHT_F16},
    };
    for (size_t l = 0; l < 3; l++) {
        if (sluice_cpu_select(levels[l], NULL) != SLUICE_OK) continue; /* not on this machine */
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
            for (size_t j = 0; j < 4; j++)
                for (size_t k = 0; k < 3; k++) {
                    check(sluice__stack_forward, rows[i], columns[j], stacks[k], 3, 3e-7);
                    check(sluice__stack_forward_exact, rows[i], columns[j], stacks[k], 3, 3e-7);
                }
    }
    assert_ok(sluice_cpu_select(NULL, NULL));
}

/* Inputs are rounded to 8 bits: half a step of the largest of 32 in every term. */
static void blocks(void **state) {
    (void)state;
    static const sluice__weight_type types[] = {SLUICE__WEIGHT_QUANT, SLUICE__WEIGHT_BF16, SLUICE__WEIGHT_QUANT};
    check(sluice__stack_forward, 1, 96, types, 3, 1e-2);
    check(sluice__stack_forward, 30, 256, types, 3, 1e-2);
}

static void rows_by_id(void **state) {
    (void)state;
    static const int32_t ids[] = {3, 0, 17, 3};
    for (int type = 0; type <= SLUICE__WEIGHT_QUANT; type++) {
        float *wide, y[4 * 64];
        sluice__matrix m = new_matrix((sluice__weight_type)type, 18, 64, 5, &wide);
        sluice__matrix_rows(y, &m, ids, 4);
        for (int r = 0; r < 4; r++) assert_memory_equal(y + r * 64, wide + ids[r] * 64, 64 * sizeof *y);
        sluice__free(wide);
        sluice__free((void *)(uintptr_t)m.data);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(floats), cmocka_unit_test(blocks),
                                       cmocka_unit_test(rows_by_id)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
