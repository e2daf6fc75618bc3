/* SPDX-License-Identifier: Apache-2.0 */
/* The values of a model: one pass over the files that copies row by row, in the order of the tensors. Norms stored as
 * w - 1 and gates packed into q_proj are taken apart here, so that the layers know one form only. A matrix of an
 * as-stored model whose rows lie in a mapped file as the model wants them is neither copied nor looked at; any other keeps
 * its type: rows of blocks are copied, other values pass through fp32, which holds 16-bit floats exactly. */
#include "base/memory.h"
#include "kernels/half.h"
#include "model/load.h"
#include "model/packing.h"
#include <string.h>

enum { ALIGN = 64 };

static bool is_q(sluice__slot slot) {
    return slot == SLUICE__SLOT_Q || slot == SLUICE__SLOT_Q_BIAS;
}

/* Tensors of the model stand in the order of the transfers, with gates between. */
static int target(const sluice__loader *l, sluice__slot slot, const sluice__transfer *x, int at) {
    const sluice__tensor *t = l->model->tensors;
    while (t[at].slot != slot || t[at].layer != x->layer || t[at].expert != x->expert) at++;
    return at;
}

void sluice__load_targets(sluice__loader *l) {
    int at = 0;
    for (int i = 0; i < l->num_transfers; i++) {
        sluice__transfer *x = &l->transfers[i];
        x->to = at = target(l, x->slot, x, at);
        x->gate = -1;
        if (is_q(x->slot) && sluice__packed_gate_rows(&l->config, &l->layout, x->layer))
            x->gate = target(l, x->slot == SLUICE__SLOT_Q ? SLUICE__SLOT_GATE : SLUICE__SLOT_GATE_BIAS, x, at);
    }
}

/* ---- where the matrices of an as-stored model are ---- */

/* Blocks that cannot stay blocks (value heads that move inside one) become halves, which hold what they lose by far. */
static sluice__weight_type type_of(sluice__dtype dtype) {
    sluice__quant quant;
    if (dtype == SLUICE__BF16) return SLUICE__WEIGHT_BF16;
    return dtype == SLUICE__F16 || sluice__dtype_quant(dtype, &quant) ? SLUICE__WEIGHT_F16 : SLUICE__WEIGHT_F32;
}

static bool is_matrix(const sluice__tensor *t) {
    return sluice__slot_kind_of(t->slot) == SLUICE__KIND_MATRIX;
}

/* The pages of the file that hold this matrix as it is wanted; NULL when it has to be copied. */
static const void *in_place(const sluice__loader *l, const sluice__transfer *x) {
    const sluice__store_tensor *from = sluice__store_at(l->store, x->source);
    const char *data = sluice__store_data(l->store, x->source);
    sluice__quant quant;
    if (!data || x->gate >= 0 || !sluice__view_is_dense(&x->view) || from->dtype == SLUICE__F64) return NULL;
    if (sluice__dtype_quant(from->dtype, &quant)) { /* blocks need no alignment */
        int block = sluice__dtype_block(from->dtype);
        bool whole = x->view.first % block == 0 && x->view.columns % block == 0;
        return whole ? data + sluice__dtype_bytes(from->dtype, x->view.first) : NULL;
    }
    int64_t size = sluice__dtype_size(from->dtype);
    return (uintptr_t)data % (uintptr_t)size ? NULL : data + x->view.first * size;
}

static size_t padded_bytes(const sluice__matrix *m) {
    return ((size_t)sluice__matrix_bytes(m, m->rows) + ALIGN - 1) / ALIGN * ALIGN;
}

static void describe(const sluice__loader *l, int tensor, const sluice__transfer *x) {
    const sluice__tensor *t = &l->model->tensors[tensor];
    sluice__dtype dtype = sluice__store_at(l->store, x->source)->dtype;
    sluice__matrix *m = &l->model->matrices[tensor];
    *m = (sluice__matrix){.rows = t->shape[0], .columns = t->shape[1], .type = type_of(dtype)};
    if (sluice__store_blocks(l->store, x->source, &m->quant)) m->type = SLUICE__WEIGHT_QUANT;
}

