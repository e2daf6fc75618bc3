/* SPDX-License-Identifier: Apache-2.0 */
/* Reading torch.save files: a zip with ARCHIVE/data.pkl (the dictionary) and ARCHIVE/data/KEY (one storage
 * each), or the format before it (torch_legacy.c). The old format is read through a map; zip entries are
 * streamed, so that a tensor is never in memory twice. Both must be little-endian. */
#include "base/memory.h"
#include "model/torch_bin_internal.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_SPAN = 64 << 20, BLOCK = 1 << 20 };

sluice_status sluice__torch_bin_bad(const sluice__torch_bin *b, sluice_error *err, const char *what) {
    return sluice__fail(err, SLUICE_ERR_FORMAT, "%s: %s", b->path, what);
}

/* ---- the dictionary ---- */

static int by_name(const void *a, const void *b) {
    return strcmp(((const sluice__bin_tensor *)a)->name, ((const sluice__bin_tensor *)b)->name);
}

static sluice_status add_tensor(sluice__torch_bin *b, sluice__pickle_value key, sluice__pickle_value v,
                                sluice_error *err) {
    int length;
    if (sluice__pickle_kind_of(b->pickle, key) != SLUICE__PICKLE_TEXT)
        return sluice__torch_bin_bad(b, err, "a tensor whose name is not a text");
    const char *name = sluice__pickle_text(b->pickle, key, &length);
    if (memchr(name, 0, (size_t)length))
        return sluice__torch_bin_bad(b, err, "a tensor whose name holds a NUL character");
    const sluice__pickle_tensor *t = sluice__pickle_tensor_of(b->pickle, v);
    sluice__bin_tensor *out = &b->tensors[b->count];
    *out = (sluice__bin_tensor){
        .name = sluice__strndup(name, (size_t)length), .ndim = t->ndim, .count = t->count, .value = v};
    if (!out->name) return sluice__no_memory(err, (size_t)length, "a tensor name");
    b->count++;
    out->dtype = sluice__pickle_storage_of(b->pickle, t->storage)->dtype;
    memcpy(out->shape, t->shape, sizeof out->shape);
    return SLUICE_OK;
}

/* Values other than tensors (step numbers, versions) are passed over; a file without any tensor is not weights.
 */
sluice_status sluice__torch_bin_list(sluice__torch_bin *b, sluice__pickle_value dict, sluice_error *err) {
    sluice__pickle_value key, v;
    int room = 0, at = 0;
    if (sluice__pickle_kind_of(b->pickle, dict) != SLUICE__PICKLE_DICT)
        return sluice__torch_bin_bad(b, err, "holds no dictionary of tensors");
    while (sluice__pickle_next(b->pickle, dict, &at, &key, &v))
        room += sluice__pickle_kind_of(b->pickle, v) == SLUICE__PICKLE_TENSOR;
    if (!room)
        return sluice__torch_bin_bad(
            b, err, "the dictionary holds no tensors (a training checkpoint rather than a model?)");
    b->tensors = sluice__calloc((size_t)room, sizeof *b->tensors, SLUICE__MEM_OTHER);
    if (!b->tensors) return sluice__no_memory(err, (size_t)room * sizeof *b->tensors, "the list of tensors");
    while (sluice__pickle_next(b->pickle, dict, &at, &key, &v))
        if (sluice__pickle_kind_of(b->pickle, v) == SLUICE__PICKLE_TENSOR)
            SLUICE__TRY(add_tensor(b, key, v, err));
    qsort(b->tensors, (size_t)b->count, sizeof *b->tensors, by_name);
    for (int i = 1; i < b->count; i++)
        if (!strcmp(b->tensors[i].name, b->tensors[i - 1].name))
            return sluice__fail(err, SLUICE_ERR_FORMAT, "%s: tensor %s stands twice", b->path,
                                b->tensors[i].name);
    return SLUICE_OK;
}

/* ---- zip ---- */

static sluice_status zip_problem(const sluice__torch_bin *b, const char *entry, zip_error_t *e,
                                 sluice_error *err) {
    return sluice__fail(err, SLUICE_ERR_FORMAT, "%s: %s%s%s", b->path, entry, *entry ? ": " : "",
                        zip_error_strerror(e));
}

