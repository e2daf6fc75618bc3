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
    float *flat;              /* all tensors, or in an as-stored model all but the matrices */
    sluice__matrix *matrices; /* [num_tensors]; of a tensor that is a vector all zero */
    bool *nonfinite;          /* [num_tensors] as found on loading, or by sluice_model_check_finite */
    bool as_stored;
    unsigned char *own;          /* matrices of an as-stored model that are not read from the pages of a file */
    struct sluice__store *store; /* of the others; or NULL */
    sluice__weights weights;
};

/* A model with zero weights. The configuration is moved into it (and freed on failure). as_stored: without memory for the
 * matrices; whoever asks for that fills `matrices`, then binds. */
sluice_status sluice__model_alloc(sluice_model **out, sluice_config *config, bool as_stored, sluice_error *err);
/* Makes model->weights from flat and matrices. */
void sluice__model_bind(sluice_model *model);
/* Warns that `count` tensors at `where` have NaN or infinite values; names: of the first ones, NULL when memory was short. */
void sluice__warn_nonfinite(const char *where, int count, const char *names, bool more);
/* Warns that `what` came out NaN or infinite, and which weights are to blame: reads all of them. */
void sluice__model_blame(const sluice_model *model, const char *what);

#endif