sluice_status sluice__load_place(sluice__loader *l, sluice_error *err) {
    sluice_model *m = l->model;
    size_t bytes = 0;
    for (int i = 0; i < l->num_transfers; i++) {
        sluice__transfer *x = &l->transfers[i];
        if (!is_matrix(&m->tensors[x->to])) continue;
        describe(l, x->to, x);
        if (x->gate >= 0) describe(l, x->gate, x);
        m->matrices[x->to].data = in_place(l, x);
        x->mapped = m->matrices[x->to].data;
        if (!x->mapped) bytes += padded_bytes(&m->matrices[x->to]);
        if (x->gate >= 0) bytes += padded_bytes(&m->matrices[x->gate]);
    }
    m->own = sluice__calloc(bytes, 1, SLUICE__MEM_WEIGHTS);
    if (!m->own) return sluice__no_memory(err, bytes, "the weights");
    size_t at = 0;
    for (int i = 0; i < m->num_tensors; i++) {
        sluice__matrix *x = &m->matrices[i];
        if (!x->rows || x->data) continue;
        x->data = m->own + at;
        at += padded_bytes(x);
    }
    return SLUICE_OK;
}

/* ---- rows into place ---- */

typedef struct sink {
    const sluice__loader *loader;
    sluice__transfer *transfer;
    const sluice__store_tensor *from;
    int64_t columns; /* of a row at its destination */
    bool one_plus;   /* a norm stored as w - 1 */
} sink;

static void narrow(void *to, sluice__weight_type type, const float *values, int64_t count) {
    uint16_t *half = to;
    if (type == SLUICE__WEIGHT_F32) memcpy(to, values, (size_t)count * sizeof *values);
    for (int64_t i = 0; type == SLUICE__WEIGHT_BF16 && i < count; i++) half[i] = sluice__float_to_brain(values[i]);
    for (int64_t i = 0; type == SLUICE__WEIGHT_F16 && i < count; i++) half[i] = sluice__float_to_half(values[i]);
}

/* Row r of a tensor of the model that is in memory of its own. */
static void *row_at(const sink *s, int tensor, int64_t r, sluice__weight_type *type) {
    const sluice_model *m = s->loader->model;
    const sluice__tensor *t = &m->tensors[tensor];
    *type = SLUICE__WEIGHT_F32;
    if (t->offset >= 0) return m->flat + t->offset + r * s->columns;
    const sluice__matrix *x = &m->matrices[tensor];
    *type = x->type;
    return m->own + ((const unsigned char *)x->data - m->own) + sluice__matrix_bytes(x, r);
}

static void put(const sink *s, int tensor, int64_t r, const float *values) {
    sluice__weight_type type;
    void *to = row_at(s, tensor, r, &type);
    narrow(to, type, values, s->columns);
}

/* Whether row r of the gate holds these values already. */
static bool holds(const sink *s, int tensor, int64_t r, const float *values) {
    sluice__weight_type type;
    const void *to = row_at(s, tensor, r, &type);
    if (type == SLUICE__WEIGHT_F32) return !memcmp(to, values, (size_t)s->columns * sizeof *values);
    const uint16_t *half = to;
    for (int64_t i = 0; i < s->columns; i++)
        if (half[i] != (type == SLUICE__WEIGHT_BF16 ? sluice__float_to_brain(values[i])
                                                    : sluice__float_to_half(values[i])))
            return false;
    return true;
}

