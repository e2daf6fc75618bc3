/* SPDX-License-Identifier: Apache-2.0 */
/* The public attention operator: checks the arguments, resolves strides, and hands one checked call
 * to the kernels that suit this CPU. Nothing behind this file looks at a NULL, a zero stride or an
 * impossible size again. */
#include "kernels/attention.h"
#include "base/error.h"
#include <assert.h>
#include <math.h>
#include <string.h>

/* Shape of one tensor argument. */
typedef struct tensor_arg {
    const char *name;
    int64_t batch, tokens, heads, width;
    bool written; /* elements must not overlap */
} tensor_arg;

static sluice_status check_positive(const char *name, int64_t value, sluice_error *err) {
    if (value > 0) return SLUICE_OK;
    return sluice__fail(err, SLUICE_ERR_ARGUMENT, "attention: %s: found %lld, expected at least 1",
                        name, (long long)value);
}

static sluice_status check_sizes(const sluice_attention_params *p, sluice_error *err) {
    SLUICE__TRY(check_positive("batch", p->batch, err));
    SLUICE__TRY(check_positive("q_len", p->q_len, err));
    SLUICE__TRY(check_positive("kv_len", p->kv_len, err));
    SLUICE__TRY(check_positive("num_heads", p->num_heads, err));
    SLUICE__TRY(check_positive("num_kv_heads", p->num_kv_heads, err));
    SLUICE__TRY(check_positive("head_dim", p->head_dim, err));
    if (p->head_dim > SLUICE__ATTENTION_MAX_HEAD_DIM)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "attention: head_dim: found %d, expected at most %d", p->head_dim,
                            SLUICE__ATTENTION_MAX_HEAD_DIM);
    if (p->kv_len > SLUICE__ATTENTION_MAX_LEN)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "attention: kv_len: found %d, expected at most %d", p->kv_len,
                            SLUICE__ATTENTION_MAX_LEN);
    if (p->num_heads % p->num_kv_heads)
        return sluice__fail(
            err, SLUICE_ERR_ARGUMENT,
            "attention: num_heads: found %d, expected a multiple of num_kv_heads %d", p->num_heads,
            p->num_kv_heads);
    if (p->kv_len < p->q_len)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "attention: kv_len: found %d, expected at least q_len %d (the last "
                            "query stands at the last key)",
                            p->kv_len, p->q_len);
    return SLUICE_OK;
}

static sluice_status check_gate_kind(const sluice_attention_params *p, sluice_error *err) {
    if (!p->gated) return SLUICE_OK;
    if ((unsigned)p->gate_granularity > SLUICE_GATE_HEADWISE)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "attention: gate_granularity: found %d, expected 0 or 1",
                            p->gate_granularity);
    if ((unsigned)p->gate_act > SLUICE_GATE_SOFTPLUS)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "attention: gate_act: found %d, expected 0..%d", p->gate_act,
                            SLUICE_GATE_SOFTPLUS);
    if ((unsigned)p->gate_op > SLUICE_GATE_ADD)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "attention: gate_op: found %d, expected 0 or 1", p->gate_op);
    return SLUICE_OK;
}

static sluice_status check_options(const sluice_attention_params *p, sluice_error *err) {
    if (!isfinite(p->scale) || p->scale == 0.0f)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "attention: scale: found %g, expected a finite number that is not 0 "
                            "(usually 1/sqrt(head_dim))",
                            (double)p->scale);
    if (!isfinite(p->softcap) || p->softcap < 0.0f)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "attention: softcap: found %g, expected 0 (off) or a positive number",
                            (double)p->softcap);
    if (p->window < 0)
        return sluice__fail(
            err, SLUICE_ERR_ARGUMENT,
            "attention: window: found %d, expected 0 (all keys) or a number of keys", p->window);
    return check_gate_kind(p, err);
}

static sluice_status check_key_start(const sluice_attention_params *p, sluice_error *err) {
    if (!p->key_start) return SLUICE_OK;
    for (int b = 0; b < p->batch; b++)
        for (int i = 0; i < p->q_len; i++) {
            int32_t start = p->key_start[(int64_t)b * p->q_len + i], own = p->kv_len - p->q_len + i;
            if (start < 0 || start > own)
                return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                                    "attention: key_start[%d][%d]: found %d, expected 0..%d (the "
                                    "query's own position)",
                                    b, i, start, own);
        }
    return SLUICE_OK;
}

static sluice_status check_params(const sluice_attention_params *p, sluice_error *err) {
    if (!p) return sluice__fail(err, SLUICE_ERR_ARGUMENT, "attention: params: found NULL");
    SLUICE__TRY(check_sizes(p, err));
    SLUICE__TRY(check_options(p, err));
    return check_key_start(p, err);
}

