/* SPDX-License-Identifier: Apache-2.0 */
/* Preparing the data of a study once, before any run starts: read the text, train a tokenizer on the part that is
 * trained on, split and tokenise. The split depends on the recipe only; seeds change the order of windows. */
#include "study/material.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/strbuf.h"
#include "model/tokenizer_internal.h"
#include "train/text_source.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { SPLIT_SEED = 0 };

/* Where the text comes from while entries are made: files, or documents in memory (the embedded corpus, standard
 * input). */
typedef struct source {
    const char *const *texts;
    int num_texts;
    bool in_memory;
    sluice__corpus corpus;
    sluice_document *documents;
} source;

static void source_free(source *s) {
    sluice__corpus_free(&s->corpus);
    sluice__free(s->documents);
}

/* Points documents into the corpus. */
static sluice_status use_corpus(source *s, sluice__material *m, sluice_error *err) {
    size_t n = (size_t)s->corpus.count;
    s->in_memory = true;
    s->documents = sluice__calloc(n, sizeof *s->documents, SLUICE__MEM_DATA);
    if (!s->documents) return sluice__no_memory(err, n * sizeof *s->documents, "documents");
    for (size_t i = 0; i < n; i++)
        s->documents[i] =
            (sluice_document){s->corpus.text + s->corpus.offsets[i], s->corpus.offsets[i + 1] - s->corpus.offsets[i]};
    m->bytes = (int64_t)s->corpus.offsets[n];
    return SLUICE_OK;
}

static sluice_status open_embedded(source *s, sluice__material *m, sluice_error *err) {
    SLUICE__TRY(sluice__corpus_embedded(&s->corpus, err));
    snprintf(m->source, sizeof m->source, "embedded: %s", s->corpus.source);
    return use_corpus(s, m, err);
}

static sluice_status add_document(sluice__corpus *c, size_t end, sluice_error *err) {
    size_t *grown = sluice__realloc(c->offsets, (size_t)c->count + 2, sizeof *grown, SLUICE__MEM_DATA);
    if (!grown) return sluice__no_memory(err, ((size_t)c->count + 2) * sizeof *grown, "documents");
    c->offsets = grown;
    c->offsets[++c->count] = end;
    return SLUICE_OK;
}

/* Standard input can be read only once, and the text is needed twice (tokenizer, then tokens). */
static sluice_status read_into_memory(source *s, sluice_error *err) {
    sluice__text_source *files;
    sluice__text_piece piece;
    sluice__strbuf text = {0};
    SLUICE__TRY(sluice__text_source_open(&files, s->texts, s->num_texts, NULL, 0, err));
    sluice_status st;
    while ((st = sluice__text_source_next(files, &piece, err)) == SLUICE_OK && piece.data) {
        sluice__strbuf_add(&text, piece.data, piece.size);
        st = text.failed ? sluice__no_memory(err, text.size, "text") : add_document(&s->corpus, text.size, err);
        if (st != SLUICE_OK) break;
    }
    sluice__text_source_close(files);
    s->corpus.text = text.data;
    if (st == SLUICE_OK && s->corpus.count == 0)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT, "text: no text in the input");
    return st;
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

/* Names for the report; sizes where they are plain files. */
static sluice_status open_texts(source *s, sluice__material *m, sluice_error *err) {
    size_t used = 0;
    bool any_standard_input = false;
    for (int i = 0; i < s->num_texts; i++) {
        struct stat found = {0};
        bool standard_input = !strcmp(s->texts[i], "-");
        if (!standard_input && stat(s->texts[i], &found) != 0)
            return sluice__fail(err, SLUICE_ERR_IO, "%s: cannot be read: %s", s->texts[i], strerror(errno));
        any_standard_input |= standard_input;
        if (!S_ISREG(found.st_mode))
            m->bytes = -1;
        else if (m->bytes >= 0)
            m->bytes += found.st_size;
        int n = snprintf(m->source + used, sizeof m->source - used, "%s%s", i ? ", " : "",
                         standard_input ? "standard input" : base_name(s->texts[i]));
        used += (size_t)n < sizeof m->source - used ? (size_t)n : sizeof m->source - used - 1;
    }
    if (!any_standard_input) return SLUICE_OK;
    SLUICE__TRY(read_into_memory(s, err));
    return use_corpus(s, m, err);
}

