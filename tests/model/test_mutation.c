/* SPDX-License-Identifier: Apache-2.0 */
/* Damaged files at random, always the same ones: whatever a byte or a JSON value turns into, reading ends in an
 * error with a message or in something consistent. Meant to be run under the sanitizers as well. */
#include "support/test_support.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/rng.h"
#include "model/config.h"
#include "model/pickle.h"
#include "model/safetensors.h"
#include "model/save.h"
#include "model/torch_bin.h"
#include "sluice/model.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zip.h>

static sluice__rng rng_of(uint64_t stream) {
    return (sluice__rng){.seed = 2024, .stream = stream};
}

/* ---- config.json, by values ---- */

static const char *const bases[] = {
    "{\"vocab_size\": 40, \"hidden_size\": 24, \"intermediate_size\": 32, \"num_hidden_layers\": 2, "
    "\"num_attention_heads\": 4, "
    "\"num_key_value_heads\": 2, \"head_dim\": 8, \"gate_position\": \"sdpa\", \"gate_granularity\": "
    "\"headwise\", \"gate_act\": \"sigmoid\", "
    "\"use_qk_norm\": true, \"layer_types\": [\"full_attention\", \"sliding_attention\"], \"sliding_window\": "
    "4, \"eos_token_id\": [3, 4], "
    "\"rope_parameters\": {\"rope_type\": \"yarn\", \"rope_theta\": 10000, \"factor\": 4, "
    "\"partial_rotary_factor\": 0.5, "
    "\"original_max_position_embeddings\": 64}, \"max_position_embeddings\": 256, \"residual_clip\": 0.5}",
    "{\"model_type\": \"qwen2\", \"vocab_size\": 40, \"hidden_size\": 24, \"intermediate_size\": 32, "
    "\"num_hidden_layers\": 2, "
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 8, \"headwise_attn_output_gate\": "
    "true, \"qkv_bias\": true, "
    "\"use_qk_norm\": true, \"rope_scaling\": {\"type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, "
    "\"high_freq_factor\": 4, "
    "\"original_max_position_embeddings\": 16}, \"rope_theta\": 1e6, \"tie_word_embeddings\": true, "
    "\"bos_token_id\": 1}",
    "{\"model_type\": \"qwen3_5\", \"tie_word_embeddings\": true, \"text_config\": {\"model_type\": "
    "\"qwen3_5_text\", \"vocab_size\": 40, "
    "\"hidden_size\": 24, \"intermediate_size\": 32, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
    "\"num_key_value_heads\": 2, "
    "\"head_dim\": 8, \"layer_types\": [\"full_attention\", \"full_attention\"], \"rope_parameters\": "
    "{\"rope_type\": \"longrope\", "
    "\"short_factor\": [1], \"long_factor\": [2], \"factor\": 2}}}",
};
static const char *const values[] = {"null",
                                     "true",
                                     "false",
                                     "0",
                                     "-1",
                                     "1",
                                     "2",
                                     "3",
                                     "7",
                                     "0.5",
                                     "1e308",
                                     "-1e308",
                                     "2147483648",
                                     "9223372036854775807",
                                     "1e-320",
                                     "\"\"",
                                     "\"none\"",
                                     "\"sdpa\"",
                                     "\"yarn\"",
                                     "\"llama\"",
                                     "\"qwen3\"",
                                     "\"shared\"",
                                     "\"full_attention\"",
                                     "[]",
                                     "[1]",
                                     "[null]",
                                     "{}",
                                     "{\"rope_type\": \"dynamic\", \"factor\": 2}",
                                     "[\"full_attention\", \"full_attention\"]",
                                     "[[[[[[]]]]]]",
                                     "65536",
                                     "4096",
                                     "1000000"};
static const char *const keys[] = {"num_experts",
                                   "num_experts_per_tok",
                                   "moe_intermediate_size",
                                   "num_shared_experts",
                                   "shared_expert_gate",
                                   "switch_experts",
                                   "switch_topk",
                                   "gate_input",
                                   "gate_sharing",
                                   "gate_op",
                                   "sdpa_norm",
                                   "switch_head",
                                   "use_sliding_window",
                                   "max_window_layers",
                                   "attn_output_gate",
                                   "elementwise_attn_output_gate",
                                   "attention_bias",
                                   "o_bias",
                                   "rope_scaling",
                                   "partial_rotary_factor",
                                   "full_attention_interval",
                                   "pad_token_id",
                                   "sandwich_norm"};

static json_t *random_value(sluice__rng *rng) {
    return json_loads(values[sluice__rng_below(rng, sizeof values / sizeof *values)], JSON_DECODE_ANY, NULL);
}

