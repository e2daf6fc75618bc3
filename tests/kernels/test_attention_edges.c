/* SPDX-License-Identifier: Apache-2.0 */
/* What the attention operator refuses and with which words; operands inside one fused projection;
 * one buffer for y and o; gates at their limits; queries that see nothing; NaN and infinity; the
 * map of shares. */
#include "support/attention_problem.h"
#include "sluice/cpu.h"
#include <limits.h>
#include <math.h>
#include <string.h>

static const char *const levels[] = {"ref", "avx2", "avx512"};
enum { B = 2, T = 20, H = 4, KV = 2, D = 8, ROW = H * D + 2 * KV * D + H * D };

static sluice_attention_params basic(void) {
    return (sluice_attention_params){.batch = B,
                                     .q_len = T,
                                     .kv_len = T,
                                     .num_heads = H,
                                     .num_kv_heads = KV,
                                     .head_dim = D,
                                     .scale = 0.35f,
                                     .gated = 1};
}

/* Everything a call takes, zeroed. */
typedef struct operands {
    float q[B * T * H * D], k[B * T * KV * D], v[B * T * KV * D], gate[B * T * H * D],
        y[B * T * H * D], o[B * T * H * D];
    float lse[B * H * T], probs[H * T * T];
    sluice_strided vq, vk, vv, vgate, vy, vo;
    sluice_attention_params p;
    int32_t start[B * T];
} operands;

static operands *fresh(void) {
    static operands x;
    memset(&x, 0, sizeof x);
    x.vq.data = x.q, x.vk.data = x.k, x.vv.data = x.v, x.vgate.data = x.gate, x.vy.data = x.y,
    x.vo.data = x.o;
    x.p = basic();
    return &x;
}

static void expect_refused(operands *x, const char *word) {
    sluice_error err = {0};
    sluice_status st = sluice_attention_forward(&x->p, x->vq, x->vk, x->vv, x->vgate, x->vy, x->vo,
                                                x->lse, NULL, &err);
    assert_int_equal(st, SLUICE_ERR_ARGUMENT);
    assert_int_equal(err.code, SLUICE_ERR_ARGUMENT);
    if (!strstr(err.message, word))
        fail_msg("found \"%s\", expected it to name %s", err.message, word);
    memset(&err, 0, sizeof err);
    st = sluice_attention_backward(&x->p, x->vq, x->vk, x->vv, x->vgate, x->vo, x->lse, x->vo,
                                   x->vy, x->vk, x->vv, x->vgate, NULL, &err);
    assert_true(st == SLUICE_ERR_ARGUMENT || !strcmp(word, "y:") || !strcmp(word, "o:"));
    for (int i = 0; i < B * T * H * D; i++)
        assert_true(x->y[i] == 0 && x->o[i] == 0); /* nothing was written */
}

static void bad_sizes_are_refused(void **state) {
    (void)state;
    operands *x = fresh();
    int *fields[] = {&x->p.batch,     &x->p.q_len,        &x->p.kv_len,
                     &x->p.num_heads, &x->p.num_kv_heads, &x->p.head_dim};
    static const char *const names[] = {"batch",     "q_len",        "kv_len",
                                        "num_heads", "num_kv_heads", "head_dim"};
    static const int bad[] = {0, -1, INT_MIN};
    for (int f = 0; f < 6; f++)
        for (int i = 0; i < 3; i++) {
            x->p = basic();
            *fields[f] = bad[i];
            expect_refused(x, names[f]);
        }
    x->p = basic(), x->p.num_kv_heads = 3, expect_refused(x, "num_heads");
    x->p = basic(), x->p.q_len = T + 1, expect_refused(x, "kv_len");
    x->p = basic(), x->p.kv_len = INT_MAX, expect_refused(x, "kv_len");
    x->p = basic(), x->p.head_dim = INT_MAX, expect_refused(x, "head_dim");
    x->p = basic(), x->p.window = -1, expect_refused(x, "window");
}

static void bad_numbers_are_refused(void **state) {
    (void)state;
    operands *x = fresh();
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        x->p = basic(), x->p.scale = bad[i], expect_refused(x, "scale");
        x->p = basic(), x->p.softcap = bad[i], expect_refused(x, "softcap");
    }
    x->p = basic(), x->p.scale = 0, expect_refused(x, "scale");
    x->p = basic(), x->p.softcap = -1, expect_refused(x, "softcap");
    x->p = basic(), x->p.gate_act = (sluice_gate_act)5, expect_refused(x, "gate_act");
    x->p = basic(), x->p.gate_op = (sluice_gate_op)2, expect_refused(x, "gate_op");
    x->p = basic(), x->p.gate_granularity = (sluice_gate_granularity)7,
    expect_refused(x, "gate_granularity");
    x->p = basic(), x->p.key_start = x->start;
    x->start[T + 2] = 3, expect_refused(x, "key_start[1][2]");
    x->start[T + 2] = -1, expect_refused(x, "key_start[1][2]");
    x->start[T + 2] = INT_MAX, expect_refused(x, "key_start[1][2]");
}

