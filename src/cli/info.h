/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of `sluice info`: each makes a JSON object; the text report is drawn from it. */
#ifndef SLUICE_CLI_INFO_H
#define SLUICE_CLI_INFO_H
#include <jansson.h>
#include "sluice/config.h"
#include "sluice/model.h"

/* The machine and the program. */
json_t *info_machine(void);
/* A configuration: sizes, layers, gate, counts, work and memory at `context` tokens (0 = the model's own, at
 * most 4096). */
json_t *info_config(const sluice_config *config, long long context);
/* Every variant of the paper's tables on top of a configuration: counts, work, memory; context as above. */
json_t *info_variants(const sluice_config *config, long long context);
/* Weight files: how many tensors and bytes of which type; with `list` every tensor. */
json_t *info_weights(const sluice_weight_files *files, int list);
/* The names of tensors with NaN or infinite values. */
json_t *info_nonfinite(const sluice_model *model);

void info_print_machine(const json_t *machine);
void info_print_config(const json_t *config);
void info_print_variants(const json_t *variants);
void info_print_weights(const json_t *weights);
#endif
