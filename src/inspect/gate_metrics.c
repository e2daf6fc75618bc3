/* SPDX-License-Identifier: Apache-2.0 */
/* Gate scores. Quantiles come from a histogram over the upper 16 bits of the scores, whose patterns
 * are first put into the order of their values: a bin is at most 2^-7 of its value wide, whatever
 * the activation gives. */
#include "inspect/gate_metrics.h"
#include "base/memory.h"
#include <math.h>
#include <string.h>

enum { FINE_BINS = 1 << 16 };

static const double quantiles[SLUICE_GATE_QUANTILES] = {0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99};

static sluice_status begin(sluice__gate_metrics *g, int heads, int width, bool channels,
                           sluice_error *err) {
    g->heads = heads;
    g->width = width;
    g->head = sluice__calloc((size_t)heads, sizeof *g->head, SLUICE__MEM_OTHER);
    g->fine = sluice__calloc(FINE_BINS, sizeof *g->fine, SLUICE__MEM_OTHER);
    if (channels)
        g->channel =
            sluice__calloc((size_t)heads * (size_t)width, sizeof *g->channel, SLUICE__MEM_OTHER);
    if (!g->head || !g->fine || (channels && !g->channel))
        return sluice__no_memory(err, FINE_BINS * sizeof *g->fine, "gate statistics");
    for (int h = 0; h < heads; h++) {
        g->head[h].min = INFINITY;
        g->head[h].max = -INFINITY;
    }
    return SLUICE_OK;
}

void sluice__gate_free(sluice__gate_metrics *g) {
    sluice__free(g->head);
    sluice__free(g->fine);
    sluice__free(g->channel);
    *g = (sluice__gate_metrics){0};
}

/* Upper bits of a score, in the order of scores. */
static unsigned fine_bin(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return (u & 0x80000000u ? ~u : u | 0x80000000u) >> 16;
}

static double fine_edge(unsigned bin) {
    uint32_t u = bin << 16;
    float x;
    u = u & 0x80000000u ? u & 0x7fffffffu : ~u;
    memcpy(&x, &u, sizeof x);
    return x;
}

static void add_scores(sluice__gate_head *h, uint64_t *fine, const float *x, int n) {
    double sum = 0, squares = 0;
    float low = x[0], high = x[0];
    for (int i = 0; i < n; i++) {
        double v = x[i];
        sum += v;
        squares += v * v;
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
        h->below_01 += v < 0.1;
        h->below_05 += v < 0.5;
        fine[fine_bin(x[i])]++;
        if (v >= 0 && v <= 1) {
            int bin = (int)(v * SLUICE_GATE_BINS);
            h->hist[bin < SLUICE_GATE_BINS ? bin : SLUICE_GATE_BINS - 1]++;
        } else {
            h->below += v < 0;
            h->above += v > 1;
        }
    }
    h->sum += sum;
    h->sum_squares += squares;
    h->min = fmin(h->min, low);
    h->max = fmax(h->max, high);
}

sluice_status sluice__gate_add(sluice__gate_metrics *g, const sluice__probe_event *e, bool channels,
                               sluice_error *err) {
    int heads = (int)e->shape[2], width = (int)e->shape[3];
    int64_t tokens = e->shape[0] * e->shape[1];
    if (!g->head) SLUICE__TRY(begin(g, heads, width, channels, err));
    if (g->once) tokens = g->tokens ? 0 : 1;
    for (int64_t t = 0; t < tokens; t++)
        for (int h = 0; h < heads; h++) {
            const float *x = e->data + (t * heads + h) * width;
            add_scores(&g->head[h], g->fine, x, width);
            for (int i = 0; g->channel && i < width; i++) g->channel[h * width + i] += x[i];
        }
    g->tokens += tokens;
    return SLUICE_OK;
}

static sluice__gate_head all_heads(const sluice__gate_metrics *g) {
    sluice__gate_head a = g->head[0];
    for (int h = 1; h < g->heads; h++) {
        const sluice__gate_head *b = &g->head[h];
        a.sum += b->sum;
        a.sum_squares += b->sum_squares;
        a.min = fmin(a.min, b->min);
        a.max = fmax(a.max, b->max);
        a.below_01 += b->below_01;
        a.below_05 += b->below_05;
        a.below += b->below;
        a.above += b->above;
        for (int i = 0; i < SLUICE_GATE_BINS; i++) a.hist[i] += b->hist[i];
    }
    return a;
}

double sluice__gate_mean(const sluice__gate_metrics *g) {
    if (!g->tokens) return 1.0;
    return all_heads(g).sum / ((double)g->tokens * g->heads * g->width);
}

/* The score below which `share` of all lie, linear inside a bin, never outside of what was seen. */
static double quantile(const sluice__gate_metrics *g, double share, double count, double min,
                       double max) {
    double rank = share * count, seen = 0;
    for (unsigned bin = 0; bin < FINE_BINS; bin++) {
        double here = (double)g->fine[bin];
        if (here == 0 || seen + here < rank) {
            seen += here;
            continue;
        }
        double low = fine_edge(bin), high = bin + 1 < FINE_BINS ? fine_edge(bin + 1) : low;
        return fmin(fmax(low + (high - low) * (rank - seen) / here, min), max);
    }
    return max;
}

static double deviation(const sluice__gate_head *h, double count) {
    double mean = h->sum / count;
    return sqrt(fmax(0, h->sum_squares / count - mean * mean));
}

static void head_result(const sluice__gate_metrics *g, sluice_gate_stats *out, int h) {
    const sluice__gate_head *one = &g->head[h];
    double count = (double)g->tokens * g->width;
    out->heads_mean[h] = one->sum / count;
    out->heads_std[h] = deviation(one, count);
    out->heads_min[h] = one->min;
    out->heads_max[h] = one->max;
    out->heads_below_01[h] = (double)one->below_01 / count;
    memcpy(out->heads_hist + (size_t)h * SLUICE_GATE_BINS, one->hist, sizeof one->hist);
}

void sluice__gate_result(const sluice__gate_metrics *g, sluice_gate_stats *out) {
    out->heads = g->tokens ? g->heads : 0;
    if (!out->heads) {
        out->mean = out->std = out->min = out->max = out->below_01 = out->below_05 = NAN;
        for (int i = 0; i < SLUICE_GATE_QUANTILES; i++) out->quantiles[i] = NAN;
        return;
    }
    sluice__gate_head a = all_heads(g);
    double count = (double)g->tokens * g->heads * g->width;
    for (int h = 0; h < g->heads; h++) head_result(g, out, h);
    out->mean = a.sum / count;
    out->std = deviation(&a, count);
    out->min = a.min;
    out->max = a.max;
    out->below_01 = (double)a.below_01 / count;
    out->below_05 = (double)a.below_05 / count;
    memcpy(out->hist, a.hist, sizeof out->hist);
    out->below = a.below;
    out->above = a.above;
    for (int i = 0; i < SLUICE_GATE_QUANTILES; i++)
        out->quantiles[i] = quantile(g, quantiles[i], count, a.min, a.max);
}
