/* SPDX-License-Identifier: Apache-2.0 */
/* Linear attention, written in the words of x86/tile_<isa>.h.
 *
 * Few tokens: step by step, each two passes over a panel of columns of the state that stays in the first cache:
 * S^T k, then the update with S^T q of what comes out, as a recurrence would (S^T q of the old state would cancel with
 * what is written where a head's output is nearly zero). More tokens: the chunked form (Yang et al. 2025, section 3.3).
 * With c_i = log_decay_0 + ... + log_decay_i inside a chunk,
 *
 *   L_ij = b_i (k_i . k_j) exp(c_i - c_j) for j < i;   (I + L) d = b (v - exp(c) K S)
 *   o = exp(c) Q S + P d,  P_ij = (q_i . k_j) exp(c_i - c_j) for j <= i
 *   S <- exp(c_last) S + sum_i exp(c_last - c_i) k_i d_i^T
 *
 * so that nearly all of it is small matrix products. Differences of c are formed from two floats each, because c
 * itself may be large. */
#ifndef SLUICE_KERNELS_SIMD_DELTA_H
#define SLUICE_KERNELS_SIMD_DELTA_H
#include "kernels/kernels.h"
#include "kernels/simd/tile_gemm.h"
#include "kernels/simd/tile_rows.h"
#include <string.h>

VEC_INLINE int lanes(int64_t left) {
    return left < VEC ? (int)left : VEC;
}

/* ---- convolution ---- */

/* The input of n channels; `row` counted from the first of this call. */
VEC_INLINE vec conv_input(const sluice__conv *p, int64_t row, int64_t c, int n) {
    if (row >= 0) return vec_load_n(p->x + row * p->x_stride + c, n);
    return p->history ? vec_load_n(p->history + (p->taps - 1 + row) * p->channels + c, n) : vec_zero();
}

/* Channels c..c+n-1, row after row, so that memory is read in runs as long as a strip. */
enum { STRIP = 256, TAPS = 8 };

/* w[j][i] = tap early + j of channel i of n. */
VEC_INLINE void conv_taps(float w[TAPS][STRIP], const float *from, int n, int early, int taps) {
    for (int i = 0; i < n; i++)
        for (int j = early; j < taps; j++) w[j - early][i] = from[i * taps + j];
    for (int j = early; j < taps; j++)
        for (int i = n; i % VEC; i++) w[j - early][i] = 0;
}

static void conv_strip(const sluice__conv *p, int64_t c, int n) {
    float w[TAPS][STRIP]; /* of the last taps; earlier ones are rare and gathered as they come */
    int early = p->taps - TAPS > 0 ? p->taps - TAPS : 0;
    if (p->taps == 4) conv_taps(w, p->w + c * 4, n, 0, 4); /* a constant, so that compilers see a transposition */
    else conv_taps(w, p->w + c * p->taps, n, early, p->taps);
    for (int64_t t = 0; t < p->rows; t++)
        for (int i = 0; i < n; i += VEC) {
            int live = lanes(n - i);
            int64_t row = t - p->taps + 1, at = c + i;
            vec sum = vec_zero();
            for (int j = 0; j < early; j++) {
                float rare[VEC] = {0};
                for (int k = 0; k < live; k++) rare[k] = p->w[(at + k) * p->taps + j];
                sum = vec_fma(vec_load(rare), conv_input(p, row + j, at, live), sum);
            }
            for (int j = early; j < p->taps; j++)
                sum = vec_fma(vec_load(w[j - early] + i), conv_input(p, row + j, at, live), sum);
            vec_store_n(p->y + t * p->y_stride + at, vec_silu(sum, vec_sigmoid(sum)), live);
        }
}

void VEC_KERNEL(causal_conv_f32)(const sluice__conv *p, int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; c += STRIP) conv_strip(p, c, end - c < STRIP ? (int)(end - c) : STRIP);
}

/* ---- L2 norm ---- */

static void l2_head(float *y, const float *x, int dim, float eps, float scale) {
    vec sum = vec_zero();
    for (int i = 0; i < dim; i += VEC) {
        vec v = vec_load_n(x + i, lanes(dim - i));
        sum = vec_fma(v, v, sum);
    }
    vec s = vec_set(scale / sqrtf(vec_sum(sum) + eps));
    for (int i = 0; i < dim; i += VEC) {
        int n = lanes(dim - i);
        vec_store_n(y + i, vec_mul(vec_load_n(x + i, n), s), n);
    }
}

