/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF files: malformed ones are refused without harm, tensors and metadata are read as recorded, small models give the
 * recorded logits, the tokenizer in the metadata works, and changed tensors come back in the order of the model. */
#include "support/test_support.h"
#include "base/file.h"
#include "base/memory.h"
#include "layers/transformer.h"
#include "model/gguf_model.h"
#include "model/safetensors.h"
#include "model/store.h"
#include "sluice/tokenizer.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *shared(const char *name) {
    char path[128];
    snprintf(path, sizeof path, "reference/quant/%s", name);
    return test_shared(path);
}

static void malformed_files_are_refused(void **state) {
    (void)state;
    const char *list = shared("bad/expected.json");
    json_t *root;
    if (!list) skip();
    assert_ok(sluice__json_load(&root, list, NULL));
    for (size_t i = 0; i < json_array_size(root); i++) {
        json_t *e = json_array_get(root, i);
        const char *file = json_string_value(json_object_get(e, "file"));
        const char *expect = json_string_value(json_object_get(e, "expect"));
        char name[128];
        snprintf(name, sizeof name, "bad/%s", file);
        const char *path = shared(name);
        sluice_weight_files *files;
        sluice_model *model;
        sluice_error err = {0};
        bool listed = sluice_weight_files_open(&files, path, &err) == SLUICE_OK;
        if (listed) sluice_weight_files_close(files);
        if (listed != (strcmp(expect, "error") != 0)) fail_msg("%s: listed %d: %s", file, listed, err.message);
        assert_int_not_equal(sluice_model_load(&model, path, NULL, &err), SLUICE_OK);
        if (!strstr(err.message, file)) fail_msg("%s: the message does not name it: %s", file, err.message);
        if (!strcmp(file, "arch_unknown.gguf")) assert_non_null(strstr(err.message, "no-such-arch"));
    }
    json_decref(root);
}

/* Every prefix of a good file is refused. */
static void truncated_files_are_refused(void **state) {
    (void)state;
    const char *path = shared("tiny-qwen3.gguf");
    if (!path) skip();
    sluice__map map;
    assert_ok(sluice__map_open(&map, path, NULL));
    char *copy = sluice__asprintf("%s/cut.gguf", test_temp_dir());
    for (size_t size = 0; size < map.size; size += size < 6000 ? 7 : 1931) {
        sluice__gguf *g;
        assert_ok(sluice__write_file(copy, map.data, size, NULL));
        assert_int_not_equal(sluice__gguf_open(&g, copy, NULL), SLUICE_OK);
    }
    sluice__map_close(&map);
    sluice__free(copy);
}

static void tables_are_as_recorded(void **state) {
    (void)state;
    const char *list = shared("gguf.json"), *path = shared("types.gguf");
    json_t *root;
    sluice__gguf *g;
    if (!list || !path) skip();
    assert_ok(sluice__json_load(&root, list, NULL));
    assert_ok(sluice__gguf_open(&g, path, NULL));
    json_t *tensors = json_object_get(json_object_get(root, "types.gguf"), "tensors");
    sluice__map map;
    assert_ok(sluice__map_open(&map, path, NULL));
    assert_int_equal(sluice__gguf_num_tensors(g), json_array_size(tensors));
    for (int i = 0; i < sluice__gguf_num_tensors(g); i++) {
        const sluice__gguf_tensor *t = sluice__gguf_tensor_at(g, i);
        json_t *e = json_array_get(tensors, (size_t)i), *shape = json_object_get(e, "ggml_shape");
        size_t offset = (size_t)json_integer_value(json_object_get(e, "offset_in_file"));
        assert_string_equal(t->name, json_string_value(json_object_get(e, "name")));
        assert_string_equal(sluice__dtype_name(t->dtype), json_string_value(json_object_get(e, "type")));
        assert_int_equal(t->bytes, json_integer_value(json_object_get(e, "bytes")));
        for (int d = 0; d < t->ndim; d++)
            assert_int_equal(t->shape[t->ndim - 1 - d], json_integer_value(json_array_get(shape, (size_t)d)));
        assert_memory_equal(t->data, map.data + offset, (size_t)t->bytes);
    }
    sluice__map_close(&map);
    sluice__gguf_close(g);
    json_decref(root);
}

