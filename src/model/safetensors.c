/* SPDX-License-Identifier: Apache-2.0 */
/* Reading and writing safetensors. The reader maps the file and trusts nothing in the header: types must be
 * known, shapes must multiply without overflow to the byte count, and the tensors, sorted by their offsets,
 * must cover the data from its first to its last byte, which rules out overlap, holes and truncation at once.
 */
#include "model/safetensors.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LENGTH_FIELD = 8, MAX_HEADER = 64 << 20, MAX_TENSORS = 1 << 20, ALIGNMENT = 64 };

struct sluice__safetensors {
    sluice__map map;
    json_t *header; /* owns the names */
    char *path;
    sluice__st_tensor *tensors; /* sorted by data */
    int *by_name;               /* indices sorted by name */
    int count;
};

static uint64_t read_u64(const unsigned char *p) {
    uint64_t v = 0;
    for (int i = 7; i >= 0; i--) v = v << 8 | p[i];
    return v;
}

static sluice_status bad_tensor(const sluice__safetensors *f, const char *name, sluice_error *err,
                                const char *fmt, ...) SLUICE__PRINTF(4, 5);
static sluice_status bad_tensor(const sluice__safetensors *f, const char *name, sluice_error *err,
                                const char *fmt, ...) {
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return sluice__fail(err, SLUICE_ERR_FORMAT, "%s: tensor %.200s: %s", f->path, name, text);
}

bool sluice__is_lfs_pointer(const void *data, size_t size) {
    static const char head[] = "version https://git-lfs";
    return size >= sizeof head - 1 && !memcmp(data, head, sizeof head - 1);
}

/* Header bytes behind the length field, parsed. Sets *data_at to where tensors begin. */
static sluice_status read_header(sluice__safetensors *f, size_t *data_at, sluice_error *err) {
    if (f->map.size < LENGTH_FIELD)
        return sluice__fail(err, SLUICE_ERR_FORMAT,
                            "%s: %zu bytes, expected at least %d: not a safetensors file", f->path, f->map.size,
                            LENGTH_FIELD);
    if (sluice__is_lfs_pointer(f->map.data, f->map.size))
        return sluice__fail(err, SLUICE_ERR_FORMAT,
                            "%s: a Git LFS pointer instead of the weights themselves (fetch them with "
                            "`git lfs pull`)",
                            f->path);
    uint64_t length = read_u64(f->map.data);
    if (length > f->map.size - LENGTH_FIELD || length > MAX_HEADER)
        return sluice__fail(
            err, SLUICE_ERR_FORMAT,
            "%s: header length %" PRIu64 ", expected at most %zu: truncated or not a safetensors file", f->path,
            length, f->map.size - LENGTH_FIELD < MAX_HEADER ? f->map.size - LENGTH_FIELD : (size_t)MAX_HEADER);
    SLUICE__TRY(
        sluice__json_parse(&f->header, (const char *)f->map.data + LENGTH_FIELD, (size_t)length, f->path, err));
    if (!json_is_object(f->header))
        return sluice__fail(err, SLUICE_ERR_FORMAT, "%s: the header is not a JSON object", f->path);
    if (json_object_size(f->header) > MAX_TENSORS)
        return sluice__fail(err, SLUICE_ERR_FORMAT, "%s: %zu tensors, expected at most %d", f->path,
                            json_object_size(f->header), MAX_TENSORS);
    *data_at = LENGTH_FIELD + (size_t)length;
    return SLUICE_OK;
}

static sluice_status read_shape(const sluice__safetensors *f, sluice__st_tensor *t, json_t *entry,
                                sluice_error *err) {
    json_t *shape = json_object_get(entry, "shape");
    if (!json_is_array(shape) || json_array_size(shape) > SLUICE__TENSOR_MAX_DIMS)
        return bad_tensor(f, t->name, err, "shape is not an array of at most %d sizes",
                          SLUICE__TENSOR_MAX_DIMS);
    t->ndim = (int)json_array_size(shape);
    t->count = 1;
    for (int i = 0; i < t->ndim; i++) {
        json_t *v = json_array_get(shape, (size_t)i);
        if (!json_is_integer(v) || json_integer_value(v) < 0)
            return bad_tensor(f, t->name, err, "shape[%d] is not a size", i);
        t->shape[i] = json_integer_value(v);
        if (__builtin_mul_overflow(t->count, t->shape[i], &t->count))
            return bad_tensor(f, t->name, err, "the shape's product overflows 64 bits");
    }
    return SLUICE_OK;
}