static sluice_status open_zip(sluice__torch_bin *b, sluice_error *err) {
    int code = 0;
    b->zip = zip_open(b->path, ZIP_RDONLY, &code);
    if (b->zip) return SLUICE_OK;
    zip_error_t e;
    zip_error_init_with_code(&e, code);
    sluice_status st = sluice__fail(err, SLUICE_ERR_FORMAT, "%s: damaged or truncated zip archive: %s", b->path,
                                    zip_error_strerror(&e));
    zip_error_fini(&e);
    return st;
}

/* The one entry ARCHIVE/data.pkl gives the archive its root. */
static sluice_status find_root(sluice__torch_bin *b, zip_int64_t *index, sluice_error *err) {
    static const char tail[] = "/data.pkl";
    *index = -1;
    for (zip_int64_t i = 0; i < zip_get_num_entries(b->zip, 0); i++) {
        const char *name = zip_get_name(b->zip, (zip_uint64_t)i, ZIP_FL_ENC_RAW);
        const char *slash = name ? strchr(name, '/') : NULL;
        if (!slash || strcmp(slash, tail)) continue;
        if (*index >= 0) return sluice__torch_bin_bad(b, err, "two entries data.pkl in one archive");
        *index = i;
        b->root = sluice__strndup(name, (size_t)(slash - name));
        if (!b->root) return sluice__no_memory(err, strlen(name), b->path);
    }
    return *index >= 0
               ? SLUICE_OK
               : sluice__torch_bin_bad(b, err, "a zip archive without data.pkl: not a PyTorch checkpoint");
}

/* A whole entry of at most `limit` bytes, NUL-terminated. */
static sluice_status read_entry(const sluice__torch_bin *b, zip_int64_t index, size_t limit, char **out,
                                size_t *size, sluice_error *err) {
    zip_stat_t stat;
    if (zip_stat_index(b->zip, (zip_uint64_t)index, 0, &stat) != 0 || !(stat.valid & ZIP_STAT_SIZE) ||
        stat.size > limit)
        return sluice__fail(err, SLUICE_ERR_FORMAT, "%s: entry %lld: expected at most %zu bytes", b->path,
                            (long long)index, limit);
    *size = (size_t)stat.size;
    *out = sluice__calloc(*size + 1, 1, SLUICE__MEM_OTHER);
    if (!*out) return sluice__no_memory(err, *size, b->path);
    zip_file_t *f = zip_fopen_index(b->zip, (zip_uint64_t)index, 0);
    zip_int64_t got = f ? zip_fread(f, *out, stat.size) : -1;
    sluice_status st = SLUICE_OK;
    if (got < 0 || (zip_uint64_t)got != stat.size)
        st = zip_problem(b, "data.pkl", f ? zip_file_get_error(f) : zip_get_error(b->zip), err);
    if (f) zip_fclose(f);
    if (st == SLUICE_OK) return st;
    sluice__free(*out);
    *out = NULL;
    return st;
}

static sluice_status check_byte_order(const sluice__torch_bin *b, sluice_error *err) {
    char *name = sluice__asprintf("%s/byteorder", b->root), *text = NULL;
    size_t size = 0;
    zip_int64_t index = name ? zip_name_locate(b->zip, name, ZIP_FL_ENC_RAW) : -1;
    sluice_status st = index < 0 ? SLUICE_OK : read_entry(b, index, 16, &text, &size, err);
    if (text && strcmp(text, "little"))
        st = sluice__fail(err, SLUICE_ERR_UNSUPPORTED, "%s: byteorder \"%s\", expected little", b->path, text);
    sluice__free(text);
    sluice__free(name);
    return st;
}

static sluice_status read_zip(sluice__torch_bin *b, sluice_error *err) {
    zip_int64_t index;
    size_t size, used;
    sluice__pickle_value dict;
    SLUICE__TRY(open_zip(b, err));
    SLUICE__TRY(find_root(b, &index, err));
    SLUICE__TRY(check_byte_order(b, err));
    SLUICE__TRY(read_entry(b, index, SLUICE__MAX_PICKLE, &b->data_pickle, &size, err));
    SLUICE__TRY(sluice__pickle_run(b->pickle, (const unsigned char *)b->data_pickle, size, &used, &dict, err));
    return sluice__torch_bin_list(b, dict, err);
}

