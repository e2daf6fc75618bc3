/* SPDX-License-Identifier: Apache-2.0 */
/* See gguf_write.h. Offsets are multiples of 32, which every reader accepts without being told. */
#include "model/gguf_write.h"
#include "base/file.h"
#include "base/memory.h"
#include "kernels/half.h"
#include <string.h>

enum { ALIGNMENT = 32, CHUNK_VALUES = 1 << 20, ENCODE_UNIT = 4096 };

static void put(sluice__gguf_writer *w, uint64_t value, int bytes) {
    unsigned char b[8];
    for (int i = 0; i < bytes; i++) b[i] = (unsigned char)(value >> 8 * i);
    sluice__strbuf_add(&w->metadata, b, (size_t)bytes);
}

void sluice__gguf_put_element(sluice__gguf_writer *w, uint32_t value, int bytes) { put(w, value, bytes); }

void sluice__gguf_put_text(sluice__gguf_writer *w, const char *text, size_t size) {
    put(w, size, 8);
    sluice__strbuf_add(&w->metadata, text, size);
}

static void put_key(sluice__gguf_writer *w, const char *key, size_t size, sluice__gguf_type type) {
    sluice__gguf_put_text(w, key, size);
    put(w, type, 4);
    w->entries++;
}

void sluice__gguf_put_u32(sluice__gguf_writer *w, const char *key, uint32_t value) {
    put_key(w, key, strlen(key), SLUICE__GGUF_U32);
    put(w, value, 4);
}

void sluice__gguf_put_f32(sluice__gguf_writer *w, const char *key, double value) {
    put_key(w, key, strlen(key), SLUICE__GGUF_F32);
    put(w, sluice__bits_of_float((float)value), 4);
}

void sluice__gguf_put_bool(sluice__gguf_writer *w, const char *key, bool value) {
    put_key(w, key, strlen(key), SLUICE__GGUF_BOOL);
    put(w, value, 1);
}

void sluice__gguf_put_string(sluice__gguf_writer *w, const char *key, const char *text, size_t size) {
    put_key(w, key, strlen(key), SLUICE__GGUF_STRING);
    sluice__gguf_put_text(w, text, size);
}

void sluice__gguf_put_array(sluice__gguf_writer *w, const char *key, sluice__gguf_type of, uint64_t count) {
    put_key(w, key, strlen(key), SLUICE__GGUF_ARRAY);
    put(w, of, 4);
    put(w, count, 8);
}

void sluice__gguf_put_copy(sluice__gguf_writer *w, sluice__gguf_text key, const sluice__gguf_value *value) {
    put_key(w, key.data, key.size, value->type);
    if (value->type == SLUICE__GGUF_ARRAY) {
        put(w, value->of, 4);
        put(w, value->count, 8);
    }
    sluice__strbuf_add(&w->metadata, value->data, sluice__gguf_value_bytes(value));
}

int sluice__gguf_add_tensor(sluice__gguf_writer *w, const char *name, sluice__dtype dtype, int ndim, const int64_t *shape) {
    sluice__gguf_new_tensor *more =
        sluice__realloc(w->tensors, (size_t)w->num_tensors + 1, sizeof *more, SLUICE__MEM_OTHER);
    if (!more) return -1;
    w->tensors = more;
    sluice__gguf_new_tensor *t = &more[w->num_tensors];
    *t = (sluice__gguf_new_tensor){.name = sluice__strdup(name), .dtype = dtype, .ndim = ndim, .count = 1};
    for (int i = 0; i < ndim; i++) t->count *= t->shape[i] = shape[i];
    return t->name ? w->num_tensors++ : -1;
}

void sluice__gguf_writer_free(sluice__gguf_writer *w) {
    for (int i = 0; i < w->num_tensors; i++) sluice__free(w->tensors[i].name);
    sluice__free(w->tensors);
    sluice__strbuf_free(&w->metadata);
    *w = (sluice__gguf_writer){0};
}

static void encode_some(void *out, sluice__dtype dtype, const float *x, int64_t count) {
    sluice__quant quant;
    uint16_t *half = out;
    if (sluice__dtype_quant(dtype, &quant)) sluice__quantize(out, quant, x, count);
    else if (dtype == SLUICE__F32) memcpy(out, x, (size_t)count * sizeof *x);
    else for (int64_t i = 0; i < count; i++)
            half[i] = dtype == SLUICE__F16 ? sluice__float_to_half(x[i]) : sluice__float_to_brain(x[i]);
}

