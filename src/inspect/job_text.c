/* SPDX-License-Identifier: Apache-2.0 */
/* From a text to windows of token ids. Only as much of a long text is tokenized as the windows
 * need, cut where tokenization does not depend on what follows. */
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "inspect/job.h"
#include "model/tokenizer_internal.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { DEFAULT_SEQ_LEN = 512, DEFAULT_WINDOWS = 8, BYTES_PER_TOKEN = 16 };

void sluice__job_text_free(sluice__job_text *t) {
    sluice_tokenizer_free(t->tokenizer);
    sluice__free(t->all);
    sluice__free(t->ids);
    sluice__free(t->marks);
    *t = (sluice__job_text){0};
}

/* What the tokenizer's post-processor puts in front of a text, or -1. */
static sluice_status leading_token(int32_t *first, const sluice_tokenizer *tok, sluice_error *err) {
    sluice_ids with = {0}, without = {0};
    sluice_status st = sluice_tokenizer_encode(tok, "a", 1, SLUICE_ENCODE_ADD_SPECIAL, &with, err);
    if (st == SLUICE_OK) st = sluice_tokenizer_encode(tok, "a", 1, 0, &without, err);
    *first = -1;
    if (st == SLUICE_OK && with.count > without.count && without.count &&
        with.data[0] != without.data[0])
        *first = with.data[0];
    sluice_ids_free(&with);
    sluice_ids_free(&without);
    return st;
}

/* If the training options in dir/name (member `key` of it, NULL = all of it) say that every window
 * began with a token: that token. */
static sluice_status token_of_run(int32_t *first, const sluice_tokenizer *tok, const char *dir,
                                  const char *name, const char *key, sluice_error *err) {
    char *path = sluice__path_join(dir, name);
    json_t *root = NULL;
    if (!path) return sluice__no_memory(err, strlen(dir), "a path");
    sluice_status st = access(path, R_OK) == 0 ? sluice__json_load(&root, path, err) : SLUICE_OK;
    sluice__free(path);
    const json_t *options = key ? json_object_get(root, key) : root;
    const char *where = json_string_value(json_object_get(options, "bos"));
    const char *token = json_string_value(json_object_get(options, "bos_token"));
    if (where && !strcmp(where, "window"))
        *first = token && *token ? sluice_tokenizer_id(tok, token, strlen(token))
                                 : sluice_tokenizer_bos_id(tok);
    json_decref(root);
    return st;
}

/* What stands in front of windows if nobody says: what the tokenizer puts there, else what the
 * model's own training put there (a checkpoint, or RUN/model, whose options are RUN/config.json). */
static sluice_status usual_first(sluice__job_text *t, const char *model_path,
                                 const sluice_config *config, sluice_error *err) {
    if (!t->tokenizer) return SLUICE_OK;
    SLUICE__TRY(leading_token(&t->first, t->tokenizer, err));
    if (t->first < 0)
        SLUICE__TRY(token_of_run(&t->first, t->tokenizer, model_path, "trainer_state.json",
                                 "params", err));
    if (t->first < 0)
        SLUICE__TRY(
            token_of_run(&t->first, t->tokenizer, model_path, "../config.json", NULL, err));
    if (t->first >= config->vocab_size) t->first = -1;
    return SLUICE_OK;
}

static sluice_status choose_first(sluice__job_text *t, const sluice_inspect_job *job,
                                  const char *model_path, const sluice_config *config,
                                  sluice_error *err) {
    t->first = -1;
    if (job->bos == SLUICE_BOS_OMIT) return SLUICE_OK;
    if (job->bos == SLUICE_BOS_AUTO) return usual_first(t, model_path, config, err);
    if (job->bos < 0 || job->bos >= config->vocab_size)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "the token in front of every window: found id %d, expected 0..%d",
                            job->bos, config->vocab_size - 1);
    t->first = job->bos;
    return SLUICE_OK;
}

/* Tokens that the windows can use. */
static int64_t needed(const sluice_inspect_job *job) {
    int64_t windows = job->windows ? job->windows : DEFAULT_WINDOWS;
    return windows * (job->seq_len ? job->seq_len : DEFAULT_SEQ_LEN);
}

