/* SPDX-License-Identifier: Apache-2.0 */
/* Saving a model directory: config.json, model.safetensors and, for our own class, its Python files. Every file
 * is replaced in one step, weights last, so that a directory with weights is complete. */
#include "model/save.h"
#include "base/asset.h"
#include "base/file.h"
#include "base/memory.h"
#include "kernels/half.h"
#include "model/model.h"
#include "model/packing.h"
#include "model/safetensors.h"
#include <string.h>

typedef struct writer {
    const sluice_model *model;
    sluice__file_layout layout;
    sluice__st_tensor
        *tensors; /* as they will be in the file; data holds the sluice__tensor that each comes from */
    char **names;
    int count;
    float *scratch; /* room for the tensor that has to be rewritten */
    bool brain;     /* stored as bfloat16 */
} writer;

/* Whether the tensor is stored in another form than it has in memory. */
static bool is_rewritten(const writer *w, const sluice__tensor *t) {
    if (sluice__slot_kind_of(t->slot) == SLUICE__KIND_NORM)
        return w->layout.family->norm == SLUICE_NORM_ONE_PLUS;
    bool q = t->slot == SLUICE__SLOT_Q || t->slot == SLUICE__SLOT_Q_BIAS;
    return q && sluice__packed_gate_rows(&w->model->config, &w->layout, t->layer) > 0;
}

static bool is_dropped(const writer *w, const sluice__tensor *t) {
    bool gate = t->slot == SLUICE__SLOT_GATE || t->slot == SLUICE__SLOT_GATE_BIAS;
    return gate && sluice__packed_gate_rows(&w->model->config, &w->layout, t->layer) > 0;
}

static sluice_status list_tensors(writer *w, sluice_error *err) {
    const sluice_model *m = w->model;
    int64_t largest = 0;
    w->tensors = sluice__calloc((size_t)m->num_tensors, sizeof *w->tensors, SLUICE__MEM_OTHER);
    w->names = sluice__calloc((size_t)m->num_tensors, sizeof *w->names, SLUICE__MEM_OTHER);
    if (!w->tensors || !w->names)
        return sluice__no_memory(err, (size_t)m->num_tensors * sizeof *w->tensors, "the list of tensors");
    for (int i = 0; i < m->num_tensors; i++) {
        const sluice__tensor *t = &m->tensors[i];
        if (is_dropped(w, t)) continue;
        int64_t shape[2] = {t->shape[0], t->shape[1]};
        if (t->slot == SLUICE__SLOT_Q || t->slot == SLUICE__SLOT_Q_BIAS)
            shape[0] += sluice__packed_gate_rows(&m->config, &w->layout, t->layer);
        char *name = w->names[w->count] =
            sluice__family_tensor_name(&w->layout, (sluice__place){t->slot, t->layer, t->expert});
        if (!name) return sluice__no_memory(err, 64, "a tensor name");
        sluice__st_tensor *out = &w->tensors[w->count++];
        *out = sluice__st_f32(name, NULL, t->ndim, shape);
        out->data = t;
        if (w->brain) out->dtype = SLUICE__BF16;
        if ((w->brain || is_rewritten(w, t)) && out->count > largest) largest = out->count;
    }
    w->scratch = sluice__calloc((size_t)largest, sizeof *w->scratch, SLUICE__MEM_OTHER);
    return w->scratch ? SLUICE_OK : sluice__no_memory(err, (size_t)largest * sizeof(float), "a tensor");
}

/* q_proj with its gate rows, which follow q_proj, k_proj and v_proj in memory. */
static void pack_q(const writer *w, const sluice__tensor *q, int64_t rows) {
    sluice__layer_sizes s = sluice__layer_sizes_of(&w->model->config, q->layer);
    int64_t columns = q->ndim == 2 ? q->shape[1] : 1;
    const float *queries = w->model->flat + q->offset,
                *gate = queries + (int64_t)(s.q_rows + s.k_rows + s.v_rows) * columns;
    for (int64_t r = 0; r < rows; r++) {
        sluice__packed_row p = sluice__packed_row_of(&w->model->config, &w->layout, q->layer, r);
        memcpy(w->scratch + r * columns, (p.gate ? gate : queries) + p.row * columns,
               (size_t)columns * sizeof(float));
    }
}

