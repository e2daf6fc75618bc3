/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of text: stop strings over token borders, characters over token borders, what is held back. */
#include "support/test_support.h"
#include "base/rng.h"
#include "model/utf8.h"
#include "sluice/stream.h"
#include <stdlib.h>
#include <string.h>

static sluice_tokenizer *tok;

static int load(void **state) {
    (void)state;
    sluice_error err = {0};
    sluice_tokenizer_params p = sluice_tokenizer_params_default();
    p.vocab_size = 300;
    const char *text = "the cat sat on the mat and the dog sat on the log";
    assert_ok_err(sluice_tokenizer_train_text(&tok, &p, text, strlen(text), &err), &err);
    return 0;
}

/* The text that comes out of a stream, piece by piece; every piece is whole characters. */
static sluice_text stream(const sluice_ids *ids, const char *const *stops, int n, bool *stopped) {
    sluice_error err = {0};
    sluice_stream *s;
    sluice_text out = {0};
    *stopped = false;
    assert_ok_err(sluice_stream_new(&s, tok, stops, n, true, &err), &err);
    for (size_t i = 0; i < ids->count; i++) {
        size_t before = out.size;
        assert_ok_err(sluice_stream_push(s, ids->data[i], &out, stopped, &err), &err);
        if (out.size > before)
            assert_int_equal(sluice__utf8_valid_prefix(out.data + before, out.size - before), out.size - before);
    }
    assert_ok_err(sluice_stream_finish(s, &out, &err), &err);
    sluice_stream_free(s);
    return out;
}

static void check(const char *text, const char *const *stops, int n, const char *want, bool want_stop) {
    sluice_error err = {0};
    sluice_ids ids = {0};
    bool stopped;
    assert_ok_err(sluice_tokenizer_encode(tok, text, strlen(text), 0, &ids, &err), &err);
    sluice_text got = stream(&ids, stops, n, &stopped);
    assert_string_equal(got.data ? got.data : "", want);
    assert_int_equal(stopped, want_stop);
    sluice_text_free(&got);
    sluice_ids_free(&ids);
}

static void stop_strings_end_the_text(void **state) {
    (void)state;
    static const char *const one[] = {"dog"}, *const two[] = {"t on", "sat"}, *const inner[] = {"aab"},
                             *const wide[] = {"日本"};
    check("the cat sat on the mat and the dog sat", one, 1, "the cat sat on the mat and the ", true);
    check("the cat sat on the mat", two, 2, "the cat ", true);
    check("the cat", one, 1, "the cat", false);
    check("the do", one, 1, "the do", false); /* held back, then handed out */
    check("aaab", inner, 1, "a", true);
    check("aaaaaa", inner, 1, "aaaaaa", false);
    check("x 日日本 y", wide, 1, "x 日", true);
    check("é👩‍👩‍👧日", NULL, 0, "é👩‍👩‍👧日", false);
}

/* Against a search in the whole text, for random texts over few letters and a random stop string. */
static void random_texts_stop_where_a_search_says(void **state) {
    (void)state;
    sluice__rng rng = {8, 0, 0};
    for (int round = 0; round < 500; round++) {
        static const char *const letters[] = {"a", "b", "é", "日", "the "};
        char text[256] = "", stop[16] = "";
        const char *list[1] = {stop};
        for (uint64_t n = sluice__rng_below(&rng, 30); n > 0; n--) strcat(text, letters[sluice__rng_below(&rng, 5)]);
        for (uint64_t n = 1 + sluice__rng_below(&rng, 3); n > 0; n--) strcat(stop, letters[sluice__rng_below(&rng, 4)]);
        char want[256];
        const char *hit = strstr(text, stop);
        size_t first = hit ? (size_t)(hit - text) : strlen(text);
        memcpy(want, text, first);
        want[first] = 0;
        check(text, list, 1, want, hit != NULL);
    }
}

static void empty_stops_are_refused(void **state) {
    (void)state;
    static const char *const empty[] = {""}, *const half[] = {"\xE6\x97"};
    sluice_error err = {0};
    sluice_stream *s;
    assert_int_equal(sluice_stream_new(&s, tok, empty, 1, true, &err), SLUICE_ERR_ARGUMENT);
    assert_null(s);
    assert_int_equal(sluice_stream_new(&s, tok, half, 1, true, &err), SLUICE_ERR_ARGUMENT);
}

static int unload(void **state) {
    (void)state;
    sluice_tokenizer_free(tok);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stop_strings_end_the_text),
        cmocka_unit_test(random_texts_stop_where_a_search_says),
        cmocka_unit_test(empty_stops_are_refused),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
