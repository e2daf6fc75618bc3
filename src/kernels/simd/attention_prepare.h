/* SPDX-License-Identifier: Apache-2.0 */
/* Ends of the backward pass, row by row: from dy through the gate to the gradient of the ungated
 * output, and from the sums of dq to dq. Body for one tile_<isa>.h. */
#ifndef SLUICE_KERNELS_SIMD_ATTENTION_PREPARE_H
#define SLUICE_KERNELS_SIMD_ATTENTION_PREPARE_H
#include "kernels/attention.h"
#ifndef TILE_NUMBERS
#include "kernels/simd/tile_floats.h"
#endif

/* One query's row. */
typedef struct back_row {
    const float *q, *o, *dy, *gate; /* gate: elementwise logits, else NULL */
    float *dgate;                   /* elementwise gradient, else NULL */
    float head_gate; /* headwise: the activated gate; 1 without a gate or where it is added */
    float *work_q, *work_dout; /* [stride] */
} back_row;

/* sums over d: [0] dout * o, [1] what a headwise logit's gradient is made of: dy * o or dy */
typedef struct row_sums {
    vec out, gate;
} row_sums;

VEC_INLINE void prepare_piece(const sluice_attention_params *p, const back_row *r, int64_t d, int n,
                              row_sums *sums) {
    vec dy = vec_load_n(r->dy + d, n), o = vec_load_n(r->o + d, n),
        dout = vec_mul(dy, vec_set(r->head_gate));
    bool multiply = p->gate_op == SLUICE_GATE_MULTIPLY;
    vec dact = p->gated && !multiply ? dy : vec_mul(dy, o);
    if (r->gate) {
        vec slope, g = gate_act_slope(p->gate_act, vec_load_n(r->gate + d, n), &slope);
        if (multiply) dout = vec_mul(dy, g);
        vec_store_n(r->dgate + d, vec_mul(dact, slope), n);
    }
    if (p->bf16) dout = vec_round_bf16(dout);
    sums->out = vec_fma(dout, o, sums->out);
    sums->gate = vec_add(dact, sums->gate);
    vec_store(r->work_dout + d, dout);
    vec_store(r->work_q + d, vec_mul(vec_load_n(r->q + d, n), vec_set(tile_scale_before(p->scale))));
}

static row_sums prepare_row(const sluice_attention_params *p, const back_row *r, int64_t stride) {
    row_sums sums = {vec_zero(), vec_zero()};
    int64_t d = 0, dim = p->head_dim;
    for (; d + VEC <= dim; d += VEC) prepare_piece(p, r, d, VEC, &sums);
    if (d < dim) prepare_piece(p, r, d, (int)(dim - d), &sums), d += VEC;
    for (; d < stride; d += VEC) {
        vec_store(r->work_dout + d, vec_zero());
        vec_store(r->work_q + d, vec_zero());
    }
    return sums;
}

/* Activated headwise gates of up to VEC queries and their slopes. */
static void head_gate_slopes(const sluice__attention_call *c, int b, int h, int begin, int count,
                             float g[VEC], float slope[VEC]) {
    for (int i = 0; i < VEC; i++) g[i] = 1.0f;
    if (!c->p.gated || c->p.gate_granularity != SLUICE_GATE_HEADWISE) return;
    for (int i = 0; i < count; i++) g[i] = *sluice__strided_at(&c->gate, b, begin + i, h);
    vec s, a = gate_act_slope(c->p.gate_act, vec_load(g), &s);
    vec_store(g, c->p.gate_op == SLUICE_GATE_MULTIPLY ? a : vec_set(1.0f));
    vec_store(slope, s);
}

