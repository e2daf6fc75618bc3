/* SPDX-License-Identifier: Apache-2.0 */
/* Block types against what the gguf package makes of them: encoding byte for byte, decoding value for value; 16-bit floats;
 * what K encoding loses; panels give back what was put in; products against decoded weights. */
#include "support/test_support.h"
#include "base/rng.h"
#include "kernels/half.h"
#include "kernels/kernels.h"
#include "model/safetensors.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 512 };

static sluice__safetensors *open_golden(const char *name) {
    char path[64];
    snprintf(path, sizeof path, "reference/quant/%s", name);
    const char *found = test_shared(path);
    sluice__safetensors *file = NULL;
    if (found) assert_ok(sluice__safetensors_open(&file, found, NULL));
    return file;
}

static const sluice__st_tensor *tensor(const sluice__safetensors *f, sluice__quant type, const char *what) {
    char name[64];
    snprintf(name, sizeof name, "%s.%s", sluice__quant_name(type), what);
    return sluice__safetensors_find(f, name);
}

/* Codes of two blocks may differ where a value lies within 1e-6 of a rounding boundary: there decoded values are one step
 * apart, and everything else is equal. */
static int different_bytes(const unsigned char *a, const unsigned char *b, int64_t n) {
    int bad = 0;
    for (int64_t i = 0; i < n; i++) bad += a[i] != b[i];
    return bad;
}

static void encoding_gives_the_same_bytes(void **state) {
    (void)state;
    sluice__safetensors *f = open_golden("quantize.safetensors");
    if (!f) skip();
    const sluice__st_tensor *rows = sluice__safetensors_find(f, "rows");
    float *x = malloc((size_t)rows->count * sizeof *x), *values = malloc((size_t)rows->count * sizeof *x);
    unsigned char *bytes = malloc((size_t)rows->count * 2);
    memcpy(x, rows->data, (size_t)rows->count * sizeof *x);
    for (sluice__quant type = 0; type < SLUICE__QUANTS; type++) {
        const sluice__st_tensor *want = tensor(f, type, "bytes"), *decoded = tensor(f, type, "values");
        if (!want) continue;
        sluice__quantize(bytes, type, x, rows->count);
        int bad = different_bytes(bytes, want->data, want->count);
        print_message("%s: %d of %lld bytes differ\n", sluice__quant_name(type), bad, (long long)want->count);
        assert_int_equal(bad, 0);
        sluice__dequantize(values, type, bytes, rows->count);
        for (int64_t i = 0; i < rows->count; i++) {
            float v;
            memcpy(&v, (const char *)decoded->data + 4 * i, 4);
            assert_true(fabsf(values[i] - v) <= 1e-6f * fmaxf(fabsf(v), 1e-30f));
        }
    }
    free(x);
    free(values);
    free(bytes);
    sluice__safetensors_close(f);
}

static void half_floats_round_as_numpy_does(void **state) {
    (void)state;
    sluice__safetensors *f = open_golden("quantize.safetensors");
    if (!f) skip();
    const sluice__st_tensor *rows = sluice__safetensors_find(f, "half_rows");
    const sluice__st_tensor *half = sluice__safetensors_find(f, "F16.bytes");
    const sluice__st_tensor *brain = sluice__safetensors_find(f, "BF16.bytes");
    for (int64_t i = 0; i < rows->count; i++) {
        float x;
        uint16_t h, b;
        memcpy(&x, (const char *)rows->data + 4 * i, 4);
        memcpy(&h, (const char *)half->data + 2 * i, 2);
        memcpy(&b, (const char *)brain->data + 2 * i, 2);
        assert_int_equal(sluice__float_to_half(x), h);
        assert_int_equal(sluice__float_to_brain(x), b);
    }
    sluice__safetensors_close(f);
    for (uint32_t h = 0; h < 0x10000; h++) {
        if ((h & 0x7c00) == 0x7c00 && h & 0x3ff) continue;
        assert_int_equal(sluice__float_to_half(sluice__half_to_float((uint16_t)h)), h);
    }
}

static void decoding_gives_the_same_values(void **state) {
    (void)state;
    sluice__safetensors *f = open_golden("dequantize.safetensors");
    if (!f) skip();
    for (sluice__quant type = 0; type < SLUICE__QUANTS; type++) {
        const sluice__st_tensor *bytes = tensor(f, type, "bytes"), *want = tensor(f, type, "values");
        bool exact = type == SLUICE__QUANT_Q8_0 || type == SLUICE__QUANT_Q4_0 || type == SLUICE__QUANT_Q5_0;
        assert_non_null(bytes);
        float *got = malloc((size_t)want->count * sizeof *got);
        sluice__dequantize(got, type, bytes->data, want->count);
        int block = sluice__quant_values(type);
        for (int64_t b = 0; b < want->count; b += block) {
            float v[256], most = 0;
            memcpy(v, (const char *)want->data + 4 * b, (size_t)block * 4);
            for (int i = 0; i < block; i++) most = fmaxf(most, fabsf(v[i]));
            for (int i = 0; i < block; i++) assert_true(fabsf(got[b + i] - v[i]) <= (exact ? 0 : 1e-6f * most));
        }
        free(got);
    }
    sluice__safetensors_close(f);
}

static void fill(float *x, int64_t n, uint64_t stream) { sluice__rng_fill_normal(x, n, 3, stream, 0, 0, 0.05f); }

