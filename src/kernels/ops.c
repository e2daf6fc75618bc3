/* SPDX-License-Identifier: Apache-2.0 */
/* Element-wise and row-wise operators: each deals its rows out to the team and calls the kernel of the table. */
#include "kernels/ops.h"
#include "kernels/kernels.h"
#include "kernels/parallel.h"
#include "kernels/profile.h"
#include <math.h>
#include <string.h>

enum { LINE = 16 }; /* floats of a cache line: parts of flat arrays start at one */

void sluice__add(float *y, const float *x, int64_t count) {
    SLUICE__SPAN_FLOATS("addition", 3 * count);
    const sluice__kernels *k = sluice__kernels_now();
    SLUICE__SPLIT(sluice__team(count), count, LINE,
                  k->add_f32(y + range.begin, x + range.begin, range.end - range.begin));
}

void sluice__scale(float *y, float s, int64_t count) {
    SLUICE__SPAN_FLOATS("scaling, clipping", 2 * count);
    const sluice__kernels *k = sluice__kernels_now();
    SLUICE__SPLIT(sluice__team(count), count, LINE, k->scale_f32(y + range.begin, s, range.end - range.begin));
}

void sluice__clip_forward(float *y, const float *x, float c, int64_t count) {
    SLUICE__SPAN_FLOATS("scaling, clipping", 2 * count);
    const sluice__kernels *k = sluice__kernels_now();
    SLUICE__SPLIT(sluice__team(count), count, LINE,
                  k->clip_f32(y + range.begin, x + range.begin, c, range.end - range.begin));
}

void sluice__clip_backward(float *dx, const float *dy, const float *x, float c, int64_t count) {
    SLUICE__SPAN_FLOATS("scaling, clipping", 3 * count);
    const sluice__kernels *k = sluice__kernels_now();
    SLUICE__SPLIT(
        sluice__team(count), count, LINE,
        k->clip_backward_f32(dx + range.begin, dy + range.begin, x + range.begin, c, range.end - range.begin));
}

void sluice__gelu_forward(float *y, const float *x, int64_t count, bool tanh_form) {
    SLUICE__SPAN_FLOATS("activation forward", 2 * count);
    const sluice__kernels *k = sluice__kernels_now();
    SLUICE__SPLIT(sluice__team(4 * count), count, LINE,
                  k->gelu_f32(y + range.begin, x + range.begin, range.end - range.begin, tanh_form));
}

void sluice__gelu_backward(float *dx, const float *dy, const float *x, int64_t count, bool tanh_form) {
    SLUICE__SPAN_FLOATS("activation backward", 3 * count);
    const sluice__kernels *k = sluice__kernels_now();
    SLUICE__SPLIT(sluice__team(4 * count), count, LINE,
                  k->gelu_backward_f32(dx + range.begin, dy + range.begin, x + range.begin, range.end - range.begin,
                                       tanh_form));
}

void sluice__swiglu_forward(float *y, int64_t y_stride, const float *gate_up, int64_t gate_up_stride, int64_t rows,
                            int64_t width) {
    SLUICE__SPAN_FLOATS("SwiGLU forward", 3 * rows * width);
    const sluice__kernels *k = sluice__kernels_now();
    SLUICE__SPLIT(sluice__team(4 * rows * width), rows, 1, {
        for (int64_t r = range.begin; r < range.end; r++)
            k->swiglu_f32(y + r * y_stride, gate_up + r * gate_up_stride, 1, width);
    });
}

void sluice__swiglu_backward(float *dgate_up, const float *dy, int64_t dy_stride, const float *gate_up,
                             int64_t gate_up_stride, int64_t rows, int64_t width) {
    SLUICE__SPAN_FLOATS("SwiGLU backward", 5 * rows * width);
    const sluice__kernels *k = sluice__kernels_now();
    SLUICE__SPLIT(sluice__team(4 * rows * width), rows, 1, {
        for (int64_t r = range.begin; r < range.end; r++)
            k->swiglu_backward_f32(dgate_up + r * gate_up_stride, dy + r * dy_stride, gate_up + r * gate_up_stride, 1,
                                   width);
    });
}