static void bad_tensors_are_refused(void **state) {
    (void)state;
    operands *x = fresh();
    sluice_strided *views[] = {&x->vq, &x->vk, &x->vv, &x->vgate, &x->vy};
    static const char *const names[] = {"q:", "k:", "v:", "gate:", "y:"};
    for (int i = 0; i < 5; i++) {
        sluice_strided kept = *views[i];
        views[i]->data = NULL, expect_refused(x, names[i]);
        *views[i] = kept, views[i]->stride_token = -8, expect_refused(x, names[i]);
        *views[i] = kept, views[i]->stride_batch = INT64_MAX, expect_refused(x, names[i]);
        *views[i] = kept, views[i]->stride_head = INT64_MAX / 2, expect_refused(x, names[i]);
        *views[i] = kept;
    }
    x->vy.stride_token = D * H - 1, expect_refused(x, "y:");
    x->vy = (sluice_strided){x->y, 0, 0, D - 1}, expect_refused(x, "y:");
    x->vy = (sluice_strided){x->y, T * H * D - 1, 0, 0}, expect_refused(x, "y:");
    x->vy = x->vo, expect_refused(x, "o:");
    x->p.gated = 0, x->vy.stride_token = 2 * D * H, expect_refused(x, "o:");
    sluice_error err = {0};
    x = fresh();
    assert_int_equal(sluice_attention_forward(NULL, x->vq, x->vk, x->vv, x->vgate, x->vy, x->vo,
                                              NULL, NULL, &err),
                     SLUICE_ERR_ARGUMENT);
    assert_int_equal(sluice_attention_backward(&x->p, x->vq, x->vk, x->vv, x->vgate, x->vo, NULL,
                                               x->vo, x->vq, x->vk, x->vv, x->vgate, NULL, NULL),
                     SLUICE_ERR_ARGUMENT);
    assert_int_equal(sluice_attention_probs(&x->p, B, x->vq, x->vk, x->probs, &err),
                     SLUICE_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "batch_row"));
    assert_int_equal(sluice_attention_probs(&x->p, 0, x->vq, x->vk, NULL, &err),
                     SLUICE_ERR_ARGUMENT);
}

static void y_may_be_o_without_a_gate(void **state) {
    (void)state;
    operands *x = fresh();
    sluice_error err = {0};
    x->p.gated = 0;
    for (int i = 0; i < B * T * KV * D; i++) x->v[i] = (float)(i % 7);
    assert_ok_err(sluice_attention_forward(&x->p, x->vq, x->vk, x->vv, x->vgate, x->vy, x->vy, NULL,
                                           NULL, &err),
                  &err);
    assert_ok_err(sluice_attention_forward(&x->p, x->vq, x->vk, x->vv, x->vgate, x->vo,
                                           (sluice_strided){0}, NULL, NULL, &err),
                  &err);
    assert_memory_equal(x->y, x->o, sizeof x->y);
    assert_true(x->y[0] == x->v[0]);
}

/* q, k, v and gate side by side in one matrix of T rows, as one GEMM leaves them; their gradients
 * in another. */
