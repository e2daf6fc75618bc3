/* SPDX-License-Identifier: Apache-2.0 */
/* The two kinds of reference cases. */
#ifndef SLUICE_VERIFY_CASES_H
#define SLUICE_VERIFY_CASES_H
#include "sluice/model.h"
#include "verify/compare.h"

/* Forward cases: dir/golden.safetensors, dir/golden.<label>.safetensors, decode.json, greedy.json. */
sluice_status sluice__verify_model(const sluice__verify_run *run, const sluice_model *model);
/* Training cases. The model's weights move. */
sluice_status sluice__verify_training(const sluice__verify_run *run, sluice_model *model);

/* A pass over ids [B,T] whose activations that `golden` has are added to results under its names (hidden.<layer>, ...).
 * logits: with `logits` in golden, [B,T,V]. positions, key_start: [B,T] or NULL. */
typedef struct sluice__verify_input {
    int batch, seq_len;
    const int32_t *ids, *positions, *key_start;
} sluice__verify_input;
sluice_status sluice__verify_forward(const sluice__verify_run *run, const sluice_model *model,
                                     const sluice__safetensors *golden, const sluice__verify_input *in,
                                     sluice__results *results);
#endif
