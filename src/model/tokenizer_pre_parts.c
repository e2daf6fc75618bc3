/* SPDX-License-Identifier: Apache-2.0 */
/* The pre-tokenizer of a tokenizer.json, flattened into a list of steps, and a line of text that describes it. */
#include "model/tokenizer_internal.h"
#include "base/memory.h"
#include <stdio.h>

static void describe(sluice_tokenizer *tok, const char *type, const char *detail) {
    size_t n = strlen(tok->pre_text);
    snprintf(tok->pre_text + n, sizeof tok->pre_text - n, "%s%.40s%s%.40s%s", n ? " " : "", type, *detail ? "(" : "",
             detail, *detail ? ")" : "");
}

static sluice_status new_step(sluice_tokenizer *tok, const sluice__json *in, sluice__pre_kind kind,
                              sluice__behavior behavior, sluice__pre_step **out, sluice_error *err) {
    if (tok->num_pre == SLUICE__MAX_STEPS)
        return sluice__json_fail(in, NULL, err, "more than %d steps", SLUICE__MAX_STEPS);
    *out = &tok->pre[tok->num_pre++];
    (*out)->kind = kind;
    (*out)->behavior = behavior;
    return SLUICE_OK;
}

static sluice_status behavior_of(const sluice__json *in, bool required, sluice__behavior *out, sluice_error *err) {
    static const char *const names[] = {"Removed",        "Isolated",   "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous", NULL};
    int choice = *out;
    SLUICE__TRY(sluice__json_choice(in, "behavior", required, names, &choice, err));
    *out = (sluice__behavior)choice;
    return SLUICE_OK;
}

static sluice_status split(sluice_tokenizer *tok, const sluice__json *in, sluice_error *err) {
    sluice__pre_step *s = NULL;
    SLUICE__TRY(new_step(tok, in, SLUICE__PRE_SPLIT, SLUICE__ISOLATED, &s, err));
    SLUICE__TRY(behavior_of(in, true, &s->behavior, err));
    SLUICE__TRY(sluice__json_bool(in, "invert", false, &s->invert, err));
    SLUICE__TRY(sluice__load_pattern(&s->pattern, in, err));
    /* The matches of a known pattern cover everything, so isolating them is all there is to do; removing what lies
     * between them, as some files ask for, is the same. */
    bool isolates = (s->behavior == SLUICE__ISOLATED) || (s->behavior == SLUICE__REMOVED && s->invert);
    if (s->pattern.known && isolates)
        s->kind = SLUICE__PRE_KNOWN;
    else if (!s->pattern.literal)
        tok->pre_fast = false;
    describe(tok, "Split",
             s->kind == SLUICE__PRE_KNOWN ? s->pattern.known->name
             : s->pattern.literal         ? "string"
                                          : "regex");
    return SLUICE_OK;
}

static sluice_status byte_level(sluice_tokenizer *tok, const sluice__json *in, sluice_error *err) {
    bool prefix = true, use_regex = true;
    const char *pattern;
    sluice__pre_step *s = NULL;
    SLUICE__TRY(sluice__json_bool(in, "add_prefix_space", false, &prefix, err));
    SLUICE__TRY(sluice__json_bool(in, "use_regex", false, &use_regex, err));
    if (prefix) SLUICE__TRY(new_step(tok, in, SLUICE__PRE_PREFIX_SPACE, SLUICE__ISOLATED, &s, err));
    if (use_regex) {
        SLUICE__TRY(new_step(tok, in, SLUICE__PRE_KNOWN, SLUICE__ISOLATED, &s, err));
        s->pattern.known = sluice__known_named("gpt2", &pattern);
    }
    tok->byte_level = true;
    describe(tok, "ByteLevel", use_regex ? (prefix ? "gpt2, prefix space" : "gpt2") : prefix ? "prefix space" : "");
    return SLUICE_OK;
}

static sluice_status metaspace(sluice_tokenizer *tok, const sluice__json *in, sluice_error *err) {
    sluice__pre_step *s = NULL;
    char *replacement = NULL;
    size_t size;
    SLUICE__TRY(new_step(tok, in, SLUICE__PRE_METASPACE, SLUICE__MERGED_WITH_NEXT, &s, err));
    sluice_status st = sluice__load_metaspace(in, &replacement, &size, &s->prepend, err);
    if (st == SLUICE_OK) memcpy(s->replacement, replacement, size);
    s->pattern.literal = replacement;
    s->pattern.literal_size = st == SLUICE_OK ? size : 0;
    s->split = true;
    describe(tok, "Metaspace", "");
    return st == SLUICE_OK ? sluice__json_bool(in, "split", false, &s->split, err) : st;
}