static sluice_status read_entry(const sluice__safetensors *f, sluice__st_tensor *t, json_t *entry,
                                size_t data_at, sluice_error *err) {
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    json_t *offsets = json_object_get(entry, "data_offsets");
    json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (!json_is_object(entry) || !dtype || json_array_size(offsets) != 2 || !json_is_integer(begin) ||
        !json_is_integer(end))
        return bad_tensor(f, t->name, err,
                          "expected an object with dtype, shape and data_offsets [begin, end]");
    if (!sluice__dtype_from_name(&t->dtype, dtype))
        return bad_tensor(f, t->name, err, "unknown dtype \"%.40s\"", dtype);
    SLUICE__TRY(read_shape(f, t, entry, err));
    json_int_t b = json_integer_value(begin), e = json_integer_value(end);
    uint64_t room = f->map.size - data_at;
    if (b < 0 || e < b || (uint64_t)e > room)
        return bad_tensor(f, t->name, err, "data_offsets [%lld, %lld], expected 0 <= begin <= end <= %" PRIu64,
                          (long long)b, (long long)e, room);
    int64_t bytes;
    if (__builtin_mul_overflow(t->count, (int64_t)sluice__dtype_size(t->dtype), &bytes) || bytes != e - b)
        return bad_tensor(f, t->name, err,
                          "data_offsets span %lld bytes, expected %lld elements of %s (%d bytes each)",
                          (long long)(e - b), (long long)t->count, dtype, sluice__dtype_size(t->dtype));
    t->data = f->map.data + data_at + b;
    return SLUICE_OK;
}

static int by_data(const void *a, const void *b) {
    const sluice__st_tensor *x = a, *y = b;
    if (x->data != y->data) return x->data < y->data ? -1 : 1;
    /* Empty tensors share their offset with the one that follows. */
    return x->count != y->count ? (x->count < y->count ? -1 : 1) : strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b, void *tensors) {
    const sluice__st_tensor *t = tensors;
    return strcmp(t[*(const int *)a].name, t[*(const int *)b].name);
}

/* Sorted by offset, each tensor must begin where the one before ends. */
static sluice_status check_cover(const sluice__safetensors *f, size_t data_at, sluice_error *err) {
    const unsigned char *at = f->map.data + data_at, *end = f->map.data + f->map.size;
    for (int i = 0; i < f->count; i++) {
        const sluice__st_tensor *t = &f->tensors[i];
        const unsigned char *data = t->data;
        if (data != at)
            return bad_tensor(f, t->name, err, "begins at data byte %td, expected %td: tensors %s",
                              data - f->map.data - (ptrdiff_t)data_at, at - f->map.data - (ptrdiff_t)data_at,
                              data < at ? "overlap" : "leave a hole");
        at += t->count * sluice__dtype_size(t->dtype);
    }
    if (at != end)
        return sluice__fail(err, SLUICE_ERR_FORMAT, "%s: %td bytes behind the last tensor", f->path, end - at);
    return SLUICE_OK;
}

static sluice_status read_tensors(sluice__safetensors *f, size_t data_at, sluice_error *err) {
    size_t room = json_object_size(f->header);
    f->tensors = sluice__calloc(room, sizeof *f->tensors, SLUICE__MEM_OTHER);
    f->by_name = sluice__calloc(room, sizeof *f->by_name, SLUICE__MEM_OTHER);
    if (!f->tensors || !f->by_name) return sluice__no_memory(err, room * sizeof *f->tensors, f->path);
    const char *name;
    json_t *entry;
    json_object_foreach(f->header, name, entry) {
        if (!strcmp(name, "__metadata__")) continue;
        sluice__st_tensor *t = &f->tensors[f->count];
        t->name = name;
        SLUICE__TRY(read_entry(f, t, entry, data_at, err));
        f->count++;
    }
    qsort(f->tensors, (size_t)f->count, sizeof *f->tensors, by_data);
    for (int i = 0; i < f->count; i++) f->by_name[i] = i;
    qsort_r(f->by_name, (size_t)f->count, sizeof *f->by_name, by_name, f->tensors);
    return check_cover(f, data_at, err);
}

