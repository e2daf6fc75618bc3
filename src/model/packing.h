/* SPDX-License-Identifier: Apache-2.0 */
/* Gate rows inside q_proj. */
#ifndef SLUICE_MODEL_PACKING_H
#define SLUICE_MODEL_PACKING_H
#include "model/family.h"

/* Gate rows that q_proj (or its bias) holds behind its query rows in files of this layout; 0 when it holds
 * none. */
int64_t sluice__packed_gate_rows(const sluice_config *config, const sluice__file_layout *layout, int layer);

/* What row r of such a tensor is. */
typedef struct sluice__packed_row {
    bool gate;   /* a row of the gate, otherwise of the queries */
    bool repeat; /* one more copy of a headwise gate's row */
    int64_t row; /* its number in the gate or the queries */
} sluice__packed_row;
sluice__packed_row sluice__packed_row_of(const sluice_config *config, const sluice__file_layout *layout,
                                         int layer, int64_t r);
#endif
