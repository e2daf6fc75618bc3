/* SPDX-License-Identifier: Apache-2.0 */
/* To a Hugging Face directory. Tensors keep their names and shapes when they come from one; from a GGUF file each gets the
 * name that its family uses, its rows back in order, and norms of the 1+w flavour lose their 1. Several files with an index
 * are written when a size for them is given. */
#include "model/convert.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "model/family.h"
#include "model/gguf_model.h"
#include "model/gguf_write.h"
#include "model/store.h"
#include "sluice/tokenizer.h"
#include <dirent.h>
#include <stdio.h>
#include <string.h>

/* A tensor of the target. */
typedef struct piece {
    sluice__st_tensor out;
    char *name;
    int source;         /* in the store */
    sluice__view view;  /* of it */
    bool one_plus;      /* stored as w - 1 */
    int file;
} piece;

typedef struct plan {
    sluice__conversion *c;
    sluice__store *store;
    piece *pieces;
    int count, files;
    void *bytes; /* of the tensor that is being written */
    size_t room;
    int done;
} plan;

static sluice_status add_piece(plan *p, const char *name, int source, int ndim, const int64_t *shape, const sluice__view *view,
                               bool one_plus, sluice_error *err) {
    const sluice__store_tensor *t = sluice__store_at(p->store, source);
    piece *more = sluice__realloc(p->pieces, (size_t)p->count + 1, sizeof *more, SLUICE__MEM_OTHER);
    if (!more) return sluice__no_memory(err, (size_t)p->count * sizeof *more, "the list of tensors");
    p->pieces = more;
    piece *x = &more[p->count];
    *x = (piece){.name = sluice__strdup(name), .source = source, .view = *view, .one_plus = one_plus};
    if (!x->name) return sluice__no_memory(err, strlen(name), "a tensor name");
    p->count++;
    int64_t count = view->rows * view->columns;
    x->out = (sluice__st_tensor){.name = x->name, .dtype = t->dtype, .ndim = ndim, .count = count};
    memcpy(x->out.shape, shape, (size_t)ndim * sizeof *shape);
    if (sluice__dtype_is_weight(t->dtype)) {
        x->out.dtype = sluice__conversion_type(p->c, name, t->dtype, view->rows, view->columns, ndim > 1);
        return SLUICE_OK;
    }
    if (!sluice__store_data(p->store, source))
        return sluice__fail(err, SLUICE_ERR_UNSUPPORTED, "%s: tensor %s: type %s cannot be converted", t->file, t->name,
                            sluice__dtype_name(t->dtype));
    p->c->tensors_of[t->dtype]++;
    p->c->result->tensors++;
    return SLUICE_OK;
}

/* ---- values ---- */

typedef struct sink {
    float *to;
    const piece *x;
} sink;

static sluice_status put_row(void *user, int64_t r, const float *values, sluice_error *err) {
    const sink *s = user;
    (void)err;
    int64_t columns = s->x->view.columns;
    float *to = s->to + r * columns;
    for (int64_t i = 0; i < columns; i++) to[i] = values[i] - (s->x->one_plus ? 1.0F : 0.0F);
    return SLUICE_OK;
}

static bool grow(plan *p, size_t size) {
    if (size <= p->room) return true;
    sluice__free(p->bytes);
    p->bytes = sluice__calloc(size, 1, SLUICE__MEM_OTHER);
    p->room = p->bytes ? size : 0;
    return p->bytes;
}

static const void *produce(void *user, const sluice__st_tensor *out, sluice_error *err) {
    plan *p = user;
    int index = 0;
    while (strcmp(p->pieces[index].name, out->name)) index++;
    const piece *x = &p->pieces[index];
    sluice__progress_update(&p->c->progress, p->done++, "%s", "");
    const sluice__store_tensor *t = sluice__store_at(p->store, x->source);
    const char *data = sluice__store_data(p->store, x->source);
    if (data && t->dtype == out->dtype && !x->one_plus && sluice__view_is_dense(&x->view))
        return data + sluice__dtype_bytes(t->dtype, x->view.first);
    float *values = sluice__calloc((size_t)out->count, sizeof *values, SLUICE__MEM_OTHER);
    size_t size = (size_t)sluice__dtype_bytes(out->dtype, out->count);
    sink s = {.to = values, .x = x};
    if (!values || !grow(p, size)) sluice__no_memory(err, (size_t)out->count * sizeof *values, out->name);
    else if (sluice__store_read(p->store, x->source, &x->view, put_row, &s, err) == SLUICE_OK) {
        sluice__encode(p->bytes, out->dtype, values, out->count);
        sluice__free(values);
        return p->bytes;
    }
    sluice__free(values);
    return NULL;
}

