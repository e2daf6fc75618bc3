/* SPDX-License-Identifier: Apache-2.0 */
/* Deals the forward pass out to the team: blocks of queries of one head each, independent of each
 * other. A few queries over many keys (decoding) go by key/value head instead, and by ranges of
 * keys when there are fewer heads than threads; the ranges are summed up in order. Decoding calls of several sequences are
 * dealt out together. How a call is cut into ranges depends on that call alone, so what a sequence gets does not depend on
 * its company.
 *
 * Keys and values that are not fp32 are widened close to where they are used: for decoding one range of one head at a
 * time, by the thread that needs it, so that memory is read in the small form; for blocks of queries one key/value head
 * after the other. */
#include "kernels/attention.h"
#include "base/error.h"
#include "kernels/profile.h"
#include "kernels/scratch.h"
#include <omp.h>

enum { RANGE_KEYS = 256 }; /* fewest keys worth a range of their own */

void sluice__attention_choose(sluice__attention_kernels *k, unsigned cpu, bool bf16) {
    (void)cpu, (void)bf16;
#define KERNEL(name, result, parameters) k->name = sluice_##name##_ref;
#include "kernels/attention.def"
#undef KERNEL
#if defined(__x86_64__)
#define KERNEL(name, result, parameters)                                                           \
    if (cpu & SLUICE_CPU_AVX2) k->name = sluice_##name##_avx2;                                     \
    if (cpu & SLUICE_CPU_AVX512) k->name = sluice_##name##_avx512;
#include "kernels/attention.def"
#undef KERNEL
#define KERNEL(name, result, parameters)
#define KERNEL_BF16(name, result, parameters)                                                      \
    if (bf16 && cpu & SLUICE_CPU_AVX512_BF16) k->name = sluice_##name##_avx512bf16;
#include "kernels/attention.def"
#undef KERNEL
#endif
}

/* Floats that one thread's forward kernels need. */
static size_t forward_scratch(const sluice_attention_params *p) {
    size_t line = sluice__attention_padded((size_t)p->head_dim), keys = SLUICE__ATTENTION_KEYS;
    size_t tiles = keys * 2 * SLUICE__ATTENTION_VEC                      /* scores */
                   + 2 * keys * (line + SLUICE__ATTENTION_VEC)           /* keys and values */
                   + 2 * (size_t)SLUICE__ATTENTION_QUERIES * line;       /* queries and outputs */
    size_t reference = 2 * ((size_t)p->kv_len + (size_t)p->head_dim); /* doubles */
    return sluice__attention_padded(sluice_cpu_flags() & SLUICE_CPU_AVX2 ? tiles : reference);
}

/* Threads for `work` = pairs of queries and keys times head_dim: 1 inside a parallel region, or when waking others takes
 * longer than the work. Keys that no query sees do not count: whether a cache still holds them must not change results. */
