/* SPDX-License-Identifier: Apache-2.0 */
/* Loading and saving model directories. */
#include "support/test_support.h"
#include "base/file.h"
#include "base/memory.h"
#include "sluice/log.h"
#include "sluice/model.h"
#include <string.h>

static const char flat[] =
    "{\"vocab_size\": 40, \"hidden_size\": 24, \"intermediate_size\": 32, \"num_attention_heads\": 4, "
    "\"num_key_value_heads\": 2, \"head_dim\": 8, \"gate_position\": \"sdpa\", \"gate_granularity\": \"%s\", "
    "\"partial_rotary_factor\": 0.5}";

static void native_round_trip(void **state) {
    (void)state;
    static const char *const forms[] = {"elementwise", "headwise"};
    for (int f = 0; f < 2; f++) {
        sluice_error err = {0};
        sluice_config config;
        char *json = sluice__asprintf(flat, forms[f]);
        assert_ok_err(sluice_config_parse(&config, json, "test", &err), &err);
        sluice__free(json);
        sluice_model *a, *b;
        assert_ok_err(sluice_model_new(&a, &config, 5, &err), &err);
        assert_int_equal(config.layers[0].rope.rotary_dim, 4);
        const char *dir = test_temp_dir();
        assert_ok_err(sluice_model_save(a, dir, SLUICE_SAVE_NATIVE, &err), &err);
        assert_ok_err(sluice_model_load(&b, dir, NULL, &err), &err);
        assert_int_equal(sluice_model_num_tensors(a), sluice_model_num_tensors(b));
        int64_t total = 0;
        for (int i = 0; i < sluice_model_num_tensors(a); i++) {
            sluice_tensor_info x = sluice_model_tensor(a, i), y = sluice_model_tensor(b, i);
            assert_string_equal(x.name, y.name);
            assert_memory_equal(x.data, y.data, (size_t)x.count * sizeof(float));
            total += x.count;
        }
        assert_int_equal(total, sluice_config_num_parameters(&config));
        sluice_model_free(a);
        sluice_model_free(b);
        sluice_config_free(&config);
    }
}

/* Whatever lies below the shared models either loads or is refused with a reason. */
static void reference_models(void **state) {
    (void)state;
    static const char *const good[] = {"llama",
                                       "qwen2",
                                       "qwen3",
                                       "qwen3_yarn",
                                       "paper_baseline",
                                       "paper_elementwise_g2",
                                       "paper_elementwise_g4",
                                       "paper_headwise_g2",
                                       "paper_headwise_g4",
                                       "paper_headwise_bias",
                                       "export_tied",
                                       "export_untied",
                                       NULL};
    if (!test_shared("reference/models")) skip();
    sluice_log_to_stderr(SLUICE_LOG_INFO);
    for (int i = 0; good[i]; i++) {
        char name[128];
        snprintf(name, sizeof name, "reference/models/%s", good[i]);
        sluice_error err = {0};
        sluice_model *m;
        assert_ok_err(sluice_model_load(&m, test_shared(name), NULL, &err), &err);
        sluice_model_free(m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(native_round_trip), cmocka_unit_test(reference_models)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
