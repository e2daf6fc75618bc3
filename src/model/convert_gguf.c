/* SPDX-License-Identifier: Apache-2.0 */
/* From a GGUF file to a Hugging Face directory. Both sides are described by where they hold a tensor of the model
 * (file_view.h): what is read there is written here, which undoes and redoes all joining, stacking, interleaving and
 * transposing. Rows that converters reorder come back in order from the store. */
#include "model/convert_plan.h"
#include "base/json.h"
#include "base/memory.h"
#include "model/file_view.h"
#include "model/gguf_model.h"
#include "model/gguf_neutral.h"
#include "sluice/tokenizer.h"
#include <string.h>

typedef struct way {
    sluice__convert_plan plan;
    sluice_config from, to; /* the same model, as either side describes it */
    sluice__file_layout from_layout, to_layout;
    bool *used; /* [tensors of the source] */
    int layer;  /* of the newest piece */
    int first;  /* piece of that layer */
} way;

static sluice_status check_shape(const sluice__store_tensor *t, const sluice__file_view *v, sluice_error *err) {
    bool same = t->ndim == v->ndim;
    for (int i = 0; i < v->ndim && same; i++) same = t->shape[i] == v->shape[i];
    if (same) return SLUICE_OK;
    return sluice__fail(err, SLUICE_ERR_FORMAT, "%s: tensor %s: its shape contradicts the metadata", t->file, t->name);
}

/* Where the source has the tensor at `place`: -1 with SLUICE_OK when the model has none of its own there. */
static sluice_status find_source(way *w, sluice__place place, int *source, sluice__view *view, sluice_error *err) {
    sluice__file_view v;
    char first[96] = "";
    *source = -1;
    for (int which = 0; sluice__file_view_at(&v, &w->from, &w->from_layout, place, which); which++) {
        if (!v.name) return sluice__no_memory(err, 64, "a tensor name");
        if (!which) snprintf(first, sizeof first, "%s", v.name);
        *source = sluice__store_find(w->plan.store, v.name);
        sluice__free(v.name);
        if (*source < 0) continue;
        *view = v.view;
        w->used[*source] = true;
        return check_shape(sluice__store_at(w->plan.store, *source), &v, err);
    }
    if (!*first) return SLUICE_OK;
    return sluice__fail(err, SLUICE_ERR_FORMAT, "%s: tensor %s is missing", w->plan.c->from, first);
}

/* The way in which released files of the family hold the tensor: together with others where its table says so, but experts
 * one by one, which the classes of transformers stack when they load them; gpt-oss alone has them stacked in its files. */
static bool target_view(sluice__file_view *out, const way *w, sluice__place place) {
    bool alone = place.expert >= 0 && w->to_layout.family != &sluice__family_gpt_oss;
    if (!alone && sluice__file_view_at(out, &w->to, &w->to_layout, place, 1)) {
        if (out->shared) return true;
        sluice__free(out->name);
    }
    return sluice__file_view_at(out, &w->to, &w->to_layout, place, 0);
}

/* The piece of this name becomes the newest, or is made. */
static sluice_status open_piece(way *w, const sluice__file_view *v, int source, int layer, sluice_error *err) {
    sluice__convert_plan *p = &w->plan;
    if (layer != w->layer) w->layer = layer, w->first = p->count;
    for (int i = p->count - 1; v->shared && i >= w->first; i--) {
        if (strcmp(p->pieces[i].name, v->name)) continue;
        sluice__piece found = p->pieces[i];
        p->pieces[i] = p->pieces[p->count - 1];
        p->pieces[p->count - 1] = found;
        return SLUICE_OK;
    }
    return sluice__convert_piece(p, v->name, source, v->ndim, v->shape, err);
}

