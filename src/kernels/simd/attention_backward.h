/* SPDX-License-Identifier: Apache-2.0 */
/* Backward attention of a block of keys of one head against all queries that see them; body for one
 * tile_<isa>.h.
 *
 * Keys are lanes. K^T and V^T of the block are packed once; for each block of queries the shares are
 * recomputed from the saved log-sum-exp, and with D = row_sum (Dao 2023, algorithm 2):
 *
 *   P = exp(S - lse)    dS = P * (dO V^T - D)    dV += P^T dO    dK += dS^T Q    dQ += dS K
 *
 * dK and dV stay in scratch until the block is done; dQ is added up over blocks in the caller's
 * buffer. So five products per pair of blocks, no pass over memory but those of the operands, and a
 * fixed order of every sum. */
#ifndef SLUICE_KERNELS_SIMD_ATTENTION_BACKWARD_H
#define SLUICE_KERNELS_SIMD_ATTENTION_BACKWARD_H
#include <string.h>
#include "kernels/attention.h"
#include "kernels/simd/tile_gemm.h"

enum { BACK_KEYS = SLUICE__ATTENTION_BACK_KEYS, BACK_QUERIES = SLUICE__ATTENTION_BACK_QUERIES };

typedef struct key_block {
    const sluice__attention_call *c;
    const sluice__attention_work *w;
    int b, begin, end;     /* keys */
    int ahead;             /* position of query 0 less `begin`: query i sees lanes 0..i + ahead */
    int64_t stride, lanes; /* of rows in w; keys rounded up to whole vectors */
    float *kt, *vt;        /* [head_dim, BACK_KEYS], keys as lanes */
    float *k, *dk, *dv;    /* [BACK_KEYS, stride]; k to be summed over keys */
    float *p, *ds;         /* [BACK_QUERIES, BACK_KEYS] shares and gradients of scores; in the end to be summed over queries */
    float *ds_along;       /* ds to be summed over keys */
    int64_t line;          /* distance of rows of q and dout in w, in floats */
} key_block;

static key_block key_block_begin(const sluice__attention_call *c, int b, int h, int begin, int end,
                                 const sluice__attention_work *w, float *scratch) {
    int64_t size = BACK_KEYS * w->stride, keys = end - begin;
    int kv = h / (c->p.num_heads / c->p.num_kv_heads);
    key_block x = {.c = c,
                   .w = w,
                   .b = b,
                   .begin = begin,
                   .end = end,
                   .stride = w->stride,
                   .line = w->stride / TILE_NUMBERS,
                   .lanes = vec_up(keys)};
    x.ahead = c->p.kv_len - c->p.q_len - begin;
    x.kt = scratch;
    x.vt = x.kt + size;
    x.k = x.vt + size;
    x.dk = x.k + size;
    x.dv = x.dk + size;
    x.p = x.dv + size;
    x.ds = x.p + BACK_QUERIES * BACK_KEYS;
    x.ds_along = TILE_NUMBERS > 1 ? x.ds + BACK_QUERIES * BACK_KEYS : x.ds;
    const float *k = sluice__strided_at(&c->k, b, begin, kv),
                *v = sluice__strided_at(&c->v, b, begin, kv);
    tile_pack_lanes(x.kt, BACK_KEYS, k, c->k.stride_token, keys, c->p.head_dim, 1.0f);
    tile_pack_lanes(x.vt, BACK_KEYS, v, c->v.stride_token, keys, c->p.head_dim, 1.0f);
    tile_pack_down(x.k, w->stride, k, c->k.stride_token, keys, c->p.head_dim);
    memset(x.dk, 0, (size_t)(keys * w->stride) * sizeof *x.dk);
    memset(x.dv, 0, (size_t)(keys * w->stride) * sizeof *x.dv);
    return x;
}

/* First of `count` queries from `query` on that sees lane `lane` or a later one. */
static int first_row(const key_block *x, int query, int count, int64_t lane) {
    int64_t row = lane - x->ahead - query;
    return row < 0 ? 0 : row > count ? count : (int)row;
}

