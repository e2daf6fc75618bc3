/* SPDX-License-Identifier: Apache-2.0 */
/* train: order of windows, held-out split, windows with BOS and document masks, and what is refused. */
#include "support/test_support.h"
#include "base/memory.h"
#include "train/dataset.h"
#include "train/order.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void permutations_are_bijections(void **state) {
    (void)state;
    static const int64_t sizes[] = {1, 2, 3, 4, 5, 16, 17, 63, 64, 65, 1000, 4097};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        int64_t n = sizes[k], moved = 0;
        char *seen = calloc((size_t)n, 1);
        for (int64_t i = 0; i < n; i++) {
            int64_t j = sluice__permute(i, n, 7, 3);
            assert_true(j >= 0 && j < n && !seen[j]);
            seen[j] = 1;
            moved += j != i;
            assert_int_equal(j, sluice__permute(i, n, 7, 3));
        }
        if (n > 60) assert_true(moved > n * 9 / 10);
        free(seen);
    }
    int64_t differ = 0; /* other seeds and keys give other orders */
    for (int64_t i = 0; i < 1000; i++)
        differ += sluice__permute(i, 1000, 7, 3) != sluice__permute(i, 1000, 8, 3) &&
                  sluice__permute(i, 1000, 7, 3) != sluice__permute(i, 1000, 7, 4);
    assert_true(differ > 980);
    assert_true(sluice__permute(5, INT64_MAX, 1, 1) >= 0);
    double sum = 0;
    for (int64_t i = 0; i < 10000; i++) {
        int64_t x = sluice__draw_below(i, 10, 1, 2);
        assert_true(x >= 0 && x < 10);
        sum += (double)x;
    }
    assert_float_equal(sum / 10000, 4.5, 0.1);
}

enum { DOCS = 5, TOKENS = 3 + 7 + 0 + 1 + 9, V = 100, BOS = 98, EOS = 99 };
static const int64_t lengths[DOCS] = {3, 7, 0, 1, 9};

static sluice_train_params small_params(void) {
    sluice_train_params p = sluice_train_params_default();
    p.split = SLUICE_SPLIT_NONE;
    p.seq_len = 4;
    p.window_order = SLUICE_WINDOWS_SEQUENTIAL;
    return p;
}

static sluice_dataset *build(const sluice_train_params *p) {
    int32_t ids[TOKENS];
    sluice_dataset *d;
    sluice_error err = {0};
    for (int i = 0; i < TOKENS; i++) ids[i] = i;
    assert_ok_err(sluice_dataset_from_tokens(&d, p, ids, lengths, DOCS, V, BOS, EOS, &err), &err);
    return d;
}

/* The stream by hand. */
static int stream_by_hand(const sluice_train_params *p, int32_t *out, int *doc) {
    int n = 0, id = 0;
    for (int d = 0; d < DOCS; d++) {
        if (!lengths[d]) continue;
        int from = n;
        if (p->bos == SLUICE_BOS_DOCUMENT) out[n++] = BOS;
        for (int64_t i = 0; i < lengths[d]; i++) out[n++] = id++;
        if (p->append_eos) out[n++] = EOS;
        for (int i = from; i < n; i++) doc[i] = d;
    }
    return n;
}

static void check_windows(int bos, bool eos, bool mask) {
    sluice_train_params p = small_params();
    p.bos = bos;
    p.append_eos = eos;
    p.document_mask = mask;
    sluice_dataset *d = build(&p);
    int32_t stream[64], ids[4], labels[4], positions[4], key_start[4];
    int doc[64], n = stream_by_hand(&p, stream, doc), lead = bos == SLUICE_BOS_WINDOW;
    sluice_dataset_info info = sluice_dataset_get_info(d);
    assert_int_equal(info.train_tokens, n);
    assert_int_equal(info.train_windows, lead ? n / 4 : (n - 1) / 4);
    assert_int_equal(info.train_documents, 4);
    sluice_window w = {ids, labels, positions, key_start};
    for (int k = 0; k < info.train_windows; k++) {
        sluice_dataset_train_window(d, k, &w);
        for (int i = 0; i < 4; i++) {
            int at = 4 * k + i - lead, next = at + 1; /* at < 4k: the BOS in front */
            bool front = lead && i == 0;
            assert_int_equal(ids[i], front ? BOS : stream[at]);
            bool other = mask && !front && doc[next] != doc[at];
            assert_int_equal(labels[i], other ? -1 : stream[next]);
            int start = 0;
            if (mask && !front)
                while (start < i && (lead && start == 0 ? doc[4 * k] : doc[4 * k + start - lead]) != doc[at]) start++;
            assert_int_equal(key_start[i], start);
            assert_int_equal(positions[i], i - start);
        }
    }
    sluice_dataset_free(d);
}