/* Changes, removes or adds one value somewhere in the object. */
static void mutate_object(json_t *o, sluice__rng *rng) {
    uint64_t n = json_object_size(o), at = sluice__rng_below(rng, n + 2);
    const char *key;
    json_t *value;
    if (at >= n) {
        json_object_set_new(o, keys[sluice__rng_below(rng, sizeof keys / sizeof *keys)], random_value(rng));
        return;
    }
    json_object_foreach(o, key, value) {
        if (at--) continue;
        if (json_is_object(value) && sluice__rng_below(rng, 4))
            mutate_object(value, rng);
        else if (sluice__rng_below(rng, 8) == 0)
            json_object_del(o, key);
        else
            json_object_set_new(o, key, random_value(rng));
        return;
    }
}

/* What was accepted has sane counts, and survives being written and read again. */
static void check_accepted(const sluice_config *c) {
    sluice_error err = {0};
    int64_t parameters = sluice_config_num_parameters(c);
    assert_true(parameters > 0 && parameters < INT64_MAX / 8 &&
                sluice_config_num_gate_parameters(c) < parameters);
    assert_true(sluice_config_forward_flops(c, 1000) > 0);
    if (sluice__config_check_writable(c, &err) == SLUICE_ERR_UNSUPPORTED) return;
    json_t *native = sluice__config_to_json(c, &sluice__target_native);
    assert_non_null(native);
    sluice__json view = sluice__json_view(native, "written");
    sluice_config again, copy;
    assert_ok_err(sluice__config_read(&again, NULL, &view, &err), &err);
    assert_int_equal(sluice_config_num_parameters(&again), parameters);
    assert_ok(sluice__config_copy(&copy, c, &err));
    sluice_config_free(&copy);
    sluice_config_free(&again);
    json_decref(native);
}

static void configurations(void **state) {
    (void)state;
    int accepted = 0;
    for (int i = 0; i < 6000; i++) {
        sluice__rng rng = rng_of((uint64_t)i);
        json_t *o = json_loads(bases[i % 3], 0, NULL);
        assert_non_null(o);
        for (uint64_t k = 1 + sluice__rng_below(&rng, 3); k; k--) mutate_object(o, &rng);
        sluice__json view = sluice__json_view(o, "config.json");
        sluice_error err = {0};
        sluice_config c;
        sluice__file_layout layout;
        if (sluice__config_read(&c, &layout, &view, &err) == SLUICE_OK) {
            check_accepted(&c);
            accepted++;
            sluice_config_free(&c);
        } else {
            assert_non_null(strstr(err.message, "config.json"));
            assert_null(c.layers);
        }
        json_decref(o);
    }
    assert_true(accepted > 300 && accepted < 5700);
}

/* ---- bytes ---- */

/* A copy with a few bytes changed, cut off, doubled or removed. Freed with free(). */
static unsigned char *mutate_bytes(const unsigned char *from, size_t size, size_t *out_size, sluice__rng *rng) {
    unsigned char *bytes = malloc(size + 64);
    memcpy(bytes, from, size);
    *out_size = size;
    for (uint64_t k = 1 + sluice__rng_below(rng, 4); k && *out_size > 1; k--) {
        size_t at = sluice__rng_below(rng, *out_size);
        switch (sluice__rng_below(rng, 5)) {
        case 0: bytes[at] = (unsigned char)sluice__rng_u32(rng); break;
        case 1: bytes[at] ^= (unsigned char)(1 << sluice__rng_below(rng, 8)); break;
        case 2: bytes[at] = bytes[sluice__rng_below(rng, *out_size)]; break;
        case 3:
            if (sluice__rng_below(rng, 4) == 0) *out_size = at + 1;
            break;
        default: memmove(bytes + at, bytes + at + 1, *out_size - at - 1); --*out_size;
        }
    }
    return bytes;
}

static void config_bytes(void **state) {
    (void)state;
    for (int i = 0; i < 4000; i++) {
        sluice__rng rng = rng_of(100000 + (uint64_t)i);
        size_t size;
        const char *base = bases[i % 3];
        char *text = (char *)mutate_bytes((const unsigned char *)base, strlen(base), &size, &rng);
        text[size] = '\0';
        sluice_config c;
        sluice_error err = {0};
        if (sluice_config_parse(&c, text, "config.json", &err) == SLUICE_OK) {
            check_accepted(&c);
            sluice_config_free(&c);
        } else {
            assert_non_null(strstr(err.message, "config.json"));
        }
        free(text);
    }
}

