/* SPDX-License-Identifier: Apache-2.0 */
/* Counts of a configuration: parameters and the work of one token. */
#include "model/tensors.h"

static int64_t slot_count(const sluice_config *c, int layer, sluice__slot slot) {
    int64_t shape[2];
    int ndim = sluice__slot_shape(c, layer, slot, shape);
    return ndim == 0 ? 0 : shape[0] * (ndim == 2 ? shape[1] : 1);
}

int64_t sluice_config_num_parameters(const sluice_config *c) {
    int64_t n = slot_count(c, -1, SLUICE__SLOT_EMBED_TOKENS) + slot_count(c, -1, SLUICE__SLOT_NORM) +
                slot_count(c, -1, SLUICE__SLOT_LM_HEAD);
    for (int i = 0; i < c->num_hidden_layers; i++)
        for (sluice__slot s = SLUICE__SLOT_INPUT_NORM; s < SLUICE__SLOT_NORM; s++) n += slot_count(c, i, s);
    return n;
}

int64_t sluice_config_num_gate_parameters(const sluice_config *c) {
    int64_t n = 0;
    for (int i = 0; i < c->num_hidden_layers; i++)
        n += slot_count(c, i, SLUICE__SLOT_GATE) + slot_count(c, i, SLUICE__SLOT_GATE_BIAS) +
             slot_count(c, i, SLUICE__SLOT_GATE_PARAM);
    return n;
}

/* Mean number of keys that a token sees in a causal pass over `context` tokens, at most `window` of them. */
static double mean_keys(double context, double window) {
    if (window <= 0 || window >= context) return (context + 1) / 2;
    return (window * (window + 1) / 2 + (context - window) * window) / context;
}

/* Every matrix element is one multiply-add; so is every (query component, visible key) pair, once for the
 * scores and once for the values. Norms, RoPE and activations are left out, as usual. */
double sluice_config_forward_flops(const sluice_config *c, int64_t context) {
    double multiply_adds = (double)c->vocab_size * c->hidden_size;
    for (int i = 0; i < c->num_hidden_layers; i++) {
        const sluice_layer_spec *l = &c->layers[i];
        for (sluice__slot s = SLUICE__SLOT_INPUT_NORM; s < SLUICE__SLOT_NORM; s++)
            if (sluice__slot_kind_of(s) == SLUICE__KIND_MATRIX) multiply_adds += (double)slot_count(c, i, s);
        multiply_adds +=
            2.0 * l->num_attention_heads * l->head_dim * mean_keys((double)context, l->sliding_window);
    }
    return 2 * multiply_adds;
}

int64_t sluice_config_cache_bytes(const sluice_config *c, int64_t context) {
    int64_t floats = 0;
    for (int i = 0; i < c->num_hidden_layers; i++)
        floats += 2LL * c->layers[i].num_key_value_heads * c->layers[i].head_dim;
    return floats * (int64_t)sizeof(float) * context;
}
