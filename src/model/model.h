/* SPDX-License-Identifier: Apache-2.0 */
/* The model object itself, for the files of this part. */
#ifndef SLUICE_MODEL_MODEL_H
#define SLUICE_MODEL_MODEL_H
#include "model/tensors.h"

struct sluice_model {
    sluice_config config; /* norms are plain: files that store w - 1 are converted on loading */
    sluice__tensor *tensors;
    int num_tensors;
    int64_t flat_size;
    float *flat;
    sluice__weights weights;
};

/* A model with zero weights. The configuration is moved into it (and freed on failure). */
sluice_status sluice__model_alloc(sluice_model **out, sluice_config *config, sluice_error *err);

#endif