static sluice_status add_place(way *w, sluice__place place, sluice_error *err) {
    sluice__part part = {.one_plus = w->to_layout.family->norm == SLUICE_NORM_ONE_PLUS && sluice__slot_is_one_plus(place.slot)};
    sluice__file_view v;
    SLUICE__TRY(find_source(w, place, &part.source, &part.from, err));
    if (part.source < 0) return SLUICE_OK;
    if (!target_view(&v, w, place))
        return sluice__fail(err, SLUICE_ERR_UNSUPPORTED, "%s: tensor %s has no counterpart in %s", w->plan.c->from,
                            sluice__store_at(w->plan.store, part.source)->name, w->to_layout.family->name);
    part.to = v.view;
    sluice_status st = v.name ? open_piece(w, &v, part.source, place.layer, err) : sluice__no_memory(err, 64, "a tensor name");
    if (st == SLUICE_OK && (part.to.rows != part.from.rows || part.to.columns != part.from.columns))
        st = sluice__fail(err, SLUICE_ERR_UNSUPPORTED, "%s: %s is stored in another way in %s", w->plan.c->from, v.name,
                          w->to_layout.family->name);
    if (st == SLUICE_OK) st = sluice__convert_part(&w->plan, &part, err);
    sluice__free(v.name);
    return st;
}

/* Nothing is dropped but what the configuration says (rope_freqs) and what adds nothing. */
static sluice_status check_unused(const way *w, int neutral, sluice_error *err) {
    for (int i = 0; i < sluice__store_count(w->plan.store); i++) {
        const sluice__store_tensor *t = sluice__store_at(w->plan.store, i);
        if (w->used[i] || !strcmp(t->name, "rope_freqs.weight") || sluice__gguf_is_neutral(t->name, neutral)) continue;
        return sluice__fail(err, SLUICE_ERR_UNSUPPORTED, "%s: tensor %s has no counterpart in %s", t->file, t->name,
                            w->to_layout.family->name);
    }
    return SLUICE_OK;
}

static sluice_status plan_tensors(way *w, sluice_error *err) {
    int neutral;
    sluice__place place = SLUICE__FIRST_PLACE;
    w->used = sluice__calloc((size_t)sluice__store_count(w->plan.store) + 1, sizeof *w->used, SLUICE__MEM_OTHER);
    if (!w->used) return sluice__no_memory(err, 4096, "the list of tensors");
    w->layer = -2;
    do SLUICE__TRY(add_place(w, place, err));
    while (sluice__place_next(&w->from, &place));
    SLUICE__TRY(sluice__gguf_find_neutral(&neutral, sluice__store_gguf(w->plan.store), err));
    return check_unused(w, neutral, err);
}

static sluice_status write_tokenizer(const char *from, const char *to, sluice_error *err) {
    sluice_tokenizer *tok;
    sluice_error why = {0};
    sluice__gguf *g;
    SLUICE__TRY(sluice__gguf_open(&g, from, err));
    sluice__gguf_text model;
    const sluice__gguf_value *v = sluice__gguf_find(g, "tokenizer.ggml.model");
    bool none = !sluice__gguf_string(v, &model) || (model.size == 4 && !memcmp(model.data, "none", 4));
    sluice__gguf_close(g);
    if (none) return SLUICE_OK;
    sluice_status st = sluice_tokenizer_load(&tok, from, &why);
    if (st != SLUICE_OK) {
        if (err) *err = why;
        return st;
    }
    st = sluice_tokenizer_save(tok, to, err);
    sluice_tokenizer_free(tok);
    return st;
}

sluice_status sluice__convert_gguf_to_hf(sluice__conversion *c, const char *temporary, sluice_error *err) {
    way w = {.plan.c = c};
    json_t *root = NULL;
    sluice_status st = sluice__store_open(&w.plan.store, c->from, err);
    if (st == SLUICE_OK) st = sluice__gguf_config_json(&root, sluice__store_gguf(w.plan.store), err);
    sluice__json view = sluice__json_view(root, c->from);
    if (st == SLUICE_OK) st = sluice__config_read(&w.to, &w.to_layout, &view, err);
    if (st == SLUICE_OK) st = sluice__gguf_config(&w.from, &w.from_layout, sluice__store_gguf(w.plan.store), err);
    if (st == SLUICE_OK) st = plan_tensors(&w, err);
    if (st == SLUICE_OK) st = write_tokenizer(c->from, temporary, err);
    if (st == SLUICE_OK) st = sluice__convert_save_config(c, root, temporary, err);
    if (st == SLUICE_OK) st = sluice__convert_write(&w.plan, temporary, err);
    sluice_config_free(&w.from);
    sluice_config_free(&w.to);
    json_decref(root);
    sluice__free(w.used);
    sluice__convert_end(&w.plan);
    return st;
}