static sluice_status digits(sluice_tokenizer *tok, const sluice__json *in, sluice_error *err) {
    bool individual = false;
    sluice__pre_step *s = NULL;
    SLUICE__TRY(sluice__json_bool(in, "individual_digits", false, &individual, err));
    SLUICE__TRY(new_step(tok, in, SLUICE__PRE_DIGITS, individual ? SLUICE__ISOLATED : SLUICE__CONTIGUOUS, &s, err));
    describe(tok, "Digits", individual ? "individual" : "");
    return SLUICE_OK;
}

static sluice_status delimiter(sluice_tokenizer *tok, const sluice__json *in, sluice_error *err) {
    sluice__pre_step *s = NULL;
    SLUICE__TRY(new_step(tok, in, SLUICE__PRE_SPLIT, SLUICE__REMOVED, &s, err));
    SLUICE__TRY(sluice__load_bytes(&s->pattern.literal, &s->pattern.literal_size, in, "delimiter", err));
    describe(tok, "CharDelimiterSplit", "");
    return SLUICE_OK;
}

static sluice_status punctuation(sluice_tokenizer *tok, const sluice__json *in, sluice_error *err) {
    sluice__pre_step *s = NULL;
    SLUICE__TRY(new_step(tok, in, SLUICE__PRE_PUNCTUATION, SLUICE__ISOLATED, &s, err));
    describe(tok, "Punctuation", "");
    return behavior_of(in, false, &s->behavior, err);
}

static sluice_status plain(sluice_tokenizer *tok, const sluice__json *in, const char *type, sluice_error *err) {
    sluice__pre_step *s = NULL;
    describe(tok, type, "");
    if (!strcmp(type, "WhitespaceSplit")) return new_step(tok, in, SLUICE__PRE_SPACE, SLUICE__REMOVED, &s, err);
    if (!strcmp(type, "Whitespace")) {
        SLUICE__TRY(new_step(tok, in, SLUICE__PRE_WORDS, SLUICE__REMOVED, &s, err));
        s->invert = true;
        return SLUICE_OK;
    }
    SLUICE__TRY(new_step(tok, in, SLUICE__PRE_SPACE, SLUICE__REMOVED, &s, err)); /* BertPreTokenizer */
    return new_step(tok, in, SLUICE__PRE_PUNCTUATION, SLUICE__ISOLATED, &s, err);
}

static sluice_status one(sluice_tokenizer *tok, const sluice__json *in, const char *type, sluice_error *err) {
    if (tok->byte_level) return sluice__load_unsupported(in, "behind ByteLevel the pre-tokenizer", type, err);
    if (!strcmp(type, "Split")) return split(tok, in, err);
    if (!strcmp(type, "ByteLevel")) return byte_level(tok, in, err);
    if (!strcmp(type, "Metaspace")) return metaspace(tok, in, err);
    if (!strcmp(type, "Digits")) return digits(tok, in, err);
    if (!strcmp(type, "CharDelimiterSplit")) return delimiter(tok, in, err);
    if (!strcmp(type, "Punctuation")) return punctuation(tok, in, err);
    if (!strcmp(type, "Whitespace") || !strcmp(type, "WhitespaceSplit") || !strcmp(type, "BertPreTokenizer"))
        return plain(tok, in, type, err);
    return sluice__load_unsupported(in, "the pre-tokenizer", type, err);
}

sluice_status sluice__load_pre_tokenizer(sluice_tokenizer *tok, const sluice__json *in, sluice_error *err) {
    const char *type;
    SLUICE__TRY(sluice__load_type(in, &type, err));
    if (strcmp(type, "Sequence")) return one(tok, in, type, err);
    sluice__json list = sluice__json_get(in, "pretokenizers");
    if (!json_is_array(list.value)) return sluice__json_fail(in, "pretokenizers", err, "expected an array");
    for (size_t i = 0; i < json_array_size(list.value); i++) {
        sluice__json part = sluice__json_at(&list, i);
        SLUICE__TRY(sluice__load_pre_tokenizer(tok, &part, err));
    }
    return SLUICE_OK;
}
