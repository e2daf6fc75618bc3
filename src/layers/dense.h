/* SPDX-License-Identifier: Apache-2.0 */
/* The linear maps of layers in the number format of the pass: fp32, or bf16, where both factors of every product are rounded
 * to bf16 and sums, results and gradients stay fp32. Formulas as in kernels/ops.h. Routers of experts are not among them:
 * they call the fp32 operators, so that tokens go where the router sends them. */
#ifndef SLUICE_LAYERS_DENSE_H
#define SLUICE_LAYERS_DENSE_H
#include "kernels/ops.h"
#include "layers/workspace.h"

/* y = x W^T + bias.   w: matrices that lie back to back.   half [rows, in], NULL in fp32 (and where nobody keeps it): receives
 * x as bf16 for the backward pass. */
void sluice__dense_forward(const sluice__pass *pass, float *y, int64_t y_stride, const float *x, int64_t x_stride,
                           sluice__bf16 *half, sluice__stack w, const float *bias, int64_t rows);
/* dx = dy W (+ dx when accumulate). */
void sluice__dense_backward_input(const sluice__pass *pass, float *dx, int64_t dx_stride, const float *dy,
                                  int64_t dy_stride, const float *w, int64_t rows, int64_t out, int64_t in,
                                  bool accumulate);
/* dW += dy^T x;  dbias += column sums of dy (NULL: none).   half: what forward kept of x, which is then not read. */
void sluice__dense_backward_weight(const sluice__pass *pass, float *dw, float *dbias, const float *dy, int64_t dy_stride,
                                   const float *x, int64_t x_stride, const sluice__bf16 *half, int64_t rows, int64_t out,
                                   int64_t in);

/* In bf16: x [rows, width] becomes what bf16 can hold, as the factors of attention's products are. Nothing in fp32. */
void sluice__dense_round(const sluice__pass *pass, float *x, int64_t stride, int64_t rows, int64_t width);
#endif