static sluice_status put_packed(const sink *s, int64_t r, const float *values, sluice_error *err) {
    sluice__packed_row p = sluice__packed_row_of(&s->loader->config, &s->loader->layout, s->transfer->layer, r);
    int tensor = p.gate ? s->transfer->gate : s->transfer->to;
    if (p.repeat && !holds(s, tensor, p.row, values))
        return sluice__fail(
            err, SLUICE_ERR_FORMAT,
            "%s: tensor %s: row %lld differs from the gate row of its head, but config.json says "
            "gate_granularity headwise",
            s->from->file, s->from->name, (long long)r);
    if (!p.repeat) put(s, tensor, p.row, values);
    return SLUICE_OK;
}

static sluice_status put_row(void *user, int64_t r, const float *values, sluice_error *err) {
    sink *s = user;
    int64_t count = s->transfer->view.columns;
    s->transfer->nonfinite |= sluice__any_nonfinite(SLUICE__F32, values, count);
    if (s->transfer->gate >= 0 && s->columns == 1) { /* a bias: every element is a row */
        for (int64_t i = 0; i < count; i++) SLUICE__TRY(put_packed(s, i, values + i, err));
        return SLUICE_OK;
    }
    if (s->transfer->gate >= 0) return put_packed(s, r, values, err);
    put(s, s->transfer->to, r, values);
    if (!s->one_plus) return SLUICE_OK;
    float *norm = s->loader->model->flat + s->loader->model->tensors[s->transfer->to].offset;
    for (int64_t i = 0; i < count; i++) norm[i] += 1.0F;
    return SLUICE_OK;
}

/* A row of blocks into its place. */
static void put_blocks(void *user, int64_t r, const void *blocks) {
    sink *s = user;
    int tensor = s->transfer->to;
    if (s->transfer->gate >= 0) {
        sluice__packed_row p = sluice__packed_row_of(&s->loader->config, &s->loader->layout, s->transfer->layer, r);
        tensor = p.gate ? s->transfer->gate : s->transfer->to;
        if (p.repeat) return;
        r = p.row;
    }
    const sluice__matrix *m = &s->loader->model->matrices[tensor];
    sluice__weight_type type;
    s->transfer->nonfinite |= !sluice__quant_finite(m->quant, blocks, m->columns);
    memcpy(row_at(s, tensor, r, &type), blocks, (size_t)sluice__matrix_bytes(m, 1));
}

static sluice_status read_one(const sluice__loader *l, sluice__transfer *x, sluice_error *err) {
    sink s = {.loader = l, .transfer = x, .from = sluice__store_at(l->store, x->source), .columns = x->view.columns};
    if (x->mapped) return SLUICE_OK;
    if (l->model->as_stored && l->model->matrices[x->to].type == SLUICE__WEIGHT_QUANT)
        return sluice__store_read_blocks(l->store, x->source, &x->view, put_blocks, &s, err);
    if (x->gate >= 0 && x->slot == SLUICE__SLOT_Q_BIAS) s.columns = 1;
    bool plain = x->slot == SLUICE__SLOT_NORM && l->layout.family->plain_final_norm;
    s.one_plus = sluice__slot_is_one_plus(x->slot) && l->config.norm == SLUICE_NORM_ONE_PLUS && !plain;
    return sluice__store_read(l->store, x->source, &x->view, put_row, &s, err);
}

/* Tensors go to different places, so threads share them out, where the files can be read by several at once. Of
 * several errors the one of the first tensor is kept. */
sluice_status sluice__load_rows(sluice__loader *l, sluice_error *err) {
    int failed = l->num_transfers;
    sluice_status st = SLUICE_OK;
#pragma omp parallel for schedule(dynamic) if (sluice__store_is_mapped(l->store))
    for (int i = 0; i < l->num_transfers; i++) {
        sluice_error mine = {0};
        if (i > failed) continue;
        sluice_status one = read_one(l, &l->transfers[i], &mine);
        if (one == SLUICE_OK) continue;
#pragma omp critical(sluice_load_error)
        if (i < failed) {
            failed = i;
            st = one;
            if (err) *err = mine;
        }
    }
    return st;
}
