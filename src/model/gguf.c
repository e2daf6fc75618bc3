/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the container. A cursor moves over the map and never past its end; every count is held against the bytes that
 * its entries need at least, so that no table is larger than the file. */
#include "model/gguf.h"
#include "base/file.h"
#include "base/memory.h"
#include "model/utf8.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HEADER = 24, MAX_KEY = 65535, MAX_NAME = 255, MAX_NESTING = 4, DEFAULT_ALIGNMENT = 32, MAX_ALIGNMENT = 1 << 20 };
/* Bytes that an entry takes at least: length, a character, type, a byte; length, a character, dimensions, type, offset. */
enum { LEAST_ENTRY = 8 + 1 + 4 + 1, LEAST_TENSOR = 8 + 1 + 4 + 8 + 4 + 8 };

typedef struct entry {
    sluice__gguf_text key;
    sluice__gguf_value value;
} entry;

struct sluice__gguf {
    sluice__map map;
    char *path;
    int version;
    entry *entries; /* sorted by key */
    int num_entries;
    sluice__gguf_tensor *tensors;
    int *by_name; /* indices */
    int num_tensors;
};

typedef struct reader {
    const sluice__gguf *file;
    const unsigned char *p, *end;
    sluice_error *err;
} reader;

static size_t left(const reader *c) { return (size_t)(c->end - c->p); }

static uint64_t little(const unsigned char *p, int bytes) {
    uint64_t v = 0;
    for (int i = bytes - 1; i >= 0; i--) v = v << 8 | p[i];
    return v;
}

static sluice_status bad(const reader *c, const char *what) {
    return sluice__fail(c->err, SLUICE_ERR_FORMAT, "%s: byte %zu: %s", c->file->path,
                        (size_t)(c->p - c->file->map.data), what);
}

static sluice_status ends(const reader *c, const char *where) {
    return sluice__fail(c->err, SLUICE_ERR_FORMAT, "%s: the file ends inside %s", c->file->path, where);
}

static sluice_status take(reader *c, int bytes, uint64_t *out, const char *where) {
    if (left(c) < (size_t)bytes) return ends(c, where);
    *out = little(c->p, bytes);
    c->p += bytes;
    return SLUICE_OK;
}

static sluice_status take_text(reader *c, sluice__gguf_text *out, uint64_t most, const char *where) {
    uint64_t size = 0;
    SLUICE__TRY(take(c, 8, &size, where));
    if (size > left(c))
        return sluice__fail(c->err, SLUICE_ERR_FORMAT, "%s: %s: a text of %" PRIu64 " bytes, but only %zu are left",
                            c->file->path, where, size, left(c));
    if (size > most)
        return sluice__fail(c->err, SLUICE_ERR_FORMAT, "%s: %s: found %" PRIu64 " bytes, expected at most %" PRIu64,
                            c->file->path, where, size, most);
    *out = (sluice__gguf_text){(const char *)c->p, (size_t)size};
    c->p += size;
    return SLUICE_OK;
}

/* A key or the name of a tensor: not empty, UTF-8, no NUL. */
static sluice_status take_name(reader *c, sluice__gguf_text *out, uint64_t most, const char *where) {
    SLUICE__TRY(take_text(c, out, most, where));
    bool good = out->size && sluice__utf8_valid_prefix(out->data, out->size) == out->size &&
                !memchr(out->data, 0, out->size);
    return good ? SLUICE_OK : sluice__fail(c->err, SLUICE_ERR_FORMAT, "%s: %s is empty, not UTF-8 or holds a NUL",
                                           c->file->path, where);
}

/* ---- values ---- */

