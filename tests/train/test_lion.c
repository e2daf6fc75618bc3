/* SPDX-License-Identifier: Apache-2.0 */
/* Lion against a transcription of its paper into PyTorch (make_lion.py), in every kernel version; which tensors have
 * second moments under which optimiser; the memory plan counts them. */
#include "base/json.h"
#include "kernels/ops.h"
#include "sluice/cpu.h"
#include "support/test_support.h"
#include "train/optimizer.h"
#include "train/trainer.h"
#include <math.h>
#include <string.h>

enum { MOST = 64 };

static int numbers(float *out, const json_t *list) {
    int n = (int)json_array_size(list);
    assert_in_range(n, 1, MOST);
    for (int i = 0; i < n; i++) out[i] = (float)json_number_value(json_array_get(list, (size_t)i));
    return n;
}

static double setting(const json_t *o, const char *key) {
    assert_true(json_is_number(json_object_get(o, key)));
    return json_number_value(json_object_get(o, key));
}

static void follows_pytorch(void **state) {
    (void)state;
    static const char *const levels[] = {"ref", "avx2", "avx512"};
    json_t *golden, *grads;
    assert_ok(sluice__json_load(&golden, test_data("train/lion.json"), NULL));
    grads = json_object_get(golden, "gradients");
    sluice__lion c = {setting(golden, "learning_rate"), setting(golden, "beta1"),      setting(golden, "beta2"),
                      setting(golden, "weight_decay"),  setting(golden, "grad_scale"), true};
    for (int l = 0; l < 3; l++) {
        float p[MOST], m[MOST] = {0}, g[MOST], want_p[MOST], want_m[MOST];
        if (sluice_cpu_select(levels[l], NULL) != SLUICE_OK) continue;
        int n = numbers(p, json_object_get(golden, "start"));
        for (size_t s = 0; s < json_array_size(grads); s++) {
            assert_int_equal(numbers(g, json_array_get(grads, s)), n);
            sluice__lion_step(&c, p, m, g, n);
            for (int i = 0; i < n; i++) assert_true(g[i] == 0);
        }
        numbers(want_p, json_object_get(golden, "parameters"));
        numbers(want_m, json_object_get(golden, "momentum"));
        for (int i = 0; i < n; i++)
            if (fabsf(p[i] - want_p[i]) > 1e-6F || fabsf(m[i] - want_m[i]) > 1e-7F)
                fail_msg("%s, %d: %g %g, expected %g %g", levels[l], i, (double)p[i], (double)m[i], (double)want_p[i],
                         (double)want_m[i]);
    }
    assert_ok(sluice_cpu_select(NULL, NULL));
    json_decref(golden);
}

/* ---- moments ---- */

static sluice_model *small_model(sluice_config *c) {
    sluice_model *m;
    assert_ok(sluice_config_parse(c, "{\"vocab_size\": 32, \"hidden_size\": 16, \"num_hidden_layers\": 2}", "test", NULL));
    assert_ok(sluice_model_new(&m, c, 1, NULL));
    return m;
}

static void second_moments_are_those_of_adamw_alone(void **state) {
    (void)state;
    sluice_config c;
    sluice_model *m = small_model(&c);
    sluice__adamw_options adamw = {0.9, 0.95, 1e-8, 0.1};
    sluice__muon_options muon = {.on = true, .lr_factor = 1, .momentum = 0.95, .iterations = 5};
    sluice__lion_options lion = {true, 0.9, 0.99};
    for (int optim = SLUICE_OPTIM_ADAMW; optim <= SLUICE_OPTIM_LION; optim++) {
        sluice__optimizer *o;
        int64_t expected = 0;
        assert_ok(sluice__optimizer_new(&o, m, &adamw, optim == SLUICE_OPTIM_MUON ? &muon : NULL,
                                        optim == SLUICE_OPTIM_LION ? &lion : NULL, NULL));
        for (int i = 0; i < sluice_model_num_tensors(m); i++) {
            sluice_tensor_info t = sluice_model_tensor(m, i);
            bool has = optim == SLUICE_OPTIM_ADAMW || (optim == SLUICE_OPTIM_MUON && !t.hidden_matrix);
            float *second = sluice__optimizer_second(o, sluice__grad_offset(m, i));
            assert_true((second != NULL) == has);
            if (!has) continue;
            expected += t.count;
            for (int64_t k = 0; k < t.count; k++) assert_true(second[k] == 0), second[k] = (float)(i + 1); /* own room */
        }
        for (int i = 0; i < sluice_model_num_tensors(m); i++) {
            float *second = sluice__optimizer_second(o, sluice__grad_offset(m, i));
            if (second) assert_true(second[0] == (float)(i + 1));
        }
        assert_true(o->second_size >= expected && o->second_size < expected + 16 * sluice_model_num_tensors(m));
        assert_true((o->exp_avg_sq != NULL) == (expected > 0));
        int64_t planned = sluice__optimizer_bytes(&c, optim);
        int64_t moments = (sluice_config_num_parameters(&c) + expected) * 4;
        assert_true(optim == SLUICE_OPTIM_MUON ? planned > moments : planned == moments);
        sluice__optimizer_free(o);
    }
    sluice_model_free(m);
    sluice_config_free(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(follows_pytorch),
                                       cmocka_unit_test(second_moments_are_those_of_adamw_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