void sluice__softmax_nll(float *logits, const int32_t *labels, float *nll, uint8_t *correct, int64_t rows,
                         int64_t vocab, float grad_scale) {
    SLUICE__SPAN_FLOATS("softmax and loss", (grad_scale != 0 ? 2 : 1) * rows * vocab);
    const sluice__kernels *k = sluice__kernels_now();
    SLUICE__SPLIT(sluice__team(4 * rows * vocab), rows, 1,
                  k->softmax_nll_f32(logits + range.begin * vocab, labels + range.begin, nll + range.begin,
                                     correct ? correct + range.begin : NULL, range.end - range.begin, vocab,
                                     grad_scale));
}

void sluice__adamw_step(const sluice__adamw *c, float *p, float *m, float *v, float *g, int64_t count) {
    SLUICE__SPAN_FLOATS("AdamW", (c->zero_grad ? 8 : 7) * count);
    const sluice__kernels *k = sluice__kernels_now();
    double correction1 = 1 - pow(c->beta1, (double)c->step), correction2 = 1 - pow(c->beta2, (double)c->step);
    sluice__adamw_factors f = {
        .grad_scale = (float)c->grad_scale,
        .decay = (float)(1 - c->lr * c->weight_decay),
        .beta1 = (float)c->beta1,
        .one_minus_beta1 = (float)(1 - c->beta1),
        .beta2 = (float)c->beta2,
        .one_minus_beta2 = (float)(1 - c->beta2),
        .step_size = (float)(c->lr / correction1),
        .inv_sqrt_correction2 = (float)(1 / sqrt(correction2)),
        .eps = (float)c->eps,
        .zero_grad = c->zero_grad,
    };
    SLUICE__SPLIT(sluice__team(4 * count), count, LINE,
                  k->adamw_f32(&f, p + range.begin, m + range.begin, v + range.begin, g + range.begin,
                               range.end - range.begin));
}

void sluice__lion_step(const sluice__lion *c, float *p, float *m, float *g, int64_t count) {
    SLUICE__SPAN_FLOATS("Lion", (c->zero_grad ? 6 : 5) * count);
    const sluice__kernels *k = sluice__kernels_now();
    sluice__lion_factors f = {
        .grad_scale = (float)c->grad_scale,
        .decay = (float)(1 - c->lr * c->weight_decay),
        .lr = (float)c->lr,
        .beta1 = (float)c->beta1,
        .one_minus_beta1 = (float)(1 - c->beta1),
        .beta2 = (float)c->beta2,
        .one_minus_beta2 = (float)(1 - c->beta2),
        .zero_grad = c->zero_grad,
    };
    SLUICE__SPLIT(sluice__team(3 * count), count, LINE,
                  k->lion_f32(&f, p + range.begin, m + range.begin, g + range.begin, range.end - range.begin));
}

void sluice__embedding_forward(float *y, const float *table, const int32_t *ids, int64_t rows, int64_t dim) {
    SLUICE__SPAN_FLOATS("embedding forward", 2 * rows * dim);
    SLUICE__SPLIT(sluice__team(rows * dim), rows, 1, {
        for (int64_t r = range.begin; r < range.end; r++)
            memcpy(y + r * dim, table + ids[r] * dim, (size_t)dim * sizeof *y);
    });
}

/* Threads share out columns, so each element of dtable sums its rows in order whatever the thread count. */
void sluice__embedding_backward(float *dtable, const float *dy, const int32_t *ids, int64_t rows, int64_t dim,
                                int64_t vocab) {
    SLUICE__SPAN_FLOATS("embedding backward", 3 * rows * dim);
    const sluice__kernels *k = sluice__kernels_now();
    (void)vocab;
    SLUICE__SPLIT(sluice__team(rows * dim), dim, LINE, {
        for (int64_t r = 0; r < rows; r++)
            k->add_f32(dtable + ids[r] * dim + range.begin, dy + r * dim + range.begin, range.end - range.begin);
    });
}
