/* SPDX-License-Identifier: Apache-2.0 */
/* Writing config.json objects for the layouts that a model can be saved in. */
#ifndef SLUICE_MODEL_SAVE_H
#define SLUICE_MODEL_SAVE_H
#include "base/json.h"
#include "sluice/config.h"

/* Our own flat keys. NULL when out of memory. */
json_t *sluice__config_to_native(const sluice_config *config);

/* Parts of a config.json; 0 on success. */
int sluice__write_sizes(json_t *object, const sluice_config *config);
int sluice__write_rope(json_t *object, const sluice_config *config);
int sluice__write_kinds(json_t *object, const sluice_config *config);
#endif
