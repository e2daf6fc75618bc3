/* SPDX-License-Identifier: Apache-2.0 */
/* From a tensor of the model to a matrix inside a tensor of the file: names of the family, then offsets and strides
 * by its kind of storage. Everything follows from config.json; the loader compares it with what the file has. */
#include "model/file_view.h"
#include "base/memory.h"
#include "model/gguf_model.h"
#include "model/packing.h"
#include <string.h>

/* Name number `which` of a slot; NULL behind the last. */
static const char *name_at(const sluice__file_layout *layout, sluice__slot slot, int which,
                           sluice__storage *storage) {
    const sluice__tensor_name *names = layout->family->tensor_names;
    bool alone = false;
    for (int i = 0; names && names[i].name; i++)
        alone |= names[i].slot == slot && names[i].storage == SLUICE__ALONE;
    *storage = SLUICE__ALONE;
    if (!alone && which-- == 0) return sluice__slot_name(slot);
    for (int i = 0; names && names[i].name; i++) {
        if (names[i].slot != slot || which-- > 0) continue;
        *storage = names[i].storage;
        return names[i].name;
    }
    return NULL;
}

/* The whole name; that of a tensor which experts share is one of the layer. */
static char *full_name(const sluice__file_layout *layout, const char *name, sluice__place place,
                       sluice__storage storage) {
    static const char ours[] = "model.";
    if (storage != SLUICE__ALONE) place.expert = -1;
    if (layout->family == &sluice__gguf_names)
        return place.layer >= 0 ? sluice__asprintf("blk.%d.%s", place.layer, name) : sluice__strdup(name);
    if (place.layer >= 0) return sluice__tensor_name_in(layout->prefix, layout->family->experts, name, place);
    return strncmp(name, ours, sizeof ours - 1)
               ? sluice__strdup(name)
               : sluice__asprintf("%s%s", layout->prefix, name + sizeof ours - 1);
}

char *sluice__family_tensor_name(const sluice__file_layout *layout, sluice__place place) {
    sluice__storage storage;
    return full_name(layout, name_at(layout, place.slot, 0, &storage), place, SLUICE__ALONE);
}

static bool is_q(sluice__slot slot) {
    return slot == SLUICE__SLOT_Q || slot == SLUICE__SLOT_Q_BIAS;
}

/* As torch.nn.Conv1d keeps it: one input channel for every output channel. */
static void set_conv_shape(sluice__file_view *v, int64_t channels, int64_t taps) {
    v->ndim = 3;
    v->shape[0] = channels;
    v->shape[1] = 1;
    v->shape[2] = taps;
}

/* Rows of one key head (or of all, for DELTA_ROWS) in front of the slot's, those of the slot, and of all slots there. */
static void delta_rows(const sluice_delta_spec *d, sluice__slot slot, bool grouped, int64_t *before, int64_t *own,
                       int64_t *all) {
    int64_t heads = grouped ? d->num_value_heads / d->num_key_heads : d->num_value_heads;
    int64_t key = grouped ? d->key_head_dim : (int64_t)d->num_key_heads * d->key_head_dim, value = heads * d->value_head_dim;
    const int64_t sizes[] = {key, key, value, value};
    if (slot == SLUICE__SLOT_DELTA_B || slot == SLUICE__SLOT_DELTA_A) {
        *before = slot == SLUICE__SLOT_DELTA_A ? heads : 0;
        *own = heads;
        *all = 2 * heads;
        return;
    }
    int at = (int)(slot >= SLUICE__SLOT_DELTA_CONV_Q ? slot - SLUICE__SLOT_DELTA_CONV_Q : slot - SLUICE__SLOT_DELTA_Q);
    *before = *all = 0;
    for (int i = 0; i < at; i++) *before += sizes[i];
    for (int i = 0; i < (grouped ? 4 : 3); i++) *all += sizes[i];
    *own = sizes[at];
}

static void delta_view(sluice__file_view *v, const sluice_config *c, sluice__place place, sluice__storage storage,
                       int64_t columns) {
    const sluice_delta_spec *d = &c->layers[place.layer].delta;
    bool grouped = storage == SLUICE__DELTA_GROUPS;
    int64_t before, own, all, groups = grouped ? d->num_key_heads : 1;
    delta_rows(d, place.slot, grouped, &before, &own, &all);
    v->view.first = before * columns;
    if (grouped) v->view.block = own, v->view.block_stride = all * columns;
    v->ndim = 2;
    v->shape[0] = groups * all;
    v->shape[1] = columns;
    if (sluice__slot_kind_of(place.slot) == SLUICE__KIND_CONV) set_conv_shape(v, all, columns);
}

