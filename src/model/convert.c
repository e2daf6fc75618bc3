/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions: which type each tensor gets, and the two ways to a GGUF file. A GGUF source is copied entry by entry; any
 * other is loaded as a model, its matrices in the pages of their files, and written from there a few rows at a time. */
#include "model/convert.h"
#include "base/file.h"
#include "base/memory.h"
#include "kernels/quant.h"
#include "model/gguf_export.h"
#include "model/gguf_model.h"
#include "model/gguf_neutral.h"
#include "model/model.h"
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

sluice_convert_params sluice_convert_params_default(void) { return (sluice_convert_params){0}; }

/* ---- types ---- */

static bool find_type(sluice__dtype *out, const char *name, bool gguf) {
    sluice__quant quant;
    for (int i = 0; i < SLUICE__DTYPES; i++) {
        sluice__dtype d = (sluice__dtype)i;
        if (strcasecmp(sluice__dtype_name(d), name)) continue;
        *out = d;
        return d == SLUICE__F32 || d == SLUICE__F16 || d == SLUICE__BF16 || (gguf && sluice__dtype_quant(d, &quant));
    }
    return false;
}

static sluice_status unknown_type(const char *name, bool gguf, sluice_error *err) {
    return sluice__fail(err, SLUICE_ERR_ARGUMENT, "type \"%.40s\": expected F32, F16%s", name,
                        gguf ? ", BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K or Q6_K"
                             : " or BF16 (block types exist in GGUF files only)");
}

static sluice_status add_override(sluice__conversion *c, const char *text, sluice_error *err) {
    const char *equals = strrchr(text, '=');
    sluice__override *o = &c->overrides[c->num_overrides];
    if (!equals || equals == text)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "override \"%.100s\": expected REGEX=TYPE", text);
    if (!find_type(&o->dtype, equals + 1, c->params->gguf)) return unknown_type(equals + 1, c->params->gguf, err);
    char *pattern = sluice__strndup(text, (size_t)(equals - text)), why[120] = "";
    if (!pattern) return sluice__no_memory(err, strlen(text), "an override");
    int bad = regcomp(&o->pattern, pattern, REG_EXTENDED | REG_NOSUB);
    if (bad) regerror(bad, &o->pattern, why, sizeof why);
    sluice__free(pattern);
    if (bad) return sluice__fail(err, SLUICE_ERR_ARGUMENT, "override \"%.100s\": %s", text, why);
    o->text = text;
    c->num_overrides++;
    return SLUICE_OK;
}

/* The first override that matches; every one that does is noted. NULL: none. */
static const sluice__override *override_of(sluice__conversion *c, const char *name) {
    const sluice__override *first = NULL;
    for (int i = 0; i < c->num_overrides; i++) {
        sluice__override *o = &c->overrides[i];
        if (regexec(&o->pattern, name, 0, NULL, 0)) continue;
        o->matched = true;
        if (!first) first = o;
    }
    return first;
}

sluice_status sluice__conversion_check_overrides(const sluice__conversion *c, sluice_error *err) {
    for (int i = 0; i < c->num_overrides; i++)
        if (!c->overrides[i].matched)
            return sluice__fail(err, SLUICE_ERR_ARGUMENT, "override \"%.100s\": matches no tensor of %s", c->overrides[i].text, c->to);
    return SLUICE_OK;
}

static sluice_status read_params(sluice__conversion *c, sluice_error *err) {
    const sluice_convert_params *p = c->params;
    c->typed = p->dtype != NULL;
    if (c->typed && !find_type(&c->dtype, p->dtype, p->gguf)) return unknown_type(p->dtype, p->gguf, err);
    if (p->max_shard_size < 0) return sluice__fail(err, SLUICE_ERR_ARGUMENT, "max_shard_size: expected 0 or more");
    c->overrides = sluice__calloc((size_t)p->num_overrides, sizeof *c->overrides, SLUICE__MEM_OTHER);
    if (!c->overrides) return sluice__no_memory(err, sizeof *c->overrides, "overrides");
    for (int i = 0; i < p->num_overrides; i++) SLUICE__TRY(add_override(c, p->overrides[i], err));
    return SLUICE_OK;
}

/* A type for rows of this length: blocks of 256 give way to blocks of 32, those to halves. */
static sluice__dtype fitting(sluice__dtype dtype, int64_t columns) {
    if (columns % sluice__dtype_block(dtype) == 0) return dtype;
    if (columns % 32) return SLUICE__F16;
    return dtype == SLUICE__Q4_K ? SLUICE__Q5_0 : dtype == SLUICE__Q5_K ? SLUICE__Q5_1 : SLUICE__Q8_0;
}

