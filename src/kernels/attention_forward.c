/* SPDX-License-Identifier: Apache-2.0 */
/* Deals the forward pass out to the team: blocks of queries of one head each, independent of each
 * other. A few queries over many keys (decoding) go by key/value head instead, and by ranges of
 * keys when there are fewer heads than threads; the ranges are summed up in order.
 *
 * Keys and values that are not fp32 are widened close to where they are used: for decoding one range of one head at a
 * time, by the thread that needs it, so that memory is read in the small form; for blocks of queries one key/value head
 * after the other. */
#include "kernels/attention.h"
#include "kernels/profile.h"
#include "kernels/scratch.h"
#include <omp.h>

enum { RANGE_KEYS = 256 }; /* fewest keys worth a range of their own */

void sluice__attention_choose(sluice__attention_kernels *k, unsigned cpu) {
    (void)cpu;
#define KERNEL(name, result, parameters) k->name = sluice_##name##_ref;
#include "kernels/attention.def"
#undef KERNEL
#if defined(__x86_64__)
#define KERNEL(name, result, parameters)                                                           \
    if (cpu & SLUICE_CPU_AVX2) k->name = sluice_##name##_avx2;                                     \
    if (cpu & SLUICE_CPU_AVX512) k->name = sluice_##name##_avx512;
#include "kernels/attention.def"
#undef KERNEL
#endif
}

/* Floats that one thread's forward kernels need. */
static size_t forward_scratch(const sluice_attention_params *p) {
    size_t tiles =
        (size_t)SLUICE__ATTENTION_KEYS * 2 * SLUICE__ATTENTION_VEC +
        2 * (size_t)SLUICE__ATTENTION_QUERIES * sluice__attention_padded((size_t)p->head_dim);
    size_t reference = 2 * ((size_t)p->kv_len + (size_t)p->head_dim); /* doubles */
    return sluice__attention_padded(sluice_cpu_flags() & SLUICE_CPU_AVX2 ? tiles : reference);
}

/* Threads for `pairs` of queries and keys: 1 inside a parallel region, or when waking others takes
 * longer than the work. */
static int team_size(const sluice_attention_params *p, int64_t items, double pairs) {
    double most = 1.0 + pairs * p->head_dim / SLUICE__ATTENTION_GRAIN;
    int64_t team = omp_in_parallel() ? 1 : omp_get_max_threads();
    if (team > items) team = items;
    return (double)team > most ? (int)most : (int)team;
}

/* Rows begin..end-1 of one head as floats. */
static void widen(float *to, int64_t stride, const sluice__kv *kv, int b, int head, int begin, int end, int dim) {
    const char *from = (const char *)kv->data + b * kv->stride_batch + head * kv->stride_head;
    for (int t = begin; t < end; t++, to += stride) sluice__kv_load(to, from + t * kv->stride_token, kv->dtype, dim);
}

/* The call for one key/value head of one batch row whose keys and values `first` and later stand at k and v. Their
 * addresses are those of key 0, which may lie outside of the buffer and is not read then. */
static sluice__attention_call narrowed(const sluice__attention_call *c, float *k, float *v, int64_t stride, int first) {
    sluice__attention_call one = *c;
    uintptr_t behind = (uintptr_t)(first * stride) * sizeof(float);
    one.k = (sluice_strided){(float *)((uintptr_t)k - behind), 0, stride, 0};
    one.v = (sluice_strided){(float *)((uintptr_t)v - behind), 0, stride, 0};
    return one;
}

/* First key that any query of batch row b sees. */
static int first_key(const sluice_attention_params *p, int b) {
    int least = p->kv_len;
    for (int i = 0; i < p->q_len; i++) {
        int first, last;
        sluice__attention_range(p, b, i, &first, &last);
        if (first < least) least = first;
    }
    return least;
}

