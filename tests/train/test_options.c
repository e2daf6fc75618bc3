/* SPDX-License-Identifier: Apache-2.0 */
/* train: the option table: defaults, setting, ranges, JSON both ways, what may change when a run is resumed. */
#include "support/test_support.h"
#include "base/file.h"
#include "base/json.h"
#include "train/match.h"
#include "train/options.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void defaults_are_those_of_the_table(void **state) {
    (void)state;
    sluice_train_params p = sluice_train_params_default();
    assert_int_equal(p.seed, 42);
    assert_float_equal(p.adam_beta2, 0.95, 0);
    assert_int_equal(p.lr_scheduler_type, SLUICE_LR_COSINE);
    assert_true(p.append_eos);
    assert_string_equal(p.output_dir, "");
    assert_ok(sluice_train_params_check(&p, NULL));
    sluice_error err = {0};
    for (int i = 0; i < sluice_train_num_options(); i++) { /* every default is inside its own range */
        char value[SLUICE_TRAIN_LIST];
        sluice_train_option_value(&p, i, value, sizeof value);
        assert_ok_err(sluice_train_params_set(&p, sluice_train_option(i).name, value, &err), &err);
        assert_true(strlen(sluice_train_option(i).help) > 10);
    }
    sluice_train_params again = sluice_train_params_default();
    assert_memory_equal(&p, &again, sizeof p);
}

static void hostile_values_are_refused_by_name(void **state) {
    (void)state;
    static const char *const bad[][2] = {
        {"--learning-rate", "nan"},
        {"learning_rate", "inf"},
        {"learning_rate", "-1"},
        {"learning_rate", ""},
        {"--learning-rate", "1x"},
        {"adam_beta1", "1"},
        {"adam_beta2", "1.5"},
        {"adam_epsilon", "0"},
        {"seq_len", "1"},
        {"seq_len", "99999999999"},
        {"seq_len", "1.5"},
        {"max_steps", "-2"},
        {"split", "random"},
        {"split", ""},
        {"split", "doc"},
        {"append_eos", "maybe"},
        {"lr_scheduler_type", "Cosine"},
        {"dtype", "float16"},
        {"logging_steps", "0"},
        {"output_dir", "a\nb"},
        {"no_such_option", "1"},
        {"seed", "99999999999999999999"},
        {"validation_split_percentage", "95"},
    };
    sluice_train_params p = sluice_train_params_default(), before = p;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        sluice_error err = {0};
        if (sluice_train_params_set(&p, bad[i][0], bad[i][1], &err) != SLUICE_ERR_ARGUMENT)
            fail_msg("%s=%s was taken", bad[i][0], bad[i][1]);
        assert_non_null(strstr(err.message, bad[i][0]));
        assert_memory_equal(&p, &before, sizeof p);
    }
}

static void json_round_trip(void **state) {
    (void)state;
    sluice_error err = {0};
    sluice_train_params p = sluice_train_params_default(), q = p;
    assert_ok(sluice_train_params_set(&p, "text", "a.txt\nb c.jsonl.gz", NULL));
    assert_ok(sluice_train_params_set(&p, "--learning-rate", "0.00037", NULL));
    assert_ok(sluice_train_params_set(&p, "max-steps", "1e3", NULL));
    assert_ok(sluice_train_params_set(&p, "bos", "window", NULL));
    assert_ok(sluice_train_params_set(&p, "document-mask", "True", NULL));
    json_t *o = sluice__train_params_to_json(&p);
    char path[256], *model = NULL;
    snprintf(path, sizeof path, "%s/run.json", test_temp_dir());
    assert_ok_err(sluice__json_save(o, path, &err), &err);
    json_decref(o);
    assert_ok_err(sluice_train_read_options(&q, &model, path, &err), &err);
    assert_memory_equal(&p, &q, sizeof p);
    assert_string_equal(model, "{}");
    sluice_train_free_text(model);
}

