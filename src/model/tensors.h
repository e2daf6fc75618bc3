/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors of a model as it lies in memory: which there are for a configuration, their shapes, and where
 * each stands in the flat layout of weights.h. */
#ifndef SLUICE_MODEL_TENSORS_H
#define SLUICE_MODEL_TENSORS_H
#include "base/error.h"
#include "model/weights.h"

/* In the order of the flat layout, layer by layer between EMBED_TOKENS and NORM. */
typedef enum sluice__slot {
    SLUICE__SLOT_EMBED_TOKENS,
    SLUICE__SLOT_INPUT_NORM,
    SLUICE__SLOT_Q,
    SLUICE__SLOT_K,
    SLUICE__SLOT_V,
    SLUICE__SLOT_GATE,
    SLUICE__SLOT_SWITCH_ROUTER,
    SLUICE__SLOT_Q_BIAS,
    SLUICE__SLOT_K_BIAS,
    SLUICE__SLOT_V_BIAS,
    SLUICE__SLOT_GATE_BIAS,
    SLUICE__SLOT_GATE_PARAM,
    SLUICE__SLOT_Q_NORM,
    SLUICE__SLOT_K_NORM,
    SLUICE__SLOT_SDPA_NORM,
    SLUICE__SLOT_O,
    SLUICE__SLOT_O_BIAS,
    SLUICE__SLOT_SINKS,
    SLUICE__SLOT_DELTA_Q, /* linear attention */
    SLUICE__SLOT_DELTA_K,
    SLUICE__SLOT_DELTA_V,
    SLUICE__SLOT_DELTA_Z,
    SLUICE__SLOT_DELTA_B,
    SLUICE__SLOT_DELTA_A,
    SLUICE__SLOT_DELTA_CONV_Q,
    SLUICE__SLOT_DELTA_CONV_K,
    SLUICE__SLOT_DELTA_CONV_V,
    SLUICE__SLOT_DELTA_A_LOG,
    SLUICE__SLOT_DELTA_DT_BIAS,
    SLUICE__SLOT_DELTA_NORM,
    SLUICE__SLOT_DELTA_OUT,
    SLUICE__SLOT_POST_SELF_ATTN_NORM,
    SLUICE__SLOT_POST_ATTENTION_NORM,
    SLUICE__SLOT_MLP_GATE,
    SLUICE__SLOT_MLP_UP,
    SLUICE__SLOT_MLP_DOWN,
    SLUICE__SLOT_MLP_GATE_BIAS,
    SLUICE__SLOT_MLP_UP_BIAS,
    SLUICE__SLOT_MLP_DOWN_BIAS,
    SLUICE__SLOT_ROUTER,
    SLUICE__SLOT_ROUTER_BIAS,
    SLUICE__SLOT_SELECTION_BIAS,
    SLUICE__SLOT_EXPERT_GATE, /* of expert 0, then up of expert 0, gate of expert 1, ... */
    SLUICE__SLOT_EXPERT_UP,
    SLUICE__SLOT_EXPERT_DOWN, /* of all experts */
    SLUICE__SLOT_EXPERT_GATE_BIAS, /* these three in the same order */
    SLUICE__SLOT_EXPERT_UP_BIAS,
    SLUICE__SLOT_EXPERT_DOWN_BIAS,
    SLUICE__SLOT_SHARED_GATE,
    SLUICE__SLOT_SHARED_UP,
    SLUICE__SLOT_SHARED_DOWN,
    SLUICE__SLOT_SHARED_EXPERT_GATE,
    SLUICE__SLOT_SHARED_GATE_BIAS,
    SLUICE__SLOT_SHARED_UP_BIAS,
    SLUICE__SLOT_SHARED_DOWN_BIAS,
    SLUICE__SLOT_POST_MLP_NORM,
    SLUICE__SLOT_NORM,
    SLUICE__SLOT_LM_HEAD,
    SLUICE__SLOTS
} sluice__slot;

typedef enum sluice__slot_kind {
    SLUICE__KIND_MATRIX,
    SLUICE__KIND_BIAS,
    SLUICE__KIND_NORM,
    SLUICE__KIND_GATE_PARAM,
    SLUICE__KIND_CONV, /* taps of a causal convolution [channels, taps] */
    SLUICE__KIND_DECAY /* A_log, dt_bias of the delta rule */
} sluice__slot_kind;

sluice__slot_kind sluice__slot_kind_of(sluice__slot slot);
bool sluice__slot_is_hidden_matrix(sluice__slot slot);
/* A norm weight that files of the 1+w flavour store as w - 1. */
bool sluice__slot_is_one_plus(sluice__slot slot);
/* "self_attn.q_proj.weight" for a layer's tensor, "gate_proj.weight" for an expert's, the whole name for the
 * others. */
const char *sluice__slot_name(sluice__slot slot);
bool sluice__slot_in_layer(sluice__slot slot);
/* Number of dimensions, with sizes in shape; 0 when the model has no such tensor. layer is ignored outside
 * layers. */
int sluice__slot_shape(const sluice_config *config, int layer, sluice__slot slot, int64_t shape[2]);

/* Where a tensor belongs. */
typedef struct sluice__place {
    sluice__slot slot;
    int layer, expert; /* -1 outside layers, outside experts */
} sluice__place;
#define SLUICE__FIRST_PLACE ((sluice__place){SLUICE__SLOT_EMBED_TOKENS, -1, -1})
/* Goes to the next place in layout order, whether the model has a tensor there or not; false behind the last. */
bool sluice__place_next(const sluice_config *config, sluice__place *place);
/* "<prefix>layers.<layer>.<name>", with "<experts><expert>." before an expert's; name alone outside layers. experts
 * NULL = "mlp.experts.". NULL when out of memory. */
char *sluice__tensor_name_in(const char *prefix, const char *experts, const char *name, sluice__place place);
/* Tensors that a slot stands for in one layer: the number of experts, or 1. */
int sluice__slot_copies(const sluice_config *config, int layer, sluice__slot slot);

typedef struct sluice__tensor {
    sluice__slot slot;
    int layer, expert; /* -1 outside layers, outside experts */
    char *name;
    int ndim;
    int64_t shape[2], count;
    int64_t offset; /* floats, in the flat layout; -1 = not in it */
    bool glued;     /* begins where the one before ends */
} sluice__tensor;

/* All tensors of a configuration in layout order; *flat_size in floats. Without `matrices` these have no place in the
 * layout. Freed with sluice__tensors_free. */
sluice_status sluice__tensors_new(sluice__tensor **out, int *count, int64_t *flat_size,
                                  const sluice_config *config, bool matrices, sluice_error *err);
void sluice__tensors_free(sluice__tensor *tensors, int count);
#endif
