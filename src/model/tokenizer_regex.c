/* SPDX-License-Identifier: Apache-2.0 */
/* Regular expressions by PCRE2, compiled once by its JIT where there is one. Hostile patterns are bounded: a limit on
 * backtracking steps, one on nesting, and a JIT stack that cannot grow past a megabyte; running into one is an error,
 * not a hang. */
#include "model/tokenizer_internal.h"
#include "base/memory.h"

enum {
    PATTERN_LIMIT = 64 << 10,
    MATCH_LIMIT = 20 * 1000 * 1000,
    DEPTH_LIMIT = 100 * 1000,
    HEAP_LIMIT_KIB = 64 << 10,
    JIT_STACK_START = 64 << 10,
    JIT_STACK_LIMIT = 1 << 20
};

sluice_status sluice__regex_new(sluice__regex *out, const char *pattern, size_t size, const char *where,
                                sluice_error *err) {
    out->code = NULL;
    if (size > PATTERN_LIMIT)
        return sluice__fail(err, SLUICE_ERR_CONFIG, "%s: a pattern of %zu bytes, expected at most %d", where, size,
                            PATTERN_LIMIT);
    sluice__strbuf text = {0};
    sluice_status st = sluice__regex_translate(&text, pattern, size, where, err);
    int code = 0;
    PCRE2_SIZE at = 0;
    if (st == SLUICE_OK) {
        pcre2_compile_context *c = pcre2_compile_context_create(NULL);
        if (c) pcre2_set_newline(c, PCRE2_NEWLINE_LF);
        if (c)
            out->code = pcre2_compile((PCRE2_SPTR)(text.data ? text.data : ""), text.size,
                                      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &code, &at, c);
        pcre2_compile_context_free(c);
        if (!out->code) {
            char why[128] = "out of memory";
            if (code) pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
            st = sluice__fail(err, SLUICE_ERR_UNSUPPORTED, "%s: the pattern \"%.200s\" is not supported: %s", where,
                              pattern, why);
        }
    }
    sluice__strbuf_free(&text);
    /* Without JIT (it may be switched off in the library) matching works, more slowly. */
    if (out->code) pcre2_jit_compile(out->code, PCRE2_JIT_COMPLETE);
    return st;
}

void sluice__regex_free(sluice__regex *r) {
    pcre2_code_free(r->code);
    r->code = NULL;
}

sluice_status sluice__matcher_new(sluice__matcher *out, sluice_error *err) {
    *out = (sluice__matcher){pcre2_match_data_create(1, NULL), pcre2_match_context_create(NULL),
                             pcre2_jit_stack_create(JIT_STACK_START, JIT_STACK_LIMIT, NULL)};
    if (!out->data || !out->context) {
        sluice__matcher_free(out);
        return sluice__no_memory(err, JIT_STACK_START, "matching regular expressions");
    }
    pcre2_set_match_limit(out->context, MATCH_LIMIT);
    pcre2_set_depth_limit(out->context, DEPTH_LIMIT);
    pcre2_set_heap_limit(out->context, HEAP_LIMIT_KIB);
    pcre2_jit_stack_assign(out->context, NULL, out->stack); /* stack NULL: PCRE2 takes 32 KiB of the machine stack */
    return SLUICE_OK;
}

void sluice__matcher_free(sluice__matcher *m) {
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->context);
    pcre2_jit_stack_free(m->stack);
    *m = (sluice__matcher){0};
}

sluice_status sluice__regex_search(const sluice__regex *r, sluice__matcher *m, const char *text, size_t size,
                                   size_t from, bool *found, size_t *start, size_t *end, sluice_error *err) {
    int rc = pcre2_match(r->code, (PCRE2_SPTR)text, size, from, PCRE2_NO_UTF_CHECK, m->data, m->context);
    *found = rc >= 0;
    if (rc >= 0) {
        const PCRE2_SIZE *at = pcre2_get_ovector_pointer(m->data);
        *start = at[0] > from ? at[0] : from; /* \K could turn the three around */
        *end = at[1] > *start ? at[1] : *start;
        return SLUICE_OK;
    }
    if (rc == PCRE2_ERROR_NOMATCH) return SLUICE_OK;
    char why[128] = "";
    pcre2_get_error_message(rc, (PCRE2_UCHAR *)why, sizeof why);
    return sluice__fail(
        err, SLUICE_ERR_UNSUPPORTED,
        "a pre-tokenizer or normaliser pattern failed on this text at byte %zu: %s (it backtracks too much)", from,
        why);
}
