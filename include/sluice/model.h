/* SPDX-License-Identifier: Apache-2.0 */
/* A model: configuration and weights. Immutable once loaded (training aside), so threads may share it. */
#ifndef SLUICE_MODEL_H
#define SLUICE_MODEL_H
#include "sluice/config.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sluice_model sluice_model;

typedef enum sluice_load_weights {
    SLUICE_LOAD_F32,      /* one block of fp32 that can be trained, changed and saved */
    SLUICE_LOAD_AS_STORED /* to run only: matrices keep the type of the file and, where its layout allows, stay in its
                             pages, which other processes share; the file must not be changed meanwhile */
} sluice_load_weights;

typedef struct sluice_load_params {
    sluice_load_weights weights; /* default: F32 */
    const char *rope_override; /* JSON object in the form of rope_parameters that replaces the model's, e.g. to switch YaRN
                                  on; NULL = as in the file */
} sluice_load_params;
sluice_load_params sluice_load_params_default(void);

/* path: a Hugging Face directory. params NULL = default. On failure *out is NULL and nothing is kept. */
sluice_status sluice_model_load(sluice_model **out, const char *path, const sluice_load_params *params, sluice_error *err);
/* Fresh weights by the configuration's initialiser: N(0, initializer_range) for matrices, each tensor from its own random
 * stream (seed, name), so that arms that share a tensor start from the same values; norms 1; input-independent gates 0.
 * The configuration is copied. */
sluice_status sluice_model_new(sluice_model **out, const sluice_config *config, uint64_t seed, sluice_error *err);
void sluice_model_free(sluice_model *model);
/* All that loading checks before it reads weights: configuration, presence, shape and type of every tensor. */
sluice_status sluice_model_check(const char *path, sluice_error *err);

typedef enum sluice_save_layout {
    SLUICE_SAVE_AUTO,  /* a transformers class where one expresses the model (llama, qwen2, qwen3, qwen3_5_text), else NATIVE */
    SLUICE_SAVE_NATIVE /* our own flat keys and tensor names, with modeling_sluice.py beside them */
} sluice_save_layout;
/* The class of transformers that SLUICE_SAVE_AUTO writes for ("LlamaForCausalLM"), or NULL when none expresses the model. */
const char *sluice_config_transformers_class(const sluice_config *config);
/* Writes config.json and model.safetensors (fp32) into an existing directory. */
sluice_status sluice_model_save(const sluice_model *model, const char *dir, sluice_save_layout layout, sluice_error *err);
/* The same with every weight as float32 or rounded to the nearest bfloat16. */
typedef enum sluice_save_dtype { SLUICE_SAVE_FLOAT32, SLUICE_SAVE_BFLOAT16 } sluice_save_dtype;
sluice_status sluice_model_save_as(const sluice_model *model, const char *dir, sluice_save_layout layout,
                                   sluice_save_dtype dtype, sluice_error *err);

const sluice_config *sluice_model_config(const sluice_model *model);

/* Parameters in file order. Names are ours (model.layers.0.self_attn.q_proj.weight, ... .gate_proj.weight). */
typedef struct sluice_tensor_info {
    const char *name;
    int ndim;
    int64_t shape[2];
    int64_t count;
    float *data;       /* fp32, owned by the model; NULL for the matrices of a model loaded AS_STORED */
    bool nonfinite;    /* the file had NaN or infinite values in it (AS_STORED: see sluice_model_check_finite) */
    bool weight_decay; /* matrices yes; norms, biases and input-independent gates no */
    bool hidden_matrix; /* a matrix inside a layer that is no router: what Muon updates */
} sluice_tensor_info;
int sluice_model_num_tensors(const sluice_model *model);
sluice_tensor_info sluice_model_tensor(const sluice_model *model, int index);
int sluice_model_find_tensor(const sluice_model *model, const char *name); /* index or -1 */
/* Loading looks for NaN and infinite values as it copies; matrices of an AS_STORED model that stay in the pages of their
 * file are not read then. This reads them, completes `nonfinite`, and returns how many tensors have such values. Before
 * the model is shared between threads. */
int sluice_model_check_finite(sluice_model *model);
/* out [count]: the tensor as fp32, of any model. */
void sluice_model_tensor_read(const sluice_model *model, int index, float *out);

/* What weight files hold, read from their headers: of a model directory, or of one .safetensors or .bin file. */
typedef struct sluice_weight_files sluice_weight_files;
typedef struct sluice_weight_entry {
    const char *name, *file;
    const char *dtype; /* as safetensors spells it: "BF16" */
    int ndim;
    int64_t shape[8];
    int64_t count, bytes;
} sluice_weight_entry;
sluice_status sluice_weight_files_open(sluice_weight_files **out, const char *path, sluice_error *err);
void sluice_weight_files_close(sluice_weight_files *files);
int sluice_weight_files_count(const sluice_weight_files *files);
sluice_weight_entry sluice_weight_files_at(const sluice_weight_files *files, int index); /* sorted by name */

#ifdef __cplusplus
}
#endif
#endif
