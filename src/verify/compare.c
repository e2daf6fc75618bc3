/* SPDX-License-Identifier: Apache-2.0 */
/* A growing list of computed tensors, the lines of a report, and the differences between the two sides, in double. */
#include "verify/compare.h"
#include "base/file.h"
#include "base/memory.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static sluice_status make_room(void **items, int *capacity, int count, size_t size, sluice_error *err) {
    if (count < *capacity) return SLUICE_OK;
    int more = *capacity ? 2 * *capacity : 64;
    void *grown = sluice__realloc(*items, (size_t)more, size, SLUICE__MEM_OTHER);
    if (!grown) return sluice__no_memory(err, (size_t)more * size, "the report");
    *items = grown;
    *capacity = more;
    return SLUICE_OK;
}

static sluice_status add(sluice__results *r, const char *name, int ndim, const int64_t *shape, sluice_error *err) {
    void *items = r->items;
    SLUICE__TRY(make_room(&items, &r->capacity, r->count, sizeof *r->items, err));
    r->items = items;
    sluice__computed c = {.ndim = ndim, .count = 1};
    for (int i = 0; i < ndim; i++) {
        c.shape[i] = shape[i];
        c.count *= shape[i];
    }
    c.name = sluice__strdup(name);
    if (!c.name) return sluice__no_memory(err, strlen(name), "a tensor name");
    r->items[r->count++] = c;
    return SLUICE_OK;
}

sluice_status sluice__results_add(sluice__results *r, const char *name, int ndim, const int64_t *shape, float **data,
                                  sluice_error *err) {
    SLUICE__TRY(add(r, name, ndim, shape, err));
    sluice__computed *c = &r->items[r->count - 1];
    *data = c->data = sluice__calloc((size_t)c->count, sizeof(float), SLUICE__MEM_OTHER);
    return c->data ? SLUICE_OK : sluice__no_memory(err, sluice__mul_size((size_t)c->count, sizeof(float)), name);
}

sluice_status sluice__results_add_ids(sluice__results *r, const char *name, int ndim, const int64_t *shape,
                                      const int32_t *ids, sluice_error *err) {
    SLUICE__TRY(add(r, name, ndim, shape, err));
    sluice__computed *c = &r->items[r->count - 1];
    c->ids = sluice__calloc((size_t)c->count, sizeof(int32_t), SLUICE__MEM_OTHER);
    if (!c->ids) return sluice__no_memory(err, sluice__mul_size((size_t)c->count, sizeof(int32_t)), name);
    memcpy(c->ids, ids, (size_t)c->count * sizeof(int32_t));
    return SLUICE_OK;
}

const sluice__computed *sluice__results_find(const sluice__results *r, const char *name) {
    for (int i = 0; i < r->count; i++)
        if (!strcmp(r->items[i].name, name)) return &r->items[i];
    return NULL;
}

sluice_status sluice__results_write(const sluice__verify_run *run, const sluice__results *r, const char *path) {
    sluice_error *err = run->err;
    const char *reference = run->params->reference;
    if (sluice__is_in_dir(path, run->dir) || (reference && sluice__is_in_dir(path, reference)))
        return sluice__fail(err, SLUICE_ERR_IO, "%s: a file of what is verified; give another name", path);
    sluice__st_tensor *list = sluice__calloc((size_t)r->count, sizeof *list, SLUICE__MEM_OTHER);
    if (!list) return sluice__no_memory(err, (size_t)r->count * sizeof *list, "the list of tensors");
    for (int i = 0; i < r->count; i++) {
        const sluice__computed *c = &r->items[i];
        list[i] = c->ids ? sluice__st_i32(c->name, c->ids, c->ndim, c->shape)
                         : sluice__st_f32(c->name, c->data, c->ndim, c->shape);
    }
    sluice_status st = sluice__safetensors_write(path, list, r->count, NULL, err);
    sluice__free(list);
    return st;
}

void sluice__results_free(sluice__results *r) {
    for (int i = 0; i < r->count; i++) {
        sluice__free(r->items[i].name);
        sluice__free(r->items[i].data);
        sluice__free(r->items[i].ids);
    }
    sluice__free(r->items);
    *r = (sluice__results){0};
}

static sluice_status add_item(const sluice__verify_run *run, const sluice_verify_item *item) {
    sluice_verify_report *report = run->report;
    int capacity = report->num_items; /* the array is full exactly at 0, 64, 128, 256, ... */
    bool full = capacity == 0 || (capacity >= 64 && (capacity & (capacity - 1)) == 0);
    void *items = report->items;
    if (full) SLUICE__TRY(make_room(&items, &capacity, capacity, sizeof *report->items, run->err));
    report->items = items;
    report->items[report->num_items++] = *item;
    report->num_failed += !item->passed;
    return SLUICE_OK;
}

static double limit_of(const sluice__verify_run *run, sluice_verify_measure measure, double limit) {
    bool replaced = run->params->tolerance >= 0 && measure != SLUICE_VERIFY_MISMATCHES;
    return replaced ? run->params->tolerance : limit;
}