/* Embedding and head lose most by few bits: as in llama.cpp's mixtures they get six. */
static sluice__dtype gentler(const char *name, sluice__dtype dtype) {
    bool ends = !strcmp(name, "token_embd.weight") || !strcmp(name, "output.weight");
    sluice__quant quant;
    bool few = sluice__dtype_quant(dtype, &quant) && dtype != SLUICE__Q8_0 && dtype != SLUICE__Q6_K;
    return ends && few ? SLUICE__Q6_K : dtype;
}

static sluice__dtype wanted_type(sluice__conversion *c, const char *name, sluice__dtype like, int64_t columns, bool matrix) {
    bool gguf = c->params->gguf;
    sluice__quant quant;
    const sluice__override *o = override_of(c, name);
    if (o) return fitting(o->dtype, columns);
    if (!gguf && !c->typed) return sluice__dtype_quant(like, &quant) ? SLUICE__F32 : like;
    if (!gguf) return c->dtype;
    if (!matrix) return c->typed ? SLUICE__F32 : like;
    return fitting(c->typed ? gentler(name, c->dtype) : like, columns);
}

sluice__dtype sluice__conversion_type(sluice__conversion *c, const char *name, sluice__dtype like, int64_t rows,
                                      int64_t columns, bool matrix) {
    sluice__dtype dtype = wanted_type(c, name, like, columns, matrix);
    bool blocks = c->typed && sluice__dtype_block(c->dtype) > 1;
    c->result->kept_wider += matrix && blocks && columns % sluice__dtype_block(c->dtype) != 0;
    c->tensors_of[dtype]++;
    c->result->tensors++;
    c->result->parameters += rows * columns;
    c->result->bytes += sluice__dtype_bytes(dtype, rows * columns);
    return dtype;
}

void sluice__conversion_keep(sluice__conversion *c, sluice__dtype dtype) {
    c->tensors_of[dtype]++;
    c->result->tensors++;
}

/* ---- values that are no numbers ---- */

void sluice__conversion_look(sluice__conversion *c, const char *name, sluice__dtype dtype, const void *data, int64_t count) {
    sluice__quant quant;
    bool blocks = sluice__dtype_quant(dtype, &quant);
    if (name == c->last_nonfinite || !sluice__dtype_is_weight(dtype)) return;
    if (blocks ? sluice__quant_finite(quant, data, count) : !sluice__any_nonfinite(dtype, data, count)) return;
    c->last_nonfinite = name;
    if (c->num_nonfinite++ < 4) sluice__strbuf_printf(&c->nonfinite, "%s%s", c->nonfinite.size ? ", " : "", name);
}

static void report_nonfinite(const sluice__conversion *c) {
    if (c->num_nonfinite) sluice__warn_nonfinite(c->to, c->num_nonfinite, c->nonfinite.data, c->num_nonfinite > 4);
}

static void describe_types(const sluice__conversion *c) {
    size_t n = 0;
    char *out = c->result->types;
    for (int i = 0; i < SLUICE__DTYPES && n < sizeof c->result->types; i++)
        if (c->tensors_of[i])
            n += (size_t)snprintf(out + n, sizeof c->result->types - n, "%s%s x%lld", n ? ", " : "",
                                  sluice__dtype_name((sluice__dtype)i), (long long)c->tensors_of[i]);
}

/* ---- to GGUF ---- */

static sluice__dtype type_of(void *user, const char *name, sluice__dtype like, int64_t rows, int64_t columns, bool matrix) {
    return sluice__conversion_type(user, name, like, rows, columns, matrix);
}

static void put_file_type(sluice__gguf_writer *w, const sluice__conversion *c) {
    static const struct {
        sluice__dtype dtype;
        unsigned number;
    } numbers[] = {{SLUICE__F32, 0},  {SLUICE__F16, 1},   {SLUICE__Q4_0, 2},  {SLUICE__Q4_1, 3},  {SLUICE__Q8_0, 7}, {SLUICE__Q5_0, 8},
                   {SLUICE__Q5_1, 9}, {SLUICE__Q4_K, 14}, {SLUICE__Q5_K, 16}, {SLUICE__Q6_K, 18}, {SLUICE__BF16, 32}};
    enum { NUMBERS = sizeof numbers / sizeof *numbers };
    int best = 0;
    bool blocks = false;
    for (int i = 0; i < NUMBERS; i++) {
        if (c->tensors_of[numbers[i].dtype] && numbers[i].dtype != SLUICE__F32 &&
            c->tensors_of[numbers[i].dtype] > (best ? c->tensors_of[numbers[best].dtype] : 0))
            best = i;
        blocks |= c->tensors_of[numbers[i].dtype] && sluice__dtype_block(numbers[i].dtype) > 1;
    }
    sluice__gguf_put_u32(w, "general.file_type", numbers[best].number);
    if (blocks) sluice__gguf_put_u32(w, "general.quantization_version", 2);
}

