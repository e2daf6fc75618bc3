/* SPDX-License-Identifier: Apache-2.0 */
/* Forward attention of a block of queries of one head, written in the words of x86/tile_<isa>.h.
 *
 * Queries are lanes. A panel is 2 vectors of queries; for each tile of keys it computes S^T [key,
 * query] = K Q^T, updates the running maximum and sum of each query lane by lane (online softmax,
 * Milakov & Gimelshein 2018), and adds V^T P^T to O^T [dim, query]. So K and V are read where they
 * lie (but for tile_along and tile_down), softmax needs no sum across a vector, and what
 * has to be transposed is only Q on the way in and O on the way out, where the gate is applied. */
#ifndef SLUICE_KERNELS_SIMD_ATTENTION_FORWARD_H
#define SLUICE_KERNELS_SIMD_ATTENTION_FORWARD_H
#include "kernels/attention.h"
#include "kernels/simd/attention_write.h"
#include "kernels/simd/tile_gemm.h"

enum { PANEL = 2 * VEC, PANELS = SLUICE__ATTENTION_QUERIES / PANEL, KEYS = SLUICE__ATTENTION_KEYS };

/* Range of keys of the lanes of one vector: first..last seen by some lane, all_first..all_last by
 * every lane. */
typedef struct lane_range {
    int first, last, all_first, all_last;
} lane_range;

typedef struct panel {
    float *q, *o;                 /* [head_dim, PANEL] each: queries (scaled, if they are floats), unnormalised output */
    float top[PANEL], sum[PANEL]; /* running maximum and sum of exp(score - top) */
    float fix[PANEL];             /* exp(old top - new top) */
    float score0[PANEL];          /* score of key 0, -inf where not seen */
    int32_t first[PANEL], last[PANEL];
    lane_range range[2];
    int count, vectors; /* queries, and vectors that hold them; further lanes repeat the last one's
                           range */
    bool started;       /* o holds something */
} panel;

/* The block: what all its panels share. */
typedef struct forward_block {
    const sluice__attention_call *c;
    int b, h, kv;           /* batch row, head, key/value head */
    float *scores;          /* [KEYS, PANEL] */
    float *k_room, *v_room; /* of a tile, where it is packed */
    int64_t room;           /* distance of lines of V there, and numbers in a line of K */
    int tile;               /* first key of the tile */
    tile_factor k, v;       /* the tile */
    float scale;            /* that scores still need */
} forward_block;

static lane_range range_of(const int32_t *first, const int32_t *last) {
    lane_range r = {first[0], last[0], first[0], last[0]};
    for (int i = 1; i < VEC; i++) {
        r.first = first[i] < r.first ? first[i] : r.first;
        r.all_first = first[i] > r.all_first ? first[i] : r.all_first;
    }
    r.last = last[VEC - 1]; /* a query stands behind the one before it */
    return r;
}

static void set_ranges(panel *w, const forward_block *f, int begin) {
    const sluice_attention_params *p = &f->c->p;
    for (int i = 0; i < PANEL; i++) {
        int first, last;
        sluice__attention_range(p, f->b, begin + (i < w->count ? i : w->count - 1), &first, &last);
        w->first[i] = first;
        w->last[i] = last;
    }
    for (int v = 0; v < 2; v++) w->range[v] = range_of(w->first + v * VEC, w->last + v * VEC);
}

static void panel_begin(panel *w, const forward_block *f, int begin, int count) {
    const sluice_attention_params *p = &f->c->p;
    w->count = count;
    w->vectors = count > VEC ? 2 : 1;
    w->started = false;
    set_ranges(w, f, begin);
    tile_pack_lanes(w->q, PANEL, sluice__strided_at(&f->c->q, f->b, begin, f->h),
                    f->c->q.stride_token, count, p->head_dim, tile_scale_before(p->scale));
    vec top = vec_set(p->sinks ? p->sinks[f->h] : -INFINITY), sum = vec_set(p->sinks ? 1.0f : 0.0f);
    for (int v = 0; v < PANEL; v += VEC) {
        vec_store(w->top + v, top);
        vec_store(w->sum + v, sum);
        vec_store(w->score0 + v, vec_set(-INFINITY));
    }
}

/* Scale, softcap and mask of scores s [count, PANEL] of one vector of lanes, keys from `key` on. */
static void adjust_scores(const panel *w, const forward_block *f, float *s, int key, int count,
                          int v, bool masked) {
    const sluice_attention_params *p = &f->c->p;
    vec scale = vec_set(f->scale);
    ivec first = ivec_load(w->first + v), last = ivec_load(w->last + v);
    vec cap = vec_set(p->softcap), inverse = vec_set(p->softcap > 0.0f ? 1.0f / p->softcap : 0.0f);
    for (int j = 0; j < count; j++) {
        vec x = vec_mul(vec_load(s + j * PANEL), scale);
        if (p->softcap > 0.0f) x = vec_mul(cap, vec_tanh(vec_mul(x, inverse)));
        if (masked)
            x = vec_select(ivec_between(ivec_set(key + j), first, last), x, vec_set(-INFINITY));
        vec_store(s + j * PANEL, x);
    }
}

