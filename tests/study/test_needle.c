/* SPDX-License-Identifier: Apache-2.0 */
/* Text with tags: every document holds what docs/length.md says, questions ask for what their window holds, and both
 * are functions of the seed alone. A small study with an extension has all its rows. */
#include "study/needle.h"
#include "study/study_case.h"
#include "train/dataset.h"
#include <math.h>

enum { LENGTH = 48 };

typedef struct fixture {
    sluice_train_params p;
    sluice_tokenizer *tokenizer;
    sluice_dataset *text;
    sluice__tags tags;
} fixture;

static fixture make(void) {
    static char text[20000];
    size_t used = 0;
    fixture f = {.p = sluice_train_params_default()};
    for (unsigned i = 0, x = 3; used < sizeof text - 20; i++)
        used += (size_t)sprintf(text + used, "word%c ", 'a' + (int)((x = x * 1103515245u + 12345u) >> 20 & 15));
    sluice_document d = {text, used};
    sluice_error err = {0};
    f.p.seq_len = LENGTH;
    f.p.bos = SLUICE_BOS_DOCUMENT;
    f.p.append_eos = false;
    f.p.document_mask = true;
    f.p.split = SLUICE_SPLIT_PARTS;
    f.p.split_parts = 4;
    f.p.validation_split_percentage = 20;
    assert_ok_err(sluice_train_tokenizer_on_text(&f.tokenizer, &f.p, 300, &d, 1, &err), &err);
    sluice_train_params plain = f.p;
    plain.bos = SLUICE_BOS_NONE;
    plain.document_mask = false;
    assert_ok_err(sluice_dataset_from_text(&f.text, &plain, f.tokenizer, &d, 1, &err), &err);
    assert_ok_err(sluice__tags_of(&f.tags, f.tokenizer, &err), &err);
    return f;
}

static void unmake(fixture *f) {
    sluice_dataset_free(f->text);
    sluice_tokenizer_free(f->tokenizer);
}

/* Value of the tag at ids[at], or -1 when no whole tag stands there; *key its key. */
static int tag_at(const sluice__tags *t, const int32_t *ids, int at, int length, int *key) {
    if (at + SLUICE__TAG_TOKENS > length || ids[at] != t->open || ids[at + 3] != t->close) return -1;
    for (int k = 0; k < SLUICE__NEEDLE_KEYS; k++)
        for (int v = 0; v < SLUICE__NEEDLE_VALUES; v++)
            if (ids[at + 1] == t->keys[k] && ids[at + 2] == t->values[v]) return *key = k, v;
    return -1;
}

static void documents_hold_their_tags(void **state) {
    (void)state;
    fixture f = make();
    sluice__needle_params n = {.needles = 2, .mentions = 3, .share = 0.5, .seed = 4};
    sluice_dataset *d, *again;
    sluice_error err = {0};
    assert_ok_err(sluice__needle_dataset(&d, &f.p, f.text, f.tokenizer, &n, 400, &err), &err);
    assert_ok(sluice__needle_dataset(&again, &f.p, f.text, f.tokenizer, &n, 400, NULL));
    assert_true(sluice_dataset_get_info(d).hash == sluice_dataset_get_info(again).hash);
    int tagged = 0;
    int64_t windows = sluice_dataset_get_info(d).train_windows;
    for (int64_t w = 0; w < windows; w++) {
        int32_t ids[LENGTH], labels[LENGTH], positions[LENGTH], key_start[LENGTH];
        int value[SLUICE__NEEDLE_KEYS], mentions[SLUICE__NEEDLE_KEYS] = {0}, keys = 0, key;
        sluice_window window = {ids, labels, positions, key_start};
        sluice_dataset_train_window(d, w, &window);
        assert_int_equal(ids[0], sluice_tokenizer_bos_id(f.tokenizer)); /* a window is a document */
        assert_int_equal(labels[LENGTH - 1], -1); /* and its end does not predict the start of the next */
        assert_int_equal(labels[LENGTH - 2], ids[LENGTH - 1]);
        for (int i = 1; i < LENGTH; i++) {
            assert_int_not_equal(ids[i], ids[0]);
            int v = tag_at(&f.tags, ids, i, LENGTH, &key);
            if (v < 0) continue;
            if (mentions[key]++) assert_int_equal(v, value[key]); /* later mentions repeat */
            value[key] = v;
            keys += mentions[key] == 1;
        }
        tagged += keys > 0;
        for (int k = 0; k < SLUICE__NEEDLE_KEYS; k++) assert_true(mentions[k] == 0 || mentions[k] == n.mentions);
        assert_true(keys == 0 || keys == n.needles);
    }
    assert_in_range(tagged, windows / 3, 2 * windows / 3);
    sluice_dataset_free(d);
    sluice_dataset_free(again);
    unmake(&f);
}

static void questions_can_be_answered(void **state) {
    (void)state;
    fixture f = make();
    sluice__needle_params n = {.needles = 3, .mentions = 2, .share = 1, .seed = 4};
    int quarters[4] = {0};
    for (int64_t q = 0; q < 200; q++) {
        int32_t ids[LENGTH];
        sluice__question question = sluice__needle_question(ids, LENGTH, f.text, 7, &f.tags, &n, q);
        int tags = 0, found = -1, place = -1, key;
        assert_int_equal(ids[0], 7);
        assert_int_equal(ids[LENGTH - 2], f.tags.open);
        for (int i = 1; i < LENGTH - 2; i++) {
            int v = tag_at(&f.tags, ids, i, LENGTH - 2, &key);
            if (v < 0) continue;
            tags++;
            if (f.tags.keys[key] == ids[LENGTH - 1]) found = v, place = i;
        }
        assert_int_equal(tags, 3);
        assert_true(found >= 0 && f.tags.values[found] == question.answer);
        assert_true(fabs(question.depth * LENGTH - place) < 1e-9);
        quarters[(int)(question.depth * 4)]++;
    }
    for (int i = 0; i < 4; i++) assert_true(quarters[i] > 20);
    unmake(&f);
}

