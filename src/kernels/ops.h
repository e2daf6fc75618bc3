/* SPDX-License-Identifier: Apache-2.0 */
/* The numeric operators that layers call. Each splits its rows over the calling thread's OpenMP team and calls the
 * entry of the kernel table (kernels.h) that suits this CPU; inside a parallel region it runs on the calling thread
 * alone. All are deterministic for a given thread count. Matrices are row-major; `stride` arguments are the
 * distance between rows in floats. Nothing here allocates per call (scratch is per thread and kept) or fails. */
#ifndef SLUICE_KERNELS_OPS_H
#define SLUICE_KERNELS_OPS_H
#include <stdbool.h>
#include <stdint.h>
#include "kernels/bf16.h"

/* C = alpha * op(A) op(B) + beta * C.   op(A): [m,k], op(B): [k,n], C: [m,n].   beta 0 does not read C. */
void sluice__gemm_f32(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                      int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc);

/* C (+)= op(A) op(B) of matrices that count as bf16, sums in fp32. Native where the CPU multiplies bf16; elsewhere a product
 * of rounded floats, the same but for the order of sums. */
void sluice__gemm_bf16(const sluice__bf16_product *p);

/* y = bf16(x), rows with strides;  y = the float nearest to x that bf16 holds, y may be x. */
void sluice__to_bf16(sluice__bf16 *y, int64_t y_stride, const float *x, int64_t x_stride, int64_t rows, int64_t width);
void sluice__round_bf16(float *y, int64_t y_stride, const float *x, int64_t x_stride, int64_t rows, int64_t width);

/* dbias += column sums of dy;  y += bias in every row. */
void sluice__bias_backward(float *dbias, const float *dy, int64_t dy_stride, int64_t rows, int64_t out);
void sluice__bias_forward(float *y, int64_t y_stride, const float *bias, int64_t rows, int64_t out);

/* y = x W^T + bias.   x: [rows,in], W: [out,in], bias: [out] or NULL, y: [rows,out]. */
void sluice__linear_forward(float *y, int64_t y_stride, const float *x, int64_t x_stride, const float *w,
                            const float *bias, int64_t rows, int64_t out, int64_t in);
/* dx = dy W (+ dx when accumulate). */
void sluice__linear_backward_input(float *dx, int64_t dx_stride, const float *dy, int64_t dy_stride, const float *w,
                                   int64_t rows, int64_t out, int64_t in, bool accumulate);
/* dW += dy^T x;  dbias += column sums of dy (dbias may be NULL). */
void sluice__linear_backward_weight(float *dw, float *dbias, const float *dy, int64_t dy_stride, const float *x,
                                    int64_t x_stride, int64_t rows, int64_t out, int64_t in);

/* y = x * rstd * (weight + offset), rstd = 1 / sqrt(mean(x^2) + eps).   weight NULL = weightless; offset 1 = the 1+w
 * flavour. rstd [rows] may be NULL. y may alias x (then backward is impossible).   Zhang & Sennrich 2019, eq. 4. */
void sluice__rms_norm_forward(float *y, float *rstd, const float *x, const float *weight, int64_t rows, int64_t dim,
                              float eps, float offset);
/* h = x + a;  y = rms_norm(h) as above.   h may alias x. */
void sluice__add_rms_norm_forward(float *h, float *y, float *rstd, const float *x, const float *a, const float *weight,
                                  int64_t rows, int64_t dim, float eps, float offset);
/* dx (+)= d rms_norm / dx;  dweight += ... (may be NULL). dx may alias dy when !accumulate. */
void sluice__rms_norm_backward(float *dx, float *dweight, const float *dy, const float *x, const float *weight,
                               const float *rstd, int64_t rows, int64_t dim, float offset, bool accumulate);

/* What happens to queries and keys between projection and attention, for x and y [rows, heads, head_dim] with row strides:
 *   y = rope(norm(x))   norm: RMS per head with `weight` [head_dim] shared by heads when `norm`; identity otherwise.
 * rope rotates the first rotary_dim components (rotate-half: i pairs with i + rotary_dim/2) by the angle whose cosine and
 * sine stand in row position[r] of cos, sin [positions, rotary_dim/2]; cos NULL = no rotation. rstd [rows, heads] is
 * written when norm and rstd != NULL. y may alias x only when !norm or rstd is NULL. */
