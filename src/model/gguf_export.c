/* SPDX-License-Identifier: Apache-2.0 */
/* From a model to the tensors of a GGUF file. Every row of the file is a row of some tensor of the model: packed gates,
 * interleaved rotary pairs and stacked experts are nothing but lists of rows, which is why any source that can be loaded
 * can be written, whatever its files looked like. */
#include "model/gguf_export.h"
#include "base/log.h"
#include "base/memory.h"
#include "kernels/matrix.h"
#include "model/gguf_metadata.h"
#include "model/gguf_model.h"
#include "model/gguf_neutral.h"
#include "model/packing.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct builder {
    sluice__gguf_export *e;
    sluice__type_fn type;
    void *user;
    int neutral; /* block, -1: none */
    sluice_error *err;
} builder;

static int find(const sluice_model *m, sluice__slot slot, int layer, int expert) {
    for (int i = 0; i < m->num_tensors; i++)
        if (m->tensors[i].slot == slot && m->tensors[i].layer == layer && m->tensors[i].expert == expert) return i;
    return -1;
}

static sluice__dtype stored_type(const sluice_model *m, int tensor) {
    const sluice__matrix *x = &m->matrices[tensor];
    if (!x->data || x->type == SLUICE__WEIGHT_F32) return SLUICE__F32;
    if (x->type == SLUICE__WEIGHT_F16) return SLUICE__F16;
    if (x->type == SLUICE__WEIGHT_BF16) return SLUICE__BF16;
    sluice__quant quant;
    for (int i = SLUICE__PLAIN_DTYPES; i < SLUICE__DTYPES; i++)
        if (sluice__dtype_quant((sluice__dtype)i, &quant) && quant == x->quant) return (sluice__dtype)i;
    return SLUICE__F32;
}

/* A new tensor of the file, with room for its rows. `rows`: those of the model; elements of a vector. Biases of experts are
 * vectors, one after the other. What stays F32 is told to the caller's choice as a vector. */
static sluice_status add(builder *b, const char *name, sluice__dtype like, bool matrix, int ndim, const int64_t *shape,
                         int64_t rows, sluice__export_tensor **out) {
    sluice__gguf_export *e = b->e;
    int64_t columns = matrix ? shape[ndim - 1] : 1, values = rows * columns;
    bool typed = sluice__gguf_is_typed(name, ndim, b->neutral);
    sluice__dtype dtype = typed ? b->type(b->user, name, like, rows, columns, true)
                                : b->type(b->user, name, SLUICE__F32, values, 1, false);
    sluice__export_tensor *more = sluice__realloc(e->tensors, (size_t)e->count + 1, sizeof *more, SLUICE__MEM_OTHER);
    if (!more) return sluice__no_memory(b->err, (size_t)e->count * sizeof *more, "the list of tensors");
    e->tensors = more;
    *out = &more[e->count];
    **out = (sluice__export_tensor){.columns = columns};
    (*out)->rows = sluice__calloc((size_t)rows, sizeof *(*out)->rows, SLUICE__MEM_OTHER);
    e->count++;
    if (!(*out)->rows || sluice__gguf_add_tensor(&e->writer, name, dtype, ndim, shape) < 0)
        return sluice__no_memory(b->err, (size_t)rows * sizeof *(*out)->rows, name);
    return SLUICE_OK;
}

static void full_name(char out[96], const builder *b, sluice__slot slot, int layer) {
    const char *name = sluice__gguf_slot_name(slot, b->e->arch);
    if (layer < 0) snprintf(out, 96, "%s", name);
    else snprintf(out, 96, "blk.%d.%s", layer, name);
}