sluice_status sluice__safetensors_open(sluice__safetensors **out, const char *path, sluice_error *err) {
    *out = NULL;
    sluice__safetensors *f = sluice__calloc(1, sizeof *f, SLUICE__MEM_OTHER);
    if (!f) return sluice__no_memory(err, sizeof *f, path);
    sluice_status st = SLUICE_OK;
    size_t data_at = 0;
    f->path = sluice__strdup(path);
    if (!f->path) st = sluice__no_memory(err, strlen(path), path);
    if (st == SLUICE_OK) st = sluice__map_open(&f->map, path, err);
    if (st == SLUICE_OK) st = read_header(f, &data_at, err);
    if (st == SLUICE_OK) st = read_tensors(f, data_at, err);
    if (st == SLUICE_OK)
        *out = f;
    else
        sluice__safetensors_close(f);
    return st;
}

void sluice__safetensors_close(sluice__safetensors *f) {
    if (!f) return;
    json_decref(f->header);
    sluice__map_close(&f->map);
    sluice__free(f->tensors);
    sluice__free(f->by_name);
    sluice__free(f->path);
    sluice__free(f);
}

int sluice__safetensors_count(const sluice__safetensors *f) {
    return f->count;
}

const sluice__st_tensor *sluice__safetensors_at(const sluice__safetensors *f, int index) {
    return &f->tensors[index];
}

const sluice__st_tensor *sluice__safetensors_find(const sluice__safetensors *f, const char *name) {
    for (int lo = 0, hi = f->count; lo < hi;) {
        int mid = lo + (hi - lo) / 2;
        const sluice__st_tensor *t = &f->tensors[f->by_name[mid]];
        int order = strcmp(name, t->name);
        if (order == 0) return t;
        if (order < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}

/* Whole pages inside the tensor only: neighbours may be in use by another thread, which would merely read them
 * again. */
void sluice__safetensors_done(const sluice__safetensors *f, const sluice__st_tensor *t, int64_t first,
                              int64_t count) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), size = (uintptr_t)sluice__dtype_size(t->dtype);
    uintptr_t begin = (uintptr_t)t->data + (uintptr_t)first * size, end = begin + (uintptr_t)count * size;
    (void)f;
    begin = (begin + page - 1) / page * page;
    end = end / page * page;
    if (end > begin) madvise((void *)begin, end - begin, MADV_DONTNEED);
}

const char *sluice__safetensors_path(const sluice__safetensors *f) {
    return f->path;
}

const char *sluice__safetensors_metadata(const sluice__safetensors *f, const char *key) {
    return json_string_value(json_object_get(json_object_get(f->header, "__metadata__"), key));
}

/* ---- writing ---- */

static sluice__st_tensor dense(const char *name, sluice__dtype dtype, const void *data, int ndim,
                               const int64_t *shape) {
    sluice__st_tensor t = {.name = name, .dtype = dtype, .ndim = ndim, .count = 1, .data = data};
    for (int i = 0; i < ndim; i++) {
        t.shape[i] = shape[i];
        t.count *= shape[i];
    }
    return t;
}

sluice__st_tensor sluice__st_f32(const char *name, const float *data, int ndim, const int64_t *shape) {
    return dense(name, SLUICE__F32, data, ndim, shape);
}

sluice__st_tensor sluice__st_i32(const char *name, const int32_t *data, int ndim, const int64_t *shape) {
    return dense(name, SLUICE__I32, data, ndim, shape);
}

