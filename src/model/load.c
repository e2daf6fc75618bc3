/* SPDX-License-Identifier: Apache-2.0 */
/* Loading: configuration, then a check of every tensor's presence, type and shape, and only then memory for the
 * weights and one pass over the files (load_rows.c). */
#include "model/load.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/strbuf.h"
#include "model/gguf_model.h"
#include "model/gguf_neutral.h"
#include "model/packing.h"
#include <string.h>

sluice_load_params sluice_load_params_default(void) {
    return (sluice_load_params){0};
}

/* ---- what the file must hold ---- */

static bool is_q(sluice__slot slot) {
    return slot == SLUICE__SLOT_Q || slot == SLUICE__SLOT_Q_BIAS;
}

static void format_shape(char out[96], const int64_t *shape, int ndim) {
    size_t n = 0;
    out[0] = '\0';
    for (int i = 0; i < ndim && n < 80; i++)
        n += (size_t)snprintf(out + n, 96 - n, "%s%lld", i ? ", " : "", (long long)shape[i]);
}

/* The expectation about q_proj follows from three keys; a reader of the message needs to see the sum. */
static sluice_status wrong_shape(const sluice__loader *l, const sluice__store_tensor *t, const sluice__transfer *x,
                                 const int64_t *expected, int ndim, sluice_error *err) {
    char found[96], want[96], why[160] = "";
    format_shape(found, t->shape, t->ndim);
    format_shape(want, expected, ndim);
    if (is_q(x->slot)) {
        const sluice_layer_spec *s = &l->config.layers[x->layer];
        int64_t gate = sluice__packed_gate_rows(&l->config, &l->layout, x->layer);
        snprintf(why, sizeof why, ": %d heads x %d query rows%s%lld%s", s->num_attention_heads, s->head_dim,
                 gate ? " + " : " and ", (long long)gate,
                 gate == s->num_attention_heads ? " headwise gate rows"
                 : gate                         ? " elementwise gate rows"
                                                : " gate rows");
    }
    return sluice__fail(err, SLUICE_ERR_FORMAT,
                        "%s: tensor %s: found shape [%s], expected [%s] by config.json%s", t->file, t->name,
                        found, want, why);
}

/* Every type that weights are read from. */
static sluice_status refuse_type(const sluice__store_tensor *t, sluice_error *err) {
    char names[256] = "";
    size_t n = 0;
    for (int d = 0; d < SLUICE__DTYPES; d++)
        if (sluice__dtype_is_weight((sluice__dtype)d) && n + 16 < sizeof names)
            n += (size_t)snprintf(names + n, sizeof names - n, "%s%.10s", n ? ", " : "", sluice__dtype_name((sluice__dtype)d));
    return sluice__fail(err, SLUICE_ERR_UNSUPPORTED,
                        "%s: tensor %s: dtype %s is not supported (packed or quantised weights?), expected one of %s", t->file,
                        t->name, sluice__dtype_name(t->dtype), names);
}

static sluice_status check_tensor(const sluice__loader *l, const sluice__store_tensor *t, const sluice__transfer *x,
                                  const sluice__file_view *v, sluice_error *err) {
    bool same = t->ndim == v->ndim;
    for (int i = 0; i < v->ndim && same; i++) same = t->shape[i] == v->shape[i];
    if (!sluice__dtype_is_weight(t->dtype)) return refuse_type(t, err);
    return same ? SLUICE_OK : wrong_shape(l, t, x, v->shape, v->ndim, err);
}

/* Names every way in which the files might have held it. */
static sluice_status missing(const sluice__loader *l, sluice__place place, sluice_error *err) {
    sluice__strbuf names = {0};
    sluice__file_view v;
    for (int which = 0; sluice__file_view_at(&v, &l->config, &l->layout, place, which); which++) {
        sluice__strbuf_printf(&names, "%s%s", which ? " (or " : "", v.name ? v.name : "");
        if (which) sluice__strbuf_printf(&names, ")");
        sluice__free(v.name);
    }
    sluice_status st =
        sluice__fail(err, SLUICE_ERR_FORMAT, "%s: tensor %s is missing%s", l->dir, names.data ? names.data : "",
                     place.slot == SLUICE__SLOT_LM_HEAD ? " (tie_word_embeddings is false in config.json)" : "");
    sluice__strbuf_free(&names);
    return st;
}

