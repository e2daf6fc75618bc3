/* SPDX-License-Identifier: Apache-2.0 */
/* What routers of expert layers add up over the passes of one optimiser step: how often each expert was chosen, and
 * the two router losses. Per layer, with n tokens in the whole step, E experts, softmax p over all of them and
 * logits s:
 *   balance = E sum_i f_i P_i,   P_i = sum_tokens p_i / n,   f_i = share of selections that went to expert i
 *   z       = sum_tokens logsumexp(s)^2 / n
 * and both are summed over layers. f carries no gradient, so the gradient of `balance` needs f and nothing else of
 * other passes: with several micro-batches, sluice__count_routing goes over all of them first, and f is exact. */
#ifndef SLUICE_LAYERS_ROUTER_H
#define SLUICE_LAYERS_ROUTER_H
#include "sluice/model.h"

/* Over which selections f is counted. */
typedef enum sluice__balance {
    SLUICE__BALANCE_GLOBAL,  /* all of the step */
    SLUICE__BALANCE_RUNNING, /* those of this pass and the ones before */
    SLUICE__BALANCE_MICRO,   /* those of this pass */
} sluice__balance;

typedef struct sluice__router {
    sluice__balance balance;
    double aux_coef, z_coef; /* weights of the losses in what is differentiated */
    int64_t tokens;          /* n, of the whole step */
    bool counting, counted;  /* a counting pass is going on; counts hold the whole step already */
    int layers, experts;     /* of the model; most experts of a layer */
    double *counts;          /* [layers, experts] selections */
    double *share;           /* [layers, experts] f as the last pass used it */
    double *entropy;         /* [layers] sum over tokens of the entropy of p, nats */
    double balance_loss, z_loss; /* so far */
} sluice__router;

/* With the coefficients of the configuration. *out is NULL for a model without experts. */
sluice_status sluice__router_new(sluice__router **out, const sluice_config *config, sluice_error *err);
void sluice__router_free(sluice__router *router);
/* Begins a step of `tokens` tokens. */
void sluice__router_reset(sluice__router *router, sluice__balance balance, int64_t tokens);
/* What the losses add to the objective: aux_coef * balance_loss + z_coef * z_loss. */
double sluice__router_objective(const sluice__router *router);

typedef struct sluice__router_summary {
    double entropy;   /* of p, mean over tokens and layers, as a share of log E: 1 = undecided */
    double max_load;  /* largest number of selections of an expert relative to an even share, over all layers */
    int dead_experts; /* that no token chose, in all layers together */
} sluice__router_summary;
sluice__router_summary sluice__router_summarise(const sluice__router *router, const sluice_config *config);
/* The same of one layer; entropy is NaN where it has no experts, or nothing was counted. */
sluice__router_summary sluice__router_summarise_layer(const sluice__router *router, const sluice_config *config,
                                                      int layer);
#endif
