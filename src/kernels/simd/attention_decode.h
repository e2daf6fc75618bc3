/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of a few queries (decoding) over a range of keys, and the sum of such ranges; body for
 * one tile_<isa>.h.
 *
 * With few queries there is nothing to hide the reading of K and V behind, so both are read once,
 * row after row, for all query heads that share them; lanes run along the head. Ranges of keys are
 * independent (split softmax, as in flash decoding), so that one long sequence keeps all cores
 * busy. */
#ifndef SLUICE_KERNELS_SIMD_ATTENTION_DECODE_H
#define SLUICE_KERNELS_SIMD_ATTENTION_DECODE_H
#include <string.h>
#include "kernels/attention.h"
#include "kernels/simd/attention_write.h"
#include "kernels/simd/tile_gemm.h"
#include "kernels/simd/tile_rows.h"

enum {
    DECODE_KEYS = SLUICE__ATTENTION_DECODE_KEYS,
    AXPY_KEYS = 8
};

/* s[0..7] = q . k of 8 keys. */
static void dot_keys8(float *s, const float *q, const float *k, int64_t stride, int dim) {
    const float *k4 = k + 4 * stride;
    vec x = vec_load_n(q, dim < VEC ? dim : VEC), acc[8];
    int d = 0;
    for (int j = 0; j < 8; j++) acc[j] = vec_zero();
    for (; d + VEC <= dim; d += VEC, k += VEC, k4 += VEC) {
        x = vec_load(q + d);
        TILE_UNROLL
        for (int j = 0; j < 4; j++) {
            acc[j] = vec_fma(x, vec_load(k + j * stride), acc[j]);
            acc[j + 4] = vec_fma(x, vec_load(k4 + j * stride), acc[j + 4]);
        }
    }
    if (d < dim) {
        x = vec_load_n(q + d, dim - d);
        for (int j = 0; j < 8; j++)
            acc[j] = vec_fma(x, vec_load_n(k + j * stride, dim - d), acc[j]);
    }
    vec_sums8(s, acc);
}

static float dot_key(const float *q, const float *k, int dim) {
    vec sum = vec_zero();
    for (int d = 0; d < dim; d += VEC) {
        int n = dim - d < VEC ? dim - d : VEC;
        sum = vec_fma(vec_load_n(q + d, n), vec_load_n(k + d, n), sum);
    }
    return vec_sum(sum);
}

/* o += sum over AXPY_KEYS keys of p[j] * v[j]. */
static void add_values(float *o, const float *p, const float *v, int64_t stride, int dim) {
    vec share[AXPY_KEYS];
    for (int j = 0; j < AXPY_KEYS; j++) share[j] = vec_set(p[j]);
    int d = 0;
    for (; d + VEC <= dim; d += VEC) {
        vec even = vec_mul(share[0], vec_load(v + d));
        vec odd = vec_mul(share[1], vec_load(v + stride + d));
        for (int j = 2; j < AXPY_KEYS; j += 2) {
            even = vec_fma(share[j], vec_load(v + j * stride + d), even);
            odd = vec_fma(share[j + 1], vec_load(v + (j + 1) * stride + d), odd);
        }
        vec_store(o + d, vec_add(vec_load(o + d), vec_add(even, odd)));
    }
    if (d == dim) return;
    vec sum = vec_zero();
    for (int j = 0; j < AXPY_KEYS; j++)
        sum = vec_fma(share[j], vec_load_n(v + j * stride + d, dim - d), sum);
    vec_store_n(o + d, vec_add(vec_load_n(o + d, dim - d), sum), dim - d);
}

static void add_value(float *o, float p, const float *v, int dim) {
    for (int d = 0; d < dim; d += VEC) {
        int n = dim - d < VEC ? dim - d : VEC;
        vec_store_n(o + d, vec_fma(vec_set(p), vec_load_n(v + d, n), vec_load_n(o + d, n)), n);
    }
}

/* Raw products to scores of keys key..key+VEC-1: scale, softcap, mask. */
VEC_INLINE vec finish_scores(const sluice_attention_params *p, vec s, int key, int first,
                             int last) {
    s = vec_mul(s, vec_set(p->scale));
    if (p->softcap > 0.0f)
        s = vec_mul(vec_set(p->softcap), vec_tanh(vec_div(s, vec_set(p->softcap))));
    vec_mask seen =
        ivec_between(ivec_add(ivec_count(), ivec_set(key)), ivec_set(first), ivec_set(last));
    return vec_select(seen, s, vec_set(-INFINITY));
}

/* The scores s of a block of `count` keys become exp(s - top); *top and *sum move on, o is rescaled
 * to the new top. */