/* The order in which files of the architecture hold the rows (or columns) of a tensor; see sluice__gguf_edit_source. */
static sluice__gguf_edit order_of(const builder *b, const sluice__tensor *t) {
    bool q = t->slot == SLUICE__SLOT_Q || t->slot == SLUICE__SLOT_Q_BIAS;
    bool k = t->slot == SLUICE__SLOT_K || t->slot == SLUICE__SLOT_K_BIAS;
    if (t->layer < 0) return (sluice__gguf_edit){0};
    const sluice_layer_spec *l = &b->e->model->config.layers[t->layer];
    if (!strcmp(b->e->arch, "llama") && (q || k))
        return (sluice__gguf_edit){SLUICE__EDIT_ROPE_PAIRS, q ? l->num_attention_heads : l->num_key_value_heads, l->head_dim,
                                   0, 0};
    const sluice_delta_spec *d = &l->delta;
    sluice__gguf_edit e = {SLUICE__EDIT_VALUE_HEADS, d->num_value_heads, d->value_head_dim, d->num_key_heads, 0};
    if (strncmp(b->e->arch, "qwen35", 6) || d->num_value_heads == d->num_key_heads) return (sluice__gguf_edit){0};
    switch (t->slot) {
    case SLUICE__SLOT_DELTA_V:
    case SLUICE__SLOT_DELTA_Z:
    case SLUICE__SLOT_DELTA_CONV_V: return e;
    case SLUICE__SLOT_DELTA_OUT: return e.kind = SLUICE__EDIT_VALUE_COLUMNS, e;
    case SLUICE__SLOT_DELTA_A:
    case SLUICE__SLOT_DELTA_B:
    case SLUICE__SLOT_DELTA_A_LOG:
    case SLUICE__SLOT_DELTA_DT_BIAS: return e.width = 1, e;
    default: return (sluice__gguf_edit){0};
    }
}

/* Rows of a tensor of the model into the file's rows from `first` on. */
static void put_rows(const builder *b, sluice__export_tensor *out, int tensor, int64_t first) {
    const sluice__tensor *t = &b->e->model->tensors[tensor];
    sluice__gguf_edit e = order_of(b, t);
    bool columns = e.kind == SLUICE__EDIT_VALUE_COLUMNS;
    if (columns) out->order = e;
    for (int64_t r = 0; r < t->shape[0]; r++)
        out->rows[first + (columns ? r : sluice__gguf_edit_source(&e, r))] = (sluice__export_row){tensor, r};
}

static sluice_status add_plain(builder *b, int tensor) {
    const sluice__tensor *t = &b->e->model->tensors[tensor];
    char name[96];
    sluice__export_tensor *out;
    full_name(name, b, t->slot, t->layer);
    int64_t shape[2] = {t->shape[0], t->ndim == 2 ? t->shape[1] : 1};
    SLUICE__TRY(add(b, name, stored_type(b->e->model, tensor), t->ndim == 2, t->ndim, shape, t->shape[0], &out));
    out->decay = t->slot == SLUICE__SLOT_DELTA_A_LOG;
    put_rows(b, out, tensor, 0);
    return SLUICE_OK;
}

/* q | k | v of linear attention, or the taps of its convolution, in one tensor. `tensor` is q; the others follow. */
static sluice_status add_joined(builder *b, int tensor) {
    const sluice_model *m = b->e->model;
    const sluice__tensor *t = &m->tensors[tensor];
    char name[96];
    sluice__export_tensor *out;
    full_name(name, b, t->slot, t->layer);
    int64_t shape[2] = {t[0].shape[0] + t[1].shape[0] + t[2].shape[0], t->shape[1]}, at = 0;
    SLUICE__TRY(add(b, name, stored_type(m, tensor), true, 2, shape, shape[0], &out));
    for (int i = 0; i < 3; i++) {
        put_rows(b, out, tensor + i, at);
        at += t[i].shape[0];
    }
    return SLUICE_OK;
}

