/* SPDX-License-Identifier: Apache-2.0 */
/* Perplexity of a token sequence under a model. */
#ifndef SLUICE_EVAL_H
#define SLUICE_EVAL_H
#include <stdint.h>
#include "sluice/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sluice_perplexity_params {
    int context; /* tokens a window; 0 = min(max_position_embeddings, 1024) (default) */
    int stride;  /* 0 (default): disjoint windows, inputs ids[b..b+context) predict ids[b+1..b+context], b = 0, context,
                    ...;  every token but the first is scored once.  1..context: windows ids[b..b+context), b = 0, stride,
                    ...; each scores what no earlier one scored. With  stride == context the first token of every later
                    window is never scored. */
    int batch;   /* windows per forward pass; 0 = chosen by length (default) */
} sluice_perplexity_params;
sluice_perplexity_params sluice_perplexity_params_default(void);

typedef struct sluice_perplexity {
    int64_t scored, bytes; /* bytes of the scored tokens; 0 when their sizes are unknown */
    double total_nll;      /* nats */
    double ce, ppl;        /* total_nll / scored, exp(ce) */
    double bits_per_byte;  /* total_nll / ln 2 / bytes; NaN when bytes is 0 */
} sluice_perplexity;

/* ids [count], count >= 2. token_bytes [vocab_size]: UTF-8 bytes of each token, or NULL. nll [count]: nats of each
 * token, NaN where it was not scored; may be NULL. params NULL = default. */
sluice_status sluice_perplexity_of_ids(sluice_perplexity *out, const sluice_model *model, const int32_t *ids,
                                       int64_t count, const int32_t *token_bytes,
                                       const sluice_perplexity_params *params, float *nll, sluice_error *err);

#ifdef __cplusplus
}
#endif
#endif