static int entries_by_name(const void *a, const void *b) {
    const sluice__st_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static int64_t byte_count(const sluice__st_tensor *t) {
    int64_t n = sluice__dtype_size(t->dtype);
    for (int i = 0; i < t->ndim; i++) n *= t->shape[i];
    return n;
}

static int add_entry(json_t *header, const sluice__st_tensor *t, int64_t *offset) {
    json_t *shape = json_array();
    for (int i = 0; i < t->ndim; i++) json_array_append_new(shape, json_integer(t->shape[i]));
    int64_t end = *offset + byte_count(t);
    json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", sluice__dtype_name(t->dtype), "shape", shape,
                              "data_offsets", (json_int_t)*offset, (json_int_t)end);
    *offset = end;
    return entry ? json_object_set_new(header, t->name, entry) : -1;
}

/* Header text, padded with blanks so that data begins at a multiple of 64 as safetensors readers that map files
 * like. */
static char *header_text(const sluice__st_tensor **sorted, int count, const char *const *metadata,
                         size_t *size) {
    json_t *header = json_object(), *meta = json_pack("{s:s}", "format", "pt");
    int64_t offset = 0;
    int bad = !header || !meta;
    for (int i = 0; metadata && metadata[i]; i += 2)
        bad |= json_object_set_new(meta, metadata[i], json_string(metadata[i + 1]));
    bad |= json_object_set_new(header, "__metadata__", meta);
    for (int i = 0; i < count; i++) bad |= add_entry(header, sorted[i], &offset);
    char *text = bad ? NULL : json_dumps(header, JSON_COMPACT), *padded = NULL;
    if (text) {
        size_t n = strlen(text);
        *size = (n + LENGTH_FIELD + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT - LENGTH_FIELD;
        padded = sluice__calloc(*size + 1, 1, SLUICE__MEM_OTHER);
        if (padded) {
            memset(padded, ' ', *size);
            memcpy(padded, text, n);
        }
    }
    free(text);
    json_decref(header);
    return padded;
}

static sluice_status write_body(FILE *to, const sluice__st_tensor **sorted, int count, const char *header,
                                size_t size, sluice__produce_fn produce, void *user, sluice_error *err) {
    unsigned char length[LENGTH_FIELD];
    for (int i = 0; i < LENGTH_FIELD; i++) length[i] = (unsigned char)(size >> 8 * i);
    fwrite(length, 1, sizeof length, to);
    fwrite(header, 1, size, to);
    for (int i = 0; i < count; i++) {
        const void *data = produce(user, sorted[i], err);
        if (!data) return err ? err->code : SLUICE_ERR_MEMORY;
        fwrite(data, 1, (size_t)byte_count(sorted[i]), to);
    }
    return SLUICE_OK; /* write errors stay in the stream and come out at commit */
}

sluice_status sluice__safetensors_write_made(const char *path, const sluice__st_tensor *tensors, int count,
                                             const char *const *metadata, sluice__produce_fn produce,
                                             void *user, sluice_error *err) {
    const sluice__st_tensor **sorted = sluice__calloc((size_t)count, sizeof *sorted, SLUICE__MEM_OTHER);
    if (!sorted) return sluice__no_memory(err, (size_t)count * sizeof *sorted, path);
    for (int i = 0; i < count; i++) sorted[i] = &tensors[i];
    qsort(sorted, (size_t)count, sizeof *sorted, entries_by_name);
    size_t size = 0;
    char *header = header_text(sorted, count, metadata, &size);
    sluice__atomic_file w;
    sluice_status st =
        header ? sluice__atomic_open(&w, path, err) : sluice__no_memory(err, size, "a safetensors header");
    if (st == SLUICE_OK) {
        st = write_body(w.stream, sorted, count, header, size, produce, user, err);
        if (st == SLUICE_OK)
            st = sluice__atomic_commit(&w, err);
        else
            sluice__atomic_abort(&w);
    }
    sluice__free(header);
    sluice__free(sorted);
    return st;
}

static const void *given_data(void *user, const sluice__st_tensor *tensor, sluice_error *err) {
    (void)user, (void)err;
    return tensor->data;
}

sluice_status sluice__safetensors_write(const char *path, const sluice__st_tensor *tensors, int count,
                                        const char *const *metadata, sluice_error *err) {
    return sluice__safetensors_write_made(path, tensors, count, metadata, given_data, NULL, err);
}
