/* SPDX-License-Identifier: Apache-2.0 */
/* Ladders: every arm of a recipe at every one of a list of learning rates, to find the largest that each can stand. */
#ifndef SLUICE_STUDY_LADDER_H
#define SLUICE_STUDY_LADDER_H
#include <jansson.h>
#include "base/error.h"
#include "base/json.h"

#define SLUICE__LADDER_KEY "ladder"
/* Held-out loss above the best of its arm, in nats, from which a run counts as not converged. The paper's baseline at a rate
 * of which it says that convergence suffers has perplexity 9.195 instead of 7.421: 0.21 nats. */
#define SLUICE__LADDER_TROUBLE 0.2

/* root.ladder: nothing, or {"learning_rate": [rising numbers above 0]}. */
sluice_status sluice__ladder_check(const sluice__json *root, sluice_error *err);
/* root: a complete recipe. Puts in place of each arm one for every rate: "NAME-4e-3", labelled "LABEL, 4e-3", with the rate
 * among its training options and "rung": {"of", "label", "learning_rate"}. Nothing without a ladder. */
sluice_status sluice__ladder_apply(json_t *root, const char *file, sluice_error *err);
#endif
