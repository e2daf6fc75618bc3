/* SPDX-License-Identifier: Apache-2.0 */
/* Normaliser, decoder, post-processor and added tokens of a tokenizer.json. What is not known is refused by its name.
 */
#include "model/tokenizer_internal.h"
#include "base/memory.h"
#include "model/utf8.h"

/* A string that may be empty and may hold NUL characters; a copy. */
sluice_status sluice__load_bytes(char **out, size_t *size, const sluice__json *in, const char *key, sluice_error *err) {
    json_t *v = in->value ? json_object_get(in->value, key) : NULL;
    *out = NULL;
    if (!json_is_string(v)) return sluice__json_fail(in, key, err, v ? "expected a string" : "missing");
    *size = json_string_length(v);
    *out = sluice__strndup(json_string_value(v), *size);
    return *out ? SLUICE_OK : sluice__no_memory(err, *size, "a string");
}

sluice_status sluice__load_type(const sluice__json *in, const char **type, sluice_error *err) {
    if (!json_is_object(in->value)) return sluice__json_fail(in, NULL, err, "expected an object with a \"type\"");
    return sluice__json_string(in, "type", true, type, err);
}

sluice_status sluice__load_unsupported(const sluice__json *in, const char *what, const char *type, sluice_error *err) {
    sluice__json_fail(in, "type", err, "%s \"%.60s\" is not supported", what, type);
    if (err) err->code = SLUICE_ERR_UNSUPPORTED;
    return SLUICE_ERR_UNSUPPORTED;
}

/* {"String": "..."} or {"Regex": "..."} */
sluice_status sluice__load_pattern(sluice__pattern *out, const sluice__json *in, sluice_error *err) {
    sluice__json j = sluice__json_get(in, "pattern");
    if (!json_is_object(j.value))
        return sluice__json_fail(in, "pattern", err, "expected {\"String\": ...} or {\"Regex\": ...}");
    if (sluice__json_has(&j, "String")) return sluice__load_bytes(&out->literal, &out->literal_size, &j, "String", err);
    char *regex, where[400];
    size_t size;
    SLUICE__TRY(sluice__load_bytes(&regex, &size, &j, "Regex", err));
    out->known = sluice__known_find(regex, size);
    snprintf(where, sizeof where, "%.200s: %.160s.Regex", j.file, j.path);
    sluice_status st = sluice__regex_new(&out->regex, regex, size, where, err);
    sluice__free(regex);
    return st;
}

/* ---- normaliser ---- */
static sluice_status norm_step(sluice_tokenizer *tok, const sluice__json *in, const char *type, sluice_error *err) {
    static const char *const forms[] = {"NFC", "NFD", "NFKC", "NFKD", "Lowercase"};
    if (tok->num_norm == SLUICE__MAX_STEPS)
        return sluice__json_fail(in, NULL, err, "more than %d steps", SLUICE__MAX_STEPS);
    sluice__norm_step *s = &tok->norm[tok->num_norm++];
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (!strcmp(type, forms[i])) {
            s->kind = (sluice__norm_kind)(SLUICE__NORM_NFC + i);
            return i < 4 ? sluice__inert_new(&s->inert, s->kind, err) : SLUICE_OK;
        }
    if (!strcmp(type, "Strip")) {
        s->kind = SLUICE__NORM_STRIP;
        s->left = s->right = true;
        SLUICE__TRY(sluice__json_bool(in, "strip_left", false, &s->left, err));
        return sluice__json_bool(in, "strip_right", false, &s->right, err);
    }
    if (!strcmp(type, "Prepend")) {
        s->kind = SLUICE__NORM_PREPEND;
        return sluice__load_bytes(&s->content, &s->content_size, in, "prepend", err);
    }
    if (!strcmp(type, "Replace")) {
        s->kind = SLUICE__NORM_REPLACE;
        SLUICE__TRY(sluice__load_pattern(&s->pattern, in, err));
        return sluice__load_bytes(&s->content, &s->content_size, in, "content", err);
    }
    tok->num_norm--;
    return sluice__load_unsupported(in, "the normaliser", type, err);
}

