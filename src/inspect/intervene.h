/* SPDX-License-Identifier: Apache-2.0 */
/* From what a caller asks for (sluice_intervention) to what the forward pass does
 * (sluice__intervention): mean gates, bounds and means of massive activations are measured first,
 * on the unchanged model and the same windows. */
#ifndef SLUICE_INSPECT_INTERVENE_H
#define SLUICE_INSPECT_INTERVENE_H
#include "inspect/walk.h"
#include "layers/intervention.h"

typedef struct sluice__prepared {
    sluice__intervention change;
    int layers;
    float **gate;                    /* [layers] */
    sluice__massive_change *massive; /* [layers] */
    float **massive_value;           /* [layers] */
} sluice__prepared;

/* Refuses what the model cannot have done to it. */
sluice_status sluice__intervention_check(const sluice_intervention *change,
                                         const sluice_config *config, sluice_error *err);
/* w: the windows, with a workspace; nothing of it changes. *out is freed whatever the status. */
sluice_status sluice__intervention_prepare(sluice__prepared *out, const sluice_intervention *change,
                                           const sluice__walk *w, sluice_error *err);
void sluice__prepared_free(sluice__prepared *p);
#endif
