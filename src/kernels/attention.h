/* SPDX-License-Identifier: Apache-2.0 */
/* What the attention kernels share: one checked call (every stride resolved, every pointer there that the call needs)
 * and the entries that carry it out. An entry can fail only for want of scratch memory. */
#ifndef SLUICE_KERNELS_ATTENTION_H
#define SLUICE_KERNELS_ATTENTION_H
#include <stdbool.h>
#include "sluice/attention.h"

enum { SLUICE__ATTENTION_MAX_HEAD_DIM = 1024 };

/* All strides are > 0 here. Tensors that the call does not use have data == NULL. */
typedef struct sluice__attention_call {
    sluice_attention_params p;
    sluice_strided q, k, v, gate;    /* inputs */
    sluice_strided y, o;             /* forward: outputs; backward: o is an input */
    sluice_strided dy, dq, dk, dv, dgate; /* backward */
    float *lse, *first_share;        /* [B,H,q_len] or NULL, written by forward */
    const float *lse_saved;          /* backward: what forward wrote */
    float *dsinks;                   /* [H] or NULL; added to */
} sluice__attention_call;

/* Address of element (b, t, h, 0). */
static inline float *sluice__strided_at(const sluice_strided *s, int64_t b, int64_t t, int64_t h) {
    return s->data + b * s->stride_batch + t * s->stride_token + h * s->stride_head;
}

/* Keys that query i of batch row b sees: first <= j <= last (first > last: none). */
static inline void sluice__attention_range(const sluice_attention_params *p, int b, int i, int *first, int *last) {
    int at = p->kv_len - p->q_len + i;
    *last = at;
    *first = p->key_start ? p->key_start[(int64_t)b * p->q_len + i] : 0;
    if (p->window > 0 && at - p->window + 1 > *first) *first = at - p->window + 1;
}

sluice_status sluice__attention_forward_ref(const sluice__attention_call *c);
sluice_status sluice__attention_backward_ref(const sluice__attention_call *c);
sluice_status sluice__attention_probs_ref(const sluice__attention_call *c, int batch_row, float *probs);
#endif