static int team_size(int64_t items, double work) {
    double most = 1.0 + work / SLUICE__ATTENTION_GRAIN;
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

/* The most keys that the queries of a batch row see together. */
static int keys_seen(const sluice_attention_params *p) {
    return p->window && p->kv_len - p->window > p->q_len ? p->window + p->q_len : p->kv_len;
}

static sluice_status forward_typed_blocks(const sluice__attention_call *c, const sluice__attention_kernels *k) {
    const sluice_attention_params *p = &c->p;
    int group = p->num_heads / p->num_kv_heads, size = SLUICE__ATTENTION_QUERIES;
    int blocks = (p->q_len + size - 1) / size, team = team_size((int64_t)group * blocks, (double)group * p->q_len * keys_seen(p) * p->head_dim);
    int64_t stride = (int64_t)sluice__attention_padded((size_t)p->head_dim);
    size_t each = forward_scratch(p), rows = (size_t)p->kv_len * (size_t)stride;
    float *scratch = sluice__scratch(each * (size_t)team + 2 * rows);
    if (!scratch) return SLUICE_ERR_MEMORY;
    float *wide_k = scratch + each * (size_t)team, *wide_v = wide_k + rows;
    for (int unit = 0; unit < p->batch * p->num_kv_heads; unit++) {
        int b = unit / p->num_kv_heads, kv = unit % p->num_kv_heads, first = first_key(p, b);
#pragma omp parallel for schedule(static) num_threads(team) if (team > 1)
        for (int t = first; t < p->kv_len; t++) {
            widen(wide_k + (t - first) * stride, stride, &c->typed_k, b, kv, t, t + 1, p->head_dim);
            widen(wide_v + (t - first) * stride, stride, &c->typed_v, b, kv, t, t + 1, p->head_dim);
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
        team_size(heads * p->q_len, (double)heads * p->q_len * (keys_seen(p) - p->q_len / 2) * p->head_dim);
    int size = SLUICE__ATTENTION_QUERIES, blocks = (p->q_len + size - 1) / size;
    if (team > 1 && heads * blocks < 8 * team) { /* too few to balance: halve them */
        size /= 2;
        blocks = (p->q_len + size - 1) / size;
    }
    size_t each = forward_scratch(p);
    float *scratch = sluice__scratch(each * (size_t)team);
    if (!scratch) return SLUICE_ERR_MEMORY;
    /* Head after head, so that keys and values are read from memory once: by one thread, if there are heads enough. In a
     * head the later queries first, which see more keys. */
    int chunk = heads >= 8 * team ? blocks : 1;
#pragma omp parallel for schedule(dynamic, chunk) num_threads(team) if (team > 1)
    for (int64_t item = 0; item < heads * blocks; item++) {
        int block = blocks - 1 - (int)(item % blocks);
        int h = (int)(item / blocks % p->num_heads), b = (int)(item / blocks / p->num_heads);
        int begin = block * size, end = begin + size;
        float *mine = scratch + (team > 1 ? (size_t)omp_get_thread_num() : 0) * each;
        k->attention_forward_f32(c, b, h, begin, end < p->q_len ? end : p->q_len, mine);
    }
    return SLUICE_OK;
}

/* How the decoding of one call is split. */
typedef struct decode_plan {
    const sluice__attention_call *call;
    int64_t first_item, first_unit; /* among those of all calls */
    int64_t units;                  /* key/value heads of all batch rows */
    int first, parts,
        keys; /* first key seen by anybody; ranges of `keys` keys each, the last one shorter */
    int heads; /* key/value heads that one thread takes of a range, one after the other */
    size_t rows, part; /* queries of a unit, rounded up; floats of one part */
    size_t at;         /* of the first part, in floats behind those of the calls in front */
    int64_t stride;
    double work; /* as team_size wants it */
} decode_plan;

static decode_plan plan_decode(const sluice__attention_call *c) {
    const sluice_attention_params *p = &c->p;
    decode_plan d = {.call = c,
                     .units = (int64_t)p->batch * p->num_kv_heads,
                     .first = p->kv_len,
                     .parts = 1,
                     .stride = (int64_t)sluice__attention_padded((size_t)p->head_dim)};
    for (int b = 0; b < p->batch; b++) {
        int first = first_key(p, b);
        if (first < d.first) d.first = first;
    }
    int count = p->kv_len - d.first, most = (count + RANGE_KEYS - 1) / RANGE_KEYS;
    int64_t rows = (int64_t)p->batch * p->num_heads * p->q_len;
    d.work = (double)rows * count * p->head_dim;
    int team = team_size(rows * (1 + count / RANGE_KEYS), d.work);
    if (d.units % team && d.units < 4 * team) d.parts = (int)((4 * team + d.units - 1) / d.units);
    bool far = sluice__attention_is_far(p, count);
    if (d.parts > most || c->typed_k.data || far) d.parts = most; /* a range that is widened has to stay in the cache */
    d.keys = (count + d.parts - 1) / d.parts;
    d.heads = far && d.parts >= 2 * team ? p->num_kv_heads : 1;
    d.rows = sluice__attention_padded((size_t)(p->num_heads / p->num_kv_heads) * (size_t)p->q_len);
    d.part = d.rows * (3 + (size_t)d.stride);
    return d;
}

/* What the calls of one team come to. */
typedef struct decode_sum {
    int64_t items, units;
    double work;
    size_t parts, own, wide; /* floats: of all parts; of a thread, without and with what it widens */
} decode_sum;

static void add_plan(decode_sum *sum, decode_plan *d) {
    const sluice_attention_params *p = &d->call->p;
    size_t own = forward_scratch(p) + d->rows * SLUICE__ATTENTION_DECODE_KEYS,
           wide = d->call->typed_k.data ? 2 * (size_t)RANGE_KEYS * (size_t)d->stride : 0;
    d->first_item = sum->items;
    d->first_unit = sum->units;
    d->at = sum->parts;
    sum->items += d->units / d->heads * d->parts;
    sum->units += d->units;
    sum->work += d->work;
    sum->parts += (size_t)d->units * (size_t)d->parts * d->part;
    if (own > sum->own) sum->own = own;
    if (wide > sum->wide) sum->wide = wide;
}

static sluice__attention_part place_part(const decode_plan *d, float *at) {
    return (sluice__attention_part){.top = at,
                                    .sum = at + d->rows,
                                    .score0 = at + 2 * d->rows,
                                    .out = at + 3 * d->rows,
                                    .stride = d->stride};
}

/* Range `range` of the keys of one head. */
static void partial(const sluice__attention_kernels *k, const decode_plan *d, int b, int kv, int range, float *out, float *mine,
                    float *wide) {
    const sluice__attention_call *c = d->call;
    const sluice_attention_params *p = &c->p;
    int begin = d->first + range * d->keys, end = begin + d->keys;
    size_t slot = (size_t)(b * p->num_kv_heads + kv) * (size_t)d->parts + (size_t)range;
    sluice__attention_part part = place_part(d, out + d->at + slot * d->part);
    if (end > p->kv_len) end = p->kv_len;
    if (!c->typed_k.data || begin >= end) {
        k->attention_partial_f32(c, b, kv, begin, end, &part, mine);
        return;
    }
    float *wide_v = wide + RANGE_KEYS * d->stride;
    widen(wide, d->stride, &c->typed_k, b, kv, begin, end, p->head_dim);
    widen(wide_v, d->stride, &c->typed_v, b, kv, begin, end, p->head_dim);
    sluice__attention_call one = narrowed(c, wide, wide_v, d->stride, begin);
    k->attention_partial_f32(&one, b, kv, begin, end, &part, mine);
}

/* Range after range, the heads of one next to each other: keys of all heads of a token are neighbours in memory. */
static void some_heads(const sluice__attention_kernels *k, const decode_plan *d, int64_t item, float *out, float *mine, float *wide) {
    int pieces = d->call->p.num_kv_heads / d->heads, first = (int)(item % pieces) * d->heads;
    int range = (int)(item / pieces % d->parts), b = (int)(item / pieces / d->parts);
    for (int kv = first; kv < first + d->heads; kv++) partial(k, d, b, kv, range, out, mine, wide);
}

static void merge(const sluice__attention_kernels *k, const decode_plan *d, int64_t unit, float *out, float *mine) {
    int kv_heads = d->call->p.num_kv_heads;
    sluice__attention_part part = place_part(d, out + d->at + (size_t)unit * (size_t)d->parts * d->part);
    k->attention_merge_f32(d->call, (int)unit / kv_heads, (int)unit % kv_heads, &part, d->parts, (int64_t)d->part, mine);
}

/* The plan that item (or unit) i of all calls belongs to. */
static const decode_plan *plan_at(const decode_plan *plans, int count, int64_t i, bool unit) {
    int low = 0, high = count;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if ((unit ? plans[middle].first_unit : plans[middle].first_item) <= i) low = middle;
        else high = middle;
    }
    return &plans[low];
}

static void decode_all(const sluice__attention_kernels *k, const decode_plan *plans, int count, const decode_sum *sum,
                       int team, float *scratch) {
    size_t each = sum->own + sum->wide;
    float *out = scratch + each * (size_t)team;
#pragma omp parallel num_threads(team) if (team > 1)
    {
        float *mine = scratch + (team > 1 ? (size_t)omp_get_thread_num() : 0) * each;
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < sum->items; i++) {
            const decode_plan *d = plan_at(plans, count, i, false);
            some_heads(k, d, i - d->first_item, out, mine, mine + sum->own);
        }
#pragma omp for schedule(static)
        for (int64_t i = 0; i < sum->units; i++) {
            const decode_plan *d = plan_at(plans, count, i, true);
            merge(k, d, i - d->first_unit, out, mine);
        }
    }
}

/* A multiple of the vector, in floats. */
static size_t plans_room(int count) {
    return sluice__attention_padded((size_t)count * sizeof(decode_plan) / sizeof(float) + 1);
}

/* Shares are rounded in blocks alone. */
static bool is_decoding(const sluice__attention_call *c) { return c->p.q_len <= SLUICE__ATTENTION_DECODE && !c->p.bf16; }

/* All calls that decode: counted twice, because the plans stand in the scratch whose size they decide. */
static sluice_status forward_decode(const sluice__attention_call *calls, int count, const sluice__attention_kernels *k) {
    decode_sum sum = {0};
    int decoding = 0;
    for (int i = 0; i < count; i++)
        if (is_decoding(&calls[i])) {
            decode_plan d = plan_decode(&calls[i]);
            add_plan(&sum, &d);
            decoding++;
        }
    if (!decoding) return SLUICE_OK;
    int team = team_size(sum.items, sum.work);
    size_t room = plans_room(decoding);
    float *scratch = sluice__scratch(room + (sum.own + sum.wide) * (size_t)team + sum.parts);
    if (!scratch) return SLUICE_ERR_MEMORY;
    decode_plan *plans = (void *)scratch;
    sum = (decode_sum){0};
    for (int i = 0, n = 0; i < count; i++)
        if (is_decoding(&calls[i])) {
            plans[n] = plan_decode(&calls[i]);
            add_plan(&sum, &plans[n++]);
        }
    decode_all(k, plans, decoding, &sum, team, scratch + room);
    return SLUICE_OK;
}

sluice_status sluice__attention_forward(const sluice__attention_call *calls, int count) {
    SLUICE__SPAN_OF(sluice__attention_work_of(calls, count, false));
    sluice__attention_kernels k;
    for (int i = 0; i < count; i++) {
        const sluice__attention_call *c = &calls[i];
        if (is_decoding(c)) continue;
        sluice__attention_choose(&k, sluice_cpu_flags(), c->p.bf16);
        SLUICE__TRY(c->typed_k.data ? forward_typed_blocks(c, &k) : forward_blocks(c, &k));
    }
    sluice__attention_choose(&k, sluice_cpu_flags(), false);
    return forward_decode(calls, count, &k);
}