/* Floats from the first to the last element + 1, or -1 when that overflows. */
static int64_t extent_of(const sluice_strided *s, const tensor_arg *a) {
    const int64_t counts[3] = {a->batch, a->tokens, a->heads};
    const int64_t strides[3] = {s->stride_batch, s->stride_token, s->stride_head};
    int64_t extent = a->width, part;
    for (int d = 0; d < 3; d++)
        if (__builtin_mul_overflow(counts[d] - 1, strides[d], &part) ||
            __builtin_add_overflow(extent, part, &extent))
            return -1;
    return extent > INT64_MAX / (int64_t)sizeof(float) ? -1 : extent;
}

/* True when some two elements share an address. Dimensions nest if, from the smallest stride up,
 * each stride reaches past all that the smaller ones span. */
static bool overlaps_itself(const sluice_strided *s, const tensor_arg *a) {
    int64_t counts[3] = {a->heads, a->tokens, a->batch};
    int64_t strides[3] = {s->stride_head, s->stride_token, s->stride_batch};
    int64_t span = a->width;
    for (int done = 0; done < 3; done++) {
        int least = -1;
        for (int d = 0; d < 3; d++)
            if (counts[d] > 0 && (least < 0 || counts[d] == 1 ||
                                  (counts[least] != 1 && strides[d] < strides[least])))
                least = d;
        if (counts[least] > 1) {
            if (strides[least] < span) return true;
            span += (counts[least] - 1) * strides[least];
        }
        counts[least] = 0;
    }
    return false;
}

/* Fills in strides of 0: packed against the strides that are given. */
static sluice_status resolve(sluice_strided *s, const tensor_arg *a, sluice_error *err) {
    if (!s->data)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "attention: %s: found NULL, expected [%lld, %lld, %lld, %lld]", a->name,
                            (long long)a->batch, (long long)a->tokens, (long long)a->heads,
                            (long long)a->width);
    if (s->stride_batch < 0 || s->stride_token < 0 || s->stride_head < 0)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "attention: %s: found a negative stride, expected 0 (dense) or more",
                            a->name);
    bool fits = true;
    if (!s->stride_head) s->stride_head = a->width;
    if (!s->stride_token)
        fits = !__builtin_mul_overflow(a->heads, s->stride_head, &s->stride_token);
    if (!s->stride_batch) {
        int64_t by_token, by_head;
        fits = fits && !__builtin_mul_overflow(a->tokens, s->stride_token, &by_token);
        fits = fits && !__builtin_mul_overflow(a->heads, s->stride_head, &by_head);
        if (fits) s->stride_batch = by_token > by_head ? by_token : by_head;
    }
    if (!fits || extent_of(s, a) < 0)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "attention: %s: strides reach past the address space", a->name);
    if (a->written && overlaps_itself(s, a))
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "attention: %s: elements overlap with strides batch %lld, token %lld, "
                            "head %lld (row of %lld)",
                            a->name, (long long)s->stride_batch, (long long)s->stride_token,
                            (long long)s->stride_head, (long long)a->width);
    return SLUICE_OK;
}

static sluice_status resolve_query(sluice_strided *s, const char *name,
                                   const sluice_attention_params *p, bool written,
                                   sluice_error *err) {
    return resolve(s, &(tensor_arg){name, p->batch, p->q_len, p->num_heads, p->head_dim, written},
                   err);
}

static sluice_status resolve_key(sluice_strided *s, const char *name,
                                 const sluice_attention_params *p, bool written,
                                 sluice_error *err) {
    return resolve(
        s, &(tensor_arg){name, p->batch, p->kv_len, p->num_kv_heads, p->head_dim, written}, err);
}

static sluice_status resolve_gate(sluice_strided *s, const char *name,
                                  const sluice_attention_params *p, bool written,
                                  sluice_error *err) {
    if (!p->gated) {
        *s = (sluice_strided){0};
        return SLUICE_OK;
    }
    int width = p->gate_granularity == SLUICE_GATE_HEADWISE ? 1 : p->head_dim;
    return resolve(s, &(tensor_arg){name, p->batch, p->q_len, p->num_heads, width, written}, err);
}

static bool same_view(const sluice_strided *a, const sluice_strided *b) {
    return a->data == b->data && a->stride_batch == b->stride_batch &&
           a->stride_token == b->stride_token && a->stride_head == b->stride_head;
}

static sluice_status resolve_outputs(sluice__attention_call *c, sluice_error *err) {
    SLUICE__TRY(resolve_query(&c->y, "y", &c->p, true, err));
    if (!c->o.data) return SLUICE_OK;
    SLUICE__TRY(resolve_query(&c->o, "o", &c->p, true, err));
    if (c->o.data != c->y.data) return SLUICE_OK;
    if (c->p.gated)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "attention: o: found y, expected another buffer (the call is gated)");
    if (!same_view(&c->o, &c->y))
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "attention: o: found y with other strides, expected the same");
    c->o = (sluice_strided){0}; /* one tensor: written once */
    return SLUICE_OK;
}

