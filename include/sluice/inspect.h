/* SPDX-License-Identifier: Apache-2.0 */
/* What a model does inside, measured over windows of tokens: attention sinks, massive activations, gate scores,
 * sparsity of the attention output (Qiu et al. 2025; Gu et al. 2024; Sun et al. 2024), where attention goes otherwise,
 * how experts share the work; and the same when something inside is changed. Memory does not grow with the number of
 * windows and grows linearly with their length: nothing here but sluice_attention_map holds an attention map.
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
enum {
    SLUICE_GATE_BINS = 20,
    SLUICE_GATE_QUANTILES = 7,  /* 0.01 0.05 0.25 0.5 0.75 0.95 0.99 */
    SLUICE_QUERY_BINS = 128,    /* most points of a curve over queries */
    SLUICE_DISTANCE_BINS = 25,  /* 0, 1, 2-3, 4-7, ..., 2^23 and more */
    SLUICE_TOP_PEAKS = 16,      /* largest elements that are kept with their place */
    SLUICE_SINK_TOKENS = 64     /* length at which Gu et al. take the sink rate */
};

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
    double *heads_std, *heads_min, *heads_max, *heads_below_01; /* [heads] */
    int64_t *heads_hist;                                        /* [heads, GATE_BINS] */
    double mean, std, min, max, below_01, below_05;
    double quantiles[SLUICE_GATE_QUANTILES]; /* to within 1 % of their value */
    int64_t hist[SLUICE_GATE_BINS], below, above;
} sluice_gate_stats;

/* Attention output per head, before and after the gate: mean magnitude, and the shares of elements smaller than 1e-2
 * and 1e-3. control: before the gate, times the layer's mean gate score (what a constant gate would do). */
typedef struct sluice_output_sparsity {
    double mean_abs_before, mean_abs_after;
    double before_2, after_2, control_2; /* |y| < 1e-2 */
    double before_3, after_3, control_3; /* |y| < 1e-3 */
} sluice_output_sparsity;

/* One element of an activation, by magnitude. */
typedef struct sluice_peak {
    double value; /* with its sign; 0 = there is none */
    int64_t window;
    int position, channel;
} sluice_peak;

/* |h| at one place of a layer, over all tokens and channels. */
typedef struct sluice_place_stats {
    double max, mean_square;
    double median;   /* lower median, exact; NaN unless SLUICE_MEASURE_MEDIANS */
    int64_t massive; /* elements with |h| > 100 and |h| >= 1000 * median (Sun et al.); 0 unless MEDIANS */
    double max_first, max_others; /* at position 0, and at all others */
    sluice_peak top[SLUICE_TOP_PEAKS];
} sluice_place_stats;
/* The places of the paper's Figure 6. */
typedef enum sluice_place {
    SLUICE_PLACE_ATTN_OUT,   /* what attention adds to the residual stream */
    SLUICE_PLACE_RESID_ATTN, /* the residual stream behind it */
    SLUICE_PLACE_FFN_OUT,    /* what the MLP adds */
    SLUICE_PLACE_RESID_FFN,  /* the residual stream behind the layer */
    SLUICE_PLACES
} sluice_place;

/* Where one head looks, mean over queries q >= 1 (duplicate and induction: over those that have such a key). */
typedef struct sluice_head_stats {
    double entropy;       /* nats */
    double entropy_share; /* of ln(q + 1), that of uniform attention */
    double distance;      /* mean of q - k */
    double self, previous; /* weight on k = q and k = q - 1 */
    double duplicate;      /* on earlier keys with the query's token */
    double induction;      /* on keys behind an earlier occurrence of the query's token */
    double marked;         /* on the marked keys (params.marks); NaN without */
} sluice_head_stats;

typedef enum sluice_head_kind {
    SLUICE_HEAD_OTHER,
    SLUICE_HEAD_SINK,      /* first_share.from_1 > 0.3 */
    SLUICE_HEAD_PREVIOUS,  /* otherwise the largest of these four, where it exceeds 0.3 */
    SLUICE_HEAD_DUPLICATE,
    SLUICE_HEAD_INDUCTION,
    SLUICE_HEAD_SELF
} sluice_head_kind;
sluice_head_kind sluice_head_kind_of(const sluice_first_share *share, const sluice_head_stats *stats);

/* Experts of a layer. load: share of the selections (their sum is 1). */
typedef struct sluice_router_stats {
    int experts; /* 0 = a dense MLP */
    double *load; /* [experts] */
    double entropy;       /* of the router's softmax, mean over tokens, as a share of ln(experts) */
    double max_load;      /* largest load relative to an even share */
    int dead;             /* experts that no token chose */
} sluice_router_stats;

/* Linear attention by the gated delta rule: how fast the state of each head fades and how strongly it is written. decay:
 * exp of the log decay, in 0..1; beta: write strength, in 0..1 or 0..2. Histograms over 0..1 and 0..2. */
typedef struct sluice_delta_stats {
    int heads; /* 0 = softmax attention, nothing below means anything */
    double *decay_heads, *beta_heads; /* [heads] means over tokens */
    double decay, decay_min, decay_max, beta, beta_min, beta_max;
    int64_t decay_hist[SLUICE_GATE_BINS], beta_hist[SLUICE_GATE_BINS];
} sluice_delta_stats;

/* |x - int8(x)| / |x| of the inputs of matrix products, with one scale for the tensor (the largest |x| of all tokens)
 * and with one for each token. */
typedef struct sluice_int8_error {
    double per_tensor, per_token;
} sluice_int8_error;
typedef enum sluice_product_input {
    SLUICE_INPUT_QKV,  /* of the projections to queries, keys, values, gate */
    SLUICE_INPUT_O,    /* of the output projection: attention behind its gate */
    SLUICE_INPUT_UP,   /* of the MLP */
    SLUICE_INPUT_DOWN, /* of its down projection; NaN with experts */
    SLUICE_INPUTS
} sluice_product_input;

