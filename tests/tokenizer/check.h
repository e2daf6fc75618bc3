/* SPDX-License-Identifier: Apache-2.0 */
/* Comparing ids and texts with recorded ones; included by the test programs of this folder. */
#ifndef TEST_TOKENIZER_CHECK_H
#define TEST_TOKENIZER_CHECK_H
#include "support/test_support.h"
#include "base/json.h"
#include "model/tokenizer_internal.h"
#include "model/utf8.h"
#include "sluice/tokenizer.h"
#include <string.h>

static sluice_error err;

static inline sluice_tokenizer *load(const char *path) {
    sluice_tokenizer *tok;
    assert_ok_err(sluice_tokenizer_load(&tok, path, &err), &err);
    return tok;
}

static inline void check_ids(const json_t *expected, const sluice_ids *found, const char *what) {
    assert_non_null(expected);
    bool same = json_array_size(expected) == found->count;
    for (size_t i = 0; i < found->count && same; i++)
        same = json_integer_value(json_array_get(expected, i)) == found->data[i];
    if (same) return;
    print_error("%s\nfound   ", what);
    for (size_t i = 0; i < found->count && i < 40; i++) print_error(" %d", found->data[i]);
    print_error("\nexpected");
    for (size_t i = 0; i < json_array_size(expected) && i < 40; i++)
        print_error(" %lld", (long long)json_integer_value(json_array_get(expected, i)));
    fail_msg("\nids differ");
}

static inline void check_text(const json_t *expected, const sluice_text *found, const char *what) {
    if (json_string_length(expected) == found->size && !memcmp(json_string_value(expected), found->data, found->size))
        return;
    fail_msg("%s: found \"%s\", expected \"%s\"", what, found->data, json_string_value(expected));
}

static inline void check_stream(const sluice_tokenizer *tok, const int32_t *ids, size_t n, bool skip,
                                const json_t *expected) {
    sluice_decode_stream *s;
    sluice_text text = {0};
    assert_ok(sluice_decode_stream_new(&s, tok, skip, NULL));
    for (size_t i = 0; i < n; i++) {
        assert_ok(sluice_decode_stream_push(s, ids[i], &text, NULL));
        assert_int_equal(sluice__utf8_valid_prefix(text.data, text.size), text.size);
    }
    assert_ok(sluice_decode_stream_finish(s, &text, NULL));
    check_text(expected, &text, "streamed");
    sluice_decode_stream_free(s);
    sluice_text_free(&text);
}

static inline void check_decode(const sluice_tokenizer *tok, const int32_t *ids, size_t n, bool skip,
                                const json_t *expected) {
    sluice_text text = {0};
    assert_ok(sluice_tokenizer_decode(tok, ids, n, skip, &text, NULL));
    check_text(expected, &text, "decoded");
    sluice_text_free(&text);
    check_stream(tok, ids, n, skip, expected);
}
#endif
