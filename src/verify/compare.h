/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors that were computed, and how far they are from recorded ones. */
#ifndef SLUICE_VERIFY_COMPARE_H
#define SLUICE_VERIFY_COMPARE_H
#include "base/error.h"
#include "model/safetensors.h"
#include "sluice/verify.h"

typedef struct sluice__computed {
    char *name;
    int ndim;
    int64_t shape[4], count;
    float *data;  /* or */
    int32_t *ids; /* integers */
} sluice__computed;

typedef struct sluice__results {
    sluice__computed *items;
    int count, capacity;
} sluice__results;

/* Adds zeroed room for a tensor; *data points to it. The name is copied. */
sluice_status sluice__results_add(sluice__results *r, const char *name, int ndim, const int64_t *shape, float **data,
                                  sluice_error *err);
sluice_status sluice__results_add_ids(sluice__results *r, const char *name, int ndim, const int64_t *shape,
                                      const int32_t *ids, sluice_error *err);
const sluice__computed *sluice__results_find(const sluice__results *r, const char *name);
void sluice__results_free(sluice__results *r);

typedef struct sluice__verify_run {
    const char *dir;
    const sluice_verify_params *params;
    sluice_verify_report *report;
    sluice_error *err;
} sluice__verify_run;

/* Writes results for params->dump_path, but never over a file of the directories that are verified. */
sluice_status sluice__results_write(const sluice__verify_run *run, const sluice__results *r, const char *path);

/* Adds a line to the report. limit is replaced by params->tolerance when that is set (not for MISMATCHES). */
sluice_status sluice__report_value(const sluice__verify_run *run, sluice_verify_measure measure, double error,
                                   double limit, const char *name_fmt, ...) SLUICE__PRINTF(5, 6);
/* A line that fails because `note` stands in the way of a comparison. */
sluice_status sluice__report_problem(const sluice__verify_run *run, const char *name, const char *note_fmt, ...)
    SLUICE__PRINTF(3, 4);
/* Compares a computed tensor (NULL = not computed) with the recorded one; leading dimensions of 1 may be missing. */
sluice_status sluice__report_tensor(const sluice__verify_run *run, const char *label, const sluice__st_tensor *golden,
                                    const sluice__computed *got, sluice_verify_measure measure, double limit);
/* The recorded tensor as fp32 (freed with sluice__free) or an error that names it. */
sluice_status sluice__golden_values(float **out, const sluice__safetensors *file, const sluice__st_tensor *golden,
                                    sluice_error *err);
/* The same for int32. */
sluice_status sluice__golden_ids(int32_t **out, const sluice__safetensors *file, const sluice__st_tensor *golden,
                                 sluice_error *err);
#endif
