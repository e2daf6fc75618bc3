/* SPDX-License-Identifier: Apache-2.0 */
/* Where the files of a family hold a tensor of the model. */
#ifndef SLUICE_MODEL_FILE_VIEW_H
#define SLUICE_MODEL_FILE_VIEW_H
#include "model/family.h"
#include "model/view.h"

typedef struct sluice__file_view {
    char *name; /* of the tensor in the file; owned */
    int ndim;
    int64_t shape[3]; /* it must have */
    sluice__view view;
    bool shared; /* with other tensors of the model */
} sluice__file_view;

/* Number `which` of the ways in which files may hold the tensor at `place`, best known first. False when there is no
 * such way, or none of its own at all (gate rows packed into q_proj). A NULL name means that there is no memory. */
bool sluice__file_view_at(sluice__file_view *out, const sluice_config *config, const sluice__file_layout *layout,
                          sluice__place place, int which);
#endif