/* ---- files ---- */

/* Deals tensors out in their order; a file holds at least one. */
static void deal(plan *p) {
    int64_t used = 0, most = p->c->params->max_shard_size;
    p->files = 1;
    for (int i = 0; i < p->count; i++) {
        int64_t size = sluice__dtype_bytes(p->pieces[i].out.dtype, p->pieces[i].out.count);
        if (most && used && used + size > most) p->files++, used = 0;
        used += size;
        p->pieces[i].file = p->files - 1;
    }
}

static void file_name(char out[64], const plan *p, int file) {
    if (p->files == 1) snprintf(out, 64, "model.safetensors");
    else snprintf(out, 64, "model-%05d-of-%05d.safetensors", file + 1, p->files);
}

static sluice_status write_index(const plan *p, const char *dir, sluice_error *err) {
    json_t *map = json_object();
    for (int i = 0; i < p->count; i++) {
        char name[64];
        file_name(name, p, p->pieces[i].file);
        json_object_set_new(map, p->pieces[i].name, json_string(name));
    }
    json_t *root = json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)p->c->result->bytes, "weight_map", map);
    char *path = sluice__path_join(dir, "model.safetensors.index.json");
    sluice_status st = root && path ? sluice__json_save(root, path, err) : sluice__no_memory(err, 4096, "the index");
    json_decref(root);
    sluice__free(path);
    return st;
}

static sluice_status write_one(plan *p, const char *dir, int file, sluice_error *err) {
    char name[64];
    file_name(name, p, file);
    char *path = sluice__path_join(dir, name);
    sluice__st_tensor *list = sluice__calloc((size_t)p->count, sizeof *list, SLUICE__MEM_OTHER);
    int n = 0;
    for (int i = 0; list && i < p->count; i++)
        if (p->pieces[i].file == file) list[n++] = p->pieces[i].out;
    sluice_status st = list && path ? sluice__safetensors_write_made(path, list, n, NULL, produce, p, err)
                                    : sluice__no_memory(err, (size_t)p->count * sizeof *list, name);
    sluice__free(path);
    sluice__free(list);
    return st;
}

static sluice_status write_weights(plan *p, const char *dir, sluice_error *err) {
    sluice_status st = SLUICE_OK;
    deal(p);
    sluice__progress_begin(&p->c->progress, "converting", "tensors", p->count, 0, 1);
    for (int f = 0; f < p->files && st == SLUICE_OK; f++) st = write_one(p, dir, f, err);
    if (st == SLUICE_OK && p->files > 1) st = write_index(p, dir, err);
    sluice__progress_end(&p->c->progress, "%s", st == SLUICE_OK ? "done" : "failed");
    return st;
}

static void end_plan(plan *p) {
    for (int i = 0; i < p->count; i++) sluice__free(p->pieces[i].name);
    sluice__free(p->pieces);
    sluice__free(p->bytes);
    sluice__store_close(p->store);
}

/* ---- from a directory ---- */

/* What stands beside the weights: configurations, tokenizers, templates, code. */
static bool is_companion(const char *name) {
    static const char *const tails[] = {".json", ".txt", ".jinja", ".py", ".model", ".md", NULL};
    size_t n = strlen(name);
    if (name[0] == '.' || strstr(name, ".index.json") || !strcmp(name, "config.json")) return false;
    for (int i = 0; tails[i]; i++)
        if (n > strlen(tails[i]) && !strcmp(name + n - strlen(tails[i]), tails[i])) return true;
    return !strcmp(name, "LICENSE");
}