static sluice_status forward_typed_blocks(const sluice__attention_call *c, const sluice__attention_kernels *k) {
    const sluice_attention_params *p = &c->p;
    int group = p->num_heads / p->num_kv_heads, size = SLUICE__ATTENTION_QUERIES;
    int blocks = (p->q_len + size - 1) / size, team = team_size(p, (int64_t)group * blocks, (double)group * p->q_len * p->kv_len);
    int64_t stride = (int64_t)sluice__attention_padded((size_t)p->head_dim);
    size_t each = forward_scratch(p), rows = (size_t)p->kv_len * (size_t)stride;
    float *scratch = sluice__scratch(each * (size_t)team + 2 * rows);
    if (!scratch) return SLUICE_ERR_MEMORY;
    float *wide_k = scratch + each * (size_t)team, *wide_v = wide_k + rows;
    for (int unit = 0; unit < p->batch * p->num_kv_heads; unit++) {
        int b = unit / p->num_kv_heads, kv = unit % p->num_kv_heads, first = first_key(p, b);
#pragma omp parallel for schedule(static) num_threads(team) if (team > 1)
        for (int t = first; t < p->kv_len; t++) {
            widen(wide_k + (t - first) * stride, stride, c->typed_k, b, kv, t, t + 1, p->head_dim);
            widen(wide_v + (t - first) * stride, stride, c->typed_v, b, kv, t, t + 1, p->head_dim);
        }
        sluice__attention_call one = narrowed(c, wide_k, wide_v, stride, first);
#pragma omp parallel for schedule(dynamic) num_threads(team) if (team > 1)
        for (int item = 0; item < group * blocks; item++) {
            int begin = (blocks - 1 - item / group) * size, end = begin + size;
            float *mine = scratch + (team > 1 ? (size_t)omp_get_thread_num() : 0) * each;
            k->attention_forward_f32(&one, b, kv * group + item % group, begin, end < p->q_len ? end : p->q_len, mine);
        }
    }
    return SLUICE_OK;
}

static sluice_status forward_blocks(const sluice__attention_call *c,
                                    const sluice__attention_kernels *k) {
    const sluice_attention_params *p = &c->p;
    int64_t heads = (int64_t)p->batch * p->num_heads;
    int team =
        team_size(p, heads * p->q_len, (double)heads * p->q_len * (p->kv_len - p->q_len / 2));
    int size = SLUICE__ATTENTION_QUERIES, blocks = (p->q_len + size - 1) / size;
    if (team > 1 && heads * blocks < 8 * team) { /* too few to balance: halve them */
        size /= 2;
        blocks = (p->q_len + size - 1) / size;
    }
    size_t each = forward_scratch(p);
    float *scratch = sluice__scratch(each * (size_t)team);
    if (!scratch) return SLUICE_ERR_MEMORY;
#pragma omp parallel for schedule(dynamic) num_threads(team) if (team > 1)
    for (int64_t item = 0; item < heads * blocks; item++) {
        int block =
            blocks - 1 - (int)(item / heads); /* later queries see more keys: longest first */
        int h = (int)(item % p->num_heads), b = (int)(item / p->num_heads % p->batch);
        int begin = block * size, end = begin + size;
        float *mine = scratch + (team > 1 ? (size_t)omp_get_thread_num() : 0) * each;
        k->attention_forward_f32(c, b, h, begin, end < p->q_len ? end : p->q_len, mine);
    }
    return SLUICE_OK;
}

/* How decoding is split. */
typedef struct decode_plan {
    int64_t units; /* key/value heads of all batch rows */
    int first, parts,
        keys; /* first key seen by anybody; ranges of `keys` keys each, the last one shorter */
    size_t rows, part; /* queries of a unit, rounded up; floats of one part */
    int64_t stride;
} decode_plan;

static decode_plan plan_decode(const sluice_attention_params *p, int team, bool typed) {
    decode_plan d = {.units = (int64_t)p->batch * p->num_kv_heads,
                     .first = p->kv_len,
                     .parts = 1,
                     .stride = (int64_t)sluice__attention_padded((size_t)p->head_dim)};
    for (int b = 0; b < p->batch; b++) {
        int first = first_key(p, b);
        if (first < d.first) d.first = first;
    }
    int count = p->kv_len - d.first, most = (count + RANGE_KEYS - 1) / RANGE_KEYS;
    if (d.units % team && d.units < 4 * team) d.parts = (int)((4 * team + d.units - 1) / d.units);
    if (d.parts > most || typed) d.parts = most; /* a range that is widened has to stay in the cache */
    d.keys = (count + d.parts - 1) / d.parts;
    d.rows = sluice__attention_padded((size_t)(p->num_heads / p->num_kv_heads) * (size_t)p->q_len);
    d.part = d.rows * (3 + (size_t)d.stride);
    return d;
}