/* to[i, lane] = sum_d rows[i, d] columns[d, lane] of the queries that see the lane; nothing is
 * written above the diagonal. */
static void product_below_diagonal(const key_block *x, int query, int count, const float *rows,
                                   const float *columns, float *to) {
    for (int64_t lane = 0; lane < x->lanes; lane += 2 * VEC) {
        int64_t left = x->lanes - lane;
        int one = first_row(x, query, count, lane),
            two = left > VEC ? first_row(x, query, count, lane + VEC) : count;
        float *c = to + one * BACK_KEYS + lane;
        tile_gemm_rows(two - one, VEC, tile_lines(x->c->p.head_dim), rows + one * x->line, x->line,
                       columns + lane, BACK_KEYS, (tile_target){c, BACK_KEYS, TILE_ZERO, NULL});
        c = to + two * BACK_KEYS + lane;
        tile_gemm_rows(count - two, 2 * VEC, tile_lines(x->c->p.head_dim), rows + two * x->line, x->line,
                       columns + lane, BACK_KEYS, (tile_target){c, BACK_KEYS, TILE_ZERO, NULL});
    }
}

/* Scores to shares, gradients of shares to gradients of scores, of one vector of one row. */
VEC_INLINE void share_piece(const sluice_attention_params *p, float *ps, float *ds, vec shift,
                            vec row_sum, bool masked, ivec key, ivec first, ivec last) {
    vec s = vec_mul(vec_load(ps), vec_set(tile_scale_after(p->scale))), slope = vec_set(1.0f);
    if (p->softcap > 0.0f) {
        vec t = vec_tanh(vec_div(s, vec_set(p->softcap)));
        s = vec_mul(vec_set(p->softcap), t);
        slope = vec_fnma(t, t, slope);
    }
    vec share = tile_exp(vec_sub(s, shift)), d = vec_mul(share, vec_sub(vec_load(ds), row_sum));
    if (p->softcap > 0.0f) d = vec_mul(d, slope);
    if (masked) {
        vec_mask seen = ivec_between(key, first, last);
        share = vec_keep(seen, share);
        d = vec_keep(seen, d);
    }
    vec_store(ps, tile_rounded(share, p->bf16));
    vec_store(ds, tile_rounded(d, p->bf16));
}

/* The row of query i; vectors beyond its last key, which were not computed, become zero. */
static void share_row(const key_block *x, int i, float *ps, float *ds) {
    int first, last;
    sluice__attention_range(&x->c->p, x->b, i, &first, &last);
    first -= x->begin;
    last -= x->begin;
    vec shift = vec_set(x->w->shift[i]), row_sum = vec_set(x->w->row_sum[i]);
    int64_t lane = 0;
    for (; lane < x->lanes && lane <= last; lane += VEC) {
        bool masked = lane < first || lane + VEC - 1 > last;
        share_piece(&x->c->p, ps + lane, ds + lane, shift, row_sum, masked,
                    ivec_add(ivec_count(), ivec_set((int32_t)lane)), ivec_set(first),
                    ivec_set(last));
    }
    for (; lane < x->lanes; lane += VEC) {
        vec_store(ps + lane, vec_zero());
        vec_store(ds + lane, vec_zero());
    }
}

/* dk and dv of TILE_ROWS keys at a time, from the queries that see the first of them on. */
static void add_key_gradients(const key_block *x, int query, int count) {
    int64_t keys = x->end - x->begin;
    const float *q = (TILE_NUMBERS > 1 ? x->w->q_down : x->w->q) + tile_line_at(query) * x->stride,
                *dout = (TILE_NUMBERS > 1 ? x->w->dout_down : x->w->dout) + tile_line_at(query) * x->stride;
    for (int64_t j = 0; j < keys; j += TILE_ROWS) {
        int64_t rows = keys - j < TILE_ROWS ? keys - j : TILE_ROWS;
        int64_t from = tile_line_at(first_row(x, query, count, j)), lines = tile_lines(count) - from;
        int64_t at = from * BACK_KEYS + j, skip = from * x->stride;
        tile_gemm_columns(rows, x->stride, lines, x->p + at, BACK_KEYS, dout + skip,
                          x->stride,
                          (tile_target){x->dv + j * x->stride, x->stride, TILE_ADD, NULL});
        tile_gemm_columns(rows, x->stride, lines, x->ds + at, BACK_KEYS, q + skip, x->stride,
                          (tile_target){x->dk + j * x->stride, x->stride, TILE_ADD, NULL});
    }
}

