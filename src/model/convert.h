/* SPDX-License-Identifier: Apache-2.0 */
/* What the ways of conversion share: the choice of types, counting, progress. */
#ifndef SLUICE_MODEL_CONVERT_H
#define SLUICE_MODEL_CONVERT_H
#include <regex.h>
#include "base/progress.h"
#include "model/dtype.h"
#include "sluice/convert.h"

typedef struct sluice__override {
    regex_t pattern;
    sluice__dtype dtype;
} sluice__override;

typedef struct sluice__conversion {
    const char *from, *to;
    const sluice_convert_params *params;
    bool typed;          /* params->dtype is given: */
    sluice__dtype dtype; /* what it means */
    sluice__override *overrides;
    int num_overrides;
    int64_t tensors_of[SLUICE__DTYPES];
    sluice_convert_result *result;
    sluice__progress progress;
} sluice__conversion;

/* The type of a tensor in the target: an override, the wanted type for matrices, otherwise `like`. rows and columns: as the
 * target has them. Counts it. */
sluice__dtype sluice__conversion_type(sluice__conversion *c, const char *name, sluice__dtype like, int64_t rows,
                                      int64_t columns, bool matrix);

/* To a Hugging Face directory (convert_hf.c): from another one, from a GGUF file. `temporary` is where files go. */
sluice_status sluice__convert_hf_to_hf(sluice__conversion *c, const char *temporary, sluice_error *err);
sluice_status sluice__convert_gguf_to_hf(sluice__conversion *c, const char *temporary, sluice_error *err);
#endif
