/* SPDX-License-Identifier: Apache-2.0 */
/* Models from one kind of file to another: Hugging Face directories (safetensors or pytorch_model.bin), GGUF files,
 * element types and block types. */
#ifndef SLUICE_CONVERT_H
#define SLUICE_CONVERT_H
#include <stdbool.h>
#include <stdint.h>
#include "sluice/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sluice_convert_params {
    const char *dtype;      /* of matrices: "F32", "F16", "BF16", and in GGUF "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K",
                               "Q5_K", "Q6_K". NULL (default): as in the source, blocks as F32 where the target has none */
    int64_t max_shard_size; /* bytes of one safetensors file, at least those of the largest tensor; 0 (default) = one file */
    const char *const *overrides; /* "REGEX=TYPE": type of the tensors whose name in the target matches the POSIX extended
                                     regular expression; the first that matches counts; one that matches none is an error */
    int num_overrides;
    bool gguf; /* write a GGUF file; otherwise a directory */
} sluice_convert_params;
sluice_convert_params sluice_convert_params_default(void);

typedef struct sluice_convert_result {
    int tensors;
    int64_t parameters, bytes; /* values, and their bytes in the target */
    char types[160];           /* "Q4_K x210, F32 x61" */
    int kept_wider;            /* matrices that got a wider type because their rows are not whole blocks */
} sluice_convert_result;

/* from: a model directory, a GGUF file. to: the path of the file, which is replaced in one step, or of a directory that is not
 * there yet or empty. params NULL = default. What the target cannot express is refused before anything is written. */
sluice_status sluice_convert(const char *from, const char *to, const sluice_convert_params *params,
                             sluice_convert_result *result, sluice_error *err);

#ifdef __cplusplus
}
#endif
#endif