/* The tensor as floats, as it stands in the file. */
static const float *in_file_order(const writer *w, const sluice__st_tensor *out) {
    const sluice__tensor *t = out->data;
    const float *x = w->model->flat + t->offset;
    if (!is_rewritten(w, t)) return x;
    if (sluice__slot_kind_of(t->slot) != SLUICE__KIND_NORM)
        pack_q(w, t, out->shape[0]);
    else
        for (int64_t i = 0; i < t->count; i++) w->scratch[i] = x[i] - 1;
    return w->scratch;
}

/* count floats to bfloat16; `to` may be the first half of `from`. */
static void round_to_brain(void *to, const float *from, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        uint16_t half = sluice__float_to_brain(from[i]);
        memcpy((char *)to + (size_t)i * sizeof half, &half, sizeof half);
    }
}

static const void *produce(void *user, const sluice__st_tensor *out, sluice_error *err) {
    (void)err;
    writer *w = user;
    const float *x = in_file_order(w, out);
    if (!w->brain) return x;
    round_to_brain(w->scratch, x, out->count);
    return w->scratch;
}

static sluice_status write_weights(const sluice_model *m, const char *path, const sluice__target *target, bool brain,
                                   sluice_error *err) {
    writer w = {
        .model = m,
        .brain = brain,
        .layout = {.family = target->family, .gate_packing = target->family->gate_packing, .prefix = "model."}};
    w.layout.gate_repeated = w.layout.gate_packing == SLUICE_GATE_Q_PER_HEAD &&
                             m->config.layers[0].gate.granularity == SLUICE_GATE_HEADWISE;
    sluice_status st = list_tensors(&w, err);
    if (st == SLUICE_OK) st = sluice__safetensors_write_made(path, w.tensors, w.count, NULL, produce, &w, err);
    for (int i = 0; w.names && i < w.count; i++) sluice__free(w.names[i]);
    sluice__free(w.names);
    sluice__free(w.tensors);
    sluice__free(w.scratch);
    return st;
}

static sluice_status write_asset(const char *dir, const char *asset, const char *name, sluice_error *err) {
    const sluice__asset_entry *entry = sluice__asset(asset);
    char *path = sluice__path_join(dir, name);
    sluice_status st = entry && path ? sluice__write_file(path, entry->data, entry->size, err)
                                     : sluice__no_memory(err, 64, asset);
    sluice__free(path);
    return st;
}

static sluice_status write_python(const char *dir, sluice_error *err) {
    SLUICE__TRY(write_asset(dir, "python/configuration_sluice.py", "configuration_sluice.py", err));
    return write_asset(dir, "python/modeling_sluice.py", "modeling_sluice.py", err);
}

sluice_status sluice_model_save(const sluice_model *model, const char *dir, sluice_save_layout layout,
                                sluice_error *err) {
    return sluice_model_save_as(model, dir, layout, SLUICE_SAVE_FLOAT32, err);
}

sluice_status sluice_model_save_as(const sluice_model *model, const char *dir, sluice_save_layout layout,
                                   sluice_save_dtype dtype, sluice_error *err) {
    if (model->as_stored)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "a model loaded AS_STORED runs, but cannot be saved");
    SLUICE__TRY(sluice__config_check_writable(&model->config, err));
    const sluice__target *target = layout == SLUICE_SAVE_AUTO ? sluice__target_of(&model->config) : NULL;
    if (!target) target = &sluice__target_native;
    json_t *config = sluice__config_to_json(&model->config, target);
    char *config_path = sluice__path_join(dir, "config.json"),
         *weights_path = sluice__path_join(dir, "model.safetensors");
    sluice_status st = SLUICE_OK;
    if (!config || !config_path || !weights_path) st = sluice__no_memory(err, 4096, "config.json");
    bool brain = dtype == SLUICE_SAVE_BFLOAT16;
    if (st == SLUICE_OK && brain && json_object_set_new(config, "torch_dtype", json_string("bfloat16")) != 0)
        st = sluice__no_memory(err, 64, "config.json");
    if (st == SLUICE_OK) st = sluice__json_save(config, config_path, err);
    if (st == SLUICE_OK && target == &sluice__target_native) st = write_python(dir, err);
    if (st == SLUICE_OK) st = write_weights(model, weights_path, target, brain, err);
    json_decref(config);
    sluice__free(config_path);
    sluice__free(weights_path);
    return st;
}
