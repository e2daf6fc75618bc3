/* SPDX-License-Identifier: Apache-2.0 */
/* What a trained model does inside: the inspection of held-out windows, the attention map of one sentence, and samples
 * of what it writes. */
#include "study/subject.h"
#include "base/memory.h"
#include "inspect/inspection_json.h"
#include "model/tokenizer_internal.h"
#include "sluice/session.h"
#include <string.h>

/* Up to `count` held-out windows, spread evenly: ids [*windows, seq_len]. */
static sluice_status heldout_ids(int32_t **ids, int64_t *windows, const sluice__subject *s, int64_t count,
                                 sluice_error *err) {
    int64_t total = sluice_dataset_get_info(s->dataset).heldout_windows, len = s->params->seq_len;
    int32_t *rest = sluice__calloc(3 * (size_t)len, sizeof *rest, SLUICE__MEM_DATA); /* not needed here */
    *windows = count < total ? count : total;
    *ids = sluice__calloc((size_t)*windows * (size_t)len, sizeof **ids, SLUICE__MEM_DATA);
    bool ok = rest && *ids;
    for (int64_t i = 0; ok && i < *windows; i++) {
        sluice_window w = {*ids + i * len, rest, rest + len, rest + 2 * len};
        sluice_dataset_heldout_window(s->dataset, i * total / *windows, &w);
    }
    sluice__free(rest);
    if (ok) return SLUICE_OK;
    sluice__free(*ids);
    return sluice__no_memory(err, (size_t)*windows * (size_t)len * sizeof **ids, "held-out windows");
}

sluice_status sluice__measure_inside(json_t *run, const sluice__subject *s, sluice_error *err) {
    int32_t *ids;
    int64_t windows;
    SLUICE__TRY(heldout_ids(&ids, &windows, s, s->evaluation->inspect_windows, err));
    /* Whether the sink moved to another key needs maps: fine at the lengths that studies train at. */
    sluice_inspect_params params = {.other_keys = s->params->seq_len <= SLUICE_MAP_MAX_TOKENS};
    sluice_inspection *r = NULL;
    sluice_status st = sluice_inspect(&r, s->model, ids, windows, (int)s->params->seq_len, &params, err);
    if (st == SLUICE_OK) json_object_set_new(run, "inspect", sluice__inspection_to_json(r));
    sluice_inspection_free(r);
    sluice__free(ids);
    return st;
}

/* ---- the map ---- */

static bool ends_sentence(const char *text, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (strchr(".!?\n", text[i])) return true;
    return false;
}

/* The first sentence of the held-out text that begins behind the end of another one and has at least 8 tokens; from its
 * beginning, cut at `most`. Text without sentences gives its first `most` tokens. */
static sluice_status first_sentence(sluice_ids *out, const sluice__subject *s, int64_t most, sluice_error *err) {
    enum { LOOK = 4096, LEAST = 8 };
    int32_t ids[LOOK];
    int64_t n = sluice_dataset_get_info(s->dataset).heldout_tokens, begin = -1, from = 0, to;
    if (n > LOOK) n = LOOK;
    sluice_dataset_heldout_tokens(s->dataset, 0, n, ids);
    sluice_status st = SLUICE_OK;
    sluice_text piece = {0};
    to = n < most ? n : most;
    for (int64_t i = 0; st == SLUICE_OK && i < n; i++) {
        piece.size = 0;
        st = sluice__entry_decode(s->entry, &ids[i], 1, &piece, err);
        if (st != SLUICE_OK || !ends_sentence(piece.data, piece.size)) continue;
        if (begin >= 0 && i + 1 - begin >= LEAST) {
            from = begin;
            to = i + 1 - begin < most ? i + 1 : begin + most;
            break;
        }
        begin = i + 1;
    }
    sluice_text_free(&piece);
    for (int64_t i = from; st == SLUICE_OK && i < to; i++) st = sluice__ids_push(out, ids[i], err);
    return st;
}

static sluice_status map_ids(sluice_ids *ids, const sluice__subject *s, sluice_error *err) {
    const sluice__evaluation *e = s->evaluation;
    int64_t most = e->map_tokens;
    if (s->params->bos != SLUICE_BOS_NONE && s->entry->bos >= 0) SLUICE__TRY(sluice__ids_push(ids, s->entry->bos, err));
    if (!e->sentence) return first_sentence(ids, s, most - (int64_t)ids->count, err);
    SLUICE__TRY(sluice__entry_encode(s->entry, e->sentence, ids, err));
    if ((int64_t)ids->count > most) ids->count = (size_t)most;
    return SLUICE_OK;
}

