/* SPDX-License-Identifier: Apache-2.0 */
/* The language-model head: logits, and the loss in blocks of tokens that never hold all logits. */
#ifndef SLUICE_LAYERS_HEAD_H
#define SLUICE_LAYERS_HEAD_H
#include "layers/workspace.h"

/* Logits of each sequence's last token (LAST) or of all, to where the segments want them.   x: [rows, D] after the final
 * norm, only of those last tokens when the pass reads no others. */
void sluice__head_logits(const sluice__pass *pass, const float *x, sluice__logits which);
/* Cross entropy of labels [rows] (negative = not scored); nll [rows]. With dx != NULL also the gradients:
 * dx [rows, D] = loss_scale * d nll_sum / d x, and the head's weight gradient is added to. dx may not alias x. */
void sluice__head_loss(const sluice__pass *pass, const float *x, const int32_t *labels, float *nll, sluice__loss *loss,
                       float loss_scale, float *dx);
#endif