static void works_inside_a_fused_projection(void **state) {
    (void)state;
    static float rows[B * T * ROW], grad[B * T * ROW], dense[2][B * T * ROW], y[2][B * T * H * D],
        o[2][B * T * H * D];
    static float lse[2][B * H * T];
    const int at[4] = {0, H * D, H * D + KV * D, H * D + 2 * KV * D}, heads[4] = {H, KV, KV, H};
    sluice_error err = {0};
    sluice_attention_params p = basic();
    sluice_strided fused[2][4], packed[2][4], none = {0};
    for (int i = 0; i < B * T * ROW; i++) rows[i] = sinf((float)i), grad[i] = 99;
    for (int i = 0, offset = 0; i < 4; offset += B * T * heads[i++] * D)
        for (int g = 0; g < 2; g++) {
            fused[g][i] = (sluice_strided){(g ? grad : rows) + at[i], (int64_t)T * ROW, ROW, 0};
            packed[g][i] = (sluice_strided){dense[g] + offset, 0, 0, 0};
            for (int r = 0; r < B * T; r++)
                memcpy(dense[0] + offset + r * heads[i] * D, rows + r * ROW + at[i],
                       (size_t)(heads[i] * D) * sizeof(float));
        }
    for (int n = 0; n < 2; n++) {
        sluice_strided(*in) = n ? packed[0] : fused[0], (*out) = n ? packed[1] : fused[1],
        vy = {y[n], 0, 0, 0}, vo = {o[n], 0, 0, 0};
        assert_ok_err(
            sluice_attention_forward(&p, in[0], in[1], in[2], in[3], vy, vo, lse[n], NULL, &err),
            &err);
        assert_ok_err(sluice_attention_backward(&p, in[0], in[1], in[2], in[3], vo, lse[n], vy,
                                                out[0], out[1], out[2], out[3], NULL, &err),
                      &err);
    }
    (void)none;
    assert_memory_equal(y[0], y[1], sizeof y[0]);
    for (int i = 0, offset = 0; i < 4; offset += B * T * heads[i++] * D)
        for (int r = 0; r < B * T; r++)
            assert_memory_equal(dense[1] + offset + r * heads[i] * D, grad + r * ROW + at[i],
                                (size_t)(heads[i] * D) * sizeof(float));
}

/* Logits of released models reach -77; infinite ones close or open a gate. */
static void gates_at_their_limits(void **state) {
    (void)state;
    static const float logits[8] = {-INFINITY, -1e30f, -104, -77, 77, 104, 1e30f, INFINITY};
    static float dq[B * T * H * D], dk[B * T * KV * D], dv[B * T * KV * D], dgate[B * T * H * D];
    sluice_error err = {0};
    for (int l = 0; l < 3; l++) {
        if (sluice_cpu_select(levels[l], NULL) != SLUICE_OK) continue;
        for (int n = 0; n < 4; n++) {
            operands *x = fresh();
            x->p.gate_granularity = (sluice_gate_granularity)(n % 2);
            x->p.gate_act = n / 2 ? SLUICE_GATE_NS_SIGMOID : SLUICE_GATE_SIGMOID;
            for (int i = 0; i < B * T * KV * D; i++) x->v[i] = 1;
            for (int i = 0; i < B * T * H * D; i++) x->gate[i] = logits[i % 8];
            assert_ok_err(sluice_attention_forward(&x->p, x->vq, x->vk, x->vv, x->vgate, x->vy,
                                                   x->vo, x->lse, NULL, &err),
                          &err);
            for (int i = 0; i < B * T * H * D; i++) {
                float open = logits[(n % 2 ? i / D : i) % 8] > 0 ? 1.0f : n / 2 ? 0.5f : 0.0f;
                assert_float_equal(x->y[i], open, 1e-6);
            }
            assert_ok_err(sluice_attention_backward(&x->p, x->vq, x->vk, x->vv, x->vgate, x->vo,
                                                    x->lse, x->vy, (sluice_strided){.data = dq},
                                                    (sluice_strided){.data = dk},
                                                    (sluice_strided){.data = dv},
                                                    (sluice_strided){.data = dgate}, NULL, &err),
                          &err);
            for (int i = 0; i < B * T * H * (n % 2 ? 1 : D); i++)
                assert_float_equal(dgate[i], 0, 1e-30);
            for (int i = 0; i < B * T * KV * D; i++)
                assert_true(isfinite(dv[i]) && isfinite(dk[i]));
        }
    }
}

/* Keys at -inf have no weight; a query all of whose keys are there gives zeros and an lse of -inf,
 * forward and backward. */
