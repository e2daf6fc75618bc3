/* SPDX-License-Identifier: Apache-2.0 */
/* One branch on the number format, and the operands of kernels/gemm_bf16.c. */
#include "layers/dense.h"

static sluice__rounded kept_or(const float *x, int64_t x_stride, const sluice__bf16 *half, int64_t width) {
    return half ? sluice__rounded_bf16(half, width) : sluice__rounded_f32(x, x_stride);
}

void sluice__dense_forward(const sluice__pass *pass, float *y, int64_t y_stride, const float *x, int64_t x_stride,
                           sluice__bf16 *half, sluice__stack w, const float *bias, int64_t rows) {
    if (!pass->ws->bf16) {
        sluice__stack_forward(y, y_stride, x, x_stride, w, bias, rows);
        return;
    }
    int64_t in = w.part->columns, out = sluice__stack_rows(w);
    if (half) sluice__to_bf16(half, in, x, x_stride, rows, in);
    sluice__gemm_bf16(&(sluice__bf16_product){.trans_b = true, .m = rows, .n = out, .k = in,
                                              .a = kept_or(x, x_stride, half, in), .b = sluice__rounded_f32(w.part->data, in),
                                              .c = y, .ldc = y_stride});
    if (bias) sluice__bias_forward(y, y_stride, bias, rows, out);
}

void sluice__dense_backward_input(const sluice__pass *pass, float *dx, int64_t dx_stride, const float *dy,
                                  int64_t dy_stride, const float *w, int64_t rows, int64_t out, int64_t in,
                                  bool accumulate) {
    if (!pass->ws->bf16) {
        sluice__linear_backward_input(dx, dx_stride, dy, dy_stride, w, rows, out, in, accumulate);
        return;
    }
    sluice__gemm_bf16(&(sluice__bf16_product){.accumulate = accumulate, .m = rows, .n = in, .k = out,
                                              .a = sluice__rounded_f32(dy, dy_stride), .b = sluice__rounded_f32(w, in),
                                              .c = dx, .ldc = dx_stride});
}

void sluice__dense_backward_weight(const sluice__pass *pass, float *dw, float *dbias, const float *dy, int64_t dy_stride,
                                   const float *x, int64_t x_stride, const sluice__bf16 *half, int64_t rows, int64_t out,
                                   int64_t in) {
    if (!pass->ws->bf16) {
        sluice__linear_backward_weight(dw, dbias, dy, dy_stride, x, x_stride, rows, out, in);
        return;
    }
    sluice__gemm_bf16(&(sluice__bf16_product){.trans_a = true, .accumulate = true, .m = out, .n = in, .k = rows,
                                              .a = sluice__rounded_f32(dy, dy_stride),
                                              .b = kept_or(x, x_stride, half, in), .c = dw, .ldc = in});
    if (dbias) sluice__bias_backward(dbias, dy, dy_stride, rows, out);
}

void sluice__dense_round(const sluice__pass *pass, float *x, int64_t stride, int64_t rows, int64_t width) {
    if (pass->ws->bf16) sluice__round_bf16(x, stride, x, stride, rows, width);
}