/* Largest of s [count, PANEL], lane by lane; four chains hide the latency. */
VEC_INLINE vec largest_score(const float *s, int count) {
    vec start = vec_set(-INFINITY), a = start, b = start, c = start, d = start;
    int j = 0;
    for (; j + 4 <= count; j += 4) {
        a = vec_max(a, vec_load(s + j * PANEL));
        b = vec_max(b, vec_load(s + (j + 1) * PANEL));
        c = vec_max(c, vec_load(s + (j + 2) * PANEL));
        d = vec_max(d, vec_load(s + (j + 3) * PANEL));
    }
    for (; j < count; j++) a = vec_max(a, vec_load(s + j * PANEL));
    return vec_max(vec_max(a, b), vec_max(c, d));
}

/* Scores of one vector of lanes, times scale > 0, become exp(score - top); top, sum and fix move on. */
static void softmax_step(panel *w, float *s, int count, int v, float scale, bool bf16) {
    vec times = vec_set(scale), old = vec_load(w->top + v);
    vec top = vec_max(old, vec_mul(largest_score(s, count), times));
    vec base = vec_select(vec_equal(top, vec_set(-INFINITY)), vec_zero(),
                          top); /* nothing seen yet: not -inf - -inf */
    vec fix = tile_exp(vec_sub(old, base)), less = vec_neg(base);
    vec sum = vec_zero(); /* of this tile alone: small weights must not vanish beside the sum */
    for (int j = 0; j < count; j += 2) {
        bool both = j + 1 < count;
        vec one = tile_exp(vec_fma(vec_load(s + j * PANEL), times, less)), two = vec_zero();
        sum = vec_add(sum, one);
        if (both) {
            two = tile_exp(vec_fma(vec_load(s + (j + 1) * PANEL), times, less));
            sum = vec_add(sum, two);
        }
        tile_store_two(s + j / TILE_NUMBERS * PANEL, PANEL, tile_rounded(one, bf16),
                       tile_rounded(two, bf16), both);
    }
    sum = vec_fma(vec_load(w->sum + v), fix, sum);
    vec_store(w->top + v, top);
    vec_store(w->sum + v, sum);
    vec_store(w->fix + v, fix);
}

static void vector_step(panel *w, const forward_block *f, int key, int count, int v) {
    const lane_range *r = &w->range[v / VEC];
    bool masked = key < r->all_first || key + count - 1 > r->all_last,
         adjust = masked || f->c->p.softcap > 0.0f || f->scale < 0.0f;
    float *s = f->scores + v, scale = adjust ? 1.0f : f->scale;
    if (adjust) adjust_scores(w, f, s, key, count, v, masked);
    if (key == 0) vec_store(w->score0 + v, vec_mul(vec_load(s), vec_set(scale)));
    softmax_step(w, s, count, v, scale, f->c->p.bf16);
}

/* Keys begin..end-1 (at most KEYS) for the lanes of the panel that see them. Where only the second
 * vector reaches further (the diagonal), only it is computed. A query sees no fewer keys than the
 * one before it, so that is the only such place. */
static void panel_step(panel *w, const forward_block *f, int end) {
    const sluice__attention_call *c = f->c;
    const lane_range *r = w->range;
    int first = r[0].first < r[1].first ? r[0].first : r[1].first, dim = c->p.head_dim;
    int skipped = first > f->tile ? (first - f->tile) / TILE_NUMBERS : 0, begin = f->tile + skipped * TILE_NUMBERS;
    int last[2] = {r[0].last, w->vectors == 2 ? r[1].last : r[0].last};
    int both = (end <= last[0] ? end : last[0] + 1) - begin,
        second = (end <= last[1] ? end : last[1] + 1) - begin;
    if (second <= 0) return;
    if (both < 0) both = 0;
    const float *k = f->k.data + (begin - f->tile) * f->k.stride, *v = f->v.data + skipped * f->v.stride;
    float *s = f->scores;
    int64_t ks = f->k.stride, vs = f->v.stride, width = w->vectors * VEC;
    tile_gemm_rows(both, width, tile_lines(dim), k, ks, w->q, PANEL, (tile_target){s, PANEL, TILE_ZERO, NULL});
    tile_gemm_rows(second - both, VEC, tile_lines(dim), k + both * ks, ks, w->q + VEC, PANEL,
                   (tile_target){s + both * PANEL + VEC, PANEL, TILE_ZERO, NULL});
    if (both > 0) vector_step(w, f, begin, both, 0);
    if (w->vectors == 2) vector_step(w, f, begin, second, VEC);
    tile_start start = w->started ? TILE_SCALE : TILE_ZERO;
    int64_t shared = tile_lines(both), own = tile_lines(second) - shared;
    if (shared > 0)
        tile_gemm_columns(dim, width, shared, v, vs, s, PANEL,
                          (tile_target){w->o, PANEL, start, w->fix});
    if (own > 0)
        tile_gemm_columns(
            dim, VEC, own, v + shared * vs, vs, s + shared * PANEL + VEC, PANEL,
            (tile_target){w->o + VEC, PANEL, shared > 0 ? TILE_ADD : start, w->fix + VEC});
    w->started = true;
}