static void queries_that_see_nothing(void **state) {
    (void)state;
    static float dq[B * T * H * D], dk[B * T * KV * D], dv[B * T * KV * D], dgate[B * T * H * D],
        share[B * H * T];
    sluice_error err = {0};
    for (int l = 0; l < 3; l++)
        for (int q_len = 1; q_len <= T; q_len += T - 1) {
            if (sluice_cpu_select(levels[l], NULL) != SLUICE_OK) continue;
            operands *x = fresh();
            x->p.q_len = q_len;
            for (int i = 0; i < B * T * H * D; i++) x->q[i] = i % D ? 0 : 1, x->gate[i] = 1;
            for (int i = 0; i < B * T * KV * D; i++) x->k[i] = i % D ? 0 : -INFINITY, x->v[i] = 1;
            assert_ok_err(sluice_attention_forward(&x->p, x->vq, x->vk, x->vv, x->vgate, x->vy,
                                                   x->vo, x->lse, share, &err),
                          &err);
            for (int i = 0; i < B * q_len * H * D; i++) assert_true(x->y[i] == 0 && x->o[i] == 0);
            for (int i = 0; i < B * q_len * H; i++)
                assert_true(x->lse[i] == -INFINITY && share[i] == 0);
            for (int i = 0; i < B * T * KV * D; i++)
                x->k[i] = 0; /* 0 * -inf has no gradient worth the name */
            assert_ok_err(sluice_attention_backward(&x->p, x->vq, x->vk, x->vv, x->vgate, x->vo,
                                                    x->lse, x->vgate, (sluice_strided){.data = dq},
                                                    (sluice_strided){.data = dk},
                                                    (sluice_strided){.data = dv},
                                                    (sluice_strided){.data = dgate}, NULL, &err),
                          &err);
            for (int i = 0; i < B * q_len * H * D; i++) assert_true(dq[i] == 0);
            for (int i = 0; i < B * T * KV * D; i++) assert_true(dk[i] == 0 && dv[i] == 0);
        }
}

/* A NaN is not hidden from the queries that see it and does not reach other heads and batch rows.
 */
static void nan_reaches_who_sees_it(void **state) {
    (void)state;
    sluice_error err = {0};
    for (int l = 0; l < 3; l++)
        for (int n = 0; n < 6; n++) {
            if (sluice_cpu_select(levels[l], NULL) != SLUICE_OK) continue;
            operands *x = fresh();
            int where = n / 2, q_len = n % 2 ? 4 : T; /* row by row, and as lanes */
            x->p.gated = 0;
            x->p.q_len = q_len;
            for (int i = 0; i < B * T * H * D; i++) x->q[i] = 0.1f;
            for (int i = 0; i < B * T * KV * D; i++) x->k[i] = 0.1f;
            if (where == 0) x->q[(2 * H + 1) * D] = NAN; /* batch row 0, query 2, head 1 */
            if (where == 1) x->k[0] = NAN; /* batch row 0, key 0, head 0: seen by heads 0 and 1 */
            if (where == 2) x->v[3] = NAN; /* the same, component 3 */
            assert_ok_err(sluice_attention_forward(&x->p, x->vq, x->vk, x->vv, x->vgate, x->vy,
                                                   x->vo, x->lse, NULL, &err),
                          &err);
            for (int i = 0; i < B * q_len * H * D; i++) {
                int b = i / (q_len * H * D), t = i / (H * D) % q_len, h = i / D % H, d = i % D;
                bool want = !b && (where == 0   ? t == 2 && h == 1
                                   : where == 1 ? h < 2
                                                : h < 2 && d == 3);
                assert_int_equal(isnan(x->y[i]) != 0, want);
                if (d == 0)
                    assert_int_equal(isnan(x->lse[(b * H + h) * q_len + t]) != 0,
                                     want && where < 2);
            }
        }
}

static void the_map_is_the_shares(void **state) {
    (void)state;
    for (int l = 0; l < 3; l++)
        for (int n = 0; n < 4; n++) {
            if (sluice_cpu_select(levels[l], NULL) != SLUICE_OK) continue;
            sluice_attention_params p = basic();
            p.q_len = n == 1 ? 2 : T;
            p.window = n == 2 ? 2 : 0;
            p.softcap = n == 3 ? 2 : 0;
            problem_options o = {.layout = NAIVE_ODD,
                                 .documents = n == 3,
                                 .sinks = n >= 2,
                                 .sd = 2,
                                 .seed = (uint64_t)n};
            problem x = problem_make(&p, &o);
            static float probs[H * T * T];
            problem_want(&x, false);
            for (int b = 0; b < B; b++) {
                assert_ok(sluice_attention_probs(&x.p, b, x.q.view, x.k.view, probs, NULL));
                for (int i = 0; i < H * p.q_len * T; i++)
                    assert_float_equal(probs[i], (float)x.want.probs[b * H * p.q_len * T + i],
                                       1e-6);
            }
            problem_free(&x);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_sizes_are_refused),
        cmocka_unit_test(bad_numbers_are_refused),
        cmocka_unit_test(bad_tensors_are_refused),
        cmocka_unit_test(y_may_be_o_without_a_gate),
        cmocka_unit_test(works_inside_a_fused_projection),
        cmocka_unit_test(gates_at_their_limits),
        cmocka_unit_test(queries_that_see_nothing),
        cmocka_unit_test(nan_reaches_who_sees_it),
        cmocka_unit_test(the_map_is_the_shares),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
