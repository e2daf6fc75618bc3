/* SPDX-License-Identifier: Apache-2.0 */
/* Writing attention output: o, and y = o * act(gate) or o + act(gate), a vector of one row at a
 * time while it is in a register. This is all that the gate costs in the forward pass: its logits
 * are read and nothing is read or written twice. */
#ifndef SLUICE_KERNELS_SIMD_ATTENTION_WRITE_H
#define SLUICE_KERNELS_SIMD_ATTENTION_WRITE_H

/* Where one query's row goes. */
typedef struct out_row {
    float *y, *o;      /* o: NULL = not wanted */
    const float *gate; /* elementwise: logits of the row; else NULL */
    float head_gate;   /* headwise: the activated gate */
} out_row;

static out_row out_row_at(const sluice__attention_call *c, int b, int h, int i, float head_gate) {
    bool elementwise = c->p.gated && c->p.gate_granularity == SLUICE_GATE_ELEMENTWISE;
    return (out_row){.y = sluice__strided_at(&c->y, b, i, h),
                     .o = c->o.data ? sluice__strided_at(&c->o, b, i, h) : NULL,
                     .gate = elementwise ? sluice__strided_at(&c->gate, b, i, h) : NULL,
                     .head_gate = head_gate};
}

/* Activated headwise gates of queries begin.. (count <= VEC) into g. */
static void head_gates(const sluice__attention_call *c, int b, int h, int begin, int count,
                       float g[VEC]) {
    for (int i = 0; i < VEC; i++) g[i] = 0.0f;
    if (!c->p.gated || c->p.gate_granularity != SLUICE_GATE_HEADWISE) return;
    for (int i = 0; i < count; i++) g[i] = *sluice__strided_at(&c->gate, b, begin + i, h);
    vec_store(g, gate_act(c->p.gate_act, vec_load(g)));
}

/* Elements d..d+n-1 of a row. */
VEC_INLINE void write_piece(const sluice_attention_params *p, const out_row *r, int64_t d, int n,
                            vec o) {
    if (r->o) vec_store_n(r->o + d, o, n);
    if (p->gated) {
        vec g = r->gate ? gate_act(p->gate_act, vec_load_n(r->gate + d, n)) : vec_set(r->head_gate);
        o = p->gate_op == SLUICE_GATE_MULTIPLY ? vec_mul(o, g) : vec_add(o, g);
    }
    vec_store_n(r->y + d, o, n);
}
#endif