static sluice_status encode(sluice_ids *ids, const sluice__job_text *t,
                            const sluice_inspect_job *job, sluice_error *err) {
    int64_t need = needed(job);
    size_t size = job->text_size, part = (size_t)need * BYTES_PER_TOKEN;
    if (part < size) {
        part = sluice_tokenizer_cut(t->tokenizer, job->text, part);
        SLUICE__TRY(sluice_tokenizer_encode(t->tokenizer, job->text, part, 0, ids, err));
        if ((int64_t)ids->count >= need) return SLUICE_OK;
        ids->count = 0;
    }
    return sluice_tokenizer_encode(t->tokenizer, job->text, size, 0, ids, err);
}

static sluice_status load_tokens(sluice__job_text *t, const sluice_inspect_job *job,
                                 const char *model_path, sluice_error *err) {
    sluice_ids ids = {0};
    const int32_t *from = job->ids;
    sluice_status st = SLUICE_OK;
    t->count = (int64_t)job->num_ids;
    if (!job->ids) {
        st =
            sluice_tokenizer_load(&t->tokenizer, job->tokenizer ? job->tokenizer : model_path, err);
        if (st == SLUICE_OK) st = encode(&ids, t, job, err);
        from = ids.data;
        t->count = (int64_t)ids.count;
    }
    if (st == SLUICE_OK && t->count == 0)
        st = sluice__fail(err, SLUICE_ERR_ARGUMENT,
                          "the text is empty: there is nothing to inspect a model on");
    if (st == SLUICE_OK) {
        t->all = sluice__calloc((size_t)t->count, sizeof *t->all, SLUICE__MEM_DATA);
        if (!t->all) st = sluice__no_memory(err, (size_t)t->count * sizeof *t->all, "tokens");
    }
    if (st == SLUICE_OK) memcpy(t->all, from, (size_t)t->count * sizeof *t->all);
    sluice_ids_free(&ids);
    return st;
}

/* Window length and number. A text that is shorter than a window is one window. */
static void choose_windows(sluice__job_text *t, const sluice_inspect_job *job, int max_positions) {
    int front = t->first >= 0;
    int64_t len = job->seq_len ? job->seq_len : DEFAULT_SEQ_LEN;
    if (!job->seq_len && max_positions > 0 && len > max_positions) len = max_positions;
    if (len > t->count + front) len = t->count + front;
    if (len == 1 && front && t->count) len = 2; /* at least one token of the text */
    int64_t most = t->count / (len - front),
            windows = job->windows ? job->windows : DEFAULT_WINDOWS;
    t->seq_len = (int)len;
    t->windows = windows < most ? windows : most;
}

static sluice_status cut_windows(sluice__job_text *t, sluice_error *err) {
    int front = t->first >= 0;
    int64_t step = t->seq_len - front;
    size_t tokens = (size_t)t->windows * (size_t)t->seq_len;
    t->ids = sluice__calloc(tokens, sizeof *t->ids, SLUICE__MEM_DATA);
    if (!t->ids) return sluice__no_memory(err, tokens * sizeof *t->ids, "windows");
    for (int64_t w = 0; w < t->windows; w++) {
        int32_t *to = t->ids + w * t->seq_len;
        if (front) to[0] = t->first;
        memcpy(to + front, t->all + w * step, (size_t)step * sizeof *to);
    }
    return SLUICE_OK;
}

/* Whether the token's text, without spaces around it, is made of the characters of `set` (and is
 * not empty). */
static bool only_of(const char *text, size_t size, const char *set) {
    while (size && text[0] == ' ') text++, size--;
    while (size && text[size - 1] == ' ') size--;
    for (size_t i = 0; i < size; i++)
        if (!text[i] || !strchr(set, text[i])) return false;
    return size > 0;
}