static sluice_status describe_ids(json_t *map, const sluice__subject *s, const sluice_ids *ids, sluice_error *err) {
    json_t *tokens = json_array();
    sluice_text text = {0};
    sluice_status st = SLUICE_OK;
    for (size_t i = 0; st == SLUICE_OK && i < ids->count; i++) {
        text.size = 0;
        st = sluice__entry_decode(s->entry, &ids->data[i], 1, &text, err);
        if (st == SLUICE_OK) json_array_append_new(tokens, json_stringn(text.data ? text.data : "", text.size));
    }
    size_t skip = ids->count && ids->data[0] == s->entry->bos;
    text.size = 0;
    if (st == SLUICE_OK)
        st = sluice__entry_decode(s->entry, ids->data + skip, (int64_t)(ids->count - skip), &text, err);
    if (st == SLUICE_OK) json_object_set_new(map, "text", json_stringn(text.data ? text.data : "", text.size));
    json_object_set_new(map, "tokens", tokens);
    sluice_text_free(&text);
    return st;
}

sluice_status sluice__measure_map(json_t *run, const sluice__subject *s, sluice_error *err) {
    sluice_ids ids = {0};
    sluice_attention_map *map = NULL;
    sluice_status st = map_ids(&ids, s, err);
    if (st == SLUICE_OK && ids.count == 0) st = sluice__fail(err, SLUICE_ERR_CONFIG, "evaluation.sentence: no tokens");
    if (st == SLUICE_OK) st = sluice_attention_map_new(&map, s->model, ids.data, (int)ids.count, err);
    json_t *json = st == SLUICE_OK ? sluice__map_to_json(map) : NULL;
    if (st == SLUICE_OK) st = describe_ids(json, s, &ids, err);
    if (st == SLUICE_OK) json_object_set(run, "attention_map", json);
    json_decref(json);
    sluice_attention_map_free(map);
    sluice_ids_free(&ids);
    return st;
}

/* ---- samples ---- */

static sluice_status write_sample(json_t *samples, const sluice__subject *s, const sluice_ids *prompt,
                                  sluice_error *err) {
    size_t skip = prompt->count && prompt->data[0] == s->entry->bos;
    sluice_session_params sp = sluice_session_params_default();
    sluice_generate_params gp = sluice_generate_params_default();
    sp.capacity = (int)((int64_t)prompt->count + s->evaluation->sample_tokens + 1);
    gp.max_new_tokens = s->evaluation->sample_tokens;
    gp.sampling.temperature = s->evaluation->temperature;
    gp.sampling.seed = (uint64_t)s->seed;
    sluice_session *session = NULL;
    sluice_generation found = {0};
    sluice_text before = {0}, after = {0};
    sluice_status st = sluice_session_new(&session, s->model, &sp, err);
    if (st == SLUICE_OK) st = sluice_generate(session, prompt->data, (int64_t)prompt->count, &gp, &found, err);
    if (st == SLUICE_OK)
        st = sluice__entry_decode(s->entry, prompt->data + skip, (int64_t)(prompt->count - skip), &before, err);
    if (st == SLUICE_OK) st = sluice__entry_decode(s->entry, found.tokens, found.count, &after, err);
    if (st == SLUICE_OK)
        json_array_append_new(samples, json_pack("{s:o, s:o, s:f, s:I}", "prompt",
                                                 json_stringn(before.data ? before.data : "", before.size), "text",
                                                 json_stringn(after.data ? after.data : "", after.size), "temperature",
                                                 s->evaluation->temperature, "seed", (json_int_t)s->seed));
    sluice_text_free(&before);
    sluice_text_free(&after);
    sluice_generation_free(&found);
    sluice_session_free(session);
    return st;
}

/* Prompt `index`: the recipe's first, then beginnings taken from the held-out text at even distances. */
static sluice_status prompt_ids(sluice_ids *ids, const sluice__subject *s, int index, sluice_error *err) {
    const sluice__evaluation *e = s->evaluation;
    if (s->params->bos != SLUICE_BOS_NONE && s->entry->bos >= 0) SLUICE__TRY(sluice__ids_push(ids, s->entry->bos, err));
    if (index < e->num_prompts) return sluice__entry_encode(s->entry, e->prompts[index], ids, err);
    int64_t held = sluice_dataset_get_info(s->dataset).heldout_tokens;
    int64_t count = e->prompt_tokens < held ? e->prompt_tokens : held;
    int64_t at = (held - count) * (index - e->num_prompts) / (e->heldout_prompts ? e->heldout_prompts : 1);
    for (int64_t i = 0; i < count; i++) {
        int32_t id;
        sluice_dataset_heldout_tokens(s->dataset, at + i, 1, &id);
        SLUICE__TRY(sluice__ids_push(ids, id, err));
    }
    return SLUICE_OK;
}

sluice_status sluice__measure_samples(json_t *run, const sluice__subject *s, sluice_error *err) {
    json_t *samples = json_array();
    sluice_status st = SLUICE_OK;
    for (int i = 0; st == SLUICE_OK && i < s->evaluation->num_prompts + s->evaluation->heldout_prompts; i++) {
        sluice_ids ids = {0};
        st = prompt_ids(&ids, s, i, err);
        if (st == SLUICE_OK) st = write_sample(samples, s, &ids, err);
        sluice_ids_free(&ids);
    }
    if (st == SLUICE_OK) json_object_set(run, "samples", samples);
    json_decref(samples);
    return st;
}
