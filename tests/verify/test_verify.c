/* SPDX-License-Identifier: Apache-2.0 */
/* The verifier itself: it must notice every kind of fault, write what it computed, and give damaged directories their
 * error through the program: status 1, no signal, quickly, with the words that name the place. */
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "model/safetensors.h"
#include "sluice/convert.h"
#include "support/reference.h"
#include "support/test_support.h"
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* Nothing may be allocated from a number in a damaged file. Sanitizers reserve address space of their own. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LIMIT_MEMORY ""
enum { SECONDS = 20 };
#else
#define LIMIT_MEMORY "ulimit -v 1000000; "
enum { SECONDS = 2 };
#endif

/* A writable copy of a case. */
static const char *copy_of(const char *name) {
    const char *dir = test_temp_dir(), *from = test_reference(name);
    char command[2500];
    if (!from) fail_msg("%s: not there", name);
    snprintf(command, sizeof command, "cp %s/* %s/ && chmod u+w %s/*", from, dir, dir);
    assert_int_equal(test_run(command, NULL), 0);
    return dir;
}

/* Sets (`set`) or flips bits of one fp32 value. */
static void change_bits(const char *dir, const char *file, const char *tensor, const unsigned char mask[4], bool set) {
    char path[1200];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    sluice__safetensors *st;
    assert_ok(sluice__safetensors_open(&st, path, NULL));
    const sluice__st_tensor *t = sluice__safetensors_find(st, tensor), *first = sluice__safetensors_at(st, 0);
    assert_non_null(t);
    char *text;
    size_t size;
    long behind = (long)((const char *)t->data - (const char *)first->data) + t->count / 2 * 4;
    assert_ok(sluice__read_file(&text, &size, path, 1 << 24, NULL));
    uint64_t header;
    memcpy(&header, text, 8);
    for (int i = 0; i < 4; i++) {
        char *byte = &text[8 + header + (uint64_t)behind + (uint64_t)i];
        *byte = (char)(set ? *byte | mask[i] : *byte ^ mask[i]);
    }
    sluice__safetensors_close(st);
    assert_ok(sluice__write_file(path, text, size, NULL));
    sluice__free(text);
}

/* The highest fraction bit: a change of up to a half. */
static void bend(const char *dir, const char *file, const char *tensor) {
    change_bits(dir, file, tensor, (const unsigned char[]){0, 0, 0x40, 0}, false);
}

/* The whole exponent: NaN or infinity. */
static void spoil(const char *dir, const char *file, const char *tensor) {
    change_bits(dir, file, tensor, (const unsigned char[]){0, 0, 0x80, 0x7f}, true);
}

static void edit(const char *dir, const char *file, const char *script) {
    char command[2500];
    snprintf(command, sizeof command, "sed -i -E '%s' %s/%s", script, dir, file);
    assert_int_equal(test_run(command, NULL), 0);
}

static const sluice_verify_item *failed_item(const sluice_verify_report *r, const char *prefix) {
    for (int i = 0; i < r->num_items; i++)
        if (!r->items[i].passed && !strncmp(r->items[i].name, prefix, strlen(prefix))) return &r->items[i];
    return NULL;
}

static void expect_failed(const char *dir, const char *const *items) {
    sluice_verify_report report;
    sluice_error err = {0};
    assert_int_equal(sluice_verify(&report, dir, NULL, &err), SLUICE_ERR_MISMATCH);
    assert_true(report.num_failed > 0 && strlen(err.message) > 0);
    for (; *items; items++)
        if (!failed_item(&report, *items)) fail_msg("%s passed", *items);
    sluice_verify_report_free(&report);
}

static void test_bent_weight(void **state) {
    (void)state;
    const char *model = copy_of("models/export_tied");
    bend(model, "model.safetensors", "model.layers.1.mlp.down_proj.weight");
    expect_failed(model, (const char *const[]){"hidden.1", "logits", "logits, one token at a time", NULL});
    const char *training = copy_of("train/g1_headwise");
    bend(training, "weights.safetensors", "model.layers.0.self_attn.gate_proj.weight");
    expect_failed(training,
                  (const char *const[]){"hidden.0", "logits", "loss", "grad.model.norm.weight", "final.", NULL});
}

