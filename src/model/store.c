/* SPDX-License-Identifier: Apache-2.0 */
/* Finding the weight files of a directory, in the order of transformers: one safetensors file, its shards, one
 * pytorch_model.bin, its shards; at last weights.safetensors. An index may name plain files of its own
 * directory only. */
#include "model/store.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "model/gguf_model.h"
#include "sluice/model.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SHARDS = 4096 };

/* One of them is set. */
typedef struct source {
    sluice__safetensors *safe;
    sluice__torch_bin *bin;
    sluice__gguf *gguf;
} source;

struct sluice__store {
    source *files;
    int num_files;
    sluice__store_tensor *tensors; /* sorted by name */
    int count;
};

static const char *path_of(const source *f) {
    if (f->gguf) return sluice__gguf_path(f->gguf);
    return f->safe ? sluice__safetensors_path(f->safe) : sluice__torch_bin_path(f->bin);
}

static int count_of(const source *f) {
    if (f->gguf) return sluice__gguf_num_tensors(f->gguf);
    return f->safe ? sluice__safetensors_count(f->safe) : sluice__torch_bin_count(f->bin);
}

static bool ends_with(const char *text, const char *tail) {
    size_t n = strlen(text), m = strlen(tail);
    return n >= m && !strcmp(text + n - m, tail);
}

static sluice_status add_file(sluice__store *s, const char *path, sluice_error *err) {
    source *files = sluice__realloc(s->files, (size_t)s->num_files + 1, sizeof *files, SLUICE__MEM_OTHER);
    if (!files) return sluice__no_memory(err, sizeof *files, path);
    s->files = files;
    source *f = &files[s->num_files];
    if (ends_with(path, ".safetensors"))
        SLUICE__TRY(sluice__safetensors_open(&f->safe, path, err));
    else if (sluice__is_gguf(path))
        SLUICE__TRY(sluice__gguf_open(&f->gguf, path, err));
    else
        SLUICE__TRY(sluice__torch_bin_open(&f->bin, path, err));
    s->num_files++;
    return SLUICE_OK;
}

static int by_name(const void *a, const void *b) {
    const sluice__store_tensor *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : x->source - y->source;
}

static sluice__store_tensor tensor_of(const source *f, int index, int entry) {
    sluice__store_tensor out = {.file = path_of(f), .source = index, .entry = entry};
    if (f->gguf) {
        const sluice__gguf_tensor *t = sluice__gguf_tensor_at(f->gguf, entry);
        out.name = t->name, out.dtype = t->dtype, out.ndim = t->ndim, out.count = t->count;
        memcpy(out.shape, t->shape, sizeof t->shape);
    } else if (f->safe) {
        const sluice__st_tensor *t = sluice__safetensors_at(f->safe, entry);
        out.name = t->name, out.dtype = t->dtype, out.ndim = t->ndim, out.count = t->count;
        memcpy(out.shape, t->shape, sizeof out.shape);
    } else {
        const sluice__bin_tensor *t = sluice__torch_bin_at(f->bin, entry);
        out.name = t->name, out.dtype = t->dtype, out.ndim = t->ndim, out.count = t->count;
        memcpy(out.shape, t->shape, sizeof out.shape);
    }
    return out;
}

/* Gathers the tensors of all files. A name in two files is one tensor stored twice or a damaged set: refused.
 */
static sluice_status collect(sluice__store *s, sluice_error *err) {
    size_t room = 0;
    for (int i = 0; i < s->num_files; i++) room += (size_t)count_of(&s->files[i]);
    s->tensors = sluice__calloc(room, sizeof *s->tensors, SLUICE__MEM_OTHER);
    if (!s->tensors) return sluice__no_memory(err, room * sizeof *s->tensors, "the list of tensors");
    for (int i = 0; i < s->num_files; i++)
        for (int j = 0; j < count_of(&s->files[i]); j++) s->tensors[s->count++] = tensor_of(&s->files[i], i, j);
    qsort(s->tensors, (size_t)s->count, sizeof *s->tensors, by_name);
    for (int i = 1; i < s->count; i++)
        if (!strcmp(s->tensors[i].name, s->tensors[i - 1].name))
            return sluice__fail(err, SLUICE_ERR_FORMAT, "%s: tensor %s is also in %s", s->tensors[i].file,
                                s->tensors[i].name, s->tensors[i - 1].file);
    return SLUICE_OK;
}