/* lse and share of key 0 of one vector of queries, from query `begin` on. */
static void write_sums(const panel *w, const forward_block *f, int begin, int count, int v) {
    const sluice__attention_call *c = f->c;
    int64_t row = sluice__attention_row(&c->p, f->b, f->h, begin);
    vec top = vec_load(w->top + v), sum = vec_load(w->sum + v);
    if (c->lse) vec_store_n(c->lse + row, vec_add(top, tile_log(sum)), count);
    if (!c->first_share) return;
    vec_mask none = vec_equal(sum, vec_zero());
    vec share = vec_div(tile_exp(vec_sub(vec_load(w->score0 + v), top)), sum);
    vec_store_n(c->first_share + row, vec_select(none, vec_zero(), share), count);
}

/* Rows of one vector of queries: O^T normalised lane by lane, transposed square by square, gated,
 * written. */
static void write_vector(const panel *w, const forward_block *f, int begin, int count, int v) {
    const sluice__attention_call *c = f->c;
    int dim = c->p.head_dim;
    float g[VEC];
    out_row rows[VEC];
    head_gates(c, f->b, f->h, begin, count, g);
    for (int i = 0; i < count; i++) rows[i] = out_row_at(c, f->b, f->h, begin + i, g[i]);
    vec sum = vec_load(w->sum + v);
    vec inverse = vec_select(vec_equal(sum, vec_zero()), vec_zero(), vec_div(vec_set(1.0f), sum));
    for (int d = 0; d < dim; d += VEC) {
        int n = dim - d < VEC ? dim - d : VEC;
        vec r[VEC];
        for (int i = 0; i < VEC; i++)
            r[i] = i < n ? vec_mul(vec_load(w->o + (d + i) * PANEL + v), inverse) : vec_zero();
        vec_transpose(r);
        float square[VEC * VEC];
        for (int i = 0; i < VEC; i++) vec_store(square + i * VEC, r[i]);
        for (int i = 0; i < count; i++)
            write_piece(&c->p, &rows[i], d, n, vec_load(square + i * VEC));
    }
}

static void panel_end(const panel *w, const forward_block *f, int begin) {
    for (int v = 0; v < w->count; v += VEC) {
        int count = w->count - v < VEC ? w->count - v : VEC;
        write_sums(w, f, begin + v, count, v);
        write_vector(w, f, begin + v, count, v);
    }
}

/* Keys and values from `key` on, up to `end`, as factors for `panels` panels. */
static void take_tile(forward_block *f, int key, int end, int panels) {
    const sluice__attention_call *c = f->c;
    int rows = end - key < KEYS ? end - key : KEYS, dim = c->p.head_dim;
    const float *k = sluice__strided_at(&c->k, f->b, key, f->kv), *v = sluice__strided_at(&c->v, f->b, key, f->kv);
    f->tile = key;
    f->k = tile_along(f->k_room, tile_lines(f->room), k, c->k.stride_token, rows, dim);
    f->v = tile_down(f->v_room, f->room, v, c->v.stride_token, rows, dim, panels);
}

/* Panels take turns on each tile of keys, which stays in the cache meanwhile. */
void VEC_KERNEL(attention_forward_f32)(const sluice__attention_call *c, int b, int h, int begin,
                                       int end, float *scratch) {
    panel w[PANELS];
    int count = (end - begin + PANEL - 1) / PANEL, dim = c->p.head_dim, first = c->p.kv_len;
    forward_block f = {.c = c,
                       .b = b,
                       .h = h,
                       .kv = h / (c->p.num_heads / c->p.num_kv_heads),
                       .scores = scratch,
                       .room = tile_room(dim),
                       .scale = tile_scale_after(c->p.scale)};
    scratch += KEYS * PANEL;
    f.k_room = scratch;
    f.v_room = f.k_room + KEYS * f.room;
    scratch = f.v_room + KEYS * f.room;
    for (int i = 0; i < count; i++) {
        int at = begin + i * PANEL;
        w[i].q = scratch + 2 * i * dim * PANEL;
        w[i].o = w[i].q + dim * PANEL;
        panel_begin(&w[i], &f, at, end - at < PANEL ? end - at : PANEL);
        for (int v = 0; v < w[i].vectors; v++)
            first = w[i].range[v].first < first ? w[i].range[v].first : first;
    }
    int behind = c->p.kv_len - c->p.q_len + end;
    for (int key = first; key < behind; key += KEYS) {
        take_tile(&f, key, behind, count);
        for (int i = 0; i < count; i++) panel_step(&w[i], &f, key + KEYS);
    }
    for (int i = 0; i < count; i++) panel_end(&w[i], &f, begin + i * PANEL);
}
#endif
