/* SPDX-License-Identifier: Apache-2.0 */
/* Writing a Hugging Face directory: a plan of its tensors and their parts, dealt out to one file or to several with an index
 * when a size for them is given; and the conversion from another directory, whose tensors keep names and shapes. */
#include "model/convert_plan.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "model/gguf_write.h"
#include <dirent.h>
#include <stdio.h>
#include <string.h>

typedef sluice__piece piece;
typedef sluice__convert_plan plan;

sluice_status sluice__convert_part(plan *p, const sluice__part *part, sluice_error *err) {
    piece *x = &p->pieces[p->count - 1];
    sluice__part *more = sluice__realloc(x->parts, (size_t)x->num_parts + 1, sizeof *more, SLUICE__MEM_OTHER);
    if (!more) return sluice__no_memory(err, (size_t)x->num_parts * sizeof *more, x->name);
    x->parts = more;
    more[x->num_parts++] = *part;
    return SLUICE_OK;
}

sluice_status sluice__convert_piece(plan *p, const char *name, int source, int ndim, const int64_t *shape, sluice_error *err) {
    const sluice__store_tensor *t = sluice__store_at(p->store, source);
    piece *more = sluice__realloc(p->pieces, (size_t)p->count + 1, sizeof *more, SLUICE__MEM_OTHER);
    if (!more) return sluice__no_memory(err, (size_t)p->count * sizeof *more, "the list of tensors");
    p->pieces = more;
    piece *x = &more[p->count];
    sluice__view whole = sluice__view_of(ndim, shape);
    *x = (piece){.name = sluice__strdup(name)};
    if (!x->name) return sluice__no_memory(err, strlen(name), "a tensor name");
    p->count++;
    x->out = (sluice__st_tensor){.name = x->name, .dtype = t->dtype, .ndim = ndim, .count = whole.rows * whole.columns};
    memcpy(x->out.shape, shape, (size_t)ndim * sizeof *shape);
    if (sluice__dtype_is_weight(t->dtype)) {
        x->out.dtype = sluice__conversion_type(p->c, name, t->dtype, whole.rows, whole.columns, ndim > 1);
        return SLUICE_OK;
    }
    if (!sluice__store_data(p->store, source))
        return sluice__fail(err, SLUICE_ERR_UNSUPPORTED, "%s: tensor %s: type %s cannot be converted", t->file, t->name,
                            sluice__dtype_name(t->dtype));
    sluice__conversion_keep(p->c, t->dtype);
    return SLUICE_OK;
}

/* ---- values ---- */

typedef struct sink {
    float *to;
    const sluice__part *part;
} sink;

static sluice_status put_row(void *user, int64_t r, const float *values, sluice_error *err) {
    const sink *s = user;
    const sluice__view *v = &s->part->to;
    (void)err;
    float *to = s->to + v->first + (v->block ? r / v->block * v->block_stride + r % v->block * v->row_stride : r * v->row_stride);
    for (int64_t i = 0; i < v->columns; i++) to[i * v->column_stride] = values[i] - (s->part->one_plus ? 1.0F : 0.0F);
    return SLUICE_OK;
}

/* The bytes of the source, where the target has the same. */
static const void *same_bytes(const plan *p, const piece *x) {
    const sluice__part *part = x->parts;
    if (x->num_parts > 1 || part->one_plus || part->to.rows * part->to.columns != x->out.count ||
        !sluice__view_is_dense(&part->to) || !sluice__view_is_dense(&part->from))
        return NULL;
    const sluice__store_tensor *t = sluice__store_at(p->store, part->source);
    const char *data = t->dtype == x->out.dtype ? sluice__store_data(p->store, part->source) : NULL;
    return data ? data + sluice__dtype_bytes(t->dtype, part->from.first) : NULL;
}

static bool grow(plan *p, size_t size) {
    if (size <= p->room) return true;
    sluice__free(p->bytes);
    p->bytes = sluice__calloc(size, 1, SLUICE__MEM_OTHER);
    p->room = p->bytes ? size : 0;
    return p->bytes;
}

