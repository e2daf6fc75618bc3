/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzing what reads the program's own files: sessions, token shards, checkpoints. A model of a few thousand parameters stays
 * from input to input; a session's hashes are made right first, since a fuzzer finds none. */
#include "fuzz/targets.h"
#include "base/file.h"
#include "base/memory.h"
#include "infer/session.h"
#include "sluice/shards.h"
#include "train/checkpoint.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char hybrid[] = /* keys and values, and states */
    "{\"model_type\": \"qwen3_5_text\", \"vocab_size\": 16, \"hidden_size\": 8, \"intermediate_size\": 8, "
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"head_dim\": 4, "
    "\"layer_types\": [\"linear_attention\", \"full_attention\"], \"linear_num_key_heads\": 1, "
    "\"linear_num_value_heads\": 2, \"linear_key_head_dim\": 4, \"linear_value_head_dim\": 4, "
    "\"linear_conv_kernel_dim\": 4, \"rms_norm_eps\": 1e-6, \"attn_output_gate\": true, \"initializer_range\": 0.3, "
    "\"max_position_embeddings\": 32, "
    "\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 10000, \"partial_rotary_factor\": 0.5}}";
static const char gated[] = "{\"vocab_size\": 16, \"hidden_size\": 8, \"intermediate_size\": 8, \"num_hidden_layers\": 1, "
                            "\"num_attention_heads\": 2, \"gate_position\": \"sdpa\", \"gate_granularity\": \"headwise\"}";

static sluice_model *model_of(const char *text) {
    sluice_model *model;
    sluice_config config;
    if (sluice_config_parse(&config, text, "config", NULL) != SLUICE_OK) abort();
    if (sluice_model_new(&model, &config, 1, NULL) != SLUICE_OK) abort();
    sluice_config_free(&config);
    return model;
}

/* ---- sessions ---- */

enum { TYPE_AT = 12, MODEL_AT = 16, HEAD = 56 }; /* bytes of a session file, docs/formats.md */

static uint64_t word_at(const uint8_t *file, size_t at) {
    uint64_t w;
    memcpy(&w, file + at, sizeof w);
    return w;
}

/* Hash of the model and of the content, where the sizes in the head say that they are. */
static void make_right(uint8_t *file, size_t size, uint64_t model) {
    uint64_t h = 1, sizes[4], at = HEAD;
    if (size < HEAD + 8) return;
    memcpy(file + MODEL_AT, &model, sizeof model);
    sizes[0] = 4 * (word_at(file, 24) & 0xffff);
    sizes[1] = word_at(file, 32) & 0xffff;
    sizes[2] = (word_at(file, 24) & 0xffff) * (word_at(file, 40) & 0xffff);
    sizes[3] = word_at(file, 48) & 0xffff;
    if (HEAD + sizes[0] + sizes[1] + sizes[2] + sizes[3] + 8 != size) return;
    h = sluice__session_hash(h, file, HEAD);
    for (int i = 0; i < 4; i++) {
        h = sluice__session_hash(h, file + at, sizes[i]);
        at += sizes[i];
    }
    memcpy(file + at, &h, sizeof h);
}

static sluice_session *new_session(sluice_kv_dtype dtype) {
    static sluice_model *model;
    sluice_session *s;
    sluice_session_params p = sluice_session_params_default();
    if (!model) model = model_of(hybrid);
    p.capacity = 24;
    p.cache_dtype = dtype;
    return sluice_session_new(&s, model, &p, NULL) == SLUICE_OK ? s : NULL; /* q8_0 wants heads of 32 */
}

/* What a file of the model has for its hash; and the hashing above against the writer's. */
static uint64_t model_hash(void) {
    static uint64_t hash;
    static const int32_t ids[] = {1, 2, 3, 4, 5};
    char *text;
    size_t size;
    if (hash) return hash;
    sluice_session *s = new_session(SLUICE_KV_F32);
    const char *path = fuzz_path("session");
    if (!s || sluice_session_eval(s, ids, 5, NULL, NULL) != SLUICE_OK || sluice_session_save(s, path, "a note", NULL) != SLUICE_OK ||
        sluice__read_file(&text, &size, path, 1 << 20, NULL) != SLUICE_OK)
        abort();
    hash = word_at((uint8_t *)text, MODEL_AT);
    uint64_t written = word_at((uint8_t *)text, size - 8);
    make_right((uint8_t *)text, size, hash);
    if (written != word_at((uint8_t *)text, size - 8)) abort(); /* the format has changed: change this file */
    sluice__free(text);
    sluice_session_free(s);
    return hash;
}