static void decode_softmax(float *s, int count, float *top, float *sum, float *o, int dim) {
    vec most = vec_set(*top), total = vec_zero();
    for (int j = 0; j < count; j += VEC) most = vec_max(most, vec_load(s + j));
    float now = vec_reduce_max(most), base = now == -INFINITY ? 0.0f : now, fix[VEC];
    for (int j = 0; j < count; j += VEC) {
        vec e = tile_exp(vec_sub(vec_load(s + j), vec_set(base)));
        total = vec_add(total, e);
        vec_store(s + j, e);
    }
    vec_store(fix, tile_exp(vec_sub(vec_set(*top), vec_set(base))));
    *sum = *sum * fix[0] + vec_sum(total);
    *top = now;
    if (fix[0] == 1.0f) return;
    for (int d = 0; d < dim; d += VEC) {
        int n = dim - d < VEC ? dim - d : VEC;
        vec_store_n(o + d, vec_mul(vec_load_n(o + d, n), vec_set(fix[0])), n);
    }
}

/* A tile of keys for all rows. K and V are walked in short pieces that stay in the first-level
 * cache while every row uses them. */
typedef struct decode_tile {
    const sluice__attention_call *c;
    const sluice__attention_part *w;
    int b, kv, rows, begin, end; /* keys */
    float *scores;               /* [rows, DECODE_KEYS] */
    bool prefetch, first;        /* first: nobody has asked for its keys */
} decode_tile;

/* Asks for rows key..key+7 (below `most`) that are needed half a tile later, so that memory works
 * while the core computes: up to twice as fast from memory. Inline, because gcc takes a function of
 * mere prefetches for one without effect and drops the call. */
VEC_INLINE void prefetch_rows(const decode_tile *t, const sluice_strided *x, int key, int most) {
    for (int j = key; t->prefetch && j < key + 8 && j < most; j++)
        for (int d = 0; d < t->c->p.head_dim; d += 16)
            __builtin_prefetch(sluice__strided_at(x, t->b, j, t->kv) + d, 0, 2);
}

/* Products of all rows with keys of the tile, 8 keys at a time. */
static void tile_products(const decode_tile *t) {
    const sluice_attention_params *p = &t->c->p;
    int64_t stride = t->c->k.stride_token;
    for (int key = t->begin; key < t->end; key += 8) {
        const float *k = sluice__strided_at(&t->c->k, t->b, key, t->kv);
        if (t->first) prefetch_rows(t, &t->c->k, key + 16, t->end);
        prefetch_rows(t, &t->c->v, key, t->end);
        for (int r = 0; r < t->rows; r++) {
            const float *q = sluice__strided_at(&t->c->q, t->b, r % p->q_len,
                                                t->kv * (t->rows / p->q_len) + r / p->q_len);
            float *s = t->scores + r * DECODE_KEYS + key - t->begin;
            if (t->end - key >= 8)
                dot_keys8(s, q, k, stride, p->head_dim);
            else
                for (int j = 0; j < t->end - key; j++)
                    s[j] = dot_key(q, k + j * stride, p->head_dim);
        }
    }
}

/* Products to weights exp(score - top) of all rows. */
static void tile_softmax(const decode_tile *t) {
    const sluice_attention_params *p = &t->c->p;
    int count = (t->end - t->begin + VEC - 1) / VEC * VEC;
    for (int r = 0; r < t->rows; r++) {
        float *s = t->scores + r * DECODE_KEYS;
        int first, last;
        sluice__attention_range(p, t->b, r % p->q_len, &first, &last);
        if (last >= t->end)
            last = t->end - 1; /* what stands behind the tile's last key is from earlier tiles */
        for (int j = 0; j < count; j += VEC)
            vec_store(s + j, finish_scores(p, vec_load(s + j), t->begin + j, first, last));
        if (t->begin == 0) t->w->score0[r] = s[0];
        decode_softmax(s, count, &t->w->top[r], &t->w->sum[r], t->w->out + r * t->w->stride,
                       p->head_dim);
    }
}

static void tile_values(const decode_tile *t) {
    int64_t stride = t->c->v.stride_token;
    int dim = t->c->p.head_dim, key = t->begin;
    for (; key + AXPY_KEYS <= t->end; key += AXPY_KEYS) {
        const float *v = sluice__strided_at(&t->c->v, t->b, key, t->kv);
        prefetch_rows(t, &t->c->k, key + DECODE_KEYS, t->c->p.kv_len);
        for (int r = 0; r < t->rows; r++)
            add_values(t->w->out + r * t->w->stride, t->scores + r * DECODE_KEYS + key - t->begin,
                       v, stride, dim);
    }
    for (; key < t->end; key++)
        for (int r = 0; r < t->rows; r++)
            add_value(t->w->out + r * t->w->stride, t->scores[r * DECODE_KEYS + key - t->begin],
                      sluice__strided_at(&t->c->v, t->b, key, t->kv), dim);
}

