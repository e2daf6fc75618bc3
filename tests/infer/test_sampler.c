/* SPDX-License-Identifier: Apache-2.0 */
/* Sampling: distributions recorded from transformers, the draw itself, bad input. */
#include "support/test_support.h"
#include "base/json.h"
#include "model/safetensors.h"
#include "sluice/sampler.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double PROB_TOLERANCE = 1e-6; /* what the recording states */

static double number(json_t *params, const char *key, double otherwise) {
    json_t *v = json_object_get(params, key);
    return v ? json_number_value(v) : otherwise;
}

static sluice_sampling_params params_of(json_t *j) {
    sluice_sampling_params p = sluice_sampling_params_default();
    p.temperature = number(j, "temperature", 1);
    p.top_k = (int)number(j, "top_k", 0);
    p.top_p = number(j, "top_p", 1);
    p.min_p = number(j, "min_p", 0);
    p.repetition_penalty = number(j, "repetition_penalty", 1);
    p.presence_penalty = number(j, "presence_penalty", 0);
    p.frequency_penalty = number(j, "frequency_penalty", 0);
    return p;
}

typedef struct recording {
    sluice__safetensors *file;
    const sluice__st_tensor *logits, *history;
    int rows, vocab;
} recording;

static const void *tensor(const recording *r, const char *kind, size_t which) {
    char name[32];
    snprintf(name, sizeof name, "%s.%zu", kind, which);
    const sluice__st_tensor *t = sluice__safetensors_find(r->file, name);
    assert_non_null(t);
    return t->data;
}

static void check_row(sluice_sampler *s, const recording *r, size_t which, int row) {
    sluice_error err = {0};
    int32_t ids[64];
    float got[1024], want[1024];
    int64_t kept, seen[64], survivors = 0, n = r->history->shape[1];
    assert_true(n <= 64 && r->vocab <= 1024);
    memcpy(seen, (const char *)r->history->data + (size_t)(row * n) * sizeof *seen, (size_t)n * sizeof *seen);
    memcpy(want, (const char *)tensor(r, "probs", which) + (size_t)(row * r->vocab) * sizeof *want,
           (size_t)r->vocab * sizeof *want);
    memcpy(&kept, (const char *)tensor(r, "kept", which) + (size_t)row * sizeof kept, sizeof kept);
    for (int64_t i = 0; i < n; i++) ids[i] = (int32_t)seen[i];
    const float *logits = (const float *)r->logits->data + row * r->vocab;
    assert_ok_err(sluice_sampler_distribution(s, logits, ids, n, got, &err), &err);
    for (int i = 0; i < r->vocab; i++) {
        survivors += got[i] > 0;
        if (fabs((double)got[i] - want[i]) > PROB_TOLERANCE)
            fail_msg("case %zu row %d token %d: found %g, expected %g", which, row, i, (double)got[i], (double)want[i]);
    }
    assert_int_equal(survivors, kept);
}

static void distributions_are_those_of_transformers(void **state) {
    (void)state;
    sluice_error err = {0};
    json_t *root;
    recording r;
    assert_ok_err(sluice__json_load(&root, test_data("infer/sampling.json"), &err), &err);
    assert_ok_err(sluice__safetensors_open(&r.file, test_data("infer/sampling.safetensors"), &err), &err);
    r.logits = sluice__safetensors_find(r.file, "logits");
    r.history = sluice__safetensors_find(r.file, "history");
    r.rows = (int)r.logits->shape[0];
    r.vocab = (int)r.logits->shape[1];
    json_t *cases = json_object_get(root, "cases");
    assert_true(json_array_size(cases) >= 20);
    for (size_t c = 0; c < json_array_size(cases); c++) {
        sluice_sampling_params p = params_of(json_object_get(json_array_get(cases, c), "params"));
        sluice_sampler *s;
        assert_ok_err(sluice_sampler_new(&s, &p, r.vocab, &err), &err);
        for (int row = 0; row < r.rows; row++) check_row(s, &r, c, row);
        sluice_sampler_free(s);
    }
    sluice__safetensors_close(r.file);
    json_decref(root);
}