static sluice_status add_transfer(sluice__loader *l, const sluice__transfer *x, sluice_error *err) {
    if (l->num_transfers == l->room) {
        int room = l->room ? 2 * l->room : 256;
        sluice__transfer *more = sluice__realloc(l->transfers, (size_t)room, sizeof *more, SLUICE__MEM_OTHER);
        if (!more) return sluice__no_memory(err, (size_t)room * sizeof *more, "the list of tensors");
        l->transfers = more;
        l->room = room;
    }
    l->used[x->source] = true;
    l->transfers[l->num_transfers++] = *x;
    return SLUICE_OK;
}

/* The first of the family's names for this tensor that the files have. */
static sluice_status plan_tensor(sluice__loader *l, sluice__place place, sluice_error *err) {
    sluice__file_view v;
    int which = 0;
    for (; sluice__file_view_at(&v, &l->config, &l->layout, place, which); which++) {
        if (!v.name) return sluice__no_memory(err, 64, "a tensor name");
        sluice__transfer x = {.source = sluice__store_find(l->store, v.name),
                      .slot = place.slot,
                      .layer = place.layer,
                      .expert = place.expert,
                      .view = v.view};
        sluice__free(v.name);
        if (x.source < 0) continue;
        SLUICE__TRY(check_tensor(l, sluice__store_at(l->store, x.source), &x, &v, err));
        return add_transfer(l, &x, err);
    }
    return which ? missing(l, place, err) : SLUICE_OK;
}

/* A file saved from the bare decoder lacks the leading "model."; one of a language model taken out of its vision
 * wrapper, or put into one, has the other's. */
static void adapt_prefix(sluice__loader *l) {
    static const char *const others[] = {"", "model.", "model.language_model.", "language_model.model."};
    for (int i = -1; i < (int)(sizeof others / sizeof *others); i++) {
        const char *prefix = i < 0 ? l->layout.prefix : others[i];
        char *name = sluice__asprintf("%sembed_tokens.weight", prefix);
        bool found = name && sluice__store_find(l->store, name) >= 0;
        sluice__free(name);
        if (!found) continue;
        l->layout.prefix = prefix;
        return;
    }
}

static sluice_status plan(sluice__loader *l, sluice_error *err) {
    size_t count = (size_t)sluice__store_count(l->store);
    l->used = sluice__calloc(count, sizeof *l->used, SLUICE__MEM_OTHER);
    if (!l->used) return sluice__no_memory(err, count * sizeof *l->used, "the list of tensors");
    adapt_prefix(l);
    sluice__place place = SLUICE__FIRST_PLACE;
    do SLUICE__TRY(plan_tensor(l, place, err));
    while (sluice__place_next(&l->config, &place));
    return SLUICE_OK;
}

/* Tensors that older or larger files carry and that mean nothing here. */
static bool harmless(const sluice__loader *l, const char *name) {
    static const char *const parts[] = {"rotary_emb.inv_freq", "mtp.",          "visual.",
                                        "rope_freqs.weight", "nextn.",
                                        "vision_tower.",       "vision_model.", NULL};
    for (int i = 0; parts[i]; i++)
        if (strstr(name, parts[i])) return true;
    if (sluice__gguf_is_neutral(name, l->neutral)) return true;
    return l->config.tie_word_embeddings && !strcmp(name, "lm_head.weight");
}

static void report_unused(const sluice__loader *l) {
    int unused = 0;
    const char *first = NULL;
    for (int i = 0; i < sluice__store_count(l->store); i++) {
        const char *name = sluice__store_at(l->store, i)->name;
        if (l->used[i] || harmless(l, name)) continue;
        if (!unused++) first = name;
    }
    if (unused)
        sluice__log(SLUICE_LOG_WARNING, "%s: %d tensor%s of the file %s not used, for example %s", l->dir,
                    unused, unused == 1 ? "" : "s", unused == 1 ? "is" : "are", first);
}