static sluice_status list_texts(char out[SLUICE_TRAIN_LIST], const source *s, sluice_error *err) {
    size_t used = 0;
    for (int i = 0; i < s->num_texts; i++) {
        int n = snprintf(out + used, SLUICE_TRAIN_LIST - used, "%s%s", i ? "\n" : "", s->texts[i]);
        if (n < 0 || (size_t)n >= SLUICE_TRAIN_LIST - used)
            return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                                "text: the names of all files together are longer than %d bytes; give "
                                "a directory",
                                SLUICE_TRAIN_LIST);
        used += (size_t)n;
    }
    return SLUICE_OK;
}

/* ---- entries ---- */

static sluice_status train_tokenizer(sluice__material_entry *e, const source *s, sluice_train_params *p, int vocab_size,
                                     sluice_error *err) {
    if (s->in_memory)
        SLUICE__TRY(sluice_train_tokenizer_on_text(&e->tokenizer, p, vocab_size, s->documents, s->corpus.count, err));
    else
        SLUICE__TRY(list_texts(p->text, s, err));
    if (!s->in_memory) SLUICE__TRY(sluice_train_tokenizer(&e->tokenizer, p, vocab_size, err));
    e->bos = sluice_tokenizer_bos_id(e->tokenizer);
    return SLUICE_OK;
}

/* The text as p says. */
static sluice_status text_dataset(sluice_dataset **out, const sluice__material_entry *e, const source *s,
                                  const sluice_train_params *p, sluice_error *err) {
    if (s->in_memory)
        return sluice_dataset_from_text(out, p, e->tokenizer, s->documents, s->corpus.count, err);
    sluice_train_params from_files = *p;
    SLUICE__TRY(list_texts(from_files.text, s, err));
    return sluice_dataset_load(out, &from_files, e->tokenizer, sluice_tokenizer_vocab_size(e->tokenizer), err);
}

/* The bytes whose bigrams the chain imitates: all texts, one behind the other. */
static sluice_status whole_text(sluice__strbuf *out, const source *s, sluice_error *err) {
    if (s->in_memory) {
        sluice__strbuf_add(out, s->corpus.text, s->corpus.offsets[s->corpus.count]);
        return out->failed ? sluice__no_memory(err, out->size, "text") : SLUICE_OK;
    }
    sluice__text_source *files;
    sluice__text_piece piece;
    SLUICE__TRY(sluice__text_source_open(&files, s->texts, s->num_texts, NULL, 0, err));
    sluice_status st;
    while ((st = sluice__text_source_next(files, &piece, err)) == SLUICE_OK && piece.data)
        sluice__strbuf_add(out, piece.data, piece.size);
    sluice__text_source_close(files);
    return st == SLUICE_OK && out->failed ? sluice__no_memory(err, out->size, "text") : st;
}

static int64_t data_integer(const json_t *data, const char *key) {
    return (int64_t)json_number_value(json_object_get(data, key));
}

/* Every chain is a document. */
static sluice_status chain_dataset(sluice__material_entry *e, int64_t document_tokens, const sluice_train_params *p,
                                   sluice_error *err) {
    const sluice__backcopy *c = &e->chain;
    int64_t length = document_tokens ? document_tokens : c->count, n = (c->count + length - 1) / length;
    int64_t *lengths = sluice__calloc((size_t)n, sizeof *lengths, SLUICE__MEM_DATA);
    if (!lengths) return sluice__no_memory(err, (size_t)n * sizeof *lengths, "documents");
    for (int64_t i = 0; i < n; i++) lengths[i] = i + 1 < n ? length : c->count - i * length;
    sluice_status st =
        sluice_dataset_from_tokens(&e->dataset, p, c->ids, lengths, n, c->symbols + 1, c->symbols, -1, err);
    sluice__free(lengths);
    return st;
}