typedef struct sluice_inspect_layer {
    int heads, kv_heads; /* of softmax attention; 0 in layers of linear attention */
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
    double *key_norm_first, *key_norm_others; /* the same of keys, behind norm and RoPE */
    sluice_gate_stats gate;
    sluice_output_sparsity sparsity;
    double sink_rate_64; /* sink_rate of the first 64 tokens of every window; NaN when there are fewer */
    double *share_queries; /* [query_bins] first-token share by query, mean over heads and windows */
    sluice_place_stats places[SLUICE_PLACES];
    sluice_head_stats *head_stats; /* [heads]; NaN unless SLUICE_MEASURE_ROWS */
    double distance[SLUICE_DISTANCE_BINS]; /* weight by distance q - k, mean over heads and queries q >= 1 */
    double duplicate_queries, induction_queries; /* shares of queries that have such a key */
    sluice_router_stats router;
    sluice_delta_stats delta;
    double *learned_sink; /* [heads] weight of the learned sink logit, mean over queries q >= 1; NaN without one */
    sluice_int8_error input_error[SLUICE_INPUTS]; /* NaN unless SLUICE_MEASURE_INT8 */
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
    double sink_rate_64;
    int query_bins; /* bin i of share_queries holds queries i * seq_len / query_bins up to the next bin */
    /* Loss inside the windows: every token but the first of each is predicted. NaN unless SLUICE_MEASURE_LOSS. */
    int64_t scored, scored_half;
    double loss, perplexity;
    double perplexity_half; /* only targets behind position seq_len / 2, as llama-perplexity scores */
} sluice_inspection;

/* What is measured. */
enum {
    SLUICE_MEASURE_SHARE = 1 << 0,    /* first-token share, sink rate */
    SLUICE_MEASURE_NORMS = 1 << 1,    /* maxima, means and peaks at the four places, norms of keys and values */
    SLUICE_MEASURE_GATES = 1 << 2,
    SLUICE_MEASURE_MEDIANS = 1 << 3,  /* exact medians and massive activations: a second pass over the data */
    SLUICE_MEASURE_SPARSITY = 1 << 4, /* of attention outputs; its control needs a second pass */
    SLUICE_MEASURE_ROUTER = 1 << 5,   /* experts; and decay and write strength of linear attention */
    SLUICE_MEASURE_LOSS = 1 << 6,
    SLUICE_MEASURE_ROWS = 1 << 7,     /* entropy, distances, head kinds, marked keys: about the time of attention again */
    SLUICE_MEASURE_INT8 = 1 << 8,     /* what rounding of activations to 8 bits would cost */
    SLUICE_MEASURE_DEFAULT = SLUICE_MEASURE_SHARE | SLUICE_MEASURE_NORMS | SLUICE_MEASURE_GATES |
                             SLUICE_MEASURE_MEDIANS | SLUICE_MEASURE_SPARSITY | SLUICE_MEASURE_ROUTER,
    SLUICE_MEASURE_LIGHT = SLUICE_MEASURE_SHARE | SLUICE_MEASURE_NORMS | SLUICE_MEASURE_GATES, /* one pass */
    SLUICE_MEASURE_ALL = (1 << 9) - 1
};

/* ---- changes to the inside ---- */
typedef enum sluice_gate_change {
    SLUICE_GATE_KEEP,
    SLUICE_GATE_VALUE_OF,     /* every score becomes gate_value */
    SLUICE_GATE_LAYER_MEAN,   /* the mean score of its layer over the same windows: a constant gate */
    SLUICE_GATE_CHANNEL_MEAN, /* its own mean over tokens: a gate that does not see its input */
} sluice_gate_change;
typedef enum sluice_massive_change {
    SLUICE_MASSIVE_KEEP,
    SLUICE_MASSIVE_ZERO, /* massive activations behind every layer become 0 (Sun et al., section 3) */
    SLUICE_MASSIVE_MEAN, /* the mean of the massive activations of their layer and channel over the same windows */
} sluice_massive_change;
typedef struct sluice_intervention {
    sluice_gate_change gate;
    double gate_value;
    sluice_massive_change massive; /* massive by the medians of the unchanged model */
    int window, sinks;    /* attention sees the last `window` keys (0 = all) and the first `sinks`; positions stay */
    double residual_clip; /* outputs of attention and MLP are clipped to +- this before they are added; 0 = not */
} sluice_intervention;

typedef struct sluice_inspect_params {
    int batch;       /* windows per forward pass; 0 = chosen by length (default) */
    bool other_keys; /* measure max_other_key_share: about the time of attention again (default: false) */
    uint32_t measures; /* SLUICE_MEASURE_...; 0 = SLUICE_MEASURE_DEFAULT (default) */
    const uint8_t *marks; /* [windows, seq_len] 1 = a key whose weight head_stats.marked counts; NULL = none (default) */
    const sluice_intervention *change; /* NULL = the model as it is (default) */
    bool (*stop_requested)(void *user); /* asked behind every layer; true ends with SLUICE_INTERRUPTED. NULL (default) = never */
    void *user;
} sluice_inspect_params;
sluice_inspect_params sluice_inspect_params_default(void);

/* ids [windows, seq_len]. One forward pass over the data, or two: medians and the sparsity control need to know the
 * first one's result; some interventions one or two more. A residual stream that is not finite is SLUICE_ERR_NUMERIC and
 * names the layer, and the weight tensor where one is to blame. An intervention on something that the model does not have
 * (a gate) is SLUICE_ERR_ARGUMENT. params NULL = default. */
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
