/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax and negative log-likelihood: body for one vec_<isa>.h. A row of logits (200 kB for a vocabulary of 50k)
 * stays in the second-level cache for its passes: maximum; exponentials and their sum; scaling to the gradient. The
 * second pass leaves the exponentials in the row, so that the third multiplies instead of computing them again. */
#include "kernels/kernels.h"
#include <math.h>
#include <string.h>

enum { BLOCK = 4096 }; /* elements summed in float before a double takes over: bounds the error for any vocabulary */

static float row_max(const float *x, int64_t count) {
    vec a = vec_set(-INFINITY), b = a;
    int64_t i = 0;
    for (; i + 2 * VEC <= count; i += 2 * VEC) {
        a = vec_max(vec_load(x + i), a);
        b = vec_max(vec_load(x + i + VEC), b);
    }
    float most = vec_reduce_max(vec_max(a, b));
    for (; i < count; i++)
        if (x[i] > most) most = x[i];
    return most;
}

VEC_INLINE vec exp_step(float *x, vec max, bool keep, int n) {
    vec e = vec_exp(vec_sub(vec_load_n(x, n), max));
    if (keep) vec_store_n(x, e, n);
    return e;
}

/* Sum of exp(x - max) over up to BLOCK elements; `keep` writes the exponentials back. */
VEC_INLINE float block_sum(float *x, int64_t count, vec max, bool keep) {
    vec a = vec_zero(), b = vec_zero();
    int64_t i = 0;
    for (; i + 2 * VEC <= count; i += 2 * VEC) {
        a = vec_add(a, exp_step(x + i, max, keep, VEC));
        b = vec_add(b, exp_step(x + i + VEC, max, keep, VEC));
    }
    float sum = vec_sum(vec_add(a, b));
    for (; i < count; i += VEC) {
        int n = count - i < VEC ? (int)(count - i) : VEC;
        float part[VEC];
        vec_store(part, exp_step(x + i, max, keep, n));
        for (int j = 0; j < n; j++) sum += part[j];
    }
    return sum;
}

static double exp_sum(float *x, int64_t count, float max, bool keep) {
    double sum = 0;
    for (int64_t i = 0; i < count; i += BLOCK) {
        int64_t n = count - i < BLOCK ? count - i : BLOCK;
        sum += keep ? block_sum(x + i, n, vec_set(max), true) : block_sum(x + i, n, vec_set(max), false);
    }
    return sum;
}

/* The label is the arg max when no larger logit exists and no equal one stands before it. */
static bool is_arg_max(const float *x, int32_t label, float max) {
    if (!(x[label] >= max)) return false;
    for (int32_t i = 0; i < label; i++)
        if (x[i] == max) return false;
    return true;
}

static void softmax_nll_row(float *x, int32_t label, float *nll, uint8_t *correct, int64_t vocab, float grad_scale) {
    float max = row_max(x, vocab), at_label = x[label];
    if (correct) *correct = is_arg_max(x, label, max);
    double sum = exp_sum(x, vocab, max, grad_scale != 0);
    *nll = (float)(log(sum) + ((double)max - at_label));
    if (grad_scale == 0) return;
    double p = x[label] / sum;
    VEC_KERNEL(scale_f32)(x, (float)(grad_scale / sum), vocab);
    x[label] = (float)(grad_scale * (p - 1));
}

void VEC_KERNEL(softmax_nll_f32)(float *logits, const int32_t *labels, float *nll, uint8_t *correct, int64_t rows,
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
