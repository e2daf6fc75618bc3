/* SPDX-License-Identifier: Apache-2.0 */
/* Choosing the next token from logits, with the filters of transformers' generate() in its order: presence and frequency
 * penalties (the usual formula; transformers has none), repetition penalty, temperature, top-k, top-p, min-p, typical. */
#ifndef SLUICE_SAMPLER_H
#define SLUICE_SAMPLER_H
#include <stdint.h>
#include "sluice/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sluice_sampling_params {
    double temperature;        /* >= 0; 0 = greedy (the largest logit; the lowest id among equals). Default 1 */
    int top_k;                 /* >= 0; keep the k largest (ties with the k-th stay); 0 = off. Default 0 */
    double top_p;              /* (0, 1]; smallest set that holds this much probability; 1 = off. Default 1 */
    double min_p;              /* [0, 1]; drop tokens below min_p times the largest probability. Default 0 */
    double typical_p;          /* (0, 1]; the tokens nearest to the entropy that hold this much; 1 = off. Default 1 */
    double repetition_penalty; /* > 0; logits of seen tokens are divided (positive) or multiplied. Default 1 = off */
    double presence_penalty;   /* any; subtracted once from seen tokens. Default 0 */
    double frequency_penalty;  /* any; subtracted per occurrence. Default 0 */
    uint64_t seed;             /* the i-th draw is a function of seed and i alone. Default 0 */
} sluice_sampling_params;

sluice_sampling_params sluice_sampling_params_default(void);
/* SLUICE_ERR_ARGUMENT naming the field and its range. */
sluice_status sluice_sampling_params_check(const sluice_sampling_params *p, sluice_error *err);

/* Scratch for one vocabulary size; one per thread. */
typedef struct sluice_sampler sluice_sampler;
sluice_status sluice_sampler_new(sluice_sampler **out, const sluice_sampling_params *params, int vocab_size,
                                 sluice_error *err);
void sluice_sampler_free(sluice_sampler *sampler);

/* The distribution after all filters: probs [vocab_size], zero where filtered; greedy gives a one. history: ids already in
 * the context, prompt included (n may be 0). SLUICE_ERR_NUMERIC when a logit is NaN or no logit is finite. */
sluice_status sluice_sampler_distribution(sluice_sampler *sampler, const float *logits, const int32_t *history,
                                          int64_t n, float *probs, sluice_error *err);
/* Draws number `draw` of the seed. *logprob (may be NULL): natural log of the unfiltered softmax at temperature 1. */
sluice_status sluice_sampler_pick(sluice_sampler *sampler, const float *logits, const int32_t *history, int64_t n,
                                  uint64_t draw, int32_t *token, double *logprob, sluice_error *err);

/* The n likeliest tokens of the unfiltered softmax at temperature 1, the largest first (the lowest id first among equals);
 * ids [n], logprobs [n] natural logs. 1 <= n <= vocabulary. */
sluice_status sluice_sampler_top(sluice_sampler *sampler, const float *logits, int n, int32_t *ids, double *logprobs,
                                 sluice_error *err);

#ifdef __cplusplus
}
#endif
#endif