/* Root mean square error over that of the values. */
static double loss_of(sluice__quant type, const float *x, float *y, int64_t n) {
    unsigned char *bytes = malloc((size_t)n * 2);
    sluice__quantize(bytes, type, x, n);
    sluice__dequantize(y, type, bytes, n);
    double error = 0, all = 0;
    for (int64_t i = 0; i < n; i++) {
        error += ((double)y[i] - x[i]) * ((double)y[i] - x[i]);
        all += (double)x[i] * x[i];
    }
    free(bytes);
    return sqrt(error / all);
}

/* Bounds a little above what normal numbers gave (docs/formats.md); blocks of 4 bits lose 7 to 9 %, of 5 half of that. */
static void k_types_lose_little(void **state) {
    (void)state;
    static const double bound[SLUICE__QUANTS] = {0.10, 0.085, 0.05, 0.043, 0.0065, 0.075, 0.038, 0.02};
    float x[8192], y[8192];
    fill(x, 8192, 1);
    for (sluice__quant type = 0; type < SLUICE__QUANTS; type++) {
        double loss = loss_of(type, x, y, 8192);
        print_message("%s: relative error %.4f\n", sluice__quant_name(type), loss);
        assert_true(loss < bound[type]);
    }
    for (int i = 0; i < 8192; i++) x[i] = i < 512 ? 0 : i < 1024 ? 0.25f : i < 1536 ? -3 : (float)(i % 7) * 1e-7f;
    for (sluice__quant type = 0; type < SLUICE__QUANTS; type++) {
        loss_of(type, x, y, 8192);
        for (int i = 0; i < 512; i++) assert_true(y[i] == 0);
        for (int i = 512; i < 1536; i++) assert_true(fabsf(y[i] - x[i]) <= 0.02f * fabsf(x[i]));
    }
}

static void panels_keep_values(void **state) {
    (void)state;
    enum { ROWS = 19 };
    float *x = malloc(ROWS * COLUMNS * sizeof *x), want[COLUMNS], got[COLUMNS];
    fill(x, ROWS * COLUMNS, 2);
    for (sluice__quant type = 0; type < SLUICE__QUANTS; type++) {
        unsigned char row[COLUMNS * 2];
        unsigned char *panels = calloc(1, (size_t)sluice__quant_matrix_bytes(type, ROWS, COLUMNS));
        sluice__quant_matrix m = {type, ROWS, COLUMNS, panels};
        for (int r = 0; r < ROWS; r++) {
            sluice__quantize(row, type, x + r * COLUMNS, COLUMNS);
            sluice__quant_put_row(panels, type, COLUMNS, r, row);
        }
        for (int r = 0; r < ROWS; r++) {
            sluice__quantize(row, type, x + r * COLUMNS, COLUMNS);
            sluice__dequantize(want, type, row, COLUMNS);
            sluice__quant_get_row(got, &m, r);
            assert_memory_equal(got, want, sizeof want);
        }
        free(panels);
    }
    free(x);
}

/* Products of several matrices of different types at once, against decoded weights in double: what is left is the rounding
 * of inputs to 8 bits, half a step of 1/127 of the largest of 32. */
static void products_are_those_of_decoded_weights(void **state) {
    (void)state;
    enum { ROWS = 37, N = 40, IN = 512 };
    float *w = malloc(N * IN * sizeof *w), *x = malloc(ROWS * IN * sizeof *x), *y = malloc(ROWS * 2 * N * sizeof *y);
    fill(x, ROWS * IN, 3);
    for (sluice__quant type = 0; type < SLUICE__QUANTS; type++) {
        sluice__quant other = (sluice__quant)((type + 3) % SLUICE__QUANTS), types[2] = {type, other};
        sluice__quant_matrix m[2];
        unsigned char *panels[2], row[IN * 2];
        for (int k = 0; k < 2; k++) {
            fill(w, N * IN, (uint64_t)(10 + k));
            panels[k] = calloc(1, (size_t)sluice__quant_matrix_bytes(types[k], N, IN));
            for (int r = 0; r < N; r++) {
                sluice__quantize(row, types[k], w + r * IN, IN);
                sluice__quant_put_row(panels[k], types[k], IN, r, row);
            }
            m[k] = (sluice__quant_matrix){types[k], N, IN, panels[k]};
        }
        sluice__quant_linear_forward(y, 2 * N, x, IN, m, 2, ROWS);
        double error = 0, all = 0;
        for (int k = 0; k < 2; k++)
            for (int o = 0; o < N; o++) {
                float values[IN];
                sluice__quant_get_row(values, &m[k], o);
                for (int r = 0; r < ROWS; r++) {
                    double sum = 0;
                    for (int i = 0; i < IN; i++) sum += (double)values[i] * x[r * IN + i];
                    double d = y[r * 2 * N + k * N + o] - sum;
                    error += d * d;
                    all += sum * sum;
                }
            }
        assert_true(sqrt(error / all) < 0.01);
        free(panels[0]);
        free(panels[1]);
    }
    free(w);
    free(x);
    free(y);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encoding_gives_the_same_bytes), cmocka_unit_test(half_floats_round_as_numpy_does),
        cmocka_unit_test(decoding_gives_the_same_values), cmocka_unit_test(k_types_lose_little),
        cmocka_unit_test(panels_keep_values), cmocka_unit_test(products_are_those_of_decoded_weights)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