/* 20,000 draws from four tokens: frequencies within five standard deviations, each draw a function of seed and number. */
static void draws_follow_the_distribution(void **state) {
    (void)state;
    enum { DRAWS = 20000 };
    sluice_error err = {0};
    const float logits[4] = {0, 1, -INFINITY, 2};
    sluice_sampling_params p = sluice_sampling_params_default();
    p.seed = 7;
    sluice_sampler *s;
    int32_t token, again;
    double logprob, counts[4] = {0};
    float want[4];
    assert_ok_err(sluice_sampler_new(&s, &p, 4, &err), &err);
    assert_ok_err(sluice_sampler_distribution(s, logits, NULL, 0, want, &err), &err);
    for (uint64_t d = 0; d < DRAWS; d++) {
        assert_ok_err(sluice_sampler_pick(s, logits, NULL, 0, d, &token, &logprob, &err), &err);
        counts[token]++;
        assert_true(fabs(exp(logprob) - want[token]) < 1e-6);
    }
    for (int i = 0; i < 4; i++)
        assert_true(fabs(counts[i] - want[i] * DRAWS) <= 5 * sqrt(want[i] * (1 - want[i]) * DRAWS));
    assert_ok_err(sluice_sampler_pick(s, logits, NULL, 0, 12345, &token, NULL, &err), &err);
    assert_ok_err(sluice_sampler_pick(s, logits, NULL, 0, 12345, &again, NULL, &err), &err);
    assert_int_equal(token, again);
    sluice_sampler_free(s);
}

static void bad_input_is_named(void **state) {
    (void)state;
    sluice_error err = {0};
    sluice_sampler *s = NULL;
    sluice_sampling_params p = sluice_sampling_params_default();
    p.top_p = NAN;
    assert_int_equal(sluice_sampler_new(&s, &p, 4, &err), SLUICE_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "top_p"));
    p = sluice_sampling_params_default();
    p.repetition_penalty = 0;
    assert_int_equal(sluice_sampler_new(&s, &p, 4, &err), SLUICE_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "repetition_penalty"));
    p = sluice_sampling_params_default();
    assert_ok_err(sluice_sampler_new(&s, &p, 3, &err), &err);
    const float nan_logits[3] = {0, NAN, 1}, none[3] = {-INFINITY, -INFINITY, -INFINITY};
    int32_t token;
    assert_int_equal(sluice_sampler_pick(s, nan_logits, NULL, 0, 0, &token, NULL, &err), SLUICE_ERR_NUMERIC);
    assert_non_null(strstr(err.message, "token 1"));
    assert_int_equal(sluice_sampler_pick(s, none, NULL, 0, 0, &token, NULL, &err), SLUICE_ERR_NUMERIC);
    sluice_sampler_free(s);
}

/* Over a vocabulary where selection matters; logits are a permutation, so there are no ties. */
static void top_k_selects_the_largest(void **state) {
    (void)state;
    enum { V = 50021, K = 40 };
    sluice_error err = {0};
    float *z = malloc(V * sizeof *z), *probs = malloc(V * sizeof *probs);
    assert_true(z && probs);
    for (int i = 0; i < V; i++) z[i] = (float)((i * 7919LL) % V) * 1e-3f;
    sluice_sampling_params p = sluice_sampling_params_default();
    p.top_k = K;
    sluice_sampler *s;
    assert_ok_err(sluice_sampler_new(&s, &p, V, &err), &err);
    assert_ok_err(sluice_sampler_distribution(s, z, NULL, 0, probs, &err), &err);
    for (int i = 0; i < V; i++) assert_int_equal(probs[i] > 0, (i * 7919LL) % V >= V - K);
    sluice_sampler_free(s);
    free(z);
    free(probs);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(distributions_are_those_of_transformers),
        cmocka_unit_test(draws_follow_the_distribution),
        cmocka_unit_test(bad_input_is_named),
        cmocka_unit_test(top_k_selects_the_largest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
