/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax and negative log-likelihood of a row of logits, the gradient written over the logits: reference, with
 * sums in double. A row with +infinity or NaN, or with -infinity only, gives NaN, as in PyTorch. */
#include "kernels/kernels.h"
#include <math.h>
#include <string.h>

static int64_t arg_max(const float *x, int64_t count) {
    int64_t best = 0;
    for (int64_t i = 1; i < count; i++)
        if (x[i] > x[best] || isnan(x[best])) best = i;
    return best;
}

static void softmax_nll_row(float *x, int32_t label, float *nll, uint8_t *correct, int64_t vocab, float grad_scale) {
    int64_t top = arg_max(x, vocab);
    double max = x[top], sum = 0;
    for (int64_t i = 0; i < vocab; i++) sum += exp(x[i] - max);
    *nll = (float)(log(sum) + (max - x[label]));
    if (correct) *correct = top == label;
    if (grad_scale == 0) return;
    for (int64_t i = 0; i < vocab; i++) x[i] = (float)(grad_scale * (exp(x[i] - max) / sum - (i == label)));
}

void sluice_softmax_nll_f32_ref(float *logits, const int32_t *labels, float *nll, uint8_t *correct, int64_t rows,
                                int64_t vocab, float grad_scale) {
    for (int64_t r = 0; r < rows; r++, logits += vocab) {
        if (labels[r] >= 0) {
            softmax_nll_row(logits, labels[r], &nll[r], correct ? &correct[r] : NULL, vocab, grad_scale);
            continue;
        }
        nll[r] = 0;
        if (correct) correct[r] = 0;
        if (grad_scale != 0) memset(logits, 0, (size_t)vocab * sizeof *logits);
    }
}
