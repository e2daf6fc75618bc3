/* SPDX-License-Identifier: Apache-2.0 */
/* Reading torch.save files. New: a zip with ARCHIVE/data.pkl (the dictionary) and ARCHIVE/data/KEY (one storage
 * each). Old: five pickles in a row (magic number, protocol, system, dictionary, storage keys), then every
 * storage as a count of elements and its bytes. The old format and nothing else is read through a map; zip
 * entries are streamed, so that a tensor is never in memory twice. Both must be little-endian. */
#include "model/torch_bin.h"
#include "base/file.h"
#include "base/memory.h"
#include "model/pickle.h"
#include <stdlib.h>
#include <string.h>
#include <zip.h>

enum { MAX_PICKLE = 32 << 20, MAX_SPAN = 64 << 20, BLOCK = 1 << 20, COUNT_FIELD = 8 };

typedef struct legacy_storage {
    const char *key;
    int key_length;
    const unsigned char *data;
    size_t bytes;
} legacy_storage;

struct sluice__torch_bin {
    char *path;
    sluice__map map;
    zip_t *zip;               /* NULL for the old format */
    char *root;               /* ARCHIVE in the zip */
    char *data_pickle;        /* bytes of data.pkl */
    legacy_storage *storages; /* sorted by key */
    int num_storages;
    sluice__pickle *pickle;
    sluice__bin_tensor *tensors; /* sorted by name */
    int count;
};

static sluice_status bad_file(const sluice__torch_bin *b, sluice_error *err, const char *what) {
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
        return bad_file(b, err, "a tensor whose name is not a text");
    const char *name = sluice__pickle_text(b->pickle, key, &length);
    if (memchr(name, 0, (size_t)length)) return bad_file(b, err, "a tensor whose name holds a NUL character");
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
static sluice_status list_tensors(sluice__torch_bin *b, sluice__pickle_value dict, sluice_error *err) {
    sluice__pickle_value key, v;
    int room = 0, at = 0;
    if (sluice__pickle_kind_of(b->pickle, dict) != SLUICE__PICKLE_DICT)
        return bad_file(b, err, "holds no dictionary of tensors");
    while (sluice__pickle_next(b->pickle, dict, &at, &key, &v))
        room += sluice__pickle_kind_of(b->pickle, v) == SLUICE__PICKLE_TENSOR;
    if (!room)
        return bad_file(b, err, "the dictionary holds no tensors (a training checkpoint rather than a model?)");
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
        if (*index >= 0) return bad_file(b, err, "two entries data.pkl in one archive");
        *index = i;
        b->root = sluice__strndup(name, (size_t)(slash - name));
        if (!b->root) return sluice__no_memory(err, strlen(name), b->path);
    }
    return *index >= 0 ? SLUICE_OK
                       : bad_file(b, err, "a zip archive without data.pkl: not a PyTorch checkpoint");
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
    SLUICE__TRY(read_entry(b, index, MAX_PICKLE, &b->data_pickle, &size, err));
    SLUICE__TRY(sluice__pickle_run(b->pickle, (const unsigned char *)b->data_pickle, size, &used, &dict, err));
    return list_tensors(b, dict, err);
}

/* ---- the old format ---- */

static int by_key(const void *a, const void *b) {
    const legacy_storage *x = a, *y = b;
    int n = x->key_length < y->key_length ? x->key_length : y->key_length,
        order = memcmp(x->key, y->key, (size_t)n);
    return order ? order : x->key_length - y->key_length;
}

static legacy_storage *find_storage(const sluice__torch_bin *b, const char *key, int length) {
    legacy_storage wanted = {.key = key, .key_length = length};
    return bsearch(&wanted, b->storages, (size_t)b->num_storages, sizeof *b->storages, by_key);
}

/* One after another behind the pickles: count, bytes. The element size comes from what refers to the key. */
static sluice_status lay_out_storages(sluice__torch_bin *b, sluice__pickle_value keys, size_t at,
                                      const int *sizes, sluice_error *err) {
    sluice__pickle_value v;
    for (int i = 0; sluice__pickle_next(b->pickle, keys, &i, NULL, &v);) {
        int length;
        const char *key = sluice__pickle_text(b->pickle, v, &length);
        legacy_storage *s = find_storage(b, key, length);
        if (b->map.size - at < COUNT_FIELD)
            return bad_file(b, err, "truncated: it ends before the last storage");
        uint64_t count = 0;
        for (int k = COUNT_FIELD - 1; k >= 0; k--) count = count << 8 | b->map.data[at + (size_t)k];
        at += COUNT_FIELD;
        size_t bytes = sluice__mul_size((size_t)count, (size_t)sizes[s - b->storages]);
        if (bytes > b->map.size - at)
            return bad_file(b, err, "truncated: a storage reaches past the end of the file");
        s->data = b->map.data + at;
        s->bytes = bytes;
        at += bytes;
    }
    return SLUICE_OK;
}