/* ---- opening ---- */

static sluice_status read_any(sluice__torch_bin *b, sluice_error *err) {
    SLUICE__TRY(sluice__map_open(&b->map, b->path, err));
    if (sluice__is_lfs_pointer(b->map.data, b->map.size))
        return sluice__torch_bin_bad(
            b, err, "a Git LFS pointer instead of the weights themselves (fetch them with `git lfs pull`)");
    if (b->map.size >= 2 && b->map.data[0] == 'P' && b->map.data[1] == 'K') return read_zip(b, err);
    if (b->map.size >= 2 && b->map.data[0] == 0x80) return sluice__torch_bin_read_legacy(b, err);
    return sluice__torch_bin_bad(b, err, "not a PyTorch checkpoint: neither a zip archive nor a pickle");
}

sluice_status sluice__torch_bin_open(sluice__torch_bin **out, const char *path, sluice_error *err) {
    *out = NULL;
    sluice__torch_bin *b = sluice__calloc(1, sizeof *b, SLUICE__MEM_OTHER);
    if (!b) return sluice__no_memory(err, sizeof *b, path);
    b->path = sluice__strdup(path);
    sluice_status st =
        b->path ? sluice__pickle_new(&b->pickle, b->path, err) : sluice__no_memory(err, strlen(path), path);
    if (st == SLUICE_OK) st = read_any(b, err);
    if (st == SLUICE_OK)
        *out = b;
    else
        sluice__torch_bin_close(b);
    return st;
}

void sluice__torch_bin_close(sluice__torch_bin *b) {
    if (!b) return;
    if (b->zip) zip_discard(b->zip);
    sluice__map_close(&b->map);
    sluice__pickle_free(b->pickle);
    for (int i = 0; i < b->count; i++) sluice__free(b->tensors[i].name);
    sluice__free(b->tensors);
    sluice__free(b->storages);
    sluice__free(b->data_pickle);
    sluice__free(b->root);
    sluice__free(b->path);
    sluice__free(b);
}

int sluice__torch_bin_count(const sluice__torch_bin *b) {
    return b->count;
}

const sluice__bin_tensor *sluice__torch_bin_at(const sluice__torch_bin *b, int index) {
    return &b->tensors[index];
}

const char *sluice__torch_bin_path(const sluice__torch_bin *b) {
    return b->path;
}

/* ---- reading elements ---- */

/* Bytes of one storage: from the map, or streamed forward from a zip entry. */
typedef struct source {
    const sluice__torch_bin *bin;
    const char *tensor;
    const unsigned char *data; /* old format */
    zip_file_t *stream;        /* zip */
    bool seekable;             /* the entry is not compressed */
    size_t at;                 /* position of the stream */
} source;

static sluice_status bad_source(const source *s, sluice_error *err, const char *what) {
    return sluice__fail(err, SLUICE_ERR_FORMAT, "%s: tensor %s: %s", s->bin->path, s->tensor, what);
}

static sluice_status open_zip_storage(source *s, const sluice__pickle_storage *storage, size_t bytes,
                                      sluice_error *err) {
    char *name = sluice__asprintf("%s/data/%.*s", s->bin->root, storage->key_length, storage->key);
    if (!name) return sluice__no_memory(err, (size_t)storage->key_length, "a name");
    zip_int64_t index = zip_name_locate(s->bin->zip, name, ZIP_FL_ENC_RAW);
    sluice__free(name);
    zip_stat_t stat;
    if (index < 0) return bad_source(s, err, "its storage is not in the archive");
    if (zip_stat_index(s->bin->zip, (zip_uint64_t)index, 0, &stat) != 0 || !(stat.valid & ZIP_STAT_SIZE) ||
        stat.size != bytes)
        return bad_source(s, err, "its storage has another size in the archive than in the dictionary");
    s->seekable = (stat.valid & ZIP_STAT_COMP_METHOD) && stat.comp_method == ZIP_CM_STORE;
    s->stream = zip_fopen_index(s->bin->zip, (zip_uint64_t)index, 0);
    return s->stream ? SLUICE_OK : zip_problem(s->bin, s->tensor, zip_get_error(s->bin->zip), err);
}