void VEC_KERNEL(l2_norm_f32)(float *y, int64_t y_stride, const float *x, int64_t x_stride, int64_t rows, int heads,
                             int dim, float eps, float scale) {
    for (int64_t r = 0; r < rows; r++)
        for (int h = 0; h < heads; h++)
            l2_head(y + r * y_stride + (int64_t)h * dim, x + r * x_stride + (int64_t)h * dim, dim, eps, scale);
}

/* ---- step ---- */

enum { STEP_VECS = 4 };

/* Columns of the state from j on, `vecs` vectors of which the last has n lanes. */
VEC_INLINE void step_columns(const sluice__delta_head *h, int64_t t, int64_t j, const int vecs, int n, float decay) {
    const float *q = h->q + t * h->qk_stride, *k = h->k + t * h->qk_stride;
    int64_t ld = h->value_dim;
    float *s = h->state + j;
    vec memory[STEP_VECS], out[STEP_VECS], a = vec_set(decay);
    for (int v = 0; v < vecs; v++) memory[v] = out[v] = vec_zero();
    for (int i = 0; i < h->key_dim; i++)
        for (int v = 0; v < vecs; v++)
            memory[v] = vec_fma(vec_set(k[i]), vec_load_n(s + i * ld + v * VEC, v == vecs - 1 ? n : VEC), memory[v]);
    for (int v = 0; v < vecs; v++) { /* from here on: what is written */
        vec value = vec_load_n(h->v + t * h->v_stride + j + v * VEC, v == vecs - 1 ? n : VEC);
        memory[v] = vec_mul(vec_set(h->beta[t * h->gate_stride]), vec_fnma(a, memory[v], value));
    }
    for (int i = 0; i < h->key_dim; i++)
        for (int v = 0; v < vecs; v++) {
            int live = v == vecs - 1 ? n : VEC;
            float *at = s + i * ld + v * VEC;
            vec x = vec_fma(vec_set(k[i]), memory[v], vec_mul(a, vec_load_n(at, live)));
            out[v] = vec_fma(vec_set(q[i]), x, out[v]);
            vec_store_n(at, x, live);
        }
    for (int v = 0; v < vecs; v++)
        vec_store_n(h->o + t * h->o_stride + j + v * VEC, out[v], v == vecs - 1 ? n : VEC);
}

static void step(const sluice__delta_head *h, int64_t t) {
    float decay = expf(h->log_decay[t * h->gate_stride]);
    int64_t j = 0;
    for (; j + STEP_VECS * VEC <= h->value_dim; j += STEP_VECS * VEC) step_columns(h, t, j, STEP_VECS, VEC, decay);
    for (; j < h->value_dim; j += VEC) step_columns(h, t, j, 1, lanes(h->value_dim - j), decay);
}

/* ---- chunk ---- */

enum { CHUNK = SLUICE__DELTA_CHUNK };

/* Where things lie in the scratch of a head. */
typedef struct delta_work {
    const sluice__delta_head *h;
    int64_t ld;          /* value_dim in whole vectors: rows of state, d, o */
    int64_t kd;          /* key_dim in whole vectors */
    float *q, *k;        /* [CHUNK, kd] rows of queries and keys: where they come from, they lie far apart */
    float *keys;         /* [key_dim, CHUNK] K^T */
    float *state;        /* [key_dim, ld]; the head's own when its rows are whole vectors */
    float *pairs, *seen; /* [CHUNK, CHUNK] -L, P */
    float *d, *o;        /* [CHUNK, ld] */
    float *factor;       /* [ld] exp(c_last) in every lane */
    float *high, *low;   /* [CHUNK] c = high + low */
    float *since, *left; /* [CHUNK] exp(c_i), exp(c_last - c_i) */
} delta_work;