static void windows_are_those_of_the_stream(void **state) {
    (void)state;
    for (int bos = SLUICE_BOS_NONE; bos <= SLUICE_BOS_WINDOW; bos++)
        for (int eos = 0; eos < 2; eos++)
            for (int mask = 0; mask < 2; mask++) check_windows(bos, eos, mask);
}

static void epochs_cover_all_windows(void **state) {
    (void)state;
    sluice_train_params p = small_params();
    for (int order = SLUICE_WINDOWS_SHUFFLE; order <= SLUICE_WINDOWS_RANDOM; order++) {
        p.window_order = order;
        sluice_dataset *d = build(&p);
        int64_t n = sluice_dataset_get_info(d).train_windows, starts[2][64] = {0}, same = 0;
        int32_t ids[4], labels[4], again[4];
        sluice_window w = {ids, labels, NULL, NULL}, v = {again, labels, NULL, NULL};
        for (int64_t i = 0; i < 40 * n; i++) {
            sluice_dataset_train_window(d, i, &w);
            sluice_dataset_train_window(d, i, &v);
            assert_memory_equal(ids, again, sizeof ids);
            if (i < 2 * n) starts[i / n][i % n] = ids[0];
            for (int64_t j = i / n * n; order == SLUICE_WINDOWS_SHUFFLE && i < 2 * n && j < i; j++)
                assert_true(starts[i / n][j % n] != ids[0] || ids[0] == EOS);
        }
        for (int64_t i = 0; i < n; i++) same += starts[0][i] == starts[1][i];
        assert_true(order == SLUICE_WINDOWS_SEQUENTIAL ? same == n : same < n);
        sluice_dataset_free(d);
    }
}

static void held_out_windows_score_every_token_once(void **state) {
    (void)state;
    sluice_train_params p = small_params();
    p.split = SLUICE_SPLIT_PARTS;
    p.split_parts = 1;
    p.validation_split_percentage = 50;
    p.append_eos = false;
    for (int bos = 0; bos <= SLUICE_BOS_WINDOW; bos += SLUICE_BOS_WINDOW) {
        p.bos = bos;
        sluice_dataset *d = build(&p);
        sluice_dataset_info info = sluice_dataset_get_info(d);
        assert_int_equal(info.heldout_tokens, 10);
        assert_int_equal(info.train_tokens, 10);
        int32_t ids[4], labels[4], positions[4], key_start[4], seen[TOKENS] = {0};
        sluice_window w = {ids, labels, positions, key_start};
        for (int64_t k = 0; k < info.heldout_windows; k++) {
            sluice_dataset_heldout_window(d, k, &w);
            for (int i = 0; i < 4; i++)
                if (labels[i] >= 0) seen[labels[i]]++;
        }
        for (int i = 10; i < TOKENS; i++) assert_int_equal(seen[i], bos || i > 10);
        int32_t tail[3];
        sluice_dataset_heldout_tokens(d, 7, 3, tail);
        assert_int_equal(tail[0], 17);
        sluice_dataset_free(d);
    }
}

static void splits_have_the_asked_share(void **state) {
    (void)state;
    enum { N = 5000 };
    static int64_t sizes[N];
    sluice_error err = {0};
    sluice__piece *pieces;
    int64_t n, held = 0;
    for (int i = 0; i < N; i++) sizes[i] = 1 + i % 7;
    sluice__split_rule rule = {SLUICE_SPLIT_AUTO, 0.05, 20, 3};
    assert_ok_err(sluice__split(&pieces, &n, &rule, sizes, N, NULL, NULL, &err), &err);
    assert_int_equal(n, N);
    for (int64_t i = 0; i < n; i++) held += pieces[i].held;
    assert_in_range(held, N / 25, N / 15);
    sluice__free(pieces);
    for (int64_t docs = 1; docs < 20; docs++) { /* by parts, whatever the documents are */
        int64_t total = 0, sum = 0, at = 0, last = -1;
        held = 0;
        for (int64_t i = 0; i < docs; i++) total += sizes[i] = 1000 + 37 * i;
        assert_ok_err(sluice__split(&pieces, &n, &rule, sizes, docs, NULL, NULL, &err), &err);
        for (int64_t i = 0; i < n; i++) {
            assert_true(pieces[i].end > pieces[i].begin);
            assert_int_equal(pieces[i].begin, pieces[i].document == last ? at : 0); /* no gap, no overlap */
            assert_int_equal(pieces[i].begins, pieces[i].begin == 0);
            assert_int_equal(pieces[i].ends, pieces[i].end == sizes[pieces[i].document]);
            last = pieces[i].document, at = pieces[i].end;
            sum += pieces[i].end - pieces[i].begin;
            if (pieces[i].held) held += pieces[i].end - pieces[i].begin;
        }
        assert_int_equal(sum, total);
        assert_true(fabs((double)held - 0.05 * (double)total) <= 20);
        sluice__free(pieces);
    }
    rule.split = SLUICE_SPLIT_DOCUMENT;
    rule.share = 1e-9; /* one is held out all the same */
    assert_ok_err(sluice__split(&pieces, &n, &rule, sizes, 3, NULL, NULL, &err), &err);
    assert_int_equal(pieces[0].held + pieces[1].held + pieces[2].held, 1);
    sluice__free(pieces);
    assert_ok_err(sluice__split(&pieces, &n, &rule, sizes, 1, NULL, NULL, &err), &err);
    assert_int_equal(pieces[0].held, 0); /* but never the only one */
    sluice__free(pieces);
}

