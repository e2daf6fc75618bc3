/* SPDX-License-Identifier: Apache-2.0 */
/* pytorch_model.bin: the pickle machine, both formats, and inputs meant to do harm. */
#include "support/test_support.h"
#include "base/file.h"
#include "base/memory.h"
#include "model/pickle.h"
#include "model/torch_bin.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zip.h>

/* ---- pickles ---- */

static sluice_status run_pickle(const char *bytes, size_t size, sluice_error *err) {
    sluice__pickle *p;
    size_t used;
    sluice__pickle_value v;
    assert_ok(sluice__pickle_new(&p, "test.bin", err));
    sluice_status st = sluice__pickle_run(p, (const unsigned char *)bytes, size, &used, &v, err);
    sluice__pickle_free(p);
    return st;
}

#define STORAGE                                                                                                \
    "(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"                                                         \
    "0"                                                                                                        \
    "X\3\0\0\0cpuK\6tQ"
#define TENSOR(offset, sizes, strides)                                                                         \
    "ctorch._utils\n_rebuild_tensor_v2\n(" STORAGE offset sizes strides "\x89"                                 \
    "ccollections\nOrderedDict\n)RtR"

static void pickles(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
        const char *words;
    } cases[] = {
#define PICKLE(bytes, words) {bytes, sizeof bytes - 1, words}
        PICKLE("\x80\2}.", NULL),
        PICKLE("\x80\2}(X\1\0\0\0a" TENSOR("K\0", "K\2K\3\x86", "K\3K\1\x86") "u.", NULL),
        PICKLE("\x80\2}(X\1\0\0\0a" TENSOR("K\0", "K\2K\3\x86", "K\1K\2\x86") "u.", NULL),
        PICKLE("\x80\2}(X\1\0\0\0a" TENSOR("K\1", "K\2K\3\x86", "K\3K\1\x86") "u.",
               "tensor a: its elements reach beyond its storage"),
        PICKLE("\x80\2}(X\1\0\0\0a" TENSOR("J\xff\xff\xff\xff", "K\1\x85", "K\1\x85") "u.",
               "tensor a: expected storage"),
        PICKLE("\x80\2}(X\1\0\0\0a" TENSOR(
                   "K\0", "\x8a\10\xff\xff\xff\xff\xff\xff\xff\x7f\x8a\10\xff\xff\xff\xff\xff\xff\xff\x7f\x86",
                   "K\1K\1\x86") "u.",
               "tensor a: its elements reach beyond its storage"),
        PICKLE("\x80\2}(X\1\0\0\0a" TENSOR("K\0", "K\2K\3\x86", "K\1\x85") "u.", "tensor a: expected storage"),
        PICKLE("\x80\2"
               "cposix\nsystem\nX\4\0\0\0true\x85R.",
               "posix.system"),
        PICKLE("\x80\4\x8c\5posix\x8c\6system\x93.", "posix.system"),
        PICKLE("\x80\2"
               "cbuiltins\neval\n.",
               "builtins.eval"),
        PICKLE("\x80\2"
               "ctorch._utils\n_rebuild_tensor_v3\n.",
               "_rebuild_tensor_v3"),
        PICKLE("\x80\2"
               "ccollections\nOrderedDict\n(R.",
               "mark"),
        PICKLE("\x80\2)R.", "empty"),
        PICKLE("\x80\2}.", NULL),
        PICKLE("\x80\2"
               "(.",
               "mark"),
        PICKLE("\x80\2"
               ".",
               "empty"),
        PICKLE("\x80\2"
               "h\5.",
               "empty memo"),
        PICKLE("\x80\2"
               "}r\xff\xff\xff\x7f.",
               "memo index"),
        PICKLE("\x80\2"
               "X\xff\xff\xff\x7f"
               "ab.",
               "longer"),
        PICKLE("\x80\2"
               "X\xff\0\0\0ab.",
               "ends too early"),
        PICKLE("\x80\2"
               "}",
               "ends too early"),
        PICKLE("\x80\2"
               "(}tu.",
               "no mark"),
        PICKLE("\x80\2"
               "N(K\1K\2u.",
               "not a dictionary"),
        PICKLE("\x80\2"
               "}(K\1u.",
               "not a dictionary"),
        PICKLE("\x80\2"
               "](K\1e.",
               NULL),
        PICKLE("\x80\2"
               "}(K\1e.",
               "not a list"),
        PICKLE("\x80\2"
               "N}b.",
               "not a dictionary"),
        PICKLE("\x80\2"
               "X\1\0\0\0aQ.",
               "not a storage"),
        PICKLE("\x80\2"
               "ccollections\nOrderedDict\n]](K\1K\2ea\x85R.",
               NULL),
        PICKLE("\x80\2"
               "ccollections\nOrderedDict\n](K\1e\x85R.",
               "not a pair"),
        PICKLE("\x80\2"
               "i",
               "opcode 0x69"),
        PICKLE("\x80\7"
               ".",
               "protocol"),
        PICKLE("", "ends too early"),
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sluice_error err = {0};
        sluice_status st = run_pickle(cases[i].bytes, cases[i].size, &err);
        if ((st == SLUICE_OK) != !cases[i].words) fail_msg("pickle %zu: %s", i, err.message);
        if (cases[i].words && !strstr(err.message, cases[i].words))
            fail_msg("pickle %zu: \"%s\" lacks \"%s\"", i, err.message, cases[i].words);
        if (cases[i].words) assert_non_null(strstr(err.message, "test.bin"));
    }
}