static sluice_status list_storages(sluice__torch_bin *b, sluice__pickle_value keys, sluice_error *err) {
    sluice__pickle_value v;
    int room = 0;
    if (sluice__pickle_kind_of(b->pickle, keys) != SLUICE__PICKLE_LIST)
        return bad_file(b, err, "damaged: no list of storages");
    for (int i = 0; sluice__pickle_next(b->pickle, keys, &i, NULL, &v); room++)
        if (sluice__pickle_kind_of(b->pickle, v) != SLUICE__PICKLE_TEXT)
            return bad_file(b, err, "damaged: a storage without a key");
    b->storages = sluice__calloc((size_t)room, sizeof *b->storages, SLUICE__MEM_OTHER);
    if (!b->storages) return sluice__no_memory(err, (size_t)room * sizeof *b->storages, b->path);
    for (int i = 0; sluice__pickle_next(b->pickle, keys, &i, NULL, &v);) {
        legacy_storage *s = &b->storages[b->num_storages++];
        s->key = sluice__pickle_text(b->pickle, v, &s->key_length);
    }
    qsort(b->storages, (size_t)room, sizeof *b->storages, by_key);
    for (int i = 1; i < room; i++)
        if (!by_key(&b->storages[i], &b->storages[i - 1]))
            return bad_file(b, err, "damaged: a storage key stands twice");
    return SLUICE_OK;
}

/* Element sizes of the storages come from the tensors that use them, and every storage is there because of one.
 */
static sluice_status place_storages(sluice__torch_bin *b, sluice__pickle_value keys, size_t at,
                                    sluice_error *err) {
    SLUICE__TRY(list_storages(b, keys, err));
    int *sizes = sluice__calloc((size_t)b->num_storages, sizeof *sizes, SLUICE__MEM_OTHER);
    if (!sizes) return sluice__no_memory(err, (size_t)b->num_storages * sizeof *sizes, b->path);
    sluice_status st = SLUICE_OK;
    for (int i = 0; i < sluice__pickle_num_storages(b->pickle) && st == SLUICE_OK; i++) {
        const sluice__pickle_storage *s = sluice__pickle_storage_of(b->pickle, i);
        legacy_storage *found = find_storage(b, s->key, s->key_length);
        if (!found)
            st = bad_file(b, err, "damaged: a tensor refers to a storage that is not in the file");
        else
            sizes[found - b->storages] = sluice__dtype_size(s->dtype);
    }
    for (int i = 0; i < b->num_storages && st == SLUICE_OK; i++)
        if (!sizes[i]) st = bad_file(b, err, "damaged: a storage that no tensor uses");
    if (st == SLUICE_OK) st = lay_out_storages(b, keys, at, sizes, err);
    sluice__free(sizes);
    return st;
}

static bool is_magic(const sluice__torch_bin *b, sluice__pickle_value v) {
    static const unsigned char magic[] = {0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19};
    int length;
    if (sluice__pickle_kind_of(b->pickle, v) != SLUICE__PICKLE_LONG) return false;
    const char *bytes = sluice__pickle_text(b->pickle, v, &length);
    return length == sizeof magic && !memcmp(bytes, magic, sizeof magic);
}

static sluice_status check_system(const sluice__torch_bin *b, sluice__pickle_value system, sluice_error *err) {
    sluice__pickle_value key, v;
    if (sluice__pickle_kind_of(b->pickle, system) != SLUICE__PICKLE_DICT)
        return bad_file(b, err, "damaged: no description of its system");
    for (int at = 0; sluice__pickle_next(b->pickle, system, &at, &key, &v);) {
        int length;
        if (sluice__pickle_kind_of(b->pickle, key) != SLUICE__PICKLE_TEXT) continue;
        const char *text = sluice__pickle_text(b->pickle, key, &length);
        bool order = length == 13 && !memcmp(text, "little_endian", 13);
        if (order &&
            !(sluice__pickle_kind_of(b->pickle, v) == SLUICE__PICKLE_BOOL && sluice__pickle_int(b->pickle, v)))
            return sluice__fail(err, SLUICE_ERR_UNSUPPORTED, "%s: written on a big-endian machine", b->path);
    }
    return SLUICE_OK;
}