static void bad_data_is_refused(void **state) {
    (void)state;
    sluice_train_params p = small_params();
    sluice_error err = {0};
    sluice_dataset *d;
    int32_t ids[] = {1, 2, 3, 4, 100, 5}, negative[] = {1, 2, 3, 4, 5, -1};
    int64_t length = 6, four = 4, bad = -1;
    assert_int_equal(sluice_dataset_from_tokens(&d, &p, ids, &length, 1, V, -1, EOS, &err), SLUICE_ERR_FORMAT);
    assert_non_null(strstr(err.message, "100"));
    assert_null(d);
    assert_int_equal(sluice_dataset_from_tokens(&d, &p, negative, &length, 1, V, -1, EOS, &err), SLUICE_ERR_FORMAT);
    p.append_eos = false;
    assert_int_equal(sluice_dataset_from_tokens(&d, &p, ids, &four, 1, V, -1, -1, &err), SLUICE_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "seq_len"));
    assert_int_equal(sluice_dataset_from_tokens(&d, &p, ids, &bad, 1, V, -1, -1, &err), SLUICE_ERR_ARGUMENT);
    assert_int_equal(sluice_dataset_from_tokens(&d, &p, ids, &bad, 0, V, -1, -1, &err), SLUICE_ERR_ARGUMENT);
    p.bos = SLUICE_BOS_WINDOW;
    assert_int_equal(sluice_dataset_from_tokens(&d, &p, ids, &four, 1, V, -1, -1, &err), SLUICE_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "bos"));
}

static void hash_names_the_content(void **state) {
    (void)state;
    sluice_train_params p = small_params();
    sluice_dataset *a = build(&p), *b = build(&p);
    assert_true(sluice_dataset_get_info(a).hash == sluice_dataset_get_info(b).hash);
    sluice_dataset_free(b);
    p.append_eos = false;
    b = build(&p);
    assert_true(sluice_dataset_get_info(a).hash != sluice_dataset_get_info(b).hash);
    sluice_dataset_free(a);
    sluice_dataset_free(b);
}

static void another_order_of_the_same_data(void **state) {
    (void)state;
    sluice_train_params p = small_params();
    p.window_order = SLUICE_WINDOWS_SHUFFLE;
    p.split = SLUICE_SPLIT_PARTS;
    p.validation_split_percentage = 20;
    sluice_error err = {0};
    sluice_dataset *a = build(&p), *b, *c;
    assert_ok_err(sluice_dataset_reorder(&b, a, 5, &err), &err);
    assert_ok_err(sluice_dataset_reorder(&c, a, 42, &err), &err); /* the seed it has already */
    assert_true(sluice_dataset_get_info(a).hash == sluice_dataset_get_info(b).hash);
    int32_t x[4], y[4], z[4], labels[4];
    sluice_window wx = {x, labels, NULL, NULL}, wy = {y, labels, NULL, NULL}, wz = {z, labels, NULL, NULL};
    int differ = 0;
    for (int i = 0; i < 40; i++) {
        sluice_dataset_train_window(a, i, &wx);
        sluice_dataset_train_window(b, i, &wy);
        sluice_dataset_train_window(c, i, &wz);
        differ += memcmp(x, y, sizeof x) != 0;
        assert_memory_equal(x, z, sizeof x);
    }
    assert_true(differ > 10);
    sluice_dataset_free(b);
    sluice_dataset_free(c);
    sluice_dataset_free(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(permutations_are_bijections), cmocka_unit_test(windows_are_those_of_the_stream),
        cmocka_unit_test(epochs_cover_all_windows),    cmocka_unit_test(held_out_windows_score_every_token_once),
        cmocka_unit_test(splits_have_the_asked_share), cmocka_unit_test(bad_data_is_refused),
        cmocka_unit_test(hash_names_the_content),      cmocka_unit_test(another_order_of_the_same_data),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
