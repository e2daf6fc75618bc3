/* SPDX-License-Identifier: Apache-2.0 */
/* Muon (Jordan et al. 2024): momentum, made orthogonal by a few Newton-Schulz iterations, for matrices inside
 * layers. */
#ifndef SLUICE_TRAIN_MUON_H
#define SLUICE_TRAIN_MUON_H
#include <stdint.h>

typedef enum sluice__muon_adjust {
    SLUICE__MUON_ORIGINAL,  /* the step is scaled by sqrt(max(1, rows / columns)) */
    SLUICE__MUON_MATCH_RMS, /* by 0.2 sqrt(max(rows, columns)): as large as AdamW's (Liu et al. 2025) */
} sluice__muon_adjust;

typedef struct sluice__muon {
    double lr, momentum, weight_decay, grad_scale;
    sluice__muon_adjust adjust;
    int iterations;
} sluice__muon;

/* Floats of scratch that a [rows, columns] matrix wants. */
int64_t sluice__muon_scratch(int64_t rows, int64_t columns);

/* One update of a [rows, columns] matrix p with momentum m and gradient g (zeroed), g' = grad_scale * g; what
 * torch.optim.Muon does, with the iteration in fp32:
 *   m += (1 - mu) (g' - m);   u = g' + mu (m - g');   p *= 1 - lr * weight_decay;   p -= lr * scale * orthogonal(u) */
void sluice__muon_step(const sluice__muon *c, float *p, float *m, float *g, int64_t rows, int64_t columns,
                       float *scratch);

/* x [rows, columns] -> nearly U V^T of its singular value decomposition: all singular values between about 0.7
 * and 1.2. A zero matrix stays zero. */
void sluice__orthogonalise(float *x, int64_t rows, int64_t columns, int iterations, float *scratch);
#endif