static bool opened(const sluice__store *s, const char *path) {
    for (int i = 0; i < s->num_files; i++)
        if (!strcmp(path_of(&s->files[i]), path)) return true;
    return false;
}

static sluice_status add_shard(sluice__store *s, const char *dir, const char *index, const char *tensor,
                               json_t *name, sluice_error *err) {
    const char *file = json_string_value(name);
    if (!file || !*file || strchr(file, '/') || strlen(file) != json_string_length(name) ||
        !strcmp(file, "..") || !strcmp(file, "."))
        return sluice__fail(err, SLUICE_ERR_FORMAT,
                            "%s: weight_map: %.200s: expected the name of a file beside the index", index,
                            tensor);
    char *path = sluice__path_join(dir, file);
    if (!path) return sluice__no_memory(err, strlen(file), "a path");
    sluice_status st = SLUICE_OK;
    if (!opened(s, path))
        st = s->num_files < MAX_SHARDS
                 ? add_file(s, path, err)
                 : sluice__fail(err, SLUICE_ERR_FORMAT, "%s: more than %d shards", index, MAX_SHARDS);
    sluice__free(path);
    return st;
}

/* Every tensor that the index promises must be in the file that it names. */
static sluice_status check_index(const sluice__store *s, const char *index, json_t *map, sluice_error *err) {
    const char *tensor;
    json_t *name;
    json_object_foreach(map, tensor, name) {
        int i = sluice__store_find(s, tensor);
        const char *file = i < 0 ? NULL : strrchr(s->tensors[i].file, '/');
        if (i < 0 || strcmp(file ? file + 1 : s->tensors[i].file, json_string_value(name)))
            return sluice__fail(err, SLUICE_ERR_FORMAT, "%s: tensor %s is not in %s", index, tensor,
                                json_string_value(name));
    }
    return SLUICE_OK;
}

static sluice_status open_shards(sluice__store *s, const char *dir, const char *index, sluice_error *err) {
    json_t *root;
    SLUICE__TRY(sluice__json_load(&root, index, err));
    json_t *map = json_object_get(root, "weight_map"), *name;
    const char *tensor;
    sluice_status st = SLUICE_OK;
    if (!json_object_size(map))
        st = sluice__fail(err, SLUICE_ERR_FORMAT,
                          "%s: weight_map: expected an object that names a file for every tensor", index);
    json_object_foreach(map, tensor, name) {
        if (st == SLUICE_OK) st = add_shard(s, dir, index, tensor, name, err);
    }
    if (st == SLUICE_OK) st = collect(s, err);
    if (st == SLUICE_OK) st = check_index(s, index, map, err);
    json_decref(root);
    return st;
}

static sluice_status open_single(sluice__store *s, const char *dir, const char *path, sluice_error *err) {
    (void)dir;
    SLUICE__TRY(add_file(s, path, err));
    return collect(s, err);
}

static const struct {
    const char *name;
    sluice_status (*open)(sluice__store *s, const char *dir, const char *path, sluice_error *err);
} candidates[] = {
    {"model.safetensors", open_single},   {"model.safetensors.index.json", open_shards},
    {"pytorch_model.bin", open_single},   {"pytorch_model.bin.index.json", open_shards},
    {"weights.safetensors", open_single},
};

static sluice_status open_directory(sluice__store *s, const char *dir, sluice_error *err) {
    sluice_status st = sluice__fail(err, SLUICE_ERR_IO,
                                    "%s: no weights: expected model.safetensors, model.safetensors.index.json, "
                                    "pytorch_model.bin or pytorch_model.bin.index.json",
                                    dir);
    for (size_t i = 0; i < sizeof candidates / sizeof *candidates; i++) {
        char *path = sluice__path_join(dir, candidates[i].name);
        bool found = path && sluice__is_file(path);
        if (!path) st = sluice__no_memory(err, strlen(dir), "a path");
        if (found) st = candidates[i].open(s, dir, path, err);
        sluice__free(path);
        if (found || !path) break;
    }
    return st;
}

