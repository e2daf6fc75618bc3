/* SPDX-License-Identifier: Apache-2.0 */
/* The table of training options (sluice/train_options.def) as data, and parameters to and from JSON. */
#ifndef SLUICE_TRAIN_OPTIONS_H
#define SLUICE_TRAIN_OPTIONS_H
#include "base/json.h"
#include "layers/transformer.h"
#include "sluice/train.h"
#include "train/schedule.h"

/* Index in the table, or -1. Dashes count as underscores, leading ones are skipped. */
int sluice__train_option_find(const char *key);
/* All parameters as a JSON object (new reference); NULL when out of memory. */
json_t *sluice__train_params_to_json(const sluice_train_params *p);
/* Sets option `index` from a JSON value (lists: a string or an array of strings). */
sluice_status sluice__train_option_set_json(sluice_train_params *p, int index, const char *where, const json_t *value,
                                            sluice_error *err);

/* The schedule of a run over `windows_per_epoch` training windows. Refuses more warm-up and decay than updates. */
sluice_status sluice__train_schedule(sluice__schedule *out, const sluice_train_params *p, int64_t windows_per_epoch,
                                     sluice_error *err);

/* A resumed run continues `before` with `now`: refuses, naming the first one, when a LOCKED option differs, or when a
 * SCHEDULE option gives another learning rate to one of the `steps` updates that were done. */
sluice_status sluice__train_params_continue(const sluice_train_params *before, const sluice_train_params *now,
                                            const sluice__schedule *schedule_before,
                                            const sluice__schedule *schedule_now, int64_t steps, sluice_error *err);

/* Model options (sluice/model_options.def): JSON text (NULL = "{}") to an object, an object to text that replaces
 * *text, and the default of option `index` (NULL when it follows from others). */
sluice_status sluice__model_options_object(json_t **out, const char *text, sluice_error *err);
sluice_status sluice__model_options_text(char **text, const json_t *object, sluice_error *err);
json_t *sluice__model_option_default_json(int index);
/* Refuses, naming it, a model option that a given configuration does not have. */
sluice_status sluice__model_options_followed(const sluice_config *config, const char *model_options,
                                             sluice_error *err);

/* Refuses an option, other than its default, that another one leaves without effect; names both (effect.c). */
sluice_status sluice__train_check_effect(const sluice_train_params *p, sluice_error *err);
/* The same for model options (and router_balance), by the model that they made. Options that are a whole configuration, as in the
 * config.json of a run, ask for nothing. */
sluice_status sluice__model_check_effect(const sluice_config *config, const char *model_options, const sluice_train_params *p,
                                         sluice_error *err);

/* Whether products are to have bf16 factors (dtype under either of its names), and the workspace that training takes. */
bool sluice__train_in_bf16(const sluice_train_params *p);
sluice__mode sluice__train_mode(const sluice_train_params *p);
#endif
