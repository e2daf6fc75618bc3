/* SPDX-License-Identifier: Apache-2.0 */
/* AdamW over the flat parameter buffer, Muon for the matrices of layers when asked for, or Lion in place of both, and
 * clipping by the global norm. First moments share the flat layout of weights and gradients, so a step is a few long
 * runs of parameters, split only where weight decay or the kind of update changes. Second moments exist for the runs of
 * AdamW alone, one run behind the other. */
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

typedef struct sluice__lion_options {
    bool on;
    double beta1, beta2;
} sluice__lion_options;

typedef struct sluice__decay_run {
    int64_t offset, count;
    int64_t second; /* where its second moments begin; -1 = has none */
    bool decays, muon;
} sluice__decay_run;

/* One matrix of Muon's; those that lie back to back are several. */
typedef struct sluice__muon_matrix {
    int64_t offset, rows, columns;
} sluice__muon_matrix;

typedef struct sluice__optimizer {
    sluice__adamw_options options;
    sluice__muon_options muon;
    sluice__lion_options lion;
    int64_t size;          /* floats in the flat layout */
    float *exp_avg;        /* [size] first moment m; the momentum of Muon and Lion */
    float *exp_avg_sq;     /* [second_size] second moment v */
    int64_t second_size;
    int64_t step;          /* updates done */
    sluice__decay_run *runs;
    int num_runs;
    sluice__muon_matrix *matrices; /* NULL without Muon */
    int num_matrices;
    float *scratch;        /* of the largest of them */
} sluice__optimizer;

/* Moments start at 0. muon, lion NULL or not on: AdamW alone; not both. Lion takes its weight decay from options. Freed
 * with optimizer_free, which accepts NULL. */
sluice_status sluice__optimizer_new(sluice__optimizer **out, const sluice_model *model,
                                    const sluice__adamw_options *options, const sluice__muon_options *muon,
                                    const sluice__lion_options *lion, sluice_error *err);
void sluice__optimizer_free(sluice__optimizer *o);
/* Bytes of the moments and of Muon's scratch, for the memory plan. optim: SLUICE_OPTIM_*. */
int64_t sluice__optimizer_bytes(const sluice_config *config, int optim);
/* Second moments of the tensor at `offset` of the flat layout; NULL where the update has none. */
float *sluice__optimizer_second(const sluice__optimizer *o, int64_t offset);

/* Global L2 norm over the whole flat buffer (alignment gaps hold zeros). NaN or Inf when any element is. */
double sluice__grad_norm(const sluice__optimizer *o, const float *grads);
/* What every gradient is multiplied by: min(1, max_norm / (norm + 1e-6)); max_norm 0 = no clipping. */
double sluice__clip_factor(double norm, double max_norm);
/* One update of params [size] at rate lr with gradients grad_scale * grads; grads is zeroed in the same pass. */
void sluice__optimizer_step(sluice__optimizer *o, float *params, float *grads, double lr, double grad_scale);
#endif
