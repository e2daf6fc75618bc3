/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics of one look, added up over passes. */
#include "train/sink_probe.h"
#include "base/error.h"
#include "base/memory.h"
#include "kernels/ops.h"
#include <math.h>
#include <string.h>

enum { ARRAYS = 7 };

sluice_status sluice__sink_probe_new(sluice__sink_probe **out, int num_layers, sluice_error *err) {
    size_t n = (size_t)num_layers;
    sluice__sink_probe *p = sluice__calloc(1, sizeof *p + ARRAYS * n * sizeof(double), SLUICE__MEM_OTHER);
    *out = p;
    if (!p) return sluice__no_memory(err, ARRAYS * n * sizeof(double), "a probe");
    p->num_layers = num_layers;
    p->first_token_share = (double *)(void *)(p + 1);
    p->from_quarter = p->first_token_share + n;
    p->max_abs = p->from_quarter + n;
    p->max_attn = p->max_abs + n;
    p->max_ffn = p->max_attn + n;
    p->gate_mean = p->max_ffn + n;
    p->gate_count = p->gate_mean + n;
    return SLUICE_OK;
}

void sluice__sink_probe_free(sluice__sink_probe *p) {
    sluice__free(p);
}

void sluice__sink_probe_reset(sluice__sink_probe *p) {
    memset(p->first_token_share, 0, ARRAYS * (size_t)p->num_layers * sizeof(double));
    p->windows = 0;
}

/* share [B,H,T]: mean over heads and queries of each window, summed over windows. */
static void add_shares(sluice__sink_probe *p, const sluice__probe_event *e) {
    int64_t rows = e->shape[0] * e->shape[1], T = e->shape[2], quarter = (T + 3) / 4, heads = e->shape[1];
    double all = 0, late = 0;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t t = 1; t < T; t++) {
            double share = (double)e->data[r * T + t];
            all += share;
            if (t >= quarter) late += share;
        }
    }
    p->first_token_share[e->layer] += all / (double)(heads * (T > 1 ? T - 1 : 1));
    p->from_quarter[e->layer] += late / (double)(heads * (T > quarter ? T - quarter : 1));
    if (e->layer == 0) p->windows += e->shape[0];
}

/* Where the largest value at this point is kept; NULL when it is not. */
static double *largest_at(sluice__sink_probe *p, sluice__probe_point point) {
    return point == SLUICE__PROBE_RESID_FFN  ? p->max_abs
           : point == SLUICE__PROBE_ATTN_OUT ? p->max_attn
           : point == SLUICE__PROBE_FFN_OUT  ? p->max_ffn
                                             : NULL;
}

static sluice_status listen(void *user, const sluice__probe_event *e, sluice_error *err) {
    (void)err;
    sluice__sink_probe *p = user;
    int64_t count = 1;
    for (int i = 0; i < e->ndim; i++) count *= e->shape[i];
    double *largest = largest_at(p, e->point);
    if (e->point == SLUICE__PROBE_FIRST_SHARE) {
        add_shares(p, e);
    } else if (largest) {
        double m = (double)sluice__max_abs(e->data, count);
        if (!(m <= largest[e->layer])) largest[e->layer] = m; /* NaN wins */
    } else if (e->point == SLUICE__PROBE_GATE) {
        double sum = 0;
        for (int64_t i = 0; i < count; i++) sum += (double)e->data[i];
        p->gate_mean[e->layer] += sum;
        p->gate_count[e->layer] += (double)count;
    }
    return SLUICE_OK;
}

sluice__probe sluice__sink_probe_listener(sluice__sink_probe *p) {
    return (sluice__probe){p,
                           1u << SLUICE__PROBE_FIRST_SHARE | 1u << SLUICE__PROBE_RESID_FFN | 1u << SLUICE__PROBE_ATTN_OUT |
                               1u << SLUICE__PROBE_FFN_OUT | 1u << SLUICE__PROBE_GATE,
                           listen};
}

sluice_probe_record sluice__sink_probe_record(sluice__sink_probe *p, int64_t step) {
    for (int i = 0; i < p->num_layers; i++) {
        p->first_token_share[i] /= (double)(p->windows ? p->windows : 1);
        p->from_quarter[i] /= (double)(p->windows ? p->windows : 1);
        p->gate_mean[i] = p->gate_count[i] > 0 ? p->gate_mean[i] / p->gate_count[i] : NAN;
    }
    return (sluice_probe_record){.step = step,
                                 .num_layers = p->num_layers,
                                 .first_token_share = p->first_token_share,
                                 .first_token_share_from_quarter = p->from_quarter,
                                 .max_abs_residual = p->max_abs,
                                 .max_abs_attn_out = p->max_attn,
                                 .max_abs_ffn_out = p->max_ffn,
                                 .gate_mean = p->gate_mean};
}