static sluice_status next_pickle(sluice__torch_bin *b, size_t *at, sluice__pickle_value *v, sluice_error *err) {
    size_t used, left = b->map.size - *at;
    SLUICE__TRY(
        sluice__pickle_run(b->pickle, b->map.data + *at, left < MAX_PICKLE ? left : MAX_PICKLE, &used, v, err));
    *at += used;
    return SLUICE_OK;
}

static sluice_status read_legacy(sluice__torch_bin *b, sluice_error *err) {
    sluice__pickle_value v, dict;
    size_t at = 0;
    SLUICE__TRY(next_pickle(b, &at, &v, err));
    if (!is_magic(b, v)) return bad_file(b, err, "not a PyTorch checkpoint: a pickle without its magic number");
    SLUICE__TRY(next_pickle(b, &at, &v, err));
    if (sluice__pickle_kind_of(b->pickle, v) != SLUICE__PICKLE_INT || sluice__pickle_int(b->pickle, v) != 1001)
        return bad_file(b, err, "not protocol 1001 of PyTorch");
    SLUICE__TRY(next_pickle(b, &at, &v, err));
    SLUICE__TRY(check_system(b, v, err));
    SLUICE__TRY(next_pickle(b, &at, &dict, err));
    SLUICE__TRY(next_pickle(b, &at, &v, err));
    SLUICE__TRY(place_storages(b, v, at, err));
    return list_tensors(b, dict, err);
}

/* ---- opening ---- */

static sluice_status read_any(sluice__torch_bin *b, sluice_error *err) {
    SLUICE__TRY(sluice__map_open(&b->map, b->path, err));
    if (sluice__is_lfs_pointer(b->map.data, b->map.size))
        return bad_file(b, err,
                        "a Git LFS pointer instead of the weights themselves (fetch them with `git lfs pull`)");
    if (b->map.size >= 2 && b->map.data[0] == 'P' && b->map.data[1] == 'K') return read_zip(b, err);
    if (b->map.size >= 2 && b->map.data[0] == 0x80) return read_legacy(b, err);
    return bad_file(b, err, "not a PyTorch checkpoint: neither a zip archive nor a pickle");
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
    const legacy_storage *found = find_storage(s->bin, storage->key, storage->key_length);
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
    int64_t span; /* elements from the first to the last */
    int64_t row_span;
} rows;

static rows rows_of(const sluice__pickle_tensor *t, sluice__dtype dtype) {
    rows r = {.rows = t->ndim == 2 ? t->shape[0] : 1,
              .columns = t->ndim ? t->shape[t->ndim - 1] : 1,
              .row_stride = t->ndim == 2 ? t->stride[0] : 0,
              .column_stride = t->ndim ? t->stride[t->ndim - 1] : 1,
              .dtype = dtype};
    r.row_span = (r.columns - 1) * r.column_stride + 1;
    r.span = (r.rows - 1) * r.row_stride + r.row_span;
    return r;
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

sluice_status sluice__torch_bin_read(sluice__torch_bin *b, int index, sluice__row_fn on_row, void *user,
                                     sluice_error *err) {
    const sluice__bin_tensor *t = &b->tensors[index];
    const sluice__pickle_tensor *place = sluice__pickle_tensor_of(b->pickle, t->value);
    if (t->count == 0) return SLUICE_OK;
    source s = {.bin = b, .tensor = t->name};
    rows r = rows_of(place, t->dtype);
    float *values = sluice__calloc((size_t)r.columns, sizeof *values, SLUICE__MEM_OTHER);
    sluice_status st = values ? open_source(&s, sluice__pickle_storage_of(b->pickle, place->storage), err)
                              : sluice__no_memory(err, (size_t)r.columns * sizeof *values, t->name);
    bool forward = r.rows == 1 || r.row_stride >= r.row_span;
    if (st == SLUICE_OK)
        st = (forward ? read_forward : read_whole)(&s, &r, place->offset, values, on_row, user, err);
    if (s.stream) zip_fclose(s.stream);
    sluice__free(values);
    return st;
}
