/* SPDX-License-Identifier: Apache-2.0 */
/* Between the two halves of loading: what goes where (load.c), and the values themselves (load_rows.c). */
#ifndef SLUICE_MODEL_LOAD_H
#define SLUICE_MODEL_LOAD_H
#include "model/file_view.h"
#include "model/model.h"
#include "model/store.h"

/* One tensor of the file, or a part of one, on its way into the model. */
typedef struct sluice__transfer {
    int source; /* in the store */
    sluice__slot slot;
    int layer, expert;
    sluice__view view; /* of the source */
    int to, gate;      /* tensors of the model; gate: that of a packed q_proj, otherwise -1 */
    bool mapped;       /* nothing to copy: the model reads the pages of the file */
    bool nonfinite;
} sluice__transfer;

typedef struct sluice__loader {
    const char *dir;
    sluice_config config; /* as the file describes it */
    sluice__file_layout layout;
    sluice__store *store;
    sluice__transfer *transfers;
    int num_transfers, room;
    bool *used; /* [tensors of the store] */
    int neutral; /* block of a GGUF file that is left out; -1 = none */
    sluice_model *model;
} sluice__loader;

/* Fills `to` and `gate` of the transfers. */
void sluice__load_targets(sluice__loader *l);
/* Of an as-stored model: decides which matrices stay in the file, and makes room for the others. */
sluice_status sluice__load_place(sluice__loader *l, sluice_error *err);
/* Copies and checks all values but those of matrices that stay in the file. */
sluice_status sluice__load_rows(sluice__loader *l, sluice_error *err);
#endif