/* ---- pytorch_model.bin ---- */

/* a: rows 0 1 2, 3 4 5 of the storage 10 11 12 13 14 15; b: its transpose; c: elements 1, 3, 5. */
#define DICTIONARY                                                                                             \
    "\x80\2}(X\1\0\0\0a" TENSOR("K\0", "K\2K\3\x86", "K\3K\1\x86") "X\1\0\0\0b" TENSOR(                        \
        "K\0", "K\3K\2\x86", "K\1K\3\x86") "X\1\0\0\0c" TENSOR("K\1", "K\3\x85",                               \
                                                               "K\2\x85") "X\4\0\0\0stepK\7u."
static const char dictionary[] = DICTIONARY;
static const float storage[6] = {10, 11, 12, 13, 14, 15};

static void write_zip(const char *path, zip_int32_t method, const char *byte_order) {
    zip_t *z = zip_open(path, ZIP_CREATE | ZIP_TRUNCATE, NULL);
    assert_non_null(z);
    const struct {
        const char *name;
        const void *data;
        size_t size;
    } entries[] = {{"m/data.pkl", dictionary, sizeof dictionary - 1},
                   {"m/byteorder", byte_order, strlen(byte_order)},
                   {"m/data/0", storage, sizeof storage}};
    for (int i = 0; i < 3; i++) {
        zip_int64_t at =
            zip_file_add(z, entries[i].name, zip_source_buffer(z, entries[i].data, entries[i].size, 0), 0);
        assert_true(at >= 0 && zip_set_file_compression(z, (zip_uint64_t)at, method, 0) == 0);
    }
    assert_int_equal(zip_close(z), 0);
}

/* The format of PyTorch 1.5 and earlier: five pickles, then each storage behind its count. */
static void write_legacy(const char *path, const char *little_endian) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    static const char magic[] = "\x80\2\x8a\nl\xfc\x9c\x46\xf9\x20\x6a\xa8P\x19.",
                      protocol[] = "\x80\2M\xe9\3.";
    static const char keys[] = "\x80\2](X\1\0\0\0"
                               "0e.",
                      count[8] = {6};
    fwrite(magic, 1, sizeof magic - 1, f);
    fwrite(protocol, 1, sizeof protocol - 1, f);
    fwrite("\x80\2}X\15\0\0\0little_endian", 1, 21, f);
    fwrite(little_endian, 1, 1, f);
    fwrite("s.", 1, 2, f);
    fwrite(dictionary, 1, sizeof dictionary - 1, f);
    fwrite(keys, 1, sizeof keys - 1, f);
    fwrite(count, 1, sizeof count, f);
    fwrite(storage, 1, sizeof storage, f);
    fclose(f);
}

typedef struct collected {
    float values[16];
    int count;
} collected;

