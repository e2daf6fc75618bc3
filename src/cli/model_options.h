/* SPDX-License-Identifier: Apache-2.0 */
/* Model options (sluice/model_options.def) on the command line of commands that have few options of their own: they are
 * taken out of the arguments before the others are parsed. */
#ifndef SLUICE_CLI_MODEL_OPTIONS_H
#define SLUICE_CLI_MODEL_OPTIONS_H
#include "sluice/status.h"

/* Moves --name value, --name=value, and for yes-or-no options --name and --no-name, from argv (which shrinks to *argc) into
 * the JSON object *model_options (NULL or owned text: sluice_train_free_text). Dashes and underscores are the same. */
sluice_status cli_take_model_options(int *argc, const char **argv, char **model_options, sluice_error *err);
#endif
