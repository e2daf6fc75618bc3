/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over keys and values in the types of a session's cache: the same as attention over the widened copy. */
#include "support/test_support.h"
#include "base/rng.h"
#include "kernels/attention.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const float TOLERANCE = 2e-5f; /* outputs of about 1; sums in another order */

typedef struct problem {
    sluice_attention_params p;
    float *q, *k, *v, *gate, *want, *got;
    char *typed_k, *typed_v;
    int32_t *key_start;
} problem;

static float *numbers(int64_t n, uint64_t stream) {
    float *x = calloc((size_t)n, sizeof *x);
    assert_non_null(x);
    sluice__rng_fill_normal(x, n, 5, stream, 0, 0, 1);
    return x;
}

static void check(sluice_attention_params p, sluice_kv_dtype dtype) {
    int64_t q_rows = (int64_t)p.batch * p.q_len * p.num_heads, kv_rows = (int64_t)p.batch * p.kv_len * p.num_kv_heads;
    size_t head = sluice__kv_bytes(dtype, p.head_dim);
    problem x = {.p = p,
                 .q = numbers(q_rows * p.head_dim, 1),
                 .k = numbers(kv_rows * p.head_dim, 2),
                 .v = numbers(kv_rows * p.head_dim, 3),
                 .gate = numbers(q_rows * p.head_dim, 4),
                 .want = numbers(q_rows * p.head_dim, 5),
                 .got = numbers(q_rows * p.head_dim, 6),
                 .typed_k = malloc((size_t)kv_rows * head),
                 .typed_v = malloc((size_t)kv_rows * head)};
    sluice_error err = {0};
    for (int64_t r = 0; r < kv_rows; r++) {
        sluice__kv_store(x.typed_k + (size_t)r * head, x.k + r * p.head_dim, dtype, p.head_dim);
        sluice__kv_store(x.typed_v + (size_t)r * head, x.v + r * p.head_dim, dtype, p.head_dim);
        sluice_kv_load_ref(x.k + r * p.head_dim, x.typed_k + (size_t)r * head, dtype, p.head_dim);
        sluice_kv_load_ref(x.v + r * p.head_dim, x.typed_v + (size_t)r * head, dtype, p.head_dim);
    }
    sluice_strided none = {0}, gate = p.gated ? (sluice_strided){.data = x.gate} : none;
    int64_t token = (int64_t)head * p.num_kv_heads;
    sluice__kv k = {x.typed_k, token * p.kv_len, token, (int64_t)head, dtype},
               v = {x.typed_v, token * p.kv_len, token, (int64_t)head, dtype};
    assert_ok_err(sluice_attention_forward(&p, (sluice_strided){.data = x.q}, (sluice_strided){.data = x.k},
                                           (sluice_strided){.data = x.v}, gate, (sluice_strided){.data = x.want}, none,
                                           NULL, NULL, &err),
                  &err);
    sluice__attention_call typed = {.p = p, .q = {.data = x.q}, .gate = gate, .y = {.data = x.got}, .typed_k = k, .typed_v = v};
    assert_ok_err(sluice__attention_forward_calls(&typed, 1, &err), &err);
    for (int64_t i = 0; i < q_rows * p.head_dim; i++)
        if (!(fabsf(x.want[i] - x.got[i]) <= TOLERANCE))
            fail_msg("dtype %d, q_len %d, kv_len %d, window %d: element %lld: %g against %g", dtype, p.q_len, p.kv_len,
                     p.window, (long long)i, (double)x.got[i], (double)x.want[i]);
    free(x.q), free(x.k), free(x.v), free(x.gate), free(x.want), free(x.got), free(x.typed_k), free(x.typed_v);
}

static void types_give_what_their_values_give(void **state) {
    (void)state;
    static const int lengths[][2] = {{1, 1}, {1, 300},  {1, 1025},  {3, 70},   {8, 513},
                                     {9, 9}, {40, 333}, {130, 130}, {200, 700}};
    for (int cpu = 0; cpu < 3; cpu++) {
        static const char *const levels[] = {"ref", "avx2", "avx512"};
        sluice_error err = {0};
        if (sluice_cpu_select(levels[cpu], &err) != SLUICE_OK) continue;
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
            for (int dtype = SLUICE_KV_F32; dtype <= SLUICE_KV_Q8_0; dtype++) {
                sluice_attention_params p = {.batch = 1 + (int)(i % 2),
                                             .q_len = lengths[i][0],
                                             .kv_len = lengths[i][1],
                                             .num_heads = 4,
                                             .num_kv_heads = 2,
                                             .head_dim = i % 3 == 1 ? 96 : 64,
                                             .scale = 0.125f,
                                             .window = i % 4 == 3 ? 50 : 0,
                                             .gated = i % 2 == 0};
                check(p, (sluice_kv_dtype)dtype);
                p.head_dim = 40;
                if (dtype != SLUICE_KV_Q8_0) check(p, (sluice_kv_dtype)dtype);
            }
    }
    sluice_error err = {0};
    assert_ok_err(sluice_cpu_select(NULL, &err), &err);
}

/* Every version of the widening gives the same bits. */
static void widening_is_exact(void **state) {
    (void)state;
    enum { N = 32 * 7 };
    float x[N], want[N], got[N];
    char typed[N * 4];
    sluice__rng_fill_normal(x, N, 9, 0, 0, 0, 3);
    for (int dtype = SLUICE_KV_F32; dtype <= SLUICE_KV_Q8_0; dtype++)
        for (int n = 32; n <= N; n += dtype == SLUICE_KV_Q8_0 ? 32 : 5) {
            sluice__kv_store(typed, x, (sluice_kv_dtype)dtype, n);
            sluice_kv_load_ref(want, typed, (sluice_kv_dtype)dtype, n);
            sluice__kv_load(got, typed, (sluice_kv_dtype)dtype, n);
            assert_memory_equal(want, got, (size_t)n * sizeof *want);
            float most = dtype == SLUICE_KV_F32 ? 0 : dtype == SLUICE_KV_F16 ? 1e-3f : 0.05f;
            for (int i = 0; i < n; i++) assert_true(fabsf(got[i] - x[i]) <= most * (1 + fabsf(x[i])));
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_give_what_their_values_give),
        cmocka_unit_test(widening_is_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