/* b and a of each key head behind each other (Qwen3-Next). `tensor` is b; a follows. */
static sluice_status add_grouped(builder *b, int tensor) {
    const sluice_model *m = b->e->model;
    const sluice__tensor *t = &m->tensors[tensor];
    const sluice_delta_spec *d = &m->config.layers[t->layer].delta;
    char name[96];
    sluice__export_tensor *out;
    snprintf(name, sizeof name, "blk.%d.ssm_ba.weight", t->layer);
    int64_t shape[2] = {2 * t->shape[0], t->shape[1]}, each = d->num_value_heads / d->num_key_heads;
    SLUICE__TRY(add(b, name, stored_type(m, tensor), true, 2, shape, shape[0], &out));
    for (int64_t r = 0; r < shape[0]; r++)
        out->rows[r] = (sluice__export_row){tensor + (int)(r % (2 * each) / each), r / (2 * each) * each + r % each};
    return SLUICE_OK;
}

/* q_proj with gate rows behind the query rows of each head; a headwise gate's row is repeated. */
static sluice_status add_packed_q(builder *b, int q, int gate) {
    const sluice_model *m = b->e->model;
    const sluice__tensor *t = &m->tensors[q];
    const sluice_layer_spec *l = &m->config.layers[t->layer];
    const sluice__file_layout layout = {.gate_packing = SLUICE_GATE_Q_PER_HEAD,
                                        .gate_repeated = l->gate.granularity == SLUICE_GATE_HEADWISE};
    char name[96];
    sluice__export_tensor *out;
    full_name(name, b, t->slot, t->layer);
    int64_t rows = t->shape[0] + sluice__packed_gate_rows(&m->config, &layout, t->layer);
    int64_t shape[2] = {rows, t->ndim == 2 ? t->shape[1] : 1};
    SLUICE__TRY(add(b, name, stored_type(m, q), t->ndim == 2, t->ndim, shape, rows, &out));
    for (int64_t r = 0; r < rows; r++) {
        sluice__packed_row p = sluice__packed_row_of(&m->config, &layout, t->layer, r);
        out->rows[r] = (sluice__export_row){p.gate ? gate : q, p.row};
    }
    return SLUICE_OK;
}

/* One tensor of all experts. */
static sluice_status add_experts(builder *b, sluice__slot slot, int layer) {
    const sluice_model *m = b->e->model;
    int first = find(m, slot, layer, 0), experts = m->config.layers[layer].moe.num_experts;
    const sluice__tensor *t = &m->tensors[first];
    char name[96];
    sluice__export_tensor *out;
    full_name(name, b, slot, layer);
    int64_t shape[3] = {experts, t->shape[0], t->ndim == 2 ? t->shape[1] : 1}, rows = t->shape[0];
    SLUICE__TRY(add(b, name, stored_type(m, first), t->ndim == 2, t->ndim + 1, shape, experts * rows, &out));
    for (int e = 0; e < experts; e++) {
        int tensor = find(m, slot, layer, e);
        for (int64_t r = 0; r < rows; r++) out->rows[e * rows + r] = (sluice__export_row){tensor, r};
    }
    return SLUICE_OK;
}

static bool is_gate(sluice__slot slot) { return slot == SLUICE__SLOT_GATE || slot == SLUICE__SLOT_GATE_BIAS; }

