/* SPDX-License-Identifier: Apache-2.0 */
/* Deals the backward pass out to the team. A unit is one key/value head of one batch row with all
 * query heads that read it. Whole rounds of units go one to a thread. What is left over (all of it,
 * when there are fewer units than threads) is done by the whole team at once: the blocks of keys
 * are dealt out like cards, which balances the triangle under the diagonal; each thread sums its
 * own dq, and these are added in order. So no sum depends on who came first, and nothing is atomic.
 */
#include "kernels/attention.h"
#include "kernels/profile.h"
#include "kernels/scratch.h"
#include <omp.h>
#include <string.h>

/* How the scratch of a backward call is laid out; sizes in floats. */
typedef struct plan {
    const sluice__attention_call *c;
    sluice__attention_kernels k;
    int64_t stride;     /* of rows of one head */
    size_t head, tiles; /* one [q_len rounded up to even, stride] array; scratch of the kernel */
    int forms;          /* arrays of q and dout: one or two of each */
    size_t room;        /* where two are made from */
    int blocks, team;
    double *dsinks; /* [batch, num_heads] */
} plan;

/* Work of one unit with `parts` sums of dq. */
static size_t unit_size(const plan *l, int parts) {
    return ((size_t)l->forms + (size_t)parts) * l->head + l->room + 2 * sluice__attention_padded((size_t)l->c->p.q_len) +
           (size_t)parts * l->tiles;
}

/* One query head by `parts` threads (1: the calling thread). */
static void head_backward(const plan *l, int b, int h, int parts, float *scratch) {
    const sluice__attention_call *c = l->c;
    size_t rows = sluice__attention_padded((size_t)c->p.q_len);
    sluice__attention_work w = {.q = scratch, .dout = scratch + l->head, .stride = l->stride};
    float *behind = scratch + (size_t)l->forms * l->head;
    if (l->forms > 2) {
        w.q_down = scratch + 2 * l->head;
        w.dout_down = scratch + 3 * l->head;
    }
    w.room = behind;
    w.row_sum = behind + l->room;
    w.shift = w.row_sum + rows;
    float *dq = w.shift + rows, *tiles = dq + (size_t)parts * l->head;
    l->dsinks[(int64_t)b * c->p.num_heads + h] =
        l->k.attention_prepare_f32(c, b, h, 0, c->p.q_len, &w);
#pragma omp parallel for schedule(static, 1) num_threads(parts) if (parts > 1)
    for (int part = 0; part < parts; part++) {
        float *mine = dq + (size_t)part * l->head;
        memset(mine, 0, l->head * sizeof *mine);
        for (int block = part; block < l->blocks; block += parts) {
            int begin = block * SLUICE__ATTENTION_BACK_KEYS,
                end = begin + SLUICE__ATTENTION_BACK_KEYS;
            l->k.attention_backward_f32(c, b, h, begin, end < c->p.kv_len ? end : c->p.kv_len, &w,
                                        mine, tiles + (size_t)part * l->tiles);
        }
    }
    l->k.attention_finish_f32(c, b, h, 0, c->p.q_len, dq, parts, (int64_t)l->head, l->stride);
}

static void unit_backward(const plan *l, int64_t unit, int parts, float *scratch) {
    const sluice_attention_params *p = &l->c->p;
    int group = p->num_heads / p->num_kv_heads, kv = (int)(unit % p->num_kv_heads),
        b = (int)(unit / p->num_kv_heads);
    for (int h = kv * group; h < (kv + 1) * group; h++) head_backward(l, b, h, parts, scratch);
}

/* Added to dsinks in the order of batch rows. */
static void add_dsinks(const plan *l) {
    const sluice_attention_params *p = &l->c->p;
    for (int h = 0; l->c->dsinks && h < p->num_heads; h++) {
        double sum = 0.0;
        for (int b = 0; b < p->batch; b++) sum += l->dsinks[(int64_t)b * p->num_heads + h];
        l->c->dsinks[h] += (float)sum;
    }
}

sluice_status sluice__attention_backward(const sluice__attention_call *c) {
    SLUICE__SPAN_OF(sluice__attention_work_of(c, 1, true));
    const sluice_attention_params *p = &c->p;
    plan l = {.c = c, .stride = (int64_t)sluice__attention_padded((size_t)p->head_dim)};
    sluice__attention_choose(&l.k, sluice_cpu_flags(), p->bf16);
    l.head = ((size_t)p->q_len + 1) / 2 * 2 * (size_t)l.stride;
    l.forms = p->bf16 ? 4 : 2;
    l.room = p->bf16 ? 2 * SLUICE__ATTENTION_VEC * (size_t)l.stride : 0;
    l.tiles = sluice__attention_padded(SLUICE__ATTENTION_BACK_SCRATCH(l.stride));
    l.blocks = (p->kv_len + SLUICE__ATTENTION_BACK_KEYS - 1) / SLUICE__ATTENTION_BACK_KEYS;
    l.team = omp_in_parallel() ? 1 : omp_get_max_threads();
    int64_t units = (int64_t)p->batch * p->num_kv_heads;
    int64_t whole = l.team == 1 || l.blocks < 2 * l.team ? units : units - units % l.team;
    int threads = whole < l.team ? (int)whole : l.team;
    size_t alone = (size_t)threads * unit_size(&l, 1);
    size_t together = whole < units ? unit_size(&l, l.team) : 0;
    size_t sinks = 2 * sluice__attention_padded((size_t)p->batch * (size_t)p->num_heads);
    float *scratch = sluice__scratch(sinks + (alone > together ? alone : together));
    if (!scratch) return SLUICE_ERR_MEMORY;
    l.dsinks = (double *)(void *)scratch;
    scratch += sinks;
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)
    for (int64_t unit = 0; unit < whole; unit++)
        unit_backward(&l, unit, 1, scratch + (size_t)omp_get_thread_num() * unit_size(&l, 1));
    for (int64_t unit = whole; unit < units; unit++) unit_backward(&l, unit, l.team, scratch);
    add_dsinks(&l);
    return SLUICE_OK;
}
