/* SPDX-License-Identifier: Apache-2.0 */
/* What a call of attention has to do, for profiles: multiply-adds of the pairs of query and key that see each other, and
 * each operand read or written once. */
#include "kernels/attention.h"
#include "kernels/kv.h"
#include "kernels/profile.h"

static double pairs_of(const sluice_attention_params *p) {
    double pairs = 0;
    for (int64_t i = 0; i < (int64_t)p->batch * p->q_len; i++) {
        int end = p->kv_len - p->q_len + 1 + (int)(i % p->q_len), first = p->key_start ? p->key_start[i] : 0;
        if (p->window && end - p->window > first) first = end - p->window;
        if (first < end) pairs += end - first;
    }
    return pairs * p->num_heads;
}

static double kv_bytes(const sluice__attention_call *c) {
    const sluice_attention_params *p = &c->p;
    size_t row = c->typed_k.data ? sluice__kv_bytes(c->typed_k.dtype, p->head_dim) : 4 * (size_t)p->head_dim;
    return 2.0 * (double)row * p->batch * p->kv_len * p->num_kv_heads;
}

/* Forward: q K^T and p V; q, k, v, y, and o beside a gate, whose logits are left out. Backward: the scores again, and two
 * products for either of their factors; q, o, dy, dq, k, v, dk, dv. */
sluice__work sluice__attention_work_of(const sluice__attention_call *calls, int count, bool backward) {
    sluice__work work = {.name = backward ? "attention backward" : "attention forward"};
    for (int i = 0; i < count; i++) {
        const sluice__attention_call *c = &calls[i];
        const sluice_attention_params *p = &c->p;
        double queries = 4.0 * p->batch * p->q_len * p->num_heads * (double)p->head_dim;
        work.flops += (backward ? 10.0 : 4.0) * p->head_dim * pairs_of(p);
        work.bytes += backward ? 4 * queries + 2 * kv_bytes(c) : (c->o.data ? 3 : 2) * queries + kv_bytes(c);
    }
    return work;
}