static delta_work work_of(const sluice__delta_head *h) {
    delta_work w = {.h = h, .ld = vec_up(h->value_dim), .kd = vec_up(h->key_dim)};
    float *at = h->scratch;
    w.q = at, at += CHUNK * w.kd;
    w.k = at, at += CHUNK * w.kd;
    w.keys = at, at += (int64_t)h->key_dim * CHUNK;
    w.pairs = at, at += CHUNK * CHUNK;
    w.seen = at, at += CHUNK * CHUNK;
    w.d = at, at += CHUNK * w.ld;
    w.o = at, at += CHUNK * w.ld;
    w.factor = at, at += w.ld;
    w.high = at, at += CHUNK;
    w.low = at, at += CHUNK;
    w.since = at, at += CHUNK;
    w.left = at, at += CHUNK;
    w.state = w.ld == h->value_dim ? h->state : at;
    return w;
}

/* c of tokens t..t+n-1 and what follows from it. */
static void sum_decays(const delta_work *w, int64_t t, int64_t n) {
    const sluice__delta_head *h = w->h;
    double c[CHUNK], sum = 0;
    for (int64_t i = 0; i < n; i++) {
        c[i] = sum += (double)h->log_decay[(t + i) * h->gate_stride];
        w->high[i] = (float)c[i];
        w->low[i] = (float)(c[i] - (double)w->high[i]);
    }
    for (int64_t i = n; i < CHUNK; i++) w->high[i] = w->low[i] = 0;
    for (int64_t i = 0; i < n; i++) {
        w->since[i] = expf((float)c[i]);
        w->left[i] = expf((float)(sum - c[i]));
    }
    for (int64_t j = 0; j < w->ld; j += VEC) vec_store(w->factor + j, vec_set(expf((float)sum)));
}

/* Row i of -L and of P from the first `columns` products of keys and queries with keys; those with j > i become 0. */
static void decay_pairs(const delta_work *w, int64_t i, int64_t columns, float beta) {
    float *pairs = w->pairs + i * CHUNK, *seen = w->seen + i * CHUNK;
    vec high = vec_set(w->high[i]), low = vec_set(w->low[i]), write = vec_set(-beta);
    for (int64_t j = 0; j < columns; j += VEC) {
        ivec at = ivec_add(ivec_count(), ivec_set((int32_t)j));
        vec gap = vec_add(vec_sub(high, vec_load(w->high + j)), vec_sub(low, vec_load(w->low + j)));
        vec decay = tile_exp(vec_min(gap, vec_zero()));
        vec_store(pairs + j, vec_keep(ivec_between(at, ivec_set(0), ivec_set((int32_t)i - 1)),
                                      vec_mul(vec_mul(vec_load(pairs + j), decay), write)));
        vec_store(seen + j, vec_keep(ivec_between(at, ivec_set(0), ivec_set((int32_t)i)),
                                     vec_mul(vec_load(seen + j), decay)));
    }
}

/* -L and P of tokens t..t+n-1, by blocks of rows that stop at the diagonal. */
static void make_pairs(const delta_work *w, int64_t t, int64_t n) {
    const sluice__delta_head *h = w->h;
    tile_pack_rows(w->q, w->kd, h->q + t * h->qk_stride, h->qk_stride, n, h->key_dim);
    tile_pack_rows(w->k, w->kd, h->k + t * h->qk_stride, h->qk_stride, n, h->key_dim);
    tile_pack_transposed(w->keys, CHUNK, w->k, w->kd, n, h->key_dim, 1);
    for (int64_t r = 0; r < n; r += TILE_ROWS) {
        int64_t rows = n - r < TILE_ROWS ? n - r : TILE_ROWS, columns = vec_up(r + rows);
        tile_gemm_rows(rows, columns, h->key_dim, w->k + r * w->kd, w->kd, w->keys, CHUNK,
                       (tile_target){w->pairs + r * CHUNK, CHUNK, TILE_ZERO, NULL});
        tile_gemm_rows(rows, columns, h->key_dim, w->q + r * w->kd, w->kd, w->keys, CHUNK,
                       (tile_target){w->seen + r * CHUNK, CHUNK, TILE_ZERO, NULL});
        for (int64_t i = r; i < r + rows; i++) decay_pairs(w, i, columns, h->beta[(t + i) * h->gate_stride]);
    }
}

/* x[j] += a y[j] for j < ld */
VEC_INLINE void add_row(float *x, float a, const float *y, int64_t ld) {
    vec factor = vec_set(a);
    for (int64_t j = 0; j < ld; j += VEC) vec_store(x + j, vec_fma(factor, vec_load(y + j), vec_load(x + j)));
}

