/* SPDX-License-Identifier: Apache-2.0 */
/* Inside attention: one checked call (every stride resolved, every pointer there that the call
 * needs), the kernels that carry out pieces of it on one thread, and the drivers that deal pieces
 * out to a team. */
#ifndef SLUICE_KERNELS_ATTENTION_H
#define SLUICE_KERNELS_ATTENTION_H
#include <stdbool.h>
#include <stddef.h>
#include "kernels/kv.h"
#include "sluice/attention.h"
#include "sluice/cpu.h"

enum {
    SLUICE__ATTENTION_MAX_HEAD_DIM = 1024,
    SLUICE__ATTENTION_MAX_LEN = 1 << 30,
    SLUICE__ATTENTION_GRAIN = 1 << 16, /* multiply-adds (half of them) that are worth a thread */
    SLUICE__ATTENTION_VEC = 16,        /* widest vector; row lengths in scratch are multiples */
    SLUICE__ATTENTION_QUERIES = 128,   /* most queries of one call of the forward kernel */
    SLUICE__ATTENTION_KEYS = 96,       /* of a tile; both register blocks, 8 and 6 high, fit in */
    SLUICE__ATTENTION_DECODE = 8,      /* so few queries go row by row instead of as lanes */
    SLUICE__ATTENTION_DECODE_KEYS = 64,
    SLUICE__ATTENTION_BACK_QUERIES = 96,
    SLUICE__ATTENTION_BACK_KEYS = 96
};

/* All strides are > 0 here. Tensors that the call does not use have data == NULL. */
typedef struct sluice__attention_call {
    sluice_attention_params p;
    sluice_strided q, k, v, gate;         /* inputs */
    sluice_strided y, o;                  /* forward: outputs; backward: o is an input */
    sluice_strided dy, dq, dk, dv, dgate; /* backward */
    float *lse, *first_share;             /* [B,H,q_len] or NULL, written by forward */
    const float *lse_saved;               /* backward: what forward wrote */
    sluice__kv typed_k, typed_v;          /* forward: in place of k and v unless data is NULL */
    float *dsinks;                        /* [H] or NULL; added to */
} sluice__attention_call;

/* Address of element (b, t, h, 0). */
static inline float *sluice__strided_at(const sluice_strided *s, int64_t b, int64_t t, int64_t h) {
    return s->data + b * s->stride_batch + t * s->stride_token + h * s->stride_head;
}

/* Keys that query i of batch row b sees: first <= j <= last. */
static inline void sluice__attention_range(const sluice_attention_params *p, int b, int i,
                                           int *first, int *last) {
    int at = p->kv_len - p->q_len + i;
    *last = at;
    *first = p->key_start ? p->key_start[(int64_t)b * p->q_len + i] : 0;
    if (p->window > 0 && at - p->window + 1 > *first) *first = at - p->window + 1;
}

/* Whether so many keys and values, of all heads and batch rows, have left the second-level cache by the next token. The other
 * layers and all weights of a model come in between, and of a model so small that they fit in as well, these are few. */
static inline bool sluice__attention_is_far(const sluice_attention_params *p, int keys) {
    enum { CACHED = 1 << 14 /* floats */ };
    return (int64_t)p->batch * p->num_kv_heads * keys * p->head_dim * 2 > CACHED;
}

/* Index of (b, h, i) in lse and first_share. */
static inline int64_t sluice__attention_row(const sluice_attention_params *p, int b, int h, int i) {
    return ((int64_t)b * p->num_heads + h) * p->q_len + i;
}

static inline size_t sluice__attention_padded(size_t n) {
    return (n + SLUICE__ATTENTION_VEC - 1) / SLUICE__ATTENTION_VEC * SLUICE__ATTENTION_VEC;
}

/* What the backward pass of one head keeps per query. */
typedef struct sluice__attention_work {
    float *q, *dout; /* [q_len, stride]; elements from head_dim on are zero; bf16 kernels: rounded, two to a float */
    float *q_down, *dout_down; /* bf16 kernels: the same with two queries to a float, [q_len / 2 rounded up, stride] */
    float *room;               /* bf16 kernels: [2, SLUICE__ATTENTION_VEC, stride] */
    float *row_sum;  /* [q_len] sum over d of dout * o */
    float *shift;    /* [q_len] log-sum-exp; +inf in place of -inf, so that exp(score - shift) is 0 */
    int64_t stride;  /* head_dim rounded up to SLUICE__ATTENTION_VEC */
} sluice__attention_work;

/* What a few queries have got from one range of keys, for all query heads of one key/value head:
 * rows [group * q_len], head after head. Output is unnormalised: the sum over keys of
 * exp(score - top) v. */
typedef struct sluice__attention_part {
    float *top, *sum; /* maximum of the scores, sum of exp(score - top) */
    float *score0;    /* score of key 0, -inf where it is not in the range or not seen */
    float *out;       /* [rows, stride] */
    int64_t stride;   /* head_dim rounded up to SLUICE__ATTENTION_VEC */
} sluice__attention_part;

/* Floats of scratch of the backward kernel: scores, their gradients and these in bf16 [BACK_QUERIES,
 * BACK_KEYS]; K^T, V^T, K, dK, dV. */
#define SLUICE__ATTENTION_BACK_SCRATCH(stride)                                                     \
    (3 * (size_t)SLUICE__ATTENTION_BACK_QUERIES * SLUICE__ATTENTION_BACK_KEYS +                    \
     5 * (size_t)SLUICE__ATTENTION_BACK_KEYS * (size_t)(stride))

typedef struct sluice__attention_kernels {
#define KERNEL(name, result, parameters) result(*name) parameters;
#include "kernels/attention.def"
#undef KERNEL
} sluice__attention_kernels;

#if defined(__x86_64__)
#define KERNEL(name, result, parameters)                                                           \
    result sluice_##name##_ref parameters;                                                         \
    result sluice_##name##_avx2 parameters;                                                        \
    result sluice_##name##_avx512 parameters;
#define KERNEL_BF16(name, result, parameters)                                                      \
    KERNEL(name, result, parameters)                                                               \
    result sluice_##name##_avx512bf16 parameters;
#else
#define KERNEL(name, result, parameters) result sluice_##name##_ref parameters;
#endif
#include "kernels/attention.def"
#undef KERNEL

/* Rising order: reference, then every version that `cpu` (SLUICE_CPU_* flags) allows; those for bf16 if that is wanted. */
void sluice__attention_choose(sluice__attention_kernels *k, unsigned cpu, bool bf16);

/* The public operator, forward, for several calls at once (the sequences of one pass), with keys and values as a session
 * holds them where typed_k is there. Strides of 0 are resolved in place. What a call gives does not depend on the others. */
sluice_status sluice__attention_forward_calls(sluice__attention_call *calls, int count, sluice_error *err);

/* Drivers. They fail only for want of scratch memory. */
sluice_status sluice__attention_forward(const sluice__attention_call *calls, int count);
sluice_status sluice__attention_backward(const sluice__attention_call *c);
struct sluice__work sluice__attention_work_of(const sluice__attention_call *calls, int count, bool backward); /* kernels/profile.h */
sluice_status sluice__attention_probs(const sluice__attention_call *c, int batch_row, float *probs);
#endif