static void put_name(sluice__gguf_writer *w, const char *from) {
    size_t n = strlen(from);
    while (n > 1 && from[n - 1] == '/') n--;
    size_t start = n;
    while (start > 0 && from[start - 1] != '/') start--;
    sluice__gguf_put_string(w, "general.name", from + start, n - start);
}

typedef struct job {
    sluice__conversion *c;
    const sluice__gguf_export *e;           /* from a model, or */
    const sluice__gguf *g;                  /* from a GGUF file */
    const sluice__gguf_writer *w;
} job;

static sluice_status job_rows(void *user, int tensor, int64_t first, int64_t rows, float *values, sluice_error *err) {
    const job *j = user;
    const sluice__gguf_new_tensor *made = &j->w->tensors[tensor];
    if (j->e) {
        SLUICE__TRY(sluice__gguf_export_rows(j->e, tensor, first, rows, values, err));
        sluice__conversion_look(j->c, made->name, SLUICE__F32, values, rows * made->shape[made->ndim - 1]);
        return SLUICE_OK;
    }
    const sluice__gguf_tensor *t = sluice__gguf_tensor_at(j->g, tensor);
    int64_t row = t->shape[t->ndim - 1];
    if (!sluice__dtype_is_weight(t->dtype))
        return sluice__fail(err, SLUICE_ERR_UNSUPPORTED, "%s: tensor %s: type %s cannot be converted",
                            sluice__gguf_path(j->g), t->name, sluice__dtype_name(t->dtype));
    sluice__to_f32(values, t->dtype, t->data + sluice__dtype_bytes(t->dtype, first * row), 1, rows * row);
    sluice__conversion_look(j->c, made->name, SLUICE__F32, values, rows * row);
    return SLUICE_OK;
}

/* Numbers that the type cannot hold, such as 1e5 in F16, are found here; NaN in blocks, which may lose it, in job_rows. */
static void job_wrote(void *user, int tensor, const void *data, int64_t count, bool last) {
    const job *j = user;
    const sluice__gguf_new_tensor *t = &j->w->tensors[tensor];
    sluice__conversion_look(j->c, t->name, t->dtype, data, count);
    if (last) sluice__progress_update(&j->c->progress, tensor + 1, "%s", "");
}

static sluice_status write_file(job *j, sluice__gguf_writer *w, sluice_error *err) {
    SLUICE__TRY(sluice__conversion_check_overrides(j->c, err));
    put_file_type(w, j->c);
    j->w = w;
    sluice__progress_begin(&j->c->progress, "converting", "tensors", w->num_tensors, 0, 1);
    sluice_status st = sluice__gguf_write(w, j->c->to, job_rows, job_wrote, j, err);
    sluice__progress_end(&j->c->progress, "%s", st == SLUICE_OK ? "done" : "failed");
    return st;
}

static sluice_status model_to_gguf(sluice__conversion *c, sluice_error *err) {
    sluice_load_params load = sluice_load_params_default();
    load.weights = SLUICE_LOAD_AS_STORED;
    sluice_model *model;
    sluice__gguf_export e;
    SLUICE__TRY(sluice_model_load(&model, c->from, &load, err));
    sluice_status st = sluice__gguf_export_new(&e, model, type_of, c, err);
    if (st == SLUICE_OK) {
        put_name(&e.writer, c->from);
        st = sluice__gguf_export_tokenizer(&e.writer, c->from, &model->config, err);
        job j = {.c = c, .e = &e};
        if (st == SLUICE_OK) st = write_file(&j, &e.writer, err);
        sluice__gguf_export_free(&e);
    }
    sluice_model_free(model);
    return st;
}

static bool is(sluice__gguf_text key, const char *text) {
    return key.size == strlen(text) && !memcmp(key.data, text, key.size);
}

/* A tensor whose type stays is copied byte by byte. Types are chosen as for a model that is not in a GGUF file yet. */
static sluice_status copy_tensor(sluice__conversion *c, sluice__gguf_writer *w, const sluice__gguf_tensor *t, int neutral,
                                 sluice_error *err) {
    bool typed = sluice__gguf_is_typed(t->name, t->ndim, neutral);
    int64_t row = typed ? t->shape[t->ndim - 1] : 1;
    sluice__dtype dtype = t->dtype;
    if (sluice__dtype_is_weight(dtype)) dtype = sluice__conversion_type(c, t->name, dtype, t->count / row, row, typed);
    else sluice__conversion_keep(c, dtype);
    int index = sluice__gguf_add_tensor(w, t->name, dtype, t->ndim, t->shape);
    if (index < 0) return sluice__no_memory(err, 64, t->name);
    if (dtype == t->dtype) w->tensors[index].raw = t->data;
    return SLUICE_OK;
}