/* Sequences may nest; the JSON parser bounds how deeply. */
sluice_status sluice__load_normalizer(sluice_tokenizer *tok, const sluice__json *in, sluice_error *err) {
    const char *type;
    SLUICE__TRY(sluice__load_type(in, &type, err));
    if (strcmp(type, "Sequence")) return norm_step(tok, in, type, err);
    sluice__json list = sluice__json_get(in, "normalizers");
    if (!json_is_array(list.value)) return sluice__json_fail(in, "normalizers", err, "expected an array");
    for (size_t i = 0; i < json_array_size(list.value); i++) {
        sluice__json part = sluice__json_at(&list, i);
        SLUICE__TRY(sluice__load_normalizer(tok, &part, err));
    }
    return SLUICE_OK;
}

/* ---- decoder ---- */
static sluice_status dec_strip(sluice__dec_step *s, const sluice__json *in, sluice_error *err) {
    s->kind = SLUICE__DEC_STRIP;
    SLUICE__TRY(sluice__load_bytes(&s->content, &s->content_size, in, "content", err));
    int n = 0;
    if (s->content_size) sluice__utf8_get((const unsigned char *)s->content, &n);
    if (!n || (size_t)n != s->content_size) return sluice__json_fail(in, "content", err, "expected one character");
    SLUICE__TRY(sluice__json_int(in, "start", true, 0, INT32_MAX, &s->start, err));
    return sluice__json_int(in, "stop", true, 0, INT32_MAX, &s->stop, err);
}

sluice_status sluice__load_metaspace(const sluice__json *in, char **replacement, size_t *size, sluice__prepend *prepend,
                                     sluice_error *err) {
    static const char *const schemes[] = {"always", "first", "never", NULL};
    SLUICE__TRY(sluice__load_bytes(replacement, size, in, "replacement", err));
    int n = 0, scheme = 0;
    if (*size) sluice__utf8_get((const unsigned char *)*replacement, &n);
    if (!n || (size_t)n != *size) return sluice__json_fail(in, "replacement", err, "expected one character");
    bool add = true; /* older files: add_prefix_space instead of prepend_scheme */
    SLUICE__TRY(sluice__json_bool(in, "add_prefix_space", false, &add, err));
    if (!add) scheme = SLUICE__PREPEND_NEVER;
    SLUICE__TRY(sluice__json_choice(in, "prepend_scheme", false, schemes, &scheme, err));
    *prepend = (sluice__prepend)scheme;
    return SLUICE_OK;
}

static sluice_status dec_step(sluice_tokenizer *tok, const sluice__json *in, const char *type, sluice_error *err) {
    if (tok->num_dec == SLUICE__MAX_STEPS)
        return sluice__json_fail(in, NULL, err, "more than %d steps", SLUICE__MAX_STEPS);
    sluice__dec_step *s = &tok->dec[tok->num_dec++];
    if (!strcmp(type, "ByteLevel"))
        s->kind = SLUICE__DEC_BYTE_LEVEL;
    else if (!strcmp(type, "ByteFallback"))
        s->kind = SLUICE__DEC_BYTE_FALLBACK;
    else if (!strcmp(type, "Fuse"))
        s->kind = SLUICE__DEC_FUSE;
    else if (!strcmp(type, "Strip"))
        return dec_strip(s, in, err);
    else if (!strcmp(type, "Replace")) {
        s->kind = SLUICE__DEC_REPLACE;
        SLUICE__TRY(sluice__load_pattern(&s->pattern, in, err));
        return sluice__load_bytes(&s->content, &s->content_size, in, "content", err);
    } else if (!strcmp(type, "Metaspace")) {
        s->kind = SLUICE__DEC_METASPACE;
        return sluice__load_metaspace(in, &s->content, &s->content_size, &s->prepend, err);
    } else {
        tok->num_dec--;
        return sluice__load_unsupported(in, "the decoder", type, err);
    }
    return SLUICE_OK;
}

sluice_status sluice__load_decoder(sluice_tokenizer *tok, const sluice__json *in, sluice_error *err) {
    const char *type;
    SLUICE__TRY(sluice__load_type(in, &type, err));
    if (strcmp(type, "Sequence")) return dec_step(tok, in, type, err);
    sluice__json list = sluice__json_get(in, "decoders");
    if (!json_is_array(list.value)) return sluice__json_fail(in, "decoders", err, "expected an array");
    for (size_t i = 0; i < json_array_size(list.value); i++) {
        sluice__json part = sluice__json_at(&list, i);
        SLUICE__TRY(sluice__load_decoder(tok, &part, err));
    }
    return SLUICE_OK;
}