static back_row back_row_at(const sluice__attention_call *c, int b, int h, int i, float *q,
                            float *dout) {
    bool elementwise = c->p.gated && c->p.gate_granularity == SLUICE_GATE_ELEMENTWISE;
    return (back_row){.q = sluice__strided_at(&c->q, b, i, h),
                      .o = sluice__strided_at(&c->o, b, i, h),
                      .dy = sluice__strided_at(&c->dy, b, i, h),
                      .gate = elementwise ? sluice__strided_at(&c->gate, b, i, h) : NULL,
                      .dgate = elementwise ? sluice__strided_at(&c->dgate, b, i, h) : NULL,
                      .work_q = q,
                      .work_dout = dout};
}

/* shift of up to VEC queries; returns the sum of exp(sink - lse) * row_sum. */
static float prepare_shift(const sluice__attention_call *c, int b, int h, int begin, int count,
                           const sluice__attention_work *w) {
    vec lse = vec_load_n(c->lse_saved + sluice__attention_row(&c->p, b, h, begin), count);
    vec shift = vec_select(vec_equal(lse, vec_set(-INFINITY)), vec_set(INFINITY), lse);
    vec_store_n(w->shift + begin, shift, count);
    if (!c->p.sinks) return 0.0f;
    return vec_sum(vec_mul(tile_exp(vec_sub(vec_set(c->p.sinks[h]), shift)),
                           vec_load_n(w->row_sum + begin, count)));
}

/* Both forms of `count` rows from query `first` (even) on. */
static void pack_queries(float *along, float *down, const float *rows, int64_t stride, int first,
                         int count) {
    int64_t line = stride / TILE_NUMBERS;
    tile_pack_along(along + first * line, line, rows, stride, count, stride);
    tile_pack_down(down + first / TILE_NUMBERS * stride, stride, rows, stride, count, stride);
}

double VEC_KERNEL(attention_prepare_f32)(const sluice__attention_call *c, int b, int h, int begin,
                                         int end, const sluice__attention_work *w) {
    bool headwise = c->p.gated && c->p.gate_granularity == SLUICE_GATE_HEADWISE;
    double dsink = 0.0;
    for (int first = begin; first < end; first += VEC) {
        int count = end - first < VEC ? end - first : VEC;
        float g[VEC], slope[VEC];
        head_gate_slopes(c, b, h, first, count, g, slope);
        float *q = TILE_NUMBERS > 1 ? w->room : w->q + first * w->stride,
              *dout = TILE_NUMBERS > 1 ? w->room + VEC * w->stride : w->dout + first * w->stride;
        for (int i = 0; i < count; i++) {
            back_row r = back_row_at(c, b, h, first + i, q + i * w->stride, dout + i * w->stride);
            r.head_gate = g[i];
            row_sums sums = prepare_row(&c->p, &r, w->stride);
            w->row_sum[first + i] = vec_sum(sums.out);
            if (headwise)
                *sluice__strided_at(&c->dgate, b, first + i, h) = slope[i] * vec_sum(sums.gate);
        }
        if (TILE_NUMBERS > 1) {
            pack_queries(w->q, w->q_down, q, w->stride, first, count);
            pack_queries(w->dout, w->dout_down, dout, w->stride, first, count);
        }
        dsink -= (double)prepare_shift(c, b, h, first, count, w);
    }
    return dsink;
}

void VEC_KERNEL(attention_finish_f32)(const sluice__attention_call *c, int b, int h, int begin,
                                      int end, const float *dq, int parts, int64_t part_size,
                                      int64_t stride) {
    vec scale = vec_set(c->p.scale);
    for (int i = begin; i < end; i++) {
        float *to = sluice__strided_at(&c->dq, b, i, h);
        for (int d = 0; d < c->p.head_dim; d += VEC) {
            vec sum = vec_load(dq + i * stride + d);
            for (int part = 1; part < parts; part++)
                sum = vec_add(sum, vec_load(dq + part * part_size + i * stride + d));
            int n = c->p.head_dim - d < VEC ? c->p.head_dim - d : VEC;
            vec_store_n(to + d, vec_mul(sum, scale), n);
        }
    }
}
#endif
