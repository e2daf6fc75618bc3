/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers of results.json that comparisons, findings, the CSV file and the table need, in plain structs. A number
 * that a run does not have is NaN. */
#ifndef SLUICE_STUDY_DIGEST_H
#define SLUICE_STUDY_DIGEST_H
#include <jansson.h>
#include <stdbool.h>
#include "study/recipe.h"

typedef struct sluice__digest_run {
    int64_t seed;
    bool measured; /* has a loss and an inspection */
    const char *status, *error;
    double loss, perplexity, bits_per_byte;
    double share, share_from_1, other_key; /* first-token share from_quarter, from_1; largest of another key */
    double sink_heads, heads;
    double peak, peak_others, peak_ratio; /* of the layer where the first token's peak is largest against the median */
    double m_act, massive;
    double gate_mean, gate_below, small_before, small_after,
        small_control; /* means over layers; below 0.1; |y| < 1e-2 */
    double spike_events, spike_score;
    double reach_loss, reach_recall, reach_base; /* extension: loss and recall of the last stage at the longest length
                                                    with YaRN; its loss at the shortest, plain */
    double rise_plain, rise_yarn; /* loss at the longest length minus loss at the training length */
    double seconds, tokens_per_s;
} sluice__digest_run;

typedef struct sluice__digest_arm {
    const char *name, *label;
    bool gated;
    int data_set;               /* losses of arms with the same one can be compared */
    double parameters, uniform; /* uniform: share of uniform attention, from_quarter */
    const char *match_with, *match_to; /* the option that was fitted, the arm whose size it has; NULL = none */
    const char *rung_of, *rung_label; /* of a ladder: the arm, and its label; NULL = none */
    double rate;                      /* learning rate of the rung */
    sluice__digest_run runs[SLUICE__MAX_SEEDS];
    int num_runs;
} sluice__digest_arm;

typedef struct sluice__digest {
    sluice__digest_arm arms[SLUICE__MAX_ARMS];
    int num_arms, reference; /* reference: the first arm without a gate, or the first one */
    double longest;          /* of the lengths, in training lengths; NaN without */
} sluice__digest;

/* results: the object with "arms". Strings stay in it. */
void sluice__digest_read(sluice__digest *out, const json_t *results);

/* What arm i is compared with: the reference, or on a ladder the rung of the reference's arm at the same rate (i itself when
 * there is none). */
int sluice__digest_base(const sluice__digest *d, int i);

/* Mean and sample standard deviation (NaN with fewer than two) of the finite values. */
typedef struct sluice__spread {
    double mean, sd;
    int count;
} sluice__spread;
sluice__spread sluice__spread_of(const double *values, int count);
/* Of one field over the measured runs of an arm. */
typedef double (*sluice__run_field)(const sluice__digest_run *run);
sluice__spread sluice__arm_spread(const sluice__digest_arm *arm, sluice__run_field field);
double sluice__run_loss(const sluice__digest_run *run);
double sluice__run_share(const sluice__digest_run *run);
double sluice__run_seconds(const sluice__digest_run *run);
double sluice__run_gate_mean(const sluice__digest_run *run);
double sluice__run_m_act(const sluice__digest_run *run);

/* Runs of two arms at the same seeds, both measured. */
typedef struct sluice__pairs {
    const sluice__digest_run *arm[SLUICE__MAX_SEEDS], *base[SLUICE__MAX_SEEDS];
    int count;
} sluice__pairs;
sluice__pairs sluice__pair_up(const sluice__digest_arm *arm, const sluice__digest_arm *base);
#endif