static sluice_status backcopy_entry(sluice__material_entry *e, const source *s, const sluice_train_params *p,
                                    sluice_error *err) {
    sluice__strbuf text = {0};
    sluice__backcopy_params params = {.symbols = (int)data_integer(e->data, "symbols"),
                                      .triggers = json_string_value(json_object_get(e->data, "triggers")),
                                      .count = data_integer(e->data, "tokens"),
                                      .document_tokens = data_integer(e->data, "document_tokens"),
                                      .seed = (uint64_t)data_integer(e->data, "seed")};
    sluice_status st = whole_text(&text, s, err);
    if (st == SLUICE_OK) st = sluice__backcopy_new(&e->chain, text.data ? text.data : "", text.size, &params, err);
    sluice__strbuf_free(&text);
    SLUICE__TRY(st);
    e->bos = e->chain.symbols;
    return chain_dataset(e, params.document_tokens, p, err);
}

/* Text without start tokens, from which documents with tags are made. */
static sluice_status needle_text(sluice__material_entry *e, const source *s, const sluice_train_params *p,
                                 sluice_error *err) {
    sluice_train_params plain = *p;
    plain.bos = SLUICE_BOS_NONE;
    e->needle = (sluice__needle_params){.needles = (int)data_integer(e->data, "needles"),
                                        .mentions = (int)data_integer(e->data, "mentions"),
                                        .share = json_number_value(json_object_get(e->data, "needle_share")),
                                        .seed = (uint64_t)data_integer(e->data, "seed")};
    SLUICE__TRY(sluice__tags_of(&e->tags, e->tokenizer, err));
    return text_dataset(&e->text, e, s, &plain, err);
}

/* Windows of p->seq_len tokens of the entry's kind. */
static sluice_status windows(sluice_dataset **out, const sluice__material_entry *e, const source *s,
                             const sluice_train_params *p, sluice_error *err) {
    if (!e->text) return text_dataset(out, e, s, p, err);
    return sluice__needle_dataset(out, p, e->text, e->tokenizer, &e->needle, data_integer(e->data, "documents"), err);
}

static sluice_status text_entry(sluice__material_entry *e, const source *s, sluice_train_params *p, int vocab_size,
                                bool needle, sluice_error *err) {
    SLUICE__TRY(train_tokenizer(e, s, p, vocab_size, err));
    if (needle) SLUICE__TRY(needle_text(e, s, p, err));
    return windows(&e->dataset, e, s, p, err);
}

static sluice_status reorder(sluice_dataset **ordered, const sluice_dataset *dataset, const sluice__recipe *recipe,
                             sluice_error *err) {
    for (int i = 0; i < recipe->num_seeds; i++)
        SLUICE__TRY(sluice_dataset_reorder(&ordered[i], dataset, (uint64_t)recipe->seeds[i], err));
    return SLUICE_OK;
}

static sluice_status second_stage(sluice__material_entry *e, const sluice__recipe *recipe, const sluice__arm *arm,
                                  const source *s, sluice_error *err) {
    sluice_train_params p;
    if (!e->tokenizer)
        return sluice__fail(err, SLUICE_ERR_CONFIG, "extension: data of kind %s has no longer windows",
                            sluice__arm_data_kind(arm));
    SLUICE__TRY(sluice__extension_params(&p, &recipe->extension, arm, SPLIT_SEED, err));
    SLUICE__TRY(windows(&e->longer, e, s, &p, err));
    return reorder(e->longer_ordered, e->longer, recipe, err);
}

