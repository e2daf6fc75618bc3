/* SPDX-License-Identifier: Apache-2.0 */
/* One window of more than 100,000 tokens: everything that is measured there by default, and memory
 * that grows with the window, not with its square. A map of one head would be 40 GB. */
#include "metrics/golden.h"
#include "base/memory.h"
#include "sluice/inspect.h"
#include "sluice/model.h"
#include <math.h>

enum { LONG = 100352, SHORT = LONG / 4 };

static sluice_model *model;
static int32_t *ids;

static int make(void **state) {
    (void)state;
    sluice_error err = {0};
    sluice_config config;
    const char *text =
        "{\"vocab_size\": 64, \"hidden_size\": 16, \"intermediate_size\": 16, \"head_dim\": 8,"
        "\"num_hidden_layers\": 1, \"num_attention_heads\": 1, \"num_key_value_heads\": 1,"
        "\"max_position_embeddings\": 131072, \"gate_position\": \"sdpa\"}";
    assert_ok_err(sluice_config_parse(&config, text, "config.json", &err), &err);
    assert_ok_err(sluice_model_new(&model, &config, 1, &err), &err);
    sluice_config_free(&config);
    ids = sluice__calloc(LONG, sizeof *ids, SLUICE__MEM_DATA);
    for (int i = 0; ids && i < LONG; i++) ids[i] = (int32_t)((uint32_t)i * 2654435761u >> 26);
    return !ids;
}

static int drop(void **state) {
    (void)state;
    sluice_model_free(model);
    sluice__free(ids);
    return 0;
}

static sluice_inspection *measure(int tokens) {
    sluice_inspection *r;
    sluice_error err = {0};
    sluice_inspect_params p = sluice_inspect_params_default();
    p.measures = SLUICE_MEASURE_ALL & ~SLUICE_MEASURE_ROWS;
    assert_ok_err(sluice_inspect(&r, model, ids, 1, tokens, &p, &err), &err);
    return r;
}

static void memory_grows_with_the_window(void **state) {
    (void)state;
    sluice_inspection_free(measure(SHORT));
    double before = (double)sluice__mem_peak();
    sluice_inspection *r = measure(LONG);
    double peak = (double)sluice__mem_peak();
    assert_true(peak < 4.2 * before);
    assert_true(peak < 200e6);
    /* A fresh model attends nearly evenly: the mean of 1 / (q + 1) is far above 1 / T. */
    double uniform = sluice_uniform_share(LONG).from_1;
    assert_true(fabs(r->layers[0].share.from_1 - uniform) < 0.1 * uniform);
    assert_true(fabs(r->loss - log(64)) < 0.05);
    assert_true(fabs(r->gate_mean - 0.5) < 0.05);
    assert_int_equal(r->scored, LONG - 1);
    print_message("%d tokens: %.1f MB; %d tokens: %.1f MB\n", SHORT, before / 1e6, LONG,
                  peak / 1e6);
    sluice_inspection_free(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(memory_grows_with_the_window)};
    return cmocka_run_group_tests(tests, make, drop);
}