static void report_nonfinite(const sluice__loader *l) {
    int bad = 0;
    sluice__strbuf names = {0};
    for (int i = 0; i < l->num_transfers; i++)
        if (l->transfers[i].nonfinite && bad++ < 4)
            sluice__strbuf_printf(&names, "%s%s", names.size ? ", " : "",
                                  sluice__store_at(l->store, l->transfers[i].source)->name);
    if (bad) sluice__warn_nonfinite(l->dir, bad, names.data, bad > 4);
    sluice__strbuf_free(&names);
}

/* ---- the whole ---- */

static sluice_status read_config(sluice__loader *l, const sluice_load_params *params, sluice_error *err) {
    if (sluice__store_gguf(l->store)) {
        SLUICE__TRY(sluice__gguf_config(&l->config, &l->layout, sluice__store_gguf(l->store), err));
        SLUICE__TRY(sluice__gguf_find_neutral(&l->neutral, sluice__store_gguf(l->store), err));
        return params && params->rope_override ? sluice__config_override_rope(&l->config, params->rope_override, err)
                                               : SLUICE_OK;
    }
    if (!sluice__is_dir(l->dir))
        return sluice__fail(err, SLUICE_ERR_IO, "%s: not a directory that holds a model", l->dir);
    char *path = sluice__path_join(l->dir, "config.json");
    if (!path) return sluice__no_memory(err, strlen(l->dir), "a path");
    sluice_status st = sluice__config_read_file(&l->config, &l->layout, path, err);
    sluice__free(path);
    if (st == SLUICE_OK && params && params->rope_override)
        st = sluice__config_override_rope(&l->config, params->rope_override, err);
    return st;
}

static sluice_status make_model(sluice__loader *l, bool as_stored, sluice_error *err) {
    sluice_config copy;
    SLUICE__TRY(sluice__config_copy(&copy, &l->config, err));
    copy.norm = SLUICE_NORM_PLAIN;
    copy.gate_packing = SLUICE_GATE_OWN_TENSOR;
    return sluice__model_alloc(&l->model, &copy, as_stored, err);
}

static sluice_status fill_model(sluice__loader *l, sluice_error *err) {
    sluice__load_targets(l);
    if (l->model->as_stored) SLUICE__TRY(sluice__load_place(l, err));
    SLUICE__TRY(sluice__load_rows(l, err));
    for (int i = 0; i < l->num_transfers; i++) l->model->nonfinite[l->transfers[i].to] |= l->transfers[i].nonfinite;
    report_nonfinite(l);
    if (!l->model->as_stored) return SLUICE_OK;
    sluice__model_bind(l->model);
    l->model->store = l->store; /* its maps are those of the matrices */
    l->store = NULL;
    return SLUICE_OK;
}

static void loader_end(sluice__loader *l) {
    sluice__store_close(l->store);
    sluice__free(l->transfers);
    sluice__free(l->used);
    sluice_config_free(&l->config);
}

/* Configuration, files, and what goes where. */
static sluice_status loader_begin(sluice__loader *l, const char *path, const sluice_load_params *params,
                                  sluice_error *err) {
    *l = (sluice__loader){.dir = path, .neutral = -1};
    sluice_status st = SLUICE_OK;
    if (!sluice__is_dir(path) && sluice__is_gguf(path)) st = sluice__store_open(&l->store, path, err);
    if (st == SLUICE_OK) st = read_config(l, params, err);
    if (st == SLUICE_OK && !l->store) st = sluice__store_open(&l->store, path, err);
    return st == SLUICE_OK ? plan(l, err) : st;
}

sluice_status sluice_model_check(const char *path, sluice_error *err) {
    sluice__loader l;
    sluice_status st = loader_begin(&l, path, NULL, err);
    loader_end(&l);
    return st;
}

sluice_status sluice_model_load(sluice_model **out, const char *path, const sluice_load_params *params,
                                sluice_error *err) {
    *out = NULL;
    sluice__loader l;
    sluice_status st = loader_begin(&l, path, params, err);
    if (st == SLUICE_OK) report_unused(&l);
    if (st == SLUICE_OK) st = make_model(&l, params && params->weights == SLUICE_LOAD_AS_STORED, err);
    if (st == SLUICE_OK) st = fill_model(&l, err);
    if (st == SLUICE_OK) *out = l.model;
    else sluice_model_free(l.model);
    loader_end(&l);
    return st;
}
