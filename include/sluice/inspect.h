/* SPDX-License-Identifier: Apache-2.0 */
/* What a model does inside, measured over windows of tokens: attention sinks, massive activations, gate scores,
 * sparsity of the attention output (Qiu et al. 2025; Gu et al. 2024; Sun et al. 2024). Memory does not grow with the
 * number of windows and grows linearly with their length: nothing here holds an attention map, unless other_keys asks
 * for one.
 *
 * Layers and positions count from 0. "First token" is position 0 of every window. Statistics over tokens use all tokens
 * of all windows. A number that has no value (no query of that kind, no gate) is NaN; in JSON it is null. */
#ifndef SLUICE_INSPECT_H
#define SLUICE_INSPECT_H
#include <stdbool.h>
#include <stdint.h>
#include "sluice/model.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SLUICE_SINK_THRESHOLD 0.3 /* Gu et al.: a head whose mean share exceeds it is a sink head */
enum { SLUICE_GATE_BINS = 20 };

/* Attention that key 0 receives (F-Attn), averaged over queries q >= 0, 1, 4 and ceil(T/4). Query 0 always gives 1, so
 * from_1 is the one to report; from_quarter leaves out the short rows whose share is large by arithmetic alone. */
typedef struct sluice_first_share {
    double all, from_1, from_4, from_quarter;
} sluice_first_share;

/* The same readings for uniform causal attention: the mean of 1 / (q + 1). The line to compare a share with. */
sluice_first_share sluice_uniform_share(int seq_len);

/* Scores after the activation. std is the population value. hist counts [i/20, (i+1)/20), 1.0 in the last bin; below
 * and above are the scores outside [0, 1], which only activations other than the sigmoid give. */
typedef struct sluice_gate_stats {
    int heads;          /* 0 = the layer has no gate, nothing below means anything */
    double *heads_mean; /* [heads] */
    double mean, std, min, max, below_01, below_05;
    int64_t hist[SLUICE_GATE_BINS], below, above;
} sluice_gate_stats;

/* Attention output per head, before and after the gate: mean magnitude, and the shares of elements smaller than 1e-2
 * and 1e-3. control: before the gate, times the layer's mean gate score (what a constant gate would do). */
typedef struct sluice_output_sparsity {
    double mean_abs_before, mean_abs_after;
    double before_2, after_2, control_2; /* |y| < 1e-2 */
    double before_3, after_3, control_3; /* |y| < 1e-3 */
} sluice_output_sparsity;

typedef struct sluice_inspect_layer {
    int heads, kv_heads;
    sluice_first_share share;        /* mean over heads */
    sluice_first_share *share_heads; /* [heads] */
    double sink_rate;                /* of (window, head): mean share over all queries above the threshold */
    double max_other_key_share;      /* largest mean share, over heads, of one key 1 <= k < ceil(T/4) among the queries
                                        of from_quarter; NaN unless other_keys */
    double residual_max, residual_top3[3]; /* |h| after the layer: three largest of all tokens and channels */
    double residual_median;                /* lower median, exact */
    int64_t residual_massive;              /* elements with |h| > 100 and |h| >= 1000 * median (Sun et al.) */
    double peak_first, peak_others;        /* max |h| at position 0, and at all others */
    double max_attn_out, max_resid_attn, max_ffn_out, max_resid_ffn;
    double *value_norm_first,
        *value_norm_others; /* [kv_heads] mean L2 norm of value vectors at position 0, at others */
    sluice_gate_stats gate;
    sluice_output_sparsity sparsity;
} sluice_inspect_layer;

typedef struct sluice_inspection {
    int64_t windows;
    int seq_len, num_layers;
    sluice_inspect_layer *layers;
    /* Means over layers; the massive total is a sum, heads and sink_heads (from_quarter above the threshold) are
     * counts. */
    sluice_first_share share;
    double sink_rate, m_act, gate_mean;
    int64_t massive_total;
    int heads, sink_heads;
} sluice_inspection;

typedef struct sluice_inspect_params {
    int batch;       /* windows per forward pass; 0 = chosen by length (default) */
    bool other_keys; /* measure max_other_key_share: takes O(T^2) memory per window (default: false) */
} sluice_inspect_params;
sluice_inspect_params sluice_inspect_params_default(void);

/* ids [windows, seq_len]. Two forward passes over the data: the second needs the first one's mean gate and the place of
 * the median. A residual stream that is not finite is SLUICE_ERR_NUMERIC and names the layer. params NULL = default. */
sluice_status sluice_inspect(sluice_inspection **out, const sluice_model *model, const int32_t *ids, int64_t windows,
                             int seq_len, const sluice_inspect_params *params, sluice_error *err);
void sluice_inspection_free(sluice_inspection *inspection);
/* The whole inspection as JSON text, freed with free(); NULL when out of memory. */
char *sluice_inspection_json(const sluice_inspection *inspection);

/* Attention of one text, layer by layer. */
typedef struct sluice_attention_map {
    int seq_len, num_layers;
    int *heads, *gate_heads; /* [num_layers]; gate_heads 0 without a gate */
    float **probs;           /* [num_layers] of [heads, T, T], row = query */
    float **gate; /* [num_layers] of [gate_heads, T], mean score over the gate's width; NULL without a gate */
} sluice_attention_map;

enum { SLUICE_MAP_MAX_TOKENS = 1024 };
sluice_status sluice_attention_map_new(sluice_attention_map **out, const sluice_model *model, const int32_t *ids,
                                       int seq_len, sluice_error *err);
void sluice_attention_map_free(sluice_attention_map *map);

#ifdef __cplusplus
}
#endif
#endif
