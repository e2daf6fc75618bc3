/* SPDX-License-Identifier: Apache-2.0 */
/* Muon by itself: what five Newton-Schulz iterations do to singular values, wide and tall matrices alike, and one
 * update against the formulas in double. Whole runs are held against outside references in tests/golden. */
#include "base/rng.h"
#include "support/test_support.h"
#include "train/muon.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static float *random_matrix(int64_t count, uint64_t seed, float sd) {
    float *x = malloc((size_t)count * sizeof *x);
    sluice__rng_fill_normal(x, count, seed, 3, 0, 0.0F, sd);
    return x;
}

/* The iteration in double, on a wide matrix (rows <= columns). */
static void reference(double *x, int64_t rows, int64_t columns, int iterations) {
    double norm = 0, *s = calloc((size_t)(rows * rows), sizeof *s), *p = calloc((size_t)(rows * rows), sizeof *p);
    double *y = calloc((size_t)(rows * columns), sizeof *y);
    for (int64_t i = 0; i < rows * columns; i++) norm += x[i] * x[i];
    for (int64_t i = 0; i < rows * columns; i++) x[i] /= fmax(sqrt(norm), 1e-7);
    for (int it = 0; it < iterations; it++) {
        for (int64_t i = 0; i < rows * rows; i++) {
            s[i] = 0;
            for (int64_t k = 0; k < columns; k++) s[i] += x[i / rows * columns + k] * x[i % rows * columns + k];
        }
        for (int64_t i = 0; i < rows * rows; i++) {
            p[i] = -4.7750 * s[i];
            for (int64_t k = 0; k < rows; k++) p[i] += 2.0315 * s[i / rows * rows + k] * s[k * rows + i % rows];
        }
        for (int64_t i = 0; i < rows * columns; i++) {
            y[i] = 3.4445 * x[i];
            for (int64_t k = 0; k < rows; k++) y[i] += p[i / columns * rows + k] * x[k * columns + i % columns];
        }
        memcpy(x, y, (size_t)(rows * columns) * sizeof *x);
    }
    free(s);
    free(p);
    free(y);
}

static void check_shape(int64_t rows, int64_t columns) {
    int64_t count = rows * columns;
    float *x = random_matrix(count, (uint64_t)(100 * rows + columns), 0.3F);
    double *golden = calloc((size_t)count, sizeof *golden);
    bool tall = rows > columns;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) golden[tall ? c * rows + r : r * columns + c] = x[r * columns + c];
    reference(golden, tall ? columns : rows, tall ? rows : columns, 5);
    float *scratch = malloc((size_t)sluice__muon_scratch(rows, columns) * sizeof *scratch);
    sluice__orthogonalise(x, rows, columns, 5, scratch);
    double square = 0;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) {
            double v = x[r * columns + c], g = golden[tall ? c * rows + r : r * columns + c];
            square += v * v;
            if (fabs(v - g) > 2e-4)
                fail_msg("%dx%d: %d,%d: %g, expected %g", (int)rows, (int)columns, (int)r, (int)c, v, g);
        }
    double rank =
        (double)(tall ? columns : rows); /* singular values near 1: their squares add up to about the rank */
    assert_true(square > 0.3 * rank && square < 1.5 * rank);
    free(x);
    free(golden);
    free(scratch);
}

static void singular_values_become_one(void **state) {
    (void)state;
    static const int64_t shapes[][2] = {{129, 150}, {260, 131}, {128, 128}, {1, 1}, {1, 7}, {7, 1}, {8, 8}, {5, 33}, {33, 5}, {40, 24}, {24, 40}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) check_shape(shapes[i][0], shapes[i][1]);
}

/* Two updates with both scales of the step. */
static void an_update_follows_the_formulas(void **state) {
    (void)state;
    enum { R = 6, C = 4 };
    for (int adjust = SLUICE__MUON_ORIGINAL; adjust <= SLUICE__MUON_MATCH_RMS; adjust++) {
        float *p = random_matrix(R * C, 1, 1.0F), m[R * C] = {0}, scratch[2 * R * C + 2 * C * C];
        double gp[R * C], gm[R * C] = {0};
        for (int i = 0; i < R * C; i++) gp[i] = p[i];
        sluice__muon c = {.lr = 0.02,
                          .momentum = 0.95,
                          .weight_decay = 0.1,
                          .grad_scale = 0.5,
                          .adjust = (sluice__muon_adjust)adjust,
                          .iterations = 5};
        for (int step = 0; step < 2; step++) {
            float *g = random_matrix(R * C, 50 + (uint64_t)step, 1.0F);
            double u[R * C], scale = adjust == SLUICE__MUON_ORIGINAL ? sqrt((double)R / C) : 0.2 * sqrt(R);
            for (int i = 0; i < R * C; i++) {
                double grad = 0.5 * g[i];
                gm[i] = 0.95 * gm[i] + 0.05 * grad;
                u[i % C * R + i / C] = 0.05 * grad + 0.95 * gm[i]; /* transposed: wide */
            }
            reference(u, C, R, 5);
            for (int i = 0; i < R * C; i++) gp[i] = gp[i] * (1 - 0.02 * 0.1) - 0.02 * scale * u[i % C * R + i / C];
            sluice__muon_step(&c, p, m, g, R, C, scratch);
            for (int i = 0; i < R * C; i++) {
                assert_true(g[i] == 0);
                assert_true(fabs(p[i] - gp[i]) < 1e-5);
                assert_true(fabs(m[i] - gm[i]) < 1e-6);
            }
            free(g);
        }
        free(p);
    }
}

/* An expert that no token met: nothing but weight decay, and nothing that is not finite. */
static void a_zero_gradient_only_decays(void **state) {
    (void)state;
    float p[6] = {1, 2, 3, -4, 5, 6}, m[6] = {0}, g[6] = {0}, scratch[2 * 6 + 2 * 4];
    sluice__muon c = {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.5, .grad_scale = 1, .iterations = 5};
    sluice__muon_step(&c, p, m, g, 2, 3, scratch);
    for (int i = 0; i < 6; i++)
        assert_true(fabsf(p[i] - 0.95F * (i == 3 ? -4.0F : (float)(i + 1))) < 1e-6F && m[i] == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(singular_values_become_one),
                                       cmocka_unit_test(an_update_follows_the_formulas),
                                       cmocka_unit_test(a_zero_gradient_only_decays)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