static unsigned char *read_all(const char *path, size_t *size) {
    char *text;
    assert_ok(sluice__read_file(&text, size, path, 1 << 20, NULL));
    return (unsigned char *)text;
}

/* A file in memory, whose content can be replaced cheaply. */
typedef struct scratch {
    int fd;
    char path[64];
} scratch;

static scratch scratch_new(void) {
    scratch s = {.fd = memfd_create("damaged", 0)};
    assert_true(s.fd >= 0);
    snprintf(s.path, sizeof s.path, "/proc/self/fd/%d", s.fd);
    return s;
}

static void scratch_write(const scratch *s, const void *data, size_t size) {
    assert_int_equal(ftruncate(s->fd, 0), 0);
    assert_int_equal(pwrite(s->fd, data, size, 0), (ssize_t)size);
}

/* Every byte of every tensor of an accepted file is readable. */
static void read_safetensors(const char *path) {
    sluice_error err = {0};
    sluice__safetensors *f;
    if (sluice__safetensors_open(&f, path, &err) != SLUICE_OK) {
        assert_non_null(strstr(err.message, path));
        return;
    }
    unsigned sum = 0;
    for (int i = 0; i < sluice__safetensors_count(f); i++) {
        const sluice__st_tensor *t = sluice__safetensors_at(f, i);
        for (int64_t k = 0; k < t->count * sluice__dtype_size(t->dtype); k++)
            sum += ((const unsigned char *)t->data)[k];
        assert_ptr_equal(sluice__safetensors_find(f, t->name), t);
    }
    assert_true(sum < UINT32_MAX);
    sluice__safetensors_close(f);
}

static void safetensors_bytes(void **state) {
    (void)state;
    char path[1024];
    snprintf(path, sizeof path, "%s/good.safetensors", test_temp_dir());
    scratch damaged = scratch_new();
    static const float x[24] = {1, 2, 3};
    sluice__st_tensor t[] = {sluice__st_f32("model.a.weight", x, 2, (int64_t[]){4, 3}),
                             sluice__st_f32("model.b.weight", x, 1, (int64_t[]){6}),
                             sluice__st_f32("c", x, 0, NULL)};
    assert_ok(sluice__safetensors_write(path, t, 3, NULL, NULL));
    size_t size, header = 300;
    unsigned char *good = read_all(path, &size);
    for (int i = 0; i < 3000; i++) {
        sluice__rng rng = rng_of(200000 + (uint64_t)i);
        size_t head_size, rest = size - header;
        unsigned char *head = mutate_bytes(good, header, &head_size, &rng);
        unsigned char *bytes = malloc(head_size + rest);
        memcpy(bytes, head, head_size);
        memcpy(bytes + head_size, good + header, rest);
        scratch_write(&damaged, bytes, head_size + rest);
        read_safetensors(damaged.path);
        free(head);
        free(bytes);
    }
    sluice__free(good);
    close(damaged.fd);
}

/* A directory whose config.json no longer fits its weights, or still does. */
static void directories(void **state) {
    (void)state;
    sluice_error err = {0};
    sluice_config c;
    sluice_model *m;
    char path[1024];
    int loaded = 0;
    const char *dir = test_temp_dir();
    assert_ok_err(sluice_config_parse(&c, bases[0], "config.json", &err), &err);
    assert_ok_err(sluice_model_new(&m, &c, 1, &err), &err);
    assert_ok_err(sluice_model_save(m, dir, SLUICE_SAVE_NATIVE, &err), &err);
    sluice_model_free(m);
    sluice_config_free(&c);
    snprintf(path, sizeof path, "%s/config.json", dir);
    for (int i = 0; i < 300; i++) {
        sluice__rng rng = rng_of(500000 + (uint64_t)i);
        json_t *o = json_loads(bases[0], 0, NULL);
        mutate_object(o, &rng);
        assert_int_equal(json_dump_file(o, path, JSON_ENCODE_ANY), 0);
        json_decref(o);
        if (sluice_model_load(&m, dir, NULL, &err) == SLUICE_OK) loaded++;
        else assert_non_null(strstr(err.message, dir));
        sluice_model_free(m);
    }
    assert_true(loaded > 20 && loaded < 280);
}

/* ---- pytorch_model.bin ---- */

#define STORAGE                                                                                                \
    "(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"                                                         \
    "0"                                                                                                        \
    "X\3\0\0\0cpuK\6tQ"