static sluice_status add_tensor(builder *b, int tensor) {
    const sluice_model *m = b->e->model;
    const sluice__tensor *t = &m->tensors[tensor];
    bool q = t->slot == SLUICE__SLOT_Q || t->slot == SLUICE__SLOT_Q_BIAS;
    int gate = q ? find(m, t->slot == SLUICE__SLOT_Q ? SLUICE__SLOT_GATE : SLUICE__SLOT_GATE_BIAS, t->layer, -1) : -1;
    if (t->expert > 0 || is_gate(t->slot)) return SLUICE_OK;
    if (!sluice__gguf_slot_name(t->slot, b->e->arch))
        return sluice__fail(b->err, SLUICE_ERR_UNSUPPORTED, "GGUF files of %s have no tensor for %s", b->e->arch, t->name);
    if (t->expert == 0) return add_experts(b, t->slot, t->layer);
    switch (t->slot) {
    case SLUICE__SLOT_DELTA_K:
    case SLUICE__SLOT_DELTA_V:
    case SLUICE__SLOT_DELTA_CONV_K:
    case SLUICE__SLOT_DELTA_CONV_V: return SLUICE_OK; /* with the first of their tensor */
    case SLUICE__SLOT_DELTA_Q:
    case SLUICE__SLOT_DELTA_CONV_Q: return add_joined(b, tensor);
    case SLUICE__SLOT_DELTA_B:
        if (!strcmp(b->e->arch, "qwen3next")) return add_grouped(b, tensor);
        break;
    case SLUICE__SLOT_DELTA_A:
        if (!strcmp(b->e->arch, "qwen3next")) return SLUICE_OK;
        break;
    default: break;
    }
    return gate >= 0 ? add_packed_q(b, tensor, gate) : add_plain(b, tensor);
}

/* What llama3's RoPE divides each frequency by. */
static sluice_status add_frequencies(builder *b) {
    const sluice_rope_spec *rope = &b->e->model->config.layers[0].rope;
    int64_t half = rope->rotary_dim / 2;
    double attention, *inverse = sluice__calloc((size_t)half, sizeof *inverse, SLUICE__MEM_OTHER);
    float *values = sluice__calloc((size_t)half, sizeof *values, SLUICE__MEM_OTHER);
    sluice__export_tensor *out = NULL;
    sluice_status st = inverse && values ? SLUICE_OK : sluice__no_memory(b->err, (size_t)half * 8, "RoPE");
    if (st == SLUICE_OK) st = add(b, "rope_freqs.weight", SLUICE__F32, false, 1, &half, half, &out);
    if (st == SLUICE_OK) {
        sluice__rope_inv_freq(rope, 0, inverse, &attention);
        for (int64_t i = 0; i < half; i++)
            values[i] = (float)(pow(rope->theta, -2.0 * (double)i / rope->rotary_dim) / inverse[i]);
        out->values = values;
    } else {
        sluice__free(values);
    }
    sluice__free(inverse);
    return st;
}

/* ---- the neutral layer ---- */

static sluice_status add_neutral_tensor(builder *b, const sluice__neutral_tensor *t) {
    sluice__export_tensor *out;
    int64_t count = t->shape[0] * (t->ndim > 1 ? t->shape[1] : 1) * (t->ndim > 2 ? t->shape[2] : 1);
    int first = find(b->e->model, t->slot, 0, t->ndim > 2 ? 0 : -1);
    sluice__dtype like = first >= 0 ? stored_type(b->e->model, first) : SLUICE__F32;
    bool matrix = t->ndim > 1;
    SLUICE__TRY(add(b, t->name, like, matrix, t->ndim, t->shape, matrix ? count / t->shape[t->ndim - 1] : count, &out));
    out->constant = true;
    out->fill = t->fill;
    return SLUICE_OK;
}

static sluice_status add_neutral_layer(builder *b, const sluice_config *extended) {
    int layer = extended->num_hidden_layers - 1;
    b->neutral = layer;
    sluice__gguf_put_u32(&b->e->writer, SLUICE__GGUF_NEUTRAL_KEY, (uint32_t)layer);
    sluice__log(SLUICE_LOG_INFO,
                "every layer is softmax attention, but llama.cpp wants a recurrent one in %s: block %d is one that adds nothing "
                "(outputs of zero), and is left out when the file is read here",
                b->e->arch, layer);
    for (int slot = 0; slot < SLUICE__SLOTS; slot++) {
        sluice__neutral_tensor t;
        if (sluice__gguf_neutral_tensor(&t, extended, b->e->arch, (sluice__slot)slot)) SLUICE__TRY(add_neutral_tensor(b, &t));
    }
    return SLUICE_OK;
}

/* ---- the whole ---- */