/* ---- post-processor: what stands in front of and behind a text ---- */
typedef struct around {
    int32_t *ids;
    int count;
} around;

static sluice_status around_push(around *a, int64_t id, sluice_error *err) {
    void *fresh = sluice__realloc(a->ids, (size_t)a->count + 1, sizeof *a->ids, SLUICE__MEM_OTHER);
    if (!fresh) return sluice__no_memory(err, ((size_t)a->count + 1) * sizeof *a->ids, "the post-processor");
    a->ids = fresh;
    a->ids[a->count++] = (int32_t)id;
    return SLUICE_OK;
}

static sluice_status checked_id(const sluice_tokenizer *tok, const sluice__json *in, const char *key, json_t *v,
                                int64_t *id, sluice_error *err) {
    *id = json_is_integer(v) ? json_integer_value(v) : -1;
    if (*id < 0 || *id >= tok->vocab.size || !tok->vocab.tokens[*id].flags)
        return sluice__json_fail(in, key, err, "found %lld, expected the id of a token", (long long)*id);
    return SLUICE_OK;
}

/* All ids of one special token of the template; a later post-processor wraps what earlier ones gave. */
static sluice_status template_token(const sluice_tokenizer *tok, const sluice__json *in, const char *name, around *out,
                                    sluice_error *err) {
    sluice__json all = sluice__json_get(in, "special_tokens"), one = sluice__json_get(&all, name);
    sluice__json ids = sluice__json_get(&one, "ids");
    if (!json_is_array(ids.value))
        return sluice__json_fail(in, "special_tokens", err, "\"%.60s\" has no \"ids\"", name);
    for (size_t i = 0; i < json_array_size(ids.value); i++) {
        int64_t id;
        SLUICE__TRY(checked_id(tok, &one, "ids", json_array_get(ids.value, i), &id, err));
        SLUICE__TRY(around_push(out, id, err));
    }
    return SLUICE_OK;
}

static sluice_status template_parts(const sluice_tokenizer *tok, const sluice__json *in, around *front, around *back,
                                    sluice_error *err) {
    sluice__json list = sluice__json_get(in, "single");
    if (!json_is_array(list.value)) return sluice__json_fail(in, "single", err, "expected an array");
    bool seen = false;
    for (size_t i = 0; i < json_array_size(list.value); i++) {
        sluice__json part = sluice__json_at(&list, i), special = sluice__json_get(&part, "SpecialToken");
        sluice__json sequence = sluice__json_get(&part, "Sequence");
        const char *name = NULL;
        if (sequence.value && seen) return sluice__json_fail(&list, NULL, err, "the text stands there twice");
        if (sequence.value)
            seen = true;
        else if (!special.value)
            return sluice__json_fail(&part, NULL, err, "expected a SpecialToken or a Sequence");
        if (!special.value) continue;
        SLUICE__TRY(sluice__json_string(&special, "id", true, &name, err));
        SLUICE__TRY(template_token(tok, in, name, seen ? back : front, err));
    }
    return seen ? SLUICE_OK : sluice__json_fail(&list, NULL, err, "the text stands nowhere");
}

/* RobertaProcessing and BertProcessing: cls text sep, each [token, id]. */
static sluice_status cls_sep(const sluice_tokenizer *tok, const sluice__json *in, around *front, around *back,
                             sluice_error *err) {
    static const char *const keys[] = {"cls", "sep"};
    for (int i = 0; i < 2; i++) {
        sluice__json pair = sluice__json_get(in, keys[i]);
        int64_t id;
        SLUICE__TRY(checked_id(tok, in, keys[i], json_array_get(pair.value, 1), &id, err));
        SLUICE__TRY(around_push(i ? back : front, id, err));
    }
    return SLUICE_OK;
}

/* prefix = front + prefix, suffix = suffix + back. */
static sluice_status wrap(sluice_tokenizer *tok, around *front, around *back, sluice_error *err) {
    for (int i = 0; i < tok->num_prefix; i++) SLUICE__TRY(around_push(front, tok->prefix[i], err));
    around suffix = {tok->suffix, tok->num_suffix};
    for (int i = 0; i < back->count; i++) {
        SLUICE__TRY(around_push(&suffix, back->ids[i], err));
        tok->suffix = suffix.ids;
        tok->num_suffix = suffix.count;
    }
    sluice__free(tok->prefix);
    tok->prefix = front->ids;
    tok->num_prefix = front->count;
    front->ids = NULL;
    return SLUICE_OK;
}

