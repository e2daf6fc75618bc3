/* SPDX-License-Identifier: Apache-2.0 */
/* The attention map in blocks of queries, for measures that need every weight but not all of them
 * at once: scores by one matrix product a head, softmax row by row, entropy from the sums that
 * softmax has anyway. Memory is heads x rows x keys. */
#include "base/error.h"
#include "kernels/attention.h"
#include "kernels/ops.h"
#include "kernels/parallel.h"
#include "layers/probing.h"
#include <math.h>

enum { BLOCK_ROWS = 64, BLOCK_FLOATS = 1 << 24 };

typedef struct block {
    const sluice_attention_params *p;
    int keep, b, first, rows, keys; /* queries first .. first+rows-1, keys 0 .. keys-1 */
    sluice_strided q, k;
    float *probs, *entropy; /* [H, rows, keys], [H, rows] */
} block;

/* s[begin..end) = exp(s - top), added to *sum, and (s - top) weighted by it to *moment. */
static void exponentiate(float *s, int begin, int end, float top, double *sum, double *moment) {
    double total = 0, weighted = 0;
    for (int j = begin; j < end; j++) {
        float below = s[j] - top, e = expf(below);
        total += e;
        if (e > 0) weighted += (double)e * below;
        s[j] = e;
    }
    *sum += total;
    *moment += weighted;
}

/* Scores of one query become weights over the keys it sees; returns the entropy. */
static float softmax_row(const block *w, int h, int i, float *s) {
    const sluice_attention_params *p = w->p;
    int first, last, start = p->key_start ? p->key_start[(int64_t)w->b * p->q_len + i] : 0;
    sluice__attention_range(p, w->b, i, &first, &last);
    int kept = start + w->keep < first ? start + w->keep : first;
    float top = p->sinks ? p->sinks[h] : -INFINITY;
    if (p->softcap > 0)
        for (int j = 0; j <= last; j++) s[j] = p->softcap * tanhf(s[j] / p->softcap);
    for (int j = start; j <= last; j++)
        if ((j < kept || j >= first) && s[j] > top) top = s[j];
    double sum = 0, moment = 0;
    if (p->sinks) {
        sum = exp((double)p->sinks[h] - top);
        moment = sum * ((double)p->sinks[h] - top);
    }
    for (int j = 0; j < start; j++) s[j] = 0;
    exponentiate(s, start, kept, top, &sum, &moment);
    for (int j = kept > start ? kept : start; j < first; j++) s[j] = 0;
    exponentiate(s, first, last + 1, top, &sum, &moment);
    for (int j = last + 1; j < w->keys; j++) s[j] = 0;
    float scale = (float)(1.0 / sum);
    for (int j = 0; j <= last; j++) s[j] *= scale;
    return (float)(log(sum) - moment / sum);
}

static void head_rows(const block *w, int h) {
    const sluice_attention_params *p = w->p;
    int kv = h / (p->num_heads / p->num_kv_heads);
    float *s = w->probs + (int64_t)h * w->rows * w->keys;
    sluice__gemm_f32(false, true, w->rows, w->keys, p->head_dim, p->scale,
                     sluice__strided_at(&w->q, w->b, w->first, h), w->q.stride_token,
                     sluice__strided_at(&w->k, w->b, 0, kv), w->k.stride_token, 0.0f, s, w->keys);
    for (int r = 0; r < w->rows; r++)
        w->entropy[(int64_t)h * w->rows + r] =
            softmax_row(w, h, w->first + r, s + (int64_t)r * w->keys);
}

static sluice_status emit_block(const sluice__pass *pass, int layer, const block *w) {
    int heads = w->p->num_heads;
#pragma omp parallel for schedule(dynamic) if (!omp_in_parallel())
    for (int h = 0; h < heads; h++) head_rows(w, h);
    sluice__probe_event event = {.point = SLUICE__PROBE_ATTN_ROWS,
                                 .layer = layer,
                                 .data = w->probs,
                                 .ndim = 3,
                                 .shape = {heads, w->rows, w->keys},
                                 .batch_row = w->b,
                                 .first_query = w->first,
                                 .entropy = w->entropy};
    return pass->probe->on(pass->probe->user, &event, pass->err);
}

sluice_status sluice__probe_rows(const sluice__pass *pass, int layer,
                                 const sluice_attention_params *p, int keep, sluice_strided q,
                                 sluice_strided k) {
    if (!sluice__probe_wants(pass, SLUICE__PROBE_ATTN_ROWS)) return SLUICE_OK;
    if (!q.stride_head) q.stride_head = p->head_dim;
    if (!k.stride_head) k.stride_head = p->head_dim;
    int64_t fit = BLOCK_FLOATS / ((int64_t)p->num_heads * p->kv_len);
    int rows = fit < 1 ? 1 : fit < BLOCK_ROWS ? (int)fit : BLOCK_ROWS;
    if (rows > p->q_len) rows = p->q_len;
    int64_t most = (int64_t)p->num_heads * rows * p->kv_len;
    float *probs =
        sluice__probe_scratch(pass, SLUICE__PROBE_MISC, most + (int64_t)p->num_heads * rows);
    if (!probs) return SLUICE_ERR_MEMORY;
    for (int b = 0; b < p->batch; b++)
        for (int first = 0; first < p->q_len; first += rows) {
            int n = p->q_len - first < rows ? p->q_len - first : rows;
            block w = {p, keep, b,     first,       n, p->kv_len - p->q_len + first + n,
                       q, k,    probs, probs + most};
            SLUICE__TRY(emit_block(pass, layer, &w));
        }
    return SLUICE_OK;
}
