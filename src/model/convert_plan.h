/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors of a Hugging Face directory that is being written (convert_hf.c): each is put together of parts, which are
 * matrices inside tensors of the source and of the target. */
#ifndef SLUICE_MODEL_CONVERT_PLAN_H
#define SLUICE_MODEL_CONVERT_PLAN_H
#include <jansson.h>
#include "model/convert.h"
#include "model/safetensors.h"
#include "model/store.h"
#include "model/view.h"

typedef struct sluice__part {
    int source;            /* in the store */
    sluice__view from, to; /* of as many rows and columns; inside the source, inside the target */
    bool one_plus;         /* stored as w - 1 */
} sluice__part;

typedef struct sluice__piece {
    sluice__st_tensor out;
    char *name;
    sluice__part *parts;
    int num_parts, file;
} sluice__piece;

typedef struct sluice__convert_plan {
    sluice__conversion *c;
    sluice__store *store;
    sluice__piece *pieces;
    int count, files;
    void *bytes; /* of the tensor that is being written */
    size_t room;
    int done;
} sluice__convert_plan;

/* A new tensor of the target, of a type like that of the source's tensor; and a part of the newest one. */
sluice_status sluice__convert_piece(sluice__convert_plan *p, const char *name, int source, int ndim, const int64_t *shape,
                                 sluice_error *err);
sluice_status sluice__convert_part(sluice__convert_plan *p, const sluice__part *part, sluice_error *err);
/* Writes all files of weights into dir. */
sluice_status sluice__convert_write(sluice__convert_plan *p, const char *dir, sluice_error *err);
void sluice__convert_end(sluice__convert_plan *p);
/* config.json with the new element type where it names one. */
sluice_status sluice__convert_save_config(const sluice__conversion *c, json_t *root, const char *to, sluice_error *err);
#endif