static sluice_status gguf_to_gguf(sluice__conversion *c, sluice_error *err) {
    sluice__gguf *g;
    sluice__gguf_writer w = {0};
    SLUICE__TRY(sluice__gguf_open(&g, c->from, err));
    int neutral;
    sluice_status st = sluice__gguf_find_neutral(&neutral, g, err);
    for (int i = 0; i < sluice__gguf_num_entries(g); i++) {
        sluice__gguf_text key = sluice__gguf_key_at(g, i);
        if (is(key, "general.file_type") || is(key, "general.alignment") || is(key, "general.quantization_version")) continue;
        sluice__gguf_put_copy(&w, key, sluice__gguf_value_at(g, i));
    }
    for (int i = 0; i < sluice__gguf_num_tensors(g) && st == SLUICE_OK; i++)
        st = copy_tensor(c, &w, sluice__gguf_tensor_at(g, i), neutral, err);
    job j = {.c = c, .g = g};
    if (st == SLUICE_OK) st = write_file(&j, &w, err);
    sluice__gguf_writer_free(&w);
    sluice__gguf_close(g);
    return st;
}

/* ---- the whole ---- */

static sluice_status to_directory(sluice__conversion *c, bool from_gguf, sluice_error *err) {
    char *temporary;
    SLUICE__TRY(sluice__atomic_dir_begin(&temporary, c->to, err));
    sluice_status st = from_gguf ? sluice__convert_gguf_to_hf(c, temporary, err) : sluice__convert_hf_to_hf(c, temporary, err);
    if (st == SLUICE_OK) return sluice__atomic_dir_commit_new(temporary, c->to, err);
    sluice__atomic_dir_discard(temporary);
    return st;
}

/* Before any work. A directory that holds something is never replaced: it may be somebody's run. */
static sluice_status check_target(const sluice__conversion *c, sluice_error *err) {
    const char *to = c->to;
    struct stat source, target;
    if (c->params->gguf && stat(c->from, &source) == 0 && stat(to, &target) == 0 && source.st_dev == target.st_dev &&
        source.st_ino == target.st_ino)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "%s: is the source itself; give another name", to);
    if (!*to) return sluice__fail(err, SLUICE_ERR_ARGUMENT, "the target has no name");
    if (c->params->gguf && sluice__is_dir(to))
        return sluice__fail(err, SLUICE_ERR_IO, "%s: is a directory, expected the name of a file", to);
    if (c->params->gguf) {
        SLUICE__TRY(sluice__check_replaceable(to, "GGUF", "a GGUF file", err));
        return sluice__make_parents(to, err);
    }
    if (sluice__is_free(to)) return SLUICE_OK;
    if (!sluice__is_dir(to))
        return sluice__fail(err, SLUICE_ERR_IO, "%s: is a file; the target is a directory unless its name ends in .gguf", to);
    return sluice__fail(err, SLUICE_ERR_IO, "%s: exists and is not empty; give another name, or remove it first", to);
}

sluice_status sluice_convert(const char *from, const char *to, const sluice_convert_params *params,
                             sluice_convert_result *result, sluice_error *err) {
    sluice_convert_params fallback = sluice_convert_params_default();
    sluice_convert_result own;
    sluice__conversion c = {.from = from, .to = to, .params = params ? params : &fallback, .result = result ? result : &own};
    *c.result = (sluice_convert_result){0};
    bool from_gguf = !sluice__is_dir(from) && sluice__is_gguf(from);
    sluice_status st = read_params(&c, err);
    if (st == SLUICE_OK && !from_gguf && !sluice__is_dir(from))
        st = sluice__fail(err, SLUICE_ERR_IO, "%s: neither a model directory nor a GGUF file", from);
    if (st == SLUICE_OK) st = check_target(&c, err);
    if (st == SLUICE_OK)
        st = !c.params->gguf ? to_directory(&c, from_gguf, err) : from_gguf ? gguf_to_gguf(&c, err) : model_to_gguf(&c, err);
    if (st == SLUICE_OK) describe_types(&c);
    if (st == SLUICE_OK) report_nonfinite(&c);
    sluice__strbuf_free(&c.nonfinite);
    for (int i = 0; i < c.num_overrides; i++) regfree(&c.overrides[i].pattern);
    sluice__free(c.overrides);
    return st;
}