void VEC_KERNEL(attention_partial_f32)(const sluice__attention_call *c, int b, int kv, int begin,
                                       int end, const sluice__attention_part *w, float *scratch) {
    int rows = c->p.num_heads / c->p.num_kv_heads * c->p.q_len;
    for (int r = 0; r < rows; r++) {
        w->top[r] = w->score0[r] = -INFINITY;
        w->sum[r] = 0.0f;
    }
    bool far = !c->typed_k.data /* else just widened */ && sluice__attention_is_far(&c->p, c->p.kv_len);
    memset(w->out, 0, (size_t)(rows * w->stride) * sizeof *w->out);
    for (int key = begin; key < end; key += DECODE_KEYS) {
        decode_tile t = {.c = c, .w = w, .b = b, .kv = kv, .rows = rows, .begin = key};
        t.end = key + DECODE_KEYS < end ? key + DECODE_KEYS : end;
        t.scores = scratch;
        t.prefetch = far;
        t.first = key == begin;
        tile_products(&t);
        tile_softmax(&t);
        tile_values(&t);
    }
}

/* What a row's parts come to: their common maximum, the same or 0 for -inf, and the sum of weights
 * exp(score - base), sink included. Parts that saw nothing have weight 0; a NaN in one of them
 * survives the product with it. */
typedef struct row_total {
    float top, base, sum, score0;
} row_total;

static float exp_of(float x) {
    float y[VEC];
    vec_store(y, tile_exp(vec_set(x)));
    return y[0];
}

static row_total total_of(const sluice__attention_part *w, int parts, int64_t part_size,
                          int64_t row, const float *sink) {
    const float *top = w->top + row, *sum = w->sum + row, *score0 = w->score0 + row;
    row_total t = {.top = sink ? *sink : -INFINITY, .score0 = -INFINITY};
    for (int64_t at = 0; at < parts * part_size; at += part_size)
        if (!(top[at] <= t.top)) t.top = top[at]; /* NaN wins */
    t.base = t.top == -INFINITY ? 0.0f : t.top;
    if (sink) t.sum = exp_of(*sink - t.base);
    for (int64_t at = 0; at < parts * part_size; at += part_size) {
        t.sum += sum[at] * exp_of(top[at] - t.base);
        if (score0[at] != -INFINITY) t.score0 = score0[at];
    }
    return t;
}

/* Sums of a row: lse and first_share. Returns 1 / sum. */
static float merge_sums(const sluice__attention_call *c, row_total t, int64_t at) {
    float inverse = t.sum == 0.0f ? 0.0f : 1.0f / t.sum, log_sum[VEC];
    vec_store(log_sum, tile_log(vec_set(t.sum)));
    if (c->lse) c->lse[at] = t.top + log_sum[0];
    if (c->first_share)
        c->first_share[at] = t.score0 == -INFINITY ? 0.0f : exp_of(t.score0 - t.base) * inverse;
    return inverse;
}

static void merge_row(const sluice__attention_call *c, int b, int h, int i,
                      const sluice__attention_part *w, int parts, int64_t part_size, int64_t row) {
    const sluice_attention_params *p = &c->p;
    row_total t = total_of(w, parts, part_size, row, p->sinks ? &p->sinks[h] : NULL);
    float inverse = merge_sums(c, t, sluice__attention_row(p, b, h, i)), g[VEC];
    head_gates(c, b, h, i, 1, g);
    out_row to = out_row_at(c, b, h, i, g[0]);
    float total[SLUICE__ATTENTION_MAX_HEAD_DIM];
    for (int d = 0; d < p->head_dim; d += VEC) vec_store(total + d, vec_zero());
    for (int64_t at = 0; at < parts * part_size; at += part_size) {
        vec weight = vec_set(exp_of(w->top[row + at] - t.base));
        const float *out = w->out + at + row * w->stride;
        for (int d = 0; d < p->head_dim; d += VEC)
            vec_store(total + d, vec_fma(weight, vec_load(out + d), vec_load(total + d)));
    }
    for (int d = 0; d < p->head_dim; d += VEC)
        write_piece(p, &to, d, p->head_dim - d < VEC ? p->head_dim - d : VEC,
                    vec_mul(vec_load(total + d), vec_set(inverse)));
}

void VEC_KERNEL(attention_merge_f32)(const sluice__attention_call *c, int b, int kv,
                                     const sluice__attention_part *w, int parts, int64_t part_size,
                                     float *scratch) {
    (void)scratch;
    int group = c->p.num_heads / c->p.num_kv_heads;
    for (int r = 0; r < group * c->p.q_len; r++)
        merge_row(c, b, kv * group + r / c->p.q_len, r % c->p.q_len, w, parts, part_size, r);
}
#endif