/* d of the chunk: the right side, then forward substitution by blocks of rows. */
static void solve(const delta_work *w, int64_t t, int64_t n) {
    const sluice__delta_head *h = w->h;
    tile_gemm_rows(n, w->ld, h->key_dim, w->k, w->kd, w->state, w->ld,
                   (tile_target){w->d, w->ld, TILE_ZERO, NULL});
    for (int64_t i = 0; i < n; i++) {
        vec since = vec_set(w->since[i]), beta = vec_set(h->beta[(t + i) * h->gate_stride]);
        float *d = w->d + i * w->ld;
        const float *v = h->v + (t + i) * h->v_stride;
        for (int64_t j = 0; j < w->ld; j += VEC) {
            int64_t left = h->value_dim - j;
            vec value = left > 0 ? vec_load_n(v + j, lanes(left)) : vec_zero();
            vec_store(d + j, vec_mul(beta, vec_fnma(since, vec_load(d + j), value)));
        }
    }
    for (int64_t r = 0; r < n; r += TILE_ROWS) {
        int64_t rows = n - r < TILE_ROWS ? n - r : TILE_ROWS;
        if (r)
            tile_gemm_rows(rows, w->ld, r, w->pairs + r * CHUNK, CHUNK, w->d, w->ld,
                           (tile_target){w->d + r * w->ld, w->ld, TILE_ADD, NULL});
        for (int64_t i = r + 1; i < r + rows; i++)
            for (int64_t j = r; j < i; j++) add_row(w->d + i * w->ld, w->pairs[i * CHUNK + j], w->d + j * w->ld, w->ld);
    }
}

/* o = exp(c) Q S + P d */
static void read_out(const delta_work *w, int64_t t, int64_t n) {
    const sluice__delta_head *h = w->h;
    tile_gemm_rows(n, w->ld, h->key_dim, w->q, w->kd, w->state, w->ld,
                   (tile_target){w->o, w->ld, TILE_ZERO, NULL});
    for (int64_t i = 0; i < n; i++) {
        vec since = vec_set(w->since[i]);
        for (int64_t j = 0; j < w->ld; j += VEC)
            vec_store(w->o + i * w->ld + j, vec_mul(since, vec_load(w->o + i * w->ld + j)));
    }
    for (int64_t r = 0; r < n; r += TILE_ROWS) {
        int64_t rows = n - r < TILE_ROWS ? n - r : TILE_ROWS;
        tile_gemm_rows(rows, w->ld, r + rows, w->seen + r * CHUNK, CHUNK, w->d, w->ld,
                       (tile_target){w->o + r * w->ld, w->ld, TILE_ADD, NULL});
    }
    tile_unpack_rows(h->o + t * h->o_stride, h->o_stride, w->o, w->ld, n, h->value_dim, 1.0f, false);
}

static void update_state(const delta_work *w, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        vec left = vec_set(w->left[i]);
        for (int64_t j = 0; j < w->ld; j += VEC)
            vec_store(w->d + i * w->ld + j, vec_mul(left, vec_load(w->d + i * w->ld + j)));
    }
    tile_gemm_columns(w->h->key_dim, w->ld, n, w->k, w->kd, w->d, w->ld,
                      (tile_target){w->state, w->ld, TILE_SCALE, w->factor});
}

static void chunk(const delta_work *w, int64_t t, int64_t n) {
    sum_decays(w, t, n);
    make_pairs(w, t, n);
    solve(w, t, n);
    read_out(w, t, n);
    update_state(w, n);
}

void VEC_KERNEL(delta_rule_f32)(const sluice__delta_head *h) {
    if (h->rows <= SLUICE__DELTA_STEPS) {
        for (int64_t t = 0; t < h->rows; t++) step(h, t);
        return;
    }
    unsigned mode = vec_flush_denormals(); /* what has decayed that far costs a hundred cycles a number */
    delta_work w = work_of(h);
    if (w.state != h->state) tile_pack_rows(w.state, w.ld, h->state, h->value_dim, h->key_dim, h->value_dim);
    for (int64_t t = 0; t < h->rows; t += CHUNK) chunk(&w, t, h->rows - t < CHUNK ? h->rows - t : CHUNK);
    if (w.state != h->state)
        tile_unpack_rows(h->state, h->value_dim, w.state, w.ld, h->key_dim, h->value_dim, 1.0f, false);
    vec_set_mode(mode);
}
#endif
