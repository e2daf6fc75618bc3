/* SPDX-License-Identifier: Apache-2.0 */
/* The model object: one allocation for all parameters, its tensors, and typed pointers into it. */
#include "model/weights.h"
#include "base/memory.h"
#include "base/progress.h"
#include "base/rng.h"
#include "model/config.h"
#include "model/model.h"
#include "model/store.h"
#include <math.h>
#include <string.h>

sluice__layer_sizes sluice__layer_sizes_of(const sluice_config *config, int layer) {
    const sluice_layer_spec *l = &config->layers[layer];
    if (sluice_layer_is_linear(l)) return (sluice__layer_sizes){0};
    sluice__layer_sizes s = {.q_rows = l->num_attention_heads * l->head_dim,
                             .k_rows = l->num_key_value_heads * l->head_dim,
                             .v_rows = l->num_key_value_heads * l->head_dim};
    const sluice_switch_spec *w = &l->switch_head;
    if (w->head == SLUICE_SWITCH_KV) s.k_rows *= w->experts;
    if (w->head != SLUICE_SWITCH_NONE) {
        s.v_rows *= w->experts;
        s.switch_rows = l->num_key_value_heads * w->experts;
    }
    const sluice_gate_spec *g = &l->gate;
    if (g->position == SLUICE_GATE_NONE) return s;
    if (g->position == SLUICE_GATE_OUTPUT) {
        s.gate_heads = 1;
        s.gate_width = config->hidden_size;
    } else {
        bool query_side = g->position == SLUICE_GATE_SDPA || g->position == SLUICE_GATE_QUERY;
        s.gate_heads = query_side ? l->num_attention_heads : l->num_key_value_heads;
        s.gate_width = g->granularity == SLUICE_GATE_ELEMENTWISE ? l->head_dim : 1;
    }
    s.gate_rows = g->input_none ? 0 : s.gate_heads * s.gate_width;
    return s;
}

/* Where the pointer to a slot stands in sluice__layer_weights; glued slots are reached through the first of
 * their group. */
static const struct {
    sluice__slot slot;
    size_t field;
} fields[] = {
    {SLUICE__SLOT_INPUT_NORM, offsetof(sluice__layer_weights, input_norm)},
    {SLUICE__SLOT_Q, offsetof(sluice__layer_weights, qkvg)},
    {SLUICE__SLOT_Q_BIAS, offsetof(sluice__layer_weights, qkv_bias)},
    {SLUICE__SLOT_GATE_PARAM, offsetof(sluice__layer_weights, gate_param)},
    {SLUICE__SLOT_Q_NORM, offsetof(sluice__layer_weights, q_norm)},
    {SLUICE__SLOT_K_NORM, offsetof(sluice__layer_weights, k_norm)},
    {SLUICE__SLOT_SDPA_NORM, offsetof(sluice__layer_weights, sdpa_norm)},
    {SLUICE__SLOT_O, offsetof(sluice__layer_weights, o_proj)},
    {SLUICE__SLOT_O_BIAS, offsetof(sluice__layer_weights, o_bias)},
    {SLUICE__SLOT_SINKS, offsetof(sluice__layer_weights, sinks)},
    {SLUICE__SLOT_MLP_GATE_BIAS, offsetof(sluice__layer_weights, gate_up_bias)},
    {SLUICE__SLOT_MLP_DOWN_BIAS, offsetof(sluice__layer_weights, down_bias)},
    {SLUICE__SLOT_ROUTER_BIAS, offsetof(sluice__layer_weights, router_bias)},
    {SLUICE__SLOT_SELECTION_BIAS, offsetof(sluice__layer_weights, selection_bias)},
    {SLUICE__SLOT_EXPERT_GATE_BIAS, offsetof(sluice__layer_weights, expert_gate_up_bias)},
    {SLUICE__SLOT_EXPERT_DOWN_BIAS, offsetof(sluice__layer_weights, expert_down_bias)},
    {SLUICE__SLOT_SHARED_GATE_BIAS, offsetof(sluice__layer_weights, shared_gate_up_bias)},
    {SLUICE__SLOT_SHARED_DOWN_BIAS, offsetof(sluice__layer_weights, shared_down_bias)},
    {SLUICE__SLOT_DELTA_Q, offsetof(sluice__layer_weights, delta_in)},
    {SLUICE__SLOT_DELTA_CONV_Q, offsetof(sluice__layer_weights, delta_conv)},
    {SLUICE__SLOT_DELTA_A_LOG, offsetof(sluice__layer_weights, delta_a_log)},
    {SLUICE__SLOT_DELTA_DT_BIAS, offsetof(sluice__layer_weights, delta_dt_bias)},
    {SLUICE__SLOT_DELTA_NORM, offsetof(sluice__layer_weights, delta_norm)},
    {SLUICE__SLOT_DELTA_OUT, offsetof(sluice__layer_weights, delta_out)},
    {SLUICE__SLOT_POST_SELF_ATTN_NORM, offsetof(sluice__layer_weights, post_self_attn_norm)},
    {SLUICE__SLOT_POST_ATTENTION_NORM, offsetof(sluice__layer_weights, post_attention_norm)},
    {SLUICE__SLOT_MLP_GATE, offsetof(sluice__layer_weights, gate_up)},
    {SLUICE__SLOT_MLP_UP, offsetof(sluice__layer_weights, gate_up)}, /* when there is no gate matrix */
    {SLUICE__SLOT_MLP_DOWN, offsetof(sluice__layer_weights, down)},
    {SLUICE__SLOT_ROUTER, offsetof(sluice__layer_weights, router)},
    {SLUICE__SLOT_EXPERT_GATE, offsetof(sluice__layer_weights, expert_gate_up)},
    {SLUICE__SLOT_EXPERT_DOWN, offsetof(sluice__layer_weights, expert_down)},
    {SLUICE__SLOT_SHARED_GATE, offsetof(sluice__layer_weights, shared_gate_up)},
    {SLUICE__SLOT_SHARED_DOWN, offsetof(sluice__layer_weights, shared_down)},
    {SLUICE__SLOT_SHARED_EXPERT_GATE, offsetof(sluice__layer_weights, shared_gate)},
    {SLUICE__SLOT_POST_MLP_NORM, offsetof(sluice__layer_weights, post_mlp_norm)},
};