static void json_files_are_checked(void **state) {
    (void)state;
    static const char *const bad[] = {"[]",
                                      "{\"learning_rat\": 1}",
                                      "{\"learning_rate\": {}}",
                                      "{\"learning_rate\": 1e400}",
                                      "{\"seq_len\": 2.5}",
                                      "{\"text\": [1]}",
                                      "{\"text\": [\"\"]}",
                                      "{\"seed\": 1, \"seed\": 2}",
                                      "{\"output_dir\": \"a\\u0000b\"}",
                                      "not json"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char path[256], *model = NULL;
        sluice_error err = {0};
        snprintf(path, sizeof path, "%s/bad.json", test_temp_dir());
        assert_ok(sluice__write_file(path, bad[i], strlen(bad[i]), NULL));
        sluice_train_params p = sluice_train_params_default();
        if (sluice_train_read_options(&p, &model, path, &err) == SLUICE_OK) fail_msg("taken: %s", bad[i]);
        assert_non_null(strstr(err.message, "bad.json"));
        sluice_train_free_text(model);
    }
}

static void model_options_are_checked_by_kind(void **state) {
    (void)state;
    char *json = NULL;
    sluice_error err = {0};
    assert_ok(sluice_train_set_model_option(&json, "--hidden-size", "64", &err));
    assert_ok(sluice_train_set_model_option(&json, "--gate-position", "sdpa", &err));
    assert_ok(sluice_train_set_model_option(&json, "--tie-word-embeddings", "False", &err));
    assert_string_equal(json, "{\"hidden_size\":64,\"gate_position\":\"sdpa\",\"tie_word_embeddings\":false}");
    static const char *const bad[][2] = {{"--hidden-size", "x"},    {"--hidden-size", "1.5"}, {"--rope-theta", "nan"},
                                         {"--gate-position", "G1"}, {"--use-qk-norm", "2"},   {"--no-such", "1"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(sluice_train_set_model_option(&json, bad[i][0], bad[i][1], &err), SLUICE_ERR_ARGUMENT);
        assert_non_null(strstr(err.message, bad[i][0]));
    }
    sluice_train_free_text(json);
}

static sluice_status resumed(const char *key, const char *value, int64_t steps, sluice_error *err) {
    sluice_train_params before = sluice_train_params_default();
    before.max_steps = 100;
    before.lr_scheduler_type = SLUICE_LR_WSD;
    sluice_train_params now = before;
    assert_ok(sluice_train_params_set(&now, key, value, NULL));
    sluice__schedule a, b;
    assert_ok(sluice__train_schedule(&a, &before, 1000, NULL));
    assert_ok(sluice__train_schedule(&b, &now, 1000, NULL));
    return sluice__train_params_continue(&before, &now, &a, &b, steps, err);
}

static void what_a_resumed_run_may_change(void **state) {
    (void)state;
    sluice_error err = {0};
    assert_ok(resumed("logging_steps", "3", 50, &err));
    assert_int_equal(resumed("weight_decay", "0.2", 50, &err), SLUICE_ERR_CONFIG);
    assert_non_null(strstr(err.message, "weight_decay"));
    assert_non_null(strstr(err.message, "0.2"));
    assert_int_equal(resumed("learning_rate", "0.5", 50, &err), SLUICE_ERR_CONFIG);
    /* a longer stable phase: fine before the decay began, with the same warm-up */
    assert_int_equal(resumed("max_steps", "200", 90, &err), SLUICE_ERR_CONFIG);
    assert_non_null(strstr(err.message, "max_steps"));
    /* of several changes the one that matters is blamed */
    sluice_train_params before = sluice_train_params_default(), now;
    before.max_steps = 100;
    before.lr_scheduler_type = SLUICE_LR_WSD;
    now = before;
    now.max_steps = 200;
    now.warmup_steps = 2;
    now.learning_rate = 0.5;
    sluice__schedule a, b;
    assert_ok(sluice__train_schedule(&a, &before, 1000, NULL));
    assert_ok(sluice__train_schedule(&b, &now, 1000, NULL));
    assert_int_equal(sluice__train_params_continue(&before, &now, &a, &b, 50, &err), SLUICE_ERR_CONFIG);
    assert_non_null(strstr(err.message, "learning_rate: the run was started with \"0.001\", found \"0.5\""));
    assert_ok(resumed("num_decay_steps", "10", 50, &err));
}

static void schedules_that_do_not_fit(void **state) {
    (void)state;
    sluice__schedule s;
    sluice_error err = {0};
    sluice_train_params p = sluice_train_params_default();
    p.max_steps = 10;
    p.warmup_steps = 11;
    assert_int_equal(sluice__train_schedule(&s, &p, 1, &err), SLUICE_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "warmup_steps"));
    p.warmup_steps = 5;
    p.lr_scheduler_type = SLUICE_LR_WARMUP_STABLE_DECAY;
    p.num_decay_steps = 6;
    assert_int_equal(sluice__train_schedule(&s, &p, 1, &err), SLUICE_ERR_ARGUMENT);
    p = sluice_train_params_default();
    p.num_train_epochs = 2.5;
    assert_ok(sluice__train_schedule(&s, &p, 100, &err)); /* 250 windows in batches of 8 */
    assert_int_equal(s.total, 32);
    p.num_train_epochs = 1e9;
    assert_int_equal(sluice__train_schedule(&s, &p, INT64_MAX, &err), SLUICE_ERR_ARGUMENT);
    p.min_lr = 1;
    assert_int_equal(sluice_train_params_check(&p, &err), SLUICE_ERR_ARGUMENT);
}

