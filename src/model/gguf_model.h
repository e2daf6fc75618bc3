/* SPDX-License-Identifier: Apache-2.0 */
/* What a GGUF file says about the model in it: configuration, names of tensors, tokenizer, chat template. Each is put into
 * the form that a Hugging Face directory has, and goes through the same readers. */
#ifndef SLUICE_MODEL_GGUF_MODEL_H
#define SLUICE_MODEL_GGUF_MODEL_H
#include "model/family.h"
#include "model/gguf.h"

/* Our own metadata: files repeat the row of a headwise gate for every element of its head; with this key ("headwise") a reader
 * makes one of them again. */
#define SLUICE__GGUF_GRANULARITY_KEY "sluice.gate_granularity"

/* Whether the file at path is one, by its first bytes. */
bool sluice__is_gguf(const char *path);

/* The config.json that would describe the model; owned by the caller. */
sluice_status sluice__gguf_config_json(json_t **out, const sluice__gguf *g, sluice_error *err);
/* The architecture that stands for a model_type, or NULL. */
const char *sluice__gguf_architecture(const char *model_type);
/* Configuration and layout; freed with sluice_config_free. */
sluice_status sluice__gguf_config(sluice_config *out, sluice__file_layout *layout, const sluice__gguf *g,
                                  sluice_error *err);
/* The same from a path. */
sluice_status sluice__gguf_config_file(sluice_config *out, const char *path, sluice_error *err);

/* The family whose table holds the names that tensors have in GGUF files: "blk.<layer>." in front of a layer's. */
extern const sluice__family sluice__gguf_names;

/* The name of a slot's tensor in files of an architecture, without "blk.<layer>."; NULL when they have none. */
const char *sluice__gguf_slot_name(sluice__slot slot, const char *arch);
/* How the values of a tensor differ from those of the model. Rows of the model in the order of the file. */
typedef enum sluice__gguf_edit_kind {
    SLUICE__EDIT_NONE,
    SLUICE__EDIT_ROPE_PAIRS,  /* rows of each head: halves of the rotated part interleaved (llama) */
    SLUICE__EDIT_VALUE_HEADS, /* value heads of linear attention tiled instead of grouped: rows from `first` on */
    SLUICE__EDIT_VALUE_COLUMNS, /* the same for columns */
    SLUICE__EDIT_DECAY        /* -exp(A_log), and value heads tiled */
} sluice__gguf_edit_kind;
typedef struct sluice__gguf_edit {
    sluice__gguf_edit_kind kind;
    int64_t heads, width; /* heads, and rows (columns) of each */
    int64_t groups;       /* key heads */
    int64_t first;
} sluice__gguf_edit;
/* By the architecture and the name of the tensor. */
sluice__gguf_edit sluice__gguf_edit_of(const sluice__gguf *g, const char *name);
/* Where the file has row (or column) r of the model. */
int64_t sluice__gguf_edit_source(const sluice__gguf_edit *e, int64_t r);
#endif