static void what_does_not_fit_is_refused(void **state) {
    (void)state;
    fixture f = make();
    sluice__needle_params n = {.needles = 6, .mentions = 2, .share = 1, .seed = 4};
    sluice_dataset *d;
    sluice_error err = {0};
    assert_int_not_equal(sluice__needle_dataset(&d, &f.p, f.text, f.tokenizer, &n, 10, &err), SLUICE_OK);
    assert_non_null(strstr(err.message, "data.needles"));
    assert_null(d);
    unmake(&f);
}

static void check_stage(const json_t *stage, int seq_len, double theta) {
    assert_int_equal(json_integer_value(json_object_get(stage, "seq_len")), seq_len);
    assert_true(json_number_value(json_object_get(stage, "rope_theta")) == theta);
    json_t *rows = json_object_get(stage, "rows"), *row;
    size_t i;
    assert_int_equal(json_array_size(rows), 6); /* 1x, 2x, 4x; plain and YaRN */
    json_array_foreach(rows, i, row) {
        assert_int_equal(json_integer_value(json_object_get(row, "length")), 32 << i % 3);
        assert_string_equal(json_string_value(json_object_get(row, "rope")), i < 3 ? "plain" : "yarn");
        assert_true(json_number_value(json_object_get(row, "factor")) == (i < 3 ? 1 : 128.0 / seq_len));
        double loss = json_number_value(json_object_get(row, "loss"));
        assert_true(loss > 0.5 && loss < 20);
        assert_true(json_is_number(json_object_get(row, "recall")));
        assert_int_equal(json_integer_value(json_object_get(row, "questions")), 16);
        assert_int_equal(json_integer_value(json_object_get(row, "tokens")),
                         json_integer_value(json_object_get(json_array_get(rows, 0), "tokens")));
    }
}

static void a_study_measures_both_stages(void **state) {
    (void)state;
    char dir[128], path[256], command[1024], *output;
    snprintf(dir, sizeof dir, "%s", test_temp_dir());
    write_case(dir, 8, "{\"name\": \"baseline\"}");
    static const char recipe[] =
        "{\"name\": \"tiny-length\", \"model\": {\"hidden_size\": 16, \"num_hidden_layers\": 1, "
        "\"num_attention_heads\": 2, \"intermediate_size\": 32}, \"data\": {\"kind\": \"needle\", \"vocab_size\": 280, "
        "\"needles\": 1, \"mentions\": 2, \"needle_share\": 0.5, \"documents\": 200, \"seed\": 1, \"seq_len\": 32, "
        "\"bos\": \"document\", \"append_eos\": false, \"document_mask\": true, \"split\": \"parts\", \"split_parts\": 4, "
        "\"validation_split_percentage\": 20}, \"training\": {\"max_steps\": 12, \"warmup_steps\": 2, "
        "\"per_device_train_batch_size\": 4, \"probe_steps\": 0}, \"evaluation\": {\"inspect_windows\": 4, \"lengths\": [], "
        "\"map_tokens\": 8, \"heldout_prompts\": 0}, \"extension\": {\"seq_len\": 64, \"rope_theta\": 50000, "
        "\"lengths\": [1, 2, 4], \"length_tokens\": 256, \"questions\": 16, \"training\": {\"max_steps\": 6}}, "
        "\"arms\": [{\"name\": \"baseline\"}, {\"name\": \"gated\", \"config\": {\"gate_position\": \"sdpa\"}}]}";
    snprintf(path, sizeof path, "%s/length.json", dir);
    assert_ok(sluice__write_file(path, recipe, strlen(recipe), NULL));
    snprintf(command, sizeof command, "%s study -q -r %s -t %s/text.txt -o %s/out", SLUICE_PROGRAM, path, dir, dir);
    if (test_run(command, &output) != 0) fail_msg("%s", output);
    free(output);
    snprintf(path, sizeof path, "%s/out", dir);
    json_t *results = load_results(path);
    for (int i = 0; i < 2; i++) {
        json_t *run = run_of(results, i ? "gated" : "baseline", 0);
        json_t *stages = json_object_get(json_object_get(run, "extension"), "stages");
        assert_string_equal(json_string_value(json_object_get(run, "status")), "done");
        assert_int_equal(json_array_size(stages), 2);
        check_stage(json_array_get(stages, 0), 32, 10000);
        check_stage(json_array_get(stages, 1), 64, 50000);
        assert_int_equal(
            json_array_size(json_object_get(json_object_get(json_object_get(run, "extension"), "train"), "loss")), 6);
    }
    json_decref(results);
    snprintf(path, sizeof path, "test -f %s/out/arms/gated/seed-1/longer/model/config.json", dir);
    assert_int_equal(test_run(path, NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_hold_their_tags), cmocka_unit_test(questions_can_be_answered),
        cmocka_unit_test(what_does_not_fit_is_refused), cmocka_unit_test(a_study_measures_both_stages)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
