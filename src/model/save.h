/* SPDX-License-Identifier: Apache-2.0 */
/* The layouts that a model can be saved in. */
#ifndef SLUICE_MODEL_SAVE_H
#define SLUICE_MODEL_SAVE_H
#include "base/json.h"
#include "model/family.h"

/* A class of transformers (or our own) as a target: which models it expresses, and what its config.json says
 * beside the common keys. */
typedef struct sluice__target {
    const sluice__family *family; /* packing, norm flavour and tensor names of the files */
    const char *model_type, *architecture;
    bool (*fits)(const sluice_config *config);
    int (*write)(json_t *object, const sluice_config *config); /* 0 on success */
} sluice__target;

/* A config.json describes all layers at once: refuses a model whose layers differ where it cannot say so. */
sluice_status sluice__config_check_writable(const sluice_config *config, sluice_error *err);

extern const sluice__target sluice__target_native;
/* The class of transformers that expresses the model, or NULL. */
const sluice__target *sluice__target_of(const sluice_config *config);
/* The whole config.json; NULL when out of memory. */
json_t *sluice__config_to_json(const sluice_config *config, const sluice__target *target);
#endif