static sluice_status open_source(source *s, const sluice__pickle_storage *storage, sluice_error *err) {
    size_t bytes = sluice__mul_size((size_t)storage->count, (size_t)sluice__dtype_size(storage->dtype));
    if (s->bin->zip) return open_zip_storage(s, storage, bytes, err);
    const legacy_storage *found = sluice__torch_bin_find_storage(s->bin, storage->key, storage->key_length);
    if (!found || found->bytes != bytes)
        return bad_source(s, err, "its storage has another size in the file than in the dictionary");
    s->data = found->data;
    return SLUICE_OK;
}

static sluice_status stream_read(source *s, unsigned char *out, size_t bytes, sluice_error *err) {
    while (bytes) {
        zip_int64_t got = zip_fread(s->stream, out, bytes);
        if (got < 0) return zip_problem(s->bin, s->tensor, zip_file_get_error(s->stream), err);
        if (got == 0) return bad_source(s, err, "its storage ends too early");
        out += got;
        bytes -= (size_t)got;
        s->at += (size_t)got;
    }
    return SLUICE_OK;
}

/* Moves a stream forward to byte `to`; callers never move back. (A failed zip_fseek would spoil the stream.) */
static sluice_status stream_to(source *s, size_t to, sluice_error *err) {
    if (to > s->at && s->seekable && zip_fseek(s->stream, (zip_int64_t)to, SEEK_SET) == 0) s->at = to;
    unsigned char skipped[4096];
    while (s->at < to)
        SLUICE__TRY(stream_read(s, skipped, to - s->at < sizeof skipped ? to - s->at : sizeof skipped, err));
    return SLUICE_OK;
}

/* Bytes from..from+count of the storage, read into buffer if they are not in memory already. */
static sluice_status fetch(source *s, size_t from, size_t count, unsigned char *buffer,
                           const unsigned char **out, sluice_error *err) {
    *out = s->data ? s->data + from : buffer;
    if (s->data) return SLUICE_OK;
    SLUICE__TRY(stream_to(s, from, err));
    return stream_read(s, buffer, count, err);
}

typedef struct rows {
    int64_t rows, columns, row_stride, column_stride;
    sluice__dtype dtype;
    int64_t first; /* elements behind the start of the tensor */
    int64_t span;  /* elements from the first to the last */
    int64_t row_span;
} rows;

static bool is_dense(const sluice__pickle_tensor *t) {
    int64_t stride = 1;
    for (int i = t->ndim - 1; i >= 0; i--) {
        if (t->shape[i] > 1 && t->stride[i] != stride) return false;
        stride *= t->shape[i];
    }
    return true;
}

/* The view in terms of the storage. That of a tensor with strides of its own is the whole of at most two
 * dimensions. */
static sluice_status rows_of(rows *r, const source *s, const sluice__pickle_tensor *t, sluice__dtype dtype,
                             const sluice__view *view, sluice_error *err) {
    *r = (rows){.rows = view->rows,
                .columns = view->columns,
                .row_stride = view->row_stride,
                .column_stride = view->column_stride,
                .dtype = dtype,
                .first = view->first};
    if (!is_dense(t)) {
        sluice__view whole = sluice__view_of(t->ndim, t->shape);
        if (t->ndim > 2 || memcmp(view, &whole, sizeof whole))
            return bad_source(s, err, "it is not dense, which this reader wants of stacked tensors");
        r->row_stride = t->ndim == 2 ? t->stride[0] : 0;
        r->column_stride = t->ndim ? t->stride[t->ndim - 1] : 1;
    }
    r->row_span = (r->columns - 1) * r->column_stride + 1;
    r->span = (r->rows - 1) * r->row_stride + r->row_span;
    return SLUICE_OK;
}