static sluice_status mark(sluice__job_text *t, const sluice_inspect_job *job, sluice_error *err) {
    size_t tokens = (size_t)t->windows * (size_t)t->seq_len;
    bool by_text = job->mark_tokens && t->tokenizer;
    if (!job->num_mark_positions && !by_text) return SLUICE_OK;
    t->marks = sluice__calloc(tokens, 1, SLUICE__MEM_DATA);
    if (!t->marks) return sluice__no_memory(err, tokens, "marked keys");
    for (int i = 0; i < job->num_mark_positions; i++) {
        if (job->mark_positions[i] >= t->seq_len)
            sluice__log(SLUICE_LOG_WARNING, "position %d is beyond the windows, whose last one is %d: nothing is marked there",
                        job->mark_positions[i], t->seq_len - 1);
        for (int64_t w = 0; w < t->windows; w++)
            if (job->mark_positions[i] >= 0 && job->mark_positions[i] < t->seq_len)
                t->marks[w * t->seq_len + job->mark_positions[i]] = 1;
    }
    for (size_t i = 0; by_text && i < tokens; i++) {
        size_t size;
        const char *bytes = sluice_tokenizer_bytes(t->tokenizer, t->ids[i], &size);
        if (bytes && only_of(bytes, size, job->mark_tokens)) t->marks[i] = 1;
    }
    return SLUICE_OK;
}

static sluice_status finish(sluice__job_text *t, const sluice_inspect_job *job, int max_positions,
                            sluice_error *err) {
    choose_windows(t, job, max_positions);
    SLUICE__TRY(cut_windows(t, err));
    return mark(t, job, err);
}

sluice_status sluice__job_text_load(sluice__job_text *t, const sluice_inspect_job *job,
                                    const char *model_path, const sluice_config *config,
                                    sluice_error *err) {
    *t = (sluice__job_text){0};
    sluice_status st = load_tokens(t, job, model_path, err);
    if (st == SLUICE_OK) st = choose_first(t, job, model_path, config, err);
    if (st == SLUICE_OK) st = finish(t, job, config->max_position_embeddings, err);
    if (st != SLUICE_OK) sluice__job_text_free(t);
    return st;
}

sluice_status sluice__job_text_without_first(sluice__job_text *out, const sluice__job_text *t,
                                             const sluice_inspect_job *job, sluice_error *err) {
    sluice_inspect_job same = *job;
    *out = (sluice__job_text){.count = t->count, .first = -1};
    out->all = sluice__calloc((size_t)t->count, sizeof *out->all, SLUICE__MEM_DATA);
    if (!out->all) return sluice__no_memory(err, (size_t)t->count * sizeof *out->all, "tokens");
    memcpy(out->all, t->all, (size_t)t->count * sizeof *out->all);
    same.seq_len = t->seq_len;
    sluice_status st = finish(out, &same, 0, err);
    if (st != SLUICE_OK) sluice__job_text_free(out);
    return st;
}

sluice_status sluice__job_token(json_t **out, const sluice__job_text *t, int32_t id,
                                sluice_error *err) {
    sluice_text text = {0};
    char number[16];
    if (!t->tokenizer) {
        snprintf(number, sizeof number, "%d", (int)id);
        *out = json_string(number);
        return *out ? SLUICE_OK : sluice__no_memory(err, sizeof number, "a token");
    }
    SLUICE__TRY(sluice_tokenizer_decode(t->tokenizer, &id, 1, false, &text, err));
    for (size_t i = 0; i < text.size; i++)
        if (!text.data[i]) text.data[i] = ' '; /* not every reader of JSON takes U+0000 */
    *out = json_stringn(text.data ? text.data : "", text.size);
    sluice_text_free(&text);
    return *out ? SLUICE_OK : sluice__no_memory(err, 16, "a token");
}

sluice_status sluice__job_map_ids(sluice_ids *out, const sluice__job_text *t,
                                  const sluice_inspect_job *job, int most, sluice_error *err) {
    if (job->map_text && t->tokenizer) {
        if (t->first >= 0) SLUICE__TRY(sluice__ids_push(out, t->first, err));
        SLUICE__TRY(sluice_tokenizer_encode(t->tokenizer, job->map_text, strlen(job->map_text), 0,
                                            out, err));
        if ((int64_t)out->count > most) out->count = (size_t)most;
        if (out->count) return SLUICE_OK;
    }
    for (int i = 0; i < most && i < t->seq_len; i++)
        SLUICE__TRY(sluice__ids_push(out, t->ids[i], err));
    return SLUICE_OK;
}