static sluice_status new_entry(sluice__material_entry *e, const sluice__recipe *recipe, const sluice__arm *arm,
                               const source *s, sluice_error *err) {
    sluice_train_params p;
    const char *kind = sluice__arm_data_kind(arm);
    e->data = arm->data;
    SLUICE__TRY(sluice__arm_params(&p, arm, SPLIT_SEED, err));
    if (strcmp(kind, "backcopy"))
        SLUICE__TRY(text_entry(e, s, &p, (int)sluice__arm_vocab_size(arm), !strcmp(kind, "needle"), err));
    else
        SLUICE__TRY(backcopy_entry(e, s, &p, err));
    if (sluice_dataset_get_info(e->dataset).heldout_windows < 1)
        return sluice__fail(err, SLUICE_ERR_CONFIG,
                            "nothing is held out, so there is nothing to measure on: set split and "
                            "validation_split_percentage, or give more text");
    SLUICE__TRY(reorder(e->ordered, e->dataset, recipe, err));
    return recipe->extension.on ? second_stage(e, recipe, arm, s, err) : SLUICE_OK;
}

static sluice_status make_entries(sluice__material *m, const sluice__recipe *recipe, const source *s,
                                  sluice_error *err) {
    for (int a = 0; a < recipe->num_arms; a++) {
        const sluice__arm *arm = &recipe->arms[a];
        int at = 0;
        while (at < m->num_entries && !json_equal(m->entries[at].data, arm->data)) at++;
        m->entry_of_arm[a] = at;
        if (at < m->num_entries) continue;
        sluice_status st = new_entry(&m->entries[m->num_entries++], recipe, arm, s, err);
        if (st != SLUICE_OK) return sluice__fail_in(err, st, "arm \"%s\"", arm->name);
    }
    return SLUICE_OK;
}

sluice_status sluice__material_new(sluice__material *out, const sluice__recipe *recipe, const char *const *texts,
                                   int num_texts, sluice_error *err) {
    *out = (sluice__material){0};
    source s = {.texts = texts, .num_texts = num_texts};
    sluice_status st = num_texts ? open_texts(&s, out, err) : open_embedded(&s, out, err);
    if (st == SLUICE_OK) st = make_entries(out, recipe, &s, err);
    source_free(&s);
    if (st != SLUICE_OK) sluice__material_free(out);
    return st;
}

void sluice__material_free(sluice__material *m) {
    for (int i = 0; i < m->num_entries; i++) {
        sluice__material_entry *e = &m->entries[i];
        for (int k = 0; k < SLUICE__MAX_SEEDS; k++) {
            sluice_dataset_free(e->ordered[k]);
            sluice_dataset_free(e->longer_ordered[k]);
        }
        sluice_dataset_free(e->dataset);
        sluice_dataset_free(e->longer);
        sluice_dataset_free(e->text);
        sluice_tokenizer_free(e->tokenizer);
        sluice__backcopy_free(&e->chain);
    }
    *m = (sluice__material){0};
}

/* ---- text of ids ---- */

sluice_status sluice__entry_decode(const sluice__material_entry *e, const int32_t *ids, int64_t count, sluice_text *out,
                                   sluice_error *err) {
    if (e->tokenizer) return sluice_tokenizer_decode(e->tokenizer, ids, (size_t)count, false, out, err);
    for (int64_t i = 0; i < count; i++) {
        char c = (char)e->chain.bytes[ids[i] < e->chain.symbols ? ids[i] : 0];
        bool plain = c >= ' ' && c <= '~';
        if (ids[i] == e->bos)
            SLUICE__TRY(sluice__text_add(out, "<bos>", 5, err));
        else
            SLUICE__TRY(sluice__text_add(out, plain ? &c : c == '\n' ? " " : "?", 1, err));
    }
    return SLUICE_OK;
}

sluice_status sluice__entry_encode(const sluice__material_entry *e, const char *text, sluice_ids *out,
                                   sluice_error *err) {
    if (e->tokenizer) return sluice_tokenizer_encode(e->tokenizer, text, strlen(text), 0, out, err);
    for (const char *c = text; *c; c++) {
        int id = 0;
        while (id < e->chain.symbols && e->chain.bytes[id] != (unsigned char)*c) id++;
        if (id == e->chain.symbols)
            return sluice__fail(err, SLUICE_ERR_CONFIG, "evaluation: the data has no symbol \"%c\"", *c);
        SLUICE__TRY(sluice__ids_push(out, id, err));
    }
    return SLUICE_OK;
}
