/* SPDX-License-Identifier: Apache-2.0 */
/* AdamW over the flat parameter buffer, Muon for the matrices of layers when asked for, and clipping by the global
 * norm. Moments share the flat layout of weights and gradients, so a step is a few long runs of parameters, split
 * only where weight decay switches on or off. */
#ifndef SLUICE_TRAIN_OPTIMIZER_H
#define SLUICE_TRAIN_OPTIMIZER_H
#include "model/weights.h"
#include "train/muon.h"

typedef struct sluice__adamw_options {
    double beta1, beta2, eps, weight_decay; /* weight_decay acts on matrices only (sluice_tensor_info.weight_decay) */
} sluice__adamw_options;

typedef struct sluice__muon_options {
    bool on;
    double lr_factor; /* Muon's learning rate over AdamW's */
    double momentum, weight_decay;
    sluice__muon_adjust adjust;
    int iterations;
} sluice__muon_options;

typedef struct sluice__decay_run {
    int64_t offset, count;
    bool decays, muon;
} sluice__decay_run;

/* One matrix of Muon's; those that lie back to back are several. */
typedef struct sluice__muon_matrix {
    int64_t offset, rows, columns;
} sluice__muon_matrix;

typedef struct sluice__optimizer {
    sluice__adamw_options options;
    sluice__muon_options muon;
    int64_t size;          /* floats in the flat layout */
    float *exp_avg;        /* [size] first moment m; Muon's momentum where it rules */
    float *exp_avg_sq;     /* [size] second moment v */
    int64_t step;          /* updates done */
    sluice__decay_run *runs;
    int num_runs;
    sluice__muon_matrix *matrices; /* NULL without Muon */
    int num_matrices;
    float *scratch;        /* of the largest of them */
} sluice__optimizer;

/* Moments start at 0. muon NULL = AdamW alone. Freed with optimizer_free, which accepts NULL. */
sluice_status sluice__optimizer_new(sluice__optimizer **out, const sluice_model *model,
                                    const sluice__adamw_options *options, const sluice__muon_options *muon,
                                    sluice_error *err);
void sluice__optimizer_free(sluice__optimizer *o);
/* Bytes of the moments and of Muon's scratch, for the memory plan. */
int64_t sluice__optimizer_bytes(const sluice_config *config, bool muon);

/* Global L2 norm over the whole flat buffer (alignment gaps hold zeros). NaN or Inf when any element is. */
double sluice__grad_norm(const sluice__optimizer *o, const float *grads);
/* What every gradient is multiplied by: min(1, max_norm / (norm + 1e-6)); max_norm 0 = no clipping. */
double sluice__clip_factor(double norm, double max_norm);
/* One update of params [size] at rate lr with gradients grad_scale * grads; grads is zeroed in the same pass. */
void sluice__optimizer_step(sluice__optimizer *o, float *params, float *grads, double lr, double grad_scale);
#endif
