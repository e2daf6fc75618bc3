/* SPDX-License-Identifier: Apache-2.0 */
/* Any split of a prompt gives the same logits: every model of reference/models, a prompt of 130 tokens (two chunks of
 * the delta rule and two more), cut in two at every place, token by token, and into random pieces; and two sequences
 * in one batch. Models that this version does not run are passed over. */
#include "support/reference.h"
#include "support/test_support.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/rng.h"
#include "layers/transformer.h"
#include "sluice/cpu.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TOKENS = 130, RANDOM_SPLITS = 24 };

typedef struct prompt {
    const sluice_model *model;
    int vocab, batch;
    int32_t ids[2 * TOKENS];
    float *want, *got; /* [batch, TOKENS, vocab]; got: of one call, [batch, n, vocab] */
    sluice__workspace *ws;
    sluice__cache *cache;
    double worst;
} prompt;

/* Both sides round. Linear attention norms every head's output, which enlarges rounding where that is nearly zero, as it
 * happens for some token of some random prompt; the weakest mistake in a state changes logits by 0.3. */
static double tolerance(const sluice_config *c) {
    for (int i = 0; i < c->num_hidden_layers; i++)
        if (sluice_layer_is_linear(&c->layers[i])) return 3e-3;
    return 3e-4;
}

/* The next n tokens; their logits are compared. */
static void feed(prompt *p, int n) {
    int first = sluice__cache_length(p->cache);
    int32_t ids[2 * TOKENS];
    sluice_error err = {0};
    for (int b = 0; b < p->batch; b++) memcpy(ids + b * n, p->ids + b * TOKENS + first, (size_t)n * sizeof *ids);
    sluice__input in = {.batch = p->batch, .seq_len = n, .ids = ids};
    assert_ok_err(sluice__forward(p->model, p->ws, &in, p->cache, NULL, SLUICE__LOGITS_ALL, p->got, &err), &err);
    for (int b = 0; b < p->batch; b++)
        for (int64_t i = 0; i < (int64_t)n * p->vocab; i++) {
            double want = p->want[((int64_t)b * TOKENS + first) * p->vocab + i];
            double d = fabs((double)p->got[(int64_t)b * n * p->vocab + i] - want);
            if (!(d <= p->worst)) p->worst = d;
        }
}

/* Pieces of these lengths; the last one repeats. */
static void split(prompt *p, const int *pieces, int count) {
    sluice__cache_truncate(p->cache, 0);
    for (int i = 0; sluice__cache_length(p->cache) < TOKENS; i++) {
        int left = TOKENS - sluice__cache_length(p->cache), n = pieces[i < count ? i : count - 1];
        feed(p, n < left ? n : left);
    }
}

static void random_splits(prompt *p, sluice__rng *rng) {
    int pieces[TOKENS];
    for (int i = 0; i < RANDOM_SPLITS; i++) {
        uint64_t most = 1 + sluice__rng_below(rng, 90);
        for (int k = 0; k < TOKENS; k++) pieces[k] = 1 + (int)sluice__rng_below(rng, most);
        split(p, pieces, TOKENS);
    }
}

static void open_prompt(prompt *p, const sluice_model *model, int batch, sluice__rng *rng) {
    sluice_error err = {0};
    *p = (prompt){.model = model, .vocab = sluice_model_config(model)->vocab_size, .batch = batch};
    size_t count = (size_t)batch * TOKENS * (size_t)p->vocab;
    for (int i = 0; i < batch * TOKENS; i++) p->ids[i] = (int32_t)sluice__rng_below(rng, (uint64_t)p->vocab);
    p->want = sluice__calloc(count, sizeof *p->want, SLUICE__MEM_OTHER);
    p->got = sluice__calloc(count, sizeof *p->got, SLUICE__MEM_OTHER);
    assert_true(p->want && p->got);
    assert_ok_err(sluice__workspace_new(&p->ws, model, batch, TOKENS, SLUICE__INFER, &err), &err);
    assert_ok_err(sluice__cache_new(&p->cache, model, batch, TOKENS, &err), &err);
    sluice__input in = {.batch = batch, .seq_len = TOKENS, .ids = p->ids};
    assert_ok_err(sluice__forward(model, p->ws, &in, NULL, NULL, SLUICE__LOGITS_ALL, p->want, &err), &err);
}

static void close_prompt(prompt *p) {
    sluice__workspace_free(p->ws);
    sluice__cache_free(p->cache);
    sluice__free(p->want);
    sluice__free(p->got);
}

static void check(const char *name, const prompt *p, const char *what) {
    double limit = tolerance(sluice_model_config(p->model));
    if (p->worst > limit) fail_msg("%s, %s: logits differ by %g, tolerance %g", name, what, p->worst, limit);
}

static void check_model(const char *name, const sluice_model *model) {
    sluice__rng rng = {.seed = 5, .stream = sluice__hash_text(name)};
    prompt p;
    open_prompt(&p, model, 1, &rng);
    int one = 1;
    split(&p, &one, 1);
    check(name, &p, "token by token");
    for (int n = 1; n < TOKENS; n++) {
        int pieces[] = {n, TOKENS - n};
        split(&p, pieces, 2);
        check(name, &p, "in two pieces");
    }
    random_splits(&p, &rng);
    check(name, &p, "in random pieces");
    close_prompt(&p);
    open_prompt(&p, model, 2, &rng);
    random_splits(&p, &rng);
    check(name, &p, "two sequences");
    close_prompt(&p);
}

static void visit_model(void *user, const char *name, const sluice_model *model) {
    (void)user;
    check_model(name, model);
}

static void test_every_split(void **state) {
    (void)state;
    assert_true(test_each_model(visit_model, NULL) >= 31);
}

int main(void) {
    sluice_set_num_threads(1); /* the models are tiny */
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_split)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