typedef struct sluice__norm_rope {
    int64_t rows;
    int heads, head_dim, rotary_dim;
    bool norm;
    const float *weight; /* NULL = weightless */
    float eps, offset;
    const float *cos, *sin;
    const int32_t *position; /* [rows] */
} sluice__norm_rope;
void sluice__norm_rope_forward(const sluice__norm_rope *p, float *y, int64_t y_stride, float *rstd, const float *x,
                               int64_t x_stride);
/* dx = backward of dy;  dweight += ... (NULL when weightless or !norm). x, rstd: of forward. dx may alias dy. */
void sluice__norm_rope_backward(const sluice__norm_rope *p, float *dx, int64_t dx_stride, float *dweight, const float *dy,
                                int64_t dy_stride, const float *x, int64_t x_stride, const float *rstd);

/* y = silu(gate) * up with gate_up [rows, 2*width] = [gate | up], y [rows, width], each with a row stride.   Shazeer 2020. */
void sluice__swiglu_forward(float *y, int64_t y_stride, const float *gate_up, int64_t gate_up_stride, int64_t rows,
                            int64_t width);
/* dgate_up has the stride of gate_up. */
void sluice__swiglu_backward(float *dgate_up, const float *dy, int64_t dy_stride, const float *gate_up,
                             int64_t gate_up_stride, int64_t rows, int64_t width);
/* y = gelu(x): exact (erf) form, or the tanh approximation. y may alias x in forward. */
void sluice__gelu_forward(float *y, const float *x, int64_t count, bool tanh_form);
void sluice__gelu_backward(float *dx, const float *dy, const float *x, int64_t count, bool tanh_form);

/* y[r,:] = table[ids[r],:]. Ids are checked by the caller. */
void sluice__embedding_forward(float *y, const float *table, const int32_t *ids, int64_t rows, int64_t dim);
/* dtable[ids[r],:] += dy[r,:], in row order for every id (deterministic). */
void sluice__embedding_backward(float *dtable, const float *dy, const int32_t *ids, int64_t rows, int64_t dim,
                                int64_t vocab);

/* For each row of logits [rows, vocab] with labels[r] >= 0: nll[r] = lse(logits[r]) - logits[r,labels[r]]; with
 * `grad_scale` != 0 the row becomes grad_scale * (softmax - onehot(label)), with grad_scale 0 it is left alone.
 * Rows with a negative label get nll 0 and, with gradients, zeros. nll [rows]; correct [rows] (1 when the label is
 * the arg max) may be NULL. */
void sluice__softmax_nll(float *logits, const int32_t *labels, float *nll, uint8_t *correct, int64_t rows, int64_t vocab,
                         float grad_scale);

void sluice__add(float *y, const float *x, int64_t count); /* y += x */
void sluice__scale(float *y, float s, int64_t count);      /* y *= s */
/* y = min(max(x, -c), c), in place;  backward: dy = 0 where |x| > c, x the value before clipping. */
void sluice__clip_forward(float *y, const float *x, float c, int64_t count);
void sluice__clip_backward(float *dx, const float *dy, const float *x, float c, int64_t count);

double sluice__sum_squares(const float *x, int64_t count); /* accumulated in double */
float sluice__max_abs(const float *x, int64_t count);      /* NaN when any element is NaN */
int64_t sluice__first_nonfinite(const float *x, int64_t count); /* index, or -1 */

/* One pass of AdamW (Loshchilov & Hutter 2019; torch.optim.AdamW): g' = grad_scale * g;  p *= 1 - lr*weight_decay;
 * m = b1 m + (1-b1) g';  v = b2 v + (1-b2) g'^2;  p -= lr/(1-b1^step) * m / (sqrt(v)/sqrt(1-b2^step) + eps).
 * zero_grad: g is set to 0 in the same pass. step counts from 1. */
typedef struct sluice__adamw {
    double lr, beta1, beta2, eps, weight_decay, grad_scale;
    int64_t step;
    bool zero_grad;
} sluice__adamw;
void sluice__adamw_step(const sluice__adamw *c, float *p, float *m, float *v, float *g, int64_t count);

/* One pass of Lion (Chen et al. 2023, algorithm 2): g' = grad_scale * g;  p *= 1 - lr*weight_decay;
 * p -= lr * sign(b1 m + (1-b1) g');  m = b2 m + (1-b2) g'. zero_grad as above. The same bits in every version. */
typedef struct sluice__lion {
    double lr, beta1, beta2, weight_decay, grad_scale;
    bool zero_grad;
} sluice__lion;
void sluice__lion_step(const sluice__lion *c, float *p, float *m, float *g, int64_t count);
#endif
