/* SPDX-License-Identifier: Apache-2.0 */
/* What the ways of conversion share: the choice of types, counting, progress. */
#ifndef SLUICE_MODEL_CONVERT_H
#define SLUICE_MODEL_CONVERT_H
#include <regex.h>
#include "base/progress.h"
#include "base/strbuf.h"
#include "model/dtype.h"
#include "sluice/convert.h"

typedef struct sluice__override {
    regex_t pattern;
    const char *text; /* of the caller */
    bool matched;     /* some tensor */
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
    int num_nonfinite; /* tensors with NaN or infinite values */
    const char *last_nonfinite;
    sluice__strbuf nonfinite; /* names of the first ones */
} sluice__conversion;

/* The type of a tensor in the target: an override, the wanted type for matrices, F32 for others, `like` where no type is wanted. rows and columns: as the
 * target has them. Counts it. */
sluice__dtype sluice__conversion_type(sluice__conversion *c, const char *name, sluice__dtype like, int64_t rows,
                                      int64_t columns, bool matrix);
/* Counts a tensor that is no weight and stays as it is. */
void sluice__conversion_keep(sluice__conversion *c, sluice__dtype dtype);
/* When all types are chosen, before anything is written: an override that matches no tensor is a mistake in its pattern. */
sluice_status sluice__conversion_check_overrides(const sluice__conversion *c, sluice_error *err);
/* Notes a tensor, or a part of it, with values that are no numbers. `name` stays where it is for the whole tensor. */
void sluice__conversion_look(sluice__conversion *c, const char *name, sluice__dtype dtype, const void *data, int64_t count);

/* To a Hugging Face directory (convert_hf.c): from another one, from a GGUF file. `temporary` is where files go. */
sluice_status sluice__convert_hf_to_hf(sluice__conversion *c, const char *temporary, sluice_error *err);
sluice_status sluice__convert_gguf_to_hf(sluice__conversion *c, const char *temporary, sluice_error *err);
#endif