static sluice_status copy_companions(const char *from, const char *to, sluice_error *err) {
    DIR *dir = opendir(from);
    sluice_status st = dir ? SLUICE_OK : sluice__fail(err, SLUICE_ERR_IO, "%s: cannot be listed", from);
    for (struct dirent *e; st == SLUICE_OK && (e = readdir(dir));) {
        char *source = sluice__path_join(from, e->d_name), *target = sluice__path_join(to, e->d_name);
        sluice__map map = {0};
        if (!source || !target) st = sluice__no_memory(err, 256, "a path");
        else if (is_companion(e->d_name) && sluice__is_file(source)) {
            st = sluice__map_open(&map, source, err);
            if (st == SLUICE_OK) st = sluice__write_file(target, map.data, map.size, err);
            sluice__map_close(&map);
        }
        sluice__free(source);
        sluice__free(target);
    }
    if (dir) closedir(dir);
    return st;
}

static const char *torch_name(sluice__dtype dtype) {
    return dtype == SLUICE__F16 ? "float16" : dtype == SLUICE__BF16 ? "bfloat16" : "float32";
}

/* The configuration of the source with the new element type where it names one. */
static sluice_status save_config(const sluice__conversion *c, json_t *root, const char *to, sluice_error *err) {
    static const char *const keys[] = {"torch_dtype", "dtype"};
    json_t *text = json_object_get(root, "text_config");
    bool named = false;
    for (int i = 0; i < 2 && c->typed; i++) {
        named |= json_object_get(root, keys[i]) != NULL;
        if (json_object_get(root, keys[i])) json_object_set_new(root, keys[i], json_string(torch_name(c->dtype)));
        if (json_object_get(text, keys[i])) json_object_set_new(text, keys[i], json_string(torch_name(c->dtype)));
    }
    if (c->typed && !named) json_object_set_new(root, "dtype", json_string(torch_name(c->dtype)));
    char *path = sluice__path_join(to, "config.json");
    sluice_status st = path ? sluice__json_save(root, path, err) : sluice__no_memory(err, 64, "a path");
    sluice__free(path);
    return st;
}

sluice_status sluice__convert_hf_to_hf(sluice__conversion *c, const char *temporary, sluice_error *err) {
    plan p = {.c = c};
    json_t *root = NULL;
    char *config = sluice__path_join(c->from, "config.json");
    sluice_status st = config ? sluice__json_load(&root, config, err) : sluice__no_memory(err, 64, "a path");
    if (st == SLUICE_OK) st = sluice__store_open(&p.store, c->from, err);
    for (int i = 0; st == SLUICE_OK && i < sluice__store_count(p.store); i++) {
        const sluice__store_tensor *t = sluice__store_at(p.store, i);
        sluice__view view = sluice__view_of(t->ndim, t->shape);
        st = add_piece(&p, t->name, i, t->ndim, t->shape, &view, false, err);
    }
    if (st == SLUICE_OK) st = copy_companions(c->from, temporary, err);
    if (st == SLUICE_OK) st = save_config(c, root, temporary, err);
    if (st == SLUICE_OK) st = write_weights(&p, temporary, err);
    json_decref(root);
    sluice__free(config);
    end_plan(&p);
    return st;
}

/* ---- from GGUF ---- */

static bool is_expert(sluice__slot slot) {
    return slot == SLUICE__SLOT_EXPERT_GATE || slot == SLUICE__SLOT_EXPERT_UP || slot == SLUICE__SLOT_EXPERT_DOWN;
}

static sluice_status add_experts(plan *p, const sluice__file_layout *hf, const sluice__store_tensor *t, int source,
                                 sluice__place place, sluice_error *err) {
    if (t->ndim != 3)
        return sluice__fail(err, SLUICE_ERR_FORMAT, "%s: tensor %s: expected three dimensions", t->file, t->name);
    for (int64_t e = 0; e < t->shape[0]; e++) {
        place.expert = (int)e;
        char *name = sluice__family_tensor_name(hf, place);
        sluice__view view = {.first = e * t->shape[1] * t->shape[2],
                             .rows = t->shape[1],
                             .columns = t->shape[2],
                             .row_stride = t->shape[2],
                             .column_stride = 1};
        sluice_status st = name ? add_piece(p, name, source, 2, t->shape + 1, &view, false, err)
                                : sluice__no_memory(err, 64, "a tensor name");
        sluice__free(name);
        if (st != SLUICE_OK) return st;
    }
    return SLUICE_OK;
}