/* [rows, columns] (or [rows] with columns 0) is the tensor of the model. */
static void view_of(sluice__file_view *v, const sluice_config *c, sluice__place place, sluice__storage storage,
                    int64_t rows, int64_t columns) {
    int64_t experts = place.layer < 0 ? 0 : c->layers[place.layer].moe.num_experts, e = place.expert;
    bool vector = columns == 0, up = place.slot == SLUICE__SLOT_EXPERT_UP || place.slot == SLUICE__SLOT_EXPERT_UP_BIAS;
    if (vector) columns = rows, rows = 1;
    v->view = (sluice__view){.rows = rows, .columns = columns, .row_stride = columns, .column_stride = 1};
    v->shared = storage != SLUICE__ALONE;
    int64_t one = rows * columns;
    switch (storage) {
    case SLUICE__ALONE: break;
    case SLUICE__OF_EXPERTS: v->view.first = e * one; break;
    case SLUICE__GATE_THEN_UP: v->view.first = (2 * e + up) * one; break;
    case SLUICE__TRANSPOSED: v->view = (sluice__view){e * one, rows, columns, 1, rows, 0, 0}; break;
    case SLUICE__INTERLEAVED:
        v->view = vector ? (sluice__view){2 * e * one + up, 1, columns, 0, 2, 0, 0}
                         : (sluice__view){2 * e * one + up, rows, columns, 2, 2 * rows, 0, 0};
        break;
    case SLUICE__QKV_ROWS: {
        sluice__layer_sizes s = sluice__layer_sizes_of(c, place.layer);
        bool k = place.slot == SLUICE__SLOT_K, q = place.slot == SLUICE__SLOT_Q;
        v->view.first = columns * (q ? 0 : k ? s.q_rows : (int64_t)s.q_rows + s.k_rows);
        v->ndim = 2;
        v->shape[0] = (int64_t)s.q_rows + s.k_rows + s.v_rows;
        v->shape[1] = columns;
        return;
    }
    case SLUICE__DELTA_ROWS:
    case SLUICE__DELTA_GROUPS: delta_view(v, c, place, storage, columns); return;
    }
    if (sluice__slot_kind_of(place.slot) == SLUICE__KIND_CONV) {
        set_conv_shape(v, rows, columns);
        return;
    }
    int64_t twice = storage == SLUICE__GATE_THEN_UP || storage == SLUICE__INTERLEAVED ? 2 : 1;
    bool turned = storage == SLUICE__TRANSPOSED || storage == SLUICE__INTERLEAVED;
    int n = 0;
    if (v->shared) v->shape[n++] = experts;
    if (vector) v->shape[n++] = columns * twice;
    else if (turned) v->shape[n++] = columns, v->shape[n++] = rows * twice;
    else v->shape[n++] = rows * twice, v->shape[n++] = columns;
    v->ndim = n;
}

bool sluice__file_view_at(sluice__file_view *out, const sluice_config *config, const sluice__file_layout *layout,
                          sluice__place place, int which) {
    int64_t shape[2];
    sluice__storage storage;
    int ndim = sluice__slot_shape(config, place.layer, place.slot, shape);
    *out = (sluice__file_view){0};
    int64_t packed = place.layer < 0 ? 0 : sluice__packed_gate_rows(config, layout, place.layer);
    if (packed && (place.slot == SLUICE__SLOT_GATE || place.slot == SLUICE__SLOT_GATE_BIAS)) return false;
    if (place.slot == SLUICE__SLOT_GATE_BIAS && layout->family->gate_without_bias) return false; /* zeros */
    const char *name = ndim ? name_at(layout, place.slot, which, &storage) : NULL;
    if (!name) return false;
    if (is_q(place.slot)) shape[0] += packed;
    view_of(out, config, place, storage, shape[0], ndim == 2 ? shape[1] : 0);
    if (layout->family == &sluice__gguf_names && sluice__slot_kind_of(place.slot) == SLUICE__KIND_CONV) {
        out->ndim = 2; /* without the dimension of one input channel */
        out->shape[1] = out->shape[2];
    }
    out->name = full_name(layout, name, place, storage);
    return true;
}