/* A file that is taken goes on for a token. */
void fuzz_session(const uint8_t *data, size_t size) {
    char path[64];
    uint64_t model = model_hash();
    uint8_t *file = malloc(size + 1);
    if (!file) return;
    memcpy(file, data, size);
    make_right(file, size, model);
    int fd = fuzz_file(path, file, size);
    bool typed = size > TYPE_AT && file[TYPE_AT] <= SLUICE_KV_Q8_0;
    sluice_session *s = new_session(typed ? (sluice_kv_dtype)file[TYPE_AT] : SLUICE_KV_F32);
    sluice_text note = {0};
    const int32_t id = 3;
    float logits[16];
    if (s && fd >= 0 && sluice_session_load(s, path, &note, NULL) == SLUICE_OK) sluice_session_eval(s, &id, 1, logits, NULL);
    sluice_text_free(&note);
    sluice_session_free(s);
    if (fd >= 0) close(fd);
    free(file);
}

/* ---- shards ---- */

static void read_shard(const char *path) {
    sluice_shard *s;
    sluice_shard_stats stats;
    int32_t token;
    if (sluice_shard_open(&s, path, NULL) != SLUICE_OK) return;
    int64_t documents = sluice_shard_num_documents(s);
    for (int64_t d = 0; d < documents; d++) {
        int64_t start, count;
        sluice_shard_document(s, d, &start, &count);
        if (count) sluice_shard_read(s, start + count - 1, 1, &token);
    }
    if (sluice_shard_token_bytes(s) == 2) sluice_shard_statistics(s, 0, &stats, NULL); /* four bytes: 128 MB of counts */
    sluice_shard_close(s);
}

/* Two bytes of the index' size, the index, one byte of the sidecar's size, the sidecar, tokens. */
void fuzz_shard(const uint8_t *data, size_t size) {
    if (size < 3) return;
    size_t index = data[0] + 256U * data[1], at = 2;
    if (index > size - 3) index = size - 3;
    bool put = fuzz_put("s.idx", data + at, index);
    at += index;
    size_t sidecar = data[at++];
    if (sidecar > size - at) sidecar = size - at;
    if (sidecar) put &= fuzz_put("s.json", data + at, sidecar);
    at += sidecar;
    put &= fuzz_put("s.bin", data + at, size - at);
    if (put) read_shard(fuzz_path("s"));
    if (sidecar) unlink(fuzz_path("s.json"));
}

/* ---- checkpoints ---- */

typedef struct original {
    char key;
    const char *name;
    char *data;
    size_t size;
} original;

/* A checkpoint and what it belongs to; what a file has held is put back after each input. */
static sluice__checkpoint_parts make_checkpoint(original *files, int count) {
    static sluice_train_params params;
    static sluice__train_state state;
    static sluice__optimizer *optimizer;
    const sluice__adamw_options adamw = {0.9, 0.95, 1e-8, 0.1};
    sluice_model *model = model_of(gated);
    params = sluice_train_params_default();
    sluice__spike_watch_init(&state.watch, sluice__spike_options_default());
    state.last_eval = -1;
    if (sluice__optimizer_new(&optimizer, model, &adamw, NULL, NULL, NULL) != SLUICE_OK) abort();
    sluice__checkpoint_parts parts = {.params = &params, .model = model, .optimizer = optimizer, .state = &state};
    parts.data.seq_len = 16;
    if (sluice__checkpoint_save(fuzz_path("check"), &parts, NULL) != SLUICE_OK) abort();
    for (int i = 0; i < count; i++)
        if (sluice__read_file(&files[i].data, &files[i].size, fuzz_path(files[i].name), 1 << 24, NULL) != SLUICE_OK) abort();
    return parts;
}

/* One file of a checkpoint, which one the first byte says. */
void fuzz_checkpoint(const uint8_t *data, size_t size) {
    static original files[] = {{.key = 's', .name = "check/trainer_state.json"},
                               {.key = 'o', .name = "check/optimizer.safetensors"},
                               {.key = 'c', .name = "check/config.json"},
                               {.key = 'w', .name = "check/model.safetensors"}};
    enum { FILES = sizeof files / sizeof *files };
    static sluice__checkpoint_parts parts;
    if (!parts.model) parts = make_checkpoint(files, FILES);
    for (int i = 0; size && i < FILES; i++) {
        if (files[i].key != data[0] || !fuzz_put(files[i].name, data + 1, size - 1)) continue;
        sluice__checkpoint_is_whole(fuzz_path("check"));
        sluice__checkpoint_load(fuzz_path("check"), &parts, NULL);
        sluice__checkpoint_adopt_moments(fuzz_path("check"), &parts, NULL);
        if (!fuzz_put(files[i].name, files[i].data, files[i].size)) abort();
    }
}