void sluice__encode(void *out, sluice__dtype dtype, const float *values, int64_t count) {
#pragma omp parallel for schedule(static)
    for (int64_t at = 0; at < count; at += ENCODE_UNIT) {
        int64_t n = count - at < ENCODE_UNIT ? count - at : ENCODE_UNIT;
        encode_some((char *)out + sluice__dtype_bytes(dtype, at), dtype, values + at, n);
    }
}

static uint64_t aligned(uint64_t at) { return (at + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

static void pad(FILE *f, uint64_t from) {
    static const char zeros[ALIGNMENT];
    fwrite(zeros, 1, (size_t)(aligned(from) - from), f);
}

/* Counts, metadata and the table of tensors. */
static sluice_status write_head(sluice__gguf_writer *w, FILE *f, sluice_error *err) {
    sluice__gguf_writer head = {0};
    uint64_t offset = 0;
    sluice__strbuf_add(&head.metadata, "GGUF", 4);
    put(&head, 3, 4);
    put(&head, (uint64_t)w->num_tensors, 8);
    put(&head, w->entries, 8);
    sluice__strbuf_add(&head.metadata, w->metadata.data, w->metadata.size);
    for (int i = 0; i < w->num_tensors; i++) {
        const sluice__gguf_new_tensor *t = &w->tensors[i];
        sluice__gguf_put_text(&head, t->name, strlen(t->name));
        put(&head, (uint64_t)t->ndim, 4);
        for (int d = t->ndim - 1; d >= 0; d--) put(&head, (uint64_t)t->shape[d], 8);
        put(&head, (uint64_t)sluice__dtype_to_gguf(t->dtype), 4);
        put(&head, offset, 8);
        offset = aligned(offset + (uint64_t)sluice__dtype_bytes(t->dtype, t->count));
    }
    bool failed = head.metadata.failed || w->metadata.failed;
    fwrite(head.metadata.data, 1, head.metadata.size, f);
    pad(f, head.metadata.size);
    sluice__strbuf_free(&head.metadata);
    return failed ? sluice__no_memory(err, w->metadata.size, "metadata") : SLUICE_OK;
}

static sluice_status write_tensor(const sluice__gguf_writer *w, int index, FILE *f, sluice__gguf_rows_fn rows,
                                  sluice__gguf_wrote_fn wrote, void *user, sluice_error *err) {
    const sluice__gguf_new_tensor *t = &w->tensors[index];
    if (t->raw) {
        size_t size = (size_t)sluice__dtype_bytes(t->dtype, t->count);
        if (fwrite(t->raw, 1, size, f) == size) pad(f, size);
        wrote(user, index, t->raw, t->count, true);
        return SLUICE_OK;
    }
    int64_t row = t->shape[t->ndim - 1], all = t->count / row, at_once = CHUNK_VALUES / row;
    if (at_once < 1) at_once = 1;
    if (at_once > all) at_once = all;
    float *values = sluice__calloc((size_t)(at_once * row), sizeof *values, SLUICE__MEM_OTHER);
    void *bytes = sluice__calloc((size_t)sluice__dtype_bytes(t->dtype, at_once * row), 1, SLUICE__MEM_OTHER);
    sluice_status st = values && bytes ? SLUICE_OK : sluice__no_memory(err, (size_t)(at_once * row) * 8, t->name);
    for (int64_t r = 0; r < all && st == SLUICE_OK; r += at_once) {
        int64_t n = all - r < at_once ? all - r : at_once;
        st = rows(user, index, r, n, values, err);
        if (st != SLUICE_OK) break;
        sluice__encode(bytes, t->dtype, values, n * row);
        size_t size = (size_t)sluice__dtype_bytes(t->dtype, n * row);
        if (fwrite(bytes, 1, size, f) != size) break; /* the commit reports it */
        wrote(user, index, bytes, n * row, r + n == all);
    }
    pad(f, (uint64_t)sluice__dtype_bytes(t->dtype, t->count));
    sluice__free(values);
    sluice__free(bytes);
    return st;
}

sluice_status sluice__gguf_write(sluice__gguf_writer *w, const char *path, sluice__gguf_rows_fn rows, sluice__gguf_wrote_fn wrote,
                                 void *user, sluice_error *err) {
    sluice__atomic_file file;
    SLUICE__TRY(sluice__atomic_open(&file, path, err));
    sluice_status st = write_head(w, file.stream, err);
    for (int i = 0; i < w->num_tensors && st == SLUICE_OK; i++) {
        st = write_tensor(w, i, file.stream, rows, wrote, user, err);
        if (st == SLUICE_OK && ferror(file.stream)) break;
    }
    if (st == SLUICE_OK) return sluice__atomic_commit(&file, err);
    sluice__atomic_abort(&file);
    return st;
}
