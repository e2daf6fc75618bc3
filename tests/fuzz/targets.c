/* SPDX-License-Identifier: Apache-2.0 */
/* See targets.h. Readers want paths; the bytes lie in a file in memory whose path is that of its descriptor. */
#include "fuzz/targets.h"
#include "base/file.h"
#include "model/gguf_model.h"
#include "model/safetensors.h"
#include "model/store.h"
#include "model/torch_bin.h"
#include "sluice/config.h"
#include "sluice/model.h"
#include "sluice/session.h"
#include "sluice/tokenizer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int fuzz_file(char out[64], const uint8_t *data, size_t size) {
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0) return -1;
    if (write(fd, data, size) != (ssize_t)size) {
        close(fd);
        return -1;
    }
    snprintf(out, 64, "/proc/self/fd/%d", fd);
    return fd;
}

static char directory[64];

static void remove_directory(void) { sluice__remove_tree(directory, NULL); }

const char *fuzz_path(const char *name) {
    static char paths[4][192];
    static int next;
    if (!*directory) {
        strcpy(directory, access("/dev/shm", W_OK) == 0 ? "/dev/shm/sluice-fuzz-XXXXXX" : "/tmp/sluice-fuzz-XXXXXX");
        if (!mkdtemp(directory)) abort();
        atexit(remove_directory);
    }
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%.100s", directory, name);
    return path;
}

bool fuzz_put(const char *name, const void *data, size_t size) {
    FILE *f = fopen(fuzz_path(name), "wb");
    if (!f) return false;
    bool written = fwrite(data, 1, size, f) == size;
    return (fclose(f) == 0) & written;
}

static sluice_status take_row(void *user, int64_t row, const float *values, sluice_error *err) {
    (void)row;
    (void)err;
    *(float *)user += values[0];
    return SLUICE_OK;
}

static void read_tensors(sluice__store *s) {
    float sum = 0;
    for (int i = 0; i < sluice__store_count(s); i++) {
        const sluice__store_tensor *t = sluice__store_at(s, i);
        sluice__view view = sluice__view_of(t->ndim, t->shape);
        if (sluice__dtype_is_weight(t->dtype) && t->count) sluice__store_read(s, i, &view, take_row, &sum, NULL);
    }
}

/* Two tokens and one more. What loads, runs; models of more than a few million parameters only take time. */
static void run_model(const sluice_model *m) {
    const sluice_config *c = sluice_model_config(m);
    const int32_t ids[3] = {0, c->vocab_size - 1, c->vocab_size / 2};
    sluice_session_params p = sluice_session_params_default();
    sluice_session *s;
    float *logits = malloc((size_t)c->vocab_size * sizeof *logits);
    p.capacity = 4;
    if (logits && sluice_config_num_parameters(c) < 4 << 20 && sluice_session_new(&s, m, &p, NULL) == SLUICE_OK) {
        if (sluice_session_eval(s, ids, 2, logits, NULL) == SLUICE_OK) sluice_session_eval(s, ids + 2, 1, logits, NULL);
        sluice_session_free(s);
    }
    free(logits);
}

/* Tensors and their values; as a model that runs; its tokenizer on a text with everything in it. */
static void run_gguf(const uint8_t *data, size_t size) {
    static const char text[] = "Hello, wörld 123 \n\t水 <|endoftext|>";
    char path[64];
    int fd = fuzz_file(path, data, size);
    sluice__store *s;
    sluice_model *m;
    sluice_tokenizer *tok;
    sluice_load_params load = sluice_load_params_default();
    load.weights = SLUICE_LOAD_AS_STORED;
    if (fd < 0) return;
    if (size >= 4 && !memcmp(data, "GGUF", 4)) {
        if (sluice__store_open(&s, path, NULL) == SLUICE_OK) {
            read_tensors(s);
            sluice__store_close(s);
        }
        if (sluice_model_load(&m, path, &load, NULL) == SLUICE_OK) {
            run_model(m);
            sluice_model_free(m);
        }
        if (sluice_tokenizer_load(&tok, path, NULL) == SLUICE_OK) {
            sluice_ids ids = {0};
            sluice_tokenizer_encode(tok, text, sizeof text - 1, SLUICE_ENCODE_ADD_SPECIAL, &ids, NULL);
            sluice_ids_free(&ids);
            sluice_tokenizer_free(tok);
        }
    }
    close(fd);
}

static void run_safetensors(const uint8_t *data, size_t size) {
    char path[64];
    int fd = fuzz_file(path, data, size);
    sluice__safetensors *f;
    if (fd < 0) return;
    if (sluice__safetensors_open(&f, path, NULL) == SLUICE_OK) {
        for (int i = 0; i < sluice__safetensors_count(f); i++) {
            const sluice__st_tensor *t = sluice__safetensors_at(f, i);
            float value;
            if (sluice__dtype_is_weight(t->dtype) && t->count) sluice__to_f32(&value, t->dtype, t->data, 1, 1);
        }
        sluice__safetensors_close(f);
    }
    close(fd);
}

/* Zip container, legacy container, and the pickle in them. */
static void run_torch(const uint8_t *data, size_t size) {
    char path[64];
    int fd = fuzz_file(path, data, size);
    sluice__torch_bin *b;
    if (fd < 0) return;
    if (sluice__torch_bin_open(&b, path, NULL) == SLUICE_OK) {
        float sum = 0;
        for (int i = 0; i < sluice__torch_bin_count(b); i++) {
            const sluice__bin_tensor *t = sluice__torch_bin_at(b, i);
            sluice__view view = sluice__view_of(t->ndim, t->shape);
            if (sluice__dtype_is_weight(t->dtype) && t->count && t->count < 1 << 20)
                sluice__torch_bin_read(b, i, &view, take_row, &sum, NULL);
        }
        sluice__torch_bin_close(b);
    }
    close(fd);
}

static void run_tokenizer(const uint8_t *data, size_t size) {
    static const char text[] = "Hello, wörld 123 \n\t水 <s>";
    sluice_tokenizer *tok;
    if (sluice_tokenizer_parse(&tok, (const char *)data, size, "fuzz", NULL) != SLUICE_OK) return;
    sluice_ids ids = {0};
    sluice_text back = {0};
    if (sluice_tokenizer_encode(tok, text, sizeof text - 1, SLUICE_ENCODE_ADD_SPECIAL | SLUICE_ENCODE_PARSE_SPECIAL, &ids,
                                NULL) == SLUICE_OK)
        sluice_tokenizer_decode(tok, ids.data, ids.count, false, &back, NULL);
    sluice_ids_free(&ids);
    sluice_text_free(&back);
    sluice_tokenizer_free(tok);
}

static void run_config(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1);
    sluice_config config;
    if (!text) return;
    memcpy(text, data, size);
    text[size] = '\0';
    if (sluice_config_parse(&config, text, "fuzz", NULL) == SLUICE_OK) {
        sluice_config_num_parameters(&config);
        sluice_config_forward_flops(&config, 128);
        sluice_config_free(&config);
    }
    free(text);
}

const fuzz_target fuzz_targets[] = {{"gguf", run_gguf},
                                    {"safetensors", run_safetensors},
                                    {"torch", run_torch},
                                    {"tokenizer", run_tokenizer},
                                    {"config", run_config},
                                    {"template", fuzz_template},
                                    {"text", fuzz_text},
                                    {"settings", fuzz_settings},
                                    {"session", fuzz_session},
                                    {"shard", fuzz_shard},
                                    {"checkpoint", fuzz_checkpoint},
                                    {NULL, NULL}};