sluice_status sluice__load_post_processor(sluice_tokenizer *tok, const sluice__json *in, sluice_error *err) {
    const char *type;
    SLUICE__TRY(sluice__load_type(in, &type, err));
    if (!strcmp(type, "ByteLevel")) return SLUICE_OK; /* changes offsets only */
    if (!strcmp(type, "Sequence")) {
        sluice__json list = sluice__json_get(in, "processors");
        if (!json_is_array(list.value)) return sluice__json_fail(in, "processors", err, "expected an array");
        for (size_t i = 0; i < json_array_size(list.value); i++) {
            sluice__json part = sluice__json_at(&list, i);
            SLUICE__TRY(sluice__load_post_processor(tok, &part, err));
        }
        return SLUICE_OK;
    }
    around front = {0}, back = {0};
    sluice_status st;
    if (!strcmp(type, "TemplateProcessing"))
        st = template_parts(tok, in, &front, &back, err);
    else if (!strcmp(type, "RobertaProcessing") || !strcmp(type, "BertProcessing"))
        st = cls_sep(tok, in, &front, &back, err);
    else
        st = sluice__load_unsupported(in, "the post-processor", type, err);
    if (st == SLUICE_OK) st = wrap(tok, &front, &back, err);
    sluice__free(front.ids);
    sluice__free(back.ids);
    return st;
}

/* ---- added tokens ---- */
static sluice_status added_token(sluice_tokenizer *tok, const sluice__json *in, sluice_error *err) {
    sluice__added a = {.normalized = true};
    int64_t id = -1;
    char *content = NULL;
    size_t size = 0;
    SLUICE__TRY(sluice__json_int(in, "id", true, 0, SLUICE__MAX_TOKEN_ID, &id, err));
    SLUICE__TRY(sluice__json_bool(in, "single_word", false, &a.single_word, err));
    SLUICE__TRY(sluice__json_bool(in, "lstrip", false, &a.lstrip, err));
    SLUICE__TRY(sluice__json_bool(in, "rstrip", false, &a.rstrip, err));
    SLUICE__TRY(sluice__json_bool(in, "special", false, &a.special, err));
    a.normalized = !a.special;
    SLUICE__TRY(sluice__json_bool(in, "normalized", false, &a.normalized, err));
    SLUICE__TRY(sluice__load_bytes(&content, &size, in, "content", err));
    a.id = (int32_t)id;
    sluice_status st = SLUICE_OK;
    int32_t there = sluice__vocab_find(&tok->vocab, content, size);
    unsigned flags = SLUICE__TOKEN_ADDED | (a.special ? SLUICE__TOKEN_SPECIAL : 0u);
    if (size > SLUICE__MAX_ADDED_BYTES)
        st = sluice__json_fail(in, "content", err, "%zu bytes, expected at most %d", size, SLUICE__MAX_ADDED_BYTES);
    else if (there >= 0 && there != a.id)
        st = sluice__json_fail(in, "id", err, "found %d, but \"%.60s\" has the id %d", a.id, content, there);
    else if (there < 0)
        st = sluice__vocab_add(&tok->vocab, tok->name, id, (sluice__span){content, size}, flags, err);
    if (st == SLUICE_OK) {
        tok->vocab.tokens[id].flags |= flags;
        tok->added[tok->num_added++] = a;
    }
    sluice__free(content);
    return st;
}

sluice_status sluice__load_added(sluice_tokenizer *tok, const sluice__json *in, sluice_error *err) {
    if (!json_is_array(in->value)) return sluice__json_fail(in, NULL, err, "expected an array");
    size_t n = json_array_size(in->value);
    tok->added = sluice__calloc(n, sizeof *tok->added, SLUICE__MEM_DATA);
    if (!tok->added) return sluice__no_memory(err, n * sizeof *tok->added, "added tokens");
    for (size_t i = 0; i < n; i++) {
        sluice__json one = sluice__json_at(in, i);
        if (!json_is_object(one.value)) return sluice__json_fail(&one, NULL, err, "expected an object");
        SLUICE__TRY(added_token(tok, &one, err));
    }
    return SLUICE_OK;
}
