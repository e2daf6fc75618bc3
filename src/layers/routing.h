/* SPDX-License-Identifier: Apache-2.0 */
/* The router of an expert layer: who goes where, with what weight, and what that does to the router losses. */
#ifndef SLUICE_LAYERS_ROUTING_H
#define SLUICE_LAYERS_ROUTING_H
#include "layers/workspace.h"

/* Fills prob, lse, choice, weight, start, place and token of state, and adds to pass->router.   x: [rows, D]. */
void sluice__route(const sluice__pass *pass, int layer, const float *x, const sluice__moe_state *state);
/* ws->back.dprob [rows, E] = gradient of the router's logits, from that of the weights in ws->back.dweight (in the
 * order of experts) and from the router losses. */
void sluice__route_backward(const sluice__pass *pass, int layer, const sluice__moe_state *state);
#endif