static sluice__attention_part place_part(const decode_plan *d, float *at) {
    return (sluice__attention_part){.top = at,
                                    .sum = at + d->rows,
                                    .score0 = at + 2 * d->rows,
                                    .out = at + 3 * d->rows,
                                    .stride = d->stride};
}

static void partial(const sluice__attention_call *c, const sluice__attention_kernels *k, const decode_plan *d, int unit,
                    int begin, int end, const sluice__attention_part *part, float *mine, float *wide) {
    const sluice_attention_params *p = &c->p;
    int b = unit / p->num_kv_heads, kv = unit % p->num_kv_heads;
    if (!c->typed_k || begin >= end) {
        k->attention_partial_f32(c, b, kv, begin, end, part, mine);
        return;
    }
    float *wide_v = wide + RANGE_KEYS * d->stride;
    widen(wide, d->stride, c->typed_k, b, kv, begin, end, p->head_dim);
    widen(wide_v, d->stride, c->typed_v, b, kv, begin, end, p->head_dim);
    sluice__attention_call one = narrowed(c, wide, wide_v, d->stride, begin);
    k->attention_partial_f32(&one, b, kv, begin, end, part, mine);
}

static sluice_status forward_decode(const sluice__attention_call *c,
                                    const sluice__attention_kernels *k) {
    const sluice_attention_params *p = &c->p;
    int64_t rows = (int64_t)p->batch * p->num_heads * p->q_len;
    int team = team_size(p, rows * (1 + p->kv_len / RANGE_KEYS), (double)rows * p->kv_len);
    decode_plan d = plan_decode(p, team, c->typed_k != NULL);
    size_t own = forward_scratch(p) + d.rows * SLUICE__ATTENTION_DECODE_KEYS,
           each = own + (c->typed_k ? 2 * (size_t)RANGE_KEYS * (size_t)d.stride : 0),
           parts = (size_t)d.units * (size_t)d.parts;
    float *scratch = sluice__scratch(each * (size_t)team + parts * d.part);
    if (!scratch) return SLUICE_ERR_MEMORY;
    float *out = scratch + each * (size_t)team;
#pragma omp parallel num_threads(team) if (team > 1)
    {
        float *mine = scratch + (team > 1 ? (size_t)omp_get_thread_num() : 0) * each;
#pragma omp for schedule(dynamic)
        for (int64_t item = 0; item < d.units * d.parts; item++) {
            int begin = d.first + (int)(item % d.parts) * d.keys, end = begin + d.keys,
                unit = (int)(item / d.parts);
            sluice__attention_part part = place_part(&d, out + (size_t)item * d.part);
            partial(c, k, &d, unit, begin, end < p->kv_len ? end : p->kv_len, &part, mine, mine + own);
        }
#pragma omp for schedule(static)
        for (int unit = 0; unit < (int)d.units; unit++) {
            sluice__attention_part part =
                place_part(&d, out + (size_t)unit * (size_t)d.parts * d.part);
            k->attention_merge_f32(c, unit / p->num_kv_heads, unit % p->num_kv_heads, &part,
                                   d.parts, (int64_t)d.part, mine);
        }
    }
    return SLUICE_OK;
}

sluice_status sluice__attention_forward(const sluice__attention_call *c) {
    SLUICE__SPAN_OF(sluice__attention_work_of(c, false));
    sluice__attention_kernels k;
    sluice__attention_choose(&k, sluice_cpu_flags());
    if (c->p.q_len <= SLUICE__ATTENTION_DECODE) return forward_decode(c, &k);
    return c->typed_k ? forward_typed_blocks(c, &k) : forward_blocks(c, &k);
}
