/* SPDX-License-Identifier: Apache-2.0 */
/* Arms of equal size: a gate has parameters, and a comparison is fair when they are paid for elsewhere, or when a
 * baseline may spend as many in another way (the paper's Table 1, rows 2 to 4). */
#ifndef SLUICE_STUDY_MATCH_H
#define SLUICE_STUDY_MATCH_H
#include <jansson.h>
#include <stdbool.h>
#include "base/error.h"

/* Whether a key of a recipe's root or of an arm belongs to matching. */
#define SLUICE__MATCH_KEY "match_parameters"
#define SLUICE__MATCH_MULTIPLE "match_multiple"

/* `value` at match_parameters of the root (arm false: true or false) or of an arm: true, false, or {"with": option,
 * "to": arm}. */
sluice_status sluice__match_check(const json_t *value, bool arm, const char *file, const char *path,
                                  sluice_error *err);
/* root: a complete recipe. Sets in the config of every arm that is to be matched the option that brings its number of
 * parameters nearest to that of the other arm, and says so in the arm's "match": {"with", "to", "value"}. */
sluice_status sluice__match_apply(json_t *root, const char *file, sluice_error *err);
#endif