/* A buffer for `span` elements of which `wanted` are used; a hostile dictionary may spread few over many. */
static sluice_status new_buffer(const source *s, const rows *r, int64_t span, int64_t wanted,
                                unsigned char **out, sluice_error *err) {
    size_t bytes = sluice__mul_size((size_t)span, (size_t)sluice__dtype_size(r->dtype));
    *out = NULL;
    if (s->data) return SLUICE_OK;
    if (bytes > MAX_SPAN && span / 4 > wanted)
        return bad_source(s, err, "its elements are scattered too thinly over the storage");
    *out = sluice__calloc(bytes, 1, SLUICE__MEM_OTHER);
    return *out ? SLUICE_OK : sluice__no_memory(err, bytes, s->tensor);
}

/* Rows follow each other in the storage. Dense ones are fetched by the block: a call for every row would cost
 * more than the copying. */
static sluice_status read_forward(source *s, const rows *r, int64_t offset, float *values,
                                  sluice__row_fn on_row, void *user, sluice_error *err) {
    int64_t size = sluice__dtype_size(r->dtype), per_block = 1;
    if (r->row_stride == r->row_span && BLOCK / size / r->row_span > 1) per_block = BLOCK / size / r->row_span;
    if (per_block > r->rows) per_block = r->rows;
    unsigned char *buffer;
    const unsigned char *p = NULL;
    sluice_status st = new_buffer(s, r, r->row_span * per_block, r->columns * per_block, &buffer, err);
    for (int64_t i = 0; i < r->rows && st == SLUICE_OK; i++) {
        int64_t in_block = i % per_block, left = r->rows - i < per_block ? r->rows - i : per_block;
        if (!in_block)
            st = fetch(s, (size_t)(offset + i * r->row_stride) * (size_t)size,
                       (size_t)(left * r->row_span * size), buffer, &p, err);
        if (st != SLUICE_OK) break;
        sluice__to_f32(values, r->dtype, p + in_block * r->row_span * size, r->column_stride, r->columns);
        st = on_row(user, i, values, err);
    }
    sluice__free(buffer);
    return st;
}

/* Rows interleave (a transposed matrix): everything from the first to the last element is read at once. */
static sluice_status read_whole(source *s, const rows *r, int64_t offset, float *values, sluice__row_fn on_row,
                                void *user, sluice_error *err) {
    size_t size = (size_t)sluice__dtype_size(r->dtype), bytes = (size_t)r->span * size;
    unsigned char *buffer;
    const unsigned char *p = NULL;
    SLUICE__TRY(new_buffer(s, r, r->span, r->rows * r->columns, &buffer, err));
    sluice_status st = fetch(s, (size_t)offset * size, bytes, buffer, &p, err);
    for (int64_t i = 0; i < r->rows && st == SLUICE_OK; i++) {
        sluice__to_f32(values, r->dtype, p + (size_t)(i * r->row_stride) * size, r->column_stride, r->columns);
        st = on_row(user, i, values, err);
    }
    sluice__free(buffer);
    return st;
}

sluice_status sluice__torch_bin_read(sluice__torch_bin *b, int index, const sluice__view *view,
                                     sluice__row_fn on_row, void *user, sluice_error *err) {
    const sluice__bin_tensor *t = &b->tensors[index];
    const sluice__pickle_tensor *place = sluice__pickle_tensor_of(b->pickle, t->value);
    if (t->count == 0) return SLUICE_OK;
    source s = {.bin = b, .tensor = t->name};
    rows r;
    SLUICE__TRY(rows_of(&r, &s, place, t->dtype, view, err));
    float *values = sluice__calloc((size_t)r.columns, sizeof *values, SLUICE__MEM_OTHER);
    sluice_status st = values ? open_source(&s, sluice__pickle_storage_of(b->pickle, place->storage), err)
                              : sluice__no_memory(err, (size_t)r.columns * sizeof *values, t->name);
    bool forward = r.rows == 1 || r.row_stride >= r.row_span;
    if (st == SLUICE_OK)
        st = (forward ? read_forward : read_whole)(&s, &r, place->offset + r.first, values, on_row, user, err);
    if (s.stream) zip_fclose(s.stream);
    sluice__free(values);
    return st;
}