static void bind_layer_tensor(sluice__layer_weights *w, sluice__slot slot, float *data) {
    if (slot == SLUICE__SLOT_MLP_UP && w->gate_up) return;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (fields[i].slot == slot) memcpy((char *)w + fields[i].field, &data, sizeof data);
}

void sluice__weights_bind(const sluice_model *model, float *flat, sluice__weights *out) {
    memset(out->layers, 0, (size_t)model->config.num_hidden_layers * sizeof *out->layers);
    out->embed_tokens = out->norm = out->lm_head = NULL;
    if (!flat) return;
    for (int i = 0; i < model->num_tensors; i++) {
        const sluice__tensor *t = &model->tensors[i];
        if (t->expert > 0 || t->offset < 0) continue; /* behind that of expert 0; outside */
        float *data = flat + t->offset;
        if (t->layer >= 0)
            bind_layer_tensor(&out->layers[t->layer], t->slot, data);
        else if (t->slot == SLUICE__SLOT_EMBED_TOKENS)
            out->embed_tokens = data;
        else if (t->slot == SLUICE__SLOT_NORM)
            out->norm = data;
        else
            out->lm_head = data;
    }
    if (!out->lm_head) out->lm_head = out->embed_tokens;
}

/* Where the stack that begins with a slot stands in sluice__layer_stacks. */
static const struct {
    sluice__slot slot;
    size_t field;
} stack_fields[] = {
    {SLUICE__SLOT_Q, offsetof(sluice__layer_stacks, qkvg)},
    {SLUICE__SLOT_O, offsetof(sluice__layer_stacks, o_proj)},
    {SLUICE__SLOT_DELTA_Q, offsetof(sluice__layer_stacks, delta_in)},
    {SLUICE__SLOT_DELTA_OUT, offsetof(sluice__layer_stacks, delta_out)},
    {SLUICE__SLOT_MLP_GATE, offsetof(sluice__layer_stacks, gate_up)},
    {SLUICE__SLOT_MLP_UP, offsetof(sluice__layer_stacks, gate_up)}, /* when there is no gate matrix */
    {SLUICE__SLOT_MLP_DOWN, offsetof(sluice__layer_stacks, down)},
    {SLUICE__SLOT_ROUTER, offsetof(sluice__layer_stacks, router)},
    {SLUICE__SLOT_EXPERT_GATE, offsetof(sluice__layer_stacks, expert_gate_up)},
    {SLUICE__SLOT_EXPERT_DOWN, offsetof(sluice__layer_stacks, expert_down)},
    {SLUICE__SLOT_SHARED_GATE, offsetof(sluice__layer_stacks, shared_gate_up)},
    {SLUICE__SLOT_SHARED_DOWN, offsetof(sluice__layer_stacks, shared_down)},
    {SLUICE__SLOT_SHARED_EXPERT_GATE, offsetof(sluice__layer_stacks, shared_gate)},
};