static sluice_status gather(plan *p, const piece *x, float *values, sluice_error *err) {
    sluice_status st = SLUICE_OK;
    for (int i = 0; i < x->num_parts && st == SLUICE_OK; i++) {
        sink s = {values, &x->parts[i]};
        st = sluice__store_read(p->store, x->parts[i].source, &x->parts[i].from, put_row, &s, err);
    }
    return st;
}

static const void *produce(void *user, const sluice__st_tensor *out, sluice_error *err) {
    plan *p = user;
    int index = 0;
    while (strcmp(p->pieces[index].name, out->name)) index++;
    const piece *x = &p->pieces[index];
    sluice__progress_update(&p->c->progress, p->done++, "%s", "");
    const void *same = same_bytes(p, x);
    if (same) sluice__conversion_look(p->c, x->name, out->dtype, same, out->count);
    if (same) return same;
    float *values = sluice__calloc((size_t)out->count, sizeof *values, SLUICE__MEM_OTHER);
    size_t size = (size_t)sluice__dtype_bytes(out->dtype, out->count);
    if (!values || !grow(p, size)) sluice__no_memory(err, (size_t)out->count * sizeof *values, out->name);
    else if (gather(p, x, values, err) == SLUICE_OK) {
        sluice__encode(p->bytes, out->dtype, values, out->count);
        sluice__conversion_look(p->c, x->name, out->dtype, p->bytes, out->count);
        sluice__free(values);
        return p->bytes;
    }
    sluice__free(values);
    return NULL;
}

/* ---- files ---- */

/* Deals tensors out in their order. One that is larger than a file may be is refused: what was asked for cannot be had. */
static sluice_status deal(plan *p, sluice_error *err) {
    int64_t used = 0, most = p->c->params->max_shard_size;
    p->files = 1;
    for (int i = 0; i < p->count; i++) {
        int64_t size = sluice__dtype_bytes(p->pieces[i].out.dtype, p->pieces[i].out.count);
        if (most && size > most)
            return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                                "max_shard_size: found %lld bytes, but tensor %s alone has %lld; give at least that", (long long)most,
                                p->pieces[i].name, (long long)size);
        if (most && used && used + size > most) p->files++, used = 0;
        used += size;
        p->pieces[i].file = p->files - 1;
    }
    return SLUICE_OK;
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

sluice_status sluice__convert_write(plan *p, const char *dir, sluice_error *err) {
    SLUICE__TRY(sluice__conversion_check_overrides(p->c, err));
    SLUICE__TRY(deal(p, err));
    sluice_status st = SLUICE_OK;
    sluice__progress_begin(&p->c->progress, "converting", "tensors", p->count, 0, 1);
    for (int f = 0; f < p->files && st == SLUICE_OK; f++) st = write_one(p, dir, f, err);
    if (st == SLUICE_OK && p->files > 1) st = write_index(p, dir, err);
    sluice__progress_end(&p->c->progress, "%s", st == SLUICE_OK ? "done" : "failed");
    return st;
}

void sluice__convert_end(plan *p) {
    for (int i = 0; i < p->count; i++) {
        sluice__free(p->pieces[i].name);
        sluice__free(p->pieces[i].parts);
    }
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
sluice_status sluice__convert_save_config(const sluice__conversion *c, json_t *root, const char *to, sluice_error *err) {
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
        sluice__part all = {.source = i, .from = sluice__view_of(t->ndim, t->shape)};
        all.to = all.from;
        st = sluice__convert_piece(&p, t->name, i, t->ndim, t->shape, err);
        if (st == SLUICE_OK) st = sluice__convert_part(&p, &all, err);
    }
    if (st == SLUICE_OK) st = copy_companions(c->from, temporary, err);
    if (st == SLUICE_OK) st = sluice__convert_save_config(c, root, temporary, err);
    if (st == SLUICE_OK) st = sluice__convert_write(&p, temporary, err);
    json_decref(root);
    sluice__free(config);
    sluice__convert_end(&p);
    return st;
}