static sluice_status collect(void *user, int64_t row, const float *values, sluice_error *err) {
    (void)row, (void)err;
    collected *c = user;
    const int columns[] = {3, 2, 3};
    int tensor = c->count / 100, at = c->count % 100;
    for (int i = 0; i < columns[tensor]; i++) c->values[at++] = values[i];
    c->count = tensor * 100 + at;
    return SLUICE_OK;
}

static void check_bin(const char *path) {
    static const float want[3][6] = {{10, 11, 12, 13, 14, 15}, {10, 13, 11, 14, 12, 15}, {11, 13, 15}};
    static const int counts[] = {6, 6, 3};
    sluice_error err = {0};
    sluice__torch_bin *b;
    assert_ok_err(sluice__torch_bin_open(&b, path, &err), &err);
    assert_int_equal(sluice__torch_bin_count(b), 3);
    for (int i = 0; i < 3; i++) {
        collected c = {.count = i * 100};
        assert_int_equal(sluice__torch_bin_at(b, i)->name[0], 'a' + i);
        const sluice__bin_tensor *t = sluice__torch_bin_at(b, i);
        sluice__view view = sluice__view_of(t->ndim, t->shape);
        assert_ok_err(sluice__torch_bin_read(b, i, &view, collect, &c, &err), &err);
        assert_int_equal(c.count, i * 100 + counts[i]);
        assert_memory_equal(c.values, want[i], (size_t)counts[i] * sizeof(float));
    }
    sluice__torch_bin_close(b);
}

static void refuse_bin(const char *path, const char *words) {
    sluice_error err = {0};
    sluice__torch_bin *b;
    assert_true(sluice__torch_bin_open(&b, path, &err) != SLUICE_OK);
    if (!strstr(err.message, words) || !strstr(err.message, path))
        fail_msg("\"%s\" lacks \"%s\"", err.message, words);
}

static void checkpoints_of_both_formats(void **state) {
    (void)state;
    char path[1024];
    snprintf(path, sizeof path, "%s/x.bin", test_temp_dir());
    write_zip(path, ZIP_CM_STORE, "little");
    check_bin(path);
    write_zip(path, ZIP_CM_DEFLATE, "little");
    check_bin(path);
    write_zip(path, ZIP_CM_STORE, "big");
    refuse_bin(path, "byteorder");
    write_legacy(path, "\x88");
    check_bin(path);
    write_legacy(path, "\x89");
    refuse_bin(path, "big-endian");
}

/* Cut anywhere, the old format is refused. */
static void truncated_legacy_checkpoint(void **state) {
    (void)state;
    char path[1024], *bytes;
    size_t size;
    snprintf(path, sizeof path, "%s/x.bin", test_temp_dir());
    write_legacy(path, "\x88");
    assert_ok(sluice__read_file(&bytes, &size, path, 1 << 20, NULL));
    for (size_t n = 0; n < size; n++) {
        FILE *f = fopen(path, "wb");
        assert_non_null(f);
        fwrite(bytes, 1, n, f);
        fclose(f);
        refuse_bin(path, "");
    }
    sluice__free(bytes);
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n";
    assert_ok(sluice__write_file(path, pointer, sizeof pointer - 1, NULL));
    refuse_bin(path, "git lfs pull");
}

/* Twenty million values in a row must neither take long nor much memory. */
static void pickle_bombs(void **state) {
    (void)state;
    size_t size = 20 << 20;
    char *bytes = malloc(size);
    static const char fillers[] = "N(})K]";
    for (const char *f = fillers; *f; f++) {
        sluice_error err = {0};
        memset(bytes, *f, size);
        memcpy(bytes, "\x80\2", 2);
        int64_t before = sluice__mem_peak();
        assert_int_equal(run_pickle(bytes, size, &err), SLUICE_ERR_FORMAT);
        assert_true(sluice__mem_peak() - before < 200 << 20);
    }
    free(bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(pickles), cmocka_unit_test(checkpoints_of_both_formats),
                                       cmocka_unit_test(truncated_legacy_checkpoint),
                                       cmocka_unit_test(pickle_bombs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