static int width_of(sluice__gguf_type type) {
    static const int widths[SLUICE__GGUF_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return widths[type];
}

static sluice_status take_value(reader *c, sluice__gguf_value *out, sluice__gguf_type type, int depth);

/* Passes over the elements. */
static sluice_status skip_elements(reader *c, const sluice__gguf_value *v, int depth) {
    int width = width_of(v->of);
    if (width) {
        if (v->count > left(c) / (size_t)width) return bad(c, "an array with more elements than the file has bytes");
        for (uint64_t i = 0; v->of == SLUICE__GGUF_BOOL && i < v->count; i++)
            if (c->p[i] > 1) return bad(c, "a bool that is neither 0 nor 1");
        c->p += v->count * (size_t)width;
        return SLUICE_OK;
    }
    if (v->count > left(c) / 8) return bad(c, "an array with more elements than the file has bytes");
    for (uint64_t i = 0; i < v->count; i++) {
        sluice__gguf_value element;
        SLUICE__TRY(take_value(c, &element, v->of, depth + 1));
    }
    return SLUICE_OK;
}

static sluice_status take_type(reader *c, sluice__gguf_type *out) {
    uint64_t type = 0;
    SLUICE__TRY(take(c, 4, &type, "the type of a value"));
    if (type >= SLUICE__GGUF_TYPES)
        return sluice__fail(c->err, SLUICE_ERR_FORMAT, "%s: byte %zu: value type %" PRIu64 " is not known (0..12)",
                            c->file->path, (size_t)(c->p - 4 - c->file->map.data), type);
    *out = (sluice__gguf_type)type;
    return SLUICE_OK;
}

static sluice_status take_value(reader *c, sluice__gguf_value *out, sluice__gguf_type type, int depth) {
    if (depth > MAX_NESTING) return bad(c, "arrays inside arrays, too deep");
    *out = (sluice__gguf_value){.type = type, .count = 1, .data = c->p};
    if (type == SLUICE__GGUF_STRING) {
        sluice__gguf_text text;
        return take_text(c, &text, UINT64_MAX, "a value");
    }
    if (type == SLUICE__GGUF_ARRAY) {
        SLUICE__TRY(take_type(c, &out->of));
        SLUICE__TRY(take(c, 8, &out->count, "an array"));
        out->data = c->p;
        return skip_elements(c, out, depth);
    }
    if (left(c) < (size_t)width_of(type)) return ends(c, "a value");
    if (type == SLUICE__GGUF_BOOL && *c->p > 1) return bad(c, "a bool that is neither 0 nor 1");
    c->p += width_of(type);
    return SLUICE_OK;
}

static int compare_texts(sluice__gguf_text a, sluice__gguf_text b) {
    int order = memcmp(a.data, b.data, a.size < b.size ? a.size : b.size);
    return order ? order : (a.size > b.size) - (a.size < b.size);
}

static int by_key(const void *a, const void *b) { return compare_texts(((const entry *)a)->key, ((const entry *)b)->key); }

static sluice_status read_entries(sluice__gguf *g, reader *c, uint64_t count) {
    if (count > left(c) / LEAST_ENTRY)
        return sluice__fail(c->err, SLUICE_ERR_FORMAT, "%s: %" PRIu64 " metadata entries do not fit into %zu bytes",
                            g->path, count, left(c));
    g->entries = sluice__calloc((size_t)count, sizeof *g->entries, SLUICE__MEM_OTHER);
    if (!g->entries) return sluice__no_memory(c->err, (size_t)count * sizeof *g->entries, "metadata");
    for (uint64_t i = 0; i < count; i++) {
        entry *e = &g->entries[g->num_entries];
        sluice__gguf_type type;
        SLUICE__TRY(take_name(c, &e->key, MAX_KEY, "a metadata key"));
        SLUICE__TRY(take_type(c, &type));
        SLUICE__TRY(take_value(c, &e->value, type, 0));
        g->num_entries++;
    }
    qsort(g->entries, (size_t)g->num_entries, sizeof *g->entries, by_key);
    for (int i = 1; i < g->num_entries; i++)
        if (!compare_texts(g->entries[i].key, g->entries[i - 1].key))
            return sluice__fail(c->err, SLUICE_ERR_FORMAT, "%s: metadata key %.*s occurs twice", g->path,
                                (int)(g->entries[i].key.size < 200 ? g->entries[i].key.size : 200), g->entries[i].key.data);
    return SLUICE_OK;
}

/* ---- tensors ---- */

static sluice_status bad_tensor(const reader *c, const char *name, const char *fmt, ...) SLUICE__PRINTF(3, 4);
static sluice_status bad_tensor(const reader *c, const char *name, const char *fmt, ...) {
    char text[200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return sluice__fail(c->err, SLUICE_ERR_FORMAT, "%s: tensor %s: %s", c->file->path, name, text);
}

static sluice_status take_shape(reader *c, sluice__gguf_tensor *t) {
    uint64_t ndim = 0;
    SLUICE__TRY(take(c, 4, &ndim, "a tensor's entry"));
    if (ndim < 1 || ndim > SLUICE__GGUF_MAX_DIMS)
        return bad_tensor(c, t->name, "found %" PRIu64 " dimensions, expected 1..%d", ndim, SLUICE__GGUF_MAX_DIMS);
    t->ndim = (int)ndim;
    t->count = 1;
    for (int i = t->ndim - 1; i >= 0; i--) { /* the file has the length of a row first */
        uint64_t size = 0;
        SLUICE__TRY(take(c, 8, &size, "a tensor's entry"));
        if (size < 1 || size > INT64_MAX) return bad_tensor(c, t->name, "a dimension of %" PRId64, (int64_t)size);
        t->shape[i] = (int64_t)size;
        if (__builtin_mul_overflow(t->count, t->shape[i], &t->count))
            return bad_tensor(c, t->name, "more values than can be counted");
    }
    return SLUICE_OK;
}

static sluice_status take_dtype(reader *c, sluice__gguf_tensor *t) {
    uint64_t number = 0;
    SLUICE__TRY(take(c, 4, &number, "a tensor's entry"));
    if (!sluice__dtype_from_gguf(&t->dtype, (uint32_t)number))
        return bad_tensor(c, t->name, "type %" PRIu64 " is not known", number);
    int64_t row = t->shape[t->ndim - 1];
    int block = sluice__dtype_block(t->dtype);
    if (row % block)
        return bad_tensor(c, t->name, "rows of %" PRId64 " values are not whole blocks of %d (%s)", row, block,
                          sluice__dtype_name(t->dtype));
    if (t->count > INT64_MAX / 8) return bad_tensor(c, t->name, "more bytes than can be counted");
    t->bytes = sluice__dtype_bytes(t->dtype, t->count);
    return SLUICE_OK;
}

/* The offset, relative to where data begins, is kept in `data` until that place is known. */
static sluice_status take_tensor(sluice__gguf *g, reader *c, uint64_t *offset) {
    sluice__gguf_tensor *t = &g->tensors[g->num_tensors];
    sluice__gguf_text name;
    SLUICE__TRY(take_name(c, &name, MAX_NAME, "the name of a tensor"));
    t->name = sluice__strndup(name.data, name.size);
    if (!t->name) return sluice__no_memory(c->err, name.size, "a tensor name");
    g->num_tensors++;
    SLUICE__TRY(take_shape(c, t));
    SLUICE__TRY(take_dtype(c, t));
    return take(c, 8, offset, "a tensor's entry");
}

static sluice_status place_tensor(const sluice__gguf *g, const reader *c, sluice__gguf_tensor *t, uint64_t offset,
                                  uint64_t data_at, uint64_t alignment) {
    uint64_t size = g->map.size;
    if (offset % alignment)
        return bad_tensor(c, t->name, "offset %" PRIu64 " is not a multiple of the alignment %" PRIu64, offset, alignment);
    if (data_at > size || offset > size - data_at || (uint64_t)t->bytes > size - data_at - offset)
        return bad_tensor(c, t->name, "%" PRId64 " bytes at offset %" PRIu64 " reach past the end of the file", t->bytes,
                          offset);
    t->data = g->map.data + data_at + offset;
    return SLUICE_OK;
}

static sluice_status alignment_of(const sluice__gguf *g, uint64_t *out, sluice_error *err) {
    const sluice__gguf_value *v = sluice__gguf_find(g, "general.alignment");
    int64_t alignment = DEFAULT_ALIGNMENT;
    if (v && (v->type != SLUICE__GGUF_U32 || !sluice__gguf_integer(v, &alignment)))
        return sluice__fail(err, SLUICE_ERR_FORMAT, "%s: general.alignment: expected a 32-bit number", g->path);
    if (alignment < 1 || alignment > MAX_ALIGNMENT || alignment & (alignment - 1))
        return sluice__fail(err, SLUICE_ERR_FORMAT, "%s: general.alignment: found %" PRId64 ", expected a power of two",
                            g->path, alignment);
    *out = (uint64_t)alignment;
    return SLUICE_OK;
}

static int compare_names(const void *a, const void *b, void *tensors) {
    const sluice__gguf_tensor *t = tensors;
    return strcmp(t[*(const int *)a].name, t[*(const int *)b].name);
}

static int compare_places(const void *a, const void *b, void *tensors) {
    const sluice__gguf_tensor *t = tensors, *x = &t[*(const int *)a], *y = &t[*(const int *)b];
    return x->data == y->data ? 0 : x->data < y->data ? -1 : 1;
}

/* No name twice, no byte in two tensors. Leaves by_name sorted by name. */
static sluice_status check_table(sluice__gguf *g, const reader *c) {
    size_t n = (size_t)g->num_tensors;
    g->by_name = sluice__calloc(n, sizeof *g->by_name, SLUICE__MEM_OTHER);
    if (!g->by_name) return sluice__no_memory(c->err, n * sizeof *g->by_name, "the list of tensors");
    for (int i = 0; i < g->num_tensors; i++) g->by_name[i] = i;
    qsort_r(g->by_name, n, sizeof *g->by_name, compare_places, g->tensors);
    for (int i = 1; i < g->num_tensors; i++) {
        const sluice__gguf_tensor *a = &g->tensors[g->by_name[i - 1]], *b = &g->tensors[g->by_name[i]];
        if (a->data + a->bytes > b->data) return bad_tensor(c, b->name, "its data overlaps that of %s", a->name);
    }
    qsort_r(g->by_name, n, sizeof *g->by_name, compare_names, g->tensors);
    for (int i = 1; i < g->num_tensors; i++)
        if (!strcmp(g->tensors[g->by_name[i]].name, g->tensors[g->by_name[i - 1]].name))
            return bad_tensor(c, g->tensors[g->by_name[i]].name, "occurs twice");
    return SLUICE_OK;
}

static sluice_status read_tensors(sluice__gguf *g, reader *c, uint64_t count) {
    if (count > left(c) / LEAST_TENSOR)
        return sluice__fail(c->err, SLUICE_ERR_FORMAT, "%s: %" PRIu64 " tensors do not fit into %zu bytes", g->path, count,
                            left(c));
    uint64_t alignment = 0, *offsets = sluice__calloc((size_t)count, sizeof *offsets, SLUICE__MEM_OTHER);
    g->tensors = sluice__calloc((size_t)count, sizeof *g->tensors, SLUICE__MEM_OTHER);
    sluice_status st = SLUICE_OK;
    if (!offsets || !g->tensors) st = sluice__no_memory(c->err, (size_t)count * sizeof *g->tensors, "the list of tensors");
    for (uint64_t i = 0; st == SLUICE_OK && i < count; i++) st = take_tensor(g, c, &offsets[i]);
    if (st == SLUICE_OK) st = alignment_of(g, &alignment, c->err);
    for (uint64_t i = 0; st == SLUICE_OK && i < count; i++) {
        uint64_t at = (uint64_t)(c->p - g->map.data);
        st = place_tensor(g, c, &g->tensors[i], offsets[i], (at + alignment - 1) / alignment * alignment, alignment);
    }
    sluice__free(offsets);
    return st == SLUICE_OK ? check_table(g, c) : st;
}

/* ---- the file ---- */

static sluice_status read_header(sluice__gguf *g, reader *c, uint64_t *tensors, uint64_t *entries) {
    if (g->map.size < HEADER || memcmp(c->p, "GGUF", 4))
        return sluice__fail(c->err, SLUICE_ERR_FORMAT, "%s: not a GGUF file (%zu bytes)", g->path, g->map.size);
    uint32_t version = (uint32_t)little(c->p + 4, 4);
    if (version > 0xffff && !(version & 0xffff))
        return sluice__fail(c->err, SLUICE_ERR_UNSUPPORTED, "%s: a big-endian GGUF file", g->path);
    if (version != 2 && version != 3)
        return sluice__fail(c->err, SLUICE_ERR_UNSUPPORTED, "%s: GGUF version %" PRIu32 ", expected 2 or 3", g->path,
                            version);
    g->version = (int)version;
    *tensors = little(c->p + 8, 8);
    *entries = little(c->p + 16, 8);
    c->p += HEADER;
    return SLUICE_OK;
}

sluice_status sluice__gguf_open(sluice__gguf **out, const char *path, sluice_error *err) {
    *out = NULL;
    sluice__gguf *g = sluice__calloc(1, sizeof *g, SLUICE__MEM_OTHER);
    if (!g) return sluice__no_memory(err, sizeof *g, path);
    uint64_t tensors = 0, entries = 0;
    reader c = {.file = g, .err = err};
    g->path = sluice__strdup(path);
    sluice_status st = g->path ? sluice__map_open(&g->map, path, err) : sluice__no_memory(err, strlen(path), "a path");
    if (st == SLUICE_OK) {
        c.p = g->map.data;
        c.end = c.p + g->map.size;
        st = read_header(g, &c, &tensors, &entries);
    }
    if (st == SLUICE_OK) st = read_entries(g, &c, entries);
    if (st == SLUICE_OK) st = read_tensors(g, &c, tensors);
    if (st == SLUICE_OK) *out = g;
    else sluice__gguf_close(g);
    return st;
}

void sluice__gguf_close(sluice__gguf *g) {
    if (!g) return;
    for (int i = 0; i < g->num_tensors; i++) sluice__free(g->tensors[i].name);
    sluice__free(g->tensors);
    sluice__free(g->by_name);
    sluice__free(g->entries);
    sluice__free(g->path);
    sluice__map_close(&g->map);
    sluice__free(g);
}

const char *sluice__gguf_path(const sluice__gguf *g) { return g->path; }
int sluice__gguf_version(const sluice__gguf *g) { return g->version; }
int sluice__gguf_num_tensors(const sluice__gguf *g) { return g->num_tensors; }
const sluice__gguf_tensor *sluice__gguf_tensor_at(const sluice__gguf *g, int index) { return &g->tensors[index]; }

const sluice__gguf_tensor *sluice__gguf_find_tensor(const sluice__gguf *g, const char *name) {
    for (int lo = 0, hi = g->num_tensors; lo < hi;) {
        int mid = lo + (hi - lo) / 2, order = strcmp(name, g->tensors[g->by_name[mid]].name);
        if (!order) return &g->tensors[g->by_name[mid]];
        if (order < 0) hi = mid;
        else lo = mid + 1;
    }
    return NULL;
}

/* Whole pages inside the data; neighbours keep theirs. */
void sluice__gguf_done(const sluice__gguf *g, const sluice__gguf_tensor *t) {
    (void)g;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)t->data, end = begin + (uintptr_t)t->bytes;
    begin = (begin + page - 1) / page * page;
    end = end / page * page;
    if (begin < end) madvise((void *)begin, end - begin, MADV_DONTNEED); /* NOLINT: the map is read-only and private */
}

int sluice__gguf_num_entries(const sluice__gguf *g) { return g->num_entries; }
sluice__gguf_text sluice__gguf_key_at(const sluice__gguf *g, int index) { return g->entries[index].key; }
const sluice__gguf_value *sluice__gguf_value_at(const sluice__gguf *g, int index) { return &g->entries[index].value; }

const sluice__gguf_value *sluice__gguf_find(const sluice__gguf *g, const char *key) {
    sluice__gguf_text wanted = {key, strlen(key)};
    for (int lo = 0, hi = g->num_entries; lo < hi;) {
        int mid = lo + (hi - lo) / 2, order = compare_texts(wanted, g->entries[mid].key);
        if (!order) return &g->entries[mid].value;
        if (order < 0) hi = mid;
        else lo = mid + 1;
    }
    return NULL;
}

bool sluice__gguf_integer(const sluice__gguf_value *v, int64_t *out) {
    if (!v) return false;
    int width = width_of(v->type);
    switch (v->type) {
    case SLUICE__GGUF_U8:
    case SLUICE__GGUF_U16:
    case SLUICE__GGUF_U32:
    case SLUICE__GGUF_U64: {
        uint64_t u = little(v->data, width);
        *out = (int64_t)u;
        return u <= INT64_MAX;
    }
    case SLUICE__GGUF_I8:
    case SLUICE__GGUF_I16:
    case SLUICE__GGUF_I32:
    case SLUICE__GGUF_I64: *out = (int64_t)(little(v->data, width) << (64 - 8 * width)) >> (64 - 8 * width); return true;
    default: return false;
    }
}

bool sluice__gguf_real(const sluice__gguf_value *v, double *out) {
    int64_t whole;
    if (!v) return false;
    if (v->type == SLUICE__GGUF_F32) {
        float f;
        memcpy(&f, v->data, sizeof f);
        *out = (double)f;
        return true;
    }
    if (v->type == SLUICE__GGUF_F64) {
        memcpy(out, v->data, sizeof *out);
        return true;
    }
    if (!sluice__gguf_integer(v, &whole)) return false;
    *out = (double)whole;
    return true;
}

bool sluice__gguf_bool(const sluice__gguf_value *v, bool *out) {
    if (!v || v->type != SLUICE__GGUF_BOOL) return false;
    *out = *v->data;
    return true;
}

bool sluice__gguf_string(const sluice__gguf_value *v, sluice__gguf_text *out) {
    if (!v || v->type != SLUICE__GGUF_STRING) return false;
    *out = (sluice__gguf_text){(const char *)v->data + 8, (size_t)little(v->data, 8)};
    return true;
}

/* Bytes of an element that the opening of the file has already checked. */
static size_t checked_bytes(sluice__gguf_type type, const unsigned char *p) {
    if (type == SLUICE__GGUF_STRING) return 8 + (size_t)little(p, 8);
    if (type != SLUICE__GGUF_ARRAY) return (size_t)width_of(type);
    sluice__gguf_type of = (sluice__gguf_type)little(p, 4);
    uint64_t count = little(p + 4, 8);
    size_t bytes = 12;
    for (uint64_t i = 0; i < count; i++) bytes += checked_bytes(of, p + bytes);
    return bytes;
}

size_t sluice__gguf_value_bytes(const sluice__gguf_value *v) {
    if (v->type != SLUICE__GGUF_ARRAY) return checked_bytes(v->type, v->data);
    size_t bytes = 0;
    if (width_of(v->of)) return (size_t)v->count * (size_t)width_of(v->of);
    for (uint64_t i = 0; i < v->count; i++) bytes += checked_bytes(v->of, v->data + bytes);
    return bytes;
}

bool sluice__gguf_next(const sluice__gguf_value *array, uint64_t *at, const unsigned char **cursor,
                       sluice__gguf_value *out) {
    if (array->type != SLUICE__GGUF_ARRAY || *at >= array->count) return false;
    const unsigned char *p = *cursor ? *cursor : array->data;
    *out = (sluice__gguf_value){.type = array->of, .count = 1, .data = p};
    if (array->of == SLUICE__GGUF_ARRAY) {
        out->of = (sluice__gguf_type)little(p, 4);
        out->count = little(p + 4, 8);
        out->data = p + 12;
    }
    *cursor = p + checked_bytes(array->of, p);
    ++*at;
    return true;
}