static void test_bent_golden(void **state) {
    (void)state;
    static const char *const tensors[] = {"hidden.2", "gate.1", "attn_out_pre_gate.0", "first_token_share.2", "logits"};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        const char *dir = copy_of("models/export_tied");
        bend(dir, "golden.safetensors", tensors[i]);
        expect_failed(dir, (const char *const[]){tensors[i], NULL});
    }
    const char *dir = copy_of("train/baseline");
    bend(dir, "golden.safetensors", "grad.model.layers.0.self_attn.k_norm.weight");
    expect_failed(dir, (const char *const[]){"grad.model.layers.0.self_attn.k_norm.weight", NULL});
}

/* Recipes that are not the one that was recorded. */
static void test_wrong_recipe(void **state) {
    (void)state;
    static const char *const edits[][2] = {
        {"s/\"eps\": 1e-08/\"eps\": 1e-06/", "loss of"},
        {"s/\"weight_decay\": 0.1/\"weight_decay\": 0.0/", "final."},
        {"s/\"clip\": 1.0/\"clip\": 100.0/", "loss of"},
        {"s/\"warmup\": 5/\"warmup\": 4/", "learning rate of"},
    };
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        const char *dir = copy_of("train/g1_headwise");
        edit(dir, "golden.json", edits[i][0]);
        expect_failed(dir, (const char *const[]){edits[i][1], NULL});
    }
    const char *dir = copy_of("train/g1_headwise");
    edit(dir, "config.json", "s/\"rms_norm_eps\": 1e-06/\"rms_norm_eps\": 1e-03/");
    expect_failed(dir, (const char *const[]){"logits", "grad.", NULL});
}

static void test_wrong_greedy_and_chunks(void **state) {
    (void)state;
    const char *dir = copy_of("models/export_tied");
    edit(dir, "greedy.json", "s/224/225/");
    expect_failed(dir, (const char *const[]){"greedy.json: 32 tokens", NULL});
    dir = copy_of("models/export_tied");
    edit(dir, "decode.json", "s/^ +11,/-11,/");
    sluice_verify_report report;
    sluice_error err = {0};
    assert_int_equal(sluice_verify(&report, dir, NULL, &err), SLUICE_ERR_CONFIG);
    assert_non_null(strstr(err.message, "decode.json"));
    sluice_verify_report_free(&report);
}

static void test_tolerance(void **state) {
    (void)state;
    sluice_verify_report report;
    sluice_verify_params params = sluice_verify_params_default();
    params.tolerance = 1e-9;
    assert_int_equal(sluice_verify(&report, test_reference("models/llama"), &params, NULL), SLUICE_ERR_MISMATCH);
    sluice_verify_report_free(&report);
}

/* Tokens are counted under a tolerance too: one that it does not explain is a difference, a near tie is none. */
static void test_tolerance_of_tokens(void **state) {
    (void)state;
    sluice_verify_report report;
    sluice_verify_params params = sluice_verify_params_default();
    const char *dir = copy_of("models/export_tied");
    edit(dir, "greedy.json", "s/224/225/");
    params.tolerance = 1e-3;
    assert_int_equal(sluice_verify(&report, dir, &params, NULL), SLUICE_ERR_MISMATCH);
    assert_int_equal(report.num_failed, 1);
    sluice_verify_report_free(&report);
    params.tolerance = 1e3; /* any token is as good as another */
    assert_ok(sluice_verify(&report, dir, &params, NULL));
    sluice_verify_report_free(&report);
}

/* The dump has every name of the golden, with the same values within the limit. */
static void check_dump(const char *name) {
    char golden_path[1200], dump_path[1200];
    snprintf(golden_path, sizeof golden_path, "%s/golden.safetensors", test_reference(name));
    snprintf(dump_path, sizeof dump_path, "%s/got.safetensors", test_temp_dir());
    sluice_verify_report report;
    sluice_verify_params params = sluice_verify_params_default();
    params.dump_path = dump_path;
    sluice_error err = {0};
    assert_ok_err(sluice_verify(&report, test_reference(name), &params, &err), &err);
    sluice_verify_report_free(&report);
    sluice__safetensors *golden, *got;
    assert_ok(sluice__safetensors_open(&golden, golden_path, NULL));
    assert_ok_err(sluice__safetensors_open(&got, dump_path, &err), &err);
    for (int i = 0; i < sluice__safetensors_count(golden); i++) {
        const sluice__st_tensor *a = sluice__safetensors_at(golden, i), *b = sluice__safetensors_find(got, a->name);
        if (!b) fail_msg("%s: %s is missing in the dump", name, a->name);
        assert_int_equal(a->count, b->count);
        if (!sluice__dtype_is_weight(a->dtype)) continue;
        for (int64_t k = 0; k < a->count; k++) {
            float x, y;
            memcpy(&x, (const char *)a->data + 4 * k, 4);
            memcpy(&y, (const char *)b->data + 4 * k, 4);
            assert_true(fabsf(x - y) < 3e-4f);
        }
    }
    sluice__safetensors_close(golden);
    sluice__safetensors_close(got);
}