/* dq of TILE_ROWS queries at a time, from the keys up to the last that they see. */
static void add_query_gradients(const key_block *x, int query, int count, float *dq) {
    int64_t keys = x->end - x->begin;
    for (int i = 0; i < count; i += TILE_ROWS) {
        int rows = count - i < TILE_ROWS ? count - i : TILE_ROWS;
        int64_t seen = (int64_t)query + i + rows + x->ahead;
        tile_gemm_rows(rows, x->stride, tile_lines(seen < keys ? seen : keys),
                       x->ds_along + i * tile_line_at(BACK_KEYS), tile_line_at(BACK_KEYS),
                       x->k, x->stride,
                       (tile_target){dq + (query + i) * x->stride, x->stride, TILE_ADD, NULL});
    }
}

/* Shares and gradients as factors: of bf16 numbers, two queries or two keys to a float. Pairs of
 * queries take the place of their rows. */
static void pack_shares(const key_block *x, int count) {
    tile_pack_along(x->ds_along, tile_line_at(BACK_KEYS), x->ds, BACK_KEYS, count, x->lanes);
    tile_pack_down(x->p, BACK_KEYS, x->p, BACK_KEYS, count, x->lanes);
    tile_pack_down(x->ds, BACK_KEYS, x->ds, BACK_KEYS, count, x->lanes);
}

/* True when one of the queries sees a key of the block. */
static bool block_is_seen(const key_block *x, int query, int count) {
    for (int i = query; i < query + count; i++) {
        int first, last;
        sluice__attention_range(&x->c->p, x->b, i, &first, &last);
        if (first < x->end && last >= x->begin) return true;
    }
    return false;
}

static void query_block(const key_block *x, int query, int count, float *dq) {
    if (!block_is_seen(x, query, count)) return;
    product_below_diagonal(x, query, count, x->w->q + query * x->line, x->kt, x->p);
    product_below_diagonal(x, query, count, x->w->dout + query * x->line, x->vt, x->ds);
    for (int i = 0; i < count; i++)
        share_row(x, query + i, x->p + i * BACK_KEYS, x->ds + i * BACK_KEYS);
    if (TILE_NUMBERS > 1) pack_shares(x, count);
    add_key_gradients(x, query, count);
    add_query_gradients(x, query, count, dq);
}

void VEC_KERNEL(attention_backward_f32)(const sluice__attention_call *c, int b, int h, int begin,
                                        int end, const sluice__attention_work *w, float *dq,
                                        float *scratch) {
    key_block x = key_block_begin(c, b, h, begin, end, w, scratch);
    int group = c->p.num_heads / c->p.num_kv_heads, query = x.ahead < 0 ? -x.ahead : 0;
    query = (int)tile_line_at(query) * TILE_NUMBERS;
    for (; query < c->p.q_len; query += BACK_QUERIES) {
        int left = c->p.q_len - query;
        query_block(&x, query, left < BACK_QUERIES ? left : BACK_QUERIES, dq);
    }
    bool add = h % group != 0;
    float *dk = sluice__strided_at(&c->dk, b, begin, h / group),
          *dv = sluice__strided_at(&c->dv, b, begin, h / group);
    tile_unpack_rows(dk, c->dk.stride_token, x.dk, w->stride, end - begin, c->p.head_dim,
                     tile_scale_after(c->p.scale), add);
    tile_unpack_rows(dv, c->dv.stride_token, x.dv, w->stride, end - begin, c->p.head_dim, 1.0f, add);
}
#endif
