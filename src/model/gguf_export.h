/* SPDX-License-Identifier: Apache-2.0 */
/* A model in memory as the tensors and metadata of a GGUF file. */
#ifndef SLUICE_MODEL_GGUF_EXPORT_H
#define SLUICE_MODEL_GGUF_EXPORT_H
#include "model/gguf_model.h"
#include "model/gguf_write.h"
#include "model/model.h"

/* Where row r of a tensor of the file is in the model. */
typedef struct sluice__export_row {
    int tensor;
    int64_t row;
} sluice__export_row;

typedef struct sluice__export_tensor {
    sluice__export_row *rows; /* of the tensor's rows; elements of a vector; NULL: see values */
    int64_t columns;          /* of a row in the model; 1 for vectors */
    float *values;            /* made for the file, not taken from the model */
    bool constant;            /* every value is `fill`: of the neutral layer */
    float fill;
    bool decay;               /* A_log as -exp(A_log) */
    sluice__gguf_edit order;  /* of columns */
} sluice__export_tensor;

typedef struct sluice__gguf_export {
    const sluice_model *model;
    const char *arch;
    sluice__gguf_writer writer;
    sluice__export_tensor *tensors; /* as in the writer */
    int count;
} sluice__gguf_export;

/* The type of a tensor of the file: `like` is that of the model's matrix, F32 for vectors. */
typedef sluice__dtype (*sluice__type_fn)(void *user, const char *name, sluice__dtype like, int64_t rows, int64_t columns,
                                         bool matrix);

/* Architecture, metadata of the configuration, tensors. What GGUF cannot say is refused. */
sluice_status sluice__gguf_export_new(sluice__gguf_export *out, const sluice_model *model, sluice__type_fn type, void *user,
                                  sluice_error *err);
void sluice__gguf_export_free(sluice__gguf_export *e);
/* For sluice__gguf_write. */
sluice_status sluice__gguf_export_rows(const sluice__gguf_export *e, int tensor, int64_t first, int64_t rows,
                                       float *values, sluice_error *err);
/* Metadata of the tokenizer in `dir`, filled up to vocab_size tokens; "none" where there is no tokenizer. */
sluice_status sluice__gguf_export_tokenizer(sluice__gguf_writer *w, const char *dir, const sluice_config *config,
                                            sluice_error *err);
#endif