static void test_dump(void **state) {
    (void)state;
    check_dump("models/llama");
    check_dump("models/export_tied");
    check_dump("train/g1_headwise");
    const char *names[] = {"model.safetensors", "golden.safetensors"}, *dir = copy_of("models/llama");
    for (int i = 0; i < 2; i++) {
        char path[1200];
        sluice_error err = {0};
        sluice_verify_report report;
        sluice_verify_params p = sluice_verify_params_default();
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        p.dump_path = path;
        assert_int_equal(sluice_verify(&report, dir, &p, &err), SLUICE_ERR_IO);
        assert_non_null(strstr(err.message, names[i]));
        sluice_verify_report_free(&report);
    }
}

/* A directory without a golden is loaded and described. */
/* 0 is a tolerance like any other. */
static void test_tolerance_zero(void **state) {
    (void)state;
    char command[1200];
    snprintf(command, sizeof command, "%s verify --tolerance 0 -q %s", SLUICE_PROGRAM, test_reference("models/llama"));
    assert_int_equal(test_run(command, NULL), 1);
    snprintf(command, sizeof command, "%s verify --tolerance 1 -q %s", SLUICE_PROGRAM, test_reference("models/llama"));
    assert_int_equal(test_run(command, NULL), 0);
}

/* All bits of one weight's exponent set: NaN or infinity. */
static void test_nonfinite(void **state) {
    (void)state;
    const char *dir = copy_of("models/llama");
    char command[1200], *output;
    snprintf(command, sizeof command, "rm %s/golden*.safetensors", dir);
    assert_int_equal(test_run(command, NULL), 0);
    spoil(dir, "model.safetensors", "model.layers.1.mlp.down_proj.weight");
    snprintf(command, sizeof command, "%s verify %s", SLUICE_PROGRAM, dir);
    assert_int_equal(test_run(command, &output), 1);
    assert_non_null(strstr(output, "model.layers.1.mlp.down_proj.weight"));
    assert_non_null(strstr(output, "NaN or infinite"));
    free(output);
}

static void test_only_loaded(void **state) {
    (void)state;
    const char *dir = copy_of("models/llama");
    char command[1200];
    snprintf(command, sizeof command, "rm %s/golden.safetensors", dir);
    assert_int_equal(test_run(command, NULL), 0);
    sluice_verify_report report;
    assert_ok(sluice_verify(&report, dir, NULL, NULL));
    assert_int_equal(report.kind, SLUICE_VERIFY_LOADED);
    assert_int_equal(report.num_items, 0);
    assert_int_equal(report.num_parameters, 46560);
    sluice_verify_report_free(&report);
}

static void test_program(void **state) {
    (void)state;
    char command[2500], *output;
    snprintf(command, sizeof command, "%s verify --json %s", SLUICE_PROGRAM, test_reference("models/llama"));
    assert_int_equal(test_run(command, &output), 0);
    json_error_t where;
    json_t *root = json_loads(output, 0, &where);
    if (!root) fail_msg("not JSON: %s\n%s", where.text, output);
    assert_int_equal(json_integer_value(json_object_get(root, "failed")), 0);
    assert_int_equal(json_array_size(json_object_get(root, "comparisons")), 12);
    json_decref(root);
    free(output);
    static const struct {
        const char *arguments;
        int status;
    } calls[] = {{"", 2},
                 {"a b", 2},
                 {"--tolerance -1 x", 2},
                 {"--tolerance nan x", 2},
                 {"--nonsense x", 2},
                 {"/nonexistent", 1},
                 {"--tolerance 1e-9 -q $REF", 1},
                 {"--dump /nonexistent/x.safetensors $REF", 1},
                 {"--help", 0}};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        snprintf(command, sizeof command, "REF=%s; %s verify %s", test_reference("models/llama"), SLUICE_PROGRAM,
                 calls[i].arguments);
        int status = test_run(command, &output);
        if (status != calls[i].status)
            fail_msg("verify %s: status %d, expected %d\n%s", calls[i].arguments, status, calls[i].status, output);
        assert_true(strlen(output) > 0);
        free(output);
    }
}