static void metadata_of_every_kind_is_read(void **state) {
    (void)state;
    const char *path = shared("tiny-llama.gguf");
    sluice__gguf *g;
    if (!path) skip();
    assert_ok(sluice__gguf_open(&g, path, NULL));
    int64_t i;
    double r;
    bool b;
    sluice__gguf_text s;
    assert_true(sluice__gguf_integer(sluice__gguf_find(g, "test.int16"), &i) && i == -12345);
    assert_true(sluice__gguf_integer(sluice__gguf_find(g, "test.uint64"), &i) && i == (1LL << 53) + 1);
    assert_true(sluice__gguf_real(sluice__gguf_find(g, "test.float64"), &r) && r == 0.1);
    assert_true(sluice__gguf_bool(sluice__gguf_find(g, "test.flag"), &b) && b);
    assert_true(sluice__gguf_string(sluice__gguf_find(g, "test.unicode"), &s));
    assert_memory_equal(s.data, "Schleuse 水闸 🌊", s.size);
    assert_false(sluice__gguf_integer(sluice__gguf_find(g, "test.flag"), &i));
    assert_null(sluice__gguf_find(g, "test.nothing"));
    static const char *const texts[] = {"", "a", "é\n"};
    sluice__gguf_value v;
    uint64_t at = 0;
    const unsigned char *cursor = NULL;
    while (sluice__gguf_next(sluice__gguf_find(g, "test.strings"), &at, &cursor, &v)) {
        assert_true(sluice__gguf_string(&v, &s));
        assert_true(s.size == strlen(texts[at - 1]) && !memcmp(s.data, texts[at - 1], s.size));
    }
    assert_int_equal(at, 3);
    sluice__gguf_close(g);
}

/* Largest difference to the recorded logits; *relative: root mean square of the differences over that of the logits. */
static double logit_error(const char *name, sluice_load_weights weights, double *relative) {
    char file[64];
    snprintf(file, sizeof file, "%s.gguf", name);
    const char *path = shared(file);
    snprintf(file, sizeof file, "%s.logits.safetensors", name);
    sluice__safetensors *golden;
    sluice_model *m;
    sluice__workspace *ws;
    assert_ok(sluice__safetensors_open(&golden, shared(file), NULL));
    const sluice__st_tensor *ids = sluice__safetensors_find(golden, "ids"), *want = sluice__safetensors_find(golden, "logits");
    sluice_error err = {0};
    sluice_load_params params = sluice_load_params_default();
    params.weights = weights;
    assert_ok_err(sluice_model_load(&m, path, &params, &err), &err);
    assert_ok(sluice__workspace_new(&ws, m, 1, (int)ids->count, SLUICE__INFER, NULL));
    int32_t input[64];
    memcpy(input, ids->data, (size_t)ids->count * sizeof *input);
    float *logits = sluice__calloc((size_t)want->count, sizeof *logits, SLUICE__MEM_OTHER);
    sluice__input in = {.batch = 1, .seq_len = (int)ids->count, .ids = input};
    assert_ok(sluice__forward(m, ws, &in, NULL, NULL, SLUICE__LOGITS_ALL, logits, NULL));
    double worst = 0, squares = 0, all = 0;
    for (int64_t i = 0; i < want->count; i++) {
        float w;
        memcpy(&w, (const char *)want->data + 4 * i, 4);
        double d = (double)logits[i] - w;
        worst = fmax(worst, fabs(d));
        squares += d * d;
        all += (double)w * w;
    }
    *relative = sqrt(squares / all);
    sluice__free(logits);
    sluice__workspace_free(ws);
    sluice_model_free(m);
    sluice__safetensors_close(golden);
    return worst;
}