static void bind_stack(sluice__weights *w, const sluice__tensor *t, sluice__stack stack) {
    if (t->slot == SLUICE__SLOT_EMBED_TOKENS) w->embedding = w->head = stack;
    else if (t->slot == SLUICE__SLOT_LM_HEAD) w->head = stack;
    for (size_t i = 0; i < sizeof stack_fields / sizeof *stack_fields; i++)
        if (stack_fields[i].slot == t->slot)
            memcpy((char *)&w->layers[t->layer].stacks + stack_fields[i].field, &stack, sizeof stack);
}

/* Tensors that are glued follow each other, in the list as in memory. */
static void bind_stacks(const sluice_model *m, sluice__weights *w) {
    for (int i = 0, next; i < m->num_tensors; i = next) {
        next = i + 1;
        if (!m->matrices[i].data) continue;
        while (next < m->num_tensors && m->tensors[next].glued && m->matrices[next].data) next++;
        if (m->tensors[i].expert <= 0)
            bind_stack(w, &m->tensors[i], (sluice__stack){&m->matrices[i], next - i});
    }
}

void sluice__model_bind(sluice_model *m) {
    for (int i = 0; i < m->num_tensors; i++) {
        const sluice__tensor *t = &m->tensors[i];
        if (sluice__slot_kind_of(t->slot) == SLUICE__KIND_MATRIX && t->offset >= 0)
            m->matrices[i] = (sluice__matrix){
                .data = m->flat + t->offset, .rows = t->shape[0], .columns = t->shape[1], .type = SLUICE__WEIGHT_F32};
    }
    sluice__weights_bind(m, m->flat, &m->weights);
    bind_stacks(m, &m->weights);
}

bool sluice__model_is_as_stored(const sluice_model *model) {
    return model->as_stored;
}

const sluice__weights *sluice__model_weights(const sluice_model *model) {
    return &model->weights;
}

int64_t sluice__flat_size(const sluice_model *model) {
    return model->flat_size;
}

int64_t sluice__grad_offset(const sluice_model *model, int tensor) {
    return model->tensors[tensor].offset;
}

float *sluice__flat_params(sluice_model *model) {
    return model->flat;
}

/* ---- the object ---- */

static sluice_status check_memory(int64_t floats, sluice_error *err) {
    double bytes = (double)floats * sizeof(float), ram = (double)sluice__mem_physical();
    if (bytes <= ram) return SLUICE_OK;
    char need[32], have[32];
    return sluice__fail(err, SLUICE_ERR_MEMORY, "the weights take %s in fp32, this machine has %s of memory",
                        sluice__format_bytes(need, bytes), sluice__format_bytes(have, ram));
}

sluice_status sluice__model_alloc(sluice_model **out, sluice_config *config, bool as_stored, sluice_error *err) {
    *out = NULL;
    sluice_model *m = sluice__calloc(1, sizeof *m, SLUICE__MEM_OTHER);
    if (!m) {
        sluice_config_free(config);
        return sluice__no_memory(err, sizeof *m, "a model");
    }
    m->config = *config;
    m->as_stored = as_stored;
    *config = (sluice_config){0};
    sluice_status st =
        sluice__tensors_new(&m->tensors, &m->num_tensors, &m->flat_size, &m->config, !as_stored, err);
    if (st == SLUICE_OK) st = check_memory(m->flat_size, err);
    if (st == SLUICE_OK) {
        size_t layers = (size_t)m->config.num_hidden_layers;
        m->flat = sluice__calloc((size_t)m->flat_size, sizeof(float), SLUICE__MEM_WEIGHTS);
        m->weights.layers = sluice__calloc(layers, sizeof *m->weights.layers, SLUICE__MEM_OTHER);
        m->matrices = sluice__calloc((size_t)m->num_tensors, sizeof *m->matrices, SLUICE__MEM_OTHER);
        m->nonfinite = sluice__calloc((size_t)m->num_tensors, sizeof *m->nonfinite, SLUICE__MEM_OTHER);
        if (!m->flat || !m->weights.layers || !m->matrices || !m->nonfinite)
            st = sluice__no_memory(err, (size_t)m->flat_size * sizeof(float), "the weights");
    }
    if (st != SLUICE_OK) {
        sluice_model_free(m);
        return st;
    }
    if (!as_stored) sluice__model_bind(m);
    *out = m;
    return SLUICE_OK;
}

