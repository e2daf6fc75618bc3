/* SPDX-License-Identifier: Apache-2.0 */
/* Saving a model directory: config.json and model.safetensors, each replaced in one step. */
#include "model/save.h"
#include "base/file.h"
#include "base/memory.h"
#include "model/model.h"
#include "model/safetensors.h"

static sluice_status write_weights(const sluice_model *m, const char *dir, sluice_error *err) {
    char *path = sluice__path_join(dir, "model.safetensors");
    sluice__st_tensor *tensors = sluice__calloc((size_t)m->num_tensors, sizeof *tensors, SLUICE__MEM_OTHER);
    sluice_status st = SLUICE_OK;
    if (!path || !tensors) st = sluice__no_memory(err, (size_t)m->num_tensors * sizeof *tensors, "the list of tensors");
    for (int i = 0; i < m->num_tensors && st == SLUICE_OK; i++) {
        const sluice__tensor *t = &m->tensors[i];
        tensors[i] = sluice__st_f32(t->name, m->flat + t->offset, t->ndim, t->shape);
    }
    if (st == SLUICE_OK) st = sluice__safetensors_write(path, tensors, m->num_tensors, NULL, err);
    sluice__free(tensors);
    sluice__free(path);
    return st;
}

sluice_status sluice_model_save(const sluice_model *model, const char *dir, sluice_save_layout layout, sluice_error *err) {
    (void)layout;
    json_t *config = sluice__config_to_native(&model->config);
    char *path = sluice__path_join(dir, "config.json");
    sluice_status st = config && path ? sluice__json_save(config, path, err) : sluice__no_memory(err, 4096, "config.json");
    json_decref(config);
    sluice__free(path);
    return st == SLUICE_OK ? write_weights(model, dir, err) : st;
}