static sluice_status put_config(builder *b, const sluice_config *config) {
    sluice_config extended;
    if (!sluice__gguf_needs_neutral(b->e->arch, config)) return sluice__gguf_put_config(&b->e->writer, b->e->arch, config, b->err);
    SLUICE__TRY(sluice__gguf_add_neutral(&extended, config, b->err));
    sluice_status st = sluice__gguf_put_config(&b->e->writer, b->e->arch, &extended, b->err);
    if (st == SLUICE_OK) st = add_neutral_layer(b, &extended);
    sluice__free(extended.layers);
    return st;
}

sluice_status sluice__gguf_export_new(sluice__gguf_export *out, const sluice_model *model, sluice__type_fn type, void *user,
                                  sluice_error *err) {
    *out = (sluice__gguf_export){.model = model};
    builder b = {out, type, user, -1, err};
    sluice_status st = sluice__gguf_choose_architecture(&out->arch, &model->config, err);
    if (st == SLUICE_OK) st = put_config(&b, &model->config);
    if (st == SLUICE_OK && model->config.layers[0].rope.type == SLUICE_ROPE_LLAMA3) st = add_frequencies(&b);
    for (int i = 0; i < model->num_tensors && st == SLUICE_OK; i++) st = add_tensor(&b, i);
    if (st != SLUICE_OK) sluice__gguf_export_free(out);
    return st;
}

void sluice__gguf_export_free(sluice__gguf_export *e) {
    for (int i = 0; i < e->count; i++) {
        sluice__free(e->tensors[i].rows);
        sluice__free(e->tensors[i].values);
    }
    sluice__free(e->tensors);
    sluice__gguf_writer_free(&e->writer);
    *e = (sluice__gguf_export){0};
}

/* A row in the order of the file. */
static void reorder(const sluice__gguf_edit *e, float *x, int64_t columns, float *scratch) {
    memcpy(scratch, x, (size_t)columns * sizeof *x);
    for (int64_t c = 0; c < columns; c++) x[sluice__gguf_edit_source(e, c)] = scratch[c];
}

static void model_row(const sluice_model *m, sluice__export_row at, int64_t columns, float *out) {
    const sluice__matrix *x = &m->matrices[at.tensor];
    if (x->data) sluice__matrix_widen(out, x, at.row, 1);
    else memcpy(out, m->flat + m->tensors[at.tensor].offset + at.row * columns, (size_t)columns * sizeof *out);
}

sluice_status sluice__gguf_export_rows(const sluice__gguf_export *e, int tensor, int64_t first, int64_t rows,
                                       float *values, sluice_error *err) {
    const sluice__export_tensor *t = &e->tensors[tensor];
    const sluice__gguf_new_tensor *shape = &e->writer.tensors[tensor];
    int64_t row = shape->shape[shape->ndim - 1], per_row = row / t->columns;
    if (t->constant) {
        for (int64_t i = 0; i < rows * row; i++) values[i] = t->fill;
        return SLUICE_OK;
    }
    if (t->values) {
        memcpy(values, t->values + first * row, (size_t)(rows * row) * sizeof *values);
        return SLUICE_OK;
    }
#pragma omp parallel for schedule(static) if (rows * row > 65536)
    for (int64_t r = 0; r < rows * per_row; r++)
        model_row(e->model, t->rows[first * per_row + r], t->columns, values + r * t->columns);
    for (int64_t i = 0; t->decay && i < rows * row; i++) values[i] = -expf(values[i]);
    if (t->order.kind == SLUICE__EDIT_NONE) return SLUICE_OK;
    float *scratch = sluice__calloc((size_t)row, sizeof *scratch, SLUICE__MEM_OTHER);
    if (!scratch) return sluice__no_memory(err, (size_t)row * sizeof *scratch, "a row");
    for (int64_t r = 0; r < rows; r++) reorder(&t->order, values + r * row, row, scratch);
    sluice__free(scratch);
    return SLUICE_OK;
}