void sluice_model_free(sluice_model *m) {
    if (!m) return;
    sluice__tensors_free(m->tensors, m->num_tensors);
    sluice__free(m->flat);
    sluice__free(m->matrices);
    sluice__free(m->nonfinite);
    sluice__free(m->own);
    sluice__store_close(m->store);
    sluice__free(m->weights.layers);
    sluice_config_free(&m->config);
    sluice__free(m);
}

static void fill(float *x, int64_t count, float value) {
    for (int64_t i = 0; i < count; i++) x[i] = value;
}

/* The numbers depend on their index alone, so any number of threads makes the same. */
static void fill_normal(float *x, int64_t count, uint64_t seed, uint64_t stream, float sd) {
    enum { CHUNK = 1 << 14 };
#pragma omp parallel for schedule(static) if (count > CHUNK)
    for (int64_t first = 0; first < count; first += CHUNK) {
        int64_t n = count - first < CHUNK ? count - first : CHUNK;
        sluice__rng_fill_normal(x + first, n, seed, stream, first, 0.0F, sd);
    }
}

/* As transformers: dt_bias 1; exp(A_log) uniform in (0.01, 16). */
static void init_decay(float *x, const sluice__tensor *t, uint64_t seed) {
    sluice__rng rng = {.seed = seed, .stream = sluice__hash_text(t->name)};
    for (int64_t i = 0; i < t->count; i++)
        x[i] = t->slot == SLUICE__SLOT_DELTA_A_LOG ? (float)log(0.01 + 15.99 * sluice__rng_uniform(&rng)) : 1.0F;
}

static void init_tensor(const sluice_model *m, const sluice__tensor *t, uint64_t seed) {
    float *x = m->flat + t->offset;
    switch (sluice__slot_kind_of(t->slot)) {
    case SLUICE__KIND_NORM: fill(x, t->count, 1.0F); break;
    case SLUICE__KIND_MATRIX:
        fill_normal(x, t->count, seed, sluice__hash_text(t->name), (float)m->config.initializer_range);
        break;
    case SLUICE__KIND_CONV: /* the spread that PyTorch's Conv1d starts with */
        fill_normal(x, t->count, seed, sluice__hash_text(t->name), 1 / sqrtf(3 * (float)t->shape[1]));
        break;
    case SLUICE__KIND_DECAY: init_decay(x, t, seed); break;
    case SLUICE__KIND_BIAS:
    case SLUICE__KIND_GATE_PARAM: break; /* zero already */
    }
}

sluice_status sluice_model_new(sluice_model **out, const sluice_config *config, uint64_t seed,
                               sluice_error *err) {
    *out = NULL;
    sluice_config copy;
    SLUICE__TRY(sluice__config_check(config, err));
    SLUICE__TRY(sluice__config_copy(&copy, config, err));
    copy.norm = SLUICE_NORM_PLAIN;
    copy.gate_packing = SLUICE_GATE_OWN_TENSOR;
    SLUICE__TRY(sluice__model_alloc(out, &copy, false, err));
    for (int i = 0; i < (*out)->num_tensors; i++) init_tensor(*out, &(*out)->tensors[i], seed);
    return SLUICE_OK;
}

const sluice_config *sluice_model_config(const sluice_model *m) {
    return &m->config;
}

int sluice_model_num_tensors(const sluice_model *m) {
    return m->num_tensors;
}

sluice_tensor_info sluice_model_tensor(const sluice_model *m, int index) {
    const sluice__tensor *t = &m->tensors[index];
    return (sluice_tensor_info){.name = t->name,
                                .ndim = t->ndim,
                                .shape = {t->shape[0], t->ndim == 2 ? t->shape[1] : 1},
                                .count = t->count,
                                .data = t->offset < 0 ? NULL : m->flat + t->offset,
                                .nonfinite = m->nonfinite[index],
                                .weight_decay = sluice__slot_kind_of(t->slot) == SLUICE__KIND_MATRIX,
                                .hidden_matrix = sluice__slot_is_hidden_matrix(t->slot)};
}

int sluice_model_find_tensor(const sluice_model *m, const char *name) {
    for (int i = 0; i < m->num_tensors; i++)
        if (!strcmp(m->tensors[i].name, name)) return i;
    return -1;
}

void sluice_model_tensor_read(const sluice_model *m, int index, float *out) {
    const sluice__tensor *t = &m->tensors[index];
    if (m->matrices[index].data) sluice__matrix_widen(out, &m->matrices[index], 0, t->shape[0]);
    else memcpy(out, m->flat + t->offset, (size_t)t->count * sizeof *out);
}