/* The gate is paid for by the MLP: the counts differ by half a step of eight columns at most. */
static void a_gated_model_is_matched_to_the_ungated(void **state) {
    static const char *const kinds[] = {"\"intermediate_size\": 352, ", "\"num_experts\": 4, \"moe_intermediate_size\": 96, "};
    (void)state;
    sluice_train_params p = sluice_train_params_default();
    for (int i = 0; i < 2; i++) {
        char plain[300], gated[400], *options, *text;
        sluice_config without, with;
        snprintf(plain, sizeof plain, "{%s\"hidden_size\": 128, \"num_hidden_layers\": 3, \"num_attention_heads\": 4}", kinds[i]);
        snprintf(gated, sizeof gated, "{\"gate_position\": \"sdpa\", \"gate_granularity\": \"elementwise\", %s", plain + 1);
        text = strdup(gated);
        options = NULL;
        json_t *o = json_loads(text, 0, NULL);
        assert_ok(sluice__model_options_text(&options, o, NULL));
        json_decref(o);
        free(text);
        assert_ok(sluice__match_parameters(&options, &p, 300, NULL));
        assert_ok(sluice_train_model_config(&without, NULL, &p, plain, 300, NULL));
        assert_ok(sluice_train_model_config(&with, NULL, &p, options, 300, NULL));
        int64_t step = 8LL * 3 * 128 * 3 * (i ? 4 : 1);
        int64_t away = llabs(sluice_config_num_parameters(&with) - sluice_config_num_parameters(&without));
        if (2 * away > step) fail_msg("%lld away, a step is %lld", (long long)away, (long long)step);
        assert_true(sluice_config_num_gate_parameters(&with) > step);
        sluice_config_free(&without);
        sluice_config_free(&with);
        sluice_train_free_text(options);
    }
    char *none = NULL;
    sluice_error err = {0};
    assert_int_equal(sluice__match_parameters(&none, &p, 300, &err), SLUICE_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "gate_position none"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_those_of_the_table),
        cmocka_unit_test(hostile_values_are_refused_by_name),
        cmocka_unit_test(json_round_trip),
        cmocka_unit_test(json_files_are_checked),
        cmocka_unit_test(model_options_are_checked_by_kind),
        cmocka_unit_test(what_a_resumed_run_may_change),
        cmocka_unit_test(schedules_that_do_not_fit),
        cmocka_unit_test(a_gated_model_is_matched_to_the_ungated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