/* "a|b": one of them */
static bool mentions(const char *output, const char *words) {
    char copy[256], *rest = copy;
    snprintf(copy, sizeof copy, "%s", words);
    for (char *word; (word = strsep(&rest, "|"));)
        if (strstr(output, word)) return true;
    return false;
}

/* Processor time of all programs run so far: unlike the clock it does not depend on what else the machine does. */
static double child_seconds(void) {
    struct rusage u;
    getrusage(RUSAGE_CHILDREN, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static void check_damaged(const char *dir, const char *name) {
    char path[1200], command[2500], *output;
    snprintf(path, sizeof path, "%s/expect.json", dir);
    json_t *expect;
    assert_ok(sluice__json_load(&expect, path, NULL));
    bool ok = !strcmp(json_string_value(json_object_get(expect, "expect")), "ok");
    snprintf(command, sizeof command, "%s%s verify -q %s", LIMIT_MEMORY, SLUICE_PROGRAM, dir);
    double start = child_seconds();
    int status = test_run(command, &output);
    double seconds = child_seconds() - start;
    if (ok ? status != 0 : status != 1) fail_msg("%s: status %d\n%s", name, status, output);
    if (seconds > SECONDS) fail_msg("%s: %.1f seconds", name, seconds);
    size_t i;
    json_t *words;
    json_array_foreach(json_object_get(expect, "must_mention"), i,
                       words) if (!mentions(output, json_string_value(words)))
        fail_msg("%s: \"%s\" is not mentioned: %s", name, json_string_value(words), output);
    free(output);
    json_decref(expect);
}

static void test_damaged(void **state) {
    (void)state;
    const char *root = test_shared("reference/bad");
    if (!root) skip();
    struct dirent **list;
    int n = scandir(root, &list, NULL, alphasort), checked = 0;
    for (int i = 0; i < n; i++) {
        char dir[1100], expect[1200];
        snprintf(dir, sizeof dir, "%s/%s", root, list[i]->d_name);
        snprintf(expect, sizeof expect, "%s/expect.json", dir);
        if (*list[i]->d_name != '.' && sluice__is_file(expect)) {
            check_damaged(dir, list[i]->d_name);
            checked++;
        }
        free(list[i]);
    }
    free(list);
    assert_true(checked >= 40);
}

/* A GGUF file holds no recorded results: it is loaded, and compared with those of another directory. */
static void test_gguf_with_a_reference(void **state) {
    (void)state;
    const char *golden = copy_of("models/llama"), *dir = test_temp_dir();
    char file[300];
    sluice_convert_params to = {.gguf = true, .dtype = "F32"};
    sluice_verify_params p = sluice_verify_params_default();
    sluice_verify_report report;
    sluice_error err = {0};
    snprintf(file, sizeof file, "%s/m.gguf", dir);
    assert_ok(sluice_convert(golden, file, &to, NULL, NULL));
    assert_ok(sluice_verify(&report, file, &p, NULL));
    assert_int_equal(report.kind, SLUICE_VERIFY_LOADED);
    sluice_verify_report_free(&report);
    p.reference = golden;
    assert_ok_err(sluice_verify(&report, file, &p, &err), &err);
    assert_true(report.kind == SLUICE_VERIFY_MODEL && report.num_items > 5);
    sluice_verify_report_free(&report);
    bend(golden, "golden.safetensors", "logits");
    assert_int_equal(sluice_verify(&report, file, &p, &err), SLUICE_ERR_MISMATCH);
    sluice_verify_report_free(&report);
    p.reference = dir;
    assert_int_equal(sluice_verify(&report, file, &p, &err), SLUICE_ERR_IO);
    assert_non_null(strstr(err.message, "no golden.safetensors"));
    assert_int_equal(sluice_verify(&report, "/dev/null", NULL, &err), SLUICE_ERR_IO);
    assert_non_null(strstr(err.message, "neither a directory nor a GGUF file"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bent_weight), cmocka_unit_test(test_bent_golden), cmocka_unit_test(test_wrong_recipe),
        cmocka_unit_test(test_wrong_greedy_and_chunks), cmocka_unit_test(test_tolerance), cmocka_unit_test(test_tolerance_of_tokens), cmocka_unit_test(test_tolerance_zero), cmocka_unit_test(test_nonfinite), cmocka_unit_test(test_dump),
        cmocka_unit_test(test_only_loaded), cmocka_unit_test(test_program), cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_gguf_with_a_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