static sluice_status add_from_gguf(plan *p, const sluice__file_layout *hf, const sluice_config *config, int source,
                                   sluice_error *err) {
    const sluice__store_tensor *t = sluice__store_at(p->store, source);
    sluice__place place = {.expert = -1};
    sluice__storage storage = SLUICE__ALONE;
    if (!strcmp(t->name, "rope_freqs.weight")) return SLUICE_OK; /* in the configuration */
    if (!sluice__gguf_slot_of(t->name, config, &place.slot, &storage, &place.layer))
        return sluice__fail(err, SLUICE_ERR_UNSUPPORTED, "%s: tensor %s has no counterpart in %s", t->file, t->name,
                            hf->family->name);
    if (is_expert(place.slot)) return add_experts(p, hf, t, source, place, err);
    char *name = sluice__family_name_stored(hf, place, storage);
    if (!name)
        return sluice__fail(err, SLUICE_ERR_UNSUPPORTED, "%s: tensor %s is stored in another way in %s", t->file, t->name,
                            hf->family->name);
    bool one_plus = hf->family->norm == SLUICE_NORM_ONE_PLUS && sluice__slot_is_one_plus(place.slot);
    sluice__view view = sluice__view_of(t->ndim, t->shape);
    int64_t conv[3] = {t->shape[0], 1, t->shape[1]}; /* as torch.nn.Conv1d keeps it */
    bool is_conv = sluice__slot_kind_of(place.slot) == SLUICE__KIND_CONV;
    sluice_status st = add_piece(p, name, source, is_conv ? 3 : t->ndim, is_conv ? conv : t->shape, &view, one_plus, err);
    sluice__free(name);
    return st;
}

static sluice_status write_tokenizer(const char *from, const char *to, sluice_error *err) {
    sluice_tokenizer *tok;
    sluice_error why = {0};
    sluice__gguf *g;
    SLUICE__TRY(sluice__gguf_open(&g, from, err));
    sluice__gguf_text model;
    const sluice__gguf_value *v = sluice__gguf_find(g, "tokenizer.ggml.model");
    bool none = !sluice__gguf_string(v, &model) || (model.size == 4 && !memcmp(model.data, "none", 4));
    sluice__gguf_close(g);
    if (none) return SLUICE_OK;
    sluice_status st = sluice_tokenizer_load(&tok, from, &why);
    if (st != SLUICE_OK) {
        if (err) *err = why;
        return st;
    }
    st = sluice_tokenizer_save(tok, to, err);
    sluice_tokenizer_free(tok);
    return st;
}

sluice_status sluice__convert_gguf_to_hf(sluice__conversion *c, const char *temporary, sluice_error *err) {
    plan p = {.c = c};
    json_t *root = NULL;
    sluice_config config = {0};
    sluice__file_layout hf;
    sluice_status st = sluice__store_open(&p.store, c->from, err);
    if (st == SLUICE_OK) st = sluice__gguf_config_json(&root, sluice__store_gguf(p.store), err);
    sluice__json view = sluice__json_view(root, c->from);
    if (st == SLUICE_OK) st = sluice__config_read(&config, &hf, &view, err);
    for (int i = 0; st == SLUICE_OK && i < sluice__store_count(p.store); i++) st = add_from_gguf(&p, &hf, &config, i, err);
    if (st == SLUICE_OK) st = write_tokenizer(c->from, temporary, err);
    if (st == SLUICE_OK) st = save_config(c, root, temporary, err);
    if (st == SLUICE_OK) st = write_weights(&p, temporary, err);
    sluice_config_free(&config);
    json_decref(root);
    end_plan(&p);
    return st;
}