sluice_status sluice__report_value(const sluice__verify_run *run, sluice_verify_measure measure, double error,
                                   double limit, const char *name_fmt, ...) {
    sluice_verify_item item = {.measure = measure, .error = error, .max_abs = error};
    item.limit = limit_of(run, measure, limit);
    item.passed = error <= item.limit; /* false for NaN */
    va_list ap;
    va_start(ap, name_fmt);
    vsnprintf(item.name, sizeof item.name, name_fmt, ap);
    va_end(ap);
    return add_item(run, &item);
}

sluice_status sluice__report_problem(const sluice__verify_run *run, const char *name, const char *note_fmt, ...) {
    sluice_verify_item item = {.error = NAN, .max_abs = NAN};
    snprintf(item.name, sizeof item.name, "%s", name);
    va_list ap;
    va_start(ap, note_fmt);
    vsnprintf(item.note, sizeof item.note, note_fmt, ap);
    va_end(ap);
    return add_item(run, &item);
}

sluice_status sluice__golden_values(float **out, const sluice__safetensors *file, const sluice__st_tensor *golden,
                                    sluice_error *err) {
    *out = NULL;
    if (!sluice__dtype_is_weight(golden->dtype))
        return sluice__fail(err, SLUICE_ERR_FORMAT, "%s: %s: found type %s, expected a floating-point type",
                            sluice__safetensors_path(file), golden->name, sluice__dtype_name(golden->dtype));
    float *values = sluice__calloc((size_t)golden->count, sizeof *values, SLUICE__MEM_OTHER);
    if (!values) return sluice__no_memory(err, sluice__mul_size((size_t)golden->count, sizeof *values), golden->name);
    sluice__to_f32(values, golden->dtype, golden->data, 1, golden->count);
    *out = values;
    return SLUICE_OK;
}

sluice_status sluice__golden_ids(int32_t **out, const sluice__safetensors *file, const sluice__st_tensor *golden,
                                 sluice_error *err) {
    *out = NULL;
    int32_t *values = sluice__calloc((size_t)golden->count, sizeof *values, SLUICE__MEM_OTHER);
    if (!values) return sluice__no_memory(err, sluice__mul_size((size_t)golden->count, sizeof *values), golden->name);
    if (!sluice__to_i32(values, golden->dtype, golden->data, golden->count)) {
        sluice__free(values);
        return sluice__fail(err, SLUICE_ERR_FORMAT,
                            "%s: %s: found type %s or values beyond 32 bits, expected token ids",
                            sluice__safetensors_path(file), golden->name, sluice__dtype_name(golden->dtype));
    }
    *out = values;
    return SLUICE_OK;
}

static bool same_shape(const sluice__st_tensor *a, const sluice__computed *b) {
    int i = 0, j = 0;
    while (i < a->ndim - 1 && a->shape[i] == 1) i++;
    while (j < b->ndim - 1 && b->shape[j] == 1) j++;
    if (a->ndim - i != b->ndim - j || a->count != b->count) return false;
    while (i < a->ndim)
        if (a->shape[i++] != b->shape[j++]) return false;
    return true;
}

/* Largest |a - b| (NaN when b is not finite where a is) and |a - b| / |a|. */
static void difference(const float *golden, const float *got, int64_t count, double *max_abs, double *relative) {
    double worst = 0, square = 0, norm = 0;
    for (int64_t i = 0; i < count; i++) {
        double d = fabs((double)golden[i] - got[i]);
        if (!(d <= worst)) worst = isnan(worst) ? worst : d;
        square += d * d;
        norm += (double)golden[i] * golden[i];
    }
    *max_abs = worst;
    *relative = sqrt(square) / fmax(sqrt(norm), 1e-30);
}

sluice_status sluice__report_tensor(const sluice__verify_run *run, const char *label, const sluice__st_tensor *golden,
                                    const sluice__computed *got, sluice_verify_measure measure, double limit) {
    char name[160];
    snprintf(name, sizeof name, "%s%s", label, golden->name);
    if (!got) return sluice__report_problem(run, name, "not something that this version computes");
    if (!same_shape(golden, got))
        return sluice__report_problem(run, name, "golden holds %lld values in %d dimensions, computed %lld in %d",
                                      (long long)golden->count, golden->ndim, (long long)got->count, got->ndim);
    if (!sluice__dtype_is_weight(golden->dtype))
        return sluice__report_problem(run, name, "golden is of type %s", sluice__dtype_name(golden->dtype));
    float *values = sluice__calloc((size_t)golden->count, sizeof *values, SLUICE__MEM_OTHER);
    if (!values)
        return sluice__no_memory(run->err, sluice__mul_size((size_t)golden->count, sizeof *values), golden->name);
    sluice__to_f32(values, golden->dtype, golden->data, 1, golden->count);
    double max_abs, relative;
    difference(values, got->data, golden->count, &max_abs, &relative);
    sluice__free(values);
    SLUICE__TRY(sluice__report_value(run, measure, measure == SLUICE_VERIFY_MAX_ABS ? max_abs : relative, limit,
                                     "%s", name));
    run->report->items[run->report->num_items - 1].max_abs = max_abs;
    return SLUICE_OK;
}