const sluice__gguf *sluice__store_gguf(const sluice__store *s) {
    return s && s->num_files == 1 ? s->files[0].gguf : NULL;
}

sluice_status sluice__store_open(sluice__store **out, const char *path, sluice_error *err) {
    *out = NULL;
    sluice__store *s = sluice__calloc(1, sizeof *s, SLUICE__MEM_OTHER);
    if (!s) return sluice__no_memory(err, sizeof *s, path);
    sluice_status st = sluice__is_dir(path) ? open_directory(s, path, err) : open_single(s, NULL, path, err);
    if (st == SLUICE_OK)
        *out = s;
    else
        sluice__store_close(s);
    return st;
}

void sluice__store_close(sluice__store *s) {
    if (!s) return;
    for (int i = 0; i < s->num_files; i++) {
        sluice__safetensors_close(s->files[i].safe);
        sluice__torch_bin_close(s->files[i].bin);
        sluice__gguf_close(s->files[i].gguf);
    }
    sluice__free(s->files);
    sluice__free(s->tensors);
    sluice__free(s);
}

int sluice__store_count(const sluice__store *s) {
    return s->count;
}

const sluice__store_tensor *sluice__store_at(const sluice__store *s, int index) {
    return &s->tensors[index];
}

int sluice__store_find(const sluice__store *s, const char *name) {
    for (int lo = 0, hi = s->count; lo < hi;) {
        int mid = lo + (hi - lo) / 2, order = strcmp(name, s->tensors[mid].name);
        if (order == 0) return mid;
        if (order < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return -1;
}

bool sluice__store_is_mapped(const sluice__store *s) {
    for (int i = 0; i < s->num_files; i++)
        if (s->files[i].bin) return false;
    return true;
}

const void *sluice__store_data(const sluice__store *s, int index) {
    const sluice__store_tensor *t = &s->tensors[index];
    const source *f = &s->files[t->source];
    if (f->gguf) {
        const sluice__gguf_tensor *g = sluice__gguf_tensor_at(f->gguf, t->entry);
        return sluice__gguf_edit_of(f->gguf, g->name).kind == SLUICE__EDIT_NONE ? g->data : NULL;
    }
    return f->safe ? sluice__safetensors_at(f->safe, t->entry)->data : NULL;
}

/* Rows of a tensor in a map. */
static sluice_status read_safe(const sluice__st_tensor *t, const sluice__view *view, sluice__row_fn on_row,
                               void *user, sluice_error *err) {
    float *values = sluice__calloc((size_t)view->columns, sizeof *values, SLUICE__MEM_OTHER);
    if (!values) return sluice__no_memory(err, (size_t)view->columns * sizeof *values, t->name);
    sluice_status st = SLUICE_OK;
    int64_t size = sluice__dtype_size(t->dtype);
    const unsigned char *p = (const unsigned char *)t->data + view->first * size;
    for (int64_t r = 0; r < view->rows && st == SLUICE_OK; r++, p += view->row_stride * size) {
        sluice__to_f32(values, t->dtype, p, view->column_stride, view->columns);
        st = on_row(user, r, values, err);
    }
    sluice__free(values);
    return st;
}

/* Values of one row of the file into the order of the model. */
static void edit_columns(const sluice__gguf_edit *e, float *to, const float *from, int64_t columns) {
    bool vector = e->kind == SLUICE__EDIT_VALUE_COLUMNS;
    for (int64_t c = 0; c < columns; c++) to[c] = from[vector ? sluice__gguf_edit_source(e, c) : c];
    for (int64_t c = 0; e->kind == SLUICE__EDIT_DECAY && c < columns; c++)
        to[c] = logf(-from[sluice__gguf_edit_source(e, c)]);
}

/* A vector is a column of rows: its elements move like rows of a matrix. */
static void edit_vector(const sluice__gguf_edit *e, float *to, const float *from, int64_t count) {
    if (e->kind == SLUICE__EDIT_DECAY) edit_columns(e, to, from, count);
    else for (int64_t i = 0; i < count; i++) to[i] = from[sluice__gguf_edit_source(e, i)];
}

/* Row r of a view of whole rows, as a row of the tensor. */
static int64_t row_of_view(const sluice__view *view, int64_t r) {
    int64_t at = view->block ? r / view->block * view->block_stride + r % view->block * view->row_stride : r * view->row_stride;
    return (view->first + at) / view->columns;
}

static sluice_status check_whole_rows(const sluice__gguf *g, const sluice__gguf_tensor *t, const sluice__view *view,
                                      sluice_error *err) {
    int64_t row = t->shape[t->ndim - 1], rows = t->count / row;
    bool whole = view->column_stride == 1 && view->first % row == 0 && view->columns == row && view->block_stride % row == 0 &&
                 (view->rows == 1 || view->row_stride == row);
    if (whole && row_of_view(view, view->rows - 1) < rows) return SLUICE_OK;
    return sluice__fail(err, SLUICE_ERR_UNSUPPORTED, "%s: tensor %s: only whole rows can be read of a GGUF tensor",
                        sluice__gguf_path(g), t->name);
}

/* Row r of the model in the order of the file. */
static int64_t row_in_file(const sluice__gguf_tensor *t, const sluice__gguf_edit *e, int64_t r) {
    return t->ndim > 1 && e->kind != SLUICE__EDIT_VALUE_COLUMNS ? sluice__gguf_edit_source(e, r) : r;
}

static sluice_status read_gguf(const sluice__gguf *g, const sluice__gguf_tensor *t, const sluice__view *view,
                               sluice__row_fn on_row, void *user, sluice_error *err) {
    sluice__gguf_edit e = sluice__gguf_edit_of(g, t->name);
    int64_t row = t->shape[t->ndim - 1];
    SLUICE__TRY(check_whole_rows(g, t, view, err));
    float *values = sluice__calloc((size_t)row, 2 * sizeof *values, SLUICE__MEM_OTHER);
    if (!values) return sluice__no_memory(err, (size_t)row * 2 * sizeof *values, t->name);
    sluice_status st = SLUICE_OK;
    int64_t bytes = sluice__dtype_bytes(t->dtype, row);
    for (int64_t r = 0; r < view->rows && st == SLUICE_OK; r++) {
        sluice__to_f32(values, t->dtype, t->data + row_in_file(t, &e, row_of_view(view, r)) * bytes, 1, row);
        if (t->ndim == 1) edit_vector(&e, values + row, values, row);
        else edit_columns(&e, values + row, values, row);
        st = on_row(user, r, values + row, err);
    }
    sluice__free(values);
    return st;
}

bool sluice__store_blocks(const sluice__store *s, int index, sluice__quant *quant) {
    const sluice__store_tensor *t = &s->tensors[index];
    const sluice__gguf *g = s->files[t->source].gguf;
    if (!g || !sluice__dtype_quant(t->dtype, quant)) return false;
    sluice__gguf_edit e = sluice__gguf_edit_of(g, t->name);
    return e.kind != SLUICE__EDIT_VALUE_COLUMNS || e.width % sluice__quant_values(*quant) == 0;
}

/* Blocks of one row with value heads in the order of the model. */
static void edit_blocks(const sluice__gguf_edit *e, unsigned char *to, const unsigned char *from, int64_t columns,
                        sluice__quant quant) {
    int64_t values = sluice__quant_values(quant), bytes = sluice__quant_bytes(quant);
    for (int64_t b = 0; b < columns / values; b++)
        memcpy(to + b * bytes, from + sluice__gguf_edit_source(e, b * values) / values * bytes, (size_t)bytes);
}

sluice_status sluice__store_read_blocks(sluice__store *s, int index, const sluice__view *view, sluice__blocks_fn on_row,
                                        void *user, sluice_error *err) {
    const sluice__gguf *g = s->files[s->tensors[index].source].gguf;
    const sluice__gguf_tensor *t = sluice__gguf_tensor_at(g, s->tensors[index].entry);
    sluice__quant quant = SLUICE__QUANT_Q8_0;
    sluice__dtype_quant(t->dtype, &quant);
    SLUICE__TRY(check_whole_rows(g, t, view, err));
    sluice__gguf_edit e = sluice__gguf_edit_of(g, t->name);
    bool columns = e.kind == SLUICE__EDIT_VALUE_COLUMNS;
    int64_t row = t->shape[t->ndim - 1], bytes = sluice__dtype_bytes(t->dtype, row);
    unsigned char *moved = columns ? sluice__calloc((size_t)bytes, 1, SLUICE__MEM_OTHER) : NULL;
    if (columns && !moved) return sluice__no_memory(err, (size_t)bytes, t->name);
    for (int64_t r = 0; r < view->rows; r++) {
        const unsigned char *at = t->data + row_in_file(t, &e, row_of_view(view, r)) * bytes;
        if (columns) edit_blocks(&e, moved, at, row, quant);
        on_row(user, r, columns ? moved : at);
    }
    sluice__free(moved);
    if (view->rows * view->columns == t->count) sluice__gguf_done(g, t);
    return SLUICE_OK;
}

static sluice_status read_even(sluice__store *s, int index, const sluice__view *view, sluice__row_fn on_row, void *user,
                               sluice_error *err) {
    const sluice__store_tensor *t = &s->tensors[index];
    const source *f = &s->files[t->source];
    if (f->gguf) {
        const sluice__gguf_tensor *g = sluice__gguf_tensor_at(f->gguf, t->entry);
        sluice_status read = read_gguf(f->gguf, g, view, on_row, user, err);
        if (view->rows * view->columns == g->count) sluice__gguf_done(f->gguf, g);
        return read;
    }
    if (!f->safe) return sluice__torch_bin_read(f->bin, t->entry, view, on_row, user, err);
    const sluice__st_tensor *tensor = sluice__safetensors_at(f->safe, t->entry);
    sluice_status st = read_safe(tensor, view, on_row, user, err);
    int64_t last = view->first + (view->rows - 1) * view->row_stride + (view->columns - 1) * view->column_stride;
    sluice__safetensors_done(f->safe, tensor, view->first, last + 1 - view->first);
    return st;
}

/* Rows of one block, told as those of the whole view. */
typedef struct block {
    sluice__row_fn on_row;
    void *user;
    int64_t first;
} block;

static sluice_status on_block_row(void *user, int64_t row, const float *values, sluice_error *err) {
    const block *b = user;
    return b->on_row(b->user, b->first + row, values, err);
}

sluice_status sluice__store_read(sluice__store *s, int index, const sluice__view *view, sluice__row_fn on_row,
                                 void *user, sluice_error *err) {
    if (!view->block) return read_even(s, index, view, on_row, user, err);
    block b = {on_row, user, 0};
    sluice__view part = *view;
    part.rows = view->block;
    part.block = part.block_stride = 0;
    for (; b.first < view->rows; b.first += view->block, part.first += view->block_stride)
        SLUICE__TRY(read_even(s, index, &part, on_block_row, &b, err));
    return SLUICE_OK;
}

/* ---- the public list ---- */

struct sluice_weight_files {
    sluice__store *store;
};

sluice_status sluice_weight_files_open(sluice_weight_files **out, const char *path, sluice_error *err) {
    *out = sluice__calloc(1, sizeof **out, SLUICE__MEM_OTHER);
    if (!*out) return sluice__no_memory(err, sizeof **out, path);
    sluice_status st = sluice__store_open(&(*out)->store, path, err);
    if (st == SLUICE_OK) return st;
    sluice__free(*out);
    *out = NULL;
    return st;
}

void sluice_weight_files_close(sluice_weight_files *files) {
    if (!files) return;
    sluice__store_close(files->store);
    sluice__free(files);
}

int sluice_weight_files_count(const sluice_weight_files *files) {
    return files->store->count;
}

sluice_weight_entry sluice_weight_files_at(const sluice_weight_files *files, int index) {
    const sluice__store_tensor *t = &files->store->tensors[index];
    sluice_weight_entry e = {.name = t->name,
                             .file = t->file,
                             .dtype = sluice__dtype_name(t->dtype),
                             .ndim = t->ndim,
                             .count = t->count,
                             .bytes = sluice__dtype_bytes(t->dtype, t->count)};
    memcpy(e.shape, t->shape, sizeof e.shape);
    return e;
}
