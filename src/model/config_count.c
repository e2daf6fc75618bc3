/* SPDX-License-Identifier: Apache-2.0 */
/* Counts of a configuration: parameters and the work of one token. */
#include "model/config.h"
#include "model/tensors.h"

static int64_t slot_count(const sluice_config *c, int layer, sluice__slot slot) {
    int64_t shape[2];
    int ndim = sluice__slot_shape(c, layer, slot, shape);
    return ndim == 0 ? 0 : shape[0] * (ndim == 2 ? shape[1] : 1) * sluice__slot_copies(c, layer, slot);
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

/* Share of a slot's experts that a token goes through. */
static double active_share(const sluice_layer_spec *l, sluice__slot s) {
    bool of_expert = s >= SLUICE__SLOT_EXPERT_GATE && s <= SLUICE__SLOT_EXPERT_DOWN_BIAS;
    return of_expert && l->moe.num_experts ? (double)l->moe.num_experts_per_tok / l->moe.num_experts : 1;
}

int64_t sluice_config_num_active_parameters(const sluice_config *c) {
    int64_t n = sluice_config_num_parameters(c);
    for (int i = 0; i < c->num_hidden_layers; i++)
        for (sluice__slot s = SLUICE__SLOT_EXPERT_GATE; s <= SLUICE__SLOT_EXPERT_DOWN_BIAS; s++) {
            const sluice_moe_spec *m = &c->layers[i].moe;
            if (m->num_experts) n -= slot_count(c, i, s) / m->num_experts * (m->num_experts - m->num_experts_per_tok);
        }
    return n;
}

/* Every matrix element that a token meets is one multiply-add; so is every (query component, visible key) pair,
 * once for the scores and once for the values. Norms, RoPE and activations are left out, as usual. */
double sluice_config_forward_flops(const sluice_config *c, int64_t context) {
    double multiply_adds = (double)c->vocab_size * c->hidden_size;
    for (int i = 0; i < c->num_hidden_layers; i++) {
        const sluice_layer_spec *l = &c->layers[i];
        for (sluice__slot s = SLUICE__SLOT_INPUT_NORM; s < SLUICE__SLOT_NORM; s++)
            if (sluice__slot_kind_of(s) == SLUICE__KIND_MATRIX || sluice__slot_kind_of(s) == SLUICE__KIND_CONV)
                multiply_adds += (double)slot_count(c, i, s) * active_share(l, s);
        if (sluice_layer_is_linear(l)) { /* the step: S^T k, k d^T, S^T q */
            multiply_adds += 3.0 * l->delta.num_value_heads * l->delta.key_head_dim * l->delta.value_head_dim;
            continue;
        }
        multiply_adds +=
            2.0 * l->num_attention_heads * l->head_dim * mean_keys((double)context, l->sliding_window);
    }
    return 2 * multiply_adds;
}

bool sluice__layer_drops(const sluice_config *c, int layer) {
    int window = c->layers[layer].sliding_window;
    return window > 0 && window < c->max_position_embeddings;
}

int64_t sluice__cache_rows(const sluice_config *c, int layer, int64_t capacity, int chunk) {
    if (!chunk || !sluice__layer_drops(c, layer)) return capacity;
    int64_t rows = (int64_t)c->layers[layer].sliding_window + SLUICE__WINDOW_SLACK;
    rows += chunk > SLUICE__WINDOW_STEP ? chunk : SLUICE__WINDOW_STEP;
    return rows < capacity ? rows : capacity;
}

int64_t sluice_config_cache_bytes(const sluice_config *c, int64_t context) {
    enum { USUAL_CHUNK = 512 };
    int64_t floats = 0;
    for (int i = 0; i < c->num_hidden_layers; i++)
        if (!sluice_layer_is_linear(&c->layers[i]))
            floats += 2LL * c->layers[i].num_key_value_heads * c->layers[i].head_dim *
                      sluice__cache_rows(c, i, context, USUAL_CHUNK);
    return floats * (int64_t)sizeof(float);
}

int64_t sluice_config_state_bytes(const sluice_config *c) {
    int64_t floats = 0;
    for (int i = 0; i < c->num_hidden_layers; i++) {
        const sluice_delta_spec *d = &c->layers[i].delta;
        int64_t key = (int64_t)d->num_key_heads * d->key_head_dim, value = (int64_t)d->num_value_heads * d->value_head_dim;
        if (d->num_value_heads) floats += value * d->key_head_dim + (2 * key + value) * (d->conv_kernel - 1);
    }
    return floats * (int64_t)sizeof(float);
}