static void small_models_give_the_recorded_logits(void **state) {
    (void)state;
    if (!shared("tiny-llama.gguf")) skip();
    double relative;
    assert_true(logit_error("tiny-llama", SLUICE_LOAD_F32, &relative) < 1e-4);
    assert_true(logit_error("tiny-qwen3", SLUICE_LOAD_F32, &relative) < 1e-4);
}

/* On the blocks, with inputs rounded to 8 bits (half a step of 1/127 of the largest of 32, at every product): off by that,
 * but not by nothing. */
static void blocks_give_nearly_the_same_logits(void **state) {
    (void)state;
    if (!shared("tiny-llama.gguf")) skip();
    double llama, qwen;
    logit_error("tiny-llama", SLUICE_LOAD_AS_STORED, &llama);
    logit_error("tiny-qwen3", SLUICE_LOAD_AS_STORED, &qwen);
    print_message("relative errors: llama %.4f, qwen3 %.4f\n", llama, qwen);
    assert_true(llama > 1e-4 && llama < 0.03);
    assert_true(qwen > 1e-4 && qwen < 0.03);
}

static void the_tokenizer_is_in_the_file(void **state) {
    (void)state;
    const char *path = shared("tiny-llama.gguf");
    if (!path) skip();
    sluice_tokenizer *tok;
    sluice_ids ids = {0};
    sluice_error err = {0};
    assert_ok_err(sluice_tokenizer_load(&tok, path, &err), &err);
    assert_ok(sluice_tokenizer_encode(tok, "in the<|pad|>", 13, SLUICE_ENCODE_ADD_SPECIAL | SLUICE_ENCODE_PARSE_SPECIAL, &ids,
                                      NULL));
    assert_int_equal(ids.count, 4); /* the token in front, "in", " the", the special token */
    assert_int_equal(ids.data[0], 0);
    assert_int_equal(ids.data[1], sluice_tokenizer_id(tok, "in", 2));
    assert_int_equal(ids.data[2], sluice_tokenizer_id(tok, "Ġthe", 5));
    assert_int_equal(ids.data[3], 1);
    assert_int_equal(sluice_tokenizer_bos_id(tok), 0);
    assert_int_equal(sluice_tokenizer_pad_id(tok), 1);
    sluice_ids_free(&ids);
    sluice_tokenizer_free(tok);
}

/* Rows r of the model stand where the converters put them. */
static void edits_are_permutations(void **state) {
    (void)state;
    sluice__gguf_edit pairs = {SLUICE__EDIT_ROPE_PAIRS, 2, 8, 0, 0};
    static const int64_t want[] = {0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15};
    for (int64_t r = 0; r < 16; r++) assert_int_equal(sluice__gguf_edit_source(&pairs, r), want[r]);
    /* Two key heads with three value heads of two rows each, behind four other rows: model order 0 1 2 | 3 4 5 is
     * 0 2 4 | 1 3 5 in the file, so value head 1 stands at place 2. */
    sluice__gguf_edit heads = {SLUICE__EDIT_VALUE_HEADS, 6, 2, 2, 4};
    static const int64_t places[] = {0, 2, 4, 1, 3, 5};
    for (int64_t r = 0; r < 4; r++) assert_int_equal(sluice__gguf_edit_source(&heads, r), r);
    for (int64_t h = 0; h < 6; h++)
        for (int64_t i = 0; i < 2; i++) assert_int_equal(sluice__gguf_edit_source(&heads, 4 + 2 * h + i), 4 + 2 * places[h] + i);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(malformed_files_are_refused),   cmocka_unit_test(truncated_files_are_refused),
        cmocka_unit_test(tables_are_as_recorded),        cmocka_unit_test(metadata_of_every_kind_is_read),
        cmocka_unit_test(small_models_give_the_recorded_logits),
        cmocka_unit_test(blocks_give_nearly_the_same_logits), cmocka_unit_test(the_tokenizer_is_in_the_file),
        cmocka_unit_test(edits_are_permutations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