static const char dictionary[] =
    "\x80\2}q\0(X\1\0\0\0aq\1ctorch._utils\n_rebuild_tensor_v2\nq\2(" STORAGE "K\0K\2K\3\x86K\3K\1\x86\x89"
    "ccollections\nOrderedDict\n)Rtq\3R"
    "X\1\0\0\0bh\2h\3RX\1\0\0\0ch\2(" STORAGE "K\1K\2\x85K\2\x85\x89}tRX\4\0\0\0stepJ\1\2\3\4u}b.";

static void pickle_bytes(void **state) {
    (void)state;
    int accepted = 0;
    for (int i = 0; i < 30000; i++) {
        sluice__rng rng = rng_of(300000 + (uint64_t)i);
        size_t size, used;
        unsigned char *bytes =
            i ? mutate_bytes((const unsigned char *)dictionary, sizeof dictionary - 1, &size, &rng)
              : memcpy(malloc(sizeof dictionary), dictionary, size = sizeof dictionary - 1);
        unsigned char *exact = memcpy(malloc(size), bytes, size); /* so that a read past the end is seen */
        sluice_error err = {0};
        sluice__pickle *p;
        sluice__pickle_value v, element;
        assert_ok(sluice__pickle_new(&p, "x.bin", &err));
        sluice_status st = sluice__pickle_run(p, exact, size, &used, &v, &err);
        if (i == 0) assert_ok_err(st, &err);
        if (st == SLUICE_OK && sluice__pickle_kind_of(p, v) == SLUICE__PICKLE_DICT) {
            accepted++;
            for (int at = 0; sluice__pickle_next(p, v, &at, NULL, &element);)
                (void)sluice__pickle_kind_of(p, element);
        }
        sluice__pickle_free(p);
        free(bytes);
        free(exact);
    }
    assert_true(accepted > 1000 && accepted < 29000);
}

static sluice_status sum_row(void *user, int64_t row, const float *x, sluice_error *err) {
    (void)row, (void)err;
    *(float *)user += x[0];
    return SLUICE_OK;
}

static void add_entry(zip_t *z, const char *name, const void *data, size_t size) {
    zip_int64_t at = zip_file_add(z, name, zip_source_buffer(z, data, size, 0), ZIP_FL_OVERWRITE);
    assert_true(at >= 0);
    assert_int_equal(zip_set_file_compression(z, (zip_uint64_t)at, ZIP_CM_STORE, 0), 0);
}

/* Returns whether the file was accepted. */
static bool read_bin(const char *path) {
    sluice_error err = {0};
    sluice__torch_bin *b;
    if (sluice__torch_bin_open(&b, path, &err) != SLUICE_OK) {
        assert_non_null(strstr(err.message, path));
        return false;
    }
    float sum = 0;
    for (int i = 0; i < sluice__torch_bin_count(b); i++) {
        const sluice__bin_tensor *t = sluice__torch_bin_at(b, i);
        sluice__view view = sluice__view_of(t->ndim, t->shape);
        if (sluice__dtype_is_weight(t->dtype) && t->count < 1000)
            sluice__torch_bin_read(b, i, &view, sum_row, &sum, &err);
    }
    sluice__torch_bin_close(b);
    return true;
}

static void checkpoint_bytes(void **state) {
    (void)state;
    char path[1024];
    snprintf(path, sizeof path, "%s/good.bin", test_temp_dir());
    scratch damaged = scratch_new();
    static const float storage[6] = {1, 2, 3, 4, 5, 6};
    zip_t *z = zip_open(path, ZIP_CREATE, NULL);
    assert_non_null(z);
    add_entry(z, "archive/data.pkl", dictionary, sizeof dictionary - 1);
    add_entry(z, "archive/byteorder", "little", 6);
    add_entry(z, "archive/data/0", storage, sizeof storage);
    assert_int_equal(zip_close(z), 0);
    assert_true(read_bin(path));
    size_t size, changed;
    unsigned char *good = read_all(path, &size);
    int accepted = 0;
    for (int i = 0; i < 2000; i++) {
        sluice__rng rng = rng_of(400000 + (uint64_t)i);
        unsigned char *bytes = mutate_bytes(good, size, &changed, &rng);
        scratch_write(&damaged, bytes, changed);
        accepted += read_bin(damaged.path);
        free(bytes);
    }
    assert_true(accepted > 20 && accepted < 1900);
    sluice__free(good);
    close(damaged.fd);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(configurations), cmocka_unit_test(config_bytes),
                                       cmocka_unit_test(safetensors_bytes), cmocka_unit_test(directories), cmocka_unit_test(pickle_bytes),
                                       cmocka_unit_test(checkpoint_bytes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
