/* SPDX-License-Identifier: Apache-2.0 */
/* The sampling filters. A candidate list shrinks from filter to filter: top-k selects by quickselect, so that a vocabulary
 * of 250 thousand is sorted only when top-p runs on all of it. Where torch compares float32 numbers, so do we: sums are
 * formed in double and rounded, which decides ties at the border of a filter as transformers does. */
#include "sluice/sampler.h"
#include "base/memory.h"
#include "base/rng.h"
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

typedef struct candidate {
    float logit;
    int32_t id;
    double prob;
    double surprise; /* distance to the entropy; typical */
} candidate;

struct sluice_sampler {
    sluice_sampling_params params;
    int vocab;
    candidate *list; /* [vocab] */
    float *z;        /* [vocab] penalised logits */
    int32_t *counts; /* [vocab] occurrences in the history; zero between calls */
};

sluice_sampling_params sluice_sampling_params_default(void) {
    return (sluice_sampling_params){.temperature = 1, .top_p = 1, .typical_p = 1, .repetition_penalty = 1};
}

sluice_status sluice_sampling_params_check(const sluice_sampling_params *p, sluice_error *err) {
    const struct {
        const char *name, *range;
        double found;
        bool good;
    } checks[] = {
        {"temperature", ">= 0", p->temperature, p->temperature >= 0 && p->temperature < INFINITY},
        {"top_k", ">= 0", p->top_k, p->top_k >= 0},
        {"top_p", "above 0, at most 1", p->top_p, p->top_p > 0 && p->top_p <= 1},
        {"typical_p", "above 0, at most 1", p->typical_p, p->typical_p > 0 && p->typical_p <= 1},
        {"min_p", "0..1", p->min_p, p->min_p >= 0 && p->min_p <= 1},
        {"repetition_penalty", "above 0", p->repetition_penalty,
         p->repetition_penalty > 0 && p->repetition_penalty < INFINITY},
        {"presence_penalty", "a finite number", p->presence_penalty, isfinite(p->presence_penalty)},
        {"frequency_penalty", "a finite number", p->frequency_penalty, isfinite(p->frequency_penalty)},
    };
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
        if (!checks[i].good)
            return sluice__fail(err, SLUICE_ERR_ARGUMENT, "%s: found %g, expected %s", checks[i].name,
                                checks[i].found, checks[i].range);
    return SLUICE_OK;
}

sluice_status sluice_sampler_new(sluice_sampler **out, const sluice_sampling_params *params,
                                 int vocab_size, sluice_error *err) {
    *out = NULL;
    SLUICE__TRY(sluice_sampling_params_check(params, err));
    if (vocab_size < 1)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "vocab_size: found %d, expected >= 1", vocab_size);
    sluice_sampler *s = sluice__calloc(1, sizeof *s, SLUICE__MEM_OTHER);
    if (!s) return sluice__no_memory(err, sizeof *s, "a sampler");
    size_t v = (size_t)vocab_size;
    s->params = *params;
    s->vocab = vocab_size;
    s->list = sluice__calloc(v, sizeof *s->list, SLUICE__MEM_OTHER);
    s->z = sluice__calloc(v, sizeof *s->z, SLUICE__MEM_OTHER);
    s->counts = sluice__calloc(v, sizeof *s->counts, SLUICE__MEM_OTHER);
    if (!s->list || !s->z || !s->counts) {
        sluice_sampler_free(s);
        return sluice__no_memory(err, v * sizeof *s->list, "a sampler");
    }
    *out = s;
    return SLUICE_OK;
}

void sluice_sampler_free(sluice_sampler *s) {
    if (!s) return;
    sluice__free(s->list);
    sluice__free(s->z);
    sluice__free(s->counts);
    sluice__free(s);
}

/* Presence and frequency first, then repetition. Each seen token is treated once: its count is reset on the way. */
static void penalise(sluice_sampler *s, const int32_t *history, int64_t n) {
    const sluice_sampling_params *p = &s->params;
    if (p->repetition_penalty == 1 && p->presence_penalty == 0 && p->frequency_penalty == 0) return;
    for (int64_t i = 0; i < n; i++)
        if (history[i] >= 0 && history[i] < s->vocab) s->counts[history[i]]++;
    for (int64_t i = 0; i < n; i++) {
        if (history[i] < 0 || history[i] >= s->vocab || !s->counts[history[i]]) continue;
        float *z = &s->z[history[i]];
        *z -= (float)(p->presence_penalty + p->frequency_penalty * s->counts[history[i]]);
        *z = *z < 0 ? *z * (float)p->repetition_penalty : *z / (float)p->repetition_penalty;
        s->counts[history[i]] = 0;
    }
}