static sluice_status resolve_forward(sluice__attention_call *c, sluice_error *err) {
    const sluice_attention_params *p = &c->p;
    SLUICE__TRY(check_params(p, err));
    SLUICE__TRY(resolve_query(&c->q, "q", p, false, err));
    if (!c->typed_k.data) {
        SLUICE__TRY(resolve_key(&c->k, "k", p, false, err));
        SLUICE__TRY(resolve_key(&c->v, "v", p, false, err));
    }
    SLUICE__TRY(resolve_gate(&c->gate, "gate", p, false, err));
    return resolve_outputs(c, err);
}

sluice_status sluice__attention_forward_calls(sluice__attention_call *calls, int count, sluice_error *err) {
    int longest = 0;
    for (int i = 0; i < count; i++) {
        SLUICE__TRY(resolve_forward(&calls[i], err));
        if (calls[i].p.kv_len > longest) longest = calls[i].p.kv_len;
    }
    if (sluice__attention_forward(calls, count) == SLUICE_OK) return SLUICE_OK;
    return sluice__fail(err, SLUICE_ERR_MEMORY, "attention: cannot allocate scratch for kv_len %d", longest);
}

sluice_status sluice_attention_forward(const sluice_attention_params *p, sluice_strided q,
                                       sluice_strided k, sluice_strided v, sluice_strided gate,
                                       sluice_strided y, sluice_strided o, float *lse,
                                       float *first_share, sluice_error *err) {
    if (!p) return check_params(p, err);
    sluice__attention_call c = {.p = *p,
                                .q = q,
                                .k = k,
                                .v = v,
                                .gate = gate,
                                .y = y,
                                .o = o,
                                .lse = lse,
                                .first_share = first_share};
    return sluice__attention_forward_calls(&c, 1, err);
}

sluice_status sluice_attention_backward(const sluice_attention_params *p, sluice_strided q,
                                        sluice_strided k, sluice_strided v, sluice_strided gate,
                                        sluice_strided o, const float *lse, sluice_strided dy,
                                        sluice_strided dq, sluice_strided dk, sluice_strided dv,
                                        sluice_strided dgate, float *dsinks, sluice_error *err) {
    SLUICE__TRY(check_params(p, err));
    sluice__attention_call c = {.p = *p,
                                .q = q,
                                .k = k,
                                .v = v,
                                .gate = gate,
                                .o = o,
                                .dy = dy,
                                .dq = dq,
                                .dk = dk,
                                .dv = dv,
                                .dgate = dgate,
                                .lse_saved = lse,
                                .dsinks = p->sinks ? dsinks : NULL};
    if (!lse)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "attention: lse: found NULL, expected what forward wrote");
    SLUICE__TRY(resolve_query(&c.q, "q", p, false, err));
    SLUICE__TRY(resolve_key(&c.k, "k", p, false, err));
    SLUICE__TRY(resolve_key(&c.v, "v", p, false, err));
    SLUICE__TRY(resolve_gate(&c.gate, "gate", p, false, err));
    SLUICE__TRY(resolve_query(&c.o, "o", p, false, err));
    SLUICE__TRY(resolve_query(&c.dy, "dy", p, false, err));
    SLUICE__TRY(resolve_query(&c.dq, "dq", p, true, err));
    SLUICE__TRY(resolve_key(&c.dk, "dk", p, true, err));
    SLUICE__TRY(resolve_key(&c.dv, "dv", p, true, err));
    SLUICE__TRY(resolve_gate(&c.dgate, "dgate", p, true, err));
    if (sluice__attention_backward(&c) == SLUICE_OK) return SLUICE_OK;
    return sluice__fail(err, SLUICE_ERR_MEMORY, "attention: cannot allocate scratch for kv_len %d",
                        p->kv_len);
}

sluice_status sluice_attention_probs(const sluice_attention_params *p, int batch_row,
                                     sluice_strided q, sluice_strided k, float *probs,
                                     sluice_error *err) {
    SLUICE__TRY(check_params(p, err));
    if (batch_row < 0 || batch_row >= p->batch)
        return sluice__fail(err, SLUICE_ERR_ARGUMENT,
                            "attention: batch_row: found %d, expected 0..%d", batch_row,
                            p->batch - 1);
    if (!probs) return sluice__fail(err, SLUICE_ERR_ARGUMENT, "attention: probs: found NULL");
    sluice__attention_call c = {.p = *p, .q = q, .k = k};
    SLUICE__TRY(resolve_query(&c.q, "q", p, false, err));
    SLUICE__TRY(resolve_key(&c.k, "k", p, false, err));
    if (sluice__attention_probs(&c, batch_row, probs) == SLUICE_OK) return SLUICE_OK;
    return sluice__fail(err, SLUICE_ERR_MEMORY, "attention: cannot allocate scratch for kv_len %d",
                        p->kv_len);
}
