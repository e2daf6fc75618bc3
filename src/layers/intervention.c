/* SPDX-License-Identifier: Apache-2.0 */
/* Interventions that are more than another number for a kernel. Keys kept behind a window are few,
 * so their part of the softmax is worked out query by query and merged with the windowed part by
 * the two log-sum-exps, as the parts of one attention are. */
#include "layers/intervention.h"
#include "kernels/attention.h"
#include "kernels/parallel.h"
#include <math.h>

int sluice__change_massive(const sluice__massive_change *change, float *h, int64_t rows,
                           int64_t dim) {
    if (!isfinite(change->bound)) return 0;
    int changed = 0;
    for (int64_t i = 0; i < rows * dim; i++) {
        float size = fabsf(h[i]);
        if (!(size > 100.0f && size >= change->bound)) continue;
        h[i] = change->value ? change->value[i % dim] : 0.0f;
        changed = 1;
    }
    return changed;
}

static double score_of(const sluice_attention_params *p, const float *q, const float *k) {
    double sum = 0;
    for (int d = 0; d < p->head_dim; d++) sum += (double)q[d] * k[d];
    sum *= p->scale;
    return p->softcap > 0 ? p->softcap * tanh(sum / p->softcap) : sum;
}

/* One query: keys first .. end-1 join what it has got. */
static void merge_row(const sluice_attention_params *p, int b, int h, int i, int first, int end,
                      sluice_strided q, sluice_strided k, sluice_strided v, float *o, float *lse,
                      float *share) {
    int kv = h / (p->num_heads / p->num_kv_heads);
    int64_t at = sluice__attention_row(p, b, h, i);
    double old = lse[at], top = old, sum = 0;
    const float *query = sluice__strided_at(&q, b, i, h);
    for (int j = first; j < end; j++)
        top = fmax(top, score_of(p, query, sluice__strided_at(&k, b, j, kv)));
    if (top == -INFINITY) return;
    double weight = exp(old - top);
    float *out = o + (((int64_t)b * p->q_len + i) * p->num_heads + h) * p->head_dim;
    double merged[SLUICE__ATTENTION_MAX_HEAD_DIM], zero = 0;
    for (int d = 0; d < p->head_dim; d++) merged[d] = weight * out[d];
    sum = weight;
    for (int j = first; j < end; j++) {
        double e = exp(score_of(p, query, sluice__strided_at(&k, b, j, kv)) - top);
        const float *value = sluice__strided_at(&v, b, j, kv);
        if (j == 0) zero = e;
        sum += e;
        for (int d = 0; d < p->head_dim; d++) merged[d] += e * value[d];
    }
    for (int d = 0; d < p->head_dim; d++) out[d] = (float)(merged[d] / sum);
    lse[at] = (float)(top + log(sum));
    if (share) share[at] = (float)(zero / sum);
}

static sluice_strided with_heads(sluice_strided s, int head_dim) {
    if (!s.stride_head) s.stride_head = head_dim;
    return s;
}

void sluice__keep_first_keys(const sluice_attention_params *p, int keep, sluice_strided q,
                             sluice_strided k, sluice_strided v, float *o, float *lse,
                             float *share) {
    q = with_heads(q, p->head_dim);
    k = with_heads(k, p->head_dim);
    v = with_heads(v, p->head_dim);
    int64_t items = (int64_t)p->batch * p->num_heads;
#pragma omp parallel for schedule(static) if (!omp_in_parallel())
    for (int64_t item = 0; item < items; item++) {
        int b = (int)(item / p->num_heads), h = (int)(item % p->num_heads);
        for (int i = 0; i < p->q_len; i++) {
            int first, last, start = p->key_start ? p->key_start[(int64_t)b * p->q_len + i] : 0;
            sluice__attention_range(p, b, i, &first, &last);
            int end = start + keep < first ? start + keep : first;
            if (end > start) merge_row(p, b, h, i, start, end, q, k, v, o, lse, share);
        }
    }
}