/* Among equals the highest id first: a stable ascending sort, read from its end. */
static int by_logit_descending(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    if (x->logit != y->logit) return x->logit < y->logit ? 1 : -1;
    return (x->id < y->id) - (x->id > y->id);
}

static int by_surprise(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    if (x->surprise != y->surprise) return x->surprise < y->surprise ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static int by_id(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

/* The k-th largest value of x [n] (1-based), reordering x. Hoare's selection. */
static float kth_largest(float *x, int n, int k) {
    int low = 0, high = n - 1, want = k - 1;
    while (low < high) {
        float pivot = x[low + (high - low) / 2];
        int i = low, j = high;
        while (i <= j) {
            while (x[i] > pivot) i++;
            while (x[j] < pivot) j--;
            if (i <= j) {
                float t = x[i];
                x[i++] = x[j];
                x[j--] = t;
            }
        }
        if (want <= j) high = j;
        else if (want >= i) low = i;
        else break;
    }
    return x[want];
}

/* prob of every candidate: softmax over the list. */
static void softmax(candidate *list, int n) {
    float top = -INFINITY;
    double sum = 0;
    for (int i = 0; i < n; i++) top = fmaxf(top, list[i].logit);
    for (int i = 0; i < n; i++) sum += list[i].prob = exp((double)list[i].logit - top);
    for (int i = 0; i < n; i++) list[i].prob /= sum;
}

/* Fills the list. The list's own bytes serve as scratch for the selection, before it is filled. */
static int keep_top_k(sluice_sampler *s) {
    int n = 0, k = s->params.top_k;
    float least = -INFINITY;
    if (k > 0 && k < s->vocab) {
        float *copy = (float *)(void *)s->list;
        memcpy(copy, s->z, (size_t)s->vocab * sizeof *copy);
        least = kth_largest(copy, s->vocab, k);
    }
    for (int i = 0; i < s->vocab; i++)
        if (s->z[i] >= least && s->z[i] > -INFINITY) s->list[n++] = (candidate){.logit = s->z[i], .id = i};
    return n;
}

/* transformers drops the tokens whose ascending cumulative probability is at most 1 - top_p, but never the largest. */
static int keep_top_p(candidate *list, int n, double top_p) {
    if (top_p >= 1) return n;
    qsort(list, (size_t)n, sizeof *list, by_logit_descending);
    softmax(list, n);
    double sum = 0;
    while (n > 1) {
        sum += (float)list[n - 1].prob;
        if ((float)sum > (float)(1 - top_p)) break;
        n--;
    }
    return n;
}

static int keep_min_p(candidate *list, int n, double min_p) {
    if (min_p <= 0) return n;
    softmax(list, n);
    float top = 0;
    int kept = 0;
    for (int i = 0; i < n; i++) top = fmaxf(top, (float)list[i].prob);
    float least = (float)min_p * top;
    for (int i = 0; i < n; i++)
        if ((float)list[i].prob >= least) list[kept++] = list[i];
    return kept;
}

/* Locally typical sampling (Meister et al. 2022): in the order of |-log p - entropy|, as many as hold `mass`, and those
 * that are as near as the last of them. */
static int keep_typical(candidate *list, int n, double mass) {
    if (mass >= 1) return n;
    double entropy = 0, sum = 0;
    int last = 0, kept = 0;
    softmax(list, n);
    for (int i = 0; i < n; i++)
        if (list[i].prob > 0) entropy -= list[i].prob * log(list[i].prob);
    float top = -INFINITY;
    double total = 0;
    for (int i = 0; i < n; i++) top = fmaxf(top, list[i].logit);
    for (int i = 0; i < n; i++) total += exp((double)list[i].logit - top);
    for (int i = 0; i < n; i++)
        list[i].surprise = fabs(top + log(total) - list[i].logit - entropy);
    qsort(list, (size_t)n, sizeof *list, by_surprise);
    for (int i = 0; i < n; i++) last += (float)(sum += (float)list[i].prob) < (float)mass;
    if (last > n - 1) last = n - 1;
    double border = list[last].surprise;
    for (; kept < n && list[kept].surprise <= border; kept++) {
    }
    return kept;
}

/* z = z / temperature; where that leaves the range of float32, with the largest at 0, which is the same distribution. */
static void divide(sluice_sampler *s, float largest) {
    float by = (float)s->params.temperature;
    float shift = isfinite(largest / by) ? 0 : largest;
    for (int i = 0; i < s->vocab; i++) {
        float x = s->z[i] - shift;
        s->z[i] = x == 0 ? x : x / by;
    }
}

/* Fills the list with the surviving candidates and their probabilities; their number in *n. */
static sluice_status filter(sluice_sampler *s, const float *logits, const int32_t *history, int64_t count,
                            int *n, sluice_error *err) {
    int best = -1;
    memcpy(s->z, logits, (size_t)s->vocab * sizeof *s->z);
    penalise(s, history, count);
    for (int i = 0; i < s->vocab; i++) {
        if (isnan(s->z[i]) || s->z[i] == INFINITY)
            return sluice__fail(err, SLUICE_ERR_NUMERIC, "the logit of token %d is %f", i, (double)s->z[i]);
        if (s->z[i] > -INFINITY && (best < 0 || s->z[i] > s->z[best])) best = i;
    }
    if (best < 0) return sluice__fail(err, SLUICE_ERR_NUMERIC, "no logit is finite");
    if (s->params.temperature == 0) {
        s->list[0] = (candidate){.logit = s->z[best], .id = best, .prob = 1};
        *n = 1;
        return SLUICE_OK;
    }
    divide(s, s->z[best]);
    *n = keep_top_k(s);
    *n = keep_top_p(s->list, *n, s->params.top_p);
    *n = keep_min_p(s->list, *n, s->params.min_p);
    *n = keep_typical(s->list, *n, s->params.typical_p);
    softmax(s->list, *n);
    return SLUICE_OK;
}

sluice_status sluice_sampler_distribution(sluice_sampler *s, const float *logits, const int32_t *history,
                                          int64_t n, float *probs, sluice_error *err) {
    int kept;
    SLUICE__TRY(filter(s, logits, history, n, &kept, err));
    memset(probs, 0, (size_t)s->vocab * sizeof *probs);
    for (int i = 0; i < kept; i++) probs[s->list[i].id] = (float)s->list[i].prob;
    return SLUICE_OK;
}

static double log_softmax_at(const float *logits, int n, int32_t at) {
    double top = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++) top = fmax(top, logits[i]);
    for (int i = 0; i < n; i++) sum += exp(logits[i] - top);
    return logits[at] - top - log(sum);
}

sluice_status sluice_sampler_pick(sluice_sampler *s, const float *logits, const int32_t *history, int64_t n,
                                  uint64_t draw, int32_t *token, double *logprob, sluice_error *err) {
    int kept, at = 0;
    SLUICE__TRY(filter(s, logits, history, n, &kept, err));
    qsort(s->list, (size_t)kept, sizeof *s->list, by_id); /* the draw must not depend on which filter sorted */
    sluice__rng rng = {s->params.seed, sluice__hash_text("sampler"), draw * 4};
    double u = sluice__rng_uniform(&rng), sum = 0;
    for (; at < kept - 1; at++) {
        sum += s->list[at].prob;
        if (u < sum) break;
    }
    *token = s->list[at].id;
    if (logprob) *logprob = log_softmax_at(logits, s->vocab, *token);
    return SLUICE_OK;
}

sluice_status sluice_sampler_top(sluice_sampler *s, const float *logits, int n, int32_t *ids, double *logprobs,
                                 sluice_error *err) {
    if (n < 1 || n > s->vocab)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "the number of log-probabilities: found %d, expected 1..%d", n, s->vocab);
    double top = -INFINITY, sum = 0;
    int kept = 0;
    for (int i = 0; i < s->vocab; i++) {
        if (isnan(logits[i]) || logits[i] == INFINITY)
            return sluice__fail(err, SLUICE_ERR_NUMERIC, "the logit of token %d is %f", i, (double)logits[i]);
        top = fmax(top, logits[i]);
    }
    if (top == -INFINITY) return sluice__fail(err, SLUICE_ERR_NUMERIC, "no logit is finite");
    for (int i = 0; i < s->vocab; i++) sum += exp(logits[i] - top);
    for (int i = 0; i < s->vocab; i++) { /* an insertion into the few that are kept */
        int at = kept;
        while (at > 0 && logits[i] > s->list[at - 1].logit) at--;
        if (at == n) continue;
        if (kept < n) kept++;
        memmove(s->list + at + 1, s->list + at, (size_t)(kept - 1 - at) * sizeof *s->list);
        s->list[at] = (candidate){.logit = logits[i], .id = i};
    }
    for (int i = 0; i < n; i++) {
        ids[i] = s->list[i].id;
        logprobs[i] = s->list[i].logit - top - log(sum);
    }
    return SLUICE_OK;
}
